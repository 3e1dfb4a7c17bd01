"""No output of a batch replaces an input of any of its jobs, or another output, also with --force."""

import json
import os

import numpy as np
import pytest

from support.attn import assert_error, attn
from support.checkpoints import write_model
from support.jobs import manifest_of

ROWS = [[1.0, 0.5], [0.25, -1.0]]
INPUT = "is an input and cannot be overwritten"
OUTPUT = "is another output of this run"
ISOLATE = [[], ["--isolate"]]


def write_job(path, **files):
    job = {"Q": ROWS, "K": ROWS, "V": ROWS, "outputs": ["context"]} | files
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(job))


@pytest.fixture
def folder(tmp_path):
    """Jobs a and b, and an array x.npy in the output folder that b reads."""
    (tmp_path / "out").mkdir()
    np.save(tmp_path / "out" / "x.npy", np.array(ROWS) + 1)
    write_job(tmp_path / "jobs" / "a.json")
    write_job(tmp_path / "jobs" / "b.json", V="../out/x.npy")
    return tmp_path


def batch(folder, *flags, jobs="jobs", form="npy", stdin=b""):
    return attn("batch", jobs, "--out-dir", "out", "--format", form, "--force", *flags, cwd=folder, stdin=stdin)


def names(folder):
    return sorted(os.listdir(folder))


def assert_refused(folder, run, text, *kept):
    """The batch ended before it wrote anything."""
    assert_error(run, 73, text)
    assert names(folder / "out") == sorted(kept)


def array(folder):
    return np.load(folder / "out" / "x.npy").tolist()


KEPT = (np.array(ROWS) + 1).tolist()


@pytest.mark.parametrize("isolate", ISOLATE, ids=str)
class TestInputOfAnotherJob:
    """The result of one job is the file that another one reads."""

    def test_is_refused_before_anything_is_written(self, folder, isolate):
        (folder / "jobs" / "a.json").rename(folder / "jobs" / "x.json")
        assert_refused(folder, batch(folder, *isolate), f"out/x.npy: {INPUT}", "x.npy")
        assert array(folder) == KEPT

    @pytest.mark.parametrize("link", [os.link, lambda target, name: os.symlink(os.path.abspath(target), name)],
                             ids=["hard link", "link"])
    def test_under_any_name(self, folder, link, isolate):
        (folder / "jobs" / "a.json").rename(folder / "jobs" / "x.json")
        link(folder / "out" / "x.npy", folder / "other.npy")
        write_job(folder / "jobs" / "b.json", V="../other.npy")
        assert_refused(folder, batch(folder, *isolate), f"out/x.npy: {INPUT}", "x.npy")
        assert array(folder) == KEPT

    def test_in_a_folder_of_results(self, folder, isolate):
        (folder / "out" / "a").mkdir()
        (folder / "out" / "x.npy").rename(folder / "out" / "a" / "context.npy")
        write_job(folder / "jobs" / "b.json", V="../out/a/context.npy")
        run = batch(folder, *isolate, form="folder")
        assert_refused(folder, run, f"out/a/context.npy: {INPUT}", "a")

    def test_that_gives_no_result_of_its_name(self, folder, isolate):
        (folder / "out" / "a").mkdir()
        (folder / "out" / "x.npy").rename(folder / "out" / "a" / "x.npy")
        write_job(folder / "jobs" / "b.json", V="../out/a/x.npy")
        assert batch(folder, *isolate, form="folder").returncode == 0
        assert names(folder / "out" / "a") == ["context.npy", "x.npy"]

    def test_of_a_pattern(self, folder, isolate):
        np.save(folder / "q_1.npy", ROWS)
        (folder / "out" / "x.npy").rename(folder / "out" / "1.npy")
        run = attn("batch", "--pattern", "q_{}.npy,q_{}.npy,out/{}.npy", "--outputs", "context", "--out-dir", "out",
                   "--format", "npy", "--force", *isolate, cwd=folder)
        assert_refused(folder, run, f"out/1.npy: {INPUT}", "1.npy")

    def test_of_the_base(self, folder, isolate):
        (folder / "jobs" / "a.json").rename(folder / "jobs" / "x.json")
        write_job(folder / "jobs" / "b.json")
        write_job(folder / "base.json", mask="out/x.npy")
        run = batch(folder, "--base", "base.json", *isolate)
        assert_refused(folder, run, f"out/x.npy: {INPUT}", "x.npy")

    def test_in_a_line(self, folder, isolate):
        """Which files lines read is known only when they are read."""
        (folder / "out" / "x.npy").rename(folder / "out" / "2.npy")
        line = {"Q": ROWS, "K": ROWS, "V": "out/2.npy", "outputs": ["context"]}
        lines = [line] + [line | {"V": ROWS}] * 3
        before = (folder / "out" / "2.npy").read_bytes()
        run = batch(folder, "-j1", *isolate, jobs="-", stdin="\n".join(map(json.dumps, lines)))
        assert run.returncode == 3
        assert (folder / "out" / "2.npy").read_bytes() == before
        manifest = manifest_of(folder / "out")
        assert [manifest[f"line {n}"]["status"] for n in (1, 2, 3, 4)] == ["done", "failed", "done", "done"]
        assert manifest["line 2"]["error"] == [f"line 2: out/2.npy: {INPUT}"]


class TestSummary:
    @pytest.mark.parametrize("jobs", ["jobs", "-"])
    def test_replaces_no_input(self, folder, jobs):
        table = folder / "x.csv"
        table.write_text("1,2\n3,4\n")
        write_job(folder / "jobs" / "b.json", V="../x.csv")
        line = json.dumps({"Q": ROWS, "K": ROWS, "V": "x.csv", "outputs": ["context"]})
        run = batch(folder, "--summary", "x.csv", jobs=jobs, stdin=line)
        assert run.returncode == 73
        assert INPUT in run.stderr.decode()
        assert table.read_text() == "1,2\n3,4\n"
        if jobs == "jobs":
            assert names(folder / "out") == ["x.npy"]

    @pytest.mark.parametrize("force", [[], ["--force"]], ids=str)
    @pytest.mark.parametrize("name", ["out/a.csv", "./out/../out/a.csv", "link.csv"])
    def test_is_no_result(self, folder, name, force):
        (folder / "link.csv").symlink_to("out/a.csv")
        run = attn("batch", "jobs", "--out-dir", "out", "--format", "csv", "--summary", name, *force, cwd=folder)
        assert_refused(folder, run, f"--summary {name}: is the result of jobs/a.json", "x.npy")

    @pytest.mark.parametrize("isolate", ISOLATE, ids=str)
    def test_is_no_result_of_a_line(self, folder, isolate):
        line = json.dumps({"Q": ROWS, "K": ROWS, "V": ROWS, "outputs": ["context"]})
        run = attn("batch", "-", "--out-dir", "out", "--format", "csv", "--summary", "out/2.csv", "--force", *isolate,
                   cwd=folder, stdin="\n".join([line] * 3))
        assert run.returncode == 3
        assert manifest_of(folder / "out")["line 2"]["error"] == [f"line 2: out/2.csv: {OUTPUT}"]
        rows = (folder / "out" / "2.csv").read_text().splitlines()
        assert sorted(row.split(",")[3] for row in rows[1:]) == ["done", "done", "failed"]

    def test_is_not_the_manifest(self, folder):
        for force in [], ["--force"]:
            run = attn("batch", "jobs", "--out-dir", "out", "--manifest", "m.ndjson", "--summary", "m.ndjson", *force,
                       cwd=folder)
            assert_error(run, 73, "m.ndjson")


@pytest.mark.parametrize("force", [[], ["--force"]], ids=str)
def test_manifest_is_no_result(folder, force):
    run = attn("batch", "jobs", "--out-dir", "out", "--manifest", "out/a.npz", *force, cwd=folder)
    assert_refused(folder, run, "--manifest out/a.npz: is the result of jobs/a.json", "x.npy")


@pytest.mark.parametrize("flag", ["--manifest", "--summary"])
@pytest.mark.parametrize("force", [[], ["--force"]], ids=str)
def test_file_of_the_run_is_no_bundle(folder, flag, force):
    for name in "cde":
        write_job(folder / "jobs" / f"{name}.json")
    run = ["batch", "jobs", "--out-dir", "out", "--bundle", "2", *force]
    if flag == "--summary":
        (folder / "s.csv").symlink_to("out/bundle-3.npz")
    name = "out/bundle-3.npz" if flag == "--manifest" else "s.csv"
    refused = attn(*run, flag, name, cwd=folder)
    assert_refused(folder, refused, f"{flag} {name}: is the result of bundle 3", "x.npy")
    other = attn(*run, flag, name.replace("3", "4").replace("s.", "other."), cwd=folder)
    assert other.returncode == 0


def test_list_of_jobs_is_no_result(folder):
    (folder / "out" / "a.npy").write_text("jobs/a.json\n")
    run = attn("batch", "--files-from", "out/a.npy", "--out-dir", "out", "--format", "npy", "--force", cwd=folder)
    assert_refused(folder, run, f"out/a.npy: {INPUT}", "a.npy", "x.npy")


def test_results_are_replaced(folder):
    """What --force is for."""
    assert batch(folder).returncode == 0
    write_job(folder / "jobs" / "a.json", V=KEPT)
    before = (folder / "out" / "a.npy").read_bytes()
    assert batch(folder).returncode == 0
    assert (folder / "out" / "a.npy").read_bytes() != before


def write_layers(folder, layers=1, shards=1):
    """A model with one layer, whose configuration states another number."""
    config = {"model_type": "llama", "hidden_size": 2, "num_attention_heads": 1, "num_hidden_layers": layers}
    tensors = {f"model.layers.0.self_attn.{name}_proj.weight": np.eye(2) for name in "qkvo"}
    tensors["model.layers.0.input_layernorm.weight"] = np.ones(2)
    write_model(folder, config, tensors, shards=shards)


@pytest.mark.parametrize("name, shards", [("model", 1), ("model-00002-of-00002", 2)])
def test_checkpoint_is_no_result(folder, name, shards):
    write_layers(folder / "out", shards=shards)
    kept = names(folder / "out")
    (folder / "jobs" / "a.json").rename(folder / "jobs" / f"{name}.json")
    (folder / "jobs" / "b.json").write_text(json.dumps({"model": "../out", "layer": 0, "hidden": ROWS}))
    run = attn("batch", "jobs", "--out-dir", "out", "--format", "safetensors", "--force", cwd=folder)
    assert_refused(folder, run, f"out/{name}.safetensors: {INPUT}", *kept)


class TestHiddenStates:
    """Names with {layer} lead to the files of the layers that the job lists."""

    @pytest.fixture
    def model(self, folder):
        write_layers(folder / "model", layers=10**9)
        np.save(folder / "out" / "h0.npy", ROWS)

        def write(**keys):
            hidden = {"model": "../model", "layer": 0, "hidden": "../out/h{layer}.npy", "outputs": ["context"]}
            (folder / "jobs" / "b.json").write_text(json.dumps(hidden | keys))

        return write

    def test_are_those_of_listed_layers(self, folder, model):
        """The configuration states a billion layers."""
        model()
        (folder / "jobs" / "h1.json").write_bytes((folder / "jobs" / "a.json").read_bytes())
        np.save(folder / "out" / "h1.npy", ROWS)
        assert batch(folder, "--max-memory", "256M").returncode == 0
        assert names(folder / "out") == ["a.npy", "b.npy", "h0.npy", "h1.npy", "manifest.ndjson", "x.npy"]

    @pytest.mark.parametrize("layer", [0, [0], [3, 0]], ids=str)
    def test_are_inputs(self, folder, model, layer):
        model(layer=layer)
        (folder / "jobs" / "a.json").rename(folder / "jobs" / "h0.json")
        assert_refused(folder, batch(folder), f"out/h0.npy: {INPUT}", "h0.npy", "x.npy")

    @pytest.mark.parametrize("keys, text", [
        ({"layer": "all"}, "expected at most 65536 layers, found 1000000000"),
        ({"layer": list(range(60000)), "hidden": "{layer}" + "x" * 4000}, "File name too long"),
    ], ids=["all", "names that need more memory than there is"])
    def test_of_too_many_layers_fail_one_job(self, folder, model, keys, text):
        model(**keys)
        np.save(folder / "out" / "a.npy", ROWS)  # replaced, so jobs are read in advance
        assert batch(folder, "--max-memory", "64M").returncode == 3
        manifest = manifest_of(folder / "out")
        assert manifest["jobs/a.json"]["status"] == "done"
        assert manifest["jobs/b.json"]["status"] == "failed"
        assert text in manifest["jobs/b.json"]["error"][0]


class TestOutputsOfFolder:
    """A job writes only the files of its outputs."""

    def run(self, folder, name, **keys):
        (folder / "out" / "a").mkdir()
        (folder / "out" / "x.npy").rename(folder / "out" / "a" / f"{name}.npy")
        (folder / "jobs" / "a.json").write_text(json.dumps({"Q": ROWS, "K": ROWS, "V": ROWS} | keys))
        write_job(folder / "jobs" / "b.json", V=f"../out/a/{name}.npy")
        return batch(folder, form="folder")

    def test_given_as_one_word(self, folder):
        assert_refused(folder, self.run(folder, "entropy", outputs="entropy"), f"out/a/entropy.npy: {INPUT}", "a")

    def test_given_twice(self, folder):
        run = self.run(folder, "entropy", outputs=["entropy", "entropy"])
        assert_refused(folder, run, f"out/a/entropy.npy: {INPUT}", "a")

    @pytest.mark.parametrize("name, keys", [("weights", {"outputs": "entropy"}), ("entropy", {}), ("output", {})],
                             ids=str)
    def test_that_are_other_files(self, folder, name, keys):
        assert self.run(folder, name, **keys).returncode == 0
        assert f"{name}.npy" in names(folder / "out" / "a")

    @pytest.mark.parametrize("name, keys", [("weights", {}), ("output", {"W_O": [[1, 0], [0, 1]]})], ids=str)
    def test_by_default(self, folder, name, keys):
        run = self.run(folder, name, **keys)
        assert_refused(folder, run, f"out/a/{name}.npy: {INPUT}", "a")


def test_pruned_result_that_is_an_input_is_kept(folder):
    (folder / "jobs" / "b.json").rename(folder / "b.json")
    run = ["batch", "jobs", "--out-dir", "out", "--format", "npy"]
    assert attn(*run, cwd=folder).returncode == 0
    (folder / "b.json").rename(folder / "jobs" / "b.json")
    write_job(folder / "jobs" / "b.json", V="../out/a.npy")
    (folder / "jobs" / "a.json").unlink()
    pruned = attn(*run, "--resume", "--prune", cwd=folder)
    assert pruned.returncode == 0
    assert f"out/a.npy: {INPUT}; not removed" in pruned.stderr.decode()
    assert names(folder / "out") == ["a.npy", "b.npy", "manifest.ndjson", "x.npy"]
