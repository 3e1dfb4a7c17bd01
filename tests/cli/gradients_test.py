"""Gradients on the command line: their names, where they are written, and what is refused."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn

JOB = {"Q": [[1.0, 0.0], [0.0, 2.0]], "K": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], "V": [[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]],
       "grad_context": [[1.0, 0.0], [0.0, 1.0]]}


@pytest.fixture
def run(tmp_path):
    def run(*arguments, **keys):
        (tmp_path / "job.json").write_text(json.dumps(JOB | keys))
        return attn("run", "job.json", *arguments, cwd=tmp_path)
    return run


@pytest.mark.parametrize("name", ["dq", "q.grad", "grad_Q", "grad_query"])
def test_a_file_is_named_as_in_outputs(run, tmp_path, name):
    assert run("--outputs", name, "-o", "all.npz").returncode == 0
    assert run("-o", f"{name}=one.npy").returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "one.npy"), np.load(tmp_path / "all.npz")["grad_Q"])


def test_a_path_with_a_dot_is_no_name(run, tmp_path):
    assert run("--outputs", "grad_Q", "-o", "a.b=c.npy").returncode == 0
    assert (tmp_path / "a.b=c.npy").exists()
