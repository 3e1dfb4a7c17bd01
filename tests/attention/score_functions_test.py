"""The scores l2, additive and concat by the kernels, compared with NumPy."""

import numpy as np
import pytest

from support.attn import attn
from support.jobs import run_arrays

SHAPES = [(2, 4, 2, 40, 700, 16), (1, 2, 1, 1, 1100, 33), (1, 3, 3, 13, 7, 8)]
OUTPUTS = ["scores", "weights", "context", "logsumexp"]
WIDTH, SCALE = 5, 0.25


def tensors_of(name, shape, dtype, spread=1.0):
    B, H, G, L, S, D = shape
    rng = np.random.default_rng(7)
    given = {"Q": rng.normal(0, spread, (B, H, L, D)), "K": rng.normal(0, spread, (B, G, S, D)),
             "V": rng.standard_normal((B, G, S, 9)), "bias": rng.standard_normal((H, L, S))}
    if name == "additive":
        given.update(W_score_Q=rng.standard_normal((D, WIDTH)), W_score_K=rng.standard_normal((D, WIDTH)))
    if name == "concat":
        given["W_score"] = rng.standard_normal((2 * D, WIDTH))
    if name != "l2":
        given.update(b_score=rng.standard_normal(WIDTH), v_score=rng.standard_normal(WIDTH), g_score=np.array(2.5))
    given = {key: x.astype(dtype) for key, x in given.items()}
    return {**given, "mask": rng.random((L, S)) < 0.8}


def scores_of(name, given):
    """In float64."""
    t = {key: x.astype("f8") for key, x in given.items()}
    k = np.repeat(t["K"], t["Q"].shape[1] // t["K"].shape[1], axis=1)[:, :, None]
    q, D = t["Q"][:, :, :, None], t["Q"].shape[-1]
    if name == "l2":
        return -((q - k) ** 2).sum(-1)
    weights = (t["W_score"][:D], t["W_score"][D:]) if name == "concat" else (t["W_score_Q"], t["W_score_K"])
    v = t["g_score"] * t["v_score"] / np.sqrt((t["v_score"] ** 2).sum())
    return np.tanh(q @ weights[0] + k @ weights[1] + t["b_score"]) @ v


def expected_of(name, given):
    scores = scores_of(name, given)
    x = np.where(given["mask"], scores * SCALE + given["bias"], -np.inf)
    e = np.exp(x - x.max(-1, keepdims=True))
    weights = e / e.sum(-1, keepdims=True)
    values = np.repeat(given["V"].astype("f8"), x.shape[1] // given["V"].shape[1], axis=1)
    return {"scores": scores, "weights": weights, "context": weights @ values,
            "logsumexp": x.max(-1) + np.log(e.sum(-1))}


def outputs_in(folder, dtype, name, given, **options):
    found = run_arrays(folder, given, score=name, **{"scale": SCALE, **options})
    assert found["context"].dtype == dtype
    return found


@pytest.mark.parametrize("outputs", [["context"], OUTPUTS])
@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("dtype, tolerance", [("f8", 1e-12), ("f4", 2e-5)])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["l2", "additive", "concat"])
def test_numbers_are_those_of_the_formula(tmp_path, name, shape, dtype, tolerance, path, outputs):
    given = tensors_of(name, shape, dtype)
    expected = expected_of(name, given)
    found = outputs_in(tmp_path, dtype, name, given, path=path, outputs=outputs)
    for output in outputs:
        np.testing.assert_allclose(found[output], expected[output], rtol=tolerance,
                                   atol=tolerance * np.abs(expected[output]).max(), err_msg=output)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"softcap": 3.0, "normaliser": "sparsemax"}])
@pytest.mark.parametrize("name", ["l2", "additive"])
def test_bytes_do_not_depend_on_threads(tmp_path, name, options):
    given = tensors_of(name, (1, 4, 2, 150, 600, 16), "f4")
    found = set()
    outputs_in(tmp_path, "f4", name, given, outputs=["context"], **options)
    for threads in "1", "2", "3":
        done = attn("run", "job.json", "-o", "context.npy", "--force", "--threads", threads, cwd=tmp_path)
        assert done.returncode == 0, done.stderr.decode()
        found.add((tmp_path / "context.npy").read_bytes())
    assert len(found) == 1


@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_distances_of_neighbours_far_from_the_origin_keep_their_digits(tmp_path, offset):
    """|q|^2 + |k|^2 - 2 q k would lose all of them."""
    rng = np.random.default_rng(3)
    keys = (offset + rng.integers(-8, 9, (30, 16)) / 8).astype("f4")
    given = {"Q": keys[::-1].copy(), "K": keys, "V": keys}
    found = outputs_in(tmp_path, "f4", "l2", given, outputs=["scores", "context"])["scores"]
    expected = -((given["Q"].astype("f8")[:, None] - keys.astype("f8")) ** 2).sum(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.count_nonzero(found == 0) >= 30 and not np.signbit(found[found == 0]).any()


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("scale", [1e-18, 1e-3])
def test_large_distances_are_as_by_the_reference_path(tmp_path, scale, path):
    given = {"Q": np.array([[1e18, 0], [3e19, 0], [0, 1]], "f4"), "K": np.array([[1e18, 1e18], [-3e19, 0]], "f4"),
             "V": np.eye(2, dtype="f4")}
    found = outputs_in(tmp_path, "f4", "l2", given, outputs=["scores", "context"], scale=scale, path=path)
    with np.errstate(over="ignore"):
        exact = -((given["Q"].astype("f8")[:, None] - given["K"].astype("f8")) ** 2).sum(-1)
        np.testing.assert_allclose(found["scores"], exact.astype("f4"), rtol=1e-6)
    assert found["context"][0].tolist() == [1, 0]


@pytest.mark.parametrize("spread", [1e-5, 1e-2, 1, 30, 1e4])
def test_a_tanh_keeps_its_digits(tmp_path, spread):
    """Of small arguments and of those far beyond 1."""
    rng = np.random.default_rng(5)
    given = {"Q": rng.normal(0, spread, (20, 1)).astype("f4"), "K": rng.normal(0, spread, (90, 1)).astype("f4"),
             "V": np.ones((90, 1), "f4")}
    found = outputs_in(tmp_path, "f4", "additive", given, outputs=["scores", "context"])["scores"]
    np.testing.assert_allclose(found, np.tanh((given["Q"] + given["K"].T).astype("f8")), rtol=6 * 2.0 ** -24)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_tanh_of_infinity_is_one(tmp_path, dtype):
    given = {"Q": np.array([[0.5], [np.inf]], dtype), "K": np.array([[np.inf], [-1], [1e30]], dtype), "V": np.eye(3, dtype=dtype)}
    found = run_arrays(tmp_path, given, score="additive", outputs=["scores", "context"])
    np.testing.assert_allclose(found["scores"], [[1, np.tanh(-.5), 1], [1, 1, 1]], rtol=1e-6)


@pytest.mark.parametrize("name", ["l2", "additive", "concat"])
def test_scales_of_heads(tmp_path, name):
    given = {**tensors_of(name, SHAPES[2], "f8"), "head_scale": np.array([0.5, -1.0, 2.0])}
    del given["bias"], given["mask"]
    scores = scores_of(name, given) * given["head_scale"][:, None, None] * SCALE
    e = np.exp(scores)
    found = run_arrays(tmp_path, given, score=name, scale=SCALE, outputs=["weights"])
    np.testing.assert_allclose(found["weights"], e / e.sum(-1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("name", ["l2", "additive"])
def test_selected_rows_have_the_bytes_of_all(tmp_path, name):
    given = tensors_of("l2", SHAPES[0], "f4")
    found = [run_arrays(tmp_path, given, score=name, outputs=["context"], rows=rows)["context"]
             for rows in (list(range(40)), [3, 20])]
    assert found[0][:, :, [3, 20]].tobytes() == found[1].tobytes()


def test_gradients_use_the_reference_path(tmp_path):
    given = {**tensors_of("l2", SHAPES[2], "f8"), "grad_context": np.ones((1, 3, 13, 9))}
    run_arrays(tmp_path, given, score="l2", outputs=["grad_Q"])
    done = attn("run", "job.json", "--dry-run", cwd=tmp_path)
    assert b"reference path (because of score)" in done.stdout, done.stderr
