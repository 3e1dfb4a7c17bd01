#!/usr/bin/env python3
"""What a job will take is told, and refused, before it is computed: --dry-run, --max-memory,
--max-expand."""

import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn, attn_and_peak, under_asan, under_sanitizer  # noqa: E402
from support.jobs import is_expected, job, write_jobs  # noqa: E402


def job_of(rng, case):
    """A job in one of several forms, with all outputs that it has."""
    def normal(*shape, dtype=np.float64):
        return rng.standard_normal(shape).astype(dtype)

    everything = "queries,keys,values,scores,scaled_scores,masked_scores,weights,logsumexp," \
                 "head_context,context"
    if case == "projected":
        return dict(embeddings=normal(5, 4), W_Q=normal(4, 6), W_K=normal(4, 6), W_V=normal(4, 8),
                    W_O=normal(8, 7)), ["--heads", "2", "--position", "sinusoidal", "--outputs",
                                        everything + ",positions,inputs,W_K_heads,output,W_Q"]
    if case == "memory":
        return dict(embeddings=normal(2, 5, 4), memory=normal(2, 6, 3), W_K=normal(3, 4)), \
            ["--outputs", everything + ",inputs", "--rows", "0,-1"]
    if case == "integers":
        return dict(embeddings=rng.integers(0, 3, (4, 3)), W_Q=rng.integers(0, 3, (3, 2)),
                    W_K=rng.integers(0, 3, (3, 2))), ["--outputs", everything]
    if case == "half":
        return {name: normal(2, 3, 4, 5, dtype=np.float16) for name in "QKV"}, \
            ["--outputs", everything, "--layout", "blhd"]
    return dict(Q=normal(2, 4, 3, 5), K=normal(2, 2, 6, 5), V=normal(2, 2, 6, 4)), \
        ["--outputs", everything, "--softcap", "3"]


def the_plan_is_what_happens(checks, folder):
    rng = np.random.default_rng(3)
    for case in "projected", "memory", "integers", "half", "grouped":
        tensors, flags = job_of(rng, case)
        np.savez(folder / "job.npz", **tensors)
        plan = attn("run", "job.npz", *flags, "--dry-run", "--format", "json", cwd=folder)
        run = attn("run", "job.npz", *flags, "-o", "out.npz", "--force", cwd=folder)
        if not checks.check(plan.returncode == 0 and run.returncode == 0, f"{case}: {plan} {run}"):
            continue
        planned = {output["name"]: output for output in json.loads(plan.stdout)["outputs"]}
        with np.load(folder / "out.npz") as result:
            for name in result.files:
                real, told = result[name], planned[name]
                checks.check(list(real.shape) == told["shape"] and real.dtype == told["dtype"]
                             and real.nbytes == told["bytes"], f"{case}: {name}: {told}, {real.dtype}")
            checks.check(set(result.files) == set(planned), f"{case}: names")
    # 2 m k n for each product; 1 + 1 + 4 for each weight.
    np.savez(folder / "job.npz", Q=np.ones((5, 4)), K=np.ones((6, 4)), V=np.ones((6, 3)))
    plan = json.loads(attn("run", "job.npz", "--dry-run", "--format", "json", cwd=folder).stdout)
    flops = [output["flops"] for output in plan["outputs"]]
    checks.check(flops == [2 * 5 * 4 * 6, 4 * 5 * 6, 2 * 5 * 6 * 3], f"flops: {flops}")
    checks.check(plan["flops"] == sum(flops) + 2 * 5 * 6, f"all flops: {plan['flops']}")
    text = attn("run", "job.npz", "--dry-run", "-o", "none.npz", cwd=folder)
    checks.check(text.stdout.startswith(b"scores (5, 6) float64: 240 bytes, 240 flops, "
                                        b"written while it is computed\n")
                 and b"in all: " in text.stdout and not (folder / "none.npz").exists(), f"{text}")
    for path, says in ("job.npz", b"is an input"), ("no/x.npz", b"there is no folder no"), (".", b"scores.npy"):
        (folder / "scores.npy").touch()
        bad = attn("run", "job.npz", "--dry-run", "-o", path, cwd=folder)
        checks.check(bad.returncode == 73 and says in bad.stderr and not bad.stdout, f"-o {path}: {bad}")
    made = attn("run", "job.npz", "--dry-run", "-o", "new/", cwd=folder)
    checks.check(made.returncode == 0 and not (folder / "new").exists(), f"nothing is left: {made}")
    bad = attn("run", "job.npz", "--dry-run", "--outputs", "output", cwd=folder)
    checks.check(bad.returncode == 2 and b"W_O" in bad.stderr, f"faults are told: {bad}")


def the_bound_on_memory_holds(checks, folder):
    """Not exceeded by more than what any run takes, and not larger than four times the truth."""
    if under_asan():
        return
    rng = np.random.default_rng(4)
    for name, size, dtype, flags in [("f64", 1500, np.float64, []), ("f32", 2000, np.float32, []),
                                     ("f16", 1500, np.float16, ["--causal"]),
                                     ("int", 1200, np.int64, [])]:
        for key in "QKV":
            values = rng.integers(-9, 9, (size, 64)) if name == "int" else rng.standard_normal((size, 64))
            np.save(folder / f"{name}-{key}.npy", values.astype(dtype))
        for suffix in "npz", "json":
            arguments = ["run", *(word for key in "QKV" for word in
                                  (f"--{key.lower()}", f"{name}-{key}.npy")), *flags,
                         "-o", f"{name}.{suffix}"]
            plan = attn(*arguments, "--dry-run", cwd=folder)
            told = float(plan.stdout.rsplit(b"at most ", 1)[1].split()[0]) * 1024**2
            run, peak = attn_and_peak(*arguments, cwd=folder)
            assert run.returncode == 0
            checks.check(told / 4 < peak < told + 64 * 1024**2,
                         f"{name}.{suffix}: {told / 1024**2:.0f} MiB told, {peak / 1024**2:.0f} taken")


def drawings_count(checks, folder):
    """What --view and --explain take is told, and refused before anything is written."""
    if under_asan():
        return
    rng = np.random.default_rng(6)
    for name, shape in ("large", (1500, 8)), ("heads", (1, 400, 24, 8)):
        np.savez(folder / f"{name}.npz", **{key: rng.standard_normal(shape) for key in "QKV"})
        for flags in (["--view=v.png"], ["--view=v.svg"], ["--view=v.html"], ["--view"],
                      ["--explain", "v.md"], ["--explain", "v.html"],
                      ["--explain", "v.html", "--view=w.html"]):
            for left in folder.glob("[vw].*"):
                left.unlink()
            arguments = ["run", f"{name}.npz", "--outputs", "context", *flags]
            plan = attn(*arguments, "--dry-run", "-o", "none.npz", cwd=folder)
            tight = attn(*arguments, "--max-memory", "5M", cwd=folder)
            told = int(tight.stderr.split(b"(")[1].split()[0])
            less = attn(*arguments, "--max-memory", told - 1, cwd=folder)
            checks.check(tight.returncode == less.returncode == 65 and not list(folder.glob("[vw].*"))
                         and not less.stdout and b"without --" in less.stderr, f"{flags}: {less}")
            checks.check(f"at most {told / 2**20:.1f} MiB of memory".encode() in plan.stdout,
                         f"{flags}: {told}, but {plan}")
            run, peak = attn_and_peak(*arguments, "--max-memory", told, cwd=folder)
            checks.check(run.returncode == 0 and told / 4 < peak < told + 30 * 2**20,
                         f"{name} {flags}: {told / 2**20:.0f} MiB told, {peak / 2**20:.0f} taken: {run}")


def more_than_there_is(checks, folder):
    rng = np.random.default_rng(5)
    np.savez(folder / "job.npz", Q=rng.standard_normal((300, 8)), K=rng.standard_normal((300, 8)))
    # (Of --path reference: what the kernels compute goes to an .npz as it comes.)
    reference = ["run", "job.npz", "--path", "reference"]
    run = attn(*reference, "--max-memory", "1M", "-o", "out.npz", cwd=folder)
    checks.check(run.returncode == 65 and b"needs " in run.stderr and b"--max-memory" in run.stderr
                 and not (folder / "out.npz").exists(), f"more than 1M: {run}")
    needed = int(run.stderr.split(b"(")[1].split()[0])
    enough = attn(*reference, "--max-memory", needed, "-o", "out.npz", cwd=folder)
    checks.check(enough.returncode == 0, f"the number told is enough: {enough}")
    less = attn(*reference, "--max-memory", needed - 1, "-o", "o.npz", cwd=folder)
    checks.check(less.returncode == 65, "and one less is not")

    # Sizes that are only claimed, by a draw or a file, are refused before they are taken.
    huge = {"seed": 1, "Q": {"rand": {"shape": [65536, 65535]}}, "K": [[1.0]]}
    run = attn("run", "-", "--max-memory", "1G", stdin=json.dumps(huge))
    checks.check(run.returncode == 65 and b"34359214080 bytes" in run.stderr, f"a draw: {run}")
    run = attn("run", "job.npz", "--max-memory", "10K", cwd=folder)
    checks.check(run.returncode == 65 and b"--max-memory" in run.stderr, f"a large file: {run}")
    for size in ["", "x", "0", "-1G", "1Q", "1GG", "nan", "1e999"]:
        run = attn("run", "job.npz", f"--max-memory={size}", cwd=folder)
        checks.check(run.returncode == 2, f"--max-memory={size}: {run}")

    if under_asan():
        return
    # A limit on the address space is seen, so that the job is refused and not killed.
    limit = 3 * 10**8
    tight = subprocess.run([ATTN, "run", "-"], input=json.dumps(
        {"seed": 1, "Q": {"rand": {"shape": [6000, 4]}}, "K": {"rand": {"shape": [6000, 4]}}}).encode(),
        capture_output=True, env=dict(os.environ, OPENBLAS_NUM_THREADS="1"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    checks.check(tight.returncode == 65 and b"--max-memory" in tight.stderr, f"ulimit -v: {tight}")


def jobs_share_memory(checks, folder):
    write_jobs(folder / "jobs", range(8))
    big = {"seed": 1, "Q": {"rand": {"shape": [700, 8]}}, "K": {"rand": {"shape": [700, 8]}}}
    for number in range(4):
        (folder / "jobs" / f"big{number}.json").write_text(json.dumps(big))
    run = attn("batch", "jobs", "-j", "4", "--max-memory", "30M", "--out-dir", "out", cwd=folder)
    checks.check(run.returncode == 0, f"one at a time where all do not fit: {run}")
    run = attn("batch", "jobs", "--max-memory", "5M", "--out-dir", "out2", cwd=folder)
    checks.check(run.returncode == 3 and b"12 jobs: 8 done, 0 skipped, 4 failed" in run.stderr
                 and b"big0.json: needs" in run.stderr, f"too big for all: {run.stderr}")
    plan = attn("batch", "jobs", "--dry-run", "--out-dir", "dry", cwd=folder)
    lines = [json.loads(line) for line in plan.stdout.splitlines()]
    checks.check(plan.returncode == 0 and len(lines) == 12 and not (folder / "dry").exists()
                 and b"12 jobs: 12 planned, 0 skipped, 0 failed" in plan.stderr, f"batch --dry-run: {plan.stderr}")
    checks.check(lines[0]["output"] == "dry/big0.npz" and lines[0]["outputs"][0]["shape"] == [700] * 2,
                 f"{lines[0]}")
    padded = json.dumps(job(1)) + " " * 10**6
    (folder / "padded.json").write_text(padded)
    (folder / "list").write_text("jobs/job0000.json\n" + "\n" * 10**6)
    for flags in [], ["--out-dir", "padded"], ["--out-dir", "padded", "--resume"]:
        run = attn("batch", "padded.json", "--max-memory", "900K", *flags, cwd=folder)
        checks.check(run.returncode == 3 and b"padded.json: expected at most 921600 bytes"
                     in run.stderr + run.stdout, f"a job file {flags}: {run}")
    run = attn("batch", "--files-from", "list", "--max-memory", "900K", cwd=folder)
    checks.check(run.returncode == 65 and b"list: expected at most" in run.stderr, f"a list: {run}")
    line = json.dumps(job(1))
    for _ in range(20):  # whichever worker asks for the next line
        run = attn("batch", "-", "--max-memory", "1M", stdin=line + "\n" + " " * 200000 + line + "\n" + line)
        results = [json.loads(result) for result in run.stdout.splitlines()]
        checks.check(run.returncode == 3 and len(results) == 3 and is_expected(results[0], 1)
                     and is_expected(results[2], 1) and results[1]["code"] == 65
                     and f"at most 131072 bytes in a line, found {200000 + len(line)}; " in
                     results[1]["error"][0], f"a line too long: {run.stderr}")


def all_jobs_together_keep_to_it(checks, folder):
    """What jobs read and draw counts, and what one has freed is there for the next."""
    if under_sanitizer():
        return
    for name in "read", "drawn", "computed":
        (folder / name).mkdir()
    for number in range(8):
        np.save(folder / f"{number}.npy", np.full((500_000, 8), number, np.float64))  # 32 MB
        few = {"K": [[1.0] * 8], "outputs": ["logsumexp"], "rows": [0]}
        draw = {"seed": number, "Q": {"rand": {"shape": [500_000, 8]}}}
        square = {"rand": {"shape": [1000, 8]}}
        for name, text in (("read", few | {"Q": f"../{number}.npy"}), ("drawn", few | draw),
                           ("computed", {"seed": number, "Q": square, "K": square})):
            (folder / name / f"{number}.json").write_text(json.dumps(text))
    for name in "read", "drawn", "computed":
        run, peak = attn_and_peak("batch", name, "-j", "8", "--max-memory", "50M", "--out-dir",
                                  f"out-{name}", cwd=folder)
        checks.check(run.returncode == 0 and peak < 130 * 1024**2,  # together they would take 256 MB
                     f"{name}: {peak / 1024**2:.0f} MiB: {run}")


def results_wait_for_their_reader(checks, folder):
    """While nobody reads them, no more than a few are computed."""
    if under_sanitizer():
        return
    square = {"rand": {"shape": [1000, 8]}}
    jobs = 12 * (json.dumps({"seed": 1, "Q": square, "K": square, "outputs": ["weights"]}) + "\n")
    with subprocess.Popen([ATTN, "batch", "-", "-j", "2", "-q", "--max-memory", "80M"], cwd=folder,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as batch:
        batch.stdin.write(jobs.encode())
        batch.stdin.close()
        time.sleep(1.5)
        status = pathlib.Path(f"/proc/{batch.pid}/status").read_text(encoding="utf-8")
        peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024
        results = batch.stdout.read().count(b"\n")
    checks.check(results == 12 and peak < 170,  # their texts would take 240 MB
                 f"{results} results, {peak} MiB before they were read")


def little_address_space(checks, folder):
    """Small products need no work space of BLAS, and workers that need one take turns."""
    if under_asan():
        return
    (folder / "jobs").mkdir()
    for number in range(20):
        square = {"rand": {"shape": [2, 2]}}
        (folder / "jobs" / f"{number}.json").write_text(json.dumps(
            {"seed": number, "embeddings": square, "W_Q": square, "W_K": square, "W_V": square}))
    whole = attn("batch", "jobs", "-q", cwd=folder)
    for limit, workers in (100, 1), (200, 3), (300, 3):
        run = subprocess.run([ATTN, "batch", "jobs", "-q", "-j", str(workers)], cwd=folder,
                             capture_output=True, timeout=60, preexec_fn=lambda limit=limit:
                             resource.setrlimit(resource.RLIMIT_AS, (limit * 10**6, limit * 10**6)))
        checks.check(run.returncode == 0 and run.stdout == whole.stdout,
                     f"{limit} MB for {workers} workers: {run.returncode} {run.stderr[:300]}")


def compressed_files(checks, folder):
    np.savez_compressed(folder / "zeros.npz", Q=np.zeros((4000, 100)), K=np.zeros((10, 100)))
    flags = ["run", "zeros.npz", "--outputs", "logsumexp", "-o", "out.npz", "--force"]
    for size, code in [("1M", 65), ("3300000", 0)]:
        run = attn(*flags, "--max-expand", size, cwd=folder)
        checks.check(run.returncode == code and (code == 0 or b"--max-expand" in run.stderr),
                     f"--max-expand {size}: {run}")


if __name__ == "__main__":
    checks = Checks("limits")
    for part in (the_plan_is_what_happens, the_bound_on_memory_holds, drawings_count,
                 more_than_there_is, jobs_share_memory, all_jobs_together_keep_to_it,
                 results_wait_for_their_reader, little_address_space, compressed_files):
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder))
    checks.finish()
