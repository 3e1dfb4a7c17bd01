"""Text files of numpy.savetxt, and the names of rows and columns of CSV files."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn

MATRIX = np.random.default_rng(0).standard_normal((4, 3))


def read(path, *flags):
    """The array that the program reads."""
    run = attn("convert", path, "--format", "json", *flags)
    assert run.returncode == 0, run.stderr
    return np.array(json.loads(run.stdout))


# numpy.savetxt.


@pytest.mark.parametrize("options", [{}, {"header": "a b\nc, d"}, {"footer": "end"}, {"delimiter": "\t"},
                                     {"delimiter": ","}, {"delimiter": ", ", "header": "x y z"}, {"newline": "\r\n"},
                                     {"fmt": "%8.3f"}, {"comments": "#!", "header": "x"}], ids=str)
def test_what_savetxt_writes_is_read_as_by_loadtxt(tmp_path, options):
    path = tmp_path / "m.txt"
    np.savetxt(path, MATRIX, **options)
    separator = {"delimiter": ","} if "," in options.get("delimiter", "") else {}
    np.testing.assert_array_equal(read(path), np.loadtxt(path, **separator))


def test_integers_stay_integers(tmp_path):
    np.savetxt(tmp_path / "m.txt", np.arange(6).reshape(2, 3), fmt="%d")
    found = read(tmp_path / "m.txt")
    assert found.dtype.kind == "i" and found.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("text, expected", [
    ("1 2\n\n\n3 4 # last\n", [[1, 2], [3, 4]]), ("a b\n1 2\n", [[1, 2]]), ("\n# x\n 1\t2 ", [[1, 2]]),
    ("nan inf -inf 1e3\n", [["NaN", "Infinity", "-Infinity", 1000.0]]), ("7", [[7]])])
def test_text(tmp_path, text, expected):
    (tmp_path / "m.txt").write_text(text)
    assert json.loads(attn("convert", tmp_path / "m.txt", "--format", "json").stdout) == expected


@pytest.mark.parametrize("text, message", [
    ("1 2\n3\n", "m.txt: line 2: has 1 cell, line 1 has 2"),
    ("# c\n1 2\n\n3 x\n", "m.txt: line 4, column 2: expected a number, found 'x'"),
    ("1;2\n", "m.txt: line 1, column 1: expected a number, found '1;2' (cells are separated by white space or ',')"),
    ("# only\n", "m.txt: has no rows of numbers"), ("just words\n", "m.txt: has no rows of numbers"),
    ("1 2j\n", "found '2j'"), ("", "m.txt: is empty")])
def test_errors_name_the_line(tmp_path, text, message):
    (tmp_path / "m.txt").write_text(text)
    assert_error(attn("convert", "m.txt", "--format", "json", cwd=tmp_path), 65, message)


def test_csv_has_no_cells_separated_by_white_space(tmp_path):
    (tmp_path / "m.csv").write_text("1 2\n")
    assert_error(attn("convert", "m.csv", "--format", "json", cwd=tmp_path), 65, "(cells are separated by ',')")


def test_job_of_text_files(tmp_path):
    for name in "qk":
        np.savetxt(tmp_path / f"{name}.txt", MATRIX)
    run = attn("run", "--q", "q.txt", "--k", "k.txt", "--outputs", "scores", "--format", "json", cwd=tmp_path)
    np.testing.assert_allclose(json.loads(run.stdout)["scores"], MATRIX @ MATRIX.T, rtol=1e-13)


# Names of rows and columns.

WORDS = ",x,y,z\n" + "".join(f"{word},{i},{i + 1},{i + 2}\n" for i, word in enumerate(["the", "cat", '"a ""b"", c"']))
TOKENS = ["the", "cat", 'a "b", c']


def run_json(folder, *words):
    run = attn("run", *words, "-o", "out.json", "--force", cwd=folder)
    assert (run.returncode, run.stderr) == (0, b"")
    return json.loads((folder / "out.json").read_text())


@pytest.mark.parametrize("words, tokens", [
    (["--embeddings", "words.csv"], TOKENS), (["--q", "words.csv", "--k", "words.csv", "--v", "K"], TOKENS),
    (["--embeddings", "words.csv", "--tokens", "1,2,3"], ["1", "2", "3"]),
    (["--q", "words.csv", "--k", "other.csv", "--v", "K"], None),
    (["--q", "words.csv", "--k", "plain.csv", "--v", "K"], None),
    (["--embeddings", "words.csv", "--memory", "other.csv"], None), (["--embeddings", "plain.csv"], None),
    (["--embeddings", "words.csv#[0:2]"], None)])
def test_names_of_rows_are_tokens(tmp_path, words, tokens):
    (tmp_path / "words.csv").write_text(WORDS)
    (tmp_path / "other.csv").write_text(WORDS.replace("cat", "dog"))
    (tmp_path / "plain.csv").write_text("1,2,3\n4,5,6\n7,8,9\n")
    assert run_json(tmp_path, *words).get("tokens") == tokens


def test_names_of_rows_are_tokens_of_a_job_file(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "words.csv").write_text(WORDS)
    (tmp_path / "in" / "job.json").write_text('{"embeddings": "words.csv"}')
    assert run_json(tmp_path, "in/job.json")["tokens"] == TOKENS


def test_view_shows_the_names(tmp_path):
    (tmp_path / "words.csv").write_text(WORDS)
    lines = attn("view", "words.csv", "--width", "80", cwd=tmp_path).stdout.decode().splitlines()
    [header] = [line for line in lines if line.split() == ["x", "y", "z"]]
    rows = lines[lines.index(header) + 1:][:3]
    assert [row[:len(token)].strip() for row, token in zip(rows, TOKENS)] == TOKENS


def test_names_count_towards_the_limit_on_memory(tmp_path):
    (tmp_path / "words.csv").write_text(",x\n" + "".join(f"{i:0>9000},1\n" for i in range(200)))
    assert_error(attn("view", "words.csv", "--max-memory", "2500000", cwd=tmp_path), 65, "bytes of memory")
