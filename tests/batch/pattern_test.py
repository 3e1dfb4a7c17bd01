"""`attn batch --pattern`: jobs whose inputs are files with corresponding names, compared with NumPy."""

import functools
import json
import os

import numpy as np
import pytest
from scipy.special import softmax

from support.attn import assert_error, attn, json_lines, under_sanitizer
from support.jobs import contents, manifest_of

TRIPLETS = "q_{}.npy,k_{}.npy,v_{}.npy"


def context(q, k, v, mask=None):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    return softmax(scores if mask is None else np.where(mask, scores, -np.inf), axis=-1) @ v


@pytest.fixture
def batch(tmp_path):
    return functools.partial(attn, "batch", cwd=tmp_path)


@pytest.fixture
def arrays(tmp_path):
    """Stores q_N.npy, k_N.npy and v_N.npy for these N; returns the arrays of each."""
    def arrays(*names, file="{0}_{1}.npy"):
        made = {}
        for seed, name in enumerate(names):
            made[name] = np.random.default_rng(seed).standard_normal((3, 4, 5))
            for letter, array in zip("qkv", made[name]):
                path = tmp_path / file.format(letter, name)
                path.parent.mkdir(exist_ok=True, parents=True)
                np.save(path, array)
        return made
    return arrays


def results(folder):
    return {path.stem if path.suffix == ".npz" else path.name: dict(np.load(path)) for path in folder.glob("*.npz")}


@pytest.mark.parametrize("flags", [[], ["--isolate"]], ids=["threads", "processes"])
def test_results_are_named_by_what_the_blank_matched(batch, arrays, tmp_path, flags):
    if flags and under_sanitizer():
        pytest.skip("the sandbox")
    made = arrays("1", "2", "10", "a.b")
    run = batch("--pattern", TRIPLETS, "--out-dir", "out", *flags)
    assert run.returncode == 0
    assert {path.name for path in (tmp_path / "out").glob("*.npz")} == {"1.npz", "2.npz", "10.npz", "a.b.npz"}
    for name, (q, k, v) in made.items():
        np.testing.assert_allclose(np.load(tmp_path / "out" / f"{name}.npz")["context"], context(q, k, v), rtol=1e-12)


def test_jobs_are_in_natural_order(batch, arrays):
    arrays("10", "9", "2", "1")
    lines = json_lines(batch("--pattern", TRIPLETS).stdout)
    assert [line["job"] for line in lines] == ["q_1.npy", "q_2.npy", "q_9.npy", "q_10.npy"]


@pytest.mark.parametrize("pattern, file", [
    ("{}/q.npy,{}/k.npy,{}/v.npy", "{1}/{0}.npy"), ("in/{}-q{}.npy,in/{}-k{}.npy,in/{}-v{}.npy", "in/{1}-{0}{1}.npy"),
    ("[{}]*q.npy,[{}]*k.npy,[{}]*v.npy", "[{1}]*{0}.npy"), ("V=v{},Q=q{},K=k{}", "{0}{1}")])
def test_the_blank_may_be_anywhere_in_a_path(batch, arrays, tmp_path, pattern, file):
    made = arrays("x", "y", file=file)
    if file == "{0}{1}":  # numpy.save adds a suffix
        for path in tmp_path.glob("*.npy"):
            path.rename(path.with_suffix(""))
    assert batch("--pattern", pattern, "--out-dir", "out", "--name", "{index}-{stem}-{job}").returncode == 0
    for number, (name, (q, k, v)) in enumerate(made.items(), 1):
        found = np.load(tmp_path / "out" / f"{number}-{name}-{name}.npz")["context"]
        np.testing.assert_allclose(found, context(q, k, v), rtol=1e-12)


def test_other_inputs_have_keys(batch, arrays, tmp_path):
    made = arrays("1", "2")
    masks = {name: np.tri(4, dtype=bool)[:, ::step] for step, name in ((1, "1"), (-1, "2"))}
    for name, mask in masks.items():
        mask[:, 0] = True
        np.savez(tmp_path / f"m_{name}.npz", mask=mask, other=np.ones(2))
    np.save(tmp_path / "shared.npy", np.ones((4, 5)))
    pattern = ["--pattern", "q_{}.npy,K=k_{}.npy", "--pattern", "mask=m_{}.npz#mask,V=shared.npy"]
    assert batch(*pattern, "--out-dir", "out").returncode == 0
    for name, (q, k, _) in made.items():
        found = np.load(tmp_path / "out" / f"{name}.npz")
        np.testing.assert_allclose(found["context"], context(q, k, np.ones((4, 5)), masks[name]), rtol=1e-12)
        scores = q @ k.T / np.sqrt(5)
        np.testing.assert_allclose(found["weights"], softmax(np.where(masks[name], scores, -np.inf), axis=1), rtol=1e-12)


@pytest.mark.parametrize("missing", ["q", "k", "v"])
def test_a_missing_partner_fails_its_job_in_one_line(batch, arrays, tmp_path, missing):
    arrays("1", "2", "3")
    (tmp_path / f"{missing}_2.npy").unlink()
    run = batch("--pattern", TRIPLETS, "--out-dir", "out", "-q")
    assert run.stderr.decode().splitlines()[0] == \
        f"attn: q_2.npy: {missing.upper()}: {missing}_2.npy: No such file or directory" if missing != "q" else \
        "attn: q_2.npy: Q: No such file or directory"
    assert run.returncode == 3
    assert sorted(results(tmp_path / "out")) == ["1", "3"]


def test_resumed_batch_runs_what_changed(batch, arrays, tmp_path):
    arrays("1", "2", "3")
    words = ["--pattern", TRIPLETS, "--out-dir", "out", "--resume"]
    assert batch(*words).returncode == 0
    before = contents(tmp_path / "out")
    (tmp_path / "out" / "3.npz").unlink()
    np.save(tmp_path / "k_2.npy", np.ones((4, 5)))
    run = batch(*words)
    assert b"q_2.npy: run again because k_2.npy changed" in run.stderr
    assert b"3 jobs: 2 done, 1 skipped, 0 failed" in run.stderr
    after = contents(tmp_path / "out")
    assert after["2.npz"] != before["2.npz"]
    assert (after["1.npz"], after["3.npz"]) == (before["1.npz"], before["3.npz"])
    assert {path for path, _ in manifest_of(tmp_path / "out")["q_1.npy"]["inputs"].items()} == \
        {"q_1.npy", "k_1.npy", "v_1.npy"}


def test_another_pattern_runs_all_jobs_again(batch, arrays, tmp_path):
    arrays("1", "2")
    assert batch("--pattern", TRIPLETS, "--out-dir", "out").returncode == 0
    run = batch("--pattern", "q_{}.npy,k_{}.npy,V=k_{}.npy", "--out-dir", "out", "--resume")
    assert b"2 jobs: 2 done, 0 skipped" in run.stderr


def test_shards_status_and_prune(batch, arrays, tmp_path):
    arrays("1", "2", "3", "4")
    words = ["--pattern", TRIPLETS, "--out-dir", "out"]
    assert batch(*words, "--shard", "1/2").returncode == 0
    assert json.loads(batch("--status", "out", "--json").stdout)["missing"] == {"count": 2, "items": "2,4"}
    named = batch("--status", "out", "--json", "--pattern", TRIPLETS)
    assert json.loads(named.stdout)["missing"]["jobs"] == ["q_2.npy", "q_4.npy"]
    for letter in "qkv":
        (tmp_path / f"{letter}_3.npy").unlink()
    assert batch(*words, "--resume", "--prune").returncode == 0
    assert sorted(results(tmp_path / "out")) == ["1", "2", "4"]


def test_several_outputs_in_a_format_for_one_are_refused_before_anything_runs(batch, arrays, tmp_path):
    arrays("1", "2")
    assert_error(batch("--pattern", TRIPLETS, "--out-dir", "out", "--format", "csv"), 2, "--format csv")
    assert not (tmp_path / "out").exists()


def test_names_need_not_be_utf8(batch, arrays, tmp_path):
    arrays("x")
    for letter in "qkv":
        os.rename(tmp_path / f"{letter}_x.npy", os.fsencode(tmp_path) + f"/{letter}_".encode() + b"\xff.npy")
    assert batch("--pattern", TRIPLETS, "--out-dir", "out").returncode == 0
    assert [name for name in os.listdir(os.fsencode(tmp_path / "out")) if name.endswith(b".npz")] == [b"\xff.npz"]


@pytest.mark.parametrize("words, code, message", [
    (["--pattern", "a_{}.npy,b_{}.npy"], 66, "--pattern: no file matches a_{}.npy, b_{}.npy"),
    (["--pattern", "q.npy,k.npy"], 2, "--pattern: expected {} in the name of a file, such as q_{}.npy"),
    (["--pattern", "Q=q_{}.npy,q_{}.npy"], 2, "--pattern: Q is given twice"),
    (["--pattern", "q=q_{}.npy"], 2, "--pattern: unknown input 'q' (did you mean 'Q'?)"),
    (["--pattern", "heads=q_{}.npy"], 2, "--pattern: unknown input 'heads'"),
    (["--pattern", f"{TRIPLETS},m_{{}}.npy"], 2, "name the input, such as mask=m_{}.npy"),
    (["--pattern", "Q="], 2, "--pattern Q=: expected a file, found nothing"),
    (["job.json", "--pattern", TRIPLETS], 2, "--pattern and JOB are mutually exclusive"),
    (["--files-from", "x", "--pattern", TRIPLETS], 2, "--pattern and --files-from are mutually exclusive")])
def test_errors(batch, words, code, message):
    run = batch(*words)
    assert_error(run, code, message)
    assert run.stderr.count(b"\n") == 1
