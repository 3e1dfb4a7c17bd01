"""PNG and SVG heat maps: every cell has its colour, and no text overlaps another.

The colours are those of docs/viewing.md.
"""

import base64
import os
import re
import struct
import subprocess
import xml.etree.ElementTree

import numpy as np
import pytest

from support.attn import ATTN, attn

from view.png import chunks, read_png

LOW, MIDDLE, HIGH = (255, 255, 255), (66, 150, 184), (18, 18, 52)
NEGATIVE, ZERO, POSITIVE = (10, 48, 110), (248, 248, 246), (116, 48, 4)
FRAME, HATCH, NAN = (150, 150, 156), (196, 196, 200), (192, 32, 128)
SVG = "{http://www.w3.org/2000/svg}"


def matrix_box(rows):
    """left, top, width, height of the first frame: the matrix, in pixels."""
    line = [FRAME] * 20  # longer than the grey edge of any letter
    top, left = next((y, x) for y, row in enumerate(rows) for x in range(len(row))
                     if row[x] == FRAME and row[x:x + 20] == line)
    right = left
    while rows[top][right] == FRAME:
        right += 1
    bottom = top
    while rows[bottom][left] == FRAME:
        bottom += 1
    return left, top, right - left, bottom - top


def corner_colours(png, shape):
    """The colours near the upper left corner of each cell, where there is no number."""
    _, _, rows = read_png(png)
    left, top, width, height = matrix_box(rows)
    tall, wide = height // shape[0], width // shape[1]
    return [[{rows[top + i * tall + y][left + j * wide + x] for y in range(2, 10)
              for x in range(2, 10)} for j in range(shape[1])] for i in range(shape[0])]


@pytest.fixture
def draw(tmp_path):
    """Draws an array, or several by name, and returns the bytes of the picture."""
    def draw(arrays, *arguments, suffix="png"):
        np.savez(tmp_path / "in.npz", **(arrays if isinstance(arrays, dict) else {"weights": arrays}))
        run = attn("view", "in.npz", "-o", f"out.{suffix}", "--force", *arguments, cwd=tmp_path)
        assert run.returncode == 0
        return (tmp_path / f"out.{suffix}").read_bytes()
    return draw


@pytest.fixture
def draw_svg(draw):
    """Like `draw`, but returns the root element of an SVG."""
    return lambda arrays, *arguments: xml.etree.ElementTree.fromstring(draw(arrays, *arguments, suffix="svg"))


# Colours.


class TestWeights:
    WEIGHTS = np.array([[0.5, 1, 1, 1], [1, 0.25, 1, 0.5], [0.001, 0.5, 1, 1]])

    @pytest.fixture
    def cells(self, draw):
        return corner_colours(draw(self.WEIGHTS), self.WEIGHTS.shape)

    @pytest.mark.parametrize("weight, colour", [(1, HIGH), (0.5, MIDDLE)])
    def test_have_their_colour_in_their_cell(self, cells, weight, colour):
        for i, j in zip(*np.nonzero(self.WEIGHTS == weight)):
            assert cells[i][j] == {colour}

    def test_quarter_is_lighter_than_half(self, cells):
        (colour,) = cells[1][1]
        assert all(middle < channel < 255 for middle, channel in zip(MIDDLE, colour))

    def test_near_zero_is_near_white(self, cells):
        (colour,) = cells[2][0]
        assert min(colour) >= 253


class TestScores:
    SCORES = np.array([[-4.0, 0, 4], [4, -4, 0]])

    @pytest.fixture
    def cells(self, draw):
        return lambda scores, *arguments: corner_colours(draw({"scores": scores}, *arguments), scores.shape)

    @pytest.mark.parametrize("score, colour", [(-4, NEGATIVE), (0, ZERO), (4, POSITIVE)])
    def test_have_their_colour_in_their_cell(self, cells, score, colour):
        found = cells(self.SCORES)
        for i, j in zip(*np.nonzero(self.SCORES == score)):
            assert found[i][j] == {colour}

    def test_below_vmax_are_paler(self, cells):
        (half,) = cells(self.SCORES, "--vmax", "8")[0][2]
        assert half != POSITIVE
        assert half[0] > half[2]

    def test_above_vmax_have_the_colour_of_vmax(self, cells):
        assert cells(np.abs(self.SCORES), "--vmax", "2")[0][0] == {POSITIVE}


def test_log_scale(draw):
    cells = corner_colours(draw(np.array([[1e-4, 1e-2, 1.0]]), "--log"), (1, 3))
    assert cells[0] == [{LOW}, {MIDDLE}, {HIGH}]


class TestHiddenKeys:
    WEIGHTS = np.array([[1.0, 0], [0.5, 0.5]])

    @pytest.fixture
    def cells(self, draw):
        """The colours when the masked score of one cell is this number."""
        return lambda number: corner_colours(
            draw({"weights": self.WEIGHTS, "masked_scores": np.array([[0.0, number], [0, 0]])}), (2, 2))

    def test_are_hatched(self, cells):
        cell = cells(-np.inf)[0][1]
        assert HATCH in cell
        assert len(cell) > 1

    def test_are_the_only_hatched_cells(self, cells):
        found = cells(-np.inf)
        assert [(i, j) for i in range(2) for j in range(2) if HATCH in found[i][j]] == [(0, 1)]

    def test_differ_from_visible_keys_whose_weight_underflows(self, cells):
        assert cells(-800)[0][1] == {LOW}


def test_nan_is_crossed_out(draw):
    cells = corner_colours(draw({"scores": np.array([[np.nan, 1.0]])}), (1, 2))
    assert NAN in cells[0][0]
    assert NAN not in cells[0][1]


def test_nan_is_green_on_a_dark_ground(draw_svg):
    picture = xml.etree.ElementTree.tostring(draw_svg({"scores": np.array([[np.nan, 1.0]])}, "--dark")).decode()
    strokes = {tuple(bytes.fromhex(colour)) for colour in re.findall("#([0-9a-f]{6})", picture)}
    assert (64, 224, 160) in strokes


def test_small_cells_that_are_nan_are_filled(draw):
    """2 x 2 pixels would miss the lines of the cross."""
    scores = np.where(np.arange(300 * 300).reshape(300, 300) % 997 == 0, np.nan, 1.0)
    _, _, rows = read_png(draw({"scores": scores}))
    left, top, width, height = matrix_box(rows)
    side = width / 300
    for i, j in np.argwhere(np.isnan(scores))[1:20]:
        assert rows[top + int((i + 0.5) * side)][left + int((j + 0.5) * side)] == NAN


@pytest.mark.parametrize("tensors, pattern", [
    ({"masked_scores": np.array([[0, -np.inf], [0, 0]])}, "url(#hidden)"), ({}, "url(#zero)")],
    ids=["with masked_scores", "without"])
def test_zeros_are_not_drawn_like_hidden_keys(draw_svg, tensors, pattern):
    root = draw_svg({"weights": np.array([[1.0, 0], [0.5, 0.5]]), **tensors})
    fills = {path.get("fill") for path in root.iter(f"{SVG}path")}
    assert {fill for fill in fills if fill and fill.startswith("url")} == {pattern}


@pytest.mark.parametrize("cell, meaning", [(np.nan, "nan"), (-np.inf, "hidden"), (0.0, "exactly 0")])
@pytest.mark.parametrize("n", [4, 40])
def test_legend_explains_cells_without_a_colour(draw_svg, n, cell, meaning):
    texts = lambda root: [text.text for text in root.findall(f"{SVG}text")]
    weights = np.full((n, n), 0.5)
    assert meaning not in texts(draw_svg(weights))
    weights[1, 1] = cell
    assert meaning in texts(draw_svg(weights))


# Dark pictures, their size and resolution.


def lightness(colour):
    """Relative luminance, WCAG 2.1."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055)**2.4 for c in (v / 255 for v in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


class TestDark:
    @pytest.fixture
    def rows(self, draw):
        return read_png(draw({"scores": np.array([[-4.0, 0, 4]])}, "--dark"))[2]

    def test_ground_is_dark(self, rows):
        assert lightness(rows[0][0]) < 0.02

    def test_zero_is_dark_and_both_ends_are_light(self, rows):
        values = {pixel for row in rows for pixel in row}
        assert (24, 24, 28) in values
        assert {(176, 224, 255), (255, 218, 160)} <= values

    def test_text_is_light(self, draw_svg):
        root = draw_svg(np.array([[0.5, 1]]), "--dark")
        title = root.findall(f"{SVG}text")[0].get("fill")
        assert lightness(bytes.fromhex(title[1:])) > 0.7


class TestSize:
    def test_resolution_is_in_the_file(self, draw):
        assert chunks(draw(np.ones((2, 2))))[b"pHYs"] == struct.pack(">IIB", 7559, 7559, 1)  # 192 / 0.0254

    def test_dpi_changes_resolution_and_pixels(self, draw):
        plain, fine = draw(np.ones((2, 2))), draw(np.ones((2, 2)), "--dpi", "384")
        assert chunks(fine)[b"pHYs"] == struct.pack(">IIB", 15118, 15118, 1)
        assert read_png(fine)[0] == pytest.approx(2 * read_png(plain)[0], abs=1)

    def test_size_is_the_width_of_an_svg(self, draw_svg):
        root = draw_svg(np.ones((2, 2)), "--size", "317")
        box = [float(number) for number in root.get("viewBox").split()]
        assert root.get("width") == "317"
        assert float(root.get("height")) == pytest.approx(317 * box[3] / box[2], abs=0.01)

    def test_size_is_the_width_of_a_png_in_96ths_of_an_inch(self, draw):
        assert read_png(draw(np.ones((2, 2)), "--size", "317", "--dpi", "300"))[0] == pytest.approx(317 / 96 * 300, abs=1)

    @pytest.mark.parametrize("arguments", [["--dpi", "300", "-o", "x.svg"], ["--dark"], ["--size", "300", "-o", "x.html"],
                                           ["--dpi", "5", "-o", "x.png"]])
    def test_is_refused_where_it_has_no_effect(self, tmp_path, arguments):
        np.savez(tmp_path / "in.npz", weights=np.ones((2, 2)))
        assert attn("view", "in.npz", *arguments, cwd=tmp_path).returncode == 2
        assert os.listdir(tmp_path) == ["in.npz"]


# Characters that the font lacks.


@pytest.fixture
def draw_token(tmp_path):
    """Draws a matrix with one token, with the installed fonts of this configuration."""
    np.savez(tmp_path / "in.npz", weights=np.ones((1, 1)))

    def draw_token(token, fonts="<fontconfig/>"):
        (tmp_path / "fonts.conf").write_text(fonts)
        subprocess.run([ATTN, "view", "in.npz", "-o", "out.png", "--force", "--tokens", token], check=True,
                       cwd=tmp_path, env={**os.environ, "FONTCONFIG_FILE": str(tmp_path / "fonts.conf")})
        return (tmp_path / "out.png").read_bytes()
    return draw_token


@pytest.mark.parametrize("one, other", ["猫狗", "😀😁"])
def test_characters_that_no_font_has_are_told_apart(draw_token, one, other):
    assert draw_token(one) != draw_token(other)


def test_characters_of_installed_fonts_are_drawn(draw_token):
    folder = "/usr/share/fonts/truetype/dejavu"
    if not os.path.exists(f"{folder}/DejaVuMathTeXGyre.ttf"):
        pytest.skip("DejaVu Math TeX Gyre is not installed (fonts-dejavu-extra)")
    fonts = f"<fontconfig><dir>{folder}</dir></fontconfig>"
    assert draw_token("\U0001d49c", fonts) != draw_token("\U0001d49c")
    assert draw_token("a", fonts) == draw_token("a")


# Labels.

WORDS = ["I", "neighbourhood", "a", "<b>&\"'", "студент", "of"]


@pytest.mark.parametrize("n", [4, 32, 128])
class TestLabels:
    @pytest.fixture
    def tokens(self, n):
        return [WORDS[i % len(WORDS)] for i in range(n)]

    @pytest.fixture
    def root(self, draw_svg, n, tokens):
        return draw_svg(np.random.default_rng(3).random((n, n)) + 0.01, "--tokens", ",".join(tokens))

    @pytest.fixture
    def labels(self, root, tokens):
        return [text for text in root.findall(f"{SVG}text") if text.text in tokens]

    def test_are_large_enough_to_read(self, labels):
        assert float(labels[0].get("font-size")) >= 7

    @pytest.mark.parametrize("axis", ["columns", "rows"])
    def test_do_not_overlap(self, labels, n, axis):
        if axis == "columns":
            positions = sorted(float(text.get("x")) for text in labels if text.get("transform"))
        else:
            positions = sorted(float(text.get("y")) for text in labels if text.get("text-anchor") == "end")
        assert len(positions) >= min(n, 4)
        assert min(np.diff(positions), default=99) >= float(labels[0].get("font-size"))

    def test_are_inside_the_picture(self, root):
        width, height = float(root.get("width")), float(root.get("height"))
        assert width < 1200
        for text in root.findall(f"{SVG}text"):
            assert 0 < float(text.get("x")) < width
            assert 0 < float(text.get("y")) < height

    def test_of_the_axes_are_queries_down_and_keys_across(self, root):
        turned = {text.text: text.get("transform") is not None for text in root.findall(f"{SVG}text")
                  if text.text in ("queries", "keys")}
        assert turned == {"queries": True, "keys": False}


def box_of(text):
    """left, top, right, bottom of a text, its letters 0.6 em wide (DejaVu's digits are 0.64)."""
    size, x, y = (float(text.get(key)) for key in ("font-size", "x", "y"))
    wide = 0.6 * size * len(text.text)
    start = {"middle": -wide / 2, "end": -wide}.get(text.get("text-anchor"), 0)
    if text.get("transform"):
        return x - 0.7 * size, y - start - wide, x, y - start
    return x + start, y - 0.7 * size, x + start + wide, y


@pytest.mark.parametrize("arguments", [[], ["--of", "scores"], ["--log"], ["--vmax", "0.123"], ["--of", "grid"]])
@pytest.mark.parametrize("n", [4, 32, 128])
def test_no_text_overlaps_another(draw_svg, n, arguments):
    """Title, notes, axes, labels, numbers in cells and of the colour bar."""
    hidden = np.triu(np.full((n, n), -np.inf), 1)
    scores = np.random.default_rng(5).standard_normal((n, n)) * 3
    weights = np.exp(scores + hidden)
    weights /= weights.sum(1, keepdims=True)
    root = draw_svg({"weights": weights, "scores": scores, "masked_scores": scores + hidden,
                     "grid": np.stack([weights] * 12).reshape(3, 1, 4, n, n)}, *arguments)
    boxes = [(box_of(text), text.text) for text in root.findall(f"{SVG}text") if text.text]
    assert len(boxes) > 8
    overlaps = [(a, b) for i, ((left, top, right, bottom), a) in enumerate(boxes)
                for (left2, top2, right2, bottom2), b in boxes[:i]
                if min(right, right2) > max(left, left2) and min(bottom, bottom2) > max(top, top2)]
    assert overlaps == []


# The colour bar.


@pytest.mark.parametrize("numbers, flags, labels", [
    ([0.0, 0.91], [], ["0", "0.2", "0.4", "0.6", "0.8", "0.91"]),
    ([-14.0, 3], [], ["14", "10", "5", "0", "\u22125", "\u221210", "\u221214"]),
    ([1e-4, 1.0], ["--log"], ["1e\u22124", "0.001", "0.01", "0.1", "1"])], ids=["weights", "signed", "log"])
class TestColourBar:
    @pytest.fixture
    def bar(self, draw_svg, numbers, flags):
        """Top and height of the bar, and the middle of each label."""
        root = draw_svg({"x": np.array([numbers])}, *flags)
        left, top, height = (float(root.findall(f"{SVG}rect")[2].get(key)) for key in ("x", "y", "height"))
        return top, height, {
            text.text: float(text.get("y")) - 0.36 * 12 for text in root.findall(f"{SVG}text")
            if float(text.get("x")) > left and top - 6 < float(text.get("y")) <= top + height + 6}

    def test_has_round_numbers_and_its_ends(self, bar, numbers, flags, labels):
        assert set(bar[2]) == set(labels)

    def test_has_each_number_at_its_colour(self, bar, numbers, flags, labels):
        top, height, positions = bar
        low, high = min(numbers), max(map(abs, numbers))
        for label in labels:
            value = float(label.replace("\u2212", "-"))
            share = np.log(value / low) / np.log(high / low) if flags else (value - low) / (high - low)
            assert positions[label] == pytest.approx(top + height * (1 - share), abs=1)


# SVG.


class TestSvg:
    @pytest.fixture
    def text(self, draw):
        weights = np.array([[1, 0.5], [0.25, 1]])
        return draw(weights, "--tokens", "</text><script>x</script>,b", suffix="svg").decode()

    @pytest.fixture
    def root(self, text):
        return xml.etree.ElementTree.fromstring(text)

    def test_has_no_markup_from_tokens(self, text):
        assert "<script" not in text

    def test_has_each_colour_in_its_cells(self, root):
        paths = {path.get("fill"): path.get("d") for group in root.findall(f"{SVG}g") for path in group}
        high = paths["#%02x%02x%02x" % HIGH]
        corners = [tuple(map(float, corner)) for corner in re.findall(r"M([\d.]+) ([\d.]+)", high)]
        x, y, side = (float(root.findall(f"{SVG}rect")[1].get(key)) for key in ("x", "y", "width"))
        assert corners[:2] == [(x, y), (x + side / 2, y + side / 2)]

    def test_has_numbers_in_the_cells(self, root):
        assert "1" in [text.text for text in root.findall(f"{SVG}text")]

    def test_has_no_links(self, text):
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


# Several and large matrices.


class TestHeads:
    WEIGHTS = np.random.default_rng(0).random((3, 5, 5))

    def test_have_a_panel_each(self, draw_svg):
        texts = [text.text or "" for text in draw_svg(self.WEIGHTS).findall(f"{SVG}text")]
        assert [text for text in texts if text.startswith("head")] == ["head 0", "head 1", "head 2"]

    def test_can_be_chosen(self, draw_svg):
        root = draw_svg(self.WEIGHTS, "--head", "-1")
        assert any("head 2" in (text.text or "") for text in root.findall(f"{SVG}text"))


def test_large_matrix_is_reduced(draw):
    text = draw(np.random.default_rng(0).random((1100, 1100)), suffix="svg").decode()
    assert "each cell shows the largest value of a block of 2 x 2" in text
    assert len(text) < 1e6


@pytest.mark.parametrize("shape", [(1, 2048), (2048, 1), (2, 1, 2048)])
def test_single_rows_and_columns_are_visible(draw, shape):
    weights = np.full(shape, 0.001)
    weights.reshape(-1, 2048)[:, 700] = 1
    _, _, rows = read_png(draw(weights))
    _, _, width, height = matrix_box(rows)
    assert min(width, height) >= 48  # 24 pixels of 1/96 inch
    assert sum(row.count(HIGH) for row in rows) >= 48


class TestLayers:
    @pytest.fixture
    def rows(self, draw_svg):
        """The texts on each line of the figure."""
        lines = {}
        for text in draw_svg(np.random.default_rng(0).random((2, 1, 5, 8, 8))).findall(f"{SVG}text"):
            lines.setdefault(float(text.get("y")), []).append(text.text)
        return [texts for _, texts in sorted(lines.items())]

    def test_start_a_row(self, rows):
        heads = [f"head {i}" for i in range(5)]
        assert [texts for texts in rows if texts[0].startswith("head")] == [heads, heads]

    def test_have_a_title(self, rows):
        assert [texts for texts in rows if texts[0].startswith("layer")] == [["layer 0"], ["layer 1"]]


class TestEmbeddedMatrix:
    """Matrices of more than 10,000 cells are images in an SVG."""

    WEIGHTS = np.where(np.arange(120 * 120).reshape(120, 120) % 7 == 0, 1.0, 0.5)

    @pytest.fixture
    def image(self, draw_svg):
        def image(weights):
            root = draw_svg({"weights": weights, "masked_scores": np.where(np.isinf(weights), -np.inf, 0)}, "--linear")
            found = root.findall(f"{SVG}image")[0]
            address = found.get("{http://www.w3.org/1999/xlink}href")
            assert address.startswith("data:image/png;base64,")
            return found, read_png(base64.b64decode(address.split(",")[1]))
        return image

    def test_has_a_pixel_of_each_colour_per_cell(self, image):
        _, (width, height, rows) = image(self.WEIGHTS)
        assert (width, height) == (120, 120)
        expected = [[(*(HIGH if weight == 1 else MIDDLE), 255) for weight in row] for row in self.WEIGHTS]
        assert rows == expected

    def test_is_not_smoothed(self, image):
        assert image(self.WEIGHTS)[0].get("image-rendering") == "pixelated"

    def test_hidden_keys_are_transparent_and_nan_is_filled(self, image):
        weights = self.WEIGHTS.copy()
        weights[3, 4], weights[5, 6] = -np.inf, np.nan
        rows = image(weights)[1][2]
        assert rows[3][4][3] == 0
        assert rows[5][6] == (*NAN, 255)

    def test_texts_stay_text(self, draw_svg):
        root = draw_svg(self.WEIGHTS)
        assert {"weights", "queries", "keys"} <= {text.text for text in root.findall(f"{SVG}text")}

    @pytest.mark.long
    def test_noise_takes_at_most_5_megabytes(self, draw):
        """Noise does not compress. The largest value stays visible."""
        weights = np.random.default_rng(1).random((24, 1, 32, 128, 128), np.float32)
        text = draw(weights, suffix="svg").decode()
        assert len(text) <= 5e6
        assert "each cell shows the largest value of a block of" in text

    @pytest.mark.long
    def test_many_heads_take_few_bytes(self, draw):
        rng = np.random.default_rng(0)
        scores = 2 * rng.standard_normal((32, 1, 32, 128, 128), dtype=np.float32)
        weights = np.exp(scores) * np.tril(np.ones((128, 128), np.float32))
        weights /= weights.sum(-1, keepdims=True)
        assert len(draw(weights, suffix="svg")) < 5e6


@pytest.mark.parametrize("environment", [{"ATTN_ISA": "baseline"}, {"LC_ALL": "C", "TZ": "Asia/Tokyo"},
                                         {"HOME": "/nonexistent", "FONTCONFIG_FILE": "/nonexistent"}], ids=str)
def test_png_is_the_same_in_every_environment(tmp_path, environment):
    np.save(tmp_path / "w.npy", np.linspace(0, 1, 35).reshape(5, 7))
    for name, extra in ("here", {}), ("there", environment):
        subprocess.run([ATTN, "view", "w.npy", "-o", f"{name}.png"], cwd=tmp_path, check=True, env={**os.environ, **extra})
    assert (tmp_path / "there.png").read_bytes() == (tmp_path / "here.png").read_bytes()


@pytest.mark.parametrize("suffix, warns", [("png", True), ("svg", False)])
def test_right_to_left_text_in_png_is_warned_of(tmp_path, suffix, warns):
    np.savez(tmp_path / "w.npz", weights=np.full((2, 2), 0.5))
    run = attn("view", "w.npz", "-o", f"w.{suffix}", "--tokens", "\u05e9\u05dc\u05d5\u05dd,a", cwd=tmp_path)
    assert run.returncode == 0
    assert (b"right-to-left" in run.stderr) == warns
