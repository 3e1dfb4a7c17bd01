"""Runs the unit tests of the page's modules with node."""

import pathlib
import re
import shutil
import subprocess

import pytest

FOLDER = pathlib.Path(__file__).parent


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_modules():
    run = subprocess.run(["node", "--test", FOLDER / "page_modules.mjs"], capture_output=True, timeout=100)
    assert run.returncode == 0, run.stdout.decode()
    assert re.search(rb"# pass \d+", run.stdout)
