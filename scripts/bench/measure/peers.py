"""Times attention in other libraries, one library per process.

    peers.py NAME THREADS      reads one problem per line (JSON), prints its times

A problem is {"H", "G", "L", "S", "D", "dtype", "causal", "budget"}: heads, key/value heads, queries, keys,
head width. With "backward", the time is that of the gradients of queries, keys and values (torch only), with "inputs"
that of arrays converted to this type before (torch and attn only). The answer is {"seconds": [...]} for calls that took about `budget` seconds in total, or
{"skip": reason}. Arrays are allocated beforehand in the layout that suits the library best, including the
result if the library supports it (onnxruntime's bindings). As in attn-bench, calls shorter than 4 ms are
timed in groups. Times include Python's call overhead, well below a microsecond plus the library's own
Python code.
"""

import json
import os
import pathlib
import sys
import time

import numpy as np


class Skip(Exception):
    """The library does not support the problem."""


def arrays(p):
    """(H, L, D), (G, S, D), (G, S, D)"""
    random = np.random.default_rng(1)
    shapes = (p["H"], p["L"], p["D"]), (p["G"], p["S"], p["D"]), (p["G"], p["S"], p["D"])
    return [random.standard_normal(shape, dtype=p["dtype"]) for shape in shapes]


def numpy(p):
    """Head by head and in place, as an experienced user would write it (SciPy's softmax makes a copy)."""
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


def attn(p):
    """The Python module, with the library of build/release."""
    import ml_dtypes  # JAX requires it
    root = pathlib.Path(__file__).resolve().parents[3]
    os.environ["ATTN_LIBRARY"] = str(root / "build" / "release" / "libattn.so.0")
    sys.path.insert(0, str(root / "python"))
    import attn
    dtype = {"bfloat16": ml_dtypes.bfloat16}.get(p["inputs"], p["inputs"])
    q, k, v = (a[None].astype(dtype) for a in arrays(p))
    return lambda: attn.run(Q=q, K=k, V=v, causal=p["causal"], threads=THREADS, outputs=["context"])["context"]


def torch(p):
    import torch
    from torch.nn.functional import scaled_dot_product_attention
    torch.set_num_threads(THREADS)
    dtype = getattr(torch, p.get("inputs", p["dtype"]))
    q, k, v = (torch.from_numpy(a)[None].to(dtype) for a in arrays(p))
    if p.get("backward"):
        for x in (q, k, v):
            x.requires_grad_()
        context = scaled_dot_product_attention(q, k, v, is_causal=p["causal"])
        g = torch.randn_like(context)
        return lambda: torch.autograd.grad(context, (q, k, v), g, retain_graph=True)

    def call():
        with torch.inference_mode():
            return scaled_dot_product_attention(q, k, v, is_causal=p["causal"], enable_gqa=p["G"] != p["H"])[0]
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
    # Bound once, as recommended: run() would copy the context in each call.
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    first = next(iter(inputs.values()))
    context = onnxruntime.OrtValue.ortvalue_from_shape_and_type(first.shape, first.dtype)
    binding.bind_ortvalue_output("context", context)
    return lambda: session.run_with_iobinding(binding)


def ort_mha(p):
    """com.microsoft.MultiHeadAttention, a flash kernel if not causal; (1, L, H D)."""
    from onnx import helper
    if p["G"] != p["H"]:
        raise Skip("no grouped heads")
    if p["dtype"] != "float32":
        raise Skip("float32 only")
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


PEERS = {"attn": attn, "numpy": numpy, "torch": torch, "ort-mha": ort_mha, "ort-attention": ort_attention, "jax": jax}


def time_of(call, calls):
    """Seconds per call."""
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
                call = None  # free the previous arrays first
                call = PEERS[sys.argv[1]](problem)
                last = problem
            answer = {"seconds": seconds(call, budget)}
        except Skip as why:
            answer, last = {"skip": str(why)}, None
        print(json.dumps(answer), flush=True)
