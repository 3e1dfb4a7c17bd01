"""Packed sequences, batch items with lengths, and pages have the bytes of each sequence alone.

In a batch with more than 512 keys, items with fewer may differ in the last bits: the kernels compute up to 512 keys in
one step.
"""

import numpy as np
import pytest

from support.jobs import random_jobs, run_arrays
from support.paged_jobs import PagedJob, bits

ONE_STEP = 512
LAYOUTS = random_jobs(30)


def run(folder, job):
    arrays = {name: np.ascontiguousarray(x) for name, x in job.items() if isinstance(x, np.ndarray)}
    return run_arrays(folder, arrays, **{name: x for name, x in job.items() if name not in arrays})


@pytest.mark.parametrize("seed", range(LAYOUTS))
def test_bytes_of_sequences(tmp_path, seed):
    case = PagedJob(seed)
    case.options["outputs"] = ["context", "logsumexp"]
    case.options |= [{}, {}, {"mask_rule": "q >= k or k < 3"},
                     {"sinks": case.rng.standard_normal(case.H).astype(case.dtype)}][seed % 4]
    if {"causal", "window", "mask_rule"} & case.options.keys():
        case.options["alignment"] = "bottom-right"
    paged, whole = case.jobs()
    alone = [run(tmp_path, case.options | {"layout": "thd", "Q": q, "K": k, "V": v}) for q, k, v in case.sequences(whole)]
    context = case.joined(whole, [found["context"] for found in alone])
    sums = [found["logsumexp"] for found in alone]
    logsumexp = np.concatenate(sums, -1) if case.packed else np.stack(sums)
    items = ...
    if not case.packed:
        items = [b for b, n in enumerate(case.lengths) if (n > ONE_STEP) == (max(case.lengths) > ONE_STEP)]
    found = run(tmp_path, whole)
    assert (bits(found["context"]) == bits(context))[items].all()
    assert (bits(found["logsumexp"]) == bits(logsumexp))[items].all()
    in_pages = run(tmp_path, paged)
    assert all((bits(in_pages[name]) == bits(found[name])).all() for name in found)
