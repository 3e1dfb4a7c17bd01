"""Random cases of Keras' MultiHeadAttention and AdditiveAttention."""

import keras
import numpy as np
import torch
from peers.cases import Case, Draw

torch.set_num_threads(1)
COUNT = 600


def array(value):
    return value.detach().numpy()


def with_first_key(mask):
    """The mask with the first key visible to all queries; causality does not hide that one. Without a visible
    key, the result of AdditiveAttention depends on how -1e9 compares with its scores."""
    mask[..., 0] = True
    return mask


def multi_head():
    for seed in range(COUNT):
        draw, dtype = Draw("keras", seed), ["float64", "float32"][seed % 2]
        B, L, S = draw.pick(1, 2, 3), draw.pick(1, 4, 9), draw.pick(1, 5, 12)
        H, E, Ev, width, value_width = (draw.pick(1, 2, 4), draw.pick(1, 4, 6), draw.pick(1, 4, 5),
                                        draw.pick(3, 8), draw.pick(3, 8, 10))
        options = {"use_bias": draw.chance(0.7), "output_shape": draw.pick(None, 7), "use_gate": draw.chance(0.3)}
        query = draw.normal(B, L, width, dtype=dtype)
        value = draw.normal(B, S, value_width, dtype=dtype)
        given = {"use_causal_mask": draw.chance(0.3)}
        job = {"convention": "keras", "embeddings": query, "memory": value, "heads": H,
               "outputs": ["output", "weights"],
               "empty_rows": "zero"}  # as in this layer when its scores are requested
        if given["use_causal_mask"]:
            job["causal"] = True
        if draw.chance(0.5):
            given["attention_mask"] = draw.mask(B, L, S)
            job["mask"] = given["attention_mask"]
        gate = ["W_gate", "b_gate"] if options["use_gate"] else []
        names = ["W_Q", "b_Q", "W_K", "b_K", *gate, "W_V", "b_V", "W_O", "b_O"]
        weights = None

        def compute(d):
            nonlocal weights
            layer = keras.layers.MultiHeadAttention(H, E, value_dim=Ev, dtype=d, **options)
            layer.build(query.shape, value.shape)
            if weights is None:
                weights = [0.5 * draw.normal(*w.shape, dtype=dtype) for w in layer.weights]
            layer.set_weights(weights)
            found = layer(query.astype(d), value.astype(d), return_attention_scores=True, **given)
            return dict(zip(job["outputs"], map(array, found)))

        library, exact = compute(dtype), compute("float64")
        for name, weight in zip(names if options["use_bias"] else names[::2], weights):
            if name[0] == "b":
                job[name] = weight.ravel()
            elif name == "W_O":
                job[name] = weight.reshape(-1, weight.shape[-1])
            else:
                job[name] = weight.reshape(weight.shape[0], -1)
        yield Case(f"keras {seed}", dtype, job, library, exact)


def additive():
    for seed in range(COUNT):
        draw, dtype = Draw("additive", seed), ["float64", "float32"][seed % 2]
        B, L, S, E = draw.pick(1, 2, 3), draw.pick(1, 4, 9), draw.pick(1, 5, 12), draw.pick(1, 4, 6)
        job = {"score": "additive", "Q": draw.normal(B, L, E, dtype=dtype),
               "K": draw.normal(B, S, E, dtype=dtype), "V": draw.normal(B, S, E, dtype=dtype),
               "outputs": ["weights", "context"]}
        masks, given = [None, None], {"use_causal_mask": draw.chance(0.3)}
        if given["use_causal_mask"]:
            job["causal"] = True
        if draw.chance(0.4):
            masks[1] = with_first_key(draw.mask(B, S))
            job["mask"] = masks[1][:, None]
        if draw.chance(0.6):
            job["v_score"] = draw.normal(E, dtype=dtype)

        def compute(d):
            layer = keras.layers.AdditiveAttention(use_scale="v_score" in job, dtype=d)
            tensors = [job[x].astype(d) for x in "QVK"]
            layer.build([x.shape for x in tensors])
            if "v_score" in job:
                layer.set_weights([job["v_score"]])
            mask = [None if x is None else torch.from_numpy(x) for x in masks]
            context, scores = layer([torch.from_numpy(x) for x in tensors], mask=mask,
                                    return_attention_scores=True, **given)
            return {"weights": array(scores), "context": array(context)}

        exact = compute("float64")  # its weights are float64, but their product with values is float32
        exact["context"] = exact["weights"] @ job["V"].astype("float64")
        yield Case(f"additive {seed}", dtype, job, compute(dtype), exact)
