"""Which jobs the fused kernels compute, and which fall back to the reference path, by `--dry-run`.

Every key of a job has an entry below, with the expected path: a job that leaves the kernels fails here
until this table and docs/semantics.md say so.
"""

import json
import re

import numpy as np
import pytest

from support.attn import ROOT, attn

B, H, G, L, S, D = 2, 4, 2, 5, 5, 8
KERNELS = "kernels"

QKV = {"Q": (B, H, L, D), "K": (B, G, S, D), "V": (B, G, S, D)}
X = {"embeddings": (L, D)}
PACKED = {"Q": (B, L, H * D), "K": (B, S, G * D), "V": (B, S, G * D)}
PAGES = {"Q": (B, H, L, D), "K_pages": (4, 3, G, D), "V_pages": (4, 3, G, D)}
TABLE = {"block_table": [[0, 1], [2, 3]], "key_lengths": [4, 6]}
PAGE_LISTS = {"kv_indptr": [0, 2, 4], "kv_indices": [0, 1, 2, 3], "last_page_len": [1, 3]}
LATENT = {"Q_nope": (B, H, L, D), "Q_pe": (B, H, L, 2), "CKV": (B, S, D), "K_pe": (B, S, 2)}
LATENT_PAGES = {"Q_nope": (B, H, L, D), "Q_pe": (B, H, L, 2), "CKV_pages": (4, 3, D), "K_pe_pages": (4, 3, 2)}
HALF = D // 2

# For each key of a job: jobs that use it. A tuple is the shape of a random tensor. "base" replaces the
# tensors QKV; "expect" is the key that makes the job fall back to the reference path, if any.
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
    "W_gate": [{"base": X, "W_gate": (D, D)}],
    "b_gate": [{"base": X, "W_gate": (D, D), "b_gate": (D,)}],
    "gate": [{"gate": (B, H, L, D)}],
    "mask": [{"mask": shape} for shape in [(S,), (1,), (L, S), (L, 1), (H, L, S), (H, 1, S),
                                           (B, 1, L, S), (B, H, L, S), (B, 1, 1, S)]]
            + [{"mask": np.eye(L, S, dtype=bool)}, {"mask": np.ones((B, H, L, S), bool)}],
    "bias": [{"bias": (H, L, S)}, {"bias": (L, S), "mask": np.eye(L, S, dtype=bool)},
             {"bias": (L, S), "mask": (L, S)},
             {"bias": (L, S), "mask": (L, S), "key_mask": (S,)}],
    "dropout_mask": [{"dropout_mask": np.eye(L, S), "dropout_p": 0.5}],
    "dropout_p": [{"dropout_mask": np.ones((1, S), bool), "dropout_p": 0}],
    "key_mask": [{"key_mask": np.ones(S, bool)}, {"key_mask": (B, S)},
                 {"key_mask": np.ones((B, S), bool), "mask": (L, S)}],
    "past_K": [{"past_K": (B, G, 3, D), "past_V": (B, G, 3, D), "causal": True}],
    "past_V": [{"past_K": (B, G, 3, D), "past_V": (B, G, 3, D)}],
    "query_lengths": [{"query_lengths": [2, 5]}],
    "key_lengths": [{"key_lengths": [2, 5]}],
    "key_starts": [{"key_starts": [2, 0], "causal": True}],
    "documents": [{"documents": [0, 0, 1, 1, 1], "causal": True},
                  {"documents": [[0, 0, 1, 1, -1], [3, 3, 3, 7, 7]]},
                  {"documents": [0, 1, 0, 1, 0], "causal": True}],
    "key_documents": [{"documents": [0, 0, 1, 1, 1], "key_documents": [0, 1, 1, 1, 2]}],
    "cu_seqlens_q": [{"cu_seqlens_q": [0, 2, 5], "cu_seqlens_k": [0, 1, 5], "alibi": True}],
    "cu_seqlens_k": [{"cu_seqlens_q": [0, 2, 5], "cu_seqlens_k": [0, 1, 5]}],
    "K_pages": [{"base": PAGES, **TABLE}], "V_pages": [{"base": PAGES, **TABLE, "causal": True}],
    "KV_pages": [{"base": {"Q": (B, H, L, D), "KV_pages": (4, 2, 3, G, D)}, **TABLE}],
    "page_layout": [{"base": {"Q": (B, H, L, D), "KV_pages": (4, 3, 2 * G, D)}, **TABLE, "page_layout": "interleaved"}],
    "block_table": [{"base": PAGES, **TABLE}], "kv_indptr": [{"base": PAGES, **PAGE_LISTS}],
    "kv_indices": [{"base": PAGES, **PAGE_LISTS}], "last_page_len": [{"base": PAGES, **PAGE_LISTS}],
    **{f"{x}_{key}": [{f"{x}_scale": 0.5, f"{x}_{key}": value}]
       for x in "qkv" for key, value in [("scale", (G, ) if x != "q" else (H,)), ("zero_point", 3), ("global_scale", 2.0)]},
    **{f"{x}_type": [{f"{x}_type": "e4m3", x.upper(): np.ones((B, H if x == "q" else G, L, D), int)}] for x in "qkv"},
    **{key: [{"base": LATENT, "scale": 0.3}] for key in ("Q_nope", "Q_pe", "CKV", "K_pe")},
    **{key: [{"base": LATENT_PAGES, **TABLE, "scale": 0.3}] for key in ("CKV_pages", "K_pe_pages")},
    "W_UV": [{"base": LATENT, "scale": 0.3, "W_UV": (H, D, 3)}],
    "k_pe_scale": [{"base": LATENT, "scale": 0.3, "k_pe_scale": 0.5}],
    "k_pe_type": [{"base": {**LATENT, "K_pe": np.ones((B, S, 2), int)}, "scale": 0.3, "k_pe_type": "e4m3"}],
    "value_width": [{"base": {"Q": (B, H, L, D), "KV_pages": (4, 3, D)}, **TABLE, "value_width": 3, "scale": 0.3}],
    "index_space": [{"base": PAGES, "index_space": "cache", "key_indices": [[0, 3]] * L}],
    "index_counts": [{"index_counts": [1] * L, "key_indices": [[0, 3]] * L}],
    "bias_K": [{"bias_K": (G * D,), "bias_V": (G * D,)},
               {"bias_K": (G * D,), "bias_V": (G * D,), "causal": True, "mask": (L, S)}],
    "bias_V": [{"bias_K": (G * D,), "bias_V": (G * D,)}],
    "q_norm": [{"q_norm": (D,), "qk_norm": "rms"}, {"q_norm": (H, D), "qk_norm": "layer"}],
    "k_norm": [{"k_norm": (D,), "qk_norm": "rms"}],
    "q_norm_bias": [{"q_norm_bias": (D,), "qk_norm": "layer"}],
    "k_norm_bias": [{"k_norm_bias": (G, D), "qk_norm": "layer"}],
    "cos": [{"cos": (9, HALF), "sin": (9, HALF), "rotary": {"kind": "half"}}],
    "sin": [{"cos": (9, HALF), "sin": (9, HALF), "rotary": {"kind": "interleaved"}}],
    "position_ids": [{"position_ids": [3, 1, 2, 5, 7], "rotary": {"kind": "half"}}],
    "key_position_ids": [{"key_position_ids": [3, 1, 2, 5, 7], "rotary": {"kind": "half"}}],
    "alibi_slopes": [{"alibi_slopes": (H,)}, {"alibi_slopes": (B, H), "causal": "bottom-right"},
                     {"alibi_slopes": (H,), "documents": [0, 1, 0, 1, 0]}, {"alibi_slopes": (H,), "zero_key": True},
                     {"alibi_slopes": np.full(H, np.inf), "zero_key": True, "expect": "alibi"},
                     {"alibi_slopes": np.full(H, 1e30), "documents": [0, 1, 0, 1, 0], "expect": "alibi"}],
    "relative_bias": [{"relative_bias": (8, H)},
                      {"relative_bias": (8, H), "documents": [0, 1, 0, 1, 0]},
                      {"relative_bias": np.full((8, H), -np.inf), "documents": [0, 1, 0, 1, 0],
                       "expect": "relative_bias"}],
    "sinks": [{"sinks": (H,)}, {"sinks": np.full(H, -np.inf)},
              {"sinks": np.full(H, np.nan), "expect": "sinks"},
              {"sinks": np.full(H, 3e38), "expect": "sinks"}],
    "head_scale": [{"head_scale": (H,)}, {"head_scale": (H,), "score": "cosine"},
                   {"head_scale": (H,), "score": "l2", "expect": "head_scale"}, {"head_scale": np.zeros(H)},
                   {"head_scale": np.full(H, np.nan), "expect": "head_scale"},
                   {"head_scale": np.full(H, 1e30), "scale": 1e30, "expect": "head_scale"}],
    "grad_context": [{"grad_context": (B, H, L, D)}],
    "grad_output": [{"W_O": (H * D, 3), "grad_output": (B, L, 3), "base": PACKED, "heads": H, "kv_heads": G}],
    "grad_weights": [{"grad_weights": (B, H, L, S)}],
    "grad_logsumexp": [{"grad_logsumexp": (B, H, L)}],
    "W_score": [{"W_score": (D, D), "score": "general"}],
    "W_score_Q": [{"W_score_Q": (D, 3), "W_score_K": (D, 3), "score": "additive"}],
    "W_score_K": [{"W_score_Q": (D, 3), "W_score_K": (D, 3), "score": "additive"}],
    "b_score": [{"b_score": (D,), "score": "additive"}],
    "v_score": [{"v_score": (3,), "W_score": (2 * D, 3), "score": "concat"}],
    "g_score": [{"v_score": (D,), "g_score": (), "score": "additive"}],
    "heads": [{"base": PACKED, "heads": H, "kv_heads": G}],
    "kv_heads": [{"base": PACKED, "heads": H, "kv_heads": G}],
    "layout": [{"base": {"Q": (B, L, H, D), "K": (B, S, G, D)}, "layout": "blhd"},
               {"base": {"Q": (L, H, D), "K": (S, G, D)}, "layout": "thd"}],
    "batch_axis": [{"base": {"Q": (L, B, D), "K": (S, B, D)}, "batch_axis": "second"}],
    "weights_layout": [{"base": X, "W_Q": (3 * D, D), "W_K": (3 * D, D), "weights_layout": "out-in"}],
    "score": [{"score": "cosine"}, {"score": "dot"}, {"score": "l2"},
              {"base": {"Q": (L, 0), "K": (S, 0), "V": (S, D)}, "score": "l2", "scale": 1, "expect": "score"}],
    "scale": [{"scale": -0.3}, {"scale": "none"}, {"scale": 1e39, "expect": "scale"},
              {"scale": 1e-39, "expect": "scale"},
              {"scale": 1e38, "temperature": 0.1, "expect": "scale"}],
    "softcap": [{"softcap": 3}, {"softcap": 1e-39, "expect": "softcap"},
                {"softcap": 1e39, "expect": "softcap"}],
    "softcap_order": [{"softcap": 3, "softcap_order": "after-mask", "mask": (L, S)}],
    "alibi": [{"alibi": True}],
    "relative": [{"relative": {"direction": "past"}, "relative_bias": (8, H)}],
    "zero_key": [{"zero_key": True}],
    "causal": [{"causal": True}, {"causal": "bottom-right"}],
    "alignment": [{"alignment": "bottom-right", "causal": True}],
    "causal_offset": [{"causal_offset": -2, "causal": True}, {"causal_offset": 1, "alibi": True}],
    "window": [{"window": [1, 1]}],
    "mask_rule": [{"mask_rule": "q >= k"}, {"mask_rule": "(q + k) % 2 == h % 2 or b"},
                  {"mask_rule": "q >= k or k < 1", "alibi_slopes": (H,)},
                  {"mask_rule": "(q + k) % 2", "alibi_slopes": (H,)}],
    "bias_rule": [{"bias_rule": "-0.5 * abs(q - k)"}, {"bias_rule": "t[h] * q / (1 + k)", "mask_tables": {"t": [0.5] * H}},
                  {"bias_rule": "q - k", "bias": (L, S), "alibi": True, "causal": True},
                  {"bias_rule": "q - k", "bias": (L, S), "mask": (L, S)}],
    "chunk": [{"chunk": 3, "causal": True}],
    "sink_tokens": [{"sink_tokens": 1, "window": [1, 0]}],
    "prefix_lengths": [{"prefix_lengths": [2, 0], "causal": True}],
    "tree_parents": [{"tree_parents": [-1, 0]}],
    "blocks": [{"blocks": [[1] * S] * L, "block_size": [1, 1]}],
    "block_size": [{"blocks": [[1]], "block_size": [L, S]}],
    "mask_tables": [{"mask_rule": "t[k] == b", "mask_tables": {"t": [0, 1] * S}}],
    "key_indices": [{"key_indices": [[0, -1]] * L}, {"key_indices": np.ones((B, H, L, 1), int)},
                    {"key_indices": [[0, 1]] * L, "alibi_slopes": (H,)},
                    {"key_indices": [[0, 3]] * L, "alibi_slopes": (H,)}],
    "index_block": [{"index_block": 2, "key_indices": [[0, 2]] * L}],
    "duplicates": [{"duplicates": "once", "key_indices": [[0, 0]] * L},
                   {"duplicates": "count", "key_indices": [[0, 0]] * L, "bias": (L, S)},
                   {"duplicates": "count", "key_indices": [[0, 0]] * L, "bias": (L, S), "mask": (L, S)}],
    "mask_polarity": [{"mask_polarity": "ignore", "mask": np.eye(L, S, dtype=bool)}],
    "short_mask": [{"short_mask": "hide", "mask": (L, 3)}],
    "lse_base": [{"lse_base": 2}, {"lse_base": "e"}],
    "lse_sinks": [{"lse_sinks": "excluded", "sinks": (H,)}],
    "lse_empty": [{"lse_empty": "inf"}],
    "empty_rows": [{"empty_rows": "uniform"}, {"empty_rows": "nan"}],
    "normaliser": [{"normaliser": name} for name in ["softmax", "sparsemax", "entmax15", "hardmax", "sigmoid"]]
                  + [{"normaliser": "none", "expect": "normaliser"}],
    "top_k": [{"normaliser": "top_k", "top_k": 2}],
    "o_scale": [{"o_scale": 0.25}, {"o_scale": 4, "gate": (B, H, L, D)}],
    "temperature": [{"temperature": 2}, {"temperature": 1e-39, "expect": "temperature"},
                    {"temperature": 1e39, "expect": "temperature"}],
    "softmax": [{"softmax": {"axis": "keys"}}, {"softmax": {"precision": "f32"}},
                {"softmax": {"axis": "all"}, "expect": "softmax.axis"},
                {"softmax": {"precision": "f16"}, "expect": "softmax.precision"}],
    "rows": [{"rows": [0, -1]}],
    "compute": [{"compute": "f64"}, {"compute": "f32"}, {"compute": "bf16"},
                {"compute": "bf16", "head_scale": (H,)}],
    "path": [{"path": "reference", "expect": "path"}],
    "position": [{"base": X, "position": {"kind": "sinusoidal"}}],
    "clip_qkv": [{"clip_qkv": 0.5}],
    "query_scale": [{"query_scale": {"factor": 0.1, "length": 2}, "position_ids": [3, 1, 2, 5, 7]}],
    "input_norm": [{"base": X, "input_norm": "rms"}, {"base": X, "input_norm": "layer"}],
    "input_norm_epsilon": [{"base": X, "input_norm": "rms", "input_norm_epsilon": 1e-3}],
    "input_norm_weight": [{"base": X, "input_norm": "rms", "input_norm_weight": (D,)}],
    "input_norm_bias": [{"base": X, "input_norm": "layer", "input_norm_bias": (D,)}],
    "norm_offset": [{"qk_norm": "rms", "q_norm": (D,), "norm_offset": 1}],
    "qk_norm": [{"qk_norm": "l2"}, {"qk_norm": "layer"}],
    "qk_norm_axis": [{"qk_norm": "rms", "qk_norm_axis": "all", "q_norm": (H * D,)}],
    "qk_norm_epsilon": [{"qk_norm": "l2", "qk_norm_epsilon": 1e-3}],
    "rotary": [{"rotary": {"kind": "half", "scaling": "linear", "factor": 2}},
               {"rotary": {"kind": "half", "scaling": "dynamic-ntk", "factor": 2, "original_length": 3}},
               {"rotary": {"kind": "half", "scaling": "longrope", "original_length": 3,
                           "short_factor": [1] * HALF, "long_factor": [2] * HALF}}],
    "convention": [{"convention": name} for name in ["onnx", "torch", "flash", "fa3"]],
    "outputs": [{"outputs": [name]} for name in
                ["scores", "scaled_scores", "masked_scores", "weights", "mean_weights",
                 "key_weights", "row_max", "logsumexp", "weight_sum", "entropy", "effective_keys", "keys_95",
                 "distance", "first_key_weight", "previous_token_weight", "head_context", "context"]],
    "token_ids": [{"token_ids": [3, 1, 3, 1, 2], "outputs": ["duplicate_token_weight", "induction_weight"]}],
}
MODEL = {"model", "layer", "stack", "hidden", "hidden_is"}  # tests/model/
# Keys that do not affect the computation.
NOT_COMPUTING = {"$schema", "schema", "tokens", "key_tokens", "seed", "generator", "draws", "print_options"} | MODEL


CASES = [(key, case) for key, cases in JOBS.items() for case in cases]
INTEGER_TENSORS = re.compile("cu_.*|(key_)?documents|.*lengths|.*position_ids|token_ids")


def tensors_and_options(case, dtype):
    rng = np.random.default_rng(1)
    tensors, options = {}, {}
    for name, value in {**case.get("base", QKV), **case}.items():
        if isinstance(value, tuple):
            tensors[name] = rng.standard_normal(value).astype(dtype)
        elif isinstance(value, np.ndarray) or INTEGER_TENSORS.fullmatch(name):
            tensors[name] = np.asarray(value)
        elif name not in ("base", "expect"):
            options[name] = value
    return tensors, options


def dry_run(folder, case, dtype="f4"):
    """The path of a job: "kernels", or the key or kind of tensor that the kernels do not support."""
    tensors, options = tensors_and_options(case, dtype)
    for name, array in tensors.items():
        np.save(folder / f"{name}.npy", array)
    job = {**options, **{name: name + ".npy" for name in tensors}}
    run = attn("run", "-", "--dry-run", "--format", "json", stdin=json.dumps(job), cwd=folder)
    assert run.returncode == 0, run.stderr.decode()
    plan = json.loads(run.stdout)
    return plan.get("fallback_reason", plan.get("path"))


def test_every_key_of_the_schema_has_a_job():
    properties = json.loads(attn("schema").stdout)["properties"]
    keys = {key for key, schema in properties.items()
            if not schema.get("description", "").startswith("other spelling of ")}
    assert keys == set(JOBS) | NOT_COMPUTING


@pytest.mark.parametrize("case", [case for _, case in CASES], ids=[key for key, _ in CASES])
def test_path_of_key(tmp_path, case):
    assert dry_run(tmp_path, case) == case.get("expect", KERNELS)


@pytest.mark.parametrize("dtype, path", [("f8", KERNELS), ("f2", KERNELS), ("i8", "integers"),
                                         ("u1", "integers")])
def test_path_of_dtype(tmp_path, dtype, path):
    assert dry_run(tmp_path, {}, dtype) == path


def test_integer_keys_with_float_queries_take_the_reference_path(tmp_path):
    assert dry_run(tmp_path, {"base": {"Q": np.ones((2, 3)), "K": np.ones((2, 3), int)}}) == "integers"


def test_job_without_scores_has_no_path(tmp_path):
    assert dry_run(tmp_path, {"outputs": ["queries"]}) is None


def test_docs_list_every_reason_for_the_reference_path():
    text = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
    table = text.partition("| option | reason |")[2].partition("\n\n")[0]
    documented = set(re.findall(r"^\| `?([\w.]+)`?", table, re.MULTILINE))
    reasons = {case["expect"] for _, case in CASES if "expect" in case}
    assert documented == reasons - {"path"} | {"integers"}
