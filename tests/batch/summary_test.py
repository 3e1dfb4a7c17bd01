"""`attn batch --summary`: a row for each job with its status and statistics of its outputs."""

import csv
import functools
import json

import numpy as np
import pytest
from scipy.stats import entropy

from support.attn import assert_error, attn, json_lines
from support.jobs import expected, job, manifest_of

BAD = '{"Q": [[1]], "id": "bad, \\"quoted\\""}'


@pytest.fixture
def batch(tmp_path):
    """Runs lines with a summary; None is a line that fails."""
    def batch(seeds, *args, summary="s.ndjson"):
        lines = "".join((BAD if seed is None else json.dumps(job(seed))) + "\n" for seed in seeds)
        return attn("batch", "-", "--summary", summary, *args, stdin=lines, cwd=tmp_path)
    return batch


def rows_of(path):
    if path.suffix == ".csv":
        return list(csv.DictReader(path.open(newline="")))
    return sorted(map(json.loads, path.read_text().splitlines()), key=lambda row: row["item"])


def statistics(array):
    return {"shape": list(array.shape), "min": array.min(), "max": array.max(), "mean": array.mean()}


FLAGS = pytest.mark.parametrize("flags", [[], ["--out-dir", "out"], ["--out-dir", "out", "--isolate"],
                                          ["--out-dir", "out", "--bundle", "2"]], ids=" ".join)


@FLAGS
def test_row_has_the_statistics_of_each_output(batch, tmp_path, flags):
    assert batch(range(3), *flags).returncode == 0
    rows = rows_of(tmp_path / "s.ndjson")
    assert [(row["job"], row["item"], row["status"]) for row in rows] == [(f"line {i}", i, "done") for i in (1, 2, 3)]
    for seed, row in enumerate(rows):
        want = expected(seed)
        for name in "scores", "context":
            assert row["outputs"][name] == pytest.approx(statistics(want[name]), rel=1e-12)
        assert row["outputs"]["weights"] == pytest.approx(
            {**statistics(want["weights"]), "entropy": entropy(want["weights"], axis=1).mean()}, rel=1e-12)


def test_entropy_is_that_of_all_outputs_that_are_weights(tmp_path):
    weights = expected(1)["weights"]
    mask = np.arange(weights.size).reshape(weights.shape) % 3 > 0
    line = job(1) | {"dropout_mask": mask.tolist(), "dropout_p": 0.25, "outputs": ["weights", "dropped_weights", "mean_weights"]}
    run = attn("batch", "-", "--summary", "s.ndjson", stdin=json.dumps(line), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    outputs = rows_of(tmp_path / "s.ndjson")[0]["outputs"]
    for name, w in ("weights", weights), ("dropped_weights", weights * mask / 0.75), ("mean_weights", weights):
        terms = w * np.log(w, where=w > 0, out=np.zeros(w.shape))
        assert outputs[name]["entropy"] == pytest.approx(-terms.sum(1).mean(), rel=1e-12)


def test_csv_has_the_same_numbers(batch, tmp_path):
    batch(range(3))
    batch(range(3), summary="s.csv")
    for row, want in zip(rows_of(tmp_path / "s.csv"), rows_of(tmp_path / "s.ndjson")):
        assert list(row)[:6] == ["job", "id", "item", "status", "code", "seconds"]
        assert row["weights.shape"] == "4x4"
        for name in "context.min", "scores.max", "weights.mean", "weights.entropy":
            output, statistic = name.split(".")
            assert float(row[name]) == want["outputs"][output][statistic]
        assert "scores.entropy" not in row


def test_failed_job_has_its_code(batch, tmp_path):
    assert batch([0, None]).returncode == 3
    failed = rows_of(tmp_path / "s.ndjson")[1]
    assert (failed["status"], failed["code"], failed["id"], "outputs" in failed) == ("failed", 65, 'bad, "quoted"', False)


def test_csv_quotes_fields(batch, tmp_path):
    batch([0, None], summary="s.csv")
    assert [row["id"] for row in rows_of(tmp_path / "s.csv")] == ["", 'bad, "quoted"']


def test_columns_are_the_outputs_of_all_jobs(tmp_path):
    lines = "".join('{"Q": [[1, 2]], "K": [[1, 2]], "outputs": ["%s"]}\n' % name for name in ("scores", "row_max"))
    attn("batch", "-", "--summary", "s.csv", "--statistics", "max", stdin=lines, cwd=tmp_path)
    rows = sorted(rows_of(tmp_path / "s.csv"), key=lambda row: row["item"])
    assert [(row["row_max.shape"], row["scores.max"]) for row in rows] == [("", "5"), ("1", "")]


def test_chosen_statistics(batch, tmp_path):
    batch([0], "--statistics", "mean,entropy", "--outputs", "weights")
    assert list(rows_of(tmp_path / "s.ndjson")[0]["outputs"]["weights"]) == ["shape", "mean", "entropy"]


def test_nan_is_left_out(tmp_path):
    attn("batch", "-", "--summary", "s.ndjson", cwd=tmp_path,
         stdin='{"Q": [["NaN", 1.0], [1.0, 2.0]], "K": [[1.0, 0.5]], "outputs": ["scores"]}\n')
    assert rows_of(tmp_path / "s.ndjson")[0]["outputs"]["scores"] == {
        "shape": [2, 1], "min": 2.0, "max": 2.0, "mean": 2.0}


def test_entropy_leaves_out_rows_with_nan(tmp_path):
    job = {"Q": [["NaN"], [1]], "K": [[1], [2]], "scale": "none", "outputs": ["weights"]}
    assert attn("batch", "-", "--summary", "s.ndjson", "--nan", "allow", stdin=json.dumps(job), cwd=tmp_path).returncode == 0
    weights = np.exp([1, 2]) / np.exp([1, 2]).sum()
    assert rows_of(tmp_path / "s.ndjson")[0]["outputs"]["weights"]["entropy"] == pytest.approx(entropy(weights))


def test_weights_without_rows_with_numbers_have_no_entropy(tmp_path):
    job = {"Q": [["NaN"]], "K": [[1], [2]], "outputs": ["weights"]}
    assert attn("batch", "-", "--summary", "s.ndjson", "--nan", "allow", stdin=json.dumps(job), cwd=tmp_path).returncode == 0
    assert "entropy" not in rows_of(tmp_path / "s.ndjson")[0]["outputs"]["weights"]


def test_empty_rows_have_entropy_0(tmp_path):
    attn("batch", "-", "--summary", "s.ndjson", cwd=tmp_path, stdin=json.dumps(
        {"Q": [[1.0], [1.0]], "K": [[1.0], [1.0]], "mask": [[False, False], [True, True]], "outputs": ["weights"]}))
    assert rows_of(tmp_path / "s.ndjson")[0]["outputs"]["weights"]["entropy"] == pytest.approx(np.log(2) / 2)


@pytest.mark.parametrize("flags", [[], ["--bundle", "2"]], ids=["files", "bundles"])
def test_resumed_run_has_the_rows_of_all_jobs(batch, tmp_path, flags):
    batch([0, None, 2], "--out-dir", "out", *flags)
    first = rows_of(tmp_path / "s.ndjson")
    assert batch([0, 1, 2], "--out-dir", "out", "--resume", *flags).returncode == 0
    rows = rows_of(tmp_path / "s.ndjson")
    assert [row["status"] for row in rows] == ["skipped", "done", "skipped"]
    assert [rows[i]["outputs"] for i in (0, 2)] == [first[i]["outputs"] for i in (0, 2)]


WARNING = "attn: warning: the summary has no statistics of 2 skipped jobs; --force instead of --resume or " \
          "--no-clobber runs all jobs again"


@pytest.mark.parametrize("flag", ["--resume", "--no-clobber"])
def test_skipped_jobs_without_statistics_are_counted(batch, tmp_path, flag):
    lines = "".join(json.dumps(job(seed)) + "\n" for seed in (0, 1))
    attn("batch", "-", "--out-dir", "out", stdin=lines, cwd=tmp_path)
    run = batch([0, 1, 2], "--out-dir", "out", flag)
    assert run.returncode == 0
    assert WARNING in run.stderr.decode().splitlines()
    assert ["outputs" in row for row in rows_of(tmp_path / "s.ndjson")] == [False, False, True]


@pytest.mark.parametrize("flags", [["-q"], ["--json"]], ids=" ".join)
def test_skipped_jobs_without_statistics_cause_no_text(batch, tmp_path, flags):
    lines = "".join(json.dumps(job(seed)) + "\n" for seed in (0, 1))
    attn("batch", "-", "--out-dir", "out", stdin=lines, cwd=tmp_path)
    assert b"warning" not in batch([0, 1], "--out-dir", "out", "--resume", *flags).stderr


def test_skipped_jobs_with_statistics_cause_no_warning(batch):
    batch([0, 1], "--out-dir", "out")
    assert b"warning" not in batch([0, 1], "--out-dir", "out", "--resume").stderr


def test_manifest_has_the_statistics(batch, tmp_path):
    batch([0], "--out-dir", "out")
    assert manifest_of(tmp_path / "out")["line 1"]["statistics"] == rows_of(tmp_path / "s.ndjson")[0]["outputs"]


def test_events_have_the_statistics(batch):
    items = [event for event in json_lines(batch([0], "--json").stderr) if event["event"] == "item"]
    assert "entropy" in items[0]["statistics"]["weights"]


# The file.


@pytest.mark.parametrize("flags", [[], ["--out-dir", "out", "--resume"]], ids=["new", "resumed"])
def test_existing_file_is_kept(batch, tmp_path, flags):
    (tmp_path / "s.ndjson").write_text("mine")
    assert_error(batch([0], *flags), 73, "s.ndjson: already exists")
    assert (tmp_path / "s.ndjson").read_text() == "mine"


@pytest.mark.parametrize("name, text", [("s" * 300 + ".csv", "File name too long"),
                                        ("folder/s.csv", "there is no folder folder"),
                                        ("/dev/full/s.csv", "Not a directory"),
                                        ("taken.csv", "already exists")], ids=["long", "missing", "file", "taken"])
@pytest.mark.parametrize("isolate", [[], ["--isolate"]], ids=str)
def test_impossible_file_is_refused_before_anything_is_written(tmp_path, name, text, isolate):
    (tmp_path / "taken.csv").write_text("1\n")
    run = attn("batch", "-", "--out-dir", "out/deep", "--summary", name, *isolate, stdin=json.dumps(job(1)), cwd=tmp_path)
    assert_error(run, 73, text)
    assert [path.name for path in tmp_path.iterdir()] == ["taken.csv"]


def test_file_may_be_in_the_new_output_folder(tmp_path):
    run = attn("batch", "-", "--out-dir", "out", "--summary", "out/s.csv", stdin=json.dumps(job(1)), cwd=tmp_path)
    assert run.returncode == 0
    assert len((tmp_path / "out" / "s.csv").read_text().splitlines()) == 2


def test_force_replaces_the_file(batch, tmp_path):
    (tmp_path / "s.ndjson").write_text("mine")
    assert batch([0], "--force", "--out-dir", "out").returncode == 0
    assert len(rows_of(tmp_path / "s.ndjson")) == 1


@pytest.mark.parametrize("flags, message", [
    (["--summary", "s.txt"], "--summary s.txt: expected a name that ends in .csv or .ndjson"),
    (["--summary", "-"], "--summary -: expected a path"),
    (["--summary", "s.csv", "--statistics", "man"], "--statistics: unknown 'man'"),
    (["--statistics", "max"], "--statistics requires --summary"),
    (["--summary", "s.csv", "--dry-run"], "--summary and --dry-run are mutually exclusive"),
])
def test_invalid_options_are_refused(tmp_path, flags, message):
    run = attn("batch", "-", *flags, stdin="{}", cwd=tmp_path)
    assert run.returncode == 2
    assert message[:30] in run.stderr.decode()


@pytest.mark.long
def test_rows_do_not_take_memory(tmp_path):
    """50,000 rows of 200 bytes, with a limit of 16 MiB."""
    lines = 50_000 * '{"Q": [[1]], "K": [[1]], "outputs": ["scores"]}\n'
    run = attn("batch", "-", "--summary", "s.csv", "--max-memory", "16M", "-j", "1", stdin=lines, cwd=tmp_path)
    assert run.returncode == 0
    assert len(rows_of(tmp_path / "s.csv")) == 50_000


@pytest.mark.parametrize("summary, code", [("s.txt", 2), ("out.csv", 2), ("mine.ndjson", 73)])
def test_summary_that_cannot_be_written_starts_nothing(batch, tmp_path, summary, code):
    (tmp_path / "mine.ndjson").write_text("{}\n")
    assert batch([1], "--out-dir", "out.csv", summary=summary).returncode == code
    assert not (tmp_path / "out.csv").exists()


def test_force_replaces_a_summary_without_results_in_files(batch):
    batch([0])
    assert batch([0, 1]).returncode == 73
    assert batch([0, 1], "--force").returncode == 0


def test_csv_writes_infinite_statistics_as_tables_do(tmp_path):
    job = {"Q": [[1e300], [-1e300]], "K": [[1e300]], "outputs": ["scores"]}
    attn("batch", "-", "--summary", "s.csv", "--statistics", "min,max", "--nan", "allow", stdin=json.dumps(job), cwd=tmp_path)
    assert [(row["scores.min"], row["scores.max"]) for row in rows_of(tmp_path / "s.csv")] == [("-inf", "inf")]
