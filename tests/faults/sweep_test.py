#!/usr/bin/env python3
"""Faults one at a time: a sample of what scripts/faults tries in full.

Every command and every kind of fault is in it; of the calls that fail, every 11th, and of the
allocations every 4001st. A batch that is resumed has every call of it fail, and a picture all of the
allocations that setting text takes.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from sweep import calls, sweep  # noqa: E402
from support.attn import Checks, under_sanitizer  # noqa: E402

if __name__ == "__main__":
    checks = Checks("faults, one at a time")
    checks.check(list(calls(10, 4, 2)) == [3, 7] and list(calls(2, 4, 5)) == [2]
                 and list(calls(0, 4, 0)) == [], "which calls are in a sample")
    if under_sanitizer():
        print("not tried: a sanitizer's own allocator cannot be made to fail")
    else:
        sample, whole = sweep(11, 4001), sweep(1, 4001, "batch, resumed")
        picture = sweep(1, 1, "run, PNG", last_allocations=400)
        for problem in sample.problems + whole.problems + picture.problems:
            checks.check(False, problem)
        injected = sample.injected + whole.injected + picture.injected
        checks.check(injected > 1600, f"{injected} faults injected")
        print(f"{sample.runs + whole.runs + picture.runs} runs, {injected} faults injected")
    checks.finish()
