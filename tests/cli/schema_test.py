#!/usr/bin/env python3
"""`attn schema` and the reader agree: what one takes, the other takes."""

import json
import pathlib
import sys

import jsonschema

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ROOT, Checks, attn  # noqa: E402

Q = {"Q": [[1, 2], [3, 4]], "K": [[1, 2], [3, 4]]}

# Documents that both refuse, each a legal one with one thing changed.
WRONG = [
    {**Q, "hedas": 2},
    {**Q, "heads": 0},
    {**Q, "heads": 1.5},
    {**Q, "heads": "two"},
    {**Q, "scale": "big"},
    {**Q, "scale": [1]},
    {**Q, "causal": "top"},
    {**Q, "causal": 1},
    {**Q, "window": [1]},
    {**Q, "window": [-2, 0]},
    {**Q, "softmax": {"axis": "rows"}},
    {**Q, "softmax": {"axes": "all"}},
    {**Q, "softmax": "all"},
    {**Q, "tokens": [1, 2]},
    {**Q, "tokens": "a b"},
    {**Q, "outputs": "weights"},
    {**Q, "rows": 1},
    {**Q, "seed": -1},
    {**Q, "seed": []},
    {**Q, "seed": "abc"},
    {**Q, "seed": ["x"], "Q": {"randn": {"shape": [2, 2]}}},
    {**Q, "seed": 1.5, "Q": {"randn": {"shape": [2, 2]}}},
    {**Q, "heads": 2.5},
    {**Q, "rows": [0.5]},
    {**Q, "Q": ""},
    {**Q, "Q": [{"randn": {"shape": [2]}}, [1, 2]], "seed": 1},
    {**Q, "Q": [["x", 1], [1, 2]]},
    {**Q, "Q": {"randn": {"size": [2, 2]}}, "seed": 1},
    {"embeddings": Q["Q"], "position": {"kind": "sinusoidal", "base": 0}},
    {"embeddings": Q["Q"], "position": {"kind": "sinusoidal", "base": -1}},
    {"embeddings": Q["Q"], "position.base": 3},
    {**Q, "generator": "mt19937"},
    {**Q, "schema": "attn/2"},
    {**Q, "Q": {"randm": {"shape": [2, 2]}}, "seed": 1},
    [1, 2],
]

RIGHT = [
    Q,
    {**Q, "K": [[1], [2]], "heads": 2, "kv_heads": 1},
    {**Q, "scale": -0.5, "causal": "bottom-right", "window": [-1, 0], "rows": [-1]},
    {**Q, "heads": 2.0, "rows": [-1.0, 0], "window": [1.0, 1.0]},
    {**Q, "Q": {"randn": {"shape": [2, 2]}}, "seed": 2.0},
    {**Q, "Q": {"randn": {"shape": [2, 2]}}, "seed": [2.0, 1]},
    {"embeddings": Q["Q"], "position": {"kind": "sinusoidal", "base": 0.5}},
    {**Q, "scale": "none", "causal": True, "tokens": ["a", "b"], "outputs": ["weights"]},
    {**Q, "softmax": {"axis": "all"}, "compute": "f32", "score": "cosine"},
    {**Q, "Q": [["NaN", "Infinity"], [1, 2.5]]},
    {**Q, "Q": {"randn": {"shape": [2, 2]}}, "seed": [1, 2]},
    {**Q, "Q": {"integers": {"high": 5, "shape": [2, 2]}}, "seed": str(2**80),
     "generator": "default_rng"},
]


def main():
    checks = Checks("schema")
    schema = json.loads(attn("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for path in sorted((ROOT / "data" / "examples").glob("*/*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if {"Q", "embeddings"} & set(document):  # others are example.json and plain tensors
            checks.check(validator.is_valid(document), f"{path.parent.name}/{path.name}")
    for document in RIGHT:
        checks.check(validator.is_valid(document), f"the schema takes {document}")
        run = attn("run", "-", "--format", "json", "-q", stdin=json.dumps(document))
        checks.check(run.returncode == 0, f"the reader takes {document}: {run.stderr}")
    for document in WRONG:
        checks.check(not validator.is_valid(document), f"the schema refuses {document}")
        run = attn("run", "-", stdin=json.dumps(document))
        checks.check(run.returncode == 65, f"the reader refuses {document}: {run}")
    checks.finish()


if __name__ == "__main__":
    main()
