"""Runs `attn compare --reference --json` on a result of the NumPy kernel."""

import json

import numpy as np

from support.attn import attn


def write_job(folder, tensors, options, dtype):
    """Files of the job; returns the path of the job file."""
    stored = {name: x.astype(np.float16) if dtype == "f16" and x.dtype == np.float32 else x
              for name, x in tensors.items()}
    np.savez(folder / "inputs.npz", **stored)
    job = {name: f"inputs.npz#{name}" for name in stored} | options
    (folder / "job.json").write_text(json.dumps(job))
    return folder / "job.json"


def diagnosed(folder, tensors, options, dtype, result, *flags, output="context"):
    """The JSON of the comparison of an output (its tensor of the report), and its exit code."""
    job = write_job(folder, tensors, options, dtype)
    np.save(folder / "result.npy", result.astype(np.float16) if dtype == "f16" else result.astype(np.float32))
    run = attn("compare", folder / "result.npy", "--reference", job, "--as", output, "--precision", dtype, "--json",
               *flags)
    assert run.returncode in (0, 1), run.stderr.decode()
    return json.loads(run.stdout)["tensors"][0], run.returncode


def adversarial(folder, tensors):
    """The tensors of the job in this folder with adversarial numbers."""
    run = attn("random", "--kind", "adversarial", "--for", folder / "job.json", "-o", folder / "new.npz", "--force")
    assert run.returncode == 0, run.stderr.decode()
    with np.load(folder / "new.npz") as new:
        return {name: new[name].astype(x.dtype) for name, x in tensors.items()}
