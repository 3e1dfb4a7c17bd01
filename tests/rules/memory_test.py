"""No new estimate of memory multiplies a size by a constant set by hand: every allocation is checked
(docs/decisions/0021-memory-limit.md)."""

import re

from support.attn import ROOT

SRC = ROOT / "src" / "attn"

# Estimates of text, which no tensor charges. Do not add to these.
ALLOWED = {"job/random_spec.cpp", "draw/drawing_memory.cpp"}


def copies_constants(text):
    return re.findall(r"\bk\w*Copies\b", re.sub(r"//.*", "", text))


def test_no_estimate_multiplies_by_a_number_of_copies():
    found = {path.relative_to(SRC).as_posix() for path in [*SRC.rglob("*.cpp"), *SRC.rglob("*.h")]
             if copies_constants(path.read_text(encoding="utf-8"))}
    assert found <= ALLOWED


def test_such_constants_are_found():
    assert copies_constants("constexpr double kCopies = 3;\nsize * kTextCopies") == ["kCopies", "kTextCopies"]
    assert copies_constants("copies(tensor);  // kCopies") == []
