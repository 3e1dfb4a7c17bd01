"""Files written by NumPy are read correctly, and the program's files are the bytes that NumPy would write."""

import io
import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

from support.attn import assert_error, attn

DTYPES = ["f8", "f4", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
SHAPES = [(), (0,), (1,), (7,), (2, 3), (4, 0, 3), (2, 3, 4), (1, 5, 1, 2)]
LAYOUTS = [
    (dtype, shape, order, endian)
    for dtype, shape, order, endian in itertools.product(DTYPES, SHAPES, "CF", "<>")
    if not (endian == ">" and np.dtype(dtype).itemsize == 1) and not (order == "F" and len(shape) < 2)
]


def random_array(dtype, shape, seed):
    """Random bits, with NaN payloads, subnormal numbers, infinities and negative zeros among them."""
    count = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
    array = np.frombuffer(np.random.RandomState(seed).bytes(count), dtype).reshape(shape)
    return array.view("u1") % 2 == 1 if dtype == "?" else array


def npy_bytes(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def as_written(array):
    """The array as the program writes it: C order, little-endian."""
    return np.array(array.astype(array.dtype.newbyteorder("<")), order="C", ndmin=0)


def convert(source, target):
    run = attn("convert", source, "-o", target)
    assert run.returncode == 0, run.stderr
    return target


@pytest.mark.parametrize("dtype, shape, order, endian", LAYOUTS)
def test_npy_of_any_layout_is_converted(tmp_path, dtype, shape, order, endian):
    array = random_array(dtype, shape, LAYOUTS.index((dtype, shape, order, endian)))
    array = np.array(array.view(array.dtype.newbyteorder(endian)), order=order)
    np.save(tmp_path / "in.npy", array)
    found = convert(tmp_path / "in.npy", tmp_path / "out.npy").read_bytes()
    assert found == npy_bytes(as_written(array))


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_all_versions_of_npy_are_read(tmp_path, version):
    array = np.arange(6.0).reshape(2, 3)
    with open(tmp_path / "in.npy", "wb") as file:
        np.lib.format.write_array(file, array, version)
    assert convert(tmp_path / "in.npy", tmp_path / "out.npy").read_bytes() == npy_bytes(array)


ARRAYS = {
    "Q": np.arange(6.0).reshape(2, 3),
    "W_\u00fc": np.arange(4, dtype=">i2"),
    "empty": np.zeros((0, 3), "f4"),
    "scalar": np.float16(1.5),
    "F": np.asfortranarray(np.arange(12).reshape(3, 4)),
    "a/b": np.array([True, False]),
}


def save_to_pipe(path):
    """zipfile cannot seek in a pipe, so it writes the sizes after the data."""
    np.savez(path.with_name("source.npz"), **ARRAYS)
    program = "import numpy as np, sys; np.savez(sys.stdout.buffer, **np.load(sys.argv[1]))"
    run = subprocess.run([sys.executable, "-c", program, path.with_name("source.npz")],
                         capture_output=True, check=True)
    path.write_bytes(run.stdout)


class TestNpz:
    WRITERS = {
        "stored": lambda path: np.savez(path, **ARRAYS),
        "deflated": lambda path: np.savez_compressed(path, **ARRAYS),
        "piped": save_to_pipe,
    }

    @pytest.fixture(scope="class", params=WRITERS)
    def source(self, request, module_path):
        path = module_path / f"{request.param}.npz"
        self.WRITERS[request.param](path)
        return path

    @pytest.fixture(scope="class")
    def converted(self, source):
        return convert(source, source.with_suffix(".out.npz"))

    def test_names_keep_their_order(self, converted):
        with np.load(converted) as out:
            assert out.files == list(ARRAYS)

    @pytest.mark.parametrize("name", ARRAYS)
    def test_array_is_equal(self, converted, name):
        with np.load(converted) as out:
            assert npy_bytes(out[name]) == npy_bytes(as_written(np.asarray(ARRAYS[name])))

    def test_zipfile_finds_no_fault(self, converted):
        run = subprocess.run([sys.executable, "-m", "zipfile", "-t", converted], capture_output=True)
        assert b"Done testing" in run.stdout
        assert run.stderr == b""

    def test_one_array_is_extracted(self, source, tmp_path):
        found = convert(f"{source}#Q", tmp_path / "one.npy").read_bytes()
        assert found == npy_bytes(ARRAYS["Q"])


WORDS = ["the", "naïve", "猫", "sat"]


class TestStrings:
    """Arrays of strings are not tensors; one named `tokens` labels the others."""

    def saved(self, folder, tokens, **arrays):
        np.savez_compressed(folder / "in.npz", tokens=tokens, **arrays)
        return folder / "in.npz"

    @pytest.mark.parametrize("dtype", ["<U5", ">U7", "S6"])
    def test_tokens_label_the_arrays(self, tmp_path, dtype):
        encoded = [word.encode() for word in WORDS] if dtype[0] == "S" else WORDS
        Q = np.arange(12.0).reshape(4, 3)
        self.saved(tmp_path, np.array(encoded, dtype), Q=Q, K=Q, V=Q)
        run = attn("run", "in.npz", "--format", "json", cwd=tmp_path)
        assert json.loads(run.stdout)["tokens"] == WORDS
        self.saved(tmp_path, np.array(encoded, dtype), weights=np.eye(4))
        shown = attn("view", "in.npz", cwd=tmp_path).stdout.decode()
        assert all(word in shown for word in WORDS)

    @pytest.mark.parametrize("command", ["view w.npy", "run job.json --view"])
    def test_tokens_of_a_file(self, tmp_path, command):
        np.save(tmp_path / "w.npy", np.eye(4))
        np.save(tmp_path / "words.npy", np.array(WORDS))
        (tmp_path / "job.json").write_text('{"Q": "w.npy", "K": "w.npy", "V": "w.npy"}')
        shown = attn(*command.split(), "--tokens", "@words.npy", cwd=tmp_path).stdout.decode()
        assert all(word in shown for word in WORDS)

    def test_tokens_of_two_files_must_agree(self, tmp_path):
        Q = np.ones((2, 3))
        for name, tokens in [("a", ["x", "y"]), ("b", ["x", "z"])]:
            np.savez(tmp_path / f"{name}.npz", tokens=tokens, Q=Q, K=Q, V=Q)
        job = {name: f"a.npz#{name}" for name in "QKV"}
        for keys, expected in [("a.npz#K", ["x", "y"]), ("b.npz#K", None), ("a.npz#K[0:2]", None)]:
            (tmp_path / "job.json").write_text(json.dumps(job | {"K": keys}))
            run = attn("run", "job.json", "--format", "json", cwd=tmp_path)
            assert json.loads(run.stdout).get("tokens") == expected

    def test_other_strings_and_numbers_are_no_labels(self, tmp_path):
        weights = np.eye(2)
        for tokens in [np.arange(2), np.array([["a", "b"]]), np.array("a")]:
            self.saved(tmp_path, tokens, weights=weights, note=np.array(["by", "hand"]))
            shown = attn("inspect", "in.npz", "--json", cwd=tmp_path).stdout.decode()
            assert "weights" in shown and "note" not in shown
            attn("view", "in.npz", "-o", "out.svg", "--force", cwd=tmp_path)
            assert "hand" not in (tmp_path / "out.svg").read_text()

    @pytest.mark.parametrize("tokens", [
        np.array([b"a", b"\xff"]),
        np.frombuffer(np.array([97, 0, 0xD800, 98], "<u4").tobytes(), "<U2"),
        np.frombuffer(np.array([97, 0, 0x110000, 98], "<u4").tobytes(), "<U2"),
    ], ids=["bytes", "surrogate", "beyond"])
    def test_tokens_that_are_no_text(self, tmp_path, tokens):
        self.saved(tmp_path, tokens, weights=np.eye(2))
        run = attn("view", "in.npz", cwd=tmp_path)
        assert_error(run, 65, "in.npz: tokens: string 1 is not Unicode text")

    def test_strings_are_not_numbers(self, tmp_path):
        self.saved(tmp_path, np.array(WORDS), weights=np.eye(4))
        np.save(tmp_path / "words.npy", np.array(WORDS))
        for name in ["in.npz#tokens", "words.npy"]:
            run = attn("inspect", name, cwd=tmp_path)
            assert_error(run, 65, "has strings, not numbers")
        np.save(tmp_path / "numbers.npy", np.arange(4))
        run = attn("view", "in.npz", "--tokens", "@numbers.npy", cwd=tmp_path)
        assert_error(run, 65, "numbers.npy: expected strings on one axis")
        np.savez(tmp_path / "in.npz", tokens=np.array(WORDS))
        run = attn("inspect", "in.npz", cwd=tmp_path)
        assert_error(run, 65, "in.npz: has no array of numbers")
