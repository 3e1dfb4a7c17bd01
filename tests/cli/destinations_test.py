#!/usr/bin/env python3
"""Where results go: streams, several files at once, and what a failed run leaves (nothing)."""

import json
import io
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn  # noqa: E402

JOB = {"Q": [[1, 2], [3, 4]], "K": [[1, 2], [3, 4]]}


def of_svd(checks, folder):
    matrix = np.array([[3.0, 1], [1, 2]])
    np.save(folder / "a.npy", matrix)
    s = np.linalg.svd(matrix, compute_uv=False)

    def svd(*args, code=0):
        run = attn("svd", "a.npy", *args, cwd=folder)
        checks.check(run.returncode == code, f"svd {args}: {run}")
        return run

    svd("-o", "s=s.npy", "-o", "U=u.csv")
    checks.check(np.allclose(np.load(folder / "s.npy"), s), "-o s=s.npy")
    checks.check(np.loadtxt(folder / "u.csv", delimiter=",").shape == (2, 2), "-o U=u.csv")
    checks.check(b"did you mean 'Vt'?" in svd("-o", "vt=x.npy", code=2).stderr, "an unknown factor")
    checks.check(b"-o U=x.npy" in svd("-o", "x.npy", code=2).stderr, "the advice can be followed")
    svd("-o", "all/")
    checks.check(sorted(os.listdir(folder / "all")) == ["U.npy", "Vt.npy", "s.npy"], "a folder")
    checks.check(b"singular values" in svd("-o", "-").stdout, "-o - is text")
    out = svd("-o", "-", "-o", "f.npz", "--format", "json").stdout
    checks.check(np.allclose(json.loads(out)["s"], s), "-o - and a file")
    checks.check(sorted(np.load(folder / "f.npz").files) == ["U", "Vt", "s"], "the file beside it")
    checks.check(np.allclose(np.load(io.BytesIO(svd("--format", "npz").stdout))["s"], s), "npz")
    checks.check(svd("--format", "ndjson").stdout.count(b"\n") == 1, "ndjson")
    for words in ["--format", "json"], ["--repr"]:
        checks.check(words[0].encode() in svd("-o", "g.npz", *words, code=2).stderr, f"{words}")
    svd("--repr", "--format", "json", code=2)
    checks.check(not (folder / "g.npz").exists(), "a contradiction leaves no file")


def streams(checks, folder):
    (folder / "job.json").write_text(json.dumps(JOB))

    def run(*args, code=0, command=("run", "job.json")):
        done = attn(*command, *args, cwd=folder)
        checks.check(done.returncode == code, f"{command} {args}: {done}")
        return done

    text = run().stdout
    checks.check(run("-o", "/dev/stdout").stdout == text, "/dev/stdout is text")
    npz = run("--format", "npz").stdout
    for name in "-", "/dev/stdout", "/dev/fd/1":
        checks.check(run("-o", name, "--format", "npz").stdout == npz, f"npz to {name}")
    scores = np.load(io.BytesIO(run("-o", "scores=/dev/fd/1", "--format", "npy").stdout))
    checks.check(scores.tolist() == [[5, 11], [11, 25]], "one output to a descriptor")
    checks.check(run("-o", "/dev/null", "--format", "json").stdout == b"", "/dev/null")
    checks.check(b"--format" in run("-o", "/dev/null", code=2).stderr, "/dev/null needs a format")
    run("-o", "x.npz", "--format", "json", code=2)
    substituted = subprocess.run(
        ["bash", "-c", f"'{ATTN}' run job.json -o >(cat > got.json) --format json"], cwd=folder)
    checks.check(substituted.returncode == 0, "a process takes the result")
    convert = ("convert", "job.json#Q")
    checks.check(json.loads(run("-o", "/dev/fd/1", "--format", "json", command=convert).stdout) ==
                 JOB["Q"], "convert to a descriptor")
    run("-o", "/dev/null", command=convert)


def failures(checks, folder):
    (folder / "job.json").write_text(json.dumps(JOB))
    (folder / "closed").mkdir(mode=0o555)
    (folder / "link.npy").symlink_to("w.npy")  # to nothing yet
    (folder / "chain.npy").symlink_to("./link.npy")
    before = sorted(os.listdir(folder))
    cases = [
        # what is typed, exit code, what is said
        (["--heads", "7", "-o", "new/"], 65, "heads"),
        (["--heads", "7", "-o", "new/", "-o", "w.npz"], 65, "heads"),
        (["-o", "w.json", "-o", "./w.json"], 2, "twice"),
        (["-o", "weights=w.npy", "-o", "scores=w.npy"], 2, "twice"),
        (["-o", "new/", "-o", "scores=new/scores.npy"], 2, "twice"),
        (["-o", "weights=w.npy", "-o", "scores=link.npy", "--force"], 2, "twice"),
        (["-o", "weights=chain.npy", "-o", "scores=link.npy"], 2, "twice"),
        (["-o", "z.npz", "-o", "-", "--format", "csv"], 2, "holds one output, found 3"),
        (["-o", "new/", "-o", "no/x.npz"], 73, "no/x.npz: "),
        (["-o", "no/new/"], 73, "no/new/: No such file"),
    ]
    if os.geteuid() != 0:
        cases.append((["-o", "closed/new/"], 77, "closed/new/: Permission denied"))
    for args, code, says in cases:
        run = attn("run", "job.json", *args, cwd=folder)
        checks.check(run.returncode == code and says in run.stderr.decode(), f"{args}: {run}")
        checks.check(run.stdout == b"" and run.stderr.startswith(b"attn: "), f"{args}: {run}")
        checks.check(sorted(os.listdir(folder)) == before, f"{args}: {os.listdir(folder)}")
    (folder / "old").mkdir()
    attn("run", "job.json", "--heads", "7", "-o", "old/", cwd=folder)
    checks.check((folder / "old").is_dir(), "a folder that was there stays")
    run = attn("run", "job.json", "--outputs", "scores,weights,scores", "-o", "d/", cwd=folder)
    checks.check(run.returncode == 0, f"an output named twice: {run}")
    checks.check(sorted(os.listdir(folder / "d")) == ["scores.npy", "weights.npy"], "is one")


def main():
    checks = Checks("destinations")
    for part in of_svd, streams, failures:
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder))
    checks.finish()


if __name__ == "__main__":
    main()
