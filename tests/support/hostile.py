"""What the tests of hostile files share: one row a file, and what has to become of it."""

import ast
import dataclasses
import pathlib
import tempfile

from attn import attn


@dataclasses.dataclass
class Row:
    """One hostile (or merely odd) file.

    `says` is a part of the message with which it is refused, by exit code 65. Instead of it,
    `gives` is what it has to be read as: for .npy (descr, shape, bytes), for .npz the names.
    """

    number: int
    name: str
    data: bytes
    says: str = ""
    gives: object = None


def read_plain_npy(data):
    """(descr, shape, bytes) of a version 1.0 file: what np.load does, for any number of axes."""
    assert data[:8] == b"\x93NUMPY\x01\x00"
    start = 10 + int.from_bytes(data[8:10], "little")
    header = ast.literal_eval(data[10:start].decode())
    assert not header["fortran_order"]
    return header["descr"], header["shape"], data[start:]


def check_refusal(checks, row, run, source):
    lines = run.stderr.decode("utf-8", "replace").splitlines()
    what = f"{row.number} {row.name}: exit {run.returncode}, {lines}"
    checks.check(run.returncode == 65 and not run.stdout, what)
    checks.check(
        len(lines) == 1 and lines[0].startswith("attn: ") and source in lines[0] and
        row.says in lines[0] and lines[0].isprintable(), what)


def run_rows(checks, rows, suffix, read_output):
    """Converts each row's file; a refused one must leave nothing behind."""
    for row in rows:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name) / "work"
            folder.mkdir()
            source = f"case{row.number}{suffix}"
            (folder / source).write_bytes(row.data)
            run = attn("convert", source, "-o", f"out{suffix}", cwd=folder)
            left = sorted(path.name for path in folder.rglob("*"))
            if row.gives is None:
                check_refusal(checks, row, run, source)
                checks.check(left == [source], f"{row.number} {row.name}: left {left}")
            elif checks.check(run.returncode == 0, f"{row.number} {row.name}: {run.stderr}"):
                found = read_output((folder / f"out{suffix}").read_bytes())
                checks.check(found == row.gives, f"{row.number} {row.name}: {found!r:.300}")
                checks.check(left == sorted([source, f"out{suffix}"]), f"{row.name}: left {left}")
            outside = [path.name for path in pathlib.Path(name).iterdir()]
            checks.check(outside == ["work"], f"{row.number} {row.name}: outside {outside}")
