"""mask_rule and mask_tables, compared with Python's own evaluation of the same expressions."""

import itertools
import json
import random

import numpy as np
import pytest

from support import mask_pictures
from support.attn import assert_error, attn, json_lines, under_sanitizer
from support.jobs import random_jobs
from support.rule_table import Table

RANDOM_JOBS = random_jobs(60)


def python_mask(rule, L, S, *, B=1, H=1, G=None, offset=0, tables=None):
    """The mask (B, H, L, S), pair by pair; None if the rule has no value for some pair. Tables named each... have an
    axis of batch items."""
    code = compile(rule, "rule", "eval")
    mask = np.zeros((B, H, L, S), bool)
    for b, h, i, j in itertools.product(range(B), range(H), range(L), range(S)):
        names = dict(b=b, h=h, g=h // (H // (G or H)), i=i, j=j, q=i + offset, k=j, L=L, S=S, abs=abs, min=min, max=max,
                     __builtins__={})
        for name, table in (tables or {}).items():
            names[name] = Table(table[b] if name == "each" else table)
        try:
            mask[b, h, i, j] = bool(eval(code, names))
        except (IndexError, ZeroDivisionError):
            return None
    return mask


def problem(L, S, *, B=1, H=1, G=None, seed=0):
    rng = np.random.default_rng([L, S, B, H, seed])
    shapes = dict(Q=(B, H, L, 4), K=(B, G or H, S, 4), V=(B, G or H, S, 3))
    return {name: rng.standard_normal(shape).round(3).tolist() for name, shape in shapes.items()}


def outputs(jobs, *flags):
    """The outputs of these jobs, or the message of each that fails."""
    run = attn("batch", "-", *flags, stdin="\n".join(map(json.dumps, jobs)))
    return json_lines(run.stdout), run


# The rules of transformers, FlashAttention, FlexAttention and vLLM: (expression, the same in NumPy).
q, k = np.arange(24)[:, None], np.arange(24)[None, :]
document = np.array([0] * 5 + [1] * 8 + [2] * 11)
image = np.array([-1] * 4 + [0] * 6 + [-1] * 5 + [1] * 6 + [-1] * 3)
wide = np.array([1] + [0] * 11 + [1] + [0] * 11)
blocks = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 1]])
first = np.maximum(0, np.arange(24) - np.arange(24) % 5)
parents = [-1, 0, 0, 1, 1, 2, 3, 5]
ancestors = np.eye(8, dtype=int)
for node, parent in enumerate(parents):
    if parent >= 0:
        ancestors[node] |= ancestors[parent]
tree = np.zeros((24, 24), bool)
tree[:, :16] = True
tree[:8, 16:] = ancestors
column, row = np.arange(24) % 6, np.arange(24) // 6
RULES = {
    "causal": ("q >= k", q >= k, {}),
    "window": ("q >= k and q - k < 7", (q >= k) & (q - k < 7), {}),
    "window of one key more": ("q >= k and q - k <= 7", (q >= k) & (q - k <= 7), {}),
    "symmetric window": ("abs(q - k) <= 4", abs(q - k) <= 4, {}),
    "dilated window": ("abs(q - k) <= 8 and (q - k) % 3 == 0", (abs(q - k) <= 8) & ((q - k) % 3 == 0), {}),
    "sink tokens": ("q >= k and (q - k < 5 or k < 3)", (q >= k) & ((q - k < 5) | (k < 3)), {}),
    "prefix": ("k < 6 or q >= k", (k < 6) | (q >= k), {}),
    "chunks": ("q >= k and q // 8 == k // 8", (q >= k) & (q // 8 == k // 8), {}),
    "documents": ("doc[q] == doc[k]", document[:, None] == document, {"doc": document}),
    "image spans": ("(q >= k or (img[q] >= 0 and img[q] == img[k])) and abs(q - k) < 9",
                    ((q >= k) | ((image[:, None] >= 0) & (image[:, None] == image))) & (abs(q - k) < 9), {"img": image}),
    "shared prefix": ("k < 5 or doc[q] == doc[k]", (k < 5) | (document[:, None] == document), {"doc": document}),
    "global tokens": ("abs(q - k) <= 2 or wide[q] or wide[k]",
                      (abs(q - k) <= 2) | (wide[:, None] == 1) | (wide == 1), {"wide": wide}),
    "blocks": ("blocks[q // 6, k // 6]", np.kron(blocks, np.ones((6, 6), int)) == 1, {"blocks": blocks}),
    "tree": ("k < 16 or (q < 8 and anc[q, k - 16])", tree, {"anc": ancestors}),
    "NATTEN": ("abs(q % 6 - k % 6) <= 1 and abs(q // 6 - k // 6) <= 1",
               (abs(column[:, None] - column) <= 1) & (abs(row[:, None] - row) <= 1), {}),
    "window of each token": ("0 <= q - k < w[q]", (q >= k) & (q - k < 1 + q % 4), {"w": 1 + np.arange(24) % 4}),
    "start of each token": ("start[q] <= k <= q", (k >= first[:, None]) & (k <= q), {"start": first}),
    "diagonal blocks": ("q // 5 == k // 5", q // 5 == k // 5, {}),
    "causal in each block": ("q % 8 >= k % 8", q % 8 >= k % 8, {}),
    "block diffusion": ("(q < 12 and k < 12 and q // 4 == k // 4) or (q < 12 and k >= 12 and (k - 12) // 4 < q // 4) or "
                        "(q >= 12 and k >= 12 and (k - 12) // 4 <= (q - 12) // 4)",
                        ((q < 12) & (k < 12) & (q // 4 == k // 4)) | ((q < 12) & (k >= 12) & ((k - 12) // 4 < q // 4)) |
                        ((q >= 12) & (k >= 12) & ((k - 12) // 4 <= (q - 12) // 4)), {}),
}


@pytest.mark.parametrize("path", ["auto", "reference"])
def test_rules_in_use_have_the_bytes_of_their_masks(path):
    jobs = []
    for number, (rule, mask, tables) in enumerate(RULES.values()):
        job = problem(24, 24, H=2, seed=number)
        job |= {"outputs": ["weights", "context", "logsumexp"], "path": path}
        jobs.append(job | {"mask_rule": rule, "mask_tables": {n: t.tolist() for n, t in tables.items()}})
        jobs.append(job | {"mask": mask.tolist()})
    results, run = outputs(jobs)
    assert run.returncode == 0, run.stderr.decode()
    for name, by_rule, by_mask in zip(RULES, results[::2], results[1::2]):
        for output in "weights", "context", "logsumexp":
            assert by_rule[output] == by_mask[output], (name, output)


def test_documented_rules_show_the_keys_that_python_shows():
    """For random numbers of queries and keys."""
    rng = random.Random(4)
    jobs, masks, documented = [], [], list(mask_pictures.rules().items())
    assert len(documented) >= 23
    for number in range(len(documented) * random_jobs(2)):
        rule = mask_pictures.job_of(*documented[number % len(documented)])
        L, S = rng.randint(1, 24), rng.randint(1, 24)
        masks.append(python_mask(rule["mask_rule"], L, S, H=2, tables=rule.get("mask_tables")))
        assert masks[-1] is not None, rule
        jobs.append(problem(L, S, H=2, seed=number) | rule | {"outputs": ["weights"], "path": ["auto", "reference"][number % 2]})
    results, run = outputs(jobs)
    assert run.returncode == 0, run.stderr.decode()
    for job, mask, result in zip(jobs, masks, results):
        assert np.array_equal(np.array(result["weights"], float).reshape(mask.shape) > 0, mask), job["mask_rule"]


def random_sum(rng, tables, depth):
    """An integer expression."""
    if depth == 0 or rng.random() < 0.25:
        return rng.choice([*"qkqkijLSbhg", "0", "1", "2", "3", "7"])
    a, b = (random_sum(rng, tables, depth - 1) for _ in range(2))
    return rng.choice([f"({a} + {b})", f"({a} - {b})", f"{a} * {b}" if depth < 2 else f"({a}) * ({b})",
                       f"({a}) // ({b})", f"({a}) % ({b})", f"-({a})", f"abs({a})", f"min({a}, {b})", f"max({a}, {b}, 2)",
                       f"one[{a}]", f"two[{a}, {b}]", f"each[{a}]"])


def random_rule(rng, tables, depth=3):
    kind = rng.random()
    if depth == 0 or kind < 0.35:
        parts = [random_sum(rng, tables, rng.randint(0, 2)) for _ in range(rng.choice([2, 2, 2, 3]))]
        text = parts[0]
        for part in parts[1:]:
            text += " " + rng.choice(["<", "<=", ">", ">=", "==", "!="]) + " " + part
        return f"({text})"
    if kind < 0.45:
        return f"(not {random_rule(rng, tables, depth - 1)})"
    operator = rng.choice([" and ", " or "])
    return "(" + operator.join(random_rule(rng, tables, depth - 1) for _ in range(rng.choice([2, 2, 3]))) + ")"


def random_job(seed):
    rng = random.Random(seed)
    B, G = rng.choice([1, 1, 2]), rng.choice([1, 2])
    H, L, S = G * rng.choice([1, 2]), rng.randint(1, 12), rng.randint(1, 12)
    number = lambda: rng.randint(-2, 9)
    tables = {"one": [number() for _ in range(14)], "two": [[number() for _ in range(9)] for _ in range(6)],
              "each": [[number() for _ in range(12)] for _ in range(B)]}
    rule = random_rule(rng, tables)
    tables = {name: table for name, table in tables.items() if f"{name}[" in rule}
    return dict(rule=rule, B=B, H=H, G=G, L=L, S=S, tables=tables, offset=rng.randint(-2, 3))


def test_random_rules_show_the_keys_that_python_shows():
    jobs, masks = [], []
    for seed in range(RANDOM_JOBS):
        job = random_job(seed)
        masks.append(python_mask(**job))
        sizes = {name: job[name] for name in "LSBHG"}
        jobs.append(problem(**sizes, seed=seed) | {
            "id": str(seed), "mask_rule": job["rule"], "mask_tables": job["tables"], "causal_offset": job["offset"],
            "outputs": ["weights"], "path": ["auto", "reference"][seed % 2]})
    results, _ = outputs(jobs)
    by_id = {result.get("id", result["job"]): result for result in results}
    assert len(by_id) == len(jobs)
    failed = 0
    for number, mask in enumerate(masks):
        result = by_id[str(number)]
        if mask is None:
            failed += 1
            assert "mask_rule: " in result["error"][0] and " at character " in result["error"][0], jobs[number]["mask_rule"]
        else:
            weights = np.array(result["weights"], float)
            assert np.array_equal(weights.reshape(mask.shape) > 0, mask), jobs[number]["mask_rule"]
    assert 0 < failed < len(jobs)


def saved(folder, name, *flags, **arrays):
    """The arrays of a result of a job of these arrays."""
    np.savez(folder / f"{name}.npz", **arrays)
    run = attn("run", f"{name}.npz", *flags, "-o", f"{name}-result.npz", cwd=folder)
    assert run.returncode == 0, run.stderr.decode()
    return dict(np.load(folder / f"{name}-result.npz"))


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert np.array_equal(a[name], b[name], equal_nan=True), name


def arrays_of(L, S, B=1, H=1, seed=0):
    return {name: np.array(x) for name, x in problem(L, S, B=B, H=H, seed=seed).items()}


def test_long_spans_of_keys(tmp_path):
    """Spans are decided at once, in halves, and key by key; with tables, in 32 and in 64 bits."""
    arrays = arrays_of(90, 700, B=2, H=2)
    rng = np.random.default_rng(1)
    tables = {"mask_tables.kind": rng.integers(0, 3, (2, 700)), "mask_tables.wide": rng.integers(-2, 2, 700) << 40}
    row, key = np.arange(90)[:, None], np.arange(700)
    kind, wide = tables["mask_tables.kind"][:, None, None], tables["mask_tables.wide"]
    item, head = np.arange(2)[:, None, None, None], np.arange(2)[:, None, None]
    for rule, mask in {
        "q * 7 > k and k % 5 != 3": np.broadcast_to((row * 7 > key) & (key % 5 != 3), (1, 1, 90, 700)),
        "kind[k] == b or k // 100 == h": (kind == item) | (key // 100 == head),
        "wide[k] * 1024 < 0 or wide[k] // 7 > q << 3".replace("q << 3", "q * 8"):
            np.broadcast_to((wide * 1024 < 0) | (wide // 7 > row * 8), (1, 1, 90, 700)),
    }.items():
        used = {name: table for name, table in tables.items() if name[12:] in rule}
        flags = ["--outputs", "context,logsumexp"]
        assert_same(saved(tmp_path, "rule", *flags, "--mask-rule", rule, "--force", **arrays, **used),
                    saved(tmp_path, "mask", *flags, "--force", **arrays, mask=mask))


@pytest.mark.skipif(under_sanitizer(), reason="takes long")
def test_a_large_mask_is_made_for_some_queries_at_a_time(tmp_path):
    """A mask of all queries would have 200 MB."""
    arrays = {name: np.random.default_rng(2).standard_normal((14_000, 2)).astype("f4") for name in "QKV"}
    flags = ["--outputs", "context,logsumexp,entropy", "--mask-rule", "q >= k and (q - k) % 4 == 0"]
    whole = saved(tmp_path, "whole", *flags, "--max-memory", "140M", **arrays)
    rows = [0, 1, 4_700, 4_800, 9_600, 13_999]
    for i in rows:
        seen = np.arange(i % 4, i + 1, 4)
        scores = arrays["K"][seen].astype(float) @ arrays["Q"][i] / np.sqrt(2)
        weights = np.exp(scores - scores.max())
        np.testing.assert_allclose(whole["context"][i], weights @ arrays["V"][seen] / weights.sum(), rtol=1e-4, atol=1e-5)


def test_positions_are_those_of_causal_masks(tmp_path):
    """With documents, a cache and an offset, q >= k is causal."""
    arrays = arrays_of(9, 9)
    past = {f"past_{name}": arrays_of(1, 5, seed=3)[name] for name in "KV"}
    documents = {"documents": np.array([0, 0, 0, 1, 1, 0, 2, 2, -1])}
    cases = [(arrays, ["--causal-offset", "2"]), (arrays | past, []), (arrays | documents, []),
             (arrays | {"key_lengths": np.array([6])}, ["--alignment", "bottom-right"])]
    for inputs, flags in cases:
        flags += ["--outputs", "weights,context", "--force"]
        assert_same(saved(tmp_path, "causal", "--causal", *flags, **inputs),
                    saved(tmp_path, "rule", "--mask-rule", "q >= k", *flags, **inputs))


def test_gradients_and_comparison(tmp_path):
    arrays = arrays_of(20, 20, H=2) | {"grad_context": arrays_of(20, 20, H=2, seed=9)["V"]}
    flags = ["--outputs", "context,grad_Q,grad_K,grad_V"]
    row, key = np.arange(20)[:, None], np.arange(20)
    rule = ["--mask-rule", "q >= k and (k < 2 or (q - k) % 3 == 0)"]
    by_rule = saved(tmp_path, "rule", *flags, *rule, **arrays)
    assert_same(by_rule, saved(tmp_path, "mask", *flags, **arrays, mask=(row >= key) & ((key < 2) | ((row - key) % 3 == 0))))
    assert attn("compare", "rule-result.npz", "--reference", "rule.npz", *rule, cwd=tmp_path).returncode == 0
    assert attn("compare", "rule-result.npz", "--reference", "rule.npz", "--mask-rule", "q >= k",
                cwd=tmp_path).returncode == 1


JOB = {"Q": [[1], [2], [3]], "K": [[1], [2], [3]], "outputs": ["weights"]}


@pytest.mark.parametrize("flags, code, texts", [
    (["--mask-rule", "q >= kk"], 2, ["--mask-rule: unknown name 'kk' at character 6"]),
    (["--mask-rule", "q > k && q"], 2, ["--mask-rule: ", "found '&&' at character 7 (use 'and')"]),
    (["--mask-rule", "q => k"], 2, ["found '=' at character 3 (use '>=')"]),
    (["--mask-rule", "q =< k"], 2, ["found '=' at character 3 (use '<=')"]),
    (["--mask-rule", "q / 2 < k"], 2, ["found '/' at character 3 (use '//')"]),
    (["--mask-rule", "t[k]", "--mask-tables", "t=[1, 0]"], 2, ["for numbers, write a JSON object: {\"NAME\": [0, 1]}"]),
    (["--mask-rule", "abs(q, k)"], 2, ["expected one argument of abs, found 2 at character 1"]),
    (["--mask-rule", "min(q)"], 2, ["expected two or more arguments of min, found 1 at character 1"]),
    (["--mask-rule", "q % (k - 1) == 0"], 2, ["division by zero at character 3 for b = 0, h = 0, q = 0, k = 1"]),
    (["--mask-rule", "k * 9223372036854775807 > 2"], 2, ["does not fit into 64 bits at character 3 for"]),
    (["--mask-rule", "t[k]", "--mask-tables", '{"t": [1, 0]}'], 2, ["index 2 of t is not in [0, 2) at character 1 for"]),
    (["--mask-rule", "t[k]", "--mask-tables", '{"t": [0.5]}'], 65, ["mask_tables.t: expected integers or booleans"]),
    (["--mask-rule", "k[k]", "--mask-tables", '{"k": [1]}'], 65, ["mask_tables.k: expected another name"]),
    (["--mask-rule", "t[q, k]", "--mask-tables", '{"t": [1, 1, 1]}'], 2, ["expected 1 indices of t (3,), found 2"]),
    (["--mask-tables", '{"t": [1]}'], 2, ["--mask-tables: requires --mask-rule or --bias-rule"]),
    (["--mask-rule", "q >= k", "--mask-tables", "t"], 2, ["--mask-tables: expected NAME=FILE, found 't'"]),
    (["--mask-rule", "t[k]", "--mask-tables", "t=none.npy"], 66, ["--mask-tables: none.npy: "]),
    (["--mask-rule", "docs[k] > 0", "--mask-tables", '{"docs": [1, 1, 1], "doc": [0, 0, 1]}'], 2,
     ["--mask-tables: neither mask_rule nor bias_rule has the table doc"]),
])
def test_errors(flags, code, texts, tmp_path):
    assert_error(attn("run", "-", *flags, stdin=json.dumps(JOB), cwd=tmp_path), code, *texts)


def test_errors_in_a_file_name_the_file(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(JOB | {"mask_rule": "q >= k and t[0, 0, 0]", "mask_tables": {"t": [[1, 2]]}}))
    assert_error(attn("run", "a.json", cwd=tmp_path), 65, "a.json: mask_rule: expected 2 indices of t (1, 2), found 3")
    (tmp_path / "a.json").write_text(json.dumps(JOB | {"mask_rule": "q >= k", "mask_tables": [1]}))
    assert_error(attn("run", "a.json", cwd=tmp_path), 65, "a.json: mask_tables: expected an object, found ")


def test_a_table_that_no_rule_has_is_an_error(tmp_path):
    job = JOB | {"mask_rule": "q >= k", "mask_tables": {"doc": [0, 0, 1]}}
    message = "mask_tables.doc: neither mask_rule nor bias_rule has the table doc"
    assert_error(attn("run", "-", stdin=json.dumps(job)), 65, message)
    for rules, is_error in [({"mask_rule": "doc[q]==doc[k]"}, False), ({"bias_rule": "2*doc[k]"}, False),
                            ({"bias_rule": "doc[k]"}, False), ({"bias_rule": "k"}, True)]:
        run = attn("run", "-", stdin=json.dumps(job | rules))
        if is_error:
            assert_error(run, 65, message)
        else:
            assert (run.returncode, run.stderr) == (0, b"")


def test_a_table_that_the_rule_of_a_flag_does_not_have_gets_a_warning(tmp_path):
    """An .npz file has no rule, so that its author cannot know whether a flag has the table."""
    np.savez(tmp_path / "job.npz", Q=np.ones((3, 1)), K=np.ones((3, 1)), **{"mask_tables.doc": [0, 0, 1]})
    for rule, warned in [(["--mask-rule", "q >= k"], True), (["--mask-rule", "q >= k", "--bias-rule", "doc[k]"], False)]:
        run = attn("run", "job.npz", *rule, "--outputs", "weights", cwd=tmp_path)
        assert run.returncode == 0
        assert (b"mask_tables.doc: neither mask_rule nor bias_rule has this table" in run.stderr) == warned


def test_common_tables_of_a_batch_may_be_without_effect():
    jobs = [JOB | {"id": "a", "mask_rule": "doc[q] == doc[k]"}, JOB | {"id": "b", "bias_rule": "doc[k]"},
            JOB | {"id": "c", "mask_rule": "q >= k"}]
    run = attn("batch", "-", "--mask-tables", '{"doc": [0, 0, 1]}', stdin="\n".join(map(json.dumps, jobs)))
    assert run.returncode == 0, run.stderr
    assert b"mask_tables" not in run.stderr


def test_large_tables_count_as_memory(tmp_path):
    np.save(tmp_path / "t.npy", np.zeros(2_000_000, np.int8))
    run = attn("run", "-", "--mask-rule", "t[k] == 0", "--mask-tables", "t=t.npy", "--max-memory", "100M",
               stdin=json.dumps(JOB), cwd=tmp_path)
    assert_error(run, 65, "inputs: takes more than ")
