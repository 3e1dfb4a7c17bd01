"""What `attn compare --reference` says about causes: in which words, and for which outputs of a file."""

import json
import re

import numpy as np
import pytest

from support.attn import attn
from support.rounding import rounded


@pytest.fixture(name="folder")
def folder_fixture(tmp_path):
    rng = np.random.default_rng(5)
    for name in ("Q", "K", "V", "grad_context"):
        np.save(tmp_path / f"{name}.npy", rng.standard_normal((2, 4, 45, 24)).astype("f4"))
    job = {name: f"{name}.npy" for name in ("Q", "K", "V", "grad_context")}
    (tmp_path / "job.json").write_text(json.dumps({**job, "causal": True}))
    return tmp_path


def run(folder, *flags, outputs="context"):
    done = attn("run", "job.json", *flags, "--outputs", outputs, "-o", "mine.npz", "--force", cwd=folder)
    assert done.returncode == 0, done.stderr
    with np.load(folder / "mine.npz") as found:
        return dict(found)


def lines_of(folder, *flags):
    done = attn("compare", "mine.npz", "--reference", "job.json", *flags, cwd=folder)
    assert done.returncode == 1, done.stdout
    return done.stdout.decode().splitlines()


@pytest.mark.parametrize("softcap", [20, 50])
def test_errors_within_a_wider_bound_may_be_a_mistake(folder, softcap):
    run(folder, "--softcap", softcap)
    line = lines_of(folder)[1]
    assert line.startswith("  arithmetic or a small mistake: the errors are within the bound of ")
    assert "not meaning" not in line


@pytest.mark.parametrize("precision, name", [("bf16", "bf16"), ("f16", "f16"), ("tf32", "tf32 or f16")])
def test_numbers_of_a_narrower_type_name_it(folder, precision, name):
    exact = run(folder)["context"]
    rounded_context = rounded(exact.astype("f8"), precision).astype("f4")
    np.savez(folder / "mine.npz", context=rounded_context)
    assert lines_of(folder)[1] == f"  arithmetic or a small mistake: the errors are within the bound of {name}"


def test_a_gradient_is_searched_although_others_took_the_time(folder):
    """As if the search for the first output had taken all of the two seconds."""
    wrong = run(folder, "--softcap", "2", outputs="context,logsumexp,grad_Q")
    noise = np.random.default_rng(1).standard_normal(wrong["context"].shape).astype("f4")
    np.savez(folder / "mine.npz", context=noise, logsumexp=noise[..., 0], grad_Q=wrong["grad_Q"])
    lines = lines_of(folder)
    assert not any("0 hypotheses" in line for line in lines)
    first = next(i for i, line in enumerate(lines) if line.startswith("grad_Q"))
    assert lines[first + 1].startswith("  agrees with --softcap 2") or "hypotheses" in lines[first + 1]


def test_zeros_and_nan_together(folder):
    context = run(folder)["context"]
    context[:, :, 20:30], context[:, :, 30:] = 0, np.nan
    np.savez(folder / "mine.npz", context=context)
    text = "\n".join(lines_of(folder))
    assert "all wrong elements are 0 or NaN" in text
    assert "no known mistake" not in text and "hypotheses" not in text


@pytest.mark.parametrize("given, wrong", [("top-left", "bottom-right"), ("bottom-right", "top-left")])
def test_the_flag_of_an_alignment_is_one_that_attn_takes(tmp_path, given, wrong):
    rng = np.random.default_rng(6)
    np.savez(tmp_path / "in.npz", Q=rng.standard_normal((20, 16)), K=rng.standard_normal((50, 16)), V=rng.standard_normal((50, 8)))
    assert attn("run", "in.npz", f"--causal={wrong}", "--outputs", "context", "-o", "mine.npz", cwd=tmp_path).returncode == 0
    done = attn("compare", "mine.npz", "--reference", "in.npz", f"--causal={given}", "--json", cwd=tmp_path)
    tensor, = json.loads(done.stdout)["tensors"]
    flags = [finding["flags"] for finding in tensor["diagnosis"] if finding["flags"]]
    assert f"--causal={wrong}" in flags
    assert attn("compare", "mine.npz", "--reference", "in.npz", *flags[0].split(), cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("of_kernel, of_job", [("8,0", "12,0"), ("12,0", "8,0"), ("30,0", "12,0"), ("9,1", "20,1")])
def test_a_window_of_another_size_is_named_alone(folder, of_kernel, of_job):
    run(folder, "--causal=false", "--window", of_kernel)
    lines = lines_of(folder, "--causal=false", "--window", of_job)
    assert lines[1] == f"  agrees with --window {of_kernel} (the job has {of_job})"
    assert not lines[2].startswith("  or ")


@pytest.mark.parametrize("other, text", [(3, "3"), (7.25, "7.2|7.25"), (0.8, "0.8")])
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_a_softcap_of_another_size_is_named(folder, other, text, dtype):
    job = json.loads((folder / "job.json").read_text())
    for name in "QKV":
        np.save(folder / f"{name}.npy", np.load(folder / f"{name}.npy").astype(dtype))
    (folder / "job.json").write_text(json.dumps({**job, "softcap": 2.5}))
    run(folder, "--softcap", other)
    assert re.fullmatch(f"  agrees with --softcap ({text}) \\(the job has 2.5\\)", lines_of(folder)[1])
