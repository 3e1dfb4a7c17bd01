"""compare --reference names the mistake of a kernel. The kernels are those of diagnose/kernel.py, in NumPy."""

import json
import re
import signal
import subprocess
import time

import numpy as np
import pytest

from diagnose.kernel import MISTAKES, ROUND, forward, random_job
from support.attn import ATTN, attn
from support.diagnosed import diagnosed, write_job

DTYPES = ["f16", "bf16", "f32"]
# One job for each mistake, of another dtype each; more are counted by scripts/stress/diagnose.
QUICK = [(mistake, DTYPES[i % 3]) for i, mistake in enumerate(MISTAKES)]


def jobs_with(mistake, dtype, most=72):
    """Random jobs in which the mistake changes the result, and the wrong results."""
    for seed in range(1, 3000):
        tensors, options = random_job(seed, dtype, most)
        if not MISTAKES[mistake][0](tensors, options):
            continue
        right, _ = forward(tensors, options, dtype)
        wrong, _ = forward(tensors, options, dtype, mistake)
        if np.abs(right - wrong).max() > .3:
            yield tensors, options, wrong


@pytest.mark.parametrize("mistake, dtype", QUICK)
def test_mistake_is_named(tmp_path, mistake, dtype):
    for tensors, options, wrong in jobs_with(mistake, dtype):  # in bfloat16, some are within the bound
        report, code = diagnosed(tmp_path, tensors, options, dtype, wrong, "--diagnose")
        if code == 1:
            break
    assert MISTAKES[mistake][1] & {finding["id"] for finding in report["diagnosis"]}
    assert len(report["diagnosis"]) <= 3
    best = report["diagnosis"][0]
    assert best["explained"] >= .99 and best["residual_after"] < best["residual_before"]


@pytest.mark.parametrize("seed, dtype, mistake, ids", [
    (113005, "f32", "keys stored transposed", ["values.keys_read_transposed"]),  # as many keys, past ones too, as columns
    (10009, "bf16", "causal strict", ["causal.strict"]),  # with ALiBi and sinks
    (36002, "bf16", "result halved", ["values.factor"]),  # within the wide bounds of another mistake
    (35009, "bf16", "result of the next row", ["output.rows_moved"]),  # many rows are within the bounds of others
    (68004, "bf16", "masked scores set to -10", [])])  # too few wrong elements, in which a pair fitted
def test_mistake_of_one_job(tmp_path, seed, dtype, mistake, ids):
    tensors, options = random_job(seed, dtype, 2048)
    wrong, _ = forward(tensors, options, dtype, mistake)
    report, code = diagnosed(tmp_path, tensors, options, dtype, wrong, "--diagnose")
    assert code == 1
    assert [finding["id"] for finding in report["diagnosis"]] == ids


@pytest.mark.parametrize("seed, dtype, mistakes, ids", [
    (19, "f32", ("result halved", "masked scores plus -1"), {"values.factor", "mask.added_number"}),
    (32, "f32", ("keys stored transposed", "window added"), {"values.keys_read_transposed", "window.added"}),
    (36, "f32", ("window added", "rotary base 1e6"), {"rotary.base_1000000", "window.added"}),
    (24, "f16", ("causal inverted", "heads of the result swapped with rows"), {"causal.inverted", "output.viewed"}),
    (1, "bf16", ("values rotated", "masked scores times 0"), {"rotary.values_rotated", "mask.set_0"})])
def test_two_mistakes_of_one_job(tmp_path, seed, dtype, mistakes, ids):
    """Of which one is a number or an arrangement that the result suggests, or hides in wide bounds."""
    tensors, options = random_job(seed, dtype, 400)
    wrong, _ = forward(tensors, options, dtype, *mistakes)
    report, code = diagnosed(tmp_path, tensors, options, dtype, wrong, "--diagnose")
    assert code == 1
    assert [set(finding["id"].split(" and ")) for finding in report["diagnosis"]] == [ids]


@pytest.mark.parametrize("dtype, arithmetic, name", [
    ("f16", "weights in bf16", "bf16"), ("f16", "sums in f16", "sums in f16"), ("f32", "weights in f16", "tf32"), ("f32", "tf32", "tf32"),
    ("bf16", "scores in 16 bits", "scores in bf16"), ("f16", "scores in 16 bits", "scores in f16"),
    ("f16", "weights in e4m3", "exp(score - maximum) in e4m3"), ("bf16", "weights in e4m3", "in e4m3"),
    ("f32", "weights times 448 in e4m3", "exp(score - maximum) times 448 in e4m3")])
def test_arithmetic_is_no_mistake(tmp_path, dtype, arithmetic, name):
    tensors, options = random_job(3, dtype, shape=(4, 64, 64))
    tensors = {key: tensors[key] for key in "QKV"}
    out, _ = forward(tensors, {}, dtype, arithmetic=arithmetic)
    report, code = diagnosed(tmp_path, tensors, {}, dtype, out, "--diagnose")
    assert code == 1
    assert report["diagnosis"] == [] and name in report["arithmetic"]


def test_scores_in_bfloat16_beyond_the_range_of_float16(tmp_path):
    tensors = {name: 120 * x if name in "QK" else x for name, x in plain_job(L=64, D=64).items()}
    tensors = {name: ROUND["bf16"](x) for name, x in tensors.items()}
    assert np.abs(tensors["Q"] @ tensors["K"].swapaxes(-1, -2)).max() > 65536
    options = {"scale": 2.0 ** -14}
    out, _ = forward(tensors, options, "bf16", arithmetic="scores in 16 bits")
    report, code = diagnosed(tmp_path, tensors, options, "bf16", out)
    assert code == 1
    assert report["diagnosis"] == [] and "scores in bf16" in report["arithmetic"]


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_errors_of_few_elements_are_those_of_sums(tmp_path, dtype):
    """A context that is rounded after each block of keys."""
    store = ROUND[dtype]
    tensors = {name: store(x) for name, x in plain_job(B=2, H=4, L=256, D=32).items()}
    weights = np.exp(tensors["Q"] @ tensors["K"].swapaxes(-1, -2) / 32 ** .5)
    weights = store(weights / weights.sum(-1, keepdims=True))
    out = np.zeros_like(tensors["V"])
    for first in range(0, 256, 16):
        keys = slice(first, first + 16)
        out = store(out + weights[..., keys] @ tensors["V"][:, :, keys])
    report, code = diagnosed(tmp_path, tensors, {}, dtype, out)
    assert code == 1 and report["differing"] < out.size / 50
    assert report["diagnosis"] == [] and f"sums in {dtype}" in report["arithmetic"]


@pytest.mark.parametrize("mistake, where", [
    ("scale twice", np.s_[1, 3, 64:]), ("scale twice", np.s_[:, 3, 32:]), ("causal strict", np.s_[:, 3, 64:]),
    ("scale twice", np.s_[:, :, ::9])])
@pytest.mark.long
def test_mistake_in_some_rows_is_not_arithmetic(tmp_path, mistake, where):
    tensors = plain_job(B=2, H=4, L=128, D=32)
    options = {"causal": True, "scale": 0.9}
    out, wrong = (forward(tensors, options, "f16", *some)[0] for some in ((), (mistake,)))
    out[where] = wrong[where]
    report, code = diagnosed(tmp_path, tensors, options, "f16", out, "--diagnose")
    assert code == 1
    assert report["arithmetic"] is None


def test_few_wrong_elements_may_have_other_causes(tmp_path):
    tensors, options = plain_job(H=1, L=3, D=1), {"softcap": 2.}
    lines = lines_of(tmp_path, tensors, options, forward(tensors, options, "f32", "softcap dropped")[0])
    assert lines[1:3] == ["  agrees with the job without --softcap (the job has --softcap 2.0)",
                          "  with only 3 wrong elements, other mistakes may also agree"]
    assert not any("not tested" in line for line in lines)


def test_flags_of_a_strict_mask_with_a_window_reproduce_it(tmp_path):
    tensors, options = plain_job(B=1, H=2, L=48, D=16), {"causal": True, "window": [8, 0]}
    out, _ = forward(tensors, options, "f32", "causal strict")
    report, _ = diagnosed(tmp_path, tensors, options, "f32", out)
    assert [finding["flags"] for finding in report["diagnosis"]] == ["--causal-offset -1 --window 7,0"]
    report, code = diagnosed(tmp_path, tensors, options | {"causal_offset": -1, "window": [7, 0]}, "f32", out)
    assert code == 0


@pytest.mark.parametrize("block", [16, 32, 64])
def test_online_softmax_without_rescaling(tmp_path, block):
    """The sums of earlier blocks of keys are not multiplied when the maximum grows."""
    tensors = plain_job(B=2, H=8, L=128, D=64)
    scores = tensors["Q"] @ tensors["K"].swapaxes(-1, -2) / 8
    maximum = np.maximum.accumulate(scores.reshape(2, 8, 128, -1, block).max(-1), -1)
    weights = np.exp(scores.reshape(2, 8, 128, -1, block) - maximum[..., None]).reshape(scores.shape)
    out = weights / weights.sum(-1, keepdims=True) @ tensors["V"]
    report, code = diagnosed(tmp_path, tensors, {}, "f16", out, "--diagnose")
    assert code == 1
    assert [finding["id"] for finding in report["diagnosis"]] == [f"softmax.sums_not_rescaled_{block}"]


@pytest.mark.parametrize("window, name", [((12, 12), "symmetric"), ((5, 12), "swapped"), ((12, 9), "other_right")])
def test_window_with_another_right_side(tmp_path, window, name):
    tensors = plain_job(L=64)
    distance = np.arange(64)[:, None] - np.arange(64)
    visible = (distance <= window[0]) & (distance >= -window[1])
    scores = np.where(visible, tensors["Q"] @ tensors["K"].swapaxes(-1, -2) / 4, -np.inf)
    weights = np.exp(scores)
    wrong = weights / weights.sum(-1, keepdims=True) @ tensors["V"]
    report, _ = diagnosed(tmp_path, tensors, {"window": [12, 5]}, "f32", wrong)
    assert [finding["id"] for finding in report["diagnosis"]] == [f"window.{name}"]


def softmax_where(visible, scores):
    weights = np.where(visible, np.exp(scores), 0)
    return weights / weights.sum(-1, keepdims=True)


def test_a_claim_is_printed_once(tmp_path):
    """The symmetric window is also that with one more key on the right."""
    tensors = plain_job(L=64)
    distance = np.arange(64)[:, None] - np.arange(64)
    wrong = softmax_where(abs(distance) <= 12, tensors["Q"] @ tensors["K"].swapaxes(-1, -2) / 4) @ tensors["V"]
    lines = lines_of(tmp_path, tensors, {"window": [12, 11]}, wrong)
    assert [line for line in lines if "agrees" in line] == ["  agrees with --window 12,12 (the job has 12,11)"]


@pytest.mark.parametrize("keys, missing, claim", [
    (100, 4, "the keys after the last multiple of 8 missing (4 keys)"), (96, 16, "the last page of 16 keys missing")])
def test_blocks_on_the_diagonal_are_not_those_of_one_query(tmp_path, keys, missing, claim):
    tensors = plain_job(L=1, S=keys)
    scores = tensors["Q"] @ tensors["K"].swapaxes(-1, -2) / 4
    wrong = softmax_where(np.arange(keys) < keys - missing, scores) @ tensors["V"]
    lines = lines_of(tmp_path, tensors, {"causal": True, "alignment": "bottom-right"}, wrong)
    assert [line for line in lines if "agrees" in line] == [f"  agrees with {claim}"]


def test_blocks_on_the_diagonal_before_the_first_key(tmp_path):
    """With more queries than keys, positions start below 0."""
    tensors = plain_job(L=64, S=40)
    position = np.arange(64)[:, None] - 24
    visible = np.arange(40) < np.floor_divide(position, 16) * 16 + 16
    with np.errstate(invalid="ignore"):
        wrong = softmax_where(visible, tensors["Q"] @ tensors["K"].swapaxes(-1, -2) / 4) @ tensors["V"]
    report, _ = diagnosed(tmp_path, tensors, {"causal": True, "alignment": "bottom-right"}, "f32", np.nan_to_num(wrong))
    assert [finding["id"] for finding in report["diagnosis"]] == ["causal.to_end_of_block_16"]


@pytest.mark.parametrize("block, keys", [(16, 6), (16, 12), (128, 124)])
def test_online_softmax_from_the_sink_in_one_block(tmp_path, block, keys):
    """The sink comes before the only block of keys."""
    tensors = plain_job(L=12, S=keys) | {"sinks": np.full(2, .5, np.float32)}
    scores = tensors["Q"] @ tensors["K"].swapaxes(-1, -2) / 4
    maximum = np.maximum(scores.max(-1, keepdims=True), .5)
    weights = np.exp(scores - maximum)
    wrong = weights / (weights.sum(-1, keepdims=True) + 1) @ tensors["V"]  # 1: exp(sink - sink), not rescaled
    report, code = diagnosed(tmp_path, tensors, {}, "f32", wrong)
    assert code == 1
    assert f"softmax.sums_not_rescaled_from_sink_{block}" in [finding["id"] for finding in report["diagnosis"]]


@pytest.mark.parametrize("other", [np.nan, np.inf])
def test_nan_and_infinities_are_not_arithmetic(tmp_path, other):
    tensors = plain_job(B=2, H=4, L=256, D=32)
    right, _ = forward(tensors, {}, "f32")
    rng = np.random.default_rng(1)
    wrong = right.astype(np.float16).astype(np.float64)
    wrong.reshape(-1)[rng.choice(wrong.size, 100, replace=False)] *= 1 + 3e-3
    wrong.reshape(-1)[:8] = other
    report, code = diagnosed(tmp_path, tensors, {}, "f16", wrong)
    assert code == 1 and report["arithmetic"] is None


def test_scores_in_16_bits_after_the_scale(tmp_path):
    """The scale is a part of the product, and is not a power of 2."""
    store = ROUND["bf16"]
    tensors = {name: store(3 * x) for name, x in plain_job(B=2, H=4, L=96, D=96).items()}
    scores = store(tensors["Q"] @ tensors["K"].swapaxes(-1, -2) / 96 ** .5)
    wrong = softmax_where(True, scores - scores.max(-1, keepdims=True)) @ tensors["V"]
    report, code = diagnosed(tmp_path, tensors, {}, "f32", wrong)
    assert code == 1 and report["arithmetic"] == "scores in bf16, rounded after the scale"


@pytest.mark.parametrize("key", ["chunk", "sink_tokens"])
def test_numbers_of_keys_at_the_limit(tmp_path, key):
    tensors = plain_job(L=8)
    options = {"causal": True, key: 2 ** 63 - 1} | ({"window": [3, 0]} if key == "sink_tokens" else {})
    _, code = diagnosed(tmp_path, tensors, options, "f32", tensors["V"])
    assert code == 1


@pytest.mark.parametrize("empty", ["zero", "nan", "uniform"])
def test_queries_that_see_no_key_because_of_the_mistake(tmp_path, empty):
    """The job does not say what their results are: kernels return zeros, NaN or the mean of the values."""
    tensors, options = plain_job(L=48), {"causal": True}
    wrong, _ = forward(tensors, options, "f32", "causal inverted", empty="nan" if empty == "nan" else "zero")
    assert np.isnan(wrong[:, :, -1]).all() == (empty == "nan")
    if empty == "uniform":
        wrong[:, :, -1] = tensors["V"].mean(2)
    report, _ = diagnosed(tmp_path, tensors, options, "f32", wrong, "--diagnose")
    assert [finding["id"] for finding in report["diagnosis"]] == ["causal.inverted"]
    assert report["diagnosis"][0]["explained"] == 1


@pytest.mark.parametrize("S, missing, name", [
    (41, 1, "last_missing"), (43, 1, "last_missing"), (43, 3, "tail_missing_8"), (56, 1, "last_missing"),
    (56, 8, "tail_missing_16")])
def test_last_key_is_not_reported_as_a_page_too(tmp_path, S, missing, name):
    r = np.random.default_rng(2)
    tensors = {name: r.normal(size=(1, 2, S, 16)).astype("f4") for name in "QKV"}
    weights = np.exp(tensors["Q"] @ tensors["K"].swapaxes(-1, -2) / 4)[..., :S - missing]
    wrong = weights / weights.sum(-1, keepdims=True) @ tensors["V"][:, :, :S - missing]
    report, _ = diagnosed(tmp_path, tensors, {}, "f32", wrong)
    assert [finding["id"] for finding in report["diagnosis"]] == ["cache." + name]


@pytest.mark.parametrize("mistake, shape, name", [
    ("values reversed", (4, 2, 32), "values.reversed"),  # or the keys, if nothing else depends on their order
    ("queries viewed as heads", (4, 1, 32), "heads.queries_viewed"),  # or all, with one key/value head
    ("1 added to the denominator", (2, 2, 39), "sink.added"),  # or one key of zeros in the last page
    ("last page as zeros", (2, 2, 47), "sink.added")])
def test_mistakes_with_the_same_result_have_one_name(tmp_path, mistake, shape, name):
    r = np.random.default_rng(3)
    H, G, L = shape
    tensors = {key: r.normal(size=(1, heads, L, 16)).astype("f4") for key, heads in (("Q", H), ("K", G), ("V", G))}
    wrong, _ = forward(tensors, {}, "f32", mistake)
    report, _ = diagnosed(tmp_path, tensors, {}, "f32", wrong, "--diagnose")
    assert [finding["id"] for finding in report["diagnosis"]] == [name]


@pytest.mark.parametrize("where, number", [("set", -6.5), ("set", 1.237), ("added", -7.25)])
def test_any_number_instead_of_infinity_is_found(tmp_path, where, number):
    tensors = plain_job()
    scores = tensors["Q"] @ tensors["K"].swapaxes(-1, -2) / 4
    scores = np.where(np.tri(128, dtype=bool), scores, number + (scores if where == "added" else 0))
    weights = np.exp(scores)
    wrong = weights / weights.sum(-1, keepdims=True) @ tensors["V"]
    report, _ = diagnosed(tmp_path, tensors, {"causal": True}, "f32", wrong)
    assert [finding["id"] for finding in report["diagnosis"]] == [f"mask.{where}_number"]
    found = float(re.search(r"-?[\d.]+", report["diagnosis"][0]["text"])[0])
    assert found == pytest.approx(number, rel=1e-4)


def test_number_for_hidden_keys_is_found_in_float16(tmp_path):
    """Some hidden scores are far above the visible ones, so that rounding errors matter."""
    tensors, options = random_job(74921, "f16")
    wrong, _ = forward(tensors, options, "f16", "masked scores plus -1")
    report, _ = diagnosed(tmp_path, tensors, options, "f16", wrong)
    assert [finding["id"] for finding in report["diagnosis"]] == ["mask.added_number"]


def test_errors_as_large_as_the_values_are_not_arithmetic(tmp_path):
    """A kernel has a window that the job lacks. The bound of sums in bfloat16 contains its errors, because it is for
    the worst case."""
    q, k, v = np.random.default_rng(1).standard_normal((3, 1, 2, 64, 16))
    distance = np.arange(64)[:, None] - np.arange(64)
    scores = np.where((distance >= 0) & (distance <= 16), q @ k.swapaxes(-1, -2) / 4, -np.inf)
    weights = np.exp(scores)
    out = weights / weights.sum(-1, keepdims=True) @ v
    report, code = diagnosed(tmp_path, {"Q": q, "K": k, "V": v}, {"causal": True}, "f64", out, "--diagnose")
    assert code == 1
    assert report["arithmetic"] is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_right_kernel_has_no_diagnosis(tmp_path, dtype):
    for seed in range(3):
        tensors, options = random_job(seed, dtype, most=96)
        report, code = diagnosed(tmp_path, tensors, options, dtype, forward(tensors, options, dtype)[0], "--diagnose")
        assert code == 0 and "diagnosis" not in report


def plain_job(L=128, H=2, D=16, B=1, seed=5, S=None):
    r = np.random.default_rng(seed)
    return {name: r.normal(size=(B, H, L if name == "Q" else S or L, D)).astype("f4") for name in "QKV"}


def lines_of(folder, tensors, options, wrong, *flags):
    job = write_job(folder, tensors, options, "f32")
    np.save(folder / "a.npy", wrong.astype("f4"))
    return attn("compare", folder / "a.npy", "--reference", job, *flags).stdout.decode().splitlines()


def test_cause_is_the_first_line_after_the_verdict(tmp_path):
    tensors, options = plain_job(), {"causal": True, "window": [32, 0]}
    wrong, _ = forward(tensors, options, "f32", "window - 1")
    lines = lines_of(tmp_path, tensors, options, wrong)
    assert lines[1] == "  agrees with --window 31,0 (the job has 32,0)"
    assert lines[2] == "  wrong: rows 32 to 127 of 128: rows with more than 32 visible keys"


def test_two_mistakes_are_named(tmp_path):
    tensors, options = plain_job(), {"causal": True, "softcap": 2.0}
    wrong, _ = forward(tensors, dict(options, scale=1.0), "f32", "softcap dropped")
    report, _ = diagnosed(tmp_path, tensors, options, "f32", wrong, "--diagnose")
    assert [set(finding["id"].split(" and ")) for finding in report["diagnosis"]] == [{"scale.none", "softcap.dropped"}]


def test_base_of_logsumexp(tmp_path):
    tensors, options = plain_job(), {"causal": True}
    _, lse = forward(tensors, options, "f32")
    report, _ = diagnosed(tmp_path, tensors, options, "f32", lse / np.log(2), output="logsumexp")
    assert [(finding["id"], finding["flags"]) for finding in report["diagnosis"]] == [("logsumexp.base", "--lse-base 2")]


@pytest.mark.parametrize("place, pattern", [
    (np.s_[:, 1:2, 64:80], ["head 1 of 2", "rows 64 to 79 of 128"]),
    (np.s_[..., 3::16, :], ["every 16th row from 3 to 115 of 128"]),
    (np.s_[..., 4::22, :], ["every 22nd row from 4 to 114 of 128"]),
    (np.s_[..., [1, 4, 9, 16, 25, 36, 49, 64], :], ["rows 1, ..., 64 (8 in all) of 128"]),
    (np.s_[..., 12:], ["columns 12 to 15 of 16"])])
def test_pattern_of_a_result_that_nothing_explains(tmp_path, place, pattern):
    tensors = plain_job()
    wrong, _ = forward(tensors, {}, "f32")
    wrong[place] += np.random.default_rng(1).normal(size=wrong[place].shape)
    report, _ = diagnosed(tmp_path, tensors, {}, "f32", wrong)
    assert report["diagnosis"] == [] and report["pattern"] == pattern


def test_result_with_wider_numbers_than_the_inputs_gets_a_hint(tmp_path):
    """NumPy computes in float64 after a mask of float64 is added."""
    tensors = plain_job()
    job = write_job(tmp_path, tensors, {"causal": True}, "f32")
    q, k, v = (tensors[name] for name in "QKV")
    weights = np.exp(q @ k.swapaxes(-1, -2) + np.where(np.tri(128), 0, -np.inf))
    np.save(tmp_path / "a.npy", weights / weights.sum(-1, keepdims=True) @ v)
    args = "compare", tmp_path / "a.npy", "--reference", job, "--diagnose"
    assert "if the kernel computes in float32, give --precision f32" in attn(*args).stdout.decode()
    lines = attn(*args, "--precision", "f32").stdout.decode().splitlines()
    assert lines[1].startswith("  agrees with --scale none")


def test_flags_are_those_of_run(tmp_path):
    tensors = plain_job()
    for mistake, flags in ("scale missing", "--scale none"), ("scale 1/D", "--scale 0.0625"):
        wrong, _ = forward(tensors, {}, "f32", mistake)
        report, _ = diagnosed(tmp_path, tensors, {}, "f32", wrong)
        assert report["diagnosis"][0]["flags"] == flags


def test_key_after_the_query_is_no_window_of_the_job(tmp_path):
    tensors = plain_job()
    wrong, _ = forward(tensors, {"causal": True}, "f32", "causal one late")
    assert lines_of(tmp_path, tensors, {"causal": True}, wrong)[1] == \
        "  agrees with --window -1,1 instead of --causal: each query also sees the next key"


@pytest.mark.long
def test_hypotheses_beyond_the_time_limit_are_listed(tmp_path):
    tensors = plain_job(L=2048, H=8, D=64)
    wrong = np.random.default_rng(1).normal(size=(1, 8, 2048, 64))
    lines = lines_of(tmp_path, tensors, {"causal": True}, wrong)
    assert any(line.startswith("  not tested within 2 s; --diagnose tests all: ") for line in lines)


@pytest.mark.parametrize("count, note", [(1, "  not tested with only 1 wrong element: pairs"),
                                         (3, "  not tested with only 3 wrong elements: pairs"), (4, None)])
def test_few_wrong_elements_are_not_two_mistakes(tmp_path, count, note):
    tensors = plain_job(L=8, H=2, D=16)
    wrong = forward(tensors, {}, "f32")[0]
    wrong[0, 1, range(count), 5] += 1
    lines = lines_of(tmp_path, tensors, {}, wrong)
    assert "  no known mistake explains it" in lines[1]
    assert (note in lines) if note else not any("wrong element" in line for line in lines)
    assert (" 0 pairs tested" in lines[1]) == (note is not None)


def test_interrupt_prints_what_was_found(tmp_path):
    tensors = plain_job(L=1024, H=4, D=64)
    job = write_job(tmp_path, tensors, {}, "f32")
    np.save(tmp_path / "a.npy", np.random.default_rng(1).normal(size=(1, 4, 1024, 64)).astype("f4"))
    run = subprocess.Popen([ATTN, "compare", tmp_path / "a.npy", "--reference", job, "--diagnose", "--json"],
                           stdout=subprocess.PIPE)
    time.sleep(.3)
    run.send_signal(signal.SIGINT)
    report = json.loads(run.communicate()[0])
    assert run.returncode == 1
    assert report["tensors"][0]["search"]["untested"]


def test_diagnose_requires_a_reference(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(3))
    run = attn("compare", "a.npy", "a.npy", "--diagnose", cwd=tmp_path)
    assert run.returncode == 2 and b"--diagnose" in run.stderr
