"""Jobs with quantised queries, keys and values give the bytes of the same jobs with decoded numbers."""

import json

import numpy as np
import pytest

from support import safetensors_file
from support.attn import attn
from support.jobs import random_jobs, run_jobs
from support.paged_jobs import bits
from support.stored_jobs import BYTES, CODES, StoredJob, e2m1, e4m3, e8m0

JOBS = random_jobs(120)


def differences(folder, seeds):
    stored_jobs = [StoredJob(seed) for seed in seeds]
    results = run_jobs(folder, [job for each in stored_jobs for job in (each.given, each.plain)])
    for job, given, plain in zip(stored_jobs, results, results):
        for name in job.given["outputs"]:
            found, expected = given[name].astype(plain[name].dtype), plain[name]
            if given[name].dtype.itemsize == 4:
                found, expected = given[name], plain[name].astype(np.float32)
            if not np.array_equal(bits(found), bits(expected)):
                yield job.seed, f"{job.form} {name}: {np.abs(found - expected).max()}"


def test_stored_elements_give_the_bytes_of_their_numbers(tmp_path):
    assert dict(differences(tmp_path, range(JOBS))) == {}


def write_coded(path, tensors):
    """A .safetensors file of (dtype, codes, shape) by name."""
    header, data = {}, b""
    for name, (dtype, codes, shape) in tensors.items():
        header[name] = safetensors_file.entry(len(data), len(data) + codes.nbytes, dtype, shape)
        data += codes.tobytes()
    path.write_bytes(safetensors_file.build(header, data))


def numbers_of(folder, job):
    """K and the context."""
    (folder / "job.json").write_text(json.dumps(job))
    run = attn("run", "job.json", "--outputs", "K,context", "-o", "out.npz", "--force", cwd=folder)
    assert run.returncode == 0, run.stderr.decode()
    with np.load(folder / "out.npz") as results:
        return dict(results)


def test_types_of_a_file_are_those_of_the_codes(tmp_path):
    """All bytes of each type, with a scale; NaN and infinity have no effect on other keys."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "job.npz", Q=rng.standard_normal((3, 32)).astype("f4"), V=np.eye(16, dtype="f4"), codes=BYTES.reshape(16, 16))
    tensors = {"F8_E4M3": e4m3, "F8_E5M2": CODES["e5m2"], "F8_E4M3FNUZ": CODES["e4m3fnuz"], "F8_E5M2FNUZ": CODES["e5m2fnuz"],
               "F8_E8M0": e8m0, "F4": e2m1}
    write_coded(tmp_path / "k.safetensors", {name: (name, BYTES.reshape(16, 16), [16, 32 if name == "F4" else 16]) for name in tensors})
    for name, decode in tensors.items():
        width = 32 if name == "F4" else 16
        job = {"Q": f"job.npz#Q[:, :{width}]", "K": f"k.safetensors#{name}", "V": "job.npz#V", "k_scale": 0.125, "scale": "none"}
        found = numbers_of(tmp_path, job)
        expected = (decode(BYTES).reshape(16, width).astype("f4") * np.float32(0.125))
        assert np.array_equal(found["K"], expected, equal_nan=True), name
        if name in ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"):
            typed = numbers_of(tmp_path, job | {"K": "job.npz#codes", "k_type": name[3:].lower()})
            assert np.array_equal(typed["K"], found["K"], equal_nan=True), name


def test_values_that_are_not_finite_reach_only_rows_that_see_them(tmp_path):
    """Through the kernels, which pack zeros in their place."""
    codes = np.full((40, 16), 0x38, np.uint8)
    codes[20, 3], codes[30, 5] = 0x7f, 0xff  # NaN
    np.savez(tmp_path / "j.npz", Q=np.ones((40, 4), "f4"), K=np.ones((40, 4), "f4"), V=codes)
    found = numbers_of(tmp_path, {name: f"j.npz#{name}" for name in "QKV"} | {"v_type": "e4m3", "v_scale": 2, "causal": True})["context"]
    nan = np.zeros((40, 16), bool)
    nan[20:, 3] = nan[30:, 5] = True
    assert np.array_equal(np.isnan(found), nan)
    assert np.allclose(found[~nan], 2)


@pytest.mark.parametrize("scale, code, value", [(1e39, 0, np.nan), (1e39, 0x3c, np.inf), (1e-50, 0x7c, np.nan)])
def test_scales_beyond_float32_have_the_same_effect_on_both_paths(tmp_path, scale, code, value):
    """0 times infinity, 1 times infinity, and infinity times 0."""
    np.savez(tmp_path / "j.npz", Q=np.ones((5, 8), "f4"), K=np.ones((40, 8), "f4"), V=np.full((40, 16), code, "u1"))
    job = {name: f"j.npz#{name}" for name in "QKV"} | {"v_scale": scale, "v_type": "e5m2"}
    for path in "auto", "reference":
        assert np.array_equal(numbers_of(tmp_path, job | {"path": path})["context"], np.full((5, 16), value), equal_nan=True), path


def test_gradients_are_those_by_the_numbers(tmp_path):
    rng = np.random.default_rng(1)
    Q, V, grad = (rng.standard_normal((2, 6, 8)).astype("f4") for _ in range(3))
    K = rng.integers(-9, 9, (2, 6, 8)).astype("i1")
    scale = rng.random((2, 6)).astype("f4")
    numbers = K.astype("f4") * scale[..., None]
    base = {"Q": Q, "V": V, "grad_context": grad, "outputs": ["grad_K", "grad_Q", "grad_V"]}
    given, plain = run_jobs(tmp_path, [base | {"K": K, "k_scale": scale}, base | {"K": numbers}])
    for name in base["outputs"]:
        assert np.array_equal(bits(given[name]), bits(plain[name])), name


def test_inline_numbers(tmp_path):
    found = numbers_of(tmp_path, {"Q": [[1.0, 0.0]], "K": [[56, 64], [0, 184]], "k_type": "e4m3", "k_scale": [0.5, 2]})
    assert found["K"].tolist() == [[0.5, 1.0], [0.0, -2.0]]
    found = numbers_of(tmp_path, {"Q": [[1.0, 0.0] * 16], "K": [[0x21] * 16], "k_type": "mxfp4", "k_scale": [[128]]})
    assert found["K"].tolist() == [[1.0, 2.0] * 16]
    found = numbers_of(tmp_path, {"Q": [[1.0, 0.0]], "K": [[3, 5]], "k_zero_point": 4})
    assert found["K"].tolist() == [[-1.0, 1.0]]


@pytest.mark.parametrize("options", [{"rotary": {"kind": "half"}}, {"qk_norm": "rms"}])
def test_keys_that_are_changed_are_the_same_numbers(tmp_path, options):
    rng = np.random.default_rng(5)
    Q, V = rng.standard_normal((2, 2, 6, 16)).astype("f4")
    K, scale = rng.integers(-9, 9, (2, 6, 16)).astype("i1"), rng.random((2, 6)).astype("f4")
    base = {"Q": Q, "V": V, "outputs": ["keys", "context"], **options}
    given, plain = run_jobs(tmp_path, [base | {"K": K, "k_scale": scale}, base | {"K": K.astype("f4") * scale[..., None]}])
    for name in base["outputs"]:
        assert np.array_equal(bits(given[name]), bits(plain[name])), name


def test_bytes_may_be_int8(tmp_path):
    codes = np.arange(256, dtype="u1").reshape(16, 16)
    np.savez(tmp_path / "j.npz", Q=np.ones((1, 16), "f4"), K=codes, V=codes.view("i1"))
    job = {"Q": "j.npz#Q", "k_type": "e5m2"}
    expected = numbers_of(tmp_path, job | {"K": "j.npz#K"})["K"]
    assert np.array_equal(numbers_of(tmp_path, job | {"K": "j.npz#V"})["K"], expected, equal_nan=True)


def test_the_dtype_of_results_is_not_that_of_scales(tmp_path):
    rng = np.random.default_rng(2)
    np.savez(tmp_path / "j.npz", Q=rng.standard_normal((2, 8)).astype("f2"), K=rng.standard_normal((3, 8)).astype("f2"))
    job = {"Q": "j.npz#Q", "K": "j.npz#K"}
    assert numbers_of(tmp_path, job | {"k_scale": 0.5})["context"].dtype == np.float16


def test_mistakes_with_scales_are_named(tmp_path):
    """A kernel that ignores the scale of keys."""
    rng = np.random.default_rng(3)
    Q, V = rng.standard_normal((2, 8, 16)), rng.standard_normal((20, 16))
    codes = rng.integers(-50, 50, (20, 16)).astype("i1")
    scores = Q[0] @ codes.T / 4
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    np.save(tmp_path / "mine.npy", weights / weights.sum(-1, keepdims=True) @ V)
    np.savez(tmp_path / "j.npz", Q=Q[0], K=codes, V=V)
    (tmp_path / "job.json").write_text(json.dumps({name: f"j.npz#{name}" for name in "QKV"} | {"k_scale": 0.03}))
    run = attn("compare", "mine.npy", "--reference", "job.json", "--diagnose", cwd=tmp_path)
    assert run.returncode == 1
    assert b"agrees with the job without --k-scale\n" in run.stdout, run.stdout.decode()


BASE = {"Q": np.ones((2, 4, 3, 32)).tolist(), "K": np.ones((2, 2, 5, 32), int).tolist(), "kv_heads": 2, "heads": 4}
ERRORS = {
    "shape": ({"k_scale": [1.0, 2.0, 3.0]},
        "k_scale: expected one number, or axes (G), (B, G), (B, G, S) or (B, G, S, N), where N divides D, of (B, G, S, D), "
        "which is (2, 2, 5, 32), found (3,)"),
    "blocks": ({"k_scale": np.ones((2, 2, 5, 5)).tolist()},
        "k_scale: expected one number, or axes (G), (B, G), (B, G, S) or (B, G, S, N), where N divides D, of (B, G, S, D), "
        "which is (2, 2, 5, 32), found (2, 2, 5, 5)"),
    "scale of queries": ({"q_scale": [1.0, 2.0, 3.0]},
        "q_scale: expected one number, or axes (H), (B, H), (B, H, L) or (B, H, L, N), where N divides D, of (B, H, L, D), "
        "which is (2, 4, 3, 32), found (3,)"),
    "zero point": ({"k_scale": 1.0, "k_zero_point": [1, 2]},
        "k_zero_point: expected one number, or shape (), found (2,)"),
    "other axes of zero points": ({"k_scale": np.ones((2, 2, 5)).tolist(), "k_zero_point": np.ones((5, 2, 2)).tolist()},
        "k_zero_point: expected one number, or shape (2, 2, 5), found (5, 2, 2)"),
    "width of blocks": ({"Q": np.ones((2, 4, 3, 24)).tolist(), "K": np.ones((2, 2, 5, 12), int).tolist(), "k_type": "nvfp4",
                         "k_scale": np.ones((2, 2, 5, 1)).tolist()},
        "K: expected a width that is a multiple of 16 for k_type, found 24"),
    "global scale": ({"k_scale": 1.0, "k_global_scale": [1.0, 2.0]}, "k_global_scale: expected one number, found (2,)"),
    "only a global scale": ({"k_global_scale": 1.0}, "k_global_scale: requires k_scale"),
    "no scale": ({"k_type": "mxfp4"},
        "k_scale: expected (B, G, S, D/32), which is (2, 2, 5, 2), a scale for 32 columns, found none"),
    "block of 16": ({"k_type": "nvfp4", "k_scale": np.ones((2, 2, 5, 2)).tolist()},
        "k_scale: expected (B, G, S, D/16), which is (2, 2, 5, 4), a scale for 16 columns, found (2, 2, 5, 2)"),
    "codes of scales": ({"k_type": "mxfp4", "K": np.ones((2, 2, 5, 16), int).tolist(), "k_scale": np.full((2, 2, 5, 1), 256).tolist()},
        "k_scale: 256 does not fit uint8"),
    "floats as codes": ({"q_type": "e4m3"}, "Q: expected uint8 elements, the codes of q_type, found float64"),
    "large codes": ({"k_type": "e5m2", "K": np.full((2, 2, 5, 32), 256).tolist()},
        "K: 256 does not fit uint8"),
    "values by default": ({"v_scale": 2.0}, "v_scale: requires V, V_pages or KV_pages"),
    "past": ({"k_scale": 1.0, "past_K": np.ones((2, 2, 1, 32)).tolist(), "past_V": np.ones((2, 2, 1, 32)).tolist()},
        "k_scale: cannot be combined with past_K"),
    "unknown type": ({"k_type": "e4m4"}, "k_type: expected e4m3, e5m2, e4m3fnuz, e5m2fnuz, nvfp4, mxfp4, flashmla_v32 or flashmla_model1, found 'e4m4'"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_bad_input_gets_one_line(tmp_path, name):
    job, message = ERRORS[name]
    (tmp_path / "job.json").write_text(json.dumps(BASE | job))
    run = attn("run", "job.json", cwd=tmp_path)
    assert run.returncode == 65, run.stderr.decode()
    assert message in run.stderr.decode()
    assert run.stderr.count(b"\n") == 1


def test_a_nan_among_the_scales_is_named_as_the_cause(tmp_path):
    np.savez(tmp_path / "job.npz", Q=np.ones((1, 2)), K=np.ones((3, 2), np.int8), V=np.ones((3, 2), np.int8),
             k_scale=[1, 2, np.nan], v_scale=1.0)
    run = attn("run", "job.npz", cwd=tmp_path)
    assert b"k_scale holds 1, the first at [2]" in run.stderr and b"K holds" not in run.stderr


@pytest.mark.parametrize("keys, flags, warned", [
    (np.uint8, [], True), (np.int8, [], False), (np.uint8, ["--k-type", "e4m3"], False),
    (np.uint8, ["--k-zero-point", "[3]"], False)])
def test_codes_without_their_type_get_a_warning(tmp_path, keys, flags, warned):
    np.savez(tmp_path / "job.npz", Q=np.ones((1, 2)), K=np.ones((3, 2), keys), V=np.ones((3, 2)), k_scale=0.5)
    run = attn("run", "job.npz", *flags, cwd=tmp_path)
    assert run.returncode == 0
    assert (b"K: uint8 elements are integers; if they are codes" in run.stderr) == warned


QUERIES, KEYS = np.ones((1, 2), "f4"), np.arange(6).reshape(3, 2)


@pytest.mark.parametrize("tensors, flags, named", [
    ({"K": "i1", "V": "f4"}, [], "K: int8 elements without a scale are used as integers; give k_scale (1 if this is right)"),
    ({"K": "u1", "V": "f4"}, [], "K: uint8 elements without a scale"),
    ({"K": "f4", "V": "i1"}, [], "V: int8 elements without a scale are used as integers; give v_scale"),
    ({"K": "i1", "V": "i1"}, ["--k-scale", "0.5"], "V: int8 elements without a scale"),
    ({"K": "i1", "V": "i1"}, ["--k-scale", "1", "--v-scale", "1"], ""), ({"K": "i1", "V": "f4"}, ["--k-zero-point", "3"], ""),
    ({"K": "u1", "V": "u1"}, ["--k-type", "e4m3", "--v-type", "e4m3"], ""), ({"K": "i8", "V": "i4"}, [], ""),
    ({"Q": "i1", "K": "i1", "V": "i1"}, [], "")])
def test_keys_of_8_bits_without_a_scale_get_a_warning(tmp_path, tensors, flags, named):
    given = {"Q": QUERIES} | {name: (QUERIES if name == "Q" else KEYS).astype(dtype) for name, dtype in tensors.items()}
    np.savez(tmp_path / "job.npz", **given)
    run = attn("run", "job.npz", "--outputs", "context", *flags, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    lines = run.stderr.decode().splitlines()
    assert len(lines) == bool(named) and all(named in line for line in lines), lines


def test_pages_of_8_bits_without_a_scale_get_a_warning(tmp_path):
    np.savez(tmp_path / "job.npz", Q=np.ones((1, 1, 1, 2)), KV_pages=np.ones((1, 2, 2, 1, 2), "i1"), block_table=[[0]], key_lengths=[2])
    for flags, named in ([], "k_scale"), (["--k-scale", "0.5"], "v_scale"), (["--k-scale", "0.5", "--v-scale", "2"], ""):
        run = attn("run", "job.npz", *flags, cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        assert (f"KV_pages: int8 elements without a scale are used as integers; give {named}".encode() in run.stderr) == bool(named)


def test_json_integers_get_no_warning(tmp_path):
    (tmp_path / "job.json").write_text(json.dumps({"Q": QUERIES.tolist(), "K": KEYS.tolist(), "V": KEYS.tolist()}))
    run = attn("run", "job.json", cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, b"")


@pytest.mark.parametrize("flag, number", [("--k-scale", "0.25"), ("--k-zero-point", "-2"), ("--key-lengths", "2"), ("--key-starts", "1"),
                                          ("--prefix-lengths", "2")])
def test_a_number_as_flag_is_the_number_of_the_key(tmp_path, flag, number):
    np.savez(tmp_path / "job.npz", Q=QUERIES, K=KEYS.astype("i1"), V=np.float32(KEYS))
    key = flag[2:].replace("-", "_")
    results = []
    for source, flags in ({}, [f"{flag}={number}"]), ({key: json.loads(number)}, []):
        (tmp_path / "job.json").write_text(json.dumps({name: f"job.npz#{name}" for name in "QKV"} | {"causal": True} | source))
        run = attn("run", "job.json", *flags, "--outputs", "K,context,weights", "-o", "out.npz", "--force", cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        results.append(np.load(tmp_path / "out.npz"))
    assert all(np.array_equal(results[0][name], results[1][name]) for name in results[0])
    if flag == "--k-scale":
        assert np.array_equal(results[0]["K"], KEYS * np.float32(0.25))


def test_types_of_a_combined_pool_are_the_same(tmp_path):
    job = {"Q": np.ones((1, 1, 1, 2)).tolist(), "KV_pages": np.ones((1, 2, 2, 1, 2), int).tolist(), "block_table": [[0]],
           "key_lengths": [2], "k_type": "e4m3", "v_type": "e5m2"}
    (tmp_path / "job.json").write_text(json.dumps(job))
    run = attn("run", "job.json", cwd=tmp_path)
    assert run.returncode == 65
    assert b"v_type: expected that of k_type, since KV_pages holds both" in run.stderr
