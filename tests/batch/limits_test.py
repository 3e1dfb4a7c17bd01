"""Memory limits: --dry-run states what a job needs; --max-memory and --max-expand refuse it in advance."""

import json
import os
import pathlib
import re
import resource
import subprocess
import time

import numpy as np
import pytest

from support.attn import ATTN, attn, attn_and_peak, json_lines, under_asan, under_sanitizer
from support.checkpoints import write_model
from support.jobs import is_expected, job, write_jobs

MIB = 2**20
NOT_UNDER_ASAN = pytest.mark.skipif(under_asan(), reason="AddressSanitizer's shadow memory")
NOT_UNDER_SANITIZER = pytest.mark.skipif(under_sanitizer(), reason="a sanitizer's allocator")


def plan_of(*arguments, cwd):
    return json.loads(attn(*arguments, "--dry-run", "--format", "json", cwd=cwd).stdout)


def bytes_needed(run):
    """The number of bytes that a refusal by --max-memory states."""
    return int(run.stderr.split(b"(")[1].split()[0])


# The plan of --dry-run matches the result.


def normal(*shape, dtype=np.float64):
    return np.random.default_rng(3).standard_normal(shape).astype(dtype)


def integers(*shape):
    return np.random.default_rng(3).integers(0, 3, shape)


COMMON = "queries,keys,values,scores,scaled_scores,masked_scores,weights,logsumexp,head_context,context"
JOBS = {  # inputs and flags
    "projected": (
        dict(embeddings=normal(5, 4), W_Q=normal(4, 6), W_K=normal(4, 6), W_V=normal(4, 8), W_O=normal(8, 7)),
        ["--heads", "2", "--position", "sinusoidal",
         "--outputs", COMMON + ",positions,inputs,W_K_heads,output,W_Q"]),
    "memory": (dict(embeddings=normal(2, 5, 4), memory=normal(2, 6, 3), W_K=normal(3, 4)),
               ["--outputs", COMMON + ",inputs", "--rows", "0,-1"]),
    "integers": (dict(embeddings=integers(4, 3), W_Q=integers(3, 2), W_K=integers(3, 2)), ["--outputs", COMMON]),
    "half": ({name: normal(2, 3, 4, 5, dtype=np.float16) for name in "QKV"},
             ["--outputs", COMMON, "--layout", "blhd"]),
    "grouped": (dict(Q=normal(2, 4, 3, 5), K=normal(2, 2, 6, 5), V=normal(2, 2, 6, 4)),
                ["--outputs", COMMON, "--softcap", "3"]),
}


@pytest.mark.parametrize("case", JOBS)
def test_plan_has_the_names_shapes_dtypes_and_sizes_of_the_outputs(tmp_path, case):
    tensors, flags = JOBS[case]
    np.savez(tmp_path / "job.npz", **tensors)
    assert attn("run", "job.npz", *flags, "-o", "out.npz", cwd=tmp_path).returncode == 0
    with np.load(tmp_path / "out.npz") as result:
        actual = {name: (list(result[name].shape), str(result[name].dtype), result[name].nbytes)
                  for name in result.files}
    plan = plan_of("run", "job.npz", *flags, cwd=tmp_path)
    assert {output["name"]: (output["shape"], output["dtype"], output["bytes"])
            for output in plan["outputs"]} == actual


class TestDryRun:
    @pytest.fixture
    def folder(self, tmp_path):
        np.savez(tmp_path / "job.npz", Q=np.ones((5, 4)), K=np.ones((6, 4)), V=np.ones((6, 3)))
        (tmp_path / "scores.npy").touch()
        return tmp_path

    def test_counts_the_operations_of_each_output(self, folder):
        plan = plan_of("run", "job.npz", cwd=folder)
        # 2 m k n for each product; 1 + 1 + 4 for each weight.
        assert [output["flops"] for output in plan["outputs"]] == [2 * 5 * 4 * 6, 4 * 5 * 6, 2 * 5 * 6 * 3]

    def test_counts_all_operations(self, folder):
        plan = plan_of("run", "job.npz", cwd=folder)
        assert plan["flops"] == sum(output["flops"] for output in plan["outputs"]) + 2 * 5 * 6

    def test_prints_the_plan_as_text(self, folder):
        run = attn("run", "job.npz", "--dry-run", "-o", "none.npz", cwd=folder)
        assert run.stdout.startswith(b"scores (5, 6) float64: 240 bytes, 240 flops, "
                                     b"written during computation\n")
        assert b"total: " in run.stdout

    def test_writes_no_file(self, folder):
        attn("run", "job.npz", "--dry-run", "-o", "none.npz", cwd=folder)
        assert not (folder / "none.npz").exists()

    def test_leaves_no_folder(self, folder):
        assert attn("run", "job.npz", "--dry-run", "-o", "new/", cwd=folder).returncode == 0
        assert not (folder / "new").exists()

    @pytest.mark.parametrize("path, reason", [
        ("job.npz", b"is an input"), ("no/x.npz", b"there is no folder no"), (".", b"scores.npy")])
    def test_refuses_an_output_that_cannot_be_created(self, folder, path, reason):
        run = attn("run", "job.npz", "--dry-run", "-o", path, cwd=folder)
        assert run.returncode == 73
        assert reason in run.stderr
        assert run.stdout == b""

    def test_refuses_a_job_that_is_incomplete(self, folder):
        run = attn("run", "job.npz", "--dry-run", "--outputs", "output", cwd=folder)
        assert run.returncode == 2
        assert b"W_O" in run.stderr


# The stated memory is an upper bound (but for what any run takes), and at most four times what is used.


@NOT_UNDER_ASAN
@pytest.mark.parametrize("suffix", ["npz", pytest.param("json", marks=pytest.mark.long)])
@pytest.mark.parametrize("dtype, size, flags", [
    ("float64", 1500, []), ("float32", 2000, []), ("float16", 1500, ["--causal"]), ("int64", 1200, [])])
def test_memory_bound_of_a_run_holds(tmp_path, dtype, size, flags, suffix):
    rng = np.random.default_rng(4)
    inputs = []
    for key in "QKV":
        numbers = rng.integers(-9, 9, (size, 64)) if dtype == "int64" else rng.standard_normal((size, 64))
        np.save(tmp_path / f"{key}.npy", numbers.astype(dtype))
        inputs += [f"--{key.lower()}", f"{key}.npy"]
    arguments = ["run", *inputs, *flags, "-o", f"out.{suffix}"]
    plan = attn(*arguments, "--dry-run", cwd=tmp_path)
    bound = float(plan.stdout.rsplit(b"at most ", 1)[1].split()[0]) * MIB
    run, peak = attn_and_peak(*arguments, cwd=tmp_path)
    assert run.returncode == 0
    assert bound / 4 < peak < bound + 64 * MIB


@NOT_UNDER_ASAN
@pytest.mark.parametrize("flags, table", [
    (["--mask-rule", "t[q,k] > 0 or k == 0", "--mask-tables", "t=t.npy"], (1500, 1500)),
    (["--tree-parents", "t.npy"], (2000,))])
def test_memory_bound_includes_the_tables_of_rules(tmp_path, flags, table):
    rng = np.random.default_rng(4)
    np.savez(tmp_path / "in.npz", **{key: rng.standard_normal((table[0], 8)) for key in "QKV"})
    np.save(tmp_path / "t.npy", rng.integers(0, 3, table) if len(table) == 2 else np.arange(table[0]) - 1)
    arguments = ["run", "in.npz", *flags, "-o", "out.npz"]
    bound = float(attn(*arguments, "--dry-run", cwd=tmp_path).stdout.rsplit(b"at most ", 1)[1].split()[0]) * MIB
    run, peak = attn_and_peak(*arguments, cwd=tmp_path)
    assert run.returncode == 0
    assert bound / 4 < peak < bound + 30 * MIB


@NOT_UNDER_ASAN
@pytest.mark.parametrize("flags", [
    ["--view=v.png"], ["--view=v.svg"], ["--view=v.pdf"], ["--view=v.html"], ["--view"], ["--explain", "v.md"],
    ["--explain", "v.html"], ["--explain", "v.html", "--view=w.html"]])
@pytest.mark.parametrize("shape", [(1500, 8), (1, 400, 24, 8)], ids=["one large matrix", "many heads"])
class TestMemoryOfPictures:
    @pytest.fixture
    def arguments(self, tmp_path, shape, flags):
        rng = np.random.default_rng(6)
        np.savez(tmp_path / "job.npz", **{key: rng.standard_normal(shape) for key in "QKV"})
        return ["run", "job.npz", "--outputs", "weights,context", *flags]

    @pytest.fixture
    def bound(self, tmp_path, arguments):
        run = attn(*arguments, "--max-memory", "5M", cwd=tmp_path)
        assert run.returncode == 65
        return bytes_needed(run)

    def test_is_in_the_plan(self, tmp_path, arguments, bound):
        plan = attn(*arguments, "--dry-run", "-o", "none.npz", cwd=tmp_path)
        assert f"at most {bound / MIB:.1f} MiB of memory" in plan.stdout.decode()

    def test_is_refused_before_anything_is_written(self, tmp_path, arguments, bound):
        run = attn(*arguments, "--max-memory", bound - 1, cwd=tmp_path)
        assert run.returncode == 65
        assert run.stdout == b""
        assert b"omitting --" in run.stderr
        assert list(tmp_path.glob("[vw].*")) == []

    def test_is_enough(self, tmp_path, arguments, bound):
        run, peak = attn_and_peak(*arguments, "--max-memory", bound, cwd=tmp_path)
        assert run.returncode == 0
        assert bound / 4 < peak < bound + 30 * MIB


# --max-memory


class TestMaxMemory:
    # The reference path: the kernels write rows to the .npz while they compute them.
    ARGUMENTS = ["run", "job.npz", "--path", "reference", "-o", "out.npz"]

    @pytest.fixture
    def folder(self, tmp_path):
        rng = np.random.default_rng(5)
        np.savez(tmp_path / "job.npz", Q=rng.standard_normal((300, 8)), K=rng.standard_normal((300, 8)))
        return tmp_path

    @pytest.fixture
    def refusal(self, folder):
        return attn(*self.ARGUMENTS, "--max-memory", "1M", cwd=folder)

    def test_refuses_a_job_that_needs_more(self, folder, refusal):
        assert refusal.returncode == 65
        assert b"needs " in refusal.stderr
        assert b"--max-memory" in refusal.stderr
        assert not (folder / "out.npz").exists()

    def test_the_stated_number_is_enough(self, folder, refusal):
        assert attn(*self.ARGUMENTS, "--max-memory", bytes_needed(refusal), cwd=folder).returncode == 0

    def test_one_byte_less_is_not(self, folder, refusal):
        assert attn(*self.ARGUMENTS, "--max-memory", bytes_needed(refusal) - 1, cwd=folder).returncode == 65

    def test_refuses_a_file_that_is_too_large(self, folder):
        run = attn("run", "job.npz", "--max-memory", "10K", cwd=folder)
        assert run.returncode == 65
        assert b"--max-memory" in run.stderr

    @pytest.mark.parametrize("size", ["", "x", "0", "-1G", "1Q", "1GG", "nan", "1e999"])
    def test_refuses_an_invalid_size(self, folder, size):
        assert attn("run", "job.npz", f"--max-memory={size}", cwd=folder).returncode == 2


def test_random_tensor_that_is_too_large_is_refused_before_it_is_drawn():
    huge = {"seed": 1, "Q": {"rand": {"shape": [65536, 65535]}}, "K": [[1.0]]}
    run = attn("run", "-", "--max-memory", "1G", stdin=json.dumps(huge))
    assert run.returncode == 65
    assert b"Q: takes more than" in run.stderr


@NOT_UNDER_ASAN
def test_limit_on_address_space_refuses_the_job():
    limit = 3 * 10**8
    square = {"rand": {"shape": [6000, 4]}}
    run = subprocess.run([ATTN, "run", "-"], input=json.dumps({"seed": 1, "Q": square, "K": square}).encode(),
                         capture_output=True, env=dict(os.environ, OPENBLAS_NUM_THREADS="1"),
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert run.returncode == 65
    assert b"--max-memory" in run.stderr


class TestBatchOfLargeAndSmallJobs:
    @pytest.fixture(scope="class")
    def folder(self, class_path):
        write_jobs(class_path / "jobs", range(8))
        big = {"seed": 1, "Q": {"rand": {"shape": [700, 8]}}, "K": {"rand": {"shape": [700, 8]}}}
        for number in range(4):
            (class_path / "jobs" / f"big{number}.json").write_text(json.dumps(big))
        return class_path

    def test_jobs_wait_when_they_do_not_fit_together(self, folder):
        run = attn("batch", "jobs", "-j", "4", "--max-memory", "30M", "--out-dir", "out", cwd=folder)
        assert run.returncode == 0

    def test_jobs_that_never_fit_fail(self, folder):
        run = attn("batch", "jobs", "--max-memory", "5M", "--out-dir", "out2", cwd=folder)
        assert run.returncode == 3
        assert b"12 jobs: 8 done, 0 skipped, 4 failed" in run.stderr
        assert b"big0.json: needs" in run.stderr

    def test_dry_run_counts_the_jobs_and_writes_nothing(self, folder):
        run = attn("batch", "jobs", "--dry-run", "--out-dir", "dry", cwd=folder)
        assert run.returncode == 0
        assert len(json_lines(run.stdout)) == 12
        assert b"12 jobs: 12 planned, 0 skipped, 0 failed" in run.stderr
        assert not (folder / "dry").exists()

    def test_dry_run_plans_each_job(self, folder):
        plan = json_lines(attn("batch", "jobs", "--dry-run", "--out-dir", "dry", cwd=folder).stdout)[0]
        assert plan["output"] == "dry/big0.npz"
        assert plan["outputs"][0]["shape"] == [700, 700]


@pytest.mark.parametrize("flags", [[], ["--out-dir", "out"], ["--out-dir", "out", "--resume"]])
def test_job_file_counts_towards_max_memory(tmp_path, flags):
    (tmp_path / "padded.json").write_text(json.dumps(job(1)) + " " * 10**6)
    run = attn("batch", "padded.json", "--max-memory", "900K", *flags, cwd=tmp_path)
    assert run.returncode == 3
    assert b"padded.json: expected at most 921600 bytes" in run.stderr + run.stdout


def test_list_of_jobs_counts_towards_max_memory(tmp_path):
    write_jobs(tmp_path / "jobs", [0])
    (tmp_path / "list").write_text("jobs/job0000.json\n" + "\n" * 10**6)
    run = attn("batch", "--files-from", "list", "--max-memory", "900K", cwd=tmp_path)
    assert run.returncode == 65
    assert b"list: expected at most" in run.stderr


@pytest.mark.parametrize("attempt", range(20))  # any of the workers may read the long line
def test_line_that_is_too_long_fails_and_the_others_run(attempt):
    line = json.dumps(job(1))
    run = attn("batch", "-", "--max-memory", "1M", stdin=line + "\n" + " " * 200000 + line + "\n" + line)
    results = json_lines(run.stdout)
    assert run.returncode == 3
    assert len(results) == 3
    assert is_expected(results[0], 1)
    assert results[1]["code"] == 65
    assert f"at most 131072 bytes in a line, found {200000 + len(line)}; " in results[1]["error"][0]
    assert is_expected(results[2], 1)


@NOT_UNDER_SANITIZER
@pytest.mark.parametrize("kind", ["read", "model", "drawn", "computed"])
def test_jobs_of_a_batch_together_keep_to_max_memory(tmp_path, kind):
    """Tensors that are read, drawn and computed all count, and are freed for the next job. All eight
    jobs at once would take 256 MB."""
    (tmp_path / "jobs").mkdir()
    square = {"rand": {"shape": [1000, 8]}}
    one_row = {"K": [[1.0] * 8], "outputs": ["logsumexp"], "rows": [0]}
    for number in range(8):
        if kind == "read":
            np.save(tmp_path / f"{number}.npy", np.full((500_000, 8), number, np.float64))  # 32 MB
        if kind == "model":
            weights = {f"layers.0.self_attn.{name}_proj.weight": np.eye(2) for name in "qkvo"}
            write_model(tmp_path / str(number), {"model_type": "llama", "hidden_size": 2, "num_attention_heads": 1,
                                                 "num_hidden_layers": 1},
                        {**weights, "layers.0.input_layernorm.weight": np.ones(2), "unused": np.zeros(4_000_000)})
        text = {"read": one_row | {"Q": f"../{number}.npy"},
                "model": {"model": f"../{number}", "layer": 0, "hidden": [[1.0, 2.0]], "outputs": ["weights"]},
                "drawn": one_row | {"seed": number, "Q": {"rand": {"shape": [500_000, 8]}}},
                "computed": {"seed": number, "Q": square, "K": square}}[kind]
        (tmp_path / "jobs" / f"{number}.json").write_text(json.dumps(text))
    run, peak = attn_and_peak("batch", "jobs", "-j", "8", "--max-memory", "50M", "--out-dir", "out", cwd=tmp_path)
    assert run.returncode == 0
    assert peak < (50 + 16 + 8) * MIB, peak / MIB


@NOT_UNDER_SANITIZER
@pytest.mark.parametrize("suffix", ["md", "txt", "tex", "html"])
def test_estimate_of_an_explanation_of_many_keys(tmp_path, suffix):
    for name, count in ("q", 1), ("k", 400_000):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(1).standard_normal((count, 2)))
    args = ["run", "--q", "q.npy", "--k", "k.npy", "--v", "k.npy", "--explain", f"e.{suffix}", "--outputs", "context"]
    run, peak = attn_and_peak(*args, cwd=tmp_path)
    assert run.returncode == 0
    (tmp_path / f"e.{suffix}").unlink()
    text = attn(*args, "--dry-run", cwd=tmp_path).stdout
    planned = float(text.rsplit(b"at most ", 1)[1].split()[0]) * MIB
    assert peak - 16 * MIB < planned < 6 * peak


@NOT_UNDER_SANITIZER
@pytest.mark.parametrize("isolate", [[], ["--isolate"]], ids=["threads", "processes"])
def test_job_that_reaches_the_limit_fails_alone(tmp_path, isolate):
    """Its estimate is below the limit, but its shapes and lists of lengths take more."""
    many = {"randn": {"shape": [320_000, 1, 1, 1]}}
    large = {"Q": many, "K": many, "seed": 1, "key_lengths": [1] * 320_000, "outputs": ["context"]}
    small = {"Q": [[1.0, 2.0]] * 400, "K": [[1.0, 2.0]] * 400, "outputs": ["context"]}
    lines = [small] * 20 + [large] + [small] * 20
    run = attn("batch", "-", "-j", "2", *isolate, "--max-memory", "48M", stdin="\n".join(map(json.dumps, lines)))
    assert run.returncode == 3
    results = json_lines(run.stdout)
    errors = [result.get("error") for result in results]
    assert "takes more than 50331648 bytes of memory; --max-memory raises the limit" in errors.pop(20)[0]
    assert errors == [None] * 40


@NOT_UNDER_SANITIZER
@pytest.mark.long
def test_few_results_wait_in_memory_for_a_slow_reader():
    """The texts of all twelve results would take 240 MB."""
    square = {"rand": {"shape": [1000, 8]}}
    jobs = 12 * (json.dumps({"seed": 1, "Q": square, "K": square, "outputs": ["weights"]}) + "\n")
    with subprocess.Popen([ATTN, "batch", "-", "-j", "2", "-q", "--max-memory", "80M"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as batch:
        batch.stdin.write(jobs.encode())
        batch.stdin.close()
        time.sleep(1.5)
        status = pathlib.Path(f"/proc/{batch.pid}/status").read_text(encoding="utf-8")
        results = batch.stdout.read().count(b"\n")
    peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024
    assert peak < 170
    assert results == 12


@NOT_UNDER_ASAN
@pytest.mark.parametrize("megabytes, workers", [(100, 1), (200, 3), (300, 3)])
def test_small_jobs_run_in_little_address_space(tmp_path, megabytes, workers):
    """Small products need no work space of BLAS; workers that need it take turns."""
    (tmp_path / "jobs").mkdir()
    square = {"rand": {"shape": [2, 2]}}
    for number in range(20):
        (tmp_path / "jobs" / f"{number}.json").write_text(json.dumps(
            {"seed": number, "embeddings": square, "W_Q": square, "W_K": square, "W_V": square}))
    limit = megabytes * 10**6
    run = subprocess.run([ATTN, "batch", "jobs", "-q", "-j", str(workers)], cwd=tmp_path,
                         capture_output=True, timeout=60,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert run.returncode == 0, run.stderr[:300]
    assert run.stdout == attn("batch", "jobs", "-q", cwd=tmp_path).stdout


# --max-expand


@pytest.fixture
def compressed(tmp_path):
    np.savez_compressed(tmp_path / "zeros.npz", Q=np.zeros((4000, 100)), K=np.zeros((10, 100)))
    return ["run", tmp_path / "zeros.npz", "--outputs", "logsumexp", "-o", tmp_path / "out.npz"]


def test_max_expand_refuses_a_file_that_expands_too_far(compressed):
    run = attn(*compressed, "--max-expand", "1M")
    assert run.returncode == 65
    assert b"--max-expand" in run.stderr


def test_max_expand_accepts_a_file_within_the_limit(compressed):
    assert attn(*compressed, "--max-expand", "3300000").returncode == 0
