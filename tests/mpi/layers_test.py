"""Several layers of a model with attn-mpi. scripts/test-with/mpi runs these tests for each MPI library."""

import json

import numpy as np
import pytest

from mpi import ranks
from mpi.ranks import launch, messages, mpi
from support.attn import ATTN
from support.checkpoints import write_model

pytestmark = ranks.NEEDS_MPI
TOKENS, M, LAYERS = 40, 12, 3
CONFIG = {"model_type": "mistral", "hidden_size": M, "num_attention_heads": 2, "num_key_value_heads": 1,
          "head_dim": 6, "num_hidden_layers": LAYERS, "rms_norm_eps": 1e-3, "rope_theta": 500.0}
SHAPES = {"self_attn.q_proj": (12, M), "self_attn.k_proj": (6, M), "self_attn.v_proj": (6, M),
          "self_attn.o_proj": (M, 12), "input_layernorm": (M,)}
JOB = {"model": "model", "layer": "all", "hidden": "h.npy", "outputs": ["weights", "output"]}


@pytest.fixture(name="folder")
def folder_fixture(tmp_path):
    numbers = np.random.default_rng(1)
    write_model(tmp_path / "model", CONFIG, {f"model.layers.{n}.{name}.weight": numbers.standard_normal(shape)
                                             for n in range(LAYERS) for name, shape in SHAPES.items()})
    np.save(tmp_path / "h.npy", numbers.standard_normal((LAYERS, 1, TOKENS, M)))
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    return tmp_path


def test_a_job_of_several_layers_is_refused(folder):
    run = mpi(folder, "run", "job.json", "-o", "many.npz")
    assert (run.returncode, len(messages(run))) == (2, 1)
    assert "--layer N" in messages(run)[0]


def test_one_layer_has_the_bytes_of_attn_run(folder):
    words = ["run", "--model", "model", "--layer", "1", "--hidden", "h1.npy", "-o"]
    np.save(folder / "h1.npy", np.load(folder / "h.npy")[1])
    run = mpi(folder, *words, "many.npz")
    assert (run.returncode, messages(run)) == (0, [])
    launch([ATTN, *words, "one.npz"], folder)
    assert (folder / "many.npz").read_bytes() == (folder / "one.npz").read_bytes()


def test_ranks_compute_batches_of_several_layers(folder):
    lines = (json.dumps(JOB) + "\n") * 20
    run = mpi(folder, "batch", "-", "-q", lines=lines)
    assert run.returncode == 0, run.stderr
    assert run.stdout == launch([ATTN, "batch", "-", "-q"], folder, text=lines).stdout
