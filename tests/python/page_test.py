"""The Python sessions in docs/python.md and README.md print what the pages show."""

import doctest

import pytest

from support.attn import ROOT


@pytest.mark.parametrize("page", ["docs/python.md", "README.md"])
def test_session(attn_module, page):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.testfile(str(ROOT / page), module_relative=False, optionflags=flags, verbose=False)
    assert (failed, tried > 0) == (0, True)
