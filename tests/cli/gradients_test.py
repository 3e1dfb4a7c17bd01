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


def test_description(run):
    lines = run("--outputs", "grad_Q,delta").stdout.decode().splitlines()
    assert lines[0] == "grad_Q (2, 2): gradient of the loss with respect to Q"


def test_drawing_has_the_description(run, tmp_path):
    assert run("--outputs", "grad_Q", "-o", "all.npz").returncode == 0
    drawn = attn("view", "all.npz", cwd=tmp_path).stdout.decode().splitlines()
    assert drawn[:2] == ["grad_Q", "gradient of the loss with respect to Q"]


@pytest.mark.parametrize("name, of", [
    ("grad_dropout_mask", "dropout_mask"), ("dk_scale", "k_scale"), ("key_lengths.grad", "key_lengths"), ("dCKV", "CKV"),
    ("grad_seqused_k", "key_lengths")])
def test_input_without_a_gradient(run, name, of):
    error = run("--outputs", name)
    assert_error(error, 2, f"attn: --outputs: '{name}' does not exist, because {of} has no gradient\n")


def test_integers_have_no_gradient(run):
    error = run("--outputs", "grad_Q", Q=[[1, 0], [0, 2]])
    assert_error(error, 2, "'grad_Q' does not exist, because Q has dtype int64; floating-point numbers have a gradient (in "
                 "JSON, write 1.0 instead of 1)\n")


UNUSED = "attn: warning: grad_context: has an effect only on gradients; request them with --outputs grad_Q,...\n"


@pytest.mark.parametrize("arguments, warned", [
    ([], True), (["-o", "all.npz"], True), (["--outputs", "context"], False), (["-o", "context=c.npy"], False),
    (["--outputs", "grad_Q"], False)])
def test_derivative_of_a_loss_without_gradients(run, tmp_path, arguments, warned):
    found = run(*arguments)
    assert found.returncode == 0 and found.stderr.decode() == (UNUSED if warned else "")


def test_sensitivity_of_a_gradient(run, tmp_path):
    run()
    assert_error(attn("sensitivity", "job.json", "--of", "grad_Q", cwd=tmp_path), 2,
                 "attn: --of grad_Q: mistakes of gradients are not tested; attn compare --reference finds those in a result\n")
