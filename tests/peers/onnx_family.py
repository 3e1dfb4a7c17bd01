"""All node tests of Attention, FlexAttention and RotaryEmbedding that the onnx package generates."""

import functools

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases
from peers.cases import Case

# ONNX numbers its data types, and qk_matmul_output_mode numbers the stages.
PRECISIONS = {1: "f32", 10: "f16", 11: "f64", 16: "bf16"}
STAGES = {0: "scaled_scores", 1: "scaled_scores", 2: "masked_scores", 3: "weights"}


@functools.cache
def all_tests():
    return {test.name: test for test in collect_testcases("")}


def node_tests(operator):
    """(name, attributes, inputs by name, outputs by name) of the tests of one node."""
    for test in all_tests().values():
        node = test.model.graph.node[0]
        if node.op_type != operator:
            continue
        versions = {opset.domain: opset.version for opset in test.model.opset_import}
        schema = onnx.defs.get_schema(operator, versions[node.domain], node.domain)
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}

        def named(formal, names, values):
            values = iter(values)
            return {f.name: np.asarray(next(values)) for f, n in zip(formal, names) if n}

        inputs, outputs = test.data_sets[0]
        yield (test.name, attributes, named(schema.inputs, node.input, inputs),
               named(schema.outputs, node.output, outputs))


def attention_job(attributes, inputs):
    tensors = {"Q": "Q", "K": "K", "V": "V", "attn_mask": "mask", "past_key": "past_K",
               "past_value": "past_V", "nonpad_kv_seqlen": "key_lengths"}
    job = {"convention": "onnx"} | {tensors[name]: value for name, value in inputs.items()}
    if "q_num_heads" in attributes:
        job |= {"heads": attributes["q_num_heads"], "kv_heads": attributes["kv_num_heads"]}
    if attributes.get("is_causal"):
        job["causal"] = True
    if "scale" in attributes:
        job["scale"] = attributes["scale"]
    if attributes.get("softcap"):
        job["softcap"] = attributes["softcap"]
    if "softmax_precision" in attributes:
        job["softmax"] = {"precision": PRECISIONS[attributes["softmax_precision"]]}
    window = [attributes.get(f"{side}_window_size", -1) for side in ("left", "right")]
    if window != [-1, -1]:
        job["window"] = window
    return job


def attention():
    for name, attributes, inputs, expected in node_tests("Attention"):
        job = attention_job(attributes, inputs)
        stage = STAGES[attributes.get("qk_matmul_output_mode", 0)]
        ours = {"Y": "context", "present_key": "present_K", "present_value": "present_V",
                "qk_matmul_output": stage}
        results = {ours[output]: value for output, value in expected.items()}
        job["outputs"] = list(results)
        yield Case(name, str(inputs["Q"].dtype), job, results, results)


# The options that correspond to the function score_mod of a test.
SCORE_MODS = {
    "test_flexattention_score_mod": lambda L, S: {"mask": np.full((L, S), 0.5, "float32")},
    "test_flexattention_causal_mask": lambda L, S: {"causal": True},
    "test_flexattention_soft_cap": lambda L, S: {"softcap": 20},
    "test_flexattention_relative_positional":
        lambda L, S: {"mask": (np.arange(L)[:, None] - np.arange(S)).astype("float32")},
}


def flex():
    for name, attributes, inputs, expected in node_tests("FlexAttention"):
        if "prob_mod" in attributes:
            continue  # attn has no functions of the weights
        job = attention_job({"scale": attributes["scale"]} if "scale" in attributes else {}, inputs)
        if "score_mod" in attributes:
            job |= SCORE_MODS[name](inputs["Q"].shape[2], inputs["K"].shape[2])
        results = {"context": expected["Y"]}
        yield Case(name, str(inputs["Q"].dtype), job | {"outputs": ["context"]}, results, results)


def rotary():
    for name, attributes, inputs, expected in node_tests("RotaryEmbedding"):
        x, y = inputs["X"], expected["Y"]
        job = {"Q": x, "K": x, "cos": inputs["cos_cache"], "sin": inputs["sin_cache"],
               "rotary": {"kind": "interleaved" if attributes.get("interleaved") else "half"},
               "outputs": ["queries"]}
        if "position_ids" in inputs:
            job["position_ids"] = inputs["position_ids"]
        if x.ndim == 3:  # packed heads; attn has an axis of heads before the positions
            job["heads"] = attributes["num_heads"]
            y = y.reshape(*y.shape[:2], job["heads"], -1).swapaxes(1, 2)
        yield Case(name, str(x.dtype), job, {"queries": y}, {"queries": y})
