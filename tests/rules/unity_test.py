"""Names in anonymous namespaces are unique within a folder.

CMake compiles the sources of a folder together (docs/decisions/0014-unity-builds.md), and two declarations of a
name do not compile in one unity file. Overloads in two files would, but confuse readers.
"""

import re

import pytest

from support.attn import ROOT

FOLDERS = [folder for parent in ("src/attn", "tests", "apps") for folder in sorted((ROOT / parent).iterdir())
           if folder.is_dir() and folder.name != "fuzz"]  # each fuzz target is a program of its own

DECLARATION = re.compile(r"""
    (?:class|struct|enum\ class|enum|union)\ (?:\[\[\w+\]\]\ )?(\w+)[^;()]*[{:]
  | using\ (\w+)\ =
  | [^=({]*?[\s&*](\w+)\(                              # a function
  | [^=({\[]*?[\s&*](\w+)\s*(?:\[[^=]*\]\s*)?[={;]  # a variable
""", re.VERBOSE)
FURTHER = re.compile(r", (k[A-Z]\w*)\s*[={]")  # constants after the first
SKIPPED = ("//", "}", "#", "template", "static_assert", "using namespace", "public:", "private:", " ")


def anonymous_names(text):
    """The names that a source declares in its anonymous namespaces, if clang-format has laid it out."""
    names, inside, head = set(), False, ""
    for line in text.splitlines():
        if line.startswith("namespace {"):
            inside = True
        elif line.startswith("}  // namespace"):
            inside = False
        elif inside and line and (head or not line.startswith(SKIPPED)):
            head += " " + line.split("  //")[0].strip()
            if re.search(r"[({=;]", head):  # before these, clang-format may break the line
                if match := DECLARATION.match(head.strip()):
                    names.add(match[match.lastindex])
                    names.update(FURTHER.findall(head))
                head = ""
    return names


def repeated_names(sources):
    """Of files, given as (name, text): "NAME in FILE, FILE"."""
    files = {}
    for path, text in sources:
        for name in anonymous_names(text):
            files.setdefault(name, []).append(path)
    return [f"{name} in {', '.join(paths)}" for name, paths in files.items() if len(paths) > 1]


def foreign_constants(sources, headers):
    """Constants of an anonymous namespace that another file uses: it compiles in a unity file only."""
    own = {path: {name for name in anonymous_names(text) if re.match(r"k[A-Z]", name)} for path, text in sources}
    found = []
    for path, text in sources:
        code = re.sub(r"//.*|\"(\\.|[^\"\\])*\"", "", text)
        for other, names in own.items():
            found += [f"{name} of {other} in {path}" for name in sorted(names) if other != path and
                      re.search(rf"\b{name}\b", code) and not re.search(rf"const[^;]*\b{name}\b", code + headers)]
    return found


HEADERS = "".join(path.read_text(encoding="utf-8") for parent in ("src", "apps", "tests") for path in sorted((ROOT / parent).rglob("*.h")))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_each_file_declares_its_constants(folder):
    sources = [(path.name, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.cpp"))]
    assert foreign_constants(sources, HEADERS) == []


def test_a_constant_of_another_file_is_found():
    declaring = "namespace {\nconstexpr int kMost = 3;\n}  // namespace\n"
    sources = [("a.cpp", declaring), ("b.cpp", "int x = kMost;  // kMost\n")]
    assert foreign_constants(sources, "") == ["kMost of a.cpp in b.cpp"]
    assert foreign_constants(sources, "inline constexpr int kMost = 3;") == []
    assert foreign_constants([("a.cpp", declaring), ("b.cpp", "// kMost\n")], "") == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_names_are_unique(folder):
    assert repeated_names((path.name, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.cpp"))) == []


def test_a_repeated_name_is_found():
    source = "namespace {{\nint count_of(int {}) {{\n}}\n}}  // namespace\n"
    assert repeated_names([("a.cpp", source.format("a")), ("b.cpp", source.format("b"))]) == ["count_of in a.cpp, b.cpp"]


def test_all_kinds_of_declarations_are_found():
    assert anonymous_names("""namespace attn {
namespace {

constexpr std::size_t kMost = 3, kLeast{1};
const std::array<int, 2> kPair{1, 2};
constexpr std::pair<std::string_view, std::string_view>
    kLong = {"a", "b"};
thread_local std::vector<std::string>* names = nullptr;
char text[8] = {};
using Words = std::vector<std::string>;
struct Row {
  int member = 0;
};
struct Derived final
    : Row {
  int other = 0;
};
enum class Kind { one, two };
/// Comment.
std::string text_of(const Row& row) {
  int local = 0;
}
std::map<std::string, std::vector<std::string>>
joined(int x) {
}
[[noreturn]] void fail(int x);
extern "C" void handle(int) {}
struct stat status_of(int fd) {
}
template <class T>
T* find(int x) {
}
}  // namespace

int outside(int x) {
}
}  // namespace attn
""") == {"kMost", "kLeast", "kPair", "kLong", "names", "text", "Words", "Row", "Derived", "Kind", "text_of", "joined", "fail",
         "handle", "status_of", "find"}
