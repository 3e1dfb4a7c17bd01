"""Compares attn with all families of cases and prints the table; started by scripts/test-with/peers."""

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
from peers.cases import error_of, fraction_of_bound, run_jobs  # noqa: E402

# If a library's own error is larger, the case does not ask it for the same computation. Gradients are larger sums, and
# norms of short rows amplify errors.
OWN_LIMIT = {"float64": 1e-6, "float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-1}


@dataclasses.dataclass
class Family:
    title: str
    package: str
    module: str
    cases: str
    onnx_tolerance: bool = False
    amplified: float = 1  # times OWN_LIMIT


FAMILIES = {
    "onnx": Family("ONNX Attention node tests", "onnx", "onnx_family", "attention", True),
    "onnx-flex": Family("ONNX FlexAttention node tests", "onnx", "onnx_family", "flex", True),
    "onnx-rotary": Family("ONNX RotaryEmbedding node tests", "onnx", "onnx_family", "rotary", True),
    "torch-sdpa": Family("torch scaled_dot_product_attention", "torch", "torch_family", "sdpa"),
    "torch-paged": Family("torch scaled_dot_product_attention of keys in pages", "torch", "torch_family", "paged"),
    "torch-varlen": Family("torch varlen_attn, with a kernel for processors", "torch", "torch_family", "varlen"),
    "torch-dropout": Family("torch attention with dropout", "torch", "torch_family", "dropout"),
    "torch-mha": Family("torch MultiheadAttention", "torch", "torch_family", "mha"),
    "torch-grad-sdpa": Family("torch scaled_dot_product_attention, gradients", "torch", "torch_gradients", "sdpa", amplified=10),
    "torch-grad": Family("torch operations, gradients", "torch", "torch_gradients", "options", amplified=100),
    "torch-grad-mha": Family("torch MultiheadAttention, gradients", "torch", "torch_gradients", "mha", amplified=10),
    "jax": Family("jax.nn.dot_product_attention", "jax", "jax_family", "attention"),
    "jax-grad": Family("jax.nn.dot_product_attention, gradients", "jax", "jax_gradients", "attention", amplified=10),
    "jax-grad-layouts": Family("jax.numpy operations, gradients", "jax", "jax_gradients", "layouts", amplified=10),
    "torch-flex": Family("torch FlexAttention", "torch", "torch_family", "flex"),
    "torch-bias-rule": Family("torch FlexAttention, biases as text", "torch", "torch_family", "bias_rule"),
    **{f"flashinfer-{name}": Family(f"FlashInfer references, {title}", "flashinfer-python", "flashinfer_family", name)
       for name, title in {"paged": "pages", "ragged": "packed sequences", "latent": "latent attention",
                           "trtllm": "TensorRT-LLM operators"}.items()},
    "keras-mha": Family("Keras MultiHeadAttention", "keras", "keras_family", "multi_head"),
    "keras-additive": Family("Keras AdditiveAttention", "keras", "keras_family", "additive"),
    **{f"transformers-{name}": Family(f"{title} layer", "transformers", "layers_family", name)
       for name, title in {"bert": "BERT", "gpt2": "GPT-2", "llama": "Llama", "mistral": "Mistral",
                           "gemma2": "Gemma 2", "t5": "T5", "olmo2": "OLMo 2", "cohere": "Cohere",
                           "stablelm": "StableLM", "phi": "Phi", "llama4": "Llama 4",
                           "qwen3_next": "Qwen3-Next", "dbrx": "DBRX", "swinv2": "SwinV2"}.items()},
    "transformers-rotary": Family("Rotary scalings", "transformers", "rotary_family", "scalings"),
}


class Row:
    """The judgement on the cases of one dtype.

    For float64, errors are at most 1e-12. For other dtypes, results are within the error bound of `attn compare
    --reference`: the library's own errors may be small by chance. They do not exceed OWN_LIMIT either, because
    the bound is that of attn's float64 result. Twice the library's largest error is the limit only for jobs
    without a bound. ONNX has results in one dtype only; its test runner allows 1e-3."""

    def __init__(self, dtype, cases, results, onnx_tolerance=False, amplified=1):
        self.own_limit = amplified * OWN_LIMIT[dtype]
        self.dtype, self.cases, self.failed = dtype, cases, []  # failed: cases with messages
        self.of_library = max(error_of(c.library[o], c.exact[o]) for c in cases for o in c.library)
        if self.of_library > self.own_limit:
            sys.exit(f"{cases[0].name}: the library's own error is {self.of_library:.1e}")
        self.worst = 0.0  # attn's largest error
        self.tolerance, self.reason = self._tolerance(onnx_tolerance)
        self.fraction, self.bounded = 0.0, 0  # the largest part of the bound, and the number of cases with one
        self.less_accurate = {"attn": 0, "library": 0}
        for case, result in zip(cases, results):
            message = result if isinstance(result, str) else self._judge(case, result, dtype, onnx_tolerance)
            if message:
                self.failed.append((case, message))

    def _tolerance(self, onnx_tolerance):
        if self.dtype == "float64":
            return 1e-12, "float64"
        if onnx_tolerance:
            return {"float32": (2.0 ** -20, "8 ulp of 1"), "float16": (2.0 ** -10, "1 ulp of 1"),
                    "bfloat16": (2.0 ** -7, "1 ulp of 1")}[self.dtype]
        return 2 * self.of_library, "twice the library's"

    def _judge(self, case, result, dtype, onnx_tolerance):
        """The message about a failure, otherwise ""."""
        errors = {o: error_of(result[o], case.exact[o]) for o in case.exact}
        self.worst = max(self.worst, *errors.values())
        sides = {o: {"attn": ours, "library": error_of(case.library[o], case.exact[o])}
                 for o, ours in errors.items()}
        largest = {side: max(both[side] for both in sides.values()) for side in self.less_accurate}
        if largest["attn"] != largest["library"]:
            self.less_accurate[max(largest, key=largest.get)] += 1
        message = "; ".join(f"{o}: attn {both['attn']:.1e}, library {both['library']:.1e}" for o, both in sides.items())
        if dtype != "float64" and not onnx_tolerance:
            fraction = fraction_of_bound(case.job, {o: result[o] for o in case.exact}, dtype)
            if fraction is not None:
                self.bounded, self.fraction = self.bounded + 1, max(self.fraction, fraction)
                exceeded = fraction > 1 or largest["attn"] > self.own_limit
                return f"{fraction:.2g} of the error bound; {message}" if exceeded else ""
        return message if largest["attn"] > self.tolerance else ""

    def __str__(self):
        limits = [f"error bound (largest error: {self.fraction:.2g} of it)"] if self.bounded else []
        if self.bounded < len(self.cases):
            limits.append(f"{self.tolerance:.1e}, {self.reason}")
            if self.bounded:
                limits[-1] += f", for {len(self.cases) - self.bounded} cases without a bound"
        of_library, sides = "–", "–"
        if self.dtype != "float64" and self.of_library > 0:  # otherwise the library's results are the exact ones
            of_library, sides = f"{self.of_library:.1e}", "{attn}, {library}".format(**self.less_accurate)
        return (f"{self.dtype} | {len(self.cases)} | {len(self.cases) - len(self.failed)} | {self.worst:.1e} "
                f"| {of_library} | {'; '.join(limits)} | {sides}")


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
        row = Row(dtype, *zip(*chosen), family.onnx_tolerance, family.amplified)
        print(f"| {family.title} ({family.package} {version}) | {row} |", flush=True)
        for case, message in row.failed[:show]:
            options = {k: v if not isinstance(v, np.ndarray) else f"{v.dtype}{list(v.shape)}"
                       for k, v in case.job.items()}
            print(f"{case.name}: {message}\n    {options}", file=sys.stderr)
        green = green and not row.failed
        if write_golden and not row.failed and dtype == max(c.dtype for c in cases if c.dtype[0] == "f"):
            golden.write(name, [case for case, _ in chosen], row.tolerance)
    print(f"{name}: {made - began:.1f} s for the library, {time.monotonic() - made:.1f} s for attn",
          file=sys.stderr)
    return green


def module_compare(name):
    return lambda: importlib.import_module(f"peers.{name}").compare()


# Families whose results are equal or not: title, package, comparison, what is equal.
EQUAL = {"numpy-text": ("text of arrays", "numpy", numpy_text.compare, "text"),
         "torch-text": ("text of tensors", "torch", lambda: tensor_text.compare("torch"), "text"),
         "jax-text": ("text of arrays", "jax", lambda: tensor_text.compare("jax"), "text"),
         "mask-rules": ("masks as text", "torch", module_compare("mask_rules"), "masks"),
         "stored-numbers": ("8-bit and 4-bit numbers", "torch", module_compare("stored_numbers"), "numbers"),
         "sentences": ("the way from a sentence to a page", "transformers", module_compare("sentences"), "weights, within 5e-6"),
         "torch-streams": ("random tensors", "torch", module_compare("torch_streams"), "bits"),
         "jax-streams": ("random tensors", "jax", module_compare("jax_streams"), "bits")}


def run_equal(name, show):
    """Rows for results that are equal or not."""
    title, package, compare, what = EQUAL[name]
    version = importlib.metadata.version(package)
    counts, differences = compare()
    for kind in sorted(counts):
        results, equal = counts[kind]
        print(f"| {title} ({package} {version}) | {kind} | {results} | {equal} | – | – | equal {what} | – |", flush=True)
    for line in differences[:show]:
        print(line, file=sys.stderr)
    return not differences


def main():
    parser = argparse.ArgumentParser(prog="scripts/test-with/peers")
    parser.add_argument("--family", action="append", choices=[*FAMILIES, *EQUAL], help="default: all")
    parser.add_argument("--show", type=int, default=3, help="failures to show for each row")
    parser.add_argument("--golden", action="store_true", help="regenerate tests/golden/peers")
    arguments = parser.parse_args()
    print("| family | dtype | cases | passed | attn's largest error | the library's | limit | less accurate: attn, library |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- |")
    green = [run_equal(name, arguments.show) if name in EQUAL
             else run_family(name, arguments.show, arguments.golden)
             for name in arguments.family or [*FAMILIES, *EQUAL]]
    sys.exit(0 if all(green) else 1)


if __name__ == "__main__":
    main()
