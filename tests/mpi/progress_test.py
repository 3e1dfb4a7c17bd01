"""The progress of attn-mpi run. scripts/test-with/mpi runs these tests for each MPI library."""

import re

import numpy as np
import pytest

from mpi import ranks
from mpi.ranks import messages, mpi

pytestmark = ranks.NEEDS_MPI


def write_job(folder, queries, keys, more=""):
    numbers = np.random.default_rng(1)
    for name, rows in ("Q", queries), ("K", keys), ("V", keys):
        np.save(folder / f"{name}.npy", numbers.standard_normal((2, rows, 16)).astype("float32"))
    (folder / "job.json").write_text('{"Q": "Q.npy", "K": "K.npy", "V": "V.npy"' + more + "}")


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("queries, keys", [(700, 700), (2, 4000)])
def test_all_rows_of_all_ranks_are_counted(tmp_path, count, queries, keys):
    write_job(tmp_path, queries, keys)
    run = mpi(tmp_path, "run", "job.json", "-o", "context=r.npy", "--progress", "plain", ranks=count)
    assert run.returncode == 0, run.stderr
    assert re.fullmatch(r"attn: 100 % done after \d+ s", messages(run)[-1])


@pytest.mark.parametrize("flags", [[], ["--progress", "none"], ["--progress", "auto"]])
def test_progress_is_not_printed_into_files(tmp_path, flags):
    write_job(tmp_path, 700, 700)
    run = mpi(tmp_path, "run", "job.json", "-o", "context=r.npy", *flags)
    assert (run.returncode, messages(run)) == (0, [])


def test_a_job_on_rank_0_alone_is_reported_as_that_of_one_process(tmp_path):
    write_job(tmp_path, 3, 3, ', "softmax": {"axis": "all"}')
    run = mpi(tmp_path, "run", "job.json", "-o", "context=r.npy", "--progress", "plain")
    assert run.returncode == 0
    assert [re.sub(r"\d+", "N", line) for line in messages(run)] == ["attn: running for N s"]


def test_an_unknown_way_to_show_progress_is_refused(tmp_path):
    write_job(tmp_path, 3, 3)
    run = mpi(tmp_path, "run", "job.json", "--progress", "some")
    assert run.returncode == 2
    assert "--progress" in messages(run)[0]
