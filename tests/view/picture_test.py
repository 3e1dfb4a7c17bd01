#!/usr/bin/env python3
"""PNG and SVG of heat maps: every cell where it belongs, in its colour; labels that keep apart.

The colours here are those of docs/viewing.md; nothing is taken from the program.
"""

import pathlib
import re
import sys
import tempfile
import xml.etree.ElementTree

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402
from png import read_png  # noqa: E402

LEAST, MIDDLE, MOST = (255, 255, 255), (66, 150, 184), (18, 18, 52)
NEGATIVE, ZERO, POSITIVE = (10, 48, 110), (248, 248, 246), (116, 48, 4)
FRAME, HATCH, NAN = (150, 150, 156), (196, 196, 200), (192, 32, 128)
SVG = "{http://www.w3.org/2000/svg}"


def matrix_box(rows):
    """left, top, width, height of the first frame: the matrix, in pixels."""
    line = [FRAME] * 20  # longer than anything that a letter's grey edge makes
    top, left = next((y, x) for y, row in enumerate(rows) for x in range(len(row))
                     if row[x] == FRAME and row[x:x + 20] == line)
    right = left
    while rows[top][right] == FRAME:
        right += 1
    bottom = top
    while rows[bottom][left] == FRAME:
        bottom += 1
    return left, top, right - left, bottom - top


def corner_pixels(png, shape):
    """Of each cell, the pixels near its upper left corner, where no number stands."""
    _, _, rows = read_png(png)
    left, top, width, height = matrix_box(rows)
    tall, wide = height // shape[0], width // shape[1]
    return [[{rows[top + i * tall + y][left + j * wide + x] for y in range(2, 10)
              for x in range(2, 10)} for j in range(shape[1])] for i in range(shape[0])]


def draw(folder, array, *args, suffix="png", code=0):
    np.savez(folder / "in.npz", **array) if isinstance(array, dict) else np.savez(
        folder / "in.npz", weights=array)
    out = folder / f"out.{suffix}"
    run = attn("view", "in.npz", "-o", out, "--force", *args, cwd=folder)
    assert run.returncode == code, run
    return out.read_bytes()


def colours_and_orientation(checks, folder):
    weights = np.array([[0.5, 1, 1, 1], [1, 0.25, 1, 0.5], [0.001, 0.5, 1, 1]])
    cells = corner_pixels(draw(folder, weights), weights.shape)
    for i, j in np.ndindex(3, 4):
        want = {1: MOST, 0.5: MIDDLE}.get(weights[i, j])
        if want:
            checks.check(cells[i][j] == {want}, f"weights {i, j}: {cells[i][j]}")
    r, g, b = next(iter(cells[1][1]))
    checks.check(MIDDLE[0] < r < 255 and MIDDLE[1] < g < 255 and MIDDLE[2] < b < 255,
                 f"a quarter is lighter than a half: {r, g, b}")
    (light,) = cells[2][0]
    checks.check(min(light) >= 253, f"next to nothing is next to white: {light}")

    scores = np.array([[-4.0, 0, 4], [4, -4, 0]])
    cells = corner_pixels(draw(folder, {"scores": scores}), scores.shape)
    for i, j in np.ndindex(2, 3):
        want = {-4: NEGATIVE, 0: ZERO, 4: POSITIVE}[scores[i, j]]
        checks.check(cells[i][j] == {want}, f"scores {i, j}: {cells[i][j]}")
    cells = corner_pixels(draw(folder, {"scores": scores}, "--vmax", "8"), scores.shape)
    (half,) = cells[0][2]
    checks.check(half != POSITIVE and half[0] > half[2], f"--vmax 8 pales 4: {half}")
    cells = corner_pixels(draw(folder, {"scores": np.abs(scores)}, "--vmax", "2"), scores.shape)
    checks.check(cells[0][0] == {POSITIVE}, "beyond the limit is the limit")

    log = np.array([[1e-4, 1e-2, 1.0]])
    cells = corner_pixels(draw(folder, log, "--log"), log.shape)
    checks.check([cells[0][j] for j in range(3)] == [{LEAST}, {MIDDLE}, {MOST}], f"--log: {cells}")


def hidden_is_not_zero(checks, folder):
    weights = np.array([[1.0, 0], [0.5, 0.5]])
    masked = np.array([[0.0, -np.inf], [0, 0]])
    cells = corner_pixels(draw(folder, {"weights": weights, "masked_scores": masked}), (2, 2))
    checks.check(HATCH in cells[0][1] and len(cells[0][1]) > 1, f"hatched: {cells[0][1]}")
    checks.check(all(HATCH not in cells[i][j] for i, j in ((0, 0), (1, 0), (1, 1))), "only there")
    masked[0, 1] = -800  # seen, but the weight underflows
    cells = corner_pixels(draw(folder, {"weights": weights, "masked_scores": masked}), (2, 2))
    checks.check(cells[0][1] == {LEAST}, f"a weight of 0 that is seen: {cells[0][1]}")
    cells = corner_pixels(draw(folder, {"scores": np.array([[np.nan, 1.0]])}), (1, 2))
    checks.check(NAN in cells[0][0] and NAN not in cells[0][1], "NaN is crossed out")


def labels_keep_apart(checks, folder):
    words = ["I", "neighbourhood", "a", "<b>&\"'", "студент", "of"]
    rng = np.random.default_rng(3)
    for n in 4, 32, 128:
        tokens = [words[i % len(words)] for i in range(n)]
        typed = ["--tokens", ",".join(tokens)]
        text = draw(folder, rng.random((n, n)) + 0.01, *typed, suffix="svg").decode()
        root = xml.etree.ElementTree.fromstring(text)
        texts = root.findall(f"{SVG}text")
        shown = [t for t in texts if t.text in tokens]
        columns = sorted(float(t.get("x")) for t in shown if t.get("transform"))
        rows = sorted(float(t.get("y")) for t in shown if t.get("text-anchor") == "end")
        size = float(shown[0].get("font-size"))
        checks.check(size >= 7, f"{n} tokens: letters of {size} pixels")
        for places in columns, rows:
            checks.check(len(places) >= min(n, 4) and
                         min(np.diff(places), default=99) >= size, f"{n} tokens: {places}")
        width, height = float(root.get("width")), float(root.get("height"))
        checks.check(all(0 < float(t.get("x")) < width and 0 < float(t.get("y")) < height
                         for t in texts) and width < 1200, f"{n}: inside {width} x {height}")
        checks.check({"queries", "keys"} <= {t.text for t in texts}, "axis titles")
        axis = {t.text: t.get("transform") is not None for t in texts if t.text in ("queries", "keys")}
        checks.check(axis == {"queries": True, "keys": False}, f"rows are queries: {axis}")


def box_of(text):
    """left, top, right, bottom of a text, its letters 0.6 em wide (DejaVu's digits are 0.64)."""
    size, x, y = (float(text.get(key)) for key in ("font-size", "x", "y"))
    wide = 0.6 * size * len(text.text)
    start = {"middle": -wide / 2, "end": -wide}.get(text.get("text-anchor"), 0)
    if text.get("transform"):
        return x - 0.7 * size, y - start - wide, x, y - start
    return x + start, y - 0.7 * size, x + start + wide, y


def texts_keep_apart(checks, folder):
    """No text on another: title, notes, axes, labels, values, the colour bar's numbers."""
    rng = np.random.default_rng(5)
    for n in 4, 32, 128:
        hidden = np.triu(np.full((n, n), -np.inf), 1)
        scores = rng.standard_normal((n, n)) * 3
        weights = np.exp(scores + hidden)
        weights /= weights.sum(1, keepdims=True)
        arrays = {"weights": weights, "scores": scores, "masked_scores": scores + hidden}
        grid = np.stack([weights] * 12).reshape(3, 1, 4, n, n)
        for args in ([], ["--of", "scores"], ["--log"], ["--vmax", "0.123"], ["--of", "grid"]):
            text = draw(folder, {**arrays, "grid": grid}, *args, suffix="svg").decode()
            texts = xml.etree.ElementTree.fromstring(text).findall(f"{SVG}text")
            boxes = [(box_of(t), t.text) for t in texts if t.text]
            over = [(a[1], b[1]) for i, a in enumerate(boxes) for b in boxes[:i]
                    if min(a[0][2], b[0][2]) > max(a[0][0], b[0][0]) and
                    min(a[0][3], b[0][3]) > max(a[0][1], b[0][1])]
            checks.check(len(boxes) > 8 and not over, f"{n} {args}: {over[:5]}")


def colour_bar(checks, folder):
    """Round numbers between the ends, each where its colour is."""
    for array, args, want in ((np.array([[0.0, 0.91]]), [], ["0", "0.2", "0.4", "0.6", "0.8", "0.91"]),
                              (np.array([[-14.0, 3]]), [], ["14", "10", "5", "0", "\u22125", "\u221210", "\u221214"]),
                              (np.array([[1e-4, 1.0]]), ["--log"], ["1e\u22124", "0.001", "0.01", "0.1", "1"])):
        root = xml.etree.ElementTree.fromstring(
            draw(folder, {"x": array}, *args, suffix="svg"))
        bar = root.findall(f"{SVG}rect")[2]
        left, top, tall = (float(bar.get(key)) for key in ("x", "y", "height"))
        found = {t.text: float(t.get("y")) - 0.36 * 12 for t in root.findall(f"{SVG}text")
                 if float(t.get("x")) > left and top - 6 < float(t.get("y")) <= top + tall + 6}
        checks.check(set(found) == set(want), f"{args}: {found}")
        ends = array.min(), abs(array).max()
        for label, y in found.items():
            value = float(label.replace("\u2212", "-"))
            share = (np.log(value / ends[0]) / np.log(ends[1] / ends[0]) if args else
                     (value - ends[0]) / (ends[1] - ends[0]))
            checks.check(abs(top + tall * (1 - share) - y) < 1, f"{args}: {label} at {y}")


def svg_holds_the_same(checks, folder):
    weights = np.array([[1, 0.5], [0.25, 1]])
    text = draw(folder, weights, "--tokens", "</text><script>x</script>,b", suffix="svg").decode()
    checks.check("<script" not in text, "a token is never markup")
    root = xml.etree.ElementTree.fromstring(text)
    paths = {p.get("fill"): p.get("d") for g in root.findall(f"{SVG}g") for p in g}
    most = "#%02x%02x%02x" % MOST
    first = [tuple(map(float, m)) for m in re.findall(r"M([\d.]+) ([\d.]+)", paths[most])]
    frame = root.findall(f"{SVG}rect")[1]
    x, y, side = (float(frame.get(k)) for k in ("x", "y", "width"))
    checks.check(first[:2] == [(x, y), (x + side / 2, y + side / 2)], f"the diagonal: {first}")
    checks.check("1" in [t.text for t in root.findall(f"{SVG}text")], "values in the cells")
    checks.check("http" not in text.replace("http://www.w3.org/2000/svg", ""), "no links")


def many_heads(checks, folder):
    weights = np.random.default_rng(0).random((3, 5, 5))
    root = xml.etree.ElementTree.fromstring(draw(folder, weights, suffix="svg"))
    titles = [t.text for t in root.findall(f"{SVG}text") if (t.text or "").startswith("head")]
    checks.check(titles == ["head 0", "head 1", "head 2"], f"a panel a head: {titles}")
    one = xml.etree.ElementTree.fromstring(draw(folder, weights, "--head", "-1", suffix="svg"))
    checks.check(any("head 2" in (t.text or "") for t in one.findall(f"{SVG}text")), "--head -1")
    big = draw(folder, np.random.default_rng(0).random((1100, 1100)), suffix="svg").decode()
    checks.check("strongest of 2 x 2" in big and len(big) < 20e6, "a large one is reduced")


def main():
    checks = Checks("pictures")
    with tempfile.TemporaryDirectory() as name:
        for test in (colours_and_orientation, hidden_is_not_zero, labels_keep_apart, texts_keep_apart,
                     colour_bar,
                     svg_holds_the_same, many_heads):
            test(checks, pathlib.Path(name))
    checks.finish()


main()
