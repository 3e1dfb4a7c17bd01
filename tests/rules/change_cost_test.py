"""What an addition costs: stored patches that apply to the sources, compile, and touch few files."""

import os
import re
import shutil
import subprocess

import pytest

from support.attn import ROOT, under_sanitizer

# Patch, most files, and sources that do not compile if a table, the formula or an interpreter lacks a case.
PATCHES = [
    ("row_output.patch", 4, ["attention/row_statistics", "attention/plan", "attention/attention", "bounds/expected_error"]),
    ("option_tensor.patch", 7,
     ["problem/shapes", "attention/tensor_ops", "attention/gradients", "attention/plan", "bounds/expected_error",
      "bounds/gradient_error", "job/fields"]),
]


def changed_files(text):
    return re.findall(r"^\+\+\+ b/(\S+)", text, re.MULTILINE)


@pytest.mark.skipif(under_sanitizer(), reason="the sources are the same in the release build")
@pytest.mark.parametrize("name, most, sources", PATCHES, ids=[patch[0] for patch in PATCHES])
def test_an_addition_touches_few_files(name, most, sources, tmp_path):
    path = ROOT / "tests" / "rules" / name
    assert 0 < len(changed_files(path.read_text())) <= most
    shutil.copytree(ROOT / "src", tmp_path / "src")
    subprocess.run(["patch", "--quiet", "--strip=1", f"--input={path}"], cwd=tmp_path, check=True)
    compiler = [os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Isrc"]
    unit = "".join(f'#include "attn/{source}.cpp"\n' for source in sources)  # reads all headers once
    (tmp_path / "unit.cpp").write_text(unit)
    subprocess.run([*compiler, "unit.cpp"], cwd=tmp_path, check=True)


def test_a_patch_without_its_case_in_the_formula_does_not_compile(tmp_path):
    """The check above finds what is missing."""
    shutil.copytree(ROOT / "src", tmp_path / "src")
    path = tmp_path / "src/attn/problem/output_table.h"
    path.write_text(path.read_text().replace("  keys_95,\n", "  keys_95,\n  top_weight,\n", 1))
    run = subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", "-Isrc",
                          "src/attn/attention/row_statistics.cpp"], cwd=tmp_path, capture_output=True)
    assert run.returncode != 0
