"""Several runs at the same time with one output, and signals at random moments."""

import json
import os
import random
import signal
import subprocess
import time

import pytest

from injection import INTERPOSER
from support.attn import ATTN, attn, under_sanitizer
from support.jobs import contents, job, manifest_of, write_jobs

OLD = b"old content\n"


def start(folder, *arguments):
    return subprocess.Popen([ATTN, *map(str, arguments)], cwd=folder, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


@pytest.mark.parametrize("count", [2, 50])
class TestRunsWithOneOutput:
    @pytest.fixture
    def results(self, tmp_path, count):
        """The result of each job, run alone."""
        for seed in range(count):
            (tmp_path / f"job{seed}.json").write_text(json.dumps(job(seed)))
            attn("run", f"job{seed}.json", "-o", f"whole{seed}.npz", cwd=tmp_path)
        return [(tmp_path / f"whole{seed}.npz").read_bytes() for seed in range(count)]

    @pytest.fixture
    def race(self, tmp_path, count, results):
        """Starts all runs, and returns their exit codes and messages. They leave no temporary files."""
        def race(*flags):
            runs = [start(tmp_path, "run", f"job{seed}.json", "-o", "out.npz", *flags) for seed in range(count)]
            messages = [run.communicate()[1] for run in runs]
            assert [name for name in os.listdir(tmp_path) if name.startswith(".attn-tmp")] == []
            return [run.returncode for run in runs], messages
        return race

    def test_exactly_one_writes(self, race, results, count, tmp_path):
        codes, messages = race()
        assert sorted(codes) == [0] + (count - 1) * [73]
        assert (tmp_path / "out.npz").read_bytes() == results[codes.index(0)]
        for code, message in zip(codes, messages):
            if code == 73:
                assert message.count(b"\n") == 1
                assert b"already exists" in message

    def test_exactly_one_writes_with_no_clobber(self, race, results, count, tmp_path):
        codes, messages = race("--no-clobber")
        assert codes == [0] * count
        assert messages.count(b"") == 1
        assert (tmp_path / "out.npz").read_bytes() in results

    def test_one_result_remains_with_force(self, race, results, count, tmp_path):
        assert race("--force")[0] == [0] * count
        assert (tmp_path / "out.npz").read_bytes() in results

    def test_existing_file_is_kept(self, race, count, tmp_path):
        (tmp_path / "out.npz").write_bytes(OLD)
        assert race()[0] == [73] * count
        assert (tmp_path / "out.npz").read_bytes() == OLD


@pytest.mark.parametrize("count", [2, 20])
def test_batches_with_one_manifest_write_one_set_of_results(tmp_path, count):
    write_jobs(tmp_path / "jobs", range(20))
    attn("batch", "jobs", "--out-dir", "whole", cwd=tmp_path)
    runs = [start(tmp_path, "batch", "jobs", "--out-dir", "out", "--resume") for _ in range(count)]
    for run in runs:
        run.communicate()
    codes = {run.returncode for run in runs}
    assert 0 in codes
    assert codes <= {0, 75}
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert len(manifest_of(tmp_path / "out")) == 20


def test_signal_leaves_old_or_new_files(tmp_path):
    """Each output is the old or the complete new file, and no other files are left."""
    square = {"rand": {"shape": [300, 8]}}
    (tmp_path / "job.json").write_text(json.dumps({"seed": 1, "Q": square, "K": square}))
    command = ["run", "job.json", "-o", "out.npz", "-o", "new/", "--view=page.html", "--force"]
    seconds = 60.0
    for _ in range(3):
        began = time.monotonic()
        assert start(tmp_path, *command).wait() == 0
        seconds = min(seconds, time.monotonic() - began)
    whole = contents(tmp_path)
    dice, stopped = random.Random(3), 0
    for number in 10 * [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]:
        (tmp_path / "out.npz").write_bytes(OLD)
        (tmp_path / "page.html").unlink()
        subprocess.run(["rm", "-r", "new"], cwd=tmp_path, check=True)
        run = start(tmp_path, *command)
        time.sleep(dice.uniform(0.001, seconds))
        run.send_signal(number)
        run.communicate()
        stopped += run.returncode == -number
        left = contents(tmp_path, ("core",))
        assert run.returncode in (0, -number)
        assert [name for name, data in left.items() if data not in (OLD, whole.get(name))] == []
        assert "out.npz" in left
        assert (tmp_path / "new").exists() == any(name.startswith("new/") for name in left), "an empty folder is left"
        start(tmp_path, *command).wait()
    assert stopped > 0


@pytest.mark.skipif(under_sanitizer(), reason="sanitizers do not start after a preloaded library")
def test_link_swapped_in_before_any_open_is_not_followed(tmp_path):
    """The output is a FIFO; before the N-th call of open(), a link to another file takes its place."""
    (tmp_path / "q.json").write_text("[[1,2],[3,4]]")
    messages = set()
    for call in range(1, 31):
        (tmp_path / "kept").write_bytes(OLD)
        os.mkfifo(tmp_path / "out")
        (tmp_path / "out.new").symlink_to("kept")
        reader = os.open(tmp_path / "out", os.O_RDONLY | os.O_NONBLOCK)
        run = subprocess.run([ATTN, "convert", "q.json", "-o", "out"], cwd=tmp_path, capture_output=True, timeout=60,
                             env={**os.environ, "LD_PRELOAD": str(INTERPOSER), "ATTN_FAULT": f"open:swap=out:{call}"})
        os.close(reader)
        messages.add(run.stderr)
        assert (tmp_path / "kept").read_bytes() == OLD, call
        for name in "out", "out.new":
            (tmp_path / name).unlink(missing_ok=True)
    assert b"attn: out: was replaced while being opened\n" in messages
