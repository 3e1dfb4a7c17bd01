"""Indexes of .safetensors files: model.safetensors.index.json, as Hugging Face checkpoints have them."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn, attn_and_peak, under_sanitizer
from support.safetensors_file import build, entry

A, B = np.arange(6.0).reshape(2, 3), np.arange(4.0)


def write_shard(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        header[name] = entry(len(data), len(data) + array.nbytes, shape=list(array.shape))
        data += array.tobytes()
    path.write_bytes(build(header, data))


def write_index(folder, weight_map, name="model.safetensors.index.json"):
    text = weight_map if isinstance(weight_map, str) else json.dumps({"metadata": {"total_size": 80},
                                                                      "weight_map": weight_map})
    (folder / name).write_text(text)


@pytest.fixture
def folder(tmp_path):
    write_shard(tmp_path / "model-1.safetensors", {"a": A, "other": A})
    write_shard(tmp_path / "model-2.safetensors", {"b": B})
    write_index(tmp_path, {"a": "model-1.safetensors", "other": "model-1.safetensors", "b": "model-2.safetensors"})
    return tmp_path


INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize("ref, expected", [("a", A), ("b", B), ("a[1]", A[1]), ("a.T", A.T), ("'b'[1:3]", B[1:3])])
def test_tensor_of_an_index(folder, ref, expected):
    run = attn("convert", f"{INDEX}#{ref}", "--format", "json", cwd=folder)
    assert run.returncode == 0, run.stderr.decode()
    assert json.loads(run.stdout) == expected.tolist()


def test_shards_are_in_the_folder_of_the_index(folder):
    run = attn("convert", f"{folder}/{INDEX}#b", "--format", "json", cwd="/")
    assert json.loads(run.stdout) == B.tolist()


def test_inspect_lists_the_tensors_of_all_shards(folder):
    run = attn("inspect", INDEX, "--json", cwd=folder)
    assert [json.loads(line)["name"] for line in run.stdout.splitlines()] == ["a", "b", "other"]


def test_prefix_of_an_index_is_a_job(tmp_path):
    write_shard(tmp_path / "1.safetensors", {"x.Q": np.eye(2)})
    write_shard(tmp_path / "2.safetensors", {"x.K": 2 * np.eye(2), "y.K": np.eye(3)})
    write_index(tmp_path, {"x.Q": "1.safetensors", "x.K": "2.safetensors", "y.K": "2.safetensors"})
    run = attn("run", f"{INDEX}#x.", "--outputs", "scores", "--format", "json", cwd=tmp_path)
    assert json.loads(run.stdout)["scores"] == [[2, 0], [0, 2]]


def test_results_record_the_files(folder):
    write_shard(folder / "q.safetensors", {"Q": A})
    run = attn("run", "--q", "q.safetensors", "--k", f"{INDEX}#a", "-o", "out.json", cwd=folder)
    assert run.returncode == 0
    made_by = json.loads((folder / "out.json").read_text())["made_by"]
    assert sorted(made_by["inputs"]) == ["model-1.safetensors", INDEX, "q.safetensors"]


def test_shard_is_not_overwritten(folder):
    run = attn("run", "--q", f"{INDEX}#a", "--k", f"{INDEX}#a", "-o", "model-1.safetensors", "--force", cwd=folder)
    assert_error(run, 73, "model-1.safetensors")


@pytest.mark.parametrize("shard", ["../model-1.safetensors", "/etc/model-1.safetensors", "sub/model-1.safetensors",
                                   "..", "", ".", "a\0b.safetensors", "model.bin", "./model-1.safetensors"])
def test_shard_elsewhere_is_refused(folder, shard):
    write_index(folder, {"a": shard})
    run = attn("convert", f"{INDEX}#a", "--repr", cwd=folder)
    assert_error(run, 65, f"{INDEX}: a: expected the name of a .safetensors file in the folder of the index, found '")
    assert run.stderr.count(b"\n") == 1


@pytest.mark.parametrize("text, message", [
    ("[]", "expected an object 'weight_map' with the file of each tensor, found none"),
    ("{}", "expected an object 'weight_map' with the file of each tensor, found none"),
    ('{"weight_map": 3}', "expected an object 'weight_map' with the file of each tensor, found an integer"),
    ('{"weight_map": {}}', "has no tensors"),
    ('{"weight_map": {"a": 3}}', "weight_map: a: expected the name of a file, found an integer"),
    ('{"weight_map": {"a": "1.safetensors", "a": "2.safetensors"}}', "'a' occurs twice"),
    ('{"weight_map": {"a": "1.safet', "is not closed"),
    ("", "is empty"),
])
def test_broken_index(folder, text, message):
    write_index(folder, text)
    run = attn("convert", f"{INDEX}#a", "--repr", cwd=folder)
    assert_error(run, 65, f"attn: {INDEX}: ", message)
    assert run.stderr.count(b"\n") == 1


def test_missing_shard(folder):
    (folder / "model-2.safetensors").unlink()
    run = attn("convert", f"{INDEX}#b", "--repr", cwd=folder)
    assert_error(run, 66, f"attn: {INDEX}: model-2.safetensors: ")


def test_missing_shard_that_is_not_needed(folder):
    (folder / "model-2.safetensors").unlink()
    assert attn("convert", f"{INDEX}#a", "--repr", cwd=folder).returncode == 0


def test_name_that_the_index_lacks(folder):
    run = attn("convert", f"{INDEX}#othr", "--repr", cwd=folder)
    assert_error(run, 65, f"attn: {INDEX}: has no tensor 'othr' (did you mean 'other'?)")


def test_name_that_the_shard_lacks(folder):
    write_index(folder, {"missing": "model-1.safetensors"})
    run = attn("convert", f"{INDEX}#missing", "--repr", cwd=folder)
    assert_error(run, 65, f"attn: {INDEX}: model-1.safetensors: has no tensor 'missing'")


def test_index_without_a_name_lists_its_tensors(folder):
    run = attn("run", "--q", INDEX, "--k", INDEX, cwd=folder)
    assert_error(run, 65, f"{INDEX}: has several arrays (a, b, other); select one")


# A large checkpoint.


LARGE = 4 << 30  # bytes of each of two shards


@pytest.fixture(scope="module")
def large(module_path):
    """Two sparse shards of 4 GiB; each has a small matrix in front of zeros that fill the file."""
    weight_map = {}
    for n in 1, 2:
        small = np.full((256, 256), float(n))
        name = f"model-{n}.safetensors"
        text = json.dumps({f"small{n}": entry(0, small.nbytes, shape=[256, 256]),
                           f"zeros{n}": entry(small.nbytes, LARGE)})
        file = build(text + " " * (-len(text) % 8), small.tobytes())
        with open(module_path / name, "wb") as shard:
            shard.write(file)
            try:
                shard.truncate(len(file) - small.nbytes + LARGE)
            except OSError:
                pytest.skip("the file system has no sparse files of this size")
        weight_map |= {f"small{n}": name, f"zeros{n}": name}
    write_index(module_path, weight_map)
    return module_path


@pytest.mark.skipif(under_sanitizer(), reason="sanitizers need more memory")
@pytest.mark.parametrize("output", [["-o", "weights=w.npy"], ["-o", "out.npz"]], ids=["npy", "npz"])
def test_only_the_needed_pages_of_a_large_checkpoint_are_read(large, output):
    run, peak = attn_and_peak("run", "--q", f"{INDEX}#small1", "--k", f"{INDEX}#small2", "--v", f"{INDEX}#small2",
                              "--max-memory", "1G", *output, "--force", cwd=large)
    assert (run.returncode, run.stderr) == (0, b"")
    assert peak < 200 << 20


def test_tensor_beyond_the_memory_limit(large):
    run = attn("run", "--q", f"{INDEX}#zeros1", "--k", f"{INDEX}#zeros1", "--max-memory", "1G", cwd=large)
    assert_error(run, 65, "model-1.safetensors: takes more than")


def test_results_record_the_tensors_of_a_large_checkpoint(large):
    run = attn("run", "--q", f"{INDEX}#small1", "--k", f"{INDEX}#small2", "--outputs", "logsumexp", "-o", "lse.json",
               "--force", cwd=large)
    assert run.returncode == 0
    inputs = json.loads((large / "lse.json").read_text())["made_by"]["inputs"]
    assert sorted(inputs) == ["model-1.safetensors#small1", "model-2.safetensors#small2", INDEX]
