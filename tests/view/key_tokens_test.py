"""Labels of keys that are other tokens than the queries, as in encoder-decoder attention."""

import json

import numpy as np
import pytest

from support.attn import attn

QUERIES, KEYS = ["the", "cat", "sat"], ["die", "Katze", "sa\u00df"]
TENSORS = {"Q": np.eye(3), "K": np.eye(3), "V": np.eye(3)}
JOB = {**{name: tensor.tolist() for name, tensor in TENSORS.items()}, "tokens": QUERIES}


def labels_of(text):
    """The labels of the columns and rows of the first matrix in a picture of text."""
    lines = text.decode().split("\n\n")[1].splitlines()
    return lines[0].split(), [line.split()[0] for line in lines[1:]]


def write_job(folder, **keys):
    (folder / "job.json").write_text(json.dumps({**JOB, **keys}))


def test_of_a_job_label_the_columns(tmp_path):
    write_job(tmp_path, key_tokens=KEYS)
    assert labels_of(attn("run", "job.json", "--view", cwd=tmp_path).stdout) == (KEYS, QUERIES)


def test_of_the_flag_label_the_columns(tmp_path):
    write_job(tmp_path)
    run = attn("run", "job.json", "--key-tokens", ",".join(KEYS), "--view", cwd=tmp_path)
    assert labels_of(run.stdout) == (KEYS, QUERIES)
    (tmp_path / "keys.txt").write_text("\n".join(KEYS))
    assert attn("run", "job.json", "--key-tokens", "@keys.txt", "--view", cwd=tmp_path).stdout == run.stdout


@pytest.mark.parametrize("suffix", ["json", "npz", "safetensors"])
def test_are_stored_with_results(tmp_path, suffix):
    write_job(tmp_path, key_tokens=KEYS)
    assert attn("run", "job.json", "-o", f"result.{suffix}", cwd=tmp_path).returncode == 0
    assert labels_of(attn("view", f"result.{suffix}", cwd=tmp_path).stdout) == (KEYS, QUERIES)
    run = attn("view", f"result.{suffix}", "--key-tokens", "x,y,z", cwd=tmp_path)
    assert labels_of(run.stdout) == (["x", "y", "z"], QUERIES)


def test_of_strings_in_an_npz_job(tmp_path):
    np.savez(tmp_path / "job.npz", **TENSORS, tokens=np.array(QUERIES), key_tokens=np.array(KEYS))
    assert labels_of(attn("run", "job.npz", "--view", cwd=tmp_path).stdout) == (KEYS, QUERIES)
    assert attn("run", "job.npz", "-o", "result.npz", cwd=tmp_path).returncode == 0
    assert labels_of(attn("view", "result.npz", cwd=tmp_path).stdout) == (KEYS, QUERIES)


@pytest.mark.parametrize("memory", [False, True])
def test_of_strings_beside_embeddings(tmp_path, memory):
    x = np.eye(3)
    np.savez(tmp_path / "job.npz", embeddings=x, **({"memory": x} if memory else {}), tokens=np.array(QUERIES),
             key_tokens=np.array(KEYS))
    assert labels_of(attn("run", "job.npz", "--view", cwd=tmp_path).stdout) == (KEYS, QUERIES)


@pytest.mark.parametrize("own", [{}, {"key_tokens": np.array(["x", "y", "z"])}])
def test_are_not_those_of_another_file(tmp_path, own):
    """The file of the embeddings has labels, that of the memory has none."""
    np.savez(tmp_path / "x.npz", x=np.eye(3), tokens=np.array(QUERIES), **own)
    np.save(tmp_path / "m.npy", np.eye(3))
    flags = ["--embeddings", "x.npz#x", "--memory", "m.npy"]
    assert labels_of(attn("run", *flags, "--view", cwd=tmp_path).stdout) == (["0", "1", "2"],) * 2


def test_of_strings_in_an_npz_file_of_weights(tmp_path):
    np.savez(tmp_path / "w.npz", weights=np.eye(3), tokens=np.array(QUERIES), key_tokens=np.array(KEYS))
    assert labels_of(attn("view", "w.npz", cwd=tmp_path).stdout) == (KEYS, QUERIES)


def test_are_those_of_the_steps(tmp_path):
    write_job(tmp_path, key_tokens=KEYS)
    assert attn("run", "job.json", "--explain", "steps.txt", cwd=tmp_path).returncode == 0
    text = (tmp_path / "steps.txt").read_text()
    assert all(key in text for key in KEYS)


def test_are_those_of_the_mask(tmp_path):
    write_job(tmp_path, key_tokens=KEYS, causal=True)
    assert attn("mask", "job.json", "-o", "mask.svg", cwd=tmp_path).returncode == 0
    assert all(key in (tmp_path / "mask.svg").read_text() for key in KEYS)


def test_of_another_number_are_a_warning(tmp_path):
    write_job(tmp_path, key_tokens=KEYS[:2])
    run = attn("run", "job.json", "--view", cwd=tmp_path)
    assert run.stderr == b"attn: warning: key_tokens: expected as many as the 3 keys, found 2; labels are ignored\n"
    assert labels_of(run.stdout)[0] == ["0", "1", "2"]


def test_numbers_are_the_same_with_labels(tmp_path):
    write_job(tmp_path)
    alone = attn("run", "job.json", cwd=tmp_path).stdout
    assert attn("run", "job.json", "--key-tokens", "a,b,c", cwd=tmp_path).stdout == alone
