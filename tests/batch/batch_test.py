"""`attn batch`: selecting jobs, the order of results, --base, failures, shards."""

import functools
import json
import os
import subprocess

import numpy as np
import pytest

from support.attn import ATTN, attn, json_lines
from support.jobs import WORDS, contents, is_expected, job, manifest_of, write_jobs
from support.safetensors_file import build, entry

INVALID_JOB = '{"embeddings": [[1, 2], [3]]}'


@pytest.fixture
def batch(tmp_path):
    """Runs `attn batch` in the test's folder."""
    return functools.partial(attn, "batch", cwd=tmp_path)


def job_lines(seeds):
    return "".join(json.dumps(job(seed)) + "\n" for seed in seeds)


def assert_results(run, seeds):
    """The run succeeded and printed the results of these seeds, in this order."""
    assert run.returncode == 0
    results = json_lines(run.stdout)
    assert len(results) == len(seeds)
    assert [is_expected(result, seed) for result, seed in zip(results, seeds)] == [True] * len(seeds)


# Selecting jobs by file name.


@pytest.fixture
def job_tree(tmp_path):
    """Three jobs in jobs/, one in jobs/deep/, and files that are not jobs."""
    write_jobs(tmp_path / "jobs", range(3))
    write_jobs(tmp_path / "jobs" / "deep", [3])
    (tmp_path / "jobs" / "notes.txt").write_text("no job")
    (tmp_path / "jobs" / ".hidden.json").write_text("no job")
    return [f"jobs/job{i:04}.json" for i in range(3)]


@pytest.mark.parametrize("words, seeds", [
    pytest.param(["jobs"], [3, 0, 1, 2], id="folder, sorted by name"),  # jobs/deep/ sorts first
    pytest.param(["jobs/job*.json"], [0, 1, 2], id="pattern"),
    pytest.param(["jobs/job0002.json", "jobs/job0000.json"], [2, 0], id="files in the given order"),
    pytest.param(["jobs/job0001.json", "jobs", "jobs/job0001.json"], [1, 3, 0, 2], id="each job once"),
])
def test_arguments_select_jobs(batch, job_tree, words, seeds):
    assert_results(batch(*words), seeds)


LISTINGS = pytest.mark.parametrize("flags, end", [([], "\n"), ([], "\r\n"), (["-0"], "\0")],
                                   ids=["LF", "CRLF", "NUL"])


@LISTINGS
def test_files_from_stdin_selects_jobs(batch, job_tree, flags, end):
    assert_results(batch("--files-from", "-", *flags, stdin=end.join(job_tree) + end), range(3))


@LISTINGS
def test_files_from_file_selects_jobs(batch, tmp_path, job_tree, flags, end):
    (tmp_path / "list").write_text(end.join(job_tree) + end)
    assert_results(batch("--files-from", "list", *flags), range(3))


def test_last_name_in_files_from_needs_no_line_end(batch, job_tree):
    assert_results(batch("--files-from", "-", stdin="\n".join(job_tree)), range(3))


def test_nul_in_files_from_without_0_is_refused(batch, tmp_path, job_tree):
    (tmp_path / "list").write_text("\0".join(job_tree))
    run = batch("--files-from", "list")
    assert run.returncode == 65
    assert run.stderr.decode() == ("attn: list: expected one name per line, found a NUL; "
                                   "use -0 for names that end in NUL (find -print0)\n")
    assert run.stdout == b""


def test_results_are_those_of_attn_run_with_the_name_of_the_job(batch, tmp_path, job_tree):
    start = b'{"schema":"attn/1",'
    lines = batch(*job_tree).stdout.splitlines(keepends=True)
    assert len(lines) == len(job_tree)
    for name, line in zip(job_tree, lines):
        member = b'"job":"%s",' % name.encode()
        assert line.startswith(start + member)
        assert line.replace(member, b"", 1) == attn("run", name, "--format", "ndjson", cwd=tmp_path).stdout


@pytest.mark.parametrize("words, code", [
    (["none.json"], 66), (["no*.json"], 66), ([], 2), (["-", "jobs"], 2), (["jobs", "-0"], 2),
    (["-", "--files-from", "list"], 2),
])
def test_invalid_selection_of_jobs_is_refused(batch, job_tree, words, code):
    run = batch(*words)
    assert run.returncode == code
    assert run.stdout == b""


# Names without a file fail by themselves among others; if nothing else is given, the command fails.

LISTING = "jobs/job0000.json\nmissing.json\njobs/job0002.json\nno*.json\n"


def test_missing_files_fail_and_the_others_run(batch, tmp_path):
    write_jobs(tmp_path / "jobs", range(3))
    run = batch("--files-from", "-", "--out-dir", "out", stdin=LISTING)
    assert run.returncode == 3
    assert b"attn: missing.json: No such file" in run.stderr
    codes = {name: line.get("code", 0) for name, line in manifest_of(tmp_path / "out").items()}
    assert codes == dict(zip(LISTING.splitlines(), [0, 66, 0, 66]))


def test_resume_runs_a_file_that_was_missing(batch, tmp_path):
    write_jobs(tmp_path / "jobs", range(3))
    batch("--files-from", "-", "--out-dir", "out", stdin=LISTING)
    (tmp_path / "missing.json").write_text(json.dumps(job(7)))
    run = batch("--files-from", "-", "--out-dir", "out", "--resume", stdin=LISTING.replace("no*.json\n", ""))
    assert run.returncode == 0
    assert b"1 done, 2 skipped" in run.stderr


def test_folder_without_json_files_stands_for_its_archives(batch, tmp_path):
    (tmp_path / "jobs" / "deep").mkdir(parents=True)
    np.savez(tmp_path / "jobs" / "a.npz", Q=np.eye(2), K=np.eye(2))
    header = {"Q": entry(0, 32, shape=[2, 2]), "K": entry(32, 64, shape=[2, 2])}
    (tmp_path / "jobs" / "deep" / "b.safetensors").write_bytes(build(header, 2 * np.eye(2).tobytes()))
    run = batch("jobs")
    assert run.returncode == 0
    assert [result["scores"] for result in json_lines(run.stdout)] == 2 * [np.eye(2).tolist()]


def test_archives_next_to_json_files_are_not_jobs(batch, tmp_path):
    write_jobs(tmp_path / "jobs", range(2))
    np.savez(tmp_path / "jobs" / "weights.npz", w=np.eye(3))
    assert_results(batch("jobs"), range(2))


@pytest.mark.parametrize("archives, json_files, noted", [(3, 1, True), (1, 1, False), (0, 2, False), (3, 0, False)])
def test_folder_with_more_archives_than_json_files_gets_a_note(batch, tmp_path, archives, json_files, noted):
    write_jobs(tmp_path / "jobs", range(json_files))
    for i in range(archives):
        np.savez(tmp_path / "jobs" / f"{i}.npz", Q=np.ones((2, 2)), K=np.ones((2, 2)))
    run = batch("jobs", "--out-dir", "out")
    assert run.returncode == 0
    note = b"attn: jobs: 1 job (.json), and 3 .npz and .safetensors files that are not run, because there are .json " \
           b"files; to run them, too, name them: 'jobs/*.npz'\n"
    assert (note in run.stderr) == (b"not run" in run.stderr) == noted
    assert b"not run" not in batch("jobs", "--out-dir", "out", "--resume", "-q").stderr
    assert b"not run" not in batch("jobs", "--out-dir", "out", "--resume", "--json").stderr


def test_empty_folder_among_others_is_ignored(batch, tmp_path):
    write_jobs(tmp_path / "jobs", range(3))
    (tmp_path / "empty").mkdir()
    assert_results(batch("jobs", "empty"), range(3))


def test_selection_without_any_job_is_refused_and_creates_nothing(batch, tmp_path):
    (tmp_path / "empty").mkdir()
    run = batch("empty", "gone.json", "no*.json", "--out-dir", "out")
    assert run.returncode == 66
    assert run.stderr.decode().splitlines() == [
        "attn: empty: no job file (.json, .npz or .safetensors) in this folder",
        "attn: gone.json: No such file or directory",
        "attn: no*.json: no file matches"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words, seeds", [(["jobs"], range(3)),
                                          (["jobs/locked/*.json", "jobs/job0001.json"], [1])],
                         ids=["folder", "pattern"])
def test_unreadable_folder_is_one_failed_job(tmp_path, words, seeds):
    write_jobs(tmp_path / "jobs", range(3))
    locked = tmp_path / "jobs" / "locked"
    locked.mkdir(mode=0)
    # Root reads everything unless it drops these capabilities.
    drop = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    run = subprocess.run([*drop, ATTN, "batch", *words, "-q"], cwd=tmp_path, capture_output=True)
    locked.chmod(0o755)
    results = json_lines(run.stdout)
    good = [result for result in results if "error" not in result]
    assert run.returncode == 3
    assert [result["error"] for result in results if "error" in result] == [["jobs/locked: Permission denied"]]
    assert len(good) == len(seeds)
    assert all(map(is_expected, good, seeds))


# The same file under several names.


def test_spellings_of_one_path_are_one_job(batch, tmp_path):
    paths = write_jobs(tmp_path / "jobs", range(2))
    (tmp_path / "link").symlink_to("jobs")
    words = ["jobs", "jobs/job0000.json", "./jobs/job0000.json", paths[1], "link", "jobs/../jobs/*"]
    plans = json_lines(batch(*words, "--dry-run").stdout)
    assert [plan["job"] for plan in plans] == ["jobs/job0000.json", "jobs/job0001.json"]


def test_link_to_a_job_file_is_a_separate_job(batch, tmp_path):
    """Relative paths in it start from the link's folder."""
    write_jobs(tmp_path / "jobs", range(2))
    (tmp_path / "jobs" / "alias.json").symlink_to("job0000.json")
    assert len(json_lines(batch("jobs", "--dry-run").stdout)) == 3


@pytest.fixture
def batch_of_pattern(batch, tmp_path):
    """A batch of the folders that the pattern *o* matches, as a shell would expand it."""
    write_jobs(tmp_path / "jobs", range(2))
    write_jobs(tmp_path / "more", [5])
    return batch("*o*", "--name", "{job}", "--out-dir", "out")


def test_pattern_matches_folders(batch_of_pattern, tmp_path):
    assert sorted(contents(tmp_path / "out")) == ["job0000.npz", "job0001.npz", "job0005.npz"]


def test_pattern_does_not_match_the_output_folder(batch_of_pattern, batch):
    assert len(json_lines(batch("*o*", "--dry-run", "--out-dir", "out").stdout)) == 3


def test_folders_of_failed_jobs_are_not_kept(batch, tmp_path):
    write_jobs(tmp_path / "jobs" / "good", [0])
    write_jobs(tmp_path / "jobs" / "both" / "good", [1])
    for name in "bad/worse", "both/bad":
        (tmp_path / "jobs" / name).mkdir(parents=True)
        # This job fails only when it is computed.
        (tmp_path / "jobs" / name / "x.json").write_text(
            '{"Q": [[9007199254740993]], "K": [[9223372036854775807]], "outputs": ["scores"]}')
    run = batch("jobs", "--out-dir", "out", "--name", "{job}", "-j", "2")
    assert run.returncode == 3
    assert b"2 done, 0 skipped, 2 failed" in run.stderr
    out = tmp_path / "out"
    folders = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_dir())
    assert folders == ["both", "both/good", "good"]


# Jobs as lines of standard input.


def test_results_of_lines_come_in_order(batch):
    assert_results(batch("-", "-j", "4", stdin=job_lines(range(200))), range(200))


def test_number_of_workers_does_not_change_the_output(batch):
    text = job_lines(range(200))
    one_worker = batch("-", "-j", "1", stdin=text).stdout
    assert one_worker
    assert batch("-", "-j", "4", stdin=text).stdout == one_worker


class TestLinesSomeOfWhichAreInvalid:
    @pytest.fixture(scope="class")
    def run(self):
        lines = [json.dumps(job(0)), "", "{nonsense", json.dumps({"Q": [[1.0]]}), "  \r", json.dumps(job(1))]
        return attn("batch", "-", stdin="\n".join(lines))  # the last line has no end

    def test_exit_code_is_3(self, run):
        assert run.returncode == 3

    def test_empty_lines_have_no_result(self, run):
        assert len(json_lines(run.stdout)) == 4

    @pytest.mark.parametrize("index, seed", [(0, 0), (3, 1)], ids=["first", "last"])
    def test_valid_lines_have_results(self, run, index, seed):
        assert is_expected(json_lines(run.stdout)[index], seed)

    def test_syntax_error_names_its_line_and_column(self, run):
        result = json_lines(run.stdout)[1]
        assert (result["job"], result["code"]) == ("line 3", 65)
        assert result["error"][0].startswith("line 3: column 2: ")

    def test_incomplete_job_names_the_missing_input(self, run):
        assert "K" in json_lines(run.stdout)[2]["error"][0]

    def test_stderr_names_the_line_and_counts_failures(self, run):
        assert b"attn: line 3: " in run.stderr
        assert b"2 failed" in run.stderr


class TestIdsOfLines:
    """The key "id" of a line identifies its result."""

    IDS = ["a\"b", 7, -1.5, None]

    @pytest.fixture(scope="class")
    def lines(self):
        lines = [json.dumps(job(seed) | {"id": value}) for seed, value in enumerate(self.IDS)]
        return "\n".join(lines + ['{"id": "bad"}', '{"id": "unknown", "q": 1}', json.dumps({"id": [1]} | job(0))])

    @pytest.fixture(scope="class")
    def results(self, lines):
        return json_lines(attn("batch", "-", stdin=lines).stdout)

    @pytest.mark.parametrize("index", range(4))
    def test_result_has_the_id(self, results, index):
        assert results[index].get("id") == self.IDS[index]
        assert is_expected(results[index], index)

    def test_result_has_the_name_of_the_line(self, results):
        assert [result["job"] for result in results] == [f"line {number}" for number in range(1, 8)]

    @pytest.mark.parametrize("index, name", [(4, "bad"), (5, "unknown")])
    def test_failure_has_the_id(self, results, index, name):
        assert results[index]["id"] == name
        assert results[index]["error"]

    def test_list_is_refused(self, results):
        assert results[6]["error"] == ["line 7: id: expected a string or a number, found an array"]

    def test_manifest_has_the_id(self, lines, class_path):
        attn("batch", "-", "--out-dir", "out", cwd=class_path, stdin=lines)
        assert manifest_of(class_path / "out")["line 2"]["id"] == 7

    def test_dry_run_has_the_id(self, lines):
        assert json_lines(attn("batch", "-", "--dry-run", stdin=lines).stdout)[1]["id"] == 7

    def test_is_no_tensor_when_the_result_is_read(self, results, tmp_path):
        (tmp_path / "result.json").write_text(json.dumps(results[1]))
        assert b"id" not in attn("inspect", "result.json", cwd=tmp_path).stdout

    def test_is_refused_in_a_job_file(self, batch, tmp_path):
        (tmp_path / "job.json").write_text(json.dumps(job(0) | {"id": 7}))
        assert "unknown key 'id'" in json_lines(batch("job.json").stdout)[0]["error"][0]


@pytest.mark.parametrize("path", ["-", "/dev/stdin", "/dev/fd/0"])
def test_tensor_cannot_come_from_stdin_too(batch, path):
    run = batch("-", "--q", path, stdin='{"K": [[1.0]]}\n{"K": [[2.0]]}\n')
    assert run.returncode == 3
    assert len(json_lines(run.stdout)) == 2
    assert b"standard input contains the jobs" in run.stderr


def test_empty_stdin_gives_no_results(batch):
    run = batch("-", stdin="")
    assert (run.returncode, run.stdout) == (0, b"")


def test_unreadable_stdin_is_an_error(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    run = subprocess.run([ATTN, "batch", "-"], stdin=folder, capture_output=True)
    os.close(folder)
    assert run.returncode == 74
    assert b"attn: standard input: Is a directory\n" in run.stderr


def test_fail_fast_ends_while_stdin_is_open():
    with subprocess.Popen([ATTN, "batch", "-", "-q", "-j", "2", "--fail-fast"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(b"{}\n")
        process.stdin.flush()
        results = [json.loads(line) for line in process.stdout]
        assert [result["code"] for result in results] == [65]
        assert process.wait() == 3


# --base: defaults for all jobs.


class TestBase:
    @pytest.fixture(scope="class")
    def tensors(self):
        return np.random.default_rng(1).standard_normal((3, 5, 4))

    @pytest.fixture(scope="class")
    def run(self, tensors, class_path):
        """Three jobs over a base in another folder, and a tensor that a flag sets."""
        q, k, v = tensors
        (class_path / "sub").mkdir()
        np.save(class_path / "sub" / "k.npy", k)
        np.save(class_path / "v.npy", v)
        base = {"K": "k.npy", "V": [[9.0] * 4] * 5, "scale": 2, "causal": True}
        (class_path / "sub" / "base.json").write_text(json.dumps(base))
        jobs = [{"Q": q.tolist()}, {"Q": q.tolist(), "scale": "none"}, {"Q": q.tolist(), "causal": False}]
        return attn("batch", "-", "--base", "sub/base.json", "--v", "v.npy", cwd=class_path,
                    stdin="".join(json.dumps(line) + "\n" for line in jobs))

    def test_every_job_has_a_result(self, run):
        assert len(json_lines(run.stdout)) == 3

    @pytest.mark.parametrize("index, scale, causal", [(0, 2, True), (1, 1, True), (2, 2, False)],
                             ids=["base", "own scale", "own causal"])
    def test_keys_of_the_job_override_the_base(self, run, tensors, index, scale, causal):
        q, k, v = tensors
        scores = np.where(np.tri(5, dtype=bool) | (not causal), scale * (q @ k.T), -np.inf)
        e = np.exp(scores - scores.max(axis=1, keepdims=True))
        want = e / e.sum(axis=1, keepdims=True) @ v
        np.testing.assert_allclose(json_lines(run.stdout)[index]["context"], want, rtol=1e-12)

    @pytest.mark.parametrize("index", range(3))
    def test_base_is_recorded_as_an_input(self, run, index):
        assert "sub/base.json" in json_lines(run.stdout)[index]["made_by"]["inputs"]


@pytest.mark.parametrize("flags", [["--base", "seed.json"], ["--seed", "3", "--k", "[[1.0], [2.0]]"]],
                         ids=["base", "flag"])
def test_shared_seed_may_be_unused_by_a_job(batch, tmp_path, flags):
    (tmp_path / "seed.json").write_text(json.dumps({"seed": 3, "K": [[1.0], [2.0]]}))
    run = batch("-", *flags, stdin='{"Q": [[1.0]]}\n{"Q": {"rand": {"shape": [1, 1]}}}')
    drawn = np.random.RandomState(3).rand()
    assert run.returncode == 0
    assert [result.get("scores") for result in json_lines(run.stdout)] == [[[1, 2]], [[drawn, 2 * drawn]]]


def test_seed_in_a_job_must_be_used(batch):
    run = batch("-", stdin=json.dumps({"seed": 3, "Q": [[1.0]], "K": [[1.0]]}))
    assert run.returncode == 3
    assert b"seed: requires a random tensor" in run.stderr


def test_numbers_in_the_base_are_recorded_by_shape(batch, tmp_path):
    (tmp_path / "base.json").write_text(json.dumps({"K": np.eye(5, 4).tolist(), "V": np.eye(5, 4).tolist()}))
    run = batch("-", "--base", "base.json", stdin=json.dumps({"Q": np.eye(5, 4).tolist()}))
    assert json_lines(run.stdout)[0]["made_by"]["job"]["K"] == "numbers of shape (5, 4)"


def test_invalid_instruction_set_is_reported_once(tmp_path):
    run = subprocess.run([ATTN, "batch", "-", "--out-dir", "out"], input=job_lines(range(3)).encode(), cwd=tmp_path,
                         env=dict(os.environ, ATTN_ISA="z80"), capture_output=True)
    assert run.returncode == 2
    assert run.stderr.count(b"\n") == 1
    assert b"ATTN_ISA" in run.stderr
    assert not (tmp_path / "out").exists()


def test_invalid_flag_is_reported_once(batch):
    run = batch("-", "--heads", "none", stdin="{}")
    assert run.returncode == 2
    assert run.stderr.count(b"\n") == 1
    assert b"--heads" in run.stderr


@pytest.mark.parametrize("base", [{"outputs": ["nowhere"]}, None], ids=["base", "flag"])
def test_unknown_output_is_reported_once_before_any_job_runs(batch, tmp_path, base):
    (tmp_path / "base.json").write_text(json.dumps(base or {}))
    run = batch("-", "--out-dir", "out", "--base", "base.json", *([] if base else ["--outputs", "nowhere"]),
                stdin=job_lines(range(3)))
    assert run.returncode == 2
    assert run.stderr.count(b"\n") == 1
    assert b"unknown output 'nowhere'" in run.stderr
    assert not (tmp_path / "out").exists()


def test_invalid_base_is_reported_once_and_creates_nothing(batch, tmp_path):
    (tmp_path / "bad.json").write_text('{"causal": 3}')
    run = batch("-", "--base", "bad.json", "--out-dir", "bad", stdin="{}\n{}")
    assert run.returncode == 65
    assert run.stderr.count(b"\n") == 1
    assert b"bad.json: causal: " in run.stderr
    assert not (tmp_path / "bad").exists()


# Failures and warnings.


class TestBatchWithThreeFailures:
    @pytest.fixture(scope="class")
    def paths(self, class_path):
        paths = write_jobs(class_path, range(6))
        paths[1].write_text(INVALID_JOB)
        paths[2].write_text('{"Q": "gone.npy", "K": [[1.0]]}')
        paths[3].write_text("")
        return paths

    @pytest.fixture(scope="class")
    def run(self, class_path, paths):
        return attn("batch", *paths, "--out-dir", "out", cwd=class_path)

    def test_exit_code_is_3(self, run):
        assert run.returncode == 3

    def test_the_other_jobs_have_results(self, run, class_path):
        assert sorted(contents(class_path / "out")) == ["job0000.npz", "job0004.npz", "job0005.npz"]

    def test_manifest_has_the_codes(self, run, class_path, paths):
        lines = manifest_of(class_path / "out")
        assert [lines[str(path)].get("code", 0) for path in paths] == [0, 65, 66, 65, 0, 0]

    def test_manifest_has_the_error(self, run, class_path, paths):
        assert "gone.npy" in manifest_of(class_path / "out")[str(paths[2])]["error"][0]

    def test_summary_names_the_manifest(self, run):
        assert b"out/manifest.ndjson" in run.stderr

    @pytest.mark.parametrize("index", [1, 2, 3])
    def test_stderr_names_the_job(self, run, paths, index):
        assert f"attn: {paths[index]}: ".encode() in run.stderr


@pytest.fixture
def many_failures(tmp_path):
    """Fifty jobs, of which only the first is valid."""
    for path in write_jobs(tmp_path / "many", range(50))[1:]:
        path.write_text("{}")


def test_fail_fast_starts_no_job_after_a_failure(batch, many_failures, tmp_path):
    run = batch("many", "-j", "1", "--fail-fast", "--out-dir", "out")
    assert run.returncode == 3
    assert len(manifest_of(tmp_path / "out")) == 2
    assert b"48 not done" in run.stderr


def test_failures_do_not_stop_the_batch_by_default(batch, many_failures, tmp_path):
    batch("many", "--out-dir", "out")
    assert len(manifest_of(tmp_path / "out")) == 50


def test_at_most_20_failures_are_shown(batch, many_failures):
    run = batch("many", "--out-dir", "out")
    assert run.stderr.count(b"\n") == 22  # and two lines that sum up


class TestFormatsOfOneOutput:
    """A .csv and an .npy file hold one output; by default a job has several."""

    @pytest.fixture(params=["csv", "npy"])
    def flags(self, request):
        return ["--out-dir", "out", "--format", request.param]

    @pytest.mark.parametrize("more", [[], ["--outputs", "scores,weights"]])
    def test_several_outputs_are_refused_before_any_job_runs(self, batch, tmp_path, flags, more):
        write_jobs(tmp_path / "jobs", range(3))
        run = batch("jobs", *flags, *more)
        assert run.returncode == 2
        assert run.stderr.count(b"\n") == 1
        assert b"--outputs weights" in run.stderr
        assert not (tmp_path / "out").exists()

    def test_jobs_may_name_their_outputs(self, batch, tmp_path, flags):
        for seed, path in enumerate(write_jobs(tmp_path / "jobs", range(2))):
            path.write_text(json.dumps(job(seed) | {"outputs": ["weights"]}))
        assert batch("jobs", *flags).returncode == 0

    def test_job_with_several_outputs_fails(self, batch, tmp_path, flags):
        paths = write_jobs(tmp_path / "jobs", range(2))
        paths[0].write_text(json.dumps(job(0) | {"outputs": ["weights"]}))
        run = batch("jobs", *flags)
        assert run.returncode == 3
        assert b"job0001.json: --format" in run.stderr
        assert b"--outputs scores" in run.stderr

    def test_manifest_without_results_is_replaced(self, batch, tmp_path, flags):
        lines = json.dumps(job(0))
        assert batch("-", *flags, stdin=lines).returncode == 3
        run = batch("-", *flags, "--outputs", "weights", stdin=lines)
        assert run.returncode == 0
        assert manifest_of(tmp_path / "out")["line 1"]["status"] == "done"


def test_nan_refuse_fails_the_job(batch):
    run = batch("-", "--nan", "refuse", stdin='{"Q": [["NaN"]], "K": [[1.0]]}')
    assert run.returncode == 3
    assert b"NaN" in run.stderr


def test_nan_is_a_warning_by_default(batch):
    run = batch("-", stdin='{"Q": [["NaN"]], "K": [[1.0]]}')
    assert run.returncode == 0
    assert b"line 1: warning: " in run.stderr


JOB_WITH_WARNINGS = json.dumps({"Q": [[1.0]], "K": [[1.0]], "V": [[1.0]], "mask": [[1.0]], "tokens": ["a", "b", "c"]})


def test_warnings_are_printed_and_recorded(batch, tmp_path):
    run = batch("-", "--out-dir", "out", stdin=JOB_WITH_WARNINGS)
    assert run.returncode == 0
    assert b"line 1: warning: " in run.stderr
    warning = manifest_of(tmp_path / "out")["line 1"].get("warning", "")
    assert "hide nothing" in warning
    assert "labels are ignored" in warning


def test_at_most_20_warnings_are_shown(batch):
    run = batch("-", stdin=25 * (JOB_WITH_WARNINGS + "\n"))
    assert run.stderr.count(b": warning: ") == 20


# Shards.


@pytest.mark.parametrize("shard, count", [(1, 4), (2, 3), (3, 3)])
def test_shard_runs_its_part_of_the_jobs(batch, tmp_path, shard, count):
    write_jobs(tmp_path / "jobs", range(10))
    run = batch("jobs", "--out-dir", "parts", "--shard", f"{shard}/3")
    assert run.returncode == 0
    assert len(manifest_of(tmp_path / "parts", f"manifest.{shard}-of-3.ndjson")) == count


def test_all_shards_together_give_the_whole(batch, tmp_path):
    write_jobs(tmp_path / "jobs", range(10))
    batch("jobs", "--out-dir", "whole", "--name", "{index}")
    for shard in (1, 2, 3):
        batch("jobs", "--out-dir", "parts", "--name", "{index}", "--shard", f"{shard}/3")
    assert len(contents(tmp_path / "whole")) == 10
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.mark.parametrize("shard", [1, 2, 3])
def test_shard_of_lines_takes_every_third(batch, shard):
    assert_results(batch("-", "--shard", f"{shard}/3", stdin=job_lines(range(10))), range(shard - 1, 10, 3))


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "1/", "a/b", "1/3x", "-1/3"])
def test_invalid_shard_is_refused(batch, tmp_path, shard):
    write_jobs(tmp_path / "jobs", [0])
    run = batch("jobs", f"--shard={shard}")
    assert run.returncode == 2
    assert b"--shard" in run.stderr


def test_file_that_jobs_share_is_read_once(tmp_path):
    """The file is a FIFO, which gives its bytes only once."""
    os.mkfifo(tmp_path / "w")
    weights = np.random.default_rng(2).standard_normal((3, 3))
    np.save(tmp_path / "w.npy", weights)
    line = json.dumps({"embeddings": WORDS, "W_Q": "w"}) + "\n"
    process = subprocess.Popen([ATTN, "batch", "-", "-j", "4"], stdin=subprocess.PIPE, cwd=tmp_path,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    feeder = subprocess.Popen(["sh", "-c", "cat w.npy > w"], cwd=tmp_path)
    out, err = process.communicate((line * 20).encode(), timeout=60)
    feeder.kill()
    feeder.wait()
    results = json_lines(out)
    assert len(results) == 20, err
    want = np.array(WORDS) @ weights @ np.array(WORDS).T
    for result in results:
        np.testing.assert_allclose(result["scores"], want, rtol=1e-12)


def test_many_warnings_do_not_hide_one_of_another_kind():
    """Each warning is shown for twenty jobs. Warnings that differ only in digits count as the same."""
    draw = {name: {"randn": {"shape": [3 if name == "Q" else 5, 4]}} for name in "QKV"}
    jobs = [{**draw, "seed": seed, "causal": True} for seed in range(30)]
    jobs.insert(25, {"Q": [[1, "NaN"]], "K": [[1, 0]], "V": [[1]]})
    run = attn("batch", "-", "--jobs", "1", "--progress", "none", stdin="".join(json.dumps(job) + "\n" for job in jobs))
    warnings = run.stderr.decode().splitlines()[:-1]
    assert run.returncode == 0
    assert [line.split(":")[1].split()[-1] for line in warnings[:20]] == [str(number) for number in range(1, 21)]
    assert warnings[20] == "attn: more jobs have warnings like line 21; they are not shown"
    line, = warnings[21:]
    assert line.startswith("attn: line 26: warning: ") and "NaN" in line
