"""Options that have no effect are refused, errors name the flag or key at fault, and NaN in hidden
positions is ignored."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn

QK = ["--q", "[[1.0, 2]]", "--k", "[[1.0, 2], [3, 4]]"]
X = ["--embeddings", "[[1.0, 2], [3, 4]]"]
FOUR_AXES = ["--q", "[[[[1.0, 2]]]]", "--k", "[[[[1.0, 2]]]]"]


def assert_refused(run, code, text):
    assert_error(run, code, text)
    assert run.stdout == b""


# Options of a job that require another option or input.


@pytest.mark.parametrize("arguments, flag", [
    ([*QK, "--layout", "blhd"], "--layout"),
    (["--q", "[[[1.0, 2]]]", "--k", "[[[1.0, 2]]]", "--layout", "blhd"], "--layout"),
    ([*QK, "--alignment", "bottom-right"], "--alignment"),
    ([*QK, "--mask-polarity", "ignore"], "--mask-polarity"),
    ([*QK, "--mask", "[[0.0, 1.0]]", "--mask-polarity", "ignore"], "--mask-polarity"),
    ([*QK, "--embedding-scale", "5"], "--position-embedding-scale"),
    ([*QK, "--position-base", "5"], "--position-base"),
    ([*X, "--position-base", "5"], "--position-base"),
    ([*X, "--position-first", "5"], "--position-first"),
    ([*X, "--position-exponent", "doubled"], "--position-exponent"),
    ([*X, "--last-column-zero"], "--position-last-column-zero"),
    ([*X, "--seed", "3", "--generator", "default_rng"], "--seed"),
    ([*X, "--generator", "default_rng"], "--generator"),
])
def test_flag_without_effect_is_refused(arguments, flag):
    run = attn("run", *arguments)
    assert_refused(run, 2, f"attn: {flag}: ")
    assert b"requires " in run.stderr


@pytest.mark.parametrize("key, value", [
    ("layout", "blhd"), ("seed", 2**32), ("generator", "default_rng"), ("softcap_order", "after-mask"),
    ("position", {"kind": "sinusoidal"}), ("rotary", {"base": 3}), ("rows", [9]), ("outputs", ["wieghts"])],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value))
def test_key_without_effect_is_refused(key, value):
    run = attn("run", "-", stdin=json.dumps({"Q": [[1, 2]], "K": [[1, 2]], key: value}))
    assert_refused(run, 65, f"standard input: {key}")


@pytest.mark.parametrize("arguments", [
    [*FOUR_AXES, "--layout", "blhd"],
    [*QK, "--layout", "bhld", "--mask-polarity", "attend", "--position", "none"],
    [*QK, "--mask", "[[true, false]]", "--mask-polarity", "ignore"],
    [*QK, "--key-mask", "[true, false]", "--mask-polarity", "ignore"],
    [*QK, "--window=1,-1", "--alignment", "bottom-right"],
    [*QK, "--causal", "--alignment", "bottom-right"],
    [*QK, "--causal=bottom-right", "--alignment", "bottom-right"],
    [*QK, "--alibi", "--alignment", "bottom-right"],
    [*QK, "--alibi-slopes", "[0.5]", "--alignment", "bottom-right"],
    [*QK, "--relative-bias", "[[1.0], [2], [3], [4]]", "--alignment", "bottom-right"],
    [*X, "--embedding-scale", "5"],
    [*X, "--position", "sinusoidal", "--position-base", "5", "--position-first", "1"],
    [*X, "--wq", '{"randn": {"shape": [2, 2]}}', "--seed", "1", "--generator", "RandomState"],
])
def test_flag_with_effect_or_default_value_is_accepted(arguments):
    run = attn("run", *arguments, "--outputs", "weights")
    assert run.stderr == b""
    assert run.returncode == 0


# Flags about files and pictures that are not written.

COMPARE, VIEW, PICTURE = ["compare", "a.npz", "b.npz"], ["view", "a.npz"], ["-o", "z.svg"]
NO_FILE = "a file: -o, --view=FILE or --explain FILE"
TEXT = "text on standard output"


@pytest.fixture
def archives(tmp_path):
    np.savez(tmp_path / "a.npz", weights=np.eye(2), scores=np.eye(2))
    np.savez(tmp_path / "b.npz", weights=np.eye(2), scores=np.ones((2, 2)), logsumexp=np.zeros(2),
             head_context=np.zeros((2, 2)))
    return tmp_path


@pytest.mark.parametrize("command, option, companion", [
    (COMPARE, ["--of", "weights"], "--view"), (COMPARE, ["--head", "1"], "--view"),
    (COMPARE, ["--batch", "0"], "--view"), (COMPARE, ["--layer", "0"], "--view"),
    (COMPARE, ["--force"], "--view=FILE"), ([*COMPARE, "--view"], ["--force"], "--view=FILE"),
    (VIEW, ["--force"], "-o FILE"), (VIEW, ["--max-html-bytes", "5M"], "-o FILE.html"),
    ([*VIEW, *PICTURE], ["--max-html-bytes", "5M"], "-o FILE.html"),
    (["run", *QK, "--view"], ["--max-html-bytes", "5M"], "--view=FILE.html"),
    ([*VIEW, *PICTURE], ["--width", "60"], TEXT), ([*VIEW, *PICTURE], ["--color", "always"], TEXT),
    ([*VIEW, "-o", "z.html"], ["--color", "never"], TEXT),
    (["run", *QK], ["--force"], NO_FILE), (["run", *QK], ["--no-clobber"], NO_FILE),
    (["run", *QK], ["--durable"], NO_FILE), (["run", *QK, "-o", "-"], ["--force"], NO_FILE),
    (["run", *QK, "--format", "npz"], ["--force"], NO_FILE),
    (["run", *QK, "--view", "--explain", "-"], ["--durable"], NO_FILE),
    (["random", "rand", "--seed", "1"], ["--force"], "-o FILE"),
    (["convert", "a.npz"], ["--force"], "-o FILE"), (["merge", "b.npz", "b.npz"], ["--force"], "-o FILE"),
    (["svd", "a.npz#weights"], ["--force"], "-o FILE"),
    (["convert", "a.npz", "-o", "-"], ["--force"], "-o FILE"),
])
def test_flag_requires_its_companion(archives, command, option, companion):
    run = attn(*command, *option, cwd=archives)
    assert run.stderr.decode() == f"attn: {option[0]} requires {companion}\n"
    assert run.returncode == 2
    assert run.stdout == b""


@pytest.mark.parametrize("arguments, code", [
    ([*COMPARE, "--view", "--of", "weights"], 1), ([*COMPARE, "--view=c.svg", "--force"], 1),
    ([*VIEW, "-o", "v.html", "--max-html-bytes", "5M", "--force"], 0),
    ([*VIEW, "--width", "60", "--color", "never"], 0),
    (["run", *QK, "--view=r.svg", "--force", "--durable"], 0),
    (["run", *QK, "--explain", "r.md", "--no-clobber"], 0),
    (["run", *QK, "-o", "-", "-o", "r.npz", "--force"], 0),
    (["svd", "a.npz#weights", "-o", "f.npz", "--force"], 0),
    (["merge", "b.npz", "b.npz", "-o", "m.npz", "--force"], 0),
])
def test_flag_is_accepted_with_its_companion(archives, arguments, code):
    assert attn(*arguments, cwd=archives).returncode == code


# A value after a space, behind a flag that takes its value only after '='.

MISSING, EXTRA = "{}: No such file or directory", "unexpected argument '{}'"


@pytest.fixture
def job_and_tensor(tmp_path):
    (tmp_path / "qk.json").write_text(json.dumps({"Q": [[1, 2]], "K": [[1, 2]]}))
    np.save(tmp_path / "t.npy", np.eye(2))
    return tmp_path


@pytest.mark.parametrize("arguments, code, reason", [
    (["run", *QK, "--causal", "true"], 66, MISSING),
    (["run", "qk.json", "--causal", "bottom-right"], 2, EXTRA),
    (["run", "qk.json", "--view", "-"], 2, EXTRA),
    (["batch", "--causal", "top-left"], 66, MISSING),
])
def test_value_after_a_space_gets_a_hint(job_and_tensor, arguments, code, reason):
    flag, word = arguments[-2:]
    run = attn(*arguments, cwd=job_and_tensor)
    assert_error(run, code, reason.format(word), f"; {flag} takes its value as {flag}={word}")
    assert run.stderr.count(b"\n") == 1


@pytest.mark.parametrize("arguments", [
    ["--view", "job.json"], ["--causal", "job.json"], ["--force", "true"], ["true", "--causal"]])
def test_unrelated_word_gets_no_hint(tmp_path, arguments):
    run = attn("run", *arguments, cwd=tmp_path)
    assert run.returncode in (2, 66)
    assert b"takes its value" not in run.stderr


# Labels.

CROSS = ["--q", "[[1.0]]", "--k", "[[1.0], [2], [3]]"]


@pytest.mark.parametrize("arguments, tokens", [(CROSS, "a"), (CROSS, "a,b,c"), (X, "a,b")])
def test_as_many_tokens_as_queries_or_keys_are_accepted(arguments, tokens):
    run = attn("run", *arguments, "--outputs", "weights", "--tokens", tokens)
    assert (run.returncode, run.stderr) == (0, b"")


@pytest.mark.parametrize("arguments, tokens, warning", [
    (CROSS, "a,b", "expected as many as the 1 queries or the 3 keys, found 2"),
    (X, "a,b,c", "expected as many as the 2 queries, found 3")])
def test_another_number_of_tokens_is_a_warning(arguments, tokens, warning):
    assert_error(attn("run", *arguments, "--tokens", tokens), 0, warning)


@pytest.mark.parametrize("text, tokens", [("[CLS],a", ["[CLS]", "a"]), ("{x},[", ["{x}", "["]), ('["a", "b"]', ["a", "b"])])
def test_tokens_are_a_list_with_commas_or_json(text, tokens):
    run = attn("run", *X, "--tokens", text, "--format", "json")
    assert json.loads(run.stdout)["tokens"] == tokens


# Messages name the flag, file or key at fault.


def test_every_wrong_flag_is_named():
    run = attn("run", *QK, "--heads", "2", "--kv-heads", str(2**63 - 1))
    assert run.returncode == 65
    assert run.stderr.decode().splitlines() == [
        f"attn: --k: width 2 of (2, 2) is not divisible by kv_heads = {2**63 - 1}",
        f"attn: --kv-heads: expected a divisor of 2, the number of query heads (from heads), "
        f"found {2**63 - 1}"]


@pytest.fixture
def jobs(tmp_path):
    for name, job in {
            "job": {"Q": [[1, 2]], "K": [[1, 2]]},
            "several": {"Q": [[1, 2]], "K": "two.npz"},
            "empty": {"Q": "", "K": [[1]]},
            "dotted": {"embeddings": [[1]], "position.base": 3},
            "drawn": {"embeddings": [[1]], "W_Q": {"randn": {"shape": [1, 1]}}},
            "turned": {"Q": [[1, 2]], "K": [[1, 2]], "rotary": {"base": 3}}}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(job))
    np.savez(tmp_path / "two.npz", a=np.ones((2, 2)), b=np.ones((2, 2)))
    np.savez(tmp_path / "other.npz", np.ones((2, 2)))
    return tmp_path


@pytest.mark.parametrize("arguments, code, message", [
    ([*QK, "--softcap", "-1.5"], 2, "found -1.5"),
    ([*QK, "--window", "-2,0"], 2, "found [-2,0]"),
    (["job.json", "--rows", "9"], 2, "attn: --rows: expected indices of the"),
    (["job.json", "--position", "sinusoidal"], 2, "attn: --position-kind: 'sinusoidal' requires --embeddings"),
    (["job.json", "--rotary-base", "3"], 2, "attn: --rotary-base: requires --rotary-kind half or "),
    (["job.json", "--relative-max-distance", "3"], 2, "attn: --relative-max-distance: requires --relative-bias"),
    (["turned.json", "--rotary-width", "2"], 65, "attn: turned.json: rotary.base: requires rotary.kind half"),
    (["job.json", "--rotary", "half", "--q", "[[1,2,3]]", "--k", "[[1,2,3]]"], 2,
     "attn: --rotary-kind: rotary.width: expected an even number"),
    (["job.json", "--rotary", "half", "--q", "[[1]]", "--k", "[[2]]"], 2,
     "attn: --rotary-kind: expected heads of at least 2 columns, found 1"),
    (["job.json", "--q", "none.npy[0:2]"], 66, "to select a part of a tensor, write none.npy#[0:2]"),
    (["job.json", "--normaliser", "top_k"], 2, "attn: --normaliser: 'top_k' requires --top-k"),
    (["job.json", "--softcap-order", "after-mask"], 2, "attn: --softcap-order: requires --softcap"),
    (["job.json", "--short-mask", "hide"], 2, "attn: --short-mask: requires --mask"),
    (["job.json", "--top-k", "2"], 2, "attn: --top-k: requires --normaliser top_k"),
    (["job.json", "--outputs", "wieghts"], 2, "attn: --outputs: unknown output 'wieghts' (did you mean 'weights'?)"),
    (["job.json", "--q", "none.npy"], 66, "attn: --q: none.npy: "),
    (["job.json", "--sinks", "2"], 66, "No such file or directory; to give numbers, write [2]"),
    (["job.json", "--sinks", "0.5,-1"], 66, "to give numbers, write [0.5,-1]"),
    (["drawn.json", "--seed", 2**32], 2, "attn: --seed: expected 0 to 4294967295, found a larger"),
    (["drawn.json"], 65, "attn: drawn.json: W_Q: a random tensor needs a seed"),
    (["other.npz"], 65, "other.npz: unknown key 'arr_0'; arrays of a job have the names of inputs, "
                        "such as Q, K, V, embeddings, W_Q; to use an array of another name, write "
                        "--q other.npz#arr_0"),
    (["several.json"], 65, "attn: several.json: K: two.npz: has several arrays"),
    (["empty.json"], 65, "attn: empty.json: Q: expected a file name"),
    (["dotted.json"], 65, "expected the key 'base' in an object 'position'"),
])
def test_message_names_the_fault(jobs, arguments, code, message):
    assert_refused(attn("run", *arguments, cwd=jobs), code, message)


@pytest.mark.parametrize("text", ["{]", '{"hedas": 1}'], ids=["syntax error", "unknown key"])
def test_message_names_standard_input(text):
    assert_refused(attn("run", "-", stdin=text), 65, "attn: standard input: ")


def test_keys_of_an_archive_are_dotted(tmp_path):
    np.savez(tmp_path / "job.npz", embeddings=np.array([[1.0, 2], [3, 4]]),
             **{"position.first": 3, "position.base": 7.0})
    run = attn("run", "job.npz", "--position", "sinusoidal", "--outputs", "positions", "--format", "json",
               cwd=tmp_path)
    t = (3 + np.arange(2))[:, None]
    np.testing.assert_allclose(json.loads(run.stdout)["positions"], np.hstack([np.sin(t), np.cos(t)]))


# NaN.

HIDDEN_NAN = {"Q": [[1.0, 0]], "K": [[1, 0], ["NaN", 0]], "V": "K", "mask": [[True, False]]}
VISIBLE_NAN = {"Q": [[1.0, 0]], "K": [["NaN", 0], [1, 0]]}


def run_job(job, *arguments):
    return attn("run", "-", *arguments, "--format", "json", stdin=json.dumps(job))


def test_nan_in_a_hidden_key_is_accepted():
    run = run_job(HIDDEN_NAN, "--nan", "refuse")
    assert (run.returncode, run.stderr) == (0, b"")


def test_nan_in_scores_before_the_mask_is_refused():
    assert_refused(run_job(HIDDEN_NAN, "--nan", "refuse", "--outputs", "scores"), 65,
                   "scores: 1 of 2 values are NaN, the first at [0, 1]")


@pytest.mark.parametrize("output, flags", [
    ("mean_weights", ["--heads", "1"]), ("key_weights", ["--heads", "1"]), ("row_max", [])])
class TestOutputAfterTheMask:
    def test_has_no_nan_from_a_hidden_key(self, output, flags):
        run = run_job(HIDDEN_NAN, *flags, "--nan", "refuse", "--outputs", f"scores,{output}")
        assert (run.returncode, run.stderr) == (0, b"")

    def test_has_nan_from_a_visible_key(self, output, flags):
        assert_refused(run_job(VISIBLE_NAN, *flags, "--nan", "refuse", "--outputs", output), 65,
                       "values are NaN")


@pytest.mark.parametrize("text", [
    "values are NaN", "standard input: Q holds 1, the first at [0, 1]",
    "standard input: K holds 1, the first at [1, 0]"])
def test_nan_warning_names_outputs_and_inputs(text):
    job = {"Q": [[1.0, "NaN"]], "K": [[1, 0], ["NaN", 0]], "V": [[1.0], [2]], "mask": [[True, False]]}
    assert_error(run_job(job), 0, text)


def test_nan_warning_names_inputs_with_infinity_if_none_has_nan():
    job = {"Q": [[1.0, "Infinity"]], "K": [[1, 2], [0, "-Infinity"]], "V": [[1.0], [2]], "bias": [["-Infinity", 0.5]]}
    warned = run_job(job)
    for name, place in ("Q", "[0, 1]"), ("K", "[1, 1]"):
        assert_error(warned, 0, f"standard input: {name} holds 1 infinite number, the first at {place}")
    assert b"bias" not in warned.stderr
    job["V"] = [["Infinity"], [1]]
    assert b"V holds" not in run_job(job).stderr  # the weights do not depend on it
    job["bias"], job["K"] = [["Infinity", 0.5]], [[1, 2], [0, 1]]
    assert_error(run_job({**job, "Q": [[1.0, 0]]}), 0, "bias holds 1 infinite number, the first at [0, 0]")
    job["V"] = [["NaN"], [1]]
    assert b"infinite" not in run_job(job).stderr


@pytest.mark.parametrize("flags", [[], ["-o", "n.npz"], ["-o", "n.json"], ["--view"], ["--explain", "-"]], ids=str)
def test_errors_of_a_rule_name_the_job(tmp_path, flags):
    (tmp_path / "job.json").write_text(json.dumps(
        {"Q": [[1.0]], "K": [[1]] * 4, "V": "K", "mask_rule": "t[k] == 1", "mask_tables": {"t": [1, 0, 1]}}))
    run = attn("run", "job.json", *flags, cwd=tmp_path)
    assert_error(run, 65, "attn: job.json: mask_rule: index 3 of t is not in [0, 3) at character 1 for ")


def test_nan_warning_names_infinity_in_float16(tmp_path):
    q = np.ones((3, 4), np.float16)
    q[1, 2] = np.inf
    np.savez(tmp_path / "in.npz", Q=q, K=np.eye(4, dtype=np.float16), V=np.eye(4, dtype=np.float16))
    flags = [part for name in "QKV" for part in (f"--{name.lower()}", f"in.npz#{name}")]
    assert_error(attn("run", *flags, cwd=tmp_path), 0, "in.npz#Q: Q holds 1 infinite number, the first at [1, 2]")


def test_a_given_option_without_effect_is_named(tmp_path):
    run = attn("run", *QK, "--window=-1,-1", "--alignment", "bottom-right", cwd=tmp_path)
    assert_refused(run, 2, "or --relative-bias; this --window has no effect")
