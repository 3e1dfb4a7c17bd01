"""Headers of one processor are included only where the compiler is for it, so that attn compiles for Arm."""

import re

import pytest

from support.attn import ROOT

SOURCES = sorted(path for folder in ("src", "apps", "tests") for suffix in ("h", "cpp")
                 for path in (ROOT / folder).rglob(f"*.{suffix}") if not path.name.startswith(("kernels_avx", "kernels_amx")))
OF_X86 = re.compile(r"#\s*include <(cpuid|[a-z0-9]*intrin)\.h>")


def unguarded(text):
    """Lines with such an include that no #if __x86_64__ surrounds."""
    conditions, found = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"#\s*if", line):
            conditions.append("__x86_64__" in line)
        elif re.match(r"#\s*el", line):
            conditions[-1] = "__x86_64__" in line
        elif re.match(r"#\s*endif", line):
            conditions.pop()
        elif OF_X86.match(line) and not any(conditions):
            found.append(number)
    return found


def test_headers_of_x86_are_included_for_x86_only():
    assert SOURCES
    assert {str(path.relative_to(ROOT)): lines for path in SOURCES
            if (lines := unguarded(path.read_text(encoding="utf-8")))} == {}


@pytest.mark.parametrize("text, lines", [("#include <cpuid.h>", [1]), ("#if defined(__x86_64__)\n#include <immintrin.h>\n#endif", []),
                                         ("#if A\n#include <x86intrin.h>\n#endif", [2]), ("#include <cstdint>", [])])
def test_an_include_without_a_condition_is_found(text, lines):
    assert unguarded(text) == lines
