"""Hostile jobs, paths and environments: each command fails with a message or gives the right outputs.

Closed standard streams and other odd environments are tested in tests/faults/machine_test.py.
"""

import dataclasses
import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

from support.attn import ATTN, attn
from support.collisions import colliding_names, murmur
from support.hostile import KINDS, files_below, kinds

INF = float("inf")
QK = {"Q": [[1.0, 0.0], [0.0, 1.0]], "K": [[1.0, 2.0], [3.0, 4.0]]}


@dataclasses.dataclass
class Case:
    """`attn ARGS...`, with `job` as JSON on standard input. A case fails with exit code `code` and a message
    that contains `error`, or prints outputs with the values of `result` by name."""

    kind: int
    name: str
    args: list
    job: object = dataclasses.field(default=None, repr=False)
    code: int = 65
    error: str = ""
    result: dict = None

    def __str__(self):
        return f"{self.kind} {self.name:.60}"


def run_job(kind, name, job, error="", code=65, flags=(), result=None):
    if result is not None:
        code, flags = 0, [*flags, "--format", "json"]
    return Case(kind, name, ["run", "-", *flags], job, code, error, result)


def weights_of(scores):
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def shape_cases():
    Q, K = QK["Q"], QK["K"]
    yield run_job(156, "Q and K of two widths", {"Q": Q, "K": [[1.0]]}, "K: expected (*, 2)")
    yield run_job(157, "K and V of two lengths", {**QK, "V": [[1.0]]}, "V: expected (2, *)")
    yield run_job(158, "heads that do not divide", {**QK, "heads": 3}, "not divisible by heads = 3")
    four = {"Q": np.ones((2, 12)).tolist(), "K": np.ones((2, 8)).tolist()}
    yield run_job(158, "groups that do not divide", {**four, "heads": 3, "kv_heads": 2},
                  "a divisor of 3, the number of query heads")
    yield run_job(158, "no heads", {**QK, "heads": 0}, "heads")
    yield run_job(158, "heads below zero", {**QK, "heads": -1}, "heads")
    yield run_job(159, "width 0", {"Q": [[], []], "K": [[]]}, "expected a width D of at least 1")
    yield run_job(159, "width 0, unscaled", {"Q": [[], []], "K": [[]], "V": [[2.0]], "scale": "none"},
                  result={"weights": [[1], [1]], "context": [[2], [2]]})
    yield run_job(159, "one token", {"Q": [[2.0]], "K": [[3.0]]},
                  result={"scores": [[6]], "weights": [[1]], "context": [[3]]})
    yield run_job(160, "all keys hidden", {**QK, "mask": [[False, False], [True, True]]},
                  result={"weights": [[0, 0], weights_of(np.array([2, 4]) / 2**0.5)], })
    yield run_job(160, "all keys hidden by -inf", {**QK, "mask": [["-Infinity"] * 2] * 2},
                  result={"weights": np.zeros((2, 2)), "context": np.zeros((2, 2))})
    yield run_job(168, "two arrays where one is expected", {"Q": "two.npz", "K": [[1.0]]},
                  "has several arrays (a, b); select one")
    yield run_job(166, "mixed dtypes and byte orders",
                  {"Q": "big.npy", "K": "half.npy", "V": "small.npy", "scale": "none"},
                  result={"scores": [[1, 3], [2, 4]], "context": weights_of(
                      np.array([[1., 3], [2, 4]])) @ np.array([[1], [2]])})


def number_cases():
    def scored(name, Q, **outputs):
        return run_job(161, name, {"Q": Q, "K": [[1.0, 0], [0, 1]], "scale": "none"}, result=outputs)

    yield scored("scores of 1e308", [[1e308, -1e308]], weights=[[1, 0]])
    yield scored("scores of -1e308", [[-1e308, -1e308]], weights=[[0.5, 0.5]])
    one_inf = {"Q": [["Infinity"]], "K": [[1.0], [-1.0]], "scale": "none"}
    yield run_job(161, "one +inf", one_inf, result={"scores": [[INF, -INF]], "weights": [[np.nan, np.nan]]})
    yield run_job(161, "one +inf, refused", one_inf, "values are NaN", flags=["--nan", "refuse"])
    yield run_job(161, "two +inf", {"Q": [["Infinity"]], "K": [[1.0], [1.0]]},
                  result={"weights": [[np.nan, np.nan]]})
    yield run_job(161, "NaN", {"Q": [["NaN"]], "K": [[1.0], [1.0]]},
                  result={"weights": [[np.nan, np.nan]]})
    for path in "auto", "reference":
        yield run_job(161, f"all -inf, {path}", {"Q": [["-Infinity"]], "K": [[1.0], [1.0]]},
                      flags=["--path", path], result={"weights": [[np.nan, np.nan]]})
    for value in ["Infinity", "NaN", "x", []]:
        yield run_job(162, f"scale {value}", {**QK, "scale": value}, "scale: ")
    yield run_job(162, "scale 0", {**QK, "scale": 0}, result={"weights": np.full((2, 2), 0.5)})
    yield run_job(162, "scale -1", {**QK, "scale": -1},
                  result={"weights": weights_of(-np.array([[1., 3], [2, 4]]))})
    for seed in [-1, 2**32, "abc", 1.5, [], None]:
        job = {"seed": seed, "Q": {"rand": {"shape": [1, 1]}}, "K": [[1.0]]}
        yield run_job(163, f"seed {seed}", job, "seed: ")
    for draw in [{"high": 0}, {"low": 3, "high": 3}, {"low": 4, "high": 1}, {"high": 2**63 + 1},
                 {"high": 2, "shape": [2**63, 1]}, {"high": 2, "shape": [2**40, 2**40]},
                 {"high": 2, "shape": [-1, 1]}, {}]:
        draw.setdefault("shape", [1, 1])
        yield run_job(163, f"randint {draw}", {"seed": 1, "Q": {"randint": draw}, "K": [[1.0]]}, "Q: ")
    yield run_job(163, "2^60 numbers", {"seed": 1, "Q": {"rand": {"shape": [2**30, 2**30]}},
                                        "K": [[1.0]]}, "--max-memory")
    long = {"seed": 1, "Q": {"rand": {"shape": [10**6, 1]}}, "K": {"rand": {"shape": [10**6, 1]}}}
    yield run_job(164, "a million tokens' weights", long, "--max-memory raises the limit")
    yield run_job(165, "embeddings that are not finite", {"embeddings": [["NaN", 1.0], [1.0, 2.0]]},
                  "embeddings holds 1", flags=["--nan", "refuse"])
    yield run_job(167, "products beyond 64 bits", {"Q": [[2**62]], "K": [[4]]}, "overflow")
    yield run_job(167, "sums beyond 64 bits", {"Q": [[2**31, 2**31]], "K": [[2**31, 2**31]]},
                  "overflow")
    yield run_job(167, "projections beyond 64 bits", {"embeddings": [[2**62]], "W_Q": [[2]],
                                                      "W_K": [[1]]}, "overflow")


def input_cases():
    def reads(kind, name, path, code, error, flags=()):
        return Case(kind, name, ["run", "--q", path, "--k", "[[1.0]]", *flags], None, code, error)

    yield reads(169, "a folder", "folder", 66, "folder: is a directory")
    yield Case(169, "a folder as job", ["run", "folder"], None, 66, "folder: is a directory")
    yield reads(170, "a FIFO without a writer", "fifo", 66, "is a FIFO without a writer")
    yield reads(170, "a socket", "socket", 66, "socket: ")
    for device in "/dev/zero", "/dev/random", "/dev/tty":
        yield reads(170, device, device, 66, f"{device}: ")
    yield reads(170, "/proc/self/mem", "/proc/self/mem", 74, "/proc/self/mem: Input/output error")
    yield reads(171, "a cycle of links", "cycle", 66, "cycle: Too many levels of symbolic links")
    yield reads(171, "a dangling link", "dangling", 66, "dangling: No such file")
    yield reads(172, "a line break in a name", "line\nbreak.npy", 65, r"line\x0abreak.npy: ")
    yield reads(172, "an escape in a name", "\x1b[31mred.npy", 66, r"\x1b[31mred.npy: No such file")
    yield Case(172, "a name that is a flag", ["inspect", "--", "--help"], None, 65, "--help: ")
    yield Case(172, "not UTF-8", ["inspect", os.fsdecode(b"\xff\xfe.npy")], None, 66,
               r"\xff\xfe.npy: No such")
    yield Case(172, "5,000 bytes", ["inspect", "n" * 5000], None, 66, "File name too long")
    yield Case(172, "an empty name", ["inspect", ""], None, 2, "FILE: expected a value, found ''")
    yield Case(172, "'-' as a file", ["inspect", "./-"], None, 65, "./-: ")


def output_cases():
    def writes(kind, name, path, code, error="", flags=()):
        return Case(kind, name, ["run", "job.json", "-o", path, *flags], None, code, error)

    yield writes(173, "output = input", "job.json", 73, "job.json: is an input and cannot be overwritten", ["--force"])
    yield writes(173, "output = input by another name", "./folder/../job.json", 73, "is an input and cannot be overwritten",
                 ["--force"])
    yield writes(173, "output = input by a hard link", "twin.json", 73, "is an input and cannot be overwritten", ["--force"])
    yield writes(173, "output = input by a link", "link.json", 73, "is an input and cannot be overwritten", ["--force"])
    yield writes(174, "a cycle of links", "cycle.npz", 73, "Too many levels of symbolic links")
    yield writes(174, "a folder called .npz", "folder.npz", 73, "is a directory", ["--force"])
    yield writes(174, "/dev/full", "/dev/full", 74, "/dev/full: No space left", ["--format", "npz"])
    yield writes(174, "a name that is too long", "n" * 300 + ".npz", 73, "File name too long")
    yield writes(175, "a missing folder", "none/out.npz", 73, "none/out.npz: there is no folder none")
    yield writes(175, "a file as folder", "job.json/out.npz", 73, "job.json/out.npz: Not a directory")
    if os.geteuid() != 0:  # root may write anywhere
        yield writes(175, "a read-only folder", "closed/out.npz", 77, "Permission denied")
    yield Case(176, "one file for two outputs", ["run", "job.json", "-o", "a.npz", "-o", "./a.npz"], None,
               2, "same file")
    yield Case(177, "two jobs with one name", ["batch", "job.json", "folder/job.json", "--out-dir", "out"],
               None, 2, "job.json")


def config_cases():
    yield run_job(179, "an unknown key", {**QK, "skale": 1}, "unknown key 'skale' (did you mean 'scale'?)")
    yield run_job(179, "an unknown key inside", {**QK, "position": {"knd": "none"}}, "unknown key 'knd'")
    yield run_job(179, "a wrong type", {**QK, "heads": "two"}, "heads: expected")
    yield run_job(179, "a wrong type inside", {**QK, "window": [1]}, "window: expected")
    yield run_job(179, "10 MB of one key", '{"' + "k" * 10**7 + '": 1}', "unknown key")
    yield run_job(179, "10 MB of spaces", " " * 10**7 + json.dumps(QK), result={"scores": [[1, 3], [2, 4]]})
    yield Case(179, "a job that includes itself", ["run", "loop.json"], None, 65, "loop.json")
    yield run_job(179, "an array instead of a job", "[1, 2]", "expected a job (an object)")
    yield run_job(179, "an unknown schema", {**QK, "schema": "attn/99"}, "schema")


def make_files(folder):
    (folder / "folder").mkdir()
    (folder / "folder.npz").mkdir()
    (folder / "closed").mkdir(mode=0o555)
    for name in "job.json", "folder/job.json":
        (folder / name).write_text(json.dumps(QK))
    os.link(folder / "job.json", folder / "twin.json")
    os.symlink("job.json", folder / "link.json")
    os.symlink("cycle", folder / "cycle")
    os.symlink("cycle.npz", folder / "cycle.npz")
    os.symlink("nowhere", folder / "dangling")
    os.mkfifo(folder / "fifo")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "socket"))
    server.close()
    (folder / "loop.json").write_text('{"Q": "loop.json#Q", "K": [[1.0]]}')
    for name in "line\nbreak.npy", "--help", "-":
        (folder / name).write_bytes(b"not an array")
    np.savez(folder / "two.npz", a=np.ones(1), b=np.ones(1))
    np.save(folder / "big.npy", np.array([[1.0, 0], [0, 1]], ">f8"))
    np.save(folder / "half.npy", np.array([[1, 2], [3, 4]], "<f2"))
    np.save(folder / "small.npy", np.array([[1], [2]], ">i2"))


CASES = [*shape_cases(), *number_cases(), *input_cases(), *output_cases(), *config_cases()]
FAILING = [case for case in CASES if case.code != 0]
SUCCEEDING = [case for case in CASES if case.code == 0]


def test_every_kind_has_a_case():
    """Kinds 153, 155, 174, 178 and 180 are tested below."""
    assert kinds(CASES) | {153, 155, 174, 178, 180} == KINDS["job"]


@pytest.fixture(scope="module")
def folder(module_path):
    """A folder with the files of all cases, which no case changes."""
    folder = module_path / "cases"
    folder.mkdir()
    make_files(folder)
    return folder


def run_case(case, folder):
    stdin = case.job if isinstance(case.job, str) else json.dumps(case.job) if case.job else ""
    before = files_below(folder)
    run = attn(*case.args, stdin=stdin, cwd=folder, timeout=60)
    assert files_below(folder) == before
    return run


@pytest.mark.parametrize("case", FAILING, ids=str)
def test_command_fails_with_a_message(folder, case):
    run = run_case(case, folder)
    stderr = run.stderr.decode()
    assert run.returncode == case.code
    assert run.stdout == b""
    assert case.error in stderr
    assert stderr != ""
    for line in stderr.splitlines():
        assert line.startswith("attn: ")
        assert line.isprintable()
        assert len(line) < 700


def numbers(value):
    """The array, with "NaN", "Infinity" and "-Infinity" as numbers."""
    return np.array(value, dtype=object).astype(float)


@pytest.mark.parametrize("case", SUCCEEDING, ids=str)
def test_command_gives_the_right_outputs(folder, case):
    run = run_case(case, folder)
    assert run.returncode == 0, run.stderr
    outputs = json.loads(run.stdout)
    for name, expected in case.result.items():
        found = numbers(outputs[name])
        assert np.allclose(found, expected, rtol=1e-12, atol=0, equal_nan=True), f"{name}: {found}"


@pytest.mark.long
class TestCollidingKeys:
    """153: 65,536 keys with the same hash do not hang; 2 * 10^9 comparisons of them take minutes."""

    @pytest.fixture(scope="class")
    def keys(self):
        return colliding_names(16, prefix="p" * 256)

    @pytest.fixture(scope="class")
    def file(self, class_path, keys):
        (class_path / "keys.json").write_text(json.dumps({key: [i] for i, key in enumerate(keys)}))
        return class_path / "keys.json"

    def test_keys_have_the_same_hash(self, keys):
        assert len(set(keys)) == 2**16
        assert len({murmur(key.encode()) for key in keys[::199]}) == 1

    def test_convert_keeps_all_keys(self, tmp_path, keys, file):
        run = attn("convert", file, "-o", tmp_path / "keys.npz", timeout=60)
        assert run.returncode == 0, run.stderr
        assert len(np.load(tmp_path / "keys.npz").files) == len(keys)

    def test_inspect_lists_all_keys(self, keys, file):
        run = attn("inspect", file, timeout=60)
        assert run.returncode == 0
        assert run.stdout.count(b"\n") == len(keys) + 1


TOKENS = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\u2028\u2029",
          "\x1b[2J\x1b]0;title\x07", "\U0001F600\u200d\u2764", "\u202eright to left", "", "&amp;\"'`",
          "n" * 10**6, "\x00", "{{7*7}}", "%s%n", "=cmd()", "\r\n"]


class TestHostileTokens:
    """155: labels are data on the terminal, in pages, pictures, LaTeX and JSON: never code."""

    @pytest.fixture(scope="class")
    def folder(self, module_path):
        folder = module_path / "tokens"
        folder.mkdir()
        matrix = np.random.default_rng(1).standard_normal((len(TOKENS), 2)).tolist()
        (folder / "tokens.json").write_text(json.dumps({"Q": matrix, "K": matrix, "tokens": TOKENS}))
        return folder

    @staticmethod
    def render(folder, name):
        flag = "view" if name.startswith("view") else "explain"
        run = attn("run", "tokens.json", f"--{flag}={name}", "--force", cwd=folder)
        assert run.returncode == 0, run.stderr[:300]
        return folder / name

    SCRIPTS = ["<script>alert", "<img src=x"]
    CONTROLS = ["\x1b", "\x07", "\x00"]

    @pytest.mark.parametrize("name, forbidden", [
        ("view.html", [*SCRIPTS, *CONTROLS, "\u2028"]),
        ("view.svg", [*SCRIPTS, *CONTROLS, "\u2028"]),
        ("steps.html", [*SCRIPTS, *CONTROLS, "\u2028"]),
        ("steps.md", [*SCRIPTS, *CONTROLS]),
        ("steps.tex", [*CONTROLS, "\u2028"]),
    ])
    def test_text_is_escaped(self, folder, name, forbidden):
        text = self.render(folder, name).read_text(encoding="utf-8")
        assert not [raw for raw in forbidden if raw in text]

    def test_png_is_drawn(self, folder):
        assert self.render(folder, "view.png").read_bytes().startswith(b"\x89PNG")

    def test_svg_is_valid_xml(self, folder):
        parse = "import sys, xml.dom.minidom as m; m.parse(sys.argv[1])"
        run = subprocess.run([sys.executable, "-c", parse, self.render(folder, "view.svg")])
        assert run.returncode == 0

    def test_terminal_gets_no_control_characters(self, folder):
        run = attn("run", "tokens.json", "--view", cwd=folder)
        assert run.returncode == 0, run.stderr[:300]
        assert not [raw for raw in (b"\x1b", b"\x07", b"\x00", b"\r") if raw in run.stdout + run.stderr]

    def test_json_keeps_the_tokens(self, folder):
        run = attn("run", "tokens.json", "--format", "json", cwd=folder)
        assert json.loads(run.stdout)["tokens"] == TOKENS

    @pytest.mark.parametrize("format", ["json", "safetensors", "npz"])
    def test_view_of_a_result_escapes_the_tokens(self, folder, format):
        (folder / f"r.{format}").write_bytes(
            attn("run", "tokens.json", "--format", format, cwd=folder).stdout)
        run = attn("view", f"r.{format}", cwd=folder)
        assert run.returncode == 0
        assert b"\x1b" not in run.stdout


class TestSpecialOutputs:
    """174 and 178: outputs that are links, devices or pipes."""

    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "job.json").write_text(json.dumps(QK))
        return tmp_path

    def test_dangling_link_is_followed(self, folder):
        os.symlink("target.npz", folder / "link.npz")
        run = attn("run", "job.json", "-o", "link.npz", cwd=folder)
        assert run.returncode == 0, run.stderr
        assert (folder / "link.npz").is_symlink()
        assert (folder / "target.npz").exists()

    def test_other_hard_links_keep_the_old_content(self, folder):
        (folder / "first.npz").write_bytes(b"old")
        os.link(folder / "first.npz", folder / "second.npz")
        run = attn("run", "job.json", "-o", "second.npz", "--force", cwd=folder)
        assert run.returncode == 0, run.stderr
        assert (folder / "first.npz").read_bytes() == b"old"
        assert "weights" in np.load(folder / "second.npz")

    def test_dev_null(self, folder):
        run = attn("run", "job.json", "-o", "/dev/null", "--format", "npz", cwd=folder)
        assert run.returncode == 0, run.stderr

    def test_fifo_gets_the_bytes_of_a_file(self, folder):
        expected = attn("run", "job.json", "--format", "npz", cwd=folder).stdout
        os.mkfifo(folder / "fifo")
        script = (f"timeout 30 cat fifo > got & '{ATTN}' run job.json -o fifo --format npz; "
                  "code=$?; wait; exit $code")
        run = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True)
        assert run.returncode == 0, run.stderr
        assert (folder / "got").read_bytes() == expected

    def test_names_that_differ_by_case(self, folder):
        """On a file system that ignores case, the second output would replace the first: exit code 73."""
        run = attn("run", "job.json", "-o", "scores=A.npy", "-o", "weights=a.npy", cwd=folder)
        both = sorted(path.name for path in folder.glob("[aA].npy"))
        assert (run.returncode, both) == (0, ["A.npy", "a.npy"]) or run.returncode == 73


class TestPathsInArchives:
    """87 and 172: names of arrays that look like paths are never used as paths."""

    @pytest.fixture
    def inner(self, tmp_path):
        inner = tmp_path / "inner"
        inner.mkdir()
        np.savez(inner / "evil.npz", **{"../../escaped": np.ones((2, 2)), "/tmp/attn-escaped": np.eye(2)})
        return inner

    @pytest.mark.parametrize("command, written", [
        (["convert", "evil.npz", "-o", "safe.safetensors"], ["safe.safetensors"]),
        (["convert", "evil.npz", "-o", "again.npz"], ["again.npz"]),
        (["inspect", "evil.npz"], []),
        (["view", "evil.npz", "--of", "../../escaped", "-o", "v.svg"], ["v.svg"]),
        (["run", "--q", "evil.npz#../../escaped", "--k", "evil.npz#/tmp/attn-escaped", "-o", "out/"],
         ["out", "out/context.npy", "out/scores.npy", "out/weights.npy"]),
    ], ids=["convert to safetensors", "convert to npz", "inspect", "view", "run"])
    def test_nothing_is_written_elsewhere(self, tmp_path, inner, command, written):
        run = attn(*command, cwd=inner)
        assert run.returncode == 0, run.stderr
        assert files_below(inner) == sorted(["evil.npz", *written])
        assert files_below(tmp_path)[0] == "inner" and len(list(tmp_path.iterdir())) == 1
        assert not pathlib.Path("/tmp/attn-escaped.npy").exists()


def test_locale_and_environment_do_not_change_the_output():
    """180."""
    job = json.dumps(QK)
    usual = attn("run", "-", "--format", "json", stdin=job).stdout
    run = subprocess.run([ATTN, "run", "-", "--format", "json"], input=job.encode(), env={"LC_ALL": "de_DE"},
                         capture_output=True, cwd="/")
    assert run.stdout == usual
