"""`attn svd` against numpy.linalg.svd: singular values, vectors up to sign, outputs, errors."""

import json
import os
import subprocess

import numpy as np
import pytest

from support.attn import ATTN, assert_error, attn

SHAPES = [(4, 4), (1, 1), (1, 6), (6, 1), (3, 8), (8, 3), (50, 20), (20, 50), (120, 120)]


def with_signs_of(vectors, reference, axis):
    """`vectors`, each along `axis`, with the signs that they have in `reference`."""
    return vectors * np.sign((vectors * reference).sum(axis=axis, keepdims=True))


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"], scope="class")
@pytest.mark.parametrize("shape", SHAPES, ids=str, scope="class")
class TestRandomMatrix:
    @pytest.fixture(scope="class")
    def matrix(self, shape, dtype):
        return (10 * np.random.RandomState(7).randn(*shape)).astype(dtype)

    @pytest.fixture(scope="class")
    def factors(self, matrix, class_path):
        np.save(class_path / "a.npy", matrix)
        assert attn("svd", class_path / "a.npy", "-o", class_path / "f.npz", "--force").returncode == 0
        with np.load(class_path / "f.npz") as archive:
            return dict(archive)

    @staticmethod
    def tolerance(matrix):
        """Relative to the largest singular value."""
        largest = np.linalg.svd(matrix, compute_uv=False)[0]
        return largest * (1e-5 if matrix.dtype == np.float32 else 1e-13)

    def test_has_three_factors(self, factors):
        assert list(factors) == ["U", "s", "Vt"]

    def test_is_computed_in_its_own_precision(self, factors, dtype):
        assert factors["s"].dtype == ("float32" if dtype == "float32" else "float64")

    def test_has_numpys_singular_values(self, factors, matrix):
        s = np.linalg.svd(matrix, compute_uv=False)
        np.testing.assert_allclose(factors["s"], s, rtol=0, atol=self.tolerance(matrix))

    def test_has_numpys_singular_vectors(self, factors, matrix, dtype):
        U, _, Vt = np.linalg.svd(matrix, full_matrices=False)
        atol = 1e-3 if dtype == "float32" else 1e-10  # vectors of close singular values are inaccurate
        np.testing.assert_allclose(with_signs_of(factors["U"], U, 0), U, rtol=0, atol=atol)
        np.testing.assert_allclose(with_signs_of(factors["Vt"], Vt, 1), Vt, rtol=0, atol=atol)

    def test_is_the_product_of_its_factors(self, factors, matrix):
        product = factors["U"] * factors["s"] @ factors["Vt"]
        np.testing.assert_allclose(product, matrix, rtol=0, atol=self.tolerance(matrix))


class TestRank:
    MATRIX = np.random.RandomState(3).rand(6, 5)

    @pytest.fixture
    def file(self, tmp_path):
        np.savetxt(tmp_path / "a.csv", self.MATRIX, delimiter=",", fmt="%.17g")
        return tmp_path / "a.csv"

    @pytest.mark.parametrize("rank", range(1, 6))
    def test_keeps_the_largest_singular_values(self, file, rank):
        run = attn("svd", file, "--rank", rank, "--format", "json")
        result = json.loads(run.stdout)
        s = np.linalg.svd(self.MATRIX, compute_uv=False)
        np.testing.assert_allclose(result["s"], s[:rank])
        assert np.shape(result["U"]) == (6, rank)
        share = 100 * (s[:rank]**2).sum() / (s**2).sum()
        assert run.stderr.decode() == f"attn: {rank} of 5 singular values account for {share:.6g}% of the sum of squares\n"

    def test_quiet_prints_no_share(self, file):
        assert attn("svd", file, "--rank", 1, "-q").stderr == b""


def test_number_of_threads_does_not_change_the_result(tmp_path):
    np.save(tmp_path / "a.npy", np.random.RandomState(5).randn(300, 200))
    outputs = [subprocess.run([ATTN, "svd", tmp_path / "a.npy", "--format", "json"], capture_output=True,
                              env={**os.environ, "OPENBLAS_NUM_THREADS": threads}).stdout
               for threads in ("1", "2", "3")]
    assert outputs[0]
    assert outputs[1] == outputs[0]
    assert outputs[2] == outputs[0]


# Text.


@pytest.fixture
def diagonal(tmp_path):
    np.save(tmp_path / "d.npy", np.array([[0.0, 2.0], [5.0, 0.0]]))
    return tmp_path / "d.npy"


def test_text_has_a_title_for_each_factor(diagonal):
    run = attn("svd", diagonal)
    assert run.stderr == b""
    assert [block.split("\n")[0] for block in run.stdout.decode().split("\n\n")] == [
        "U (2, 2): left singular vectors, a column each", "s (2,): singular values",
        "Vt (2, 2): right singular vectors, a row each"]


def test_text_is_that_of_numpy(diagonal):
    block = attn("svd", diagonal).stdout.decode().split("\n\n")[1]
    assert block.split("\n")[1] == str(np.linalg.svd(np.load(diagonal), compute_uv=False))


def test_repr_is_that_of_numpy(diagonal):
    assert "\narray([5., 2.])\n" in attn("svd", diagonal, "--repr").stdout.decode()


# Output files.


class TestOutputFile:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path):
        np.savez(tmp_path / "in.npz", A=np.eye(2), B=np.ones((2, 3)))
        return tmp_path

    def test_holds_the_factors_of_the_member(self, tmp_path):
        run = attn("svd", "in.npz#B", "-o", "new.npz", cwd=tmp_path)
        assert (run.returncode, run.stdout) == (0, b"")
        np.testing.assert_allclose(np.load(tmp_path / "new.npz")["s"], [6**0.5, 0], atol=1e-8)

    def test_is_not_replaced(self, tmp_path):
        (tmp_path / "new.npz").write_bytes(b"old")
        assert attn("svd", "in.npz#A", "-o", "new.npz", cwd=tmp_path).returncode == 73
        assert (tmp_path / "new.npz").read_bytes() == b"old"

    def test_never_replaces_the_input(self, tmp_path):
        assert attn("svd", "in.npz#A", "-o", "in.npz", "--force", cwd=tmp_path).returncode != 0
        assert "B" in np.load(tmp_path / "in.npz")

    def test_records_the_input(self, tmp_path):
        attn("svd", "in.npz#B", "-o", "new.json", cwd=tmp_path)
        made_by = json.loads((tmp_path / "new.json").read_text())["made_by"]
        assert made_by["svd"]["matrix"].endswith("in.npz#B")
        assert len(made_by["inputs"]) == 1


# Errors.


@pytest.mark.parametrize("arguments, code, reason", [
    (["nan.npy"], 65, "nan.npy: expected finite numbers, found NaN at [0, 1]"),
    (["vector.npy"], 65, "vector.npy: expected a matrix, found shape (3,)"),
    (["good.npy", "--rank", "3"], 65, "rank 3 exceeds 2"),
    (["good.npy", "--rank", "-1"], 2, "--rank"),
    (["two.npz"], 65, "A"),
    (["none.npy"], 66, "none.npy"),
    (["good.npy", "-o", "x.txt"], 2, "x.txt"),
    (["good.npy", "--format", "yaml"], 2, "yaml"),
    ([], 2, "MATRIX"),
])
def test_invalid_input_is_refused_in_one_line(tmp_path, arguments, code, reason):
    np.save(tmp_path / "nan.npy", np.array([[1, np.nan]]))
    np.save(tmp_path / "vector.npy", np.arange(3))
    np.save(tmp_path / "good.npy", np.eye(2))
    np.savez(tmp_path / "two.npz", A=np.eye(2), B=np.eye(3))
    run = attn("svd", *arguments, cwd=tmp_path)
    assert_error(run, code, reason)
    assert run.stdout == b""
    assert run.stderr.count(b"\n") == 1


def test_matrix_without_columns_has_no_singular_values(tmp_path):
    np.save(tmp_path / "empty.npy", np.zeros((3, 0)))
    assert json.loads(attn("svd", tmp_path / "empty.npy", "--format", "json").stdout)["s"] == []
