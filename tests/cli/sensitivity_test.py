"""attn sensitivity: which mistakes a test of a job would notice. Changes are recomputed in NumPy."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def context(q, k, v, cap=0, scale=None, last=True):
    s = (scale or q.shape[-1] ** -.5) * q @ k.swapaxes(-1, -2)
    s = cap * np.tanh(s / cap) if cap else s
    s = s if last else s[..., :-1]
    return softmax(s) @ (v if last else v[..., :-1, :])


@pytest.fixture(scope="module")
def job(module_path):
    q, k, v = np.random.default_rng(3).normal(size=(3, 1, 2, 40, 16))
    np.savez(module_path / "in.npz", Q=q, K=k, V=v)
    (module_path / "job.json").write_text(json.dumps(
        {"Q": "in.npz#Q", "K": "in.npz#K", "V": "in.npz#V", "softcap": 50}))
    return module_path / "job.json", q, k, v


def mistakes(path, *flags):
    run = attn("sensitivity", path, "--json", *flags)
    assert run.returncode in (0, 1), run.stderr
    return {mistake["id"]: mistake for mistake in json.loads(run.stdout)["mistakes"]}


@pytest.mark.parametrize("name, change", [
    ("softcap.dropped", {"cap": 0}), ("scale.none", {"scale": 1}), ("cache.last_missing", {"last": False})])
def test_figures_are_those_of_numpy(job, name, change):
    path, q, k, v = job
    right = context(q, k, v, 50)
    ratio = np.abs(context(q, k, v, **{"cap": 50, **change}) - right) / (1e-2 + 1e-2 * np.abs(right))
    found = mistakes(path, "--rtol", "1e-2", "--atol", "1e-2")[name]
    assert found["of_tolerance"] == pytest.approx(ratio.max(), rel=1e-6)
    assert found["outside"] == pytest.approx((ratio > 1).mean(), abs=1e-9)
    assert found["verdict"] == ("not seen" if ratio.max() <= 1 else
                                "seen" if ratio.max() >= 10 and (ratio > 1).mean() >= .01 else "barely")


def test_a_dropped_softcap_is_not_seen(job):
    assert mistakes(job[0], "--rtol", "1e-2", "--atol", "1e-2")["softcap.dropped"]["verdict"] == "not seen"


def test_precision_gives_the_bound(job):
    wide, narrow = (mistakes(job[0], "--precision", p)["softcap.dropped"] for p in ("bf16", "f32"))
    assert wide["of_tolerance"] == wide["of_bound"] < narrow["of_bound"]


def test_require_all(job):
    assert attn("sensitivity", job[0], "--rtol", "1e-2", "--atol", "1e-2").returncode == 0
    assert attn("sensitivity", job[0], "--rtol", "1e-2", "--atol", "1e-2", "--require-all").returncode == 1


def test_suggested_factor_makes_the_softcap_visible(job, tmp_path):
    path, q, k, v = job
    lines = json.loads(attn("sensitivity", path, "--rtol", "1e-2", "--atol", "1e-2", "--suggest", "--json").stdout)
    line = next(line for line in lines["suggestions"] if line.startswith("softcap: multiply Q by "))
    np.savez(tmp_path / "in.npz", Q=q * float(line.split()[4].rstrip(":")), K=k, V=v)
    (tmp_path / "job.json").write_text(path.read_text())
    assert mistakes(tmp_path / "job.json", "--rtol", "1e-2", "--atol", "1e-2")["softcap.dropped"]["verdict"] == "seen"


def test_output_without_a_row_for_each_query_is_refused(job):
    assert_error(attn("sensitivity", job[0], "--of", "keys"), 2, "--of keys")


def test_a_job_is_required():
    assert_error(attn("sensitivity"), 2, "expected a job")


class TestAdversarialInputs:
    @pytest.fixture(scope="class", params=[
        {"softcap": 50}, {"causal": True, "window": [24, 0]}, {"sinks": True}, {"alignment": "bottom-right", "causal": True}],
        ids=lambda keys: " ".join(keys))
    def jobs(self, request, class_path):
        r = np.random.default_rng(5)
        keys = 90 if "alignment" in request.param else 75
        tensors = {"Q": r.normal(size=(2, 4, 75, 32)), "K": r.normal(size=(2, 2, keys, 32)), "V": r.normal(size=(2, 2, keys, 32))}
        options = dict(request.param)
        if options.pop("sinks", False):
            tensors["sinks"] = np.zeros(4)
        np.savez(class_path / "in.npz", **{name: x.astype("f2") for name, x in tensors.items()})
        for name, file in ("usual", "in.npz"), ("adversarial", "new.npz"):
            (class_path / f"{name}.json").write_text(json.dumps({key: f"{file}#{key}" for key in tensors} | options))
        run = attn("random", "--kind", "adversarial", "--for", class_path / "usual.json", "-o", class_path / "new.npz",
                   "--force")
        assert run.returncode == 0, run.stderr
        return class_path

    def test_more_mistakes_are_seen(self, jobs):
        tolerance = ["--rtol", "1e-2", "--atol", "1e-2"]
        usual, new = (mistakes(jobs / f"{name}.json", *tolerance) for name in ("usual", "adversarial"))
        assert usual.keys() == new.keys()
        blind = [name for name, mistake in new.items() if mistake["verdict"] == "not seen"]
        assert len(blind) <= 1, blind
        assert sum(m["verdict"] == "seen" for m in new.values()) >= sum(m["verdict"] == "seen" for m in usual.values())

    def test_shapes_and_dtypes_stay(self, jobs):
        with np.load(jobs / "in.npz") as old, np.load(jobs / "new.npz") as new:
            assert {name: (old[name].shape, old[name].dtype) for name in old} == \
                {name: (new[name].shape, new[name].dtype) for name in new}

    def test_the_same_seed_gives_the_same_numbers(self, jobs, tmp_path):
        command = ["random", "--kind", "adversarial", "--for", jobs / "usual.json"]
        assert attn(*command, "--seed", 1).stdout == attn(*command, "--seed", 1).stdout != attn(*command).stdout


@pytest.mark.parametrize("words, message", [
    (["--kind", "adversarial"], "requires --for JOB"), (["--for", "job.json"], "requires --kind adversarial"),
    (["randn", "--kind", "adversarial"], "not used with a method"), ([], "METHOD is required")])
def test_words_that_do_not_fit(words, message):
    assert_error(attn("random", *words), 2, message)
