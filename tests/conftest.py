"""Fixtures for all Python tests."""

import pathlib
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


def pytest_collection_modifyitems(items):
    from support.attn import ATTN  # after register_assert_rewrite()
    if (pathlib.Path(ATTN).resolve().parent / "CMakeCache.txt").exists():
        return
    for item in items:
        if item.get_closest_marker("build_folder"):
            item.add_marker(pytest.mark.skip(reason="needs the build folder"))
