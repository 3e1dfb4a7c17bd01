#!/usr/bin/env python3
"""`attn run --explain`: the matrices are NumPy's, and every line of arithmetic holds as it is written."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def value(latex):
    """The number that an expression of the explanation has."""
    text = re.sub(r"\\frac\{((?:[^{}]|\{[^{}]*\})*)\}\{((?:[^{}]|\{[^{}]*\})*)\}", r"((\1)/(\2))", latex)
    text = re.sub(r"\\sqrt\{([^{}]*)\}", r"(\1)**0.5", text)
    text = re.sub(r"e\^\{([^{}]*)\}", r"np.exp(\1)", text)
    text = re.sub(r"10\^\{([^{}]*)\}", r"10**(\1)", text)
    text = text.replace("\\cdot", "*").replace("\\mathrm{tanh}", "np.tanh")
    return float(eval(text.replace("\\infty", "np.inf"), {"np": np}))  # our own output


def matrices(text):
    """Name -> the last matrix on its line; '…' and '⋮' rows are NaN."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" &= ")
        blocks = re.findall(r"\\begin\{bmatrix\}(.*?)\\end\{bmatrix\}", rest)
        if blocks:
            found[name] = np.array(
                [[np.nan if "dots" in cell else value(cell) for cell in row.split("&")]
                 for row in blocks[-1].split("\\\\")])
    return found


def lines_hold(checks, text, what):
    """Each "left = arithmetic = number" line without dots; gives {left: number}."""
    stated, counted = {}, 0
    for line in text.splitlines():
        name, _, rest = line.rstrip("\\ ").partition(" &= ")
        if not rest or "bmatrix" in rest or re.search(r"[A-Z]", rest):
            continue
        parts = rest.split(" = ")
        stated[name.strip()] = value(parts[-1])
        if len(parts) == 2 and "\\dots" not in parts[0]:
            counted += 1
            got, want = value(parts[0]), value(parts[1])
            checks.check(np.isclose(got, want, rtol=3e-4, atol=2e-4), f"{what}: {line}: {got}")
    checks.check(counted > 0, f"{what}: there is arithmetic")
    return stated


def explained(folder, job, *args):
    (folder / "explained.json").write_text(json.dumps(job))
    run = attn("run", "explained.json", "--explain", "-", *args, cwd=folder)
    assert run.returncode == 0, run
    return run.stdout.decode()


def close(checks, got, want, what):
    ok = got.shape == want.shape and np.allclose(got, want, rtol=1e-5, atol=1e-12)
    checks.check(ok, f"{what}: {got}, not {want}")


def softmax(s, axis=-1):
    e = np.exp(s - s.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def the_notebook(checks, folder):
    words = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]])
    np.random.seed(42)
    wq, wk, wv = (np.random.randint(3, size=(3, 3)) for _ in range(3))
    q, k, v = words @ wq, words @ wk, words @ wv
    job = ROOT / "data" / "examples" / "general-attention" / "job.json"
    text = attn("run", job, "--explain", "-", "--explain-query", "2").stdout.decode()
    got = matrices(text)
    a = softmax(q @ k.T / np.sqrt(3))
    for name, want in (("X", words), ("W_{Q}", wq), ("Q", q), ("W_{K}", wk), ("K", k), ("V", v),
                       ("S", q @ k.T), ("S'", q @ k.T / np.sqrt(3)), ("A", a), ("C", a @ v)):
        close(checks, got[name], want, name)
    stated = lines_hold(checks, text, "general-attention")
    for j in range(4):
        checks.check(stated[f"s_{{2,{j}}}"] == (q @ k.T)[2, j], f"score {j}")
        checks.check(np.isclose(stated[f"a_{{2,{j}}}"], a[2, j], rtol=1e-5), f"weight {j}")
    for d in range(3):
        checks.check(np.isclose(stated[f"c_{{2,{d}}}"], (a @ v)[2, d], rtol=1e-5), f"context {d}")
    checks.check("query 2 (word\\_3)" in text and "S is (4, 4)." in text, "words and shapes")
    headings = re.findall(r"^## \d\. (.*)$", text, re.MULTILINE)
    checks.check(headings == ["Queries", "Keys and values", "Scores", "Scale", "Softmax", "Context"],
                 f"stages: {headings}")


def options(checks, folder):
    rng = np.random.default_rng(8)
    q, k, v = rng.standard_normal((3, 4)), rng.standard_normal((4, 4)), rng.standard_normal((4, 2))
    job = {"Q": q.tolist(), "K": k.tolist(), "V": v.tolist()}
    cosine = q @ k.T / np.outer(np.linalg.norm(q, axis=1), np.linalg.norm(k, axis=1))
    text = explained(folder, {**job, "score": "cosine"}, "--explain-query", "1")
    close(checks, matrices(text)["S"], cosine, "cosine")
    lines_hold(checks, text, "cosine")
    checks.check("Scale" not in text, "cosines are not scaled")

    text = explained(folder, {**job, "softcap": 2, "scale": -0.75})
    close(checks, matrices(text)["S'"], 2 * np.tanh(-0.75 * q @ k.T / 2), "softcap")
    lines_hold(checks, text, "softcap and scale")

    s = q @ k.T / 2
    masked = np.where(np.tri(3, 4, dtype=bool), s, -np.inf)
    text = explained(folder, {**job, "causal": True}, "--explain-query", "1")
    got = matrices(text)
    close(checks, got["S''"], masked, "causal")
    close(checks, got["A"], softmax(masked), "hidden keys weigh nothing")
    stated = lines_hold(checks, text, "causal")
    checks.check(stated["a_{1,2}"] == 0 and stated["a_{1,3}"] == 0, "hidden keys, one by one")

    text = explained(folder, {**job, "softmax": {"axis": "all"}})
    close(checks, matrices(text)["A"], softmax(s, axis=None), "softmax over all")
    lines_hold(checks, text, "softmax over all")

    text = explained(folder, {**job, "rows": [2], "tokens": ["a", "b", "<c>"]})
    checks.check("query 2 (\\<c\\>), row 0" in text, "--rows keeps the query's name")
    close(checks, matrices(text)["A"], softmax(s)[2:], "one row")

    for more in ({"rotary": {"kind": "half"}}, {"qk_norm": "rms"}, {"score": "l2"},
                 {"normaliser": "sparsemax"}, {"temperature": 2}, {"sinks": [0.5]},
                 {"zero_key": True}, {"alibi": True}, {"softcap": 1, "softcap_order": "after-mask"},
                 {"past_K": k[:2].tolist(), "past_V": v[:2].tolist()}):
        text = explained(folder, {**job, **more}, "--outputs", "scores,weights,context")
        lines_hold(checks, text, f"{more}")
        (folder / "job.json").write_text(json.dumps({**job, **more}))
        run = attn("run", "job.json", "--format", "json", "--outputs", "scores,weights,context", cwd=folder)
        want, got = json.loads(run.stdout), matrices(text)
        for letter, output in ("S", "scores"), ("A", "weights"), ("C", "context"):
            close(checks, got[letter], np.array(want[output]), f"{more}: {output}")

    text = explained(folder, {**job, "mask": [[False] * 4] * 3, "tokens": ["a", "b", "c"],
                              "rows": [-1]})
    checks.check("This query sees no key." in text and "query -1 (c), row 0" in text, "nothing seen")
    text = explained(folder, {**job, "scale": "none"})
    checks.check("Scale" not in text, "no scale, no stage")
    lines_hold(checks, text, "no scale")

    big = rng.standard_normal((20, 10))
    text = explained(folder, {"Q": big.tolist(), "K": big.tolist()}, "--explain-query", "19")
    got, want = matrices(text)["S"], big @ big.T
    checks.check(got.shape == (7, 7), f"large ones by their edges: {got.shape}")
    keep = [0, 1, 2, 4, 5, 6]
    close(checks, got[np.ix_(keep, keep)], want[np.ix_([0, 1, 2, 17, 18, 19], [0, 1, 2, 17, 18, 19])],
          "edges")


def heads(checks, folder):
    rng = np.random.default_rng(9)
    x = rng.integers(-2, 3, (2, 3, 4)).astype(float)
    wq, wk, wv, wo = (rng.integers(-2, 3, s).astype(float) for s in ((4, 8), (4, 4), (4, 4), (8, 3)))
    bq, bo = rng.standard_normal(8), rng.standard_normal(3)
    job = {"embeddings": x.tolist(), "W_Q": wq.tolist(), "W_K": wk.tolist(), "W_V": wv.tolist(),
           "W_O": wo.tolist(), "b_Q": bq.tolist(), "b_O": bo.tolist(), "heads": 4, "kv_heads": 2}
    text = explained(folder, job, "--explain-head", "3", "--explain-query", "2")
    got = matrices(text)
    contexts = []
    for h in range(4):
        q = x[0] @ wq[:, 2 * h:2 * h + 2] + bq[2 * h:2 * h + 2]
        g = h // 2
        k, v = x[0] @ wk[:, 2 * g:2 * g + 2], x[0] @ wv[:, 2 * g:2 * g + 2]
        a = softmax(q @ k.T / np.sqrt(2))
        contexts.append(a @ v)
    close(checks, got["W_{Q}"], wq[:, 6:], "this head's W_Q")
    close(checks, got["b_{Q}"], bq[None, 6:], "this head's b_Q")
    close(checks, got["Q"], q, "queries of head 3")
    close(checks, got["K"], k, "which sees the keys of group 1")
    close(checks, got["A"], a, "weights of head 3")
    close(checks, got["Y"][:, :3], np.hstack(contexts) @ wo + bo, "output")
    lines_hold(checks, text, "heads")
    checks.check("Of 4 heads this is head 3" in text and "Of several batches" in text, "which one")


def heads_as_an_axis(checks, folder):
    """Q of (B, H, L, D), or (B, L, H, D): what W_O is multiplied with is all heads' contexts."""
    rng = np.random.default_rng(11)
    q, k, v = (rng.standard_normal((2, 3, 4, 2)) for _ in "qkv")  # batches, heads, words
    wo, bo = rng.standard_normal((6, 5)), rng.standard_normal(5)
    contexts = [softmax(q[0, h] @ k[0, h].T / np.sqrt(2)) @ v[0, h] for h in range(3)]
    for layout in "bhld", "blhd":
        job = {name: (a if layout == "bhld" else a.swapaxes(1, 2)).tolist()
               for name, a in (("Q", q), ("K", k), ("V", v))}
        text = explained(folder, {**job, "layout": layout, "W_O": wo.tolist(), "b_O": bo.tolist()},
                         "--explain-head", "1")
        before, _, after = text.partition("Heads side by side")
        checks.check("C is (4, 2)." in before and "C is (4, 6)." in after, f"{layout}: shapes")
        close(checks, matrices(before)["C"], contexts[1], f"{layout}: this head's context")
        close(checks, matrices(after)["C"], np.hstack(contexts), f"{layout}: all heads'")
        close(checks, matrices(after)["Y"], np.hstack(contexts) @ wo + bo, f"{layout}: output")
        text = explained(folder, {**job, "layout": layout})
        checks.check("side by side" not in text, f"{layout}: without W_O each head has its own")


def layouts(checks, folder):
    """Where heads and batches stand, and what is projected: the numbers are those of --outputs."""
    rng = np.random.default_rng(10)

    def normal(*shape):
        return rng.standard_normal(shape).round(3).tolist()

    x, w = normal(3, 4), normal(4, 4)
    projected = {"embeddings": x, "W_Q": w, "W_K": w, "W_V": w}
    for job in ({"Q": normal(1, 2, 3, 4), "K": normal(1, 2, 5, 4), "V": normal(1, 2, 5, 3)},
                {"Q": normal(2, 3, 4), "K": normal(2, 5, 4), "V": normal(2, 5, 3)},
                {"Q": normal(2, 3, 4), "K": normal(2, 5, 4), "V": normal(2, 5, 4), "heads": 2},
                {"embeddings": x},
                {"embeddings": x, "W_Q": w},
                {**projected, "b_K": normal(4), "b_V": normal(4), "position": {"kind": "sinusoidal"}},
                {**projected, "memory": normal(5, 4)},
                {**projected, "W_O": normal(4, 2)},
                {**projected, "q_norm": normal(4), "k_norm": normal(4), "qk_norm": "rms"},
                {"Q": x, "K": x, "cos": normal(3, 2), "sin": normal(3, 2), "rotary": {"kind": "half"}}):
        text = explained(folder, job, "--outputs", "scores,weights,head_context")
        lines_hold(checks, text, f"{list(job)}")
        (folder / "job.json").write_text(json.dumps(job))
        done = attn("run", "job.json", "--format", "json", "--outputs", "scores,weights,head_context",
                    cwd=folder)
        want, got = json.loads(done.stdout), matrices(text)
        for letter, output in ("S", "scores"), ("A", "weights"):
            found = np.array(want[output])
            while found.ndim > 2:
                found = found[0]
            close(checks, got[letter], found, f"{list(job)}: {output}")


def formats(checks, folder):
    tokens = ["</p><script>x</script>", "\\input{x}$%&", "_a_ | `b`"]
    job = {"Q": [[1.0, 2], [0, 1], [1, 1]], "K": [[1.0, 0], [2, 1], [0, 3]], "tokens": tokens}
    (folder / "job.json").write_text(json.dumps(job))
    for suffix in "md", "html", "tex":
        for query in "0", "1", "2":
            run = attn("run", "job.json", "--explain", f"s{query}.{suffix}", "--explain-query", query,
                       cwd=folder)
            checks.check(run.returncode == 0 and run.stdout == b"", f"{suffix}: {run}")
    page = (folder / "s0.html").read_text()
    checks.check("<script" not in page and "default-src 'none'" in page, "a token is never markup")
    body = re.search(r"<body>.*</body>", page, re.DOTALL).group()
    tree = xml.etree.ElementTree.fromstring(body)
    numbers = [e.text for e in tree.iter("mn")]
    checks.check(len(numbers) > 40 and "0" in numbers, "MathML holds the numbers")
    checks.check(len(list(tree.iter("math"))) >= 8, "formulas")
    checks.check(len(list(tree.iter("{http://www.w3.org/2000/svg}svg"))) == 1, "the weights as a picture")
    tex = (folder / "s1.tex").read_text()
    checks.check("\\input{" not in tex and "\\textbackslash{}input\\{x\\}\\$\\%\\&" in tex, "LaTeX")
    checks.check(tex.count("\\begin{") == tex.count("\\end{") and tex.count("{") - tex.count("\\{") ==
                 tex.count("}") - tex.count("\\}"), "LaTeX is balanced")
    checks.check("\\_a\\_ \\| \\`b\\`" in (folder / "s2.md").read_text(), "Markdown")


def compiled(checks, folder):
    """LaTeX takes what is written: the notebook's job, several heads, and any token there is."""
    if not shutil.which("pdflatex"):
        print("skipped: there is no pdflatex (scripts/setup tex)")
        return
    tokens = ["\u6771\u4eac", "\u0120the", "\u2581sub", "##x", "<|end|>", "\u00d8re \u20ac", "~^_\\{}$&%", "\U0001f600"]
    x = np.random.default_rng(3).standard_normal((8, 8)).round(3).tolist()
    jobs = {"tokens": {"tokens": tokens, "Q": x, "K": x, "V": x, "causal": True},
            "heads": {"embeddings": x, "W_Q": x, "W_K": x, "W_V": x, "W_O": x, "heads": 2, "b_Q": x[0]}}
    for name, job in jobs.items():
        (folder / f"{name}.json").write_text(json.dumps(job))
    paths = {"notebook": ROOT / "data/examples/general-attention/job.json",
             **{name: folder / f"{name}.json" for name in jobs}}
    for name, path in paths.items():
        for query in ("0", "3") if name != "tokens" else map(str, range(8)):
            attn("run", path, "--explain", f"{name}{query}.tex", "--explain-query", query, cwd=folder)
            run = subprocess.run(["pdflatex", "-interaction=nonstopmode", f"{name}{query}.tex"], cwd=folder,
                                 capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
            said = run.stdout.decode(errors="replace")
            checks.check(run.returncode == 0 and (folder / f"{name}{query}.pdf").stat().st_size > 10000 and
                         "Overfull" not in said, f"pdflatex {name}{query}: {said[-900:]}")


def refusals(checks, folder):
    for args, code, word in ((["--explain", "x.doc"], 2, ".tex"),
                             (["--explain", "-", "--explain-query", "7"], 2, "--explain-query 7"),
                             (["--explain", "-", "--explain-query", "-3"], 2, "-3: expected 0 to 0"),
                             (["--rows", "-1", "--explain", "-", "--explain-query", "0"], 2,
                              "--explain-query 0: expected a row asked for: -1"),
                             (["--explain", "-", "--explain-head", "1"], 2, "--explain-head 1"),
                             (["--explain", "-", "--explain-head", "-1"], 2, "--explain-head -1"),
                             (["--explain-query", "1"], 2, "--explain")):
        run = attn("run", "--q", "[[1.0, 2]]", "--k", "[[1.0, 2]]", *args, cwd=folder)
        checks.check(run.returncode == code and word in run.stderr.decode() and run.stdout == b"",
                     f"{args}: {run}")
    (folder / "v.svg").symlink_to("r.npz")
    (folder / "here").symlink_to(".")
    for args in (["--explain", "y.html", "--view=y.html"], ["--explain", "y.html", "--view=here/y.html"],
                 ["-o", "r.npz", "--view=v.svg", "--force"], ["-o", "r.npz", "--view=v.svg"]):
        run = attn("run", "--q", "[[1.0, 2]]", "--k", "[[1.0, 2]]", *args, cwd=folder)
        checks.check(run.returncode == 2 and b"twice" in run.stderr and run.stdout == b"" and
                     not (folder / "r.npz").exists() and not (folder / "y.html").exists(), f"{args}: {run}")
    np.save(folder / "none.npy", np.zeros((0, 2)))
    run = attn("run", "--q", "none.npy", "--k", "none.npy", "--explain", "-", cwd=folder)
    checks.check(run.returncode == 65 and b"expected queries and keys, found none" in run.stderr,
                 f"nothing to explain: {run}")
    run = attn("run", "--q", "[[1.0, 2]]", "--k", "[[1.0, 2]]", "--explain", "e.md", "-o", "w.npz",
               "--outputs", "weights", cwd=folder)
    with np.load(folder / "w.npz") as made:
        checks.check(run.returncode == 0 and made.files == ["weights"], "results as without it")


def main():
    checks = Checks("explain")
    with tempfile.TemporaryDirectory() as name:
        for test in the_notebook, options, heads, heads_as_an_axis, layouts, formats, compiled, refusals:
            test(checks, pathlib.Path(name))
    checks.finish()


main()
