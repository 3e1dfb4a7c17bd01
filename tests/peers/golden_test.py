"""Cases computed by other libraries, stored in tests/golden/peers: attn gives the same results.

Each option that a case tests is also omitted, which must change the result.
"""

import functools

import pytest

from peers.cases import error_of, run_jobs
from peers.golden import FOLDER, changes, read, without

CASES = {(path.stem, case[0]): case for path in sorted(FOLDER.glob("*.json")) for case in read(path.stem)}
TESTED = [(family, name, option) for (family, name), case in CASES.items() for option in case[1]]


@functools.lru_cache(maxsize=None)
def results():
    """The results of all cases, as they are and without each tested option; run in one batch."""
    jobs = {key: case[3] for key, case in CASES.items()}
    jobs |= {(family, name, option): without(jobs[family, name], option) for family, name, option in TESTED}
    return dict(zip(jobs, run_jobs(list(jobs.values()))))


@pytest.mark.parametrize("family, name", CASES)
def test_result_equals_that_of_the_library(family, name):
    _, _, tolerance, _, expected = CASES[family, name]
    found = results()[family, name]
    assert not isinstance(found, str), "the job was refused"
    for output in expected:
        assert error_of(found[output], expected[output]) <= tolerance, output


@pytest.mark.parametrize("family, name, option", TESTED)
def test_omitting_the_option_changes_the_result(family, name, option):
    assert changes(results()[family, name, option], CASES[family, name][4])
