"""Golden cases: for each option of a family, a stored small case whose result it changes."""

import json
import pathlib

import numpy as np
from peers.cases import error_of, run_jobs

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "peers"
DATA = {"Q", "K", "V", "embeddings", "memory", "outputs", "cos", "sin"}
CANDIDATES = 60
LEAST_CHANGE = 1e-3  # an option is tested by a case if omitting it changes a result by this much


def without(job, key):
    return {k: v for k, v in job.items() if k != key}


def changes(result, expected):
    """Whether a job without an option is refused or has another result."""
    return isinstance(result, str) or max(error_of(result[o], expected[o]) for o in expected) > LEAST_CHANGE


def size_of(case):
    return sum(v.size for v in [*case.job.values(), *case.exact.values()] if isinstance(v, np.ndarray))


def choose_cases(cases):
    """{index of a case: the options that it tests}, with each option once."""
    by_size = sorted(range(len(cases)), key=lambda i: size_of(cases[i]))
    options = sorted({k for case in cases for k in case.job} - DATA)
    tries = [(key, i) for key in options
             for i in [i for i in by_size if key in cases[i].job][:CANDIDATES]]
    results = run_jobs([without(cases[i].job, key) for key, i in tries])
    tested = {}
    for (key, i), result in zip(tries, results):
        if changes(result, cases[i].exact):
            tested.setdefault(i, set()).add(key)
    picked, left = {}, set().union(*tested.values())
    while left:  # take the case that tests most of the remaining options, the smallest of several
        best = min(tested, key=lambda i: (-len(tested[i] & left), size_of(cases[i])))
        picked[best] = sorted(tested[best] & left)
        left -= tested[best]
    return picked


def write(family, cases, tolerance):
    """Writes FAMILY.json and FAMILY.npz."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    arrays, entries = {}, []
    for number, (i, keys) in enumerate(sorted(choose_cases(cases).items())):
        case = cases[i]
        tensors = {k: v for k, v in case.job.items() if isinstance(v, np.ndarray)}
        arrays |= {f"{number}.{k}": v for k, v in tensors.items()}
        arrays |= {f"{number}.result.{k}": np.asarray(v) for k, v in case.exact.items()}
        entries.append({"name": case.name, "shows": keys, "tolerance": tolerance,
                        "job": {k: v for k, v in case.job.items() if k not in tensors}})
    np.savez_compressed(FOLDER / f"{family}.npz", **arrays)
    (FOLDER / f"{family}.json").write_text(json.dumps(entries, indent=1) + "\n")


def read(family):
    """(name, tested options, tolerance, job, results) of each golden case."""
    with np.load(FOLDER / f"{family}.npz") as archive:
        arrays = dict(archive)
    for number, entry in enumerate(json.loads((FOLDER / f"{family}.json").read_text())):
        own = {k.split(".", 1)[1]: v for k, v in arrays.items() if k.split(".")[0] == str(number)}
        results = {k[len("result."):]: v for k, v in own.items() if k.startswith("result.")}
        tensors = {k: v for k, v in own.items() if not k.startswith("result.")}
        yield entry["name"], entry["shows"], entry["tolerance"], entry["job"] | tensors, results
