"""Jobs for tests, most of them of `attn batch`, and their results computed with NumPy and SciPy."""

import json
import os

import numpy as np
from scipy.special import softmax

from support.attn import attn

WORDS = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]


def random_jobs(usual):
    """How many random jobs a test runs: ATTN_RANDOM_JOBS, or `usual`."""
    return int(os.environ.get("ATTN_RANDOM_JOBS", usual))


def job(seed):
    """A job of four words, with random weights from `seed`."""
    draw = {"randint": {"high": 3, "shape": [3, 3]}}
    return {"embeddings": WORDS, "seed": seed, "W_Q": draw, "W_K": draw, "W_V": draw}


def expected(seed):
    random = np.random.RandomState(seed)
    q, k, v = (np.array(WORDS) @ random.randint(3, size=(3, 3)) for _ in range(3))
    scores = q @ k.T
    weights = softmax(scores / np.sqrt(3), axis=1)
    return {"scores": scores, "weights": weights, "context": weights @ v}


def is_expected(outputs, seed):
    want = expected(seed)
    return all(np.allclose(outputs[name], want[name], rtol=1e-13, atol=0) for name in want)


def write_jobs(folder, seeds, name="job{:04}.json"):
    """Writes a job file for each seed; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name.format(seed) for seed in seeds]
    for seed, path in zip(seeds, paths):
        path.write_text(json.dumps(job(seed)))
    return paths


def start_arrays(folder, tensors, **job):
    """Runs a job of these arrays and keys, job.json; returns the finished process."""
    np.savez(folder / "in.npz", **tensors)
    job = {**job, **{name: f"in.npz#{name}" for name in tensors}}
    (folder / "job.json").write_text(json.dumps(job))
    return attn("run", "job.json", "-o", "out.npz", "--force", cwd=folder)


def run_arrays(folder, tensors, **job):
    """The same; returns its outputs by name."""
    done = start_arrays(folder, tensors, **job)
    assert done.returncode == 0, done.stderr.decode()
    with np.load(folder / "out.npz") as found:
        return dict(found)


def write_job(folder, name, job):
    """Writes the arrays of a job to an .npz file; returns the job as a line of JSON."""
    np.savez(folder / f"{name}.npz", **{key: np.ascontiguousarray(value) for key, value in job.items() if isinstance(value, np.ndarray)})
    return json.dumps({key: f"{name}.npz#{key}" if isinstance(value, np.ndarray) else value for key, value in job.items()})


def run_jobs(folder, jobs):
    """The outputs by name of each job of arrays and keys, in order."""
    lines = [write_job(folder, str(i), job) for i, job in enumerate(jobs)]
    run = attn("batch", "-", "--out-dir", "out", "--name", "{index}", "-q", "--progress", "none", "--force",
               stdin="\n".join(lines), cwd=folder, timeout=1000)
    assert run.returncode == 0, run.stderr.decode()
    for i in range(len(jobs)):
        with np.load(folder / "out" / f"{i + 1}.npz") as found:
            yield dict(found)


def slow_job(tokens=2000):
    """A job that takes many seconds and little memory: integers whose sums need 128 bits."""
    draw = {"randint": {"high": 2**25, "shape": [tokens, 2000]}}
    return {"seed": 1, "Q": draw, "K": draw, "outputs": ["scores"]}


def contents(folder, without=("manifest",)):
    """The bytes of all files below `folder` by path, except those whose names begin with `without`."""
    return {path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.name.startswith(without)}


def manifest_of(folder, name="manifest.ndjson"):
    """The last line of each job, by job; lines about runs are skipped."""
    lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    return {line["job"]: line for line in lines if "job" in line}
