"""Each rule of io/zip_directory.h: archives that break one rule are refused and say which."""

import io
import struct
import zlib

import numpy as np
import pytest

from support.attn import attn

ARRAY = np.arange(6.0)
FULL16, FULL32 = 0xFFFF, 0xFFFFFFFF
UTF8, DESCRIPTOR = 1 << 11, 1 << 3


def npy(array=ARRAY):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


DATA = npy()


def member(name=b"x.npy", data=DATA, **fields):
    """The fields of a stored member. A field named local_... or central_... is different in one header."""
    return {"name": name, "data": data, "flags": 0, "method": 0, "checksum": zlib.crc32(data),
            "packed": len(data), "size": len(data), "extra": b"", "descriptor": b"", "disk": 0, "comment": b"",
            "after": b"", "offset": None, "signature": None} | fields


def field(m, where, key):
    return m.get(f"{where}_{key}", m[key])


def header(m, where):
    get = lambda key: field(m, where, key)
    return struct.pack("<HHHHHIIIHH", 20, get("flags"), get("method"), 0, 0x21, get("checksum"), get("packed"),
                       get("size"), len(get("name")), len(get("extra")))


def archive(*members, before=b"", between=b"", comment=b"", tail=b"", zip64=None, end=None):
    """A zip archive. `end` and `zip64` replace fields of the end records."""
    out, entries = before, b""
    for m in members:
        offset = len(out) if m["offset"] is None else m["offset"]
        out += field(m, "local", "signature") or b"PK\3\4"
        out += header(m, "local") + field(m, "local", "name") + field(m, "local", "extra")
        out += m["data"] + m["descriptor"] + m["after"]
        entries += field(m, "central", "signature") or b"PK\1\2"
        entries += struct.pack("<H", 20) + header(m, "central")
        entries += struct.pack("<HHHII", len(m["comment"]), m["disk"], 0, 0, offset)
        entries += field(m, "central", "name") + field(m, "central", "extra") + m["comment"]
    out += between
    start = len(out)
    record = {"disk": 0, "first_disk": 0, "here": len(members), "members": len(members), "size": len(entries),
              "start": start, "comment": len(comment)} | (end or {})
    out += entries
    if zip64 is not None:
        large = {"length": 44, "disk": 0, "first_disk": 0, "here": len(members), "members": len(members),
                 "size": len(entries), "start": start, "locator_disk": 0, "locator": len(out), "disks": 1,
                 "signature": b"PK\6\6"} | zip64
        out += large["signature"] + struct.pack("<QHHIIQQQQ", large["length"], 45, 45, large["disk"],
                                                large["first_disk"], large["here"], large["members"],
                                                large["size"], large["start"])
        out += b"PK\6\7" + struct.pack("<IQI", large["locator_disk"], large["locator"], large["disks"])
    out += b"PK\5\6" + struct.pack("<HHHHIIH", record["disk"], record["first_disk"], record["here"],
                                   record["members"], record["size"], record["start"], record["comment"])
    return out + comment + tail


def zip64_field(*values, identifier=1):
    return struct.pack("<HH", identifier, 8 * len(values)) + struct.pack(f"<{len(values)}Q", *values)


def unicode_path(name):
    return struct.pack("<HHBI", 0x7075, 5 + len(name), 1, zlib.crc32(b"x.npy")) + name


def described(signature=b"PK\7\x08", form="<III", checksum=zlib.crc32(DATA), packed=len(DATA), size=len(DATA),
              **fields):
    """A member with a data descriptor, and zeros in its local header."""
    descriptor = signature + struct.pack(form, checksum, packed, size)
    return member(flags=DESCRIPTOR, local_checksum=0, local_packed=0, local_size=0, descriptor=descriptor,
                  **fields)


def deflated(data, size=len(DATA), extra=b""):
    squeeze = zlib.compressobj(wbits=-15)
    packed = squeeze.compress(data) + squeeze.flush() + extra
    return member(data=packed, method=8, packed=len(packed), size=size, checksum=zlib.crc32(DATA))


LENGTH = len(DATA)
ACCEPTED = {
    "plain": archive(member()),
    "two members": archive(member(), member(b"y.npy")),
    "a comment": archive(member(), comment=b"a comment"),
    "a comment of a member": archive(member(comment=b"a comment")),
    "a zip64 end record": archive(member(), zip64={}),
    "a zip64 end record that is needed": archive(
        member(), zip64={}, end={"here": FULL16, "members": FULL16, "size": FULL32, "start": FULL32}),
    "sizes in a zip64 field": archive(
        member(packed=FULL32, size=FULL32, extra=zip64_field(LENGTH, LENGTH))),
    "a zip64 field in the directory": archive(
        member(central_packed=FULL32, central_size=FULL32, central_extra=zip64_field(LENGTH, LENGTH))),
    "an unknown field": archive(member(extra=zip64_field(7, identifier=0x9999))),
    "zeros after the fields": archive(member(extra=b"\0\0\0")),
    "the same name in Unicode": archive(member(extra=unicode_path(b"x.npy"))),
    "a descriptor with a signature": archive(described()),
    "a descriptor without a signature": archive(described(signature=b"")),
    "a wide descriptor": archive(described(form="<IQQ")),
    "a wide descriptor without a signature": archive(described(signature=b"", form="<IQQ")),
    "deflated": archive(deflated(DATA)),
}

REFUSED = {
    "no end record": (b"PK\3\4" + bytes(100), b"no end record"),
    "a short end record": (archive(member())[:-3], b"end record is truncated"),
    "a short comment": (archive(member(), end={"comment": 5}), b"end record is truncated"),
    "bytes after the end": (archive(member(), tail=b"abc"), b"3 bytes follow its end record"),
    "another disk": (archive(member(), end={"disk": 1}), b"split over several disks"),
    "another first disk": (archive(member(), end={"first_disk": 1}), b"split over several disks"),
    "fewer members here": (archive(member(), end={"here": 0}), b"split over several disks"),
    "a wrong start": (archive(member(), end={"start": 7}), b"which does not end at byte"),
    "a start past the end": (archive(member(), end={"start": 10 ** 6}), b"which does not end at byte"),
    "too many members": (archive(member(), end={"here": 9, "members": 9}), b"too small for 9 members"),
    "too few members": (archive(member(), member(b"y.npy"), end={"here": 1, "members": 1}),
                        b"bytes after its last entry"),
    "bytes before": (archive(member(), before=b"ab"), b"2 bytes come before its first member"),
    "bytes before the directory": (archive(member(), between=b"ab"), b"2 bytes that belong to no member"),
    "bytes instead of members": (archive(between=b"ab"), b"2 bytes come before its directory"),
    "bytes after a member": (archive(member(after=b"abc"), member(b"y.npy")), b"3 bytes that belong to no member"),
    "a zip64 record elsewhere": (archive(member(), zip64={"locator": 3}), b"no zip64 end record"),
    "no zip64 signature": (archive(member(), zip64={"signature": b"PK\6\5"}), b"no zip64 end record"),
    "a locator without a record": (b"PK\6\7" + bytes(16) + archive()[-22:], b"no zip64 end record"),
    "an extended zip64 record": (archive(member(), zip64={"length": 45}), b"unknown extension"),
    "zip64: another disk": (archive(member(), zip64={"disk": 1}), b"split over several disks"),
    "zip64: another first disk": (archive(member(), zip64={"first_disk": 1}), b"split over several disks"),
    "zip64: locator on another disk": (archive(member(), zip64={"locator_disk": 1}), b"split over several disks"),
    "zip64: two disks": (archive(member(), zip64={"disks": 2}), b"split over several disks"),
    "zip64: fewer members here": (archive(member(), zip64={"here": 0}), b"split over several disks"),
    "zip64: other members": (archive(member(), zip64={"here": 2, "members": 2}), b"two end records differ"),
    "zip64: another size": (archive(member(), zip64={"size": 3}), b"two end records differ"),
    "zip64: another start": (archive(member(), zip64={"start": 3}), b"two end records differ"),
    "no central signature": (archive(member(central_signature=b"PK\1\3")), b"entry 0 of its directory is corrupt"),
    "a central header cut short": (
        archive(member(comment=b"c" * 46), end={"here": 2, "members": 2}), b"entry 1 of its directory is corrupt"),
    "a name with NUL": (archive(member(b"x\0.npy")), b"name contains a NUL"),
    "a name that is not UTF-8": (archive(member(b"\xff.npy", flags=UTF8)), b"marked as UTF-8 but is not"),
    "a member on another disk": (archive(member(disk=1)), b"'x.npy' is on another disk"),
    "a field cut short": (archive(member(extra=struct.pack("<HH", 9, 4) + b"ab")), b"truncated extra field"),
    "bytes after the fields": (archive(member(extra=b"\0\0\1")), b"truncated extra field"),
    "two zip64 fields": (
        archive(member(packed=FULL32, size=FULL32, extra=2 * zip64_field(LENGTH, LENGTH))), b"two zip64 fields"),
    "a short zip64 field": (
        archive(member(packed=FULL32, size=FULL32, extra=zip64_field(LENGTH))), b"truncated zip64 field"),
    "a short name in Unicode": (archive(member(extra=struct.pack("<HH", 0x7075, 3) + b"abc")),
                                b"truncated Unicode name"),
    "another name in Unicode": (archive(member(extra=unicode_path(b"y.npy"))), b"two different names"),
    "a member beyond the members": (archive(member(), member(b"y.npy", offset=10 ** 6)),
                                    b"'y.npy' starts after the members"),
    "overlapping members": (archive(member(), member(b"y.npy", offset=9)), b"overlaps another member"),
    "no local header": (archive(member(local_signature=b"PK\3\5")), b"'x.npy' has no local header"),
    "a local name past the end": (archive(member(local_name=b"x" * 5000 + b".npy", data=b""))[:30] +
                                  archive(member())[30:], b"truncated local header"),
    "another local name": (archive(member(local_name=b"y.npy")), b"different name in its local header"),
    "another local method": (archive(member(local_method=8)), b"different method or different flags"),
    "other local flags": (archive(member(local_flags=UTF8)), b"different method or different flags"),
    "another local checksum": (archive(member(local_checksum=1)), b"different checksum or size in its local"),
    "another local packed size": (archive(member(local_packed=1)), b"different checksum or size in its local"),
    "another local size": (archive(member(local_size=1)), b"different checksum or size in its local"),
    "a size past the directory": (archive(member(packed=LENGTH + 1, size=LENGTH + 1)), b"overlaps what follows it"),
    "no descriptor": (archive(described() | {"descriptor": b""}), b"no data descriptor"),
    "a descriptor with another signature": (archive(described(signature=b"PK\7\x09")), b"no data descriptor"),
    "another checksum in the descriptor": (archive(described(checksum=1)), b"in its data descriptor"),
    "another packed size in the descriptor": (archive(described(packed=1)), b"in its data descriptor"),
    "another size in the descriptor": (archive(described(size=1)), b"in its data descriptor"),
    "the same member twice": (archive(member(), member()), b"two members 'x.npy'"),
    "a wrong checksum": (archive(member(checksum=1)), b"x: CRC error"),
    "data that expands to more": (archive(deflated(DATA + b"more")), b"expands to more than its"),
    "data that expands to less": (archive(deflated(DATA[:-8])), b"ends after"),
    "data that is cut short": (archive(member(data=b"\x4b", method=8, packed=1, size=LENGTH)), b"ends after"),
    "data that is corrupt": (archive(member(data=b"\xff\xff", method=8, packed=2, size=LENGTH)), b"corrupt after"),
    "bytes after the data": (archive(deflated(DATA, extra=b"abc")), b"3 bytes follow its compressed data"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_valid_archive_is_read(name, tmp_path):
    (tmp_path / "in.npz").write_bytes(ACCEPTED[name])
    run = attn("convert", "in.npz", "-o", "out.npz", cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, b"")
    with np.load(tmp_path / "out.npz") as arrays:
        assert np.array_equal(arrays["x"], ARRAY)


@pytest.mark.parametrize("name", REFUSED)
def test_archive_that_breaks_a_rule_is_refused(name, tmp_path):
    data, message = REFUSED[name]
    (tmp_path / "in.npz").write_bytes(data)
    run = attn("convert", "in.npz", "-o", "out.npz", cwd=tmp_path)
    assert run.returncode == 65 and run.stderr.count(b"\n") == 1
    assert message in run.stderr
    assert not (tmp_path / "out.npz").exists()
