"""Small attention layers of HuggingFace transformers with random weights.

The layers compute the softmax in float32 for all dtypes; `exact` computes it in float64. Rotary layers and
attn both use the tables computed by the library.
"""

import unittest.mock

import numpy as np
import torch
import transformers
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention, Gemma2RotaryEmbedding
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding
from transformers.models.mistral.modeling_mistral import MistralAttention, MistralRotaryEmbedding
from transformers.models.t5.modeling_t5 import T5Attention
from peers.cases import Case, Draw

torch.set_num_threads(1)
COUNT = 300
SOFTMAX = torch.nn.functional.softmax


def exact_softmax(x, dim=-1, dtype=None, **rest):
    return SOFTMAX(x, dim=dim, **rest)


def linears(layer, **names):
    """The job's tensors from Linear layers, named as in W_Q="query", with their biases if any."""
    tensors = {}
    for ours, theirs in names.items():
        linear = getattr(layer, theirs)
        tensors[ours] = linear.weight.detach().numpy().T.copy()
        if linear.bias is not None:
            tensors[ours.replace("W", "b")] = linear.bias.detach().numpy().copy()
    return tensors


def additive(visible):
    return torch.where(torch.from_numpy(visible), 0.0, -torch.inf)


def places(L):
    return np.arange(L)[:, None], np.arange(L)


def bert_layer(draw, L):
    config = transformers.BertConfig(hidden_size=12, num_attention_heads=3, attn_implementation="eager")
    layer = BertSelfAttention(config)
    lengths = draw.rng.integers(1, L + 1, 2)
    given = {"attention_mask": additive((np.arange(L) < lengths[:, None])[:, None, None])}

    def job():
        return {"heads": 3, "key_lengths": lengths,
                **linears(layer, W_Q="query", W_K="key", W_V="value")}
    return layer, given, job, 12


def gpt2_layer(draw, L):
    config = transformers.GPT2Config(n_embd=12, n_head=2, attn_implementation="eager",
                                     scale_attn_by_inverse_layer_idx=draw.chance(0.5))
    layer = GPT2Attention(config, layer_idx=2)
    i, j = places(L)

    def job():
        W, b = (np.split(x.detach().numpy(), 3, axis=-1)
                for x in (layer.c_attn.weight, layer.c_attn.bias))
        tensors = {f"{kind}_{x}": y for kind, all_ in (("W", W), ("b", b)) for x, y in zip("QKV", all_)}
        tensors |= {"W_O": layer.c_proj.weight.detach().numpy(),
                    "b_O": layer.c_proj.bias.detach().numpy()}
        return {"heads": 2, "causal": True, "scale": layer.scaling, **tensors}
    return layer, {"attention_mask": additive(j <= i)}, job, 12


def rotary_layer(draw, L, attention, rotary, config, options, visible):
    layer = attention(config, layer_idx=0)
    first = draw.pick(0, 7)
    cos, sin = rotary(config)(torch.zeros(1, L, 16), torch.arange(first, first + L)[None])
    half = cos.shape[-1] // 2

    def job():
        return {"heads": 4, "kv_heads": 2, "rotary": {"kind": "half"},
                "cos": cos[..., :half].numpy().repeat(2, axis=0),
                "sin": sin[..., :half].numpy().repeat(2, axis=0), **options,
                **linears(layer, W_Q="q_proj", W_K="k_proj", W_V="v_proj", W_O="o_proj")}
    return layer, {"attention_mask": additive(visible), "position_embeddings": (cos, sin)}, job, 16


SMALL = {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
         "num_hidden_layers": 1, "attn_implementation": "eager"}


def llama_layer(draw, L):
    i, j = places(L)
    config = transformers.LlamaConfig(**SMALL, attention_bias=draw.chance(0.5))
    return rotary_layer(draw, L, LlamaAttention, LlamaRotaryEmbedding, config, {"causal": True}, j <= i)


def mistral_layer(draw, L):
    """A window of w keys contains the query's own position and w - 1 before it."""
    i, j = places(L)
    config = transformers.MistralConfig(**SMALL, sliding_window=3)
    return rotary_layer(draw, L, MistralAttention, MistralRotaryEmbedding, config,
                        {"causal": True, "window": [2, -1]}, (j <= i) & (j > i - 3))


def gemma2_layer(draw, L):
    i, j = places(L)
    config = transformers.Gemma2Config(**SMALL, query_pre_attn_scalar=9, attn_logit_softcapping=2.0)
    return rotary_layer(draw, L, Gemma2Attention, Gemma2RotaryEmbedding, config,
                        {"causal": True, "scale": 1 / 3, "softcap": 2.0}, j <= i)


def t5_layer(draw, L):
    decoder = draw.chance(0.5)
    config = transformers.T5Config(d_model=12, d_kv=4, num_heads=2, relative_attention_num_buckets=8,
                                   relative_attention_max_distance=10, is_decoder=decoder,
                                   attn_implementation="eager")
    layer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    i, j = places(L)
    visible = j <= i if decoder else np.ones((L, L), dtype=bool)

    def job():
        return {"heads": 2, "scale": "none", "relative": {"max_distance": 10},
                "relative_bias": layer.relative_attention_bias.weight.detach().numpy().copy(),
                **({"causal": True} if decoder else {}),
                **linears(layer, W_Q="q", W_K="k", W_V="v", W_O="o")}
    return layer, {"mask": additive(visible)[None, None]}, job, 12


def in_dtype(value, dtype):
    if isinstance(value, tuple):
        return tuple(in_dtype(part, dtype) for part in value)
    return value.to(dtype)


def cases_of(model):
    for seed in range(COUNT):
        draw, dtype = Draw(model.__name__, seed), ["float64", "float32"][seed % 2]
        L = draw.pick(1, 3, 8, 20)
        torch.manual_seed(seed)
        layer, given, job_of, width = model(draw, L)
        layer.eval().to(getattr(torch, dtype))
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        x = draw.normal(2, L, width, dtype=dtype)
        job = {"embeddings": x, **job_of()}
        output = "output" if "W_O" in job else "context"
        job["outputs"] = [output, "weights"]

        def compute(d):
            kind = getattr(torch, d)
            layer.to(kind)
            with torch.no_grad():
                found = layer(torch.from_numpy(x).to(kind),
                              **{k: in_dtype(v, kind) for k, v in given.items()})
            return {output: found[0].numpy(), "weights": found[-1].numpy()}

        library = compute(dtype)
        with unittest.mock.patch("torch.nn.functional.softmax", exact_softmax):
            exact = compute("float64")
        yield Case(f"{model.__name__} {seed}", dtype, job, library, exact)


def bert():
    return cases_of(bert_layer)


def gpt2():
    return cases_of(gpt2_layer)


def llama():
    return cases_of(llama_layer)


def mistral():
    return cases_of(mistral_layer)


def gemma2():
    return cases_of(gemma2_layer)


def t5():
    return cases_of(t5_layer)
