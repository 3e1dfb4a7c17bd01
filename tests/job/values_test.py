#!/usr/bin/env python3
"""What each key and flag takes: values of every form, right and wrong, and what is said of the wrong."""

import json
import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402

Q, K = [[1, 2], [0, 1]], [[1, 0], [2, 1]]
LONG = "a" * 60
SEED = "expected a whole number >= 0 of at most 10000 digits or a list of them, found "
WORDS = "expected true or false, top-left or bottom-right, found "

# key, value, what is said of it
REFUSED = [
    ("heads", 1.5, "expected a whole number >= 1, found 1.5"),
    ("heads", 0, "expected a whole number >= 1, found 0"),
    ("heads", "many", "expected a whole number >= 1, found 'many'"),
    ("softcap", "x", "expected a finite number >= 0, found 'x'"),
    ("scale", [1], "expected a finite number, auto or none, found [1]"),
    ("scale", "atuo", "expected a finite number, auto or none, found 'atuo' (did you mean 'auto'?)"),
    ("causal", 1, WORDS + "1"),
    ("causal", "yes", WORDS + "'yes'"),
    ("window", [1], "expected 2 whole numbers >= -1, found [1]"),
    ("window", [1, 2.5], "expected 2 whole numbers >= -1, found [1.0,2.5]"),
    ("window", [], "expected 2 whole numbers >= -1, found []"),
    ("window", ["a", 1], 'expected 2 whole numbers >= -1, found ["a",1]'),
    ("window", [-2, 0], "expected 2 whole numbers >= -1, found [-2,0]"),
    ("window", 3, "expected 2 whole numbers >= -1, found 3"),
    ("rows", [0.5], "expected whole numbers, found [0.5]"),
    ("rows", ["x"], 'expected whole numbers, found ["x"]'),
    ("outputs", ["weights", 3], 'expected a list of one string or more, found ["weights",3]'),
    ("outputs", [], "expected a list of one string or more, found []"),
    ("tokens", ["a", 3], 'expected a list of strings, found ["a",3]'),
    ("tokens", [LONG, 2], "expected a list of strings, found an array"),
    ("tokens", "a", "expected a list of strings, found 'a'"),
    ("generator", "default", "expected RandomState or default_rng, found 'default' (did you mean 'default_rng'?)"),
    ("generator", 3, "expected RandomState or default_rng, found 3"),
    ("seed", {}, SEED + "{}"),
    ("temperature", 0, "expected a finite number > 0, found 0"),
    ("temperature", -1, "expected a finite number > 0, found -1"),
    ("V", [[1, 2], [3]], "row [1] has 1 element, row [0] has 2"),
    ("mask", "nothing.npy", "nothing.npy: No such file or directory"),
    ("softmax", 3, "expected an object, found an integer"),
    ("softmax", {"axsi": "keys"}, "unknown key 'axsi' (did you mean 'axis'?)"),
]

# what is typed, what is said of it
FLAGS_REFUSED = [
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
     "--softcap-order: expected a softcap beside it, found none"),
    (["--window", "1"], "--window: expected 2 whole numbers >= -1, found [1]"),
    (["--window", "1,x"], "--window: expected 2 whole numbers >= -1, found '1,x'"),
    (["--seed", "1,x"], f'--seed: {SEED}[1,"x"]'),
    (["--seed", "x"], f"--seed: {SEED}'x'"),
    (["--seed", ","], f"--seed: {SEED}[]"),
    (["--mask", "[[1"], "--mask: line 1, column 4: expected ',' or ']', found the end of the file"),
    (["--causal=x"], f"--causal: {WORDS}'x'"),
]

# what is typed, and the same as keys of a document
TAKEN = [
    (["--scale", ".5"], {"scale": 0.5}),
    (["--scale", "1."], {"scale": 1}),
    (["--scale", "none"], {"scale": "none"}),
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


def run(folder, document, *args):
    (folder / "job.json").write_text(json.dumps(document))
    return attn("run", "job.json", *args, cwd=folder)


def refusals(checks, folder):
    for key, value, said in REFUSED:
        done = run(folder, {"Q": Q, "K": K, "V": [[1], [2]], key: value})
        found = done.stderr.decode()
        checks.check(done.returncode in (65, 66) and f"job.json: {key}: {said}\n" in found,
                     f"{key}: {value}: {done.returncode}: {found}")
    for args, said in FLAGS_REFUSED:
        done = run(folder, {"Q": Q, "K": K}, *args)
        found = done.stderr.decode()
        checks.check(done.returncode in (2, 65) and said in found, f"{args}: {done.returncode}: {found}")


def flags_are_keys(checks, folder):
    for args, keys in TAKEN:
        flags = run(folder, {"Q": Q, "K": K}, *args, "-o", "flags.npz", "--force")
        document = run(folder, {"Q": Q, "K": K, **keys}, "-o", "keys.npz", "--force")
        if not checks.check(flags.returncode == document.returncode == 0,
                            f"{args}: {flags.stderr.decode()}{document.stderr.decode()}"):
            continue
        with np.load(folder / "flags.npz") as a, np.load(folder / "keys.npz") as b:
            checks.check(a.files == b.files and all(np.array_equal(a[n], b[n]) for n in a.files),
                         f"{args} is not {keys}")


def archives(checks, folder):
    """An archive's arrays are options, too; of one with many a file says which it has."""
    q, k = np.array(Q, float), np.array(K, float)
    np.savez(folder / "taken.npz", Q=q, K=k, heads=2, window=[1, 0], scale=0.5)
    taken = attn("run", "taken.npz", "-o", "archive.npz", cwd=folder)
    flags = attn("run", "--q", json.dumps(q.tolist()), "--k", json.dumps(k.tolist()), "--heads", "2",
                 "--window", "1,0", "--scale", "0.5", "-o", "typed.npz", cwd=folder)
    if checks.check(taken.returncode == flags.returncode == 0, f"archive: {taken} {flags}"):
        with np.load(folder / "archive.npz") as a, np.load(folder / "typed.npz") as b:
            checks.check(np.array_equal(a["weights"], b["weights"]), "options in an archive")
    np.savez(folder / "options.npz", Q=q, K=k, heads=[[1, 2]])
    np.savez(folder / "unknown.npz", Q=q, K=k, haeds=2)
    np.savez(folder / "many.npz", **{f"a{i}": q for i in range(20)})
    for args, said in (
            (["options.npz"], "options.npz#heads: expected one number or a list, found shape (1, 2)"),
            (["unknown.npz"], "unknown key 'haeds' (did you mean 'heads'?)"),
            (["--q", "many.npz", "--k", "many.npz"], "a6, a7 and 12 more): say which, e.g. many.npz#a0"),
            (["taken.npz", "-o", ""], "--output: expected a value, found ''"),
            (["taken.npz", "--max-memory", "1"], "taken.npz: expected at most 1 byte, found "),
            (["--q", "[[1]]", "--k", "[[1]]", "--max-memory", "1"], "of memory, expected at most 1 byte;"),
            (["--q", "[[1]]", "--k", f"[{','.join(['[1]'] * 99)}]", "--max-memory", "2k"],
             "bytes) of memory, expected at most 2.0 KiB (2048 bytes); "),
            (["taken.npz", "--max-memory", "1x"], "expected a size such as 500M or 8G, found '1x'"),
            (["taken.npz", "--max-memory", "B"], "expected a size such as 500M or 8G, found 'B'")):
        done = attn("run", *args, cwd=folder)
        checks.check(done.returncode in (2, 65) and said in done.stderr.decode(),
                     f"{args}: {done.stderr.decode()}")


def main():
    checks = Checks("values")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        refusals(checks, folder)
        flags_are_keys(checks, folder)
        archives(checks, folder)
    checks.finish()


if __name__ == "__main__":
    main()
