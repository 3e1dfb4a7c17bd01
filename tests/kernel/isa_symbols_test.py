"""Objects compiled for newer processors share no code with the rest of the program.

Inline functions, such as those of the standard library, are compiled into all objects that use them,
and the linker keeps one copy. A copy from the AVX-512 object would crash on other processors. So all
weak symbols of such an object must belong to its own namespace.
"""

import pathlib
import re
import subprocess

import pytest

from support.attn import ATTN, under_sanitizer

pytestmark = pytest.mark.build_folder
BUILD = pathlib.Path(ATTN).resolve().parent
NAMESPACES = {"avx2": "N_AVX2", "avx512": "N_AVX3"}


@pytest.fixture(scope="module")
def weak_functions():
    """The names of all weak functions in each object file of the kernels."""
    archive = BUILD / "src" / "attn" / "libattn_kernel.a"
    text = subprocess.run(["nm", "-C", "--defined-only", archive], check=True, capture_output=True,
                          text=True).stdout
    symbols = {}
    for line in text.splitlines():
        if line.endswith(".o:"):
            member = line[:-1]
            symbols[member] = []
        elif match := re.match(r"[0-9a-f]+ [Ww] (.*)", line):
            symbols[member].append(match[1])
    return symbols


@pytest.mark.skipif(under_sanitizer(), reason="sanitizers keep functions that are inlined otherwise")
@pytest.mark.parametrize("isa", NAMESPACES)
def test_weak_functions_belong_to_the_namespace_of_the_instruction_set(weak_functions, isa):
    objects = [member for member in weak_functions if f"kernels_{isa}." in member]
    assert objects
    own = re.compile(rf"\b{NAMESPACES[isa]}\b|\b{isa}_kernels\b")
    assert not [name for member in objects for name in weak_functions[member] if not own.search(name)]
