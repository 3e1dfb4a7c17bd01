"""The inner loops that scripts/bench/kernel-asm finds in the object file of the AVX2 kernels."""

import pathlib
import shutil
import subprocess

import pytest

from support.attn import ATTN, ROOT, under_sanitizer

OBJECT = (pathlib.Path(ATTN).resolve().parent / "src" / "attn" / "CMakeFiles" / "attn_kernel.dir" / "kernel"
          / "kernels_avx2.cpp.o")


@pytest.mark.skipif(under_sanitizer(), reason="sanitizers change the loops")
@pytest.mark.skipif(not OBJECT.exists() or shutil.which("llvm-mca") is None,
                    reason="needs llvm-mca and the kernels for x86-64")
def test_inner_loops_take_at_most_21_instructions_for_12_multiply_adds():
    run = subprocess.run([ROOT / "scripts" / "bench" / "kernel-asm", "--object", OBJECT], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
