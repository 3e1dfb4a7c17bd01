"""Tests of attention kernels."""

from __future__ import annotations

import json
import sys
from typing import Any, Mapping, Sequence

from attn._library import LIBRARY
from attn._run import Error, json_of, split_job, warn
from attn._tensors import packed, tensor_of

__all__ = ["assert_attention"]


def _are_strings(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(item, str) for item in value)


_SEEDED = ("context", "output", "weights", "logsumexp")  # outputs of which a job may give the derivative of the loss


def _seeds(arrays: Mapping[str, Any]) -> list[str]:
    return [name for name in _SEEDED if arrays.get(f"grad_{name}") is not None]


def _with_gradients(out: Any, arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The outputs and the gradients of the arrays that require them, all arrays without their history, and a line for
    each gradient that the kernel does not return."""
    usual = "output" if arrays.get("W_O") is not None else "context"
    outputs = dict(out) if isinstance(out, Mapping) else {usual: out}
    seeds = _seeds(arrays)
    if not seeds:
        wanted = [f"grad_{name}" for name in outputs if name in _SEEDED]
        raise ValueError(f"backward=True requires {' or '.join(wanted) or 'grad_context'}, the derivative of a loss with "
                         "respect to out")
    for name in seeds:
        if name not in outputs:
            raise ValueError(f"backward=True: grad_{name} requires {name}, but out is {', '.join(outputs)}")
        if not getattr(outputs[name], "requires_grad", False):
            raise ValueError(f"backward=True: out must be the {name}, a torch.Tensor that requires gradients")
    leaves = {name: array for name, array in arrays.items() if getattr(array, "requires_grad", False)}
    gradients = sys.modules["torch"].autograd.grad(
        [outputs[name] for name in seeds], list(leaves.values()), [arrays[f"grad_{name}"] for name in seeds],
        allow_unused=True)
    missing = [f"grad_{name}: the kernel returns no gradient of {name.lower() if name in ('Q', 'K', 'V') else name}\n"
               for name, x in zip(leaves, gradients) if x is None]
    outputs = {name: x.detach() if getattr(x, "requires_grad", False) else x for name, x in outputs.items()}
    outputs |= {f"grad_{name}": x for name, x in zip(leaves, gradients) if x is not None}
    return outputs, {name: x.detach() if name in leaves else x for name, x in arrays.items()}, missing


def assert_attention(out: Any, q: Any = None, k: Any = None, v: Any = None, *, precision: str | None = None,
                     sums: str | None = None, weights_precision: str | None = None, rtol: float | None = None,
                     atol: float | None = None, ulp: int | None = None, gate: Any = None,
                     preset: str | Sequence[str] | None = None,
                     baseline: bool | float | None = None, max_memory: int | str | None = None, backward: bool = False,
                     **job: Any) -> dict[str, Any]:
    """Asserts that `out` is the attention of q, k and v, apart from the rounding errors of its precision.

    Computes the job in float64 and compares each element with its own error bound, as `attn compare
    --reference` (docs/comparing.md).

    out         the context, (..., L, Dv) as q, or the output if there is a W_O; or a dict of outputs by name, such
                as {"context": ..., "logsumexp": ...}
    q, k, v     (..., L, D), (..., S, D), (..., S, Dv): the arguments of the kernel, as for attn.run(). Leave
                out v if the outputs do not depend on it, and k and v if the job has others: K_pages, ...
    job         other keys of the job: causal, mask, scale, heads, layout, rotary, block_table, ...
    precision   what out was computed in: "f64", "f32", "tf32", "f16" or "bf16"; default: its dtype
    sums        the precision of its sums and softmax; default: "f32", or "f64" if the precision is that
    weights_precision   the type to which its weights are rounded before they multiply v: "f16", "bf16", "e4m3" or
                "e5m2"; default: the precision
    rtol, atol, ulp   tolerances to use instead of the error bounds; those not given are 0
    gate        conditions to use instead, such as "max_abs < 1e-3 and cosine > 0.999": a string or several;
                an array is the job's tensor of that name
    preset      names of the gates of projects to use instead: "fa2", "fa3", "flashmla", "fla", "flashinfer",
                "llama.cpp", "triton", "tt"
    baseline    True: out passes if its largest error is at most twice that of the same formula in its
                precision, plus 1e-5, which is FlashAttention's rule; a number is used instead of 2

    backward    True: also calls the backward pass of out, a torch.Tensor, with grad_context, or grad_output if out is
                the output, and compares the gradients of those among q, k, v and other tensors of the job that
                require them

    Returns the report of `attn compare --json` as a dict. Raises AssertionError with the report as text if an
    element differs; Error as attn.run().
    """
    __tracebackhide__ = True
    if gate is not None and not isinstance(gate, str) and not _are_strings(gate):
        job["gate"], gate = gate, None
    named = {"Q": q, "K": k, "V": v}
    arrays = {name: array for name, array in named.items() if array is not None} | job
    missing: list[str] = []
    if backward:
        out, arrays, missing = _with_gradients(out, arrays)
    outputs = out if isinstance(out, Mapping) else {"": out}
    given = [tensor_of(name, array) for name, array in outputs.items()]
    options, tensors = split_job(arrays)
    settings = {"precision": precision, "sums": sums, "weights_precision": weights_precision, "rtol": rtol,
                "atol": atol, "ulp": ulp, "gate": gate, "preset": preset, "baseline": baseline, "max_memory": max_memory}
    compared, inputs = packed(given), packed(tensors)
    result = LIBRARY.attn_compare(
        compared.address, len(given), json_of(options), inputs.address, len(tensors),
        json_of({name: value for name, value in settings.items() if value is not None}))
    if not result:
        raise MemoryError("not enough memory for this job")
    try:
        code = LIBRARY.attn_result_code(result)
        text = LIBRARY.attn_result_text(result).decode(errors="replace")
        if code > 1:
            raise Error(text, code)
        warn(LIBRARY.attn_result_warnings(result), stacklevel=3)
        if code == 1 or missing:
            raise AssertionError("".join(missing) + text)
        report: dict[str, Any] = json.loads(LIBRARY.attn_result_json(result))
        names = [tensor["name"] or "" for tensor in report["tensors"]]
        if _seeds(arrays) and not any(name == "delta" or name.startswith("grad_") for name in names):
            raise ValueError(f"grad_{_seeds(arrays)[0]} has no effect without backward=True or gradients in out")
        return report
    finally:
        LIBRARY.attn_result_free(result)
