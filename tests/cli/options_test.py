"""The syntax of options: values after a space, hints for unknown flags, text and terminal options."""

import json
import os
import pty
import subprocess

import numpy as np
import pytest

from support.attn import ATTN, assert_error, attn


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1.23456, 2e-9], [3.0, 4]]))
    np.save(tmp_path / "b.npy", np.array([[1.23456, 2e-9], [3.0, 5]]))
    (tmp_path / "job.json").write_text(json.dumps({"Q": "a.npy", "K": "a.npy"}))
    return tmp_path


def on_terminal(*args, cwd):
    """Runs attn with standard output on a terminal; returns the exit code and the output."""
    main, other = pty.openpty()
    run = subprocess.Popen([ATTN, *args], stdout=other, stderr=subprocess.PIPE, cwd=cwd)
    os.close(other)
    _, err = run.communicate(timeout=60)
    os.close(main)
    return run.returncode, err.decode()


@pytest.mark.parametrize("arguments", [
    ["run", "--view", "x.svg", "job.json"], ["run", "job.json", "--view", "x.svg"],
    ["run", "job.json", "--view=x.svg"], ["compare", "a.npy", "a.npy", "--view", "x.svg"]])
def test_view_takes_a_picture_after_a_space(folder, arguments):
    run = attn(*arguments, cwd=folder)
    assert run.returncode == 0
    assert (folder / "x.svg").read_text().startswith("<svg")


def test_view_does_not_take_a_job_as_its_value(folder):
    run = attn("run", "--view", "job.json", cwd=folder)
    assert run.returncode == 0
    assert run.stdout


@pytest.mark.parametrize("arguments, hint", [
    (["run", "job.json", "--view", "--head", "1"], "'attn view RESULT' has --head; --heads sets the number of heads"),
    (["run", "job.json", "-o", "x.npz", "--overwrite"], "use --force to overwrite existing files"),
    (["convert", "a.npy", "-o", "b.npy", "-f"], "use --force to overwrite existing files"),
    (["batch", "job.json", "-o", "x"], "use --out-dir for results in files"),
    (["batch", "job.json", "--workers", "2"], "-j (--jobs) sets the number of concurrent jobs"),
    (["batch", "job.json", "--parallel", "2"], "-j (--jobs) sets the number of concurrent jobs"),
    (["random", "rand", "--seed", "1", "--size", "3"], "use --shape"),
])
def test_flag_of_other_programs_gets_a_hint(folder, arguments, hint):
    run = attn(*arguments, cwd=folder)
    assert_error(run, 2, hint)
    assert b"did you mean" not in run.stderr


def test_words_after_two_dashes_are_not_flags(folder):
    run = attn("run", "--", "job.json", "--outputs", "w", cwd=folder)
    assert_error(run, 2, "unexpected argument '--outputs'")


def test_several_outputs_in_one_option_are_refused(folder):
    run = attn("run", "job.json", "-o", "weights=w.npy,context=c.npy", cwd=folder)
    assert_error(run, 2, "expected one NAME=FILE; repeat -o for each output")
    assert not list(folder.glob("w.npy*"))


def test_output_option_takes_one_value(folder):
    assert attn("run", "-o", "x.npz", "job.json", cwd=folder).returncode == 0
    assert (folder / "x.npz").exists()


@pytest.mark.parametrize("arguments", [["svd", "a.npy"], ["run", "job.json"], ["convert", "a.npy"]])
def test_precision_applies_to_text(folder, arguments):
    digits = attn(*arguments, "--precision", "2", "--suppress", cwd=folder)
    assert digits.returncode == 0
    assert b"." in digits.stdout
    assert not [word for word in digits.stdout.replace(b"]", b" ").split()
                if b"." in word and word[0:1].isdigit() and len(word.split(b".")[1]) > 2]


@pytest.mark.parametrize("arguments", [
    ["svd", "a.npy", "-o", "f.npz"], ["run", "job.json", "--format", "json"]])
def test_precision_requires_text(folder, arguments):
    run = attn(*arguments, "--precision", "2", cwd=folder)
    assert_error(run, 2, "--precision requires text on standard output")


@pytest.mark.parametrize("arguments, code", [
    (["run", "job.json", "--view"], 0), (["compare", "a.npy", "b.npy", "--view"], 1)])
def test_width_and_color_apply_to_view(folder, arguments, code):
    run = attn(*arguments, "--width", "40", "--color", "always", cwd=folder)
    assert run.returncode == code
    assert b"\x1b[" in run.stdout


@pytest.mark.parametrize("arguments, companion", [
    (["run", "job.json"], "--view or --explain on the terminal"),
    (["run", "job.json", "--view=x.svg"], "--view or --explain on the terminal"),
    (["compare", "a.npy", "b.npy"], "--view on the terminal")])
def test_width_requires_view_on_the_terminal(folder, arguments, companion):
    assert_error(attn(*arguments, "--width", "40", cwd=folder), 2, f"--width requires {companion}")


def test_quiet_comparison_prints_nothing(folder):
    run = attn("compare", "a.npy", "b.npy", "-q", cwd=folder)
    assert (run.returncode, run.stdout, run.stderr) == (1, b"", b"")


def test_quiet_comparison_prints_json(folder):
    run = attn("compare", "a.npy", "b.npy", "-q", "--json", cwd=folder)
    assert json.loads(run.stdout)["same"] is False


@pytest.mark.parametrize("arguments", [
    ["run", "job.json", "--format", "npz"], ["convert", "a.npy", "--format", "npy"],
    ["svd", "a.npy", "--format", "safetensors"]])
def test_binary_formats_are_refused_on_a_terminal(folder, arguments):
    code, err = on_terminal(*arguments, cwd=folder)
    assert code == 2
    assert "refusing to write binary data to the terminal" in err


@pytest.mark.parametrize("value", ["banana", "2"])
def test_switch_takes_true_or_false_only(folder, value):
    run = attn("convert", "a.npy", f"--repr={value}", cwd=folder)
    assert_error(run, 2, f"--repr: expected true or false, found '{value}'")


def test_list_of_no_values_is_refused(folder):
    assert_error(attn("view", "a.npy", "--tokens", ",", cwd=folder), 2, "--tokens: expected values, found ','")


@pytest.mark.parametrize("flag", ["--tokens", "--key-tokens"])
@pytest.mark.parametrize("value, code, error", [
    ("[[1]]", 2, "expected a list of strings, found [[1]]"),
    ("[1,2]", 2, "expected a list of strings, found [1,2]"),
    ("{}", 2, "expected a list of strings, found {}"),
    ("[", 65, "line 1, column 2: expected a value or ']', found the end of the file"),
    ('["a"', 65, "line 1, column 5: expected ',' or ']', found the end of the file"),
    ("[,a,]", 65, "line 1, column 2: expected a value or ']', found ','")])
def test_labels_in_brackets_are_json(folder, flag, value, code, error):
    run = attn("view", "a.npy", flag, value, cwd=folder)
    assert_error(run, code, f"{flag}: {error}")
    if flag == "--tokens":
        same = attn("run", "--q", "a.npy", "--k", "a.npy", flag, value, cwd=folder)
        assert (same.returncode, same.stderr) == (run.returncode, run.stderr)


@pytest.mark.parametrize("rows, same", [("0:2", "0,1"), ("1:2,0", "1,0"), ("0:1,-1", "0,-1")])
def test_rows_takes_ranges(folder, rows, same):
    ranges = attn("run", "job.json", "--rows", rows, cwd=folder)
    assert ranges.returncode == 0
    assert ranges.stdout == attn("run", "job.json", "--rows", same, cwd=folder).stdout


@pytest.mark.parametrize("rows", ["0:", ":2", "2:0", "0:x", "0:99999999999"])
def test_rows_refuses_open_or_empty_ranges(folder, rows):
    assert_error(attn("run", "job.json", "--rows", rows, cwd=folder), 2, "--rows")
