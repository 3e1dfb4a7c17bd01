"""--only: the keys of a job file to use."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn, json_lines

QKV = {name: np.random.default_rng(i).standard_normal((3, 4)) for i, name in enumerate("QKV")}


@pytest.fixture
def job(tmp_path):
    """Stores these arrays or keys with Q, K and V as a job; returns its path."""
    def job(suffix="npz", **others):
        path = tmp_path / f"job.{suffix}"
        if suffix == "npz":
            np.savez(path, **QKV, **others)
        else:
            path.write_text(json.dumps({**{name: array.tolist() for name, array in QKV.items()}, **others}))
        return path
    return job


def context_of(run):
    assert run.returncode == 0, run.stderr
    return np.array(json.loads(run.stdout)["context"])


@pytest.fixture
def plain(job):
    return context_of(attn("run", job(), "--format", "json"))


@pytest.mark.parametrize("suffix", ["npz", "json"])
def test_other_keys_are_ignored(job, plain, suffix):
    path = job(suffix, loss=[1.0], key_msk=[1.0], mask=[[False] * 3] * 3)
    run = attn("run", path, "--only", "Q,K,V", "--format", "json")
    np.testing.assert_array_equal(context_of(run), plain)
    assert run.stderr == b""


def test_keys_are_selected_in_either_spelling_or_by_their_group(job):
    path = job("json", softmax={"axis": "all"}, kv_heads=1, lr=0.1)
    one = attn("run", path, "--only", "Q,K,V,softmax,kv_heads", "--outputs", "weights", "--format", "json")
    other = attn("run", path, "--only", "Q", "--only", "K,V,softmax_axis,kv_heads", "--outputs", "weights",
                 "--format", "json")
    weights = np.array(json.loads(one.stdout)["weights"])
    assert weights.sum() == pytest.approx(1)
    assert json.loads(other.stdout)["weights"] == weights.tolist()


@pytest.mark.parametrize("words", [["jobs"], ["-"]], ids=["files", "lines"])
def test_batch_ignores_other_keys_of_each_job(job, plain, tmp_path, words):
    line = job("json", loss=1).read_text()
    (tmp_path / "jobs").mkdir()
    np.savez(tmp_path / "jobs" / "a.npz", **QKV, loss=np.ones(3))
    run = attn("batch", *words, "--only", "Q,K,V", cwd=tmp_path, stdin=line)
    [result] = json_lines(run.stdout)
    np.testing.assert_array_equal(result["context"], plain)


def test_resumed_batch_runs_again_if_the_selection_changed(tmp_path):
    (tmp_path / "jobs").mkdir()
    np.savez(tmp_path / "jobs" / "a.npz", **QKV, mask=np.eye(3, dtype=bool))
    for selection in "Q,K,V", "Q,K,V,mask":
        run = attn("batch", "jobs", "--only", selection, "--out-dir", "out", "--resume", cwd=tmp_path)
        assert b"1 job: 1 done" in run.stderr


def test_reference_of_a_job_with_other_arrays(job, tmp_path):
    path = job(loss=np.ones(3))
    attn("run", path, "--only", "Q,K,V", "-o", "out.npz", cwd=tmp_path)
    assert attn("compare", "out.npz", "--reference", path, "--only", "Q,K,V", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("others, message", [
    ({"loss": np.ones(3)}, "job.npz: unknown key 'loss'; --only Q,K,V ignores all other arrays\n"),
    ({"loss": np.ones(3), "step": np.ones(1)},
     "job.npz: 2 arrays are not job keys: loss, step; --only Q,K,V ignores all other arrays\n"),
    ({"key_msk": np.ones(3)}, "job.npz: unknown key 'key_msk' (did you mean 'key_mask'?)\n")])
def test_without_it_other_arrays_are_errors(job, others, message):
    assert_error(attn("run", job(**others)), 65, message)


@pytest.mark.parametrize("words, message", [
    (["job.npz", "--only", "Q,embedings"], "--only: unknown key 'embedings' (did you mean 'embeddings'?)"),
    (["--only", "Q", "--q", "[[1]]", "--k", "[[1]]"], "--only requires a job file")])
def test_errors(job, tmp_path, words, message):
    job()
    assert_error(attn("run", *words, cwd=tmp_path), 2, message)
