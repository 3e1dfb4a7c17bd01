"""Names of arrays and files that contain '#'."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn

NAMES = ["a", "a#b", "#", "##", "a#", "#a", "it's", "'", "''", "a#'b'", "'a'", "b.npz#a", "x y"]


def array_of(name):
    return np.array([float(NAMES.index(name))])


@pytest.fixture
def folder(tmp_path):
    """hh.npz has arrays of all names; h#h.npz and hh.npz#c have one."""
    arrays = {name: array_of(name) for name in NAMES}
    np.savez(tmp_path / "hh.npz", **arrays)
    np.savez(tmp_path / "h#h.npz", **arrays)
    return tmp_path


def convert(folder, ref):
    run = attn("convert", ref, "--format", "json", cwd=folder)
    assert run.returncode == 0, run.stderr.decode()
    return json.loads(run.stdout)


@pytest.mark.parametrize("file", ["hh.npz", "h#h.npz", "./hh.npz"])
@pytest.mark.parametrize("name", NAMES)
def test_every_name_can_be_selected(folder, name, file):
    assert convert(folder, f"{file}#'{name}'") == array_of(name).tolist()


@pytest.mark.parametrize("file", ["hh.npz", "h#h.npz"])
@pytest.mark.parametrize("name", ["a", "a#b", "#", "##", "a#", "#a", "it's", "b.npz#a", "x y"])
def test_names_without_quotes(folder, name, file):
    assert convert(folder, f"{file}#{name}") == array_of(name).tolist()


def test_standard_input(folder):
    data = (folder / "hh.npz").read_bytes()
    for ref in "-#a#b", "-#'a#b'":
        run = attn("run", "--q", "[[1.0]]", "--k", "[[1.0]]", f"--sinks={ref}", "--outputs", "sinks", "--format",
                   "json", stdin=data, cwd=folder)
        assert json.loads(run.stdout)["sinks"] == array_of("a#b").tolist()


def test_job_file(folder):
    (folder / "sub").mkdir()
    job = {"Q": [[1.0]], "K": [[1.0]], "sinks": "../hh.npz#a#b", "outputs": ["sinks"]}
    (folder / "sub" / "job.json").write_text(json.dumps(job))
    run = attn("run", "sub/job.json", "--format", "json", cwd=folder)
    assert json.loads(run.stdout)["sinks"] == array_of("a#b").tolist()


def test_longest_file_name_is_used(folder):
    with open(folder / "hh.npz#a", "wb") as file:
        np.savez(file, b=np.array([99.0]))
    assert convert(folder, "hh.npz#a#b") == [99.0]
    assert convert(folder, "hh.npz#'a#b'") == array_of("a#b").tolist()


def test_missing_file(folder):
    assert_error(attn("convert", "none.npz#a#b", "--format", "json", cwd=folder), 66, "none.npz")
