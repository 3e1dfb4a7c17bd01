"""The error bound of `attn compare --reference` for sums whose addends cancel: scores and biases, sinks, b_Q.

The kernels are simulated here: every operation is rounded to float32, and addends are added in random order.
BIAS_JOBS=N in the environment simulates N kernels of each kind.
"""

import json
import os

import numpy as np
import pytest

from support.attn import attn

JOBS = int(os.environ.get("BIAS_JOBS", 12))
F = np.float32


def sum_in_any_order(rng, addends):
    """The float32 sum of arrays: two of them, chosen at random, are replaced by their sum until one is left."""
    addends = [np.asarray(x, F) for x in addends]
    while len(addends) > 1:
        i, j = sorted(rng.choice(len(addends), 2, replace=False))
        addends[i] = addends[i] + addends.pop(j)
    return addends[0]


def relative_distances(L, S):
    return np.arange(S) - np.arange(L)[:, None]


def random_job(rng):
    """A job of one head with two or more biases that nearly cancel, and its biases (L, S) in float32."""
    L, S, D = (int(rng.integers(1, 6)) for _ in range(3))
    size = 10.0 ** rng.integers(-2, 4)
    job = {name: rng.standard_normal((n, D)).astype(F) * F(10.0 ** rng.integers(-3, 1))
           for name, n in [("Q", L), ("K", S), ("V", S)]}
    biases, kinds = {}, rng.permutation(["mask", "bias", "key_mask", "alibi_slopes", "relative_bias"])
    for kind in kinds[:rng.integers(2, 6)]:
        if kind == "alibi_slopes":
            slope = F(rng.uniform(-1, 1) * size)
            job[kind] = np.array([slope])
            biases[kind] = -slope * abs(relative_distances(L, S)).astype(F)
        elif kind == "relative_bias":  # buckets: distance 0 and keys before, then keys after the query
            job[kind] = (rng.standard_normal((32, 1)) * size).astype(F)
            job["relative"] = {"direction": "both"}
            d = relative_distances(L, S)
            biases[kind] = job[kind][np.where(d > 0, 16 + d, -d), 0]
        else:
            job[kind] = (rng.standard_normal(S if kind == "key_mask" else (L, S)) * size).astype(F)
            biases[kind] = np.broadcast_to(job[kind], (L, S))
    target = next((kind for kind in ["mask", "bias"] if kind in biases), None)
    if target and rng.random() < 0.8:
        job[target] = (job[target] * F(1e-4) - sum_in_any_order(rng, [biases[k] for k in biases if k != target]))
        biases[target] = job[target]
    if rng.random() < 0.5:
        job["softcap"] = float(F(size * rng.uniform(0.01, 2)))
        job["softcap_order"] = str(rng.choice(["before-mask", "after-mask"]))
    return job, biases


def capped(x, job, order):
    if "softcap" not in job or job["softcap_order"] != order:
        return x
    c = F(job["softcap"])
    return c * np.tanh(x / c)


def kernel(rng, job, biases):
    """The outputs of a right kernel."""
    q, k = job["Q"], job["K"]
    scores = sum_in_any_order(rng, [q[:, None, d] * k[None, :, d] for d in range(q.shape[1])])
    scaled = capped(scores * F(1 / np.sqrt(q.shape[1])), job, "before-mask")
    masked = capped(sum_in_any_order(rng, [scaled, *biases]), job, "after-mask")
    return {"masked_scores": masked, **softmax(rng, masked, job["V"])}


def softmax(rng, masked, v, sink=None):
    largest = masked.max(1, keepdims=True)
    if sink is not None:
        largest = np.maximum(largest, sink)
    powers = np.exp(masked - largest)
    terms = [powers[:, j:j + 1] for j in range(powers.shape[1])] + ([] if sink is None else [np.exp(sink - largest)])
    total = sum_in_any_order(rng, terms)
    weights = powers / total
    context = sum_in_any_order(rng, [weights[:, j:j + 1] * v[j] for j in range(len(v))])
    return {"weights": weights, "logsumexp": (largest + np.log(total))[:, 0], "context": context}


def largest_fraction(folder, job, outputs):
    """The largest error of the outputs, as a fraction of the bound."""
    numbers = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in job.items()}
    (folder / "job.json").write_text(json.dumps(numbers))
    np.savez(folder / "out.npz", **{name: x.astype(F) for name, x in outputs.items()})
    run = attn("compare", "out.npz", "--reference", "job.json", "--precision", "f32", "--json", cwd=folder)
    assert run.returncode in (0, 1), run.stderr
    return max((t["bound"]["worst"] or {"value": 0})["value"] for t in json.loads(run.stdout)["tensors"])


def halved(x):
    return np.asarray(x, np.float16).astype(F)


@pytest.mark.parametrize("seed", range(JOBS))
def test_biases_that_cancel(tmp_path, seed):
    rng = np.random.default_rng(seed)
    job, biases = random_job(rng)
    assert largest_fraction(tmp_path, job, kernel(rng, job, biases.values())) <= 1


@pytest.mark.parametrize("fault", [lambda biases: [*biases, biases[0]], lambda biases: biases[1:],
                                   lambda biases: [halved(biases[0]), *biases[1:]]],
                         ids=["added twice", "left out", "rounded to float16"])
@pytest.mark.parametrize("seed", range(JOBS // 3))
def test_wrong_bias_exceeds_the_bound(tmp_path, seed, fault):
    rng = np.random.default_rng(seed)
    job, biases = random_job(rng)
    job.pop("softcap", None), job.pop("softcap_order", None)
    biases = sorted(biases.values(), key=lambda bias: abs(bias).max(), reverse=True)
    assert largest_fraction(tmp_path, job, kernel(rng, job, fault(biases))) > 1


def job_with_sink(rng):
    L, S, D = (int(rng.integers(1, 6)) for _ in range(3))
    job = {name: rng.standard_normal((n, D)).astype(F) for name, n in [("Q", L), ("K", S), ("V", S)]}
    return job | {"sinks": (abs(rng.standard_normal(1)) * 10.0 ** rng.integers(0, 3)).astype(F)}


@pytest.mark.parametrize("seed", range(JOBS))
def test_sinks(tmp_path, seed):
    rng = np.random.default_rng(seed)
    job = job_with_sink(rng)
    right = kernel(rng, job, [])
    outputs = right | softmax(rng, right["masked_scores"], job["V"], job["sinks"][0])
    assert largest_fraction(tmp_path, job, outputs) <= 1
    wrong = softmax(rng, right["masked_scores"], job["V"], job["sinks"][0] + 1)
    assert largest_fraction(tmp_path, job, right | wrong) > 1


@pytest.mark.parametrize("seed", range(JOBS))
def test_bias_of_a_projection(tmp_path, seed):
    rng = np.random.default_rng(seed)
    L, M, D = int(rng.integers(1, 6)), int(rng.integers(1, 40)), int(rng.integers(1, 6))
    x, W = rng.standard_normal((L, M)).astype(F), rng.standard_normal((M, D)).astype(F)
    terms = [x[:, m:m + 1] * W[m] for m in range(M)]
    b = (-sum(terms)[0] * (1 + 1e-5 * rng.standard_normal(D)) * 10.0 ** rng.integers(0, 3)).astype(F)
    for bias, is_right in [(b, True), (2 * b, False)]:
        queries = np.broadcast_to(bias, (L, D))
        for term in rng.permutation(terms):  # an accumulator that starts with the bias
            queries = queries + term
        job = {"embeddings": x, "W_Q": W, "W_K": W, "b_Q": b}
        assert (largest_fraction(tmp_path, job, {"queries": queries}) <= 1) == is_right
