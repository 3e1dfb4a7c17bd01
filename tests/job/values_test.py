"""The values of keys and flags: which are accepted, and the message for those that are not."""

import json

import numpy as np
import pytest

from support.attn import attn

Q, K = [[1, 2], [0, 1]], [[1, 0], [2, 1]]
LONG = "a" * 60
SEED = "expected a whole number >= 0 of at most 10000 digits or a list of them, found "
WORDS = "expected true or false, top-left or bottom-right, found "

# key, value, message
REFUSED = [
    ("heads", 1.5, "expected a whole number >= 1, found 1.5"),
    ("heads", 0, "expected a whole number >= 1, found 0"),
    ("heads", "many", "expected a whole number >= 1, found 'many'"),
    ("softcap", "x", "expected a finite number >= 0, found 'x'"),
    ("scale", [1], "expected a finite number, auto or none, found [1]"),
    ("scale", "atuo", "expected a finite number, auto or none, found 'atuo' (did you mean 'auto'?)"),
    ("causal", 1, WORDS + "1"),
    ("causal", "yes", WORDS + "'yes'"),
    ("window", [1], "expected 2 whole numbers >= -1, such as 128,0, found [1]"),
    ("window", [1, 2.5], "expected 2 whole numbers >= -1, such as 128,0, found [1.0,2.5]"),
    ("window", [], "expected 2 whole numbers >= -1, such as 128,0, found []"),
    ("window", ["a", 1], 'expected 2 whole numbers >= -1, such as 128,0, found ["a",1]'),
    ("window", [-2, 0], "expected 2 whole numbers >= -1, such as 128,0, found [-2,0]"),
    ("window", 3, "expected 2 whole numbers >= -1, such as 128,0, found 3"),
    ("rows", [0.5], "expected a non-empty list of whole numbers, such as 0,-1, found [0.5]"),
    ("rows", [], "expected a non-empty list of whole numbers, such as 0,-1, found []"),
    ("rows", ["x"], 'expected a non-empty list of whole numbers, such as 0,-1, found ["x"]'),
    ("outputs", ["weights", 3], 'expected a string or a list of strings, found ["weights",3]'),
    ("outputs", [], "expected a string or a list of strings, found []"),
    ("tokens", ["a", 3], 'expected a list of strings, found ["a",3]'),
    ("tokens", [LONG, 2], "expected a list of strings, found an array"),
    ("tokens", "a", "expected a list of strings, found 'a'"),
    ("generator", "default",
     "expected RandomState, default_rng, torch, jax, jax-original or python, found 'default' (did you mean 'default_rng'?)"),
    ("generator", 3, "expected RandomState, default_rng, torch, jax, jax-original or python, found 3"),
    ("seed", {}, SEED + "{}"),
    ("temperature", 0, "expected a finite number > 0, found 0"),
    ("temperature", -1, "expected a finite number > 0, found -1"),
    ("V", [[1, 2], [3]], "row [1] has 1 element, row [0] has 2"),
    ("mask", "nothing.npy", "nothing.npy: No such file or directory"),
    ("softmax", 3, "expected an object, found an integer"),
    ("softmax", {"axsi": "keys"}, "unknown key 'axsi' (did you mean 'axis'?)"),
]

# flags, message
REFUSED_FLAGS = [
    (["--heads", "1.5"], "--heads: expected a whole number >= 1, found 1.5"),
    (["--heads=2x"], "--heads: expected a whole number >= 1, found '2x'"),
    (["--scale", "x"], "--scale: expected a finite number, auto or none, found 'x'"),
    (["--scale", "1e999"], "--scale: expected a finite number, auto or none, found '1e999'"),
    (["--softcap", "inf"], "--softcap: expected a finite number >= 0, found 'inf'"),
    (["--temperature", "0"], "--temperature: expected a finite number > 0, found 0"),
    (["--temperature", "-1"], "--temperature: expected a finite number > 0, found -1"),
    (["--rotary-base", "0"], "--rotary-base: expected a finite number > 0, found 0"),
    (["--rotary-beta-fast", "0"], "--rotary-beta-fast: expected a finite number > 0, found 0"),
    (["--rotary-factor", "0"], "--rotary-factor: expected a finite number > 0, found 0"),
    (["--rotary-beta-slow", "0"], "--rotary-beta-slow: expected a finite number > 0, found 0"),
    (["--softcap", "0", "--softcap-order", "after-mask"],
     "--softcap-order: requires --softcap"),
    (["--window", "1"], "--window: expected 2 whole numbers >= -1, such as 128,0, found [1]"),
    (["--window", "1,x"], "--window: expected 2 whole numbers >= -1, such as 128,0, found '1,x'"),
    (["--seed", "1,x"], f'--seed: {SEED}[1,"x"]'),
    (["--seed", "x"], f"--seed: {SEED}'x'"),
    (["--seed", ","], f"--seed: {SEED}[]"),
    (["--mask", "[[1"], "--mask: line 1, column 4: expected ',' or ']', found the end of the file"),
    (["--causal=x"], f"--causal: {WORDS}'x'"),
]

# flags, and the same options as keys of a job
SAME = [
    (["--scale", ".5"], {"scale": 0.5}),
    (["--scale", "1."], {"scale": 1}),
    (["--scale", "none"], {"scale": "none"}),
    (["--outputs", "weights"], {"outputs": "weights"}),
    (["--normalizer", "sparsemax"], {"normaliser": "sparsemax"}),
    (["--normaliser", "sparsemax"], {"normalizer": "sparsemax"}),
    (["--softmax-axis", "all"], {"softmax_axis": "all"}),
    (["--rotary", "half", "--rotary-base", "5"], {"rotary_kind": "half", "rotary_base": 5}),
    (["--rotary-kind", "half"], {"rotary": "half"}),
    (["--scale", "2"], {"scale": 2, "$schema": "urn:attn:job:1"}),
    (["--softcap", "0", "--softcap-order", "before-mask"], {}),
    (["--window", "1,0"], {"window": [1, 0]}),
    (["--window", "[1, 0]"], {"window": [1.0, 0.0]}),
    (["--rows", "1"], {"rows": [1]}),
    (["--rows", "[-1]"], {"rows": [-1.0]}),
    (["--causal"], {"causal": True}),
    (["--causal=bottom-right"], {"causal": "bottom-right"}),
    (["--mask", "[[true, false], [true, true]]"], {"mask": [[True, False], [True, True]]}),
    (["--softmax-axis", "all"], {"softmax": {"axis": "all"}}),
    (["--tokens", "[CLS],a"], {"tokens": ["[CLS]", "a"]}),
    (["--tokens", '["[CLS]", "a"]'], {"tokens": ["[CLS]", "a"]}),
    (["--seed", "1,2", "--v", '{"rand": {"shape": [2, 1]}}'],
     {"seed": [1, 2], "V": {"rand": {"shape": [2, 1]}}}),
    (["--seed", "7", "--v", '{"rand": {"shape": [2, 1]}}'],
     {"seed": 7.0, "V": {"rand": {"shape": [2, 1]}}}),
]


def run(folder, job, *args):
    (folder / "job.json").write_text(json.dumps(job))
    return attn("run", "job.json", *args, cwd=folder)


def outputs(folder, name):
    with np.load(folder / name) as arrays:
        return {key: array.tolist() for key, array in arrays.items()}


@pytest.mark.parametrize("key, value, message", REFUSED,
                         ids=[f"{key} {json.dumps(value):.40}" for key, value, _ in REFUSED])
def test_value_of_key_is_refused(tmp_path, key, value, message):
    done = run(tmp_path, {"Q": Q, "K": K, "V": [[1], [2]], key: value})
    assert done.returncode in (65, 66)
    assert f"job.json: {key}: {message}\n" in done.stderr.decode()


def test_two_spellings_of_a_key_are_refused(tmp_path):
    done = run(tmp_path, {"Q": Q, "K": K, "softmax": {"axis": "all"}, "softmax_axis": "all"})
    assert done.returncode == 65
    assert b"job.json: softmax_axis: given twice: another spelling of this key is also present" in done.stderr


@pytest.mark.parametrize("flags, message", REFUSED_FLAGS,
                         ids=[" ".join(flags) for flags, _ in REFUSED_FLAGS])
def test_value_of_flag_is_refused(tmp_path, flags, message):
    done = run(tmp_path, {"Q": Q, "K": K}, *flags)
    assert done.returncode in (2, 65)
    assert message in done.stderr.decode()


@pytest.mark.parametrize("flags, keys", SAME, ids=[" ".join(flags) for flags, _ in SAME])
def test_flags_mean_the_same_as_keys(tmp_path, flags, keys):
    with_flags = run(tmp_path, {"Q": Q, "K": K}, *flags, "-o", "flags.npz")
    with_keys = run(tmp_path, {"Q": Q, "K": K, **keys}, "-o", "keys.npz")
    assert with_flags.returncode == 0, with_flags.stderr
    assert with_keys.returncode == 0, with_keys.stderr
    assert list(outputs(tmp_path, "flags.npz").items()) == list(outputs(tmp_path, "keys.npz").items())


class TestArchives:
    @pytest.fixture(scope="class")
    def folder(self, module_path):
        q, k = np.array(Q, float), np.array(K, float)
        np.savez(module_path / "job.npz", Q=q, K=k, heads=2, window=[1, 0], scale=0.5)
        np.savez(module_path / "options.npz", Q=q, K=k, heads=[[1, 2]])
        np.savez(module_path / "unknown.npz", Q=q, K=k, haeds=2)
        np.savez(module_path / "many.npz", **{f"a{i}": q for i in range(20)})
        return module_path

    def test_arrays_can_be_options(self, folder):
        archive = attn("run", "job.npz", "-o", "archive.npz", cwd=folder)
        q, k = (json.dumps(np.array(rows, float).tolist()) for rows in (Q, K))
        flags = attn("run", "--q", q, "--k", k, "--heads", "2", "--window", "1,0", "--scale", "0.5",
                     "-o", "flags.npz", cwd=folder)
        assert archive.returncode == 0, archive.stderr
        assert flags.returncode == 0, flags.stderr
        assert outputs(folder, "archive.npz")["weights"] == outputs(folder, "flags.npz")["weights"]

    REFUSED_RUNS = [
        (["options.npz"], "options.npz#heads: expected one number or a list, found shape (1, 2)"),
        (["unknown.npz"], "unknown key 'haeds' (did you mean 'heads'?)"),
        (["--q", "many.npz", "--k", "many.npz"], "a6, a7 and 12 more); select one, for example many.npz#a0"),
        (["job.npz", "-o", ""], "--output: expected a value, found ''"),
        (["job.npz", "--max-memory", "1"], "job.npz: expected at most 1 byte, found "),
        (["--q", "[[1]]", "--k", "[[1]]", "--max-memory", "1"], "of memory, more than the limit of 1 byte;"),
        (["--q", "[[1]]", "--k", f"[{','.join(['[1]'] * 99)}]", "--max-memory", "2k"],
         "bytes) of memory, more than the limit of 2.0 KiB (2048 bytes); "),
        (["job.npz", "--max-memory", "1x"], "expected a size such as 500M or 8G, found '1x'"),
        (["job.npz", "--max-memory", "B"], "expected a size such as 500M or 8G, found 'B'"),
    ]

    @pytest.mark.parametrize("args, message", REFUSED_RUNS,
                             ids=[message for _, message in REFUSED_RUNS])
    def test_run_is_refused(self, folder, args, message):
        done = attn("run", *args, cwd=folder)
        assert done.returncode in (2, 65)
        assert message in done.stderr.decode()
