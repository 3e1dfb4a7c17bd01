"""`attn batch --status`: done, failed and missing jobs, and the shards to run again."""

import functools
import json

import pytest

from support.attn import assert_error, attn
from support.jobs import job, write_jobs


@pytest.fixture
def batch(tmp_path):
    return functools.partial(attn, "batch", cwd=tmp_path)


@pytest.fixture
def shards(batch, tmp_path):
    """Runs these shards of 20 job files, of which numbers 8 and 15 fail."""
    paths = write_jobs(tmp_path / "jobs", range(20))
    for number in 8, 15:
        paths[number - 1].write_text('{"Q": [[1]]}')

    def shards(indices, count):
        for index in indices:
            assert batch("jobs", "--out-dir", "out", "--shard", f"{index}/{count}").returncode in (0, 3)
    return shards


@pytest.fixture
def status(batch):
    """Runs `attn batch --status out --json`; returns the exit code and the object."""
    def status(*args):
        run = batch("--status", "out", "--json", *args)
        return run.returncode, json.loads(run.stdout)
    return status


def test_names_done_failed_and_missing_jobs(shards, status):
    shards([1, 2, 3], 4)
    code, found = status()
    assert code == 3
    assert found["jobs"] == 20
    assert found["done"] == {"count": 14, "items": "1-3,5-7,9-11,13-14,17-19"}
    assert found["missing"] == {"count": 5, "items": "4,8,12,16,20"}
    assert found["failed"]["items"] == "15"


def test_lists_the_errors_of_failed_jobs(shards, status):
    shards([3], 4)
    [failure] = status()[1]["failed"]["jobs"]
    assert failure == {"job": "jobs/job0014.json", "item": 15, "code": 65,
                       "error": ["jobs/job0014.json: Q: requires K, K_pages or KV_pages"]}


def test_resubmits_shards_with_failed_or_missing_jobs(shards, status):
    shards([1, 2, 5, 6, 10], 10)
    assert status()[1]["resubmit"] == "3-5,7-9"  # 15 is in shard 5


def test_resubmits_the_largest_number_of_shards(shards, status):
    shards([1], 2)
    shards([2], 10)
    assert status()[1]["shards"] == 10


def test_resubmitted_shards_complete_the_batch(shards, status, batch, tmp_path):
    shards([1, 4], 4)
    for number in 8, 15:
        (tmp_path / "jobs" / f"job{number - 1:04}.json").write_text(json.dumps(job(0)))
    first, last = status()[1]["resubmit"].split("-")
    for index in range(int(first), int(last) + 1):
        batch("jobs", "--out-dir", "out", "--resume", "--shard", f"{index}/4")
    code, found = status()
    assert (code, found["done"]["items"], found["resubmit"]) == (0, "1-20", "")


def test_job_that_any_manifest_calls_done_is_done(shards, status, batch, tmp_path):
    shards([1, 2, 3, 4], 4)
    for number in 8, 15:
        (tmp_path / "jobs" / f"job{number - 1:04}.json").write_text(json.dumps(job(0)))
    assert batch("jobs", "--out-dir", "out", "--resume").returncode == 0
    assert status()[0] == 0


def test_names_missing_files_if_the_jobs_are_given(shards, status):
    shards([1], 2)
    assert status("jobs/job000*.json")[1]["missing"]["jobs"] == [f"jobs/job000{i}.json" for i in (1, 3, 5, 7, 9)]


def test_given_jobs_replace_the_numbers_in_the_manifest(shards, status, tmp_path):
    shards([1], 1)
    write_jobs(tmp_path / "jobs", range(3), "a{}.json")
    assert status("jobs")[1]["missing"]["items"] == "1-3"


def test_lines_are_counted_at_the_end(batch, status):
    lines = 10 * '{"Q": [[1]], "K": [[1]], "outputs": ["scores"]}\n'
    batch("-", "--out-dir", "out", "--shard", "2/3", stdin=lines)
    code, found = status()
    assert (code, found["jobs"], found["missing"]["items"], found["resubmit"]) == (3, 10, "1,3-4,6-7,9-10", "1,3")


def test_all_shards_run_again_if_the_lines_were_not_counted(batch, status, tmp_path):
    batch("-", "--out-dir", "out", "--shard", "2/3", stdin=10 * '{"Q": [[1]], "K": [[1]]}\n')
    manifest = tmp_path / "out" / "manifest.2-of-3.ndjson"
    manifest.write_bytes(b"".join(manifest.read_bytes().splitlines(keepends=True)[:-1]))
    code, found = status()
    assert (code, found["jobs"], found["resubmit"]) == (3, None, "1-3")


@pytest.mark.parametrize("jobs, missing, text", [
    ('{"Q": [[1]], "K": [[1]]}\n' * 3, "", "missing: not known; the last job that ran is 3\n"),
    ('{"Q": [[1]]}\n', "", "missing: not known; the last job that ran is 1\n"),
    ("", "", "missing: not known\n")])
def test_lines_that_were_not_counted_are_missing_in_an_unknown_number(batch, status, tmp_path, jobs, missing, text):
    batch("-", "--out-dir", "out", stdin=jobs)
    manifest = tmp_path / "out" / "manifest.ndjson"
    manifest.write_bytes(b"".join(manifest.read_bytes().splitlines(keepends=True)[:-1]))
    assert status()[1]["missing"] == {"count": None, "items": missing}
    assert text in batch("--status", "out").stdout.decode()


def test_lines_before_the_last_that_ran_are_known_to_be_missing(batch, status, tmp_path):
    batch("-", "--out-dir", "out", "--shard", "2/3", stdin=10 * '{"Q": [[1]], "K": [[1]]}\n')
    manifest = tmp_path / "out" / "manifest.2-of-3.ndjson"
    manifest.write_bytes(b"".join(manifest.read_bytes().splitlines(keepends=True)[:-1]))
    assert status()[1]["missing"] == {"count": None, "items": "1,3-4,6-7"}
    assert "missing: not known, except 5 (1,3-4,6-7); the last job that ran is 8\n" in \
        batch("--status", "out").stdout.decode()


def test_text_states_what_to_run(shards, batch):
    shards([1, 2], 4)
    assert batch("--status", "out").stdout.decode() == """20 jobs
done: 10 (1-2,5-6,9-10,13-14,17-18)
failed: 0
missing: 10 (3-4,7-8,11-12,15-16,19-20)
run again with --array=3-4 and --resume --shard auto/4
"""


def test_failed_jobs_are_shown_with_their_error(shards, batch):
    shards([1], 1)
    assert "\nfailed: 2 (8,15)\n  jobs/job0007.json: Q: requires K, K_pages or KV_pages\n" in batch("--status", "out").stdout.decode()


def test_failed_job_without_a_file_is_named(shards, batch, tmp_path):
    shards([1], 1)
    (tmp_path / "jobs" / "job0014.json").unlink()
    text = batch("--status", "out").stdout.decode()
    assert """
failed, and their files do not exist: 1; --status DIR JOB... counts only the jobs given
  jobs/job0014.json
missing: 0
run again with --resume
""" in text
    failures = json.loads(batch("--status", "out", "--json").stdout)["failed"]["jobs"]
    assert [(failure["item"], failure.get("deleted")) for failure in failures] == [(8, None), (15, True)]


def test_only_jobs_that_can_run_are_advised_to_resume(shards, batch, tmp_path):
    shards([1], 1)
    for number in 8, 15:
        (tmp_path / "jobs" / f"job{number - 1:04}.json").unlink()
    run = batch("--status", "out")
    assert run.returncode == 3
    assert "their files do not exist: 2;" in run.stdout.decode()
    assert b"--resume" not in run.stdout


def assert_refused(run):
    assert_error(run, 2, "--status out: the list of jobs has changed between runs; "
                         "give the jobs: --status out JOB...")
    assert run.stdout == b""


def test_numbers_of_different_lists_are_refused(batch, status, tmp_path):
    write_jobs(tmp_path / "jobs", range(2))
    batch("jobs", "--out-dir", "out")
    (tmp_path / "jobs" / "job0000.json").unlink()
    write_jobs(tmp_path / "jobs", range(2, 3))
    batch("jobs", "--out-dir", "out", "--resume", "--shard", "1/2")
    assert_refused(batch("--status", "out"))
    code, found = status("jobs")
    assert (code, found["done"]["items"], found["missing"]["jobs"]) == (3, "1", ["jobs/job0002.json"])


def test_complete_batch_to_which_a_job_was_added_is_not_called_incomplete(batch, status, tmp_path):
    for numbers in [0, 2], [1]:
        write_jobs(tmp_path / "jobs", numbers)
        batch("jobs", "--out-dir", "out", "--resume")
    assert_refused(batch("--status", "out"))
    code, found = status("jobs")
    assert (code, found["done"]["items"]) == (0, "1-3")


def test_shards_of_different_lists_are_refused(shards, batch, tmp_path):
    shards([1, 2], 4)
    (tmp_path / "jobs" / "job0003.json").rename(tmp_path / "jobs" / "job0003b.json")
    batch("jobs", "--out-dir", "out", "--shard", "3/4")
    assert_refused(batch("--status", "out"))


def test_jobs_in_another_order_are_another_list(batch, tmp_path):
    paths = write_jobs(tmp_path, range(2))
    for names in paths, reversed(paths):
        batch(*[path.name for path in names], "--out-dir", "out", "--resume")
    assert_refused(batch("--status", "out"))


def test_refusal_with_json_is_an_event(batch, tmp_path):
    for numbers in [0], [1]:
        write_jobs(tmp_path / "jobs", numbers)
        batch("jobs", "--out-dir", "out", "--resume")
    run = batch("--status", "out", "--json")
    event = json.loads(run.stderr)
    assert (run.returncode, run.stdout, event["event"], event["code"]) == (2, b"", "error", 2)


def test_manifest_that_is_replaced_has_one_list(batch, status, tmp_path):
    for numbers in [0], [1]:
        write_jobs(tmp_path / "jobs", numbers)
        batch("jobs", "--out-dir", "out", "--force")
    assert status()[1]["done"]["items"] == "1-2"


def test_all_shards_record_the_same_list(shards, batch, tmp_path):
    shards([1, 2, 3], 3)
    batch("jobs", "--out-dir", "out", "--resume")
    heads = [json.loads(path.read_text().splitlines()[0]) for path in (tmp_path / "out").glob("manifest.*")]
    assert len(heads) == 4
    [digest] = {head["list"] for head in heads}
    assert digest.startswith("xxh128:")


def test_lines_may_be_appended(batch, status):
    for count in 2, 3:
        batch("-", "--out-dir", "out", "--resume", stdin=count * '{"Q": [[1]], "K": [[1]]}\n')
    code, found = status()
    assert (code, found["done"]["items"]) == (0, "1-3")


def test_manifest_of_a_version_that_recorded_no_list(shards, batch, status, tmp_path):
    shards([1, 2], 2)
    manifest = tmp_path / "out" / "manifest.1-of-2.ndjson"
    head, *lines = manifest.read_text().splitlines(keepends=True)
    run = json.loads(head)
    del run["list"]
    manifest.write_text(json.dumps(run, separators=(",", ":")) + "\n" + "".join(lines))
    code, found = status()
    assert (code, found["done"]["count"], found["failed"]["count"]) == (3, 18, 2)
    assert b"18 skipped" in batch("jobs", "--out-dir", "out", "--resume").stderr


def test_given_jobs_leave_out_deleted_files(shards, batch, tmp_path):
    shards([1], 1)
    for number in 8, 15:
        (tmp_path / "jobs" / f"job{number - 1:04}.json").unlink()
    run = batch("--status", "out", "jobs")
    assert (run.returncode, run.stdout.decode()) == (0, "18 jobs\ndone: 18 (1-18)\nfailed: 0\nmissing: 0\n")


def test_failed_lines_have_no_files(batch):
    batch("-", "--out-dir", "out", stdin='{"Q": [[1]]}\n')
    assert "files do not exist" not in batch("--status", "out").stdout.decode()


def test_quiet_status_of_a_complete_batch_prints_nothing(batch, tmp_path):
    write_jobs(tmp_path / "jobs", range(2))
    batch("jobs", "--out-dir", "out")
    run = batch("--status", "out", "-q")
    assert (run.returncode, run.stdout) == (0, b"")


def test_status_of_a_running_batch_ignores_the_incomplete_line(shards, status, tmp_path):
    shards([1], 1)
    with open(tmp_path / "out" / "manifest.ndjson", "ab") as manifest:
        manifest.write(b'{"job":"jobs/job0000.json","item":1,"status":"fai')
    assert status()[1]["done"]["count"] == 18


@pytest.mark.parametrize("line, message", [
    ('{"schema":"attn-batch/1","run":"a","jobs":4611686018427387904,"shard":"1/4611686018427387904"}', "resubmit"),
    ('{"schema":"attn-batch/1","run":"a","jobs":-1,"shard":"0/0"}', "resubmit"),
    ('{"schema":"attn-batch/1","run":"a","jobs":4611686018427387904,"shard":"1/7"}', '"resubmit":"1-7"'),
])
def test_numbers_in_a_manifest_take_no_memory(batch, tmp_path, line, message):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.ndjson").write_text(line + '\n{"job":"a","item":9223372036854775807,"status":"done"}\n')
    run = batch("--status", "out", "--json", "--max-memory", "32M")
    assert run.returncode in (0, 3)
    assert message in run.stdout.decode()


def test_folder_without_manifest_is_an_error(batch, tmp_path):
    (tmp_path / "out").mkdir()
    assert_error(batch("--status", "out"), 66, "out: contains no manifest of attn batch")


def test_manifest_that_cannot_be_read_is_an_error(shards, batch):
    shards([1], 2)
    assert_error(batch("--status", "out", "--max-memory", "16K"), 65, "out/manifest.1-of-2.ndjson")


@pytest.mark.parametrize("flags", [["--resume"], ["--out-dir", "out"], ["--shard", "1/2"], ["--causal"], ["-j", "1"]])
def test_other_options_are_refused(batch, flags):
    run = batch("--status", "out", *flags)
    assert run.returncode == 2
    assert b"--status cannot be combined with" in run.stderr


def test_lines_are_refused(batch):
    assert_error(batch("-", "--status", "out"), 2, "--status: expected job files, not '-'")
