"""attn.run()."""

from __future__ import annotations

import json
import math
import warnings
from typing import Any

import numpy as np

from attn._library import LIBRARY
from attn._tensors import Tensor, array_of, is_array, packed, tensor_of


class Error(Exception):
    """A job that cannot be computed. str(error) is the message of the program, a line for each problem.

    exit_code is that of the program: 2 for wrong settings, 65 for invalid data, 66 for a file that does
    not exist, 70 for a bug in attn, 74 for a failure to read, 77 for a file that may not be read."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.exit_code)


class AttnWarning(UserWarning):
    """A job that is valid but probably not what was meant, or NaN in its results."""


def run(*, threads: int | None = None, max_memory: int | str | None = None, nan: str | None = None,
        **job: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Computes attention for one job and returns its outputs by name.

    The keyword arguments are the keys of a job, with the same values as in a job file (docs/formats.md,
    `attn schema`), for example

        Q           (..., L, D) queries        K, V   (..., S, D), (..., S, Dv) keys and values
        embeddings  (L, M), with W_Q, W_K, W_V (M, H D)
        mask, causal, window, mask_rule, bias_rule, mask_tables={"doc": array}, scale, softcap, heads, kv_heads, layout, rotary={"kind": "half"}, ...
        outputs     a list of names; default: scores, weights and context, and output if W_O or W_UV is given

    where B, H, L, S are batches, heads, queries and keys. A tensor is an array of NumPy, of a library with
    DLPack (PyTorch, JAX, ...), or of anything with a buffer; of float16, bfloat16, float32, float64, int8
    to int64, uint8 to uint64 or bool. Nested lists, names of files and random tensors are allowed as in a
    job file. Arrays in the memory of the CPU are read in place if they are contiguous. Other threads run
    during the computation, and may call this function.

    threads     the most threads to use; default: one per processor
    max_memory  the limit of the job's memory in bytes, or as text such as "2G"; default: 90 % of what the
                process could use at the first call
    nan         what to do if an output holds NaN: "warn" (the default), "allow" or "refuse"

    The arrays returned own their memory. Outputs of dtype bfloat16 have the dtype of ml_dtypes if a
    NumPy array had; otherwise they are float32, which holds the same numbers.

    Raises Error with the message and the exit code of the program, BufferError for an array that is on a
    GPU, and TypeError for a value that JSON cannot express. Warns with AttnWarning.
    """
    options, tensors = split_job(job)
    settings = {"threads": threads, "max_memory": max_memory, "nan": nan}
    given = None
    if threads is not None or max_memory is not None or nan is not None:
        given = json_of({name: value for name, value in settings.items() if value is not None})
    return call(json_of(options) if options else None, tensors, given)[0]


def split_job(job: dict[str, Any]) -> tuple[dict[str, Any], list[Tensor]]:
    """The values that are passed on as JSON, and those that are passed on as tensors."""
    options, tensors = {}, []
    for key, value in job.items():
        if "\0" in key:
            raise Error(f"unknown key {key!r}", 65)
        if is_array(value):
            tensors.append(tensor_of(key, value))
        elif isinstance(value, dict):
            arrays = {name: item for name, item in value.items() if is_array(item)}
            tensors += [tensor_of(f"{key}.{name}", item) for name, item in arrays.items()]
            if len(arrays) < len(value) or not value:
                options[key] = {name: item for name, item in value.items() if name not in arrays}
        else:
            options[key] = value
    return options, tensors


def _plain(value: Any) -> Any:
    """A number of NumPy as one of Python, and an array of strings as a list."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no value of a job")


_encode = json.JSONEncoder(allow_nan=False, default=_plain, check_circular=False).encode


def _spelled(value: Any) -> Any:
    """Replaces NaN and infinities by the strings "NaN", "Infinity" and "-Infinity", as in a job."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _spelled(item) for key, item in value.items()}
    return [_spelled(item) for item in value] if isinstance(value, (list, tuple)) else value


def json_of(value: dict[str, Any]) -> bytes:
    try:
        return _encode(value).encode()
    except ValueError:
        return _encode(_spelled(value)).encode()


def call(job: bytes | None, tensors: list[Tensor],
         settings: bytes | None) -> tuple[dict[str, np.ndarray[Any, Any]], int]:
    """The outputs, and the number of bytes of the inputs that libattn had to copy."""
    given = packed(tensors)
    result = LIBRARY.attn_run(job, given.address, len(tensors), settings)
    if not result:
        raise MemoryError("not enough memory for this job")
    try:
        code = LIBRARY.attn_result_code(result)
        if code != 0:
            raise Error(LIBRARY.attn_result_text(result).decode(errors="replace"), code)
        text = LIBRARY.attn_result_warnings(result)
        if text:
            warn(text, stacklevel=4)
        copied = LIBRARY.attn_result_copied(result)
        bfloat16 = bfloat16_of(tensors)
        outputs: dict[str, np.ndarray[Any, Any]] = {}
        while True:
            address = LIBRARY.attn_result_take(result)
            if not address:
                return outputs, copied
            name, array = array_of(address, LIBRARY.attn_tensor_free, bfloat16)
            outputs[name] = array
    finally:
        LIBRARY.attn_result_free(result)


def bfloat16_of(tensors: list[Tensor]) -> np.dtype[Any] | None:
    """NumPy's dtype of bfloat16, if an array has it."""
    for tensor in tensors:
        if tensor.dtype == "bfloat16" and isinstance(tensor.owner, np.ndarray):
            dtype: np.dtype[Any] = tensor.owner.dtype
            return dtype
    return None


def warn(text: bytes, stacklevel: int) -> None:
    for line in text.decode(errors="replace").splitlines():
        warnings.warn(line.removeprefix("warning: "), AttnWarning, stacklevel=stacklevel)
