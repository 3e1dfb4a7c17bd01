"""`attn view` and `attn run --view` on the terminal: contents, width, colours."""

import colorsys
import json
import math
import os
import pty
import re
import subprocess
import unicodedata

import numpy as np
import pytest

from support.attn import ATTN, assert_error, attn, under_sanitizer

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


def palette_colour(index):
    """Red, green and blue of an entry of xterm's 256 colours, from 0 to 1."""
    if index >= 232:
        return ((8 + 10 * (index - 232)) / 255,) * 3
    steps = (0, 95, 135, 175, 215, 255)
    return tuple(steps[(index - 16) // place % 6] / 255 for place in (36, 6, 1))


class TestPalette:
    """The colours of the bar, from low to high values, with 256 colours."""

    @pytest.fixture
    def colours(self, view, tmp_path):
        def colours(**arrays):
            np.savez(tmp_path / "p.npz", **arrays)
            bar = view("p.npz", "--color", "always", "--width", "80").splitlines()[-1]
            return [palette_colour(int(index)) for index in re.findall(r"48;5;(\d+)m", bar)]
        return colours

    def test_signed_values_keep_the_hue_of_their_sign(self, colours):
        found = colours(scores=np.array([[-1.0, 1]]))
        hues = [360 * colorsys.rgb_to_hsv(*colour)[0] for colour in found]
        assert all(200 <= hue <= 260 for hue in hues[:11])
        assert all(0 <= hue <= 40 for hue in hues[-11:])

    def test_low_third_of_weights_is_not_grey(self, colours):
        third = colours(weights=np.array([[0.25, 1.0]]))[:8]
        assert all(colorsys.rgb_to_hsv(*colour)[1] > 0.5 for colour in third)
        assert len(set(third)) >= 3


# Cells without numbers.

SIGNED = np.array([[3.0, -3, 1, -1, 0.1, -0.1]])


@pytest.mark.parametrize("columns", [60, 30], ids=["one column each", "two columns each"])
def test_signs_are_visible_without_colour(view, tmp_path, columns):
    np.savez(tmp_path / "s.npz", scores=np.tile(SIGNED, columns // 6))
    lines = view("s.npz", "--width", "80").splitlines()
    width = 60 // columns
    cells = lines[5][2:2 + 6 * width:width]
    assert cells == "█#░-··"
    assert set("#≡=-·░▒▓█") == set(lines[-1].split()[1])


class TestNan:
    VALUES = np.where(np.arange(2400).reshape(40, 60) == 10 * 60 + 20, np.nan, 0.5)

    @pytest.fixture(params=["always", "never"])
    def lines(self, view, tmp_path, request):
        np.savez(tmp_path / "n.npz", weights=self.VALUES)
        return ESCAPE.sub("", view("n.npz", "--width", "80", "--color", request.param)).splitlines()

    def test_is_marked_in_its_cell(self, lines):
        row = next(line for line in lines if line.startswith("10 "))
        assert row.index("?") == 3 + 20
        assert "".join(lines[5:45]).count("?") == 1

    def test_hides_no_other_row(self, lines):
        assert [line.split()[0] for line in lines[5:45]] == [str(i) for i in range(40)]

    def test_is_in_the_legend(self, lines):
        assert lines[-1] == "? nan"


class TestZeros:
    """Weights of exactly 0 are hidden keys, or underflowed."""

    WEIGHTS = np.array([[1, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]]).repeat(8, axis=1).repeat(8, axis=0) / 8

    def test_differ_from_hidden_keys(self, view, tmp_path):
        np.savez(tmp_path / "z.npz", weights=self.WEIGHTS)
        text = view("z.npz")
        assert "╱" not in text
        assert text.splitlines()[-1] == "blank: exactly 0"

    def test_are_values_if_the_file_has_masked_scores(self, view, tmp_path):
        masked = np.where(np.triu(np.ones((24, 24)), 1) > 0, -np.inf, 0)
        np.savez(tmp_path / "z.npz", weights=self.WEIGHTS, masked_scores=masked)
        lines = view("z.npz").splitlines()
        assert lines[5] == "0  ██" + "╱" * 46
        assert lines[-1] == "╱ hidden"
        assert lines[5 + 23][3:].startswith("··")

    def test_are_shown_in_differences(self, tmp_path):
        np.savez(tmp_path / "a.npz", weights=self.WEIGHTS)
        np.savez(tmp_path / "b.npz", weights=self.WEIGHTS * np.array([1.01] + [1] * 23))
        run = attn("compare", "a.npz", "b.npz", "--view", cwd=tmp_path)
        assert run.stdout.decode().splitlines()[-1] == "blank: exactly 0"


# Labels.


class TestManyColumns:
    @pytest.fixture
    def lines(self, view, tmp_path):
        np.savez(tmp_path / "w.npz", weights=np.full((512, 512), 0.5))
        return view("w.npz", "--width", "80").splitlines()

    def test_have_indices_in_one_line(self, lines):
        indices = [int(word) for word in lines[5].split()]
        assert indices == list(range(0, 512, 50)), "round numbers"
        assert lines[6].startswith("0 ")

    def test_have_each_index_at_its_column(self, lines):
        for index in lines[5].split():
            assert lines[5].index(f" {index}") + 1 == 4 + int(index) // 7


def test_many_heads_are_small(view, tmp_path):
    np.savez(tmp_path / "w.npz", weights=np.full((6, 1, 12, 30, 30), 1 / 30))
    lines = view("w.npz", "--width", "80").splitlines()
    assert len(lines) < 250
    assert max(map(len, lines)) <= 80
    assert sum(line.count("head ") for line in lines) == 72


def test_empty_tokens_are_visible(view, tmp_path):
    np.savez(tmp_path / "w.npz", weights=np.full((3, 3), 1 / 3))
    lines = view("w.npz", "--tokens", '["a", "", "  "]').splitlines()
    assert [line.split()[0] for line in lines[5:8]] == ["a", '""', "\u2423\u2423"]


def test_title_replaces_the_name(view, tmp_path):
    np.savez(tmp_path / "w.npz", weights=np.full((3, 3), 1 / 3))
    assert view("w.npz", "--title", "Layer 3").splitlines()[0] == "Layer 3"


def test_job_is_not_a_result(tmp_path):
    (tmp_path / "job.json").write_text('{"Q": [[1]], "K": [[1]], "V": [[1]]}')
    run = attn("view", "job.json", cwd=tmp_path)
    assert run.returncode == 2
    assert run.stderr.decode() == "attn: job.json: is a job: use 'attn run job.json --view'\n"


def test_more_than_64_keys_have_a_root_scale(view, tmp_path):
    """As on pages. Without colours, four fifths of the bar are above the square of a fifth."""
    w = np.zeros((1, 70))
    w[0, ::10] = 0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 1
    np.savez(tmp_path / "w.npz", weights=w)
    shades = view("w.npz", "--width", "100", "--color", "never")
    assert "square-root scale" in shades
    row = next(line for line in shades.splitlines() if line.startswith("0 ") and "\u2588" in line)
    assert [row[2 + 10 * k] for k in range(7)] == [*"\u2591\u2592\u2593\u2593\u2588\u2588\u2588"]
    assert "square-root scale" not in view("w.npz", "--width", "100", "--linear")
    assert_error(attn("view", "w.npz", "--linear", "--log", cwd=tmp_path), 2, "--log and --linear are mutually exclusive")
    np.savez(tmp_path / "w.npz", weights=w[:, :64])
    assert "square-root scale" not in view("w.npz", "--width", "100")


class TestGrid:
    @pytest.fixture
    def grid(self, view, tmp_path):
        def grid(shape, *arguments):
            np.savez(tmp_path / "w.npz", weights=np.full(shape, 0.5))
            return view("w.npz", *arguments).splitlines()
        return grid

    def test_starts_a_line_for_each_layer(self, grid):
        lines = grid((2, 1, 3, 8, 8), "--width", "200")
        assert [line for line in lines if line.startswith("layer")] == ["layer 0", "layer 1"]
        assert lines[lines.index("layer 1") + 1].split() == "head 0 head 1 head 2".split()

    def test_shows_whole_names_of_heads(self, grid):
        text = "\n".join(grid((12, 3, 3), "--width", "60"))
        assert re.findall(r"head \d+", text) == [f"head {i}" for i in range(12)]

    def test_has_the_tokens_of_its_rows(self, grid):
        words = [f"word{i}" for i in range(24)]
        lines = grid((3, 24, 24), "--width", "80", "--tokens", ",".join(words))
        assert [line.split()[0] for line in lines if line.startswith("word")] == 2 * words  # two lines of heads

    def test_has_the_tokens_of_its_columns(self, grid):
        lines = grid((3, 24, 24), "--width", "80", "--tokens", ",".join("abcdefghijklmnopqrstuvwx"))
        assert lines[5].split() == 3 * ["abcdefghijklmnopqrstuvwx"]


@pytest.mark.parametrize("rows", ["4,5", "-1", "1:3"])
def test_computed_rows_are_labelled_with_their_positions(tmp_path, rows):
    np.save(tmp_path / "x.npy", np.eye(6))
    run = attn("run", "--q", "x.npy", "--k", "x.npy", "--rows=" + rows, "--outputs", "weights", "--view",
               cwd=tmp_path)
    lines = run.stdout.decode().splitlines()
    expected = {"4,5": ["4", "5"], "-1": ["-1"], "1:3": ["1", "2"]}[rows]
    body = [line.split()[0] for line in lines[lines.index("") + 2:] if line.strip()]
    assert body[:len(expected)] == expected


FAMILY = "👩\u200d👩\u200d👧"  # one grapheme cluster


class TestEmoji:
    @pytest.fixture
    def label(self, view, tmp_path):
        np.savez(tmp_path / "w.npz", weights=np.full((2, 2), 0.5))
        return lambda token: view("w.npz", "--tokens", f"{token},b").splitlines()[5]

    def test_joined_emoji_are_one_label(self, label):
        assert label(FAMILY).split() == [FAMILY, "0.5", "0.5"]

    def test_long_labels_are_cut_between_emoji(self, label):
        assert label(9 * FAMILY).split()[0] == 6 * FAMILY + "…"

    def test_joiners_between_letters_are_escaped(self, label):
        assert label("a\u200db").split()[0] == "a\\xe2\\x80\\x8db"


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

    @pytest.mark.parametrize("contents", ["a,b\n[CLS]\n\nd\n", '["a,b", "[CLS]", "", "d"]', "a,b\r\n[CLS]\r\n\r\nd"])
    def test_tokens_from_a_file(self, view, tmp_path, contents):
        (tmp_path / "tokens").write_text(contents, newline="")
        lines = view("w.npy", "--tokens", "@tokens").splitlines()
        assert [line[:6].strip() for line in lines[4:8]] == ["a,b", "[CLS]", '""', "d"]

    def test_tokens_from_a_json_array(self, view):
        assert view("w.npy", "--tokens", '["a,b","c","d","e"]').splitlines()[4].startswith("a,b ")

    @pytest.mark.parametrize("flag, warned", [
        ("--tokens=a,b", True), ("--tokens=a,b,c,d", False), ("--tokens=v,w,x,y,z", False),
        ("--key-tokens=a,b,c,d", True), ("--key-tokens=v,w,x,y,z", False)])
    def test_labels_that_fit_no_axis_cause_a_warning(self, view, tmp_path, flag, warned):
        run = attn("view", "w.npy", flag, cwd=tmp_path)
        assert run.returncode == 0
        assert (b"positions are shown" in run.stderr) == warned

    @pytest.mark.parametrize("flag, heads", [("0,2", [0, 2]), ("1:", [1, 2]), ("-1,0", [2, 0])])
    def test_several_heads_are_chosen(self, view, flag, heads):
        text = view("w.npz", "--batch", "1", "--head", flag)
        assert [int(number) for number in re.findall(r"head (\d)", text)] == heads

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


class TestHeadsOfABatch:
    @pytest.fixture(autouse=True)
    def result(self, tmp_path):
        np.save(tmp_path / "q.npy", np.random.default_rng(1).random((12, 4, 8)))
        assert attn("run", "--q", "q.npy", "--k", "q.npy", "-o", "r.npz", cwd=tmp_path).returncode == 0

    def test_are_chosen_with_a_note(self, tmp_path):
        run = attn("view", "r.npz", "--head", "3,5", cwd=tmp_path)
        assert re.findall(r"head \d+", run.stdout.decode()) == ["head 3", "head 5"]
        assert run.stderr.decode() == ("attn: weights (12, 4, 4): --head selects from the first axis, "
                                       "which is the batch of the job\n")

    def test_are_a_batch_otherwise(self, view):
        assert "batch 11" in view("r.npz")


# Layers as separate arrays, as numpy.savez(file, *attentions) stores them.


@pytest.fixture
def save_layers(tmp_path):
    """Stores 12 arrays of this shape, whose elements are unique, separately and as one."""
    def save_layers(*shape, **others):
        layers = np.arange(12 * math.prod(shape), dtype=float).reshape(12, *shape) / 1000
        np.savez(tmp_path / "a.npz", **{f"arr_{i}": layers[i] for i in sorted(range(12), key=str)}, **others)
        np.save(tmp_path / "a.npy", layers.reshape(12, *(1, 1, *shape)[-4:]))  # layer, batch, head, L, S
    return save_layers


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3), (2, 2, 3, 3)])
def test_numbered_arrays_are_drawn_as_one_array(tmp_path, save_layers, shape):
    save_layers(*shape, token_ids=np.arange(3))
    flags = ["--layer", "9:11", *(["--batch", "1"] if len(shape) == 4 else [])]
    one = attn("view", "a.npy", *flags, cwd=tmp_path).stdout.decode().splitlines()
    for file in ["a.npz"], ["a.npz#arr_{layer}"], ["a.npz", "--of", "arr_{layer}"]:
        many = attn("view", *file, *flags, cwd=tmp_path).stdout.decode().splitlines()
        assert many[0] == "layers 9, 10"
        assert many[1:] == one[1:]


@pytest.mark.parametrize("names, flags, title", [
    ([f"arr_{n}" for n in range(4)], [], "layers 0 to 3"), ([f"arr_{n}" for n in range(4)], ["--layer", "0,2,3"], "layers 0, 2, 3"),
    (["layer0", "layer1"], ["--layer", "1"], "layer 1"), (["layer0", "layer1"], ["--layer", "1", "--head", "0"], "layer 1, head 0"),
    ([f"layer_{n}" for n in (1, 3, 5, 7, 9)], [], "5 layers"), (["layer_3", "layer_7"], [], "layers 3, 7"),
    (["enc.layers.0.attn", "enc.layers.1.attn", "enc.layers.2.attn"], [], "enc.attn, layers 0 to 2"),
    (["layers.0.attn", "layers.1.attn"], ["--layer", "0", "--head", "1"], "attn, layer 0, head 1"),
    (["layers/0/w", "layers/1/w"], ["--layer", "0"], "w, layer 0")])
def test_title_of_numbered_arrays(tmp_path, names, flags, title):
    np.savez(tmp_path / "a.npz", **{name: np.ones((2, 2, 2)) for name in names})
    for output, pattern in ("-", r"(.*)\n"), ("a.svg", "<title>(.*?)</title>"):
        run = attn("view", "a.npz", *flags, *(["-o", output] if output != "-" else []), cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        text = run.stdout.decode() if output == "-" else (tmp_path / output).read_text()
        assert re.search(pattern, text)[1] == title


def test_one_of_numbered_arrays(tmp_path, save_layers):
    save_layers(3, 3)
    assert attn("view", "a.npz#arr_10", cwd=tmp_path).stdout.startswith(b"arr_10\n")


@pytest.mark.parametrize("arrays", [{"arr_0": (2, 2), "arr_1": (3, 3)}, {"head_0": (2, 2), "head_1": (2, 2)},
                                    {"arr_0": (2, 2), "arr_1": (2, 2), "layer_0": (2, 2), "layer_1": (2, 2)},
                                    {"layer0/weights": (2, 2), "layer1/weights": (2, 2)}])
def test_arrays_that_are_not_layers_of_one_shape_must_be_selected(tmp_path, arrays):
    np.savez(tmp_path / "a.npz", **{name: np.ones(shape) for name, shape in arrays.items()})
    assert_error(attn("view", "a.npz", cwd=tmp_path), 2, "a.npz: has no tensor weights", "; select one with --of: ")


def test_page_of_numbered_arrays_has_their_numbers(tmp_path):
    np.savez(tmp_path / "a.npz", layer_3=np.ones((2, 2, 2)), layer_7=np.ones((2, 2, 2)))
    text = attn("view", "a.npz", cwd=tmp_path).stdout.decode()
    assert "layer 3" in text and "layer 7" in text and "layer 0" not in text
    assert attn("view", "a.npz", "-o", "a.html", cwd=tmp_path).returncode == 0


def test_more_elements_than_can_be_read_soon_are_refused(tmp_path):
    """The file consists of holes."""
    np.save(tmp_path / "w.npy", np.zeros((160_000, 1), np.float32))
    header = (tmp_path / "w.npy").read_bytes()[:128].replace(b"(160000, 1), }     ", b"(160000, 160000), }")
    (tmp_path / "w.npy").write_bytes(header)
    os.truncate(tmp_path / "w.npy", 128 + 160_000 * 160_000 * 4)
    for flags in [], ["-o", "w.svg"]:
        run = attn("view", "w.npy", *flags, cwd=tmp_path)
        assert_error(run, 65, "expected at most 8589934592 elements to draw, found 25600000000; --rows")
    assert attn("view", "w.npy", "--rows", "0,1", cwd=tmp_path).returncode == 0


@pytest.mark.skipif(under_sanitizer(), reason="a sanitizer replaces the allocator, whose sum is the limit")
def test_layers_that_exceed_the_limit_are_refused(tmp_path, save_layers):
    save_layers(2, 160, 160)
    run = attn("view", "a.npz", "--layer", "0", "--max-memory", "10500K", cwd=tmp_path)
    assert_error(run, 65, "takes more than", "bytes of memory; --max-memory raises the limit")


# Errors.


@pytest.fixture
def files(tmp_path):
    np.savez(tmp_path / "w.npz", weights=np.ones((2, 2)), empty=np.ones((0, 3)))
    np.save(tmp_path / "q4.npy", np.ones((2, 2)))
    (tmp_path / "none.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (tmp_path / "w.svg").write_text("kept")
    (tmp_path / "latin1.txt").write_bytes("caf\xe9\n".encode("latin-1"))
    return tmp_path


@pytest.mark.parametrize("flags, code, texts", [
    (["--of", "wieghts"], 2, ["did you mean 'weights'", "--of"]),
    (["--head", "0"], 2, ["--head", "no such axis"]),
    (["--head", "x"], 2, ["--head"]),
    (["--tokens", "@none.txt"], 66, ["none.txt"]),
    (["--tokens", "@latin1.txt"], 65, ["latin1.txt", "UTF-8"]),
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


# Which output attn run --view draws.


@pytest.mark.parametrize("outputs, drawn", [
    (["scores"], "scores"), (["context", "scores"], "context"), (["scores", "weights"], "weights"),
    (["masked_scores"], "masked_scores"), (["logsumexp"], "logsumexp"), (["Q"], "Q"), (None, "weights")])
@pytest.mark.parametrize("as_flag", [True, False])
def test_run_draws_the_outputs_that_the_job_names(tmp_path, outputs, drawn, as_flag):
    job = {"Q": [[1, 0], [0, 2]], "K": [[1, 0], [0, 3]], "V": [[1, 2], [3, 4]], "causal": True}
    flags = ["--outputs", ",".join(outputs)] if outputs and as_flag else []
    (tmp_path / "job.json").write_text(json.dumps({**job, **({"outputs": outputs} if outputs else {})}
                                                  if not as_flag else job))
    run = attn("run", "job.json", *flags, "--view", cwd=tmp_path)
    assert run.returncode == 0 and run.stdout.decode().splitlines()[0] == drawn
    needed = [drawn, "masked_scores"] if drawn != "masked_scores" else [drawn]
    attn("run", "job.json", "--outputs", ",".join(needed), "-o", "r.npz", cwd=tmp_path)
    assert attn("view", "r.npz", "--of", drawn, cwd=tmp_path).stdout == run.stdout


def test_run_draws_the_weights_beside_another_output_in_a_file(tmp_path):
    run = attn("run", "--q", "[[1.0, 2]]", "--k", "[[1.0, 2]]", "-o", "scores=s.npy", "--view", cwd=tmp_path)
    assert run.stdout.decode().splitlines()[0] == "weights"


def test_spaces_at_the_ends_of_a_token_are_shown():
    job = {"tokens": ["cat", " cat", "cat ", "  ", "a cat"], "embeddings": [[1, 0], [0, 1], [1, 1], [0, 0], [1, 2]]}
    run = attn("run", "-", "--view", "--color", "never", stdin=json.dumps(job))
    assert run.returncode == 0, run.stderr
    text = run.stdout.decode()
    for label in "␣cat", "cat␣", "␣␣", "a cat":
        assert label in text


@pytest.mark.parametrize("width", [20, 22, 26, 30, 40])
def test_numbers_do_not_run_together(view, tmp_path, width):
    (tmp_path / "a.json").write_text("[[-0.041, 0.031, -0.123], [-0.0411, -1.234, -0.055]]")
    rows = view("a.json", "--width", str(width)).splitlines()[4:6]
    numbers = [row.split()[1:] for row in rows]
    if any(letter.isdigit() for letter in "".join(numbers[0])):
        assert numbers == [["-0.041", "0.031", "-0.12"], ["-0.041", "-1.23", "-0.055"]]


def test_columns_of_csv_have_names_without_names_of_rows(view, tmp_path):
    (tmp_path / "a.csv").write_text("red,blue\n1,2\n3,4\n")
    assert "red" in view("a.csv") and "blue" in view("a.csv")


def test_a_context_with_an_axis_of_heads_is_not_concatenated(tmp_path):
    q = "[[[1.0, 0], [0, 1]]]"
    run = attn("run", "--q", q, "--k", q, "--v", "K", "--layout", "thd", "--outputs", "context", "-o", "-", "-o", "r.npz",
               cwd=tmp_path)
    assert "context (1, 2, 2): weights V, the weighted sums of the values\n" in run.stdout.decode()
    assert "concatenated" not in attn("view", "r.npz", cwd=tmp_path).stdout.decode()
