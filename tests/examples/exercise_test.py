"""`attn examples exercise`: the numbers are NumPy's, the sheet has blanks, and the solution is right."""

import json
import re

import numpy as np
import pytest

from support.attn import ROOT, assert_error, attn
from view.explain_test import assert_close, matrices, numbers_of

DATA = ROOT / "data" / "examples"
NAME = "illustrated-self-attention"
BLANK = r"\underline{\hspace{2em}}"


@pytest.fixture
def exercise(tmp_path):
    def exercise(name, *flags, suffix="md"):
        run = attn("examples", "exercise", name, "-o", f"sheet.{suffix}", "--force", *flags, cwd=tmp_path)
        assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")
        return [(tmp_path / f"{file}.{suffix}").read_text() for file in ("sheet", "sheet-solution")]
    return exercise


def given_by_default_rng(job, seed):
    """Drawn again while two rows of scores are equal."""
    rng = np.random.default_rng(seed)
    for _ in range(100):
        new = {key: rng.integers(np.min(job[key]), np.max(job[key]), np.shape(job[key]), endpoint=True)
               for key in ("W_Q", "W_K", "W_V", "embeddings")}
        scores = new["embeddings"] @ new["W_Q"] @ (new["embeddings"] @ new["W_K"]).T
        if len(np.unique(scores, axis=0)) == len(scores):
            return new
    raise AssertionError("no rows that differ")


def given_in(sheet):
    """The matrices without blanks."""
    return matrices("\n".join(line for line in sheet.splitlines() if BLANK not in line))


@pytest.mark.parametrize("seed", [0, 3, 7, 2**40])
def test_numbers_are_integers_drawn_by_default_rng(exercise, seed):
    given = given_in(exercise(NAME, "--seed", str(seed))[0])
    job = json.loads((DATA / NAME / "job.json").read_text())
    new = given_by_default_rng(job, seed)
    for key, name in ("W_Q", "W_{Q}"), ("W_K", "W_{K}"), ("W_V", "W_{V}"), ("embeddings", "X"):
        np.testing.assert_array_equal(given[name], new[key])


def test_solution_is_that_of_the_sheet(exercise):
    sheet, solution = exercise(NAME, "--seed", "7")
    given, found = given_in(sheet), matrices(solution)
    assert set(given) == {"X", "W_{Q}", "W_{K}", "W_{V}"}
    q, k, v = (given["X"] @ given[f"W_{{{letter}}}"] for letter in "QKV")
    scores = q @ k.T
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    for name, wanted in {**given, "Q": q, "K": k, "V": v, "S": scores, "A": weights, "C": weights @ v}.items():
        assert_close(found[name], wanted)
    numbers_of(solution, least=10)


def test_sheet_asks_for_all_that_the_solution_states(exercise):
    sheet, solution = exercise(NAME)
    asked = {line.partition(" &=")[0] for line in sheet.splitlines() if BLANK in line}
    assert asked == {line.partition(" &=")[0] for line in solution.splitlines() if " &=" in line} - set(given_in(sheet))
    assert "= XW_{Q} =" in sheet  # formulas stay
    computed = [line for line in sheet.splitlines() if BLANK in line]
    assert not any(re.search(r"= *[-\d]", line) for line in computed)


def jobs():
    for folder in sorted(DATA.iterdir()):
        for job in sorted({file.name for file in folder.glob("*.json")} - {"example.json"}):
            yield folder.name, job


def evaluated(formula, known, axis):
    """The matrix of a formula of the sheet, such as "XW_{Q} + b_{Q}"."""
    if match := re.fullmatch(r"([A-Z]'?)(W_\{[QKVO]\})(?: ?\+ ?(b_\{[QKVO]\}))?", formula):
        return known[match[1]] @ known[match[2]] + (known[match[3]] if match[3] else 0)
    if formula == "X":
        return known["X"]
    if formula == "QK^{T}":
        return known["Q"] @ known["K"].T
    if formula == r"\cos (Q,K)":
        q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (known["Q"], known["K"]))
        return q @ k.T
    if match := re.fullmatch(r"(\S+)\\cdot S", formula):
        return float(match[1]) * known["S"]
    if match := re.fullmatch(r"\\frac\{S\}\{\\sqrt\{(\d+)\}\}", formula):
        return known["S"] / int(match[1]) ** .5
    if formula.startswith(r"\frac{e^{"):
        scores = known[re.match(r"\\frac\{e\^\{(s'*)", formula)[1].upper()]
        powers = np.exp(scores - scores.max(axis, keepdims=True))
        return powers / powers.sum(axis, keepdims=True)
    if match := re.fullmatch(r"(A'?)V", formula):
        return known[match[1]] @ known["V"]
    return None


@pytest.mark.parametrize("name, job", jobs())
def test_results_follow_from_what_the_sheet_shows(tmp_path, name, job):
    run = attn("examples", "exercise", name, "--job", job, "-o", "sheet.md", "--seed", "5", cwd=tmp_path)
    if run.returncode == 2:
        assert re.search(b"no exercise for|too many rows|no numbers that can change|--job: expected", run.stderr)
        return
    assert run.returncode == 0
    known, solution = {}, matrices((tmp_path / "sheet-solution.md").read_text())
    sheet = (tmp_path / "sheet.md").read_text()
    axis = None if "the whole matrix" in sheet else -1
    for line in sheet.splitlines():
        left, _, right = line.partition(" &= ")
        if "bmatrix" not in right:
            continue
        if BLANK not in right:
            known[left] = matrices(line)[left]
            continue
        formula = right.partition(" = ")[0]
        found = evaluated(formula, known, axis)
        if found is None:
            assert left in ("S''", "A'"), line
            shown = np.array([[np.nan if BLANK in cell else float(cell.replace(r"-\infty", "-inf"))
                               for cell in row.split("&")]
                              for row in re.search(r"\\begin\{bmatrix\}(.*)\\end", right)[1].split(r"\\")])
            whole = known["S'" if "S'" in known else "S"] if left == "S''" else known["A"]
            found = np.where(np.isnan(shown), whole / (known.get("p", 1) if left == "A'" else 1), shown)
            if left == "A'":
                found = np.where(found == 0, 0, found * np.nanmedian(solution["A'"][found != 0] / found[found != 0]))
        np.testing.assert_allclose(found, solution[left], rtol=2e-4, atol=1e-5, err_msg=line)
        known[left] = found
    assert "C" in known and "A" in known


def test_hidden_keys_stay(exercise):
    sheet, _ = exercise("deep-learning-specialization", "--job", "masked.json")
    line = next(line for line in sheet.splitlines() if line.startswith("S''"))
    assert line.count(r"-\infty") == 3 and line.count(BLANK) == 9


def test_a_constant_of_a_formula_stays(exercise):
    sheet, _ = exercise("deep-learning-specialization", "--job", "job.json")
    assert re.search(r"^S' &= \\frac\{S\}\{\\sqrt\{4\}\} = ", sheet, re.MULTILINE)


def test_many_digits_become_two(exercise):
    given = given_in(exercise("uva-pytorch", "--seed", "1")[0])
    for name in "QKV":
        assert np.abs(given[name] * 100 - np.round(given[name] * 100)).max() < 1e-9
        assert np.abs(given[name] * 10 - np.round(given[name] * 10)).max() > 0.1


def test_seeds_differ_and_are_in_the_title(exercise):
    first, again, other = (exercise(NAME, "--seed", seed) for seed in ("1", "1", "2"))
    assert first == again
    assert given_in(first[0])["X"].tolist() != given_in(other[0])["X"].tolist()
    assert first[0].startswith(f"# Exercise 1 ({NAME})\n") and other[1].startswith(f"# Solution of exercise 2 ({NAME})\n")


@pytest.mark.parametrize("suffix, blank", [("html", '<mspace class="blank"'), ("tex", BLANK), ("txt", "____")])
def test_formats(exercise, suffix, blank):
    sheet, solution = exercise(NAME, suffix=suffix)
    assert sheet.count(blank) >= 45
    assert blank not in solution
    assert "<svg" not in sheet


def test_query_is_chosen(exercise):
    sheet, solution = exercise("illustrated-self-attention", "--explain-query", "2")
    assert "q_{2,0} &=" in sheet and "q_{0,0} &=" not in sheet
    assert "q_{2,0} &=" in solution


def test_standard_output(tmp_path):
    run = attn("examples", "exercise", NAME, "-o", "-", "--solution", "answers.txt", cwd=tmp_path)
    assert run.returncode == 0
    assert run.stdout.decode().startswith(f"Exercise 0 ({NAME})\n")
    assert (tmp_path / "answers.txt").read_text().startswith("Solution of exercise 0 ")


@pytest.mark.parametrize("flags, code, message", [
    ([NAME], 2, "--output is required"),
    ([NAME, "-o", "-"], 2, "-o -: the solution needs a name of its own; give --solution"),
    ([NAME, "-o", "-", "--solution", "-"], 2, "--solution -: the sheet is written to standard output"),
    ([NAME, "-o", "a.pdf"], 2, "-o a.pdf: expected a name that ends in .txt, .md, .html or .tex"),
    ([NAME, "-o", "a.md", "--solution", "b.doc"], 2, "--solution b.doc: expected a name that ends in"),
    ([NAME, "-o", "a.md", "--solution", "./a.md"], 2, "two outputs write to the same file"),
    ([NAME, "-o", "a.md", "--seed", "-1"], 2, "--seed: expected"),
    ([NAME, "-o", "a.md", "--explain-query", "3"], 2, "--explain-query 3: expected 0 to 2"),
    (["no-such", "-o", "a.md"], 2, "unknown example 'no-such'"),
    (["gpt-averages", "-o", "a.md"], 2, "this example has 2 jobs; choose one with --job: toy.json or rows.json"),
    (["llm-causal-attention", "--job", "dropout.json", "-o", "a.md"], 2, "this job has no numbers that can change"),
    (["head-split", "-o", "a.md"], 2, "no exercise for a job with several heads"),
    (["general-attention", "--job", "first-word.json", "-o", "a.md"], 2, "no exercise for a job with some rows only"),
    (["gpt-head", "-o", "a.md"], 2, "X has too many rows or columns for an exercise"),
])
def test_errors_write_nothing(tmp_path, flags, code, message):
    assert_error(attn("examples", "exercise", *flags, cwd=tmp_path), code, message)
    assert list(tmp_path.iterdir()) == []


def test_existing_solution_is_kept(tmp_path):
    (tmp_path / "a-solution.md").write_text("mine")
    assert_error(attn("examples", "exercise", NAME, "-o", "a.md", cwd=tmp_path), 73, "already exists; --force replaces it")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a-solution.md", "mine")]
