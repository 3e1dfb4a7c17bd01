"""attn sensitivity: which mistakes a test of a job would notice. Changes are recomputed in NumPy."""

import json

import numpy as np
import pytest

from support.adversarial import verdicts
from support.attn import assert_error, attn


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def context(q, k, v, cap=0, scale=None, last=True):
    s = (scale or q.shape[-1] ** -.5) * q @ k.swapaxes(-1, -2)
    s = cap * np.tanh(s / cap) if cap else s
    s = s if last else s[..., :-1]
    return softmax(s) @ (v if last else v[..., :-1, :])


@pytest.fixture(scope="module")
def job(module_path):
    q, k, v = np.random.default_rng(3).normal(size=(3, 1, 2, 40, 16))
    np.savez(module_path / "in.npz", Q=q, K=k, V=v)
    (module_path / "job.json").write_text(json.dumps(
        {"Q": "in.npz#Q", "K": "in.npz#K", "V": "in.npz#V", "softcap": 50}))
    return module_path / "job.json", q, k, v


def mistakes(path, *flags):
    run = attn("sensitivity", path, "--json", *flags)
    assert run.returncode in (0, 1), run.stderr
    return {mistake["id"]: mistake for mistake in json.loads(run.stdout)["mistakes"]}


@pytest.mark.parametrize("name, change", [
    ("softcap.dropped", {"cap": 0}), ("scale.none", {"scale": 1}), ("cache.last_missing", {"last": False})])
def test_figures_are_those_of_numpy(job, name, change):
    path, q, k, v = job
    right = context(q, k, v, 50)
    ratio = np.abs(context(q, k, v, **{"cap": 50, **change}) - right) / (1e-2 + 1e-2 * np.abs(right))
    found = mistakes(path, "--rtol", "1e-2", "--atol", "1e-2")[name]
    assert found["of_tolerance"] == pytest.approx(ratio.max(), rel=1e-6)
    assert found["outside"] == pytest.approx((ratio > 1).mean(), abs=1e-9)
    outside = (ratio > 1).sum() / (ratio > 1e-6).sum()
    assert found["verdict"] == ("not seen" if outside == 0 else
                                "seen" if outside >= .5 or ratio.max() >= 10 and outside >= .01 else "barely")


@pytest.mark.parametrize("options", [
    {}, {"rotary": {"kind": "half", "base": 1e4}}, {"qk_norm": "rms"},
    {"rotary": {"kind": "interleaved", "base": 1e4}, "window": [10, 0], "causal": True}])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_bounds_are_those_of_compare(tmp_path, options, dtype):
    """Those of all stages, also before the scores."""
    q, k, v = np.random.default_rng(5).normal(size=(3, 1, 4, 60, 64))
    np.savez(tmp_path / "f64.npz", Q=q, K=k, V=v)
    assert attn("convert", "f64.npz", "--dtype", dtype, "-o", "in.safetensors", cwd=tmp_path).returncode == 0
    job = {name: f"in.safetensors#{name}" for name in "QKV"} | options
    (tmp_path / "job.json").write_text(json.dumps(job))
    (tmp_path / "wrong.json").write_text(json.dumps(job | {"scale": 1 / 64}))
    assert attn("run", "wrong.json", "-o", "context=wrong.safetensors", cwd=tmp_path).returncode == 0
    run = attn("compare", "wrong.safetensors", "--reference", "job.json", "--json", cwd=tmp_path)
    worst = json.loads(run.stdout)["tensors"][0]["bound"]["worst"]["value"]
    found = mistakes(tmp_path / "job.json")["scale.1/D"]["of_bound"]
    assert found == pytest.approx(worst, rel=0.2)  # results are rounded


def softmax_over(axis, x):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


POSITIONS = np.arange(40)
SINK = np.exp(.5)
SOFTMAX_CASES = [
    # flags, mistake, weights of the job and of the kernel from the scaled scores (None: not listed)
    ("--temperature 2", "softmax.over_queries", lambda s: softmax(s / 2), lambda s: softmax_over(-2, s / 2)),
    ("--temperature 2", "softmax.not_normalised", lambda s: softmax(s / 2),
     lambda s: np.exp(s / 2 - s.max(-1, keepdims=True) / 2)),
    ("--temperature 2", "softmax.exp_not_normalised", lambda s: softmax(s / 2), lambda s: np.exp(s / 2)),
    ("--temperature 2", "softmax.whole_matrix", lambda s: softmax(s / 2), lambda s: softmax_over((-2, -1), s / 2)),
    ("--normaliser sigmoid", "softmax.exp_not_normalised", None, None),
    ("--normaliser sigmoid", "softmax.not_normalised", None, None),
    ("--normaliser sparsemax", "softmax.over_queries", None, None),
    ("--normaliser top_k --top-k 3", "softmax.whole_matrix", None, None),
    ("--alibi-slopes [0.3,0.2] --sinks [0.5,0.5]", "bias.alibi_signed",
     lambda s: with_alibi(s, abs), lambda s: with_alibi(s, lambda x: x)),
]


def with_alibi(scores, distance):
    """With slopes of 0.3 and 0.2, and a sink of 0.5."""
    x = scores - np.reshape([.3, .2], (2, 1, 1)) * distance(POSITIONS[:, None] - POSITIONS)
    return np.exp(x) / (np.exp(x).sum(-1, keepdims=True) + SINK)


@pytest.mark.parametrize("flags, name, right, wrong", SOFTMAX_CASES)
def test_mistakes_of_a_softmax_are_those_of_numpy(job, flags, name, right, wrong):
    path, q, k, v = job
    arrays = path.parent / "in.npz"
    inputs = [word for letter in "qkv" for word in (f"--{letter}", f"{arrays}#{letter.upper()}")]
    run = attn("sensitivity", *inputs, *flags.split(), "--rtol", "1e-2", "--atol", "1e-2", "--json")
    assert run.returncode in (0, 1), run.stderr
    found = {mistake["id"]: mistake for mistake in json.loads(run.stdout)["mistakes"]}
    if right is None:
        assert name not in found
        return
    s = q @ k.swapaxes(-1, -2) / 4
    ratio = np.abs(wrong(s) @ v - right(s) @ v) / (1e-2 + 1e-2 * np.abs(right(s) @ v))
    assert found[name]["of_tolerance"] == pytest.approx(ratio.max(), rel=1e-6)


@pytest.mark.parametrize("options", [{"rotary": "half"}, {"qk_norm": "rms", "qk_norm_axis": "all"}], ids=str)
def test_values_that_are_the_keys(tmp_path, options):
    """Hypotheses about heads moved V, which such a job does not have."""
    q, k = np.random.default_rng(4).normal(size=(2, 5, 8))
    np.savez(tmp_path / "in.npz", Q=q, K=k)
    (tmp_path / "job.json").write_text(json.dumps(
        {"Q": "in.npz#Q", "K": "in.npz#K", "V": "K", "heads": 2, **options}))
    found = mistakes(tmp_path / "job.json")
    assert found["heads.viewed_before_rotary"]["text"] == "Q, K and V of shape (B, L, H, D) read as (B, H, L, D)"


def test_texts_name_flags_that_the_job_has(tmp_path):
    r = np.random.default_rng(5)
    for name, rows in ("q", 6), ("k", 9), ("v", 9):
        np.save(tmp_path / f"{name}.npy", r.normal(size=(rows, 4)))

    def texts(*flags):
        run = attn("sensitivity", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", *flags, "--json", cwd=tmp_path)
        assert run.returncode in (0, 1), run.stderr
        return {mistake["id"]: mistake["text"] for mistake in json.loads(run.stdout)["mistakes"]}

    assert texts("--window", "3,1")["causal.alignment"].startswith("--alignment bottom-right")
    assert texts("--causal")["causal.alignment"].startswith("--causal=bottom-right")
    late = ": each query also sees the next key"
    assert texts("--causal", "--window", "3,-1")["causal.one_late"] == "--window 3,1 instead of --causal --window 3,-1" + late
    assert texts("--window", "3,0")["causal.one_late"] == "--window 3,1 instead of --window 3,0" + late
    assert texts("--alibi-slopes", "[0.3]")["bias.alibi_dropped"] == "without ALiBi"


def test_a_dropped_softcap_is_not_seen(job):
    assert mistakes(job[0], "--rtol", "1e-2", "--atol", "1e-2")["softcap.dropped"]["verdict"] == "not seen"


class TestBlindTests:
    """What usual tests, with normal inputs and tolerances of 1e-2, do not see."""

    @staticmethod
    def verdicts(folder, queries, keys, width, sink=None, **options):
        r = np.random.default_rng(1)
        tensors = {"Q": r.normal(size=(1, 4, queries, width)), "K": r.normal(size=(1, 2, keys, width)),
                   "V": r.normal(size=(1, 2, keys, width))}
        if sink is not None:
            tensors["sinks"] = np.full(4, float(sink))
        np.savez(folder / "in.npz", **{name: x.astype("f4") for name, x in tensors.items()})
        (folder / "job.json").write_text(json.dumps({name: f"in.npz#{name}" for name in tensors} | options))
        found = mistakes(folder / "job.json", "--rtol", "1e-2", "--atol", "1e-2")
        return {name: mistake["verdict"] for name, mistake in found.items()}

    def test_softcap(self, tmp_path):
        assert self.verdicts(tmp_path, 256, 256, 64, softcap=50)["softcap.dropped"] == "not seen"

    def test_end_of_a_cache(self, tmp_path):
        found = self.verdicts(tmp_path, 1, 8192, 128, sink=0, causal=True, alignment="bottom-right")
        assert {name: found[name] for name in ("sink.dropped", "cache.zero_tail_16", "cache.last_missing")} == \
            dict.fromkeys(("sink.dropped", "cache.zero_tail_16", "cache.last_missing"), "not seen")

    def test_window_and_sinks_are_seen(self, tmp_path):
        found = self.verdicts(tmp_path, 256, 256, 64, sink=5, causal=True, window=[63, 0])
        assert found["window.left-1"] == found["sink.dropped"] == "seen"


def test_hypotheses_without_effect_are_listed(tmp_path):
    """The last query sees all keys, so that a causal mask has no effect, and neither has the order of pages."""
    q, k, v = (np.random.default_rng(2).normal(size=(1, 1, n, 16)) for n in (1, 32, 32))
    np.savez(tmp_path / "in.npz", Q=q, K=k, V=v)
    (tmp_path / "job.json").write_text(json.dumps(
        {"Q": "in.npz#Q", "K": "in.npz#K", "V": "in.npz#V", "causal": True, "alignment": "bottom-right"}))
    report = json.loads(attn("sensitivity", tmp_path / "job.json", "--json").stdout)
    assert {"causal.dropped", "cache.reversed_pages_16"} <= set(report["without_effect"])
    text = attn("sensitivity", tmp_path / "job.json").stdout
    assert b"without effect on this job, whatever its numbers: causal.dropped, " in text


class TestGates:
    @pytest.mark.parametrize("limit, verdict", [(2, "not seen"), (.5, "barely"), (.05, "seen")])
    def test_verdict(self, job, limit, verdict):
        """Seen if a tenth of the change would fail, too."""
        path, q, k, v = job
        change = np.abs(context(q, k, v) - context(q, k, v, 50)).max()
        found = mistakes(path, "--gate", f"max_abs < {limit * change}")["softcap.dropped"]
        assert found["verdict"] == verdict and found["of_tolerance"] is None

    METRICS = {"max_abs": lambda a, b: np.abs(a - b).max(), "rms": lambda a, b: ((a - b) ** 2).mean() ** .5,
               "rel_l2": lambda a, b: np.linalg.norm(a - b) / np.linalg.norm(b),
               "cosine": lambda a, b: (a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b),
               "pcc": lambda a, b: np.corrcoef(a.ravel(), b.ravel())[0, 1],
               "max_rel": lambda a, b: (np.abs(a - b) / np.abs(b)).max(),
               "mismatched(rtol=0.01, atol=0.01)": lambda a, b: (np.abs(a - b) > .01 + .01 * np.abs(b)).mean()}

    @pytest.mark.parametrize("metric", METRICS)
    def test_verdicts_are_those_of_numpy(self, job, metric):
        """Of three mistakes, with limits below, between and above what a tenth and the whole of each change."""
        path, q, k, v = job
        right, compute = context(q, k, v, 50), self.METRICS[metric]
        changed = {name: context(q, k, v, **{"cap": 50, **change}) for name, change in (
            ("softcap.dropped", {"cap": 0}), ("scale.none", {"scale": 1}), ("cache.last_missing", {"last": False}))}
        figures = {name: (compute(right + (x - right) / 10, right), compute(x, right)) for name, x in changed.items()}
        numbers = sorted({*[x for pair in figures.values() for x in pair]})
        is_similarity = metric in ("cosine", "pcc")
        limits = [numbers[0] - 1e-3, *((a + b) / 2 for a, b in zip(numbers, numbers[1:])), numbers[-1] + 1e-3]
        seen = set()
        for limit in limits:
            passes = (lambda x: x > limit) if is_similarity else (lambda x: x < limit)
            found = mistakes(path, "--gate", f"{metric} {'>' if is_similarity else '<'} {float(limit)!r}")
            expected = {name: "not seen" if passes(whole) else "barely" if passes(tenth) else "seen"
                        for name, (tenth, whole) in figures.items()}
            assert {name: found[name]["verdict"] for name in figures} == expected
            seen |= set(expected.values())
        assert seen == {"not seen", "barely", "seen"}

    @pytest.mark.long
    def test_gates_are_about_all_sampled_queries(self, tmp_path):
        """More than a million scores, which are computed in blocks: the cosine is that of all together."""
        r = np.random.default_rng(4)
        q, k, v = (r.normal(size=(1, 8, n, 16)) for n in (128, 2048, 2048))
        q[:, :, ::2] *= 1e-3  # queries in which a dropped key changes little, and others
        np.savez(tmp_path / "in.npz", Q=q, K=k, V=v)
        (tmp_path / "job.json").write_text(json.dumps({name: f"in.npz#{name}" for name in "QKV"}))
        right, wrong = context(q, k, v), context(q, k, v, scale=1)
        cosine = self.METRICS["cosine"](wrong, right)
        for limit, verdict in (cosine - 1e-4, "not seen"), (cosine + 1e-4, "barely"):
            assert mistakes(tmp_path / "job.json", "--gate", f"cosine > {limit}")["scale.none"]["verdict"] == verdict

    def test_bound_and_ulp(self, job):
        """A gate with the error bound decides as no gate at all; steps of float64 are counted."""
        path, q, k, v = job
        found = mistakes(path, "--precision", "f16")
        gated = mistakes(path, "--precision", "f16", "--gate", "bound <= 1")
        assert {name for name, x in gated.items() if x["verdict"] == "not seen"} == \
            {name for name, x in found.items() if x["verdict"] == "not seen"} != set()
        right, wrong = context(q, k, v, 50), context(q, k, v)
        ordered = [x.view(np.int64) for x in (right, wrong)]
        ordered = [np.where(x < 0, np.iinfo(np.int64).min - x, x).astype(object) for x in ordered]
        steps = max(abs(a - b) for a, b in zip(*(x.ravel() for x in ordered)))
        for factor, verdict in (1.01, "not seen"), (.99, "barely"):
            assert mistakes(path, "--gate", f"ulp < {factor * steps}")["softcap.dropped"]["verdict"] == verdict

    def test_preset(self, job):
        assert mistakes(job[0], "--preset", "triton")["softcap.dropped"]["verdict"] == "not seen"

    @pytest.mark.parametrize("words, message", [
        (["--gate", "max_ab < 1"], "unknown metric"), (["--gate", "max_abs < baseline_max_abs"], "no baseline"),
        (["--preset", "fa2"], "no baseline")])
    def test_gates_that_cannot_be_evaluated(self, job, words, message):
        assert_error(attn("sensitivity", job[0], *words), 2, message)


@pytest.mark.parametrize("flag", ["--outputs", "--path", "--tokens"])
def test_flags_without_effect_are_unknown(job, flag):
    assert_error(attn("sensitivity", job[0], flag, "weights"), 2, flag)


@pytest.mark.parametrize("word", ["auto", "f32", "f64", "bf17"])
def test_compute_is_bf16(job, word):
    assert_error(attn("sensitivity", job[0], "--compute", word), 2, "--compute: expected")


def test_compute_bf16_widens_the_bound(job):
    wide, narrow = (mistakes(job[0], "--precision", "f32", *flags)["softcap.dropped"]
                    for flags in (["--compute", "bf16"], []))
    assert 10 * wide["of_bound"] < narrow["of_bound"]


def test_precision_gives_the_bound(job):
    wide, narrow = (mistakes(job[0], "--precision", p)["softcap.dropped"] for p in ("bf16", "f32"))
    assert wide["of_tolerance"] == wide["of_bound"] < narrow["of_bound"]


def test_require_all(job):
    assert attn("sensitivity", job[0], "--rtol", "1e-2", "--atol", "1e-2").returncode == 0
    assert attn("sensitivity", job[0], "--rtol", "1e-2", "--atol", "1e-2", "--require-all").returncode == 1


def test_suggested_scores_show_a_softcap_of_hidden_scores(tmp_path):
    """A kernel that masks before the softcap gives hidden keys the score -30 instead of -inf."""
    r = np.random.default_rng(3)
    t = {name: r.normal(size=(1, 1, 32, 16)) for name in "QKV"}

    def run():
        np.savez(tmp_path / "in.npz", **t)
        (tmp_path / "job.json").write_text(json.dumps({name: f"in.npz#{name}" for name in t} |
                                                      {"softcap": 30, "causal": True}))
        report = json.loads(attn("sensitivity", tmp_path / "job.json", "--rtol", "1e-2", "--atol", "1e-2", "--suggest",
                                 "--json").stdout)
        verdict = next(m["verdict"] for m in report["mistakes"] if m["id"] == "softcap.of_hidden")
        return verdict, [line for line in report["suggestions"] if line.startswith("softcap.of_hidden")]

    assert run() == ("not seen", ["softcap.of_hidden: use queries whose scores are all below -60, -2 times the softcap"])
    t["V"] *= 8
    t["Q"], t["K"] = np.full((1, 1, 32, 16), -16.), 1 + .02 * t["K"]  # -16 * 16 / 4 = -64
    assert run() == ("seen", [])


def test_suggested_factor_makes_the_softcap_visible(job, tmp_path):
    path, q, k, v = job
    lines = json.loads(attn("sensitivity", path, "--rtol", "1e-2", "--atol", "1e-2", "--suggest", "--json").stdout)
    line = next(line for line in lines["suggestions"] if line.startswith("softcap: multiply Q by "))
    np.savez(tmp_path / "in.npz", Q=q * float(line.split()[4].rstrip(":")), K=k, V=v)
    (tmp_path / "job.json").write_text(path.read_text())
    assert mistakes(tmp_path / "job.json", "--rtol", "1e-2", "--atol", "1e-2")["softcap.dropped"]["verdict"] == "seen"


def test_output_without_a_row_for_each_query_is_refused(job):
    assert_error(attn("sensitivity", job[0], "--of", "keys"), 2, "--of keys")


def test_a_job_is_required():
    assert_error(attn("sensitivity"), 2, "expected a job")


class TestAdversarialInputs:
    @pytest.fixture(scope="class", params=[
        {"softcap": 50}, {"causal": True, "window": [24, 0]}, {"sinks": True}, {"alignment": "bottom-right", "causal": True},
        {"key_lengths": [40, 70]}, {"bias": (4, 75, 75), "softcap": 30, "causal": True}, {"alibi": "standard"},
        {"rotary": {"kind": "half"}, "qk_norm": "rms", "q_norm": 32, "k_norm": 32, "causal": True},
        {"past": 48, "causal": True, "rotary": {"kind": "interleaved"}},
        {"dropout_mask": (2, 4, 75, 75), "dropout_p": .1}, {"decode": True, "sinks": True, "causal": True}],
        ids=lambda keys: " ".join(keys))
    def jobs(self, request, class_path):
        r = np.random.default_rng(5)
        keys = 90 if "alignment" in request.param else 75
        tensors = {"Q": r.normal(size=(2, 4, 75, 32)), "K": r.normal(size=(2, 2, keys, 32)), "V": r.normal(size=(2, 2, keys, 32))}
        options = dict(request.param)
        if options.pop("decode", False):
            tensors |= {name: r.normal(size=(1, 4 if name == "Q" else 2, 1 if name == "Q" else 2000, 128))
                        for name in "QKV"}
            options["alignment"] = "bottom-right"
        if options.pop("sinks", False):
            tensors["sinks"] = np.zeros(4)
        if past := options.pop("past", 0):
            tensors |= {f"past_{name}": r.normal(size=(2, 2, past, 32)) for name in "KV"}
        for name in ("bias", "q_norm", "k_norm"):
            if shape := options.pop(name, None):
                tensors[name] = 1 + .3 * r.normal(size=shape)
        if shape := options.pop("dropout_mask", None):
            tensors["dropout_mask"] = r.random(shape) < .9
        if lengths := options.pop("key_lengths", None):
            tensors["key_lengths"] = np.array(lengths)
        if options.pop("alibi", None):
            tensors["alibi_slopes"] = 2.0 ** -np.arange(2, 10, 2)
        np.savez(class_path / "in.npz", **{name: x.astype("f2") if x.dtype == float else x
                                           for name, x in tensors.items()})
        for name, file in ("usual", "in.npz"), ("adversarial", "new.npz"):
            (class_path / f"{name}.json").write_text(json.dumps({key: f"{file}#{key}" for key in tensors} | options))
        run = attn("random", "--kind", "adversarial", "--for", class_path / "usual.json", "-o", class_path / "new.npz",
                   "--force")
        assert run.returncode == 0, run.stderr
        return class_path

    def test_all_mistakes_are_seen(self, jobs):
        tolerance = ["--rtol", "1e-2", "--atol", "1e-2"]
        usual, new = (mistakes(jobs / f"{name}.json", *tolerance) for name in ("usual", "adversarial"))
        assert usual.keys() == new.keys()
        assert [name for name, mistake in new.items() if mistake["verdict"] != "seen"] == []

    def test_shapes_and_dtypes_stay(self, jobs):
        with np.load(jobs / "in.npz") as old, np.load(jobs / "new.npz") as new:
            assert {name: (old[name].shape, old[name].dtype) for name in old} == \
                {name: (new[name].shape, new[name].dtype) for name in new}

    def test_the_same_seed_gives_the_same_numbers(self, jobs, tmp_path):
        command = ["random", "--kind", "adversarial", "--for", jobs / "usual.json"]
        assert attn(*command, "--seed", 1).stdout == attn(*command, "--seed", 1).stdout != attn(*command).stdout


def test_mistakes_that_stay_hidden_are_counted(tmp_path):
    # The bias decides, whatever the numbers are.
    tensors = {name: np.ones((1, 1, 8, 16), "f4") for name in "QKV"} | {"bias": np.float32(20) * np.eye(8, dtype="f4")}
    np.savez(tmp_path / "given.npz", **tensors)
    for file in "given", "new":
        (tmp_path / f"{file}.json").write_text(json.dumps({name: f"{file}.npz#{name}" for name in tensors}))
    command = ["random", "--kind", "adversarial", "--for", "given.json", "-o", "new.npz", "--force"]
    run = attn(*command, cwd=tmp_path)
    assert run.returncode == 0
    verdicts = [mistake["verdict"] for mistake in
                mistakes(tmp_path / "new.json", "--rtol", "1e-2", "--atol", "1e-2").values()]
    assert verdicts.count("seen") < len(verdicts)
    assert run.stderr.decode() == (f"attn: a test at rtol = atol = 1e-2 with these inputs sees {verdicts.count('seen')} "
                                   f"of {len(verdicts)} mistakes; 'attn sensitivity' lists the others\n")
    assert attn(*command, "-q", cwd=tmp_path).stderr == b""


class TestAdversarialPages:
    """Keys and values are written to the slots of their pages, and everything else stays."""

    LENGTHS, TABLE, SIZE = [7, 3], [[4, 1], [2, 9]], 4
    TABLES = {"block_table": {"block_table": TABLE, "key_lengths": LENGTHS},
              "kv_indices": {"kv_indptr": [0, 2, 3], "kv_indices": [4, 1, 2], "last_page_len": [3, 3]}}

    def new_inputs(self, folder, name, arrays, **options):
        np.savez(folder / f"{name}.npz", **arrays)
        job = {key: f"{name}.npz#{key}" for key in arrays} | {"layout": "blhd"} | options
        (folder / f"{name}.json").write_text(json.dumps(job))
        run = attn("random", "--kind", "adversarial", "--for", folder / f"{name}.json", "-o", folder / f"new-{name}.npz")
        assert run.returncode == 0, run.stderr
        with np.load(folder / f"new-{name}.npz") as new:
            assert {key: (x.shape, x.dtype) for key, x in arrays.items()} == {key: (new[key].shape, new[key].dtype) for key in new}
            return dict(new)

    @pytest.mark.parametrize("tables", TABLES)
    @pytest.mark.parametrize("combined", [False, True])
    def test_pools_have_the_numbers_of_keys_in_one_piece(self, tmp_path, tables, combined):
        rng = np.random.default_rng(0)
        Q, pools = rng.standard_normal((2, 1, 4, 16), "f4"), rng.standard_normal((5, 2, self.SIZE, 2, 16), "f4")
        gathered = lambda pool: np.stack([np.pad(pool[pages].reshape(-1, 2, 16)[:n], ((0, 7 - n), (0, 0), (0, 0)))
                                          for n, pages in zip(self.LENGTHS, ([4, 1], [2]))])
        given = {"KV_pages": pools} if combined else {"K_pages": pools[:, 0], "V_pages": pools[:, 1]}
        table = {key: np.array(x) for key, x in self.TABLES[tables].items()}
        new = self.new_inputs(tmp_path, "pages", {"Q": Q} | given | table)
        whole = self.new_inputs(tmp_path, "whole", {"Q": Q, "K": gathered(pools[:, 0]), "V": gathered(pools[:, 1]),
                                                    "key_lengths": np.array(self.LENGTHS)})
        assert np.array_equal(new["Q"], whole["Q"]) and all(np.array_equal(new[key], x) for key, x in table.items())
        for number, name in enumerate("KV"):
            pool = new["KV_pages"][:, number] if combined else new[f"{name}_pages"]
            for b, length in enumerate(self.LENGTHS):
                assert np.array_equal(gathered(pool)[b, :length], whole[name][b, :length])
            assert np.array_equal(pool[[0, 3]], pools[[0, 3], number]) and np.array_equal(pool[1, 3], pools[1, number, 3])

    def test_masks_have_their_names(self, tmp_path):
        arrays = {name: np.ones((2, 5, 4), "f2") for name in "QKV"} | {"prefix_lengths": np.array([2, 3])}
        new = self.new_inputs(tmp_path, "named", arrays, layout="bhld", causal=True)
        assert np.array_equal(new["prefix_lengths"], [2, 3]) and not np.array_equal(new["K"], arrays["K"])

    @pytest.mark.parametrize("keys, what", [
        ({"K": np.ones((3, 4), "i1"), "k_scale": 0.5}, "quantised K"), ({"K": np.ones((3, 4), "u1"), "k_type": "e4m3"}, "quantised K"),
        ({"K": np.ones((3, 4)), "V": None, "value_width": 2, "scale": 1.0}, "values in the columns of keys")])
    def test_other_forms_are_refused(self, tmp_path, keys, what):
        job = {"Q": np.ones((2, 4)), "V": np.ones((3, 4))} | keys
        np.savez(tmp_path / "in.npz", **{key: x for key, x in job.items() if isinstance(x, np.ndarray)})
        (tmp_path / "job.json").write_text(json.dumps({key: f"in.npz#{key}" if isinstance(x, np.ndarray) else x
                                                       for key, x in job.items() if x is not None}))
        run = attn("random", "--kind", "adversarial", "--for", "job.json", cwd=tmp_path)
        assert_error(run, 65, f"job.json: no adversarial inputs for a job with {what}")


@pytest.mark.long
@pytest.mark.parametrize("seed", [3, 5, 32, 33, 121, 196, 241, 382, 1019, 1088, 1160, 1285, 1353])
def test_mistakes_of_random_jobs_are_seen(seed):
    """scripts/stress/sensitivity has more jobs."""
    assert {name for name, verdict in verdicts(seed).items() if verdict != "seen"} == set()


@pytest.mark.parametrize("words, message", [
    (["--kind", "adversarial"], "requires --for JOB"), (["--for", "job.json"], "requires --kind adversarial"),
    (["randn", "--kind", "adversarial"], "not used with a method"), ([], "METHOD is required")])
def test_words_that_do_not_fit(words, message):
    assert_error(attn("random", *words), 2, message)


def test_adversarial_inputs_of_packed_tokens_are_those_of_a_batch_of_one(tmp_path):
    """Layout thd, (tokens, heads, D): its middle axis has heads, not tokens."""
    tensors = np.random.default_rng(4).normal(size=(3, 12, 4, 8)).astype("f4")

    def made(layout, numbers):
        np.savez(tmp_path / f"{layout}.npz", **dict(zip("QKV", numbers)))
        names = {key: f"{layout}.npz#{key}" for key in "QKV"}
        (tmp_path / f"{layout}.json").write_text(json.dumps({**names, "layout": layout, "causal": True}))
        out = tmp_path / f"{layout}-made.npz"
        run = attn("random", "--kind", "adversarial", "--for", tmp_path / f"{layout}.json", "-o", out)
        assert run.returncode == 0, run.stderr
        return np.load(out)

    packed, batch = made("thd", tensors), made("blhd", tensors[:, None])
    for key in "QKV":
        np.testing.assert_array_equal(packed[key], batch[key][0])
