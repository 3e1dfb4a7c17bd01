"""Input files that change while they are read: cut short, written to, replaced, removed."""

import os
import pathlib
import subprocess
import time

import numpy as np
import pytest

from support.attn import ATTN, assert_error, attn, under_sanitizer

ROWS = 3000 if under_sanitizer() else 10000  # a run takes about a second
INPUTS = ["--q", "q.npy", "--k", "k.npy", "--v", "v.npy"]


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(3)
    return {letter: rng.standard_normal((ROWS, 64)).astype(np.float32) for letter in "qkv"}


@pytest.fixture
def folder(tmp_path, arrays):
    for letter, array in arrays.items():
        np.save(tmp_path / f"{letter}.npy", array)
    return tmp_path


def start_command(folder, command, *names):
    """Starts a command, and returns when it has mapped these files."""
    run = subprocess.Popen([ATTN, *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while run.poll() is None:
        try:
            maps = pathlib.Path(f"/proc/{run.pid}/maps").read_text()
        except OSError:
            continue
        if all(f"/{name}" in maps for name in names):
            break
        time.sleep(0.0005)
    return run


def start(folder, *outputs):
    """Starts a run, and returns when it has mapped its inputs."""
    return start_command(folder, ["run", *INPUTS, "--threads", "1", *outputs], "q.npy", "k.npy", "v.npy")


@pytest.mark.parametrize("size", [4096, 0])
@pytest.mark.parametrize("outputs", [["-o", "context=c.npy"], ["--outputs", "context", "-o", "c.npz"]])
def test_file_that_becomes_shorter_is_an_error(folder, outputs, size):
    run = start(folder, *outputs)
    os.truncate(folder / "q.npy", size)
    assert run.communicate(timeout=120)[1] == b"attn: q.npy: was truncated while being read, or its disk failed\n"
    assert run.returncode == 74
    assert sorted(os.listdir(folder)) == ["k.npy", "q.npy", "v.npy"]


def test_file_that_is_written_to_is_an_error(folder):
    run = start(folder, "-o", "context=c.npy")
    with open(folder / "v.npy", "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"abcd")
    assert run.communicate(timeout=120)[1] == b"attn: v.npy: was modified while being read\n"
    assert run.returncode == 74
    assert sorted(os.listdir(folder)) == ["k.npy", "q.npy", "v.npy"]


@pytest.mark.parametrize("command", [
    ["view", "x.npy", "-o", "out.html"],
    ["view", "x.npy", "-o", "out.svg", "--rows", "0:300", "--cols", "0:300"],
    ["view", "x.npy", "x.npy", "-o", "out.html"],
    ["convert", "x.npy", "-o", "out.csv"],
    ["stats", "x.npy", "-o", "out.csv"],
    ["rollout", "x.npy", "-o", "out.npy"],
    ["compare", "x.npy", "y.npy", "--view=out.html"]], ids=" ".join)
def test_no_command_writes_a_mixture(tmp_path, command):
    for name in "x.npy", "y.npy":
        np.save(tmp_path / name, np.ones((1200, 1200), np.float32))
    run = start_command(tmp_path, command, "x.npy")
    with open(tmp_path / "x.npy", "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"abcd")
    assert b"attn: x.npy: was modified while being read\n" in run.communicate(timeout=120)[1]
    assert run.returncode == 74
    assert sorted(os.listdir(tmp_path)) == ["x.npy", "y.npy"]


def test_replaced_and_removed_files_are_read_as_they_were(folder, arrays):
    assert attn("run", *INPUTS, "-o", "context=expected.npy", cwd=folder).returncode == 0
    run = start(folder, "-o", "context=c.npy")
    np.save(folder / "new.npy", arrays["k"])
    os.replace(folder / "new.npy", folder / "q.npy")
    (folder / "v.npy").unlink()
    assert run.communicate(timeout=120)[1] == b""
    assert run.returncode == 0
    assert (folder / "c.npy").read_bytes() == (folder / "expected.npy").read_bytes()


def test_mapped_tensor_is_copied_to_a_file(folder):
    assert attn("convert", "q.npy", "-o", "copy.npy", cwd=folder).returncode == 0
    assert (folder / "copy.npy").read_bytes() == (folder / "q.npy").read_bytes()
    assert attn("compare", "q.npy", "copy.npy", cwd=folder).returncode == 0


@pytest.mark.parametrize("arguments", [
    ["inspect", "q.npy"], ["run", "--q", "q.npy", "--k", "k.npy", "-o", "context=c.npy"]])
def test_file_shorter_than_its_header_says_is_refused(folder, arguments):
    os.truncate(folder / "q.npy", 300000)
    assert_error(attn(*arguments, cwd=folder), 65, "only 299872 follow")
