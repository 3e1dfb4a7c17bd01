"""Right kernels of other libraries, for the jobs of kernel.py that they can express; None for others."""

import numpy as np

from diagnose.kernel import forward


def plain(tensors, options):
    """Q, K, V with all heads, numbers added to the scores, and the scale; None if the job has other options."""
    if {"softcap", "rotary", "qk_norm", "dropout_p"} & set(options) or "sinks" in tensors:
        return None
    q, k, v = (tensors[name].astype("f4") for name in "QKV")
    if "past_K" in tensors:
        k, v = (np.concatenate([tensors["past_" + name], x], 2) for name, x in (("K", k), ("V", v)))
    B, H, L, D = q.shape
    S = k.shape[2]
    k, v = (np.repeat(x, H // x.shape[1], 1) for x in (k, v))
    offset = S - L if options.get("alignment") == "bottom-right" or "past_K" in tensors else 0
    distance = np.arange(L)[:, None] + offset - np.arange(S)
    visible = np.ones((B, H, L, S), bool)
    if options.get("causal"):
        visible &= distance >= 0
    if "window" in options:
        visible &= distance <= options["window"][0]
    if "mask" in tensors:
        visible &= tensors["mask"]
    if "key_lengths" in tensors:
        visible &= np.arange(S) < tensors["key_lengths"][:, None, None, None]
    added = np.where(visible, np.float32(0), np.float32(-np.inf))
    if "bias" in tensors:
        added = added + tensors["bias"]
    if "alibi_slopes" in tensors:
        added = added - tensors["alibi_slopes"][:, None, None] * np.abs(distance).astype("f4")
    return q, k, v, added.astype("f4"), float(options.get("scale", D ** -.5))


def with_torch(tensors, options, dtype):
    given = plain(tensors, options)
    if given is None:
        return None
    import torch
    to = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    q, k, v, added, scale = given
    q, k, v, added = (torch.from_numpy(np.ascontiguousarray(x)) for x in (q, k, v, added))
    out = torch.nn.functional.scaled_dot_product_attention(q.to(to), k.to(to), v.to(to), added.to(torch.float32)
                                                           if dtype == "f32" else added.to(to), scale=scale)
    return out.float().numpy()


def with_jax(tensors, options, dtype):
    given = plain(tensors, options)
    if given is None:
        return None
    import jax
    import jax.numpy as jnp
    to = {"f16": jnp.float16, "bf16": jnp.bfloat16, "f32": jnp.float32}[dtype]
    q, k, v, added, scale = given
    q, k, v = (jnp.asarray(x.transpose(0, 2, 1, 3), to) for x in (q, k, v))
    out = jax.nn.dot_product_attention(q, k, v, bias=jnp.asarray(np.maximum(added, np.float32(-1e30))), scale=scale)
    return np.asarray(out.astype(jnp.float32)).transpose(0, 2, 1, 3)


def with_onnxruntime(tensors, options, dtype):
    given = plain(tensors, options)
    if given is None or dtype != "f32":  # its CPU kernels of other types sum in them
        return None
    import onnx
    import onnxruntime
    q, k, v, added, scale = given
    names = ["Q", "K", "V", "mask"]
    node = onnx.helper.make_node("Attention", names, ["Y"], scale=scale)
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, list(x.shape))
              for name, x in zip(names, (q, k, v, added))]
    out = onnx.helper.make_tensor_value_info("Y", onnx.TensorProto.FLOAT, list(q.shape))
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "attention", values, [out]), ir_version=10,
                                   opset_imports=[onnx.helper.make_opsetid("", 23)])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, (q, k, v, added))))[0]


def has(module):
    import importlib.util
    return importlib.util.find_spec(module) is not None


PEERS = {"NumPy": lambda tensors, options, dtype: forward(tensors, options, dtype)[0]}
PEERS |= {name: kernel for name, module, kernel in [
    ("PyTorch", "torch", with_torch), ("JAX", "jax", with_jax), ("onnxruntime", "onnxruntime", with_onnxruntime)]
    if has(module)}
