"""More than two additive tensors, and biases by distance where keys are not at consecutive positions, compared with NumPy."""

import json

import numpy as np
import pytest

from support.attn import attn
from support.jobs import run_arrays

B, H, G, L, S, D = 2, 4, 2, 70, 130, 8
HIDDEN = -np.inf


def qkv(rng, dtype, queries=L, keys=S):
    return {"Q": rng.standard_normal((B, H, queries, D)).astype(dtype),
            **{name: rng.standard_normal((B, G, keys, D)).astype(dtype) for name in "KV"}}


def attended(given, terms):
    """Weights and context in float64. `terms` are added; -inf hides a key."""
    t = {key: given[key].astype("f8") for key in "QKV"}
    k, v = (np.repeat(t[key], H // G, axis=1) for key in "KV")
    x = t["Q"] @ k.swapaxes(2, 3) / np.sqrt(D) + terms
    e = np.exp(x - x.max(-1, keepdims=True))
    weights = e / e.sum(-1, keepdims=True)
    return {"weights": weights, "context": weights @ v}


def check(folder, given, terms, dtype, outputs=("weights", "context"), **options):
    expected = attended(given, terms)
    for wanted in list(outputs), ["context"]:
        found = run_arrays(folder, given, outputs=wanted, **options)
        for name in wanted:
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-13 if dtype == "f8" else 3e-6, err_msg=name)


def hiding(rng, share, shape):
    """Numbers, some of them -inf, but none for key 3."""
    hidden = rng.random(shape) < share
    hidden[..., 3] = False
    return np.where(hidden, HIDDEN, rng.standard_normal(shape))


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_three_and_four_tensors(tmp_path, dtype, path):
    rng = np.random.default_rng(2)
    tensors = {"bias": hiding(rng, 0.2, (H, L, S)), "mask": hiding(rng, 0.1, (B, 1, L, S)), "key_mask": rng.standard_normal((B, S))}
    given = {**qkv(rng, dtype), **{name: x.astype(dtype) for name, x in tensors.items()}}
    total = given["bias"].astype("f8") + given["mask"] + given["key_mask"][:, None, None].astype("f8")
    check(tmp_path, given, total, dtype, path=path)
    distance = np.abs(np.arange(L)[:, None] - np.arange(S))
    check(tmp_path, given, total - 0.1 * distance, dtype, path=path, bias_rule="-0.1 * abs(q - k)")


@pytest.mark.parametrize("other", [np.inf, np.nan, -3e38, 1.0])
def test_minus_infinity_hides_a_key_whatever_is_added(tmp_path, other):
    bias = np.array([[0, HIDDEN, other, 0]], "f4")
    mask = np.array([[0, other, HIDDEN, 0]], "f4")
    given = {"Q": np.ones((1, 2), "f4"), "K": np.zeros((4, 2), "f4"), "V": np.eye(4, dtype="f4"), "bias": bias, "mask": mask,
             "key_mask": np.array([1, 0, 0, 1], "f4")}
    found = run_arrays(tmp_path, given, bias_rule="0 * q", outputs=["context", "weights"])
    assert found["weights"].tolist() == [[0.5, 0, 0, 0.5]] and found["context"].tolist() == [[0.5, 0, 0, 0.5]]


def test_sums_of_the_lowest_numbers_do_not_hide_keys(tmp_path):
    lowest = np.finfo("f4").min
    given = {"Q": np.ones((1, 2), "f4"), "K": np.zeros((2, 2), "f4"), "V": np.eye(2, dtype="f4"),
             "bias": np.array([[lowest, lowest]], "f4"), "mask": np.array([[lowest, HIDDEN]], "f4"),
             "key_mask": np.array([lowest, 0], "f4")}
    found = run_arrays(tmp_path, given, bias_rule="0 * q", outputs=["context"])
    assert found["context"].tolist() == [[1, 0]]


def documents_of(rng, count):
    """Interleaved, the same number of tokens of each for queries and keys."""
    return rng.permutation(np.arange(count) % 3)


def positions(documents):
    return np.array([np.count_nonzero(documents[:i] == d) for i, d in enumerate(documents)])


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"mask_and_bias": True}])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_alibi_with_interleaved_documents(tmp_path, dtype, options, path):
    rng = np.random.default_rng(9)
    given = {**qkv(rng, dtype, S, S), "documents": documents_of(rng, S), "alibi_slopes": rng.random(H).astype(dtype)}
    at = positions(given["documents"])
    distance = at[:, None] - at
    terms = -given["alibi_slopes"].astype("f8")[:, None, None] * np.abs(distance)
    terms = np.where(given["documents"][:, None] == given["documents"], terms, HIDDEN)
    if "causal" in options:
        terms = np.where(distance >= 0, terms, HIDDEN)
    if "mask_and_bias" in options:
        options = {}
        given.update(bias=rng.standard_normal((H, S, S)).astype(dtype), mask=rng.standard_normal((S, S)).astype(dtype))
        terms = terms + given["bias"].astype("f8") + given["mask"].astype("f8")
    check(tmp_path, given, terms, dtype, path=path, **options)


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_relative_bias_and_alibi_of_each_item_with_documents_of_each_item(tmp_path, dtype, path):
    rng = np.random.default_rng(4)
    documents = np.array([documents_of(rng, S), np.zeros(S, int)])
    given = {**qkv(rng, dtype, S, S), "documents": documents, "relative_bias": rng.standard_normal((5, H)).astype(dtype),
             "alibi_slopes": rng.random((B, H)).astype(dtype)}
    at = np.array([positions(one) for one in documents])
    before = np.maximum(at[:, :, None] - at[:, None], 0)
    # max_distance 5 of 5 buckets, 2 exact ones: log(d / 2) / log(5 / 2) * 3 more.
    wide = 2 + np.minimum((np.log(np.maximum(before, 2) / 2) / np.log(2.5) * 3).astype(int), 2)
    buckets = np.where(before < 2, before, wide)
    terms = given["relative_bias"].astype("f8")[buckets].transpose(0, 3, 1, 2)
    terms = terms - given["alibi_slopes"].astype("f8")[:, :, None, None] * np.abs(at[:, None, :, None] - at[:, None, None])
    terms = np.where(documents[:, None, :, None] == documents[:, None, None], terms, HIDDEN)
    check(tmp_path, given, terms, dtype, path=path, relative={"direction": "past", "max_distance": 5})


@pytest.mark.parametrize("path", ["auto", "reference"])
def test_appended_keys_are_at_no_distance(tmp_path, path):
    rng = np.random.default_rng(6)
    given = {**qkv(rng, "f8"), "alibi_slopes": rng.random(H)}
    found = run_arrays(tmp_path, given, outputs=["context"], zero_key=True, path=path)["context"]
    with_zero = {**given, **{name: np.concatenate([given[name], np.zeros((B, G, 1, D))], 2) for name in "KV"}}
    distance = np.abs(np.arange(L)[:, None] - np.arange(S + 1))
    distance[:, -1] = 0
    expected = attended(with_zero, -given["alibi_slopes"][:, None, None] * distance)["context"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def test_bytes_do_not_depend_on_threads_and_rows(tmp_path):
    rng = np.random.default_rng(1)
    given = {**qkv(rng, "f4", S, S), "documents": documents_of(rng, S), "alibi_slopes": rng.random(H).astype("f4"),
             "bias": rng.standard_normal((H, S, S)).astype("f4"), "mask": rng.standard_normal((S, S)).astype("f4")}
    whole = run_arrays(tmp_path, given, outputs=["context"])["context"]
    for threads in "1", "3":
        done = attn("run", "job.json", "-o", "context.npy", "--force", "--threads", threads, cwd=tmp_path)
        assert done.returncode == 0, done.stderr.decode()
        assert np.load(tmp_path / "context.npy").tobytes() == whole.tobytes()
    some = run_arrays(tmp_path, given, outputs=["context"], rows=[5, 100])["context"]
    assert some.tobytes() == whole[:, :, [5, 100]].tobytes()


@pytest.mark.parametrize("tensors, reason", [
    ({"bias": np.ones((L, S)), "mask": np.ones((L, S)), "key_mask": np.ones(S)}, "bias"),
    ({"alibi_slopes": np.ones(H), "documents": np.arange(L) % 2, "key_documents": np.arange(S) % 2}, "alibi"),
])
def test_gradients_with_them_use_the_reference_path(tmp_path, tensors, reason):
    rng = np.random.default_rng(1)
    given = {**qkv(rng, "f8"), "grad_context": np.ones((B, H, L, D)), **tensors}
    found = {path: run_arrays(tmp_path, given, outputs=["grad_Q", "context"], path=path) for path in ("reference", "auto")}
    np.testing.assert_array_equal(found["auto"]["grad_Q"], found["reference"]["grad_Q"])
    plan = json.loads(attn("run", "job.json", "--dry-run", "--format", "json", cwd=tmp_path).stdout)
    assert plan["fallback_reason"] == reason
