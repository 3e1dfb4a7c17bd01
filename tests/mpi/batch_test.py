"""attn-mpi batch writes what attn batch writes, for any number of ranks.

scripts/test-with/mpi runs these tests for each MPI library.
"""

import csv
import json
import os
import random
import shutil
import signal
import time

import pytest

from mpi import ranks
from mpi.mpi_jobs import command
from mpi.ranks import launch, messages, mpi, ranks_of, start, with_script
from support.attn import ATTN
from support.jobs import contents, job, manifest_of, slow_job, write_jobs

pytestmark = ranks.NEEDS_MPI
RANKS = [1, 2, 3, 4]
ITEM_KEYS = ("status", "item", "options", "inputs", "outputs", "error", "code", "id", "reason", "statistics",
             "warning")


def lines_of(count):
    """Jobs as lines. Some fail, and some are blank."""
    dice = random.Random(5)
    lines = []
    for number in range(count):
        if number % 17 == 3:
            lines.append('{"Q": [[1, 0], [0, 1]]}')
        elif number % 29 == 7:
            lines.append("")
        else:
            tokens = dice.choice([2, 3, 40])
            rows = [[dice.randint(-3, 3) for _ in range(3)] for _ in range(tokens)]
            lines.append(json.dumps({"id": number, "Q": rows, "K": rows, "V": rows, "causal": bool(number % 2)}))
    return "\n".join(lines) + "\n"


def recorded(folder):
    """What the manifest says about each job, except for times."""
    return {name: {key: line[key] for key in ITEM_KEYS if key in line}
            for name, line in manifest_of(folder).items()}


@pytest.mark.parametrize("count", RANKS)
def test_lines_have_the_same_output(tmp_path, count):
    lines = lines_of(600)
    alone = launch([ATTN, "batch", "-", "-q"], tmp_path, text=lines)
    many = mpi(tmp_path, "batch", "-", "-q", ranks=count, lines=lines)
    assert (alone.returncode, many.returncode) == (3, 3), many.stderr
    assert many.stdout == alone.stdout


@pytest.mark.parametrize("count", RANKS)
def test_files_have_the_same_results_and_manifest(tmp_path, count):
    write_jobs(tmp_path / "jobs", range(150))
    (tmp_path / "jobs/wrong.json").write_text('{"Q": "none.npy"}')
    words = ["batch", "jobs", "--format", "folder", "-q", "--out-dir"]
    alone = launch([ATTN, *words, "one"], tmp_path)
    many = mpi(tmp_path, *words, "many", ranks=count)
    assert (alone.returncode, many.returncode) == (3, 3), many.stderr
    assert contents(tmp_path / "many") == contents(tmp_path / "one")
    assert recorded(tmp_path / "many") == recorded(tmp_path / "one")


@pytest.mark.parametrize("count", RANKS)
@pytest.mark.parametrize("form", ["npz", "safetensors"])
def test_bundles_are_the_same(tmp_path, count, form):
    lines = lines_of(300)
    words = ["batch", "-", "--bundle", "64", "--format", form, "-q", "--out-dir"]
    launch([ATTN, *words, "one"], tmp_path, text=lines)
    many = mpi(tmp_path, *words, "many", ranks=count, lines=lines)
    assert many.returncode == 3, many.stderr
    assert contents(tmp_path / "many") == contents(tmp_path / "one")
    assert recorded(tmp_path / "many") == recorded(tmp_path / "one")


def rows_of(path):
    """The rows of a summary without times, in the order of the jobs."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = [{key: text for key, text in row.items() if key != "seconds"} for row in csv.DictReader(file)]
    return sorted(rows, key=lambda row: int(row["item"]))


def test_the_summary_is_the_same(tmp_path):
    lines = lines_of(120)
    words = ["batch", "-", "-q", "--summary"]
    launch([ATTN, *words, "one.csv"], tmp_path, text=lines)
    mpi(tmp_path, *words, "many.csv", lines=lines)
    assert rows_of(tmp_path / "many.csv") == rows_of(tmp_path / "one.csv")


def test_a_dry_run_is_the_same(tmp_path):
    write_jobs(tmp_path / "jobs", range(30))
    words = ["batch", "jobs", "--out-dir", "out", "--dry-run", "-q"]
    assert mpi(tmp_path, *words).stdout == launch([ATTN, *words], tmp_path).stdout
    assert not (tmp_path / "out").exists()


def test_it_resumes_what_attn_batch_began(tmp_path):
    paths = write_jobs(tmp_path / "jobs", range(60))
    words = ["batch", "jobs", "--out-dir", "out", "--resume"]
    launch([ATTN, *words, "--shard", "1/3"], tmp_path)
    paths[0].write_text(json.dumps(job(1000)))
    run = mpi(tmp_path, *words)
    assert run.returncode == 0, run.stderr
    assert messages(run)[-1].startswith("attn: 60 jobs: 41 done, 19 skipped, 0 failed")
    launch([ATTN, "batch", "jobs", "--out-dir", "one", "-q"], tmp_path)
    assert contents(tmp_path / "out") == contents(tmp_path / "one")


def test_attn_batch_skips_what_it_finished(tmp_path):
    write_jobs(tmp_path / "jobs", range(40))
    words = ["batch", "jobs", "--out-dir", "out", "--bundle", "7", "--resume"]
    assert mpi(tmp_path, *words).returncode == 0
    run = launch([ATTN, *words], tmp_path)
    assert messages(run) == [line for line in messages(run) if "0 done, 40 skipped" in line]


def test_another_bundle_size_is_refused(tmp_path):
    write_jobs(tmp_path / "jobs", range(10))
    words = ["batch", "jobs", "--out-dir", "out", "--bundle"]
    assert launch([ATTN, *words, "1"], tmp_path).returncode == 0
    run = mpi(tmp_path, *words, "2", "--resume")
    assert run.returncode == 73
    assert messages(run) == ["attn: out/manifest.ndjson: its run had --bundle 1, this one has --bundle 2; "
                             "use the same, or another --out-dir"]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_after_a_rank_is_killed_a_resumed_run_completes(tmp_path, which):
    write_jobs(tmp_path / "jobs", range(3000))
    (tmp_path / "jobs/slow.json").write_text(json.dumps(slow_job(700)))  # so that the batch lasts
    words = ["batch", "jobs", "--format", "folder", "-q", "--resume", "--out-dir"]
    launch([ATTN, *words, "one"], tmp_path)
    process = start(tmp_path, *words, "out")
    until = time.monotonic() + 30
    while time.monotonic() < until and not (tmp_path / "out/job0100").exists():
        time.sleep(0.01)
    pids = sorted(ranks_of(process))
    assert len(pids) == 3
    os.kill(pids[which], signal.SIGKILL)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert mpi(tmp_path, *words, "out").returncode == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "one")
    assert {line["status"] for line in manifest_of(tmp_path / "out").values()} == {"done"}


def test_a_signal_to_mpirun_leaves_what_can_be_resumed(tmp_path):
    write_jobs(tmp_path / "jobs", range(3000))
    (tmp_path / "jobs/slow.json").write_text(json.dumps(slow_job(700)))  # so that the batch lasts
    words = ["batch", "jobs", "-q", "--resume", "--out-dir"]
    process = start(tmp_path, *words, "out")
    until = time.monotonic() + 30
    while time.monotonic() < until and not (tmp_path / "out/job0100.npz").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert mpi(tmp_path, *words, "out").returncode == 0
    launch([ATTN, *words, "one"], tmp_path)
    assert contents(tmp_path / "out") == contents(tmp_path / "one")


def test_a_job_over_its_time_limit_fails_and_the_batch_ends(tmp_path):
    slow = json.dumps(slow_job())
    quick = json.dumps(job(1))
    run = mpi(tmp_path, "batch", "-", "-q", "--timeout", "0.5", lines=f"{slow}\n{quick}\n{slow}\n")
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.returncode == 3, run.stderr
    assert [line.get("code") for line in lines] == [75, None, 75]


def test_a_full_disk_ends_ranks_with_jobs_over_their_time_limit(tmp_path):
    (tmp_path / "lines").write_text((json.dumps(slow_job()) + "\n") * 2 + (json.dumps(job(1)) + "\n") * 4)
    shell = ["sh", "-c", 'exec "$@" <lines >/dev/full', "sh", ranks.PROGRAM]
    run = launch([*command(ranks.MPIRUN, 2), *shell, "batch", "-", "-q", "-j", "1", "--timeout", "0.3"], tmp_path)
    assert run.returncode == 74, run.stderr
    assert "No space left on device" in run.stderr


def test_a_failure_ends_the_batch_early_with_fail_fast(tmp_path):
    lines = '{"Q": [[1]]}\n' + (json.dumps(job(2)) + "\n") * 2000
    run = mpi(tmp_path, "batch", "-", "--fail-fast", "-j", "1", lines=lines)
    assert run.returncode == 3
    assert len(run.stdout.splitlines()) < 1000


def test_it_takes_its_shard_from_the_scheduler_and_not_from_its_rank(tmp_path):
    lines = lines_of(60)
    task = {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "1",
            "SLURM_ARRAY_TASK_MAX": "3", "SLURM_ARRAY_TASK_STEP": "1"}
    alone = launch([ATTN, "batch", "-", "-q", "--shard", "2/3"], tmp_path, text=lines)
    run = mpi(tmp_path, "batch", "-", "-q", "--shard", "auto", lines=lines, env=task)
    assert run.stdout == alone.stdout


def test_ranks_alone_are_no_shards(tmp_path):
    run = mpi(tmp_path, "batch", "-", "--shard", "auto", lines=lines_of(3))
    assert (run.returncode, run.stdout) == (2, "")
    assert "not a task of an array" in messages(run)[0]


def test_processes_cannot_be_isolated(tmp_path):
    run = mpi(tmp_path, "batch", "-", "--isolate", lines=lines_of(3))
    assert (run.returncode, run.stdout) == (2, "")
    assert "--isolate" in messages(run)[0]


def test_the_status_of_a_folder_is_the_same(tmp_path):
    write_jobs(tmp_path / "jobs", range(9))
    mpi(tmp_path, "batch", "jobs", "--out-dir", "out", "--shard", "1/2")
    run = mpi(tmp_path, "batch", "--status", "out")
    alone = launch([ATTN, "batch", "--status", "out"], tmp_path)
    assert (run.returncode, run.stdout) == (alone.returncode, alone.stdout)


# A fault of one rank: the rank, what its shell does first, code, parts of the line.
ONE_RANK = {
    "it has another instruction set": (1, "export ATTN_ISA=baseline", 74, ["rank 1 on ", "another program"]),
    "it cannot read the base": (2, "cd other", 66, ["rank 2 on ", "base.json"]),
    "it sees another base": (1, 'echo "{\\"scale\\": 3}" > other/base.json; cd other', 74,
                             ["rank 1 on ", "--base"]),
}


@pytest.mark.parametrize("fault", ONE_RANK)
def test_one_rank_fails_because(tmp_path, fault):
    rank, script, code, parts = ONE_RANK[fault]
    write_jobs(tmp_path / "jobs", range(20))
    (tmp_path / "base.json").write_text('{"scale": 2}')
    (tmp_path / "other").mkdir()
    run = with_script(tmp_path, rank, script, "batch", "jobs", "--base", "base.json", "--out-dir", "out")
    assert run.returncode == code, run.stderr
    lines = [line for line in messages(run) if "rank" in line]
    assert len(lines) == 1, run.stderr
    for part in parts:
        assert part in lines[0]
    shutil.rmtree(tmp_path / "other")
    run = mpi(tmp_path, "batch", "jobs", "--base", "base.json", "--out-dir", "out")
    assert run.returncode == 0, run.stderr


def test_a_bundle_that_rank_0_cannot_write_ends_all(tmp_path):
    draw = {"standard_normal": {"size": [1000, 4]}}
    lines = "".join(json.dumps({"seed": seed, "Q": draw, "K": draw, "outputs": ["scores"]}) + "\n"
                    for seed in range(4))  # 8 MB each
    (tmp_path / "lines").write_text(lines)
    words = ["batch", "-", "--bundle", "4", "--out-dir", "out", "--resume"]
    run = with_script(tmp_path, 0, "ulimit -f 20000; exec < lines", *words)
    assert (run.returncode, run.stderr.count("File too large")) == (74, 1), run.stderr
    assert not list((tmp_path / "out").glob("bundle*"))
    run = mpi(tmp_path, *words, lines=lines)
    assert run.returncode == 0, run.stderr
    launch([ATTN, "batch", "-", "--bundle", "4", "--out-dir", "one"], tmp_path, text=lines)
    assert contents(tmp_path / "out") == contents(tmp_path / "one")
