"""Names that other libraries use, and misspelt ones: what attn suggests computes what was meant.

Each table lists what was typed and what it means, both written by hand. The suggestion in the message
takes the place of what was typed. The command must then succeed and give the same result as the one that
was meant.
"""

import json
import re

import numpy as np
import pytest

from support.attn import ROOT, assert_error, attn
from support.checkpoints import write_model

RNG = np.random.default_rng(5)
B, H, L, D = 2, 4, 6, 8
TENSORS = {
    "x": RNG.standard_normal((L, D)), "y": RNG.standard_normal((5, D)), "w": RNG.standard_normal((D, D)),
    "u": RNG.standard_normal((D, D)), "b": RNG.standard_normal(D),
    "q4": RNG.standard_normal((B, H, L, D)), "k4": RNG.standard_normal((B, H, L, D)),
    "v4": RNG.standard_normal((B, H, L, D)), "k2": RNG.standard_normal((B, 2, L, D)),
    "mask": np.tril(RNG.random((L, L)) < 0.7) | np.eye(L, dtype=bool),
    "keep": np.ones((L, L), bool),
    "keys": np.array([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]], bool),
    "bias": RNG.standard_normal((H, L, L)), "buckets": RNG.standard_normal((8, H)), "sinks": RNG.standard_normal(H),
    "past": RNG.standard_normal((B, H, 3, D)), "lengths": np.array([3, 5]), "ids": np.array([0, 0, 1, 1, 2, 2]),
    "positions": np.array([4, 5, 6, 7, 8, 9]), "cu": np.array([0, 2, 6]), "norm": RNG.standard_normal(D),
    "bk": RNG.standard_normal(H * D), **{name: RNG.standard_normal((B, L, D)) for name in ("q3", "k3", "v3")}}
QKV = ["--q", "q4.npy", "--k", "k4.npy", "--v", "v4.npy"]
GROUPED = ["--q", "x.npy", "--k", "x.npy", "--v", "x.npy", "--heads", "4"]
WORDS = ["--embeddings", "x.npy", "--w-q", "w.npy", "--w-k", "u.npy", "--w-v", "w.npy"]


@pytest.fixture(scope="module")
def folder(module_path):
    for name, tensor in TENSORS.items():
        np.save(module_path / f"{name}.npy", tensor)
    (module_path / "job.json").write_text(json.dumps({"Q": [[1]], "K": [[1]], "outputs": ["scores"]}))
    llama = {"model.layers.0.input_layernorm.weight": np.ones(D)} | {
        f"model.layers.0.self_attn.{name}_proj.weight": TENSORS["w"] for name in "qkvo"}
    write_model(module_path / "model", {"model_type": "llama", "hidden_size": D, "num_attention_heads": 2,
                                        "num_hidden_layers": 1}, llama)
    return module_path


def suggestions(run):
    """The texts in quotes that the last line of the message suggests."""
    found = re.search(r"\(did you mean (.*?)\?\)", run.stderr.decode())
    if not found:
        return []
    return re.findall(r"'([^']*)'(?: [^']*?(?= or '|$))?|(\"\w+\": \"\w+\")", found[1])


def names(run):
    return [quoted or pair for quoted, pair in suggestions(run)]


def result(folder, words):
    """What the command prints on stdout; it must succeed."""
    run = attn(*words, cwd=folder)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout


def follow(folder, command, typed, meant):
    """The command with `typed` is refused with one suggestion; with this in its place, it does what is meant."""
    refused = attn(*command, *typed, cwd=folder)
    assert refused.returncode == 2 and refused.stdout == b""
    [suggested] = names(refused)
    followed = [*command, *suggested.split(), *typed[1:]]
    assert result(folder, followed) == result(folder, [*command, *meant])


JSON = ["--format", "json"]
RUN = ["run", *QKV, *JSON]

# (base command, typed, meant). The base differs from what is meant, except where a default is named.
FLAGS = [
    # Tensors.
    *((["run", *JSON, "--k", "k4.npy", "--v", "v4.npy"], [f"--{name}", "q4.npy"], ["--q", "q4.npy"])
      for name in ("query", "queries", "query-states", "Q")),
    *((["run", *JSON, "--q", "q4.npy", "--v", "v4.npy"], [f"--{name}", "k4.npy"], ["--k", "k4.npy"])
      for name in ("key", "keys", "key_states")),
    *((["run", *JSON, "--q", "q4.npy", "--k", "k4.npy"], [f"--{name}", "v4.npy"], ["--v", "v4.npy"])
      for name in ("value", "values")),
    *((["run", *JSON, *WORDS[2:]], [f"--{name}", "x.npy"], ["--embeddings", "x.npy"])
      for name in ("embed", "embedding", "inputs", "x", "src", "embedings")),
    *((["run", *JSON, *WORDS], [f"--{name}", "y.npy"], ["--memory", "y.npy"])
      for name in ("encoder-hidden-states", "memmory", "encoder_output", "key-value-states")),
    *((["run", *JSON, *WORDS[:2], *WORDS[4:]], [f"--{name}", "u.npy"], ["--wq", "u.npy"])
      for name in ("q-proj", "W_Q", "q_weight", "to-q")),
    *((["run", *JSON, *WORDS, "--outputs", "context,output"], [f"--{name}", "u.npy"], ["--wo", "u.npy"])
      for name in ("o-proj", "out-proj", "out_proj", "W-O")),
    *((["run", *JSON, *WORDS], [f"--{name}", "b.npy"], ["--bq", "b.npy"]) for name in ("q-bias", "bias-q", "b_Q")),
    (["run", *JSON, *WORDS], ["--k-bias", "b.npy"], ["--bk", "b.npy"]),
    (["run", *JSON, *WORDS], ["--v-proj-bias", "b.npy"], ["--bv", "b.npy"]),
    ([*RUN, "--past-v", "past.npy"], ["--past-key", "past.npy"], ["--past-k", "past.npy"]),
    ([*RUN, "--past-v", "past.npy"], ["--key-cache", "past.npy"], ["--past-k", "past.npy"]),
    ([*RUN, "--past-k", "past.npy"], ["--v-cache", "past.npy"], ["--past-v", "past.npy"]),
    (RUN, ["--add-zero-attn"], ["--zero-key"]),
    (RUN, ["--attention-sinks", "sinks.npy"], ["--sinks", "sinks.npy"]),
    (RUN, ["--sink", "sinks.npy"], ["--sinks", "sinks.npy"]),
    # Masks and lengths.
    *((RUN, [f"--{name}", "mask.npy"], ["--mask", "mask.npy"]) for name in ("attn-mask", "attn_mask", "maks", "masks")),
    *((RUN, [f"--{name}", "keys.npy"], ["--key-mask", "keys.npy"]) for name in ("keymask", "value-mask", "key-msak")),
    *((RUN, [f"--{name}", "bias.npy"], ["--bias", "bias.npy"])
      for name in ("attn-bias", "attention_bias", "position-bias")),
    (RUN, ["--relative-attention-bias", "buckets.npy"], ["--relative-bias", "buckets.npy"]),
    *((RUN, [f"--{name}"], ["--causal"]) for name in ("is-causal", "is_causal", "causal-mask", "cuasal", "casual",
                                                      "unidirectional", "use-causal-mask")),
    *((RUN, [f"--{name}", "lengths.npy"], ["--key-lengths", "lengths.npy"])
      for name in ("kv-lens", "key-value-seq-lengths", "valid-lens", "key_length", "seqused-k")),
    (RUN, ["--query-seq-lengths", "lengths.npy"], ["--query-lengths", "lengths.npy"]),
    (RUN, ["--segment-ids", "ids.npy"], ["--documents", "ids.npy"]),
    (RUN, ["--cu-seqlens", "cu.npy"], ["--cu-seqlens-q", "cu.npy"]),
    (RUN, ["--document-ids", "ids.npy"], ["--documents", "ids.npy"]),
    (RUN, ["--sliding-window", "2,0"], ["--window", "2,0"]),
    (RUN, ["--window-size", "2,1"], ["--window", "2,1"]),
    (RUN, ["--local-window-size", "1,1"], ["--window", "1,1"]),
    # Options.
    *((["run", *JSON, *GROUPED[:6]], [f"--{name}", "4"], ["--heads", "4"])
      for name in ("num-heads", "n-heads", "nhead", "num_attention_heads", "n_head", "head-s", "hedas", "numHeads")),
    *((["run", *JSON, "--q", "q4.npy", "--k", "k2.npy", "--v", "k2.npy"], [f"--{name}", "2"], ["--kv-heads", "2"])
      for name in ("num-kv-heads", "num-key-value-heads", "n_kv_head", "kv-num-heads", "num-query-groups", "kvheads")),
    *((RUN, [f"--{name}", "0.5"], ["--scale", "0.5"]) for name in ("scaling", "sm-scale", "softmax-scale", "scale-factor")),
    *((RUN, [f"--{name}", "1"], ["--softcap", "1"])
      for name in ("soft-cap", "logits-soft-cap", "attn-logit-softcapping", "logit-cap")),
    (RUN, ["--temp", "2"], ["--temperature", "2"]),
    (RUN, ["--rope", "half"], ["--rotary", "half"]),
    (RUN, ["--rotary-interleaved"], ["--rotary", "interleaved"]),
    (RUN, ["--is-neox-style"], ["--rotary", "half"]),
    ([*RUN, "--rotary", "half"], ["--rope-theta", "100"], ["--rotary-base", "100"]),
    ([*RUN, "--rotary", "half"], ["--rotary-dim", "4"], ["--rotary-width", "4"]),
    ([*RUN, "--rotary", "half", "--rotary-factor", "2"], ["--rope-scaling", "linear"], ["--rotary-scaling", "linear"]),
    ([*RUN, "--rotary", "half"], ["--positions", "positions.npy"], ["--position-ids", "positions.npy"]),
    ([*RUN, "--rotary", "half"], ["--postion-ids", "positions.npy"], ["--position-ids", "positions.npy"]),
    (["run", *JSON, "--q", "x.npy", "--k", "y.npy", "--causal"], ["--aligment", "bottom-right"],
     ["--alignment", "bottom-right"]),
    (RUN, ["--qk-layernorm", "layer"], ["--qk-norm", "layer"]),
    (["run", *JSON, *WORDS], ["--embeding-scale", "2"], ["--embedding-scale", "2"]),
    (RUN, ["--dtype", "f32"], ["--compute", "f32"]),
    (RUN, ["--library", "jax"], ["--convention", "jax"]),
    (RUN, ["--normalizr", "hardmax"], ["--normaliser", "hardmax"]),
    (RUN, ["--topk", "2", "--normaliser", "top_k"], ["--top-k", "2", "--normaliser", "top_k"]),
    # Outputs and text.
    *((["run", *QKV], [f"--{name}"], ["--outputs", "weights"])
      for name in ("weights", "output-attentions", "need-weights", "return-weights")),
    (["run", *QKV], ["--average-attn-weights"], ["--outputs", "mean_weights"]),
    (["run", *QKV], ["--return-lse"], ["--outputs", "logsumexp"]),
    (["run", *QKV], ["--logsumexp"], ["--outputs", "logsumexp"]),
    (["run", *QKV], ["--scores"], ["--outputs", "scores"]),
    (["run", *QKV], ["--context"], ["--outputs", "context"]),
    (["run", *QKV], ["--json"], ["--format", "json"]),
    (["run", *QKV], ["--digits", "2"], ["--precision", "2"]),
    (["run", "--q", "x.npy", "--k", "y.npy"], ["--heatmap"], ["--view"]),
    (["run", "--q", "x.npy", "--k", "y.npy"], ["--plot"], ["--view"]),
    (["run", "--q", "x.npy", "--k", "y.npy"], ["--steps", "-"], ["--explain", "-"]),
    (["run", *QKV], ["--dryrun"], ["--dry-run"]),
    (["run", "--q", "x.npy", "--k", "y.npy", "--view", "--tokens", "a,b,c,d,e,f"], ["--no-color"], ["--color", "never"]),
    (["run", "--q", "x.npy", "--k", "y.npy", "--view"], ["--labels", "a,b,c,d,e,f"], ["--tokens", "a,b,c,d,e,f"]),
    (["random", "randn", "--shape", "2,2"], ["--random-seed", "3"], ["--seed", "3"]),
    (["random", "randn", "--seed", "1"], ["--shpae", "3,2"], ["--shape", "3,2"]),
    (["random", "uniform", "--seed", "1", "--shape", "2"], ["--hihg", "3"], ["--high", "3"]),
    (["random", "rand", "--seed", "1", "--shape", "2"], ["--rng", "torch"], ["--generator", "torch"]),
]


@pytest.mark.parametrize("command, typed, meant", FLAGS, ids=[" ".join(row[1]) for row in FLAGS])
def test_a_suggested_flag_is_the_one_that_was_meant(folder, command, typed, meant):
    follow(folder, command, typed, meant)


# The other names of each meaning: (base command, names, what is meant). Only the first word differs.

PAST, ROPE = ["--past-k", "past.npy", "--past-v", "past.npy"], [*RUN, "--rotary", "half"]
PLAIN = ["run", *QKV]
SMALL = ["run", "--q", "x.npy", "--k", "y.npy"]
LLAMA3 = ["--rotary-scaling", "llama3", "--rotary-factor", "2", "--rotary-original-length", "4"]
MORE_FLAGS = [
    ([*RUN[:1], *RUN[3:]], "query_layer", "--q q4.npy"), (["run", *JSON, *QKV[:2], *QKV[4:]], "key_layer", "--k k4.npy"),
    (["run", *JSON, *QKV[:4]], "value_states value_layer", "--v v4.npy"),
    (["run", *JSON, *WORDS[2:]], "input embeds token_embeddings input_embeds inputs_embeds", "--embeddings x.npy"),
    (["run", *JSON, *WORDS], "encoder_outputs cross_attention_states", "--memory y.npy"),
    (["run", *JSON, *WORDS[:2], *WORDS[4:]], "query_proj weight_q query_weight w_query", "--w-q u.npy"),
    (["run", *JSON, *WORDS[:4], *WORDS[6:]], "k_proj key_proj to_k k_weight weight_k key_weight w_key", "--w-k w.npy"),
    (["run", *JSON, *WORDS[:6]], "v_proj value_proj to_v v_weight weight_v value_weight w_value", "--w-v u.npy"),
    (["run", *JSON, *WORDS, "--outputs", "output"], "c_proj to_out o_weight weight_o out_weight output_weight w_out",
     "--w-o u.npy"),
    (["run", *JSON, *WORDS], "query_bias q_proj_bias", "--b-q b.npy"),
    (["run", *JSON, *WORDS], "key_bias k_proj_bias", "--b-k b.npy"),
    (["run", *JSON, *WORDS], "v_bias value_bias", "--b-v b.npy"),
    (["run", *JSON, *WORDS, "--w-o", "u.npy"], "o_bias bias_o out_bias output_bias out_proj_bias", "--b-o b.npy"),
    ([*RUN, *PAST[2:]], "past_keys k_cache cache_k", "--past-k past.npy"),
    ([*RUN, *PAST[:2]], "past_value past_values value_cache cache_v", "--past-v past.npy"),
    ([*RUN, "--qk-norm", "rms"], "q_norm_weight q_layernorm q_ln query_norm", "--q-norm norm.npy"),
    ([*RUN, "--qk-norm", "rms"], "k_norm_weight k_layernorm k_ln key_norm", "--k-norm norm.npy"),
    (RUN, "attn_sinks sink_logits s_aux", "--sinks sinks.npy"), (RUN, "additive_mask", "--bias bias.npy"),
    (RUN, "rel_attn_bias", "--relative-bias buckets.npy"), (RUN, "causal_masking autoregressive", "--causal"),
    (RUN, "kv_mask", "--key-mask keys.npy"), (RUN, "sliding_window_size", "--window 2,1"),
    (RUN, "kv_lengths kv_seqlens nonpad_kv_seqlen valid_len valid_lengths", "--key-lengths lengths.npy"),
    (RUN, "seqused_q", "--query-lengths lengths.npy"),
    (RUN, "doc_ids q_segment_ids query_segment_ids", "--documents ids.npy"),
    ([*RUN, "--documents", "ids.npy"], "kv_segment_ids key_segment_ids key_document_ids", "--key-documents ids.npy"),
    (ROPE, "pos_ids", "--position-ids positions.npy"),
    (["run", *JSON, *GROUPED[:6]], "nheads num_head number_of_heads attention_heads num_q_heads num_query_heads n_q_heads "
     "q_num_heads query_heads", "--heads 4"),
    (["run", *JSON, "--q", "q4.npy", "--k", "k2.npy", "--v", "k2.npy"], "n_kv_heads key_value_heads n_head_kv num_kv",
     "--kv-heads 2"),
    ([*RUN, "--query-scale-factor", "2"], "floor_scale", "--query-scale-length 2"),
    (RUN, "logit_soft_cap logit_softcapping attn_logits_soft_cap softcapping", "--softcap 1"),
    ([*RUN, "--dropout-mask", "keep.npy"], "dropout attn_dropout attention_dropout dropout_rate attn_pdrop",
     "--dropout-p 0.5"),
    (RUN, "qkv_format tensor_layout input_layout tensor_format", "--layout blhd"),
    (["run", *JSON, *[word.replace("4", "3") for word in QKV]], "batch_first", "--batch-axis first"),
    (RUN, "use_qk_norm", "--qk-norm rms"),
    (RUN, "rotary_embedding rotary_embeddings rotary_emb rotary_pos_emb", "--rotary-kind half"),
    (ROPE, "theta rope_base rotary_theta rotary_emb_base rotary_embedding_base", "--rotary-base 100"),
    (ROPE, "rope_dim rotary_ndims rotary_embedding_dim", "--rotary-width 4"),
    (RUN, "rope_interleaved", "--rotary-kind interleaved"),
    ([*ROPE, "--rotary-factor", "2"], "rope_type", "--rotary-scaling linear"),
    ([*ROPE, "--rotary-scaling", "linear"], "rope_factor rope_scaling_factor", "--rotary-factor 2"),
    ([*ROPE, "--rotary-scaling", "yarn", "--rotary-factor", "2"], "original_max_position_embeddings",
     "--rotary-original-length 4"),
    ([*ROPE, *LLAMA3, "--rotary-high-frequency-factor", "4"], "low_freq_factor", "--rotary-low-frequency-factor 2"),
    ([*ROPE, *LLAMA3, "--rotary-low-frequency-factor", "1"], "high_freq_factor", "--rotary-high-frequency-factor 3"),
    (RUN, "compute_dtype", "--compute f32"), (RUN, "framework", "--convention jax"),
    (["random", "randn", "--shape", "2,2"], "rng_seed manual_seed random_state", "--seed 3"),
    ([*SMALL, "--view"], "words", "--tokens a,b,c,d,e,f"),
    (PLAIN, "return_attn_probs return_attention_scores", "--outputs weights"),
    (PLAIN, "lse return_softmax_lse", "--outputs logsumexp"),
    (PLAIN, "out_file output_file outfile output_dir output_path save save_to", "--output new.npz --force"),
    (["batch", "job.json"], "out output_dir", "--out-dir new --force"),
    (SMALL, "draw show visualize visualise", "--view"), (PLAIN, "decimals", "--precision 2"),
    (PLAIN, "num_threads n_threads nthreads", "--threads 1"),
    (PLAIN, "mem max_mem memory_limit mem_limit limit_memory", "--max-memory 64M"),
    ([*SMALL, "--outputs", "scores"], "csv", "--format csv"), ([*SMALL, "--view"], "no_colour", "--color never"),
    (PLAIN, "silent", "--quiet"),
    (["run", *JSON, "--layer", "0", "--hidden", "x.npy"], "checkpoint model_dir model_name pretrained", "--model model"),
    (["run", *JSON, "--model", "model", "--hidden", "x.npy"], "layer_idx layer_index layer_id", "--layer 0"),
]


@pytest.mark.parametrize("command, typed, meant", MORE_FLAGS, ids=[row[1].split()[0] for row in MORE_FLAGS])
def test_other_names_of_a_flag_are_the_one_that_was_meant(folder, command, typed, meant):
    flag, *rest = meant.split()
    for name in typed.split():
        refused = attn(*command, "--" + name.replace("_", "-"), *rest, cwd=folder)
        assert (refused.returncode, refused.stdout) == (2, b""), name
        assert names(refused)[0].split()[0] == flag, name
        assert names(refused)[0].split() in ([flag], [flag, *rest[:1]]), name
        assert len(names(refused)) == 1, name
    result(folder, [*command, *meant.split()])


# Keys of jobs: (typed key, meant key, value).

MATRIX, KEYS = TENSORS["x"].tolist(), TENSORS["y"].tolist()
SELF = {"Q": MATRIX, "K": MATRIX, "V": MATRIX}
JOB_KEYS = [
    *((name, "causal", True) for name in ("is_causal", "caussal", "Causal", "causal_mask", "isCausal")),
    *((name, "heads", 2) for name in ("num_heads", "n_heads", "nhead", "head", "numHeads", "num_attention_heads")),
    *((name, "mask", TENSORS["mask"].tolist()) for name in ("attn_mask", "msk", "masks")),
    *((name, "key_mask", [True] * 5 + [False]) for name in ("keyMask", "kv_mask", "mask_key")),
    *((name, "scale", 0.5) for name in ("scaling", "softmax_scale", "sacle", "attention_scale")),
    *((name, "window", [2, 0]) for name in ("sliding_window", "window_size", "windows")),
    *((name, "rotary_base", 50) for name in ("rope_theta", "rotary_bse", "rope_base")),
    *((name, "outputs", ["weights"]) for name in ("output", "ouputs")),
    ("temprature", "temperature", 3), ("soft_cap", "softcap", 1), ("segment_ids", "documents", [0, 0, 1, 1, 2, 2]),
    ("qkv_layout", "layout", "blhd"), ("softmax_axes", "softmax_axis", "all"), ("dtype", "compute", "f32"),
    ("clip-qkv", "clip_qkv", 0.5), ("attn_bias", "bias", TENSORS["bias"][0].tolist()),
    ("valid_lens", "key_lengths", 4), ("labels", "tokens", list("abcdef")), ("normalisr", "normaliser", "hardmax"),
]


@pytest.mark.parametrize("typed, meant, value", JOB_KEYS, ids=[row[0] for row in JOB_KEYS])
def test_a_suggested_key_is_the_one_that_was_meant(folder, typed, meant, value):
    def run(key):
        four = {name: TENSORS[f"{name.lower()}4"].tolist() for name in "QKV"} if meant == "layout" else SELF
        job = {**four, **({"rotary": {"kind": "half"}} if meant == "rotary_base" else {}), key: value}
        return attn("run", "-", *JSON, stdin=json.dumps(job), cwd=folder)
    refused = run(typed)
    assert refused.returncode == 65
    [suggested] = names(refused)
    assert run(suggested).returncode == 0
    assert run(suggested).stdout == run(meant).stdout


MEMBERS = [
    ("rotary", "theta", "base", 50), ("rotary", "bsae", "base", 50), ("rotary", "rope_type", "scaling", "linear"),
    ("rotary", "type", "scaling", "linear"), ("rotary", "rope_theta", "base", 50),
    ("rotary", "original_max_position_embeddings", "original_length", 4), ("print_options", "num_py", "numpy", 1),
    ("rotary", "low_freq_factor", "low_frequency_factor", 2), ("rotary", "high_freq_factor", "high_frequency_factor", 3),
    ("softmax", "axsi", "axis", "all"), ("softmax", "axes", "axis", "all"),
    ("print_options", "precison", "precision", 3), ("print_options", "line_width", "linewidth", 60),
]


@pytest.mark.parametrize("group, typed, meant, value", MEMBERS)
def test_a_suggested_member_is_the_one_that_was_meant(folder, group, typed, meant, value):
    def run(key):
        kind = {"kind": "half", "factor": 2, "scaling": "linear"} if group == "rotary" else {}
        if "factor" in meant:
            kind |= {"scaling": "llama3", "original_length": 4, "low_frequency_factor": 1, "high_frequency_factor": 4}
            kind.pop(meant)
        elif meant == "original_length":
            kind["scaling"] = "yarn"
        return attn("run", "-", stdin=json.dumps({**SELF, group: {**kind, key: value}}), cwd=folder)
    refused = run(typed)
    assert refused.returncode == 65
    assert names(refused) == [meant]
    assert run(meant).returncode == 0


# Outputs: (typed, meant).

OUTPUTS = [
    *((name, "queries") for name in ("q", "query", "querries")), *((name, "keys") for name in ("k", "key")),
    *((name, "values") for name in ("v", "value", "vlaues")),
    *((name, "weights") for name in (
        "weight", "attn", "attention", "attentions", "attn_weights", "attention_weights", "attn_probs",
        "attention_probs", "probs", "probabilities", "wieghts", "Weights", "attn-weights")),
    *((name, "mean_weights") for name in ("average_attn_weights", "average_weights", "weights_mean", "mean-weight")),
    *((name, "scores") for name in ("score", "raw_scores", "similarity", "qk", "SCORES", "scroes")),
    *((name, "scaled_scores") for name in ("scaled-scores", "scaledscores", "scaled_score")),
    *((name, "masked_scores") for name in ("masked", "maskd_scores")),
    *((name, "logsumexp") for name in ("lse", "softmax_lse", "log_sum_exp", "logsumexpo")),
    *((name, "row_max") for name in ("rowmax", "max_scores")),
    *((name, "context") for name in ("contexts", "contxt")),
    *((name, "entropy") for name in ("entropies", "entorpy")),
    ("prev_token_weight", "previous_token_weight"), ("first_token_weight", "first_key_weight"),
    ("key_weight", "key_weights"), ("present_key", "present_K"), ("head_contexts", "head_context"),
    ("Keys_95", "keys_95"), ("effective_key", "effective_keys"), ("query_states", "queries"), ("key_states", "keys"),
    ("value_states", "values"), ("mean_attention", "mean_weights"), ("present_value", "present_V"),
    ("query_gates", "gates"),
    *((name, "weights") for name in ("attn_weight", "attention_weight", "attn_map", "attention_map")),
    *((name, "scores") for name in ("similarities", "dot_products", "products")),
]


@pytest.mark.parametrize("typed, meant", OUTPUTS, ids=[row[0] for row in OUTPUTS])
def test_a_suggested_output_is_the_one_that_was_meant(folder, typed, meant):
    command = [*RUN, *PAST] if "present" in meant else ["run", *JSON, *WORDS, "--w-gate", "w.npy"] if meant == "gates" else RUN
    follow(folder, [*command, "--outputs"], [typed], [meant])


def test_outputs_of_files_are_suggested_alike(folder):
    for typed in ("q=x.npy", "attn=x.npz"):
        wanted = dict(OUTPUTS)[typed.split("=")[0]]
        assert names(attn("run", *QKV, "-o", typed, cwd=folder)) == [wanted]


def test_queries_are_suggested_for_an_input_that_the_job_lacks(folder):
    run = attn("run", *WORDS, "--outputs", "Q", cwd=folder)
    assert_error(run, 2, "'Q' is not an input of this job (did you mean 'queries'?)")


# Words: (flag, typed, meant, other flags).

FOUR = ["--q", "q4.npy", "--k", "k4.npy", "--v", "v4.npy", "--causal"]
CROSS = ["--q", "x.npy", "--k", "y.npy", "--v", "y.npy", "--causal"]
MASKED = ["--q", "x.npy", "--k", "x.npy", "--mask", "mask.npy"]
RELATIVE = [*FOUR, "--relative-bias", "buckets.npy"]
VALUES = [
    *(("--convention", name, "flash", FOUR) for name in (
        "flash_attn", "flash-attention", "flash_attention_2", "fa2", "FA3", "flashattn", "flash-attn", "FlashAttention",
        "fash", "flash_attn_func")),
    *(("--convention", name, "torch", FOUR) for name in (
        "sdpa", "scaled_dot_product_attention", "F.scaled_dot_product_attention", "huggingface", "transformers", "hf",
        "Torch", "torch.nn.functional", "torch-sdpa")),
    *(("--convention", name, "torch-mha", ["--q", "x.npy", "--k", "y.npy", "--mask", "[[true,false,false,false,false]]"])
      for name in ("torch_mha", "torch.nn.MultiheadAttention", "nn.MultiheadAttention", "pytorch-mha")),
    *(("--convention", name, "keras", FOUR) for name in ("tensorflow", "tf", "tf.keras", "kera", "Keras")),
    *(("--convention", name, "jax", FOUR) for name in ("flax", "jaxx", "jax.nn", "jax.nn.dot_product_attention")),
    *(("--convention", name, "onnx", CROSS) for name in ("onnxruntime", "ort", "onix", "ONNX")),
    *(("--layout", name, "blhd", FOUR) for name in ("bshd", "BLHD", "bthd", "bsnd")),
    *(("--layout", name, "bhld", FOUR) for name in ("bhsd", "bnsd", "bhtd")),
    *(("--alignment", name, "bottom-right", CROSS) for name in ("lower-right", "bottom_right", "bottomright", "botom-right")),
    *(("--alignment", name, "top-left", CROSS) for name in ("upper_left", "top_left", "topleft")),
    *(("--rotary", name, "half", FOUR) for name in ("neox", "rotate_half", "Half", "gpt-neox")),
    *(("--rotary", name, "interleaved", FOUR) for name in ("gptj", "gpt-j", "interleave", "interleved", "adjacent")),
    *(("--compute", name, "f32", FOUR) for name in ("float32", "fp32", "F32", "single")),
    *(("--compute", name, "f64", FOUR) for name in ("float64", "double")),
    *(("--softmax-precision", name, "f16", FOUR) for name in ("float16", "fp16", "half")),
    ("--softmax-precision", "bfloat16", "bf16", FOUR),
    *(("--normaliser", name, "entmax15", FOUR) for name in ("entmax", "entmax1.5", "entmax-15")),
    *(("--normaliser", name, "hardmax", FOUR) for name in ("argmax", "hard_max", "hardmx")),
    ("--normaliser", "sparse_max", "sparsemax", FOUR), ("--normaliser", "Softmax", "softmax", FOUR),
    *(("--score", name, "cosine", FOUR) for name in ("cos", "cosin", "Cosine")),
    *(("--score", name, "dot", FOUR) for name in ("dot_product", "scaled-dot-product", "dto")),
    *(("--qk-norm", name, "rms", FOUR) for name in ("rmsnorm", "RMSNorm", "rms_norm")),
    *(("--qk-norm", name, "layer", FOUR) for name in ("layernorm", "layer_norm", "LayerNorm")),
    *(("--mask-polarity", name, "ignore", ["--q", "x.npy", "--k", "x.npy", "--mask", "mask.npy"])
      for name in ("hide", "ignroe", "masked")),
    *(("--empty-rows", name, "zero", FOUR) for name in ("zeros", "Zero")),
    *(("--style", name, "torch", ["--q", "x.npy", "--k", "y.npy", "--format", "text"]) for name in ("pytorch", "Torch")),
    ("--style", "tensorflow", "tf", ["--q", "x.npy", "--k", "y.npy", "--format", "text"]),
    ("--position", "sine", "sinusoidal", WORDS), ("--position", "sinusodal", "sinusoidal", WORDS),
    *(("--weights-layout", name, "out-in", WORDS) for name in ("torch", "pytorch", "out_in")),
    *(("--convention", name, "flash", FOUR) for name in (
        "flash_attn_2", "flash2", "flash_attn_3", "flash_attention_3", "flash3", "fa")),
    *(("--convention", name, "torch", FOUR) for name in (
        "torch_sdpa", "pytorch_sdpa", "f_sdpa", "torch_functional", "torch_nn_functional_scaled_dot_product_attention",
        "hugging_face")),
    *(("--convention", name, "keras", FOUR) for name in ("tf_keras", "tensorflow_keras", "keras3")),
    *(("--convention", name, "jax", FOUR) for name in ("flax_linen", "linen")),
    ("--convention", "onnx_attention", "onnx", CROSS), ("--compute", "fp64", "f64", FOUR),
    ("--layout", "bnsh", "bhld", FOUR), ("--layout", "bsnh", "blhd", FOUR), ("--normaliser", "onehot", "hardmax", FOUR),
    ("--score", "bahdanau", "additive", [*FOUR, "--v-score", "norm.npy"]),
    ("--score", "bilinear", "general", [*FOUR, "--w-score", "w.npy"]),
    *(("--mask-polarity", name, "attend", MASKED) for name in ("keep", "visible")),
    ("--mask-polarity", "hidden", "ignore", MASKED),
    *(("--rotary", name, "half", FOUR) for name in ("gpt_neox", "neox_style")),
    ("--rotary", "gptj_style", "interleaved", FOUR),
    *(("--position", name, "sinusoidal", WORDS) for name in ("sincos", "sin_cos")),
    ("--rotary-scaling", "dynamic", "dynamic-ntk", [*FOUR, "--rotary", "half", "--rotary-factor", "2",
                                                    "--rotary-original-length", "4"]),
    ("--rotary-scaling", "ntk_aware", "ntk", [*FOUR, "--rotary", "half", "--rotary-factor", "2"]),
    ("--rotary-scaling", "su", "longrope", [*FOUR, "--rotary", "half", "--rotary-original-length", "4",
                                            "--rotary-factor", "2", "--rotary-short-factor", "[1,1,1,1]",
                                            "--rotary-long-factor", "[2,2,2,2]"]),
    ("--relative-direction", "bidirectional", "both", RELATIVE), ("--relative-direction", "unidirectional", "past", RELATIVE),
    ("--style", "np", "numpy", [*FOUR, "--format", "text"]),
]


@pytest.mark.parametrize("flag, typed, meant, job", VALUES, ids=[f"{row[0]} {row[1]}" for row in VALUES])
def test_a_suggested_word_is_the_one_that_was_meant(folder, flag, typed, meant, job):
    command = ["run", *job, *([] if "--format" in job else JSON), flag]
    follow(folder, command, [typed], [meant])


GENERATORS = [
    ("pytorch", "torch"), ("Torch", "torch"), ("random_state", "RandomState"),
    ("defaultrng", "default_rng"), ("pcg64", "default_rng"), ("rng", "default_rng"), ("mt19937", "RandomState"),
    ("jaxx", "jax"),
]


@pytest.mark.parametrize("typed, meant", GENERATORS)
def test_a_suggested_generator_is_the_one_that_was_meant(typed, meant):
    follow(None, ["random", "uniform", "--seed", "7", "--shape", "3", "--generator"], [typed], [meant])


# Methods of random generators: (typed, meant), with the generators of NumPy, PyTorch and JAX.

METHODS = [
    ("torch.randn", ["randn", "--generator", "torch"]), ("torch.rand", ["rand", "--generator", "torch"]),
    ("torch.nn.init.normal_", ["normal", "--generator", "torch"]), ("normal_", ["normal", "--generator", "torch"]),
    ("nn.init.uniform_", ["uniform", "--generator", "torch"]), ("numpy.random.randn", ["randn"]),
    ("np.random.rand", ["rand"]), ("np.random.RandomState.uniform", ["uniform"]), ("np.random.normal", ["normal"]),
    ("np.random.default_rng().normal", ["normal", "--generator", "default_rng"]),
    ("default_rng.random", ["random", "--generator", "default_rng"]),
    ("np.random.Generator.standard_normal", ["standard_normal", "--generator", "default_rng"]),
    ("jax.random.normal", ["normal", "--generator", "jax"]), ("jax.random.uniform", ["uniform", "--generator", "jax"]),
    ("standard-normal", ["standard_normal"]), ("unifrom", ["uniform"]), ("Rand", ["rand"]),
]


@pytest.mark.parametrize("typed, meant", METHODS, ids=[row[0] for row in METHODS])
def test_a_suggested_method_is_the_one_that_was_meant(typed, meant):
    def run(method):
        return attn("random", *method, "--seed", "3", "--shape", "2,3")
    refused = run([typed])
    assert refused.returncode == 2
    [suggested] = names(refused)
    assert suggested.split() == meant and run(meant).returncode == 0
    job = {"seed": 3, "Q": {typed: {"shape": [2, 3]}}, "K": [[1, 1, 1]]}
    message = attn("run", "-", stdin=json.dumps(job)).stderr.decode()
    assert f"did you mean '{meant[0]}'" in message
    assert len(meant) == 1 or f'with "generator": "{meant[2]}"?' in message


def test_the_parameters_of_a_layer_are_those_that_were_meant():
    refused = attn("random", "torch.nn.Linear", "--seed", "1", "--in-features", "3", "--out-features", "2")
    [suggested] = names(refused)
    assert suggested == "Linear --generator torch"
    command = ["random", *suggested.split(), "--seed", "1", "--in-features", "3", "--out-features", "2"]
    assert attn(*command).returncode == 0


ARGUMENTS = [
    ("normal", "mean", 1, "loc"), ("normal", "std", 2, "scale"), ("normal", "sigma", 2, "scale"), ("normal", "mu", 1, "loc"),
    ("uniform", "minval", -1, "low"), ("uniform", "maxval", 2, "high"), ("normal", "stddev", 2, "scale"),
    ("uniform", "hgih", 2, "high"), ("randint", "hihg", 5, "high"), ("rand", "shpae", [2, 2], "shape"),
    ("uniform jax", "low", -1, "minval"), ("uniform jax", "high", 2, "maxval"),
    *(("normal torch", name, 1, "mean") for name in ("loc", "mu")),
    *(("normal torch", name, 2, "std") for name in ("scale", "sigma", "stddev")),
]


@pytest.mark.parametrize("method, typed, value, meant", ARGUMENTS)
def test_a_suggested_argument_is_the_one_that_was_meant(method, typed, value, meant):
    def run(name):
        word, *generator = method.split()
        arguments = {} if meant == "shape" else {"shape": [2, 3]}
        arguments |= {"high": 9} if method == "randint" and meant != "high" else {}
        job = {"seed": 1, "Q": {word: {**arguments, name: value}}, "K": [[1] * (2 if meant == "shape" else 3)]}
        return attn("run", "-", stdin=json.dumps(job | ({"generator": generator[0]} if generator else {})))
    assert names(run(typed)) == [meant]
    assert run(meant).returncode == 0


# Commands and tensors.

COMMANDS = [
    *((name, "view") for name in ("plot", "draw", "heatmap", "veiw", "visualize")),
    *((name, "compare") for name in ("diff", "cmp", "comapre", "allclose")),
    *((name, "run") for name in ("compute", "attend", "rnu", "forward")),
    *((name, "inspect") for name in ("info", "ls", "describe", "inspct")),
    *((name, "convert") for name in ("print", "cat", "cnovert")),
    *((name, "stats") for name in ("stat", "statistics")), *((name, "random") for name in ("rand", "rng")),
    ("example", "examples"), ("bacth", "batch"), ("scheme", "schema"), ("modle", "model"), ("roll-out", "rollout"),
    ("combine", "merge"), ("completion", "completions"), ("convention", "conventions"), ("explain", "run JOB --explain -"),
    *((name, "view") for name in ("show", "visualise")), *((name, "compare") for name in ("verify", "assert_close")),
    *((name, "run") for name in ("calc", "calculate", "attention", "exec", "execute")), ("tensors", "inspect"),
    *((name, "convert") for name in ("dump", "export", "save")), ("statistic", "stats"), ("demo", "examples"),
    ("demos", "examples"), ("parallel", "batch"),
]


@pytest.mark.parametrize("typed, meant", COMMANDS, ids=[row[0] for row in COMMANDS])
def test_a_suggested_command_is_the_one_that_was_meant(typed, meant):
    assert names(attn(typed, "x.npz")) == [meant]
    assert attn(meant.split()[0], "--help").returncode == 0


def test_an_explanation_is_suggested_as_a_command(folder):
    (folder / "job.json").write_text(json.dumps(SELF))
    words = names(attn("explain", "job.json", cwd=folder))[0].replace("JOB", "job.json").split()
    assert b"step by step" in result(folder, words)


TENSOR_NAMES = [
    (["Q", "K", "V"], "q", "Q"), (["Q", "K", "V"], "query", "Q"), (["queries", "keys"], "query", "queries"),
    (["weights", "context"], "attention", "weights"), (["weights", "context"], "attn_weights", "weights"),
    (["attn_weights", "out"], "weights", "attn_weights"), (["attn", "out"], "context", "out"),
    (["attn", "out"], "weights", "attn"), (["lse", "o"], "logsumexp", "lse"),
    (["layers.3.attn.wq", "layers.30.attn.wq"], "layers.3.attention.wq", "layers.3.attn.wq"),
    (["model.layers.3.wq", "model.layers.13.wq"], "layers.3.wq", "model.layers.3.wq"),
    (["model.layers.3.wq", "model.layers.30.wq"], "model.layers.3.qw", None),
    (["layers.0.wq", "layers.1.wq"], "layers.2.wq", None), (["w_q", "w_k"], "w_v", None),
    (["query_weights", "out"], "key_weights", None),
]


@pytest.mark.parametrize("stored, typed, meant", TENSOR_NAMES, ids=[row[1] for row in TENSOR_NAMES])
def test_a_suggested_tensor_is_the_one_that_was_meant(tmp_path, stored, typed, meant):
    np.savez(tmp_path / "x.npz", **{name: RNG.standard_normal((2, 2)) for name in stored})
    for command in (["convert", f"x.npz#{typed}"], ["view", "x.npz", "--of", typed]):
        assert names(attn(*command, cwd=tmp_path)) == ([meant] if meant else [])
    if meant:
        assert result(tmp_path, ["convert", f"x.npz#{meant}"])


# Names with several meanings: each is suggested with what distinguishes it.

SEVERAL = [
    (["run", *QKV, "--convention", "pytorch"], {"torch": "scaled_dot_product_attention", "torch-mha": "nn.MultiheadAttention"}),
    (["run", *QKV, "--convention", "mha"], {"torch-mha": "nn.MultiheadAttention", "keras": "keras.layers.MultiHeadAttention"}),
    (["run", *QKV, "--attention-mask", "m.npy"], {"--key-mask": "(B, S)", "--mask": "queries and keys"}),
    (["run", *QKV, "--past-key-values", "p.npy"], {"--past-k": "keys", "--past-v": "values"}),
    *((["run", *QKV, name, "p.npy"], {"--past-k": "keys", "--past-v": "values"}) for name in ("--past-kv", "--kv-cache")),
    *((["run", *QKV, "--outputs", name], {"scores": "before scale and mask", "masked_scores": "after them"})
      for name in ("attn_logits", "attention_logits")),
    *((["run", *QKV, "--outputs", name], {"context": "before W_O", "output": "after it"})
      for name in ("o", "y", "attn_out", "attention_output")),
    (["run", *QKV, "--outputs", "attn_scores"], {"scores": "before the softmax", "weights": "after it"}),
    (["run", *QKV, "--convention", "multihead_attention"],
     {"torch-mha": "nn.MultiheadAttention", "keras": "keras.layers.MultiHeadAttention"}),
    (["random", "randn", "--generator", "np"], {"RandomState": "np.random.seed", "default_rng": "np.random.default_rng"}),
    (["run", "--hidden-state", "x.npy"], {"--hidden": "--model", "--embeddings": "other weights"}),
    (["run", *QKV, "--add-bias-kv", "p.npy"], {"--bias-k": "key", "--bias-v": "value"}),
    (["run", *QKV, "--outputs", "attention_scores"], {"scores": "before the softmax", "weights": "after it"}),
    (["run", *QKV, "--outputs", "logits"], {"scores": "before scale and mask", "masked_scores": "after them"}),
    (["run", *QKV, "--outputs", "out"], {"context": "before W_O", "output": "after it"}),
    (["run", *QKV, "--outputs", "attn_output"], {"context": "before W_O", "output": "after it"}),
    (["run", "--hidden-states", "x.npy"], {"--hidden": "--model", "--embeddings": "other weights"}),
    (["random", "randn", "--generator", "numpy"], {"RandomState": "np.random.seed", "default_rng": "np.random.default_rng"}),
    (["run", *QKV, "--attn-scale", "2"], {"--scale": "", "--query-scale-factor": "Llama 4"}),
    (["run", *QKV, "--lengths", "2"], {"--query-lengths": "", "--key-lengths": ""}),
]


@pytest.mark.parametrize("command, meanings", SEVERAL, ids=[" ".join(row[0][-2:]) for row in SEVERAL])
def test_several_meanings_are_distinguished(folder, command, meanings):
    message = attn(*command, cwd=folder).stderr.decode()
    found = re.search(r"\(did you mean (.*)\?\)", message)[1]
    assert re.findall(r"'(.*?)'", found) == list(meanings)
    for name, note in meanings.items():
        assert note in found[found.index(f"'{name}'"):].split(" or ")[0]


# A name whose meaning depends on more than the name has a note.

NOTES = [
    (["--key-padding-mask", "keys.npy"], "'--key-mask' with mask_polarity ignore if true hides a key"),
    (["--src-key-padding-mask", "keys.npy"], "'--key-mask' with mask_polarity ignore if true hides a key"),
    (["--src-mask", "keys.npy"], "'--mask' with mask_polarity ignore if true hides a key"),
    *(([f"--{name}", "keys.npy"], "'--mask' with mask_polarity ignore if true hides a key")
      for name in ("tgt-mask", "memory-mask")),
    *(([f"--{name}", "keys.npy"], "'--key-mask' with mask_polarity ignore if true hides a key")
      for name in ("tgt-key-padding-mask", "memory-key-padding-mask", "padding-mask")),
    (["--rope-interleaved"], "'--rotary-kind interleaved' if true"), (["--batch-first"], "'--batch-axis first' if true"),
    *((["--convention", name], "'torch' with alignment bottom-right after cached keys")
      for name in ("huggingface", "hf", "transformers")),
    (["--return-lse"], "'--outputs logsumexp' if true"), (["--is-neox-style"], "'--rotary-kind half' if true"),
    (["--sliding-window", "4"], "'--window' with the numbers of keys to the left and right"),
]


@pytest.mark.parametrize("typed, text", NOTES, ids=[row[0][0] for row in NOTES])
def test_a_note_says_what_else_to_write(folder, typed, text):
    assert_error(attn("run", *QKV, *typed, cwd=folder), 2, f"did you mean {text}?")


# Names that look like others but mean something else, or nothing here: no suggestion.

NOTHING = [
    *((["run", *QKV, f"--{name}", "4"]) for name in (
        "head-dim", "head-size", "d-model", "num-layers", "block-size", "bias-x", "past-q", "w-p", "top-p", "query-mask",
        "max-seqlen", "dropout-seed", "device", "q-lora-rank", "vocab", "gamma", "k-heads", "z-loss", "weights-k",
        "input-ids")),
    *((["run", *QKV, "--outputs", name]) for name in (
        "query_weights", "row_min", "row_sum", "keys_90", "loss", "hidden", "value_weights", "key_norm_x", "w_p", "topk")),
    *((["run", *QKV, "--convention", name]) for name in (
        "xformers", "triton", "attention", "mlx", "numpy", "vllm", "cudnn", "llama", "flashinfer")),
    *((["run", *QKV, "--causal", "--alignment", name]) for name in ("bottom-left", "top-right", "center", "none")),
    *((["run", *QKV, "--normaliser", name]) for name in ("softmax1", "softmin", "relu", "entmax12", "log_softmax")),
    *((["run", *QKV, "--layout", name]) for name in ("sbhd", "bdhl", "lbhd", "thd")),
    *((["run", *QKV, "--rotary-kind", name]) for name in ("llama", "xpos", "2d")),
    (["run", *QKV, "--compute", "f16"]), (["run", *QKV, "--compute", "bf16"]), (["run", *QKV, "--score", "l1"]),
    (["run", *QKV, "--qk-norm", "l1"]),
    *((["random", name, "--seed", "1"]) for name in ("rand_like", "tf.random.normal", "randn2", "gauss",
                                                   "torch.arange", "np.random.seed")),
    *(([name]) for name in ("train", "serve", "benchmark", "quantize", "install")),
]


@pytest.mark.parametrize("command", NOTHING, ids=[" ".join(row[-2:]) for row in NOTHING])
def test_nothing_is_suggested_for_a_name_of_another_meaning(folder, command):
    run = attn(*command, cwd=folder)
    assert run.returncode == 2
    assert b"did you mean" not in run.stderr


@pytest.mark.parametrize("typed, meant", [("txt", "text"), ("jsonl", "ndjson")])
def test_a_suggested_format_is_the_one_that_was_meant(folder, typed, meant):
    follow(folder, ["run", *QKV, "--format"], [typed], [meant])


def test_a_suggested_precision_is_the_one_that_was_meant(folder):
    result(folder, ["run", *QKV, "-o", "context=context.npy"])
    follow(folder, ["compare", "context.npy", "--reference", *QKV, "--precision"], ["tensorfloat32"], ["tf32"])


def other_names():
    """(kind, name) of each name in the program's table of names that other libraries use."""
    source = (ROOT / "src/attn/base/other_names.cpp").read_text()
    table = source[source.index("kOtherNames[]"):]
    for kind, names_of_row in re.findall(r'{(\w+),\s*((?:"[^"]*"\s*)+),', table):
        for name in "".join(re.findall(r'"([^"]*)"', names_of_row)).split():
            yield kind, name


def test_every_other_name_is_followed():
    """By the tables above, which are written by hand."""
    typed = {kind: set() for kind in ("input", "output", "value", "convention", "command")}

    def add(kind, *words):
        typed[kind] |= {re.sub("[-_.]", "", word).lower() for word in words}

    add("input", *(row[1][0] for row in FLAGS), *(name for row in MORE_FLAGS for name in row[1].split()))
    add("input", *(row[0] for row in JOB_KEYS), *(row[1] for row in MEMBERS + ARGUMENTS), *(row[0][0] for row in NOTES))
    add("output", *(row[0] for row in OUTPUTS))
    add("command", *(row[0] for row in COMMANDS))
    add("value", "tensorfloat32", "txt", "jsonl", *(row[0] for row in GENERATORS))
    for flag, word, *_ in VALUES:
        add("convention" if flag == "--convention" else "value", word)
    for [*_, flag, word], _ in [*SEVERAL, *((row[0], 0) for row in NOTES if len(row[0]) == 2)]:
        kind = {"--outputs": "output", "--convention": "convention", "--generator": "value"}.get(flag, "input")
        add(kind, flag if kind == "input" else word)
    found = list(other_names())
    assert len(found) > 500
    assert [row for row in found if re.sub("_", "", row[1]) not in typed[row[0]]] == []
