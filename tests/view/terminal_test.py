"""`attn view` and `attn run --view` on the terminal: contents, width, colours."""

import json
import os
import pty
import re
import subprocess
import unicodedata

import numpy as np
import pytest

from support.attn import ATTN, assert_error, attn

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def view(tmp_path):
    """Runs `attn view` in the test's folder and returns its text."""
    def view(*arguments):
        run = attn("view", *arguments, cwd=tmp_path)
        assert run.returncode == 0
        return run.stdout.decode()
    return view


# A causal result of two tokens.


class TestCausalResult:
    @pytest.fixture(autouse=True)
    def result(self, tmp_path):
        job = {"Q": [[1, 0], [0, 2]], "K": [[1, 0], [0, 3]], "causal": True, "scale": "none",
               "tokens": ["one", "two"], "outputs": ["weights", "masked_scores", "scores"]}
        (tmp_path / "job.json").write_text(json.dumps(job))
        assert attn("run", "job.json", "-o", "r.npz", "-o", "r.json", cwd=tmp_path).returncode == 0

    @pytest.fixture
    def lines(self, view):
        return view("r.npz").splitlines()

    def test_has_a_title_and_names_its_axes(self, lines):
        assert lines[0] == "weights"
        assert "key (column)" in lines[1]
        assert lines[2:4] == ["queries down, keys across", ""]

    def test_has_labels_and_values(self, lines):
        low, high = 1 / (1 + np.exp(6)), 1 / (1 + np.exp(-6))
        assert lines[4:6] == ["      one     two", "one    1    ╱╱╱╱╱╱╱╱"]
        assert lines[6].split() == ["two", f"{low:.3f}", f"{1 if high > .995 else high:.2g}"]

    def test_has_a_legend_of_hidden_keys(self, lines):
        assert "hidden" in lines[-1]
        assert "\n".join(lines).count("╱") == 9

    def test_has_no_spaces_at_line_ends(self, lines):
        assert [line for line in lines if line != line.rstrip()] == []

    def test_is_the_same_from_json(self, view):
        assert view("r.json") == view("r.npz")

    def test_is_the_same_from_standard_input(self, view, tmp_path):
        with open(tmp_path / "r.npz", "rb") as stdin:
            assert subprocess.run([ATTN, "view", "-"], stdin=stdin, capture_output=True).stdout.decode() == view("r.npz")

    def test_is_the_same_from_run(self, view, tmp_path):
        assert attn("run", "job.json", "--view", cwd=tmp_path).stdout.decode() == view("r.npz")

    def test_run_writes_the_same_picture_as_view(self, view, tmp_path):
        run = attn("run", "job.json", "--outputs", "weights", "-o", "w.npz", "--view=w.svg", cwd=tmp_path)
        assert (run.returncode, run.stdout) == (0, b"")
        view("r.npz", "-o", "v.svg")
        assert (tmp_path / "w.svg").read_text() == (tmp_path / "v.svg").read_text()

    def test_view_adds_no_outputs_to_the_result(self, tmp_path):
        attn("run", "job.json", "--outputs", "weights", "-o", "w.npz", "--view=w.svg", cwd=tmp_path)
        with np.load(tmp_path / "w.npz") as result:
            assert result.files == ["weights"]

    def test_of_chooses_a_tensor(self, view):
        assert "scores" in view("r.npz", "--of", "scores").splitlines()[0]

    @pytest.mark.parametrize("name", ["r.npz", "r.json"])
    def test_member_chooses_a_tensor(self, view, name):
        assert view(f"{name}#scores") == view(name, "--of", "scores")

    def test_members_can_be_compared_on_a_page(self, view, tmp_path):
        view("r.npz#scores", "r.json#weights", "-o", "both.html")
        assert '"sets":["r.npz#scores","r.json#weights"]' in (tmp_path / "both.html").read_text()


# Width.


def width_of(line):
    """The number of terminal columns of a line."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
               for c in line)


@pytest.mark.parametrize("colour", ["never", "always"])
@pytest.mark.parametrize("width", [20, 80, 200])
@pytest.mark.parametrize("shape", [(4, 4), (32, 32), (40, 128), (128, 128), (6, 20, 20), (12, 64, 64)], ids=str)
def test_text_fits_the_width(view, tmp_path, shape, width, colour):
    words = ["cat", "neighbourhood", "猫", "e\u0301te\u0301", "a"]
    np.savez(tmp_path / "w.npz", weights=np.random.default_rng(5).random(shape))
    text = view("w.npz", "--width", width, "--color", colour,
                "--tokens", ",".join(words[i % 5] for i in range(shape[-1])))
    widest = max(width_of(line) for line in ESCAPE.sub("", text).splitlines())
    assert ("\x1b[" in text) == (colour == "always")
    assert widest <= width
    if width >= 80 and shape != (4, 4):
        assert widest > 40, "the width is used"


# Colours.


@pytest.fixture
def on_terminal(tmp_path):
    """Runs `attn view` on a terminal with these environment variables, and returns what it prints."""
    np.savez(tmp_path / "w.npz", weights=np.array([[0.25, 1.0]]))

    def on_terminal(*arguments, **environment):
        our_end, other_end = pty.openpty()
        subprocess.run([ATTN, "view", tmp_path / "w.npz", *arguments], stdout=other_end, check=True,
                       env={"PATH": os.environ["PATH"], **environment})
        os.close(other_end)
        text = b""
        try:
            while part := os.read(our_end, 65536):
                text += part
        except OSError:
            pass  # the other end is closed
        os.close(our_end)
        return text.decode()
    return on_terminal


def test_truecolor_terminal_gets_24_bit_colours(on_terminal):
    assert "[48;2;253;244;180m" in on_terminal(TERM="xterm", COLORTERM="truecolor")


def test_256_color_terminal_gets_palette_colours(on_terminal):
    text = on_terminal(TERM="xterm-256color")
    assert "[48;5;229m" in text
    assert "[48;2" not in text


@pytest.mark.parametrize("flags, environment, coloured", [
    ([], {"TERM": "dumb"}, False), ([], {}, False), ([], {"TERM": "xterm"}, False),
    ([], {"TERM": "xterm-256color", "NO_COLOR": "1"}, False),
    ([], {"TERM": "xterm-256color", "NO_COLOR": ""}, True),
    (["--color", "always"], {"TERM": "dumb"}, True),
    (["--color", "never"], {"TERM": "xterm-256color"}, False)],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else None)
def test_colours_follow_the_flag_and_the_environment(on_terminal, flags, environment, coloured):
    assert ("\x1b" in on_terminal(*flags, **environment)) == coloured


def test_pipe_gets_no_colours(tmp_path):
    np.savez(tmp_path / "w.npz", weights=np.array([[0.25, 1.0]]))
    run = subprocess.run([ATTN, "view", tmp_path / "w.npz"], capture_output=True, check=True,
                         env={"TERM": "xterm-256color", "COLORTERM": "truecolor"})
    assert b"\x1b" not in run.stdout


# Parts of a tensor, limits and labels.


class TestChoices:
    WEIGHTS = np.arange(1, 1 + 2 * 3 * 4 * 5).reshape(2, 3, 4, 5) / 200

    @pytest.fixture(autouse=True)
    def files(self, tmp_path):
        np.savez(tmp_path / "w.npz", weights=self.WEIGHTS)
        np.save(tmp_path / "w.npy", self.WEIGHTS[0, 0])

    @pytest.fixture
    def chosen(self, view):
        return view("w.npz", "--batch", "1", "--head", "2", "--rows", "3,0", "--cols", "1:3,-1").splitlines()

    def test_rows_and_columns_are_chosen(self, chosen):
        values = [[float(word) for word in line.split()[1:]] for line in chosen[5:7]]
        np.testing.assert_allclose(values, self.WEIGHTS[1, 2][[3, 0]][:, [1, 2, 4]], rtol=1e-5, atol=6e-3)

    def test_title_names_batch_and_head(self, chosen):
        assert "batch 1, head 2" in chosen[0]

    def test_labels_are_indices(self, chosen):
        assert chosen[4].split() == ["1", "2", "4"]

    def test_npy_has_its_file_name_as_title(self, view):
        assert "w.npy" in view("w.npy", "--vmax", "2").splitlines()[0]

    def test_vmax_ends_the_scale(self, view):
        assert view("w.npy", "--vmax", "2").splitlines()[-1].endswith(" 2")

    def test_key_tokens_label_the_columns(self, view):
        lines = view("w.npy", "--tokens", "a,b,c,d", "--key-tokens", "v,w,x,y,z").splitlines()
        assert lines[3].split() == list("vwxyz")
        assert lines[4][0] == "a"

    def test_tokens_cannot_control_the_terminal(self, view):
        assert "\x1b" not in view("w.npy", "--tokens", "\x1b[2Jx,b,c,d")


# Names of the axes.


def axes_of_tensors():
    """Job, tensor, and the names of its rows and columns by the shapes that attn documents."""
    rng = np.random.default_rng(2)
    job = {"embeddings": rng.random((3, 4)).tolist(), "heads": 2, "position": {"kind": "sinusoidal"},
           "tokens": ["one", "two", "six"],
           **{f"W_{x}": rng.random((4, 4)).tolist() for x in "QKVO"}}
    past = {"Q": rng.random((3, 4)).tolist(), "K": rng.random((3, 4)).tolist(), "heads": 2,
            "past_K": rng.random((2, 1, 2)).tolist(), "past_V": rng.random((2, 1, 2)).tolist()}
    split = {"Q": rng.random((2, 2, 3, 4)).tolist(), "K": rng.random((2, 2, 5, 4)).tolist()}
    blhd = {"Q": rng.random((2, 3, 2, 4)).tolist(), "K": rng.random((2, 5, 2, 4)).tolist(), "layout": "blhd"}
    batch = {"Q": rng.random((2, 3, 4)).tolist(), "K": rng.random((2, 5, 4)).tolist()}
    cases = [(job, {"positions": "tokens columns", "inputs": "tokens columns", "embeddings": "tokens columns",
                    "W_Q_heads": "rows columns", "W_Q": "rows columns", "queries": "queries columns",
                    "keys": "keys columns", "values": "keys columns", "scores": "queries keys",
                    "scaled_scores": "queries keys", "masked_scores": "queries keys", "weights": "queries keys",
                    "mean_weights": "queries keys", "key_weights": "heads keys", "row_max": "heads queries",
                    "logsumexp": "heads queries", "head_context": "queries columns",
                    "context": "queries columns", "output": "queries columns"}),
             (past, {"present_K": "keys columns", "present_V": "keys columns", "past_K": "keys columns",
                     "Q": "queries columns", "K": "keys columns"}),
             (split, {"context": "queries columns", "logsumexp": "heads queries", "Q": "queries columns"}),
             (blhd, {"context": "heads columns", "queries": "queries columns", "Q": "heads columns"}),
             (batch, {"logsumexp": "batches queries", "key_weights": "batches keys", "mean_weights": "queries keys",
                      "weights": "queries keys", "context": "queries columns"})]
    for document, tensors in cases:
        for name, axes in tensors.items():
            yield pytest.param({**document, "outputs": list(tensors)}, name, *axes.split())


@pytest.mark.parametrize("job, name, rows, columns", axes_of_tensors())
def test_axes_are_named(view, tmp_path, job, name, rows, columns):
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert attn("run", "job.json", "-o", "axes.npz", cwd=tmp_path).returncode == 0
    lines = view("axes.npz", "--of", name, "--color", "never").splitlines()
    assert f"{rows} down, {columns} across" in lines
    labelled = any("one" in line.split() for line in lines)
    assert labelled == ("tokens" in job and bool({"tokens", "queries", "keys"} & {rows, columns}))
    if "Q" in job and np.ndim(job["Q"]) == 3 and name in ("weights", "mean_weights", "context"):
        assert any("batch 1" in line for line in lines)


def test_axes_of_an_unknown_array_are_rows_and_columns(view, tmp_path):
    np.save(tmp_path / "q.npy", np.ones((3, 4)))
    assert "rows down, columns across" in view("q.npy")


# Errors.


@pytest.fixture
def files(tmp_path):
    np.savez(tmp_path / "w.npz", weights=np.ones((2, 2)), empty=np.ones((0, 3)))
    np.save(tmp_path / "q4.npy", np.ones((2, 2)))
    (tmp_path / "none.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (tmp_path / "w.svg").write_text("kept")
    return tmp_path


@pytest.mark.parametrize("flags, code, texts", [
    (["--of", "wieghts"], 2, ["did you mean 'weights'", "--of"]),
    (["--head", "0"], 2, ["--head", "no such axis"]),
    (["--rows", "2"], 2, ["--rows 2", "-2 to 1"]),
    (["--rows", "x"], 2, ["--rows x"]),
    (["--cols", "2:"], 2, ["--cols 2:", "nothing"]),
    (["--vmin", "3", "--vmax", "1"], 2, ["--vmin below --vmax"]),
    (["--log", "--vmin", "0"], 2, ["--vmin", "--log"]),
    (["--of", "empty"], 65, ["empty", "(0, 3)"]),
    (["-o", "w.gif"], 2, ["w.gif", ".svg"]),
    (["-o", "w.svg"], 73, ["w.svg"])])
def test_invalid_flags_are_refused(files, flags, code, texts):
    run = attn("view", "w.npz", *flags, cwd=files)
    assert_error(run, code, *texts)
    assert run.stderr.count(b"\n") == 1
    assert run.stdout == b""
    assert (files / "w.svg").read_text() == "kept"


@pytest.mark.parametrize("arguments, code, message", [
    (["q4.npy", "--of", "weights"], 2,
     "q4.npy: has no tensor weights; its only tensor is unnamed: omit --of"),
    (["none.safetensors", "--of", "weights"], 2, "none.safetensors: has no tensor weights, nor any other tensor"),
    (["none.safetensors"], 2, "none.safetensors: has no tensor weights, nor any other tensor"),
    (["w.npz#other"], 65, "w.npz: has no array 'other'; its arrays: weights, empty"),
    (["q4.npy#other"], 65, "q4.npy: has no array 'other'; its only array is unnamed"),
    (["w.npz#weights", "--of", "empty"], 2, "--of: w.npz#weights already names the tensor to draw"),
])
def test_missing_tensor_is_described(files, arguments, code, message):
    run = attn("view", *arguments, cwd=files)
    assert run.stderr.decode() == f"attn: {message}\n"
    assert run.returncode == code
    assert run.stdout == b""


def test_missing_file_is_an_error(tmp_path):
    assert attn("view", "none.npz", cwd=tmp_path).returncode == 66
