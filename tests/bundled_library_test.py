"""Libraries that are loaded on first use are looked for near the program, then on the system."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from support.attn import ATTN, assert_error, under_sanitizer

NAME = "libopenblas.so.0"
SVD = ["svd", "-"]  # of [[3.0]]: calls LAPACK


def path_of_blas(program, **options):
    """The path of the BLAS library that a program loads."""
    run = subprocess.run([program, "--version", "-v"], capture_output=True, text=True, check=True, **options)
    return pathlib.Path(re.search(r"^BLAS: .*?(/.*?)(?:, |\)|$)", run.stdout, re.MULTILINE)[1])


@pytest.fixture
def program(tmp_path):
    """A copy of the program in bin, beside an empty lib/attn."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib" / "attn").mkdir(parents=True)
    return pathlib.Path(shutil.copy(ATTN, tmp_path / "bin" / "attn"))


@pytest.fixture
def bundled(program, tmp_path):
    """A link to the system's OpenBLAS in the program's lib/attn."""
    file = tmp_path / "lib" / "attn" / NAME
    file.symlink_to(path_of_blas(program).resolve())
    return file


def test_library_of_the_system_is_loaded_if_none_is_bundled(program, tmp_path):
    assert tmp_path not in path_of_blas(program).parents


def test_bundled_library_is_preferred(program, bundled):
    assert path_of_blas(program) == bundled


def test_folder_beside_the_program_is_searched(program, bundled, tmp_path):
    beside = tmp_path / "bin" / "lib" / "attn" / NAME
    beside.parent.mkdir(parents=True)
    bundled.rename(beside)
    assert path_of_blas(program) == beside


def test_bundled_library_is_found_through_a_link_to_the_program(program, bundled, tmp_path):
    (tmp_path / "link").symlink_to(program)
    assert path_of_blas(tmp_path / "link") == bundled


def test_ld_library_path_does_not_replace_the_bundled_library(program, bundled, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / NAME).symlink_to(bundled.resolve())
    assert path_of_blas(program, env={**os.environ, "LD_LIBRARY_PATH": str(other)}) == bundled


def test_name_given_by_the_caller_does_not_move_the_search(program, bundled, tmp_path):
    other = tmp_path / "other" / "lib" / "attn"
    other.mkdir(parents=True)
    (other / NAME).write_text("not a library")
    run = subprocess.run([str(tmp_path / "other" / "bin" / "attn"), *SVD], executable=program, input=b"[[3.0]]", capture_output=True)
    assert (run.returncode, run.stderr) == (0, b"")


def test_bundled_file_that_is_no_library_is_an_error(program, tmp_path):
    """The system's library does not replace it without a message."""
    broken = tmp_path / "lib" / "attn" / NAME
    broken.write_text("not a library")
    run = subprocess.run([program, *SVD], input=b"[[3.0]]", capture_output=True)
    assert_error(run, 74, f"attn: -: OpenBLAS: {broken}: ")
    assert run.stderr.count(b"\n") == 1


@pytest.mark.skipif(under_sanitizer(), reason="LeakSanitizer does not work under strace")
@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_missing_library_is_named_in_one_line(program, tmp_path):
    opened = subprocess.run(["strace", "-o", "/dev/stderr", "-e", "trace=openat", program, *SVD],
                            input="[[3.0]]", capture_output=True, text=True, check=True)
    paths = {str(pathlib.Path(folder) / NAME) for folder in
             [*(pathlib.Path(path).parent for path in re.findall(r'"(/[^"]*\.so[^"]*)"', opened.stderr)),
              "/lib", "/usr/lib", "/lib64", "/usr/lib64", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"]}
    hide = [word for path in paths for word in ("-P", path)]
    run = subprocess.run(["strace", "-o", tmp_path / "trace", *hide, "-e", "trace=openat",
                          "-e", "inject=openat:error=ENOENT", program, *SVD], input=b"[[3.0]]", capture_output=True)
    assert_error(run, 74)
    message, = [line for line in run.stderr.decode().splitlines() if not line.startswith("strace: ")]
    assert message == (f"attn: -: OpenBLAS: {NAME}: cannot open shared object file: No such file or directory; "
                       f"install it, or copy it to {tmp_path}/lib/attn")
