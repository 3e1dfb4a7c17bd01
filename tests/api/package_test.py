"""The installed library: programs in C and C++ find it with CMake, and it exports its interface only."""

import pathlib
import re
import subprocess

import pytest

from support.attn import ATTN, ROOT

BUILD = pathlib.Path(ATTN).resolve().parent
LIBRARY = BUILD / "libattn.so.0"

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="this build has no libattn (ATTN_LIBRARY)")

PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES C CXX)
find_package(attn 0.1 REQUIRED)
add_executable(in_c user.c)
target_link_libraries(in_c PRIVATE attn::attn)
add_executable(in_cpp user.cpp)
target_compile_features(in_cpp PRIVATE cxx_std_11)
target_link_libraries(in_cpp PRIVATE attn::attn)
"""

IN_CPP = r"""
#include <attn/attn.hpp>
#include <cstdio>

int main() {
  const double q[] = {1, 0, 0, 1};
  const std::size_t shape[] = {2, 2};
  const std::vector<attn_tensor> tensors{{"Q", "float64", 2, shape, nullptr, q}, {"K", "float64", 2, shape, nullptr, q}};
  const attn::Result result = attn::run(R"({"outputs": ["scores"], "V": "K"})", tensors);
  const attn_tensor scores = result.outputs().at(0);
  std::printf("%s %g\n", scores.name, static_cast<const double*>(scores.data)[0]);
  std::printf("%d\n", attn::compare({scores}, "{}", tensors).same());
  try {
    attn::run(R"({"caussal": true})", tensors);
  } catch (const attn::Error& error) {
    std::printf("%d %s\n", error.code(), error.what());
  }
}
"""


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def programs(module_path):
    """The folder with the programs in_c, which is the example of docs/library.md, and in_cpp."""
    run("cmake", "--install", BUILD, "--component", "library", "--prefix", module_path / "prefix")
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    (module_path / "user.c").write_text(re.search(r"^```c\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[1])
    (module_path / "user.cpp").write_text(IN_CPP)
    (module_path / "CMakeLists.txt").write_text(PROJECT)
    run("cmake", "-S", module_path, "-B", module_path / "build", f"-DCMAKE_PREFIX_PATH={module_path / 'prefix'}",
        "-DCMAKE_C_FLAGS=-Wall -Wextra -Wpedantic -Werror", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror")
    run("cmake", "--build", module_path / "build")
    return module_path / "build"


def test_example_in_c(programs):
    assert run(programs / "in_c") == "1.66048\n"


def test_program_in_cpp(programs):
    assert run(programs / "in_cpp").splitlines() == [
        "scores 1", "1", "65 unknown key 'caussal' (did you mean 'causal'?)"]


def test_exported_symbols():
    header = (ROOT / "include" / "attn" / "attn.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"^ATTN_API .*?(attn_\w+)\(", header, re.MULTILINE))
    exported = {line.split()[-1] for line in run("nm", "-D", "--defined-only", LIBRARY).splitlines()}
    assert len(declared) == 13
    assert exported == declared


def test_needed_libraries():
    """In particular, not the C++ library: other copies may be in the process."""
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", LIBRARY)))
    assert needed <= {"libc.so.6", "libm.so.6", "libz.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def test_old_enough_c_library():
    """Unused parts of the C++ library would need version 2.36 (arc4random)."""
    versions = {tuple(map(int, version.split("."))) for version in
                re.findall(r"GLIBC_([\d.]+)", run("objdump", "-T", LIBRARY))}
    assert max(versions) <= (2, 35)
