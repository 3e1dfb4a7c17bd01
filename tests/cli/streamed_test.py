#!/usr/bin/env python3
"""Scores and weights that go to their files while they are computed: the same bytes as ever, little
memory, and nothing left where something fails."""

import itertools
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn, attn_and_peak, under_asan  # noqa: E402
from support import safetensors_file  # noqa: E402


def contents(path):
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
        with np.load(path) as arrays:
            return {name: arrays[name] for name in arrays.files}
    tensors, _ = safetensors_file.read(path.read_bytes())
    return {name: np.frombuffer(data, dict(F16="<f2", F32="<f4", F64="<f8")[dtype]).reshape(shape)
            for name, (dtype, shape, data) in tensors.items()}


def same_results(checks, folder):
    """Streamed files are, byte for byte, what goes through a pipe, where nothing is streamed; and
    they are what the formula gives."""
    rng = np.random.default_rng(1)
    out = folder / "out"
    shapes = [((3, 2), (3, 2), []), ((1, 8), (1, 8), []), ((200, 40), (333, 40), []),
              ((2, 70, 16), (2, 70, 16), ["--causal"]),
              ((2, 4, 90, 24), (2, 2, 530, 24), ["--kv-heads", "2"]),
              ((150, 64), (600, 32), ["--heads", "4", "--kv-heads", "2"]),
              ((2, 3, 40, 8), (2, 3, 40, 8), ["--window", "3,1", "--rows", "0,17,39"])]
    lists = "scores,weights,context", "weights,masked_scores", "context,weights,logsumexp", \
        "scores,mean_weights,weights", "scaled_scores,row_max"
    for (q, k, flags), dtype in itertools.product(shapes, [np.float32, np.float64, np.float16]):
        np.savez(folder / "in.npz", Q=rng.standard_normal(q).astype(dtype),
                 K=rng.standard_normal(k).astype(dtype), V=rng.standard_normal(k).astype(dtype))
        outputs = lists[shapes.index((q, k, flags)) % len(lists)]
        for suffix in "npz", "safetensors":
            what = f"{q} {dtype.__name__} {outputs} {suffix}"
            run = ["run", "in.npz", *flags, "--outputs", outputs]
            path = out.with_suffix("." + suffix)
            files = {}
            for threads in 1, 3:
                done = attn(*run, "--threads", threads, "-o", path, "--force", cwd=folder)
                checks.check(done.returncode == 0 and not done.stderr, f"{what}: {done}")
                files[threads] = path.read_bytes()
            piped = attn(*run, "--format", suffix, cwd=folder).stdout
            checks.check(files[1] == files[3] == piped, f"{what}: the same bytes")
            results = contents(path)
            checks.check(list(results) == outputs.split(",") or suffix == "safetensors", what)
            attn(*run, "--path", "reference", "-o", "reference.npz", "--force", cwd=folder)
            expected = contents(folder / "reference.npz")
            tolerance = dict(f2=2e-3, f4=1e-5, f8=1e-13)[np.dtype(dtype).str[1:]]
            for name in outputs.split(","):
                checks.check(results[name].dtype == expected[name].dtype and
                             np.allclose(results[name], expected[name], tolerance, tolerance),
                             f"{what}: {name}")
        # A file an output, some of them twice.
        done = attn("run", "in.npz", *flags, "-o", "weights=w.npy", "-o", "weights=w.npz",
                    "-o", "scores=s.safetensors", "-o", "each/", "--force", cwd=folder)
        checks.check(done.returncode == 0, f"{q}: {done}")
        w = np.load(folder / "w.npy")
        checks.check(w.tobytes() == contents(folder / "w.npz")["weights"].tobytes() and
                     (folder / "w.npy").read_bytes() == (folder / "each/weights.npy").read_bytes(),
                     f"{q}: weights in three files")
        checks.check(contents(folder / "s.safetensors")["scores"].tobytes() ==
                     np.load(folder / "each/scores.npy").tobytes(), f"{q}: scores in two")
    # bfloat16 becomes float32 in an .npy and stays in a .safetensors.
    attn("convert", "in.npz", "--dtype", "bf16", "-o", "bf16.safetensors", cwd=folder)
    run = ["run", "bf16.safetensors", "--outputs", "weights"]
    for suffix in "npy", "safetensors":
        attn(*run, "-o", f"b.{suffix}", cwd=folder)
        checks.check((folder / f"b.{suffix}").read_bytes() ==
                     attn(*run, "--format", suffix, cwd=folder).stdout, f"bfloat16 to .{suffix}")


def save_inputs(folder, count, width=64):
    rng = np.random.default_rng(2)
    for name in "qkv":
        np.save(folder / f"{name}.npy", rng.standard_normal((count, width)).astype(np.float32))
    return ["run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy"]


def little_memory(checks, folder):
    if under_asan():
        return
    count, mebibyte = 8192, 1 << 20
    run = save_inputs(folder, count)
    inputs, matrix = 3 * count * 64 * 4, count * count * 4
    for outputs, limit in [
            (["-o", "context=c.npy"], inputs // 3 + 64 * mebibyte),
            (["-o", "weights=w.npy", "-o", "context=c.npy", "--force"], inputs // 3 + 64 * mebibyte),
            (["-o", "o.npz", "--outputs", "scores,weights"], 64 * mebibyte),
            (["-o", "o.safetensors", "--outputs", "weights"], 64 * mebibyte)]:
        done, peak = attn_and_peak(*run, *outputs, "--max-memory", inputs + limit, cwd=folder)
        checks.check(done.returncode == 0 and not done.stderr, f"{outputs}: {done}")
        checks.check(peak <= inputs + limit < matrix, f"{outputs}: {peak // mebibyte} MiB")
    told = attn(*run, "-o", "o.npz", "--force", "--dry-run", cwd=folder).stdout.decode()
    checks.check(told.count("written while it is computed") == 2, told)
    again = ["-o", "o.npz", "--force"]
    for whole in ["-o", "o.json"], ["-o", "-", "--format", "npz"], [*again, "-o", "-"], \
            [*again, "--view=v.svg"], [*again, "--path", "reference"]:
        told = attn(*run, *whole, "--dry-run", cwd=folder).stdout.decode()
        checks.check("scores" in told and "while" not in told, f"{whole}: {told}")
        done = attn(*run, *whole, "--max-memory", "200M", cwd=folder)
        checks.check(done.returncode == 65 and b"--max-memory" in done.stderr, f"{whole}: {done}")
    (folder / "o.npz").unlink()
    (folder / "w.npy").unlink()


def failures(checks, folder):
    run = save_inputs(folder, 2048)
    before = sorted(os.listdir(folder))

    def limited(*args):
        """Exit code and stderr of a run that may not write files of more than 10 MiB."""
        done = subprocess.run(
            [ATTN, *args], cwd=folder, capture_output=True, timeout=60,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10 << 20, 10 << 20)))
        return done.returncode, done.stderr

    for outputs, name in [(["-o", "weights=w.npy", "-o", "context=c.npy"], "w.npy"),
                          (["-o", "o.npz"], "o.npz"), (["-o", "o.safetensors"], "o.safetensors"),
                          (["-o", "new/"], "new/scores.npy")]:
        code, err = limited(*run, *outputs)
        checks.check((code, err) == (74, f"attn: {name}: File too large\n".encode()),
                     f"{outputs}: {code} {err}")
        checks.check(sorted(os.listdir(folder)) == before, f"{outputs}: {os.listdir(folder)}")
    # A job file's name stands before errors of the job, not before those of its outputs.
    np.savez(folder / "in.npz", **{name.upper(): np.load(folder / f"{name}.npy") for name in "qkv"})
    code, err = limited("run", "in.npz", "-o", "weights=w.npy")
    checks.check((code, err) == (74, b"attn: w.npy: File too large\n"), f"job: {code} {err}")
    (folder / "in.npz").unlink()

    (folder / "w.npy").write_bytes(b"old")
    done = attn(*run, "-o", "weights=w.npy", cwd=folder)
    checks.check(done.returncode == 73, f"exists: {done}")
    done = attn(*run, "-o", "weights=w.npy", "--no-clobber", cwd=folder)
    checks.check(done.returncode == 0 and (folder / "w.npy").read_bytes() == b"old", f"kept: {done}")
    done = attn(*run, "-o", "weights=q.npy", "--force", cwd=folder)
    checks.check(done.returncode == 73 and b"is an input" in done.stderr, f"an input: {done}")
    code, err = limited(*run, "-o", "weights=w.npy", "--force")
    checks.check(code == 74 and (folder / "w.npy").read_bytes() == b"old", f"old: {code} {err}")
    done = attn(*run, "-o", "weights=w.npy", "--force", "--durable", cwd=folder)
    checks.check(done.returncode == 0 and np.load(folder / "w.npy").shape == (2048, 2048), f"{done}")
    (folder / "w.npy").unlink()


def nan_is_told(checks, folder):
    q = np.ones((2, 60, 4), np.float32)
    q[1, 3, 2] = q[1, 50, 0] = np.nan
    k = np.ones((2, 70, 4), np.float32)
    np.savez(folder / "nan.npz", Q=q, K=k)
    rows = "140 of 8400, the first at [1, 3, 0]"
    for outputs, where in (("weights,context", rows), ("scores,weights", rows), ("scores", rows),
                           ("scores,key_weights", "70 of 140, the first at [1, 0]")):
        run = ["run", "nan.npz", "--outputs", outputs]
        piped = attn(*run, "--format", "npz", cwd=folder)
        done = attn(*run, "-o", "o.npz", "--force", cwd=folder)
        checks.check(done.returncode == 0 and done.stderr == piped.stderr and
                     where in done.stderr.decode(), f"{outputs}: {done}")
        checks.check(attn(*run, "-o", "o.npz", "--force", "--nan", "allow", cwd=folder).stderr == b"",
                     f"{outputs}: allowed")
        (folder / "o.npz").unlink()
        done = attn(*run, "-o", "o.npz", "--nan", "refuse", cwd=folder)
        checks.check(done.returncode == 65 and os.listdir(folder) == ["nan.npz"], f"refused: {done}")
    # Without a NaN among the inputs: an infinite score.
    q[:] = 1e30
    k[:, 5] = 1e30
    np.savez(folder / "nan.npz", Q=q, K=k)
    done = attn("run", "nan.npz", "-o", "o.npz", cwd=folder)
    checks.check(b"weights: expected no NaN" in done.stderr, f"infinite: {done}")


def signals(checks, folder):
    run = save_inputs(folder, 16384, 16)
    before = sorted([*os.listdir(folder), "w.npy"])
    for number, old in itertools.product([signal.SIGTERM, signal.SIGINT], [False, True]):
        if old:
            (folder / "w.npy").write_bytes(b"old")
        process = subprocess.Popen([ATTN, *run, "-o", "weights=w.npy", "--force", "--threads", "1"],
                                   cwd=folder)
        deadline = time.monotonic() + 60

        def begun():
            return [entry for entry in os.scandir(folder) if entry.name.startswith(".attn-tmp-")
                    and entry.stat().st_size > 0]

        while not begun() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        process.send_signal(number)
        code = process.wait(timeout=60)
        checks.check(code == -number, f"{number}: ended by {code}")
        expected = before if old else [name for name in before if name != "w.npy"]
        checks.check(sorted(os.listdir(folder)) == expected, f"{number}: {os.listdir(folder)}")
        checks.check(not old or (folder / "w.npy").read_bytes() == b"old", "what stood there stays")
        if old:
            (folder / "w.npy").unlink()


def main():
    checks = Checks("streamed")
    for part in same_results, little_memory, failures, nan_is_told, signals:
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder))
    checks.finish()


if __name__ == "__main__":
    main()
