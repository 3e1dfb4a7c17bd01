"""Flags refuse an invalid value in one style, before any file is read."""

import pytest

from support.attn import assert_error, attn

WHOLE, FINITE = "a whole number", "a finite number"
LARGE = "9" * 30
FLAGS = [
    # command, flag, expected value, invalid values
    ("run", "--threads", WHOLE + " from 1 to 1024", ["0", "-1", "x", " 1", "1.5", "0x10", "2147483647", LARGE]),
    ("run --explain s.md", "--explain-query", WHOLE, ["x", "1.0"]),
    ("run --explain s.md", "--explain-head", WHOLE, ["x", LARGE]),
    ("batch jobs", "--jobs", WHOLE + " from 1 to 1024", ["0", "1025", "x"]),
    ("batch jobs", "--timeout", FINITE + " > 0", ["0", "-1", "y", "nan", "inf", "1e999"]),
    ("batch jobs", "--timeout", "seconds without a unit > 0", ["1m", "90s", "1.5 h"]),
    ("compare a.npy b.npy", "--rtol", FINITE + " >= 0", ["x", "-1", "nan", "1e-5x"]),
    ("compare a.npy b.npy", "--atol", FINITE + " >= 0", ["-1", "inf"]),
    ("compare a.npy b.npy", "--ulp", WHOLE + " >= 0", ["x", "-1", "0.5"]),
    ("svd m.npy", "--rank", WHOLE + " >= 1", ["0", "x"]),
    ("view r.npz", "--width", WHOLE + " from 20 to 1000", ["19", "x"]),
    ("view r.npz", "--vmin", FINITE, ["x", "nan"]),
    ("view r.npz", "--vmax", FINITE, ["inf", "1,5"]),
    ("random randn --seed 1", "--repeat", WHOLE + " >= 1", ["0", "x"]),
    ("convert a.npy", "--precision", WHOLE + " from 0 to 1100", ["-1", "1101"]),
    ("convert a.npy", "--numpy", WHOLE + " from 1 to 2", ["0", "3", "1.24"]),
    ("convert a.npy", "--threshold", f"{WHOLE} from 0 to {2**31 - 1}", ["-1", "x"]),
    ("convert a.npy", "--linewidth", f"{WHOLE} from 1 to {2**31 - 1}", ["0"]),
    ("convert a.npy", "--floatmode", "fixed, unique, maxprec or maxprec_equal", ["x", "long"]),
    ("run", "--nan", "warn, allow or refuse", ["x"]),
    ("batch jobs", "--format", "npz, npy, safetensors, json, csv or folder", ["text", "x"]),
    ("compare a.npy b.npy", "--precision", "f64, f32, tf32, f16 or bf16", ["8"]),
    ("random randn --seed 1", "--generator", "RandomState, default_rng, torch, jax, jax-original or python", ["x"]),
]


def assert_usage_error(command, arguments, message):
    """`attn COMMAND ARGUMENTS` fails with this message and a hint at --help."""
    run = attn(*command.split(), *arguments)
    assert run.stderr.decode() == f"attn: {message}; see 'attn {command.split()[0]} --help'\n"
    assert run.returncode == 2


@pytest.mark.parametrize("command, flag, expected, value", [
    (command, flag, expected, value) for command, flag, expected, values in FLAGS for value in values])
def test_invalid_value_is_refused(command, flag, expected, value):
    assert_usage_error(command, [f"{flag}={value}"], f"{flag}: expected {expected}, found '{value}'")


def test_misspelled_word_gets_a_suggestion():
    assert_error(attn("view", "r.npz", "--color", "allways"), 2, "found 'allways' (did you mean 'always'?); see")


@pytest.mark.parametrize("command, flag, expected", [
    ("run", "--threads", "N"), ("run", "--format", "WORD"), ("run", "--q", "FILE"),
    ("batch jobs", "--name", "PATTERN")])
def test_missing_value_is_refused(command, flag, expected):
    assert_usage_error(command, [flag], f"{flag}: expected {expected}, found nothing")


def test_size_shows_an_example():
    assert_error(attn("view", "r.npz", "--max-html-bytes", "x"), 2, "expected a size such as 500M")


@pytest.mark.parametrize("command, arguments, message", [
    ("run", "--heads 2 --heads 2", "--heads: given twice"),
    ("batch jobs", "-j 1 -j 2 --jobs 3", "--jobs: given 3 times"),
    ("run job.json", "--causal --causal=false", "--causal: given twice"),
    ("run job.json", "--view --view=x.svg", "--view: given twice"),
    ("compare a.npy b.npy", "--view=x.svg --view", "--view: given twice"),
    ("run job.json", "--dry-run --dry-run=false", "--dry-run: given twice"),
])
def test_flag_given_twice_is_refused(command, arguments, message):
    assert_usage_error(command, arguments.split(), message)


def test_switch_may_be_repeated():
    assert attn("random", "rand", "--seed", "1", "--repr", "--repr", "-q", "--quiet").returncode == 0


def test_leading_zeros_do_not_mean_octal():
    run = attn("random", "random", "--seed", "1", "--repeat", "010")
    assert run.returncode == 0
    assert run.stdout.count(b"arr_") == 10


@pytest.mark.parametrize("command, words, flag", [
    ("view r.npz", ["--title=", "--log"], "--title"), ("view r.npz", ["--title="], "--title"),
    ("random randn", ["--seed=", "5"], "--seed"), ("rollout r.npz", ["--heads=", "max"], "--heads"),
    ("run", ["--view=", "job.json"], "--view"), ("run", ["--causal="], "--causal"),
    ("examples run zhihu-mha", ["--cells=", "3"], "--cells")])
def test_empty_value_after_an_equals_sign_is_refused(command, words, flag):
    """As from an unset variable of a script; the next word is not the value."""
    run = attn(*command.split(), *words)
    assert f"attn: {flag}: expected a value, found ''; see 'attn " in run.stderr.decode()
    assert run.returncode == 2


def test_a_value_may_end_in_an_equals_sign():
    assert b"expected a value" not in attn("view", "r.npz", "--title", "--dark=").stderr
