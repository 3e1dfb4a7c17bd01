"""Scores and weights that are written to files while they are computed: equal bytes, little memory, and
no file after a failure."""

import itertools
import os
import resource
import signal
import subprocess
import time
import zipfile

import numpy as np
import pytest

from support import safetensors_file
from support.attn import ATTN, assert_error, attn, attn_and_peak, under_asan

MIB = 1 << 20


def contents(path):
    """{name: array} of an .npz or .safetensors file."""
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
        with np.load(path) as arrays:
            return dict(arrays)
    tensors, _ = safetensors_file.read(path.read_bytes())
    return {name: np.frombuffer(data, dict(F16="<f2", F32="<f4", F64="<f8")[dtype]).reshape(shape)
            for name, (dtype, shape, data) in tensors.items()}


# Results.

CASES = [  # shapes of Q and of K and V, flags, outputs
    ((3, 2), (3, 2), [], "scores,weights,context"),
    ((1, 8), (1, 8), [], "weights,masked_scores"),
    ((200, 40), (333, 40), [], "context,weights,logsumexp"),
    ((2, 70, 16), (2, 70, 16), ["--causal"], "scores,mean_weights,weights"),
    ((2, 4, 90, 24), (2, 2, 530, 24), ["--kv-heads", "2"], "scaled_scores,row_max"),
    ((150, 64), (600, 32), ["--heads", "4", "--kv-heads", "2"], "scores,weights,context"),
    ((2, 3, 40, 8), (2, 3, 40, 8), ["--window", "3,1", "--rows", "0,17,39"], "weights,masked_scores"),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]} {case[1]}")
def case(request):
    return request.param


@pytest.fixture(scope="module", params=["float32", "float64", "float16"])
def dtype(request):
    return request.param


@pytest.fixture(scope="module")
def job(case, dtype, module_path):
    """Arguments of `attn run` for this case."""
    rng = np.random.default_rng(1)
    q, k, flags, _ = case
    np.savez(module_path / "in.npz", Q=rng.standard_normal(q).astype(dtype),
             K=rng.standard_normal(k).astype(dtype), V=rng.standard_normal(k).astype(dtype))
    return ["run", module_path / "in.npz", *flags]


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_streamed_file_equals_the_result_through_a_pipe(job, case, suffix, tmp_path):
    """Nothing is streamed through a pipe."""
    run = [*job, "--outputs", case[3]]
    piped = attn(*run, "--format", suffix).stdout
    assert piped
    for threads in 1, 3:
        path = tmp_path / f"{threads}.{suffix}"
        done = attn(*run, "--threads", threads, "-o", path)
        assert (done.returncode, done.stderr) == (0, b"")
        assert path.read_bytes() == piped, f"{threads} threads"


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_streamed_file_holds_what_the_reference_path_computes(job, case, dtype, suffix, tmp_path):
    run = [*job, "--outputs", case[3]]
    attn(*run, "-o", tmp_path / f"out.{suffix}")
    attn(*run, "--path", "reference", "-o", tmp_path / "reference.npz")
    results, expected = contents(tmp_path / f"out.{suffix}"), contents(tmp_path / "reference.npz")
    names = case[3].split(",")
    assert list(results) == names if suffix == "npz" else sorted(results) == sorted(names)
    tolerance = dict(float16=2e-3, float32=1e-5, float64=1e-13)[dtype]
    for name in names:
        assert results[name].dtype == expected[name].dtype
        np.testing.assert_allclose(results[name], expected[name], tolerance, tolerance, err_msg=name)


def test_output_may_be_streamed_to_several_files(job, tmp_path):
    done = attn(*job, "-o", "weights=w.npy", "-o", "weights=w.npz", "-o", "scores=s.safetensors", "-o", "each/",
                cwd=tmp_path)
    assert done.returncode == 0
    assert np.load(tmp_path / "w.npy").tobytes() == contents(tmp_path / "w.npz")["weights"].tobytes()
    assert (tmp_path / "w.npy").read_bytes() == (tmp_path / "each/weights.npy").read_bytes()
    scores = np.load(tmp_path / "each/scores.npy")
    assert contents(tmp_path / "s.safetensors")["scores"].tobytes() == scores.tobytes()


@pytest.mark.parametrize("suffix", ["npy", "safetensors"])
def test_bfloat16_is_streamed_as_it_is_piped(tmp_path, suffix):
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "in.npz", **{name: rng.standard_normal((2, 3, 40, 8)).astype("f2") for name in "QKV"})
    attn("convert", "in.npz", "--dtype", "bf16", "-o", "bf16.safetensors", cwd=tmp_path)
    run = ["run", "bf16.safetensors", "--outputs", "weights"]
    attn(*run, "-o", f"b.{suffix}", cwd=tmp_path)
    assert (tmp_path / f"b.{suffix}").read_bytes() == attn(*run, "--format", suffix, cwd=tmp_path).stdout


# Memory.

RUN = ["run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy"]


def save_inputs(folder, count, width=64):
    rng = np.random.default_rng(2)
    for name in "qkv":
        np.save(folder / f"{name}.npy", rng.standard_normal((count, width)).astype(np.float32))


@pytest.mark.skipif(under_asan(), reason="AddressSanitizer's shadow memory")
class TestMemory:
    COUNT = 8192
    INPUTS, MATRIX = 3 * COUNT * 64 * 4, COUNT * COUNT * 4

    @pytest.fixture(scope="class")
    def folder(self, class_path):
        save_inputs(class_path, self.COUNT)
        return class_path

    @pytest.mark.parametrize("outputs, limit", [
        (["-o", "context=c.npy"], INPUTS // 3 + 64 * MIB),
        (["-o", "weights=w.npy", "-o", "context=c2.npy"], INPUTS // 3 + 64 * MIB),
        (["-o", "o.npz", "--outputs", "scores,weights"], 64 * MIB),
        (["-o", "o.safetensors", "--outputs", "weights"], 64 * MIB)])
    def test_streamed_matrix_is_never_in_memory(self, folder, outputs, limit):
        done, peak = attn_and_peak(*RUN, *outputs, "--max-memory", self.INPUTS + limit, cwd=folder)
        assert (done.returncode, done.stderr) == (0, b"")
        assert peak <= self.INPUTS + limit < self.MATRIX

    def test_dry_run_tells_which_outputs_are_streamed(self, folder):
        plan = attn(*RUN, "-o", "o.npz", "--force", "--dry-run", cwd=folder).stdout.decode()
        assert plan.count("written during computation") == 2

    @pytest.mark.parametrize("flags", [
        ["-o", "o.json"], ["-o", "-", "--format", "npz"], ["-o", "n.npz", "-o", "-"],
        ["-o", "n.npz", "--view=v.svg"], ["-o", "n.npz", "--path", "reference"]])
    class TestOutputThatCannotBeStreamed:
        def test_is_planned_in_memory(self, folder, flags):
            plan = attn(*RUN, *flags, "--dry-run", cwd=folder).stdout.decode()
            assert "scores" in plan
            assert "while" not in plan

        def test_counts_towards_max_memory(self, folder, flags):
            assert_error(attn(*RUN, *flags, "--max-memory", "200M", cwd=folder), 65, "--max-memory")


# Failures.


class TestFailure:
    @pytest.fixture
    def folder(self, tmp_path):
        save_inputs(tmp_path, 2048)
        return tmp_path

    @staticmethod
    def run_with_small_files(folder, *arguments):
        """A run that may not write files of more than 10 MiB."""
        return subprocess.run(
            [ATTN, *arguments], cwd=folder, capture_output=True, timeout=60,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10 << 20, 10 << 20)))

    @pytest.mark.parametrize("outputs, name", [
        (["-o", "weights=w.npy", "-o", "context=c.npy"], "w.npy"), (["-o", "o.npz"], "o.npz"),
        (["-o", "o.safetensors"], "o.safetensors"), (["-o", "new/"], "new/scores.npy")])
    def test_to_write_leaves_no_file(self, folder, outputs, name):
        before = sorted(os.listdir(folder))
        run = self.run_with_small_files(folder, *RUN, *outputs)
        assert run.stderr.decode() == f"attn: {name}: File too large\n"
        assert run.returncode == 74
        assert sorted(os.listdir(folder)) == before

    def test_to_write_names_the_output_and_not_the_job(self, folder):
        np.savez(folder / "in.npz", **{name.upper(): np.load(folder / f"{name}.npy") for name in "qkv"})
        run = self.run_with_small_files(folder, "run", "in.npz", "-o", "weights=w.npy")
        assert (run.returncode, run.stderr) == (74, b"attn: w.npy: File too large\n")

    def test_to_replace_a_file_keeps_it(self, folder):
        (folder / "w.npy").write_bytes(b"old")
        assert self.run_with_small_files(folder, *RUN, "-o", "weights=w.npy", "--force").returncode == 74
        assert (folder / "w.npy").read_bytes() == b"old"


class TestExistingFile:
    @pytest.fixture
    def folder(self, tmp_path):
        save_inputs(tmp_path, 2048)
        (tmp_path / "w.npy").write_bytes(b"old")
        return tmp_path

    def test_is_refused(self, folder):
        assert attn(*RUN, "-o", "weights=w.npy", cwd=folder).returncode == 73

    def test_is_kept_with_no_clobber(self, folder):
        assert attn(*RUN, "-o", "weights=w.npy", "--no-clobber", cwd=folder).returncode == 0
        assert (folder / "w.npy").read_bytes() == b"old"

    def test_is_not_replaced_if_it_is_an_input(self, folder):
        assert_error(attn(*RUN, "-o", "weights=q.npy", "--force", cwd=folder), 73, "is an input")

    def test_is_replaced_with_force_and_durable(self, folder):
        assert attn(*RUN, "-o", "weights=w.npy", "--force", "--durable", cwd=folder).returncode == 0
        assert np.load(folder / "w.npy").shape == (2048, 2048)


# NaN.


ROWS = "140 of 8400 values are NaN, the first at [1, 3, 0]"


@pytest.mark.parametrize("outputs, where", [
    ("weights,context", ROWS), ("scores,weights", ROWS), ("scores", ROWS),
    ("scores,key_weights", "70 of 140 values are NaN, the first at [1, 0]")])
class TestNan:
    @pytest.fixture
    def run(self, tmp_path, outputs):
        q, k = np.ones((2, 60, 4), np.float32), np.ones((2, 70, 4), np.float32)
        q[1, 3, 2] = q[1, 50, 0] = np.nan
        np.savez(tmp_path / "nan.npz", Q=q, K=k, V=k)
        return lambda *arguments: attn("run", "nan.npz", "--outputs", outputs, *arguments, cwd=tmp_path)

    def test_is_a_warning_as_through_a_pipe(self, run, where):
        done = run("-o", "o.npz")
        assert_error(done, 0, where)
        assert done.stderr == run("--format", "npz").stderr

    def test_is_silently_allowed(self, run, where):
        done = run("-o", "o.npz", "--nan", "allow")
        assert (done.returncode, done.stderr) == (0, b"")

    def test_is_refused_and_leaves_no_file(self, run, where, tmp_path):
        assert run("-o", "o.npz", "--nan", "refuse").returncode == 65
        assert os.listdir(tmp_path) == ["nan.npz"]


def test_nan_from_infinite_scores_is_a_warning(tmp_path):
    k = np.ones((2, 70, 4), np.float32)
    k[:, 5] = 1e30
    np.savez(tmp_path / "nan.npz", Q=np.full((2, 60, 4), 1e30, np.float32), K=k)
    assert_error(attn("run", "nan.npz", "-o", "o.npz", cwd=tmp_path), 0, "values are NaN")


# Signals.


@pytest.mark.parametrize("number, old", itertools.product([signal.SIGTERM, signal.SIGINT], [False, True]),
                         ids=["SIGTERM", "SIGTERM, old file", "SIGINT", "SIGINT, old file"])
def test_signal_leaves_the_old_file_or_none(tmp_path, number, old):
    save_inputs(tmp_path, 16384, 16)
    if old:
        (tmp_path / "w.npy").write_bytes(b"old")
    before = sorted(os.listdir(tmp_path))
    process = subprocess.Popen([ATTN, *RUN, "-o", "weights=w.npy", "--force", "--threads", "1"], cwd=tmp_path)

    def has_begun():
        return any(entry.name.startswith(".attn-tmp-") and entry.stat().st_size > 0 for entry in os.scandir(tmp_path))

    deadline = time.monotonic() + 60
    while not has_begun() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(number)
    assert process.wait(timeout=60) == -number
    assert sorted(os.listdir(tmp_path)) == before
    assert not old or (tmp_path / "w.npy").read_bytes() == b"old"
