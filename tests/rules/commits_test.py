"""Subjects of commits: at most 72 characters and one change (CONTRIBUTING.md)."""

import shutil
import subprocess

import pytest

from support.attn import ROOT

CHECKED_SINCE = "16b52e91"  # earlier subjects are longer


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)


def problems(subject):
    """What is wrong with a subject."""
    return [text for is_wrong, text in ((len(subject) > 72, "is longer than 72 characters"), (";" in subject, "has a semicolon"),
                                        (subject.endswith("."), "ends with a full stop")) if is_wrong]


@pytest.fixture(scope="module")
def subjects():
    if not shutil.which("git") or git("rev-parse", "--show-toplevel").stdout.strip() != str(ROOT):
        pytest.skip("not a clone")
    log = git("log", "--format=%s", "--no-merges", f"{CHECKED_SINCE}..HEAD")
    if log.returncode != 0:
        pytest.skip(f"this clone has no commit {CHECKED_SINCE}")
    return log.stdout.splitlines()


def test_subjects_are_short_and_name_one_change(subjects):
    assert [subject for subject in subjects if problems(subject)] == []


def test_wrong_subjects_are_found():
    assert problems("Add a flag") == []
    assert problems("x" * 72) == []
    assert problems("x" * 73) == ["is longer than 72 characters"]
    assert problems("Add a flag; remove another.") == ["has a semicolon", "ends with a full stop"]
