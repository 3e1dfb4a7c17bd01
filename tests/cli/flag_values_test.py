#!/usr/bin/env python3
"""Flags say in one style what values they take, before anything is read."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402

WHOLE, FINITE = "a whole number", "a finite number"
LARGE = "9" * 30
FLAGS = [
    # command, flag, what it takes, values that it does not take
    ("run", "--threads", WHOLE + " >= 1", ["0", "-1", "x", " 1", "1.5", "0x10", LARGE]),
    ("run --explain s.md", "--explain-query", WHOLE, ["x", "1.0"]),
    ("run --explain s.md", "--explain-head", WHOLE, ["x", LARGE]),
    ("batch jobs", "--jobs", WHOLE + " from 1 to 1024", ["0", "1025", "x"]),
    ("batch jobs", "--timeout", FINITE + " > 0", ["0", "-1", "y", "nan", "inf", "1e999"]),
    ("compare a.npy b.npy", "--rtol", FINITE + " >= 0", ["x", "-1", "nan", "1e-5x"]),
    ("compare a.npy b.npy", "--atol", FINITE + " >= 0", ["-1", "inf"]),
    ("compare a.npy b.npy", "--ulp", WHOLE + " >= 0", ["x", "-1", "0.5"]),
    ("compare a.npy b.npy", "--head", WHOLE, ["x"]),
    ("svd m.npy", "--rank", WHOLE + " >= 1", ["0", "x"]),
    ("view r.npz", "--width", WHOLE + " from 20 to 1000", ["19", "x"]),
    ("view r.npz", "--vmin", FINITE, ["x", "nan"]),
    ("view r.npz", "--vmax", FINITE, ["inf", "1,5"]),
    ("view r.npz", "--layer", WHOLE, ["x"]),
    ("random randn --seed 1", "--repeat", WHOLE + " >= 1", ["0", "x"]),
    ("convert a.npy", "--precision", WHOLE + " from 0 to 1100", ["-1", "1101"]),
    ("convert a.npy", "--threshold", f"{WHOLE} from 0 to {2**31 - 1}", ["-1", "x"]),
    ("convert a.npy", "--linewidth", f"{WHOLE} from 1 to {2**31 - 1}", ["0"]),
    ("convert a.npy", "--floatmode", "fixed, unique, maxprec or maxprec_equal", ["x", "long"]),
    ("run", "--nan", "warn, allow or refuse", ["x"]),
    ("batch jobs", "--format", "npz, safetensors, json, csv, npy or folder", ["text", "x"]),
    ("compare a.npy b.npy", "--precision", "f64, f32, tf32, f16 or bf16", ["8"]),
    ("random randn --seed 1", "--generator", "RandomState or default_rng", ["x"]),
]


def main():
    checks = Checks("values of flags")
    for command, flag, takes, values in FLAGS:
        for value in values:
            run = attn(*command.split(), f"{flag}={value}")
            said = f"attn: {flag}: expected {takes}, found '{value}'; see 'attn {command.split()[0]} --help'\n"
            checks.check(run.returncode == 2 and run.stderr.decode() == said, f"not {said}{run}")
    run = attn("view", "r.npz", "--color", "allways")
    checks.check(run.returncode == 2 and b"found 'allways' (did you mean 'always'?); see" in run.stderr, f"{run}")
    for command, flag, takes in [("run", "--threads", "N"), ("run", "--format", "WORD"), ("run", "--q", "FILE"),
                                 ("batch jobs", "--name", "PATTERN")]:
        run = attn(*command.split(), flag)
        said = f"attn: {flag}: expected {takes}, found nothing; see 'attn {command.split()[0]} --help'\n"
        checks.check(run.returncode == 2 and run.stderr.decode() == said, f"not {said}{run}")
    run = attn("view", "r.npz", "--max-html-bytes", "x")
    checks.check(run.returncode == 2 and b"expected a size such as 500M" in run.stderr, f"{run}")
    for args, said in [("run --heads 2 --heads 2", "--heads: given twice"),
                       ("batch jobs -j 1 -j 2 --jobs 3", "--jobs: given 3 times"),
                       ("run job.json --causal --causal=false", "--causal: given twice"),
                       ("run job.json --view --view=x.svg", "--view: given twice"),
                       ("compare a.npy b.npy --view=x.svg --view", "--view: given twice"),
                       ("run job.json --dry-run --dry-run=false", "--dry-run: given twice")]:
        run = attn(*args.split())
        said = f"attn: {said}; see 'attn {args.split()[0]} --help'\n"
        checks.check(run.returncode == 2 and run.stderr.decode() == said, f"not {said}{run}")
    run = attn("random", "rand", "--seed", "1", "--repr", "--repr", "-q", "--quiet")
    checks.check(run.returncode == 0, f"the same twice contradicts nothing: {run}")
    # Zeros before a number do not make it octal.
    run = attn("random", "random", "--seed", "1", "--repeat", "010")
    checks.check(run.returncode == 0 and run.stdout.count(b"arr_") == 10, f"--repeat 010: {run}")
    checks.finish()


if __name__ == "__main__":
    main()
