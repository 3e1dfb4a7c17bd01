"""scripts/setup on systems that are not Debian."""

import os
import shutil
import subprocess

import pytest

from support.attn import ROOT


@pytest.fixture
def setup(tmp_path):
    """Runs scripts/setup with nothing but a few POSIX tools."""
    for name in "sh", "awk", "grep", "id", "printf":
        (tmp_path / name).symlink_to(shutil.which(name))

    def setup(*groups, **environment):
        return subprocess.run([ROOT / "scripts" / "setup", *groups], capture_output=True, text=True,
                              env={"PATH": str(tmp_path), **environment})
    return setup


def test_fails_without_apt_and_lists_the_packages(setup):
    run = setup("build")
    assert run.returncode == 1
    lines = run.stderr.splitlines()
    assert lines[0].startswith("scripts/setup: there is no apt-get on this system.")
    assert any(line.split()[:1] == ["libpng-dev"] for line in lines)


def test_can_be_skipped(setup):
    run = setup("build", ATTN_SKIP_SETUP="1")
    assert (run.returncode, run.stderr) == (0, "")


def test_unknown_group_is_refused(setup):
    assert setup("bild").returncode == 2
