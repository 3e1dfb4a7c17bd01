"""What people type first: it does what they mean, or the message names the command that does."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn

RNG = np.random.default_rng(9)
Q, K, V = (RNG.standard_normal((4, 8)) for _ in range(3))


@pytest.fixture
def folder(tmp_path):
    for name, array in {"q": Q, "k": K, "v": V, "mask": np.ones((1, 4), bool)}.items():
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "lower.npz", q=Q, k=K, v=V)
    np.savez(tmp_path / "both.npz", Q=Q, K=K, V=V, q=Q)
    (tmp_path / "job.json").write_text(json.dumps({"Q": Q.tolist(), "K": K.tolist(), "V": V.tolist()}))
    (tmp_path / "model").mkdir()
    (tmp_path / "jobs" / "llama").mkdir(parents=True)
    (tmp_path / "jobs" / "llama" / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    return tmp_path


FLAGS = "run --q q.npy --k k.npy --v v.npy "


@pytest.mark.parametrize("typed, code, message", [
    ("run q.npy k.npy v.npy", 2, "give tensors with flags, as in --q q.npy --k k.npy --v v.npy"),
    ("job.json", 2, "expected a command before job.json: 'attn run' computes a job"),
    ("q.npy", 2, "expected a command before q.npy: 'attn view' draws an array"),
    ("jobs/llama", 2, "expected a command before jobs/llama: 'attn model inspect' shows a model"),
    ("jobs", 2, "expected a command before jobs: 'attn batch' computes the jobs in a folder"),
    ("run --q q.npy --k k.npy -o out", 2, "or a folder (ending in /)"),
    ("run --query q.npy --k k.npy", 2, "did you mean '--q'?"),
    ("plot q.npy", 2, "did you mean 'view'?"),
    ("explain job.json", 2, "did you mean 'run JOB --explain -'?"),
    ("compare q.npy", 2, "expected a reference file B, or --reference and a job"),
    ("run model", 66, "model: is the folder of a model; to compute a layer of the model, give --model model --layer N"),
    ("model model", 2, "attn model inspect DIR"),
    ("inspect model", 66, "model: is a directory; attn model inspect shows the layers of a model"),
    ("view model", 66, "model: is a directory; attn model inspect shows the layers of a model"),
    ("run q.npy", 65, "expected a job (.npz, .safetensors or .json), found one array (.npy); give it with the flag"),
    ("run", 2, "expected a job file (- for standard input) or tensors"),
    (FLAGS + "--convention flash_attn", 2, "did you mean 'flash'?"),
    (FLAGS + "--outputs q", 2, "did you mean 'queries'?"),
    (FLAGS + "--attention-mask mask.npy", 2, "--key-mask"),
    ("random torch.randn --shape 2,2", 2, "randn --generator torch"),
    ("run both.npz", 65, "'q'"),
    ("run lower.npz --head 2", 2, "--heads sets the number of heads"),
])
def test_message_names_what_to_type(folder, typed, code, message):
    assert_error(attn(*typed.split(), cwd=folder), code, message)


def test_batch_over_arrays_names_the_flag_that_makes_jobs(folder):
    run = attn("batch", "q.npy", "k.npy", cwd=folder)
    assert run.returncode == 3
    assert run.stderr.decode().count("'attn batch --pattern' makes jobs of such files") == 2


def test_archive_may_have_lower_case_names(folder):
    lower = attn("run", "lower.npz", "--outputs", "context", cwd=folder)
    assert lower.returncode == 0
    assert lower.stdout == attn(*FLAGS.split(), "--outputs", "context", cwd=folder).stdout
