"""Compares attn with all families of cases and prints the table; started by scripts/peers."""

import argparse
import dataclasses
import importlib
import importlib.metadata
import pathlib
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from peers import golden, numpy_text, tensor_text  # noqa: E402
from peers.cases import error_of, run_jobs, within_bound  # noqa: E402

# If a library's own error is larger, the case does not ask it for the same computation.
OWN_LIMIT = {"float64": 1e-6, "float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-1}


@dataclasses.dataclass
class Family:
    title: str
    package: str
    module: str
    cases: str
    onnx_tolerance: bool = False


FAMILIES = {
    "onnx": Family("ONNX Attention node tests", "onnx", "onnx_family", "attention", True),
    "onnx-flex": Family("ONNX FlexAttention node tests", "onnx", "onnx_family", "flex", True),
    "onnx-rotary": Family("ONNX RotaryEmbedding node tests", "onnx", "onnx_family", "rotary", True),
    "torch-sdpa": Family("torch scaled_dot_product_attention", "torch", "torch_family", "sdpa"),
    "torch-mha": Family("torch MultiheadAttention", "torch", "torch_family", "mha"),
    "jax": Family("jax.nn.dot_product_attention", "jax", "jax_family", "attention"),
    "torch-flex": Family("torch FlexAttention", "torch", "torch_family", "flex"),
    "keras-mha": Family("Keras MultiHeadAttention", "keras", "keras_family", "multi_head"),
    "keras-additive": Family("Keras AdditiveAttention", "keras", "keras_family", "additive"),
    **{f"transformers-{name}": Family(f"{title} layer", "transformers", "layers_family", name)
       for name, title in {"bert": "BERT", "gpt2": "GPT-2", "llama": "Llama", "mistral": "Mistral",
                           "gemma2": "Gemma 2", "t5": "T5", "olmo2": "OLMo 2", "cohere": "Cohere",
                           "stablelm": "StableLM", "phi": "Phi", "llama4": "Llama 4",
                           "qwen3_next": "Qwen3-Next", "dbrx": "DBRX", "swinv2": "SwinV2"}.items()},
    "transformers-rotary": Family("Rotary scalings", "transformers", "rotary_family", "scalings"),
}


def less_accurate(case, errors):
    """For each output, attn's error and the library's in this case, and which is larger."""
    texts = []
    for output, ours in errors.items():
        theirs = error_of(case.library[output], case.exact[output])
        side = "equal" if ours == theirs else f"{'attn' if ours > theirs else 'the library'} is less accurate"
        texts.append(f"{output}: attn {ours:.1e}, library {theirs:.1e} ({side})")
    return "; ".join(texts)


def evaluate(dtype, cases, results, onnx_tolerance):
    """The largest error of the cases of one dtype, the tolerance with its reason, and the failed cases.

    The library's own errors may be small by chance. A case that exceeds the tolerance passes if it is within
    the error bound of `attn compare --reference`, where there is one.
    """
    own = max(error_of(c.library[o], c.exact[o]) for c in cases for o in c.library)
    if own > OWN_LIMIT[dtype]:
        sys.exit(f"{cases[0].name}: the library's own error is {own:.1e}")
    if dtype == "float64":
        tolerance, reason = 1e-12, "float64"
    elif onnx_tolerance:  # the test runner of ONNX uses 1e-3
        tolerance, reason = {"float32": (2.0 ** -20, "8 ulp of 1"), "float16": (2.0 ** -10, "1 ulp of 1"),
                             "bfloat16": (2.0 ** -7, "1 ulp of 1")}[dtype]
    else:
        tolerance, reason = 2 * own, f"twice its own error, {own:.1e}"
    worst, failed = 0.0, []
    for case, result in zip(cases, results):
        if isinstance(result, str):
            failed.append((case, result))
            continue
        errors = {o: error_of(result[o], case.exact[o]) for o in case.exact}
        largest = max(errors.values())
        if largest > tolerance:
            message = less_accurate(case, errors)
            if dtype == "float64" or onnx_tolerance or not within_bound(case.job, {o: result[o] for o in case.exact}):
                failed.append((case, message))
                continue
            print(f"{case.name}: within the error bound; {message}", file=sys.stderr)
        worst = max(worst, largest)
    return worst, tolerance, reason, failed


def run_family(name, show, write_golden):
    family = FAMILIES[name]
    began = time.monotonic()
    module = importlib.import_module(f"peers.{family.module}")
    cases = list(getattr(module, family.cases)())
    if not cases:
        sys.exit(f"{name}: no cases")
    made = time.monotonic()
    results = run_jobs([case.job for case in cases])
    version = importlib.metadata.version(family.package)
    green = True
    for dtype in sorted({case.dtype for case in cases}, reverse=True):
        chosen = [(c, r) for c, r in zip(cases, results) if c.dtype == dtype]
        worst, tolerance, reason, failed = evaluate(dtype, *zip(*chosen), family.onnx_tolerance)
        print(f"| {family.title} ({family.package} {version}) | {dtype} | {len(chosen)} "
              f"| {len(chosen) - len(failed)} | {worst:.1e} | {tolerance:.1e}, {reason} |", flush=True)
        for case, message in failed[:show]:
            options = {k: v if not isinstance(v, np.ndarray) else f"{v.dtype}{list(v.shape)}"
                       for k, v in case.job.items()}
            print(f"{case.name}: {message}\n    {options}", file=sys.stderr)
        green = green and not failed
        if write_golden and not failed and dtype == max(c.dtype for c in cases if c.dtype[0] == "f"):
            golden.write(name, [case for case, _ in chosen], tolerance)
    print(f"{name}: {made - began:.1f} s for the library, {time.monotonic() - made:.1f} s for attn",
          file=sys.stderr)
    return green


TEXTS = {"numpy-text": ("text of arrays", "numpy", numpy_text.compare),
         "torch-text": ("text of tensors", "torch", lambda: tensor_text.compare("torch")),
         "jax-text": ("text of arrays", "jax", lambda: tensor_text.compare("jax"))}


def run_text(name, show):
    """Rows for the text of arrays, which is equal or not."""
    title, package, compare = TEXTS[name]
    version = importlib.metadata.version(package)
    counts, differences = compare()
    for kind in sorted(counts):
        texts, equal = counts[kind]
        print(f"| {title} ({package} {version}) | {kind} | {texts} | {equal} | – | equal text |", flush=True)
    for line in differences[:show]:
        print(line, file=sys.stderr)
    return not differences


def main():
    parser = argparse.ArgumentParser(prog="scripts/peers")
    parser.add_argument("--family", action="append", choices=[*FAMILIES, *TEXTS], help="default: all")
    parser.add_argument("--show", type=int, default=3, help="failures to show for each row")
    parser.add_argument("--golden", action="store_true", help="regenerate tests/golden/peers")
    arguments = parser.parse_args()
    print("| family | dtype | cases | passed | largest error | tolerance (reason) |\n"
          "| --- | --- | --- | --- | --- | --- |")
    green = [run_text(name, arguments.show) if name in TEXTS
             else run_family(name, arguments.show, arguments.golden)
             for name in arguments.family or [*FAMILIES, *TEXTS]]
    sys.exit(0 if all(green) else 1)


if __name__ == "__main__":
    main()
