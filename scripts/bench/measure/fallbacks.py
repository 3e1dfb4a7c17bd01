"""Times options that the fused kernels do not compute, and some that they do, as whole processes."""

import json
import subprocess
import tempfile
import time
import pathlib

import numpy as np

from kernels import ROOT, spread
from processes import ATTN

HEADS, TOKENS, WIDTH = 8, 1024, 64


def cases(random):
    """Name, keys and tensors of each job."""
    def normal(*shape):
        return random.standard_normal(shape, dtype="float32")
    matrix = normal(TOKENS, TOKENS)
    documents = np.arange(TOKENS) % 3
    yield "dropout_mask", {"dropout_p": 0.1}, {"dropout_mask": random.random((HEADS, TOKENS, TOKENS)) < 0.9}
    yield "relative_bias", {"relative": {"max_distance": 128}}, {"relative_bias": normal(32, HEADS)}
    yield "score: cosine", {"score": "cosine"}, {}
    yield "score: l2", {"score": "l2"}, {}
    attention = {"W_score_Q": normal(WIDTH, 16), "W_score_K": normal(WIDTH, 16), "v_score": normal(16)}
    yield "score: additive, A = 16", {"score": "additive"}, attention
    yield "normaliser: sigmoid", {"normaliser": "sigmoid"}, {}
    yield "normaliser: sparsemax", {"normaliser": "sparsemax"}, {}
    yield "normaliser: entmax15", {"normaliser": "entmax15"}, {}
    yield "normaliser: top_k, K = 64", {"normaliser": "top_k", "top_k": 64}, {}
    yield "softmax.axis: all", {"softmax": {"axis": "all"}}, {}
    yield "softmax.precision: bf16", {"softmax": {"precision": "bf16"}}, {}
    yield "three additive tensors", {"bias_rule": "-0.1 * abs(q - k)"}, {"bias": matrix, "mask": matrix}
    yield "alibi with interleaved documents", {"alibi": True}, {"documents": documents, "key_documents": documents}
    yield "path: reference", {"path": "reference"}, {}


def write_job(folder, name, keys, tensors):
    files = {key: f"{name}-{key}.npy" for key in tensors}
    for key, tensor in tensors.items():
        np.save(folder / files[key], tensor)
    given = {key: f"{key}.npy" for key in "QKV"}
    (folder / f"{name}.json").write_text(json.dumps({**given, **keys, **files, "outputs": ["context"]}))


def run(folder, name, *flags):
    return subprocess.run([ATTN, "run", "-q", f"{name}.json", *flags], cwd=folder, check=True,
                          capture_output=True).stdout


def seconds(folder, name):
    start = time.perf_counter()
    run(folder, name, "-o", "context.npy", "--force")
    return time.perf_counter() - start


def measure(arguments):
    rows = {}
    print(f"Time of a process with an option, as a multiple of that without it, .npy to .npy (float32, {HEADS} heads,\n"
          f"{TOKENS} tokens, D={WIDTH}): medians of interleaved runs (minimum to maximum).\n")
    print("| option | computed by | times plain |")
    print("| --- | --- | ---: |")
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        folder = pathlib.Path(name)
        for key in "QKV":
            np.save(folder / f"{key}.npy", random.standard_normal((1, HEADS, TOKENS, WIDTH), dtype="float32"))
        write_job(folder, "plain", {}, {})
        seconds(folder, "plain")
        for number, (option, keys, tensors) in enumerate(cases(random)):
            write_job(folder, str(number), keys, tensors)
            plan = json.loads(run(folder, str(number), "--dry-run", "--format", "json"))
            seconds(folder, str(number))
            times = []
            for _ in range(max(arguments.rounds, 5)):
                plain = seconds(folder, "plain")
                times.append(seconds(folder, str(number)) / plain)
            rows[option] = {"path": plan["path"], "times": times}
            print(f"| {option} | {plan['path']} | {spread(times)} |", flush=True)
    return rows
