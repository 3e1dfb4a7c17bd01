"""Safetensors files by plain loops: what the tests hold the program to."""

import json
import struct


def build(header, data=b"", length=None):
    """A file: `header` is a dict, a string or bytes; `length` may lie."""
    if isinstance(header, dict):
        header = json.dumps(header)
    text = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(begin, end, dtype="F64", shape=None):
    return {"dtype": dtype, "shape": [(end - begin) // 8] if shape is None else shape,
            "data_offsets": [begin, end]}


def read(data):
    """({name: (dtype, shape, bytes)}, metadata) of a sound file."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    start = 8 + length
    return {name: (item["dtype"], tuple(item["shape"]),
                   data[start + item["data_offsets"][0]:start + item["data_offsets"][1]])
            for name, item in header.items()}, metadata
