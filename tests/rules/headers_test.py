"""Each header says in its first line what it is for."""

import pytest

from support.attn import ROOT


def says_what_it_is_for(text):
    first = text.split("\n")[0]
    return first.startswith(("// ", "/* ")) and len(first) > len("// A title.")


def test_headers_begin_with_their_purpose():
    headers = [path for folder in ("include", "src", "apps") for path in (ROOT / folder).rglob("*.h")]
    assert len(headers) > 100
    assert [path.name for path in headers if not says_what_it_is_for(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("start", ["#pragma once", "//", ""])
def test_headers_without_purpose_are_found(start):
    assert says_what_it_is_for("// Tensors of one type.\n")
    assert not says_what_it_is_for(f"{start}\n// Tensors of one type.\n")
