"""PNG files as pixels, with the standard library alone."""

import struct
import zlib


def read_png(data):
    """(width, height, rows), each row a list of (red, green, blue); 8-bit RGB without interlace."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "no PNG"
    at, body, head = 8, b"", None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        chunk = data[at + 8:at + 8 + length]
        assert zlib.crc32(kind + chunk) == struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0]
        if kind == b"IHDR":
            head = struct.unpack(">IIBBBBB", chunk)
        elif kind == b"IDAT":
            body += chunk
        at += 12 + length
    width, height = head[:2]
    assert head[2:] == (8, 2, 0, 0, 0), f"8-bit RGB expected: {head}"
    raw, stride = zlib.decompress(body), 3 * width
    rows, before = [], bytearray(stride)
    for y in range(height):
        start = y * (stride + 1)
        line = bytearray(raw[start + 1:start + 1 + stride])
        unfilter(raw[start], line, before)
        rows.append([tuple(line[i:i + 3]) for i in range(0, stride, 3)])
        before = line
    return width, height, rows


def unfilter(kind, line, above):
    for i in range(len(line)):
        a = line[i - 3] if i >= 3 else 0
        b = above[i]
        c = above[i - 3] if i >= 3 else 0
        if kind == 1:
            guess = a
        elif kind == 2:
            guess = b
        elif kind == 3:
            guess = (a + b) // 2
        elif kind == 4:
            p = a + b - c
            guess = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
        else:
            guess = 0
        line[i] = (line[i] + guess) & 255
