"""Parts of a tensor, FILE#NAME[...] and FILE#NAME.T, against NumPy's indexing."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn

RNG = np.random.default_rng(7)
W = RNG.integers(-99, 99, (6, 8))
B = RNG.integers(-99, 99, 12)
CUBE = RNG.integers(-99, 99, (2, 3, 4))
ARRAYS = {"W": W, "b": B, "cube": CUBE, "W.T": np.arange(3), "b[0]": np.arange(4), "it's": W, "x": W.astype(float)}


@pytest.fixture(scope="module", params=["npz", "safetensors", "json"])
def file(request, module_path):
    path = module_path / f"w.{request.param}"
    np.savez(module_path / "w0.npz", **ARRAYS)
    if not path.exists():
        assert attn("convert", module_path / "w0.npz", "-o", path).returncode == 0
    return path


def read(ref):
    run = attn("convert", ref, "--format", "json")
    assert run.returncode == 0, run.stderr.decode()
    return np.array(json.loads(run.stdout))


def in_groups(axis_length, parts, groups, first, last):
    """The indices of parts [first, last) of each group, with plain loops."""
    part = axis_length // (parts * groups)
    return [(g * parts + p) * part + i for g in range(groups) for p in range(first, last) for i in range(part)]


@pytest.mark.parametrize("part, expected", [
    ("W[2]", W[2]), ("W[-1]", W[-1]), ("W[:]", W), ("W[:, :]", W), ("W[1:3]", W[1:3]), ("W[:, 2:5]", W[:, 2:5]),
    ("W[:,2:5]", W[:, 2:5]), ("W[1:, :-1]", W[1:, :-1]), ("W[-3:-1, 0]", W[-3:-1, 0]), ("W[1, 2]", W[1, 2]),
    ("W[ 1 : 3 , 2 ]", W[1:3, 2]), ("W[2:2]", W[2:2]), ("W[0:6]", W), ("W[3:6]", W[3:]), ("W[2:4]", W[2:4]),
    ("W[0/3]", W[:2]), ("W[2/3]", W[4:]), ("W[-1/3]", W[4:]), ("W[1:/3]", W[2:]), ("W[:2/3]", W[:4]),
    ("W[:, 1/4]", W[:, 2:4]), ("W[1/2, 0/2]", W[3:, :4]),
    ("W[0/3 in 2]", W[in_groups(6, 3, 2, 0, 1)]), ("W[1:3/3 in 2]", W[in_groups(6, 3, 2, 1, 3)]),
    ("W[:, 1/2 in 4]", W[:, in_groups(8, 2, 4, 1, 2)]), ("W[0/3in2]", W[in_groups(6, 3, 2, 0, 1)]),
    ("W[0/3].T", W[:2].T), ("W[:, 2:5].T", W[:, 2:5].T), ("W[1:5][1:3]", W[1:5][1:3]), ("W[1/2].T.T", W[3:]),
    ("b[3:5]", B[3:5]), ("b[0/3 in 2]", B[in_groups(12, 3, 2, 0, 1)]),
    ("cube[1]", CUBE[1]), ("cube[1].T", CUBE[1].T), ("cube[:, 1:]", CUBE[:, 1:]), ("cube[:, :, 1/2]", CUBE[:, :, 2:]),
    ("cube[0, 1, 2]", CUBE[0, 1, 2]), ("x.T", W.T), ("x[1]", W[1]),
])
def test_part(file, part, expected):
    found = read(f"{file}#{part}")
    assert found.shape == expected.shape or found.size == expected.size == 0
    assert found.tolist() == expected.tolist() or found.size == 0


@pytest.mark.parametrize("ref, expected", [
    ("W.T", ARRAYS["W.T"]), ("'W'.T", W.T), ("b[0]", ARRAYS["b[0]"]), ("'b'[0]", B[0]), ("'b[0]'[1]", 1),
    ("'W.T'", ARRAYS["W.T"]), ("W.T[1]", W.T[1]), ("'it's'[0]", W[0]), ("it's.T", W.T)])
def test_name_that_ends_like_a_part_comes_first(file, ref, expected):
    assert read(f"{file}#{ref}").tolist() == np.array(expected).tolist()


def test_transpose_of_a_larger_matrix(tmp_path):
    for dtype in np.int8, np.float16, np.float32, np.float64:
        wide = np.random.default_rng(1).integers(-99, 99, (70, 45)).astype(dtype)
        np.savez(tmp_path / "wide.npz", wide=wide)
        assert (read(f"{tmp_path}/wide.npz#wide.T") == wide.T).all()


def test_part_of_the_only_tensor_of_a_file(tmp_path):
    np.save(tmp_path / "w.npy", W)
    assert read(f"{tmp_path}/w.npy#[1:3]").tolist() == W[1:3].tolist()
    assert read(f"{tmp_path}/w.npy#.T").tolist() == W.T.tolist()


@pytest.mark.parametrize("part, message", [
    ("W[6]", "'[6]': index 6 is out of range: axis 0 has 6 elements"),
    ("W[-7]", "'[-7]': index -7 is out of range: axis 0 has 6 elements"),
    ("W[:, 0:9]", "index 9 is out of range: axis 1 has 8 elements"),
    ("W[7:]", "index 7 is out of range: axis 0 has 6 elements"),
    ("W[:-7]", "index -7 is out of range: axis 0 has 6 elements"),
    ("W[3:2]", "expected I <= J in I:J"),
    ("W[0/4]", "axis 0 has 6 elements, which cannot be divided into 4 equal parts"),
    ("W[0/3 in 4]", "axis 0 has 6 elements, which cannot be divided into 3 equal parts in each of 4 groups"),
    ("W[3/3]", "'[3/3]': part 3 of 3 is out of range"),
    ("W[0/4611686018427387904 in 8]", "which cannot be divided"),
    ("W[9223372036854775807]", "index 9223372036854775807 is out of range: axis 0 has 6 elements"),
    ("W[-9223372036854775808]", "index -9223372036854775808 is out of range: axis 0"),
    ("W[9223372036854775808]", "expected an index, I:J"),
    ("W[0, 0, 0]", "shape (6, 8) has fewer than 3 axes"),
    ("b.T", "expected a matrix to transpose, found shape (12,)"),
    ("W[]", "expected an index, I:J"), ("W[0,]", "expected an index, I:J"), ("W[::2]", "expected an index, I:J"),
    ("W[a]", "expected an index, I:J"), ("W[0/0]", "expected an index, I:J"), ("W[0/3 in]", "expected an index, I:J"),
    ("W[1.5]", "expected an index, I:J"), ("nosuch[0]", "nosuch"),
])
def test_part_that_does_not_exist(file, part, message):
    run = attn("convert", f"{file}#{part}", "--repr")
    assert_error(run, 65, message)
    assert run.stderr.count(b"\n") == 1
    assert run.stderr.startswith(f"attn: {file}: ".encode())


def test_fused_weights_of_gpt_2(tmp_path):
    """A Conv1D weight (in, out) of queries, keys and values side by side."""
    x, c_attn, bias = RNG.standard_normal((4, 6)), RNG.standard_normal((6, 18)), RNG.standard_normal(18)
    np.savez(tmp_path / "h.npz", **{"c_attn.weight": c_attn, "c_attn.bias": bias})
    np.save(tmp_path / "x.npy", x)
    flags = [y for i, name in enumerate("qkv") for y in
             (f"--w-{name}", f"h.npz#c_attn.weight[:, {6 * i}:{6 * i + 6}]", f"--b-{name}", f"h.npz#c_attn.bias[{i}/3]")]
    run = attn("run", "--embeddings", "x.npy", *flags, "--weights-layout", "in-out", "--outputs",
               "queries,keys,values", "-o", "out.npz", cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, b"")
    with np.load(tmp_path / "out.npz") as out:
        found = np.concatenate([out[name] for name in ("queries", "keys", "values")], 1)
    np.testing.assert_allclose(found, x @ c_attn + bias, rtol=1e-13, atol=1e-14)


def test_square_part_of_a_torch_weight_is_ambiguous(tmp_path):
    np.savez(tmp_path / "h.npz", **{"qkv.weight": RNG.standard_normal((9, 3))})
    run = attn("run", "--embeddings", "[[1, 2, 3]]", "--w-q", "h.npz#qkv.weight[0/3]", cwd=tmp_path)
    assert run.returncode == 0
    assert b"weights_layout" in run.stderr


def test_transposed_part_of_a_torch_weight_is_not(tmp_path):
    np.savez(tmp_path / "h.npz", **{"qkv.weight": RNG.standard_normal((9, 3))})
    run = attn("run", "--embeddings", "[[1, 2, 3]]", "--w-q", "h.npz#qkv.weight[0/3].T", cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, b"")


def test_view_draws_a_part(file):
    run = attn("view", f"{file}#W[:2, 0/2]", "--color", "never")
    assert (run.returncode, run.stderr) == (0, b"")
    rows = [line.split()[1:] for line in run.stdout.decode().splitlines() if line.split()[:1] in (["0"], ["1"])]
    assert [[int(x) for x in row] for row in rows[-2:]] == W[:2, :4].tolist()
