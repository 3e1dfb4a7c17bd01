"""PDF files of `attn view`: their structure, texts and colours. Poppler, if it is installed, renders them."""

import re
import shutil
import subprocess
import zlib

import numpy as np
import pytest

from support.attn import attn
from view.picture_test import HIGH, HATCH, LOW, MIDDLE, NAN, corner_colours, draw, draw_svg, matrix_box  # noqa: F401
from view.png import read_png

SVG = "{http://www.w3.org/2000/svg}"
WEIGHTS = np.array([[1, -np.inf, -np.inf], [0.5, 0.5, -np.inf], [0.5, np.nan, 0]])
poppler = pytest.mark.skipif(shutil.which("pdftoppm") is None, reason="needs pdftoppm (Debian: poppler-utils)")


@pytest.fixture
def draw_pdf(draw):  # noqa: F811
    return lambda arrays, *arguments: Pdf(draw(arrays, *arguments, suffix="pdf"))


class Pdf:
    """The objects of a file, found by its table of offsets."""

    def __init__(self, data):
        self.data = data
        start = int(re.search(rb"startxref\n(\d+)\n%%EOF\n$", data)[1])
        count = int(re.match(rb"xref\n0 (\d+)\n", data[start:])[1])
        lines = data[start:].split(b"\n")[2:2 + count]
        assert lines[0] == b"0000000000 65535 f "
        self.objects = {}
        for number, line in enumerate(lines[1:], 1):
            at = int(re.fullmatch(rb"(\d{10}) 00000 n ", line)[1])
            head = b"%d 0 obj\n" % number
            assert data[at:at + len(head)] == head
            self.objects[number] = data[at + len(head):data.index(b"\nendobj\n", at)]
        trailer = data[data.index(b"trailer\n", start):]
        assert int(re.search(rb"/Size (\d+)", trailer)[1]) == count
        self.catalog = self.objects[int(re.search(rb"/Root (\d+) 0 R", trailer)[1])]
        self.info = self.objects[int(re.search(rb"/Info (\d+) 0 R", trailer)[1])]
        self.page = next(text for text in self.objects.values() if b"/Type /Page " in text)

    def stream(self, number):
        head, _, rest = self.objects[number].partition(b"\nstream\n")
        size = int(re.search(rb"/Length (\d+)", head)[1])
        assert rest[size:] == b"\nendstream"
        return zlib.decompress(rest[:size])

    def content(self):
        return self.stream(int(re.search(rb"/Contents (\d+) 0 R", self.page)[1])).decode("ascii")

    def characters(self):
        """Of each font, what the bytes mean."""
        fonts = {}
        for name, number in re.findall(rb"/(F\d+) (\d+) 0 R", self.page):
            number = int(re.search(rb"/ToUnicode (\d+)", self.objects[int(number)])[1])
            pairs = re.findall(r"<(..)> <((?:....)+)>\n", self.stream(number).decode())
            fonts[name.decode()] = {int(byte, 16): bytes.fromhex(code).decode("utf-16-be") for byte, code in pairs}
        return fonts

    def texts(self):
        fonts, texts = self.characters(), []
        for block in re.findall(r"BT\n(.*?)ET\n", self.content(), re.DOTALL):
            text = ""
            for name, parts in re.findall(r"/(F\d+) \S+ Tf\n\[(.*?)\] TJ", block):
                for part in re.findall("<(.*?)>", parts):
                    text += "".join(fonts[name][byte] for byte in bytes.fromhex(part))
            texts.append(text)
        return texts

    def rendered(self, folder, *flags):
        (folder / "in.pdf").write_bytes(self.data)
        run = subprocess.run(["pdftoppm", "-png", "-singlefile", *flags, "in.pdf", "out"], cwd=folder,
                             capture_output=True, check=True)
        assert run.stderr == b""
        return (folder / "out.png").read_bytes()


@pytest.mark.parametrize("tokens", ["The,cat,sat", "A\u0308,V\u00e9,\u65e5\u672c", "\U0001f600,(,\\"])
def test_texts_are_those_of_the_svg(draw_pdf, draw_svg, tokens):  # noqa: F811
    root = draw_svg({"weights": WEIGHTS}, "--tokens", tokens)
    assert draw_pdf({"weights": WEIGHTS}, "--tokens", tokens).texts() == [text.text for text in root.iter(f"{SVG}text")]


def test_more_than_256_characters_need_several_fonts(draw_pdf):
    tokens = ["".join(chr(0x4e00 + 6 * i + j) for j in range(6)) for i in range(50)]
    pdf = draw_pdf(np.ones((50, 50)), "--tokens", ",".join(tokens))
    assert len(pdf.characters()) == 2
    assert all(pdf.texts().count(token) == 2 for token in tokens)


def test_title_and_size(draw_pdf):
    pdf = draw_pdf(WEIGHTS, "--title", "Caf\u00e9 \U0001f600", "--size", "320")
    title = re.search(rb"/Title <FEFF([0-9a-f]+)>", pdf.info)[1]
    assert bytes.fromhex(title.decode()).decode("utf-16-be") == "Caf\u00e9 \U0001f600"
    assert re.search(rb"/MediaBox \[0 0 240 ", pdf.page)  # 320 pixels of 1/96 inch in points
    assert b"/DisplayDocTitle true" in pdf.catalog


def test_wide_pictures_have_a_larger_unit(draw_pdf):
    """A side has at most 14,400 units."""
    pdf = draw_pdf(WEIGHTS, "--size", "20000")
    width, height = map(float, re.search(rb"/MediaBox \[0 0 (\S+) (\S+)\]", pdf.page).groups())
    unit = float(re.search(rb"/UserUnit (\S+) ", pdf.page)[1])
    assert width * unit == pytest.approx(15_000) and max(width, height) <= 14_400


def test_has_no_date_and_is_the_same_again(draw):  # noqa: F811
    first, second = (draw(WEIGHTS, suffix="pdf") for _ in range(2))
    assert first == second
    assert b"Date" not in first


def test_large_matrix_is_an_image_with_a_pixel_per_cell(draw_pdf):
    weights = np.where(np.arange(120 * 120).reshape(120, 120) % 7 == 0, 1.0, 0.5)
    weights[3, 4], weights[5, 6] = -np.inf, np.nan
    pdf = draw_pdf({"weights": weights, "masked_scores": np.where(np.isinf(weights), -np.inf, 0)}, "--linear")
    number, text = next((n, text) for n, text in pdf.objects.items() if b"/Subtype /Image" in text)
    colours = bytes.fromhex(re.search(rb"/Indexed /DeviceRGB \d+ <([0-9a-f]+)>", text)[1].decode())
    hidden, zero = map(int, re.search(rb"/Mask \[(\d+) (\d+)\]", text).groups())
    pixels = np.frombuffer(pdf.stream(number), np.uint8).reshape(120, 120)
    assert pixels[3, 4] == hidden and zero not in pixels
    colour = np.frombuffer(colours, np.uint8).reshape(-1, 3)[pixels]
    assert tuple(colour[5, 6]) == NAN
    assert (colour[weights == 1] == HIGH).all() and (colour[weights == 0.5] == MIDDLE).all()


@poppler
def test_cells_have_the_colours_of_the_png(tmp_path, draw, draw_pdf):  # noqa: F811
    scores = np.random.default_rng(3).standard_normal((4, 6))
    png = draw({"scores": scores}, "--dpi", "96")
    pdf = draw_pdf({"scores": scores}).rendered(tmp_path, "-r", "96")
    size = read_png(png)[:2]
    assert np.abs(np.subtract(read_png(pdf)[:2], size)).max() <= 1
    for expected, found in zip(middles(png, scores.shape), middles(pdf, scores.shape)):
        assert np.abs(np.subtract(expected, found)).max() <= 1


def middles(png, shape):
    """The colours near the upper left corners of the cells of a matrix, away from their numbers and edges."""
    return [sorted(colours)[len(colours) // 2] for row in corner_colours(png, shape) for colours in row]


@poppler
def test_dark_ground(tmp_path, draw, draw_pdf):  # noqa: F811
    expected = read_png(draw(WEIGHTS, "--dark"))[2][0][0]
    assert read_png(draw_pdf(WEIGHTS, "--dark").rendered(tmp_path))[2][0][0] == expected


@poppler
def test_adjacent_cells_have_no_gap(tmp_path, draw_pdf):
    """Blended edges would show as lines of another colour."""
    pdf = draw_pdf({"x": np.full((12, 9), 2.0)}, "--linear", "--tokens", ",".join("a" * 12))
    _, _, rows = read_png(pdf.rendered(tmp_path, "-r", "61"))
    left, top, width, height = matrix_box(rows)
    assert len({rows[y][left + 3] for y in range(top + 2, top + height - 2)}) == 1
    assert len({rows[top + 3][x] for x in range(left + 2, left + width - 2)}) == 1


@poppler
def test_hidden_zero_and_nan_have_their_patterns(tmp_path, draw, draw_pdf):  # noqa: F811
    arrays = {"weights": np.array([[1.0, -np.inf], [0, np.nan]])}
    _, _, rows = read_png(draw_pdf(arrays).rendered(tmp_path, "-r", "192"))
    left, top, width, height = matrix_box(rows)
    cells = {(i, j): [rows[top + i * height // 2 + y][left + j * width // 2 + x]
                      for y in range(6, height // 2 - 6) for x in range(6, width // 2 - 6)]
             for i in (0, 1) for j in (0, 1)}

    def share(cell, colour):
        return np.mean(np.abs(np.array(cells[cell], int) - colour).max(1) < 24)
    assert share((0, 0), HIGH) > 0.8
    assert 0.08 < share((0, 1), HATCH) < 0.4 and share((0, 1), LOW) > 0.3
    assert share((1, 0), LOW) > 0.6
    assert 0.01 < np.mean([colour != LOW for colour in cells[1, 0]]) < 0.2  # dots, blended with the ground
    assert 0.15 < share((1, 1), NAN) < 0.6


@poppler
def test_text_can_be_copied(tmp_path, draw):  # noqa: F811
    (tmp_path / "in.pdf").write_bytes(draw(WEIGHTS, "--title", "Na\u00efve AVATAR \u65e5\u672c", suffix="pdf"))
    text = subprocess.run(["pdftotext", "in.pdf", "-"], cwd=tmp_path, capture_output=True, check=True).stdout.decode()
    assert text.splitlines()[0] == "Na\u00efve AVATAR \u65e5\u672c"


def test_right_to_left_text_is_warned_of(tmp_path):
    np.savez(tmp_path / "w.npz", weights=np.full((2, 2), 0.5))
    run = attn("view", "w.npz", "-o", "w.pdf", "--tokens", "\u05e9\u05dc\u05d5\u05dd,a", cwd=tmp_path)
    assert run.returncode == 0
    assert b"PDF pictures show right-to-left text" in run.stderr
