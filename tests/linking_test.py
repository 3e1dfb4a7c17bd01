"""No module needs a symbol that only a module outside of its list in layering_test.py defines.

A header may declare what another module defines, so includes alone do not show all calls.
"""

import pathlib
import re
import subprocess

import pytest

from layering_test import MODULES
from support.attn import ATTN

ARCHIVES = pathlib.Path(ATTN).resolve().parent / "src" / "attn"


def symbols(text):
    """The names that an archive defines and those that it needs from others, from the output of nm -P."""
    found = re.findall(r"^(\S+) ([a-zA-Z])\b", text, re.MULTILINE)
    defined = {name for name, kind in found if kind.isupper() and kind != "U"}
    return defined, {name for name, kind in found if kind in "Uw"} - defined


def forbidden_needs(archives):
    """Each (module, needed name, modules that define it) of which none may be used. Archives are pairs as above."""
    owners = {}
    for module, (defined, _) in archives.items():
        for name in defined:
            owners.setdefault(name, set()).add(module)
    return sorted((module, name, sorted(owners[name])) for module, (_, needed) in archives.items()
                  for name in needed & owners.keys() if not owners[name] & MODULES[module])


@pytest.mark.build_folder
def test_modules_need_only_symbols_of_their_list():
    archives = {}
    for module in MODULES:
        nm = ["nm", "-P", ARCHIVES / f"libattn_{module}.a"]
        archives[module] = symbols(subprocess.run(nm, capture_output=True, text=True, check=True).stdout)
        assert archives[module][0], module
    assert forbidden_needs(archives) == []


PROBLEM = "libattn_problem.a[inputs.o]:\n_Zmake T 0 8\n_Zshape t 8 8\n_Zrotate U         \n_Zset U         \nmalloc U         \n"


@pytest.mark.parametrize("owner, allowed", [("attention", False), ("cache", False), ("tensor", True), ("kernel", True)])
def test_forbidden_needs_are_found(owner, allowed):
    archives = {"problem": symbols(PROBLEM), owner: symbols("a[b.o]:\n_Zrotate W 0 8\n_Zset t 0 8\n_Zshape U         \n")}
    assert forbidden_needs(archives) == ([] if allowed else [("problem", "_Zrotate", [owner])])
