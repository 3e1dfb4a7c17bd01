"""Modules include only the modules below them, and each dependency only its wrapper.

The rules are the tables below. The last tests break each rule on purpose, so a checker that misses
violations cannot pass.
"""

import re

import pytest

from support.attn import ROOT

SRC = ROOT / "src" / "attn"

# For each module, the other modules that it may include and link.
MODULES = {
    "base": set(),
    "tensor": {"base"},
    "io": {"tensor", "base"},
    "random": {"tensor", "base"},
    "kernel": {"base"},
    "problem": {"kernel", "tensor", "base"},
    "cache": {"problem", "tensor", "base"},
    "attention": {"problem", "kernel", "tensor", "base"},
    "bounds": {"attention", "problem", "tensor", "base"},
    "stats": {"attention", "problem", "tensor", "base"},
    "print": {"tensor", "base"},
    "metrics": {"print", "tensor", "base"},
    "draw": {"stats", "attention", "problem", "kernel", "tensor", "base"},
    "job": {"cache", "attention", "problem", "random", "io", "tensor", "base"},
    "model": {"job", "attention", "problem", "io", "tensor", "base"},
    "run": {"model", "job", "cache", "attention", "problem", "io", "tensor", "base"},
    "explain": {"job", "draw", "attention", "problem", "tensor", "base"},
    "examples": {"run", "job", "print", "attention", "problem", "random", "io", "tensor", "base"},
    "diagnose": {"bounds", "cache", "attention", "problem", "metrics", "tensor", "base"},
    "compare": {"diagnose", "run", "model", "job", "bounds", "attention", "problem", "metrics", "io", "tensor", "base"},
    "api": {"compare", "run", "model", "job", "problem", "io", "tensor", "base"},
    "batch": {"run", "model", "job", "attention", "problem", "metrics", "io", "tensor", "base"},
    "cli": {"batch", "compare", "diagnose", "examples", "explain", "run", "model", "job", "draw", "metrics", "print", "stats",
            "bounds", "cache", "attention", "problem", "random", "io", "tensor", "base"},
}

# (dependency, its headers, the files that may include them)
WRAPPERS = [
    ("CLI11", r"CLI/", r"cli/parser\.cpp"),
    ("nlohmann-json", r"nlohmann/", r"io/json[^/]*\.cpp"),
    ("zlib", r"zlib\.h", r"(io/(zip_directory|digest)|draw/deflate)\.cpp"),
    ("utf8proc", r"utf8proc\.h", r"base/utf8\.cpp"),
    ("libpng", r"png\.h", r"draw/png\.cpp"),
    ("FreeType", r"ft2build\.h|freetype", r"draw/glyphs\.cpp"),
    ("xxHash", r"xxhash\.h", r"io/digest\.cpp"),
    ("BLAS", r"xtensor-blas/|xflens/|cblas|lapack|openblas|f77blas", r"attention/(gemm|svd)\.cpp"),
    ("Highway", r"hwy/", r"kernel/[^/]+"),
    ("xtensor", r"xtensor/|xtl/|xsimd/", r".+\.cpp|tensor/array\.h"),
    ("tensor/array.h", r"attn/tensor/array\.h", r".+\.cpp"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def violations(path, text):
    """The forbidden includes of a file; `path` is relative to src/attn."""
    module = path.split("/")[0]
    found = []
    for quote, header in INCLUDE.findall(text):
        if quote == '"' and not header.startswith("attn/"):
            found.append(f'{path}: "{header}" is not relative to src, as "attn/MODULE/FILE.h"')
        elif header.startswith("attn/") and (module, header) != ("api", "attn/attn.h"):
            other = header.split("/")[1]
            if other != module and other not in MODULES[module]:
                found.append(f"{path}: {module} must not include {other}: {header}")
        for dependency, headers, files in WRAPPERS:
            if re.match(headers, header) and not re.fullmatch(files, path):
                found.append(f"{path}: only the wrapper of {dependency} may include {header}")
    return found


def sources(*suffixes):
    return [(path.relative_to(SRC).as_posix(), path.read_text(encoding="utf-8"))
            for suffix in suffixes for path in sorted(SRC.rglob(f"*{suffix}"))]


def test_every_module_has_a_rule():
    assert {folder.name for folder in SRC.iterdir() if folder.is_dir()} <= set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_includes_of_module(module):
    texts = [(path, text) for path, text in sources(".h", ".cpp") if path.startswith(f"{module}/")]
    assert [message for path, text in texts for message in violations(path, text)] == []


def test_nothing_uses_call_once():
    """An exception that leaves std::call_once() passes through the C library, which unwinds with another
    copy of the unwinder than the one linked into the program, and aborts."""
    assert [path for path, text in sources(".h", ".cpp")
            if "std::call_once" in re.sub("//.*", "", text)] == []


# Files that may use the standard streams, besides the one that escapes what it writes.
STREAMS = {
    "cli/terminal.cpp": "writes all lines that people read",
    "cli/batch_report.cpp": "reports progress in a signal handler",
    "io/mapped_file.cpp": "reports lost bytes in a signal handler",
    "io/open_file.cpp": "names of the streams",
    "io/staged_file.cpp": "writes outputs",
}


def writes_to_a_stream(text):
    code = re.sub(r"//.*", "", text)
    bare = re.sub(r'"(\\.|[^"\\\n])*"|(isatty|terminal_width)\(\w+\)', "", code)
    return bool(re.search(r'OutputFile \w+\("-"', code) or
                re.search(r"\b(std(out|err)|STD(OUT|ERR)_FILENO|std::c(out|err|log)|v?f?printf|f?puts|putchar|perror)\b", bare))


def test_one_file_writes_to_the_terminal():
    assert [path for path, text in sources(".h", ".cpp") if writes_to_a_stream(text) and path not in STREAMS] == []


@pytest.mark.parametrize("text", ["std::fputs(text, stderr);", 'printf("x");', "std::cout << name;", 'OutputFile out("-", {});'])
def test_writing_to_a_stream_is_found(text):
    assert writes_to_a_stream(text)


RANKS = re.compile(r"\b\w*[Tt]eams?\b|[Tt]eam_\w+|\bMPI_[A-Z]\w*|<mpi\.h>|\bRank[A-Z]\w*|attn-mpi/")


def test_ranks_are_an_executor_outside_of_src():
    assert [path for path, text in sources(".h", ".cpp") if RANKS.search(text)] == []


@pytest.mark.parametrize("text", ["Team* team = nullptr;", "MPI_Comm_rank(", "#include <mpi.h>", '#include "attn-mpi/share.h"',
                                  "team_run(job)", "RankExecutor executor;", "/// a member of a team"])
def test_code_of_ranks_is_found(text):
    assert RANKS.search(text)


def test_main_includes_only_the_command_line():
    main = (ROOT / "apps" / "attn" / "main.cpp").read_text(encoding="utf-8")
    assert {header for _, header in INCLUDE.findall(main) if header.startswith("attn/")} == {"attn/cli/cli.h"}


@pytest.mark.parametrize("module", MODULES)
def test_rule_of_module_is_enforced(module):
    for other in MODULES:
        found = violations(f"{module}/x.cpp", f'#include "attn/{other}/y.h"\n')
        assert bool(found) != (other == module or other in MODULES[module]), other


def test_no_two_modules_include_each_other():
    assert [(module, other) for module, others in MODULES.items() for other in others
            if module in MODULES[other]] == []


@pytest.mark.parametrize("path, include", [
    ("io/npz.cpp", "<CLI/CLI.hpp>"),
    ("cli/run.cpp", "<CLI/CLI.hpp>"),
    ("cli/parser.h", "<CLI/CLI.hpp>"),
    ("job/job.cpp", "<nlohmann/json.hpp>"),
    ("io/json_write.h", "<nlohmann/json_fwd.hpp>"),
    ("io/npy.cpp", "<zlib.h>"),
    ("attention/attention.cpp", "<xtensor-blas/xlinalg.hpp>"),
    ("attention/softmax.cpp", "<cblas.h>"),
    ("attention/attention.cpp", "<hwy/highway.h>"),
    ("attention/attention.h", "<xtensor/xtensor_forward.hpp>"),
    ("problem/inputs.h", '"attn/tensor/array.h"'),
    ("problem/inputs.cpp", '"inputs.h"'),
    ("problem/inputs.cpp", '"../io/npy.h"'),
])
def test_forbidden_include_is_found(path, include):
    assert violations(path, f"// first\n #  include {include}\n") != []


@pytest.mark.parametrize("path, include", [
    ("cli/parser.cpp", "<CLI/CLI.hpp>"),
    ("io/json_write.cpp", "<nlohmann/json.hpp>"),
    ("io/zip_directory.cpp", "<zlib.h>"),
    ("attention/gemm.cpp", "<xtensor-blas/xblas.hpp>"),
    ("attention/softmax.cpp", "<xtensor/xmath.hpp>"),
    ("tensor/array.h", "<xtensor/xadapt.hpp>"),
])
def test_permitted_include_is_accepted(path, include):
    assert violations(path, f"#include {include}\n") == []
