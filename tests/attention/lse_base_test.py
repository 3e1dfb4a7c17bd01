"""The option `lse_base`: logsumexp in base 2."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn

L, S, D = 5, 30, 4


def run(tmp_path, *flags, **options):
    rng = np.random.default_rng(3)
    tensors = {"Q": rng.standard_normal((L, D)), "K": rng.standard_normal((S, D))}
    np.savez(tmp_path / "in.npz", **tensors)
    job = {name: f"in.npz#{name}" for name in tensors} | options
    (tmp_path / "job.json").write_text(json.dumps(job | {"outputs": ["logsumexp", "weights"]}))
    return attn("run", tmp_path / "job.json", "-o", tmp_path / "out.npz", "--force", *flags)


def logsumexp(tmp_path, *flags, **options):
    assert run(tmp_path, *flags, **options).returncode == 0
    return np.load(tmp_path / "out.npz")["logsumexp"]


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("flags, options", [([], {"lse_base": 2}), (["--lse-base", "2"], {})])
def test_base_2_divides_by_log_2(tmp_path, path, flags, options):
    natural = logsumexp(tmp_path, path=path)
    base_2 = logsumexp(tmp_path, *flags, path=path, **options)
    np.testing.assert_allclose(base_2, natural / np.log(2), rtol=1e-15)


def test_base_e_is_the_default(tmp_path):
    assert (logsumexp(tmp_path, lse_base="e") == logsumexp(tmp_path)).all()


def test_a_query_that_sees_no_key_has_minus_infinity(tmp_path):
    assert np.isneginf(logsumexp(tmp_path, lse_base=2, key_lengths=0)).all()


def test_weights_do_not_depend_on_it(tmp_path):
    run(tmp_path)
    natural = np.load(tmp_path / "out.npz")["weights"]
    run(tmp_path, lse_base=2)
    assert (np.load(tmp_path / "out.npz")["weights"] == natural).all()


@pytest.mark.parametrize("base", [3, 1, 0, -2, 2.5, "10"])
def test_another_base_is_refused(tmp_path, base):
    assert_error(run(tmp_path, lse_base=base), 65, "lse_base")


def test_the_kernels_compute_it(tmp_path):
    run(tmp_path, lse_base=2)
    plan = attn("run", tmp_path / "job.json", "--dry-run", "--format", "json")
    assert json.loads(plan.stdout)["path"] == "kernels"


def test_the_result_is_within_its_error_bound(tmp_path):
    run(tmp_path, lse_base=2)
    compared = attn("compare", "--reference", tmp_path / "out.npz", tmp_path / "job.json")
    assert compared.returncode == 0
