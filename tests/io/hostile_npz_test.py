#!/usr/bin/env python3
"""Broken, lying and merely odd .npz files: each is read right or refused by name."""

import dataclasses
import io
import pathlib
import struct
import sys
import tempfile
import zipfile
import zlib

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from attn import Checks, attn  # noqa: E402
from hostile import Row, run_rows  # noqa: E402

UNSOUND = "not a sound .npz archive"


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


ARRAY = npy(np.arange(6.0))
OTHER = npy(np.arange(3))


def savez(save=np.savez, **arrays):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def deflated(data):
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


@dataclasses.dataclass
class Entry:
    """A member as a zip archive has it, every field of which may lie."""

    name: bytes
    data: bytes = ARRAY  # as it stands in the archive
    method: int = 0
    flags: int = 0
    crc: int = None
    size: int = None  # of what it expands to
    packed: int = None
    extra: bytes = b""
    extra_length: int = None
    attributes: int = 0
    local_name: bytes = None
    at: int = None  # an offset other than its own
    only_central: bool = False
    version: int = 20

    def common(self, name):
        crc = zlib.crc32(self.data) if self.crc is None else self.crc
        size = len(self.data) if self.size is None else self.size
        packed = len(self.data) if self.packed is None else self.packed
        extra = len(self.extra) if self.extra_length is None else self.extra_length
        return struct.pack("<5H3I2H", self.version, self.flags, self.method, 0, 33, crc, packed,
                           size, len(name), extra)

    def local(self):
        name = self.name if self.local_name is None else self.local_name
        return b"PK\3\4" + self.common(name) + name + self.extra + self.data

    def central(self, offset):
        tail = struct.pack("<3H2I", 0, 0, 0, self.attributes,
                           offset if self.at is None else self.at)
        return b"PK\1\2" + struct.pack("<H", 0x314) + self.common(
            self.name) + tail + self.name + self.extra


def end(count, size, start, comment=b"", disk=0):
    return b"PK\5\6" + struct.pack("<4H2IH", disk, disk, count, count, size, start,
                                   len(comment)) + comment


def archive(*entries, comment=b"", disk=0, start=None, count=None):
    body, central = bytearray(), bytearray()
    for entry in entries:
        central += entry.central(len(body))
        body += b"" if entry.only_central else entry.local()
    count = min(len(entries), 0xFFFF) if count is None else count
    return bytes(body + central + end(count, len(central),
                                      len(body) if start is None else start, comment, disk))


def with_zip64_end(data, count, offset=None):
    """The archive with a zip64 end put before its own, which then defers to it."""
    at = data.rindex(b"PK\5\6")
    size, start = struct.unpack("<2I", data[at + 12:at + 20])
    end64 = b"PK\6\6" + struct.pack("<Q2H2I4Q", 44, 45, 45, 0, 0, count, count, size, start)
    locator = b"PK\6\7" + struct.pack("<IQI", 0, at if offset is None else offset, 1)
    full = struct.pack("<4H2I", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
    return data[:at] + end64 + locator + data[at:at + 4] + full + data[at + 20:]


def local_zip64():
    """As NumPy on Python 3.11.7 writes a small member: 2^32 - 1 and a zip64 field up front."""
    sizes = struct.pack("<2H2Q", 1, 16, len(ARRAY), len(ARRAY))
    local = (b"PK\3\4" + struct.pack("<5H3I2H", 45, 0, 0, 0, 33, zlib.crc32(ARRAY), 2**32 - 1,
                                     2**32 - 1, 5, 20) + b"Q.npy" + sizes + ARRAY)
    central = Entry(b"Q.npy", version=45).central(0)
    return local + central + end(1, len(central), len(local))


def data_descriptor():
    """As NumPy writes to a pipe: checksum and sizes behind the data."""
    zeros = struct.pack("<5H3I2H", 20, 8, 0, 0, 33, 0, 0, 0, 5, 0)
    descriptor = b"PK\7\x08" + struct.pack("<3I", zlib.crc32(ARRAY), len(ARRAY), len(ARRAY))
    local = b"PK\3\4" + zeros + b"Q.npy" + ARRAY + descriptor
    central = Entry(b"Q.npy", flags=8).central(0)
    return local + central + end(1, len(central), len(local))


def quoted_overlap():
    """Fifield's bomb: the data of the first member is the second member, header and all."""
    inner = Entry(b"B.npy").local()
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(inner)},)}}".ljust(117) + "\n"
    outer = Entry(b"A.npy", data=b"\x93NUMPY\1\0\x76\0" + text.encode() + inner)
    body = outer.local()
    central = outer.central(0) + Entry(b"B.npy").central(len(body) - len(inner))
    return body + central + end(2, len(central), len(body))


def good_rows():
    Q = np.arange(6.0)
    stored, packed = Entry(b"Q.npy"), Entry(b"K.npy", deflated(ARRAY), 8, 0, zlib.crc32(ARRAY),
                                            len(ARRAY))
    for number, name, data, names in [
        (75, "stored", savez(Q=Q), ["Q"]), (75, "deflated", savez(np.savez_compressed, Q=Q), ["Q"]),
        (75, "both", archive(stored, packed), ["Q", "K"]),
        (76, "zip64 in the local header", local_zip64(), ["Q"]),
        (77, "data descriptor", data_descriptor(), ["Q"]),
        (79, "another archive inside", archive(stored, Entry(b"in.npz", archive(stored))), ["Q"]),
        (86, "Q and q", archive(stored, Entry(b"q.npy", OTHER)), ["Q", "q"]),
        (99, "attributes of a link", archive(Entry(b"Q.npy", attributes=0o120777 << 16)), ["Q"]),
        (99, "a folder beside", archive(Entry(b"d/", b"", attributes=0x10), stored), ["Q"]),
        (93, "zip64 end", with_zip64_end(archive(stored), 1), ["Q"])
    ]:
        yield Row(number, name, data, gives=names)
    for name in [
            "../../x", "/abs", "a\\b", "C:x", "a/../b", "line\nend", "\u202eright", "x" * 1000
    ]:
        yield Row(87,
                  f"name {name!r:.20}",
                  archive(Entry(name.encode() + b".npy", flags=2048)),
                  gives=[name])
    yield Row(87, "NUL in the name", archive(Entry(b"Q\0.npy")), gives=["Q "])
    inner_end = end(0, 0, 0)
    yield Row(91,
              "an end inside the comment",
              archive(stored, comment=b"x" + inner_end + b"x"),
              gives=["Q"])


def lying_rows():
    size, crc = len(ARRAY), zlib.crc32(ARRAY)
    packed = deflated(ARRAY)
    shared = Entry(b"Q.npy")
    for number, name, data, says in [
        (80, "overlapping entries", quoted_overlap(), ": B: overlaps"),
        (81, "two names for one member", archive(shared, Entry(b"K.npy", at=0,
                                                               only_central=True)), UNSOUND),
        (82, "names differ", archive(Entry(b"Q.npy", local_name=b"K.npy")), UNSOUND),
        (83, "stored, bigger claimed", archive(Entry(b"Q.npy",
                                                     size=size + 1)), "is stored as it is"),
        (83, "stored, smaller claimed", archive(Entry(b"Q.npy",
                                                      size=size - 1)), "is stored as it is"),
        (83, "deflated, bigger claimed", archive(Entry(b"Q.npy", packed, 8, 0, crc,
                                                       size + 1)), "case83.npz: Q: "),
        (83, "deflated, smaller claimed", archive(Entry(b"Q.npy", packed, 8, 0, crc,
                                                        size - 1)), "case83.npz: Q: "),
        (83, "packed beyond the file", archive(Entry(b"Q.npy", packed=10**6)), UNSOUND),
        (78, "claims 4 GiB", archive(Entry(b"Q.npy", packed, 8, 0, crc, 2**32 - 2)), "2000 to 1"),
        (78, "claims more than 8 GiB", archive(Entry(b"Q.npy", bytes(5_000_000), 8, 0, crc, 2**32 - 1,
                                                     extra=struct.pack("<2HQ", 1, 8, 2**33 + 1),
                                                     version=45)),
         "to 8589934593 bytes, more than 8589934592; --max-expand raises that"),
        (84, "wrong checksum", archive(Entry(b"Q.npy", crc=crc ^ 1)), "CRC error"),
        (84, "wrong checksum, deflated", archive(Entry(b"Q.npy", packed, 8, 0, crc ^ 1,
                                                       size)), "CRC error"),
        (84, "deflate stream broken", archive(Entry(b"Q.npy", b"\xff" * 20, 8, 0, crc,
                                                    size)), ": Q"),
        (85, "a name twice", archive(shared, Entry(b"Q.npy", OTHER)), "case85.npz"),
        (86, "Q and Q.npy", archive(Entry(b"Q"), shared), "'Q' and 'Q.npy'"),
        (87, "65,000 bytes of name", archive(Entry(b"n" * 65000 + b".npy")),
         "name has 65004 bytes"),
        (87, "name that is not UTF-8", archive(Entry(b"Q\xff\xfe.npy", flags=2048)), UNSOUND),
        (87, "escape in a UTF-8 name", archive(Entry(b"\x1b[2J.npy", flags=2048)), UNSOUND),
        (87, "no name", archive(Entry(b".npy")), "without a name"),
        (88, "encrypted", archive(Entry(b"Q.npy", flags=1)), ": Q: is encrypted"),
        (89, "bzip2", archive(Entry(b"Q.npy", method=12)), ": Q: is compressed with bzip2"),
        (89, "LZMA", archive(Entry(b"Q.npy", method=14)), ": Q: is compressed with LZMA"),
        (89, "deflate64", archive(Entry(b"Q.npy", method=9)), ": Q: is compressed with deflate64"),
        (89, "XZ", archive(Entry(b"Q.npy", method=95)), ": Q: is compressed with XZ"),
        (89, "zstd", archive(Entry(b"Q.npy", method=93)), ": Q: is compressed with zstd"),
        (89, "unknown method", archive(Entry(b"Q.npy", method=77)), "method 77"),
        (90, "several disks", archive(shared, disk=1), UNSOUND),
        (97, "directory inside a member", archive(shared, start=20), UNSOUND),
        (98, "extra field too long", archive(Entry(b"Q.npy", extra_length=60000)), UNSOUND),
        (79, "an archive called .npy", archive(Entry(b"Q.npy",
                                                     archive(shared))), ": Q: not a .npy file"),
        (79, "a broken array", archive(Entry(b"Q.npy", ARRAY[:-1])), ": Q: shape (6,) of float64")
    ]:
        yield Row(number, name, data, says)


def archive_rows():
    good = archive(Entry(b"Q.npy"))
    yield Row(73, "no array", archive(Entry(b"readme.txt", b"hello")), "holds no .npy member")
    yield Row(74, "empty", end(0, 0, 0), "case74.npz: ")
    yield Row(92, "two ends", good + end(0, 0, 0), "case92.npz: ")
    yield Row(93, "zip64 end beyond the file", with_zip64_end(good, 1, 10**9), UNSOUND)
    yield Row(93, "zip64 end that is itself", with_zip64_end(good, 1, len(good)), UNSOUND)
    yield Row(93, "2^63 members claimed", with_zip64_end(good, 2**63), UNSOUND)
    yield Row(95, "bytes before the archive", b"#!/bin/sh\n" + good, UNSOUND)
    for cut in [1, 21, 22, 23, 60, len(good) - 30]:
        yield Row(96, f"{cut} bytes cut off", good[:-cut], UNSOUND)
    many = [Entry(b"%d.npy" % i, b"") for i in range(70000)]
    yield Row(94, "70,000 members", with_zip64_end(archive(*many), 70000), "has 70000 members")


def other_formats(checks):
    """100: what a file is, its first bytes say, not its name."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "array.npz").write_bytes(ARRAY)
        (folder / "archive.npy").write_bytes(archive(Entry(b"Q.npy")))
        for source in ["array.npz", "archive.npy"]:
            run = attn("convert", source, "-o", f"{source}.out.npy", cwd=folder)
            if checks.check(run.returncode == 0, f"100 {source}: {run.stderr}"):
                checks.check((folder / f"{source}.out.npy").read_bytes() == ARRAY,
                             f"100 {source}: value")


def bombs(checks):
    """78: 200 MB in 194 kB is within the limits; names are shown, not obeyed, by inspect."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        zeros = npy(np.zeros(25_000_000))
        entry = Entry(b"Q.npy", deflated(zeros), 8, 0, zlib.crc32(zeros), len(zeros))
        (folder / "bomb.npz").write_bytes(archive(entry))
        run = attn("inspect", "bomb.npz", cwd=folder)
        checks.check(run.returncode == 0 and b"25000000" in run.stdout, f"78 bomb: {run.stderr}")
        (folder / "names.npz").write_bytes(
            archive(Entry(b"\x1b[2J\n\r.npy"), Entry(b"\xe2\x80\xae.npy", flags=2048)))
        run = attn("inspect", "names.npz", cwd=folder)
        raw = [
            mark for mark in [b"\x1b", b"\r", b"\xe2\x80\xae"] if mark in run.stdout + run.stderr
        ]
        checks.check(run.returncode == 0 and not raw, f"87 inspect: {run.returncode}, raw {raw}")


def names_of(data):
    archive_file = zipfile.ZipFile(io.BytesIO(data))
    assert archive_file.testzip() is None
    return [member[:-4] for member in archive_file.namelist()]


def all_rows():
    return [*good_rows(), *lying_rows(), *archive_rows()]


NUMBERS = {100} | {row.number for row in all_rows()}


def main():
    checks = Checks("hostile .npz")
    rows = all_rows()
    run_rows(checks, rows, ".npz", names_of)
    other_formats(checks)
    bombs(checks)
    checks.finish()


if __name__ == "__main__":
    main()
