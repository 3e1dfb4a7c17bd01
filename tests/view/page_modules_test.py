"""Runs the page's modules with node: their unit tests, and the steps of weights against NumPy and --explain."""

import json
import pathlib
import re
import shutil
import subprocess
import zipfile

import numpy as np
import pytest

from support.attn import attn

from view.explain_test import matrices, numbers_of

FOLDER = pathlib.Path(__file__).parent
NEEDS_NODE = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


@NEEDS_NODE
def test_modules():
    run = subprocess.run(["node", "--test", FOLDER / "page_modules.mjs"], capture_output=True, timeout=100)
    assert run.returncode == 0, run.stdout.decode()
    assert re.search(rb"# pass \d+", run.stdout)


@NEEDS_NODE
def test_joined_modules_are_one_module(tmp_path):
    """Without imports, exports and two things of the same name."""
    np.save(tmp_path / "w.npy", np.eye(2))
    assert attn("view", "w.npy", "-o", "page.html", cwd=tmp_path).returncode == 0
    module = re.search(r'<script type="module" async>(.*?)</script>', (tmp_path / "page.html").read_text(), re.DOTALL)[1]
    assert re.findall(r"^(?:import|export)\b.*", module, re.MULTILINE) == []
    (tmp_path / "page.mjs").write_text(module)
    run = subprocess.run(["node", "--check", tmp_path / "page.mjs"], capture_output=True, timeout=100)
    assert run.returncode == 0, run.stderr.decode()


def printed_steps(page):
    run = subprocess.run(["node", FOLDER / "page_steps.mjs", page], capture_output=True, timeout=100)
    assert run.returncode == 0, run.stderr.decode()
    return json.loads(run.stdout)


def steps_of(page):
    """steps[head][query][key] of a page."""
    return printed_steps(page)["steps"]


def named(steps, name):
    """A member of the steps as an array (H, L, S) or (H, L, S, width); None is NaN."""
    return np.array([[[step[name] for step in row] for row in head] for head in steps], dtype=float)


H, L, S, D, DV = 4, 5, 6, 8, 3
ALIBI = 2.0 ** (-2 * (1 + np.arange(H)))[:, None, None] * -np.abs(np.arange(L)[:, None] - np.arange(S))  # 4 heads

KEPT = (np.random.default_rng(9).random((H, L, S)) < 0.6).tolist()

# Options of jobs; tensors are drawn by their shapes.
JOBS = {
    "plain": {},
    "causal": {"causal": True},
    "bottom-right": {"causal": True, "alignment": "bottom-right"},
    "softcap": {"softcap": 2, "causal": True},
    "softcap after mask": {"softcap": 2, "softcap_order": "after-mask", "bias": (H, L, S)},
    "softcap after a causal mask": {"softcap": 2, "softcap_order": "after-mask", "causal": True},
    "bias": {"bias": (H, L, S), "causal": True},
    "alibi": {"alibi": True},
    "grouped heads": {"groups": 2, "mask": (L, S)},
    "one head of keys": {"groups": 1},
    "sinks": {"sinks": (H,), "causal": True},
    "key lengths": {"key_lengths": [4]},
    "no keys for some": {"causal": True, "causal_offset": -2},
    "only sinks for some": {"causal": True, "causal_offset": -2, "sinks": (H,)},
    "scale": {"scale": -0.3},
    "no scale": {"scale": "none", "causal": True},
    "temperature": {"temperature": 0.5, "sinks": (H,)},
    "head scale": {"head_scale": (H,)},
    "dropout": {"dropout_mask": KEPT, "dropout_p": 0.3, "causal": True, "causal_offset": -1},
    "dropout and a bias": {"dropout_mask": KEPT[0], "dropout_p": 0.5, "bias": (H, L, S), "sinks": (H,)},
    "cosine": {"score": "cosine", "scale": 4},
    "everything": {"groups": 2, "causal": True, "softcap": 3, "alibi": True, "mask": (L, S), "sinks": (H,), "key_lengths": [5]},
}


def drawn(name):
    """The job with random numbers."""
    rng = np.random.default_rng(sorted(JOBS).index(name))
    job = {key: rng.standard_normal(value).tolist() if isinstance(value, tuple) else value for key, value in JOBS[name].items()}
    groups = job.pop("groups", H)
    for key, shape in {"Q": (1, H, L, D), "K": (1, groups, S, D), "V": (1, groups, S, DV)}.items():
        job[key] = (rng.standard_normal(shape) * 2).tolist()
    return job


def expected(job):
    """The steps by NumPy: s, s', s'', x, the sink, a, c."""
    q = np.array(job["Q"])[0]
    k, v = (np.repeat(np.array(job[key])[0], H // len(job[key][0]), axis=0) for key in "KV")
    s = np.einsum("hid,hjd->hij", q, k)
    if job.get("score") == "cosine":
        s = s / np.linalg.norm(q, axis=2)[:, :, None] / np.linalg.norm(k, axis=2)[:, None]
    scale = job.get("scale", 1 / np.sqrt(D))
    scaled = s * (1 if scale == "none" else scale) * np.array(job.get("head_scale", np.ones(H)))[:, None, None]
    cap, after = job.get("softcap", 0), job.get("softcap_order") == "after-mask"
    if cap and not after:
        scaled = cap * np.tanh(scaled / cap)
    masked = scaled + np.array(job.get("bias", 0)) + np.array(job.get("mask", 0)) + (ALIBI if job.get("alibi") else 0)
    if cap and after:
        masked = cap * np.tanh(masked / cap)
    offset = job.get("causal_offset", S - L if job.get("alignment") == "bottom-right" else 0)
    seen = np.arange(S) < job.get("key_lengths", [S])[0]
    seen = seen & ((np.arange(S) <= np.arange(L)[:, None] + offset) | (not job.get("causal", False)))
    masked = np.where(seen, masked, -np.inf)
    sinks = np.array(job.get("sinks", np.full(H, -np.inf)))[:, None, None]
    x = np.concatenate([masked / job.get("temperature", 1), np.broadcast_to(sinks, (H, L, 1))], axis=2)
    largest = x.max(axis=2, keepdims=True)
    with np.errstate(invalid="ignore"):
        e = np.exp(x - largest)
    total = e.sum(axis=2, keepdims=True)
    a = np.nan_to_num(e / total)[:, :, :S]
    after = np.where(job["dropout_mask"], a / (1 - job["dropout_p"]), 0) if "dropout_mask" in job else a
    return {"s": s, "s'": scaled, "s''": masked, "x": x[:, :, :S], "max": largest, "total": total, "a": a, "a'": after, "c": after @ v,
            "q": q, "k": k, "v": v}


@NEEDS_NODE
class TestWhy:
    """The panel "why this weight"."""

    @pytest.fixture(scope="class", params=JOBS)
    def case(self, request, class_path):
        job = drawn(request.param)
        (class_path / "job.json").write_text(json.dumps(job))
        run = attn("run", "job.json", "--view=page.html", "--force", cwd=class_path)
        assert run.returncode == 0
        printed = printed_steps(class_path / "page.html")
        return job, printed["steps"], class_path, printed["stages"]

    def test_the_maximum_is_said_to_be_that_of_scores_and_sink(self, case):
        job, steps, *_ = case
        parts = [part for head in steps for query in head for key in query for step in key["written"]
                 for formula in step["formulas"] for part in formula]
        words = [word for part in parts for word in (part["power"] if isinstance(part, dict) and "power" in part else [part])
                 if isinstance(word, str) and "max" in word]
        assert words and all(("sink)" in word) == ("sinks" in job) for word in words)

    def test_shares_are_said_to_add_up_to_1_if_there_are_shares(self, case):
        for step in (key for head in case[1] for query in head for key in query):
            context = step["written"][-1]
            assert context["name"] == "Context" and ("add up to 1" in context["words"]) == (step["share"] is not None)

    def test_numbers_are_those_of_numpy(self, case):
        job, steps, *_ = case
        want = expected(job)
        close = {"rtol": 1e-11, "atol": 1e-13}

        def assert_equal(name, numbers, **tolerance):
            np.testing.assert_allclose(named(steps, name), np.broadcast_to(numbers, named(steps, name).shape), **close | tolerance,
                                       err_msg=name)
        assert_equal("products", want["q"][:, :, None] * want["k"][:, None])
        assert_equal("score", want["s"])
        is_scaled = steps[0][0][0]["scaled"] is not None
        assert is_scaled == ("head_scale" in job or job.get("scale") != "none")
        if is_scaled:
            assert_equal("scaled", want["s'"])
        before = want["s'"] if is_scaled else want["s"]
        masks = not np.array_equal(want["s''"], want["s'"])
        assert (steps[0][0][0]["masked"] is not None) == masks
        if masks:
            assert_equal("masked", want["s''"])
        assert_equal("isHidden", want["s''"] == -np.inf)
        adds = bool({"bias", "mask", "alibi"} & set(job)) and job.get("softcap_order") != "after-mask"
        with np.errstate(invalid="ignore"):
            assert_equal("added", np.where(want["s''"] == -np.inf, np.nan, want["s''"] - before) if adds else np.nan, atol=1e-12)
        assert_equal("logit", want["x"])
        none = np.broadcast_to((want["s''"] == -np.inf).all(axis=2, keepdims=True), want["a"].shape)
        assert_equal("seesNone", none)
        assert_equal("max", want["max"])
        rows = ~none | ("sinks" in job)  # without a score there is no sum
        np.testing.assert_allclose(named(steps, "total")[rows], np.broadcast_to(want["total"], rows.shape)[rows], **close)
        assert_equal("weight", np.where(~rows, np.nan, want["a"]))
        assert_equal("contribution", want["a'"][..., None] * want["v"][:, None])
        assert_equal("dropped", np.where(rows, want["a'"], np.nan) if "dropout_mask" in job else np.nan)
        assert_equal("context", want["c"][:, :, None])
        shares = named(steps, "share")
        assert np.allclose(np.nansum(shares, axis=2)[(want["a'"] != 0).any(axis=2)], 1)
        assert named(steps, "agrees").all()

    def test_matrices_of_the_stages_are_those_of_numpy(self, case):
        """What the switch offers, and what the matrix shows; null is a hidden key."""
        job, _, _, stages = case
        want = expected(job)
        hidden = want["s''"] == -np.inf
        assert list(stages) == ["scores", *["scaled"] * (not np.array_equal(want["s'"], want["s"])),
                                *["masked"] * (not np.array_equal(want["s''"], want["s'"])), "weights"]
        for name, matrix in {"scores": want["s"], "scaled": want["s'"], "masked": np.where(hidden, np.nan, want["s''"]),
                             "weights": np.where(hidden, np.nan, want["a"])}.items():
            if name in stages:
                np.testing.assert_allclose(np.array(stages[name], dtype=float), matrix, rtol=1e-11, atol=1e-13, err_msg=name)

    @pytest.mark.parametrize("head, query", [(0, 4), (3, 2)])
    def test_numbers_are_those_of_explain(self, case, head, query):
        job, steps, folder, _ = case
        run = attn("run", "job.json", "--explain", "e.md", "--explain-head", str(head), "--explain-query", str(query),
                   "--precision", "12", "--force", cwd=folder)
        assert run.returncode == 0
        text = (folder / "e.md").read_text()
        numbers, whole = numbers_of(text), matrices(text)
        rows = steps[head][query]
        headings = [re.sub(r"^\d+\. ", "", line[3:]) for line in text.splitlines() if line.startswith("## ")]
        assert [step["name"] for step in rows[0]["written"]] == headings[2:]
        for key, step in enumerate(rows):
            at = f"_{{{query},{key}}}"
            for letter, member in ("s", "score"), ("s'", "scaled"), ("s''", "masked"), ("a", "weight"), ("a'", "dropped"):
                value = float(step[member]) if step[member] is not None else None
                stated = [numbers[letter + at]] if letter + at in numbers else []
                if letter.upper() in whole:
                    stated.append(whole[letter.upper()][query, key])
                assert bool(stated) == (value is not None) or step["seesNone"], f"{letter}{at}"
                if value is not None:
                    assert stated == pytest.approx([value] * len(stated), abs=1e-11)
        if r"\max s''" in numbers:
            assert numbers[r"\max s''"] == pytest.approx(rows[0]["max"], abs=1e-11)
        sums = [number for name, number in numbers.items() if name.startswith(r"\sum")]
        assert sums == pytest.approx([rows[0]["total"]] * len(sums), abs=1e-11)
        for d in range(DV):
            assert numbers[f"c_{{{query},{d}}}"] == pytest.approx(rows[0]["context"][d], abs=1e-11)


@NEEDS_NODE
@pytest.mark.parametrize("dtype, digits", [("float32", 2e-6), ("float16", 2e-3)])
def test_rounded_results_have_the_steps_of_their_stored_vectors(tmp_path, dtype, digits):
    job = drawn("everything")
    tensors = {name: np.array(job.pop(name), dtype) for name in "QKV"}
    np.savez(tmp_path / "t.npz", **tensors)
    (tmp_path / "job.json").write_text(json.dumps(job | {name: f"t.npz#{name}" for name in "QKV"}))
    attn("run", "job.json", "-o", "r.npz", "--outputs", "weights,queries,keys,values,masked_scores,sinks", cwd=tmp_path)
    attn("view", "r.npz", "-o", "page.html", cwd=tmp_path)
    steps = steps_of(tmp_path / "page.html")
    stored = np.load(tmp_path / "r.npz")
    want = expected(job | {name: tensor.astype(float) for name, tensor in tensors.items()})
    assert (named(steps, "q")[:, :, 0] == stored["queries"][0]).all()
    np.testing.assert_allclose(named(steps, "weight"), want["a"], rtol=digits, atol=digits)
    assert named(steps, "agrees").all()


@NEEDS_NODE
def test_weights_of_other_tensors_are_noticed(tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(drawn("causal")))
    attn("run", "job.json", "-o", "r.npz", "--outputs", "weights,queries,keys,values,masked_scores", cwd=tmp_path)
    with np.load(tmp_path / "r.npz") as file:
        tensors = dict(file)
    with zipfile.ZipFile(tmp_path / "r.npz") as file:
        comment = file.comment
    np.savez(tmp_path / "other.npz", **tensors | {"weights": tensors["weights"][:, ::-1].copy()})
    with zipfile.ZipFile(tmp_path / "other.npz", "a") as file:
        file.comment = comment
    attn("view", "other.npz", "-o", "page.html", cwd=tmp_path)
    assert not named(steps_of(tmp_path / "page.html"), "agrees").all()


@NEEDS_NODE
@pytest.mark.parametrize("arguments", [(), ("--head", "3,1", "--batch", "1", "--rows", "4,0")], ids=["all", "some"])
@pytest.mark.parametrize("layout", ["bhld", "blhd"])
def test_batches_and_layouts(tmp_path, layout, arguments):
    """Weights of two items with two heads of keys, all of them and a selection."""
    rng = np.random.default_rng(6)
    q, k, v = rng.standard_normal((2, H, L, D)), rng.standard_normal((2, 2, S, D)), rng.standard_normal((2, 2, S, DV))
    axes = (0, 2, 1, 3) if layout == "blhd" else (0, 1, 2, 3)
    job = {name: tensor.transpose(axes).tolist() for name, tensor in {"Q": q, "K": k, "V": v}.items()}
    (tmp_path / "job.json").write_text(json.dumps(job | {"layout": layout}))
    attn("run", "job.json", "-o", "r.npz", "--outputs", "weights,queries,keys,values", cwd=tmp_path)
    assert attn("view", "r.npz", "-o", "page.html", *arguments, cwd=tmp_path).returncode == 0
    steps = steps_of(tmp_path / "page.html")
    k, v = k.repeat(2, axis=1), v.repeat(2, axis=1)
    s = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(D)
    a = np.exp(s) / np.exp(s).sum(axis=3, keepdims=True)
    c = a @ v
    if arguments:
        a, c = (whole[1][[3, 1]][:, [4, 0]] for whole in (a, c))
    np.testing.assert_allclose(named(steps, "weight"), a.reshape(-1, *a.shape[-2:]), rtol=1e-12)
    np.testing.assert_allclose(named(steps, "context")[:, :, 0], c.reshape(-1, *c.shape[-2:]), rtol=1e-11)


@NEEDS_NODE
def test_projected_and_rotated_vectors_after_past_keys(tmp_path):
    """The steps from the stored vectors lead to the weights and contexts of the result."""
    rng = np.random.default_rng(7)
    job = {"embeddings": rng.standard_normal((1, L, 8)), "past_K": rng.standard_normal((1, 2, 3, 4)),
           "past_V": rng.standard_normal((1, 2, 3, 4)), **{name: rng.standard_normal((8, 8)) for name in ("W_Q", "W_K", "W_V")}}
    job = {name: tensor.tolist() for name, tensor in job.items()} | {"heads": 2, "causal": True, "rotary": {"kind": "half"}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    run = attn("run", "job.json", "--view=page.html", "-o", "r.npz", "--outputs", "weights,head_context", cwd=tmp_path)
    assert run.returncode == 0
    steps, stored = steps_of(tmp_path / "page.html"), np.load(tmp_path / "r.npz")
    np.testing.assert_allclose(named(steps, "weight"), stored["weights"][0], rtol=1e-12)
    np.testing.assert_allclose(named(steps, "context")[:, :, 0], stored["head_context"][0], rtol=1e-11)
