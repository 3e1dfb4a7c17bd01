"""Fixtures for all Python tests."""

import pathlib
import subprocess
import sys
import tempfile

import pytest

pytest.register_assert_rewrite("faults", "peers", "support")


@pytest.fixture
def tmp_path():
    """A new, empty folder. Unlike pytest's own, it is removed after the test: some are large."""
    with tempfile.TemporaryDirectory() as name:
        yield pathlib.Path(name)


@pytest.fixture(scope="module")
def module_path():
    """A folder that the tests of one file share."""
    with tempfile.TemporaryDirectory() as name:
        yield pathlib.Path(name)


# Until all test scripts are pytest cases: a script that counts its own checks runs as one case.


class Script(pytest.File):
    def collect(self):
        yield ScriptCase.from_parent(self, name=self.path.stem)


class ScriptCase(pytest.Item):
    def runtest(self):
        code = subprocess.run([sys.executable, self.path]).returncode
        if code != 0:
            pytest.fail(f"exit code {code}", pytrace=False)


def pytest_pycollect_makemodule(module_path, parent):
    if "Checks(" in module_path.read_text(encoding="utf-8"):
        return Script.from_parent(parent, path=module_path)
    return None
