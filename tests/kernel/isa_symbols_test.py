#!/usr/bin/env python3
"""No function that every machine runs may come from a file compiled for a better one.

Inline functions (of the standard library, say) are compiled into every file that uses them and the
linker keeps one copy. A copy from the AVX-512 file would crash other machines. So those files may
share no weak symbol with the rest: all that they define carries their own namespace.
"""
import os
import re
import subprocess
import sys

ARCHIVE = os.path.join(os.path.dirname(os.environ["ATTN"]), "src", "attn", "libattn_kernel.a")
NAMESPACE = {"avx2": "N_AVX2", "avx512": "N_AVX3"}


def weak_symbols(archive):
    """{object file: names of its weak symbols that are code}"""
    text = subprocess.run(["nm", "-C", "--defined-only", archive], check=True,
                          capture_output=True, text=True).stdout
    symbols, member = {}, None
    for line in text.splitlines():
        if line.endswith(".o:"):
            member = line[:-1]
            symbols[member] = []
        elif match := re.match(r"[0-9a-f]+ [Ww] (.*)", line):
            symbols[member].append(match.group(1))
    return symbols


def main():
    with open(os.path.join(os.path.dirname(os.environ["ATTN"]), "CMakeCache.txt")) as cache:
        if re.search(r"^ATTN_SANITIZE:STRING=.+", cache.read(), re.M):
            print("sanitizers keep functions apart that are inlined otherwise: 0 passed, 0 failed")
            return 0
    passed = failed = 0
    for member, names in weak_symbols(ARCHIVE).items():
        for isa, namespace in NAMESPACE.items():
            if f"kernels_{isa}." not in member:
                continue
            own = re.compile(rf"\b{namespace}\b|\b{isa}_kernels\b")
            foreign = [name for name in names if not own.search(name)]
            for name in foreign:
                print(f"{member}: shares {name}")
            failed += bool(foreign)
            passed += not foreign
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or passed == 0 else 0


sys.exit(main())
