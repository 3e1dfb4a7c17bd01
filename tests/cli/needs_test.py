#!/usr/bin/env python3
"""No option is silently dropped; what is wrong is said of where it was typed; hidden NaN is not."""

import json
import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402

QK = ["--q", "[[1.0, 2]]", "--k", "[[1.0, 2], [3, 4]]"]
X = ["--embeddings", "[[1.0, 2], [3, 4]]"]


def refused(checks, run, code, says, what):
    err = run.stderr.decode()
    checks.check(run.returncode == code and says in err, f"{what}: exit {run.returncode}, {err}")
    checks.check(run.stdout == b"", f"{what}: {run}")


def unmet(checks):
    mask = ["--mask", "[[0.0, 1.0]]"]
    for args, flag in [
        ([*QK, "--layout", "blhd"], "--layout"),
        (["--q", "[[[1.0, 2]]]", "--k", "[[[1.0, 2]]]", "--layout", "blhd"], "--layout"),
        ([*QK, "--alignment", "bottom-right"], "--alignment"),
        ([*QK, "--mask-polarity", "ignore"], "--mask-polarity"),
        ([*QK, *mask, "--mask-polarity", "ignore"], "--mask-polarity"),
        ([*QK, "--embedding-scale", "5"], "--embedding-scale"),
        ([*QK, "--position-base", "5"], "--position-base"),
        ([*X, "--position-base", "5"], "--position-base"),
        ([*X, "--position-first", "5"], "--position-first"),
        ([*X, "--position-exponent", "doubled"], "--position-exponent"),
        ([*X, "--last-column-zero"], "--last-column-zero"),
        ([*X, "--seed", "3", "--generator", "default_rng"], "--seed"),
        ([*X, "--generator", "default_rng"], "--generator"),
    ]:
        refused(checks, attn("run", *args), 2, f"attn: {flag}: expected ", args)
    for key, value in ("layout", "blhd"), ("seed", 2**32), ("generator", "default_rng"), \
            ("softcap_order", "after-mask"), ("position", {"kind": "sinusoidal"}), \
            ("rotary", {"base": 3}), ("rows", [9]), ("outputs", ["wieghts"]):
        run = attn("run", "-", stdin=json.dumps({"Q": [[1, 2]], "K": [[1, 2]], key: value}))
        refused(checks, run, 65, f"standard input: {key}: expected ", key)
    # What is needed is there, or what is typed holds anyway.
    four = ["--q", "[[[[1.0, 2]]]]", "--k", "[[[[1.0, 2]]]]"]
    for args in [
        [*four, "--layout", "blhd"],
        [*QK, "--layout", "bhld", "--mask-polarity", "attend", "--position", "none"],
        [*QK, "--mask", "[[true, false]]", "--mask-polarity", "ignore"],
        [*QK, "--key-mask", "[true, false]", "--mask-polarity", "ignore"],
        [*QK, "--window=1,-1", "--alignment", "bottom-right"],
        [*QK, "--causal", "--alignment", "bottom-right"],
        [*QK, "--causal=bottom-right", "--alignment", "bottom-right"],
        [*QK, "--alibi", "--alignment", "bottom-right"],
        [*QK, "--alibi-slopes", "[0.5]", "--alignment", "bottom-right"],
        [*QK, "--relative-bias", "[[1.0], [2], [3], [4]]", "--alignment", "bottom-right"],
        [*X, "--embedding-scale", "5"],
        [*X, "--position", "sinusoidal", "--position-base", "5", "--position-first", "1"],
        [*X, "--wq", '{"randn": {"shape": [2, 2]}}', "--seed", "1", "--generator", "RandomState"],
    ]:
        run = attn("run", *args)
        checks.check(run.returncode == 0 and run.stderr == b"", f"{args}: {run}")


def idle(checks, folder):
    """What says how a file is written or drawn, where there is none of that kind."""
    np.savez(folder / "a.npz", weights=np.eye(2), scores=np.eye(2))
    np.savez(folder / "b.npz", weights=np.eye(2), scores=np.ones((2, 2)), logsumexp=np.zeros(2),
             head_context=np.zeros((2, 2)))
    compared, picture = ["compare", "a.npz", "b.npz"], ["-o", "z.svg"]
    drawn, none = ["view", "a.npz"], "a file: -o, --view=FILE or --explain FILE"
    text = "text on standard output only"
    for command, option, companion in [
        (compared, ["--of", "weights"], "--view"), (compared, ["--head", "1"], "--view"),
        (compared, ["--batch", "0"], "--view"), (compared, ["--layer", "0"], "--view"),
        (compared, ["--force"], "--view=FILE"), ([*compared, "--view"], ["--force"], "--view=FILE"),
        (drawn, ["--force"], "-o FILE"), (drawn, ["--max-html-bytes", "5M"], "-o FILE.html"),
        ([*drawn, *picture], ["--max-html-bytes", "5M"], "-o FILE.html"),
        ([*drawn, *picture], ["--width", "60"], text), ([*drawn, *picture], ["--color", "always"], text),
        ([*drawn, "-o", "z.html"], ["--color", "never"], text),
        (["run", *QK], ["--force"], none), (["run", *QK], ["--no-clobber"], none),
        (["run", *QK], ["--durable"], none), (["run", *QK, "-o", "-"], ["--force"], none),
        (["run", *QK, "--format", "npz"], ["--force"], none),
        (["run", *QK, "--view", "--explain", "-"], ["--durable"], none),
        (["random", "rand", "--seed", "1"], ["--force"], "-o FILE"),
        (["convert", "a.npz"], ["--force"], "-o FILE"), (["merge", "b.npz", "b.npz"], ["--force"], "-o FILE"),
        (["svd", "a.npz#weights"], ["--force"], "-o FILE"),
        (["convert", "a.npz", "-o", "-"], ["--force"], "-o FILE"),
    ]:
        run = attn(*command, *option, cwd=folder)
        checks.check(run.returncode == 2 and run.stdout == b"" and
                     run.stderr.decode() == f"attn: {option[0]}: goes with {companion}\n", f"{command}: {run}")
    for args, code in [
        ([*compared, "--view", "--of", "weights"], 1), ([*compared, "--view=c.svg", "--force"], 1),
        ([*drawn, "-o", "v.html", "--max-html-bytes", "5M", "--force"], 0),
        ([*drawn, "--width", "60", "--color", "never"], 0),
        (["run", *QK, "--view=r.svg", "--force", "--durable"], 0),
        (["run", *QK, "--explain", "r.md", "--no-clobber"], 0),
        (["run", *QK, "-o", "-", "-o", "r.npz", "--force"], 0),
        (["svd", "a.npz#weights", "-o", "f.npz", "--force"], 0),
        (["merge", "b.npz", "b.npz", "-o", "m.npz", "--force"], 0),
    ]:
        run = attn(*args, cwd=folder)
        checks.check(run.returncode == code, f"{args}: {run}")


def detached(checks, folder):
    """A value behind a flag that takes one after '=' alone, and is then no file that is there."""
    (folder / "qk.json").write_text(json.dumps({"Q": [[1, 2]], "K": [[1, 2]]}))
    np.save(folder / "t.npy", np.eye(2))
    missing, extra = "{}: No such file or directory", "unexpected argument '{}'"
    for args, code, says in [
        (["run", *QK, "--view", "out.png"], 66, missing), (["run", *QK, "--causal", "true"], 66, missing),
        (["run", "qk.json", "--view", "out.png"], 2, extra),
        (["run", "qk.json", "--causal", "bottom-right"], 2, extra),
        (["run", "qk.json", "--view", "-"], 2, extra),
        (["compare", "t.npy", "--view", "d.svg"], 66, missing),
        (["compare", "t.npy", "t.npy", "--view", "d.svg"], 2, extra),
        (["batch", "--causal", "top-left"], 66, missing),
    ]:
        run, (flag, word) = attn(*args, cwd=folder), args[-2:]
        said = run.stderr.decode()
        checks.check(run.returncode == code and says.format(word) in said and said.count("\n") == 1 and
                     f"; {flag} takes its value as {flag}={word}" in said, f"{args}: {run}")
    # What is no value of the flag before it is a file like any other.
    for args in ["--view", "job.json"], ["--causal", "job.json"], ["--force", "true"], ["true", "--causal"]:
        run = attn("run", *args, cwd=folder)
        checks.check(b"takes its value" not in run.stderr and run.returncode in (2, 66), f"{args}: {run}")


def labels(checks):
    """Tokens label queries or keys: a number that fits neither is not passed over in silence."""
    wide = ["--q", "[[1.0]]", "--k", "[[1.0], [2], [3]]"]
    for args, tokens, says in [
        (wide, "a", ""), (wide, "a,b,c", ""), (X, "a,b", ""),
        (wide, "a,b", "expected as many as the 1 queries or the 3 keys, found 2"),
        (X, "a,b,c", "expected as many as the 2 queries, found 3")]:
        run = attn("run", *args, "--tokens", tokens)
        said = run.stderr.decode()
        checks.check(run.returncode == 0 and (says in said if says else not said), f"{tokens}: {run}")


def messages(checks, folder):
    run = attn("run", *QK, "--heads", "2", "--kv-heads", str(2**63 - 1))
    checks.check(run.returncode == 65 and run.stderr.decode().splitlines() == [
        f"attn: --k: K: expected a width that kv_heads = {2**63 - 1} divides, found (2, 2)",
        "attn: --kv-heads: expected a number of key/value heads that divides the 2 of "
        f"heads, found {2**63 - 1}"], f"heads beyond all tensors: {run}")
    (folder / "job.json").write_text(json.dumps({"Q": [[1, 2]], "K": [[1, 2]]}))
    np.savez(folder / "two.npz", a=np.ones((2, 2)), b=np.ones((2, 2)))
    (folder / "several.json").write_text(json.dumps({"Q": [[1, 2]], "K": "two.npz"}))
    (folder / "empty.json").write_text(json.dumps({"Q": "", "K": [[1]]}))
    (folder / "dotted.json").write_text(json.dumps({"embeddings": [[1]], "position.base": 3}))
    (folder / "drawn.json").write_text(json.dumps({"embeddings": [[1]], "W_Q": {"randn": {"shape": [1, 1]}}}))
    np.savez(folder / "other.npz", np.ones((2, 2)))
    (folder / "turned.json").write_text(json.dumps({"Q": [[1, 2]], "K": [[1, 2]], "rotary": {"base": 3}}))
    for args, code, says in [
        ([*QK, "--softcap", "-1.5"], 2, "found -1.5"),
        ([*QK, "--window", "-2,0"], 2, "found [-2,0]"),
        (["job.json", "--rows", "9"], 2, "attn: --rows: expected places"),
        (["job.json", "--position", "sinusoidal"], 2, "attn: --position: expected embeddings"),
        (["job.json", "--rotary-base", "3"], 2, "attn: --rotary-base: expected "),
        (["job.json", "--relative-max-distance", "3"], 2, "attn: --relative-max-distance: expected "),
        (["turned.json", "--rotary-width", "2"], 65, "attn: turned.json: rotary: expected kind half"),
        (["job.json", "--rotary", "half", "--q", "[[1,2,3]]", "--k", "[[1,2,3]]"], 2,
         "attn: --rotary: rotary.width: expected an even number"),
        (["job.json", "--normaliser", "top_k"], 2, "attn: --normaliser: expected top_k, the number"),
        (["job.json", "--softcap-order", "after-mask"], 2, "attn: --softcap-order: expected a softcap"),
        (["job.json", "--short-mask", "hide"], 2, "attn: --short-mask: expected a mask"),
        (["job.json", "--top-k", "2"], 2, "attn: --top-k: expected normaliser top_k"),
        (["job.json", "--outputs", "wieghts"], 2, "attn: --outputs: expected names of outputs"),
        (["job.json", "--q", "none.npy"], 66, "attn: --q: none.npy: "),
        (["job.json", "--key-lengths", "2"], 66, "No such file or directory; numbers stand in brackets: [2]"),
        (["job.json", "--sinks", "0.5,-1"], 66, "numbers stand in brackets: [0.5,-1]"),
        (["drawn.json", "--seed", 2**32], 2, "attn: --seed: expected 0 to 4294967295, found a larger"),
        (["drawn.json"], 65, "attn: drawn.json: W_Q: a random tensor needs a seed"),
        (["other.npz"], 65, "other.npz: unknown key 'arr_0'; a job's arrays have the names of inputs, "
                            "such as Q, K, V, embeddings, W_Q; a flag takes any other, such as --q "
                            "other.npz#arr_0"),
        (["several.json"], 65, "attn: several.json: K: two.npz: has several arrays"),
        (["empty.json"], 65, "attn: empty.json: Q: expected the name of a file"),
        (["dotted.json"], 65, "expected the key 'base' in an object 'position'"),
    ]:
        refused(checks, attn("run", *args, cwd=folder), code, says, args)
    refused(checks, attn("run", "-", stdin="{]"), 65, "attn: standard input: ", "a broken job")
    refused(checks, attn("run", "-", stdin='{"hedas": 1}'), 65, "attn: standard input: ", "a key")
    # An archive holds no objects: its keys are dotted.
    x = np.array([[1.0, 2], [3, 4]])
    np.savez(folder / "job.npz", embeddings=x, **{"position.first": 3, "position.base": 7.0})
    run = attn("run", "job.npz", "--position", "sinusoidal", "--outputs", "positions", "--format",
               "json", cwd=folder)
    t = (3 + np.arange(2))[:, None]
    checks.check(np.allclose(json.loads(run.stdout or "{}").get("positions", 0),
                             np.hstack([np.sin(t), np.cos(t)])), f"dotted keys: {run}")
    for typed, tokens in ("[CLS],a", ["[CLS]", "a"]), ('["a", "b"]', ["a", "b"]):
        run = attn("run", *X, "--tokens", typed, "--format", "json")
        checks.check(json.loads(run.stdout or "{}").get("tokens") == tokens, f"{typed}: {run}")


def nan(checks):
    def run(job, *args):
        return attn("run", "-", *args, "--format", "json", stdin=json.dumps(job))

    hidden = {"Q": [[1.0, 0]], "K": [[1, 0], ["NaN", 0]], "mask": [[True, False]]}
    done = run(hidden, "--nan", "refuse")
    checks.check(done.returncode == 0 and done.stderr == b"", f"a hidden NaN: {done}")
    refused(checks, run(hidden, "--nan", "refuse", "--outputs", "scores"), 65,
            "scores: expected no NaN, found 1 of 2, the first at [0, 1]", "nothing behind the mask")
    for behind in "mean_weights", "key_weights", "row_max":
        heads = [] if behind == "row_max" else ["--heads", "1"]
        done = run(hidden, *heads, "--nan", "refuse", "--outputs", f"scores,{behind}")
        checks.check(done.returncode == 0 and done.stderr == b"", f"hidden from {behind}: {done}")
        seen = {"Q": [[1.0, 0]], "K": [["NaN", 0], [1, 0]]}
        refused(checks, run(seen, *heads, "--nan", "refuse", "--outputs", behind), 65,
                f"{behind}: expected no NaN", f"seen by {behind}")
    seen = {"Q": [[1.0, "NaN"]], "K": [[1, 0], ["NaN", 0]], "V": [[1.0], [2]],
            "mask": [[True, False]]}
    done = run(seen)
    checks.check(done.returncode == 0 and b"weights: expected no NaN, found " in done.stderr,
                 f"a visible NaN: {done}")
    for name, place in ("Q", "[0, 1]"), ("K", "[1, 0]"):
        words = f"standard input: {name} holds 1, the first at {place}"
        checks.check(words in done.stderr.decode(), f"{words}: {done.stderr}")


def main():
    checks = Checks("needs")
    unmet(checks)
    labels(checks)
    with tempfile.TemporaryDirectory() as folder:
        for part in idle, detached, messages:
            part(checks, pathlib.Path(folder))
    nan(checks)
    checks.finish()


if __name__ == "__main__":
    main()
