#!/usr/bin/env python3
"""Which options the kernels compute: none leaves them without this test, and the docs, saying so.

`--dry-run` tells the path. Every key of a job stands below, with what asks for it and the path that
it takes; the schema says which keys there are.
"""

import json
import pathlib
import re
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ROOT, Checks, attn  # noqa: E402

B, H, G, L, S, D = 2, 4, 2, 5, 5, 8
KERNELS = "kernels"

QKV = {"Q": (B, H, L, D), "K": (B, G, S, D), "V": (B, G, S, D)}
X = {"embeddings": (L, D)}
PACKED = {"Q": (B, L, H * D), "K": (B, S, G * D), "V": (B, S, G * D)}
HALF = D // 2

# key: [(tensors beside Q, K and V by their shapes or their elements, options, path)]; without
# "base", Q, K and V are given.
JOBS = {
    "Q": [{}], "K": [{}], "V": [{}],
    "embeddings": [{"base": X}],
    "memory": [{"base": X, "memory": (7, D)}],
    "memory_V": [{"base": X, "memory": (7, D), "memory_V": (7, 3)}],
    "W_Q": [{"base": X, "W_Q": (D, D)}], "W_K": [{"base": X, "W_K": (D, D)}],
    "W_V": [{"base": X, "W_V": (D, D)}], "W_O": [{"W_O": (H * D, 3), "base": PACKED, "heads": H,
                                                   "kv_heads": G}],
    "b_Q": [{"base": X, "W_Q": (D, D), "b_Q": (D,)}],
    "b_K": [{"base": X, "W_K": (D, D), "b_K": (D,)}],
    "b_V": [{"base": X, "W_V": (D, D), "b_V": (D,)}],
    "b_O": [{"base": X, "W_O": (D, 3), "b_O": (3,)}],
    "mask": [{"mask": shape} for shape in [(S,), (1,), (L, S), (L, 1), (H, L, S), (H, 1, S),
                                           (B, 1, L, S), (B, H, L, S), (B, 1, 1, S)]]
            + [{"mask": np.eye(L, S, dtype=bool)}, {"mask": np.ones((B, H, L, S), bool)}],
    "key_mask": [{"key_mask": np.ones(S, bool)}, {"key_mask": (B, S)},
                 {"key_mask": np.ones((B, S), bool), "mask": (L, S)}],
    "past_K": [{"past_K": (B, G, 3, D), "past_V": (B, G, 3, D), "causal": True}],
    "past_V": [{"past_K": (B, G, 3, D), "past_V": (B, G, 3, D)}],
    "query_lengths": [{"query_lengths": [2, 5]}],
    "key_lengths": [{"key_lengths": [2, 5]}],
    "documents": [{"documents": [0, 0, 1, 1, 1], "causal": True},
                  {"documents": [[0, 0, 1, 1, -1], [3, 3, 3, 7, 7]]},
                  {"documents": [0, 1, 0, 1, 0], "causal": True}],
    "key_documents": [{"documents": [0, 0, 1, 1, 1], "key_documents": [0, 1, 1, 1, 2]}],
    "cu_seqlens_q": [{"cu_seqlens_q": [0, 2, 5], "cu_seqlens_k": [0, 1, 5], "alibi": True}],
    "cu_seqlens_k": [{"cu_seqlens_q": [0, 2, 5], "cu_seqlens_k": [0, 1, 5]}],
    "bias_K": [{"bias_K": (G * D,), "bias_V": (G * D,)},
               {"bias_K": (G * D,), "bias_V": (G * D,), "causal": True, "mask": (L, S)}],
    "bias_V": [{"bias_K": (G * D,), "bias_V": (G * D,)}],
    "q_norm": [{"q_norm": (D,), "qk_norm": "rms"}],
    "k_norm": [{"k_norm": (D,), "qk_norm": "rms"}],
    "cos": [{"cos": (9, HALF), "sin": (9, HALF), "rotary": {"kind": "half"}}],
    "sin": [{"cos": (9, HALF), "sin": (9, HALF), "rotary": {"kind": "interleaved"}}],
    "position_ids": [{"position_ids": [3, 1, 2, 5, 7], "rotary": {"kind": "half"}}],
    "key_position_ids": [{"key_position_ids": [3, 1, 2, 5, 7], "rotary": {"kind": "half"}}],
    "alibi_slopes": [{"alibi_slopes": (H,)}, {"alibi_slopes": (B, H), "causal": "bottom-right"},
                     {"alibi_slopes": (H,), "documents": [0, 1, 0, 1, 0], "path": "alibi"},
                     {"alibi_slopes": (H,), "zero_key": True, "path": "alibi"}],
    "relative_bias": [{"relative_bias": (8, H)},
                      {"relative_bias": (8, H), "documents": [0, 1, 0, 1, 0],
                       "path": "relative_bias"}],
    "sinks": [{"sinks": (H,)}, {"sinks": np.full(H, -np.inf)},
              {"sinks": np.full(H, np.nan), "path": "sinks"},
              {"sinks": np.full(H, 3e38), "path": "sinks"}],
    "W_score": [{"W_score": (D, D), "score": "general"}],
    "W_score_Q": [{"W_score_Q": (D, 3), "W_score_K": (D, 3), "score": "additive", "path": "score"}],
    "W_score_K": [{"W_score_Q": (D, 3), "W_score_K": (D, 3), "score": "additive", "path": "score"}],
    "b_score": [{"b_score": (D,), "score": "additive", "path": "score"}],
    "v_score": [{"v_score": (3,), "W_score": (2 * D, 3), "score": "concat", "path": "score"}],
    "g_score": [{"v_score": (D,), "g_score": (), "score": "additive", "path": "score"}],
    "heads": [{"base": PACKED, "heads": H, "kv_heads": G}],
    "kv_heads": [{"base": PACKED, "heads": H, "kv_heads": G}],
    "layout": [{"base": {"Q": (B, L, H, D), "K": (B, S, G, D)}, "layout": "blhd"}],
    "batch_axis": [{"base": {"Q": (L, B, D), "K": (S, B, D)}, "batch_axis": "second"}],
    "score": [{"score": "cosine"}, {"score": "dot"}, {"score": "l2", "path": "score"}],
    "scale": [{"scale": -0.3}, {"scale": "none"}, {"scale": 1e39, "path": "scale"},
              {"scale": 1e-39, "path": "scale"},
              {"scale": 1e38, "temperature": 0.1, "path": "scale"}],
    "softcap": [{"softcap": 3}, {"softcap": 1e-39, "path": "softcap"},
                {"softcap": 1e39, "path": "softcap"}],
    "softcap_order": [{"softcap": 3, "softcap_order": "after-mask", "mask": (L, S)}],
    "alibi": [{"alibi": True}],
    "relative": [{"relative": {"direction": "past"}, "relative_bias": (8, H)}],
    "zero_key": [{"zero_key": True}],
    "causal": [{"causal": True}, {"causal": "bottom-right"}],
    "alignment": [{"alignment": "bottom-right", "causal": True}],
    "window": [{"window": [1, 1]}],
    "mask_polarity": [{"mask_polarity": "ignore", "mask": np.eye(L, S, dtype=bool)}],
    "short_mask": [{"short_mask": "hide", "mask": (L, 3)}],
    "empty_rows": [{"empty_rows": "uniform"}, {"empty_rows": "nan"}],
    "normaliser": [{"normaliser": "softmax"}]
                  + [{"normaliser": name, "path": "normaliser"}
                     for name in ["sparsemax", "entmax15", "hardmax", "sigmoid", "none"]],
    "top_k": [{"normaliser": "top_k", "top_k": 2, "path": "normaliser"}],
    "temperature": [{"temperature": 2}, {"temperature": 1e-39, "path": "temperature"},
                    {"temperature": 1e39, "path": "temperature"}],
    "softmax": [{"softmax": {"axis": "keys"}}, {"softmax": {"precision": "f32"}},
                {"softmax": {"axis": "all"}, "path": "softmax.axis"},
                {"softmax": {"precision": "f16"}, "path": "softmax.precision"}],
    "rows": [{"rows": [0, -1]}],
    "compute": [{"compute": "f64"}, {"compute": "f32"}],
    "path": [{"run": "reference", "path": "path"}],
    "position": [{"base": X, "position": {"kind": "sinusoidal"}}],
    "qk_norm": [{"qk_norm": "l2"}],
    "qk_norm_epsilon": [{"qk_norm": "l2", "qk_norm_epsilon": 1e-3}],
    "rotary": [{"rotary": {"kind": "half", "scaling": "linear", "factor": 2}}],
    "convention": [{"convention": name} for name in ["onnx", "torch", "flash"]],
    "outputs": [{"outputs": [name]} for name in
                ["scores", "scaled_scores", "masked_scores", "weights", "mean_weights",
                 "key_weights", "row_max", "logsumexp", "head_context", "context"]],
}
NO_MATTER = {"schema", "tokens", "seed", "generator"}  # say nothing of how numbers are computed


def job_of(case, dtype):
    rng = np.random.default_rng(1)
    case = dict(case)
    expected = case.pop("path", KERNELS)
    given = {**case.pop("base", QKV), **case}
    if "run" in given:
        given["path"] = given.pop("run")
    arrays = {}
    for name, value in given.items():
        shape = isinstance(value, tuple)
        array = rng.standard_normal(value).astype(dtype) if shape else value
        numbers = name.startswith(("cu_", "documents", "key_documents")) or name.endswith(
            ("lengths", "position_ids"))
        arrays[name] = np.asarray(array) if numbers else array
    tensors = {name: value for name, value in arrays.items() if isinstance(value, np.ndarray)}
    return tensors, {name: value for name, value in arrays.items() if name not in tensors}, expected


def path_of(case, dtype="f4"):
    tensors, options, expected = job_of(case, dtype)
    job = {**options, **{name: name + ".npy" for name in tensors}}
    with tempfile.TemporaryDirectory() as folder:
        for name, array in tensors.items():
            np.save(f"{folder}/{name}.npy", array)
        run = attn("run", "-", "--dry-run", "--format", "json", stdin=json.dumps(job), cwd=folder)
    plan = json.loads(run.stdout) if run.returncode == 0 else {}
    return plan.get("kept_by", plan.get("path")), expected, run.stderr.decode()


def every_key(checks):
    keys = set(json.loads(attn("schema").stdout)["properties"])
    known = set(JOBS) | NO_MATTER
    checks.check(keys == known, f"keys that the schema or this test lacks: {keys ^ known}")
    for key, cases in JOBS.items():
        for case in cases:
            found, expected, err = path_of(case)
            checks.check(found == expected,
                         f"{key}: {case}: expected {expected}, found {found}; {err}")


def dtypes(checks):
    for dtype, path in [("f8", KERNELS), ("f2", KERNELS), ("i8", "integers"), ("u1", "integers")]:
        found, _, err = path_of({}, dtype)
        checks.check(found == path, f"{dtype}: expected {path}, found {found}; {err}")
    found, _, err = path_of({"base": {"Q": np.ones((2, 3)), "K": np.ones((2, 3), int)}})
    checks.check(found == "integers", f"floats beside integers: {found}; {err}")
    found, _, err = path_of({"outputs": ["queries"]})
    checks.check(found is None, f"no scores: {found}; {err}")


def told_in_the_docs(checks):
    """The table of docs/semantics.md has a row for each thing that keeps a job from the kernels."""
    text = (pathlib.Path(ROOT) / "docs" / "semantics.md").read_text()
    table = text.partition("| on the reference |")[2].partition("\n\n")[0]
    told = set(re.findall(r"^\| `?([\w.]+)`?", table, re.MULTILINE))
    kept = {case["path"] for cases in JOBS.values() for case in cases if "path" in case}
    checks.check(told == kept - {"path"} | {"integers"}, f"docs/semantics.md: {told} and {kept}")


def main():
    checks = Checks("paths")
    every_key(checks)
    dtypes(checks)
    told_in_the_docs(checks)
    checks.finish()


main()
