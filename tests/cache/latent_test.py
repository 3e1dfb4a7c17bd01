"""Absorbed latent attention (MLA as it is served) equals the attention it was made from, and its forms each other."""

import json

import numpy as np
import pytest

from support.attn import attn
from support.jobs import run_jobs, write_job
from support.latent_jobs import LatentJob
from support.paged_jobs import bits
from support.stored_jobs import e4m3, e8m0, finite_bytes

LAYOUTS = 30
TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "float16": 2e-3}


def test_forms_have_the_bytes_of_queries_keys_and_values(tmp_path):
    jobs = {seed: LatentJob(seed) for seed in range(LAYOUTS)}
    forms = {seed: job.forms() for seed, job in jobs.items()}
    results = run_jobs(tmp_path, [form for each in forms.values() for form in each])
    for seed, job in jobs.items():
        *others, plain = [next(results) for _ in forms[seed]]
        for name in job.options["outputs"]:
            for i, other in enumerate(others):
                assert np.array_equal(bits(other[name]), bits(plain[name])), (seed, i, name)
        error = np.abs(plain["context"] - job.expected(forms[seed][0] | {"Q": forms[seed][-1]["Q"]})).max(initial=0)
        assert error <= TOLERANCE[job.dtype], (seed, error)


def rms_norm(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def rotated(x, base=10000.0, factor=40.0, original=4096, fast=32.0, slow=1.0):
    """Neighbouring columns of x (..., L, r), turned by the angles of YaRN (arXiv:2309.00071); DeepSeek's
    cosines have no factor, as mscale and mscale_all_dim are equal."""
    r, L = x.shape[-1], x.shape[-2]
    inverse = base ** -(np.arange(0, r, 2) / r)
    pair = [r * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(base)) for turns in (fast, slow)]
    low, high = max(np.floor(pair[0]), 0), min(np.ceil(pair[1]), r - 1)
    ramp = np.clip((np.arange(r // 2) - low) / max(high - low, 1e-3), 0, 1)
    angles = np.outer(np.arange(L), inverse / factor * ramp + inverse * (1 - ramp))
    a, b = x[..., ::2], x[..., 1::2]
    turned = np.stack([a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)], -1)
    return turned.reshape(x.shape)


class Layer:
    """DeepSeek V3's attention with small random weights, (B, L, M) inputs, computed in NumPy."""
    B, L, M, H, NOPE, ROPE, DV, R, RQ = 2, 9, 40, 3, 16, 8, 12, 20, 24

    def __init__(self):
        rng = np.random.default_rng(7)
        B, L, M, H, NOPE, ROPE, DV, R, RQ = (getattr(self, x) for x in "B L M H NOPE ROPE DV R RQ".split())
        x = rng.standard_normal((B, L, M))
        q_a, q_b = rng.standard_normal((M, RQ)), rng.standard_normal((RQ, H, NOPE + ROPE)) / 4
        kv_a, self.W_O = rng.standard_normal((M, R + ROPE)), rng.standard_normal((H * DV, M)) / 4
        self.W_UK, self.W_UV = rng.standard_normal((H, R, NOPE)) / 4, rng.standard_normal((H, R, DV)) / 4
        q = np.einsum("blr,rhd->bhld", rms_norm(x @ q_a), q_b)
        self.q_nope, self.q_pe = q[..., :NOPE], rotated(q[..., NOPE:])
        self.ckv, self.k_pe = rms_norm((x @ kv_a)[..., :R]), rotated((x @ kv_a)[..., R:])
        self.scale = (0.1 * np.log(40) + 1) ** 2 / np.sqrt(NOPE + ROPE)

    def given(self):
        """Q, K and V of each head."""
        k_nope = np.einsum("bsr,hrd->bhsd", self.ckv, self.W_UK)
        k_pe = np.broadcast_to(self.k_pe[:, None], (*k_nope.shape[:3], self.ROPE))
        return {"Q": np.concatenate([self.q_nope, self.q_pe], -1), "K": np.concatenate([k_nope, k_pe], -1),
                "V": np.einsum("bsr,hrd->bhsd", self.ckv, self.W_UV), "W_O": self.W_O}

    def absorbed(self):
        return {"Q_nope": np.einsum("bhld,hrd->bhlr", self.q_nope, self.W_UK), "Q_pe": self.q_pe, "CKV": self.ckv,
                "K_pe": self.k_pe, "W_UV": self.W_UV, "W_O": self.W_O}

    def output(self):
        q, k, v = (self.given()[x] for x in "QKV")
        scores = np.where(np.tri(self.L, dtype=bool), self.scale * q @ k.swapaxes(2, 3), -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        context = weights / weights.sum(-1, keepdims=True) @ v
        return context.swapaxes(1, 2).reshape(self.B, self.L, -1) @ self.W_O


def test_layer_of_deepseek_v3_absorbed_and_not(tmp_path):
    layer = Layer()
    both = {"scale": layer.scale, "causal": True, "outputs": ["output", "weights"]}
    absorbed, plain = run_jobs(tmp_path, [both | layer.absorbed(), both | layer.given()])
    size = np.abs(layer.output()).max()
    for found in absorbed, plain:
        assert np.abs(found["output"] - layer.output()).max() < 1e-13 * max(1, size)
    assert np.abs(absorbed["weights"] - plain["weights"]).max() < 1e-13


def test_output_without_W_O_and_gradients(tmp_path):
    """output = context W_UV for each head; its derivatives by W_UV, Q, K and V."""
    layer, rng = Layer(), np.random.default_rng(1)
    tensors = layer.absorbed()
    del tensors["W_O"]
    B, L, H, DV = layer.B, layer.L, layer.H, layer.DV
    grad = rng.standard_normal((B, L, H * DV))
    job = tensors | {"scale": layer.scale, "causal": True, "grad_output": grad,
                     "outputs": ["context", "output", "grad_W_UV", "grad_Q", "grad_K", "grad_V"]}
    plain = {"Q": np.concatenate([tensors["Q_nope"], tensors["Q_pe"]], -1), "scale": layer.scale, "causal": True,
             "K": np.concatenate([layer.ckv, layer.k_pe], -1)[:, None], "V": layer.ckv[:, None],
             "grad_context": np.einsum("blhd,hrd->bhlr", grad.reshape(B, L, H, DV), layer.W_UV),
             "outputs": ["context", "grad_Q", "grad_K", "grad_V"]}
    found, expected = run_jobs(tmp_path, [job, plain])
    for name in plain["outputs"]:
        assert np.allclose(found[name], expected[name], rtol=1e-12, atol=1e-13), name
    heads = np.einsum("bhlr,hrd->blhd", expected["context"], layer.W_UV)
    assert np.allclose(found["output"], heads.reshape(B, L, -1), rtol=1e-12, atol=1e-13)
    of_W = np.einsum("bhlr,blhd->hrd", expected["context"], grad.reshape(B, L, H, DV))
    assert np.allclose(found["grad_W_UV"], of_W, rtol=1e-12, atol=1e-12)


def test_plan_counts_the_product_with_W_UV(tmp_path):
    layer = Layer()
    job = write_job(tmp_path, "job", layer.absorbed() | {"scale": layer.scale, "outputs": ["output"]})
    run = attn("run", "-", "--dry-run", "--format", "json", stdin=job, cwd=tmp_path)
    [output] = json.loads(run.stdout)["outputs"]
    rows, width = layer.B * layer.L, layer.H * layer.DV
    assert output["flops"] == 2 * rows * (layer.R * width + width * layer.M)


def test_results_are_within_their_own_bounds(tmp_path):
    layer = Layer()
    job = write_job(tmp_path, "job", layer.absorbed() | {"scale": layer.scale, "causal": True})
    (tmp_path / "job.json").write_text(job)
    np.save(tmp_path / "output.npy", layer.output())
    run = attn("compare", "output.npy", "--reference", "job.json", "--as", "output", cwd=tmp_path)
    assert run.returncode == 0, run.stdout.decode() + run.stderr.decode()
    np.save(tmp_path / "output.npy", layer.output() * (1 + 1e-9))
    run = attn("compare", "output.npy", "--reference", "job.json", "--as", "output", cwd=tmp_path)
    assert run.returncode == 1


@pytest.mark.parametrize("kind", ["contiguous", "pages"])
def test_scales_of_both_parts(tmp_path, kind):
    """e4m3 codes, a scale for each token and 4 columns as in FlashInfer, and one for the rotary keys."""
    rng = np.random.default_rng(3)
    ckv, pe = finite_bytes(rng, e4m3, (3, 8, 16)), finite_bytes(rng, e4m3, (3, 8, 4))
    scale = rng.integers(120, 128, (3, 8, 4)).astype("u1")
    numbers = np.concatenate([e4m3(ckv) * e8m0(scale).repeat(4, -1), e4m3(pe) * 0.25], -1).astype("f4")
    job = {"Q_nope": rng.standard_normal((3, 2, 5, 16)).astype("f4"), "Q_pe": rng.standard_normal((3, 2, 5, 4)).astype("f4"),
           "scale": 0.01, "k_type": "e4m3", "k_pe_type": "e4m3", "k_scale": scale, "k_pe_scale": np.array(0.25, "f4")}
    if kind == "pages":
        job |= {"CKV_pages": ckv, "K_pe_pages": pe, "block_table": np.arange(3)[:, None], "key_lengths": np.full(3, 8)}
    else:
        job |= {"CKV": ckv, "K_pe": pe}
    plain = {"Q": np.concatenate([job["Q_nope"], job["Q_pe"]], -1), "K": numbers[:, None], "V": numbers[:, None, :, :16],
             "scale": 0.01}
    both = {"outputs": ["K", "V", "context"]}
    found, expected = run_jobs(tmp_path, [job | both, plain | both])
    for name in both["outputs"]:
        assert np.array_equal(bits(found[name]), bits(expected[name])), name


def test_dtypes_of_both_parts_may_differ(tmp_path):
    rng = np.random.default_rng(4)
    ckv, pe = rng.standard_normal((1, 40, 16)).astype("f2"), rng.standard_normal((1, 40, 4)).astype("f4")
    q = rng.standard_normal((1, 2, 3, 20)).astype("f4")
    K = np.concatenate([ckv.astype("f4"), pe], -1)[:, None]
    found, expected = run_jobs(tmp_path, [
        {"Q_nope": q[..., :16], "Q_pe": q[..., 16:], "CKV": ckv, "K_pe": pe, "scale": 0.3},
        {"Q": q, "K": K, "V": K[..., :16], "scale": 0.3}])
    assert np.array_equal(bits(found["context"]), bits(expected["context"]))


def test_values_are_columns_of_keys(tmp_path):
    """value_width without latent queries, for each of two packed heads."""
    rng = np.random.default_rng(5)
    q, k = rng.standard_normal((5, 12)), rng.standard_normal((7, 12))
    both = {"heads": 2, "scale": 0.5}
    found, expected = run_jobs(tmp_path, [
        both | {"Q": q, "K": k, "value_width": 4, "outputs": ["V", "context"]},
        both | {"Q": q, "K": k, "V": k.reshape(7, 2, 6)[..., :4].reshape(7, 8), "outputs": ["V", "context"]}])
    for name in "V", "context":
        assert np.array_equal(bits(found[name]), bits(expected[name])), name


LATENT = {"Q_nope": np.ones((2, 3, 1, 4)), "Q_pe": np.ones((2, 3, 1, 2)), "CKV": np.ones((2, 5, 4)), "K_pe": np.ones((2, 5, 2)),
          "scale": 0.5}
PAGES = {"CKV_pages": np.ones((3, 2, 4)), "K_pe_pages": np.ones((3, 2, 2)), "block_table": [[0, 1], [2, 0]], "key_lengths": [3, 2],
         "CKV": None, "K_pe": None}
ROWS = PAGES | {"KV_pages": np.ones((3, 2, 6)), "CKV_pages": None, "K_pe_pages": None}
NO_SCALE = ("scale: expected a number: latent attention has no default; it is 1/sqrt of the width of a head's query before W_UK was "
            "absorbed, such as 0.0722 for 192, found none")
@pytest.mark.parametrize("flags, warned", [([], True), (["--k-pe-type", "e4m3"], False)])
def test_codes_of_rotary_columns_without_their_type_get_a_warning(tmp_path, flags, warned):
    np.savez(tmp_path / "job.npz", Q_nope=np.ones((1, 1, 1, 4)), Q_pe=np.ones((1, 1, 1, 2)), CKV=np.ones((1, 3, 4)),
             K_pe=np.ones((1, 3, 2), np.uint8), k_pe_scale=0.5)
    run = attn("run", "job.npz", "--scale", "1", *flags, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert (b"K_pe: uint8 elements are integers; if they are codes" in run.stderr) == warned


ERRORS = {
    "no scale": ({"scale": None}, NO_SCALE),
    "no scale of columns": ({"Q_nope": None, "Q_pe": None, "CKV": None, "K_pe": None, "scale": None, "Q": np.ones((2, 3, 1, 6)),
                             "K": np.ones((2, 3, 5, 6)), "value_width": 4}, NO_SCALE),
    "heads": ({"Q_nope": np.ones((2, 3, 4))}, "Q_nope: expected 4 axes, or 3 with layout thd, found (2, 3, 4)"),
    "queries": ({"Q_pe": np.ones((2, 3, 2, 2))}, "Q_pe: expected the axes of Q_nope (2, 3, 1, 4) but the last, found (2, 3, 2, 2)"),
    "width": ({"CKV": np.ones((2, 5, 3))}, "CKV: expected (2, S, 4) to match Q_nope (2, 3, 1, 4), found (2, 5, 3)"),
    "rotary width": ({"K_pe": np.ones((2, 5, 3))}, "K_pe: expected (2, S, 2) to match Q_pe (2, 3, 1, 2), found (2, 5, 3)"),
    "keys": ({"K_pe": np.ones((2, 6, 2))}, "K_pe: expected as many keys as CKV (2, 5, 4), found (2, 6, 2)"),
    "batch": ({"CKV": np.ones((3, 5, 4))}, "CKV: expected (2, S, 4) to match Q_nope (2, 3, 1, 4), found (3, 5, 4)"),
    "no cache": ({"CKV": None, "K_pe": None}, "Q_nope: requires CKV, CKV_pages or KV_pages"),
    "one part": ({"K_pe": None}, "CKV: requires K_pe"),
    "rotary": ({"rotary": {"kind": "half"}}, "Q_nope: cannot be combined with rotary.kind"),
    "embeddings": ({"embeddings": np.ones((2, 6))}, "Q_nope: cannot be combined with embeddings"),
    "W_UV": ({"W_UV": np.ones((3, 5, 2))}, "W_UV: expected (3, 4, *) to match V (2, 1, 5, 4), found (3, 5, 2)"),
    "v_scale": ({"v_scale": 0.5} | ROWS, "v_scale: cannot be combined with Q_nope"),
    "pool": (PAGES | {"CKV_pages": np.ones((3, 2, 2, 4))},
             "CKV_pages: expected (P, page size, D) or (P, page size, 1, D), found (3, 2, 2, 4)"),
    "width of pool": (PAGES | {"CKV_pages": np.ones((3, 2, 5))}, "CKV_pages: expected width 4 of the queries, found 5"),
    "rotary pool": (PAGES | {"K_pe_pages": np.ones((3, 3, 2))},
                    "K_pe_pages: expected the pages and page size of CKV_pages (3, 2, 4), found (3, 3, 2)"),
    "rows": (ROWS | {"KV_pages": np.ones((3, 2, 5))}, "KV_pages: expected width 6 of the queries, found 5"),
    "interleaved": (ROWS | {"page_layout": "interleaved"}, "page_layout: expected nhd or hnd for a latent cache, found interleaved"),
    "columns": ({"Q_nope": None, "Q_pe": None, "CKV": None, "K_pe": None, "Q": np.ones((2, 3, 1, 6)), "K": np.ones((2, 3, 5, 6)),
                 "value_width": 7}, "value_width: expected at most 6, the width of K, found 7"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_error(tmp_path, case):
    change, message = ERRORS[case]
    job = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in (LATENT | change).items()
           if value is not None}
    (tmp_path / "job.json").write_text(json.dumps(job))
    run = attn("run", "job.json", cwd=tmp_path)
    lines = run.stderr.decode().splitlines()
    assert (run.returncode, len(lines)) == (65, 1), run.stderr.decode()
    assert message in lines[0]
