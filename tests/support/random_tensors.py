"""Random tensors in .safetensors files, which have bfloat16 too, and attn's text of them."""

import numpy as np

from support import safetensors_file
from support.random_arrays import attn_text, parts_of, random_arrays

DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "int8": "I8", "int16": "I16", "int32": "I32",
          "int64": "I64", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "bool": "BOOL"}
BFLOAT16 = np.dtype([("bfloat16", "<u2")])  # NumPy has none: the bits in a field of this name


def random_tensors(rng, count):
    """Random arrays by name; a fifth of those of float32 become BFLOAT16."""
    tensors = random_arrays(rng, count)
    for name, array in tensors.items():
        if array.dtype == np.float32 and rng.random() < 0.2:
            tensors[name] = (array.reshape(array.shape).view(np.uint32) >> 16).astype(np.uint16).view(BFLOAT16)
    return tensors


def write(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        dtype = "BF16" if array.dtype == BFLOAT16 else DTYPES[array.dtype.name]
        end = len(data) + array.nbytes
        header[name] = safetensors_file.entry(len(data), end, dtype, list(array.shape))
        data += array.tobytes()
    path.write_bytes(safetensors_file.build(header, data))


def styled_text(path, style, options, form=()):
    """attn's text of each tensor of a file by name; `options` are values of flags, or True."""
    flags = [word for name, value in options.items()
             for word in [f"--{name.replace('_', '-')}", *([] if value is True else [value])]]
    return parts_of(attn_text(path, [*form, "--style", style, *flags], {}))
