"""Only src/attn/io knows one format of tensor files from another; other modules ask its row (io/format.h)."""

import re

import pytest

from support.attn import ROOT

SOURCES = [path for folder in ("src", "apps") for path in sorted((ROOT / folder).rglob("*"))
           if path.suffix in (".h", ".cpp")]
SUFFIX = r'\.(?:npz|npy|safetensors|json|csv)"'
CHOICE = re.compile(r'(?:ends_with\("|[=!]= "|case "|^constexpr .*= ")' + SUFFIX + r'|(?<!\w)Format::\w+')
READERS = "src/attn/io/"
# Suffixes of files that are no tensor files: a summary, statistics, a specification of random tensors.
OTHERS = {"src/attn/batch/summary.cpp", "src/attn/cli/stats.cpp", "src/attn/cli/random.cpp"}


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("line", [
    'if (path.ends_with(".npz")) return true;',
    'return suffix == ".safetensors";',
    'if (format == Format::npy) return;',
])
def test_the_pattern_finds_choices(line):
    assert CHOICE.search(line)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_choice_between_formats(path):
    if name_of(path).startswith(READERS) or name_of(path) in OTHERS:
        return
    lines = path.read_text().splitlines()
    found = [line.strip() for line in lines if CHOICE.search(line) and not line.strip().startswith("//")]
    assert found == []
