"""Unusual and hostile inputs: names, streams, sizes that a file only claims, extreme numbers."""

import json
import os
import resource
import subprocess
import sys

import numpy as np
import pytest

from support.attn import ATTN, assert_error, attn, under_asan
from support.safetensors_file import build, entry

ESCAPE = "\x1b[2J\nattn: all is well"


def assert_refused(run, code, text):
    assert_error(run, code, text)
    assert run.stdout == b""
    assert b"\x1b" not in run.stderr


# Names.


@pytest.mark.parametrize("format, text, reason", [
    ("json", '{"": [1], "a": [2]}', "without a name"),
    ("npz", '{"a\\u0000b": [1], "a": [2]}', "NUL"),
], ids=["empty", "with NUL"])
def test_invalid_name_is_refused(format, text, reason):
    assert_refused(attn("convert", "-", "--format", format, stdin=text), 65, reason)


@pytest.mark.parametrize("file, text", [("\x1b[31mx.csv", "1,x\n"), ("\x1b[31mx.json", "[1, }")])
def test_escape_sequence_in_a_file_name_is_escaped(tmp_path, file, text):
    (tmp_path / file).write_text(text)
    assert_refused(attn("inspect", file, cwd=tmp_path), 65, "\\x1b[31mx")


def test_escape_sequence_in_the_name_of_an_output_is_escaped(tmp_path):
    (tmp_path / "cube.json").write_text("[[[1]]]")
    run = attn("convert", "cube.json", "-o", "\x1b[31mx.csv", "--force", cwd=tmp_path)
    assert_refused(run, 65, "\\x1b[31mx")


def test_longest_name_can_be_read_again(tmp_path):
    out = tmp_path / "long.npz"
    assert attn("convert", "-", "-o", out, stdin=json.dumps({"n" * 1020: [1], "b": [2]})).returncode == 0
    assert attn("inspect", out).returncode == 0


@pytest.mark.parametrize("length", [1021, 70000])
def test_name_that_could_not_be_read_is_not_written(tmp_path, length):
    out = tmp_path / "long.npz"
    run = attn("convert", "-", "-o", out, stdin=json.dumps({"n" * length: [1], "b": [2]}))
    assert_refused(run, 65, "can have at most 1020 bytes")
    assert not out.exists()


@pytest.mark.parametrize("arguments", [["run", "-"], ["batch", "-", "--out-dir", "out", "--force"]])
@pytest.mark.parametrize("job", [
    {"Q": "m.safetensors#" + ESCAPE, "K": [[1]]}, {"Q": "m.safetensors#\x1b[2Jc", "K": [[1]]},
    {"Q": ESCAPE, "K": [[1]]}, {ESCAPE: 1}, {"score": ESCAPE}, {"outputs": [ESCAPE]}], ids=json.dumps)
def test_names_in_messages_move_no_cursor_and_forge_no_line(tmp_path, job, arguments):
    (tmp_path / "m.safetensors").write_bytes(build({"a": entry(0, 8), "\x1b[2Jb": entry(8, 16)}, bytes(16)))
    run = attn(*arguments, stdin=json.dumps(job) + "\n", cwd=tmp_path)
    lines = run.stderr.decode().splitlines()
    assert run.returncode in (3, 65, 66)
    assert [line for line in lines if not line.isprintable()] == []
    assert "attn: all is well" not in lines


def test_long_name_is_shortened_in_messages():
    run = attn("run", "-", stdin=json.dumps({"Q": [[1]], "K": [[1]], "k" * 100_000: 1}))
    assert len(run.stderr) < 5000


def test_many_errors_are_summed_up(tmp_path):
    (tmp_path / "job.json").write_text("{" + ",".join(f'"k{i}": 1' for i in range(100_000)) + "}")
    run = attn("run", "job.json", cwd=tmp_path)
    assert_refused(run, 65, "job.json: unknown key 'k0'")
    lines = run.stderr.decode().splitlines()
    assert len(lines) == 11
    assert lines[-1].endswith("and 99990 more errors")


# Many axes.


def draw(axes, file, cwd):
    return attn("random", "randn", "--seed", "1", "--shape", ",".join(["1"] * axes), "-o", file, cwd=cwd)


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors", "json"])
def test_64_axes_can_be_written_and_read(tmp_path, suffix):
    assert draw(64, f"r.{suffix}", tmp_path).returncode == 0
    assert attn("convert", f"r.{suffix}", "-o", "again.npy", "--force", cwd=tmp_path).returncode == 0


def test_65_axes_are_refused(tmp_path):
    assert_refused(draw(65, "r.npy", tmp_path), 2, "shape has 65 axes; at most 64 are supported")


# Streams.


def test_csv_is_read_from_standard_input():
    run = attn("convert", "-", "--format", "json", stdin="a,b\n1,2\n3,4\n")
    assert run.stdout == b"[\n  [1, 2],\n  [3, 4]\n]\n"


def test_svd_reads_csv_from_standard_input():
    assert json.loads(attn("svd", "-", "--format", "json", stdin="2,0\n0,1\n").stdout)["s"] == [2, 1]


def test_bytes_that_are_not_text_are_refused():
    assert_refused(attn("convert", "-", stdin=b"\x00\x01\x02"), 65, "standard input")


def test_empty_standard_input_is_refused():
    assert_refused(attn("convert", "-", stdin=""), 65, "is empty")


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors", "json", "csv"])
def test_empty_file_is_refused(tmp_path, suffix):
    (tmp_path / f"nothing.{suffix}").touch()
    assert_refused(attn("convert", f"nothing.{suffix}", cwd=tmp_path), 65, f"nothing.{suffix}: is empty\n")


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "json"])
def test_file_without_tensors_can_be_read(tmp_path, suffix):
    np.savez(tmp_path / "none.npz")
    assert attn("convert", "none.npz", "-o", f"out.{suffix}", cwd=tmp_path).returncode == 0
    run = attn("inspect", "--json", f"out.{suffix}", cwd=tmp_path)
    assert run.returncode == 0
    assert run.stdout == b""


def test_csv_is_not_a_job():
    assert_refused(attn("run", "-", stdin="1,2\n"), 65, "found one array (CSV)")


@pytest.mark.parametrize("arguments", [
    ["run", "-", "--format", "csv"], ["inspect", "-"], ["compare", "-", "marked.json"],
    ["convert", "-", "--format", "json"]])
def test_byte_order_mark_before_json_is_skipped(tmp_path, arguments):
    marked = b'\xef\xbb\xbf \n{"Q": [[1, 2]], "K": [[1, 2]], "outputs": ["scores"]}'
    (tmp_path / "marked.json").write_bytes(marked)
    from_stdin = attn(*arguments, stdin=marked, cwd=tmp_path)
    from_file = attn(*("marked.json" if word == "-" else word for word in arguments), cwd=tmp_path)
    assert from_stdin.returncode == 0
    assert from_file.returncode == 0
    assert from_stdin.stdout == from_file.stdout


def test_byte_order_mark_before_csv_is_skipped():
    run = attn("convert", "-", "--format", "json", stdin=b"\xef\xbb\xbf1,2\n")
    assert run.stdout == b"[\n  [1, 2]\n]\n"


@pytest.mark.parametrize("command", [
    "'{0}' run /dev/stdin --format csv < sub/job.json",
    "cat sub/job.json | '{0}' run /dev/stdin --format csv",
    "'{0}' run <(cat sub/job.json) --format csv",
    "'{0}' run /proc/self/fd/0 --format csv < sub/job.json",
    "'{0}' run - --format csv < sub/job.json"])
def test_paths_in_a_job_from_a_descriptor_start_in_the_working_folder(tmp_path, command):
    np.save(tmp_path / "q.npy", np.array([[1, 2]]))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "job.json").write_text(json.dumps({"Q": "q.npy", "K": "q.npy", "outputs": ["scores"]}))
    run = subprocess.run(["bash", "-c", command.format(ATTN)], cwd=tmp_path, capture_output=True)
    assert run.stdout == b"5\n", run.stderr


# Sizes that a file claims.


def write_header(path, shape):
    """An .npy file without elements."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())


@pytest.mark.parametrize("rows", [20_000_000, 3_000_000_000])
def test_many_empty_rows_take_no_memory(tmp_path, rows):
    write_header(tmp_path / "q.npy", (rows, 0))
    np.save(tmp_path / "k.npy", np.zeros((2, 0)))

    def limit_memory():
        if not under_asan():
            resource.setrlimit(resource.RLIMIT_DATA, (200 << 20, 200 << 20))

    run = subprocess.run([ATTN, "run", "--q", "q.npy", "--k", "k.npy", "--scale", "none", "-o", "out.npz"],
                         cwd=tmp_path, capture_output=True, preexec_fn=limit_memory,
                         env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    assert_refused(run, 65, "q.npy: Q: expected axis lengths of at most")


def test_empty_rows_have_equal_weights(tmp_path):
    write_header(tmp_path / "q.npy", (1000, 0))
    np.save(tmp_path / "k.npy", np.zeros((2, 0)))
    run = attn("run", "--q", "q.npy", "--k", "k.npy", "--scale", "none", "--outputs", "weights",
               "--format", "json", cwd=tmp_path)
    np.testing.assert_allclose(json.loads(run.stdout)["weights"], np.full((1000, 2), 0.5))


def test_seed_of_three_million_digits_is_refused():
    job = {"seed": "9" * 3_000_000, "generator": "default_rng", "Q": {"random": {"shape": [1, 1]}}, "K": [[1]]}
    assert_refused(attn("run", "-", timeout=60, stdin=json.dumps(job)), 65, "at most 10000 digits")


def test_seed_of_10000_digits_gives_the_numbers_of_numpy():
    sys.set_int_max_str_digits(0)
    seed = 10**9999 + 7
    run = attn("random", "random", "--generator", "default_rng", "--seed", str(seed), "--shape", 3,
               "--format", "json")
    assert json.loads(run.stdout) == np.random.default_rng(seed).random(3).tolist()


# Numbers.


@pytest.mark.parametrize("job, scores", [
    ({"Q": [[1e20, 0]], "K": [[1e20, 0], [0, 1e20]], "compute": "f32"}, [[1.0, 0.0]]),
    ({"Q": [[2**62, 0]], "K": [[4, 0], [3, 4]]}, [[1.0, 0.6]])], ids=["float32", "integers"])
def test_cosine_of_long_vectors_does_not_overflow(job, scores):
    run = attn("run", "-", "--outputs", "scores", "--format", "json", stdin=json.dumps(job | {"score": "cosine"}))
    assert run.stderr == b""
    assert run.returncode == 0
    assert json.loads(run.stdout)["scores"] == scores


@pytest.mark.parametrize("p", [[], [0.5]], ids=["none", "one"])
def test_choice_needs_a_probability_for_each_value(p):
    job = {"seed": 1, "Q": {"choice": {"n": 2, "shape": [1, 1], "p": p}}, "K": [[1]]}
    assert_refused(attn("run", "-", stdin=json.dumps(job)), 65, f"expected 2 probabilities, found {len(p)}")
