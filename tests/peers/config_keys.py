"""`attn run --model` honours every key of config.json that changes attention in transformers, or refuses it by name.

For each architecture, config_scan.py lists the keys that the installed transformers reads. Each key of a small random
model gets other values; transformers then computes all layers in float64, and attn has to return the same weights
and outputs, or one error that names the key. A key without values in VALUES fails, so that a new version of
transformers brings its keys along. A key has no effect if attn computes the same with the unchanged config.json.

Prints a line for each failure, and a table: for how many keys some value is honoured, else refused, else without
effect. With --pairs N, changes N random pairs of keys as well. Exits with 1 after a failure.
"""

import argparse
import collections
import copy
import json
import logging
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest.mock

import numpy as np
import torch
import transformers

import config_scan
import models

ABSENT = "absent"
LAYERS, TOLERANCE = models.LAYERS, models.TOLERANCE
FULL, SLIDING = "full_attention", "sliding_attention"
TYPES = [[FULL] * LAYERS, [SLIDING] * LAYERS, [SLIDING, FULL] * (LAYERS // 2), [FULL, SLIDING] * (LAYERS // 2)]
OTHER_TYPES = [[name] + [FULL] * (LAYERS - 1) for name in
               ("chunked_attention", "linear_attention", "window_attention", "conv", "hybrid", "attention", "mamba")]
FLAG, FRACTION, TOKEN, WIDTH = [True, False], [0.5], [3], [20]

# Values of keys, for a model of models.py: 4 layers, width 32, 4 heads, 64 positions. null is added to all.
VALUES = {
    # numbers and widths
    "hidden_size": [16, 48], "d_model": [16, 48], "dim": [16, 48], "n_embd": [16, 48], "n_embed": [16, 48],
    "num_attention_heads": [2, 8], "n_head": [2, 8], "n_heads": [2, 8], "num_heads": [2, 8],
    "encoder_attention_heads": [2, 8], "decoder_attention_heads": [4, 8],
    **{key: [2, 3, 6] for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers",
                                  "encoder_layers", "decoder_layers")},
    "num_key_value_heads": [1, 2, 4], "num_kv_heads": [1, 2, 4], "head_dim": [4, 6, 10, 16], "d_kv": [4, 8, 10],
    "max_position_embeddings": [6, 16, 128], "n_positions": [16], "max_seq_len": [16, 128],
    "max_source_positions": [], "max_target_positions": [32],
    "q_lora_rank": [8, None], "kv_lora_rank": [8], "qk_nope_head_dim": [4], "qk_rope_head_dim": [2, 8],
    "v_head_dim": [6],
    # masks and layers
    "is_causal": FLAG, "is_decoder": FLAG, "add_cross_attention": FLAG, "is_encoder_decoder": FLAG,
    "use_bidirectional_attention": [*FLAG, "vision"], "sliding_window": [1, 2, 5, 100],
    "use_sliding_window": FLAG, "max_window_layers": [0, 1, 3, 28], "layer_types": TYPES + OTHER_TYPES,
    "sliding_window_pattern": [1, 2, 3], "local_attention": [2, 3, 7, 100], "global_attn_every_n_layers": [1, 2, 4],
    "attention_chunk_size": [2], "per_layer_config": [{"1": {"sliding_window": 2}}, {"1": {"num_key_value_heads": 1}},
                                                                        {"0": {"intermediate_size": 20}}],
    "no_rope_layers": [[0] * LAYERS, [1, 0] * (LAYERS // 2)], "no_rope_layer_interval": [2], "prefix_lm": FLAG,
    # scores and projections
    "attn_logit_softcapping": [0.5, 30], "query_pre_attn_scalar": [3, 100], "attention_multiplier": [0.5],
    "scale_attn_weights": FLAG, "scale_attn_by_inverse_layer_idx": FLAG, "reorder_and_upcast_attn": FLAG,
    "attention_bias": FLAG, "qkv_bias": FLAG, "use_qkv_bias": FLAG, "enable_bias": FLAG, "bias": FLAG, "no_bias": FLAG,
    "clip_qkv": [0.5], "alibi": FLAG, "multi_query": FLAG, "new_decoder_architecture": FLAG, "parallel_attn": FLAG,
    "num_ln_in_parallel_attn": [1, 2], "position_embedding_type": ["absolute", "relative_key", "relative_key_query"],
    "relative_attention_num_buckets": [4, 16], "relative_attention_max_distance": [3, 5, 30],
    "attn_config": [{"attn_type": "multihead_attention"}, {"softmax_scale": 0.7, "clip_qkv": 0.5}],
    "attn_config.attn_type": ["multihead_attention", "multiquery_attention"], "attn_config.clip_qkv": [0.5, 3],
    "attn_config.softmax_scale": [0.1, 2], "attn_config.prefix_lm": FLAG, "attn_config.qk_ln": FLAG,
    "attn_config.alibi": FLAG, "attn_config.alibi_bias_max": [4, 8, 16], "attn_config.attn_uses_sequence_id": FLAG,
    "attn_config.attn_pdrop": [1], "attn_config.attn_impl": ["triton"],
    # norms
    "qk_layernorm": FLAG, "use_qk_norm": FLAG, "rms_norm_eps": [0.1, 1e-5], "layer_norm_eps": [0.1, 1e-5],
    "layer_norm_epsilon": [0.1, 1e-6], "norm_eps": [0.1], "norm_bias": FLAG, "norm_type": ["layernorm"],
    "do_layer_norm_before": FLAG, "layer_norm_elementwise_affine": FLAG, "_remove_final_layer_norm": FLAG,
    "apply_residual_connection_post_layernorm": FLAG, "use_parallel_residual": FLAG,
    # rotary positions; also rope_mutations()
    "rope_theta": [50.0, 1e6], "rope_local_base_freq": [50.0], "local_rope_theta": [50.0], "global_rope_theta": [50.0],
    "rotary_emb_base": [50.0], "rotary_pct": [0.5, 1.0], "partial_rotary_factor": [0.5, 1.0], "rope_interleave": FLAG,
    "original_max_position_embeddings": [6, 16], "rope_parameters": [{}, {"rope_theta": 50.0}], "rope_scaling": [{}],
    "sinusoidal_pos_embds": FLAG, "learned_pos_emb": FLAG,
    # dropout
    **{key: FRACTION for key in (
        "activation_dropout", "attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "classifier_dropout",
        "decoder_layerdrop", "dropout", "dropout_rate", "embd_pdrop", "embedding_dropout", "encoder_layerdrop",
        "hidden_dropout", "hidden_dropout_prob", "layerdrop", "mlp_dropout", "qa_dropout", "resid_pdrop",
        "seq_classif_dropout", "summary_first_dropout", "summary_last_dropout", "router_jitter_noise")},
    "emb_pdrop": FRACTION,
    # other parts of the model
    **{key: ["relu"] for key in ("activation", "activation_function", "hidden_act", "hidden_activation", "pooler_act")},
    "dense_act_fn": ["relu"], "feed_forward_proj": ["relu"], "is_gated_act": FLAG,
    **{key: WIDTH for key in (
        "d_ff", "decoder_ffn_dim", "encoder_ffn_dim", "ffn_dim", "ffn_hidden_size", "hidden_dim", "intermediate_size",
        "moe_intermediate_size", "n_inner", "pooler_output_size", "embedding_size", "expansion_ratio",
        "word_embed_proj_dim")},
    **{key: TOKEN for key in ("bos_token_id", "cls_token_id", "decoder_start_token_id", "eos_token_id",
                              "forced_eos_token_id", "pad_token_id", "sep_token_id")},
    **{key: FLAG for key in (
        "apply_spec_augment", "classifier_bias", "decoder_bias", "deterministic_flash_attn", "mlp_bias",
        "norm_topk_prob", "output_attentions", "output_router_logits", "return_dict", "scale_decoder_outputs",
        "scale_embedding", "slow_but_exact", "sparse_prediction", "tie_word_embeddings", "use_cache",
        "use_weighted_layer_sum", "output_hidden_states")},
    **{key: [0.5, 2.0] for key in ("embedding_fraction", "final_logit_softcapping", "initializer_cutoff_factor",
                                   "logit_scale", "routed_scaling_factor", "router_aux_loss_coef", "swiglu_alpha",
                                   "swiglu_limit")},
    **{key: [1, 2] for key in (
        "chunk_size_feed_forward", "first_k_dense_replace", "n_group", "n_shared_experts", "num_experts_per_tok",
        "pretraining_tp", "topk_group", "type_vocab_size", "num_local_experts", "num_experts", "num_mtp_layers")},
    "n_routed_experts": [8], "topk_method": ["greedy", "group_limited_greedy"], "vocab_size": [60],
    "image_size": [], "patch_size": [2], "num_channels": [], "num_mel_bins": [],
    **{key: [0.1] for key in ("init_std", "initializer_factor", "initializer_range")},
}

# Keys of classifiers, of text generation, of training and of the file itself; a computation of layers ignores them.
OTHERS = {
    "architectures", "begin_suppress_tokens", "classifier_activation", "classifier_pooling", "classifier_proj_size",
    "dtype", "encoder_stride", "id2label", "init_device", "label2id", "mask_feature_length", "mask_feature_min_masks",
    "mask_feature_prob", "mask_time_length", "mask_time_min_masks", "mask_time_prob", "median_filter_width",
    "mm_tokens_per_image", "num_labels", "problem_type", "sparse_pred_ignore_index", "summary_activation",
    "summary_proj_to_labels", "summary_type", "summary_use_proj", "suppress_tokens", "text_config",
    "transformers_version", "vision_config"}

# Models in which keys have an effect that have none in those of models.py.
WINDOWS = {**models.GROUPED, "use_sliding_window": True, "sliding_window": 3}
MORE = [("qwen3", {**WINDOWS, "max_window_layers": 2}), ("qwen2", {**WINDOWS, "layer_types": TYPES[2]}),
        ("mistral", {**models.GROUPED, "head_dim": 8, "sliding_window": 3, "layer_types": TYPES[2]}),
        ("gemma3_text", {**models.GROUPED, "head_dim": 6, "sliding_window": 3, "sliding_window_pattern": 2,
                         "rope_local_base_freq": 30.0, "rope_theta": 500.0})]

# Whose default makes a model large.
KEPT = {"hidden_size", "d_model", "dim", "n_embd", "vocab_size", "intermediate_size", "moe_intermediate_size", "d_ff",
        "hidden_dim", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "n_routed_experts", "max_source_positions",
        "num_mel_bins", "image_size", "num_hidden_layers", "n_layer", "n_layers"}

# Keys that other architectures, other programs or older versions of transformers read: changed in all models.
EVERYWHERE = ["alibi", "attention_bias", "attention_chunk_size", "attention_dropout", "attention_multiplier",
              "attn_logit_softcapping", "clip_qkv", "head_dim", "is_causal", "is_decoder", "layer_norm_eps",
              "layer_norm_elementwise_affine", "layer_types", "max_window_layers", "multi_query",
              "new_decoder_architecture", "no_rope_layer_interval", "no_rope_layers", "num_key_value_heads",
              "parallel_attn", "partial_rotary_factor", "per_layer_config", "position_embedding_type",
              "qk_layernorm", "query_pre_attn_scalar", "reorder_and_upcast_attn", "rms_norm_eps", "rope_parameters",
              "rope_scaling", "rope_theta", "scale_attn_by_inverse_layer_idx", "scale_attn_weights",
              "sliding_window", "sliding_window_pattern", "use_bidirectional_attention", "use_qk_norm",
              "use_sliding_window"]

# rope_type, rope_parameters, other keys that it may have, and keys of config.json without which some have no effect.
COMMON = ["rope_theta", "partial_rotary_factor", "rope_type", "type", "mrope_section"]
YARN = {"factor": 4.0, "original_max_position_embeddings": 8}
FACTORS = {"factor": 4.0, "short_factor": "short", "long_factor": "long"}
LONG, SHORT = ({**FACTORS, "original_max_position_embeddings": length} for length in (6, 20))
ROPES = [
    ("default", {}, ["factor"], {}),
    ("linear", {"factor": 4.0}, [], {}),
    ("dynamic", {"factor": 2.0}, ["attention_factor", "original_max_position_embeddings"], {}),
    ("dynamic", {"factor": 2.0}, ["attention_factor", "original_max_position_embeddings"],
     {"max_position_embeddings": 6}),
    ("llama3", {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
     ["attention_factor"], {}),
    ("yarn", YARN, ["attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate", "finetuned",
                    "short_factor"], {}),
    ("yarn", {**YARN, "mscale": 1.0, "mscale_all_dim": 0.6}, ["attention_factor"], {}),
    ("longrope", LONG, ["attention_factor", "short_mscale", "long_mscale"], {}),
    ("longrope", SHORT, ["attention_factor"], {}),
    ("longrope", LONG, ["attention_factor"], {"original_max_position_embeddings": 6}),
    ("su", LONG, [], {}), ("proportional", {"factor": 2.0}, [], {}), ("wave", {"factor": 2.0}, [], {})]
REFUSED_ROPES = {"su", "proportional", "wave"}
ROPE_VALUES = {
    "rope_theta": [50.0], "factor": [1.0, 3.0], "partial_rotary_factor": [0.5, 1.0], "attention_factor": [0.7],
    "beta_fast": [4.0, 0], "beta_slow": [2.0, 0], "mscale": [0.5], "mscale_all_dim": [0.5, 0.8],
    "original_max_position_embeddings": [5, 20], "truncate": FLAG, "low_freq_factor": [2.0], "high_freq_factor": [3.0],
    "short_factor": ["long"], "long_factor": ["short"], "rope_type": ["linear", "default"], "type": ["linear"],
    "short_mscale": [1.2], "long_mscale": [1.3], "mrope_section": [[1, 1]], "finetuned": FLAG}
BESIDE_ROPES = ["rope_theta", "partial_rotary_factor", "original_max_position_embeddings", "max_position_embeddings",
                "head_dim"]


def changed(config, change):
    """A copy of config.json with other values: {"attn_config.clip_qkv": 3}."""
    config = copy.deepcopy(config)
    for path, value in change.items():
        *objects, key = path.split(".")
        owner = config
        for name in objects:
            owner = owner.setdefault(name, {})
        if value == ABSENT:
            owner.pop(key, None)
        else:
            owner[key] = copy.deepcopy(value)
    return config


def key_mutations(config, key):
    values = VALUES[key] + [None]
    if key in config and key not in KEPT:
        values.append(ABSENT)
    return [{key: value} for value in values if value != config.get(key, ABSENT)]


def rope_changes():
    """Pairs of a key and a change of the object of rotary positions."""
    for name, rope, others, beside in ROPES:
        for key, change in changes_of_rope(name, rope, others):
            yield key, {**beside, **change}


def changes_of_rope(name, rope, others):
    whole = {"rope_type": name, "rope_theta": 100.0, **rope}
    yield "rope_parameters", {"rope_parameters": whole}
    for key in "type", "rope_type":
        old = {key: name, **rope}
        yield "rope_scaling", {"rope_scaling": old}
        yield "rope_scaling", {"rope_scaling": old, "rope_parameters": ABSENT}
    if name in REFUSED_ROPES:
        return
    old = {"type": name, **rope}
    yield "rope_scaling", {"rope_scaling": old, "rope_theta": 50.0}
    yield "rope_scaling", {"rope_scaling": old, "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}
    for key in [*COMMON, *rope, *others]:
        for value in [*ROPE_VALUES[key], ABSENT]:
            if value != whole.get(key, ABSENT):
                yield f"rope_parameters.{key}", {"rope_parameters": changed(whole, {key: value})}
    rest = changed(whole, {"original_max_position_embeddings": ABSENT, "rope_theta": ABSENT})
    for key in BESIDE_ROPES:
        yield key, {"rope_parameters": whole, key: VALUES[key][0]}
        yield key, {"rope_parameters": rest, key: VALUES[key][0]}
    for other in ({"rope_type": "linear", "rope_theta": 20.0, "factor": 3.0}, None):
        yield f"rope_parameters.{FULL}", {"rope_parameters": {FULL: whole, SLIDING: other}}
        yield f"rope_parameters.{SLIDING}", {"rope_parameters": {FULL: other, SLIDING: whole}}


def with_factors(value, pairs):
    """Puts lists of this many numbers where a change says "short" and "long"."""
    if isinstance(value, dict):
        return {key: with_factors(each, pairs) for key, each in value.items()}
    lists = {"short": [1.0 + n / 2 for n in range(pairs)], "long": [2.0 + n for n in range(pairs)]}
    return lists.get(value, value) if isinstance(value, str) else value


def rotary_pairs(config):
    """How many pairs of columns of a head have rotary positions."""
    loaded = transformers.AutoConfig.for_model(**config)
    width = getattr(loaded, "head_dim", None) or loaded.hidden_size // loaded.num_attention_heads
    rope = loaded.rope_parameters or {}
    return max(1, int(width * rope.get(FULL, rope).get("partial_rotary_factor", 1)) // 2)


def for_one_type(change, one, other):
    """The same change of rotary positions in the layers of one type."""
    rope = change.get("rope_parameters")
    if not rope or rope == ABSENT or FULL in rope or SLIDING in rope:
        return change
    return {**change, "rope_parameters": {one: rope, other: {"rope_type": "default", "rope_theta": 20.0}}}


def mutations(config, keys, is_first, with_ropes=True):
    """Pairs of a key and a change. Only the first model of an architecture gets keys that transformers does not read
    for it, and changes of all keys of rotary positions."""
    for key in sorted((set(keys) | set(EVERYWHERE if is_first else ())) - OTHERS):
        if not key.startswith("rope_parameters."):
            for change in key_mutations(config, key):
                yield key, change
    if is_first and with_ropes and "rope_parameters" in keys:
        pairs = rotary_pairs(config)
        for key, change in rope_changes():
            change = with_factors(change, pairs)
            yield key, change
            if f"rope_parameters.{FULL}" in keys:
                for one, other in ((FULL, SLIDING), (SLIDING, FULL)):
                    if (each := for_one_type(change, one, other)) != change:
                        yield key, each


def layers_of(model_type, config, folder):
    """What transformers computes in each layer (models.record()), with random weights, which it saves in `folder`."""
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(1)
    loaded = transformers.AutoConfig.from_pretrained(folder, attn_implementation="eager")
    if "use_cache" not in config:
        loaded.use_cache = False
    with unittest.mock.patch.object(transformers.PreTrainedModel, "init_weights"):
        model = transformers.AutoModel.from_config(loaded, attn_implementation="eager", experts_implementation="eager")
    model = model.double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    inputs = models.inputs_of(model_type)
    layers = list(models.record_stacks(model, models.STACKS[model_type], inputs)) if model_type in models.STACKS else \
        models.record(model, loaded.num_hidden_layers, inputs)
    if not all(np.isfinite(array).all() for layer in layers for array in layer[2:5]):
        raise ValueError("transformers returns NaN")
    model.save_pretrained(folder)
    return layers


def attn_errors(folder, name, layers):
    """The error message or the greatest difference of each layer, computed by one `attn batch`."""
    lines = []
    for index, (number, stack, hidden, _, _, memory) in enumerate(layers):
        np.save(folder / f"x{index}.npy", hidden)
        job = {"model": name, "layer": number, "hidden": f"x{index}.npy", "outputs": ["weights", "output"]}
        if stack:
            job["stack"] = stack
        if memory is not None:
            np.save(folder / f"m{index}.npy", memory)
            job["memory"] = f"m{index}.npy"
        lines.append(json.dumps(job) + "\n")
    done = subprocess.run([models.ATTN, "batch", "-"], input="".join(lines), cwd=folder, capture_output=True, text=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode not in (0, 3) or len(results) != len(layers):
        raise RuntimeError(f"attn batch exited with {done.returncode}: {done.stderr}")
    return [result["error"][0] if "error" in result else
            max(difference(result["weights"], weights), difference(result["output"], output))
            for result, (_, _, _, weights, output, _) in zip(results, layers)]


def difference(found, expected):
    found = np.array(found)
    if found.shape != expected.shape:
        return np.inf
    return np.abs(found - expected).max() / max(1, np.abs(expected).max())


def names_in(change, aliases):
    """All keys in a change: {"rope_parameters", "factor"}; all keys of rotary positions if it has one of these."""
    names = {*ROPE_VALUES} if {"rope_parameters", "rope_scaling"} & {*change} else set()
    for key, value in change.items():
        names |= {*key.split("."), aliases.get(key, key), *(names_in(value, {}) if isinstance(value, dict) else ())}
    return names


def outcome_of(model_type, config, change):
    """"honoured", "refused", "no effect", "invalid" (transformers fails), or "FAIL" and why."""
    inner = "gemma3_text" if model_type == "gemma3" else model_type
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        saved = folder / "changed"
        saved.mkdir()
        new = changed(config, change)
        try:
            with models.in_float64():
                layers = layers_of(inner, new, saved)
        except Exception as error:
            return "invalid", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        for name, each in (("changed", new), ("same", config)):
            (folder / name).mkdir(exist_ok=True)
            wrapped = {"model_type": "gemma3", "text_config": each} if model_type == "gemma3" else each
            (folder / name / "config.json").write_text(json.dumps(wrapped))
        (folder / "same" / "model.safetensors").symlink_to(saved / "model.safetensors")
        errors = attn_errors(folder, "changed", layers)
        refusals = [error for error in errors if isinstance(error, str)]
        worst = max((error for error in errors if not isinstance(error, str)), default=0)
        if worst > TOLERANCE:
            return "FAIL", f"differs by {worst:.1e}"
        if refusals:
            names = names_in(change, transformers.CONFIG_MAPPING[inner].attribute_map)
            unnamed = [text for text in refusals if not any(re.search(rf"\b{name}\b", text) for name in names)]
            return ("FAIL", f"does not name the key: {unnamed[0]}") if unnamed else ("refused", refusals[0])
        errors = attn_errors(folder, "same", layers)
        same = all(not isinstance(error, str) and error <= TOLERANCE for error in errors)
        return ("no effect" if same else "honoured"), ""


class Report:
    def __init__(self, verbose):
        self.verbose, self.failures, self.changes = verbose, 0, collections.Counter()
        self.outcomes = collections.defaultdict(set)  # of each (model_type, key)

    def add(self, model_type, key, change, outcome, why):
        self.changes[outcome] += 1
        self.outcomes[model_type, key].add(outcome)
        self.failures += outcome == "FAIL"
        if outcome == "FAIL" or self.verbose:
            print(f"{outcome:9}  {model_type}: {json.dumps(change)}: {why}", flush=True)

    def print_table(self):
        order = "FAIL", "honoured", "refused", "no effect", "invalid"
        found = {key: next(name for name in order if name in given) for key, given in self.outcomes.items()}
        types = sorted({model_type for model_type, _ in found})
        print("architecture     keys  honoured  refused  no effect  invalid  FAIL")
        for name in [*types, "all"]:
            rows = collections.Counter(kind for (model_type, _), kind in found.items() if name in (model_type, "all"))
            print(f"{name:15}  {sum(rows.values()):4}  {rows['honoured']:8}  {rows['refused']:7}  "
                  f"{rows['no effect']:9}  {rows['invalid']:7}  {rows['FAIL']:4}")
        print(", ".join(f"{count} {outcome}" for outcome, count in sorted(self.changes.items())) + " changes")


def bases(only):
    """The models of models.py, Gemma 3 with images, and MORE: pairs of model_type and config.json."""
    pairs = models.MODELS + [("gemma3", options) for name, options in models.MODELS if name == "gemma3_text"] + MORE
    for model_type, options in pairs:
        if not only or model_type in only:
            yield model_type, {"model_type": "gemma3_text" if model_type == "gemma3" else model_type, **options}


def architectures():
    """Every model_type in attn's table."""
    source = (pathlib.Path(__file__).parents[2] / "src/attn/model/architectures.cpp").read_text()
    return set(re.findall(r'(?:model_type = |_like\()"([\w-]+)"', source))


def check_pairs(report, only, count, seed):
    """Changes random pairs of keys."""
    draw = random.Random(seed)
    models_of = [(model_type, config, list(mutations(config, config_scan.keys_of(config["model_type"]), True)))
                 for model_type, config in bases(only)]
    for _ in range(count):
        model_type, config, changes = draw.choice(models_of)
        (first, one), (second, other) = draw.sample(changes, 2)
        change = {**one, **other}
        report.add(model_type, f"{first} and {second}", change, *outcome_of(model_type, config, change))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model_type", nargs="*", help="only these")
    parser.add_argument("--pairs", type=int, default=0, metavar="N", help="only N random pairs of changes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="print all changes")
    options = parser.parse_args()
    logging.disable()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    report = Report(options.verbose)
    if options.pairs:
        check_pairs(report, options.model_type, options.pairs, options.seed)
    for model_type in sorted(architectures() - {model_type for model_type, _ in bases([])}):
        report.add(model_type, "model_type", {}, "FAIL", "models.py has no model of this architecture")
    seen = set()
    for model_type, config in bases(options.model_type) if not options.pairs else ():
        keys = config_scan.keys_of(config["model_type"])
        for key in sorted(set(keys) - set(VALUES) - OTHERS):
            name = key.removeprefix("rope_parameters.")
            if name == key or name not in {*ROPE_VALUES, FULL, SLIDING}:
                report.add(model_type, key, {}, "FAIL", f"transformers reads {key}, and VALUES has no values of it")
        outcome, why = outcome_of(model_type, config, {})
        if outcome != "no effect":
            report.add(model_type, "model_type", config, "FAIL", f"the unchanged model is {outcome}: {why}")
        for key, change in mutations(config, keys, model_type not in seen, model_type != "gemma3"):
            report.add(model_type, key, change, *outcome_of(model_type, config, change))
        seen.add(model_type)
    report.print_table()
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
