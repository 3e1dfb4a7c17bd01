#!/usr/bin/env python3
"""attn examples: what it prints is what the notebooks printed, and what it compares it does see.

Every digit of every expected.txt is changed in turn, and an input of each job: each has to be told.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, ROOT, Checks, attn

DATA = ROOT / "data" / "examples"
NAMES = sorted(path.parent.name for path in DATA.glob("*/example.json"))

# One digit of one input changed, and the first cell that then differs.
CHANGED_INPUTS = [
    ("general-attention", "first-word.json", "[0, 0, 1]", "[0, 0, 2]", "In [20]"),
    ("general-attention", "job.json", '"seed": 42', '"seed": 43', "In [29]"),
    ("single-query", "job.json", '"rows": [0]', '"rows": [1]', "In [15]"),
    ("attention-sample", "job.json", "[1, 1, 0]", "[1, 2, 0]", "In [9]"),
    ("positional-encoding", "job.json", "[6, 1, 2, 2]", "[6, 1, 3, 2]", "In [201]"),
    ("positional-encoding", "job.json", '"base": 10000', '"base": 10001', "In [199]"),
    ("positional-encoding", "job.json", '"high": 5', '"high": 6', "In [285]"),
    ("latent-factors", "ratings.json", "[5, 5, 5, 0, 0]", "[5, 5, 4, 0, 0]", "In [1]"),
    ("latent-factors", "cosine.json", "[5, 0, 0, 0, 0]", "[5, 1, 0, 0, 0]", "In [6]"),
    ("latent-factors", "example.json", '"rank": 2', '"rank": 3', "In [5]"),
    ("encoder-decoder", "job.json", "0.67", "0.66", "In [35]"),
    ("token-attention", "job.json", "-0.99, 0.42", "-0.98, 0.42", "In [84]"),
    ("head-split", "job.json", '"heads": 2', '"heads": 4', "In [119]"),
]


def python_values(text):
    """The arrays in the text of a tuple of arrays."""
    return eval(text, {"array": np.array})  # our own program's output


def check_output(checks):
    checks.check(len(NAMES) == 8, f"eight examples, found {NAMES}")
    for name in NAMES:
        run = attn("examples", "run", name)
        expected = (DATA / name / "expected.txt").read_bytes()
        checks.check(run.returncode == 0 and run.stderr == b"", f"{name}: {run}")
        if name == "latent-factors":
            check_factors(checks, run.stdout.decode(), expected.decode())
        else:
            checks.check(run.stdout == expected, f"{name}:\n{run.stdout.decode()}")
    together = attn("examples", "run", "single-query", "general-attention").stdout
    apart = [attn("examples", "run", name).stdout for name in ("single-query", "general-attention")]
    checks.check(together == b"\n".join(apart), "two examples are separated by an empty line")
    every = attn("examples", "run", "--all").stdout
    checks.check(every == b"\n".join(attn("examples", "run", name).stdout for name in NAMES), "--all")


def check_factors(checks, text, expected):
    """Cells 1 and 4 are determined; singular vectors up to sign, and only the first three."""
    ours, theirs = text.split("\n\n"), expected.split("\n\n")
    checks.check(ours[0] == theirs[0] and ours[3] == theirs[3], "latent-factors: table, cosine")
    for k, i in ((3, 1), (2, 2)):
        U, s, V = python_values(ours[i])
        their_U, their_s, their_V = python_values(theirs[i])
        if i == 1:
            V, their_V = V.T, their_V.T
        checks.check(np.array_equal(s, their_s), f"latent-factors, cell {i}: s")
        signs = np.sign((U * their_U).sum(axis=0))[:k]
        checks.check(np.array_equal(U[:, :k] * signs, their_U[:, :k]), f"cell {i}: U")
        checks.check(np.array_equal(V[:, :k] * signs, their_V[:, :k]), f"cell {i}: V")


def check_cells(checks):
    run = attn("examples", "run", "--cells", "encoder-decoder")
    lines = run.stdout.decode().split("\n")
    labels = [line for line in lines if line.startswith("# ")]
    checks.check(labels == [f"# In [{n}]" for n in (37, 35, 41, 46, 51, 52)], f"--cells: {labels}")
    rest = "\n".join(line for line in lines if not line.startswith("# "))
    expected = (DATA / "encoder-decoder" / "expected.txt").read_text()
    checks.check(rest == expected, "--cells adds the labels only")


def check_verdicts(checks):
    run = attn("examples", "check")
    lines = run.stdout.decode().splitlines()
    checks.check(run.returncode == 0 and run.stderr == b"", f"check: {run}")
    checks.check([line.split()[1] for line in lines] == NAMES, f"a line each: {lines}")
    checks.check(all(line.startswith("ok    ") for line in lines), f"{lines}")
    factors = next(line for line in lines if "latent-factors" in line)
    checks.check("not determined" in factors and "3 of 5" in factors, factors)
    one = attn("examples", "check", "general-attention").stdout.decode()
    checks.check(one == "ok    general-attention  4 results\n", one)


def check_changed_inputs(checks, folder):
    for name, file, old, new, cell in CHANGED_INPUTS:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(DATA, folder)
        path = folder / name / file
        text = path.read_text()
        checks.check(old in text, f"{name}/{file} holds {old}")
        path.write_text(text.replace(old, new, 1))
        run = attn("examples", "check", "--data", folder)
        lines = {line.split()[1]: line for line in run.stdout.decode().splitlines()}
        what = f"{name}/{file} with {new}: {run.stdout.decode()}"
        checks.check(run.returncode == 1, what)
        checks.check(re.match(rf"FAIL  \S+ +{re.escape(cell)}: .*expected .*, found ", lines[name]),
                     what)
        checks.check(all(line.startswith("ok") for key, line in lines.items() if key != name), what)


def undetermined(name, line, column):
    """Whether a character of latent-factors' expected.txt belongs to a vector that is not compared:
    the last two columns of U (lines 9 to 15) and the last two rows of Vt (lines 20 and 21)."""
    if name != "latent-factors":
        return False
    return (9 <= line <= 15 and column >= 29) or line in (20, 21)


def check_changed_digits(checks, folder):
    """A copy of the example for every digit of its expected.txt, all checked in one run."""
    for name in NAMES:
        shutil.rmtree(folder, ignore_errors=True)
        text = (DATA / name / "expected.txt").read_text()
        open_places = set()
        for at in (at for at, character in enumerate(text) if character.isdigit()):
            line, column = text.count("\n", 0, at), at - text.rfind("\n", 0, at) - 1
            if undetermined(name, line, column):
                open_places.add(f"{at:05}")
            copy = folder / f"{at:05}"
            shutil.copytree(DATA / name, copy)
            changed = text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1:]
            (copy / "expected.txt").write_text(changed)
        run = attn("examples", "check", "--data", folder)
        passed = {line.split()[1] for line in run.stdout.decode().splitlines() if line[:2] == "ok"}
        total = len(list(folder.iterdir()))
        checks.check(run.returncode == 1, f"{name}: changed digits: exit {run.returncode}")
        checks.check(passed == open_places,
                     f"{name}: of {total} changed digits these passed: {sorted(passed)}, "
                     f"not {sorted(open_places)}")


def check_changed_text(checks, folder):
    def verdict(change):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(DATA / "general-attention", folder / "x")
        path = folder / "x" / "expected.txt"
        path.write_text(change(path.read_text()))
        run = attn("examples", "check", "--data", folder)
        checks.check(run.returncode == 1, f"changed text: {run}")
        return run.stdout.decode()

    line = verdict(lambda text: text.replace("0.74913039", "0.74913040"))
    checks.check(re.search(r"In \[21\]: first.weights\[0\]: value 3: expected 0.74913040, "
                           r"found 0.749130385\d+\n", line), line)
    line = verdict(lambda text: text.replace("2, 10", "2,  10"))
    checks.check("In [20]: line 1: expected 'array([ 8,  2,  10,  2])', "
                 "found 'array([ 8,  2, 10,  2])'" in line, line)
    line = verdict(lambda text: text + "\nmore\n")
    checks.check("more text than results" in line, line)
    line = verdict(lambda text: text[:text.rindex("       [0.995")])
    checks.check("In [29]: line 4: expected no more lines, found '       [0.995" in line, line)
    line = verdict(lambda text: text.replace("\n\n", "\n", 1))
    checks.check("expected an empty line after In [20]" in line, line)
    line = verdict(lambda text: text[:-1])
    checks.check("expected a newline at its end" in line, line)


def check_errors(checks, folder):
    for args, code, words in [
        (["run"], 2, "--all"),
        (["run", "genral-attention"], 2, "did you mean 'general-attention'?"),
        (["check", "nothing-like-it"], 2, "unknown example 'nothing-like-it'"),
        (["run", "--all", "single-query"], 2, "--all"),
        (["frobnicate"], 2, "frobnicate"),
        (["list", "--data", "/nonexistent"], 66, "/nonexistent"),
    ]:
        run = attn("examples", *args)
        checks.check(run.returncode == code and words in run.stderr.decode() and not run.stdout,
                     f"{args}: {run}")

    def broken(change, *words):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(DATA / "general-attention", folder / "x")
        path = folder / "x" / "example.json"
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))
        run = attn("examples", "run", "x", "--data", folder)
        told = run.stderr.decode()
        checks.check(run.returncode == 65 and all(word in told for word in words), f"{run}")
        run = attn("examples", "check", "--data", folder)
        checks.check(run.returncode == 1 and run.stdout.startswith(b"FAIL  x  "), f"{run}")

    def step(key, value):
        def change(document):
            document["cells"][1]["show"][0] = {key: value}
        return change

    broken(lambda d: d.update(titel="x"), "unknown key 'titel' (did you mean 'title'?)")
    broken(lambda d: d.pop("source"), "expected the key 'source'")
    broken(lambda d: d.update(title=3), "title: expected a string, found an integer")
    broken(step("reper", "first.scores"), "cells[1].show[0]", "print, repr")
    broken(step("repr", ["first.scores"]), "expected a reference, found an array")
    broken(step("repr", "frist.scores"), "'frist' is none of", "(did you mean 'first'?)")
    broken(step("repr", "first.scoers"), "(did you mean 'scores'?)")
    broken(step("repr", "first.scores[7]"), "no element [7] in shape (1, 4)")
    broken(step("repr", "first"), "expected RESULT.VALUE")
    broken(step("repr", "first.scores[0].T"), "expected 2 axes, found shape (4,)")
    broken(step("repr", "first.scores.joined"), "expected 3 axes, found shape (1, 4)")
    broken(step("scalar", "first.scores"), "expected a single number, found shape (1, 4)")
    broken(step("list", "first.scores[0][0]"), "has no elements")
    broken(lambda d: d["cells"][0]["show"][0].update(style={"floatmode": "fixd"}), "'fixed'?")
    broken(lambda d: d["cells"][0]["show"][0].update(style={"precision": -1}), "precision")
    broken(lambda d: d["cells"][0]["show"][0].update(corner="x"), "unknown key 'corner'")
    broken(lambda d: d["results"].update(s={"job": "job.json", "rank": 1}), "'rank'")
    broken(lambda d: d["results"].update(s={"sum_of_product": ["first.scores"]}), "two references")
    broken(lambda d: d["results"].update(s={"sum_of_product": ["all.scores", "all.scores"]}),
           "expected a vector (n,) and a matrix (m, n)")


def check_where_data_is_found(checks, folder):
    """An installed copy finds its data, wherever it was put; --data wins over ATTN_DATA."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    shutil.copy(ATTN, folder / "bin" / "attn")
    shutil.copytree(DATA / "single-query", folder / "share/attn/examples/only-this")
    other = folder / "elsewhere"
    shutil.copytree(DATA / "head-split", other / "other")

    def names(*args, **environment):
        clean = {key: value for key, value in os.environ.items() if key != "ATTN_DATA"}
        run = subprocess.run([folder / "bin" / "attn", "examples", *args], capture_output=True,
                             env={**clean, **environment}, cwd="/")
        return [line.split()[0] for line in run.stdout.decode().splitlines()]

    checks.check(names() == ["only-this"], f"installed: {names()}")
    checks.check(names("list") == ["only-this"], "list is the default")
    checks.check(names(ATTN_DATA=str(other)) == ["other"], "ATTN_DATA")
    checks.check(names("--data", DATA, ATTN_DATA=str(other)) == NAMES, "--data")
    checks.check(names("list", "--data", DATA) == NAMES, "--data after the command")
    shutil.rmtree(folder / "share")
    checks.check(names() == [], "nothing there")


def check_jobs_are_jobs(checks):
    """Every job of an example is one for attn run, too; and no result stands in a document."""
    for path in sorted(DATA.glob("*/*.json")):
        document = json.loads(path.read_text())
        if "schema" in document:
            run = attn("run", path)
            checks.check(run.returncode == 0, f"{path.name}: {run.stderr}")
        elif path.name == "example.json":
            steps = json.dumps([document["results"], document["cells"]])
            numbers = re.findall(r"-?\d+\.\d+", steps)
            checks.check(not numbers, f"{path.parent.name}: computed numbers? {numbers}")


if __name__ == "__main__":
    checks = Checks("examples")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "data"
        check_output(checks)
        check_cells(checks)
        check_verdicts(checks)
        check_changed_inputs(checks, folder)
        check_changed_digits(checks, folder)
        check_changed_text(checks, folder)
        check_errors(checks, folder)
        check_where_data_is_found(checks, folder)
        check_jobs_are_jobs(checks)
    checks.finish()
