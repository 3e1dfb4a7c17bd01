"""What `cmake --install` installs works without the source tree."""

import pathlib
import re
import shutil
import subprocess

import pytest

from support.attn import ATTN, ROOT

pytestmark = pytest.mark.build_folder


def run(command, cwd):
    return subprocess.run([str(part) for part in command], cwd=cwd, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60)


def install(prefix):
    """Installs the program and returns the list of its files, which CMake writes to the build folder. A
    list of a user's installation, which is already there, is kept."""
    build = pathlib.Path(ATTN).resolve().parent
    list_of_files = build / "install_manifest.txt"
    earlier = list_of_files.read_bytes() if list_of_files.exists() else None
    installed = run(["cmake", "--install", build, "--prefix", prefix], prefix.parent)
    assert installed.returncode == 0, installed.stderr
    files = list_of_files.read_bytes()
    if earlier is None:
        list_of_files.unlink()
    else:
        list_of_files.write_bytes(earlier)
    return files


@pytest.fixture(scope="module")
def prefix(module_path):
    """The installed program, in a folder whose name has a space."""
    install(module_path / "to here")
    return module_path / "to here"


@pytest.mark.parametrize("file", [
    "bin/attn",
    "share/doc/attn/README.md",
    "share/doc/attn/LICENSE",
    "share/man/man1/attn.1",
    "share/man/man1/attn-run.1",
    "share/man/man7/attn-masks.7",
    "share/doc/attn/explained/general-attention.html",
    "share/bash-completion/completions/attn",
    "share/zsh/site-functions/_attn",
    "share/fish/vendor_completions.d/attn.fish",
])
def test_file_is_installed(prefix, file):
    assert (prefix / file).is_file()


def test_links_of_pages_lead_to_installed_files(prefix):
    """Links to tests are excepted: these are not installed."""
    links = [(page, link) for page in (prefix / "share" / "doc" / "attn").rglob("*.md")
             for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
             if "/tests/" not in link]
    assert len(links) > 30
    assert not [(page.name, link) for page, link in links if not (page.parent / link).exists()]


def test_version_is_that_of_the_project(prefix):
    project = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    number = re.search(r"project\(attn VERSION ([\d.]+)", project)[1]
    version = run([prefix / "bin" / "attn", "--version"], prefix)
    assert version.returncode == 0, version.stderr
    assert number in version.stdout


def test_examples_pass_with_the_installed_data(prefix):
    check = [prefix / "bin" / "attn", "examples", "check"]
    passed = run(check, prefix)
    assert passed.returncode == 0, passed.stderr
    shutil.move(prefix / "share" / "attn" / "examples", prefix / "elsewhere")
    assert run(check, prefix).returncode != 0, "the examples were read from outside the prefix"


@pytest.mark.parametrize("file", ["apps/CMakeLists.txt", "cmake/explained.cmake"])
def test_demo_builds_all_installed_targets(file):
    """README.md installs after scripts/demo, so the demo must build everything that is installed."""
    demo = (ROOT / "scripts" / "demo").read_text(encoding="utf-8")
    built = re.search(r"^scripts/build release ([\w ]*\w)", demo, re.MULTILINE)[1].split()
    targets = re.findall(r"add_custom_target\((\w+) ALL", (ROOT / file).read_text(encoding="utf-8"))
    assert targets
    assert set(targets) <= set(built)


def uninstall(files):
    """What the target `uninstall` runs."""
    return run(["cmake", f"-DMANIFEST={files}", "-P", ROOT / "cmake" / "uninstall.cmake"], files.parent)


class TestUninstall:
    @pytest.fixture(scope="class")
    def left(self, class_path):
        """The files and folders of a prefix after installation, one more file, and uninstallation."""
        prefix = class_path / "from here"
        (class_path / "files.txt").write_bytes(install(prefix))
        (prefix / "share" / "man" / "man1" / "other.1").touch()
        removed = uninstall(class_path / "files.txt")
        assert removed.returncode == 0, removed.stderr
        return list(prefix.rglob("*"))

    def test_removes_each_installed_file(self, left):
        assert [path.name for path in left if path.is_file()] == ["other.1"]

    def test_removes_the_folders_of_attn(self, left):
        assert not [path for path in left if path.name == "attn"]

    def test_without_an_installation_is_an_error(self, tmp_path):
        removed = uninstall(tmp_path / "none.txt")
        assert removed.returncode != 0
        assert "Nothing to uninstall" in removed.stderr
