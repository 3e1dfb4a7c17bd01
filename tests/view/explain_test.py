"""`attn run --explain`: the matrices are NumPy's, and every line of arithmetic is true as printed."""

import functools
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree

import numpy as np
import pytest

from support.attn import ROOT, assert_error, attn


def value(latex):
    """The number that a LaTeX expression evaluates to."""
    text = re.sub(r"\\sqrt\{([^{}]*)\}", r"((\1)**0.5)", latex)
    while "\\frac" in text:  # they may be nested
        text = re.sub(r"\\frac\{((?:[^{}]|\{[^{}]*\})*)\}\{((?:[^{}]|\{[^{}]*\})*)\}", r"((\1)/(\2))", text)
    text = re.sub(r"e\^\{([^{}]*)\}", r"np.exp(\1)", text)
    text = re.sub(r"10\^\{([^{}]*)\}", r"10**(\1)", text)
    text = text.replace("\\left", "").replace("\\right", "")
    text = text.replace("\\cdot", "*").replace("\\mathrm{tanh}", "np.tanh")
    return float(eval(text.replace("\\infty", "np.inf"), {"np": np}))  # printed by our own program


def matrices(text):
    """{name: the last matrix on its line}; elements that are dots are NaN."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" &= ")
        blocks = re.findall(r"\\begin\{bmatrix\}(.*?)\\end\{bmatrix\}", rest)
        if blocks:
            found[name] = np.array(
                [[np.nan if "dots" in cell else value(cell) for cell in row.split("&")]
                 for row in blocks[-1].split("\\\\")])
    return found


def numbers_of(text, least=1):
    """{left side: number} of the lines of arithmetic, after checking those without dots, at least so many."""
    stated, checked = {}, 0
    for line in text.splitlines():
        name, _, rest = line.rstrip("\\ ").partition(" &= ")
        if not rest or "bmatrix" in rest or re.search(r"[A-Z]", rest):
            continue
        parts = rest.split(" = ")
        stated[name.strip()] = value(parts[-1])
        if len(parts) == 2 and "\\dots" not in parts[0]:
            checked += 1
            np.testing.assert_allclose(value(parts[0]), value(parts[1]), rtol=3e-4, atol=2e-4, err_msg=line)
    assert checked >= least
    return stated


def assert_close(found, wanted):
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-12)


@pytest.fixture
def explain(tmp_path):
    """Explains a job and returns the text, by default Markdown."""
    def explain(job, *arguments, suffix="md"):
        (tmp_path / "job.json").write_text(json.dumps(job))
        run = attn("run", "job.json", "--explain", f"e.{suffix}", "--force", *arguments, cwd=tmp_path)
        assert run.returncode == 0
        return (tmp_path / f"e.{suffix}").read_text()
    return explain


@pytest.fixture
def outputs(tmp_path):
    """Computes outputs of a job, as arrays by name."""
    def outputs(job, *names):
        (tmp_path / "job.json").write_text(json.dumps(job))
        run = attn("run", "job.json", "--format", "json", "--outputs", ",".join(names), cwd=tmp_path)
        result = json.loads(run.stdout)
        return {name: np.array(result[name]) for name in names}
    return outputs


def softmax(s, axis=-1):
    e = np.exp(s - s.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


# The example of the notebook.


class TestNotebook:
    @pytest.fixture(scope="class")
    def text(self, class_path):
        job = ROOT / "data" / "examples" / "general-attention" / "job.json"
        attn("run", job, "--explain", "e.md", "--explain-query", "2", cwd=class_path)
        return (class_path / "e.md").read_text()

    @pytest.fixture(scope="class")
    def expected(self):
        words = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]])
        random = np.random.RandomState(42)
        wq, wk, wv = (random.randint(3, size=(3, 3)) for _ in range(3))
        q, k, v = words @ wq, words @ wk, words @ wv
        a = softmax(q @ k.T / np.sqrt(3))
        return {"X": words, "W_{Q}": wq, "Q": q, "W_{K}": wk, "K": k, "V": v, "S": q @ k.T,
                "S'": q @ k.T / np.sqrt(3), "A": a, "C": a @ v}

    @pytest.mark.parametrize("name", ["X", "W_{Q}", "Q", "W_{K}", "K", "V", "S", "S'", "A", "C"])
    def test_matrix_is_printed_as_by_numpy(self, text, expected, name):
        assert_close(matrices(text)[name], expected[name])

    @pytest.mark.parametrize("key", range(4))
    def test_score_of_a_key_is_stated(self, text, expected, key):
        assert numbers_of(text)[f"s_{{2,{key}}}"] == expected["S"][2, key]

    @pytest.mark.parametrize("key", range(4))
    def test_weight_of_a_key_is_stated(self, text, expected, key):
        assert numbers_of(text)[f"a_{{2,{key}}}"] == pytest.approx(expected["A"][2, key], rel=1e-5)

    @pytest.mark.parametrize("column", range(3))
    def test_context_is_stated(self, text, expected, column):
        assert numbers_of(text)[f"c_{{2,{column}}}"] == pytest.approx(expected["C"][2, column], rel=1e-5)

    def test_text_has_words_and_shapes(self, text):
        assert "query 2 (word\\_3)" in text
        assert "S is (4, 4)." in text

    def test_headings_are_the_stages(self, text):
        assert re.findall(r"^## \d\. (.*)$", text, re.MULTILINE) == [
            "Queries", "Keys and values", "Scores", "Scale", "Softmax", "Context"]


# Options. Three queries, four keys.

RNG = np.random.default_rng(8)
Q, K, V = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 4)), RNG.standard_normal((4, 2))
JOB = {"Q": Q.tolist(), "K": K.tolist(), "V": V.tolist()}
SCALED = Q @ K.T / 2
CAUSAL = np.where(np.tri(3, 4, dtype=bool), SCALED, -np.inf)


@pytest.mark.parametrize("options, query, name, expected", [
    ({"score": "cosine"}, 1, "S",
     Q @ K.T / np.outer(np.linalg.norm(Q, axis=1), np.linalg.norm(K, axis=1))),
    ({"softcap": 2, "scale": -0.75}, 0, "S'", 2 * np.tanh(-0.75 * Q @ K.T / 2)),
    ({"causal": True}, 1, "S''", CAUSAL),
    ({"causal": True}, 1, "A", softmax(CAUSAL)),
    ({"softmax": {"axis": "all"}}, 0, "A", softmax(SCALED, axis=None)),
], ids=["cosine", "softcap and scale", "causal scores", "causal weights", "softmax over all"])
def test_matrix_with_options_is_printed_as_by_numpy(explain, options, query, name, expected):
    text = explain({**JOB, **options}, "--explain-query", query)
    assert_close(matrices(text)[name], expected)
    numbers_of(text)


def test_scale_of_a_head_and_softcap(explain):
    """Head 1 of 2; the softcap limits the product of the score, the scale and that of the head."""
    job = {"Q": [[Q.tolist()] * 2], "K": [[K.tolist()] * 2], "head_scale": [3, -10], "softcap": 1}
    capped = np.tanh(-10 * SCALED)
    text = explain(job, "--explain-head", "1")
    assert_close(matrices(text)["S'"], capped)
    assert r"S' &= 1\cdot \mathrm{tanh}\left(\frac{\frac{S}{\sqrt{4}}\cdot (-10)}{1}\right) = " in text
    stated = numbers_of(text)
    for key in range(4):
        assert stated[f"s'_{{0,{key}}}"] == pytest.approx(capped[0, key], rel=1e-5)


CAPPED = 2 * np.tanh(SCALED / 2)


@pytest.mark.parametrize("options, words, formula, arithmetic, expected", [
    ({}, "The softcap limits the scores.", True, 4, CAPPED),
    ({"causal": True}, "The softcap limits the scores. Keys that a query may not see", False, 2,
     np.where(np.tri(3, 4, dtype=bool), CAPPED, -np.inf)),
    ({"bias": [1, 2, 3, 4]}, "are added to the scores. The softcap limits the sums.", False, 0,
     2 * np.tanh((SCALED + [1, 2, 3, 4]) / 2)),
], ids=["no mask", "causal", "bias"])
def test_softcap_after_the_mask(explain, options, words, formula, arithmetic, expected):
    text = explain({**JOB, **options, "softcap": 2, "softcap_order": "after-mask"}, "--explain-query", "1")
    assert words in text.replace("\n", " ")
    assert (r"S'' &= 2\cdot \mathrm{tanh}\left(\frac{S'}{2}\right) = " in text) == formula
    assert_close(matrices(text)["S''"], expected)
    stated = {name: number for name, number in numbers_of(text).items() if name.startswith("s''")}
    assert len(stated) == arithmetic
    for key in range(arithmetic):
        assert stated[f"s''_{{1,{key}}}"] == pytest.approx(expected[1, key], rel=1e-5)


def test_mask_of_hidden_keys_names_nothing_that_is_added(explain):
    assert "Additive masks" not in explain({**JOB, "causal": True})
    assert "Additive masks" in explain({**JOB, "alibi": True})


def test_hidden_keys_have_weight_zero(explain):
    stated = numbers_of(explain({**JOB, "causal": True}, "--explain-query", "1"))
    assert stated["a_{1,2}"] == 0
    assert stated["a_{1,3}"] == 0


@pytest.mark.parametrize("options", [{"score": "cosine"}, {"scale": "none"}], ids=json.dumps)
def test_scores_without_a_scale_have_no_such_stage(explain, options):
    text = explain({**JOB, **options})
    assert "Scale" not in text
    numbers_of(text)


def test_chosen_row_keeps_the_name_of_its_query(explain):
    text = explain({**JOB, "rows": [2], "tokens": ["a", "b", "<c>"]})
    assert "query 2 (\\<c\\>), row 0" in text
    assert_close(matrices(text)["A"], softmax(SCALED)[2:])


def test_query_that_sees_no_key_is_explained(explain):
    text = explain({**JOB, "mask": [[False] * 4] * 3, "tokens": ["a", "b", "c"], "rows": [-1]})
    assert "This query sees no key." in text
    assert "query -1 (c), row 0" in text


@pytest.mark.parametrize("options", [
    {"rotary": {"kind": "half"}}, {"qk_norm": "rms"}, {"score": "l2"}, {"normaliser": "sparsemax"},
    {"temperature": 2}, {"sinks": [0.5]}, {"zero_key": True}, {"alibi": True},
    {"softcap": 1, "softcap_order": "after-mask"}, {"past_K": K[:2].tolist(), "past_V": V[:2].tolist()},
    {"clip_qkv": 0.5}, {"query_scale": {"factor": 0.5, "length": 1}}, {"head_scale": [3]},
    {"gate": (0.5 * Q[:, :1] + V[:3] * 2).tolist()}, {"bias": [[1, 2, 3, 4]]}],
    ids=lambda options: ", ".join(options))
def test_matrices_with_options_are_the_outputs(explain, outputs, options):
    text = explain({**JOB, **options}, "--outputs", "scores,weights,context")
    numbers_of(text)
    results = outputs({**JOB, **options}, "scores", "weights", "context")
    for name, output in ("S", "scores"), ("A", "weights"), ("C", "context"):
        assert_close(matrices(text)[name], results[output])


# Gradients.

GRAD = RNG.standard_normal((3, 2))


def gradients(q, k, v, of_context, hidden=None, scale=0.5):
    a = softmax(np.where(hidden, -np.inf, scale * q @ k.T) if hidden is not None else scale * q @ k.T)
    of_weights = of_context @ v.T
    delta = (a * of_weights).sum(1, keepdims=True)
    of_scores = a * (of_weights - delta)
    return {"dV": a.T @ of_context, "dA": of_weights, "δ": delta, "dS": of_scores, "dQ": scale * of_scores @ k,
            "dK": scale * of_scores.T @ q}


@pytest.mark.parametrize("options, arguments", [
    ({}, {}), ({"causal": True}, {"hidden": ~np.tri(3, 4, dtype=bool)}), ({"scale": -2}, {"scale": -2}),
    ({"scale": "none"}, {"scale": 1})], ids=["plain", "causal", "scale", "no scale"])
def test_gradients_are_explained(explain, options, arguments):
    """Every line of arithmetic is true, and the matrices are those of NumPy."""
    text = explain({**JOB, **options, "grad_context": GRAD.tolist()}, "--outputs", "grad_V", "--explain-query", "1")
    found, key = matrices(text), int(re.search(r"those of key (\d)", text)[1])
    expected = gradients(Q, K, V, GRAD, **arguments)
    for name, wanted in expected.items():
        assert_close(found["\\delta " if name == "δ" else f"\\mathrm{{{name}}}"], wanted)
    stated = numbers_of(text, 20)
    for name, (row, letter) in {"dV": (key, "dv"), "dS": (1, "ds"), "dQ": (1, "dq"), "dK": (key, "dk")}.items():
        for column, wanted in enumerate(expected[name][row]):
            assert stated[f"\\mathrm{{{letter}}}_{{{row},{column}}}"] == pytest.approx(wanted, rel=1e-5, abs=1e-12)


def test_context_is_divided_by_o_scale(explain):
    text = explain({**JOB, "o_scale": 2.5})
    context = softmax(SCALED) @ V / 2.5
    assert_close(matrices(text)["C"], context)
    stated = numbers_of(text)
    for column in range(2):
        assert stated[f"c_{{0,{column}}}"] == pytest.approx(context[0, column], rel=1e-5)
    assert r"\frac{AV}{2.5}" in text
    assert "divided by the option o\\_scale." in text
    gates = RNG.standard_normal((3, 2))
    text = explain({**JOB, "o_scale": 2.5, "gate": gates.tolist()})
    assert_close(matrices(text)["C"], context / (1 + np.exp(-gates)))
    assert r"\frac{G\odot AV}{2.5}" in text


def test_gradients_are_divided_by_o_scale(explain, outputs):
    job = {**JOB, "o_scale": 2.5, "grad_context": GRAD.tolist()}
    text = explain(job, "--outputs", "grad_V", "--explain-query", "1")
    found, results = matrices(text), outputs(job, "grad_Q", "grad_K", "grad_V")
    assert_close(found["\\mathrm{dC}"], GRAD)
    for name, wanted in gradients(Q, K, V, GRAD / 2.5).items():
        assert_close(found["\\delta " if name == "δ" else f"\\mathrm{{{name}}}"], wanted)
        if f"grad_{name[1:]}" in results:
            np.testing.assert_allclose(results[f"grad_{name[1:]}"], wanted, rtol=1e-12)
    numbers_of(text, 20)


@pytest.mark.parametrize("query", [0, 1])
def test_gradients_of_uniform_weights(explain, outputs, query):
    """Those of query 0, which sees no key, are constants."""
    job = {**JOB, "mask": [[False] * 4, [True] * 4, [True, False, True, True]], "empty_rows": "uniform",
           "grad_context": GRAD.tolist()}
    names = ("grad_Q", "grad_K", "grad_V")
    text = explain(job, "--outputs", ",".join(names), "--explain-query", query)
    found, results = matrices(text), outputs(job, *names)
    a = softmax(np.where(np.array(job["mask"]), SCALED, -1e9))
    assert_close(found["A"], np.where(np.arange(3)[:, None] == 0, 0.25, a))
    of_scores = a * (GRAD @ V.T - (a * (GRAD @ V.T)).sum(1, keepdims=True))
    of_scores[0] = 0
    for name, wanted in {"dV": found["A"].T @ GRAD, "dS": of_scores, "dQ": of_scores @ K / 2,
                         "dK": of_scores.T @ Q / 2}.items():
        np.testing.assert_allclose(found[f"\\mathrm{{{name}}}"], wanted, rtol=1e-5, atol=1e-6)
        if f"grad_{name[1:]}" in results:
            np.testing.assert_allclose(results[f"grad_{name[1:]}"], wanted, rtol=1e-5, atol=1e-6)
    assert "see no key are equal, as the option empty\\_rows says" in text
    assert "their weights are 0, unless the query sees no key" in " ".join(text.split())
    assert "sees no key do not depend on the scores" in text
    numbers_of(text, 15)


def test_gradients_of_projections_are_explained(explain):
    """The four words: each word is a row of the identity or a sum of two, so that products are easy to follow."""
    x = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]])
    wq, wk, wv = (np.random.RandomState(4).randint(3, size=(3, 3)) for _ in range(3))
    of_context = np.random.RandomState(5).randint(3, size=(4, 3)).astype(float)
    text = explain({"embeddings": x.tolist(), "W_Q": wq.tolist(), "W_K": wk.tolist(), "W_V": wv.tolist(),
                    "grad_context": of_context.tolist()}, "--outputs", "delta")
    of = gradients(x @ wq, x @ wk, x @ wv, of_context, scale=3 ** -0.5)
    found = matrices(text)
    for letter, w in ("Q", wq), ("K", wk), ("V", wv):
        assert_close(found[f"\\mathrm{{dW}}_{{{letter}}}"], x.T @ of[f"d{letter}"])
    assert_close(found["\\mathrm{dX}"], of["dQ"] @ wq.T + of["dK"] @ wk.T + of["dV"] @ wv.T)
    numbers_of(text, 35)


@pytest.mark.parametrize("names", ["QV", "K", "V"])
def test_gradients_of_some_projections_are_explained(explain, names):
    """The others are the identity."""
    rng = np.random.default_rng(27)
    x, of_context = rng.standard_normal((3, 2)), rng.standard_normal((3, 2))
    w = {letter: rng.standard_normal((2, 2)) if letter in names else np.eye(2) for letter in "QKV"}
    text = explain({"embeddings": x.tolist(), **{f"W_{letter}": w[letter].tolist() for letter in names},
                    "grad_context": of_context.tolist()}, "--outputs", "delta")
    of = gradients(*(x @ w[letter] for letter in "QKV"), of_context, scale=2 ** -0.5)
    found = matrices(text)
    assert_close(found["\\mathrm{dX}"], sum(of[f"d{letter}"] @ w[letter].T for letter in "QKV"))
    assert {name for name in found if "mathrm{dW}" in name} == {f"\\mathrm{{dW}}_{{{letter}}}" for letter in names}
    assert "Where the job has no matrix, it is the identity." in text


@pytest.mark.parametrize("job, reason", [
    ({"softcap": 2}, "a softcap"), ({"sinks": [1]}, "sinks"), ({"temperature": 2}, "a temperature"),
    ({"normaliser": "sparsemax"}, "another normaliser than softmax over keys, or another softmax.precision"),
    ({"rotary": {"kind": "half"}}, "queries or keys that are clipped"), ({"zero_key": True}, "keys that are appended"),
    ({"grad_logsumexp": [1.0, 2.0, 3.0]}, "grad_logsumexp"),
    ({"mask": [[False] * 4, [True] * 4, [True] * 4], "empty_rows": "nan"}, "a query that sees no key and has weights NaN")])
def test_gradients_that_are_not_explained(explain, job, reason):
    text = explain({**JOB, **job, "grad_context": GRAD.tolist()}, "--outputs", "grad_Q")
    assert f"Gradients are not explained for a job with {reason}" in text.replace("\\_", "_").replace("\n", " ")


def test_gradients_are_explained_on_request_only(explain):
    assert "radient" not in explain({**JOB, "grad_context": GRAD.tolist()}, "--outputs", "context")


def test_large_matrix_is_shown_by_its_edges(explain):
    big = np.random.default_rng(8).standard_normal((20, 10))
    found = matrices(explain({"Q": big.tolist(), "K": big.tolist()}, "--explain-query", "19"))["S"]
    kept = [0, 1, 2, 17, 18, 19]
    largest = np.argsort(-(big @ big.T)[19])[:3]
    columns = sorted({*kept, *largest.tolist()})
    shown = found[np.isfinite(found)]
    assert_close(shown, (big @ big.T)[np.ix_(kept, columns)].ravel())


def test_explained_row_and_its_largest_weights_are_numbers(explain):
    """Of 30 tokens, in the middle of the matrices, which are shown by their edges."""
    q = np.random.default_rng(8).standard_normal((30, 4)) * 2
    scores = q @ q.T / 2
    weights = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    largest = sorted(np.argsort(-weights[10])[:3].tolist())
    assert set(largest) - {0, 1, 2, 27, 28, 29}
    text = explain({"Q": q.tolist(), "K": q.tolist(), "V": q.tolist()}, "--explain-query", "10")
    for key in largest:
        line = next(line for line in text.splitlines() if f"a_{{10,{key}}}" in line)
        assert float(line.rstrip("\\").split("=")[-1].strip()) == pytest.approx(weights[10, key], rel=1e-5)
    shown = matrices(text)["A"]
    kept = sorted({0, 1, 2, 27, 28, 29, *largest})
    numbers = np.sort(shown[np.isfinite(shown)])
    rows = [0, 1, 2, 10, 27, 28, 29]
    assert_close(numbers, np.sort(weights[np.ix_(rows, kept)].ravel()))


# The query that is explained.


@pytest.mark.parametrize("options, query", [
    ({}, 0), ({"causal": True}, 3), ({"causal": True, "query_lengths": 2}, 1), ({"causal": True, "rows": [2, 1]}, 1),
    ({"causal": True, "key_lengths": 0}, 0)], ids=lambda value: str(value))
def test_query_by_default(explain, options, query):
    q = np.random.default_rng(9).standard_normal((4, 3)).tolist()
    text = explain({"Q": q, "K": q, **options})
    assert re.search(r"step by step for query (\d+)", text).group(1) == str(query)
    if "key_lengths" not in options:
        assert "This query sees no key." not in text


def test_query_given_replaces_the_default(explain):
    q = np.random.default_rng(9).standard_normal((4, 3)).tolist()
    assert "step by step for query 1," in explain({"Q": q, "K": q, "causal": True}, "--explain-query", "1")


# Labels.


def tables(html):
    """The matrices of a page: for each, its labels of columns, its labels of rows, and its other cells."""
    body = xml.etree.ElementTree.fromstring(re.search(r"<body>.*</body>", html, re.DOTALL).group())
    found = []
    for table in body.iter("mtable"):
        if table.get("class") != "matrix":
            continue
        columns, rows, cells = [], [], []
        for row in table:
            labels = ["".join(cell.itertext()) for cell in row if "label" in cell.get("class", "")]
            numbers = ["".join(cell.itertext()) for cell in row if cell.get("class") is None]
            if any("open" in cell.get("class", "") for cell in row):
                rows += labels
                cells.append(numbers)
            else:
                columns = labels
        found.append((columns, rows, cells))
    return found


class TestLabels:
    TOKENS = ["the", "cat", "<b>", "a long token of many letters"]
    SHOWN = ["the", "cat", "<b>", "a long toke\u2026"]

    @pytest.fixture(scope="class")
    def job(self):
        x = np.random.default_rng(15).integers(-2, 3, (4, 3)).tolist()
        return {"embeddings": x, "W_Q": np.eye(3).tolist(), "tokens": self.TOKENS, "causal": True, "scale": "none"}

    def test_of_matrices_are_tokens(self, explain, job):
        both, rows = (self.SHOWN, self.SHOWN), ([], self.SHOWN)
        assert [table[:2] for table in tables(explain(job, suffix="html"))] == [
            rows, ([], []), rows, rows, rows, both, both, both, rows]  # X, W, Q, K, V, S, S'', A, C

    def test_of_chosen_rows(self, explain, job):
        found = tables(explain(job | {"rows": [-1, 0]}, suffix="html"))
        assert found[5][:2] == (self.SHOWN, [self.SHOWN[3], self.SHOWN[0]])

    def test_are_left_out_if_their_number_does_not_match(self, explain, job):
        assert {table[:2] == ([], []) for table in tables(explain(job | {"tokens": ["a"]}, suffix="html"))} == {True}

    def test_of_a_large_matrix(self, explain):
        q = np.random.default_rng(15).integers(-2, 3, (9, 2)).tolist()
        found = tables(explain({"Q": q, "K": q, "tokens": list("abcdefghi")}, suffix="html"))
        assert found[3][:2] == ([*"abc", "\u2026", *"ghi"], [*"abc", "\u22ee", *"ghi"])

    def test_of_a_large_matrix_are_as_tall_as_its_rows(self, explain):
        q = np.random.default_rng(15).integers(-2, 3, (9, 2)).tolist()
        text = explain({"Q": q, "K": q, "tokens": list("abcdefghi")}, suffix="tex")
        assert r"\vdots\vphantom{\vdots" in text
        assert "U+22EE" not in text

    def test_are_escaped_in_latex(self, explain, job):
        text = explain(job, suffix="tex")
        assert [r"\text{the}", r"\text{cat}", r"\text{<b>}", r"\text{a long toke…}"] == re.findall(
            r"(\\text{[^}]*})\\vphantom", text.split(r"\begin{bmatrix}")[0])

    def test_are_not_in_markdown(self, explain, job):
        assert "<b>" not in explain(job)


class TestLabelsOfBlankTokens:
    """Everywhere those of heat maps, as docs/viewing.md has them."""
    TOKENS = ["", " ", "  a b "]
    LABELS = ['""', "\u2423", "\u2423\u2423a b\u2423"]
    JOB = {"Q": Q.tolist(), "K": Q.tolist(), "V": GRAD.tolist(), "grad_context": GRAD.tolist(), "tokens": TOKENS}

    @pytest.mark.parametrize("query", range(3))
    @pytest.mark.parametrize("suffix", ["txt", "md", "html"])
    def test_in_the_text(self, explain, query, suffix):
        text = explain(self.JOB, "--explain-query", str(query), "--outputs", "grad_Q", suffix=suffix)
        text = " ".join(text.replace("&#34;", '"').split())
        key = int(re.search(r"those of key (\d)", text)[1])
        assert f"for query {query} ({self.LABELS[query]}), row" in text
        assert f"those of key {key} ({self.LABELS[key]})" in text

    def test_of_matrices(self, explain):
        labels = {name for columns, rows, _ in tables(explain(self.JOB, suffix="html")) for name in columns + rows}
        assert labels == {*self.LABELS}

    def test_in_latex(self, explain):
        text = explain(self.JOB, "--explain-query", "1", suffix="tex")
        assert "for query 1 (\\textvisiblespace{}), row" in text
        assert '\\text{""}' in text


# Heads.


class TestHeadOfProjections:
    """Head 3 of 4, which shares the keys of group 1 of 2."""

    @pytest.fixture(scope="class")
    def arrays(self):
        rng = np.random.default_rng(9)
        x = rng.integers(-2, 3, (2, 3, 4)).astype(float)
        wq, wk, wv, wo = (rng.integers(-2, 3, s).astype(float) for s in ((4, 8), (4, 4), (4, 4), (8, 3)))
        return x, wq, wk, wv, wo, rng.standard_normal(8), rng.standard_normal(3)

    @pytest.fixture
    def text(self, explain, arrays):
        names = ["embeddings", "W_Q", "W_K", "W_V", "W_O", "b_Q", "b_O"]
        job = {name: array.tolist() for name, array in zip(names, arrays)} | {"heads": 4, "kv_heads": 2}
        return explain(job, "--explain-head", "3", "--explain-query", "2")

    @pytest.fixture(scope="class")
    def expected(self, arrays):
        x, wq, wk, wv, wo, bq, bo = arrays
        contexts = []
        for h in range(4):
            q = x[0] @ wq[:, 2 * h:2 * h + 2] + bq[2 * h:2 * h + 2]
            g = h // 2
            k, v = x[0] @ wk[:, 2 * g:2 * g + 2], x[0] @ wv[:, 2 * g:2 * g + 2]
            a = softmax(q @ k.T / np.sqrt(2))
            contexts.append(a @ v)
        return {"W_{Q}": wq[:, 6:], "b_{Q}": bq[None, 6:], "Q": q, "K": k, "A": a,
                "Y": np.hstack(contexts) @ wo + bo}

    @pytest.mark.parametrize("name", ["W_{Q}", "b_{Q}", "Q", "K", "A", "Y"])
    def test_matrix_is_printed_as_by_numpy(self, text, expected, name):
        assert_close(matrices(text)[name][:, :expected[name].shape[1]], expected[name])

    def test_arithmetic_is_true(self, text):
        numbers_of(text)

    def test_text_says_which_head_and_batch_item(self, text):
        assert "This is head 3 of 4" in text
        assert "Only the first batch item" in text


@pytest.mark.parametrize("layout", ["bhld", "blhd"])
class TestHeadsAsAnAxis:
    """W_O is multiplied with the contexts of all heads."""

    @pytest.fixture
    def arrays(self):
        rng = np.random.default_rng(11)
        q, k, v = (rng.standard_normal((2, 3, 4, 2)) for _ in "qkv")  # (B, H, L, D)
        return q, k, v, rng.standard_normal((6, 5)), rng.standard_normal(5)

    @pytest.fixture
    def job(self, arrays, layout):
        tensors = {name: (array if layout == "bhld" else array.swapaxes(1, 2)).tolist()
                   for name, array in zip("QKV", arrays)}
        return {**tensors, "layout": layout}

    @pytest.fixture
    def parts(self, explain, job, arrays):
        """The text up to this head's context, and after it."""
        text = explain({**job, "W_O": arrays[3].tolist(), "b_O": arrays[4].tolist()}, "--explain-head", "1")
        before, _, after = text.partition("Concatenated heads")
        return before, after

    @pytest.fixture
    def contexts(self, arrays):
        q, k, v = arrays[:3]
        return [softmax(q[0, h] @ k[0, h].T / np.sqrt(2)) @ v[0, h] for h in range(3)]

    def test_shapes_are_stated(self, parts):
        assert "C is (4, 2)." in parts[0]
        assert "C is (4, 6)." in parts[1]

    def test_context_of_the_head(self, parts, contexts):
        assert_close(matrices(parts[0])["C"], contexts[1])

    def test_contexts_of_all_heads(self, parts, contexts):
        assert_close(matrices(parts[1])["C"], np.hstack(contexts))

    def test_output(self, parts, contexts, arrays):
        assert_close(matrices(parts[1])["Y"], np.hstack(contexts) @ arrays[3] + arrays[4])

    def test_heads_are_not_joined_without_an_output_projection(self, explain, job):
        assert "Concatenated" not in explain(job)


def jobs_of_layouts():
    rng = np.random.default_rng(10)

    def normal(*shape):
        return rng.standard_normal(shape).round(3).tolist()

    x, w = normal(3, 4), normal(4, 4)
    projected = {"embeddings": x, "W_Q": w, "W_K": w, "W_V": w}
    return [
        {"Q": normal(1, 2, 3, 4), "K": normal(1, 2, 5, 4), "V": normal(1, 2, 5, 3)},
        {"Q": normal(2, 3, 4), "K": normal(2, 5, 4), "V": normal(2, 5, 3)},
        {"Q": normal(2, 3, 4), "K": normal(2, 5, 4), "V": normal(2, 5, 4), "heads": 2},
        {"embeddings": x},
        {"embeddings": x, "W_Q": w},
        {**projected, "b_K": normal(4), "b_V": normal(4), "position": {"kind": "sinusoidal"}},
        {**projected, "memory": normal(5, 4)},
        {**projected, "W_O": normal(4, 2)},
        {**projected, "q_norm": normal(4), "k_norm": normal(4), "qk_norm": "rms"},
        {"Q": x, "K": x, "cos": normal(3, 2), "sin": normal(3, 2), "rotary": {"kind": "half"}}]


@pytest.mark.parametrize("job", jobs_of_layouts(), ids=", ".join)
def test_matrices_of_any_layout_are_the_outputs(explain, outputs, job):
    names = ["scores", "weights", "head_context"]
    text = explain(job, "--outputs", ",".join(names))
    numbers_of(text)
    results = outputs(job, *names)
    for name, output in ("S", "scores"), ("A", "weights"):
        result = results[output]
        while result.ndim > 2:
            result = result[0]
        assert_close(matrices(text)[name], result)


@pytest.mark.parametrize("position, words", [
    ({}, "Each row of the embeddings E is divided"),
    ({"kind": "sinusoidal"}, "Each row of the embeddings E with their positional encoding is divided"),
    ({"embedding_scale": 2}, "Each row of the embeddings E, times their scale, is divided")], ids=str)
def test_what_the_norm_of_inputs_is_taken_of(explain, position, words):
    x = np.array([[1.0, 2], [3, -4]])
    text = explain({"embeddings": x.tolist(), "input_norm": "rms"} | ({"position": position} if position else {}))
    e = x * position.get("embedding_scale", 1) + (np.array([[0, 1], [np.sin(1), np.cos(1)]]) if "kind" in position else 0)
    assert_close(matrices(text)["X"], e / np.sqrt((e ** 2).mean(1, keepdims=True) + 1e-6))
    assert words in text
    assert "X holds" not in text


@pytest.mark.parametrize("bias", [[], [1.0, 2, 3, 4]], ids=["plain", "bias"])
def test_queries_of_a_head_without_a_projection(explain, bias):
    """Head 1 of 2, with the last two of the four columns of X."""
    x = np.random.default_rng(26).integers(-3, 4, (3, 4)).astype(float)
    job = {"embeddings": x.tolist(), "W_K": np.eye(4).tolist(), "heads": 2} | ({"b_Q": bias} if bias else {})
    text = explain(job, "--explain-head", "1")
    found = matrices(text)
    assert_close(found["X"], x)
    assert_close(found["Q"], x[:, 2:] + (bias[2:] or 0))
    assert "Q &= \\begin" in text
    assert f"columns of X that belong to this head{', plus b' if bias else '.'}" in text
    assert "Q &= X = " in explain(job | {"heads": 1, "b_Q": [0.0] * 4}).replace("+b_{Q}", "")


class TestSelectedRows:
    """X has the selected rows only, and K and V those of all tokens."""

    X, W = np.array([[1.0, 0], [0, 1], [1, 1]]), np.array([[1.0, 0], [0, 2]])
    WORDS = "They are computed from all tokens, of which X has only the selected rows."

    def test_products_of_other_rows_are_not_written(self, explain):
        text = explain({"embeddings": self.X.tolist(), "W_Q": self.W.tolist(), "W_K": self.W.tolist(), "W_V": self.W.tolist(),
                        "rows": [2, 0]})
        found = matrices(text)
        for name, wanted in {"X": self.X[[2, 0]], "Q": self.X[[2, 0]] @ self.W, "K": self.X @ self.W, "V": self.X @ self.W}.items():
            assert_close(found[name], wanted)
        assert "Q &= XW_{Q} = " in text
        assert "XW_{K}" not in text
        assert "XW_{V}" not in text
        assert self.WORDS in text
        numbers_of(text)

    def test_products_of_a_memory_are(self, explain):
        text = explain({"embeddings": self.X.tolist(), "memory": self.X.tolist(), "W_K": self.W.tolist(), "rows": [2, 0]})
        assert "K &= MW_{K} = " in text
        assert self.WORDS not in text

    def test_all_rows(self, explain):
        text = explain({"embeddings": self.X.tolist(), "W_K": self.W.tolist()})
        assert "K &= XW_{K} = " in text
        assert self.WORDS not in text


@pytest.mark.parametrize("offset, weights", [(0, "w"), (1, "(w+1)"), (-0.5, "(w+(-0.5))")])
def test_weights_of_the_norm_of_inputs(explain, offset, weights):
    x, w = np.array([[1.0, 2], [3, -4], [0.5, 1]]), np.array([0.25, -2])
    text = explain({"embeddings": x.tolist(), "input_norm": "rms", "input_norm_weight": w.tolist(), "norm_offset": offset})
    expected = x / np.sqrt((x ** 2).mean(1, keepdims=True) + 1e-6) * (w + offset)
    assert_close(matrices(text)["X"], expected)
    formula = re.search(r"X &= (.*?) = \\begin", text)[1].replace("\\odot ", "⊙")
    assert formula.split("⊙")[1] == weights
    assert ("plus norm\\_offset" in text) == (offset != 0)


# Batches. Two items of three tokens, with a memory of five.

BATCH = {name: np.random.default_rng(21).integers(-3, 4, shape).astype(float) for name, shape in {
    "embeddings": (2, 3, 4), "memory": (2, 5, 4), "W_Q": (4, 2), "W_K": (4, 2), "W_V": (4, 3), "W_O": (3, 2)}.items()}


def lists_of(arrays):
    return {name: array.tolist() for name, array in arrays.items()}


def first_item_of(batch):
    """The matrices of its first item."""
    x, m = batch["embeddings"][0], batch.get("memory", batch["embeddings"])[0]
    q, k, v = x @ batch["W_Q"], m @ batch["W_K"], m @ batch["W_V"]
    c = softmax(q @ k.T / np.sqrt(2)) @ v
    return {"X": x, "Q": q, "K": k, "V": v, "C": c, "Y": c @ batch["W_O"]}


def test_memory_is_that_of_the_first_item(explain, tmp_path):
    found = matrices(explain(lists_of(BATCH), "-o", "o.npz"))
    for name, wanted in (first_item_of(BATCH) | {"M": BATCH["memory"][0]}).items():
        assert_close(found[name], wanted)
    assert (tmp_path / "o.npz").exists()


@pytest.mark.parametrize("names", [("W_K", "W_V"), ("W_V",)], ids=", ".join)
@pytest.mark.parametrize("own", [False, True], ids=["one memory", "memory_V"])
def test_memory_of_the_values(explain, names, own):
    """Each product has the memory that it is made of, which is shown."""
    rng = np.random.default_rng(24)
    x, m, of_values, wk, wv = (rng.integers(-3, 4, shape).astype(float) for shape in [(3, 4), (2, 4), (2, 5), (4, 4), (4, 2)])
    wv = wv if not own else rng.integers(-3, 4, (5, 2)).astype(float)
    job = {"embeddings": x, "memory": m} | {name: {"W_K": wk, "W_V": wv}[name] for name in names}
    text = explain(lists_of(job | ({"memory_V": of_values} if own else {})))
    found = matrices(text)
    if "W_K" in names or not own:
        assert_close(found["M"], m)
    assert_close(found["K"], m @ wk if "W_K" in names else m)
    assert_close(found["V"], (of_values if own else m) @ wv)
    if own:
        assert_close(found["M_{V}"], of_values)
    assert f"V &= {'M_{V}' if own else 'M'}W_{{V}} = " in text


def with_batch_second(batch):
    return {name: array.swapaxes(0, 1) if array.ndim == 3 else array for name, array in batch.items()}


@pytest.mark.parametrize("options", [{"batch_axis": "second"}, {"convention": "torch-mha", "heads": 1, "weights_layout": "in-out"}],
                         ids=["option", "convention"])
def test_first_item_of_a_second_axis(explain, options):
    found = matrices(explain({**lists_of(with_batch_second(BATCH)), **options}))
    for name, wanted in (first_item_of(BATCH) | {"M": BATCH["memory"][0]}).items():
        assert_close(found[name], wanted)


def test_heads_of_a_second_axis_are_joined(explain):
    """Two heads of one column each, without a memory; the causal default is the last query."""
    batch = {name: BATCH[name] for name in ("embeddings", "W_Q", "W_K")} | {"W_V": BATCH["W_K"], "W_O": BATCH["W_Q"].T}
    x, contexts = batch["embeddings"][0], []
    for head in range(2):
        q, k = (x @ batch[name][:, [head]] for name in ("W_Q", "W_K"))
        contexts.append(softmax(np.where(np.tri(3, dtype=bool), q @ k.T, -np.inf)) @ k)
    text = explain({**lists_of(with_batch_second(batch)), "heads": 2, "batch_axis": "second", "causal": True})
    assert "query 2, row 2" in text
    found = matrices(text)
    assert_close(found["C"], np.hstack(contexts))
    assert_close(found["Y"], np.hstack(contexts) @ batch["W_O"])


def test_heads_of_tokens_in_a_row_are_joined(explain):
    """Layout thd: (tokens, heads, D)."""
    rng = np.random.default_rng(22)
    q, k, v = (rng.standard_normal((4, 3, 2)) for _ in "qkv")
    text = explain({**lists_of({"Q": q, "K": k, "V": v, "W_O": np.eye(6)}), "layout": "thd"})
    contexts = [softmax(q[:, h] @ k[:, h].T / np.sqrt(2)) @ v[:, h] for h in range(3)]
    assert_close(matrices(text)["C"], np.hstack(contexts))


def test_gradients_with_a_second_axis(explain):
    """Of one item: the tensors are (L, 1, M)."""
    one = {name: array[:1] if array.ndim == 3 else array for name, array in BATCH.items() if name != "W_O"}
    of_context = np.random.default_rng(23).standard_normal((1, 3, 3))
    text = explain({**lists_of(with_batch_second(one | {"grad_context": of_context})), "batch_axis": "second"},
                   "--outputs", "grad_W_K")
    x, m = one["embeddings"][0], one["memory"][0]
    of = gradients(x @ one["W_Q"], m @ one["W_K"], m @ one["W_V"], of_context[0], scale=2 ** -0.5)
    found = matrices(text)
    assert_close(found["\\mathrm{dC}"], of_context[0])
    assert_close(found["\\mathrm{dW}_{K}"], m.T @ of["dK"])
    assert_close(found["\\mathrm{dX}"], of["dQ"] @ one["W_Q"].T)


# Appended keys.


@pytest.mark.parametrize("options", [["bias"], ["zero"], ["bias", "zero"], ["past", "bias", "zero"]], ids=" and ".join)
def test_appended_keys_are_shown(explain, options):
    """Head 1 of 2, whose parts of bias_K and bias_V follow those of head 0."""
    rng = np.random.default_rng(25)
    q, k, past_k, bias_k = (rng.standard_normal(shape) for shape in [(2, 2, 3), (2, 2, 3), (2, 1, 3), 6])
    v, past_v, bias_v = (rng.standard_normal(shape) for shape in [(2, 2, 2), (2, 1, 2), 4])
    job, keys, values = {"Q": q[None], "K": k[None], "V": v[None]}, [k[1]], [v[1]]
    if "past" in options:
        job |= {"past_K": past_k[None], "past_V": past_v[None]}
        keys, values = [past_k[1], *keys], [past_v[1], *values]
    if "bias" in options:
        job |= {"bias_K": bias_k, "bias_V": bias_v}
        keys, values = [*keys, bias_k[None, 3:]], [*values, bias_v[None, 2:]]
    if "zero" in options:
        keys, values = [*keys, np.zeros((1, 3))], [*values, np.zeros((1, 2))]
    keys, values = np.vstack(keys), np.vstack(values)
    text = explain({**lists_of(job), "zero_key": "zero" in options}, "--explain-head", "1")
    scores = q[1] @ keys.T
    found = matrices(text)
    for name, wanted in {"K": keys, "V": values, "S": scores, "A": softmax(scores / np.sqrt(3)),
                         "C": softmax(scores / np.sqrt(3)) @ values}.items():
        assert_close(found[name], wanted)
    stated = numbers_of(text, 3 * len(keys))
    assert stated[f"s_{{0,{len(keys) - 1}}}"] == pytest.approx(scores[0, -1], rel=1e-5)
    assert f"K is ({len(keys)}, 3). V is ({len(keys)}, 2)." in text
    for option, words in {"past": "of the past come first", "bias": "The key bias\\_K and the value bias\\_V",
                          "zero": "A key and a value of zeros"}.items():
        assert (words in text) == (option in options)


# Matrices without rows or columns.


@pytest.fixture
def empty(tmp_path):
    """Writes empty.npy, an array of this shape, and returns its name."""
    def empty(*shape):
        np.save(tmp_path / "empty.npy", np.zeros(shape))
        return "empty.npy"
    return empty


@pytest.mark.parametrize("suffix", ["txt", "md", "html", "tex"])
def test_all_keys_are_of_the_past(explain, empty, tmp_path, suffix):
    keys = empty(0, 2)
    text = explain({"Q": [[1, 2]], "K": keys, "V": keys, "past_K": [[1, 0], [0, 1]], "past_V": [[1, 2], [3, 4]]},
                   "-o", "o.npz", suffix=suffix)
    assert "There are no new keys and values" in text
    assert (tmp_path / "o.npz").exists()
    assert not list(tmp_path.glob(".attn-tmp-*"))
    if suffix == "md":
        a = softmax(np.array([[1, 2]]) / np.sqrt(2))
        found = matrices(text)
        assert_close(found["K"], np.eye(2))
        assert_close(found["C"], a @ [[1, 2], [3, 4]])
    if suffix == "txt":
        assert "  K = empty\n" in text


def test_all_keys_are_appended(explain, empty):
    keys = empty(0, 2)
    text = explain({"Q": [[1, 2]], "K": keys, "V": keys, "zero_key": True}, suffix="txt")
    assert "K is (0, 2)." in text
    assert "S is (1, 1)." in text
    assert "  K = [ 0  0 ]\n" in text


@pytest.mark.parametrize("suffix", ["txt", "md", "html", "tex"])
def test_values_without_columns(explain, empty, suffix):
    text = explain({"Q": [[1, 2]], "K": [[1, 2], [3, 4], [5, 6]], "V": empty(3, 0)}, suffix=suffix)
    assert "V is (3, 0)." in text
    assert "C is (1, 0)." in text.replace("\n", " ")
    if suffix == "md":
        assert_close(matrices(text)["A"], softmax(np.array([[5, 11, 17]]) / np.sqrt(2)))
    if suffix == "txt":
        assert "  V = empty\n" in text
        assert "  C = A V = empty\n" in text


@pytest.mark.parametrize("suffix", ["txt", "md", "html", "tex"])
def test_queries_without_columns(explain, empty, suffix):
    text = explain({"Q": empty(2, 0), "K": empty(2, 0), "V": [[1], [2]], "scale": 1},
                   suffix=suffix)
    assert "Q is (2, 0)." in text
    if suffix == "md":
        assert_close(matrices(text)["A"], np.full((2, 2), 0.5))
        assert_close(matrices(text)["C"], np.full((2, 1), 1.5))


def test_projections_to_no_columns(explain, empty):
    """The widths of values, and of their bias, are 0."""
    text = explain({"embeddings": [[1, 2], [3, 4]], "W_V": empty(2, 0), "b_V": [], "grad_context": empty(2, 0)},
                   "--outputs", "weights,delta", suffix="txt")
    assert "V = X W_V + b_V = empty" in re.sub(" +", " ", text)


# Formats.


class TestHostileTokens:
    """Explanations of each of three queries, whose tokens are markup, as s0 to s2 in each format."""

    @pytest.fixture(scope="class")
    def read(self, class_path):
        tokens = ["</p><script>x</script>", "\\input{x}$%&", "_a_ | `b`"]
        job = {"Q": [[1.0, 2], [0, 1], [1, 1]], "K": [[1.0, 0], [2, 1], [0, 3]], "tokens": tokens}
        (class_path / "job.json").write_text(json.dumps(job))

        def read(query, suffix):
            run = attn("run", "job.json", "--explain", f"s{query}.{suffix}", "--explain-query", query, "--force",
                       cwd=class_path)
            assert (run.returncode, run.stdout) == (0, b"")
            return (class_path / f"s{query}.{suffix}").read_text()
        return functools.cache(read)

    @pytest.fixture
    def body(self, read):
        return xml.etree.ElementTree.fromstring(re.search(r"<body>.*</body>", read(0, "html"), re.DOTALL).group())

    @pytest.mark.parametrize("query", range(3))
    @pytest.mark.parametrize("suffix", ["md", "html", "tex"])
    def test_can_be_explained(self, read, query, suffix):
        assert read(query, suffix)

    def test_are_no_html(self, read):
        assert "<script" not in read(0, "html")

    def test_page_may_load_nothing(self, read):
        assert "default-src 'none'" in read(0, "html")

    def test_page_has_the_numbers_in_mathml(self, body):
        numbers = [element.text for element in body.iter("mn")]
        assert len(numbers) > 40
        assert "0" in numbers
        assert len(list(body.iter("math"))) >= 8

    def test_page_has_a_picture_of_the_weights(self, body):
        assert len(list(body.iter("{http://www.w3.org/2000/svg}svg"))) == 1

    def test_are_escaped_in_latex(self, read):
        assert "\\input{" not in read(1, "tex")
        assert "\\textbackslash{}input\\{x\\}\\$\\%\\&" in read(1, "tex")

    def test_latex_is_balanced(self, read):
        text = read(1, "tex")
        assert text.count("\\begin{") == text.count("\\end{")
        assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")

    def test_are_escaped_in_markdown(self, read):
        assert "\\_a\\_ \\| \\`b\\`" in read(2, "md")


class TestDrawnSigns:
    """Browsers cannot stretch root signs and brackets without a mathematical font."""

    @pytest.fixture
    def page(self, explain):
        return explain({**JOB, "softcap": 2, "score": "cosine"}, suffix="html")

    def test_no_sign_has_to_stretch(self, page, explain):
        for text in page, explain(JOB, suffix="html"):
            assert "<msqrt>" not in text
            assert "<mo>[</mo>" not in text
            assert "<math" in text

    def test_root_is_a_drawing_with_a_description(self, explain):
        assert 'aria-label="square root of 4"' in explain(JOB, suffix="html")
        assert '<svg viewBox="0 0 10 20"' in explain(JOB, suffix="html")

    def test_parentheses_around_a_fraction(self, page, explain):
        assert 'class="parentheses"' in page
        assert r"\left(\frac{" in explain({**JOB, "softcap": 2})


# Plain text.


class TestText:
    JOB = {"tokens": ["it", "rains"], "Q": [[1, 0], [3, 4]], "K": [[2, 0], [0, 5]], "V": [[1, 2], [3, -4]],
           "causal": True}

    @pytest.fixture
    def text(self, explain):
        return explain(self.JOB, suffix="txt")

    def test_has_matrices_with_labels(self, text):
        assert ("                      it  rains\n"
                "  S = Q K^T = it    ⎡  2      0 ⎤\n"
                "              rains ⎣  6     20 ⎦\n") in text

    @pytest.mark.parametrize("line", [
        "row 1 of the matrices. Rows and columns count from 0; numbers have at most six", "3. Scores",
        "  s[1,1] = 3 · 0 + 4 · 5 = 20", "  s'[1,0] = 6 / √2 = 4.24264",
        "  A = e^(s'' − max s'') / (Σ e^(s'' − max s'')) =",
        "  Σ e^(s'' − max s'') = e^−9.89949 + e^0 = 1.00005",
        "  c[1,1] = 5.01975 · 10^−5 · 2 + 0.99995 · (−4) = −3.9997", "rains   5e-5     1"])
    def test_has_the_line(self, text, line):
        assert line in text.splitlines()

    def test_is_written_to_standard_output(self, tmp_path, text):
        (tmp_path / "job.json").write_text(json.dumps(self.JOB))
        assert attn("run", "job.json", "--explain", "-", cwd=tmp_path).stdout.decode() == text

    @pytest.mark.parametrize("options", [{"softcap": 3}, {"score": "cosine"}, {"scale": -0.5}], ids=str)
    def test_has_no_markup(self, explain, options):
        q = np.random.default_rng(1).standard_normal((20, 10)).tolist()
        text = explain({"Q": q, "K": q, "V": q, "causal": True, **options}, suffix="txt")
        assert not set("$\\{}&") & set(text)


# LaTeX.

LATEX_TOKENS = ["\u6771\u4eac", "\u0120the", "\u2581sub", "##x", "<|end|>", "\u00d8re \u20ac", "~^_\\{}$&%",
                "\U0001f600"]
EXAMPLES = [path for path in sorted((ROOT / "data/examples").glob("*/*.json")) if '"schema":' in path.read_text()]


def wide_job(**others):
    """Many columns, of numbers with exponents."""
    x = np.random.default_rng(3).standard_normal((40, 40)) * 3
    return {"Q": x.tolist(), "K": x.tolist(), "V": (x * 1e-7).tolist(), "causal": True, **others}


def latex_jobs():
    """(job, query)"""
    x = np.random.default_rng(3).standard_normal((8, 8)).round(3).tolist()
    tokens = {"Q": x, "K": x, "V": x, "causal": True}
    heads = {"embeddings": x, "W_Q": x, "W_K": x, "W_V": x, "W_O": x, "heads": 2, "b_Q": x[0]}
    accents = "e" + "\u0301" * 40
    return [*((heads, query) for query in (0, 3)),
            *(({**tokens, "tokens": LATEX_TOKENS}, query) for query in range(8)),
            *(({**tokens, "tokens": [letter * 80] * 8}, 5) for letter in "aW\u6771"),
            ({**tokens, "tokens": [accents] * 8}, 5), *((wide_job(), query) for query in (20, 39)),
            *((wide_job(**options), 30) for options in (
                {"score": "cosine"}, {"o_scale": 3}, {"print_options": {"precision": 12}},
                {"tokens": ["\u6771" * 80] * 40}))]


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    """Explanations as LaTeX of all examples and of latex_jobs()."""
    folder = tmp_path_factory.mktemp("explained")

    def explained(arguments):
        run = attn("run", *arguments, "--explain", "e.tex", "--force", "--outputs", "context", "-q", cwd=folder)
        assert run.returncode == 0, run.stderr
        return (folder / "e.tex").read_text()
    texts = [explained([path]) for path in EXAMPLES]
    for job, query in latex_jobs():
        (folder / "job.json").write_text(json.dumps(job))
        texts.append(explained(["job.json", "--explain-query", str(query)]))
    return texts


def one_document(texts):
    """The documents, each on pages of its own, because pdflatex takes long to start."""
    begin, end = "\\begin{document}\n", "\\end{document}\n"
    preamble = texts[0].partition(begin)[0]
    assert all(text.startswith(preamble + begin) for text in texts)
    return preamble + begin + "\\clearpage\n".join(
        text.removeprefix(preamble + begin).removesuffix(end) for text in texts) + end


def compiled(folder, latex):
    """The log of pdflatex, which makes e.pdf."""
    (folder / "e.tex").write_text(latex)
    run = subprocess.run(["pdflatex", "-interaction=nonstopmode", "e.tex"], cwd=folder, capture_output=True,
                         timeout=120, stdin=subprocess.DEVNULL)
    log = run.stdout.decode(errors="replace")
    assert run.returncode == 0, log[-900:]
    return log


needs_pdflatex = pytest.mark.skipif(not shutil.which("pdflatex"), reason="needs pdflatex (scripts/setup tex)")


@needs_pdflatex
def test_latex_fits_the_page(tmp_path, explained):
    log = compiled(tmp_path, one_document(explained))
    assert [line for line in log.splitlines() if "Overfull" in line] == []
    assert (tmp_path / "e.pdf").stat().st_size > 100000


PRINTED_TOKENS = ["--", "---", "''", "``", "<<", ">>", ",,", "'", "`", '""', '"', "^", "~~", "?`", "!`", "a--b", "it's",
                  "\u2019\u2019", "\u2013-", "\u2423", "\\", "{}$&%#_"]


@needs_pdflatex
@pytest.mark.skipif(not shutil.which("pdftotext"), reason="needs pdftotext (Debian: poppler-utils)")
def test_latex_prints_the_characters_of_tokens(explain, tmp_path):
    """Not the dashes and quotation marks that LaTeX makes of some, as its ligatures."""
    x = [[1, 0]] * len(PRINTED_TOKENS)
    compiled(tmp_path, one_document([explain({"Q": x, "K": x, "tokens": PRINTED_TOKENS}, "--explain-query", str(query),
                                             suffix="tex") for query in range(len(x))]))
    run = subprocess.run(["pdftotext", "e.pdf", "-"], cwd=tmp_path, capture_output=True, check=True)
    assert re.findall(r"for query \d+ \((.*?)\), row", run.stdout.decode()) == PRINTED_TOKENS


def test_broken_sums_are_those_of_markdown(explain):
    """Lines end before a "+" or a "="; joined, they are the lines of Markdown, which are not broken."""
    def joined(text):
        return re.sub(r" \\\\\[3pt\]\n&(?:\\quad |= )", lambda end: " = " if "=" in end[0] else "", text)
    latex, markdown = (explain(wide_job(), "--explain-query", "20", suffix=suffix) for suffix in ("tex", "md"))
    wanted = re.findall(r"^[a-z].*? &= .*?(?= \\\\$|$)", markdown, re.MULTILINE)
    assert len(wanted) > 30
    lines = joined(latex).replace(" \\\\[3pt]", "").splitlines()
    assert [line for line in wanted if line not in lines] == []
    broken = re.findall(r"^c_\{20,\d+\} &= .*(?:\n&\\quad \+.*)+\n&= ", latex, re.MULTILINE)
    assert len(broken) == 6


# --precision.


@pytest.mark.parametrize("decimals", [0, 1, 3, 12])
def test_precision_limits_digits_after_the_point(explain, decimals):
    text = explain(JOB, "--explain-query", "2", "--precision", str(decimals))
    printed = re.findall(r"\d+(?:\.(\d+))?", re.sub(r"^#.*|_\{.*?\}|\(.*?\)", "", text, flags=re.MULTILINE))
    assert max(map(len, printed)) == decimals
    found = matrices(text)
    for name, wanted in {"Q": Q, "S": Q @ K.T, "S'": SCALED, "A": softmax(SCALED), "C": softmax(SCALED) @ V}.items():
        small = abs(wanted) < 0.5 * 10.0 ** -decimals  # has an exponent
        np.testing.assert_allclose(found[name][~small], wanted[~small], rtol=0, atol=0.50001 * 10.0 ** -decimals)
        np.testing.assert_allclose(found[name][small], wanted[small], rtol=0.50001 * 10.0 ** -decimals)
    assert f"at most {decimals} digit{'' if decimals == 1 else 's'} after the point" in text


@pytest.mark.parametrize("value, decimals, text", [
    (0.5, 3, "0.5"), (2, 3, "2"), (-1.25, 1, "-1.2"), (0.0004, 3, "4*10^-4"), (0.0006, 3, "0.001"),
    (123456.789, 2, "123456.79"), (1234567.0, 2, "1.23*10^6"), (0, 2, "0"), (100, 0, "100"),
    (-0.00123, 2, "-1.23*10^-3")])
def test_numbers_with_a_precision(explain, value, decimals, text):
    job = {"Q": [[value, 1]], "K": [[1, 1]], "V": [[1, 1]]}
    found = re.search(r"Q &= \\begin{bmatrix}(.*?)&", explain(job, "--precision", str(decimals)))
    assert re.sub(r"[{} ]|cdot", "", found[1]).replace("\\", "*") == text


def test_precision_of_an_explanation_on_stdout(explain, tmp_path):
    wanted = explain(JOB, "--precision", "2", suffix="txt")
    run = attn("run", "job.json", "--explain", "-", "--precision", "2", cwd=tmp_path)
    assert (run.returncode, run.stdout.decode()) == (0, wanted)
    both = attn("run", "job.json", "-o", "-", "--explain", "-", "--precision", "2", cwd=tmp_path)
    assert both.stdout.decode() == attn("run", "job.json", "--precision", "2", cwd=tmp_path).stdout.decode() + wanted
    assert_error(attn("run", "job.json", "--explain", "-", "--suppress", cwd=tmp_path), 2,
                 "--suppress requires text on standard output")


# Errors.


RUN = ["run", "--q", "[[1.0, 2]]", "--k", "[[1.0, 2]]"]


@pytest.mark.parametrize("arguments, code, reason", [
    (["--explain", "x.doc"], 2, ".tex"),
    (["--explain", "-", "--explain-query", "7"], 2, "--explain-query 7"),
    (["--explain", "-", "--explain-query", "-3"], 2, "-3: expected 0 to 0"),
    (["--rows", "-1", "--explain", "-", "--explain-query", "0"], 2,
     "--explain-query 0: expected a selected row: -1"),
    (["--explain", "-", "--explain-head", "1"], 2, "--explain-head 1"),
    (["--explain", "-", "--explain-head", "-1"], 2, "--explain-head -1"),
    (["--explain-query", "1"], 2, "--explain"),
])
def test_invalid_flags_are_refused(tmp_path, arguments, code, reason):
    run = attn(*RUN, *arguments, cwd=tmp_path)
    assert_error(run, code, reason)
    assert run.stdout == b""


@pytest.mark.parametrize("arguments", [
    ["--explain", "y.html", "--view=y.html"], ["--explain", "y.html", "--view=here/y.html"],
    ["-o", "r.npz", "--view=v.svg", "--force"], ["-o", "r.npz", "--view=v.svg"]])
def test_two_outputs_in_one_file_are_refused(tmp_path, arguments):
    (tmp_path / "v.svg").symlink_to("r.npz")
    (tmp_path / "here").symlink_to(".")
    run = attn(*RUN, *arguments, cwd=tmp_path)
    assert_error(run, 2, "same file")
    assert run.stdout == b""
    assert not (tmp_path / "r.npz").exists()
    assert not (tmp_path / "y.html").exists()


def test_job_without_queries_cannot_be_explained(tmp_path):
    np.save(tmp_path / "none.npy", np.zeros((0, 2)))
    run = attn("run", "--q", "none.npy", "--k", "none.npy", "--explain", "-", cwd=tmp_path)
    assert_error(run, 65, "there are no queries or no keys")


def test_explanation_adds_no_outputs_to_the_result(tmp_path):
    run = attn(*RUN, "--explain", "e.md", "-o", "w.npz", "--outputs", "weights", cwd=tmp_path)
    assert run.returncode == 0
    with np.load(tmp_path / "w.npz") as result:
        assert result.files == ["weights"]


UNDEFINED = {"NaN": "The score of a key that this query sees is not a number (NaN).",
             "-Infinity": "The scores of all keys that this query sees are minus infinity.",
             "Infinity": "The largest score of the keys that this query sees is infinite."}


@pytest.mark.parametrize("number, words", UNDEFINED.items(), ids=UNDEFINED)
@pytest.mark.parametrize("options, hidden", [
    ({}, ""), ({"causal": True}, "01"), ({"mask": [[True, True], [False, True]]}, "10"),
    ({"bias": [["-Infinity", 0], [0, 0]]}, "00"), ({"mask": [[False, False], [True, True]]}, "00 01"),
    ({"mask": [[False, False], [True, True]], "empty_rows": "nan"}, "00 01"),
    ({"query_lengths": 1, "rows": [1, 0]}, "00 01")],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "")
def test_scores_that_are_not_finite_are_not_hidden(explain, number, words, options, hidden):
    """Those of query 0, or 1 if there are rows; `hidden` are pairs of a row and a key."""
    first = [number, 2]
    job = {"Q": [[1, 2], first] if "rows" in options else [first, [1, 2]], "K": [[1, 2], [3, 4]], **options}
    text = explain(job, "--explain-query", str(int("rows" in options)), suffix="txt")
    drawn = [re.findall("╱+|[^ ]+", line)[1:] for line in text.split("queries down, keys across")[1].splitlines()[3:5]]
    cells = [["", ""] if row == ["╱" * 16] else row for row in drawn]  # two hidden cells are adjacent
    assert {f"{i}{j}" for i, row in enumerate(cells) for j, cell in enumerate(row) if not cell.strip("╱")} == {
        *hidden.split()}
    text = " ".join(text.split())
    sees_none = hidden == "00 01"
    assert ("This query sees no key." in text) == sees_none
    assert (words in text) == (not sees_none)
    assert ("Keys that a query may not see" in text) == (hidden != "")
    if number != "NaN" and not sees_none:
        sign = "−" if number[0] == "-" else ""
        assert f"= {sign}∞ − {'(−∞)' if sign else '∞'} = NaN" in text


@pytest.mark.parametrize("head", [0, 1])
def test_hidden_keys_of_a_head_whose_scores_are_not_finite(explain, head):
    """Head 1 hides the key 0, and both have scores of minus infinity."""
    q, mask = [[["-Infinity", 2]]] * 2, [[[True, True]], [[False, True]]]
    text = explain({"Q": [q], "K": [[[[1, 2], [3, 4]]] * 2], "mask": [mask]}, "--explain-head", str(head), suffix="txt")
    assert "This query sees no key." not in text
    assert ("╱" in text) == ("Mask" in text) == (head == 1)


def test_scores_of_the_whole_matrix_that_are_not_finite(explain):
    job = {"Q": [["NaN", 2], [1, 2]], "K": [[1, 2], [3, 4]], "softmax": {"axis": "all"}}
    assert "The score of a key that queries see is not a number (NaN)." in explain(job)
    assert "No query sees a key." in explain(job | {"mask": [[False, False], [False, False]]})


@pytest.mark.parametrize("number", ["NaN", "Infinity"])
def test_numbers_that_are_not_finite_make_no_mask(number):
    job = {"Q": [[1, number], [0, 1]], "K": [[1, 0], [0, 1]], "V": [[1], [2]]}
    run = attn("run", "-", "--explain", "-", stdin=json.dumps(job))
    assert run.returncode == 0
    assert b"Softmax" in run.stdout and b"Mask" not in run.stdout


def test_a_job_sets_the_digits_as_the_flag_does():
    job = {"Q": [[0.123456789, 1]], "K": [[1, 0.5]], "V": "K"}
    of_flag = attn("run", "-", "--explain", "-", "--precision", "2", stdin=json.dumps(job)).stdout
    of_job = attn("run", "-", "--explain", "-", stdin=json.dumps({**job, "print_options": {"precision": 2}})).stdout
    assert of_job == of_flag
    assert b"at most 2 digits after the point" in b" ".join(of_job.split())
    overridden = attn("run", "-", "--explain", "-", "--precision", "2", stdin=json.dumps({**job, "print_options": {"precision": 5}}))
    assert overridden.stdout == of_flag
