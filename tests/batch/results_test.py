#!/usr/bin/env python3
"""Results of `attn batch` as files: what they are called, and what becomes of what stands there."""

import json
import os
import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402
from support.jobs import contents, is_expected, job, manifest_of, write_jobs  # noqa: E402


def names_of_results(checks, folder):
    write_jobs(folder / "jobs" / "a", [0, 1])
    write_jobs(folder / "jobs" / "b", [0])
    clash = attn("batch", "jobs", "--out-dir", "out", cwd=folder)
    checks.check(clash.returncode == 2 and b"jobs/a/job0000.json" in clash.stderr
                 and b"jobs/b/job0000.json" in clash.stderr, f"one name for two: {clash}")
    checks.check(not (folder / "out").exists(), "a clash is found before anything runs")
    for number, (flags, want) in enumerate([
        (["--name", "{job}"], ["a/job0000.npz", "a/job0001.npz", "b/job0000.npz"]),
        (["--name", "r{index}-{stem}", "--format", "json"],
         ["r1-job0000.json", "r2-job0001.json", "r3-job0000.json"]),
        (["--name", "{index}", "--format", "csv", "--outputs", "weights"],
         ["1.csv", "2.csv", "3.csv"]),
        (["--name", "{index}", "--format", "folder", "--outputs", "scores,weights"],
         [f"{i}/{name}.npy" for i in (1, 2, 3) for name in ("scores", "weights")]),
    ]):
        out = f"out{number}"
        run = attn("batch", "jobs", "--out-dir", out, *flags, cwd=folder)
        checks.check(run.returncode == 0 and run.stdout == b"", f"{flags}: {run}")
        checks.check(list(contents(folder / out)) == want, f"{list(contents(folder / out))}")
        lines = manifest_of(folder / out)
        recorded = sorted(name for line in lines.values() for name in line["outputs"])
        checks.check(recorded == want, f"the manifest names them: {recorded}")
    with np.load(folder / "out0" / "a" / "job0001.npz") as result:
        checks.check(is_expected(result, 1), "what is in the .npz")
    checks.check(is_expected(json.loads((folder / "out1" / "r2-job0001.json").read_text()), 1),
                 "what is in the .json")

    run = attn("batch", "-", "--out-dir", "lines", stdin=json.dumps(job(5)), cwd=folder)
    checks.check(list(contents(folder / "lines")) == ["1.npz"], f"names of lines: {run}")
    # An output folder within the folder of jobs holds no jobs.
    flags = ["--name", "{index}", "--format", "json", "--out-dir", "jobs/out"]
    attn("batch", "jobs", *flags, cwd=folder)
    run = attn("batch", "jobs", *flags, "--resume", cwd=folder)
    checks.check(b"3 jobs: 0 done, 3 skipped" in run.stderr, f"{run}")


def names_that_are_refused(checks, folder):
    write_jobs(folder / "jobs" / "a", [0, 1])
    for pattern, reason in [("./{index}", "has '.' in it"), ("{job}/", "ends with '/'"), (".", "has '.' in it"),
                            ("/x{index}", "begins with '/'"), ("../{stem}", "has '..' in it")]:
        run = attn("batch", "jobs/a", "--out-dir", "bad", "--name", pattern, cwd=folder)
        checks.check(run.returncode == 2 and f"', which {reason}".encode() in run.stderr, f"{pattern}: {run}")
    for flags in ["--manifest", "-", "--out-dir", "bad"], ["--out-dir", "-"]:
        run = attn("batch", "jobs/a", *flags, cwd=folder)
        checks.check(run.returncode == 2 and b"./-" in run.stderr, f"{flags}: {run}")
    for flags in [["--name", "{stm}"], ["--name", "{stem"], ["--name", "x"], ["--name", "../{stem}"],
                  ["--name", "/tmp/{index}"]]:
        run = attn("batch", "jobs/a", "--out-dir", "bad", *flags, cwd=folder)
        checks.check(run.returncode == 2 and run.stderr.count(b"\n") == 1, f"{flags}: {run}")
    run = attn("batch", "../" + folder.name + "/jobs/a/job0000.json", "--out-dir", "bad", "--name",
               "{job}", cwd=folder)
    checks.check(run.returncode == 2, f"no name above the folder: {run}")
    for pattern in "x", "{stem}", "{index}-{job}":
        run = attn("batch", "-", "--out-dir", "out", "--name", pattern, stdin="{}", cwd=folder)
        checks.check(run.returncode == 2 and b"lines" in run.stderr and not (folder / "out").exists(),
                     f"{pattern} of lines: {run}")
    for flags in [["--name", "{index}"], ["--resume"], ["--force"], ["--format", "json"]]:
        run = attn("batch", "jobs/a", *flags, cwd=folder)
        checks.check(run.returncode == 2 and run.stderr == f"attn: {flags[0]}: goes with --out-dir\n".encode(),
                     f"{flags} alone: {run}")
    run = attn("batch", "jobs/a", "--fail-fast", "--keep-going", cwd=folder)
    checks.check(run.returncode == 2 and b"--fail-fast starts no job after a failure" in run.stderr, f"{run}")


def names_of_any_bytes(checks, folder):
    """Told apart, and found again."""
    (folder / "jobs").mkdir()
    for seed, name in enumerate([b"a\xff.json", b"a\xfe.json", b"a\\xff.json", "\u00e4.json".encode()]):
        with open(os.fsencode(folder) + b"/jobs/" + name, "w") as file:
            json.dump(job(seed), file)
    for counts in b"4 done, 0 skipped", b"0 done, 4 skipped":
        run = attn("batch", "jobs", "--out-dir", "out", "--resume", cwd=folder)
        checks.check(run.returncode == 0 and counts in run.stderr, f"{run}")
    names = sorted(manifest_of(folder / "out"))
    checks.check(names == [r"jobs/a\x5cxff.json", r"jobs/a\xfe.json", r"jobs/a\xff.json",
                           "jobs/\u00e4.json"], f"{names}")


def what_stands_there(checks, folder):
    """It is replaced with --force only, and left alone with --no-clobber."""
    paths = write_jobs(folder, range(6))
    (folder / "kept").mkdir()
    (folder / "kept" / "job0000.npz").write_text("mine")
    run = attn("batch", paths[0], paths[4], "--out-dir", "kept", cwd=folder)
    checks.check(run.returncode == 73 and run.stderr.count(b"\n") == 1 and list(contents(folder / "kept"))
                 == ["job0000.npz"] and b"kept/job0000.npz: exists already" in run.stderr, f"{run}")
    checks.check((folder / "kept" / "job0000.npz").read_text() == "mine", "not overwritten")
    run = attn("batch", paths[0], *paths[4:], "--out-dir", "kept", "--no-clobber", cwd=folder)
    checks.check(run.returncode == 0 and b"2 done, 1 skipped" in run.stderr, f"{run}")
    checks.check((folder / "kept" / "job0000.npz").read_text() == "mine", "left as it was")
    run = attn("batch", *paths[4:], "--out-dir", "kept", cwd=folder)
    checks.check(run.returncode == 73 and b"and 1 other" in run.stderr, f"several: {run}")
    run = attn("batch", "-", "--out-dir", "kept", "--name", "job000{index}", "--no-clobber",
               stdin=json.dumps(job(1)), cwd=folder)
    checks.check(sorted(line["status"] for line in manifest_of(folder / "kept").values())
                 == ["done"] * 3, "the manifest of all runs")
    run = attn("batch", paths[0], paths[4], "--out-dir", "kept", cwd=folder)
    checks.check(run.returncode == 73 and b"--resume" in run.stderr, f"a manifest there: {run}")
    run = attn("batch", paths[0], paths[4], "--out-dir", "kept", "--force", cwd=folder)
    with np.load(folder / "kept" / "job0000.npz") as result:
        checks.check(run.returncode == 0 and is_expected(result, 0), f"--force: {run}")


def half_a_result(checks, folder):
    """Not taken for a whole one by --no-clobber, which adds what is missing to what is the same."""
    write_jobs(folder / "jobs", [0])
    flags = ["batch", "jobs", "--format", "folder", "--out-dir", "out", "--no-clobber"]
    attn(*flags, cwd=folder)
    whole, weights = contents(folder / "out"), folder / "out" / "job0000" / "weights.npy"
    weights.unlink()
    run = attn(*flags, cwd=folder)
    checks.check(run.returncode == 0 and b"1 done, 0 skipped" in run.stderr
                 and contents(folder / "out") == whole, f"a file is missing: {run}")
    run = attn(*flags, cwd=folder)
    checks.check(run.returncode == 0 and b"0 done, 1 skipped" in run.stderr, f"none is: {run}")
    weights.unlink()
    (folder / "out" / "job0000" / "context.npy").write_bytes(b"mine")
    run = attn(*flags, cwd=folder)
    checks.check(run.returncode == 3 and b"context.npy: exists already" in run.stderr
                 and not weights.exists(), f"another file in its place: {run}")


if __name__ == "__main__":
    checks = Checks("attn batch, results")
    for part in names_of_results, names_that_are_refused, names_of_any_bytes, what_stands_there, half_a_result:
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder))
    checks.finish()
