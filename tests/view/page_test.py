"""The HTML page, without a browser: its numbers, its size, and that it runs no scripts but its own.
scripts/test-with/browsers opens it in a browser.
"""

import base64
import csv
import hashlib
import html.parser
import json
import math
import os
import pathlib
import re
import resource
import subprocess
import time
import types
import zlib

import numpy as np
import pytest

from support.attn import ATTN, attn, under_sanitizer

TYPES = {64: "<f8", 32: "<f4", 16: "<u2", 8: "u1"}


class Elements(html.parser.HTMLParser):
    """The tags, scripts and styles of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.scripts, self.styles, self.policy, self.now = [], {}, [], [], "", None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        self.now = (tag, attributes)
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]

    def handle_endtag(self, tag):
        self.now = None

    def handle_data(self, data):
        tag, attributes = self.now or ("", {})
        if tag == "script" and attributes.get("type") == "module":
            self.scripts.append(data)
        elif tag == "script":
            self.ids[attributes["id"]] = data
        elif tag == "style":
            self.styles.append(data)


def page(folder, *arguments):
    """The text of a page, and the messages of the run that wrote it."""
    run = attn("view", *arguments, "-o", "page.html", "--force", cwd=folder)
    assert run.returncode == 0
    return (folder / "page.html").read_text(), run.stderr.decode()


LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@[]^_{|"


def base85(text):
    """Decodes base 85: five letters are the digits of a four-byte little-endian number."""
    digits = np.array([LETTERS.index(letter) for letter in text], "u8").reshape(-1, 5)
    return (digits @ (85 ** np.arange(4, -1, -1)).astype("u8")).astype("<u4").tobytes()


HIDDEN, ZERO, NAN = 0, 2, 0xFFFE


def strength_codes(values, unit):
    """draw/page_levels.h: the bits of a float16, in the order of magnitude; -inf is hidden."""
    size = np.abs(np.where(np.isfinite(values), values, 0)) / unit
    codes = 2 * (2 + size.astype("f2").view("u2").astype("u4")) + (values < 0)
    return np.where(np.isneginf(values), HIDDEN, np.where(np.isnan(values), NAN, codes)).astype("u2")


def pooled(codes, tall, wide):
    """The maximum of each block."""
    rows, columns = codes.shape
    full = np.zeros((-(-rows // tall) * tall, -(-columns // wide) * wide), codes.dtype)
    full[:rows, :columns] = codes
    return full.reshape(-1, tall, full.shape[1] // wide, wide).max((1, 3))


class Numbers:
    """The matrices that a page contains."""

    def __init__(self, text):
        self.elements = Elements(text)
        self.facts = json.loads(self.elements.ids["attn"])
        self.tensor = len(self.facts["rows"]), len(self.facts["columns"])
        self.shape = tuple(-(-length // self.facts["step"]) for length in self.tensor)

    def data(self, what):
        """The length of a zlib stream, and the stream, in base 85."""
        packed = base85(self.elements.ids[what])
        length = int.from_bytes(packed[:4], "little")
        assert 0 <= len(packed) - 4 - length < 4
        return zlib.decompress(packed[4:4 + length])

    def matrix(self, which):
        """The values, -inf where hidden, and the largest error from rounding."""
        bits = self.facts["bits"]
        stored = np.frombuffer(self.data(f"values-{which}")[16 * self.shape[0]:], TYPES[bits])
        hidden = -np.inf if bits >= 32 else 2 ** bits - 1
        cells, at = np.full(self.shape, hidden, stored.dtype), 0
        for i, (first, end) in enumerate(zip(self.facts["first"], self.facts["end"])):
            cells[i, first:end] = stored[at:at + end - first]
            at += end - first
        assert at == stored.size
        if bits >= 32:
            return cells, 0
        _, _, least, most = self.rows(which).T.astype(float)
        step = (most - least)[:, None] / (2 ** bits - 3)
        values = least[:, None] + step * cells
        values[cells == 2 ** bits - 1] = -np.inf
        values[cells == 2 ** bits - 2] = np.nan
        return values, step / 2 + 1e-7

    def rows(self, which):
        return np.frombuffer(self.data(f"values-{which}")[:16 * self.shape[0]], "<f4").reshape(-1, 4)

    def levels(self, what, sizes):
        """Arrays of codes of these shapes, all upper bytes first."""
        planes = np.frombuffer(self.data(what), "u1").reshape(2, -1).astype("u2")
        ends = np.cumsum([0] + [math.prod(size) for size in sizes])
        assert ends[-1] == planes.shape[1]
        return [(planes[0] * 256 + planes[1])[at:end].reshape(size) for at, end, size in zip(ends, ends[1:], sizes)]

    def shape_of(self, blocks):
        return tuple(-(-length // size) for length, size in zip(self.tensor, blocks))

    def overview(self, which, head, heads):
        """The level of a head for the overview."""
        chunk, size = self.facts["chunk"], self.shape_of(self.facts["overview"])
        count = min(chunk, heads - head // chunk * chunk)
        return self.levels(f"overview-{which}-{head // chunk}", [size] * count)[head % chunk]

    def pyramid(self, which, head):
        return self.levels(f"pyramid-{which}-{head}", [self.shape_of(blocks) for blocks in self.facts["pyramid"]])

    def statistic(self, name):
        found = [one["of"] for one in self.facts["statistics"] if one["name"] == name]
        return np.array(found[0], float) if found else None


# Numbers.


@pytest.mark.parametrize("limit, bits", [("2M", 64), ("900K", 32), ("550K", 16), ("400K", 8)])
@pytest.mark.parametrize("large", [1e60, -1e300, np.inf])
def test_numbers_beyond_float32_leave_their_row_readable(tmp_path, limit, bits, large):
    x = np.random.default_rng(0).standard_normal((300, 300)) + 2
    x[3, 3] = large
    np.save(tmp_path / "x.npy", x)
    found = Numbers(page(tmp_path, "x.npy", "--max-html-bytes", limit)[0])
    assert found.facts["bits"] == bits
    matrix = found.matrix("0-0")[0].copy()
    is_kept = bits == 64 or (bits == 32 and np.isinf(large))
    np.testing.assert_array_equal(matrix[3, 3], large if is_kept else np.nan)
    x[3, 3] = matrix[3, 3] = 0
    np.testing.assert_allclose(matrix, x, atol={64: 0, 32: 1e-6, 16: 1e-3, 8: 0.1}[bits])


class TestNumbers:
    """Three heads, causal, with one NaN; --max-html-bytes makes each page a byte too small for the
    precision of the one before."""

    @pytest.fixture(scope="class")
    def data(self, class_path):
        rng = np.random.default_rng(1)
        s = rng.standard_normal((3, 40, 60)) + np.triu(np.full((40, 60), -np.inf), 1)
        w = np.exp(s) / np.exp(s).sum(-1, keepdims=True)
        w[0, 5, 3] = np.nan
        np.savez(class_path / "w.npz", weights=w, masked_scores=s)
        return types.SimpleNamespace(masked_scores=s, weights=w)

    @pytest.fixture(scope="class")
    def pages(self, data, class_path):
        """Pages by the bits of a number; 0 is the page with a reduced matrix."""
        pages, limit = {}, 50 << 20
        for bits in 64, 32, 16, 8, 0:
            text, messages = page(class_path, "w.npz", "--max-html-bytes", limit)
            pages[bits] = types.SimpleNamespace(text=text, messages=messages, limit=limit, numbers=Numbers(text))
            limit = len(text) - 1
        return pages

    @pytest.mark.parametrize("bits", [64, 32, 16, 8, 0])
    def test_fit_the_limit(self, pages, bits):
        assert len(pages[bits].text) <= pages[bits].limit

    @pytest.mark.parametrize("bits", [64, 32, 16, 8])
    def test_have_the_precision_that_the_message_states(self, pages, bits):
        assert f"3 matrices of 40 x 60, {bits} bits" in pages[bits].messages

    @pytest.mark.parametrize("bits", [64, 32, 16, 8])
    def test_are_said_to_be_rounded(self, pages, bits):
        assert any("rounded" in note for note in pages[bits].numbers.facts["notes"]) == (bits < 64)

    @pytest.mark.parametrize("head", range(3))
    @pytest.mark.parametrize("bits", [64, 32, 16, 8])
    def test_are_those_of_the_file(self, pages, data, bits, head):
        values, error = pages[bits].numbers.matrix(f"0-{head}")
        want = np.where(np.isneginf(data.masked_scores[head]), -np.inf, data.weights[head])
        if bits == 32:
            want = want.astype(np.float32)
        near = np.isnan(want) | (values == want)
        near |= np.abs(np.where(near, 0, values) - np.where(near, 0, want)) <= error
        assert (np.isnan(values) == np.isnan(want)).all()
        assert near.all()

    @pytest.mark.parametrize("head", range(3))
    @pytest.mark.parametrize("bits", [64, 32, 16, 8])
    def test_have_row_sums(self, pages, data, bits, head):
        sums = pages[bits].numbers.rows(f"0-{head}")[:, 0]
        np.testing.assert_allclose(sums, data.weights[head].sum(1), rtol=1e-5, atol=1e-8)

    @pytest.mark.parametrize("head", range(3))
    @pytest.mark.parametrize("bits", [64, 32, 16, 8])
    def test_have_row_entropies(self, pages, data, bits, head):
        w = data.weights[head]
        p = np.where(w > 0, w, 1)
        entropy = np.where(np.isnan(w.sum(1)), np.nan, -(p * np.log(p)).sum(1))
        np.testing.assert_allclose(pages[bits].numbers.rows(f"0-{head}")[:, 1], entropy, rtol=1e-5, atol=1e-6)

    def test_have_entropies_of_the_weights_as_they_are(self, tmp_path):
        """They are not divided by their sum, which is less than 1 with attention sinks."""
        w = np.random.default_rng(2).random((5, 7)) / 9
        np.savez(tmp_path / "w.npz", weights=w)
        entropies = Numbers(page(tmp_path, "w.npz")[0]).rows("0-0")[:, 1]
        np.testing.assert_allclose(entropies, -(w * np.log(w)).sum(1), rtol=1e-6)

    def test_are_reduced_when_8_bits_do_not_fit(self, pages):
        assert "largest magnitude of" in pages[0].messages
        assert any("largest magnitudes of blocks of" in note for note in pages[0].numbers.facts["notes"])

    def test_that_never_fit_are_refused(self, data, class_path):
        run = attn("view", "w.npz", "-o", "no.html", "--max-html-bytes", "1000", cwd=class_path)
        assert run.returncode == 2
        assert not (class_path / "no.html").exists()

    @pytest.mark.parametrize("heads, side", [(3, 40), (40, 300)])
    def test_that_never_fit_are_refused_with_a_size_that_does(self, tmp_path, heads, side):
        np.save(tmp_path / "w.npy", np.random.default_rng(8).random((heads, side, side), np.float32))
        draw = lambda size: attn("view", "w.npy", "-o", "no.html", "--force", "--max-html-bytes", size, cwd=tmp_path)
        size = int(re.search(rb"the smallest page has (\d+) bytes", draw(1000).stderr)[1])
        assert draw(size - 1).returncode == 2
        assert draw(size).returncode == 0
        assert (tmp_path / "no.html").stat().st_size <= size


class TestDtypes:
    SCORES = np.arange(-6, 6).reshape(3, 4)

    @pytest.fixture
    def numbers(self, tmp_path):
        np.savez(tmp_path / "s.npz", scores=self.SCORES, half=self.SCORES.astype(np.float16) / 3)
        return lambda name: Numbers(page(tmp_path, "s.npz", "--of", name)[0])

    def test_integers_are_exact(self, numbers):
        found = numbers("scores")
        assert found.matrix("0-0")[0].tolist() == self.SCORES.tolist()

    def test_scores_have_a_symmetric_scale(self, numbers):
        facts = numbers("scores").facts
        assert facts["signed"]
        assert facts["limits"] == [-6, 6]

    @pytest.mark.parametrize("name", ["grad_V", "dk"])
    def test_gradients_have_a_symmetric_scale(self, tmp_path, name):
        np.savez(tmp_path / "g.npz", **{name: np.arange(1.0, 13).reshape(3, 4)})
        facts = Numbers(page(tmp_path, "g.npz", "--of", name)[0]).facts
        assert facts["signed"] and facts["limits"] == [-12, 12]

    def test_float16_is_stored_as_float32(self, numbers):
        found = numbers("half")
        assert found.facts["bits"] == 32
        np.testing.assert_array_equal(found.matrix("0-0")[0], self.SCORES.astype(np.float16) / np.float16(3))


# Places of the exact values in the file.


def rounded_page(folder, *arguments):
    """The numbers of a page that is a byte too small for all digits."""
    exact, _ = page(folder, *arguments)
    return Numbers(page(folder, *arguments, "--max-html-bytes", len(exact) - 1)[0])


def values_at(path, source):
    """The elements from the place that the page states to the end of the file or of its packed part."""
    data = path.read_bytes()
    assert len(data) == source["size"]
    if source["packed"]:
        begin, size = source["packed"]
        data = zlib.decompress(data[begin:begin + size], -15)
    if source["dtype"] == "bfloat16":
        return np.left_shift(np.frombuffer(data[source["offset"]:][:3000 * 2], "<u2").astype("u4"), 16).view("f4")
    dtype = np.dtype(source["dtype"])
    return np.frombuffer(data[source["offset"]:][:3000 * dtype.itemsize], dtype)


class TestSources:
    WEIGHTS = np.random.default_rng(9).random((2, 30, 50))

    @pytest.fixture
    def folder(self, tmp_path):
        w = self.WEIGHTS
        np.save(tmp_path / "w.npy", w)
        np.save(tmp_path / "half.npy", w.astype("f2"))
        np.savez(tmp_path / "w.npz", first=np.zeros(3), weights=w.astype("f4"), last=np.ones(7))
        np.savez_compressed(tmp_path / "deflated.npz", first=np.zeros(3), weights=w, last=np.ones(7))
        for name, *flags in ("w.safetensors",), ("bf16.safetensors", "--dtype", "bf16"):
            assert attn("convert", "w.npz", "-o", name, *flags, cwd=tmp_path).returncode == 0
        return tmp_path

    @pytest.mark.parametrize("name, dtype", [("w.npy", "f8"), ("half.npy", "f2"), ("w.npz", "f4"), ("deflated.npz", "f8"),
                                             ("w.safetensors", "f4")])
    def test_are_places_of_the_values(self, folder, name, dtype):
        [source] = rounded_page(folder, name).facts["sources"]
        assert source["file"] == name and source["places"] == [0, 1]
        assert bool(source["packed"]) == (name == "deflated.npz")
        np.testing.assert_array_equal(values_at(folder / name, source), self.WEIGHTS.astype(dtype).ravel())

    def test_are_places_of_bfloat16(self, folder):
        [source] = rounded_page(folder, "bf16.safetensors").facts["sources"]
        np.testing.assert_allclose(values_at(folder / "bf16.safetensors", source), self.WEIGHTS.ravel(), rtol=2 ** -8)

    def test_are_those_of_both_files(self, folder):
        sources = rounded_page(folder, "w.npz", "deflated.npz").facts["sources"]
        for name, source in zip(("w.npz", "deflated.npz"), sources):
            np.testing.assert_array_equal(values_at(folder / name, source), self.WEIGHTS.astype(source["dtype"]).ravel())

    def test_state_the_drawn_heads(self, folder):
        assert rounded_page(folder, "w.npy", "--head", "1").facts["sources"][0]["places"] == [1]

    @pytest.mark.parametrize("save", [lambda path, w: np.save(path, np.asfortranarray(w)),
                                      lambda path, w: np.save(path, w.astype(">f8"))], ids=["Fortran order", "big-endian"])
    def test_are_not_in_other_layouts(self, tmp_path, save):
        save(tmp_path / "w.npy", self.WEIGHTS)
        assert rounded_page(tmp_path, "w.npy").facts["sources"] is None

    @pytest.mark.parametrize("arguments", [["w.npy", "--rows", "1:"], ["w.npz#weights[0]"], ["w.json"]], ids=" ".join)
    def test_are_only_of_whole_tensors_of_binary_files(self, folder, arguments):
        attn("convert", "w.npy", "-o", "w.json", cwd=folder)
        assert rounded_page(folder, *arguments).facts["sources"] is None

    def test_are_not_needed_for_exact_pages(self, folder):
        assert Numbers(page(folder, "w.npz")[0]).facts["sources"] is None


# Reduced copies for drawing.


@pytest.mark.long
class TestLevels:
    """34 heads of 300 x 400, two of them with a single strong weight; the last two are a chunk of their own."""

    @pytest.fixture(scope="class")
    def weights(self):
        rng = np.random.default_rng(5)
        w = rng.random((34, 300, 400)) ** 6
        w[3], w[33] = 0.0, 1e-4
        w[3, 211, 17] = w[33, 299, 399] = 1
        w[4, 7, 8], w[5, 9, 1] = np.nan, -0.25
        return w

    @pytest.fixture(scope="class")
    def masked(self, weights):
        return np.where(np.arange(400) > np.arange(300)[:, None] + 140, -np.inf, 1.0) * np.ones((34, 1, 1))

    @pytest.fixture(scope="class")
    def numbers(self, weights, masked, class_path):
        np.savez(class_path / "l.npz", weights=weights, masked_scores=masked)
        return Numbers(page(class_path, "l.npz")[0])

    def codes(self, weights, masked, head, unit):
        return strength_codes(np.where(np.isneginf(masked[head]), -np.inf, weights[head]), unit)

    def test_unit_is_a_power_of_two(self, numbers):
        assert math.frexp(numbers.facts["unit"])[0] == 0.5

    @pytest.mark.parametrize("head", [0, 3, 4, 5, 31, 32, 33])
    def test_of_the_overview_have_the_strongest_cell_of_each_block(self, numbers, weights, masked, head):
        want = pooled(self.codes(weights, masked, head, numbers.facts["unit"]), *numbers.facts["overview"])
        np.testing.assert_array_equal(numbers.overview(0, head, 34), want)

    @pytest.mark.parametrize("head", [0, 3, 4, 5, 33])
    def test_of_the_pyramid_have_the_strongest_cell_of_each_block(self, numbers, weights, masked, head):
        codes = self.codes(weights, masked, head, numbers.facts["unit"])
        assert numbers.facts["pyramid"] == [[4, 4]]
        np.testing.assert_array_equal(numbers.pyramid(0, head)[0], pooled(codes, 4, 4))

    def test_have_at_most_4096_cells_in_the_overview(self, numbers):
        assert math.prod(numbers.shape_of(numbers.facts["overview"])) <= 4096

    @pytest.mark.parametrize("shape", [(1, 8192), (8192, 1)])
    def test_of_a_single_row_or_column(self, tmp_path, shape):
        w = np.random.default_rng(1).random(shape)
        np.savez(tmp_path / "w.npz", weights=w)
        found = Numbers(page(tmp_path, "w.npz")[0])
        want = pooled(strength_codes(w, found.facts["unit"]), *found.facts["overview"])
        np.testing.assert_array_equal(found.overview(0, 0, 1), want)

    def test_of_many_matrices_are_smaller(self, tmp_path):
        np.savez(tmp_path / "w.npz", weights=np.ones((1025, 64, 64), "f2"))
        assert Numbers(page(tmp_path, "w.npz")[0]).facts["overview"] == [2, 2]

    def test_zeros_that_may_be_hidden_are_weaker_than_values(self, tmp_path):
        np.savez(tmp_path / "w.npz", weights=np.array([[1.0, 0], [0.5, 0.5]]))
        codes = Numbers(page(tmp_path, "w.npz")[0]).overview(0, 0, 1)
        assert codes[0, 1] == ZERO
        assert codes.argmax() == 0


# Size.


@pytest.mark.long
class TestManyMatrices:
    """A page of 24 heads in which blocks of the values are larger than those of the first reduced copies."""

    @pytest.fixture(scope="class")
    def weights(self):
        return np.random.default_rng(6).random((24, 512, 512), np.float32) ** 8

    @pytest.fixture(scope="class")
    def numbers(self, weights, class_path):
        np.save(class_path / "w.npy", weights)
        return Numbers(page(class_path, "w.npy", "--max-html-bytes", "600K")[0])

    def test_have_no_reduced_copies_finer_than_the_values(self, numbers):
        assert numbers.facts["step"] > 4
        assert all(min(blocks) > numbers.facts["step"] for blocks in numbers.facts["pyramid"])

    @pytest.mark.parametrize("head", [0, 23])
    def test_have_the_largest_value_of_each_block(self, numbers, weights, head):
        step = numbers.facts["step"]
        values, error = numbers.matrix(f"0-{head}")
        assert (np.abs(values - pooled(weights[head], step, step)) <= error).all()

    def test_do_not_depend_on_the_number_of_threads(self, weights, class_path):
        np.save(class_path / "w.npy", weights)
        several = page(class_path, "w.npy", "--max-html-bytes", "600K")[0]
        subprocess.run(["taskset", "-c", str(min(os.sched_getaffinity(0))), ATTN, "view", "w.npy", "-o", "one.html",
                        "--max-html-bytes", "600K"], cwd=class_path, check=True, capture_output=True)
        assert (class_path / "one.html").read_text() == several


@pytest.mark.skipif(under_sanitizer(), reason="sanitizers take more memory")
def test_large_files_are_not_read_into_memory(tmp_path):
    with open(tmp_path / "w.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (64, 2048, 2048)})
        file.truncate(file.tell() + 64 * 2048 * 2048 * 4)
    limit = 200 << 20
    run = subprocess.run([ATTN, "view", "w.npy", "--rows", "0:4", "-o", "w.html"], cwd=tmp_path, capture_output=True,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)))
    assert run.returncode == 0, run.stderr


# Statistics of heads.


def statistics_of(w, own=None):
    """The formulas of docs/statistics.md. `own`: the keys at the positions of the queries."""
    L, S = w.shape
    i, j = np.reshape(np.arange(L) + max(S - L, 0) if own is None else own, (L, 1)), np.arange(S)
    entropy = -np.where(w > 0, w * np.log(np.where(w > 0, w, 1)), 0).sum(1)
    return {"entropy": entropy.mean(), "first": w[:, 0].sum() / w.sum(), "distance": (w * np.abs(i - j)).sum() / w.sum(),
            "previous": w[i - 1 == j].sum() / w.sum()}


def result_of_rows(folder, rows, chosen):
    """Writes rows.npz and run.html of causal self-attention over 8 tokens, and returns the weights."""
    x = np.random.default_rng(4).standard_normal((2, 8, 4))
    np.save(folder / "x.npy", x)
    run = attn("run", "--q", "x.npy", "--k", "x.npy", "--causal", "--rows=" + rows, "--outputs", "weights", "-o", "rows.npz",
               "--view=run.html", "--force", cwd=folder)
    assert run.returncode == 0, run.stderr
    scores = x @ x.swapaxes(1, 2) / 2 + np.triu(np.full((8, 8), -np.inf), 1)
    return (np.exp(scores) / np.exp(scores).sum(-1, keepdims=True))[:, chosen]


def result_after_a_cache(folder):
    """Writes rows.npz of queries 2 and 5 of 6 after a cache of 4 tokens, and returns the weights."""
    q, k = np.random.default_rng(5).standard_normal((2, 2, 10, 4))
    np.savez(folder / "in.npz", Q=q[:, 4:], K=k[:, 4:], V=k[:, 4:], past_K=k[:, :4], past_V=k[:, :4])
    run = attn("run", "in.npz", "--causal", "--rows=2,-1", "--outputs", "weights", "-o", "rows.npz", "--view=run.html", cwd=folder)
    assert run.returncode == 0, run.stderr
    scores = q @ k.swapaxes(1, 2) / 2 + np.triu(np.full((10, 10), -np.inf), 1)
    return (np.exp(scores) / np.exp(scores).sum(-1, keepdims=True))[:, [6, 9]]


def assert_statistics(found, weights, own, which=0):
    for name in "entropy", "first", "distance", "previous":
        np.testing.assert_allclose(found.statistic(name)[which], [statistics_of(head, own)[name] for head in weights],
                                   rtol=1e-5, atol=1e-9)


class TestStatistics:
    @pytest.mark.parametrize("shape", [(9, 9), (5, 12), (12, 5)])
    @pytest.mark.parametrize("name", ["entropy", "first", "distance", "previous"])
    def test_are_those_of_the_documentation(self, tmp_path, shape, name):
        w = np.random.default_rng(2).random((3, *shape)) ** 4
        np.savez(tmp_path / "w.npz", weights=w)
        found = Numbers(page(tmp_path, "w.npz")[0]).statistic(name)[0]
        np.testing.assert_allclose(found, [statistics_of(head)[name] for head in w], rtol=1e-5)

    @pytest.mark.parametrize("name, column", [("entropy", "entropy"), ("first", "first_key_weight"), ("distance", "distance"),
                                              ("previous", "previous_token_weight")])
    def test_are_those_of_attn_stats(self, tmp_path, name, column):
        w = np.random.default_rng(3).random((3, 6, 9)) ** 4
        np.savez(tmp_path / "w.npz", weights=w)
        run = attn("stats", "w.npz", "--format", "csv", cwd=tmp_path)
        lines = list(csv.DictReader(run.stdout.decode().splitlines()))
        np.testing.assert_allclose(Numbers(page(tmp_path, "w.npz")[0]).statistic(name)[0],
                                   [float(line[column]) for line in lines], rtol=1e-5)

    def opening(self, folder, *arguments):
        """The matrix that the page shows first, whose elements must follow those of the overview."""
        text, _ = page(folder, *arguments)
        kinds = [name for name in Elements(text).ids if name != "attn"]
        first = Numbers(text).facts["opening"]
        overviews = sum(name.startswith("overview") for name in kinds)
        sets = 2 if any(name.startswith("overview-2") for name in kinds) else 1
        assert set(kinds[overviews:overviews + sets]) == {f"values-{k}-{first}" for k in range(sets)}
        return first

    def test_choose_the_head_that_is_shown_first(self, tmp_path):
        even, sink = np.full((4, 4), 0.25), np.eye(4)[[0] * 4]
        sharp = 0.1 * even + 0.9 * np.eye(4)[[0, 1, 2, 1]]
        np.savez(tmp_path / "a.npz", weights=np.stack([even, sink, sharp, 0.5 * (sharp + even)]))
        np.savez(tmp_path / "b.npz", weights=np.stack([even, sink, sharp, sharp]))
        np.savez(tmp_path / "s.npz", weights=np.stack([0.5 * (even + sink), sink]))
        assert self.opening(tmp_path, "a.npz") == 2, "the least entropy, but no sink"
        assert self.opening(tmp_path, "s.npz") == 1, "all have sinks"
        assert self.opening(tmp_path, "a.npz", "b.npz") == 3, "the largest difference"

    def test_have_titles(self, tmp_path):
        np.savez(tmp_path / "w.npz", weights=np.eye(3))
        found = {one["name"]: one["title"] for one in Numbers(page(tmp_path, "w.npz", "w.npz")[0]).facts["statistics"]}
        assert found == {"difference": "largest difference", "entropy": "entropy", "distance": "mean distance",
                         "first": "weight of first key", "previous": "weight of previous key",
                         "largest": "largest weight"}

    def test_have_notes(self, tmp_path):
        np.savez(tmp_path / "w.npz", weights=np.eye(3))
        notes = {one["name"]: one["note"] for one in Numbers(page(tmp_path, "w.npz")[0]).facts["statistics"]}
        assert notes["previous"] == "query 0 counts as 0" and notes["entropy"] == ""
        assert notes["largest"] == "without queries that read one key"

    def test_have_the_largest_weight_of_queries_that_read_several_keys(self, tmp_path):
        causal = np.array([[1, 0, 0], [0.25, 0.75, 0], [0.5, 0.25, 0.25]])
        np.savez(tmp_path / "w.npz", weights=np.stack([causal, np.eye(3)]))
        found = Numbers(page(tmp_path, "w.npz")[0])
        assert found.statistic("largest")[0].tolist() == [0.75, 1], "if no query reads several keys, that of all"
        assert found.facts["largest"] == [[1, 1]], "the end of the colour scale"

    def test_are_those_of_queries_and_keys(self, tmp_path):
        np.savez(tmp_path / "r.npz", other=np.eye(3), signed=-np.eye(3))
        axes = lambda name: [Numbers(page(tmp_path, "r.npz", "--of", name)[0]).facts[axis] for axis in ("rowAxis", "columnAxis")]
        assert axes("other") == ["queries", "keys"]
        assert axes("signed") == ["rows", "columns"]

    def test_have_the_largest_magnitude(self, tmp_path):
        scores = np.random.default_rng(2).standard_normal((3, 4, 4))
        np.savez(tmp_path / "s.npz", scores=scores)
        found = Numbers(page(tmp_path, "s.npz")[0])
        np.testing.assert_allclose(found.statistic("largest")[0], np.abs(scores).max((1, 2)), rtol=1e-5)
        assert found.statistic("entropy") is None

    @pytest.mark.parametrize("name", ["entropy", "logsumexp", "distance", "weight_sum", "masked_scores", "context", "V"])
    def test_are_not_those_of_weights_for_other_tensors(self, tmp_path, name):
        values = np.random.default_rng(6).random((3, 5, 5))
        np.savez(tmp_path / "r.npz", weights=values, other=values, **{name: values})
        found = Numbers(page(tmp_path, "r.npz", "--of", name)[0])
        assert [one["name"] for one in found.facts["statistics"]] == ["largest"]
        np.testing.assert_allclose(found.statistic("largest")[0], values.max((1, 2)), rtol=1e-5)
        sums, entropies, _, _ = found.rows("0-0").T
        assert np.isnan(sums).all() and np.isnan(entropies).all()

    @pytest.mark.parametrize("name", ["weights", "dropped_weights", "mean_weights", "attn"])
    def test_are_those_of_weights_of_these_names(self, tmp_path, name):
        values = np.random.default_rng(6).random((3, 5, 5))
        np.savez(tmp_path / "r.npz", scores=values, **{name: values})
        found = Numbers(page(tmp_path, "r.npz", "--of", name)[0])
        assert_statistics(found, values, None)
        np.testing.assert_allclose(found.rows("0-0")[:, 0].reshape(-1), values[0].sum(1), rtol=1e-6)

    def test_leave_out_queries_that_see_no_key(self, tmp_path):
        np.savez(tmp_path / "w.npz", weights=np.array([[0.0, 0, 0], [0.5, 0.5, 0], [0, 1, 0]]))
        found = Numbers(page(tmp_path, "w.npz")[0])
        assert found.statistic("first")[0] == [0.25]
        assert found.statistic("entropy")[0] == pytest.approx(np.log(2) / 2, rel=1e-5)

    def test_use_positions_of_the_tensor_if_rows_are_selected(self, tmp_path):
        np.savez(tmp_path / "w.npz", weights=np.eye(6))
        found = Numbers(page(tmp_path, "w.npz", "--rows", "3:", "--cols", "1:")[0])
        assert found.statistic("distance")[0] == [0]

    def test_place_selected_queries_after_a_cache(self, tmp_path):
        w = result_after_a_cache(tmp_path)
        for text in (tmp_path / "run.html").read_text(), page(tmp_path, "rows.npz")[0]:
            assert_statistics(Numbers(text), w, [6, 9])

    ROWS = {"0:3": [0, 1, 2], "5,1,-2": [5, 1, 6], "2": [2], "4:8": [4, 5, 6, 7]}

    @pytest.mark.parametrize("rows", ROWS)
    def test_place_the_queries_that_the_job_selected(self, tmp_path, rows):
        w = result_of_rows(tmp_path, rows, self.ROWS[rows])
        for text in (tmp_path / "run.html").read_text(), page(tmp_path, "rows.npz")[0]:
            assert_statistics(Numbers(text), w, self.ROWS[rows])

    def test_place_the_drawn_ones_of_the_queries_that_the_job_selected(self, tmp_path):
        w = result_of_rows(tmp_path, "5,1,-2", [5, 1, 6])
        found = Numbers(page(tmp_path, "rows.npz", "--rows", "2,0")[0])
        assert_statistics(found, w[:, [2, 0]], [6, 5])

    def test_place_the_queries_of_each_of_two_results(self, tmp_path):
        first = result_of_rows(tmp_path, "0:3", [0, 1, 2])
        (tmp_path / "rows.npz").rename(tmp_path / "first.npz")
        second = result_of_rows(tmp_path, "5,1,-2", [5, 1, 6])
        found = Numbers(page(tmp_path, "first.npz", "rows.npz")[0])
        assert_statistics(found, first, [0, 1, 2], 0)
        assert_statistics(found, second, [5, 1, 6], 1)


# Colours.

# What people with each form of complete colour blindness see, in linear RGB (Machado, Oliveira and Fernandes 2009).
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    "grey": np.tile([0.2126, 0.7152, 0.0722], (3, 1)),
}


def lab(colours, blindness):
    """CIE 1976 L*a*b* (D65) of 8-bit sRGB colours."""
    c = colours / 255
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.transpose(BLINDNESS[blindness]), 0, 1)
    xyz = seen @ np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]).T
    t = xyz / [0.9505, 1, 1.089]
    f = np.where(t > 216 / 24389, np.cbrt(t), (24389 / 27 * t + 16) / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], 1)


class TestColourMaps:
    @pytest.fixture(scope="class")
    def maps(self, class_path):
        np.save(class_path / "w.npy", np.eye(2))
        facts = Numbers(page(class_path, "w.npy")[0]).facts
        return {name: np.frombuffer(bytes.fromhex(text), "u1").reshape(256, 3) for name, text in facts["maps"].items()}

    @pytest.mark.parametrize("blindness", BLINDNESS)
    def test_of_weights_get_darker_on_paper(self, maps, blindness):
        assert (np.diff(lab(maps["paper"], blindness)[::5, 0]) < 0).all()

    @pytest.mark.parametrize("blindness", BLINDNESS)
    def test_of_weights_get_brighter_at_night(self, maps, blindness):
        assert (np.diff(lab(maps["night"], blindness)[::5, 0]) > 0).all()

    @pytest.mark.parametrize("blindness", [form for form in BLINDNESS if form != "grey"])
    @pytest.mark.parametrize("name, sign", [("diverging", -1), ("divergingNight", 1)])
    def test_of_signed_values_change_from_the_middle_to_both_ends(self, maps, blindness, name, sign):
        light = lab(maps[name], blindness)[:, 0]
        assert (sign * np.diff(light[128::6]) > 0).all()
        assert (sign * np.diff(light[127::-6]) > 0).all()

    @pytest.mark.parametrize("blindness", [form for form in BLINDNESS if form != "grey"])
    @pytest.mark.parametrize("name", ["diverging", "divergingNight"])
    def test_of_signed_values_tell_the_signs_apart(self, maps, blindness, name):
        seen = lab(maps[name], blindness)
        assert min(np.hypot(*(seen[127 - k] - seen[128 + k])[1:]) for k in (32, 64, 96, 127)) > 10


# Two results.


class TestTwoResults:
    @pytest.fixture(autouse=True)
    def weights(self, tmp_path):
        a, b = np.random.default_rng(2).random((2, 4, 4))
        for name, array in ("a", a), ("b", b), ("c", np.ones((5, 4))):
            np.savez(tmp_path / f"{name}.npz", weights=array)
        return a, b

    def test_are_on_one_page(self, tmp_path, weights):
        found = Numbers(page(tmp_path, "a.npz", "b.npz")[0])
        assert found.facts["sets"] == ["a.npz", "b.npz"]
        np.testing.assert_array_equal(found.matrix("0-0")[0], weights[0])
        np.testing.assert_array_equal(found.matrix("1-0")[0], weights[1])

    def test_have_levels_of_their_exact_difference(self, tmp_path, weights):
        found = Numbers(page(tmp_path, "a.npz", "b.npz")[0])
        want = strength_codes(weights[0] - weights[1], found.facts["unit"])
        np.testing.assert_array_equal(found.overview(2, 0, 1), want)

    def test_have_the_tokens_of_both(self, tmp_path):
        both = "tokens of a.npz / b.npz where they differ"
        for tokens, others, labels, words in (
                (["it", "was", "tired"], ["it", "was", "wide"], ["it", "was", "tired / wide"],
                 "warning: a.npz and b.npz have different tokens, first 'tired / wide' at 2 of the queries; the page shows both\n"),
                (["it", "was", "tired"], ["it", "was", "tired"], ["it", "was", "tired"], ""),
                (None, ["it", "was", "tired"], ["it", "was", "tired"], "")):
            for name, own in ("a", tokens), ("b", others):
                job = {"Q": [[1, 0], [0, 1], [1, 1]], "K": [[2, 0], [0, 2], [1, 1]], "V": [[1], [2], [3]], "outputs": ["weights"]}
                (tmp_path / f"{name}.json").write_text(json.dumps(job | ({"tokens": own} if own else {})))
                assert attn("run", f"{name}.json", "-o", f"{name}.npz", "--force", cwd=tmp_path).returncode == 0
            text, messages = page(tmp_path, "a.npz", "b.npz")
            facts = Numbers(text).facts
            assert facts["rows"] == facts["columns"] == labels
            assert (both in facts["notes"]) == bool(words) and words in messages and ("warning" in messages) == bool(words)

    def test_planted_difference_is_the_largest(self, tmp_path):
        """+0.5 in one of 144 heads, as small as noise elsewhere."""
        rng = np.random.default_rng(3)
        a = rng.random((12, 1, 12, 70, 70), np.float32) / 70
        b = a + rng.standard_normal(a.shape, np.float32) * 1e-3
        b[2, 0, 5, 66, 3] = a[2, 0, 5, 66, 3] + 0.5
        for name, array in ("x", a), ("y", b):
            np.savez(tmp_path / f"{name}.npz", weights=array)
        found = Numbers(page(tmp_path, "x.npz", "y.npz")[0])
        difference = found.statistic("difference")[0]
        assert difference.argmax() == 2 * 12 + 5
        np.testing.assert_allclose(difference, np.abs(a.astype(float) - b).max((1, 3, 4)).ravel(), rtol=1e-5)
        level, (tall, wide) = found.overview(2, 29, 144), found.facts["overview"]
        assert np.unravel_index(level.argmax(), level.shape) == (66 // tall, 3 // wide)

    @pytest.mark.parametrize("output, largest", [("weights", "weight"), ("masked_scores", "score")])
    def test_a_key_that_one_result_hides_differs(self, tmp_path, output, largest):
        """As a mask that leaks: its weight is the difference. That of scores would be infinite."""
        x = [[0.0], [0.0], [4.0]]
        for name, rule in ("right", "k <= q"), ("leak", "k <= q or k == 2"):
            (tmp_path / "job.json").write_text(json.dumps({"Q": [[1.0]] * 3, "K": x, "V": x, "mask_rule": rule, "outputs": [output]}))
            assert attn("run", "job.json", "-o", f"{name}.npz", cwd=tmp_path).returncode == 0
        found = Numbers(page(tmp_path, "right.npz", "leak.npz", "--of", output)[0])
        leaked = np.exp(4) / (np.exp(4) + 1)
        want = leaked if largest == "weight" else 0
        assert found.facts["areWeights"] == (output == "weights"), "what the page's own differences go by"
        np.testing.assert_allclose(found.statistic("difference")[0], [want], rtol=1e-6)

    def test_must_have_the_same_shape(self, tmp_path):
        run = attn("view", "a.npz", "c.npz", "-o", "no.html", cwd=tmp_path)
        assert run.returncode == 2
        assert b"shapes differ: (" in run.stderr

    def test_shapes_of_single_matrices_have_two_axes(self, tmp_path):
        for name, shape in (("x", (4, 4)), ("y", (3, 5))):
            np.save(tmp_path / f"{name}.npy", np.zeros(shape))
        run = attn("view", "x.npy", "y.npy", "-o", "no.html", cwd=tmp_path)
        assert run.returncode == 2
        assert run.stderr == b"attn: x.npy, y.npy: shapes differ: (4, 4) and (3, 5)\n"

    def test_need_a_page(self, tmp_path):
        assert attn("view", "a.npz", "b.npz", cwd=tmp_path).returncode == 2


# Security.

HOSTILE = ["</script><img src=x onerror=alert(1)>", "<!--<script>", "\u2028", "&lt;", "'\"\\", "é猫"]


class TestHostileTokens:
    @pytest.fixture(scope="class")
    def text(self, class_path):
        (class_path / "e.json").write_text(json.dumps({"weights": [[0.5] * 6] * 6, "tokens": HOSTILE}))
        return page(class_path, "e.json")[0]

    @pytest.fixture(scope="class")
    def policy(self, text):
        return dict(part.strip().split(" ", 1) for part in Elements(text).policy.split(";"))

    @staticmethod
    def hashes(texts):
        digests = [hashlib.sha256(text.encode()).digest() for text in texts]
        return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]

    def test_add_no_tags(self, text, tmp_path):
        (tmp_path / "clean.json").write_text(json.dumps({"weights": [[0.5] * 6] * 6}))
        clean = page(tmp_path, "clean.json")[0]
        assert [tag for tag, _ in Elements(text).tags] == [tag for tag, _ in Elements(clean).tags]

    def test_are_the_labels(self, text):
        rows = Numbers(text).facts["rows"]
        assert rows[:2] == HOSTILE[:2]
        assert rows[5] == "é猫"

    def test_are_escaped_in_the_data(self, text):
        assert re.findall("[<>&\u2028]", Elements(text).ids["attn"]) == []

    def test_policy_forbids_everything_by_default(self, policy):
        assert policy["default-src"] == "'none'"

    def test_policy_allows_only_the_scripts_of_the_page(self, text, policy):
        scripts = Elements(text).scripts
        assert len(scripts) == 1
        assert policy["script-src"].split() == self.hashes(scripts)

    def test_policy_allows_only_the_styles_of_the_page(self, text, policy):
        assert policy["style-src"].split() == self.hashes(Elements(text).styles)

    def test_page_loads_nothing_and_evaluates_no_text(self, text):
        assert re.findall(r"https?:|//[a-z]+\.[a-z]+/|@import|url\(|\bfetch\(|XMLHttp|WebSocket|innerHTML|\beval\b|\bimport\b(?! *\()",
                          text) == []


def test_run_writes_a_page(tmp_path):
    run = attn("run", "--q", "[[1.0, 2]]", "--k", "[[1.0, 0], [0, 1]]", "--view=r.html", cwd=tmp_path)
    assert run.returncode == 0
    assert Numbers((tmp_path / "r.html").read_text()).shape == (1, 2)


def test_first_of_four_axes_is_the_layers_if_layers_are_chosen(tmp_path):
    np.save(tmp_path / "w.npy", np.full((3, 2, 4, 4), .25))
    for flags, groups, is_told in (([], ["batch 0", "batch 1", "batch 2"], True), (["--layer", "0:3"], ["layer 0", "layer 1", "layer 2"], False),
                                   (["--layer", "-1,0"], ["layer 2", "layer 0"], False), (["--batch", "1,2"], ["batch 1", "batch 2"], False)):
        text, messages = page(tmp_path, "w.npy", *flags)
        assert Numbers(text).facts["groups"] == groups
        assert ("(3, 2, 4, 4): the axes are taken as batch, head, L, S; if the first one is layers, add --layer 0:3" in messages) == is_told
    q = np.random.default_rng(1).random((3, 2, 4, 5))
    np.savez(tmp_path / "q.npz", Q=q, K=q, V=q)
    (tmp_path / "q.json").write_text(json.dumps({name: f"q.npz#{name}" for name in "QKV"}))
    attn("run", "q.json", "-o", "r.npz", cwd=tmp_path)
    assert "if the first one is layers" not in page(tmp_path, "r.npz", "--of", "weights")[1], "the job says that it is the batch"
    assert attn("view", "r.npz", "--layer", "0", cwd=tmp_path).returncode == 2


def test_titles_and_names_of_files_have_no_folders(tmp_path):
    for folder, shift in ("one/deep", 0), ("one/other", .1), ("two", .2):
        (tmp_path / folder).mkdir(parents=True)
        np.save(tmp_path / folder / "w.npy", np.full((2, 4, 4), shift))
        np.savez(tmp_path / folder / f"{folder[-1]}.npz", **{"a/b": np.full((2, 4, 4), shift)})
    facts = lambda *files: Numbers(page(tmp_path, *(str(tmp_path / file) for file in files))[0]).facts
    assert facts("one/deep/w.npy")["title"] == "w.npy"
    assert facts("one/deep/p.npz#a/b")["title"] == "a/b"
    assert facts("one/deep/p.npz#a/b", "two/o.npz#a/b")["sets"] == ["p.npz#a/b", "o.npz#a/b"]
    assert facts("one/deep/w.npy", "one/other/w.npy")["sets"] == ["deep/w.npy", "other/w.npy"]
    assert facts("one/deep/w.npy", "two/w.npy")["sets"] == ["one/deep/w.npy", "two/w.npy"]
    assert facts("two/w.npy", "two/w.npy")["sets"] == ["w.npy", "w.npy"]


def test_nothing_is_said_about_a_page_that_is_not_written(tmp_path):
    """The first file is modified while the second is awaited on standard input."""
    np.save(tmp_path / "a.npy", np.ones((512, 512)))
    command = [ATTN, "view", "a.npy", "-", "-o", "page.html"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        maps = pathlib.Path(f"/proc/{run.pid}/maps")
        give_up = time.monotonic() + 60
        while "a.npy" not in maps.read_text() and time.monotonic() < give_up:
            time.sleep(0.01)
        time.sleep(0.05)
        with open(tmp_path / "a.npy", "r+b") as file:
            file.seek(1000)
            file.write(b"x")
        _, message = run.communicate((tmp_path / "a.npy").read_bytes(), timeout=60)
    assert (run.returncode, b"a.npy: was modified" in message, b"page:" in message) == (74, True, False)
    assert not (tmp_path / "page.html").exists()
    written = attn("view", "a.npy", "-o", "page.html", cwd=tmp_path)
    assert (written.returncode, written.stderr.startswith(b"attn: page: 1 matrix")) == (0, True)


def hiding_options(path, panel):
    """The options that the panel "why this weight" names for each cell of a matrix."""
    numbers = Numbers(path.read_text())
    why, hidden = numbers.facts["why"], np.isneginf(numbers.matrix(f"0-{panel}")[0]).ravel()
    if "hiding" not in why:
        return [why["hides"] if one else [] for one in hidden]
    found = [why["hiding"]["sets"][k] for k in numbers.data(f"hiding-0-{why['hiding']['of'][panel]}")]
    assert [len(names) > 0 for names in found] == hidden.tolist()
    return found


def job_with_hidden_keys(rng):
    """A random job, and for each batch item, head, query and key the options that hide the key, in the order of the page."""
    B, G, share, L, S = (int(rng.integers(1, most + 1)) for most in (2, 2, 2, 6, 7))
    chance = lambda share: rng.random() < share
    if chance(.3):
        S = L
    numbers = lambda *shape: rng.standard_normal(shape).round(2).tolist()
    job = {"Q": numbers(B, G * share, L, 2), "K": numbers(B, G, S, 2), "V": numbers(B, G, S, 1)}
    lengths = lambda most: rng.integers(0, most + 1, B).tolist()
    booleans = lambda *shape: (rng.random(shape) < .7).tolist()
    infinite = lambda *shape: np.where(rng.random(shape) < .8, np.array(.5, object), "-Infinity").tolist()
    for name, value in {"query_lengths": lengths(L), "key_lengths": lengths(S), "key_starts": lengths(S), "causal": True,
                        "alignment": "bottom-right", "window": rng.integers(-1, 3, 2).tolist(), "chunk": int(rng.integers(1, 4)),
                        "mask": booleans(B, 1, L, S) if chance(.5) else infinite(G * share, L, S), "key_mask": booleans(B, S),
                        "bias": infinite(L, S), "mask_rule": "j != 1"}.items():
        if chance(.3) and (name != "alignment" or "causal" in job):
            job[name] = value
    if chance(.3) and L == S and "key_starts" not in job:
        job["documents"] = np.sort(rng.integers(0, 2, L)).tolist()
    if "window" in job and job["window"][0] >= 0 and chance(.5):
        job["sink_tokens"] = int(rng.integers(1, 3))
    sinks = job.get("sink_tokens", 0)
    left, right = job.get("window", [-1, -1])
    expected = np.empty((B, G * share, L, S), object)
    for b, h, i, j in np.ndindex(expected.shape):
        begin, query_length, key_length = (job[name][b] if name in job else usual for name, usual in
                                           (("key_starts", 0), ("query_lengths", L), ("key_lengths", S)))
        documents = job.get("documents", [0] * max(L, S))
        of_q, of_k = documents[i], documents[j]
        in_order = lambda length, end, of: sum(documents[at] == of for at in range(min(length, end)))
        q, k = (in_order(L, i, of_q), in_order(S, j, of_k)) if "documents" in job else (i - begin, j - begin)
        if job.get("alignment") == "bottom-right":
            q += in_order(key_length, S, of_q) - in_order(query_length, L, of_q) if "documents" in job else key_length - query_length
        mask = lambda name, *at: np.broadcast_to(np.array(job[name], object), (B, G * share, L, S))[at] in (False, "-Infinity")
        together = of_q == of_k and j >= begin
        beyond = left >= 0 and k >= sinks and q - k > left or right >= 0 and k - q > right
        apart = "chunk" in job and q // job["chunk"] != k // job["chunk"]
        hidden = {"query_lengths": i >= query_length, "key_lengths": j >= key_length, "key_starts": j < begin, "documents": of_q != of_k,
                  "causal": together and "causal" in job and k > q, "window": together and beyond, "chunk": together and apart,
                  "mask_rule": "mask_rule" in job and together and j == 1 and not apart and not (sinks > 0 and beyond),
                  "bias": "bias" in job and mask("bias", b, h, i, j), "mask": "mask" in job and mask("mask", b, h, i, j),
                  "key_mask": "key_mask" in job and not job["key_mask"][b][j]}
        expected[b, h, i, j] = [name for name, hides in hidden.items() if hides]
    return job, expected


class TestWhyThisWeight:
    """Which pages have the vectors of the panel "why this weight", and what the others say."""

    JOB = {"Q": [[[[1.0, 2.0], [0.0, 1.0]]] * 2], "K": [[[[0.5, 1.0], [1.0, -1.0], [2.0, 0.0]]] * 2],
           "V": [[[[1.0], [2.0], [3.0]]] * 2]}

    @pytest.fixture
    def why(self, tmp_path):
        """The member `why` of the page of a job's result."""
        def why(outputs, *arguments, **keys):
            (tmp_path / "job.json").write_text(json.dumps(self.JOB | keys))
            run = attn("run", "job.json", "--outputs", outputs, "-o", "r.npz", "--force", cwd=tmp_path)
            assert run.returncode == 0
            return json.loads(Elements(page(tmp_path, "r.npz", *arguments)[0]).ids["attn"])["why"]
        return why

    ALL = "weights,queries,keys,values"

    def test_result_with_queries_and_keys(self, why):
        found = why(self.ALL, softcap=3, temperature=2, scale=0.25)
        assert (found["width"], found["valueWidth"], found["softcap"], found["temperature"], found["factor"]) == (2, 1, 3, 2, 0.25)

    def test_run_always_includes_them(self, tmp_path):
        (tmp_path / "job.json").write_text(json.dumps(self.JOB))
        run = attn("run", "job.json", "--view=page.html", "-o", "r.npz", cwd=tmp_path)
        assert run.returncode == 0
        assert "steps-0-1" in Elements((tmp_path / "page.html").read_text()).ids
        assert "queries" not in np.load(tmp_path / "r.npz")

    def test_options_that_hide_each_key(self, tmp_path):
        rng = np.random.default_rng(7)
        for number in range(60):
            job, expected = job_with_hidden_keys(rng)
            (tmp_path / "job.json").write_text(json.dumps(job))
            run = attn("run", "job.json", "--view=page.html", "--force", cwd=tmp_path)
            assert run.returncode == 0, run.stderr
            for panel, want in enumerate(expected.reshape(-1, *expected.shape[2:])):
                assert hiding_options(tmp_path / "page.html", panel) == want.ravel().tolist(), (number, panel, job)

    @pytest.mark.parametrize("keys, rows", [
        ({"prefix_lengths": 2, "causal": True}, ["..cc", "..cc", "...c", "...."]),
        ({"key_indices": [[0, 1], [1, 2], [3, -1], [0, 3]], "causal": True}, [".cKK", "k.cK", "kkkc", ".kk."]),
        ({"tree_parents": [-1, 0, 0], "causal": True}, [".TTT", "..TT", "...T", "..t."]),
        ({"blocks": [[True, False], [True, True]], "block_size": [2, 2], "causal": True}, [".cBB", "..BB", "...c", "...."]),
    ], ids=["prefix", "key lists", "tree", "blocks"])
    def test_rules_that_hide_each_key(self, tmp_path, keys, rows):
        letters = {"c": "causal", "k": "key_indices", "t": "tree_parents", "b": "blocks"}
        names = {".": []} | {key: [name] for key, name in letters.items()} | {key.upper(): ["causal", name] for key, name in letters.items()}
        matrix = [[1.0, 2.0], [0.5, 1.0], [1.0, -1.0], [2.0, 0.0]]
        (tmp_path / "job.json").write_text(json.dumps({"Q": matrix, "K": matrix, "V": matrix} | keys))
        assert attn("run", "job.json", "--view=page.html", cwd=tmp_path).returncode == 0
        assert hiding_options(tmp_path / "page.html", 0) == [names[cell] for row in rows for cell in row]

    @pytest.mark.parametrize("keys", [{}, {"bias": [[[1.0, 2.0, 0.0]] * 2] * 2, "sinks": [0.5, 1.0]}, {"head_scale": [1.0, 2.0]}],
                             ids=["plain", "bias and sinks", "head scale"])
    def test_missing_outputs_are_named(self, why, keys):
        sentence = why("weights", **keys)
        outputs = re.fullmatch(r"To see how a weight comes about, compute the result with --outputs (\S+)\.", sentence)[1]
        assert why(outputs, **keys)["width"] == 2

    def test_without_values_the_context_is_missing(self, why):
        found = why("weights,queries,keys")
        assert (found["valueWidth"], found["note"]) == (
            0, "The result has no values. To see what this key adds to the context, compute it with --outputs weights,queries,keys,values.")

    @pytest.mark.parametrize("keys, note", [
        ({}, ""), ({"gate": [[[[0.5], [1.0]]] * 2]}, "Each element is then multiplied by its output gate."),
        ({"o_scale": 2.5}, "Each element is then divided by the option o_scale, 2.5."),
        ({"o_scale": 2, "gate": [[[[0.5], [1.0]]] * 2]},
         "Each element is then multiplied by its output gate and divided by the option o_scale, 2.")],
        ids=["plain", "gate", "o_scale", "both"])
    def test_what_follows_the_sum_of_values_is_named(self, why, keys, note):
        assert why(self.ALL, **keys)["note"] == note

    def test_dropout_needs_the_weights_after_it(self, why):
        dropout = {"dropout_mask": [[True, False, True]] * 2, "dropout_p": 0.25}
        found = why(self.ALL, **dropout)
        assert (found["valueWidth"], found["dropout"]) == (0, None)
        outputs = re.fullmatch(r"Dropout changes the weights before they multiply the values\. To see how, compute the result with --outputs (\S+)\.", found["note"])[1]
        found = why(outputs, **dropout)
        assert (found["valueWidth"], found["dropout"], found["note"]) == (1, 0.25, "")

    def test_weights_after_dropout_name_the_page_of_those_before(self, why, tmp_path):
        found = why("weights,dropped_weights", "--of", "dropped_weights", dropout_mask=[[True, False, True]] * 2, dropout_p=0.25)
        command = "attn run --outputs weights --view=page.html"
        assert found == f"These are weights after dropout. The page of {command} explains the weights before dropout."
        assert attn("run", "job.json", "--outputs", "dropped_weights", "--view=page.html", "--force", cwd=tmp_path).returncode == 0
        assert json.loads(Elements((tmp_path / "page.html").read_text()).ids["attn"])["why"] == found
        assert attn(*command.split()[1:], "job.json", "--force", cwd=tmp_path).returncode == 0
        assert json.loads(Elements((tmp_path / "page.html").read_text()).ids["attn"])["why"]["dropout"] == 0.25

    @pytest.mark.parametrize("keys, words", [({"normaliser": "sparsemax"}, "no plain softmax"), ({"softmax": {"axis": "all"}}, "no plain softmax"),
                                             ({"score": "l2"}, "not a sum of products"), ({"zero_key": True}, "do not match"),
                                             ({"sinks": ["Infinity", 0]}, "do not match")])
    def test_other_weights_are_not_explained(self, why, keys, words):
        assert words in why(self.ALL + (",sinks" if "sinks" in keys else ""), **keys)

    def test_a_sink_of_minus_infinity_is_none(self, why):
        assert why(self.ALL + ",sinks", sinks=["-Infinity", 0.5])["sinks"] == [None, 0.5]

    def test_some_keys(self, why):
        assert why(self.ALL, "--cols", "0,1") == "The steps of a weight are shown if all keys are drawn: omit --cols."

    @pytest.mark.parametrize("of", ["scores", "queries", "context"])
    def test_other_tensors_have_none(self, why, of):
        assert why(self.ALL + ",scores,context", "--of", of) is None

    def test_two_results_have_none(self, why, tmp_path):
        assert why(self.ALL, str(tmp_path / "r.npz")) is None

    def test_weights_of_other_programs_have_none(self, tmp_path):
        np.savez(tmp_path / "w.npz", weights=np.full((2, 2), 0.5), queries=np.ones((2, 3)), keys=np.ones((2, 3)))
        assert json.loads(Elements(page(tmp_path, "w.npz")[0]).ids["attn"])["why"] is None

    def test_vectors_that_do_not_fit_are_left_out(self, why, tmp_path):
        rng = np.random.default_rng(1)
        vectors = {name: rng.standard_normal((40, 256)).tolist() for name in "QKV"}
        assert isinstance(why(self.ALL, **vectors), dict)
        text = (tmp_path / "page.html").read_text()
        smaller, message = page(tmp_path, "r.npz", "--max-html-bytes", len(text.encode()) - 1)
        facts = json.loads(Elements(smaller).ids["attn"])
        assert facts["why"] == ("Queries and keys did not fit into this page: draw fewer heads, "
                                "or raise --max-html-bytes.")
        assert b"64 bits per value, " in message.encode()
        assert not re.search(r"(steps|keyed)-0-", "".join(Elements(smaller).ids))
        assert Elements(smaller).ids["values-0-0"] == Elements(text).ids["values-0-0"]
        assert page(tmp_path, "r.npz", "--max-html-bytes", len(text.encode()))[0] == text


def test_statistics_of_rows_with_sinks_say_that_they_are_shares(tmp_path):
    """Of weights without sinks, which sum to 1, there is nothing to say."""
    job = {"Q": [[1.0], [2.0]], "K": [[1.0], [2.0]], "V": [[1.0], [2.0]]}
    for sinks, note in ({}, ""), ({"sinks": [0.5]}, "divided by the sums of the weights"):
        done = attn("run", "-", "--view=p.html", "--force", stdin=json.dumps(job | sinks), cwd=tmp_path)
        assert done.returncode == 0
        facts = json.loads((tmp_path / "p.html").read_text().partition('id="attn">')[2].partition("</script>")[0])
        notes = {statistic["name"]: statistic["note"] for statistic in facts["statistics"]}
        assert notes["first"] == note and notes["previous"].endswith(note) and notes["entropy"] == ""


def test_a_page_of_results_names_a_bias_that_hides_keys(tmp_path):
    job = {"Q": [[1.0, 0], [0, 1]], "K": [[1.0, 0], [0, 1]], "V": [[1.0, 2], [3, 4]], "bias": [[0, "-Infinity"], [0.5, 0]],
           "outputs": ["weights", "queries", "keys", "values", "masked_scores"]}
    (tmp_path / "job.json").write_text(json.dumps(job))
    attn("run", "job.json", "-o", "r.npz", cwd=tmp_path)
    assert attn("view", "r.npz", "-o", "page.html", cwd=tmp_path).returncode == 0
    assert '"hides":["bias"]' in (tmp_path / "page.html").read_text()
