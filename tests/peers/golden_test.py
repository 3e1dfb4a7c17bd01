#!/usr/bin/env python3
"""Cases that other libraries computed, kept in tests/golden/peers: attn gives their results, and
gives others when the option that a case is there for is left out."""

import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[n]) for n in (0, 1)]
from cases import error_of, run_jobs  # noqa: E402
from golden import FOLDER, changes, read, without  # noqa: E402
from support.attn import Checks  # noqa: E402


def main():
    checks = Checks("peers")
    for family in sorted(path.stem for path in FOLDER.glob("*.json")):
        cases = list(read(family))
        for (name, _, tolerance, job, want), found in zip(cases, run_jobs([c[3] for c in cases])):
            same = not isinstance(found, str) and all(
                error_of(found[output], want[output]) <= tolerance for output in want)
            checks.check(same, f"{family}: {name}: {found if isinstance(found, str) else 'differs'}")
        left_out = [(case, key) for case in cases for key in case[1]]
        results = run_jobs([without(case[3], key) for case, key in left_out])
        for (case, key), found in zip(left_out, results):
            checks.check(changes(found, case[4]), f"{family}: {case[0]}: {key} changes nothing")
    checks.finish()


if __name__ == "__main__":
    main()
