"""compare --reference of large jobs, some heads at a time: the same report, the mistake of a kernel, and the memory."""

import json

import numpy as np
import pytest

from support.attn import attn, attn_and_peak, under_sanitizer

pytestmark = pytest.mark.skipif(under_sanitizer(), reason="large jobs take long there")
MIB = 1 << 20


def inputs(H=32, G=32, L=200, S=200, D=128, dtype=np.float32, B=None):
    r = np.random.default_rng(1)
    shapes = [(H, L, D), (G, S, D), (G, S, D)]
    return [r.standard_normal(shape if B is None else (B, *shape)).astype(dtype) for shape in shapes]


def kernel(q, k, v, scale=None, causal=False, group_of=None):
    """The context and the logsumexp, in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    H, G = q.shape[-3], k.shape[-3]
    groups = np.arange(H) // (H // G) if group_of is None else group_of(np.arange(H), H, G)
    k, v = k[..., groups, :, :], v[..., groups, :, :]
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -.5 if scale is None else scale)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], scores.shape[-1] - scores.shape[-2]), scores, -np.inf)
    largest = scores.max(-1, keepdims=True)  # every query sees a key
    weights = np.exp(scores - largest)
    sums = weights.sum(-1, keepdims=True)
    return weights / sums @ v, (largest + np.log(sums))[..., 0]


def compared(folder, tensors, result, options=(), flags=(), name="context"):
    for key, x in zip("QKV", tensors, strict=True):
        np.save(folder / f"{key}.npy", x if x.ndim == 4 else x[None])
    (folder / "job.json").write_text(json.dumps({key: f"{key}.npy" for key in "QKV"} | dict(options)))
    np.save(folder / "A.npy", result[None])
    run = attn("compare", folder / "A.npy", "--reference", folder / "job.json", "--as", name, "--json", *flags)
    assert run.returncode in (0, 1), run.stderr
    return json.loads(run.stdout)["tensors"][0]


@pytest.mark.parametrize("name", ["context", "logsumexp"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_figures_are_those_of_numpy(tmp_path, name, dtype):
    q, k, v = inputs(H=48, G=12, dtype=dtype)
    right = kernel(q, k, v, causal=True)[name == "logsumexp"][None]
    a = right.astype(dtype)
    a[0, 7, 100] += 2  # a row of one head
    report = compared(tmp_path, (q, k, v), a[0], {"causal": True}, name=name)
    error = np.abs(a.astype(np.float64) - right)
    assert not report["same"] and report["differing"] == a[0, 7, 100].size
    assert report["elements"] == a.size
    at = np.unravel_index(error.argmax(), a.shape)
    assert report["max_abs"]["at"] == list(at)
    assert report["max_abs"]["value"] == pytest.approx(error.max(), rel=1e-12)
    assert report["max_abs"]["a"] == pytest.approx(float(a[at]))
    assert report["max_abs"]["b"] == pytest.approx(right[at], rel=1e-12)
    assert report["rms"] == pytest.approx(np.sqrt((error ** 2).mean()), rel=1e-9)
    assert report["mean_abs"] == pytest.approx(error.mean(), rel=1e-9)
    parts = report["parts"]
    assert [part["head"] for part in parts if part["differing"]] == [7]
    assert [part["max_abs"] for part in parts] == pytest.approx(error.reshape(48, -1).max(1), rel=1e-9)
    assert report["pattern"][:2] == ["head 7 of 48", "row 100 of 200"]


def test_report_is_that_of_a_comparison_of_all_at_once(tmp_path):
    """With --rtol 0 and the same bounds, but not in parts: a mask that hides nothing has heads."""
    q, k, v = inputs()
    a = kernel(q, k, v)[0].astype(np.float32)
    a[3, 5] = np.nan
    in_parts = compared(tmp_path, (q, k, v), a)
    np.save(tmp_path / "mask.npy", np.ones((32, 200, 200), bool))
    at_once = compared(tmp_path, (q, k, v), a, {"mask": "mask.npy"})
    for report in (in_parts, at_once):
        report.pop("search")
    assert in_parts["nan"] == {"both": 0, "a_only": 128, "b_only": 0, "first": [0, 3, 5, 0]}
    assert in_parts == at_once


MISTAKES = {
    "scale": ({}, lambda q, k, v: kernel(q, k, v, 1 / 128)[0], "scale.1/D"),
    "causal": ({}, lambda q, k, v: kernel(q, k, v, causal=True)[0], "causal.added"),
    "heads tiled": ({}, lambda q, k, v: kernel(q, k, v, group_of=lambda h, H, G: h % G)[0], "heads.tiled"),
    "next head": ({}, lambda q, k, v: kernel(q, k, v, group_of=lambda h, H, G: (h // (H // G) + 1) % G)[0],
                  "heads.kv_next"),
    "queries viewed": ({}, lambda q, k, v: kernel(
        q.swapaxes(0, 1).reshape(q.shape), k, v)[0], "heads.queries_viewed"),
    "width of all heads": ({}, lambda q, k, v: kernel(q, k, v, (q.shape[0] * q.shape[2]) ** -.5)[0],
                           "scale.1/sqrt(H*D)"),
    "results of other heads": ({}, lambda q, k, v: kernel(q, k, v)[0][::-1], "heads.permuted"),
    "factor": ({}, lambda q, k, v: kernel(q, k, v)[0] * 1.25, "values.factor"),
    "values reversed": ({}, lambda q, k, v: kernel(q, k, v[:, ::-1])[0], "values.reversed"),
    "next row": ({}, lambda q, k, v: np.roll(kernel(q, k, v)[0], -1, 1), "output.rows_moved"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_named(tmp_path, mistake):
    options, wrong, name = MISTAKES[mistake]
    tensors = inputs(H=64, G=16)
    report = compared(tmp_path, tensors, wrong(*tensors).astype(np.float32), options, ["--diagnose"])
    assert [finding["id"] for finding in report["diagnosis"]] == [name]
    assert report["diagnosis"][0]["explained"] == 1
    assert report["search"]["heads"] == 4 and report["search"]["of_heads"] == 16


def test_two_mistakes_of_which_one_reads_other_heads(tmp_path):
    q, k, v = inputs(H=64, G=16)
    wrong = kernel(q, k[:, :-1], v[:, :-1], group_of=lambda h, H, G: h % G)[0]
    report = compared(tmp_path, (q, k, v), wrong.astype(np.float32), flags=["--diagnose"])
    assert {finding["id"] for finding in report["diagnosis"]} == {"heads.tiled and cache.last_missing"}


def test_mistake_of_one_head(tmp_path):
    q, k, v = inputs()
    a = kernel(q, k, v)[0].astype(np.float32)
    a[29] = kernel(q, k, v, 1 / 128)[0][29]
    report = compared(tmp_path, (q, k, v), a, flags=["--diagnose"])
    assert .99 * a[29].size < report["differing"] <= a[29].size
    assert [finding["id"] for finding in report["diagnosis"]] == ["scale.factor_of_each_head"]
    assert "head 29 of 32" in report["pattern"]


def test_layout_with_heads_last(tmp_path):
    q, k, v = inputs(H=64, G=16)
    wrong = kernel(q, k, v, 1)[0]
    tensors = [x.swapaxes(0, 1) for x in (q, k, v)]
    report = compared(tmp_path, tensors, wrong.swapaxes(0, 1).astype(np.float32), {"layout": "blhd"}, ["--diagnose"])
    assert [finding["id"] for finding in report["diagnosis"]] == ["scale.none"]
    assert report["search"]["heads"] == 4


def test_batch_items_without_heads(tmp_path):
    tensors = inputs()  # (32, 200, 128), and no axis of heads
    for key, x in zip("QKV", tensors, strict=True):
        np.save(tmp_path / f"{key}.npy", x)
    (tmp_path / "job.json").write_text(json.dumps({key: f"{key}.npy" for key in "QKV"}))
    np.save(tmp_path / "A.npy", kernel(*tensors, 1)[0].astype(np.float32))
    run = attn("compare", tmp_path / "A.npy", "--reference", tmp_path / "job.json", "--diagnose")
    assert run.returncode == 1
    assert b"agrees with --scale none (the job has 1/sqrt(128))" in run.stdout


def test_bounds_include_earlier_stages(tmp_path):
    """A job with rotary positions is not compared in parts: the bounds of its scores are larger."""
    tensors = inputs(dtype=np.float16)
    noise = np.random.default_rng(2).standard_normal((32, 200, 128)).astype(np.float16)
    options = {"rotary": {"kind": "half", "base": 10000.0}}
    plain = compared(tmp_path, tensors, noise, options)
    np.save(tmp_path / "mask.npy", np.ones((32, 200, 200), bool))
    masked = compared(tmp_path, tensors, noise, options | {"mask": "mask.npy"})
    assert plain["bound"] == masked["bound"] and plain["differing"] == masked["differing"]


@pytest.mark.parametrize("shape, dtype", [((64, 16, 31, 64), np.float32), ((1, 2, 8, 16), np.int64)])
def test_unknown_weights(tmp_path, shape, dtype):
    """Which may be recovered, because there are no more keys than columns of V."""
    r = np.random.default_rng(1)
    tensors = [np.rint(3 * r.standard_normal(shape)).astype(dtype) for _ in range(3)]
    wrong = (r.random((*shape[:3], shape[2])) / shape[2]) @ tensors[2]
    for key, x in zip("QKV", tensors, strict=True):
        np.save(tmp_path / f"{key}.npy", x)
    (tmp_path / "job.json").write_text(json.dumps({key: f"{key}.npy" for key in "QKV"}))
    np.save(tmp_path / "A.npy", wrong.astype(np.float32))
    run = attn("compare", tmp_path / "A.npy", "--reference", tmp_path / "job.json")
    assert run.returncode == 1, run.stderr
    assert b"no known mistake explains it" in run.stdout


def test_overflowing_bounds_are_refused(tmp_path):
    q, k, v = inputs(dtype=np.float64)
    v[7, 3, 5] = 1e308
    np.save(tmp_path / "A.npy", np.zeros((1, 32, 200, 128)))
    for key, x in zip("QKV", (q, k, v), strict=True):
        np.save(tmp_path / f"{key}.npy", x[None])
    (tmp_path / "job.json").write_text(json.dumps({key: f"{key}.npy" for key in "QKV"}))
    run = attn("compare", tmp_path / "A.npy", "--reference", tmp_path / "job.json")
    assert run.returncode == 65
    assert run.stderr == (b"attn: context: the error bound overflows, because inputs are too large; "
                          b"set --rtol, --atol or --ulp\n")


def test_memory(tmp_path):
    """Neither the inputs nor the results are in memory in float64, nor does the search copy them."""
    q, k, v = inputs(H=128, G=128, L=520, S=512)
    names = [tmp_path / f"{name}.npy" for name in "QKV"]
    for name, x in zip(names, (q, k, v), strict=True):
        np.save(name, x[None])
    job = tmp_path / "job.json"
    job.write_text(json.dumps({key: f"{key}.npy" for key in "QKV"}))
    np.save(tmp_path / "A.npy", kernel(q, k, v, 1)[0][None].astype(np.float32))
    run, peak = attn_and_peak("compare", tmp_path / "A.npy", "--reference", job, "--diagnose")
    assert run.returncode == 1
    assert peak < 4 * q.nbytes + 160 * MIB  # in float64, 256 MiB more for the inputs, reference and bounds
