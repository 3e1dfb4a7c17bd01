"""Random jobs with many options, and what `attn sensitivity` says about their adversarial inputs."""

import json
import pathlib
import tempfile

import numpy as np

from support.attn import attn


def random_job(seed):
    """Tensors and options, the keys of an attn job."""
    r = np.random.default_rng(seed)
    G = int(r.choice([1, 2]))
    H = G * int(r.choice([1, 2, 4]))
    B, D, L = int(r.choice([1, 2])), int(r.choice([16, 32])), int(r.choice([20, 40, 75]))
    S = L

    def normal(*shape):
        return r.normal(size=shape).astype("f4")

    def is_chosen(share):
        return r.random() < share

    tensors, options = {}, {}
    form = r.choice(["heads", "embeddings", "packed", "blhd", "memory"])
    if form != "memory" and is_chosen(.6):
        options["causal"] = True
        if form != "embeddings" and is_chosen(.3):
            S, options["alignment"] = L + 17, "bottom-right"
    if form == "heads":
        tensors |= {"Q": normal(B, H, L, D), "K": normal(B, G, S, D), "V": normal(B, G, S, D)}
    elif form == "blhd":
        tensors |= {"Q": normal(B, L, H, D), "K": normal(B, S, G, D), "V": normal(B, S, G, D)}
        options["layout"] = "blhd"
    elif form == "packed":
        tensors |= {"Q": normal(B, L, H * D), "K": normal(B, S, G * D), "V": normal(B, S, G * D)}
        options |= {"heads": H, "kv_heads": G}
    else:
        M = H * D
        tensors["embeddings"] = normal(B, L, M)
        options |= {"heads": H, "kv_heads": G}
        if form == "memory":
            S = 31
            tensors["memory"] = normal(B, S, M)
        tensors |= {"W_Q": normal(M, H * D) / np.float32(M ** .5), "W_K": normal(M, G * D) / np.float32(M ** .5),
                    "W_V": normal(M, G * D) / np.float32(M ** .5)}
        if is_chosen(.5):
            tensors["W_O"] = normal(H * D, M) / np.float32((H * D) ** .5)
        if is_chosen(.4):
            tensors |= {"b_Q": normal(H * D), "b_K": normal(G * D), "b_V": normal(G * D)}
        if is_chosen(.3):
            options["weights_layout"] = "out-in"
            tensors |= {name: np.ascontiguousarray(x.T) for name, x in tensors.items() if name.startswith("W_")}
    if is_chosen(.25):
        options["softcap"] = float(r.choice([5, 30, 50]))
    elif is_chosen(.25):  # scores that are normalised do not reach a softcap
        options["qk_norm"] = str(r.choice(["rms", "l2", "layer"]))
        if options["qk_norm"] != "l2":
            tensors |= {"q_norm": 1 + np.float32(.3) * normal(D), "k_norm": 1 + np.float32(.3) * normal(D)}
    if options.get("qk_norm") == "l2":  # whose scores are at most the scale
        options["scale"] = 10.0
    elif is_chosen(.2):
        options["scale"] = float(r.choice([.05, .3]))
    if is_chosen(.2):
        tensors["sinks"] = normal(H)
    if is_chosen(.2):
        tensors["head_scale"] = 1 + np.float32(.3) * normal(H)
    bias = r.choice(["", "", "bias", "alibi_slopes", "relative_bias"])
    if bias == "bias":
        tensors["bias"] = normal(H, L, S)
    elif bias == "alibi_slopes":
        tensors["alibi_slopes"] = (2. ** (-8 * (1 + np.arange(H)) / H)).astype("f4")
    elif bias == "relative_bias":
        tensors["relative_bias"] = normal(32, H)
    if is_chosen(.2):
        tensors["key_mask"] = r.random((B, S)) < .8
        tensors["key_mask"][:, 0] = True
    elif is_chosen(.25):
        tensors["key_lengths"] = r.integers(S // 2, S, size=B)
    if is_chosen(.2):
        tensors["mask"] = r.random((L, S)) < .7
        tensors["mask"][:, 0] = True
    if options.get("causal") and is_chosen(.3):
        options["window"] = [int(r.integers(3, L // 2)), 0]
    if is_chosen(.3):
        options["rotary"] = {"kind": str(r.choice(["half", "interleaved"]))}
    if is_chosen(.1):
        options["zero_key"] = True
    if is_chosen(.1):
        options["temperature"] = 1.5
    if is_chosen(.1):
        tensors["dropout_mask"] = r.random((B, H, L, S + bool(options.get("zero_key")))) < .8
        options["dropout_p"] = .2
    return tensors, options


def verdicts(seed):
    """That of each mistake, by its id, with the adversarial inputs of a random job and a tolerance of 1e-2."""
    tensors, options = random_job(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        np.savez(folder / "given.npz", **tensors)
        for file in "given", "new":
            (folder / f"{file}.json").write_text(json.dumps({key: f"{file}.npz#{key}" for key in tensors} | options))
        made = attn("random", "--kind", "adversarial", "--for", folder / "given.json", "-o", folder / "new.npz")
        assert made.returncode == 0, made.stderr.decode()
        run = attn("sensitivity", folder / "new.json", "--rtol", "1e-2", "--atol", "1e-2", "--json")
        assert run.returncode == 0, run.stderr.decode()
    report = json.loads(run.stdout)
    assert report["untested"] == []
    return {mistake["id"]: mistake["verdict"] for mistake in report["mistakes"]}
