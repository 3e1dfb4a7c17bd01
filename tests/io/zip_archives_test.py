"""Damaged and contradictory .npz archives: attn reads the arrays that NumPy reads, or refuses the file."""

import io
import random
import struct
import sys
import zipfile

import numpy as np
import pytest

from support.attn import assert_error, attn, attn_and_peak, under_sanitizer
from support.collisions import colliding_names


def npz(save=np.savez, **arrays):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


class Pipe(io.RawIOBase):
    """A file that cannot seek: zipfile writes data descriptors."""

    def __init__(self):
        super().__init__()
        self.data = b""

    def writable(self):
        return True

    def write(self, data):
        self.data += bytes(data)
        return len(data)


def npz_to_pipe(save=np.savez, **arrays):
    pipe = Pipe()
    save(pipe, **arrays)
    return pipe.data


A, B = np.arange(6.0), np.arange(6.0) + 10
END = b"PK\5\6"


def converted(data, folder):
    """What attn reads: {name: array}, or None where it refuses the file."""
    (folder / "in.npz").write_bytes(data)
    run = attn("convert", "in.npz", "-o", "out.npz", "--force", cwd=folder)
    if run.returncode != 0:
        assert run.returncode == 65 and run.stderr.count(b"\n") == 1, run.stderr
        return None
    with np.load(folder / "out.npz") as arrays:
        return dict(arrays)


def read_by_numpy(data):
    """The same by NumPy."""
    try:
        with np.load(io.BytesIO(data)) as arrays:
            return {name[:-4]: arrays[name[:-4]] for name in arrays.zip.namelist() if name.endswith(".npy")}
    except Exception:  # pylint: disable=broad-exception-caught
        return None


def same(ours, theirs):
    return ours.keys() == theirs.keys() and all(
        ours[name].dtype == theirs[name].dtype and np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("write", [npz, npz_to_pipe])
def test_archives_as_numpy_writes_them(write, save, tmp_path):
    arrays = {"A": A, "W_ü": B.astype("f4"), "empty": np.zeros((0, 3)), "scalar": np.float64(2)}
    assert same(converted(write(save, **arrays), tmp_path), arrays)


def test_zip64_member_written_by_zipfile(tmp_path):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive, archive.open("A.npy", "w", force_zip64=True) as member:
        np.save(member, A)
    assert same(converted(file.getvalue(), tmp_path), {"A": A})


def test_name_in_code_page_437(tmp_path):
    data = npz(Wu=A).replace(b"Wu.npy", b"W\x81.npy")
    assert converted(data, tmp_path).keys() == read_by_numpy(data).keys() == {"Wü"}


def with_second_end_record():
    """The comment holds a second directory, whose end record is the last one."""
    first, second = npz(A=A), npz(A=B)
    at = second.rindex(END)
    size, start = struct.unpack("<2I", second[at + 12:at + 20])
    comment = second[start:]
    first = first[:-2] + struct.pack("<H", len(comment)) + comment
    return first


REFUSED = {
    "two archives, one after the other": (npz(A=A) + npz(A=B), "does not end at byte"),
    "an archive and its copy": (npz(A=A) * 2, "does not end at byte"),
    "bytes before": (b"PK\3\4" + npz(A=A), "does not end at byte"),
    "bytes after": (npz(A=A) + b"\0", "1 bytes follow its end record"),
    "a second directory in the comment": (with_second_end_record(), "not a valid .npz archive"),
    "end record cut short": (npz(A=A)[:-3], "truncated"),
    "no end record": (npz(A=A).replace(END, b"PK\5\7"), "no end record"),
    "fewer members than stated": (npz(A=A).replace(END + b"\0\0\0\0\1\0\1\0", END + b"\0\0\0\0\2\0\2\0"),
                                  "too small for 2 members"),
    "more members than stated": (npz(A=A, B=B).replace(END + b"\0\0\0\0\2\0\2\0", END + b"\0\0\0\0\1\0\1\0"),
                                 "bytes after its last entry"),
    "6600 end records": (npz(A=A) + (END + struct.pack("<4H2IH", 0, 0, 0xFFFF, 0xFFFF, 0, 0, 0xFFFF)) * 6600,
                         "its end record is truncated"),
    "a NUL in a name": (npz(A_B=A).replace(b"A_B.npy", b"A\0B.npy"), "contains a NUL"),
    "two members of one name": (npz(A=A, B=B).replace(b"B.npy", b"A.npy"), "two members 'A.npy'"),
    "broken data descriptor": (npz_to_pipe(A=A).replace(b"PK\7\x08", b"PK\7\x09"), "no data descriptor"),
    "damaged array": (npz(A=A).replace(struct.pack("<d", 5), struct.pack("<d", 7)), "A: CRC error"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_contradictory_archive_is_refused(name, tmp_path):
    data, message = REFUSED[name]
    (tmp_path / "in.npz").write_bytes(data)
    run = attn("inspect", "in.npz", cwd=tmp_path)
    assert run.returncode == 65
    assert message in run.stderr.decode()


def test_mutated_archives_read_as_numpy_reads_them(tmp_path):
    """Same arrays, or an error of attn or NumPy."""
    generator = random.Random(20)
    seeds = [npz(A=A, B=B), npz(np.savez_compressed, A=A), npz_to_pipe(np.savez_compressed, A=A, B=B)]
    different = []
    for _ in range(150):
        data = bytearray(generator.choice(seeds))
        directory = data.index(b"PK\1\2")
        for _ in range(generator.randint(1, 3)):
            # Half of the changes are in the directory.
            at = generator.randrange(directory if generator.random() < 0.5 else 0, len(data))
            kind = generator.randrange(4)
            if kind == 0:
                data[at] = generator.randrange(256)
            elif kind == 1:
                data[at] ^= 1 << generator.randrange(8)
            elif kind == 2:
                del data[at:at + generator.randint(1, 8)]
            else:
                data[at:at] = data[at:at + generator.randint(1, 40)]
        data = bytes(data)
        ours = converted(data, tmp_path)
        if ours is None:
            continue
        theirs = read_by_numpy(data)
        if theirs is not None and not same(ours, theirs):
            different.append(data.hex())
    assert not different


def archive_of_empty_members(names):
    body, directory = bytearray(), bytearray()
    for name in names:
        common = struct.pack("<5H3I2H", 20, 0, 0, 0, 33, 0, 0, 0, len(name), 0)
        directory += b"PK\1\2" + struct.pack("<H", 20) + common + struct.pack("<3H2I", 0, 0, 0, 0, len(body))
        directory += name
        body += b"PK\3\4" + common + name
    count, shown = len(names), min(len(names), 0xFFFF)
    end64 = b"PK\6\6" + struct.pack("<Q2H2I4Q", 44, 45, 45, 0, 0, count, count, len(directory), len(body))
    locator = b"PK\6\7" + struct.pack("<IQI", 0, len(body) + len(directory), 1)
    end = END + struct.pack("<4H2IH", 0, 0, shown, shown, len(directory), len(body), 0)
    return bytes(body + directory) + end64 + locator + end


def test_members_are_counted_before_memory_is_allocated(tmp_path):
    (tmp_path / "in.npz").write_bytes(archive_of_empty_members([b"%06d" % i for i in range(300_000)]))
    run, peak = attn_and_peak("inspect", "in.npz", cwd=tmp_path)
    assert b"has 300000 members; the limit is 65536" in run.stderr
    if not under_sanitizer():
        assert peak < (tmp_path / "in.npz").stat().st_size + (20 << 20)


@pytest.mark.long
def test_names_that_collide_in_a_hash_table_do_not_hang(tmp_path):
    names = [name.encode() for name in colliding_names(16, prefix="p" * 256)]
    (tmp_path / "in.npz").write_bytes(archive_of_empty_members(names))
    assert_error(attn("inspect", "in.npz", cwd=tmp_path, timeout=60), 65, "has no array of numbers")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
