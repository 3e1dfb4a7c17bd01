"""The HTML page, without a browser: its numbers, its size, and that it runs no scripts but its own.
scripts/test-page opens it in a browser.
"""

import base64
import hashlib
import html.parser
import json
import re
import types

import numpy as np
import pytest

from support.attn import attn

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
        if tag == "script" and "id" in attributes:
            self.ids[attributes["id"]] = data
        elif tag == "script":
            self.scripts.append(data)
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


class Numbers:
    """The matrices that a page contains."""

    def __init__(self, text):
        self.elements = Elements(text)
        self.facts = json.loads(self.elements.ids["attn"])
        self.shape = len(self.facts["rows"]), len(self.facts["columns"])

    def codes(self, what, kind):
        return np.frombuffer(base85(self.elements.ids[what]), kind)

    def matrix(self, which):
        """The values, -inf where hidden, and the largest error from rounding."""
        bits = self.facts["bits"]
        stored = self.codes(f"values-{which}", TYPES[bits])
        hidden = -np.inf if bits >= 32 else 2 ** bits - 1
        cells, at = np.full(self.shape, hidden, stored.dtype), 0
        for i, (first, end) in enumerate(zip(self.facts["first"], self.facts["end"])):
            cells[i, first:end] = stored[at:at + end - first]
            at += end - first
        assert at <= stored.size < at + 4, (at, stored.size)
        if bits >= 32:
            return cells, 0
        _, _, least, most = self.rows(which).T.astype(float)
        step = (most - least)[:, None] / (2 ** bits - 3)
        values = least[:, None] + step * cells
        values[cells == 2 ** bits - 1] = -np.inf
        values[cells == 2 ** bits - 2] = np.nan
        return values, step / 2 + 1e-7

    def rows(self, which):
        return self.codes(f"rows-{which}", "<f4").reshape(-1, 4)


# Numbers.


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

    def test_are_reduced_when_8_bits_do_not_fit(self, pages):
        assert "largest magnitude of" in pages[0].messages
        assert any("largest magnitude of" in note for note in pages[0].numbers.facts["notes"])

    def test_that_never_fit_are_refused(self, data, class_path):
        run = attn("view", "w.npz", "-o", "no.html", "--max-html-bytes", "1000", cwd=class_path)
        assert run.returncode == 2
        assert not (class_path / "no.html").exists()


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

    def test_float16_is_stored_as_float32(self, numbers):
        found = numbers("half")
        assert found.facts["bits"] == 32
        np.testing.assert_array_equal(found.matrix("0-0")[0], self.SCORES.astype(np.float16) / np.float16(3))


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

    def test_must_have_the_same_shape(self, tmp_path):
        run = attn("view", "a.npz", "c.npz", "-o", "no.html", cwd=tmp_path)
        assert run.returncode == 2
        assert b"the shapes must be equal" in run.stderr

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
        assert len(scripts) == 4
        assert policy["script-src"].split() == self.hashes(scripts)

    def test_policy_allows_only_the_styles_of_the_page(self, text, policy):
        assert policy["style-src"].split() == self.hashes(Elements(text).styles)

    def test_page_loads_nothing_and_evaluates_no_text(self, text):
        assert re.findall(r"https?:|//[a-z]+\.|@import|url\(|\bfetch\(|XMLHttp|WebSocket|innerHTML|\beval\b",
                          text) == []


def test_run_writes_a_page(tmp_path):
    run = attn("run", "--q", "[[1.0, 2]]", "--k", "[[1.0, 0], [0, 1]]", "--view=r.html", cwd=tmp_path)
    assert run.returncode == 0
    assert Numbers((tmp_path / "r.html").read_text()).shape == (1, 2)
