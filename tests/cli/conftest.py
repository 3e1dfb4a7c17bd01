"""Fixtures for the tests of the command line."""

import functools

import pytest

from support.attn import attn


@pytest.fixture
def compare(tmp_path):
    """Runs `attn compare` in the test's folder."""
    return functools.partial(attn, "compare", cwd=tmp_path)
