"""The functions of libattn (include/attn/attn.h)."""

from __future__ import annotations

import ctypes
import os
import pathlib
import sysconfig

_NAME = "libattn.so.0"


def _candidates() -> list[str]:
    """Where the library may be. A wheel installs it in the folder lib next to bin."""
    given = os.environ.get("ATTN_LIBRARY")
    if given:
        return [given]
    packages = pathlib.Path(__file__).resolve().parents[1]  # such as lib/python3.11/site-packages
    folders = [packages.parents[1], packages.parents[2] / "lib", packages / "lib",
               pathlib.Path(sysconfig.get_path("data")) / "lib"]
    return [str(folder / _NAME) for folder in folders if (folder / _NAME).exists()] + [_NAME]


def _load() -> ctypes.CDLL:
    """The library. Calls release the global interpreter lock."""
    library = ctypes.CDLL(_candidates()[0])
    pointer, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    for name, result, arguments in [
        ("attn_version", text, []),
        ("attn_run", pointer, [text, pointer, size, text]),
        ("attn_compare", pointer, [pointer, size, text, pointer, size, text]),
        ("attn_result_code", ctypes.c_int, [pointer]),
        ("attn_result_text", text, [pointer]),
        ("attn_result_warnings", text, [pointer]),
        ("attn_result_json", text, [pointer]),
        ("attn_result_copied", size, [pointer]),
        ("attn_result_take", pointer, [pointer]),
        ("attn_result_free", None, [pointer]),
        ("attn_tensor_free", None, [pointer]),
    ]:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


LIBRARY = _load()
__version__: str = LIBRARY.attn_version().decode()
