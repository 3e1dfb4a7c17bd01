"""A name of a type means one thing, in all modules. Aliases in .cpp files are abbreviations and do not count."""

import re

import pytest

from support.attn import ROOT

SRC = ROOT / "src" / "attn"
TYPE = re.compile(r"^(?:class|struct|enum class|enum) (\w+)(?: final)?(?: :[^{;]*)? \{", re.MULTILINE)
ALIAS = re.compile(r"^using (\w+) =", re.MULTILINE)
# The kernels, which know no options, have the normalisers and scores of jobs that they compute.
SAME_MEANING = {"Normaliser", "Score"}


def repeated(texts):
    """The names of types outside of classes that several of the texts define, with the keys of these."""
    owners = {}
    for path, text in texts.items():
        for name in TYPE.findall(text) + (ALIAS.findall(text) if path.endswith(".h") else []):
            owners.setdefault(name, set()).add(path)
    return {name: sorted(paths) for name, paths in owners.items() if len(paths) > 1 and name not in SAME_MEANING}


def test_types_have_names_of_their_own():
    assert repeated({path.relative_to(SRC).as_posix(): path.read_text(encoding="utf-8")
                     for suffix in (".h", ".cpp") for path in SRC.rglob(f"*{suffix}")}) == {}


@pytest.mark.parametrize("definition", ["struct Pair {\n  int a;\n};", "class Pair : public Base<int> {\n};",
                                        "enum class Pair : std::uint8_t {\n};", "using Pair = int;",
                                        "template <class T>\nstruct Pair {\n};"])
def test_repeated_names_are_found(definition):
    texts = {"a.cpp": "class Pair;\nstruct Pair {", "b.h": f"namespace attn {{\n\n{definition}\n}}"}
    assert repeated(texts) == {"Pair": ["a.cpp", "b.h"]}


@pytest.mark.parametrize("text", ["struct Outer {\n  struct Pair {\n  };\n};", "class Pair;", "struct Pair::State {",
                                  "using Pair = Outer::Pair;"])
def test_nested_types_declarations_and_abbreviations_are_no_repetition(text):
    assert repeated({"a.h": "struct Pair {\n};", "b.cpp": text}) == {}
