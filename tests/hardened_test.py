"""Hardening: how the binary is built, which system calls it makes, and that its what it prints is safe.

readelf shows the build. strace shows that a run starts no other program, opens no socket and writes
nothing outside the requested folder.
"""

import json
import pathlib
import pickle
import platform
import re
import shutil
import subprocess
import unicodedata

import numpy as np
import pytest

from support.attn import ATTN, attn, under_sanitizer
from support.checkpoints import write_tensors


def readelf(flag):
    return subprocess.run(["readelf", "-W", flag, ATTN], capture_output=True, text=True, check=True).stdout


def is_optimised():
    cache = pathlib.Path(ATTN).parent / "CMakeCache.txt"
    return cache.exists() and "CMAKE_BUILD_TYPE:STRING=Release" in cache.read_text()


@pytest.mark.skipif(under_sanitizer(), reason="a sanitizer changes how the binary is built")
class TestBinary:
    @pytest.fixture(scope="class")
    def segments(self):
        return readelf("-l")

    @pytest.fixture(scope="class")
    def dynamic(self):
        return readelf("-d")

    @pytest.fixture(scope="class")
    def symbols(self):
        return readelf("--dyn-syms")

    def test_is_position_independent(self, dynamic):
        assert re.search(r"Type:\s+DYN", readelf("-h"))
        assert "PIE" in dynamic

    def test_has_full_relro(self, segments, dynamic):
        assert "GNU_RELRO" in segments
        assert "BIND_NOW" in dynamic

    def test_stack_is_not_executable(self, segments):
        assert " RW " in re.search(r"GNU_STACK.*", segments)[0]
        assert "RWE" not in segments

    def test_no_segment_is_writable_and_executable(self, segments):
        loads = re.findall(r"LOAD .*", segments)
        assert loads
        assert not [line for line in loads if re.search(r"\bRWE|\bW E", line)]

    def test_has_stack_protectors(self, symbols):
        assert "__stack_chk_fail" in symbols

    @pytest.mark.skipif(not is_optimised(), reason="only optimised builds are fortified")
    def test_libc_calls_are_fortified(self, symbols):
        assert re.search(r"__(memcpy|snprintf|fprintf|read|vsnprintf)_chk", symbols)

    @pytest.mark.skipif(not is_optimised(), reason="only optimised builds check indices")
    def test_indices_of_the_standard_library_are_checked(self):
        assert b"__n < this->size()" in pathlib.Path(ATTN).read_bytes()

    @pytest.mark.skipif(platform.machine() != "x86_64", reason="an instruction of x86")
    def test_functions_begin_with_branch_targets(self):
        """endbr64, of -fcf-protection; more than in the static C++ library, which has them, too."""
        assert pathlib.Path(ATTN).read_bytes().count(b"\xf3\x0f\x1e\xfa") > 10000

    def test_has_no_library_paths(self, dynamic):
        assert "RPATH" not in dynamic
        assert "RUNPATH" not in dynamic

    def test_has_no_text_relocations(self, dynamic):
        assert "TEXTREL" not in dynamic

    @pytest.mark.parametrize("name", ["system", "popen", "execve", "execvp", "posix_spawn", "gets", "tmpnam",
                                      "mktemp", "connect", "socket", "getaddrinfo"])
    def test_does_not_import(self, symbols, name):
        assert not re.search(rf" {name}(@|$)", symbols, re.MULTILINE)


@pytest.mark.skipif(under_sanitizer(), reason="sanitizers make system calls")
@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
class TestSystemCalls:
    """No file makes the program run code, open a socket or write elsewhere."""

    RUNS = {
        "run": (["run", "job.json", "-o", "out.npz", "--view=page.html"], 0),
        "pickle": (["inspect", "evil.npy"], 65),
        "URL": (["run", "load.json"], 66),
        "convert": (["convert", "q.npz", "-o", "again.npz"], 0),
        "svd": (["svd", "q.npz#Q", "-o", "svd/"], 0),
        "shell command in a name": (["run", "q.npz#Q; touch canary"], 65),
    }

    @staticmethod
    def make_files(folder):
        class Evil:
            def __reduce__(self):
                return pathlib.Path.touch, (folder / "canary",)

        (folder / "evil.npy").write_bytes(
            b"\x93NUMPY\x01\x00\x46\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
            .ljust(79) + b"\n" + pickle.dumps([Evil()]))
        np.savez(folder / "q.npz", Q=np.eye(3), K=np.eye(3), **{"../../up": np.eye(2)})
        (folder / "job.json").write_text(json.dumps(
            {"Q": "q.npz#Q", "K": "q.npz#K", "tokens": ["$(touch canary)", "`touch canary`", "|sh"]}))
        (folder / "load.json").write_text(json.dumps(
            {"Q": "http://localhost/q.npy", "K": "file:///etc/passwd"}))

    @pytest.fixture(scope="class", params=RUNS)
    def traced(self, request, module_path):
        """The folder of a run, its exit code, the expected one, and its system calls as lines."""
        args, expected = self.RUNS[request.param]
        folder = module_path / request.param
        folder.mkdir()
        self.make_files(folder)
        command = ["strace", "-f", "-qq", "-o", "/dev/stderr", "-e",
                   "trace=execve,socket,connect,creat,open,openat,rename,renameat2,link,linkat,unlink,"
                   "mkdir,symlink,chmod", ATTN, *args]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        return folder, run.returncode, expected, [line for line in run.stderr.splitlines() if "(" in line]

    def test_exit_code(self, traced):
        _, code, expected, _ = traced
        assert code == expected

    def test_no_other_program_is_started(self, traced):
        *_, calls = traced
        assert len([line for line in calls if "execve(" in line]) == 1

    def test_no_socket_is_opened(self, traced):
        *_, calls = traced
        assert not [line for line in calls if "socket(" in line or "connect(" in line]

    def test_nothing_is_written_outside_the_folder(self, traced):
        *_, calls = traced
        writes = [line for line in calls if re.search(r"O_WRONLY|O_RDWR|rename|mkdir|link", line)
                  and "unlink" not in line]
        assert not [line for line in writes if re.search(r'"(/(?!dev/)|[^"]*\.\./)', line)]

    def test_no_code_of_a_file_is_run(self, traced):
        folder, *_ = traced
        assert not (folder / "canary").exists()


CONTROLS = ["\x1b[31m", "\x1b]0;title\x07", "\r", "\x9b2J", "\u202e", "\x08", "\x7f", "\nforged"]


def hostile_names(mark):
    """Command lines and standard inputs that contain a control character in a name or a value."""
    name = f"x{mark}y"
    qk = {"Q": [[1.0]], "K": [[1.0]]}
    return [
        (["run", "-"], {name: 1, **qk}),
        (["inspect", f"{name}.json", f"{name}.csv", f"{name}.npy"], ""),
        (["inspect", "names.npz"], ""),
        (["convert", "names.npz"], ""),
        (["convert", "names.npz#gone"], ""),
        (["convert", f"names.npz#{name}z"], ""),
        (["compare", "names.npz", f"names.npz#{name}"], ""),
        (["view", "names.npz"], ""),
        (["view", "names.npz", "--of", name], ""),
        ([name], ""),
        (["run", f"--{name}"], ""),
        (["run", name], ""),
        (["run", "-o", f"{name}.xyz", "--q", "[[1]]"], ""),
        (["run", "-", "-o", f"{name}/x.npz"], qk),
        (["run", "--q", "names.npz"], ""),
        (["run", "--scale", name, "--q", "[[1]]"], ""),
        (["run", "-"], {**qk, "Q": {name: {}}}),
        (["run", "-"], {**qk, "score": name}),
        (["run", "-"], {**qk, "Q": name}),
        (["run", "-"], {**qk, "outputs": [name]}),
        (["run", "-", "--view"], {**qk, "tokens": [name]}),
        (["run", "-", "--explain", "-", "-o", "out.npz"], {**qk, "tokens": [name]}),
        (["batch", f"{name}.json", "--out-dir", "out"], ""),
        (["batch", "-", "--base", f"{name}.json"], ""),
        (["batch", "--files-from", name], ""),
        (["merge", f"{name}.npy", "names.npz"], ""),
        (["svd", f"{name}.csv"], ""),
        (["examples", "run", name], ""),
        (["examples", "list", "--data", name], ""),
        (["examples", "list", "--data", "examples"], ""),
        (["examples", "check", "--data", "examples"], ""),
        (["examples", "run", "--all", "--cells", "--data", "examples"], ""),
        (["examples", "run", name, "--explain", "-", "--data", "examples"], ""),
        (["stats", "names.npz"], ""),
        (["stats", "names.npz", "--format", "csv"], ""),
        (["rollout", "names.npz"], ""),
        (["inspect", "result.npz", "--provenance"], ""),
        (["view", "result.npz"], ""),
        (["compare", "result.npz", "names.npz"], ""),
        (["model", "inspect", "model"], ""),
        (["run", "result.json", "--dry-run", "--outputs", name], ""),
        (["batch", "lines.ndjson", "--lines", "--dry-run"], ""),
        (["batch", "lines.ndjson", "--lines", "--out-dir", f"{name}.out"], ""),
        (["batch", "--status", f"{name}.out"], ""),
        (["random", name, "--seed", "1"], ""),
        (["completions", name], ""),
        (["help", name], ""),
        (["man", name], ""),
        (["convert", "b.npy", "--dtype", name], ""),
    ]


def make_hostile_example(folder, name):
    folder.mkdir(parents=True)
    example = {"title": name, "source": name, "licence": name, "section": name, "note": name,
               "results": {"step": {"job": "job.json"}},
               "cells": [{"cell": name, "show": [{"repr": "step.Q"}, {"text": "x"}]}]}
    (folder / "example.json").write_text(json.dumps(example))
    (folder / "job.json").write_text(json.dumps({"Q": [[1.0]], "K": [[1.0]], "V": [[1.0]], "tokens": [name]}))
    (folder / "expected.txt").write_text(f"array([[1.]])\n{name}\n")


def make_hostile_model(folder, name):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": name}))
    write_tensors(folder / "model.safetensors", {name: np.eye(2)})


@pytest.mark.parametrize("mark", CONTROLS, ids=ascii)
def test_printed_text_contains_no_control_characters(tmp_path, mark):
    """Names from files, jobs and arguments cannot move the cursor or forge a line on a terminal."""
    name = f"x{mark}y"
    np.savez(tmp_path / "names.npz", **{name: np.eye(2), "b": np.eye(2)})
    (tmp_path / f"{name}.json").write_text("[1, }")
    (tmp_path / f"{name}.csv").write_text("1,x\n")
    (tmp_path / f"{name}.npy").write_bytes(b"\x93NUMPY\x01\x00")
    for result in "result.npz", "result.json":
        attn("run", "-", "-o", result, stdin=json.dumps({"Q": [[1.0]], "K": [[1.0]], "tokens": [name]}), cwd=tmp_path)
    (tmp_path / "lines.ndjson").write_text("".join(
        json.dumps({"id": name, "Q": [[1.0]], "K": value}) + "\n" for value in ([[1.0]], name)))
    make_hostile_model(tmp_path / "model", name)
    make_hostile_example(tmp_path / "examples" / name, name)
    for args, job in hostile_names(mark):
        run = attn(*args, stdin=json.dumps(job) if job else "", cwd=tmp_path)
        printed = run.stderr + run.stdout
        assert not [raw for raw in CONTROLS if raw.encode() in printed and raw != "\x9b2J"], args
        assert not [char for char in printed.decode() if char != "\n" and unicodedata.category(char) in ("Cc", "Cf")], args
        assert b"\xc2\x9b" not in printed, args  # U+009B
        assert run.returncode in (0, 1, 2, 3, 65, 66, 73), args
        for line in run.stderr.decode("utf-8", "replace").splitlines():
            assert line.startswith("attn: "), args
