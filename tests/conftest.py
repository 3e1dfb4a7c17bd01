"""Fixtures for all Python tests.

The environment variable ATTN_TEST_CASES=N limits the cases of each parametrized test, for builds that run slowly.
ATTN_RANDOM_JOBS=N sets the number of random jobs of the tests that use support.jobs.random_jobs.
"""

import os
import pathlib
import random
import tempfile

import pytest

pytest.register_assert_rewrite("faults", "peers", "support")


def new_folder():
    # Unlike pytest's own temporary folders, which are kept, these are removed: some hold large files.
    with tempfile.TemporaryDirectory() as name:
        yield pathlib.Path(name)


@pytest.fixture
def tmp_path():
    """An empty folder for one test."""
    yield from new_folder()


@pytest.fixture(scope="class")
def class_path():
    """A folder that the tests of a class share."""
    yield from new_folder()


@pytest.fixture(scope="module")
def module_path():
    """A folder that the tests of a file share."""
    yield from new_folder()


def pytest_make_parametrize_id(val):
    """Lists of command-line words appear in test names as typed."""
    if isinstance(val, (list, tuple)) and all(isinstance(word, str) for word in val):
        return " ".join(val) or "none"
    return None


def skip_in_sanitized_build(items):
    """Skips tests that do not run the program, and long ones."""
    for item in items:
        if pathlib.Path(item.fspath).parent.name == "rules":
            item.add_marker(pytest.mark.skip(reason="does not run the program"))
        elif item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="takes very long in sanitized builds"))


def skip_most_cases(items, most):
    """Skips all but `most` cases of each parametrized test."""
    cases = {}
    for item in items:
        if not item.get_closest_marker("skip"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for same in cases.values():
        dice = random.Random(len(same))  # equal distances would meet one value of a parameter with few
        for item in dice.sample(same, max(0, len(same) - most)):
            item.add_marker(pytest.mark.skip(reason="ATTN_TEST_CASES limits the number of cases"))


def pytest_collection_modifyitems(items):
    from support.attn import ATTN, under_sanitizer  # after register_assert_rewrite()
    if under_sanitizer():
        skip_in_sanitized_build(items)
    if "ATTN_TEST_CASES" in os.environ:
        skip_most_cases(items, int(os.environ["ATTN_TEST_CASES"]))
    if (pathlib.Path(ATTN).resolve().parent / "CMakeCache.txt").exists():
        return
    for item in items:
        if item.get_closest_marker("build_folder"):
            item.add_marker(pytest.mark.skip(reason="needs the build folder"))
