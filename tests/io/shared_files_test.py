"""Files that the jobs of a batch share: none of them is standard input, and missing ones take no memory."""

import json
import os
import subprocess

import pytest

from support.attn import ATTN, attn, attn_and_peak, under_sanitizer
from support.jobs import is_expected, job


@pytest.mark.parametrize("path", ["-", "/dev/stdin", "/dev//stdin", "/dev/fd/0", "/dev/fd/../fd/0",
                                  "/proc/self/fd/0", "/proc/thread-self/fd/0", "/proc/PID/fd/0", "link",
                                  "link to link"])
def test_job_cannot_read_the_standard_input_of_its_batch(tmp_path, path):
    """By no name: it would consume the jobs that follow."""
    os.symlink("/dev/stdin", tmp_path / "link")
    os.symlink("link", tmp_path / "link to link")
    process = subprocess.Popen([ATTN, "batch", "-", "-j", "1"], cwd=tmp_path, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    bad = json.dumps({"Q": path.replace("PID", str(process.pid)), "K": [[1.0]]})
    stdout, stderr = process.communicate(f"{bad}\n{json.dumps(job(1))}\n{bad}\n".encode(), timeout=60)
    results = [json.loads(line) for line in stdout.splitlines()]
    assert process.returncode == 3
    assert len(results) == 3
    assert is_expected(results[1], 1)
    assert stderr.count(b"standard input contains the jobs") == 2


def test_other_file_is_read_from_its_start(tmp_path):
    (tmp_path / "numbers.csv").write_text("1,2\n")
    run = attn("batch", "-", "--k", "numbers.csv", stdin='{"Q": [[1.0, 2.0]]}', cwd=tmp_path)
    assert run.returncode == 0, run.stderr


@pytest.mark.skipif(under_sanitizer(), reason="sanitizers keep freed memory")
def test_memory_does_not_grow_with_the_number_of_missing_files():
    def peak(count):
        lines = "".join(f'{{"Q":"{"x" * 100}{number}.npy","K":[[1]]}}\n' for number in range(count))
        run, peak = attn_and_peak("batch", "-", "-q", "-j", "1", stdin=lines.encode())
        assert run.returncode == 3
        assert run.stdout.count(b"\n") == count
        return peak

    assert peak(20000) < peak(100) + 4 * 1024**2
