"""Many names with the same hash: std::hash<std::string> of libstdc++ is MurmurHash64A with a fixed seed.

For a first block of eight bytes there is a second one that brings the hash to a chosen state. Two such
pairs of blocks in each of n positions give 2^n names with one hash (Aumasson, Bernstein and Bosslet 2012).
"""

import numpy as np

M, MASK, SEED = 0xC6A4A7935BD1E995, 2**64 - 1, 0xC70F6907
INVERSE = pow(M, -1, 2**64)
HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def mixed(block):
    block = block * M & MASK
    return (block ^ block >> 47) * M & MASK


def unmixed(block):
    """The inverse of mixed(), for an array."""
    block = block * np.uint64(INVERSE)
    block ^= block >> np.uint64(47)
    return block * np.uint64(INVERSE)


def absorbed(state, data):
    """The state of the hash after these blocks."""
    for start in range(0, len(data), 8):
        state = (state ^ mixed(int.from_bytes(data[start:start + 8], "little"))) * M & MASK
    return state


def murmur(data):
    state = absorbed(SEED ^ len(data) * M & MASK, data)
    state = (state ^ state >> 47) * M & MASK
    return state ^ state >> 47


def is_printable(blocks):
    """Which blocks are eight characters that need no escape in JSON."""
    bytes_of = blocks.view(np.uint8).reshape(-1, 8)
    return ((bytes_of > 0x2F) & (bytes_of < 0x7F) & (bytes_of != 0x5C)).all(axis=1)


def pairs_between(state, random):
    """Two pairs of blocks that lead from `state` to a common state, and that state."""
    found = {}
    goal = int(random.integers(2**63))
    while True:
        first = HEX[random.integers(16, size=(60000, 8))].view(np.uint64).ravel()
        block = first * np.uint64(M)
        block = (block ^ block >> np.uint64(47)) * np.uint64(M)
        middle = (np.uint64(state) ^ block) * np.uint64(M)
        second = unmixed(middle ^ np.uint64(goal))
        for i in np.flatnonzero(is_printable(second)):
            found[first[i].tobytes() + second[i].tobytes()] = goal * M & MASK
        if len(found) >= 2:
            return list(found)[:2], goal * M & MASK


def colliding_names(bits, prefix=""):
    """2^bits names of 16 * bits characters after a prefix, whose length is a multiple of 8."""
    random = np.random.default_rng(1)
    state = absorbed(SEED ^ (len(prefix) + 16 * bits) * M & MASK, prefix.encode())
    names = [prefix.encode()]
    for _ in range(bits):
        ways, state = pairs_between(state, random)
        names = [name + way for name in names for way in ways]
    return [name.decode() for name in names]
