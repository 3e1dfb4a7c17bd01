"""The command `attn random`: its printed text, its output files, and the calls it refuses."""

import io
import json

import numpy as np
import pytest

from support.attn import assert_error, attn


def printed(arrays, show=str):
    """The text of one array; several have their names before them."""
    texts = [show(array) + "\n" for array in arrays]
    if len(texts) == 1:
        return texts[0]
    return "\n".join(f"arr_{i}:\n{text}" for i, text in enumerate(texts))


def stream(seed):
    return np.random.RandomState(seed)


def repeated(count, draw):
    """What `count` calls of draw() return: --repeat draws several arrays from one stream."""
    return [draw() for _ in range(count)]


def repeated_randint():
    r = stream(42)
    return printed(repeated(3, lambda: r.randint(0, 3, (3, 3))))


def repeated_randn():
    r = stream(7)
    return printed(repeated(3, lambda: r.randn(3)), repr)


def repeated_permutation():
    r = stream(6)
    return printed(repeated(2, lambda: r.permutation(6)))


def repeated_integers():
    rng = np.random.default_rng(2**100)
    return printed(repeated(2, lambda: rng.integers(-3, 4, 5, dtype=np.int16)))


# Arguments, a function that makes the expected text.
PRINTED = [
    (["randint", "--seed", 42, "--high", 3, "--shape", "3,3", "--repeat", 3], repeated_randint),
    (["randn", "--seed", 7, "--shape", 3, "--repeat", 3, "--repr"], repeated_randn),
    (["permutation", "--seed", 6, "--n", 6, "--repeat", 2], repeated_permutation),
    (["integers", "--generator", "default_rng", "--seed", 2**100, "--low", -3, "--high", 4, "--dtype", "i16",
      "--shape", 5, "--repeat", 2], repeated_integers),
    (["rand", "--seed", 1], lambda: printed([stream(1).rand()])),
    (["rand", "--seed", "42,", "--shape", "2,"], lambda: printed([stream([42]).rand(2)])),
    (["uniform", "--seed", 5, "--low", -2, "--high", -0.5, "--shape", 3],
     lambda: printed([stream(5).uniform(-2, -0.5, 3)])),
    (["choice", "--seed", 5, "--n", 5, "--no-replace", "--shape", 3],
     lambda: printed([stream(5).choice(5, 3, replace=False)])),
    (["permutation", "--seed", 5, "--n", "0000000000000000000006"], lambda: printed([stream(5).permutation(6)])),
    (["normal", "--seed", 5, "--scale", "00", "--shape", 2], lambda: printed([stream(5).normal(0, 0, 2)])),
    # Numbers without a leading or trailing digit.
    (["normal", "--seed", 1, "--loc", "-.5", "--scale", ".25", "--shape", 3],
     lambda: printed([stream(1).normal(-.5, .25, 3)])),
    (["uniform", "--seed", 1, "--low", "0", "--high", "2."],
     lambda: printed([stream(1).uniform(0.0, 2.0)])),
    (["choice", "--seed", 1, "--n", 3, "--p", ".2,3e-1,.5,", "--shape", "4"],
     lambda: printed([stream(1).choice(3, 4, p=[.2, .3, .5])])),
]


def command(args):
    return " ".join(map(str, args))


@pytest.mark.parametrize("args, expected", PRINTED, ids=[command(args) for args, _ in PRINTED])
def test_printed_text_is_that_of_numpy(args, expected):
    run = attn("random", *args)
    assert run.stdout.decode() == expected()


RANDN = ["randn", "--seed", 3, "--shape", "2,3"]


@pytest.fixture
def draws():
    """Three successive arrays of the command RANDN."""
    r = stream(3)
    return repeated(3, lambda: r.randn(2, 3))


def test_json_of_one_array_is_a_list(draws):
    found = json.loads(attn("random", *RANDN, "--format", "json").stdout)
    assert np.array_equal(found, draws[0])


def test_json_of_several_arrays_is_an_object(draws):
    found = json.loads(attn("random", *RANDN, "--format", "json", "--repeat", 2).stdout)
    assert list(found) == ["arr_0", "arr_1"]
    assert np.array_equal(found["arr_1"], draws[1])


def test_csv(draws):
    stdout = attn("random", *RANDN, "--format", "csv").stdout
    assert np.array_equal(np.loadtxt(io.BytesIO(stdout), delimiter=","), draws[0])


class TestFiles:
    @staticmethod
    def write(folder, name, *flags):
        run = attn("random", *RANDN, "-o", name, *flags, cwd=folder)
        assert run.returncode == 0, run.stderr
        assert run.stdout == b""
        return folder / name

    def test_npy(self, tmp_path, draws):
        assert np.array_equal(np.load(self.write(tmp_path, "a.npy")), draws[0])

    def test_json(self, tmp_path, draws):
        assert np.array_equal(json.loads(self.write(tmp_path, "a.json").read_text()), draws[0])

    def test_csv(self, tmp_path, draws):
        assert np.array_equal(np.loadtxt(self.write(tmp_path, "a.csv"), delimiter=","), draws[0])

    def test_npz_has_all_arrays(self, tmp_path, draws):
        with np.load(self.write(tmp_path, "a.npz", "--repeat", 3)) as archive:
            assert archive.files == ["arr_0", "arr_1", "arr_2"]
            assert np.array_equal([archive[name] for name in archive.files], draws)

    def test_existing_file_is_kept_without_force(self, tmp_path):
        (tmp_path / "a.npy").write_bytes(b"mine")
        run = attn("random", *RANDN, "-o", "a.npy", cwd=tmp_path)
        assert run.returncode == 73
        assert (tmp_path / "a.npy").read_bytes() == b"mine"

    def test_force_replaces_an_existing_file(self, tmp_path, draws):
        (tmp_path / "a.npy").write_bytes(b"mine")
        assert np.array_equal(np.load(self.write(tmp_path, "a.npy", "--force")), draws[0])

    def test_input_is_not_replaced_even_with_force(self, tmp_path):
        self.write(tmp_path, "a.npy")
        run = attn("random", "shuffle", "--seed", 1, "--input", "a.npy", "-o", "a.npy", "--force",
                   cwd=tmp_path)
        assert run.returncode == 73

    def test_each_repeated_shuffle_continues_with_the_previous_result(self, tmp_path):
        """Like np.random.shuffle, which shuffles in place."""
        rows = np.arange(10).reshape(5, 2)
        np.save(tmp_path / "rows.npy", rows)
        attn("random", "shuffle", "--seed", 9, "--input", "rows.npy", "--repeat", 2, "-o", "s.npz",
             cwd=tmp_path)
        r = stream(9)
        with np.load(tmp_path / "s.npz") as archive:
            assert len(archive.files) == 2
            for name in archive.files:
                r.shuffle(rows)
                assert np.array_equal(archive[name], rows)


REFUSED = [
    (["rand", "--seed", -1], "seed: expected whole numbers >= 0 of at most 10000 digits, found '-1'"),
    (["rand", "--seed", ""], "--seed: expected a value, found ''"),
    (["rand", "--seed", "[]"], "seed: expected at least one whole number, found none"),
    (["rand", "--seed", 1, "--shape", "65536,65537", "--max-memory", "1T"],
     "rand: shape: expected at most 2^32 elements, found (65536, 65537)"),
    (["rand", "--seed", 2**32], "seed: expected 0 to 4294967295, found a larger number"),
    (["randint", "--seed", 1], "randint: expected the argument 'high', found none"),
    (["randint", "--seed", 1, "--high", "3.5"], "randint: high: expected a whole number"),
    (["randint", "--seed", 1, "--low", 5, "--high", 3], "expected low < high, found [5, 3)"),
    (["randint", "--seed", 1, "--high", 300, "--dtype", "u8"], "uint8 holds [0, 256)"),
    (["randint", "--seed", 1, "--high", 3, "--dtype", "int3"], "randint: dtype: expected a dtype such as \"int64\", found 'int3'"),
    (["randn", "--seed", 1, "--low", 3], "randn: unknown argument 'low'; the arguments are shape"),
    (["rand", "--generator", "torch", "--seed", 1, "--p", 3], "rand: unknown argument 'p'; the arguments are shape, dtype"),
    (["randn", "--seed", 1, "--shape", 2, 3], "unexpected argument '3'; write --shape 2,3"),
    (["randn", "--seed", 1, "--shape", "2,3", 4, 5], "unexpected argument '4'; write --shape 2,3,4,5"),
    (["randn", "--seed", 1, "--shape", "2x3"], "--shape: expected whole numbers with commas, such as 3,3, found '2x3'"),
    (["rand", "--seed", 1, "--shape", "3x3"],
     "--shape: expected whole numbers with commas, such as 3,3, found '3x3'"),
    (["normal", "--seed", 1, "--scale", "x"], "--scale: expected a number, found 'x'"),
    (["normal", "--seed", 1, "--scale", "NaN"], "--scale: expected a number, found 'NaN'"),
    (["uniform", "--seed", 1, "--high", ".5."], "--high: expected a number, found '.5.'"),
    (["uniform", "--seed", 1, "--high", "true"], "--high: expected a number, found 'true'"),
    (["choice", "--seed", 1, "--n", 2, "--p", ".5,,.5"], "--p: expected numbers with commas"),
    (["randint", "--seed", 1, "--high", "x"], "--high: expected a number, found 'x'"),
    (["choice", "--seed", 1, "--n", "x"], "--n: expected a whole number, found 'x'"),
    (["permutation", "--seed", 1, "--n", 10**20], "n: expected 0 to 2147483647, found 100000000000000000000"),
    (["choice", "--seed", 1, "--n", 2, "--p", "1;2"], "--p: expected numbers with commas"),
    (["foo", "--seed", 1], "unknown random method 'foo'; the methods are randint, rand, "),
    (["foo", "--seed", 1, "--generator", "default_rng"],
     "unknown random method 'foo'; the methods are random, integers, uniform"),
    (["randnit", "--seed", 1], "did you mean 'randint'?"),
    (["integers", "--seed", 1, "--high", 3], "integers: not available for RandomState, only for default_rng; the methods of RandomState are randint, "),
    (["shuffle", "--seed", 1], "shuffle: expected the argument 'values'"),
    (["permutation", "--seed", 1], "permutation: expected either 'n' or 'values'"),
    (["choice", "--seed", 1, "--n", 2, "--p", "0.5,0.6"], "a sum of 1.1"),
    (["rand", "--seed", 1, "--repeat", 2, "--format", "csv"], "holds one tensor, found 2"),
    (["rand", "--seed", 1, "--repr", "--format", "json"], "--repr requires text on standard output"),
    (["rand", "--seed", 1, "-o", "x.txt"], "expected a name that ends in .npz"),
    (["rand", "--seed", 1, "--repeat", 2, "-o", "x.npy"], "holds one tensor, found 2"),
    (["rand", "--sed", 1], "unknown flag '--sed' (did you mean '--seed'?)"),
    (["rand"], "--seed is required"),
    (["nonsense"], "unknown random method 'nonsense'"),
    (["rand", "--high", 3], "rand: unknown argument 'high'"),
    (["randint", "--high", 3, "--shape", 2**40], "--seed is required"),
]


@pytest.mark.parametrize("args, message", REFUSED, ids=[command(args) for args, _ in REFUSED])
def test_command_line_is_refused(tmp_path, args, message):
    run = attn("random", *args, cwd=tmp_path)
    stderr = run.stderr.decode()
    assert run.returncode == 2
    assert stderr.startswith("attn: ")
    assert message in stderr
    assert list(tmp_path.iterdir()) == []


def test_choice_refuses_a_matrix(tmp_path):
    np.save(tmp_path / "matrix.npy", np.zeros((2, 2)))
    run = attn("random", "choice", "--seed", 1, "--input", "matrix.npy", cwd=tmp_path)
    assert run.returncode == 65
    assert b"expected one axis" in run.stderr


def test_number_with_leading_zeros_is_counted():
    assert_error(attn("random", "permutation", "--seed", 1, "--n", "0000000000003000000", "--max-memory", "1M"), 65,
                 "takes more than 1048576 bytes of memory; --max-memory raises the limit")


def test_missing_input_is_refused(tmp_path):
    run = attn("random", "shuffle", "--seed", 1, "--input", "none.npy", cwd=tmp_path)
    assert run.returncode == 66
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shape", ["2,3", "2,3,", "(2, 3)", "[2, 3]"])
def test_shape_may_be_written_as_in_python(shape):
    drawn = json.loads(attn("random", "randn", "--seed", 5, "--shape", shape, "--format", "json").stdout)
    assert np.array_equal(drawn, stream(5).randn(2, 3))


@pytest.mark.parametrize("module", ["torch", "np", "numpy", "jnp", "jax.numpy", "tf"])
def test_dtype_may_have_the_module_of_a_library(module):
    arguments = ["random", "random", "--generator", "default_rng", "--seed", 1, "--shape", 2, "--dtype"]
    plain, named = (attn(*arguments, dtype) for dtype in ("float32", f"{module}.float32"))
    assert named.returncode == 0
    assert named.stdout == plain.stdout
