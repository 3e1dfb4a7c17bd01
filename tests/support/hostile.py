"""Cases for the tests of hostile files: broken, lying or merely odd ones.

Each kind of defect has a number from 1 to 180, and one case or more.
"""

import ast
import dataclasses

from support.attn import attn

# The kinds of hostile input by the file tests/io/hostile_*_test.py that covers them.
KINDS = {
    "npy": {*range(1, 73)},
    "npz": {*range(73, 101)},
    "safetensors": {*range(101, 131)},
    "json": {*range(131, 153), 154},
    "job": {153, *range(155, 181)},
}
assert set().union(*KINDS.values()) == {*range(1, 181)}


@dataclasses.dataclass
class Case:
    """A file that is refused with exit code 65 and a message that contains `error`, or read as `result`:
    for .npy (descr, shape, bytes), for .npz the names, for .safetensors {name: (dtype, shape, bytes)}.
    """

    kind: int
    name: str
    data: bytes = dataclasses.field(repr=False)
    error: str = ""
    result: object = None

    def __str__(self):
        return f"{self.kind} {self.name:.60}"


def kinds(cases):
    return {case.kind for case in cases}


def refused(cases):
    return [case for case in cases if case.result is None]


def accepted(cases):
    return [case for case in cases if case.result is not None]


def convert_case(tmp_path, case, suffix):
    """Converts the case's file to out.SUFFIX; returns the folder, the file's name and the run."""
    folder = tmp_path / "work"
    folder.mkdir()
    source = f"case{case.kind}{suffix}"
    (folder / source).write_bytes(case.data)
    return folder, source, attn("convert", source, "-o", f"out{suffix}", cwd=folder)


def files_below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def check_refused(tmp_path, case, suffix):
    """The file is refused with one line that names it, and nothing is left behind anywhere."""
    _, source, run = convert_case(tmp_path, case, suffix)
    lines = run.stderr.decode("utf-8", "replace").splitlines()
    assert run.returncode == 65
    assert run.stdout == b""
    assert len(lines) == 1
    assert lines[0].startswith("attn: ")
    assert lines[0].isprintable()
    assert source in lines[0]
    assert case.error in lines[0]
    assert files_below(tmp_path) == ["work", f"work/{source}"]


def check_accepted(tmp_path, case, suffix, read_output):
    """The file is read as the expected result, and nothing but the output is written."""
    folder, source, run = convert_case(tmp_path, case, suffix)
    assert run.returncode == 0, run.stderr
    assert read_output((folder / f"out{suffix}").read_bytes()) == case.result
    assert files_below(tmp_path) == sorted(["work", f"work/{source}", f"work/out{suffix}"])


def read_plain_npy(data):
    """(descr, shape, bytes) of a version 1.0 file: like np.load, but for any number of axes."""
    assert data[:8] == b"\x93NUMPY\x01\x00"
    start = 10 + int.from_bytes(data[8:10], "little")
    header = ast.literal_eval(data[10:start].decode())
    assert not header["fortran_order"]
    return header["descr"], header["shape"], data[start:]
