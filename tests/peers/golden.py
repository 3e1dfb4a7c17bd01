"""Golden cases: for each option of a family, a small case that it changes, kept with its results."""

import json
import pathlib

import numpy as np
from cases import error_of, run_jobs

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "peers"
DATA = {"Q", "K", "V", "embeddings", "memory", "outputs", "cos", "sin"}
CANDIDATES = 60
BINDS = 1e-3  # an option counts where leaving it out changes a result by so much


def without(job, key):
    return {k: v for k, v in job.items() if k != key}


def changes(result, expected):
    """Whether a job without its option is refused, or gives something else."""
    return isinstance(result, str) or max(error_of(result[o], expected[o]) for o in expected) > BINDS


def size_of(case):
    return sum(v.size for v in [*case.job.values(), *case.exact.values()] if isinstance(v, np.ndarray))


def chosen(cases):
    """{index of a case: the options that it shows}, each option once."""
    by_size = sorted(range(len(cases)), key=lambda i: size_of(cases[i]))
    options = sorted({k for case in cases for k in case.job} - DATA)
    tries = [(key, i) for key in options
             for i in [i for i in by_size if key in cases[i].job][:CANDIDATES]]
    results = run_jobs([without(cases[i].job, key) for key, i in tries])
    shows = {}
    for (key, i), result in zip(tries, results):
        if changes(result, cases[i].exact):
            shows.setdefault(i, set()).add(key)
    picked, left = {}, set().union(*shows.values())
    while left:  # the case that shows most of what is left; of equals, the smallest
        best = min(shows, key=lambda i: (-len(shows[i] & left), size_of(cases[i])))
        picked[best] = sorted(shows[best] & left)
        left -= shows[best]
    return picked


def write(family, cases, tolerance):
    """Writes FAMILY.json and FAMILY.npz."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    arrays, entries = {}, []
    for number, (i, keys) in enumerate(sorted(chosen(cases).items())):
        case = cases[i]
        tensors = {k: v for k, v in case.job.items() if isinstance(v, np.ndarray)}
        arrays |= {f"{number}.{k}": v for k, v in tensors.items()}
        arrays |= {f"{number}.result.{k}": np.asarray(v) for k, v in case.exact.items()}
        entries.append({"name": case.name, "shows": keys, "tolerance": tolerance,
                        "job": {k: v for k, v in case.job.items() if k not in tensors}})
    np.savez_compressed(FOLDER / f"{family}.npz", **arrays)
    (FOLDER / f"{family}.json").write_text(json.dumps(entries, indent=1) + "\n")


def read(family):
    """(name, options shown, tolerance, job, results) of each golden case."""
    with np.load(FOLDER / f"{family}.npz") as archive:
        arrays = dict(archive)
    for number, entry in enumerate(json.loads((FOLDER / f"{family}.json").read_text())):
        own = {k.split(".", 1)[1]: v for k, v in arrays.items() if k.split(".")[0] == str(number)}
        results = {k[len("result."):]: v for k, v in own.items() if k.startswith("result.")}
        tensors = {k: v for k, v in own.items() if not k.startswith("result.")}
        yield entry["name"], entry["shows"], entry["tolerance"], entry["job"] | tensors, results
