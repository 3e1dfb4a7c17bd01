"""Builds and reads safetensors files with plain code, independent of the program."""

import json
import struct


def build(header, data=b"", length=None):
    """The bytes of a file. `header` is a dict, text or bytes; `length` replaces its true length."""
    if isinstance(header, dict):
        header = json.dumps(header)
    text = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(begin, end, dtype="F64", shape=None):
    """The header's entry for a tensor with its data at bytes [begin, end)."""
    return {"dtype": dtype, "shape": [(end - begin) // 8] if shape is None else shape,
            "data_offsets": [begin, end]}


def read(data):
    """({name: (dtype, shape, bytes)}, metadata) of a valid file."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    start = 8 + length
    return {name: (item["dtype"], tuple(item["shape"]),
                   data[start + item["data_offsets"][0]:start + item["data_offsets"][1]])
            for name, item in header.items()}, metadata
