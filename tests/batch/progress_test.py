"""Progress of `attn batch`: the bar, plain lines, answers to SIGUSR1, and --json events."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from support.attn import ATTN, attn, json_lines, under_sanitizer
from support.jobs import is_expected, job, manifest_of, slow_job, write_jobs
from support.terminal import Terminal, on_terminal

PLAIN_LINE = rb"attn: 1 job, 0 failed, [0-9.]+ per second"


def job_line(seed):
    return (json.dumps(job(seed)) + "\n").encode()


def start_on_pipes(*words, cwd=None):
    return subprocess.Popen([ATTN, "batch", *words], cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def send_job(process, seed):
    process.stdin.write(job_line(seed))
    process.stdin.flush()


# The bar on a terminal.


def batch_on_terminal(folder, *words, **keywords):
    return Terminal("batch", "-j", "2", *words, cwd=folder, **keywords)


@pytest.fixture(scope="module")
def mixed_jobs(module_path):
    """Three fast jobs, a slow one, and one that fails."""
    write_jobs(module_path / "jobs", range(3))
    (module_path / "jobs" / "slow.json").write_text(json.dumps(slow_job()))
    (module_path / "jobs" / "bad.json").write_text("{}")
    return module_path


class TestBar:
    @pytest.fixture(scope="class")
    def terminal(self, mixed_jobs):
        """A batch that SIGINT stopped when the bar showed the time left."""
        terminal = batch_on_terminal(mixed_jobs, "jobs", "--out-dir", "out")
        terminal.read_until(b" left")
        terminal.stop(signal.SIGINT)
        return terminal

    def test_shows_how_many_jobs_are_finished_and_failed(self, terminal):
        assert b"[###################.....] 4 of 5 jobs, 1 failed, " in terminal.seen

    def test_does_not_hide_errors(self, terminal):
        assert b"attn: jobs/bad.json: " in terminal.seen

    def test_is_erased_before_the_summary(self, terminal):
        assert terminal.seen.endswith(b"\r\x1b[Kattn: stopped after 4 of 5 jobs; --resume continues\r\n")

    def test_batch_ends_by_the_signal(self, terminal):
        assert terminal.process.returncode == -signal.SIGINT


@pytest.fixture(scope="module")
def narrow_terminals(mixed_jobs):
    """The same batch on terminals of several widths at the same time, since a slow job takes seconds."""
    return {columns: batch_on_terminal(mixed_jobs, "jobs", "--out-dir", f"out{columns}", columns=columns)
            for columns in (60, 40, 20, 10, 1)}


@pytest.mark.parametrize("columns", [60, 40, 20, 10, 1])
def test_bar_is_narrower_than_the_terminal(narrow_terminals, columns):
    text = b"4 of 5 jobs"[:columns - 1]
    terminal = narrow_terminals[columns]
    terminal.read_until(b"\r\x1b[K" if columns == 1 else text)
    seen = terminal.stop()
    drawn = [line.removesuffix(b"\x1b[K") for line in re.split(rb"[\r\n]+", seen) if b"attn: " not in line]
    assert text in seen
    assert max(map(len, drawn)) < max(columns, 2)


def test_dumb_terminal_gets_no_control_sequences(mixed_jobs):
    terminal = batch_on_terminal(mixed_jobs, "jobs", "--out-dir", "dumb", term="dumb")
    terminal.read_until(b"\x1b", seconds=2)
    seen = terminal.stop()
    assert b"\x1b" not in seen
    assert b"\r" not in seen.replace(b"\r\n", b"")


def test_results_on_the_terminal_have_lines_of_their_own(tmp_path):
    terminal = batch_on_terminal(tmp_path, "-", stdin=subprocess.PIPE)
    terminal.read_until(b" per second")
    send_job(terminal.process, 1)
    terminal.read_until(b"1 job, 0 failed")
    seen = terminal.stop()
    terminal.process.stdin.close()
    assert seen.count(b"\r\x1b[Kline 1: scores (4, 4), ") == 1
    assert seen.endswith(b"\x1b[Kattn: stopped after 1 job\r\n")


class TestResultsOnTheTerminal:
    """A line for each job, not the values, which may be many."""

    LINES = ["line 1: scores (4, 4), weights (4, 4), context (4, 3)", "line 3: scores (2, 2)"]

    @pytest.fixture
    def jobs(self, tmp_path):
        last = {"Q": [[1, 2], [3, 4]], "K": [[1, 2], [3, 4]], "outputs": ["scores"]}
        (tmp_path / "jobs").write_bytes(job_line(1) + b'{"Q": [[1]]}\n' + json.dumps(last).encode())
        return tmp_path / "jobs"

    @pytest.mark.parametrize("flags", [[], ["--isolate"]], ids=["threads", "processes"])
    def test_are_shapes(self, jobs, flags):
        if flags and under_sanitizer():
            pytest.skip("the sandbox")
        with jobs.open() as stdin:
            text = on_terminal("batch", "-", *flags, stdin=stdin)
        assert [line for line in text.splitlines() if not line.startswith("attn: ")] == self.LINES
        assert "attn: line 2: Q: requires K, K_pages or KV_pages\n" in text
        assert "attn: on a terminal, only the shapes of results are printed; --out-dir DIR stores them\n" in text

    def test_have_no_note_if_quiet(self, jobs):
        with jobs.open() as stdin:
            assert "on a terminal" not in on_terminal("batch", "-", "-q", stdin=stdin)

    @pytest.mark.parametrize("flags", [["--dry-run"], ["--json"]])
    def test_of_other_flags_are_complete(self, jobs, flags):
        with jobs.open() as stdin:
            text = on_terminal("batch", "-", *flags, stdin=stdin)
        assert "(4, 4)" not in text

    def test_in_a_pipe_are_complete_although_errors_go_to_a_terminal(self, jobs, tmp_path):
        with jobs.open() as stdin, (tmp_path / "out").open("wb") as out:
            on_terminal("batch", "-", stdin=stdin, stdout=out)
        assert (tmp_path / "out").read_bytes() == attn("batch", "-", stdin=jobs.read_bytes()).stdout
        assert len(json_lines((tmp_path / "out").read_bytes())) == 3


def test_bar_stays_while_results_go_to_files(tmp_path):
    terminal = batch_on_terminal(tmp_path, "-", "--out-dir", "out", stdin=subprocess.PIPE)
    terminal.read_until(b" per second")
    for seed in range(5):
        send_job(terminal.process, seed)
        terminal.read_until(f"\r{seed + 1} job".encode())
    seen = terminal.seen
    terminal.stop()
    terminal.process.stdin.close()
    assert b"\r5 jobs, 0 failed" in seen
    assert b"\r\x1b[K" not in seen  # it is never erased


def test_bar_is_below_each_result_on_the_terminal(tmp_path):
    terminal = batch_on_terminal(tmp_path, "-", stdin=subprocess.PIPE)
    terminal.read_until(b" per second")
    for seed in range(10):
        send_job(terminal.process, seed)
        while terminal.seen.count(b")\r\n") <= seed and terminal.read():
            pass
    terminal.read_until(b"\r10 jobs")
    seen = terminal.stop()
    terminal.process.stdin.close()
    assert len(re.findall(rb"\)\r\n\r\d+ jobs?, 0 failed", seen)) == 10


def test_quiet_prints_nothing(tmp_path):
    path, = write_jobs(tmp_path, [0])
    run = attn("batch", path, "--out-dir", "out", "-q", cwd=tmp_path)
    assert run.returncode == 0
    assert run.stderr == b""


# Plain lines.


def test_progress_plain_prints_a_line_every_five_seconds():
    process = start_on_pipes("-", "--progress", "plain")
    send_job(process, 1)
    line = process.stderr.readline()
    rest = process.communicate()[1]
    assert re.fullmatch(PLAIN_LINE, line.strip())
    assert rest.startswith(b"attn: 1 job: 1 done")
    assert process.returncode == 0


# SIGUSR1.


class TestSigusr1:
    @pytest.fixture
    def start(self):
        """Starts a batch that has finished one job, and sends it SIGUSR1."""
        processes = []

        def start(*flags):
            process = start_on_pipes("-", "-q", *flags)
            processes.append(process)
            send_job(process, 1)
            assert is_expected(json.loads(process.stdout.readline()), 1)
            process.send_signal(signal.SIGUSR1)
            return process
        yield start
        for process in processes:
            process.communicate()
            assert process.returncode == 0  # the batch continues

    def test_prints_a_line(self, start):
        assert re.fullmatch(PLAIN_LINE, start().stderr.readline().strip())

    def test_prints_an_event_with_json(self, start):
        stderr = start("--json").stderr
        event = next(event for event in map(json.loads, stderr) if event["event"] == "progress")
        assert (event["done"], event["failed"]) == (1, 0)

    def test_does_not_end_a_batch_that_still_reads_its_list(self, tmp_path):
        os.mkfifo(tmp_path / "list")
        path, = write_jobs(tmp_path, [0])
        process = start_on_pipes("--files-from", "list", cwd=tmp_path)
        with open(tmp_path / "list", "w") as names:  # opening waits until the batch reads the list
            process.send_signal(signal.SIGUSR1)
            names.write(f"{path}\n")
        out, err = process.communicate()
        assert process.returncode == 0, err
        assert is_expected(json.loads(out), 0)


@pytest.mark.build_folder
@pytest.mark.skipif(under_sanitizer(), reason="a sanitizer does not start after a preloaded library")
def test_sigusr1_does_not_end_a_batch_that_has_just_started():
    """The signal arrives at the first allocation after main() has started."""
    env = dict(os.environ, LD_PRELOAD=str(pathlib.Path(ATTN).parent / "attn_interpose.so"),
               ATTN_FAULT="alloc:status:1")
    run = subprocess.run([ATTN, "batch", "-", "-q"], input=job_line(0), env=env, capture_output=True)
    assert run.returncode == 0
    assert is_expected(json.loads(run.stdout), 0)


# --json events.


class TestEvents:
    @pytest.fixture(scope="class")
    def run(self, class_path):
        """Three jobs, of which the second fails."""
        write_jobs(class_path / "jobs", range(3))
        (class_path / "jobs" / "job0001.json").write_text("{}")
        return attn("batch", "jobs", "--out-dir", "out", "--json", cwd=class_path)

    @pytest.fixture(scope="class")
    def events(self, run):
        return json_lines(run.stderr)

    def test_are_a_start_an_item_for_each_job_and_an_end(self, events):
        assert [event["event"] for event in events] == ["start", "item", "item", "item", "end"]

    def test_items_equal_the_lines_of_the_manifest(self, events, class_path):
        manifest = manifest_of(class_path / "out")
        for item in events[1:-1]:
            assert item == {"event": "item"} | {key: manifest[item["job"]][key] for key in item.keys() - {"event"}}

    def test_end_has_the_counts(self, events):
        end = events[-1]
        assert (end["total"], end["done"], end["failed"], end["skipped"]) == (3, 2, 1, 0)

    def test_end_has_the_exit_code(self, run, events):
        assert run.returncode == 3
        assert events[-1]["code"] == 3


@pytest.mark.parametrize("words, code", [
    (["none.json"], 66), (["jobs", "--shard", "x"], 2), (["jobs", "--resume"], 2),
    (["jobs", "--out-dir", "out"], 73)])
def test_error_before_the_first_job_is_the_only_event(tmp_path, words, code):
    write_jobs(tmp_path / "jobs", [0])
    attn("batch", "jobs", "--out-dir", "out", cwd=tmp_path)
    run = attn("batch", *words, "--json", cwd=tmp_path)
    event, = json_lines(run.stderr)
    assert run.returncode == code
    assert (event["event"], event["code"]) == ("error", code)
    assert event["error"]


def test_full_disk_is_an_error_event():
    with open("/dev/full", "wb") as full:
        run = subprocess.run([ATTN, "batch", "-", "--json"], input=job_line(0), stdout=full, stderr=subprocess.PIPE)
    events = json_lines(run.stderr)
    assert [event["event"] for event in events] == ["start", "item", "error", "end"]
    assert [event["code"] for event in events[2:]] == [74, 74]


def test_end_event_after_a_signal():
    process = start_on_pipes("-", "--json")
    send_job(process, 1)
    process.stdout.readline()
    process.terminate()
    end = json.loads(process.communicate()[1].splitlines()[-1])
    assert process.returncode == -signal.SIGTERM
    assert (end["event"], end["done"], end["code"]) == ("end", 1, 143)
    assert "total" not in end


def test_events_escape_direction_marks_in_names(tmp_path):
    name = "\u202egnp.json"
    (tmp_path / name).write_text(json.dumps(job(0)))
    run = attn("batch", name, "--json", "--out-dir", "out", cwd=tmp_path)
    assert "\u202e".encode() not in run.stderr
    assert [event["job"] for event in json_lines(run.stderr) if event["event"] == "item"] == [name]
