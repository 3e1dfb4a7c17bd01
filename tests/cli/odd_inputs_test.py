#!/usr/bin/env python3
"""Inputs that are legal yet odd, or hostile: names, streams, lengths that are only claimed."""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn, under_asan  # noqa: E402
from support.safetensors_file import build, entry  # noqa: E402


def refused(checks, run, code, says, what):
    err = run.stderr.decode()
    checks.check(run.returncode == code and says in err, f"{what}: exit {run.returncode}, {err}")
    checks.check(run.stdout == b"" and "\x1b" not in err, f"{what}: {run}")


def names(checks, folder):
    run = attn("convert", "-", "--format", "json", stdin='{"": [1], "a": [2]}')
    refused(checks, run, 65, "without a name", "an empty key")
    for file, text in ("\x1b[31mx.csv", "1,x\n"), ("\x1b[31mx.json", "[1, }"):
        (folder / file).write_text(text)
        refused(checks, attn("inspect", file, cwd=folder), 65, "\\x1b[31mx", "an escape in a name")
    (folder / "cube.json").write_text("[[[1]]]")
    run = attn("convert", "cube.json", "-o", "\x1b[31mx.csv", "--force", cwd=folder)
    refused(checks, run, 65, "\\x1b[31mx", "an escape in an output's name")
    # What the reader would refuse is not written.
    for length, code in (1020, 0), (1021, 65), (70000, 65):
        out = folder / f"{length}.npz"
        run = attn("convert", "-", "-o", out, stdin=json.dumps({"n" * length: [1], "b": [2]}))
        checks.check(run.returncode == code and out.exists() == (code == 0), f"name {length}: {run}")
        if code == 0:
            checks.check(attn("inspect", out).returncode == 0, "written names can be read")
        else:
            refused(checks, run, 65, "names of at most 1020 bytes", f"name of {length}")
    run = attn("convert", "-", "--format", "npz", stdin='{"a\\u0000b": [1], "a": [2]}')
    refused(checks, run, 65, "NUL", "a NUL in a name")


def messages(checks, folder):
    """Names from files and jobs cannot move the cursor, forge a line or fill the screen."""
    (folder / "m.safetensors").write_bytes(build({"a": entry(0, 8), "\x1b[2Jb": entry(8, 16)}, bytes(16)))
    escape = "\x1b[2J\nattn: all is well"
    for job in ({"Q": "m.safetensors#" + escape, "K": [[1]]}, {"Q": "m.safetensors#\x1b[2Jc", "K": [[1]]},
                {"Q": escape, "K": [[1]]}, {escape: 1}, {"score": escape}, {"outputs": [escape]}):
        for arguments in ["run", "-"], ["batch", "-", "--out-dir", "out", "--force"]:
            run = attn(*arguments, stdin=json.dumps(job) + "\n", cwd=folder)
            err = run.stderr.decode()
            checks.check(run.returncode in (3, 65, 66) and all(line.isprintable() for line in err.splitlines())
                         and "\nattn: all is well" not in err, f"{arguments} {job}: {run}")
    run = attn("run", "-", stdin=json.dumps({"Q": [[1]], "K": [[1]], "k" * 100_000: 1}))
    checks.check(len(run.stderr) < 5000, f"a name of 100,000 characters: {len(run.stderr)} bytes")
    run = attn("random", "randn", "--seed", "1", "--shape", ",".join(["1"] * 65), "-o", "r.npy", cwd=folder)
    refused(checks, run, 2, "shape has 65 axes; at most 64 are supported", "65 axes")
    deep = ["1"] * 64
    for suffix in "npy", "npz", "safetensors", "json":
        run = attn("random", "randn", "--seed", "1", "--shape", ",".join(deep), "-o", f"r.{suffix}", cwd=folder)
        again = attn("convert", f"r.{suffix}", "-o", "again.npy", "--force", cwd=folder)
        checks.check(run.returncode == again.returncode == 0, f"64 axes in {suffix}: {run}, {again}")


def streams(checks, folder):
    checks.check(attn("convert", "-", "--format", "json", stdin="a,b\n1,2\n3,4\n").stdout ==
                 b"[\n  [1, 2],\n  [3, 4]\n]\n", "CSV from standard input")
    run = attn("svd", "-", "--format", "json", stdin="2,0\n0,1\n")
    checks.check(json.loads(run.stdout)["s"] == [2, 1], f"svd of CSV: {run}")
    refused(checks, attn("convert", "-", stdin=b"\x00\x01\x02"), 65, "standard input", "no text")
    refused(checks, attn("convert", "-", stdin=""), 65, "is empty", "nothing")
    for suffix in "npy", "npz", "safetensors", "json", "csv":
        (folder / f"nothing.{suffix}").touch()
        run = attn("convert", f"nothing.{suffix}", cwd=folder)
        refused(checks, run, 65, f"nothing.{suffix}: is empty\n", f"an empty .{suffix}")
    refused(checks, attn("run", "-", stdin="1,2\n"), 65, "found CSV", "CSV is no job")
    # A byte order mark stands before any text, whichever way that comes.
    marked = b'\xef\xbb\xbf \n{"Q": [[1, 2]], "K": [[1, 2]], "outputs": ["scores"]}'
    (folder / "marked.json").write_bytes(marked)
    for args in (["run", "-", "--format", "csv"], ["inspect", "-"], ["compare", "-", "marked.json"],
                 ["convert", "-", "--format", "json"]):
        run = attn(*args, stdin=marked, cwd=folder)
        file = attn(*("marked.json" if arg == "-" else arg for arg in args), cwd=folder)
        checks.check(run.returncode == file.returncode == 0 and run.stdout == file.stdout,
                     f"a byte order mark: {run}, {file}")
    run = attn("convert", "-", "--format", "json", stdin=b"\xef\xbb\xbf1,2\n")
    checks.check(run.stdout == b"[\n  [1, 2]\n]\n", f"a byte order mark before CSV: {run}")
    # A job that comes through a descriptor has no folder: paths in it start where we are.
    np.save(folder / "q.npy", np.array([[1, 2]]))
    job = json.dumps({"Q": "q.npy", "K": "q.npy", "outputs": ["scores"]})
    (folder / "sub").mkdir()
    (folder / "sub" / "job.json").write_text(job)
    for command in ("'{0}' run /dev/stdin --format csv < sub/job.json",
                    "cat sub/job.json | '{0}' run /dev/stdin --format csv",
                    "'{0}' run <(cat sub/job.json) --format csv",
                    "'{0}' run /proc/self/fd/0 --format csv < sub/job.json",
                    "'{0}' run - --format csv < sub/job.json"):
        run = subprocess.run(["bash", "-c", command.format(ATTN)], cwd=folder, capture_output=True)
        checks.check(run.stdout == b"5\n", f"{command}: {run}")


def claims(checks, folder):
    def hollow(name, shape):
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        (folder / name).write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") +
                                    header.encode())

    def limited():
        if not under_asan():
            resource.setrlimit(resource.RLIMIT_DATA, (200 << 20, 200 << 20))

    np.save(folder / "k.npy", np.zeros((2, 0)))
    for rows in 20_000_000, 3_000_000_000:
        hollow("q.npy", (rows, 0))
        run = subprocess.run([ATTN, "run", "--q", "q.npy", "--k", "k.npy", "--scale", "none",
                              "-o", "out.npz"], cwd=folder, capture_output=True, preexec_fn=limited,
                             env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
        refused(checks, run, 65, "q.npy: Q: expected axes of at most", f"{rows} rows of nothing")
    hollow("q.npy", (1000, 0))
    run = attn("run", "--q", "q.npy", "--k", "k.npy", "--scale", "none", "--outputs", "weights",
               "--format", "json", cwd=folder)
    checks.check(np.allclose(json.loads(run.stdout)["weights"], np.full((1000, 2), 0.5)),
                 f"some rows of nothing: {run.stderr}")
    digits = "9" * 300_000
    run = attn("run", "-", timeout=5, stdin=json.dumps(
        {"seed": digits, "generator": "default_rng", "Q": {"random": {"shape": [1, 1]}},
         "K": [[1]]}))
    refused(checks, run, 65, "at most 10000 digits", "a seed of many digits")
    sys.set_int_max_str_digits(0)
    seed = 10**9999 + 7
    run = attn("random", "random", "--generator", "default_rng", "--seed", str(seed), "--shape", 3,
               "--format", "json")
    checks.check(json.loads(run.stdout) == np.random.default_rng(seed).random(3).tolist(),
                 f"a seed of 10000 digits: {run.stderr}")


def errors(checks, folder):
    keys = ",".join(f'"k{i}": 1' for i in range(100_000))
    (folder / "job.json").write_text("{" + keys + "}")
    run = attn("run", "job.json", cwd=folder)
    refused(checks, run, 65, "job.json: unknown key 'k0'", "100,000 unknown keys")
    lines = run.stderr.decode().splitlines()
    checks.check(len(lines) == 100 and lines[-1].endswith("and 99901 more errors"),
                 f"100,000 unknown keys: {len(lines)} lines, {lines[-1]}")


def numbers(checks, _):
    def result(job):
        run = attn("run", "-", "--outputs", "scores", "--format", "json", stdin=json.dumps(job))
        checks.check(run.returncode == 0 and run.stderr == b"", f"{job}: {run}")
        return json.loads(run.stdout)["scores"] if run.returncode == 0 else None

    far = {"Q": [[1e20, 0]], "K": [[1e20, 0], [0, 1e20]], "score": "cosine", "compute": "f32"}
    checks.check(result(far) == [[1.0, 0.0]], "float32 far from 1")
    checks.check(result({"Q": [[2**62, 0]], "K": [[4, 0], [3, 4]], "score": "cosine"}) ==
                 [[1.0, 0.6]], "integers far from 1")
    for p in [], [0.5]:
        job = {"seed": 1, "Q": {"choice": {"n": 2, "shape": [1, 1], "p": p}}, "K": [[1]]}
        refused(checks, attn("run", "-", stdin=json.dumps(job)), 65,
                f"expected 2 probabilities, found {len(p)}", f"p = {p}")


def main():
    checks = Checks("odd inputs")
    for part in names, messages, streams, claims, errors, numbers:
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder))
    checks.finish()


if __name__ == "__main__":
    main()
