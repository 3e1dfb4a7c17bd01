"""PNG files as pixels, with the standard library alone."""

import struct
import zlib


def read_png(data):
    """(width, height, rows), each row a list of (red, green, blue), or (red, green, blue, alpha) of an
    image with a palette; 8 bits without interlace."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "no PNG"
    at, body, head, palette, alpha = 8, b"", None, b"", b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        chunk = data[at + 8:at + 8 + length]
        assert zlib.crc32(kind + chunk) == struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0]
        if kind == b"IHDR":
            head = struct.unpack(">IIBBBBB", chunk)
        elif kind == b"IDAT":
            body += chunk
        elif kind == b"PLTE":
            palette = chunk
        elif kind == b"tRNS":
            alpha = chunk
        at += 12 + length
    width, height = head[:2]
    assert head[2:] in [(8, 2, 0, 0, 0), (8, 3, 0, 0, 0)], f"8-bit RGB or palette expected: {head}"
    pixel = 1 if palette else 3
    raw, stride = zlib.decompress(body), pixel * width
    rows, before = [], bytearray(stride)
    for y in range(height):
        start = y * (stride + 1)
        line = bytearray(raw[start + 1:start + 1 + stride])
        unfilter(raw[start], line, before, pixel)
        if palette:
            rows.append([(*palette[3 * i:3 * i + 3], alpha[i] if i < len(alpha) else 255) for i in line])
        else:
            rows.append(list(zip(line[::3], line[1::3], line[2::3])))
        before = line
    return width, height, rows


def chunks(data):
    """The chunks of a file by their type; of several, the last."""
    at, found = 8, {}
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        found[kind] = data[at + 8:at + 8 + length]
        at += 12 + length
    return found


def unfilter(kind, line, above, pixel):
    if kind == 0:
        return
    if kind == 2:
        line[:] = bytes((x + b) & 255 for x, b in zip(line, above))
        return
    for i in range(len(line)):
        a = line[i - pixel] if i >= pixel else 0
        b = above[i]
        c = above[i - pixel] if i >= pixel else 0
        if kind == 1:
            guess = a
        elif kind == 3:
            guess = (a + b) // 2
        else:
            p = a + b - c
            guess = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
        line[i] = (line[i] + guess) & 255
