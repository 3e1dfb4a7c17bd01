"""`attn batch --shard auto`: the shard of a task of an array job, from the scheduler's variables."""

import pytest

from support.attn import attn, json_lines

JOB = '{"Q": [[1]], "K": [[1]], "outputs": ["scores"]}\n'
VARIABLES = ["SLURM_ARRAY_TASK_ID", "PBS_ARRAY_INDEX", "LSB_JOBINDEX", "SGE_TASK_ID", "AWS_BATCH_JOB_ARRAY_INDEX",
             "JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_RANK", "PMI_RANK"]


def slurm(index, lowest, highest, step=1, count=None):
    values = {"ID": index, "MIN": lowest, "MAX": highest, "STEP": step,
              "COUNT": (highest - lowest) // step + 1 if count is None else count}
    return {f"SLURM_ARRAY_TASK_{name}": value for name, value in values.items()}


def sge(index, first, last, step=1):
    return {"SGE_TASK_ID": index, "SGE_TASK_FIRST": first, "SGE_TASK_LAST": last, "SGE_TASK_STEPSIZE": step}


@pytest.fixture
def lines_run(monkeypatch):
    """Runs 12 job lines as a task with these variables; returns the run, and the numbers of the lines that it ran."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def lines_run(variables, shard="auto"):
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        run = attn("batch", "-", "--shard", shard, stdin=12 * JOB)
        return run, [int(result["job"].split()[1]) for result in json_lines(run.stdout)]
    return lines_run


@pytest.mark.parametrize("variables, index, count", [
    pytest.param(slurm(1, 1, 4), 1, 4, id="Slurm --array=1-4, first"),
    pytest.param(slurm(4, 1, 4), 4, 4, id="Slurm --array=1-4, last"),
    pytest.param(slurm(0, 0, 3), 1, 4, id="Slurm --array=0-3"),
    pytest.param(slurm(15, 5, 20, 5), 3, 4, id="Slurm --array=5-20:5"),
    pytest.param(slurm(8, 7, 9), 2, 3, id="Slurm --array=7-9"),
    pytest.param(sge(3, 1, 5), 3, 5, id="SGE -t 1-5"),
    pytest.param(sge(9, 1, 10, 4), 3, 3, id="SGE -t 1-10:4"),
    pytest.param({"AWS_BATCH_JOB_ARRAY_INDEX": 0, "AWS_BATCH_JOB_ARRAY_SIZE": 3}, 1, 3, id="AWS Batch"),
    pytest.param({"OMPI_COMM_WORLD_RANK": 2, "OMPI_COMM_WORLD_SIZE": 3}, 3, 3, id="Open MPI"),
    pytest.param({"PMI_RANK": 1, "PMI_SIZE": 4}, 2, 4, id="MPICH"),
    pytest.param({**slurm(2, 1, 4), "PMI_RANK": 0, "PMI_SIZE": 1}, 2, 4, id="srun in a Slurm array"),
    pytest.param({**sge(2, 1, 4), "LSB_JOBINDEX": 0}, 2, 4, id="LSB_JOBINDEX=0 is no array"),
    pytest.param({**slurm(2, 1, 4), "SGE_TASK_ID": "undefined"}, 2, 4, id="SGE_TASK_ID=undefined is no array"),
])
def test_task_runs_its_part(lines_run, variables, index, count):
    run, lines = lines_run(variables)
    assert run.returncode == 0
    assert lines == list(range(index, 13, count))


@pytest.mark.parametrize("variables, shard, index", [
    pytest.param({"PBS_ARRAY_INDEX": 2}, "auto/4", 2, id="PBS counts from 1"),
    pytest.param({"LSB_JOBINDEX": 4}, "auto/4", 4, id="LSF counts from 1"),
    pytest.param({"JOB_COMPLETION_INDEX": 0}, "auto/4", 1, id="Kubernetes counts from 0"),
    pytest.param(slurm(7, 3, 9, count=4), "auto/8", 7, id="Slurm --array=3,7-9"),
    pytest.param({"AWS_BATCH_JOB_ARRAY_INDEX": 3}, "auto/4", 4, id="AWS Batch"),
])
def test_number_of_shards_can_be_given(lines_run, variables, shard, index):
    run, lines = lines_run(variables, shard)
    assert run.returncode == 0
    assert lines == list(range(index, 13, int(shard[5:])))


@pytest.mark.parametrize("variables, shard, message", [
    pytest.param({}, "auto", "this process is not a task of an array", id="no array"),
    pytest.param({}, "auto/3", "this process is not a task of an array", id="no array, with a count"),
    pytest.param({"SLURM_ARRAY_TASK_ID": 3}, "auto", "SLURM_ARRAY_TASK_ID is set, but SLURM_ARRAY_TASK_MIN is not",
                 id="Slurm, incomplete"),
    pytest.param(slurm(7, 3, 9, count=4), "auto", "SLURM_ARRAY_TASK_COUNT=4, but SLURM_ARRAY_TASK_MIN=3",
                 id="Slurm --array=3,7-9"),
    pytest.param(slurm(9, 1, 4), "auto", "SLURM_ARRAY_TASK_ID=9 is not one of 4 tasks", id="above the range"),
    pytest.param(slurm(2, 1, 5, 2), "auto", "SLURM_ARRAY_TASK_ID=2 is not one of 3 tasks", id="between two steps"),
    pytest.param(slurm(1, 1, 4, 0, count=4), "auto", "expected a range of tasks", id="step 0"),
    pytest.param(slurm(1, 4, 1, count=4), "auto", "expected a range of tasks", id="range reversed"),
    pytest.param(slurm("x", 1, 4), "auto", "expected a whole number >= 0, found SLURM_ARRAY_TASK_ID=x", id="no number"),
    pytest.param(slurm("\x1b[1m", 1, 4), "auto", r"found SLURM_ARRAY_TASK_ID=\x1b[1m", id="control characters"),
    pytest.param(slurm(0, 0, 3), "auto/4", "SLURM_ARRAY_TASK_ID=0 is not one of 4 tasks", id="Slurm counts from 1"),
    pytest.param({"PBS_ARRAY_INDEX": 2}, "auto", "no variable states the number of tasks", id="PBS"),
    pytest.param({"LSB_JOBINDEX": 2}, "auto", "no variable states the number of tasks", id="LSF"),
    pytest.param({"JOB_COMPLETION_INDEX": 2}, "auto", "no variable states the number of tasks", id="Kubernetes"),
    pytest.param({"OMPI_COMM_WORLD_RANK": 2}, "auto", "OMPI_COMM_WORLD_SIZE is not", id="Open MPI, incomplete"),
    pytest.param({"OMPI_COMM_WORLD_RANK": 3, "OMPI_COMM_WORLD_SIZE": 3}, "auto", "is not one of 3 tasks",
                 id="Open MPI, rank out of range"),
    pytest.param({"PMI_RANK": 0, "PMI_SIZE": 0}, "auto", "is not one of 0 tasks", id="no tasks"),
    pytest.param({**slurm(1, 1, 4), "OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2}, "auto",
                 "SLURM_ARRAY_TASK_ID=1 and OMPI_COMM_WORLD_RANK=0 contradict each other", id="two schedulers"),
    pytest.param({}, "auto/0", "expected I/N with 1 <= I <= N, auto or auto/N", id="auto/0"),
    pytest.param({}, "auto/", "expected I/N with 1 <= I <= N, auto or auto/N", id="auto/"),
    pytest.param({}, "automatic", "expected I/N with 1 <= I <= N, auto or auto/N", id="another word"),
])
def test_missing_or_contradictory_variables_are_refused(lines_run, variables, shard, message):
    run, _ = lines_run(variables, shard)
    assert run.returncode == 2
    assert message in run.stderr.decode()
    assert run.stderr.count(b"\n") == 1
