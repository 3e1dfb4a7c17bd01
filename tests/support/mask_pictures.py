"""docs/images/masks.svg: a picture of each rule in docs/masks.md, as `attn mask` draws it.

    PYTHONPATH=tests python3 -m support.mask_pictures > docs/images/masks.svg
"""

import json
import pathlib
import re
import tempfile
import textwrap
from xml.sax.saxutils import escape

import numpy as np

from support.attn import ROOT, attn

TOKENS, CELL, COLUMNS, LINE = 24, 4, 6, 20
TILE_WIDTH, TILE_HEIGHT, MARGIN = TOKENS * CELL + 40, TOKENS * CELL + 44, 12
NUMBERS = {"W": 7, "P": 6, "C": 8, "M": 6, "R": 1}
NUMBERS_OF = {"symmetric window": {"W": 4}, "dilated window": {"W": 8}, "first tokens and window": {"W": 5},
              "global tokens and window": {"W": 2}, "neighbours in a grid of width W": {"W": 6},
              "block diffusion, N noisy tokens first": {"N": 12, "M": 4},
              "sliding tiles, A x B of M tokens": {"M": 2, "A": 4, "B": 3}}
QUERIES_OF = {"causal, aligned at the end": 16}
ANCESTORS = [[1], [1, 1], [1, 0, 1], [1, 1, 0, 1], [1, 1, 0, 0, 1], [1, 0, 1, 0, 0, 1]]  # of the first drafts
DRAFTS = TOKENS - NUMBERS["P"]
TABLES = {
    "doc": [0] * 5 + [1] * 8 + [2] * 11,
    "sequence": [0] * 12 + [1] * 5 + [2] * 7,
    "image": [-1] * 4 + [0] * 6 + [-1] * 5 + [1] * 6 + [-1] * 3,
    "latest_image": [0] * 10 + [1] * 8 + [2] * 6,
    "wide": [1] + [0] * 11 + [1] + [0] * 11,
    "blocks": [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 1]],
    "ancestors": [(ANCESTORS[i % 6] + [0] * 6)[:6] + [0] * (DRAFTS - 6) for i in range(TOKENS)],
    "width": [1 + 2 * (i % 4) for i in range(TOKENS)],
    "start": [i - i % 5 for i in range(TOKENS)],
}
TABLES_OF = {"image before the text": {"image": [0] * 8 + [1] * 8 + [2] * 8}}


def rules():
    """Name -> expression, of the table in docs/masks.md."""
    text = (ROOT / "docs" / "masks.md").read_text(encoding="utf-8").split("## Rules in use\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| ([^|]+?) \| `([^`]+)` \|", text, re.MULTILINE))


def job_of(name, rule):
    """mask_rule, with numbers for its capital letters, and mask_tables."""
    for letter, value in (NUMBERS | NUMBERS_OF.get(name, {})).items():
        rule = re.sub(rf"\b{letter}\b", str(value), rule)
    all_tables = TABLES | TABLES_OF.get(name, {})
    tables = {table: all_tables[table] for table in re.findall(r"(\w+)\[", rule)}
    return {"mask_rule": rule} | ({"mask_tables": tables} if tables else {})


def mask_of(name, rule):
    """Its mask, (queries, keys), of head 1 if it names h."""
    shape = 1, 2, QUERIES_OF.get(name, TOKENS), TOKENS
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder) / "job.json"
        job.write_text(json.dumps(job_of(name, rule)))
        run = attn("mask", "job.json", "--shape", ",".join(map(str, shape)), "-o", "mask.npy", cwd=folder)
        assert run.returncode == 0, run.stderr.decode()
        return np.broadcast_to(np.load(pathlib.Path(folder) / "mask.npy"), shape)[0, 1]


def runs(mask):
    """The visible keys of each query as the path of rectangles."""
    path = ""
    for query, row in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
        for start, end in edges.reshape(-1, 2):
            path += f"M{start} {query}h{end - start}v1h{start - end}z"
    return path


def svg():
    tiles = ""
    table = rules()
    for number, (name, rule) in enumerate(table.items()):
        x = MARGIN + number % COLUMNS * TILE_WIDTH
        y = MARGIN + number // COLUMNS * TILE_HEIGHT
        mask = mask_of(name, rule)
        for line, text in enumerate(reversed(textwrap.wrap(name, LINE))):
            tiles += f'<text x="{x}" y="{y + 26 - 12 * line}">{escape(text)}</text>\n'
        tiles += (f'<g transform="translate({x} {y + 31}) scale({CELL})">'
                  f'<path fill="#f0f0f4" d="M0 0h{TOKENS}v{len(mask)}h-{TOKENS}z"/>'
                  f'<path fill="#28488f" d="{runs(mask)}"/></g>\n')
    width = MARGIN + COLUMNS * TILE_WIDTH
    height = 2 * MARGIN + -(-len(table) // COLUMNS) * TILE_HEIGHT - 12
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'font-family="\'DejaVu Sans\', Verdana, sans-serif" font-size="10" shape-rendering="crispEdges" role="img">\n'
            f'<title>The rules of this page, for {TOKENS} queries (rows) and keys (columns)</title>\n'
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n{tiles}</svg>\n')


if __name__ == "__main__":
    print(svg(), end="")
