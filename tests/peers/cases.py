"""Cases of the comparison with other libraries: jobs, and a library's results for the same tensors."""

import dataclasses
import json
import pathlib
import random
import subprocess
import tempfile

import numpy as np

from support.attn import ATTN


@dataclasses.dataclass
class Case:
    """`job` has the options as in JSON and the tensors as arrays. `library` and `exact` map outputs to the
    library's results, in the case's dtype and in float64."""

    name: str
    dtype: str
    job: dict
    library: dict
    exact: dict


class Draw:
    """A seeded source of random choices and tensors."""

    def __init__(self, *seed):
        self.choose = random.Random(repr(seed))
        self.rng = np.random.default_rng(self.choose.getrandbits(64))

    def chance(self, p):
        return self.choose.random() < p

    def pick(self, *values):
        return self.choose.choice(values)

    def normal(self, *shape, dtype="float64"):
        return self.rng.standard_normal(shape).astype(dtype)

    def mask(self, *shape, p=0.7):
        """True with probability p."""
        return self.rng.random(shape) < p


def error_of(found, exact):
    """The largest difference, divided by the largest magnitude if that is above 1. It is inf if the shapes
    or the positions of NaN and infinities differ."""
    found, exact = np.asarray(found, dtype="float64"), np.asarray(exact, dtype="float64")
    if found.shape != exact.shape:
        return np.inf
    finite = np.isfinite(exact)
    if not np.array_equal(found[~finite], exact[~finite], equal_nan=True):
        return np.inf
    if not finite.any():
        return 0.0
    difference = np.max(np.abs(found[finite] - exact[finite]))
    return float(difference / max(1.0, np.max(np.abs(exact[finite]))))


def write_tensors(path, tensors):
    """Writes an .npz file, or .safetensors if a dtype is bfloat16, which .npy lacks. Returns its path."""
    if not any(x.dtype.name == "bfloat16" for x in tensors.values()):
        np.savez(path.with_suffix(".npz"), **tensors)
        return path.with_suffix(".npz")
    header, data = {}, b""
    for name, x in tensors.items():
        dtype = {"bfloat16": "BF16", "bool": "BOOL", "int64": "I64"}[x.dtype.name]
        raw = x.tobytes()
        header[name] = {"dtype": dtype, "shape": x.shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path = path.with_suffix(".safetensors")
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


PRECISIONS = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def fraction_of_bound(job, result, dtype):
    """The largest error in `result`, outputs by name, as a fraction of the error bound of `attn compare
    --reference` for results of this dtype. It is inf if shapes or NaN differ, and None if the job has no bound."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        inputs = write_tensors(folder / "inputs", {k: v for k, v in job.items() if isinstance(v, np.ndarray)})
        (folder / "job.json").write_text(json.dumps(
            {k: f"{inputs}#{k}" if isinstance(v, np.ndarray) else v for k, v in job.items()}))
        found = write_tensors(folder / "result", result)
        run = subprocess.run([ATTN, "compare", found, folder / "job.json", "--reference", "--json", "--precision",
                              PRECISIONS[dtype]], capture_output=True, text=True)
    if "no error bound is known" in run.stderr:
        return None
    assert run.returncode in (0, 1), run.stderr
    fraction = max((float(tensor["bound"]["worst"]["value"]) for tensor in json.loads(run.stdout)["tensors"]
                    if tensor.get("bound", {}).get("worst")), default=0.0)
    return np.inf if run.returncode == 1 and fraction <= 1 else fraction


def run_jobs(jobs):
    """Runs the jobs in one `attn batch`. Returns for each its outputs by name, or its error message."""
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for number, job in enumerate(jobs, 1):
            path = write_tensors(pathlib.Path(folder) / f"{number}-in",
                                 {k: v for k, v in job.items() if isinstance(v, np.ndarray)})
            lines.append(json.dumps({k: f"{path}#{k}" if isinstance(v, np.ndarray) else v
                                     for k, v in job.items()}))
        out = pathlib.Path(folder) / "out"
        run = subprocess.run([ATTN, "batch", "-", "--out-dir", out, "--name", "{index}", "--quiet",
                              "--progress", "none", "--nan", "allow"],
                             input="\n".join(lines).encode(), capture_output=True)
        results, messages = [], run.stderr.decode().splitlines()
        for number in range(1, len(jobs) + 1):
            path = out / f"{number}.npz"
            if path.exists():
                with np.load(path) as arrays:
                    results.append(dict(arrays))
            else:
                results.append("; ".join(t for t in messages if f"line {number}:" in t) or "no result")
    return results
