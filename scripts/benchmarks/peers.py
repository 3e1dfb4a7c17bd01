"""Attention by the libraries that attn is compared with, each in a process of its own.

    peers.py NAME THREADS      reads a problem a line (JSON), answers with its seconds

A problem is {"H", "G", "L", "S", "D", "dtype", "causal", "budget"}: heads, key/value heads, queries, keys,
head width; the answer is {"seconds": [...]} for calls that took about `budget` seconds together, or
{"skip": why}. Each library gets the arrays in the layout that it likes best, made beforehand, and where it
can write into an array made beforehand (onnxruntime's bindings), it does. As in attn-bench, calls of less than
4 ms are timed several at a time, one after another; Python's part of a call is in it: well below a
microsecond, and some more for what the library's own Python code does.
"""

import json
import os
import sys
import time

import numpy as np


class Skip(Exception):
    """What a library cannot compute."""


def arrays(p):
    """(H, L, D), (G, S, D), (G, S, D)"""
    random = np.random.default_rng(1)
    shapes = (p["H"], p["L"], p["D"]), (p["G"], p["S"], p["D"]), (p["G"], p["S"], p["D"])
    return [random.standard_normal(shape, dtype=p["dtype"]) for shape in shapes]


def numpy(p):
    """In place, a head at a time, as a careful user writes it; SciPy's softmax costs another copy."""
    q, k, v = arrays(p)
    group = p["H"] // p["G"]
    scale = q.dtype.type(1 / np.sqrt(p["D"]))
    hidden = np.triu_indices(p["L"], 1, p["S"]) if p["causal"] else None
    context = np.empty_like(q)

    def call():
        for h in range(p["H"]):
            scores = q[h] @ k[h // group].T
            scores *= scale
            if hidden:
                scores[hidden] = -np.inf
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            context[h] = scores @ v[h // group]
        return context
    return call


def torch(p):
    import torch
    from torch.nn.functional import scaled_dot_product_attention
    torch.set_num_threads(THREADS)
    q, k, v = (torch.from_numpy(a)[None] for a in arrays(p))

    def call():
        with torch.inference_mode():
            return scaled_dot_product_attention(q, k, v, is_causal=p["causal"],
                                                enable_gqa=p["G"] != p["H"]).numpy()[0]
    return call


def onnx_session(node, opsets, p, inputs):
    import onnx
    import onnxruntime
    from onnx import helper
    kind = {"float32": onnx.TensorProto.FLOAT, "float64": onnx.TensorProto.DOUBLE}[p["dtype"]]
    declared = [helper.make_tensor_value_info(name, kind, array.shape)
                for name, array in inputs.items()]
    result = helper.make_tensor_value_info("context", kind, None)
    graph = helper.make_graph([node], "attention", declared, [result])
    model = helper.make_model(graph, ir_version=10,
                              opset_imports=[helper.make_opsetid(*opset) for opset in opsets])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                               providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Skip(str(error).splitlines()[0]) from error
    # Bound once, as the library advises for speed: run() would copy the context out at each call.
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    first = next(iter(inputs.values()))
    context = onnxruntime.OrtValue.ortvalue_from_shape_and_type(first.shape, first.dtype)
    binding.bind_ortvalue_output("context", context)
    return lambda: session.run_with_iobinding(binding)


def ort_mha(p):
    """com.microsoft.MultiHeadAttention, whose full form is a flash kernel; (1, L, H D)."""
    from onnx import helper
    if p["G"] != p["H"]:
        raise Skip("no grouped heads")
    if p["dtype"] != "float32":
        raise Skip("float32 alone")
    inputs = {name: np.ascontiguousarray(a.transpose(1, 0, 2)).reshape(1, a.shape[1], -1)
              for name, a in zip(("query", "key", "value"), arrays(p))}
    node = helper.make_node("MultiHeadAttention", list(inputs), ["context"], domain="com.microsoft",
                            num_heads=p["H"], unidirectional=int(p["causal"]))
    return onnx_session(node, [("", 21), ("com.microsoft", 1)], p, inputs)


def ort_attention(p):
    """ai.onnx Attention of opset 23; (1, H, L, D)."""
    from onnx import helper
    inputs = {name: a[None] for name, a in zip(("Q", "K", "V"), arrays(p))}
    node = helper.make_node("Attention", list(inputs), ["context"], is_causal=int(p["causal"]))
    return onnx_session(node, [("", 23)], p, inputs)


def jax(p):
    import jax
    jax.config.update("jax_enable_x64", True)
    q, k, v = (jax.numpy.asarray(a.transpose(1, 0, 2)[None]) for a in arrays(p))
    compiled = jax.jit(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=p["causal"]))

    def call():
        return compiled(q, k, v).block_until_ready()
    return call


PEERS = {"numpy": numpy, "torch": torch, "ort-mha": ort_mha, "ort-attention": ort_attention, "jax": jax}


def time_of(call, calls):
    """Of one of them."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def seconds(call, budget):
    call()
    calls = min(100, max(1, int(0.004 / time_of(call, 1))))
    found = []
    while not found or sum(found) * calls < budget and len(found) < 200:
        found.append(time_of(call, calls))
    return found


if __name__ == "__main__":
    THREADS = int(sys.argv[2])
    last, call = None, None
    for line in sys.stdin:
        problem = json.loads(line)
        budget = problem.pop("budget")
        try:
            if problem != last:
                call = None  # the arrays of the one before go first
                call = PEERS[sys.argv[1]](problem)
                last = problem
            answer = {"seconds": seconds(call, budget)}
        except Skip as why:
            answer, last = {"skip": str(why)}, None
        print(json.dumps(answer), flush=True)
