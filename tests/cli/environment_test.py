"""Environment variables and limits of the process are checked before anything runs."""

import os
import resource
import subprocess

import numpy as np
import pytest

from support.attn import ATTN, assert_error, under_sanitizer

COMMANDS = [["run", "--q", "a.npy", "--k", "a.npy"], ["view", "a.npy"], ["stats", "a.npy"], ["convert", "a.npy"],
            ["batch", "-"], ["examples", "check"], ["examples", "list"], ["schema"]]


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(2))
    return tmp_path


def run_with(folder, arguments, environment=(), stack=None):
    def limit():
        if stack is not None:
            resource.setrlimit(resource.RLIMIT_STACK, (stack, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    return subprocess.run([ATTN, *arguments], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                          env={**os.environ, **dict(environment)}, preexec_fn=limit)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_an_unknown_instruction_set_is_one_error(folder, arguments):
    run = run_with(folder, arguments, {"ATTN_ISA": "neon\x1b"})
    assert_error(run, 2, "ATTN_ISA: expected one that this machine runs (baseline")
    assert (run.stdout, run.stderr.count(b"\n")) == (b"", 1)


@pytest.mark.parametrize("arguments", [["--version"], ["help", "run"], ["run", "--help"]], ids=" ".join)
def test_help_needs_no_instruction_set(folder, arguments):
    assert run_with(folder, arguments, {"ATTN_ISA": "neon"}).returncode == 0


@pytest.mark.parametrize("command", ["check", "list", "run --all"])
def test_a_folder_without_examples_is_one_error(folder, command):
    run = run_with(folder, ["examples", *command.split()], {"ATTN_DATA": "."})
    assert_error(run, 66, "ATTN_DATA: .: contains no example (a folder with an example.json)")
    assert (run.stdout, run.stderr.count(b"\n")) == (b"", 1)


@pytest.mark.skipif(under_sanitizer(), reason="a sanitizer needs a larger stack")
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_small_stack_is_an_error(folder, arguments):
    run = run_with(folder, arguments, stack=32 << 10)
    assert_error(run, 65, "the stack is limited to 32 KiB (ulimit -s): expected 128 or more")
    assert run_with(folder, arguments, stack=128 << 10).returncode == 0
