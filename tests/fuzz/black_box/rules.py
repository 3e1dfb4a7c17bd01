"""The rules that every run of attn follows, whatever its command line and its files."""

import csv
import dataclasses
import json
import os
import re
import subprocess
import xml.etree.ElementTree
import zlib

import numpy as np

SLACK = 16 << 20  # memory of the program itself, in addition to --max-memory
MAX_ERRORS = 11   # lines: ten problems and how many more there are
MAX_LINE = 4200   # bytes of a message
# Commands that report on several inputs, one after the other, and so may fail after the first report.
PARTIAL_REPORTS = {"inspect", "batch", "examples", "convert", "stats"}
INTERNAL = 70
TABLES = (b"job,id,item,", b"file,name,layer,")  # of batch --summary and stats: not all cells are numbers


@dataclasses.dataclass
class Outcome:
    """What a run did. `code` is the exit code, -N after signal N, or None after the time limit."""

    code: int
    stdout: bytes
    stderr: bytes
    peak: int                # bytes of resident memory
    seconds: float           # of processor time
    before: dict             # files in its folder: {path: bytes}
    after: dict


def documented_codes(program):
    """The exit codes of `attn help exit-codes` but for signals."""
    text = subprocess.run([program, "help", "exit-codes"], capture_output=True, check=True).stdout.decode()
    return {int(number) for number in re.findall(r"^ +(\d+)  ", text, re.MULTILINE)} - {141}


def numpy_problem(path):
    """Why NumPy refuses the file, or ""."""
    try:
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.ndarray):
            with file:
                for name in file.files:
                    file[name]  # pylint: disable=pointless-statement
        return ""
    except Exception as error:  # pylint: disable=broad-exception-caught
        return f"NumPy refuses it: {error!r}"


def is_text(data):
    """UTF-8 without control characters but line feeds."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return not re.search(r"[\0-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]", text)


def message_problems(case, outcome):
    if not case.args:
        return  # prints the help
    if any(word.endswith("/dev/stderr") for word in case.args):
        return  # a result may be among the messages
    lines = outcome.stderr.split(b"\n")
    if lines.pop() != b"":
        yield "the last message has no line feed"
    as_json = any(word.startswith("--json") for word in case.args)
    for line in lines:
        is_event = as_json and line.startswith(b"{")
        if not is_event and not line.startswith(b"attn: "):
            yield f"a line of the messages does not begin with 'attn: ': {line[:200]!r}"
        elif not is_text(line):
            yield f"a message is not plain text: {line[:200]!r}"
        elif len(line) > MAX_LINE and not is_event:
            yield f"a message of {len(line)} bytes"
    failed = outcome.code not in (0, 1, 3)
    if failed and not lines:
        yield f"exit code {outcome.code} without a message"
    notes = (b"attn: warning:", b"attn: note:")
    if failed and "batch" not in case.args and sum(not line.startswith(notes) for line in lines) > MAX_ERRORS:
        yield f"{len(lines)} lines of messages"


def folder_problems(case, outcome):
    new = [path for path in outcome.after if path not in outcome.before]
    if any(".attn-tmp" in path for path in new):
        yield f"temporary files are left: {new}"
    if outcome.code not in (0, 1, 3) and new:
        yield f"exit code {outcome.code}, but new files: {new}"
    # A batch extends the manifest that it is given.
    flags = {word.partition("=")[0] for word in case.args}
    can_replace = {"--force", "--resume", "--prune", "--manifest"} & flags or "man" in case.args
    for path, data in outcome.before.items():
        if outcome.after.get(path) != data and not can_replace:
            yield f"{path} was changed or removed"


def png_problem(data):
    at, kinds = 8, []
    while at < len(data):
        length = int.from_bytes(data[at:at + 4], "big")
        body = data[at + 4:at + 8 + length]
        if zlib.crc32(body).to_bytes(4, "big") != data[at + 8 + length:at + 12 + length]:
            return "a wrong checksum"
        kinds.append(body[:4])
        at += 12 + length
    return "" if kinds and kinds[0] == b"IHDR" and kinds[-1] == b"IEND" else "chunks are missing"


def content_problem(path, data, is_new, folder, read_by_attn):
    """Why the output cannot be read, or "". A manifest keeps the lines that it had."""
    suffix = path.rpartition(".")[2].lower()
    try:
        if suffix == "svg":
            xml.etree.ElementTree.fromstring(data)
        elif suffix == "png":
            return png_problem(data)
        elif suffix == "pdf":
            start = re.search(rb"\nstartxref\n(\d+)\n%%EOF\n$", data)
            is_whole = data.startswith(b"%PDF-1.7\n") and start and data[int(start[1]):].startswith(b"xref\n")
            return "" if is_whole else "no table of objects"
        elif suffix == "json":
            json.loads(data)
        elif suffix == "csv" and data.startswith(TABLES):
            rows = list(csv.reader(data.decode().splitlines(keepends=True)))
            return "" if all(len(row) == len(rows[0]) for row in rows) else "rows of different lengths"
        elif suffix == "ndjson" and is_new:
            for line in data.splitlines():
                json.loads(line)
        elif suffix in ("html", "md", "tex"):
            data.decode()
    except (ValueError, xml.etree.ElementTree.ParseError) as error:
        return str(error)
    problem = ""
    if suffix in ("npy", "npz"):
        problem = numpy_problem(folder / path)
    if suffix in ("npy", "npz", "safetensors", "json", "csv"):
        problem = problem or read_by_attn(path)
        if "has no array" in problem:
            return ""  # of a .safetensors file without tensors
    return problem


def output_problems(case, outcome, folder, read_by_attn):
    if outcome.code not in (0, 1, 3):
        return
    for path, data in outcome.after.items():
        if outcome.before.get(path) != data:
            data = (folder / path).read_bytes()  # of a large file, `after` has only the size
            if data.startswith(b'{"schema":"attn-batch/1"'):
                continue  # a manifest, by any name
            problem = content_problem(path, data, path not in outcome.before, folder, read_by_attn)
            if problem:
                yield f"the output {path!r} is not readable: {problem}"


def stdout_problems(case, outcome):
    binary = outcome.stdout[:6] in (b"\x93NUMPY", b"PK\3\4-\0", b"PK\3\4\x14\0") or outcome.stdout[:2] == b"PK" or \
        "safetensors" in " ".join(case.args)
    coloured = any("--color" in word for word in case.args) or "COLORTERM" in case.environment
    if not binary and not coloured and not is_text(outcome.stdout):
        at = re.search(rb"[^\n\x20-\x7e]", outcome.stdout)
        yield f"standard output is not plain text: {outcome.stdout[max(0, at.start() - 40):at.start() + 40]!r}"
    if outcome.code not in (0, 1, 3) and outcome.stdout and not PARTIAL_REPORTS & set(case.args):
        yield f"exit code {outcome.code}, but standard output has {outcome.stdout[:80]!r}"


def problems(case, outcome, codes, checks_memory, max_seconds, folder, read_by_attn):
    """Which rules a run in `folder` broke."""
    if outcome.code is None:
        return ["did not end"]
    if outcome.code < 0:
        return [f"ended by signal {-outcome.code}"]
    found = []
    if outcome.seconds > max_seconds + 4e-5 * case.stdin.count(b"\n"):  # a batch's lines
        found.append(f"{outcome.seconds:.1f} s of processor time")
    if outcome.code not in codes or outcome.code == INTERNAL:
        found.append(f"exit code {outcome.code}")
    if outcome.code == 1 and not {"compare", "examples"} & set(case.args):
        found.append("exit code 1, but nothing was compared")
    if outcome.code == 3 and "batch" not in case.args:
        found.append("exit code 3, but no batch was run")
    if checks_memory and case.limit is not None and outcome.peak > case.limit + SLACK:
        found.append(f"{outcome.peak / (1 << 20):.1f} MiB of memory, with --max-memory {case.limit}")
    found += message_problems(case, outcome)
    found += folder_problems(case, outcome)
    found += stdout_problems(case, outcome)
    found += output_problems(case, outcome, folder, read_by_attn)
    return found
