"""Decoding with a KV cache gives the same results as one pass over all tokens.

The layer is Llama's: rotary positions, grouped heads, a causal mask and an output projection. Each
step is a separate run that reads the keys and values written by the previous step.
"""

import numpy as np
import pytest

from support.attn import attn

TOKENS, WIDTH, HEADS, GROUPS, D = 16, 24, 6, 2, 8
LAYER = ["--wq", "layer.npz#W_Q", "--wk", "layer.npz#W_K", "--wv", "layer.npz#W_V", "--wo",
         "layer.npz#W_O", "--heads", HEADS, "--kv-heads", GROUPS, "--rotary", "half", "--causal"]
OPTIONS = {"plain": [], "window": ["--window", "5,0"], "alibi and qk-norm": ["--alibi", "--qk-norm", "rms"],
           "sinusoidal positions": ["--position", "sinusoidal"]}
STEPS = {"one token a step": [1] * TOKENS, "steps of 7, 1, 1 and 7": [7, 1, 1, 7]}


@pytest.fixture(scope="module")
def layer(module_path):
    """A folder with the weights in layer.npz and the embeddings in x.npy."""
    folder = module_path
    rng = np.random.default_rng(0)
    np.savez(folder / "layer.npz", W_Q=rng.standard_normal((WIDTH, HEADS * D)),
             W_K=rng.standard_normal((WIDTH, GROUPS * D)),
             W_V=rng.standard_normal((WIDTH, GROUPS * D)),
             W_O=rng.standard_normal((HEADS * D, WIDTH)))
    np.save(folder / "x.npy", rng.standard_normal((TOKENS, WIDTH)))
    return folder


def run_layer(folder, *args):
    run = attn("run", *LAYER, *args, cwd=folder)
    assert run.returncode == 0, run.stderr.decode()


def decode(folder, step_sizes, options):
    """Runs the tokens step by step; returns the weights and outputs of all tokens."""
    first, past, weights, outputs = 0, [], [], []
    for size in step_sizes:
        np.save(folder / "step.npy", np.load(folder / "x.npy")[first:first + size])
        files = [f"present_K=k{first}.npy", f"present_V=v{first}.npy", "weights=w.npy", "output=o.npy"]
        run_layer(folder, "--embeddings", "step.npy", *past, *options, "--force",
                  *(word for file in files for word in ("-o", file)))
        past = ["--past-k", f"k{first}.npy", "--past-v", f"v{first}.npy"]
        w = np.load(folder / "w.npy")
        weights += [np.pad(w[:, i], ((0, 0), (0, TOKENS - w.shape[2]))) for i in range(size)]
        outputs += list(np.load(folder / "o.npy"))
        first += size
    return {"weights": np.stack(weights, 1), "output": np.stack(outputs)}


@pytest.fixture(scope="module", params=OPTIONS)
def options(request):
    return OPTIONS[request.param]


@pytest.fixture(scope="module")
def one_pass(layer, options):
    run_layer(layer, "--embeddings", "x.npy", *options, "-o", "full.npz", "--outputs", "weights,output",
              "--force")
    with np.load(layer / "full.npz") as full:
        return dict(full)


@pytest.fixture(scope="module", params=STEPS)
def decoded(request, layer, options):
    return decode(layer, STEPS[request.param], options)


def test_weights_match_one_pass(decoded, one_pass):
    assert np.abs(decoded["weights"] - one_pass["weights"]).max() <= 1e-14


def test_outputs_match_one_pass(decoded, one_pass):
    largest = np.abs(one_pass["output"]).max()
    assert np.abs(decoded["output"] - one_pass["output"]).max() / largest <= 1e-14
