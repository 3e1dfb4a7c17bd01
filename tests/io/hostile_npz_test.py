"""Broken, lying and merely odd .npz files: each is read correctly or refused."""

import dataclasses
import io
import struct
import zipfile
import zlib

import numpy as np
import pytest

from support.attn import attn
from support.hostile import KINDS, Case, accepted, check_accepted, check_refused, kinds, refused

INVALID = "not a valid .npz archive"


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
    """A member of a zip archive. Each field that is set replaces the true value."""

    name: bytes
    data: bytes = ARRAY  # as stored in the archive
    method: int = 0
    flags: int = 0
    crc: int = None
    size: int = None  # uncompressed
    packed: int = None
    extra: bytes = b""
    extra_length: int = None
    attributes: int = 0
    local_name: bytes = None
    offset: int = None  # of the local header, in the central directory
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
                           offset if self.offset is None else self.offset)
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
    """Adds a zip64 end record before the archive's own, which then refers to it."""
    at = data.rindex(b"PK\5\6")
    size, start = struct.unpack("<2I", data[at + 12:at + 20])
    end64 = b"PK\6\6" + struct.pack("<Q2H2I4Q", 44, 45, 45, 0, 0, count, count, size, start)
    locator = b"PK\6\7" + struct.pack("<IQI", 0, at if offset is None else offset, 1)
    full = struct.pack("<4H2I", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
    return data[:at] + end64 + locator + data[at:at + 4] + full + data[at + 20:]


def local_zip64():
    """A small member as NumPy on Python 3.11.7 writes it: sizes of 2^32 - 1 and a zip64 field."""
    sizes = struct.pack("<2H2Q", 1, 16, len(ARRAY), len(ARRAY))
    local = (b"PK\3\4" + struct.pack("<5H3I2H", 45, 0, 0, 0, 33, zlib.crc32(ARRAY), 2**32 - 1,
                                     2**32 - 1, 5, 20) + b"Q.npy" + sizes + ARRAY)
    central = Entry(b"Q.npy", version=45).central(0)
    return local + central + end(1, len(central), len(local))


def data_descriptor():
    """A member as NumPy writes it to a pipe: the checksum and the sizes follow the data."""
    zeros = struct.pack("<5H3I2H", 20, 8, 0, 0, 33, 0, 0, 0, 5, 0)
    descriptor = b"PK\7\x08" + struct.pack("<3I", zlib.crc32(ARRAY), len(ARRAY), len(ARRAY))
    local = b"PK\3\4" + zeros + b"Q.npy" + ARRAY + descriptor
    central = Entry(b"Q.npy", flags=8).central(0)
    return local + central + end(1, len(central), len(local))


def quoted_overlap():
    """Overlapping members (Fifield 2019): the data of the first one is the whole second one."""
    inner = Entry(b"B.npy").local()
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(inner)},)}}".ljust(117) + "\n"
    outer = Entry(b"A.npy", data=b"\x93NUMPY\1\0\x76\0" + text.encode() + inner)
    body = outer.local()
    central = outer.central(0) + Entry(b"B.npy").central(len(body) - len(inner))
    return body + central + end(2, len(central), len(body))


def good_cases():
    Q = np.arange(6.0)
    stored, packed = Entry(b"Q.npy"), Entry(b"K.npy", deflated(ARRAY), 8, 0, zlib.crc32(ARRAY),
                                            len(ARRAY))
    for kind, name, data, names in [
        (75, "stored", savez(Q=Q), ["Q"]),
        (75, "deflated", savez(np.savez_compressed, Q=Q), ["Q"]),
        (75, "both", archive(stored, packed), ["Q", "K"]),
        (76, "zip64 in the local header", local_zip64(), ["Q"]),
        (77, "data descriptor", data_descriptor(), ["Q"]),
        (79, "another archive inside", archive(stored, Entry(b"in.npz", archive(stored))), ["Q"]),
        (86, "Q and q", archive(stored, Entry(b"q.npy", OTHER)), ["Q", "q"]),
        (99, "attributes of a symbolic link", archive(Entry(b"Q.npy", attributes=0o120777 << 16)), ["Q"]),
        (99, "a folder entry", archive(Entry(b"d/", b"", attributes=0x10), stored), ["Q"]),
        (93, "zip64 end record", with_zip64_end(archive(stored), 1), ["Q"]),
    ]:
        yield Case(kind, name, data, result=names)
    for name in [
            "../../x", "/abs", "a\\b", "C:x", "a/../b", "line\nend", "\x1b[2J", "\u202eright", "x" * 1000
    ]:
        yield Case(87, f"name {name!r:.20}", archive(Entry(name.encode() + b".npy", flags=2048)),
                   result=[name])


def lying_cases():
    size, crc = len(ARRAY), zlib.crc32(ARRAY)
    packed = deflated(ARRAY)
    shared = Entry(b"Q.npy")
    for kind, name, data, error in [
        (80, "overlapping entries", quoted_overlap(), "member 'A.npy' overlaps"),
        (81, "two names for one member", archive(shared, Entry(b"K.npy", offset=0,
                                                               only_central=True)), INVALID),
        (82, "names differ", archive(Entry(b"Q.npy", local_name=b"K.npy")), INVALID),
        (83, "stored, bigger claimed", archive(Entry(b"Q.npy",
                                                     size=size + 1)), "is stored uncompressed"),
        (83, "stored, smaller claimed", archive(Entry(b"Q.npy",
                                                      size=size - 1)), "is stored uncompressed"),
        (83, "deflated, bigger claimed", archive(Entry(b"Q.npy", packed, 8, 0, crc,
                                                       size + 1)), "case83.npz: Q: "),
        (83, "deflated, smaller claimed", archive(Entry(b"Q.npy", packed, 8, 0, crc,
                                                        size - 1)), "case83.npz: Q: "),
        (83, "packed beyond the file", archive(Entry(b"Q.npy", packed=10**6)), INVALID),
        (78, "claims 4 GiB", archive(Entry(b"Q.npy", packed, 8, 0, crc, 2**32 - 2)), "2000 to 1"),
        (78, "claims more than 8 GiB", archive(Entry(b"Q.npy", bytes(5_000_000), 8, 0, crc, 2**32 - 1,
                                                     extra=struct.pack("<2HQ", 1, 8, 2**33 + 1),
                                                     version=45)),
         "to 8589934593 bytes, more than 8589934592; --max-expand raises the limit"),
        (84, "wrong checksum", archive(Entry(b"Q.npy", crc=crc ^ 1)), "CRC error"),
        (84, "wrong checksum, deflated", archive(Entry(b"Q.npy", packed, 8, 0, crc ^ 1,
                                                       size)), "CRC error"),
        (84, "deflate stream broken", archive(Entry(b"Q.npy", b"\xff" * 20, 8, 0, crc,
                                                    size)), ": Q"),
        (85, "a name twice", archive(shared, Entry(b"Q.npy", OTHER)), "case85.npz"),
        (86, "Q and Q.npy", archive(Entry(b"Q"), shared), "'Q' and 'Q.npy'"),
        (87, "65,000 bytes of name", archive(Entry(b"n" * 65000 + b".npy")),
         "name has 65004 bytes"),
        (87, "name that is not UTF-8", archive(Entry(b"Q\xff\xfe.npy", flags=2048)), INVALID),
        (87, "NUL in the name", archive(Entry(b"Q\0.npy")), "contains a NUL"),
        (91, "an end record inside the comment", archive(shared, comment=b"x" + end(0, 0, 0) + b"x"),
         "1 bytes follow its end record"),
        (87, "no name", archive(Entry(b".npy")), "without a name"),
        (88, "encrypted", archive(Entry(b"Q.npy", flags=1)), ": Q: is encrypted"),
        (89, "bzip2", archive(Entry(b"Q.npy", method=12)), ": Q: is compressed with bzip2"),
        (89, "LZMA", archive(Entry(b"Q.npy", method=14)), ": Q: is compressed with LZMA"),
        (89, "deflate64", archive(Entry(b"Q.npy", method=9)), ": Q: is compressed with deflate64"),
        (89, "XZ", archive(Entry(b"Q.npy", method=95)), ": Q: is compressed with XZ"),
        (89, "zstd", archive(Entry(b"Q.npy", method=93)), ": Q: is compressed with zstd"),
        (89, "unknown method", archive(Entry(b"Q.npy", method=77)), "method 77"),
        (90, "several disks", archive(shared, disk=1), INVALID),
        (97, "directory inside a member", archive(shared, start=20), INVALID),
        (98, "extra field too long", archive(Entry(b"Q.npy", extra_length=60000)), INVALID),
        (79, "an archive called .npy", archive(Entry(b"Q.npy",
                                                     archive(shared))), ": Q: not a .npy file"),
        (79, "a broken array", archive(Entry(b"Q.npy", ARRAY[:-1])), ": Q: shape (6,) of float64")
    ]:
        yield Case(kind, name, data, error)


def archive_cases():
    good = archive(Entry(b"Q.npy"))
    yield Case(73, "no array", archive(Entry(b"readme.txt", b"hello")), "has no array of numbers")
    yield Case(74, "empty", end(0, 0, 0), result=[])
    yield Case(92, "two end records", good + end(0, 0, 0), "case92.npz: ")
    yield Case(93, "zip64 end record beyond the file", with_zip64_end(good, 1, 10**9), INVALID)
    yield Case(93, "zip64 end record at its own locator", with_zip64_end(good, 1, len(good)), INVALID)
    yield Case(93, "2^63 members claimed", with_zip64_end(good, 2**63), INVALID)
    yield Case(95, "bytes before the archive", b"#!/bin/sh\n" + good, INVALID)
    for cut in [1, 21, 22, 23, 60, len(good) - 30]:
        yield Case(96, f"{cut} bytes cut off", good[:-cut], INVALID)
    many = [Entry(b"%d.npy" % i, b"") for i in range(70000)]
    yield Case(94, "70,000 members", with_zip64_end(archive(*many), 70000), "has 70000 members")


def names_of(data):
    archive_file = zipfile.ZipFile(io.BytesIO(data))
    assert archive_file.testzip() is None
    return [member[:-4] for member in archive_file.namelist()]


def all_cases():
    return [*good_cases(), *lying_cases(), *archive_cases()]


CASES = all_cases()


def test_every_kind_has_a_case():
    assert kinds(CASES) | {100} == KINDS["npz"]  # 100: test_format_is_detected_by_content


@pytest.mark.parametrize("case", refused(CASES), ids=str)
def test_file_is_refused(tmp_path, case):
    check_refused(tmp_path, case, ".npz")


@pytest.mark.parametrize("case", accepted(CASES), ids=str)
def test_file_is_read(tmp_path, case):
    check_accepted(tmp_path, case, ".npz", names_of)


@pytest.mark.parametrize("name, data", [("array.npz", ARRAY), ("archive.npy", archive(Entry(b"Q.npy")))],
                         ids=["npy called npz", "npz called npy"])
def test_format_is_detected_by_content(tmp_path, name, data):
    """The format is determined by the first bytes of a file, not by its name."""
    (tmp_path / name).write_bytes(data)
    run = attn("convert", name, "-o", "out.npy", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "out.npy").read_bytes() == ARRAY


def test_200_mb_in_194_kb_are_within_the_limits(tmp_path):
    zeros = npy(np.zeros(25_000_000))
    member = Entry(b"Q.npy", deflated(zeros), 8, 0, zlib.crc32(zeros), len(zeros))
    (tmp_path / "large.npz").write_bytes(archive(member))
    run = attn("inspect", "large.npz", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert b"25000000" in run.stdout


def test_inspect_escapes_control_characters_in_names(tmp_path):
    (tmp_path / "names.npz").write_bytes(
        archive(Entry(b"\x1b[2J\n\r.npy"), Entry(b"\xe2\x80\xae.npy", flags=2048)))
    run = attn("inspect", "names.npz", cwd=tmp_path)
    assert run.returncode == 0
    assert not [raw for raw in (b"\x1b", b"\r", b"\xe2\x80\xae") if raw in run.stdout + run.stderr]
