"""Warnings about weights whose first axis may be layers or the batch."""

import numpy as np
import pytest

from support.attn import attn

WARNING = (b"attn: warning: w.npy (2, 3, 4, 4): the axes are taken as batch, head, L, S; if the first one is layers, "
           b"save x[:, None], which is layer, batch, head, L, S\n")


def weights(*shape):
    w = np.random.default_rng(1).random(shape)
    return w / w.sum(-1, keepdims=True)


@pytest.mark.parametrize("command", ["stats", "rollout"])
@pytest.mark.parametrize("shape, message", [((2, 3, 4, 4), WARNING), ((1, 3, 4, 4), b""), ((3, 4, 4), b""), ((2, 1, 3, 4, 4), b"")])
def test_four_axes_of_an_array(tmp_path, command, shape, message):
    np.save(tmp_path / "w.npy", weights(*shape))
    run = attn(command, "w.npy", cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, message)


def test_the_advice_is_taken(tmp_path):
    w = weights(2, 3, 4, 4)
    np.save(tmp_path / "w.npy", w[:, None])
    run = attn("stats", "w.npy", "--format", "csv", cwd=tmp_path)
    lines = [line.split(",") for line in run.stdout.decode().splitlines()[1:]]
    assert [(line[2], line[4]) for line in lines] == [(str(layer), str(head)) for layer in range(2) for head in range(3)]
    np.testing.assert_allclose([float(line[10]) for line in lines], w[..., 0].mean(-1).ravel())


def test_items_of_known_batches_cause_no_warning(tmp_path):
    np.savez(tmp_path / "in.npz", Q=np.zeros((2, 3, 4, 1)), K=np.zeros((2, 3, 4, 1)))
    assert attn("run", "in.npz", "--outputs", "weights", "-o", "w.npz", "-o", "w.npy", cwd=tmp_path).returncode == 0
    assert attn("stats", "w.npz", cwd=tmp_path).stderr == b""
    assert attn("stats", "w.npy", "--by", "item", cwd=tmp_path).stderr == b""
    np.savez(tmp_path / "a.npz", *weights(2, 2, 3, 4, 4))
    assert attn("stats", "a.npz", cwd=tmp_path).stderr == b""
