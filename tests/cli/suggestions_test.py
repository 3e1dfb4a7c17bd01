"""Names that other libraries use, and misspelt ones: what attn suggests computes what was meant.

Each table lists what was typed and what it means, both written by hand. The suggestion in the message
takes the place of what was typed. The command must then succeed and give the same result as the one that
was meant, or as NumPy.
"""

import json
import re

import numpy as np
import pytest

from support.attn import ROOT, assert_error, attn
from support.checkpoints import rotate, write_model

RNG = np.random.default_rng(5)
B, H, L, D = 2, 4, 6, 8
TENSORS = {
    "x": RNG.standard_normal((L, D)), "y": RNG.standard_normal((5, D)), "w": RNG.standard_normal((D, D)),
    "u": RNG.standard_normal((D, D)), "b": RNG.standard_normal(D),
    "q4": RNG.standard_normal((B, H, L, D)), "k4": RNG.standard_normal((B, H, L, D)),
    "v4": RNG.standard_normal((B, H, L, D)), "k2": RNG.standard_normal((B, 2, L, D)),
    "mask": np.tril(RNG.random((L, L)) < 0.7) | np.eye(L, dtype=bool),
    "keep": np.ones((L, L), bool), "ones": np.ones(H * D), "hides": np.triu(np.ones((L, L), bool), 1),
    "keys": np.array([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]], bool),
    "lists": np.arange(2 * L).reshape(L, 2) % L,
    "bias": RNG.standard_normal((H, L, L)), "buckets": RNG.standard_normal((8, H)), "sinks": RNG.standard_normal(H),
    "past": RNG.standard_normal((B, H, 3, D)), "lengths": np.array([3, 5]), "ids": np.array([0, 0, 1, 1, 2, 2]),
    "positions": np.array([4, 5, 6, 7, 8, 9]), "cu": np.array([0, 2, 6]), "norm": RNG.standard_normal(D),
    "half": np.full(1, 0.5), "bk": RNG.standard_normal(H * D), **{name: RNG.standard_normal((B, L, D)) for name in ("q3", "k3", "v3")},
    "of_lse": RNG.standard_normal((B, H, L))}
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


def result_of(run):
    """What the command printed on stdout; it must succeed."""
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout


def result(folder, words):
    return result_of(attn(*words, cwd=folder))


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
LATENT = ["run", *JSON, "--q-nope", "q4.npy", "--q-pe", "q4.npy", "--scale", "1"]
PAGES = ["--block-table", "[[0],[1]]", "--key-lengths", "lengths.npy"]
LLAMA3 = ["--rotary-scaling", "llama3", "--rotary-factor", "2", "--rotary-original-length", "4"]
MORE_FLAGS = [
    ([*RUN[:1], *RUN[3:]], "query_layer", "--q q4.npy"), (["run", *JSON, *QKV[:2], *QKV[4:]], "key_layer", "--k k4.npy"),
    (["run", *JSON, *QKV[:4]], "value_states value_layer", "--v v4.npy"),
    (["run", *JSON, *WORDS[2:]], "input embeds token_embeddings input_embeds inputs_embeds", "--embeddings x.npy"),
    (["run", *JSON, *WORDS], "encoder_outputs cross_attention_states", "--memory y.npy"),
    (["run", *JSON, *WORDS[:2], *WORDS[4:]], "query_proj weight_q query_weight w_query q_proj_weight", "--w-q u.npy"),
    (["run", *JSON, *WORDS[:4], *WORDS[6:]], "k_proj key_proj to_k k_weight weight_k key_weight w_key k_proj_weight", "--w-k w.npy"),
    (["run", *JSON, *WORDS[:6]], "v_proj value_proj to_v v_weight weight_v value_weight w_value v_proj_weight", "--w-v u.npy"),
    (["run", *JSON, *WORDS, "--outputs", "output"], "c_proj to_out o_weight weight_o out_weight output_weight w_out "
     "o_proj_weight out_proj_weight", "--w-o u.npy"),
    (["run", *JSON, *WORDS], "query_bias q_proj_bias", "--b-q b.npy"),
    (["run", *JSON, *WORDS], "key_bias k_proj_bias", "--b-k b.npy"),
    (["run", *JSON, *WORDS], "v_bias value_bias", "--b-v b.npy"),
    (["run", *JSON, *WORDS, "--w-o", "u.npy"], "o_bias bias_o out_bias output_bias o_proj_bias out_proj_bias", "--b-o b.npy"),
    ([*RUN, *PAST[2:]], "past_keys k_cache cache_k", "--past-k past.npy"),
    ([*RUN, *PAST[:2]], "past_value past_values value_cache cache_v", "--past-v past.npy"),
    ([*RUN, "--qk-norm", "rms"], "q_norm_weight q_layernorm q_ln query_norm", "--q-norm norm.npy"),
    ([*RUN, "--qk-norm", "rms"], "k_norm_weight k_layernorm k_ln key_norm", "--k-norm norm.npy"),
    (RUN, "sink attn_sinks sink_logits s_aux", "--sinks sinks.npy"),
    ([*PLAIN, "--outputs", "grad_Q"], "dlse grad_lse", "--grad-logsumexp of_lse.npy"), (RUN, "additive_mask", "--bias bias.npy"),
    (RUN, "score_mod bias_expression", "--bias-rule -abs(q-k)"), (RUN, "mask_mod mask_expression", "--mask-rule q>=k"),
    (RUN, "attention_chunk attention_chunk_size chunk_size", "--chunk 2"),
    ([*RUN, "--window", "2,1"], "sink_token_length num_sink_tokens", "--sink-tokens 2"),
    ([*RUN, "--causal"], "prefix_len prefix_length prefix_lens", "--prefix-lengths lengths.npy"),
    ([*RUN, "--block-size", "3,3"], "block_mask sparse_block_mask", "--blocks [[1,0],[1,1]]"),
    (RUN, "rel_attn_bias", "--relative-bias buckets.npy"), (RUN, "causal_masking autoregressive", "--causal"),
    (RUN, "kv_mask", "--key-mask keys.npy"), (RUN, "sliding_window_size", "--window 2,1"),
    (RUN, "kv_lengths kv_seqlens nonpad_kv_seqlen seq_lens cache_seqlens context_lens valid_len valid_lengths",
     "--key-lengths lengths.npy"),
    (RUN, "seqused_q", "--query-lengths lengths.npy"),
    (RUN, "output_scale out_scale o_descale", "--o-scale 2"),
    (RUN, "key_leftpad leftpad_k cache_leftpad left_pad left_padding", "--key-starts lengths.npy"),
    (RUN, "topk_indices topk_idx topk_idxs sparse_indices block_indices", "--key-indices lists.npy"),
    ([*RUN, "--key-indices", "lists.npy"], "topk_length topk_lengths", "--index-counts ids.npy"),
    ([*LATENT, *PAGES, "--k-pe-pages", "k3.npy"], "ckv_cache", "--ckv-pages v3.npy"),
    ([*LATENT, *PAGES, "--ckv-pages", "v3.npy"], "kpe_cache", "--k-pe-pages k3.npy"),
    ([*LATENT, "--k-pe", "k3.npy"], "compressed_kv kv_c", "--ckv v3.npy"),
    ([*LATENT, "--ckv", "v3.npy"], "kpe", "--k-pe k3.npy"),
    ([*LATENT, "--ckv", "v3.npy", "--k-pe", "k3.npy"], "kpe_scale", "--k-pe-scale half.npy"),
    (RUN, "ckv_scale", "--k-scale sinks.npy"),
    (["run", *JSON, *QKV[:4], "--scale", "1"], "head_dim_v", "--value-width 3"),
    (RUN, "q_descale", "--q-scale sinks.npy"),
    (RUN, "k_descale", "--k-scale sinks.npy"),
    (RUN, "v_descale", "--v-scale sinks.npy"),
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


# Flags that do not change what is printed here.
SILENT = ["--quiet", "--threads", "--max-memory", "--color"]


def everything(folder, words):
    """What the command prints, and the arrays that it writes to new files."""
    for path in ("new.npz", "new/job.npz"):
        (folder / path).unlink(missing_ok=True)
    printed = result(folder, words)
    return [printed] + [array.tolist() for path in folder.glob("**/new.npz") for array in np.load(path).values()] + [
        array.tolist() for path in folder.glob("new/job.npz") for array in np.load(path).values()]


@pytest.mark.parametrize("command, typed, meant", MORE_FLAGS, ids=[row[1].split()[0] for row in MORE_FLAGS])
def test_other_names_of_a_flag_are_the_one_that_was_meant(folder, command, typed, meant):
    flag, *rest = meant.split()
    wanted = everything(folder, [*command, flag, *rest])
    without = attn(*command, cwd=folder)
    if flag not in SILENT and meant != "--batch-axis first":  # any other flag would give another result
        assert without.returncode != 0 or wanted != [without.stdout]
    for name in typed.split():
        refused = attn(*command, "--" + name.replace("_", "-"), *rest, cwd=folder)
        assert (refused.returncode, refused.stdout) == (2, b""), name
        [suggested] = names(refused)
        words = suggested.split()  # with or without the value
        assert everything(folder, [*command, *words, *rest[len(words) - 1:]]) == wanted, name


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
    ("score_mod", "bias_rule", "0.5 * k"), ("bias_ruel", "bias_rule", "q / 2"), ("mask_mod", "mask_rule", "q >= k"),
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
            kind |= {"scaling": "llama3", "original_length": 100, "low_frequency_factor": 1, "high_frequency_factor": 4}
            kind.pop(meant)
        elif meant == "original_length":
            kind["scaling"] = "yarn"
        members = {**kind, **({} if key is None else {key: value})}
        return attn("run", "-", stdin=json.dumps({**SELF, group: members}), cwd=folder)
    refused = run(typed)
    assert refused.returncode == 65
    [suggested] = names(refused)
    followed, wanted = run(suggested), run(meant)
    assert (followed.returncode, followed.stdout) == (0, wanted.stdout)
    if meant not in ("numpy", "scaling"):  # the versions of NumPy print these numbers alike; a factor requires scaling
        assert run(None).stdout != wanted.stdout


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


NUMPY = {"randn": lambda r: r.randn(2, 3), "rand": lambda r: r.rand(2, 3), "uniform": lambda r: r.uniform(size=(2, 3)),
         "normal": lambda r: r.normal(size=(2, 3)), "random": lambda r: r.random((2, 3)),
         "standard_normal": lambda r: r.standard_normal((2, 3))}


def numbers(run):
    """The array that the command prints as JSON."""
    assert run.returncode == 0, run.stderr.decode()
    return np.array(json.loads(run.stdout))


@pytest.mark.parametrize("typed, meant", METHODS, ids=[row[0] for row in METHODS])
def test_a_suggested_method_is_the_one_that_was_meant(typed, meant):
    """Numbers of NumPy's generators are those of the installed NumPy."""
    def run(method):
        return attn("random", *method, "--seed", "3", "--shape", "2,3", *JSON)
    refused = run([typed])
    assert refused.returncode == 2
    [suggested] = names(refused)
    drawn = numbers(run(suggested.split()))
    method, *generator = meant
    if not generator or generator[1] == "default_rng":
        numpy_generator = np.random.default_rng(3) if generator else np.random.RandomState(3)
        np.testing.assert_array_equal(drawn, NUMPY[method](numpy_generator))
    np.testing.assert_array_equal(drawn, numbers(run(meant)))

    # The same in a job.
    def job(name, **more):
        text = json.dumps({"seed": 3, "Q": {name: {"shape": [2, 3]}}, "K": [[1, 1, 1]], "outputs": ["Q"], **more})
        return attn("run", "-", *JSON, stdin=text)
    message = job(typed).stderr.decode()
    found = re.search(r"did you mean '(\w+)'(?: with \"generator\": \"(\w+)\")?\?", message)
    run_job = job(found[1], **({"generator": found[2]} if found[2] else {}))
    np.testing.assert_array_equal(json.loads(run_job.stdout)["Q"], drawn)


def test_the_parameters_of_a_layer_are_those_that_were_meant():
    sizes = ["--seed", "1", "--in-features", "3", "--out-features", "2"]
    [suggested] = names(attn("random", "torch.nn.Linear", *sizes))
    followed = attn("random", *suggested.split(), *sizes)
    meant = attn("random", "Linear", "--generator", "torch", *sizes)
    assert (followed.returncode, followed.stdout) == (0, meant.stdout)


# (method and generator, typed, value, what is meant).
ARGUMENTS = [
    ("normal", "mean", 1, "loc"), ("normal", "std", 2, "scale"), ("normal", "sigma", 2, "scale"), ("normal", "mu", 1, "loc"),
    ("uniform", "minval", -1, "low"), ("uniform", "maxval", 2, "high"), ("normal", "stddev", 2, "scale"),
    ("uniform", "hgih", 2, "high"), ("randint", "hihg", 5, "high"), ("rand", "shpae", [2, 2], "shape"),
    ("uniform jax", "low", -1, "minval"), ("uniform jax", "high", 2, "maxval"),
    *(("normal torch", name, 1, "mean") for name in ("loc", "mu")),
    *(("normal torch", name, 2, "std") for name in ("scale", "sigma", "stddev")),
]
SHAPE = (2, 3)
MEANT_OF = {  # the numbers, from those of the method without the argument
    "loc": lambda x, value: x + value, "mean": lambda x, value: x + value, "scale": lambda x, value: x * value,
    "std": lambda x, value: x * value, "low": lambda x, value: x * (1 - value) + value, "high": lambda x, value: x * value,
    "minval": lambda x, value: x * (1 - value) + value, "maxval": lambda x, value: x * value}


@pytest.mark.parametrize("method, typed, value, meant", ARGUMENTS)
def test_a_suggested_argument_is_the_one_that_was_meant(method, typed, value, meant):
    def run(name):
        word, *generator = method.split()
        arguments = {} if meant == "shape" else {"shape": SHAPE}
        arguments |= {name: value} if name else {}
        job = {"seed": 1, "Q": {word: arguments}, "K": [[1] * (2 if meant == "shape" else 3)], "outputs": ["Q"]}
        return attn("run", "-", *JSON, stdin=json.dumps(job | ({"generator": generator[0]} if generator else {})))

    def drawn(name):
        return np.array(json.loads(result_of(run(name)))["Q"])
    [suggested] = names(run(typed))
    if method == "randint":
        wanted = np.random.RandomState(1).randint(value, size=SHAPE)
    elif meant == "shape":
        wanted = np.random.RandomState(1).rand(*value)
    else:
        wanted = MEANT_OF[meant](drawn(None), value)
    np.testing.assert_allclose(drawn(suggested), wanted, rtol=1e-5, atol=1e-6)


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
    """Each tensor has other numbers, so the converted ones show which it is."""
    arrays = {name: RNG.standard_normal((2, 2)) for name in stored}
    np.savez(tmp_path / "x.npz", **arrays)
    for command in (["convert", f"x.npz#{typed}"], ["view", "x.npz", "--of", typed]):
        suggested = names(attn(*command, cwd=tmp_path))
        assert len(suggested) == (meant is not None)
        for name in suggested:
            converted = numbers(attn("convert", f"x.npz#{name}", *JSON, cwd=tmp_path))
            np.testing.assert_array_equal(converted, arrays[meant])
            np.savez(tmp_path / "meant.npz", **{meant: arrays[meant]})
            drawn = result(tmp_path, ["view", "x.npz", "--of", name])
            assert drawn == result(tmp_path, ["view", "meant.npz", "--of", meant])


# What the commands compute, in NumPy.

def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def numpy_attention(q, k, v, visible=True, bias=0.0, scale=None):
    """Every stage, by its name; q (..., L, D), k and v (..., S, D)."""
    scores = q @ k.swapaxes(-1, -2)
    masked = np.where(visible, scores * (q.shape[-1] ** -0.5 if scale is None else scale) + bias, -np.inf)
    weights = softmax(masked)
    return {"scores": scores, "masked_scores": masked, "weights": weights, "context": weights @ v,
            "logsumexp": np.log(np.exp(masked).sum(-1))}


def same_batch(q=TENSORS["q4"], k=TENSORS["k4"], v=TENSORS["v4"], **options):
    return numpy_attention(q, k, v, **options)


def with_keys(before, after, **options):
    """With these keys, which are also values, before or after the others."""
    k, v = (np.concatenate([before, TENSORS[name], after], 2) for name in ("k4", "v4"))
    return numpy_attention(TENSORS["q4"], k, v, **options)


def of_words(name):
    """Self-attention of x with the weights of WORDS."""
    x, w, u = TENSORS["x"], TENSORS["w"], TENSORS["u"]
    stages = numpy_attention(x @ w, x @ u, x @ w)
    return {**stages, "output": stages["context"] @ u}[name]


def rotated(interleaved):
    angles = np.arange(L)[:, None] * 10000.0 ** (-np.arange(0, D, 2) / D)
    return same_batch(q=rotate(TENSORS["q4"], angles, interleaved), k=rotate(TENSORS["k4"], angles, interleaved))


def agrees(folder, words, name, wanted, **tolerance):
    """The command succeeds, and this output is what NumPy computes."""
    found = json.loads(result(folder, [*words, *JSON]))[name]
    array = np.array([float(x) for x in np.array(found, object).ravel()]).reshape(np.array(found, object).shape)
    np.testing.assert_allclose(array, wanted, **{"rtol": 1e-9, "atol": 1e-12, **tolerance})


DISTANCE = np.arange(L)[:, None] - np.arange(L)  # from the key to the query
NO_KEY = np.ones((B, H, 0, D))
CACHED, LAST_KEY = with_keys(TENSORS["past"], NO_KEY), with_keys(NO_KEY, np.ones((B, H, 1, D)))
LOG_LENGTHS = 1 + 2 * np.log(1 + (np.arange(L) + 1) // 2)[:, None]

# Names with several meanings: each is suggested with what distinguishes it. (base command, what was typed,
# [(suggestion, note, what else it needs, output, its values)]).

SELECTED = [*QKV, "--causal"]
STAGES = same_batch(visible=DISTANCE >= 0)
CONTEXT = ["--outputs", "context"]
POLARITY = ["--q", "x.npy", "--k", "y.npy", "--v", "y.npy", "--mask", "[[true,false,false,true,false]]", *CONTEXT]
FIRST_HIDDEN = np.array([True, False, False, True, False])
OF_XY = [TENSORS["x"], TENSORS["y"], TENSORS["y"]]
ATTENDED, HIDDEN = (numpy_attention(*OF_XY, visible=visible)["context"] for visible in (FIRST_HIDDEN, ~FIRST_HIDDEN))
TORCH = ("torch", "for scaled_dot_product_attention", [], "context", ATTENDED)
TORCH_MHA = ("torch-mha", "for nn.MultiheadAttention", [], "context", HIDDEN)
KERAS = ("keras", "for keras.layers.MultiHeadAttention", [], "context", ATTENDED)
KEYS_OF_BATCH, LENGTHS = TENSORS["keys"][:, None, None, :], TENSORS["lengths"]
SEVERAL = [
    (["run", *POLARITY], ["--convention", "pytorch"], [TORCH, TORCH_MHA]),
    *((["run", *POLARITY], ["--convention", name], [TORCH_MHA, KERAS]) for name in ("mha", "multihead_attention")),
    (["run", *QKV, *CONTEXT], ["--attention-mask", "keys.npy"], [
        ("--key-mask", "for a mask (B, S)", [], "context", same_batch(visible=KEYS_OF_BATCH)["context"])]),
    (["run", *QKV, *CONTEXT], ["--attention-mask", "mask.npy"], [
        ("--mask", "for one of queries and keys", [], "context", same_batch(visible=TENSORS["mask"])["context"])]),
    *((["run", *QKV, *CONTEXT], [name, "past.npy"], [
        ("--past-k", "for the keys", ["--past-v", "past.npy"], "context", CACHED["context"]),
        ("--past-v", "for the values", ["--past-k", "past.npy"], "context", CACHED["context"])])
      for name in ("--past-key-values", "--past-kv", "--kv-cache")),
    *((["run", *SELECTED], ["--outputs", name], [
        ("scores", "before scale and mask", [], "scores", STAGES["scores"]),
        ("masked_scores", "after them", [], "masked_scores", STAGES["masked_scores"])])
      for name in ("logits", "attn_logits", "attention_logits")),
    *((["run", *SELECTED], ["--outputs", name], [
        ("scores", "before the softmax", [], "scores", STAGES["scores"]),
        ("weights", "after it", [], "weights", STAGES["weights"])]) for name in ("attn_scores", "attention_scores")),
    *((["run", *WORDS, "--w-o", "u.npy"], ["--outputs", name], [
        ("context", "before W_O", [], "context", of_words("context")),
        ("output", "after it", [], "output", of_words("output"))])
      for name in ("out", "o", "y", "attn_out", "attn_output", "attention_output")),
    *((["run", *SELECTED], ["--outputs", name], [("context", "before W_O", [], "context", STAGES["context"])])
      for name in ("out", "o", "y", "attn_out", "attn_output", "attention_output")),
    *((["run", *WORDS, "--w-o", "u.npy", "--outputs", "grad_W_V"], [name, "x.npy"], [
        ("--grad-context", "before W_O", [], "grad_W_V", TENSORS["x"].T @ of_words("weights").T @ TENSORS["x"]),
        ("--grad-output", "after it", [], "grad_W_V",
         TENSORS["x"].T @ of_words("weights").T @ TENSORS["x"] @ TENSORS["u"].T)])
      for name in ("--do", "--dout", "--dy", "--grad-out")),
    *((["run", *CONTEXT], [name, "x.npy"], [
        ("--embeddings", "for other weights", WORDS[2:], "context", of_words("context"))])
      for name in ("--hidden-state", "--hidden-states")),
    (["run", *QKV, *CONTEXT], ["--add-bias-kv", "ones.npy"], [
        ("--bias-k", "for the key", ["--bias-v", "ones.npy"], "context", LAST_KEY["context"]),
        ("--bias-v", "for its value", ["--bias-k", "ones.npy"], "context", LAST_KEY["context"])]),
    (["run", *QKV, *CONTEXT], ["--attn-scale", "2"], [
        ("--scale", "", [], "context", same_batch(scale=2)["context"]),
        ("--query-scale-factor", "of Llama 4", ["--query-scale-length", "2"], "context",
         same_batch(q=TENSORS["q4"] * LOG_LENGTHS)["context"])]),
    (["run", *QKV, *CONTEXT], ["--lengths", "lengths.npy"], [
        ("--query-lengths", "", [], "context", np.where(
            np.arange(L)[:, None] < LENGTHS[:, None, None, None], same_batch()["context"], 0)),
        ("--key-lengths", "", [], "context",
         same_batch(visible=np.arange(L) < LENGTHS[:, None, None, None])["context"]),
        ("--prefix-lengths", "", ["--causal"], "context", same_batch(
            visible=(np.arange(L) <= np.arange(L)[:, None]) | (np.arange(L) < LENGTHS[:, None, None, None]))["context"])]),
]


def options_of(run):
    """(suggested name, note) of each meaning."""
    found = re.search(r"\(did you mean (.*)\?\)", run.stderr.decode())[1]
    return [re.fullmatch(r"'(.*?)' ?(.*)", text).groups() for text in re.split(r"(?: or |, )(?=')", found)]


@pytest.mark.parametrize("command, typed, meanings", SEVERAL, ids=[" ".join([*row[0][-1:], *row[1]]) for row in SEVERAL])
def test_several_meanings_are_distinguished(folder, command, typed, meanings):
    """Each is followed. What was typed with one of them does not suit the other meanings of a mask or of hidden states."""
    run = attn(*command, *typed, cwd=folder)
    assert run.returncode == 2
    suggested = options_of(run)
    if typed[0] not in ("--attention-mask", "--hidden-state", "--hidden-states"):
        assert len(suggested) == len(meanings)
    for name, note, needed, output, values in meanings:
        assert (name, note) in suggested
        followed = [name, *typed[1:]] if name.startswith("--") else [typed[0], name]
        agrees(folder, [*command, *followed, *needed], output, values)


@pytest.mark.parametrize("name", ["--hidden-state", "--hidden-states"])
def test_hidden_states_of_a_model_are_those_of_its_layer(folder, name):
    """The output of the layer is that of its normalised hidden states, which are embeddings."""
    model = ["run", "--model", "model", "--layer", "0", "--outputs", "output"]
    run = attn(*model, name, "x.npy", cwd=folder)
    assert ("--hidden", "for a layer of --model") in options_of(run)
    x = TENSORS["x"]
    np.save(folder / "normed.npy", x / np.sqrt((x ** 2).mean(-1, keepdims=True) + 1e-6))
    np.save(folder / "w_t.npy", TENSORS["w"].T)
    meant = ["run", "--embeddings", "normed.npy", *(word for flag in ("--w-q", "--w-k", "--w-v", "--w-o")
                                                    for word in (flag, "w_t.npy")), "--heads", "2", "--causal",
             "--rotary", "half", "--outputs", "output"]
    wanted = json.loads(result(folder, [*meant, *JSON]))["output"]
    agrees(folder, [*model, "--hidden", "x.npy"], "output", wanted, rtol=1e-6)


@pytest.mark.parametrize("typed", ["np", "numpy"])
def test_generators_of_numpy_are_distinguished(typed):
    def run(method, generator):
        return attn("random", method, "--seed", "7", "--shape", "3", "--generator", generator, *JSON)
    assert options_of(run("uniform", typed)) == [("RandomState", "for np.random.seed"),
                                                 ("default_rng", "for np.random.default_rng")]
    np.testing.assert_array_equal(numbers(run("uniform", "RandomState")), np.random.RandomState(7).uniform(size=3))
    np.testing.assert_array_equal(numbers(run("uniform", "default_rng")), np.random.default_rng(7).uniform(size=3))
    # A generator without the method is not suggested.
    assert options_of(run("randn", typed)) == [("RandomState", "for np.random.seed")]
    np.testing.assert_array_equal(numbers(run("randn", "RandomState")), np.random.RandomState(7).randn(3))
    assert options_of(run("integers", typed)) == [("default_rng", "for np.random.default_rng")]
    drawn = attn("random", "integers", "--seed", "7", "--shape", "3", "--high", "9", "--generator", "default_rng", *JSON)
    np.testing.assert_array_equal(numbers(drawn), np.random.default_rng(7).integers(9, size=3))


# A name whose meaning depends on more than the name has a note: (base command, typed, suggestion, note, what
# to write according to it, output, its values). True hides a key in the masks of these names.

IGNORE = "with mask_polarity ignore if true hides a key"
HIDES_KEYS = same_batch(visible=~KEYS_OF_BATCH)["context"]
HIDES = numpy_attention(*[TENSORS["x"]] * 3, visible=TENSORS["hides"] == 0)["context"]
PLAIN_X = ["run", "--q", "x.npy", "--k", "x.npy", "--v", "x.npy", *CONTEXT]
PLAIN_4 = ["run", *QKV, *CONTEXT]
OFFSET = DISTANCE[:, :1] + 3 >= np.arange(L + 3)  # bottom-right after three cached keys
NOTES = [
    *((PLAIN_4, [f"--{name}", "keys.npy"], "--key-mask", IGNORE, ["--key-mask", "keys.npy", "--mask-polarity", "ignore"],
       "context", HIDES_KEYS) for name in ("key-padding-mask", "src-key-padding-mask", "tgt-key-padding-mask",
                                           "memory-key-padding-mask", "padding-mask")),
    *((PLAIN_X, [f"--{name}", "hides.npy"], "--mask", IGNORE, ["--mask", "hides.npy", "--mask-polarity", "ignore"],
       "context", HIDES) for name in ("src-mask", "tgt-mask", "memory-mask")),
    (PLAIN_4, ["--rope-interleaved"], "--rotary-kind interleaved", "if true", ["--rotary-kind", "interleaved"], "context",
     rotated(True)["context"]),
    (PLAIN_4, ["--is-neox-style"], "--rotary-kind half", "if true", ["--rotary-kind", "half"], "context",
     rotated(False)["context"]),
    (["run", "--q", "q3.npy", "--k", "k3.npy", "--v", "v3.npy", *CONTEXT], ["--batch-first"], "--batch-axis first", "if true",
     ["--batch-axis", "first"], "context", numpy_attention(TENSORS["q3"], TENSORS["k3"], TENSORS["v3"])["context"]),
    *(([*PLAIN_4, *PAST, "--causal"], ["--convention", name], "torch", "with alignment bottom-right after cached keys",
       ["--convention", "torch", "--alignment", "bottom-right"], "context",
       with_keys(TENSORS["past"], NO_KEY, visible=OFFSET)["context"]) for name in ("huggingface", "hf", "transformers")),
    (["run", *QKV], ["--return-lse"], "--outputs logsumexp", "if true", ["--outputs", "logsumexp"], "logsumexp",
     same_batch()["logsumexp"]),
    (PLAIN_4, ["--sliding-window", "4"], "--window", "with the numbers of keys to the left and right",
     ["--window", "3,0"], "context", same_batch(visible=(DISTANCE >= 0) & (DISTANCE < 4))["context"]),
    *((PLAIN_4, [f"--{name}", "float32"], "--compute", "with f32 or f64", ["--compute", "f32"], "context",
       same_batch()["context"]) for name in ("dtype", "compute-dtype")),
]


@pytest.mark.parametrize("command, typed, suggestion, note, followed, output, values", NOTES,
                         ids=[" ".join(row[1]) for row in NOTES])
def test_a_note_says_what_else_to_write(folder, command, typed, suggestion, note, followed, output, values):
    run = attn(*command, *typed, cwd=folder)
    assert run.returncode == 2
    assert options_of(run) == [(suggestion, note)]
    single = "f32" in followed
    agrees(folder, [*command, *followed], output, values, **({"rtol": 1e-4, "atol": 1e-6} if single else {}))


def test_half_precision_is_that_of_the_inputs(folder):
    """--compute refuses float16, and says which command gives results in it."""
    run = attn(*PLAIN_4, "--compute", "float16", cwd=folder)
    assert_error(run, 2, "--compute: 'float16': inputs of this dtype are computed in f32, and their results have it; "
                 "'attn convert --dtype f16' converts inputs")
    halves = {}
    for name in "qkv":
        result(folder, ["convert", f"{name}4.npy", "-o", f"half_{name}.npy", "--dtype", "f16", "--force"])
        halves[name] = np.load(folder / f"half_{name}.npy").astype(np.float64)
    result(folder, ["run", "--q", "half_q.npy", "--k", "half_k.npy", "--v", "half_v.npy", "-o", "context=half.npy", "--force"])
    context = np.load(folder / "half.npy")
    assert context.dtype == np.float16
    np.testing.assert_allclose(context, numpy_attention(*halves.values())["context"], rtol=2e-3, atol=2e-3)


# Suggestions of the other commands.

def test_a_suggested_topic_and_page_are_those_that_were_meant():
    for command in "help", "man":
        [suggested] = names(attn(command, "comapre"))
        assert result(None, [command, suggested]) == result(None, [command, "compare"])
    assert b"Compares" in result(None, ["help", "compare"])
    [suggested] = names(attn("help", "sedes"))
    assert result(None, ["help", suggested]) == result(None, ["help", "seeds"])


def test_a_suggested_example_is_the_one_that_was_meant():
    data = ["--data", ROOT / "data" / "examples"]
    [suggested] = names(attn("examples", "run", "general-atention", *data))
    assert result(None, ["examples", "run", suggested, *data]) == result(None, ["examples", "run", "general-attention", *data])


def test_a_suggested_tensor_to_compare_is_the_one_that_was_meant(folder):
    np.savez(folder / "two.npz", contexts=TENSORS["x"], scores=TENSORS["w"])
    np.savez(folder / "one.npz", out=TENSORS["x"], scores=TENSORS["w"])

    def run(name):
        return attn("compare", "two.npz", "one.npz", "--as", f"{name}=out", cwd=folder)
    [suggested] = names(run("contxts"))
    assert (run(suggested).returncode, run("scores").returncode) == (0, 1)


def test_a_suggested_metric_of_a_gate_is_the_one_that_was_meant(folder):
    def run(gate):
        return attn("compare", "x.npy", "x1.npy", "--gate", gate, cwd=folder)
    np.save(folder / "x1.npy", TENSORS["x"] + np.eye(L, D))  # differs by at most 1
    [suggested] = names(run("max_ab < 1.5"))
    assert (run(f"{suggested} < 1.5").returncode, run(f"{suggested} < 0.5").returncode) == (0, 1)


def test_a_suggested_preset_is_the_one_that_was_meant(folder):
    def run(preset):
        return attn("compare", "x.npy", "x.npy", "--preset", preset, cwd=folder)
    [suggested] = names(run("flasmla"))
    assert run(suggested).stdout == run("flashmla").stdout != run("fa2").stdout


def test_a_suggested_word_of_a_template_is_the_one_that_was_meant(folder):
    [suggested] = names(attn("batch", "job.json", "--name", "a-{stm}", "--out-dir", "named", cwd=folder))
    result(folder, ["batch", "job.json", "--name", "a-{%s}" % suggested, "--out-dir", "named", "-q"])
    assert [path.name for path in (folder / "named").glob("*.npz")] == ["a-job.npz"]


def test_a_suggested_statistic_is_the_one_that_was_meant(folder):
    command = ["batch", "job.json", "--out-dir", "st", "--force", "-q", "--outputs", "weights", "--summary"]
    [suggested] = names(attn(*command, "s.csv", "--statistics", "maxx", cwd=folder))
    for path, name in ("s.csv", suggested), ("meant.csv", "max"):
        result(folder, [*command, path, "--statistics", name])
    assert "max" in (folder / "s.csv").read_text().splitlines()[0]
    assert (folder / "s.csv").read_text().splitlines()[0] == (folder / "meant.csv").read_text().splitlines()[0]


# Names that look like others but mean something else, or nothing here: no suggestion.

NOTHING = [
    *((["run", *QKV, f"--{name}", "4"]) for name in (
        "head-dim", "head-size", "d-model", "num-layers", "block-size", "bias-x", "past-q", "w-p", "top-p", "query-mask",
        "max-seqlen", "dropout-seed", "device", "q-lora-rank", "vocab", "gamma", "k-heads", "z-loss", "weights-k",
        "input-ids")),
    *((["run", *QKV, "--outputs", name]) for name in (
        "query_weights", "row_min", "row_sum", "keys_90", "loss", "hidden", "value_weights", "key_norm_x", "w_p", "topk")),
    *((["run", *QKV, "--convention", name]) for name in (
        "xformers", "triton", "attention", "mlx", "numpy", "cudnn", "llama")),
    *((["run", *QKV, "--causal", "--alignment", name]) for name in ("bottom-left", "top-right", "center", "none")),
    *((["run", *QKV, "--normaliser", name]) for name in ("softmax1", "softmin", "relu", "entmax12", "log_softmax")),
    *((["run", *QKV, "--layout", name]) for name in ("sbhd", "bdhl", "lbhd", "thd")),
    *((["run", *QKV, "--rotary-kind", name]) for name in ("llama", "xpos", "2d")),
    (["run", *QKV, "--compute", "f16"]), (["run", *QKV, "--score", "l1"]),
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
    add("input", *(row[0] for row in JOB_KEYS), *(row[1] for row in MEMBERS + ARGUMENTS), *(row[1][0] for row in NOTES))
    add("output", *(row[0] for row in OUTPUTS))
    add("command", *(row[0] for row in COMMANDS))
    add("value", "np", "numpy", "tensorfloat32", "txt", "jsonl", *(row[0] for row in GENERATORS))
    for flag, word, *_ in VALUES:
        add("convention" if flag == "--convention" else "value", word)
    for flag, word in (row[1] for row in [*SEVERAL, *NOTES] if len(row[1]) == 2):
        kind = {"--outputs": "output", "--convention": "convention", "--generator": "value"}.get(flag, "input")
        add(kind, flag if kind == "input" else word)
    found = list(other_names())
    assert len(found) > 500
    assert [row for row in found if re.sub("_", "", row[1]) not in typed[row[0]]] == []
