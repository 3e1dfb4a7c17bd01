"""`attn examples`: the output is what the sources printed, and `check` notices every change.

Digits of expected.txt are changed in turn (of all examples in tests/examples/check_test.cpp), and one input of
each job.
"""

import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from support.attn import ATTN, ROOT, assert_error, attn
from support.terminal import on_terminal

DATA = ROOT / "data" / "examples"
NAMES = sorted(path.parent.name for path in DATA.glob("*/example.json"))

# Example, file, old text, new text, and the first cell that then differs.
CHANGED_INPUTS = [
    ("general-attention", "first-word.json", "[0, 0, 1]", "[0, 0, 2]", "In [20]"),
    ("general-attention", "job.json", '"seed": 42', '"seed": 43', "In [29]"),
    ("single-query", "job.json", '"rows": [0]', '"rows": [1]', "In [15]"),
    ("attention-sample", "job.json", "[1, 1, 0]", "[1, 2, 0]", "In [9]"),
    ("positional-encoding", "job.json", "[6, 1, 2, 2]", "[6, 1, 3, 2]", "In [201]"),
    ("positional-encoding", "job.json", '"base": 10000', '"base": 10001', "In [199]"),
    ("positional-encoding", "job.json", '"high": 5', '"high": 6', "In [285]"),
    ("latent-factors", "ratings.json", "[5, 5, 5, 0, 0]", "[5, 5, 4, 0, 0]", "In [1]"),
    ("latent-factors", "cosine.json", "[5, 0, 0, 0, 0]", "[5, 1, 0, 0, 0]", "In [6]"),
    ("latent-factors", "example.json", '"rank": 2', '"rank": 3', "In [5]"),
    ("encoder-decoder", "job.json", "0.67", "0.66", "In [35]"),
    ("token-attention", "job.json", "-0.99, 0.42", "-0.98, 0.42", "In [84]"),
    ("head-split", "job.json", '"heads": 2', '"heads": 4', "In [119]"),
    ("illustrated-self-attention", "job.json", '"scale": "none"', '"scale": 0.5', "step 5"),
    ("illustrated-attention", "job.json", "[10, 5, 10]", "[10, 5, 9]", "step 1"),
    ("tensorflow-tutorial", "two-keys.json", "[10, 10, 0]", "[10, 10, 10]", "query [10, 10, 0]"),
    ("equal-keys", "additive.json", '"key_lengths": [2, 6]', '"key_lengths": [2, 7]', "In [8]"),
    ("she-likes-coffee", "job.json", "[0.2, 0.9, 0.1, 0.5]", "[0.2, 0.9, 0.1, 0.6]", "step 4"),
    ("illustrated-transformer", "job.json", "0.125", "0.25", "Divide by 8"),
    ("llm-simple-attention", "job.json", "[0.43, 0.15, 0.89]", "[0.43, 0.16, 0.89]", "In [3]"),
    ("llm-simple-attention", "rounded.json", "0.1385", "0.1386", "In [12]"),
    ("llm-trainable-weights", "rand.json", '"seed": 123', '"seed": 124', "In [17]"),
    ("llm-trainable-weights", "linear.json", '"seed": 789', '"seed": 788', "In [24]"),
    ("llm-causal-attention", "mask.json", "[1.0, 0.0, 0.0", "[1.0, 1.0, 0.0", "In [26]"),
    ("llm-causal-attention", "causal.json", '"causal": true', '"causal": false', "In [28]"),
    ("llm-causal-attention", "dropout.json", '"p": 0.5', '"p": 0.4', "In [31]"),
    ("llm-causal-attention", "dropped.json", '"dropout_p": 0.5', '"dropout_p": 0.4', "In [32]"),
    ("llm-causal-attention", "dropped.json", '{"seed": 123}', '{"seed": 124}', "In [32]"),
    ("llm-multi-head", "layer.json", '"heads": 2', '"heads": 1', "In [36]"),
    ("llm-multi-head", "products.json", "0.2745", "0.3745", "In [37]"),
    ("life-is-short", "job.json", "[0, 4, 5, 2, 1, 3]", "[0, 4, 5, 2, 3, 1]", "embedded_sentence"),
    ("gpt-head", "job.json", '"seed": 1337', '"seed": 1338', "wei[0]"),
    ("gpt-averages", "toy.json", '"high": 10', '"high": 11', "toy example"),
    ("uva-pytorch", "job.json", '"seed": 42', '"seed": 43', "In [4]"),
    ("gpt-nano-sort", "job.json", "-0.3069599", "0.3069599", "att"),
    ("gpt-nano-sort", "job.json", '"heads": 3', '"heads": 4', "att"),
    ("microgpt", "job.json", '"n": 32033', '"n": 32032', "attn_weights"),
    ("microgpt", "job.json", "0.059900389791754216", "0.16", "attn_weights"),
    ("microgpt", "job.json", '"out-in"', '"in-out"', "attn_weights"),
    ("uva-jax", "job.json", '"split[1]"', '"split[0]"', "In [4]"),
]


def test_the_page_shows_every_example():
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^### (.*)$", page, re.MULTILINE)) == NAMES


# attn examples list


class TestList:
    @pytest.fixture(scope="class")
    def lines(self):
        run = attn("examples", "list")
        assert (run.returncode, run.stderr) == (0, b"")
        return run.stdout.decode().splitlines()

    def test_names_every_example_once(self, lines):
        assert sorted(line.split()[0] for line in lines if line.startswith("  ")) == NAMES

    def test_groups_them_by_source(self, lines):
        sources = [json.loads((DATA / name / "example.json").read_text())["source"] for name in NAMES]
        headings = [line for line in lines if not line.startswith("  ")]
        assert headings == sorted(set(headings))
        assert len(headings) == len(set(sources))

    def test_prints_title_and_section_below_the_source(self, lines):
        heading = lines.index("Notebook: Scaled Dot-Product Attention")
        assert lines[heading + 1].split(maxsplit=1) == [
            "encoder-decoder", "A decoder state attends to four encoder states [Question 1]"]


# attn examples run


@pytest.mark.parametrize("name", [name for name in NAMES if name != "latent-factors"])
def test_output_is_that_of_the_notebook(name):
    run = attn("examples", "run", name)
    assert run.stdout == (DATA / name / "expected.txt").read_bytes()
    assert (run.returncode, run.stderr) == (0, b"")


class TestLatentFactors:
    """Singular vectors are determined up to their sign, and only the first three."""

    @pytest.fixture(scope="class")
    def cells(self):
        """The text of each cell: of the program, and of the notebook."""
        run = attn("examples", "run", "latent-factors")
        assert (run.returncode, run.stderr) == (0, b"")
        expected = (DATA / "latent-factors" / "expected.txt").read_text()
        return run.stdout.decode().split("\n\n"), expected.split("\n\n")

    @staticmethod
    def arrays(text):
        """The arrays of a printed tuple of arrays."""
        return eval(text, {"array": np.array})  # printed by our own program

    @pytest.mark.parametrize("cell", [0, 3], ids=["table", "cosine"])
    def test_determined_cells_are_those_of_the_notebook(self, cells, cell):
        found, expected = cells
        assert found[cell] == expected[cell]

    @pytest.mark.parametrize("cell", [1, 2], ids=["svd", "rank 2"])
    def test_singular_values_are_those_of_the_notebook(self, cells, cell):
        found, expected = (self.arrays(text[cell]) for text in cells)
        assert found[1].tolist() == expected[1].tolist()

    @pytest.mark.parametrize("cell, count", [(1, 3), (2, 2)], ids=["svd", "rank 2"])
    def test_singular_vectors_are_those_of_the_notebook_up_to_sign(self, cells, cell, count):
        (U, _, V), (expected_U, _, expected_V) = (self.arrays(text[cell]) for text in cells)
        if cell == 1:
            V, expected_V = V.T, expected_V.T
        signs = np.sign((U * expected_U).sum(axis=0))[:count]
        np.testing.assert_array_equal(U[:, :count] * signs, expected_U[:, :count])
        np.testing.assert_array_equal(V[:, :count] * signs, expected_V[:, :count])


@pytest.mark.parametrize("arguments, names", [
    (["single-query", "general-attention"], ["single-query", "general-attention"]), (["--all"], NAMES)],
    ids=["two", "--all"])
def test_outputs_of_several_examples_are_separated_by_an_empty_line(arguments, names):
    single = [attn("examples", "run", name).stdout for name in names]
    assert all(single)
    assert attn("examples", "run", *arguments).stdout == b"\n".join(single)


@pytest.fixture
def labelled():
    """The lines of an example, with a label for each cell."""
    return attn("examples", "run", "--cells", "encoder-decoder").stdout.decode().split("\n")


def test_cells_labels_every_cell(labelled):
    labels = [line for line in labelled if line.startswith("# ")]
    assert labels == [f"# In [{n}]" for n in (37, 35, 41, 46, 51, 52)]


def test_cells_adds_nothing_but_labels(labelled):
    rest = "\n".join(line for line in labelled if not line.startswith("# "))
    assert rest == (DATA / "encoder-decoder" / "expected.txt").read_text()


class TestOnATerminal:
    def test_cells_name_their_values(self):
        lines = on_terminal("examples", "run", "general-attention").splitlines()
        assert lines[0] == "General attention: the first of four words, then all four in matrix form"
        assert [line for line in lines if line.startswith("# ")] == [
            "# In [20]: first.scores[0]", "# In [21]: first.weights[0]", "# In [24]: first.context[0]",
            "# In [29]: all.context"]

    def test_values_of_a_cell_are_named_once(self):
        assert "# step 4: words.queries, words.keys.T\n" in on_terminal("examples", "run", "she-likes-coffee")

    def test_the_rest_is_what_the_notebook_printed(self):
        text = on_terminal("examples", "run", "encoder-decoder")
        printed = "\n".join(line for line in text.split("\n")[2:] if not line.startswith("# "))
        assert printed == (DATA / "encoder-decoder" / "expected.txt").read_text()

    def test_cells_are_labelled_as_in_a_pipe(self):
        command = ["examples", "run", "encoder-decoder", "--cells"]
        assert on_terminal(*command) == attn(*command).stdout.decode()

    def test_check_is_the_same(self):
        assert on_terminal("examples", "check", "single-query") == attn("examples", "check", "single-query").stdout.decode()


# attn examples run --view and --explain


@pytest.mark.parametrize("name, flags", [
    ("single-query", ["--view"]),
    ("encoder-decoder", ["--explain", "-"]),
    ("attention-sample", ["--explain", "-", "--explain-query", "2"]),
])
def test_views_are_those_of_the_job(name, flags):
    expected = attn("run", DATA / name / "job.json", *flags)
    assert expected.returncode == 0
    assert attn("examples", "run", name, *flags).stdout == expected.stdout


def test_views_of_several_jobs_have_headings():
    shown = [attn("run", DATA / "general-attention" / job, "--view").stdout for job in ("first-word.json", "job.json")]
    assert attn("examples", "run", "general-attention", "--view").stdout == (
        b"# first-word.json\n" + shown[0] + b"\n# job.json\n" + shown[1])


def test_an_example_may_name_the_job_to_draw():
    expected = attn("run", DATA / "latent-factors" / "people.json", "--view").stdout
    assert b"P7" in expected
    assert attn("examples", "run", "latent-factors", "--view").stdout == expected


@pytest.mark.parametrize("file, start", [("x.svg", b"<svg"), ("x.pdf", b"%PDF-1.7\n"), ("x.png", b"\x89PNG"), ("x.html", b"<!DOCTYPE html>")])
def test_a_view_is_written_to_a_file(tmp_path, file, start):
    run = attn("examples", "run", "general-attention", "--job", "job.json", "--view", file, cwd=tmp_path)
    assert (run.returncode, run.stdout) == (0, b"")
    assert (tmp_path / file).read_bytes().startswith(start)


@pytest.mark.parametrize("view", ["--view=x.svg", "--explain=x.html"])
def test_force_replaces_a_file_as_the_message_says(tmp_path, view):
    command = ["examples", "run", "single-query", view]
    assert attn(*command, cwd=tmp_path).returncode == 0
    assert_error(attn(*command, cwd=tmp_path), 73, "already exists; --force replaces it")
    assert attn(*command, "--force", cwd=tmp_path).returncode == 0
    assert_error(attn(*command[:3], "--force"), 2, "--force requires --view=FILE or --explain FILE")
    for other in "-f", "--overwrite":
        assert_error(attn(*command, other, cwd=tmp_path), 2, "use --force")


@pytest.mark.parametrize("arguments, reason", [
    (["single-query", "head-split", "--view"], "--view and --explain require the name of one example"),
    (["--all", "--view"], "--view and --explain require the name of one example"),
    (["general-attention", "--view=x.svg"], "this example has 2 jobs; choose one with --job: first-word.json or job.json"),
    (["general-attention", "--view", "--job", "jobb.json"], "--job: expected first-word.json or job.json, found 'jobb.json'"),
    (["general-attention", "--job", "job.json"], "--job requires --view or --explain"),
    (["general-attention", "--cells", "--view"], "--cells and --view are mutually exclusive"),
    (["single-query", "--color", "never"], "--color requires --view or --explain on the terminal"),
])
def test_invalid_views_are_refused(tmp_path, arguments, reason):
    assert_error(attn("examples", "run", *arguments, cwd=tmp_path), 2, reason)
    assert list(tmp_path.iterdir()) == []


# attn examples copy


@pytest.mark.parametrize("name", ["general-attention", "latent-factors", "llm-causal-attention"])
def test_copied_jobs_give_the_same_results(tmp_path, name):
    run = attn("examples", "copy", name, "mine/new", cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")
    copies = sorted((tmp_path / "mine/new").iterdir())
    assert {path.name for path in copies} == {path.name for path in (DATA / name).glob("*.json")} - {"example.json"}
    for path in copies:
        if "schema" in json.loads(path.read_text()):
            assert attn("run", path).stdout == attn("run", DATA / name / path.name).stdout


def test_copy_overwrites_nothing(tmp_path):
    (tmp_path / "job.json").write_text("mine")
    run = attn("examples", "copy", "general-attention", tmp_path)
    assert_error(run, 73, "job.json")
    assert [path.name for path in tmp_path.iterdir()] == ["job.json"]
    assert (tmp_path / "job.json").read_text() == "mine"


def test_copy_overwrites_with_force(tmp_path):
    (tmp_path / "job.json").write_text("mine")
    run = attn("examples", "copy", "general-attention", tmp_path, "--force")
    assert (run.returncode, run.stderr) == (0, b"")
    assert (tmp_path / "job.json").read_bytes() == (DATA / "general-attention/job.json").read_bytes()


@pytest.mark.parametrize("arguments, code, reason", [
    ([], 2, "NAME"),
    (["single-query"], 2, "DIR"),
    (["singel-query", "x"], 2, "did you mean 'single-query'?"),
    (["single-query", "/dev/null/x"], 73, "/dev/null/x"),
])
def test_invalid_copies_are_refused(arguments, code, reason):
    assert_error(attn("examples", "copy", *arguments), code, reason)


# attn examples check


class TestCheck:
    @pytest.fixture(scope="class")
    def lines(self):
        run = attn("examples", "check")
        assert (run.returncode, run.stderr) == (0, b"")
        return run.stdout.decode().splitlines()

    def test_prints_a_line_for_each_example(self, lines):
        assert [line.split()[1] for line in lines] == NAMES

    def test_all_examples_pass(self, lines):
        assert [line for line in lines if not line.startswith("ok    ")] == []

    def test_tells_how_much_is_not_determined(self, lines):
        line, = [line for line in lines if "latent-factors" in line]
        assert "not unique" in line
        assert "3 of 5" in line

    def test_counts_the_results(self):
        assert attn("examples", "check", "general-attention").stdout == b"ok    general-attention  4 results\n"


@pytest.fixture
def data(tmp_path):
    """A folder of examples."""
    return tmp_path / "data"


@pytest.mark.parametrize("name, file, old, new, cell", CHANGED_INPUTS)
def test_changed_input_fails_its_example_only(data, name, file, old, new, cell):
    shutil.copytree(DATA, data)
    text = (data / name / file).read_text()
    assert old in text
    (data / name / file).write_text(text.replace(old, new, 1))
    run = attn("examples", "check", "--data", data)
    lines = {line.split()[1]: line for line in run.stdout.decode().splitlines()}
    assert run.returncode == 1
    assert re.match(rf"FAIL  \S+ +{re.escape(cell)}: .*expected .*, found ", lines[name])
    assert [key for key, line in lines.items() if not line.startswith("ok")] == [name]


def is_undetermined(name, line, column):
    """Whether a character of an expected.txt belongs to a singular vector that is not compared: the last
    two columns of U (lines 9 to 15) and the last two rows of Vt (lines 20 and 21)."""
    return name == "latent-factors" and ((9 <= line <= 15 and column >= 29) or line in (20, 21))


@pytest.mark.parametrize("name", ["general-attention", "latent-factors", "equal-keys"])
def test_every_changed_digit_is_noticed(data, name):
    """One copy of the example for each digit of its expected.txt."""
    text = (DATA / name / "expected.txt").read_text()
    undetermined = set()
    for at in (at for at, character in enumerate(text) if character.isdigit()):
        if is_undetermined(name, text.count("\n", 0, at), at - text.rfind("\n", 0, at) - 1):
            undetermined.add(f"{at:05}")
        shutil.copytree(DATA / name, data / f"{at:05}")
        changed = text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1:]
        (data / f"{at:05}" / "expected.txt").write_text(changed)
    run = attn("examples", "check", "--data", data)
    assert run.returncode == 1
    assert {line.split()[1] for line in run.stdout.decode().splitlines() if line[:2] == "ok"} == undetermined


@pytest.mark.parametrize("change, message", [
    (lambda text: text.replace("0.74913039", "0.74913040"),
     r"In \[21\]: first.weights\[0\]: value 3: expected 0.74913040, found 0.749130385\d+\n"),
    (lambda text: text.replace("2, 10", "2,  10"),
     re.escape("In [20]: line 1: expected 'array([ 8,  2,  10,  2])', found 'array([ 8,  2, 10,  2])'")),
    (lambda text: text + "\nmore\n", "more text than results"),
    (lambda text: text[:text.rindex("       [0.995")],
     re.escape("In [29]: line 4: expected no more lines, found '       [0.995")),
    (lambda text: text.replace("\n\n", "\n", 1), re.escape("expected an empty line after In [20]")),
    (lambda text: text[:-1], "expected a newline at its end"),
], ids=["a number", "a space", "more text", "a line less", "no empty line", "no last newline"])
def test_changed_text_is_described(data, change, message):
    shutil.copytree(DATA / "general-attention", data / "x")
    expected = data / "x" / "expected.txt"
    expected.write_text(change(expected.read_text()))
    run = attn("examples", "check", "--data", data)
    assert run.returncode == 1
    assert re.search(message, run.stdout.decode())


# Errors.


@pytest.mark.parametrize("arguments, code, reason", [
    (["run"], 2, "--all"),
    (["run", "genral-attention"], 2, "did you mean 'general-attention'?"),
    (["check", "nothing-like-it"], 2, "unknown example 'nothing-like-it'"),
    (["run", "--all", "single-query"], 2, "--all"),
    (["frobnicate"], 2, "frobnicate"),
    (["list", "--data", "/nonexistent"], 66, "/nonexistent"),
])
def test_invalid_arguments_are_refused(arguments, code, reason):
    run = attn("examples", *arguments)
    assert_error(run, code, reason)
    assert run.stdout == b""


def set_show(key, value):
    """Replaces the first thing that the second cell shows."""
    return lambda example: example["cells"][1]["show"].__setitem__(0, {key: value})


def update_first_show(**keys):
    return lambda example: example["cells"][0]["show"][0].update(keys)


def add_result(**result):
    return lambda example: example["results"].update(s=result)


@pytest.mark.parametrize("change, texts", [
    (lambda example: example.update(titel="x"), ["unknown key 'titel' (did you mean 'title'?)"]),
    (lambda example: example.pop("source"), ["expected the key 'source'"]),
    (lambda example: example.update(title=3), ["title: expected a string, found an integer"]),
    (set_show("reper", "first.scores"), ["cells[1].show[0]", "print, repr"]),
    (set_show("repr", ["first.scores"]), ["expected a reference, found an array"]),
    (set_show("repr", "frist.scores"), ["'frist' is not one of", "(did you mean 'first'?)"]),
    (set_show("repr", "first.scoers"), ["(did you mean 'scores'?)"]),
    (set_show("repr", "first.scores[7]"), ["no element [7] in shape (1, 4)"]),
    (set_show("repr", "first"), ["expected RESULT.VALUE"]),
    (set_show("repr", "first.scores[0].T"), ["expected 2 axes, found shape (4,)"]),
    (set_show("repr", "first.scores.joined"), ["expected 3 axes, found shape (1, 4)"]),
    (set_show("scalar", "first.scores"), ["expected a single number, found shape (1, 4)"]),
    (set_show("list", "first.scores[0][0]"), ["has no elements"]),
    (update_first_show(print_options={"floatmode": "fixd"}),
     ["cells[0].show[0].print_options.floatmode: expected fixed, unique, maxprec or maxprec_equal, found 'fixd'"]),
    (update_first_show(print_options={"precision": -1}), ["precision: expected a whole number from 0 to 1100"]),
    (update_first_show(print_options={"stile": "torch"}), ["unknown key 'stile' (did you mean 'style'?)"]),
    (set_show("size", ["first.scores"]), ["expected a reference, found an array"]),
    (set_show("repr", "first.scores.sum"), ["expected an array of float64 or float32, found int64 of shape (1, 4)"]),
    (update_first_show(corner="x"), ["unknown key 'corner'"]),
    (add_result(job="job.json", rank=1), ["'rank'"]),
    (add_result(shares=["all.weights", "all.weights"]), ["expected a string, found an array"]),
    (add_result(shares="all.scores"), ["expected an array of float64 or float32, found int64"]),
    (add_result(job="job.json", dtype="float31"), ["expected a dtype, found 'float31'"]),
    (add_result(svd="job.json#embeddings", dtype="float32"), ["'dtype'"]),
    (add_result(tensor="job.json#embeddinks"), ["embeddinks"]),
], ids=lambda value: value[0] if isinstance(value, list) else "")
class TestInvalidExample:
    @pytest.fixture(autouse=True)
    def example(self, data, change):
        shutil.copytree(DATA / "general-attention", data / "x")
        example = json.loads((data / "x" / "example.json").read_text())
        change(example)
        (data / "x" / "example.json").write_text(json.dumps(example))

    def test_is_refused_by_run(self, data, texts):
        assert_error(attn("examples", "run", "x", "--data", data), 65, *texts)

    def test_fails_the_check(self, data, texts):
        run = attn("examples", "check", "--data", data)
        assert run.returncode == 1
        assert run.stdout.startswith(b"FAIL  x  ")


# Where the examples are found.


class TestInstalledProgram:
    """A copy of the program next to one example; another example is in elsewhere/."""

    @pytest.fixture
    def names(self, tmp_path):
        """Runs the copy and returns the names that it lists."""
        (tmp_path / "bin").mkdir()
        shutil.copy(ATTN, tmp_path / "bin" / "attn")
        shutil.copytree(DATA / "single-query", tmp_path / "share/attn/examples/installed")
        shutil.copytree(DATA / "head-split", tmp_path / "elsewhere/other")
        environment = {key: value for key, value in os.environ.items() if key != "ATTN_DATA"}

        def names(*arguments, **variables):
            run = subprocess.run([tmp_path / "bin" / "attn", "examples", *arguments], capture_output=True,
                                 env={**environment, **variables}, cwd="/")
            return sorted(line.split()[0] for line in run.stdout.decode().splitlines() if line.startswith("  "))
        return names

    def test_finds_its_data_beside_it(self, names):
        assert names() == ["installed"]

    def test_lists_by_default(self, names):
        assert names("list") == names()

    def test_prefers_attn_data(self, names, tmp_path):
        assert names(ATTN_DATA=str(tmp_path / "elsewhere")) == ["other"]

    def test_prefers_the_flag_to_attn_data(self, names, tmp_path):
        assert names("--data", DATA, ATTN_DATA=str(tmp_path / "elsewhere")) == NAMES

    def test_accepts_the_flag_after_the_command(self, names):
        assert names("list", "--data", DATA) == NAMES

    def test_without_data_lists_nothing(self, names, tmp_path):
        shutil.rmtree(tmp_path / "share")
        assert names() == []


# The files of the examples.

FILES = [pytest.param(path, id=f"{path.parent.name}/{path.name}") for path in sorted(DATA.glob("*/*.json"))]


@pytest.mark.parametrize("path", [file for file in FILES if "schema" in json.loads(file.values[0].read_text())])
def test_jobs_of_examples_run_without_warnings(path):
    run = attn("run", path, "--view", "--explain", "-")
    assert (run.returncode, run.stderr) == (0, b"")


def test_examples_of_one_source_have_the_same_origin():
    origins = {}
    for name in NAMES:
        example = json.loads((DATA / name / "example.json").read_text())
        origins.setdefault(example["source"], set()).add((example.get("url"), example.get("licence")))
    assert [source for source, all_of_it in origins.items() if len(all_of_it) > 1] == []
    assert [source for source, all_of_it in origins.items()
            if None in next(iter(all_of_it)) and not source.startswith("Notebook: ")] == []


def test_all_cells_of_the_chapter_that_print_tensors_are_there():
    """Of rasbt/LLMs-from-scratch, ch03.ipynb; In [18] and [33] print shapes only."""
    cells = [cell["cell"] for name in NAMES if name.startswith("llm-")
             for cell in json.loads((DATA / name / "example.json").read_text())["cells"]]
    assert sorted(cells) == sorted(f"In [{n}]" for n in [*range(3, 15), *range(17, 39)])


@pytest.mark.parametrize("path", [file for file in FILES if file.values[0].name == "example.json"])
def test_examples_contain_no_computed_numbers(path):
    example = json.loads(path.read_text())
    assert re.findall(r"-?\d+\.\d+", json.dumps([example["results"], example["cells"]])) == []


MARKS = {"\x1b[31m": "\\x1b[31m", "\x1b]0;t\x07": "\\x1b]0;t\\x07", "\n": "\\x0a", "\u202e": "\\xe2\\x80\\xae",
         "\u009b2J": "\\xc2\\x9b2J"}


@pytest.mark.parametrize("mark", MARKS, ids=ascii)
def test_names_of_an_example_are_escaped(tmp_path, mark):
    """Of its folder, and in its file, which other people may have written."""
    folder = tmp_path / f"n{mark}n"
    shutil.copytree(DATA / "head-split", folder)
    example = json.loads((folder / "example.json").read_text())
    named = {key: f"{key}{mark}." for key in ("title", "source", "section", "licence")}
    (folder / "example.json").write_text(json.dumps(example | named))
    shown = MARKS[mark]
    listed = attn("examples", "list", "--data", tmp_path)
    assert (listed.returncode, listed.stdout.decode()) == (
        0, f"source{shown}. (licence{shown}.)\n  n{shown}n  title{shown}. [section{shown}.]\n")
    checked = attn("examples", "check", "--data", tmp_path)
    assert checked.returncode == 0 and checked.stdout.decode().startswith(f"ok    n{shown}n  ")
    (folder / "expected.txt").write_text("")
    for run in attn("examples", "check", "--data", tmp_path), attn("examples", "run", "x", "--data", tmp_path):
        text = (run.stdout + run.stderr).decode()
        assert not any(c in text for c in "\x1b\x07\u202e\u009b") and "\nn" not in text
    assert checked.stdout.count(b"\n") == 1
