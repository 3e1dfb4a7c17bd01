"""Help and manual pages are complete, and every example in them runs."""

import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from support.attn import ATTN, ROOT, assert_error, attn
from support.checkpoints import write_model
from support.help_texts import COMMANDS, SUBCOMMANDS, TOPICS, flags_in, text_of


def examples_in(help_text):
    """The command lines below "Example:"."""
    block = help_text.partition("Example:\n")[2].partition("\n\n")[0]
    return [line.strip() for line in block.splitlines() if line.strip()]


# attn help


def test_help_lists_the_commands():
    assert {"run", "convert", "compare", "man", "completions"} <= set(COMMANDS)


def test_help_lists_the_topics():
    assert {"shapes", "masks", "exit-codes", "environment", "limits", "manifest"} <= set(TOPICS)


def test_no_topic_has_the_name_of_a_command():
    assert set(COMMANDS) & set(TOPICS) == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_is_that_of_its_flag(name):
    assert text_of("help", name) == text_of(name, "--help")


@pytest.mark.parametrize("name", ["", *COMMANDS, *TOPICS])
class TestHelp:
    @pytest.fixture
    def text(self, name):
        return text_of("help", *([name] if name else []))

    def test_fits_a_terminal(self, text, name):
        width = 76 if name in TOPICS else 80
        assert [line for line in text.splitlines() if len(line) > width] == []

    def test_has_single_empty_lines(self, text):
        assert "\n\n\n" not in text
        assert not text.endswith("\n\n")
        assert text[0] != "\n"

    def test_has_no_spaces_at_line_ends(self, text):
        assert re.findall(r"^.* $", text, re.MULTILINE) == []


LONG = ["run", "batch", "compare", "mask", "random"]


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_of_most_commands_is_complete(name):
    short, full = text_of(name, "-h"), text_of(name, "--help")
    assert (short == full) == (name not in LONG)
    assert len(short.splitlines()) <= 80


@pytest.mark.parametrize("name", LONG)
class TestShortHelp:
    def test_lists_part_of_the_flags_with_their_descriptions(self, name):
        short, full = text_of(name, "-h"), text_of(name, "--help")
        entries = [part.rstrip("\n") for part in re.split(r"\n(?=  (?:-\w, |    )--)", short.partition("\n\n'attn")[0])]
        assert len(entries) > 8
        assert [part for part in entries[1:-1] if part.partition("\n\n")[0] not in full] == []
        assert len(flags_in(short)) < len(flags_in(full)) / 2 + 5

    def test_says_how_to_see_all(self, name):
        count = len(re.findall(r"^  (?:-\w, |    )--[a-z]", text_of(name, "--help"), re.MULTILINE))
        assert text_of(name, "-h").splitlines()[-1] == f"'attn {name} --help' lists all {count} options."

    def test_longer_spelling_wins(self, name):
        assert text_of(name, "-h", "--help") == text_of(name, "--help")

    def test_has_single_empty_lines(self, name):
        assert "\n\n\n" not in text_of(name, "-h")


@pytest.mark.parametrize("name, flags", [
    ("run", ["--q", "--k", "--v", "--heads", "--causal", "--scale", "--outputs", "--output", "--view", "--model"]),
    ("batch", ["--out-dir", "--resume", "--pattern", "--jobs", "--shard", "--status"]),
    ("compare", ["--rtol", "--atol", "--reference"]), ("random", ["--seed", "--shape", "--generator"])])
def test_short_help_lists_the_most_used_flags(name, flags):
    assert set(flags) <= flags_in(text_of(name, "-h"))


@pytest.mark.parametrize("name, suggestion", [("rum", "run"), ("maskss", "masks")])
def test_misspelled_name_gets_a_suggestion(name, suggestion):
    assert_error(attn("help", name), 2, f"did you mean '{suggestion}'")


def flags_with_values():
    for name in COMMANDS:
        help_text = attn("help", name).stdout.decode()
        for flag in re.findall(r"^  (?:-\w, |    )(--[\w-]+) [A-Z]", help_text, re.MULTILINE):
            yield name, flag


FLAGS_WITH_VALUES = list(flags_with_values())


def test_many_flags_take_a_value():
    assert len(FLAGS_WITH_VALUES) > 100


@pytest.mark.parametrize("name, flag", FLAGS_WITH_VALUES)
def test_empty_value_is_refused(name, flag):
    """A script passes it when a variable is not set."""
    run = attn(name, flag, "")
    assert run.returncode == 2
    assert run.stderr.startswith(f"attn: {flag}: ".encode())
    assert run.stderr.count(b"\n") == 1


@pytest.mark.parametrize("arguments, reason", [
    (["man", "rum"], "did you mean 'run'?"),
    (["man", "foo"], "'attn help' lists commands and topics"),
    (["examples", "lst"], "did you mean 'list'?"),
    (["batch", "--workers", "3"], "unknown flag '--workers'; -j (--jobs) sets"),
    (["batch", "--threads", "3"], "unknown flag '--threads'; -j (--jobs) sets"),
    (["run", "x", "-o", "wts=w.npy"], "see 'attn help outputs'"),
    (["run", "x", "-o", "wieghts=w.npy"], "did you mean 'weights'?"),
    (["run", "x", "--max-memory", "8q"], "K, M, G and T are powers of 1024"),
    (["run", "--cuasal"], "did you mean '--causal'?"),
    (["run", "--no-causal"], "unknown flag '--no-causal'; write --causal=false"),
    (["run", "--no-force"], "unknown flag '--no-force'; write --force=false"),
    (["run", "x", "--output", "weights"], "; --outputs weights selects an output"),
])
def test_invalid_arguments_get_a_hint(arguments, reason):
    assert_error(attn(*arguments), 2, reason)


# Facts in the topics.


def test_exit_codes_in_the_help_are_those_in_the_source():
    documented = set(re.findall(r"^  (\d+)", text_of("help", "exit-codes"), re.MULTILINE))
    header = (ROOT / "src/attn/base/error.h").read_text()
    declared = set(re.findall(r"= (\d+),", header.partition("enum class ErrorKind")[2].partition("};")[0]))
    assert len(declared) > 5
    assert declared - documented == set()


def test_environment_variables_in_the_help_are_those_in_the_source():
    read = set()
    for source in (ROOT / "src").rglob("*.cpp"):
        read |= set(re.findall(r'(?:getenv|environment)\("([A-Z_]+)"\)', source.read_text()))
    assert read
    assert set(re.findall(r"^  ([A-Z_]+) ", text_of("help", "environment"), re.MULTILINE)) == read


def test_outputs_in_the_help_are_those_of_run():
    documented = re.findall(r"^  (\w+) +\(", text_of("help", "outputs"), re.MULTILINE)
    run = attn("run", "--q", "[[1.0]]", "--k", "[[1.0]]", "--outputs", "nothing-like-it")
    assert documented == re.findall(r"\w+", run.stderr.decode().rpartition("the outputs are ")[2])
    assert len(documented) > 15


@pytest.mark.parametrize("text", [lambda: text_of("help", "numbers"), (ROOT / "README.md").read_text],
                         ids=["help", "README"])
def test_text_of_arrays_is_that_of_numpy_1_24(text):
    assert "as NumPy 1.24 prints" in text()


def test_long_arrays_are_printed_as_by_numpy_1_24():
    """NumPy 2 adds a shape."""
    text = attn("convert", "-", "--repr", stdin=str([[0] * 50] * 40)).stdout.decode()
    assert "..., " in text
    assert "shape=" not in text


def test_default_size_of_pages_has_a_documented_unit():
    size = re.search(r"as (\w+); values", " ".join(text_of("help", "view").split()))[1]
    units = re.search(r"a (\w), (\w), (\w) or (\w),", text_of("help", "limits")).groups()
    assert size[:-1].isdigit()
    assert size[-1] in units


# Examples.


@pytest.fixture(scope="module")
def files(module_path):
    """A folder with the files that the examples name."""
    folder = module_path / "files"
    folder.mkdir()
    rng = np.random.default_rng(3)
    arrays = {name: rng.standard_normal((8, 8)) for name in ["Q", "K", "V", "W_Q", "W_K", "x"]}
    for name, array in [("q", "Q"), ("k", "K"), ("v", "V"), ("k1", "K"), ("v1", "V"),
                        ("k2", "K"), ("v2", "V"), ("queries", "Q"), ("keys", "K"),
                        ("values", "V"), ("x", "x"), ("embeddings", "x")]:
        np.save(folder / f"{name}.npy", arrays[array])
    np.savez(folder / "model.npz", W_Q=arrays["W_Q"], W_K=arrays["W_K"])
    np.savez(folder / "weights.npz", W_Q=arrays["W_Q"])
    names = ["input_layernorm", *(f"self_attn.{x}_proj" for x in "qkvo"), "self_attn.q_norm", "self_attn.k_norm"]
    write_model(folder / "Qwen3-0.6B", {"model_type": "qwen3", "num_attention_heads": 2, "num_hidden_layers": 4,
                                        "hidden_size": 8},
                {f"model.layers.{n}.{name}.weight": np.ones((8, 8) if "proj" in name else 4 if "q_norm" in name or
                                                            "k_norm" in name else 8)
                 for n in range(4) for name in names})
    for name in ["part1.npz", "part2.npz"]:
        np.savez(folder / name, Q=arrays["Q"], K=arrays["K"], V=arrays["V"])
    for name in ["embeddings.csv", "ratings.csv"]:
        np.savetxt(folder / name, arrays["x"], delimiter=",")
    job = '{"Q": [[1, 0], [0, 1]], "K": [[1, 2], [3, 4]]}'
    (folder / "jobs").mkdir()
    for name in ["job.json", "jobs/a.json", "jobs/b.json"]:
        (folder / name).write_text(job)
    (folder / "common.json").write_text('{"scale": "none"}')
    (folder / "jobs.ndjson").write_text((job + "\n") * 2)
    for name in ["expected", "before", "after", "result"]:
        attn("run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--heads", "4", "-o", f"{name}.npz",
             cwd=folder)
    for part in ["1", "2"]:
        attn("run", "--q", "q.npy", "--k", f"k{part}.npy", "--v", f"v{part}.npy", "--outputs",
             "logsumexp,head_context", "-o", f"{part}.npz", cwd=folder)
    np.save(folder / "mine.npy", np.load(folder / "result.npz")["weights"])
    for layer in range(2):
        np.savez(folder / f"layer{layer}.npz", weights=np.eye(3))
    np.save(folder / "weights.npy", np.ones((2, 1, 4, 3, 3)) / 3)
    return folder


@pytest.mark.parametrize("arguments", [["help"], *(["help", name] for name in [*COMMANDS, *TOPICS]),
                                       *([*name.split(), "--help"] for name in SUBCOMMANDS)])
def test_examples_run(tmp_path, files, arguments):
    """One after another, in one folder."""
    examples = examples_in(text_of(*arguments))
    assert examples
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "attn").symlink_to(ATTN)
    environment = {**os.environ, "ATTN_DATA": str(ROOT / "data" / "examples"), "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    for example in examples:
        for target in re.findall(r"(?:-o|--view)[ =](?:\w+=)?([\w./]+)", example):
            (tmp_path / target).unlink(missing_ok=True)
        for target in re.findall(r"--out-dir (\S+)", example):
            if "--resume" not in example:
                shutil.rmtree(tmp_path / target, ignore_errors=True)
        run = subprocess.run(["bash", "-c", example], cwd=tmp_path, env=environment, timeout=60,
                             capture_output=True, stdin=subprocess.DEVNULL)
        assert run.returncode == 0, (example, run.stderr)


# Manual pages.

NEEDS_GROFF = pytest.mark.skipif(not shutil.which("groff"), reason="needs groff")


def rendered(page):
    """The page as groff prints it, without bold and underlining."""
    run = subprocess.run(["groff", "-man", "-Tascii", "-P-c", "-ww"], input=page.encode(), capture_output=True)
    assert (run.returncode, run.stderr) == (0, b"")
    return re.sub(".\b", "", run.stdout.decode())


class TestAllManualPages:
    @pytest.fixture(scope="class")
    def folder(self, class_path):
        assert attn("man", "--all", class_path).returncode == 0
        return class_path

    def test_are_one_for_each_command_and_topic(self, folder):
        assert sorted(path.name for path in folder.glob("man*/*")) == sorted([
            "attn.1", *(f"attn-{name}.1" for name in COMMANDS), *(f"attn-{name}.7" for name in TOPICS)])

    @pytest.mark.parametrize("name", COMMANDS)
    def test_are_those_of_the_commands(self, folder, name):
        assert (folder / "man1" / f"attn-{name}.1").read_text() == text_of("man", name)

    @pytest.mark.parametrize("name", TOPICS)
    def test_are_those_of_the_topics(self, folder, name):
        assert (folder / "man7" / f"attn-{name}.7").read_text() == text_of("man", name)


@NEEDS_GROFF
@pytest.mark.parametrize("name", TOPICS)
def test_manual_page_of_a_topic_has_every_line_of_its_help(name):
    page = rendered(text_of("man", name))
    lines = [line.strip() for line in text_of("help", name).splitlines() if line != "Example:"]
    assert [line for line in lines if line not in page] == []


@pytest.mark.parametrize("name", COMMANDS)
class TestManualPageOfACommand:
    def test_has_its_usage(self, name):
        usage = re.search(r"^Usage: (.*)$", text_of("help", name), re.MULTILINE)[1]
        synopsis = re.search(r"^\.SH SYNOPSIS\n(.*)$", text_of("man", name), re.MULTILINE)[1]
        assert re.sub(r"\\f[BIR]", "", synopsis).replace("\\-", "-") == usage

    def test_has_all_flags(self, name):
        flags = flags_in(text_of("help", name))
        source = text_of("man", name).replace("\\-", "-")
        assert flags
        assert [flag for flag in flags if f"\\fB{flag}\\fR" not in source] == []

    @NEEDS_GROFF
    def test_shows_all_flags(self, name):
        page = rendered(text_of("man", name))
        assert [flag for flag in flags_in(text_of("help", name)) if flag not in page] == []


def test_main_manual_page_names_all_pages():
    page = text_of("man").replace("\\-", "-")
    assert [name for name in [*COMMANDS, *TOPICS] if f"attn-{name}" not in page] == []
