#!/usr/bin/env python3
"""Includes run along the arrows of the architecture, and each dependency has one door.

The rules stand here once, as data; the checks at the end break each of them on purpose, so that
this test is known to see what it looks for.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from support.attn import ROOT, Checks

# Which rooms a room may include from, besides itself.
ARROWS = {
    "base": set(),
    "tensor": {"base"},
    "io": {"tensor", "base"},
    "random": {"tensor", "base"},
    "kernel": {"tensor", "base"},
    "core": {"kernel", "tensor", "base"},
    "report": {"tensor", "base"},
    "job": {"core", "random", "io", "tensor", "base"},
    "result": {"job", "core", "io", "tensor", "base"},
    "explain": {"result", "job", "report", "core", "tensor", "base"},
    "examples": {"result", "job", "report", "core", "random", "io", "tensor", "base"},
    "batch": {"result", "job", "io", "tensor", "base"},
    "cli": {"batch", "examples", "explain", "result", "job", "report", "core", "random", "io",
            "tensor", "base"},
}

# Where a dependency's headers may be included: (what, its headers, the files that may).
DOORS = [
    ("CLI11", r"CLI/", r"cli/[^/]+\.cpp"),
    ("nlohmann-json", r"nlohmann/", r"io/json[^/]*\.cpp"),
    ("libzip", r"zip\.h", r"io/npz[^/]*\.cpp"),
    ("zlib", r"zlib\.h", r"io/(npz|checksum)\.cpp"),
    ("libpng", r"png\.h", r"report/png\.cpp"),
    ("FreeType", r"ft2build\.h|freetype", r"report/font\.cpp"),
    ("xxHash", r"xxhash\.h", r"io/digest\.cpp"),
    ("BLAS", r"xtensor-blas/|xflens/|cblas|lapack|openblas|f77blas", r"core/(gemm|svd)\.cpp"),
    ("Highway", r"hwy/", r"kernel/[^/]+"),
    ("xtensor", r"xtensor/|xtl/|xsimd/", r".+\.cpp|tensor/array\.h"),
    ("tensor/array.h", r"attn/tensor/array\.h", r".+\.cpp"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def faults(path, text):
    """What is wrong with the includes of the file at `path`, relative to src/attn."""
    room = path.split("/")[0]
    for mark, header in INCLUDE.findall(text):
        if mark == '"' and not header.startswith("attn/"):
            yield f'{path}: "{header}" is not named from src, as "attn/ROOM/FILE.h"'
        elif header.startswith("attn/"):
            other = header.split("/")[1]
            if other != room and other not in ARROWS[room]:
                yield f"{path}: {room} may not know {other}, yet includes {header}"
        for what, headers, files in DOORS:
            if re.match(headers, header) and not re.fullmatch(files, path):
                yield f"{path}: {what} has another door, yet {header} is included here"


def check_sources(checks):
    src = ROOT / "src" / "attn"
    rooms = {folder.name for folder in src.iterdir() if folder.is_dir()}
    checks.check(rooms <= set(ARROWS), f"rooms without a rule: {rooms - set(ARROWS)}")
    for file in sorted(src.rglob("*.h")) + sorted(src.rglob("*.cpp")):
        path = file.relative_to(src).as_posix()
        found = list(faults(path, file.read_text(encoding="utf-8")))
        checks.check(not found, "; ".join(found))
        # An exception that leaves std::call_once() passes through the C library, which then unwinds
        # with another copy of the unwinder than the one linked in: abort().
        checks.check("std::call_once" not in file.read_text(encoding="utf-8").replace("Not std::call_once", ""),
                     f"{path}: std::call_once")

    main = (ROOT / "apps" / "attn" / "main.cpp").read_text(encoding="utf-8")
    ours = {header for _, header in INCLUDE.findall(main) if header.startswith("attn/")}
    checks.check(ours == {"attn/cli/cli.h"}, f"main.cpp knows the command line only, not {ours}")


def check_the_rules_themselves(checks):
    for room, others in ARROWS.items():
        for other in ARROWS:
            seen = list(faults(f"{room}/x.cpp", f'#include "attn/{other}/y.h"\n'))
            allowed = other == room or other in others
            checks.check(bool(seen) != allowed, f"rule for {room} -> {other} is not kept")
            checks.check(not (other in others and room in ARROWS[other]),
                         f"{room} and {other} know each other")
    for path, include in [
        ("io/npz.cpp", "<CLI/CLI.hpp>"),
        ("cli/run.h", "<CLI/CLI.hpp>"),
        ("job/job.cpp", "<nlohmann/json.hpp>"),
        ("io/json.h", "<nlohmann/json_fwd.hpp>"),
        ("io/npy.cpp", "<zip.h>"),
        ("core/attention.cpp", "<xtensor-blas/xlinalg.hpp>"),
        ("core/softmax.cpp", "<cblas.h>"),
        ("core/attention.cpp", "<hwy/highway.h>"),
        ("core/attention.h", "<xtensor/xtensor_forward.hpp>"),
        ("core/inputs.h", '"attn/tensor/array.h"'),
        ("core/inputs.cpp", '"inputs.h"'),
        ("core/inputs.cpp", '"../io/npy.h"'),
    ]:
        checks.check(list(faults(path, f"// first\n #  include {include}\n")),
                     f"{include} in {path} goes unseen")
    for path, include in [
        ("cli/run.cpp", "<CLI/CLI.hpp>"),
        ("io/json.cpp", "<nlohmann/json.hpp>"),
        ("io/npz.cpp", "<zip.h>"),
        ("core/gemm.cpp", "<xtensor-blas/xblas.hpp>"),
        ("core/softmax.cpp", "<xtensor/xmath.hpp>"),
        ("tensor/array.h", "<xtensor/xadapt.hpp>"),
    ]:
        found = list(faults(path, f"#include {include}\n"))
        checks.check(not found, "; ".join(found))


if __name__ == "__main__":
    checks = Checks("layering")
    check_sources(checks)
    check_the_rules_themselves(checks)
    checks.finish()
