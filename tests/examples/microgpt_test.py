"""The example microgpt against examples/microgpt.py, which computes the same with Python's `random` alone."""

import json

import numpy as np
import pytest

from examples import microgpt
from support.attn import ROOT, attn

FOLDER = ROOT / "data" / "examples" / "microgpt"
JOB = FOLDER / "job.json"


@pytest.fixture(scope="module")
def matrices():
    return microgpt.drawn_matrices()


def outputs_of(folder, *flags):
    run = attn("run", JOB, *flags, "-o", "result.npz", cwd=folder)
    assert run.returncode == 0, run.stderr
    return np.load(folder / "result.npz")


def padded(weights):
    """(H, L, L), with zeros for hidden keys."""
    return np.array([[row + [0] * (len(head) - len(row)) for row in head] for head in weights])


def test_loss_is_the_first_that_microgpt_prints(matrices):
    assert f"{microgpt.loss(matrices, microgpt.NAME):.4f}" == "3.3660"


def test_expected_text_is_that_of_python(matrices):
    assert (FOLDER / "expected.txt").read_text() == microgpt.text_of(microgpt.attention(matrices, microgpt.NAME)[0])


def test_embeddings_are_sums_of_drawn_rows(matrices):
    assert json.loads(JOB.read_text())["embeddings"] == microgpt.embeddings(matrices, microgpt.NAME)


def test_results_are_those_of_python(tmp_path, matrices):
    weights, contexts = microgpt.attention(matrices, microgpt.NAME)
    found = outputs_of(tmp_path)
    np.testing.assert_allclose(found["weights"], padded(weights), rtol=1e-13, atol=0)
    outputs = [microgpt.product(matrices["attn_wo"], context) for context in contexts]
    np.testing.assert_allclose(found["output"], outputs, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["emma", "z", "abcdefghijklmno"])
def test_names_of_the_reader(tmp_path, matrices, name):
    """As docs/examples.md computes emma."""
    np.save(tmp_path / "x.npy", microgpt.embeddings(matrices, name))
    found = outputs_of(tmp_path, "--embeddings", "x.npy", "--tokens", ",".join(["BOS", *name]))
    np.testing.assert_allclose(found["weights"], padded(microgpt.attention(matrices, name)[0]), rtol=1e-13, atol=0)


def test_weights_that_the_page_shows(matrices):
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    for head in microgpt.attention(matrices, "emma")[0]:
        row = np.array2string(np.array(head[-1]), precision=8)
        assert row in page
