"""Only the table of formats knows the suffixes of files of tensors (src/attn/io/format.cpp)."""

import re

from support.attn import ROOT

SRC = ROOT / "src" / "attn"
TABLE = "io/format.cpp"


def compared_suffixes(text):
    return re.findall(r'(?:ends_with\(|== |!= )"(\.(?:npy|npz|safetensors))"', text)


def test_no_other_file_compares_a_suffix():
    assert [path.relative_to(SRC).as_posix() for path in sorted([*SRC.rglob("*.cpp"), *SRC.rglob("*.h")])
            if compared_suffixes(path.read_text(encoding="utf-8"))] == [TABLE]


def test_comparisons_are_found():
    assert compared_suffixes('path.ends_with(".npz") || suffix == ".npy" || text + ".npz"') == [".npz", ".npy"]
