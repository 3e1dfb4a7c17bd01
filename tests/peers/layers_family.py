"""Small attention layers of HuggingFace transformers with random weights.

The layers compute softmax, norms and scales of queries in float32 for all dtypes; `exact` computes them in
float64. Rotary layers and attn both use the tables computed by the library.
"""

import contextlib
import math
import unittest.mock

import numpy as np
import torch
import transformers
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.cohere.modeling_cohere import CohereAttention, CohereRotaryEmbedding
from transformers.models.dbrx.modeling_dbrx import DbrxAttention, DbrxRotaryEmbedding
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention, Gemma2RotaryEmbedding
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding
from transformers.models.llama4.modeling_llama4 import Llama4TextAttention
from transformers.models.mistral.modeling_mistral import MistralAttention, MistralRotaryEmbedding
from transformers.models.olmo2.modeling_olmo2 import Olmo2Attention, Olmo2RotaryEmbedding
from transformers.models.phi.modeling_phi import PhiAttention, PhiRotaryEmbedding
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention, Qwen3NextRotaryEmbedding
from transformers.models.stablelm.modeling_stablelm import StableLmAttention, StableLmRotaryEmbedding
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention
from transformers.models.t5.modeling_t5 import T5Attention
from peers.cases import Case, Draw

torch.set_num_threads(1)
COUNT = 300
SOFTMAX = torch.nn.functional.softmax


def exact_softmax(x, dim=-1, dtype=None, **rest):
    return SOFTMAX(x, dim=dim, **rest)


@contextlib.contextmanager
def exact_softmax_and_casts():
    """Casts to float32 keep float64."""
    with unittest.mock.patch("torch.nn.functional.softmax", exact_softmax), \
         unittest.mock.patch("torch.float32", torch.float64), \
         unittest.mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        yield


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


PROJECTIONS = {"W_Q": "q_proj", "W_K": "k_proj", "W_V": "v_proj", "W_O": "o_proj"}


def rotary_layer(draw, L, attention, rotary, config, options, visible, tensors=lambda layer: {},
                 kind="half", names=PROJECTIONS):
    """`tensors` returns those of the job that are not projections, and replaces them."""
    layer = attention(config, layer_idx=0)
    first = draw.pick(0, 7)
    cos, sin = rotary(config)(torch.zeros(1, L, 16), torch.arange(first, first + L)[None])
    width = cos.shape[-1]
    pairs = slice(0, width // 2) if kind == "half" else slice(0, width, 2)

    def job():
        return {"heads": 4, "kv_heads": 2, "rotary": {"kind": kind},
                "cos": cos[..., pairs].numpy().repeat(2, axis=0),
                "sin": sin[..., pairs].numpy().repeat(2, axis=0), **options,
                **linears(layer, **names), **tensors(layer)}
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


NARROW = {key: value for key, value in SMALL.items() if key != "head_dim"}


def numbers(parameter):
    return parameter.detach().numpy().copy()


def olmo2_layer(draw, L):
    """Norms over all heads."""
    i, j = places(L)
    config = transformers.Olmo2Config(**SMALL, rms_norm_eps=1e-3)
    options = {"causal": True, "qk_norm": "rms", "qk_norm_axis": "all", "qk_norm_epsilon": 1e-3}
    return rotary_layer(draw, L, Olmo2Attention, Olmo2RotaryEmbedding, config, options, j <= i,
                        lambda layer: {"q_norm": numbers(layer.q_norm.weight),
                                       "k_norm": numbers(layer.k_norm.weight)})


def cohere_layer(draw, L):
    """LayerNorm with weights for each head."""
    i, j = places(L)
    config = transformers.CohereConfig(**SMALL, use_qk_norm=True, layer_norm_eps=1e-3)
    options = {"causal": True, "qk_norm": "layer", "qk_norm_epsilon": 1e-3}
    return rotary_layer(draw, L, CohereAttention, CohereRotaryEmbedding, config, options, j <= i,
                        lambda layer: {"q_norm": numbers(layer.q_norm.weight),
                                       "k_norm": numbers(layer.k_norm.weight)}, "interleaved")


def stablelm_layer(draw, L):
    """A LayerNorm without bias for each head; half of the columns rotate."""
    i, j = places(L)
    config = transformers.StableLmConfig(**NARROW, qk_layernorm=True, use_qkv_bias=draw.chance(0.5),
                                         layer_norm_eps=1e-3, partial_rotary_factor=0.5)
    options = {"causal": True, "qk_norm": "layer", "qk_norm_epsilon": 1e-3}

    def norms(layer):
        return {name: np.stack([numbers(norm.weight) for norm in list_.norms])
                for name, list_ in (("q_norm", layer.q_layernorm), ("k_norm", layer.k_layernorm))}
    return rotary_layer(draw, L, StableLmAttention, StableLmRotaryEmbedding, config, options, j <= i, norms)


def phi_layer(draw, L):
    """LayerNorm with bias."""
    i, j = places(L)
    config = transformers.PhiConfig(**NARROW, qk_layernorm=True, layer_norm_eps=1e-3, partial_rotary_factor=0.5)
    options = {"causal": True, "qk_norm": "layer", "qk_norm_epsilon": 1e-3}

    def norms(layer):
        q, k = layer.q_layernorm, layer.k_layernorm
        return {"q_norm": numbers(q.weight), "q_norm_bias": numbers(q.bias),
                "k_norm": numbers(k.weight), "k_norm_bias": numbers(k.bias)}
    return rotary_layer(draw, L, PhiAttention, PhiRotaryEmbedding, config, options, j <= i, norms,
                        names={**PROJECTIONS, "W_O": "dense"})


def llama4_layer(draw, L):
    """A layer without rotary positions, whose queries are scaled by position."""
    i, j = places(L)
    config = transformers.Llama4TextConfig(**SMALL, no_rope_layers=[0], attn_temperature_tuning=True,
                                           floor_scale=4, attn_scale=0.5)
    layer = Llama4TextAttention(config, layer_idx=0)

    def job():
        return {"heads": 4, "kv_heads": 2, "causal": True, "query_scale": {"factor": 0.5, "length": 4},
                **linears(layer, **PROJECTIONS)}
    return layer, {"attention_mask": additive(j <= i), "position_embeddings": None}, job, 16


def qwen3_next_layer(draw, L):
    """q_proj yields queries and gates, alternately by head. The norms multiply by 1 + weight."""
    i, j = places(L)
    config = transformers.Qwen3NextConfig(**SMALL, rms_norm_eps=1e-3, partial_rotary_factor=1.0)
    options = {"causal": True, "qk_norm": "rms", "qk_norm_epsilon": 1e-3}

    def tensors(layer):
        W = numbers(layer.q_proj.weight).reshape(4, 2, 6, 16)
        queries, gates = (W[:, part].reshape(24, 16).T.copy() for part in (0, 1))
        return {"W_Q": queries, "W_gate": gates, "q_norm": 1 + numbers(layer.q_norm.weight),
                "k_norm": 1 + numbers(layer.k_norm.weight)}
    return rotary_layer(draw, L, Qwen3NextAttention, Qwen3NextRotaryEmbedding, config, options, j <= i, tensors)


def dbrx_layer(draw, L):
    """Fused projections, whose results are clipped."""
    i, j = places(L)
    config = transformers.DbrxConfig(d_model=16, n_heads=4, attn_config={"clip_qkv": 1.5, "kv_n_heads": 2},
                                     attn_implementation="eager")
    config.attn_config.rope_theta = 1e4

    def tensors(layer):
        W = numbers(layer.Wqkv.weight).T
        return {name: part.copy() for name, part in zip(("W_Q", "W_K", "W_V"), np.split(W, [16, 24], axis=1))}
    options = {"causal": True, "clip_qkv": 1.5}
    return rotary_layer(draw, L, DbrxAttention, DbrxRotaryEmbedding, config, options, j <= i, tensors,
                        names={"W_O": "out_proj"})


def swinv2_layer(draw, L):
    """Cosine scores with a scale for each head and a bias, in windows of side x side tokens."""
    side = math.isqrt(L)
    layer = Swinv2SelfAttention(transformers.Swinv2Config(), 12, 3, side)

    def job():
        table = layer.continuous_position_bias_mlp(layer.relative_coords_table).reshape(-1, 3)
        bias = 16 * torch.sigmoid(table[layer.relative_position_index.reshape(-1)])
        return {"heads": 3, "score": "cosine", "bias": numbers(bias).reshape(L, L, 3).transpose(2, 0, 1),
                "head_scale": np.exp(np.minimum(numbers(layer.logit_scale).reshape(3), math.log(100))),
                **linears(layer, W_Q="query", W_K="key", W_V="value")}
    return layer, {"output_attentions": True}, job, 12


def in_dtype(value, dtype):
    if isinstance(value, tuple):
        return tuple(in_dtype(part, dtype) for part in value)
    return value.to(dtype) if torch.is_tensor(value) and value.is_floating_point() else value


def cases_of(model, lengths=(1, 3, 8, 20)):
    for seed in range(COUNT):
        draw, dtype = Draw(model.__name__, seed), ["float64", "float32"][seed % 2]
        L = draw.pick(*lengths)
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
        with exact_softmax_and_casts():
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


def olmo2():
    return cases_of(olmo2_layer)


def cohere():
    return cases_of(cohere_layer)


def stablelm():
    return cases_of(stablelm_layer)


def phi():
    return cases_of(phi_layer)


def llama4():
    return cases_of(llama4_layer)


def qwen3_next():
    return cases_of(qwen3_next_layer)


def dbrx():
    return cases_of(dbrx_layer)


def swinv2():
    return cases_of(swinv2_layer, lengths=(1, 4, 9, 16))
