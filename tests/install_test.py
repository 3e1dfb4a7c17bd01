#!/usr/bin/env python3
"""What `cmake --install` puts down works from there, without the source tree."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from support.attn import ATTN, ROOT, Checks


def run(command, cwd):
    return subprocess.run([str(part) for part in command], cwd=cwd, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60)


def check_installed(checks, prefix):
    binary = prefix / "bin" / "attn"
    version = run([binary, "--version"], prefix)
    checks.check(version.returncode == 0, f"attn --version: {version}")
    # "attn 1.2.3", the one of CMakeLists.txt.
    project = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    number = project.split("project(attn VERSION ")[1].split()[0]
    checks.check(number in version.stdout, f"version {number} is not in {version.stdout!r}")

    examples = run([binary, "examples", "check"], prefix)
    checks.check(examples.returncode == 0, f"attn examples check: {examples}")

    # Taken away, the installed data is missed: it is this data that was checked.
    shutil.rmtree(prefix / "share" / "attn" / "examples")
    missed = run([binary, "examples", "check"], prefix)
    checks.check(missed.returncode != 0, "the examples are found elsewhere than under the prefix")


def check_links(checks, folder):
    """Pages lead to pages and pictures that are installed, too; tests are in the source alone."""
    links = [(page, link) for page in folder.rglob("*.md")
             for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
             if "/tests/" not in link]
    checks.check(len(links) > 30, f"only {len(links)} links")
    for page, link in links:
        checks.check((page.parent / link).exists(), f"{page}: no such page: {link}")


def check_demo(checks):
    """README.md installs after scripts/demo, which has to build whatever pages are installed."""
    demo = (ROOT / "scripts" / "demo").read_text(encoding="utf-8")
    built = re.search(r"^scripts/build release ([\w ]*\w)", demo, re.MULTILINE)[1].split()
    for file in ["apps/CMakeLists.txt", "cmake/explained.cmake"]:
        made = re.findall(r"add_custom_target\((\w+) ALL", (ROOT / file).read_text(encoding="utf-8"))
        checks.check(made and set(made) <= set(built), f"scripts/demo builds {built}, not {made}")


if __name__ == "__main__":
    checks = Checks("install")
    build = pathlib.Path(ATTN).resolve().parent
    check_demo(checks)
    with tempfile.TemporaryDirectory(prefix="attn install ") as folder:
        prefix = pathlib.Path(folder) / "to here"
        install = run(["cmake", "--install", build, "--prefix", prefix], folder)
        if checks.check(install.returncode == 0, f"cmake --install: {install}"):
            for file in ["bin/attn", "share/doc/attn/README.md", "share/doc/attn/LICENSE",
                         "share/man/man1/attn.1", "share/man/man1/attn-run.1",
                         "share/man/man7/attn-masks.7",
                         "share/doc/attn/explained/general-attention.html",
                         "share/bash-completion/completions/attn", "share/zsh/site-functions/_attn",
                         "share/fish/vendor_completions.d/attn.fish"]:
                checks.check((prefix / file).is_file(), f"{file} is not installed")
            check_links(checks, prefix / "share/doc/attn")
            check_installed(checks, prefix)
    checks.finish()
