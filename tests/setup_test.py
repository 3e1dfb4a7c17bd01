"""scripts/setup: which packages are missing, and what it does on systems that are not Debian."""

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


@pytest.mark.parametrize("manager, command", [
    ("dnf", "  sudo dnf install gcc-c++ cmake ninja-build cli11-devel json-devel "),
    ("pacman", "  sudo pacman -S --needed gcc cmake ninja cli11 nlohmann-json "),
    ("brew", "  brew install gcc cmake ninja cli11 nlohmann-json "),
])
def test_names_the_packages_of_the_system(setup, tmp_path, manager, command):
    (tmp_path / manager).symlink_to(shutil.which("true"))
    run = setup("build")
    assert run.returncode == 1
    assert [line for line in run.stderr.splitlines() if line.startswith(command)]
    assert "Not known here, install from source: libxtensor-blas-dev\n" in run.stderr


def test_names_of_other_systems_cover_the_group_build(setup, tmp_path):
    """Each package has a name, or is listed as unknown."""
    (tmp_path / "pacman").symlink_to(shutil.which("true"))
    lines = setup("build").stderr.splitlines()
    debian = [line.split()[0] for line in lines if line.startswith("  ") and "pacman" not in line]
    known, = [line.split()[4:] for line in lines if "pacman" in line]
    absent, = [line.split(": ")[1].split() for line in lines if line.startswith("Not known")]
    assert len(debian) == len(known) + len(absent)


def test_can_be_skipped(setup):
    run = setup("build", ATTN_SKIP_SETUP="1")
    assert (run.returncode, run.stderr) == (0, "")


def test_unknown_group_is_refused(setup):
    assert setup("bild").returncode == 2


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="needs dpkg-query")
class TestInstalledPackages:
    @pytest.fixture
    def missing(self, setup, tmp_path):
        """Runs scripts/setup with a database of installed packages; returns those that it lists."""
        for name in "env", "dpkg-query":
            (tmp_path / name).symlink_to(shutil.which(name))
        (tmp_path / "id").unlink()
        for name, script in ("id", "echo 0"), ("apt-get", "exit 0"):
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)

        def missing(group, *packages):
            (tmp_path / "status").write_text("".join(
                f"Package: {name}\nStatus: {status}\nVersion: 1\nArchitecture: all\n{more}\n"
                for name, status, more in packages))
            run = setup(group, DPKG_ADMINDIR=str(tmp_path))
            assert run.returncode == 0, run.stderr
            return [line.split()[0] for line in run.stderr.splitlines() if line.startswith("  ")]
        return missing

    ARM = "g++-aarch64-linux-gnu", "install ok installed", ""

    def test_none(self, missing):
        assert missing("arm", self.ARM, ("qemu-user", "install ok installed", "")) == []

    def test_one(self, missing):
        assert missing("arm", self.ARM) == ["qemu-user"]

    def test_package_that_left_its_configuration(self, missing):
        assert missing("arm", self.ARM, ("qemu-user", "deinstall ok config-files", "")) == ["qemu-user"]

    @pytest.mark.parametrize("provides, absent", [
        ("qemu-user", []),
        ("qemu, qemu-user (= 7.2), other", []),
        ("qemu-user-static", ["qemu-user"]),
    ])
    def test_provided_package(self, missing, provides, absent):
        assert missing("arm", self.ARM, ("emulators", "install ok installed", f"Provides: {provides}\n")) == absent
