"""The relocatable archive that scripts/package makes of this build, and the sources of the Debian package.

scripts/release/test-packages tests packages that are built from a clean copy.
"""

import hashlib
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

import pytest

from support.attn import ATTN, ROOT, assert_error, under_sanitizer

BUILD = pathlib.Path(ATTN).resolve().parent


def read(path):
    return path.read_text(encoding="utf-8")


def make_archive(folder):
    command = [ROOT / "scripts" / "package", "--dist", folder, "--build", BUILD, "tar"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000", "ATTN_SKIP_SETUP": "1"}
    made = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert made.returncode == 0, made.stderr
    archive, = folder.glob("*.tar.xz")
    return archive


def has_static_libgfortran():
    found = subprocess.run(["gcc", "-print-file-name=libgfortran.a"], capture_output=True, text=True, check=False)
    return "/" in found.stdout


@pytest.mark.build_folder
@pytest.mark.skipif(under_sanitizer(), reason="packages are built without sanitizers")
@pytest.mark.skipif(not has_static_libgfortran(), reason="libgfortran.a is not installed (scripts/setup package)")
class TestArchive:
    @pytest.fixture(scope="class")
    def archive(self, class_path):
        return make_archive(class_path / "dist")

    @pytest.fixture(scope="class")
    def prefix(self, archive, class_path):
        """The unpacked archive, in a folder whose name has a space."""
        with tarfile.open(archive) as tar:
            tar.extractall(class_path / "to here")
        folder, = (class_path / "to here").iterdir()
        return folder

    @pytest.fixture(scope="class")
    def members(self, archive):
        with tarfile.open(archive) as tar:
            return tar.getmembers()

    @pytest.fixture(scope="class")
    def bill(self, prefix):
        return json.loads(read(prefix / "share" / "doc" / "attn" / "sbom.cdx.json"))

    def test_examples_pass_in_another_folder(self, prefix, tmp_path):
        check = subprocess.run([prefix / "bin" / "attn", "examples", "check"], cwd=tmp_path, env={},
                               capture_output=True)
        assert (check.returncode, check.stderr) == (0, b"")

    def test_programs_run_with_glibc_2_35(self, prefix):
        """The latest version of a symbol that any file needs (docs/install.md)."""
        files = [prefix / "bin" / "attn", *(prefix / "lib" / "attn").iterdir()]
        symbols = subprocess.run(["readelf", "-W", "--dyn-syms", *files], capture_output=True, text=True, check=True)
        versions = {tuple(map(int, each)) for each in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols.stdout)}
        assert (2, 34) <= max(versions) <= (2, 35)

    def test_openblas_is_that_of_the_archive(self, prefix, tmp_path):
        """A file of this name in LD_LIBRARY_PATH would be an error if it were opened."""
        (tmp_path / "libopenblas.so.0").write_text("not a library")
        svd = subprocess.run([prefix / "bin" / "attn", "svd", "-"], input=b"[[3.0]]", capture_output=True,
                             env={"LD_LIBRARY_PATH": str(tmp_path)})
        assert (svd.returncode, svd.stderr) == (0, b"")

    def test_openblas_needs_the_c_library_only(self, prefix):
        library = prefix / "lib" / "attn" / "libopenblas.so.0"
        entries = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", entries))
        assert needed <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}

    def test_openblas_is_small(self, prefix):
        """It contains the functions that attn calls, not all of OpenBLAS (37 MB on x86-64)."""
        assert (prefix / "lib" / "attn" / "libopenblas.so.0").stat().st_size < 30e6

    def test_broken_openblas_is_named(self, prefix, class_path):
        copy = class_path / "broken"
        shutil.copytree(prefix, copy)
        (copy / "lib" / "attn" / "libopenblas.so.0").write_text("not a library")
        svd = subprocess.run([copy / "bin" / "attn", "svd", "-"], input=b"[[3.0]]", capture_output=True)
        assert_error(svd, 74, "libopenblas.so.0")
        assert svd.stderr.count(b"\n") == 1

    def test_digest_belongs_to_the_archive(self, archive):
        digest, name = read(archive.with_name(archive.name + ".sha256")).split()
        assert (digest, name) == (hashlib.sha256(archive.read_bytes()).hexdigest(), archive.name)

    def test_second_archive_is_the_same(self, archive, tmp_path):
        assert make_archive(tmp_path).read_bytes() == archive.read_bytes()

    def test_files_belong_to_root(self, members):
        assert {(member.uid, member.gid, member.uname) for member in members} == {(0, 0, "")}

    def test_times_are_those_of_the_commit(self, members):
        assert {member.mtime for member in members} == {1700000000}

    def test_files_are_sorted(self, archive):
        """tar sorts the entries of each folder, so the whole paths are in order but for "/"."""
        listed = subprocess.run(["tar", "-t"], input=lzma.decompress(archive.read_bytes()), capture_output=True,
                                check=True).stdout.decode().splitlines()
        assert listed == sorted(listed, key=lambda path: path.rstrip("/").split("/"))

    def test_bill_of_materials_states_versions_and_licences(self, bill):
        libraries = [part for part in bill["components"] if part["type"] != "file"]
        assert len(libraries) > 15
        assert not [part["name"] for part in libraries if not (part["version"] and part["licenses"])]

    def test_bill_of_materials_has_the_digests_of_bundled_files(self, bill, prefix):
        stated = {part["name"]: part["hashes"][0]["content"] for part in bill["components"] if part["type"] == "file"}
        folder = prefix / "lib" / "attn"
        name = "libopenblas.so.0"
        assert stated == {name: hashlib.sha256((folder / name).read_bytes()).hexdigest()}

    def test_contains_a_licence_for_each_component(self, bill, prefix):
        packages = [re.search(r"debian/([^@]+)@", part["purl"])[1] for part in bill["components"] if "purl" in part]
        licenses = prefix / "share" / "doc" / "attn" / "licenses"
        assert not [name for name in packages if not (licenses / f"{name}.txt").stat().st_size]

    def test_contains_the_texts_that_licences_refer_to(self, prefix):
        licenses = prefix / "share" / "doc" / "attn" / "licenses"
        named = {name for file in licenses.iterdir()
                 for name in re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", file.read_text(encoding="utf-8"))}
        assert named
        assert not [name for name in named if not (licenses / f"{name}.txt").exists()]


class TestDebianPackage:
    def test_version_is_that_of_the_project(self):
        version = re.search(r"project\(attn VERSION ([\d.]+)", read(ROOT / "CMakeLists.txt"))[1]
        assert read(ROOT / "debian" / "changelog").startswith(f"attn ({version}) ")

    def test_requires_what_scripts_setup_installs(self):
        """Debian's builders have a compiler; debhelper and Python are needed for packaging alone."""
        setup = set(re.findall(r"^build +(\S+)", read(ROOT / "scripts" / "setup"), re.MULTILINE))
        fields = re.search(r"^Build-Depends:\n((?: .*\n)+)", read(ROOT / "debian" / "control"), re.MULTILINE)[1]
        debian = set(re.findall(r"^ ([\w.+-]+)", fields, re.MULTILINE))
        assert debian - {"debhelper-compat", "python3"} == setup - {"g++"}

    def test_licence_is_that_of_the_project(self):
        copyright = re.sub(r"^ \.?", "", read(ROOT / "debian" / "copyright"), flags=re.MULTILINE)
        licence = re.search(r"^License: Expat\n(.*?)^Files:", copyright, re.MULTILINE | re.DOTALL)[1]
        assert read(ROOT / "LICENSE").split("\n\n", 2)[2].split() == licence.split()


class TestInstallPage:
    @pytest.fixture(scope="class")
    def page(self):
        return read(ROOT / "docs" / "install.md")

    def test_names_of_packages_are_those_of_scripts_setup(self, page):
        table = re.search(r"^others='\n(.*?)^'", read(ROOT / "scripts" / "setup"), re.MULTILINE | re.DOTALL)[1]
        rows = [[cell.strip("` ") for cell in row.split("|")[1:5]]
                for row in re.findall(r"^\| `.*", page.split("| Debian, Ubuntu |")[1].split("\n\n")[0], re.MULTILINE)]
        assert rows == [line.split() for line in table.splitlines()]

    def test_lists_the_options_of_the_build(self, page):
        cmake = read(ROOT / "CMakeLists.txt")
        defined = dict(re.findall(r"^option\((ATTN_\w+) .* (ON|OFF)\)", cmake, re.MULTILINE))
        listed = dict(re.findall(r"^\| `(ATTN_\w+)` \| (ON|OFF) ", page, re.MULTILINE))
        assert listed == defined

    def test_readme_names_the_same_wheel(self, page):
        wheel, = set(re.findall(r"attn-[\d.]+-py3-none-\w+\.whl", page))
        assert f"pip install ./{wheel} " in read(ROOT / "README.md")


class TestReleaseWorkflow:
    @pytest.fixture(scope="class")
    def workflow(self):
        return read(ROOT / ".github" / "workflows" / "release.yml")

    def test_runs_scripts_that_exist(self, workflow):
        named = re.findall(r"run: (scripts/\S+)", workflow)
        assert len(named) >= 4
        assert [name for name in named if not os.access(ROOT / name, os.X_OK)] == []

    @pytest.mark.parametrize("tag, matches", [("v{}", True), ("v9.9.9", False)])
    def test_tag_is_that_of_the_version(self, workflow, tag, matches):
        version = re.search(r"project\(attn VERSION ([\d.]+)", read(ROOT / "CMakeLists.txt"))[1]
        command = re.search(r"run: (grep .*)", workflow)[1]
        check = subprocess.run(["sh", "-c", command], cwd=ROOT, env={"GITHUB_REF_NAME": tag.format(version), "PATH": "/usr/bin:/bin"})
        assert (check.returncode == 0) == matches
