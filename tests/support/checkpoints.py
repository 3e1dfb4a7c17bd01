"""Small checkpoints, and an attention layer in NumPy that owes nothing to the program.

The forward pass follows the published descriptions: Llama (arXiv:2302.13971), Gemma 2 (arXiv:2408.00118), gpt-oss
(arXiv:2508.10925) and so on. Weights are (out, in), as torch.nn.Linear has them.
"""

import json

import numpy as np

from support.safetensors_file import build, entry

DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16"}


def write_tensors(path, tensors):
    """Writes a .safetensors file."""
    header, data = {}, b""
    for name, array in tensors.items():
        array = np.ascontiguousarray(array)
        header[name] = entry(len(data), len(data) + array.nbytes, DTYPES[str(array.dtype)], list(array.shape))
        data += array.tobytes()
    text = json.dumps(header)
    path.write_bytes(build(text + " " * (-len(text) % 8), data))


def write_model(folder, config, tensors, shards=1):
    """Writes config.json and model.safetensors, or an index and this many files."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        return write_tensors(folder / "model.safetensors", tensors)
    names = list(tensors)
    weight_map = {}
    for n in range(shards):
        file = f"model-{n + 1:05}-of-{shards:05}.safetensors"
        write_tensors(folder / file, {name: tensors[name] for name in names[n::shards]})
        weight_map |= {name: file for name in names[n::shards]}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def rms_norm(x, weight, epsilon):
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + epsilon) * weight


def layer_norm(x, weight, bias, epsilon):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + epsilon) * weight + bias


def rotate(x, angles, interleaved=False):
    """x (heads, L, D); angles (L, r / 2): only the first r columns are rotated."""
    r = 2 * angles.shape[1]
    first, second = (slice(0, r, 2), slice(1, r, 2)) if interleaved else (slice(0, r // 2), slice(r // 2, r))
    out = x.copy()
    out[..., first] = x[..., first] * np.cos(angles) - x[..., second] * np.sin(angles)
    out[..., second] = x[..., second] * np.cos(angles) + x[..., first] * np.sin(angles)
    return out


def angles(L, r, base=10000.0):
    return np.arange(L)[:, None] * base ** (-np.arange(0, r, 2) / r)


def heads_of(x, heads):
    """(L, heads * D) -> (heads, L, D)."""
    return x.reshape(len(x), heads, -1).transpose(1, 0, 2)


def attention(q, k, v, visible, scale=None, bias=0, softcap=0, sinks=None):
    """Weights (H, L, S) and context (L, H * D) of q (H, L, D), k and v (G, S, D)."""
    k, v = (x.repeat(len(q) // len(x), 0) for x in (k, v))
    scores = q @ k.swapaxes(1, 2) * (q.shape[2] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = np.where(visible, scores + bias, -np.inf)
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - top)
    total = e.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None, None] - top)
    weights = e / total
    return weights, np.concatenate(list(weights @ v), 1)


def causal(L, window=None):
    i, j = np.arange(L)[:, None], np.arange(L)
    return (j <= i) & ((i - j < window) if window else True)
