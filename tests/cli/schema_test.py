"""The JSON schema of `attn schema` accepts the same jobs as the program."""

import json

import jsonschema
import pytest

from support.attn import ROOT, attn

Q = {"Q": [[1, 2], [3, 4]], "K": [[1, 2], [3, 4]]}

# Each is a valid job with one change.
INVALID = [
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
    {**Q, "$schema": 1},
    {**Q, "rotary": "none", "rotary_base": 0},
    {**Q, "rotary": "third"},
    {"embeddings": Q["Q"], "position": {"kind": "sinusoidal", "base": 0}},
    {"embeddings": Q["Q"], "position": {"kind": "sinusoidal", "base": -1}},
    {"embeddings": Q["Q"], "position.base": 3},
    {**Q, "generator": "mt19937"},
    {**Q, "schema": "attn/2"},
    {**Q, "Q": {"randm": {"shape": [2, 2]}}, "seed": 1},
    {**Q, "print_options": {"numpy": 3}},
    {**Q, "print_options": {"precision": 1101}},
    {**Q, "print_options": {"floatmode": "fix"}},
    {**Q, "print_options": 2},
    {**Q, "print_options_numpy": 2},
    {**Q, "causal": True, "causal_offset": 10 ** 13},
    {**Q, "causal": True, "causal_offset": "q"},
    [1, 2],
]

VALID = [
    Q,
    {**Q, "V": "K", "print_options": {"numpy": 2, "precision": 3, "suppress": True, "floatmode": "fixed"}},
    {**Q, "causal": True, "causal_offset": -3},
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
    {**Q, "Q": {"randn": {"size": [2, 2]}}, "seed": 1},
    {**Q, "$schema": "urn:attn:job:1", "outputs": "weights", "normalizer": "hardmax"},
    {**Q, "softmax_axis": "all", "rotary": "half", "rotary_base": 5, "softcap_order": "before-mask"},
    {"embeddings": Q["Q"], "position": "sinusoidal", "position_base": 5, "embedding_scale": "sqrt"},
    {**Q, "Q": {"integers": {"high": 5, "shape": [2, 2]}}, "seed": str(2**80),
     "generator": "default_rng"},
]


def example_jobs():
    """The job files in data/examples; the other JSON files are example.json and plain tensors."""
    for path in sorted((ROOT / "data" / "examples").glob("*/*.json")):
        if {"Q", "embeddings"} & set(json.loads(path.read_text(encoding="utf-8"))):
            yield pytest.param(path, id=f"{path.parent.name}/{path.name}")


@pytest.fixture(scope="module")
def schema():
    return json.loads(attn("schema").stdout)


@pytest.fixture(scope="module")
def validator(schema):
    return jsonschema.Draft202012Validator(schema)


def test_schema_is_valid(schema):
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("path", example_jobs())
def test_schema_accepts_the_examples(validator, path):
    assert validator.is_valid(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("job", VALID, ids=json.dumps)
def test_schema_accepts_valid_jobs(validator, job):
    assert validator.is_valid(job)


@pytest.mark.parametrize("job", VALID, ids=json.dumps)
def test_program_accepts_valid_jobs(job):
    assert attn("run", "-", "--format", "json", "-q", stdin=json.dumps(job)).returncode == 0


@pytest.mark.parametrize("job", INVALID, ids=json.dumps)
def test_schema_refuses_invalid_jobs(validator, job):
    assert not validator.is_valid(job)


@pytest.mark.parametrize("job", INVALID, ids=json.dumps)
def test_program_refuses_invalid_jobs(job):
    assert attn("run", "-", stdin=json.dumps(job)).returncode == 65
