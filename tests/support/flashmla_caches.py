"""FlashMLA's 8-bit caches, written and read byte by byte as its documentation describes them."""

import numpy as np

from support.stored_jobs import BYTES, e4m3, e8m0

POSITIVE = e4m3(BYTES[:127])  # ascending, up to 448


def e4m3_codes(x):
    """The nearest code, of two the even one."""
    above = np.clip(np.searchsorted(POSITIVE, np.abs(x)), 1, 126)
    low, high = np.abs(x) - POSITIVE[above - 1], POSITIVE[above] - np.abs(x)
    code = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above)
    return (code + np.where(np.signbit(x), 128, 0)).astype(np.uint8)


def bf16_bits(x):
    bits = x.astype("<f4").view("<u4")
    return (bits + 0x7fff + (bits >> 16 & 1) >> 16).astype("<u2")


def bf16(bits):
    return (bits.astype("<u4") << 16).view("<f4")


def with_scales(x, columns):
    """Codes of x (..., D), and the exponents of the powers of two that scale `columns` of them each."""
    blocks = x.reshape(*x.shape[:-1], -1, columns)
    exponents = np.ceil(np.log2(np.maximum(np.abs(blocks).max(-1) / 448, 1e-4))).astype(int)
    return e4m3_codes(np.ldexp(blocks, -exponents[..., None])).reshape(x.shape), exponents


def as_bytes(x):
    return np.ascontiguousarray(x).view(np.uint8)


def v32(x):
    """(P, page size, 576) -> (P, page size, 656)."""
    codes, exponents = with_scales(x[..., :512], 128)
    return np.concatenate([codes, as_bytes(np.ldexp(1.0, exponents).astype("<f4")), as_bytes(bf16_bits(x[..., 512:]))], -1)


def model1(x, padded):
    """(P, page size, 512) -> (P, bytes of a page); the eighth byte of the scales is arbitrary."""
    codes, exponents = with_scales(x[..., :448], 64)
    tokens = np.concatenate([codes, as_bytes(bf16_bits(x[..., 448:]))], -1).reshape(len(x), -1)
    scales = np.concatenate([exponents + 127, np.full((*x.shape[:2], 1), 255)], -1).astype(np.uint8).reshape(len(x), -1)
    page = np.concatenate([tokens, scales], -1)
    spare = -page.shape[1] % 576 if padded else 0
    return np.concatenate([page, np.full((len(x), spare), 255, np.uint8)], -1)


def numbers_of_v32(cache):
    scales = np.ascontiguousarray(cache[..., 512:528]).view("<f4")
    rotary = bf16(np.ascontiguousarray(cache[..., 528:]).view("<u2"))
    return np.concatenate([e4m3(cache[..., :512]).astype("f4") * scales.repeat(128, -1), rotary], -1)


def numbers_of_model1(pages, size):
    tokens = pages[:, :576 * size].reshape(len(pages), size, 576)
    scales = e8m0(pages[:, 576 * size:584 * size].reshape(len(pages), size, 8)[..., :7]).astype("f4")
    rotary = bf16(np.ascontiguousarray(tokens[..., 448:]).view("<u2"))
    return np.concatenate([e4m3(tokens[..., :448]).astype("f4") * scales.repeat(64, -1), rotary], -1)
