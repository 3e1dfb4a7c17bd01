"""Processors without AVX2 run the baseline kernels."""

import os
import shutil
import subprocess

import pytest

from support.attn import ATTN, under_sanitizer

QEMU = shutil.which("qemu-x86_64")


def test_examples_pass_with_the_baseline_kernels():
    facts = subprocess.run([ATTN, "--version", "-v"], capture_output=True, text=True).stdout
    if "(of baseline" not in facts:
        pytest.skip("built without the baseline kernels (ATTN_ISAS)")
    check = subprocess.run([ATTN, "examples", "check"], env={**os.environ, "ATTN_ISA": "baseline"},
                           capture_output=True)
    assert (check.returncode, check.stderr) == (0, b"")


@pytest.mark.skipif(not QEMU, reason="qemu-x86_64 is not installed (scripts/setup arm)")
@pytest.mark.skipif(under_sanitizer(), reason="sanitizers do not run in QEMU")
class TestProcessorWithoutAvx2:
    def run(self, *args):
        return subprocess.run([QEMU, "-cpu", "Nehalem", ATTN, *args], capture_output=True, text=True)

    def test_baseline_is_chosen(self):
        assert "\nkernels: baseline (of baseline)\n" in self.run("--version", "-v").stdout

    def test_examples_pass(self):
        check = self.run("examples", "check", "--data", os.path.join(os.path.dirname(__file__), "../../data/examples"))
        assert (check.returncode, check.stderr) == (0, "")
