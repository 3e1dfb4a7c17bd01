#!/usr/bin/env python3
"""Hostile jobs, paths and surroundings: cases 153 and 155 to 180 of the table of hostile inputs.

One row a case: what is run, on which files, and what has to become of it: an exit code and a part of
the one line that says why, or outputs that NumPy agrees with.
"""

import dataclasses
import io
import json
import os
import pathlib
import resource
import socket
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn  # noqa: E402
from support.collisions import colliding_names, murmur  # noqa: E402

INF = float("inf")
QK = {"Q": [[1.0, 0.0], [0.0, 1.0]], "K": [[1.0, 2.0], [3.0, 4.0]]}


@dataclasses.dataclass
class Row:
    """`attn ARGS...`, with `job` on standard input where there is one.

    `code` and `says` are the exit code and a part of the one line on stderr. With code 0 stdout is
    JSON and `gives` holds, of each output that is named, the values.
    """

    number: int
    name: str
    args: list
    job: object = None
    code: int = 65
    says: str = ""
    gives: dict = None


def run_job(number, name, job, says="", code=65, flags=(), gives=None):
    if gives is not None:
        code, flags = 0, [*flags, "--format", "json"]
    return Row(number, name, ["run", "-", *flags], job, code, says, gives)


def weights_of(scores):
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def shape_rows():
    Q, K = QK["Q"], QK["K"]
    yield run_job(156, "Q and K of two widths", {"Q": Q, "K": [[1.0]]}, "K: expected (*, 2)")
    yield run_job(157, "K and V of two lengths", {**QK, "V": [[1.0]]}, "V: expected (2, *)")
    yield run_job(158, "heads that do not divide", {**QK, "heads": 3}, "heads = 3 divides")
    four = {"Q": np.ones((2, 12)).tolist(), "K": np.ones((2, 8)).tolist()}
    yield run_job(158, "groups that do not divide", {**four, "heads": 3, "kv_heads": 2},
                  "a number of key/value heads that divides the 3")
    yield run_job(158, "no heads", {**QK, "heads": 0}, "heads")
    yield run_job(158, "heads below zero", {**QK, "heads": -1}, "heads")
    yield run_job(159, "width 0", {"Q": [[], []], "K": [[]]}, "expected a width D of at least 1")
    yield run_job(159, "width 0, unscaled", {"Q": [[], []], "K": [[]], "V": [[2.0]], "scale": "none"},
                  gives={"weights": [[1], [1]], "context": [[2], [2]]})
    yield run_job(159, "one token", {"Q": [[2.0]], "K": [[3.0]]},
                  gives={"scores": [[6]], "weights": [[1]], "context": [[3]]})
    yield run_job(160, "all keys hidden", {**QK, "mask": [[False, False], [True, True]]},
                  gives={"weights": [[0, 0], weights_of(np.array([2, 4]) / 2**0.5)], })
    yield run_job(160, "all keys hidden by -inf", {**QK, "mask": [["-Infinity"] * 2] * 2},
                  gives={"weights": np.zeros((2, 2)), "context": np.zeros((2, 2))})
    yield run_job(168, "two arrays where one is meant", {"Q": "two.npz", "K": [[1.0]]},
                  "has several arrays (a, b): say which")
    yield run_job(166, "mixed dtypes and byte orders",
                  {"Q": "big.npy", "K": "half.npy", "V": "small.npy", "scale": "none"},
                  gives={"scores": [[1, 3], [2, 4]], "context": weights_of(
                      np.array([[1., 3], [2, 4]])) @ np.array([[1], [2]])})


def number_rows():
    def scored(name, Q, **outputs):
        return run_job(161, name, {"Q": Q, "K": [[1.0, 0], [0, 1]], "scale": "none"}, gives=outputs)

    yield scored("scores of 1e308", [[1e308, -1e308]], weights=[[1, 0]])
    yield scored("scores of -1e308", [[-1e308, -1e308]], weights=[[0.5, 0.5]])
    one_inf = {"Q": [["Infinity"]], "K": [[1.0], [-1.0]], "scale": "none"}
    yield run_job(161, "one +inf", one_inf, gives={"scores": [[INF, -INF]], "weights": [[np.nan, np.nan]]})
    yield run_job(161, "one +inf, refused", one_inf, "weights: expected no NaN", flags=["--nan", "refuse"])
    yield run_job(161, "two +inf", {"Q": [["Infinity"]], "K": [[1.0], [1.0]]},
                  gives={"weights": [[np.nan, np.nan]]})
    yield run_job(161, "NaN", {"Q": [["NaN"]], "K": [[1.0], [1.0]]},
                  gives={"weights": [[np.nan, np.nan]]})
    for path in "auto", "reference":
        yield run_job(161, f"all -inf, {path}", {"Q": [["-Infinity"]], "K": [[1.0], [1.0]]},
                      flags=["--path", path], gives={"weights": [[np.nan, np.nan]]})
    for value, says in [("Infinity", "scale: "), ("NaN", "scale: "), ("x", "scale: "), ([], "scale: ")]:
        yield run_job(162, f"scale {value}", {**QK, "scale": value}, says)
    yield run_job(162, "scale 0", {**QK, "scale": 0}, gives={"weights": np.full((2, 2), 0.5)})
    yield run_job(162, "scale -1", {**QK, "scale": -1},
                  gives={"weights": weights_of(-np.array([[1., 3], [2, 4]]))})
    for seed, says in [(-1, "seed: "), (2**32, "seed: "), ("abc", "seed: "), (1.5, "seed: "),
                       ([], "seed: "), (None, "seed: ")]:
        job = {"seed": seed, "Q": {"rand": {"shape": [1, 1]}}, "K": [[1.0]]}
        yield run_job(163, f"seed {seed}", job, says)
    for draw in [{"high": 0}, {"low": 3, "high": 3}, {"low": 4, "high": 1}, {"high": 2**63 + 1},
                 {"high": 2, "shape": [2**63, 1]}, {"high": 2, "shape": [2**40, 2**40]},
                 {"high": 2, "shape": [-1, 1]}, {}]:
        draw.setdefault("shape", [1, 1])
        yield run_job(163, f"randint {draw}", {"seed": 1, "Q": {"randint": draw}, "K": [[1.0]]}, "Q: ")
    yield run_job(163, "2^60 numbers", {"seed": 1, "Q": {"rand": {"shape": [2**30, 2**30]}},
                                        "K": [[1.0]]}, "--max-memory")
    long = {"seed": 1, "Q": {"rand": {"shape": [10**6, 1]}}, "K": {"rand": {"shape": [10**6, 1]}}}
    yield run_job(164, "a million tokens' weights", long, "--max-memory permits more")
    yield run_job(165, "embeddings that are not finite", {"embeddings": [["NaN", 1.0], [1.0, 2.0]]},
                  "embeddings holds 1", flags=["--nan", "refuse"])
    yield run_job(167, "products beyond 64 bits", {"Q": [[2**62]], "K": [[4]]}, "overflow")
    yield run_job(167, "sums beyond 64 bits", {"Q": [[2**31, 2**31]], "K": [[2**31, 2**31]]},
                  "overflow")
    yield run_job(167, "projections beyond 64 bits", {"embeddings": [[2**62]], "W_Q": [[2]],
                                                      "W_K": [[1]]}, "overflow")


def input_rows(folder):
    def reads(number, name, path, code, says, flags=()):
        return Row(number, name, ["run", "--q", path, "--k", "[[1.0]]", *flags], None, code, says)

    yield reads(169, "a folder", "folder", 66, "folder: is a directory")
    yield Row(169, "a folder as job", ["run", "folder"], None, 66, "folder: is a directory")
    yield reads(170, "a FIFO without a writer", "fifo", 66, "is a FIFO that nobody writes to")
    yield reads(170, "a socket", "socket", 66, "socket: ")
    for device in "/dev/zero", "/dev/random", "/dev/tty":
        yield reads(170, device, device, 66, f"{device}: ")
    yield reads(170, "/proc/self/mem", "/proc/self/mem", 74, "/proc/self/mem: Input/output error")
    yield reads(171, "a circle of links", "circle", 66, "circle: Too many levels of symbolic links")
    yield reads(171, "a link to nothing", "dangling", 66, "dangling: No such file")
    yield reads(172, "a line break in a name", "line\nbreak.npy", 65, r"line\x0abreak.npy: ")
    yield reads(172, "an escape in a name", "\x1b[31mred.npy", 66, r"\x1b[31mred.npy: No such file")
    yield Row(172, "a name that is a flag", ["inspect", "--", "--help"], None, 65, "--help: ")
    yield Row(172, "not UTF-8", ["inspect", os.fsdecode(b"\xff\xfe.npy")], None, 66, r"\xff\xfe.npy: No such")
    yield Row(172, "5,000 bytes", ["inspect", "n" * 5000], None, 66, "File name too long")
    yield Row(172, "an empty name", ["inspect", ""], None, 2, "FILE: expected a value, found ''")
    yield Row(172, "'-' as a file", ["inspect", "./-"], None, 65, "./-: ")


def output_rows(folder):
    def writes(number, name, path, code, says="", flags=()):
        return Row(number, name, ["run", "job.json", "-o", path, *flags], None, code, says)

    yield writes(173, "output = input", "job.json", 73, "job.json: is an input, too", ["--force"])
    yield writes(173, "output = input by another name", "./folder/../job.json", 73, "is an input, too",
                 ["--force"])
    yield writes(173, "output = input by a hard link", "twin.json", 73, "is an input, too", ["--force"])
    yield writes(173, "output = input by a link", "link.json", 73, "is an input, too", ["--force"])
    yield writes(174, "a circle of links", "circle.npz", 73, "Too many levels of symbolic links")
    yield writes(174, "a folder called .npz", "folder.npz", 73, "is a directory", ["--force"])
    yield writes(174, "/dev/full", "/dev/full", 74, "/dev/full: No space left", ["--format", "npz"])
    yield writes(174, "a name beyond what there is", "n" * 300 + ".npz", 73, "File name too long")
    yield writes(175, "no folder", "none/out.npz", 73, "none/out.npz: there is no folder none")
    yield writes(175, "a file as folder", "job.json/out.npz", 73, "job.json/out.npz: Not a directory")
    if os.geteuid() != 0:  # whom nothing is closed to
        yield writes(175, "a closed folder", "closed/out.npz", 77, "Permission denied")
    yield Row(176, "one name for two", ["run", "job.json", "-o", "a.npz", "-o", "./a.npz"], None, 2,
              "found it twice")
    yield Row(177, "two jobs of one name", ["batch", "job.json", "folder/job.json", "--out-dir", "out"],
              None, 2, "job.json")


def config_rows():
    yield run_job(179, "an unknown key", {**QK, "skale": 1}, "unknown key 'skale' (did you mean 'scale'?)")
    yield run_job(179, "an unknown key inside", {**QK, "position": {"knd": "none"}}, "unknown key 'knd'")
    yield run_job(179, "a wrong type", {**QK, "heads": "two"}, "heads: expected")
    yield run_job(179, "a wrong type inside", {**QK, "window": [1]}, "window: expected")
    yield run_job(179, "10 MB of one key", '{"' + "k" * 10**7 + '": 1}', "unknown key")
    yield run_job(179, "10 MB of spaces", " " * 10**7 + json.dumps(QK), gives={"scores": [[1, 3], [2, 4]]})
    yield Row(179, "a job that includes itself", ["run", "loop.json"], None, 65, "loop.json")
    yield run_job(179, "no job", "[1, 2]", "expected a job (an object)")
    yield run_job(179, "a schema of another kind", {**QK, "schema": "attn/99"}, "schema")


def make_files(folder):
    (folder / "folder").mkdir()
    (folder / "folder.npz").mkdir()
    (folder / "closed").mkdir(mode=0o555)
    for name in "job.json", "folder/job.json":
        (folder / name).write_text(json.dumps(QK))
    os.link(folder / "job.json", folder / "twin.json")
    os.symlink("job.json", folder / "link.json")
    os.symlink("circle", folder / "circle")
    os.symlink("circle.npz", folder / "circle.npz")
    os.symlink("nowhere", folder / "dangling")
    os.mkfifo(folder / "fifo")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "socket"))
    server.close()
    (folder / "loop.json").write_text('{"Q": "loop.json#Q", "K": [[1.0]]}')
    for name in "line\nbreak.npy", "--help", "-":
        (folder / name).write_bytes(b"nothing of the kind")
    np.savez(folder / "two.npz", a=np.ones(1), b=np.ones(1))
    np.save(folder / "big.npy", np.array([[1.0, 0], [0, 1]], ">f8"))
    np.save(folder / "half.npy", np.array([[1, 2], [3, 4]], "<f2"))
    np.save(folder / "small.npy", np.array([[1], [2]], ">i2"))


def values(text):
    return np.array(json.loads(json.dumps(text).replace('"NaN"', "NaN").replace(
        '"-Infinity"', "-Infinity").replace('"Infinity"', "Infinity")), float)


def try_row(checks, folder, row):
    stdin = row.job if isinstance(row.job, str) else json.dumps(row.job) if row.job else ""
    before = sorted(os.listdir(folder))
    run = attn(*row.args, stdin=stdin, cwd=folder, timeout=60)
    what = f"{row.number} {row.name}: exit {run.returncode}, {run.stderr[:300]} {run.stdout[:200]}"
    checks.check(run.returncode == row.code, what)
    checks.check(sorted(os.listdir(folder)) == before, f"{row.number} {row.name}: {os.listdir(folder)}")
    if row.code != 0:
        lines = run.stderr.decode().splitlines()
        checks.check(lines and all(line.startswith("attn: ") and line.isprintable() and len(line) < 700
                                   for line in lines) and row.says in run.stderr.decode()
                     and not run.stdout, what)
    elif run.returncode == 0:
        result = json.loads(run.stdout)
        for name, want in row.gives.items():
            checks.check(np.allclose(values(result[name]), want, rtol=1e-12, atol=0, equal_nan=True),
                         f"{what}: {name} {result[name]}, expected {want}")


def a_million_keys(checks, folder):
    """153: names that were made to have one hash take no longer than others."""
    names = colliding_names(15)
    checks.check(len(set(names)) == 2**15 and len({murmur(name.encode()) for name in names[::99]}) == 1,
                 "the names collide")
    seconds = {}
    for kind, keys in ("colliding", names), ("others", [f"{i:0240}" for i in range(len(names))]):
        path = folder / f"{kind}.json"
        path.write_text(json.dumps({key: [i] for i, key in enumerate(keys)}))
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        run = attn("convert", path, "-o", folder / f"{kind}.npz")
        seconds[kind] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        checks.check(run.returncode == 65 or len(np.load(folder / f"{kind}.npz").files) == len(keys),
                     f"153 {kind}: {run.stderr}")
        run = attn("inspect", path)
        checks.check(run.returncode == 0 and run.stdout.count(b"\n") == len(keys) + 1, f"153: {kind}")
    # Processor time, as others may be using the machine: 10^9 comparisons would take minutes.
    checks.check(seconds["colliding"] < 20 * seconds["others"] + 1, f"153: {seconds}")


TOKENS = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\u2028\u2029",
          "\x1b[2J\x1b]0;title\x07", "\U0001F600\u200d\u2764", "\u202eright to left", "", "&amp;\"'`",
          "n" * 10**6, "\x00", "{{7*7}}", "%s%n", "=cmd()", "\r\n"]


def tokens(checks, folder):
    """155: labels are shown, never obeyed: on the terminal, in pages, pictures, LaTeX and JSON."""
    count = len(TOKENS)
    matrix = np.random.default_rng(1).standard_normal((count, 2)).tolist()
    (folder / "tokens.json").write_text(json.dumps({"Q": matrix, "K": matrix, "tokens": TOKENS}))
    for ending in "view.html", "view.svg", "view.png", "steps.html", "steps.md", "steps.tex":
        flag = f"--view={ending}" if ending.startswith("view") else f"--explain={ending}"
        run = attn("run", "tokens.json", flag, cwd=folder)
        checks.check(run.returncode == 0, f"155 {ending}: {run.stderr[:300]}")
        if ending == "view.png":
            continue
        text = (folder / ending).read_text(encoding="utf-8")
        bad = [mark for mark in ("<script>alert", "<img src=x", "\x1b", "\x07", "\x00", "\u2028")
               if mark in text and not (ending == "steps.tex" and mark[0] == "<")
               and not (ending == "steps.md" and mark == "\u2028")]
        checks.check(not bad, f"155 {ending}: raw {bad}")
        if ending.endswith("svg"):
            checks.check(subprocess.run(["/usr/bin/python3", "-c", "import sys, xml.dom.minidom as m; "
                                         "m.parse(sys.argv[1])", folder / ending]).returncode == 0,
                         "155: the picture is XML")
    run = attn("run", "tokens.json", "--view", cwd=folder)
    raw = [mark for mark in (b"\x1b", b"\x07", b"\x00", b"\r") if mark in run.stdout + run.stderr]
    checks.check(run.returncode == 0 and not raw, f"155 terminal: raw {raw} {run.stderr[:300]}")
    for format in "json", "ndjson", "safetensors", "npz":
        (folder / f"r.{format}").write_bytes(
            attn("run", "tokens.json", "--format", format, cwd=folder).stdout)
    checks.check(json.loads((folder / "r.json").read_text())["tokens"] == TOKENS, "155: JSON keeps them")
    view = [attn("view", f"r.{format}", cwd=folder) for format in ("json", "safetensors", "npz")]
    checks.check(all(run.returncode == 0 and b"\x1b" not in run.stdout for run in view), "155: view")


def special_outputs(checks, folder):
    """174, 178: what is no plain file is written as it is, and links stay links."""
    make_files(folder)
    whole = attn("run", "job.json", "--format", "npz", cwd=folder).stdout
    os.symlink("target.npz", folder / "to-new.npz")
    run = attn("run", "job.json", "-o", "to-new.npz", cwd=folder)
    checks.check(run.returncode == 0 and (folder / "to-new.npz").is_symlink()
                 and (folder / "target.npz").exists(), f"174 a dangling link is followed: {run}")
    os.link(folder / "target.npz", folder / "second.npz")
    (folder / "second.npz").write_bytes(b"old")
    run = attn("run", "job.json", "-o", "second.npz", "--force", cwd=folder)
    checks.check(run.returncode == 0 and (folder / "target.npz").read_bytes() == b"old"
                 and "weights" in np.load(folder / "second.npz"), f"174 a hard link is parted: {run}")
    run = attn("run", "job.json", "-o", "/dev/null", "--format", "npz", cwd=folder)
    checks.check(run.returncode == 0, f"174 /dev/null: {run}")
    run = subprocess.run(["bash", "-c", f"cat piped > got & '{ATTN}' run job.json -o piped --format npz; "
                          "code=$?; wait; exit $code"], cwd=folder, capture_output=True,
                         preexec_fn=lambda: os.mkfifo(folder / "piped"))
    checks.check(run.returncode == 0 and (folder / "got").read_bytes() == whole, f"174 a FIFO: {run}")
    run = attn("run", "job.json", "-o", "scores=A.npy", "-o", "weights=a.npy", cwd=folder)
    both = sorted(path.name for path in folder.glob("[aA].npy"))
    # 178: where a file system knows no case, one of them would have been there already.
    checks.check((run.returncode == 0 and both == ["A.npy", "a.npy"]) or run.returncode == 73,
                 f"178: {run} {both}")


def archive_names(checks, folder):
    """87 and 172: no path that stands in an archive, a job or a manifest is ever written to."""
    inner = folder / "inner"
    inner.mkdir()
    np.savez(inner / "evil.npz", **{"../../escaped": np.ones((2, 2)), "/tmp/attn-escaped": np.eye(2)})
    run = attn("convert", "evil.npz", "-o", "safe.safetensors", cwd=inner)
    checks.check(run.returncode == 0, f"{run}")
    for command in (["convert", "evil.npz", "-o", "again.npz"], ["inspect", "evil.npz"],
                    ["view", "evil.npz", "--of", "../../escaped", "-o", "v.svg"],
                    ["run", "--q", "evil.npz#../../escaped", "--k", "evil.npz#/tmp/attn-escaped",
                     "-o", "out/"]):
        run = attn(*command, cwd=inner)
        checks.check(run.returncode == 0, f"{command}: {run}")
    outside = sorted(path.name for path in folder.iterdir())
    checks.check(outside == ["inner"] and not pathlib.Path("/tmp/attn-escaped.npy").exists()
                 and sorted(path.name for path in (inner / "out").iterdir()) ==
                 ["context.npy", "scores.npy", "weights.npy"], f"outside: {outside}")


def surroundings(checks, folder):
    """180: streams closed at the start and odd environments are in tests/faults/machine_test.py."""
    job = json.dumps(QK)
    usual = attn("run", "-", "--format", "json", stdin=job).stdout
    run = subprocess.run([ATTN, "run", "-", "--format", "json"], input=job.encode(), env={"LC_ALL": "de_DE"},
                         capture_output=True, cwd="/")
    checks.check(run.stdout == usual, f"180: {run}")


def all_rows(folder):
    return [*shape_rows(), *number_rows(), *input_rows(folder), *output_rows(folder), *config_rows()]


NUMBERS = {153, 155, 174, 178, 180} | {row.number for row in all_rows(None)}


def main():
    checks = Checks("hostile jobs")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_files(folder)
        for row in all_rows(folder):
            try_row(checks, folder, row)
    for part in a_million_keys, tokens, special_outputs, archive_names, surroundings:
        with tempfile.TemporaryDirectory() as name:
            part(checks, pathlib.Path(name))
    checks.finish()


if __name__ == "__main__":
    main()
