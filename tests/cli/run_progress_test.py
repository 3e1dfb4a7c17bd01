"""The progress of a long `attn run`: only on a terminal, and only after some time.

The program is stopped for more than this time while it computes. It has two threads then: one computes, the
other shows the progress.
"""

import json
import pathlib
import signal
import subprocess
import time

import numpy as np
import pytest

from support.attn import ATTN, attn, under_sanitizer
from support.jobs import slow_job
from support.terminal import Terminal

pytestmark = pytest.mark.skipif(under_sanitizer(), reason="other threads")
PAUSE = 2.2  # seconds, more than the time after which the bar appears
JOB = ["job.npz", "--outputs", "context", "--threads", "1"]


@pytest.fixture
def folder(tmp_path):
    """A job of about a second."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "job.npz", **{name: rng.standard_normal((8, 2048, 64)) for name in "QKV"})
    return tmp_path


def threads_of(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("Threads:")[2].split()[0])


def pause(*processes):
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    time.sleep(PAUSE)
    for process in processes:
        process.send_signal(signal.SIGCONT)


def pause_while_computing(terminal):
    end = time.monotonic() + 60
    while threads_of(terminal.process) < 2 and time.monotonic() < end:
        time.sleep(0.002)
    pause(terminal.process)


def test_appears_on_a_terminal_and_is_removed(folder):
    terminal = Terminal("run", *JOB, "-o", "out.npy", cwd=folder)
    pause_while_computing(terminal)
    seen = terminal.end()
    assert seen.startswith(b"\rattn: ")
    assert b" % done" in seen
    assert seen.endswith(b"\r\x1b[K")
    assert terminal.process.returncode == 0
    result = (folder / "out.npy").read_bytes()
    assert attn("run", *JOB, "-o", "out.npy", "--force", cwd=folder).stderr == b""
    assert (folder / "out.npy").read_bytes() == result


def test_is_removed_before_an_error(folder):
    with (folder / "wide.json").open("w") as file:
        json.dump({"seed": 1, "Q": {"randn": {"shape": [1, 8, 2048, 64]}}, "K": {"randn": {"shape": [1, 8, 2048, 64]}},
                   "outputs": ["context"]}, file)
    terminal = Terminal("run", "wide.json", "--threads", "1", "-o", "/dev/full", "--format", "npy", cwd=folder)
    pause_while_computing(terminal)
    seen = terminal.end().replace(b"\r\n", b"\n")
    last = seen.rpartition(b"\r")[2]
    assert last.startswith(b"\x1b[Kattn: ")
    assert terminal.process.returncode == 74


def test_of_the_reference_path_is_the_time(folder):
    (folder / "slow.json").write_text(json.dumps(slow_job()))
    terminal = Terminal("run", "slow.json", "--threads", "1", cwd=folder)
    terminal.read_until(b"running for ")
    seen = terminal.stop(signal.SIGKILL)
    assert b"\rattn: running for " in seen


def test_is_not_shown_in_a_pipe_or_if_switched_off(folder):
    terminals = [Terminal("run", *JOB, "-o", f"{i}.npz", *flags, cwd=folder)
                 for i, flags in enumerate((["-q"], ["--progress", "none"]))]
    in_pipe = subprocess.Popen([ATTN, "run", *JOB, "-o", "pipe.npz"], cwd=folder, stderr=subprocess.PIPE)
    time.sleep(0.2)
    pause(in_pipe, *(terminal.process for terminal in terminals))
    assert in_pipe.communicate()[1] == b""
    assert in_pipe.returncode == 0
    assert [terminal.end() for terminal in terminals] == [b"", b""]


def test_is_not_shown_for_a_small_job(tmp_path):
    terminal = Terminal("run", "--q", "[[1.0]]", "--k", "[[1.0]]", "--outputs", "scores", cwd=tmp_path)
    assert b"\r\x1b" not in terminal.end()


def test_plain_lines_go_to_a_pipe_and_end_with_the_time(folder):
    run = attn("run", *JOB, "-o", "out.npy", "--progress", "plain", cwd=folder)
    assert run.stderr.startswith(b"attn: ")
    assert b"attn: 100 % done after " in run.stderr
    assert run.returncode == 0
