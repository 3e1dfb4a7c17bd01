#!/usr/bin/env python3
"""The HTML page without a browser: what numbers it holds, that nothing of a token is markup, that no
script but its own may run, and how large it is. scripts/test-page opens it.
"""

import base64
import hashlib
import html.parser
import json
import pathlib
import re
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402

TYPES = {64: "<f8", 32: "<f4", 16: "<u2", 8: "u1"}


class Elements(html.parser.HTMLParser):
    """Every tag, and what stands in scripts and styles."""

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


def page(folder, *args):
    run = attn("view", *args, "-o", "page.html", "--force", cwd=folder)
    assert run.returncode == 0, run
    return (folder / "page.html").read_text(), run.stderr.decode()


LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@[]^_{|"


def base85(text):
    """Five letters are the digits of a little-endian number of four bytes."""
    digits = np.array([LETTERS.index(letter) for letter in text], "u8").reshape(-1, 5)
    return (digits @ (85 ** np.arange(4, -1, -1)).astype("u8")).astype("<u4").tobytes()


class Numbers:
    def __init__(self, text):
        self.elements = Elements(text)
        self.facts = json.loads(self.elements.ids["attn"])
        self.shape = len(self.facts["rows"]), len(self.facts["columns"])

    def codes(self, what, kind):
        return np.frombuffer(base85(self.elements.ids[what]), kind)

    def matrix(self, which):
        """Values (hidden: -inf), and how far each may be from the file's."""
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


def numbers(checks, folder):
    rng = np.random.default_rng(1)
    s = rng.standard_normal((3, 40, 60)) + np.triu(np.full((40, 60), -np.inf), 1)
    w = np.exp(s) / np.exp(s).sum(-1, keepdims=True)
    w[0, 5, 3] = np.nan
    np.savez(folder / "w.npz", weights=w, masked_scores=s)
    limit = 50 << 20
    for bits in 64, 32, 16, 8:
        text, told = page(folder, "w.npz", "--max-html-bytes", limit)
        checks.check(len(text) <= limit, f"{len(text)} bytes, not {limit}")
        limit = len(text) - 1
        checks.check(f"3 matrices of 40 x 60, {bits} bits" in told, f"{limit}: {told}")
        got = Numbers(text)
        checks.check((bits < 64) == any("rounded" in note for note in got.facts["notes"]), "notes")
        for h in range(3):
            values, error = got.matrix(f"0-{h}")
            want = np.where(np.isneginf(s[h]), -np.inf, w[h])
            if bits == 32:
                want = want.astype(np.float32)
            same = np.isnan(values) == np.isnan(want)
            near = np.isnan(want) | (values == want)
            near |= np.abs(np.where(near, 0, values) - np.where(near, 0, want)) <= error
            checks.check(same.all() and near.all(), f"{bits} bits, head {h}")
            totals = got.rows(f"0-{h}")
            checks.check(np.allclose(totals[:, 0], w[h].sum(1), equal_nan=True), "row sums")
            p = np.where(w[h] > 0, w[h], 1)
            entropy = np.where(np.isnan(w[h].sum(1)), np.nan, -(p * np.log2(p)).sum(1))
            checks.check(np.allclose(totals[:, 1], entropy, atol=1e-6, equal_nan=True), "entropy")
    text, told = page(folder, "w.npz", "--max-html-bytes", limit)
    got = Numbers(text)
    checks.check(len(text) <= limit and "strongest of" in told and
                 any("strongest of" in note for note in got.facts["notes"]), f"reduced: {told}")
    run = attn("view", "w.npz", "-o", "no.html", "--max-html-bytes", "1000", cwd=folder)
    checks.check(run.returncode == 2 and not (folder / "no.html").exists(), f"too small: {run}")


def other_types(checks, folder):
    scores = np.arange(-6, 6).reshape(3, 4)
    np.savez(folder / "s.npz", scores=scores, half=scores.astype(np.float16) / 3)
    got = Numbers(page(folder, "s.npz", "--of", "scores")[0])
    checks.check(got.facts["signed"] and (got.matrix("0-0")[0] == scores).all() and
                 got.facts["limits"] == [-6, 6], f"integers: {got.facts}")
    got = Numbers(page(folder, "s.npz", "--of", "half")[0])
    checks.check(got.facts["bits"] == 32 and
                 (got.matrix("0-0")[0] == scores.astype(np.float16) / np.float16(3)).all(), "float16")


def two(checks, folder):
    a, b = np.random.default_rng(2).random((2, 4, 4))
    np.savez(folder / "a.npz", weights=a)
    np.savez(folder / "b.npz", weights=b)
    np.savez(folder / "c.npz", weights=np.ones((5, 4)))
    got = Numbers(page(folder, "a.npz", "b.npz")[0])
    checks.check(got.facts["sets"] == ["a.npz", "b.npz"] and (got.matrix("0-0")[0] == a).all() and
                 (got.matrix("1-0")[0] == b).all(), "two results")
    run = attn("view", "a.npz", "c.npz", "-o", "no.html", cwd=folder)
    checks.check(run.returncode == 2 and b"same shape" in run.stderr, f"shapes: {run}")
    checks.check(attn("view", "a.npz", "b.npz", cwd=folder).returncode == 2, "two need a page")


def nothing_foreign(checks, folder):
    evil = ["</script><img src=x onerror=alert(1)>", "<!--<script>", "\u2028", "&lt;", "'\"\\", "é猫"]
    (folder / "e.json").write_text(json.dumps({"weights": [[0.5] * 6] * 6, "tokens": evil}))
    (folder / "clean.json").write_text(json.dumps({"weights": [[0.5] * 6] * 6}))
    text, clean = (page(folder, name)[0] for name in ("e.json", "clean.json"))
    got, plain = Numbers(text), Elements(clean)
    checks.check([tag for tag, _ in got.elements.tags] == [tag for tag, _ in plain.tags],
                 "tokens make no tags")
    checks.check(got.facts["rows"][:2] == evil[:2] and got.facts["rows"][5] == "é猫", "labels")
    checks.check(not re.search("[<>&\u2028]", got.elements.ids["attn"]), "escaped in the data")

    def source(code):
        return "'sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() + "'"

    policy = dict(part.strip().split(" ", 1) for part in got.elements.policy.split(";"))
    checks.check(policy["default-src"] == "'none'", f"{policy}")
    checks.check(policy["script-src"].split() == [source(s) for s in got.elements.scripts] and
                 len(got.elements.scripts) == 4, "its own scripts and no others")
    checks.check(policy["style-src"].split() == [source(s) for s in got.elements.styles], "style")
    checks.check(not re.search(r"https?:|//[a-z]+\.|@import|url\(|\bfetch\(|XMLHttp|WebSocket|"
                               r"innerHTML|\beval\b", text), "nothing is loaded from anywhere")
    run = attn("run", "--q", "[[1.0, 2]]", "--k", "[[1.0, 0], [0, 1]]", "--view=r.html", cwd=folder)
    checks.check(run.returncode == 0 and Numbers((folder / "r.html").read_text()).shape == (1, 2),
                 f"run --view=r.html: {run}")


def main():
    checks = Checks("page")
    with tempfile.TemporaryDirectory() as name:
        for test in numbers, other_types, two, nothing_foreign:
            test(checks, pathlib.Path(name))
    checks.finish()


main()
