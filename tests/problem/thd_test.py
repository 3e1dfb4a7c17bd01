"""Layout thd: Q, K and V (tokens, heads, D) without a batch give the bytes of the same job in layout blhd."""

import json

import numpy as np
import pytest

from support.attn import attn

RNG = np.random.default_rng(5)
H, G, L, S, D, DV = 6, 3, 9, 13, 5, 7
TENSORS = {"Q": RNG.standard_normal((L, H, D)), "K": RNG.standard_normal((S, G, D)), "V": RNG.standard_normal((S, G, DV))}
JOBS = {
    "plain": {},
    "packed sequences": {"cu_seqlens_q": [0, 2, 9], "cu_seqlens_k": [0, 6, 13], "causal": "bottom-right"},
    "past": {"past_K": RNG.standard_normal((G, 2, D)), "past_V": RNG.standard_normal((G, 2, DV)), "causal": True, "alignment": "top-left"},
    "gate": {"gate": RNG.standard_normal((L, H, DV))},
    "gradients": {"grad_context": RNG.standard_normal((L, H, DV)),
                  "outputs": ["context", "grad_Q", "grad_K", "grad_V"]},
    "reference path": {"path": "reference", "outputs": ["context", "weights", "logsumexp", "present_K"]},
}
WITH_BATCH = ["Q", "K", "V", "past_K", "past_V", "gate", "grad_context"]  # inputs that layout blhd has in a batch


def run(folder, job, name):
    lines = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in job.items()}
    (folder / "job.json").write_text(json.dumps(lines))
    done = attn("run", "job.json", "-o", name, cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    with np.load(folder / name) as outputs:
        return dict(outputs)


@pytest.mark.parametrize("case", JOBS)
def test_results_are_those_of_one_batch_item(tmp_path, case):
    job = TENSORS | JOBS[case]
    found = run(tmp_path, job | {"layout": "thd"}, "thd.npz")
    batch = {key: value[None] if key in WITH_BATCH else value for key, value in job.items()}
    expected = run(tmp_path, batch | {"layout": "blhd"}, "blhd.npz")
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].tobytes() == array.tobytes(), name
        assert found[name].shape == array.shape[1:], name


@pytest.mark.parametrize("change, message", [
    ({"Q": np.zeros((1, L, H, D))}, "layout: 'thd' requires Q, K and V with 3 axes"),
    ({"K": np.zeros((S, G, 4))}, "K: expected (*, *, 5) to match Q (9, 6, 5), found (13, 3, 4)"),
    ({"V": np.zeros((S, DV))}, "V: expected (13, 3, *) to match K (13, 3, 5), found (13, 7)"),
    ({"gate": np.zeros((L, H * DV))}, "gate: expected (9, 6, 7) to match Q (9, 6, 5), heads = 6 and V (13, 3, 7), found (9, 42)"),
])
def test_error(tmp_path, change, message):
    job = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in (TENSORS | change).items()}
    (tmp_path / "job.json").write_text(json.dumps(job | {"layout": "thd"}))
    done = attn("run", "job.json", cwd=tmp_path)
    assert done.returncode == 65
    assert message in done.stderr.decode()


def test_explanation_of_a_head(tmp_path):
    """Weights (H, L, S) are those of heads although heads are not a key of the job."""
    np.savez(tmp_path / "in.npz", **TENSORS)
    done = attn("run", "--q", "in.npz#Q", "--k", "in.npz#K", "--v", "in.npz#V", "--layout", "thd", "--explain", "e.md", "--explain-head", "5",
                cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
