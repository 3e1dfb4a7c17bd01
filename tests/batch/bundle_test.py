"""`attn batch --bundle`: the results of N jobs in one file."""

import functools
import json
import os
import random
import shutil
import signal
import subprocess
import time
import zipfile

import numpy as np
import pytest

from support.attn import ATTN, assert_error, attn, json_lines, under_sanitizer
from support.jobs import contents, expected, job, manifest_of, write_jobs

BAD = '{"Q": [[1]]}'


@pytest.fixture
def batch(tmp_path):
    """Runs `attn batch` with lines; None is a line that fails."""
    def batch(seeds, *args, out="out"):
        lines = "".join((BAD if seed is None else json.dumps(job(seed))) + "\n" for seed in seeds)
        return attn("batch", "-", "--bundle", "4", "--out-dir", out, *args, stdin=lines, cwd=tmp_path)
    return batch


@pytest.fixture
def fresh(batch, tmp_path):
    """The files that a new run of these lines writes."""
    def fresh(seeds, *args):
        shutil.rmtree(tmp_path / "fresh", ignore_errors=True)
        batch(seeds, *args, out="fresh")
        return contents(tmp_path / "fresh")
    return fresh


def counts(run):
    words = run.stderr.decode().splitlines()[-1].replace(",", "").split()
    return int(words[3]), int(words[5]), int(words[7])  # done, skipped, failed


def read_safetensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    dtypes = {"F64": "<f8", "I64": "<i8"}
    header = {name: entry for name, entry in json.loads(data[8:8 + size]).items() if name != "__metadata__"}
    return {name: np.frombuffer(data[8 + size:][slice(*entry["data_offsets"])],
                                dtypes[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items()}


@pytest.mark.parametrize("suffix, read", [("npz", np.load), ("safetensors", read_safetensors)])
def test_bundle_has_the_outputs_of_its_jobs(batch, tmp_path, suffix, read):
    assert batch(range(10), "--format", suffix).returncode == 0
    assert sorted(contents(tmp_path / "out")) == [f"bundle-{number}.{suffix}" for number in (1, 2, 3)]
    arrays = {name: array for number in (1, 2, 3)
              for name, array in read(tmp_path / "out" / f"bundle-{number}.{suffix}").items()}
    assert len(arrays) == 30
    for seed in range(10):
        for output, want in expected(seed).items():
            np.testing.assert_allclose(arrays[f"{seed + 1}/{output}"], want, rtol=1e-13)


def test_members_are_in_the_order_of_the_jobs(batch, tmp_path):
    batch(range(4), "-j", "4")
    assert [name.split("/")[0] for name in np.load(tmp_path / "out" / "bundle-1.npz").files] == list("111222333444")


def test_attn_reads_a_result_in_a_bundle(batch, tmp_path):
    batch(range(6))
    run = attn("convert", "out/bundle-2.npz#5/weights", "--format", "json", cwd=tmp_path)
    np.testing.assert_allclose(json.loads(run.stdout), expected(4)["weights"], rtol=1e-13)


def test_name_is_that_of_the_job_file(tmp_path):
    write_jobs(tmp_path / "jobs" / "deep", [1], "a.json")
    attn("batch", "jobs", "--bundle", "2", "--name", "{job}", "--out-dir", "out", "--outputs", "scores", cwd=tmp_path)
    assert np.load(tmp_path / "out" / "bundle-1.npz").files == ["deep/a/scores"]


def test_manifest_names_each_result_and_its_bundle(batch, tmp_path):
    batch(range(6))
    assert [list(line["outputs"]) for line in manifest_of(tmp_path / "out").values()] == [
        [f"bundle-{(number - 1) // 4 + 1}.npz#{number}"] for number in range(1, 7)]


@pytest.mark.parametrize("flags", [["-j", "3"], ["--isolate", "-j", "2"], ["--durable"]], ids=" ".join)
def test_bytes_do_not_depend_on_the_workers(batch, fresh, tmp_path, flags):
    batch(range(10), *flags)
    assert contents(tmp_path / "out") == fresh(range(10))


def test_shards_take_whole_bundles(batch, fresh, tmp_path):
    assert counts(batch(range(18), "--shard", "1/2")) == (10, 0, 0)  # bundles 1, 3 and 5
    assert counts(batch(range(18), "--shard", "2/2")) == (8, 0, 0)
    assert contents(tmp_path / "out") == fresh(range(18))


def test_shard_of_files_counts_its_jobs(tmp_path):
    write_jobs(tmp_path / "jobs", range(18))
    run = attn("batch", "jobs", "--bundle", "4", "--out-dir", "out", "--shard", "1/2", "--json", cwd=tmp_path)
    assert json_lines(run.stderr)[0]["total"] == 10


# Failures.


def test_failed_job_has_no_result(batch, tmp_path):
    assert batch([0, None, 2]).returncode == 3
    assert {name.split("/")[0] for name in np.load(tmp_path / "out" / "bundle-1.npz").files} == {"1", "3"}


def test_bundle_without_results_has_no_file(batch, tmp_path):
    assert batch([None, None]).returncode == 3
    assert contents(tmp_path / "out") == {}
    assert len(manifest_of(tmp_path / "out")) == 2


def test_results_of_an_incomplete_bundle_are_not_counted(batch, tmp_path):
    run = batch([0, 1, None, 3], "--fail-fast", "-j", "1")
    assert counts(run) == (0, 0, 1)
    assert [line["status"] for line in manifest_of(tmp_path / "out").values()] == ["failed"]
    assert contents(tmp_path / "out") == {}


# Resuming.


def test_resumed_batch_skips_its_results(batch, fresh, tmp_path):
    batch(range(10))
    assert counts(batch(range(10), "--resume")) == (0, 10, 0)
    assert contents(tmp_path / "out") == fresh(range(10))


@pytest.mark.parametrize("flags", [[], ["--isolate"], ["--format", "safetensors"]], ids=["threads", "isolated", "safetensors"])
def test_only_changed_jobs_run_again(batch, fresh, tmp_path, flags):
    batch(range(10), *flags)
    changed = [0, 1, 20, 3, 4, 5, 6, 7, 8, 30]
    assert counts(batch(changed, "--resume", *flags)) == (2, 8, 0)
    assert contents(tmp_path / "out") == fresh(changed, *flags)
    assert counts(batch(changed, "--resume", *flags)) == (0, 10, 0)


def test_failed_job_is_completed(batch, fresh, tmp_path):
    batch([0, None, 2, 3, 4])
    assert counts(batch(range(5), "--resume")) == (1, 4, 0)
    assert contents(tmp_path / "out") == fresh(range(5))


def test_job_that_fails_again_changes_nothing(batch, tmp_path):
    batch([0, None, 2])
    before = (tmp_path / "out" / "bundle-1.npz").stat().st_ino
    assert counts(batch([0, None, 2], "--resume")) == (0, 2, 1)
    assert (tmp_path / "out" / "bundle-1.npz").stat().st_ino == before


def test_job_that_fails_now_loses_its_result(batch, fresh, tmp_path):
    batch([0, 1, 2])
    batch([0, None, 2], "--resume")
    assert contents(tmp_path / "out") == fresh([0, None, 2])


def test_appended_lines_extend_the_last_bundle(batch, fresh, tmp_path):
    batch(range(6))
    assert counts(batch(range(11), "--resume")) == (5, 6, 0)
    assert contents(tmp_path / "out") == fresh(range(11))


def test_another_number_of_shards_completes_the_batch(batch, fresh, tmp_path):
    batch(range(18), "--shard", "2/3")
    assert counts(batch(range(18), "--resume")) == (12, 6, 0)
    assert contents(tmp_path / "out") == fresh(range(18))


def flags_of(size):
    return ["--bundle", str(size)] if size else []


@pytest.mark.parametrize("before, after, sizes", [
    (1, 2, "its run had --bundle 1, this one has --bundle 2"), (3, 1, "its run had --bundle 3, this one has --bundle 1"),
    (1, 0, "its run had --bundle 1, this one has no --bundle"), (0, 1, "its run had no --bundle, this one has --bundle 1")])
@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]], ids=["run", "dry run"])
def test_resumed_run_with_another_bundle_size_is_refused(tmp_path, before, after, sizes, dry_run):
    write_jobs(tmp_path / "jobs", range(3))
    attn("batch", "jobs", "--out-dir", "out", *flags_of(before), cwd=tmp_path)
    want = contents(tmp_path / "out", without=())
    run = attn("batch", "jobs", "--out-dir", "out", *flags_of(after), "--resume", *dry_run, cwd=tmp_path)
    assert_error(run, 73, f"out/manifest.ndjson: {sizes}; use the same, or another --out-dir")
    assert contents(tmp_path / "out", without=()) == want


@pytest.mark.parametrize("size", [1, 2])
def test_refused_run_can_be_resumed_with_its_bundle_size(tmp_path, size):
    def batch(size, *flags):
        return attn("batch", "-", "--out-dir", "out", "--bundle", str(size), *flags, cwd=tmp_path,
                    stdin="".join(json.dumps(job(seed)) + "\n" for seed in range(6)))
    batch(size)
    assert_error(batch(3, "--resume"), 73, f"out/manifest.ndjson: its run had --bundle {size}")
    assert counts(batch(size, "--resume")) == (0, 6, 0)


@pytest.mark.parametrize("shard", [[], ["--shard", "2/2"], ["--shard", "3/3"]], ids=" ".join)
def test_bundle_size_of_another_shard_is_compared(tmp_path, shard):
    write_jobs(tmp_path / "jobs", range(8))
    attn("batch", "jobs", "--out-dir", "out", "--bundle", "2", "--shard", "1/2", cwd=tmp_path)
    run = attn("batch", "jobs", "--out-dir", "out", "--bundle", "3", "--resume", *shard, cwd=tmp_path)
    assert_error(run, 73, "out/manifest.1-of-2.ndjson: its run had --bundle 2, this one has --bundle 3")
    assert [path.name for path in (tmp_path / "out").glob("manifest*")] == ["manifest.1-of-2.ndjson"]


def test_no_clobber_after_bundles_is_refused(tmp_path):
    write_jobs(tmp_path / "jobs", range(2))
    attn("batch", "jobs", "--out-dir", "out", "--bundle", "1", cwd=tmp_path)
    run = attn("batch", "jobs", "--out-dir", "out", "--no-clobber", cwd=tmp_path)
    assert_error(run, 73, "out/manifest.ndjson: its run had --bundle 1, this one has no --bundle")


@pytest.mark.parametrize("damage", [
    pytest.param(lambda path: path.unlink(), id="deleted"),
    pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-5]), id="cut short"),
    pytest.param(lambda path: path.write_bytes(path.read_bytes()[:200] + b"?" + path.read_bytes()[201:]), id="changed"),
    pytest.param(lambda path: path.write_bytes(b""), id="empty"),
])
def test_damaged_bundle_is_written_again(batch, fresh, tmp_path, damage):
    batch(range(10))
    damage(tmp_path / "out" / "bundle-2.npz")
    assert counts(batch(range(10), "--resume")) == (4, 6, 0)
    assert contents(tmp_path / "out") == fresh(range(10))


def test_bundle_without_its_lines_is_accepted(batch, fresh, tmp_path):
    """As after a kill between renaming a bundle and writing its lines."""
    batch(range(10))
    manifest = tmp_path / "out" / "manifest.ndjson"
    manifest.write_text("".join(line for line in manifest.read_text().splitlines(keepends=True)
                                if "bundle-2" not in line))
    assert counts(batch(range(10), "--resume")) == (4, 6, 0)
    assert contents(tmp_path / "out") == fresh(range(10))
    assert len(manifest_of(tmp_path / "out")) == 10


def test_foreign_file_is_kept(batch, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "bundle-1.npz").write_text("mine")
    run = batch(range(3), "--resume")
    assert_error(run, 73, "out/bundle-1.npz: already exists, is not in the manifest and differs")
    assert (tmp_path / "out" / "bundle-1.npz").read_text() == "mine"


def test_existing_bundle_is_refused_before_anything_runs(tmp_path):
    write_jobs(tmp_path / "jobs", range(3))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "bundle-1.npz").write_text("mine")
    run = attn("batch", "jobs", "--bundle", "4", "--out-dir", "out", cwd=tmp_path)
    assert_error(run, 73, "out/bundle-1.npz: already exists")
    assert not (tmp_path / "out" / "manifest.ndjson").exists()


def test_force_replaces_bundles(batch, fresh, tmp_path):
    batch(range(5))
    assert batch(range(5, 10), "--force").returncode == 0
    assert contents(tmp_path / "out") == fresh(range(5, 10))


def test_status_knows_the_shard_of_a_bundle(batch, tmp_path):
    batch(range(18), "--shard", "1/2")
    found = json.loads(attn("batch", "--status", "out", "--json", cwd=tmp_path).stdout)
    assert (found["missing"]["items"], found["resubmit"]) == ("5-8,13-16", "2")


def test_batch_killed_at_random_moments_can_be_resumed(tmp_path, batch, fresh, kills=20):
    want, start = fresh(range(200)), time.monotonic()
    fresh(range(200))
    seconds, dice, killed = time.monotonic() - start, random.Random(3), 0
    lines = "".join(json.dumps(job(seed)) + "\n" for seed in range(200)).encode()
    for kill in range(kills):
        process = subprocess.Popen([ATTN, "batch", "-", "--bundle", "4", "--out-dir", "out", "--resume", "-q"],
                                   cwd=tmp_path, stdin=subprocess.PIPE)
        process.stdin.write(lines)
        process.stdin.close()
        time.sleep(dice.uniform(0, seconds))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        if kill % 5 == 4:
            assert batch(range(200), "--resume").returncode == 0
            assert contents(tmp_path / "out", without=("manifest", ".attn-tmp")) == want
            assert len(manifest_of(tmp_path / "out")) == 200
            shutil.rmtree(tmp_path / "out")
    assert killed > 0


# Limits.


def peak_memory(pid):
    """In KiB; 0 if the process has ended. Not that of wait4(), which includes the test's before exec()."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("VmHWM:")), 0)
    except (FileNotFoundError, ProcessLookupError):
        return 0


@pytest.mark.skipif(under_sanitizer(), reason="sanitizers need more memory")
def test_results_wait_in_a_file(tmp_path):
    """60 results of 2 MiB each in a bundle, with a limit of 64 MiB."""
    line = json.dumps({"seed": 1, "Q": {"randn": {"shape": [512, 4]}}, "K": {"randn": {"shape": [512, 4]}},
                       "outputs": ["scores"]}) + "\n"
    process = subprocess.Popen([ATTN, "batch", "-", "--bundle", "60", "--out-dir", "out", "-j", "1", "-q",
                                "--max-memory", "64M"], cwd=tmp_path, stdin=subprocess.PIPE)
    process.stdin.write(60 * line.encode())
    process.stdin.close()
    peak = 0
    while process.poll() is None:
        peak = max(peak, peak_memory(process.pid))
        time.sleep(0.002)
    assert process.returncode == 0
    assert (tmp_path / "out" / "bundle-1.npz").stat().st_size > 120 << 20
    assert 0 < peak < 64 << 10


def test_large_and_small_results_share_a_bundle(tmp_path):
    """Results below and above 1 MiB, which wait in different ways."""
    def line(length):
        return json.dumps({"seed": length, "Q": {"randn": {"shape": [length, 4]}},
                           "K": {"randn": {"shape": [length, 4]}}, "outputs": ["scores"]}) + "\n"
    lengths = [3, 400, 5, 6, 500, 600, 7]
    text = "".join(map(line, lengths))
    assert attn("batch", "-", "--bundle", "7", "--out-dir", "one", stdin=text, cwd=tmp_path).returncode == 0
    assert attn("batch", "-", "--out-dir", "each", stdin=text, cwd=tmp_path).returncode == 0
    bundle = np.load(tmp_path / "one" / "bundle-1.npz")
    for number, length in enumerate(lengths, 1):
        [path] = [path for path in (tmp_path / "each").glob("*.npz") if path.stem == str(number)]
        scores = bundle[f"{number}/scores"]
        assert scores.shape == (length, length)
        np.testing.assert_array_equal(scores, np.load(path)["scores"])


@pytest.mark.parametrize("flags, message", [
    (["--format", "json"], "--bundle requires --format npz or safetensors"),
    (["--no-clobber"], "--bundle cannot be combined with --no-clobber"),
    (["--bundle", "0"], "--bundle"), (["--bundle", "65537"], "--bundle"),
])
def test_invalid_combination_is_refused(tmp_path, flags, message):
    run = attn("batch", "-", "--out-dir", "out", *([] if "--bundle" in flags else ["--bundle", "2"]), *flags,
               stdin=BAD, cwd=tmp_path)
    assert_error(run, 2, message)


def test_name_that_the_format_lacks_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / os.fsdecode(b"\xff.json")).write_text(json.dumps(job(1)))
    arguments = ["batch", os.fsdecode(b"\xff.json"), "--bundle", "2", "--out-dir", "out", "--format"]
    assert_error(attn(*arguments, "safetensors", cwd=tmp_path), 2, "expected UTF-8, as .safetensors requires")
    assert not (tmp_path / "out").exists()
    assert attn(*arguments, "npz", cwd=tmp_path).returncode == 0


def test_bundle_requires_an_output_folder(tmp_path):
    assert_error(attn("batch", "-", "--bundle", "2", stdin=BAD, cwd=tmp_path), 2, "--bundle requires --out-dir")


def test_dry_run_names_the_bundle(batch):
    plans = json_lines(batch(range(5), "--dry-run").stdout)
    assert [plan["output"] for plan in plans] == [*(f"out/bundle-1.npz#{number}" for number in range(1, 5)),
                                                  "out/bundle-2.npz#5"]


# What bundles record about positions of queries and visible keys.

INTERLEAVED = {"Q": [[0.0]] * 6, "K": [[0.0]] * 6, "V": [[0.0]] * 6, "documents": [0, 1, 0, 1, 0, 1], "causal": True,
               "outputs": ["weights"]}
PLAIN = {"Q": [[0.0]] * 6, "K": [[0.0]] * 6, "V": [[0.0]] * 6, "outputs": ["weights"]}


def first_key_weights(folder, *files):
    """By the name of the job; None if it is unknown."""
    run = attn("stats", *files, "--format", "ndjson", cwd=folder)
    assert run.returncode == 0, run.stderr
    return {line["name"].split("/")[0]: line["first_key_weight"] for line in json_lines(run.stdout)}


def run_bundle(folder, jobs, *flags):
    lines = "".join(json.dumps(job) + "\n" for job in jobs)
    run = attn("batch", "-", "--out-dir", "out", "-q", *flags, stdin=lines, cwd=folder)
    assert run.returncode == 0, run.stderr


OF_DOCUMENTS = pytest.approx((1 + 1 / 2 + 1 / 3) / 3)  # the queries of a document see one, two and three of its keys


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_positions_of_each_job_are_recorded(tmp_path, suffix):
    run_bundle(tmp_path, [PLAIN, INTERLEAVED], "--bundle", "2", "--format", suffix)
    found = first_key_weights(tmp_path, f"out/bundle-1.{suffix}")
    assert found == {"1": pytest.approx(1 / 6), "2": OF_DOCUMENTS}
    named = attn("stats", f"out/bundle-1.{suffix}#2/weights", "--format", "ndjson", cwd=tmp_path)
    assert json_lines(named.stdout)[0]["first_key_weight"] == OF_DOCUMENTS


def test_a_bundle_without_special_positions_records_nothing(tmp_path):
    run_bundle(tmp_path, [PLAIN] * 2, "--bundle", "2")
    with zipfile.ZipFile(tmp_path / "out/bundle-1.npz") as archive:
        assert archive.comment == b""


def test_resumed_jobs_keep_their_positions(tmp_path):
    run_bundle(tmp_path, [PLAIN, INTERLEAVED], "--bundle", "3")
    run_bundle(tmp_path, [PLAIN, INTERLEAVED, PLAIN], "--bundle", "3", "--resume")
    found = first_key_weights(tmp_path, "out/bundle-1.npz")
    assert found == {"1": pytest.approx(1 / 6), "2": OF_DOCUMENTS, "3": pytest.approx(1 / 6)}


def masked(L):
    """A job with a mask that takes about 10 L L bytes to record."""
    mask = np.random.default_rng(L).random((L, L)) < 0.5
    return {**PLAIN, "Q": [[0.0]] * L, "K": [[0.0]] * L, "V": [[0.0]] * L, "mask": mask.tolist()}


def record_of(path):
    run = attn("inspect", path, "--provenance")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("suffix, jobs", [("npz", 4), ("safetensors", 50)])
def test_visible_keys_that_do_not_fit_are_left_out(tmp_path, suffix, jobs):
    """An archive comment has at most 65,535 bytes, and made_by of another bundle at most 2^20."""
    run_bundle(tmp_path, [masked(100)] * jobs + [INTERLEAVED], "--bundle", "99", "--format", suffix, "--max-memory", "32M")
    assert list(record_of(tmp_path / f"out/bundle-1.{suffix}")["jobs"]) == [str(jobs + 1)]
    assert first_key_weights(tmp_path, f"out/bundle-1.{suffix}")[str(jobs + 1)] == OF_DOCUMENTS


def test_positions_that_do_not_fit_are_unknown(tmp_path):
    rows = {"randn": {"shape": [1500, 1]}}
    long = {"Q": rows, "K": rows, "seed": 1, "documents": [i % 2 for i in range(1500)], "outputs": ["weights"]}
    run_bundle(tmp_path, [long] * 8 + [PLAIN], "--bundle", "9")
    assert record_of(tmp_path / "out/bundle-1.npz") == {"schema": "attn/1", "positions": None}
    found = first_key_weights(tmp_path, "out/bundle-1.npz")
    assert found == {str(number): None for number in range(1, 10)}


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_pictures_of_a_job_hatch_its_hidden_keys(tmp_path, suffix):
    run_bundle(tmp_path, [PLAIN, INTERLEAVED], "--bundle", "2", "--format", suffix)
    (tmp_path / "job.json").write_text(json.dumps(INTERLEAVED))
    assert attn("run", "job.json", "-o", "r.npz", "-q", cwd=tmp_path).returncode == 0
    for file, picture in [("r.npz", "r.svg"), (f"out/bundle-1.{suffix}#2/weights", "b.svg")]:
        assert attn("view", file, "-o", picture, cwd=tmp_path).returncode == 0
    r, b = ((tmp_path / name).read_text() for name in ("r.svg", "b.svg"))
    assert "url(#hidden)" in r and b.replace("2/weights", "weights") == r


def test_rollout_refuses_the_weights_of_several_jobs(tmp_path):
    run_bundle(tmp_path, [PLAIN] * 2, "--bundle", "2")
    assert_error(attn("rollout", "out/bundle-1.npz", cwd=tmp_path), 65,
                 "expected the weights of one job, found those of 2; FILE#1/weights selects one")
    assert attn("rollout", "out/bundle-1.npz#1/weights", cwd=tmp_path).returncode == 0


def test_other_outputs_are_not_taken_as_weights(tmp_path):
    run_bundle(tmp_path, [{**PLAIN, "outputs": ["context"]}] * 2, "--bundle", "2")
    for command in ("stats", "rollout"):
        assert_error(attn(command, "out/bundle-1.npz", cwd=tmp_path), 65, "has no weights, but found 1/context, 2/context")


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_a_resumed_bundle_records_its_jobs_in_their_order(tmp_path, suffix):
    whole = json.dumps({"Q": [[1]], "K": [[2], [3]], "V": "K", "outputs": ["weights"]})
    (tmp_path / "jobs").mkdir()
    for number in range(4):
        (tmp_path / f"jobs/{number}.json").write_text(whole)

    def run(folder, *flags):
        attn("batch", "jobs", "--out-dir", folder, "--bundle", "4", "--format", suffix, *flags, cwd=tmp_path)
        return (tmp_path / folder / f"bundle-1.{suffix}").read_bytes()

    clean = run("clean")
    for number in (1, 2):
        (tmp_path / f"jobs/{number}.json").write_text("{")
    run("out")
    for number in (1, 2):
        (tmp_path / f"jobs/{number}.json").write_text(whole)
    assert run("out", "--resume") == clean


def test_bundles_after_the_end_of_a_shorter_list_are_named(batch, tmp_path):
    batch(range(9))
    run = batch(range(5), "--resume")
    assert run.returncode == 0
    assert run.stderr.decode().startswith("attn: warning: out/bundle-3.npz: has results of jobs after the end of the list\n")
    assert b"warning" not in batch(range(9), "--resume").stderr
