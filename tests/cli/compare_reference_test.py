#!/usr/bin/env python3
"""`attn compare --reference`: kernels that round as they may, kernels that are wrong, and the bound.

The kernels are simulated here, rounding by rounding; the bound is computed once more, from the
formulas of docs/comparing.md, and nothing is taken from the program.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from attn import Checks, attn  # noqa: E402

UNIT = {"f64": 2.0 ** -53, "f32": 2.0 ** -24, "tf32": 2.0 ** -11, "f16": 2.0 ** -11, "bf16": 2.0 ** -8}
LEAST = {"f64": 2.0 ** -1022, "f32": 2.0 ** -126, "tf32": 2.0 ** -126, "f16": 2.0 ** -24, "bf16": 2.0 ** -126}


def rounded(x, precision):
    """x as `precision` holds it, in float64."""
    if precision == "f64":
        return x
    if precision in ("f32", "f16"):
        return x.astype({"f32": "f4", "f16": "f2"}[precision]).astype("f8")
    drop = np.uint64({"bf16": 16, "tf32": 13}[precision])
    bits = np.atleast_1d(np.asarray(x, "f4")).view("u4").astype("u8")
    half = (np.uint64(1) << (drop - np.uint64(1))) - np.uint64(1)
    bits = (bits + half + ((bits >> drop) & np.uint64(1))) >> drop << drop
    return bits.astype("u4").view("f4").astype("f8").reshape(np.shape(x))


def kernel(q, k, v, mask, store, sums="f32", scale=None, factors=None, weights=None, of_scores=None,
           of_context=None):
    """Online softmax in blocks of 32 keys; each operation is rounded as the words say."""
    factors = factors or store
    weights, of_scores, of_context = weights or factors, of_scores or sums, of_context or sums
    q, k, v = (rounded(x, factors) for x in (q, k, v))
    scale = scale or 1 / np.sqrt(q.shape[1])
    s = np.zeros((len(q), len(k)))
    for d in range(q.shape[1]):
        s = rounded(s + q[:, d:d + 1] * k[None, :, d], of_scores)
    z = np.where(mask, rounded(s * scale, sums), -np.inf)
    most = np.full((len(q), 1), -np.inf)
    total, o = np.zeros((len(q), 1)), np.zeros((len(q), v.shape[1]))
    for start in range(0, len(k), 32):
        block = z[:, start:start + 32]
        new = np.maximum(most, block.max(1, keepdims=True))
        safe = np.where(np.isinf(new), 0, new)
        p = rounded(np.exp(rounded(block - safe, sums)), sums)
        shrink = rounded(np.exp(rounded(most - safe, sums)), sums)
        total, o = rounded(total * shrink, sums), rounded(o * shrink, of_context)
        for j in range(p.shape[1]):
            total = rounded(total + p[:, j:j + 1], sums)
            o = rounded(o + rounded(p[:, j:j + 1], weights) * v[start + j][None, :], of_context)
        most = new
    return rounded(rounded(o / total, sums), store)


def growth(n):
    return min(n, 4 * np.sqrt(n))


def bound(q, k, v, mask, precision, sums="f32"):
    """What docs/comparing.md says of the context of given Q, K, V that the precision holds."""
    r = f = UNIT[precision]
    s = UNIT[sums]
    D, S = q.shape[1], len(k)
    x = np.where(mask, q @ k.T / np.sqrt(D), 0)
    e = growth(D) * s * (abs(q) @ abs(k).T) / np.sqrt(D)
    e += 2 * s * abs(q @ k.T) / np.sqrt(D) + 2 * s * abs(q @ k.T / np.sqrt(D)) + s * abs(x)
    w = np.where(mask, np.exp(x), 0)
    w /= w.sum(1, keepdims=True)
    n = np.where(mask, e + 2 * s * (abs(x) + abs(x).max(1, keepdims=True)) + 4 * s, 0)
    t = n + (w * n).sum(1, keepdims=True) + growth(S) * s + 2 * s
    terms, squares = w @ abs(v), 4 * np.sqrt(w ** 2 @ v ** 2)
    error = (w * np.expm1(t)) @ abs(v) + growth(S) * s * terms + f * np.minimum(terms, squares)
    error += 4 * LEAST[precision] * np.sqrt(mask @ v ** 2)
    return error + r * abs(w @ v) + LEAST[precision]


def compare(folder, *args, code):
    run = attn("compare", *args, cwd=folder)
    checks.check(run.returncode == code and run.stderr == b"", f"{args}: exit {run.returncode}, {run}")
    return run.stdout.decode()


def report(folder, *args, code):
    return json.loads(compare(folder, *args, "--json", code=code))["tensors"][0]


def save(path, x, precision):
    """In the dtype of the precision; bf16, which .npy has not, as safetensors."""
    if precision != "bf16":
        np.save(f"{path}.npy", x.astype({"f64": "f8", "f32": "f4", "tf32": "f4", "f16": "f2"}[precision]))
        return f"{path.name}.npy"
    raw = (x.astype("f4").view("u4") >> 16).astype("<u2").tobytes()
    head = json.dumps({"context": {"dtype": "BF16", "shape": list(x.shape),
                                   "data_offsets": [0, len(raw)]}}).encode()
    path.with_suffix(".safetensors").write_bytes(len(head).to_bytes(8, "little") + head + raw)
    return f"{path.name}.safetensors"


def kernels(folder, rng):
    """Right ones pass, wrong ones do not, for each precision; the bound is the documented one."""
    for L, D, causal in (64, 64, True), (96, 32, False):
        mask = np.tri(L, dtype=bool) if causal else np.ones((L, L), bool)
        shifted = np.tri(L, k=-1, dtype=bool) if causal else np.roll(np.eye(L, dtype=bool), 1, 1) ^ mask
        shifted[0, 0] = True
        for precision in "f16", "bf16", "f32", "tf32", "f64":
            given = "f32" if precision == "tf32" else precision
            q, k, v = (rounded(rng.standard_normal((L, D)), given) for _ in range(3))
            for name, x in ("q", q), ("k", k), ("v", v):
                np.save(folder / f"{name}.npy", x)
            sums = "f64" if precision == "f64" else "f32"
            common = {"mask": mask, "store": given, "sums": sums, "factors": precision}
            more = {"f16": [{"sums": "f16"}, {"weights": "bf16"}, {"of_scores": "f16"}],
                    "bf16": [{"sums": "bf16"}, {"of_scores": "bf16"}],
                    "f32": [{"factors": "tf32"}, {"weights": "f16"}, {"sums": "f16"}],
                    "tf32": [{"of_scores": "bf16"}], "f64": [{"sums": "f32"}, {"weights": "f32"}]}
            wrong = [{"scale": 1 / D}, {"mask": shifted}, *more[precision]]
            args = ["--reference", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy",
                    *(["--causal"] if causal else []), "--precision", precision]
            what = f"{L}x{D} {precision}"
            name = save(folder / "right", kernel(q, k, v, **common), given)
            found = report(folder, name, *args, code=0)
            worst = found["bound"]["worst"]
            checks.check(worst["value"] < 0.8, f"{what}: a right kernel keeps off the bound: {worst}")
            if precision in ("f16", "bf16"):
                checks.check(worst["value"] > 0.2, f"{what}: the bound is not loose: {worst}")
            if precision != "tf32":
                want = bound(q, k, v, mask, precision, sums)[tuple(worst["at"])]
                want *= 2 if precision == "f64" else 1
                checks.check(np.isclose(worst["bound"], want, rtol=1e-6), f"{what}: {worst}, not {want}")
            for change in wrong:
                name = save(folder / "wrong", kernel(q, k, v, **{**common, **change}), given)
                found = report(folder, name, *args, code=1)
                checks.check(found["bound"]["worst"]["value"] > 1 and found["differing"] > 0,
                             f"{what} {change}: {found['bound']}")


def own_results(folder, rng):
    """What attn computes in f32 is within the bound of f32, whatever the job; a bit more is not."""
    def numbers(*shape):
        return rng.standard_normal(shape).tolist()
    x, memory = numbers(2, 9, 8), numbers(2, 7, 8)
    projected = {"embeddings": x, "W_Q": numbers(8, 8), "W_K": numbers(8, 4), "W_V": numbers(8, 6),
                 "W_O": numbers(12, 5), "b_Q": numbers(8), "b_V": numbers(6), "b_O": numbers(5),
                 "heads": 4, "kv_heads": 2}
    given = {"Q": numbers(2, 4, 9, 8), "K": numbers(2, 2, 9, 8), "V": numbers(2, 2, 9, 3)}
    past = {"past_K": numbers(2, 2, 5, 8), "past_V": numbers(2, 2, 5, 3)}
    hidden = np.where(rng.random((9, 9)) < 0.4, -np.inf, rng.standard_normal((9, 9)))
    hidden[3] = -np.inf
    mask = [["-Infinity" if np.isinf(m) else m for m in row] for row in hidden.tolist()]
    cases = [projected, {**projected, "memory": memory}, {**projected, "rows": [2, -1]},
             {**projected, "causal": True, "position": {"kind": "sinusoidal"}},
             given, {**given, **past, "causal": True}, {**given, "mask": mask},
             {**given, "alibi": True}, {**given, "softcap": 1.5}, {**given, "sinks": numbers(4)},
             {**given, "softcap": 1.5, "softcap_order": "after-mask", "alibi": True},
             {**given, "temperature": 0.5}, {**given, "scale": -0.3}, {**given, "layout": "bhld"},
             {**given, "zero_key": True}, {**given, "bias_K": numbers(16), "bias_V": numbers(6)},
             {**given, "window": [2, 0]}, {"Q": numbers(3, 4), "K": numbers(5, 4)}]
    outputs = ["queries", "keys", "values", "scores", "scaled_scores", "masked_scores", "weights",
               "logsumexp", "head_context", "context"]
    for job in cases:
        (folder / "job.json").write_text(json.dumps(job))
        names = outputs + (["output"] if "W_O" in job else [])
        attn("run", "job.json", "--compute", "f32", "--outputs", ",".join(names), "-o", "own.npz", "--force",
             cwd=folder)
        what = sorted(set(job) - set("QKV"))
        run = attn("compare", "own.npz", "job.json", "--reference", "--json", cwd=folder)
        found = json.loads(run.stdout)
        checks.check(run.returncode == 0 and [t["name"] for t in found["tensors"]] == names,
                     f"{what}: {[(t['name'], t['bound']) for t in found['tensors'] if not t['same']]}")
        with np.load(folder / "own.npz") as own:
            arrays = {name: own[name].copy() for name in own.files}
        for name in names:
            changed = dict(arrays)
            spot = np.unravel_index(np.nanargmax(np.where(np.isfinite(changed[name]), abs(changed[name]), -1)),
                                    changed[name].shape)
            changed[name] = changed[name].copy()
            changed[name][spot] *= 1 + 1e-3
            np.savez(folder / "changed.npz", **changed)
            run = attn("compare", "changed.npz", "job.json", "--reference", "--json", cwd=folder)
            differ = [t["name"] for t in json.loads(run.stdout)["tensors"] if not t["same"]]
            checks.check(run.returncode == 1 and differ == [name], f"{what}: {name}: {differ}")


def inputs_beyond(folder):
    """Inputs that the precision cannot hold are taken to be rounded, or refused."""
    job = {"Q": [[1 / 3, 0.1]], "K": [[0.7, 0.2], [0.1, 0.9]], "V": [[1.0, 2], [3, 4]]}
    (folder / "job.json").write_text(json.dumps(job))
    q, k, v = (np.array(job[name]) for name in "QKV")
    right = kernel(q, k, v, np.ones((1, 2), bool), "f16")
    np.save(folder / "r.npy", right.astype("f2"))
    compare(folder, "r.npy", "job.json", "--reference", code=0)
    job["Q"] = [[1e6, 0]]
    (folder / "job.json").write_text(json.dumps(job))
    run = attn("compare", "r.npy", "job.json", "--reference", cwd=folder)
    checks.check(run.returncode == 65 and b"float16 cannot hold" in run.stderr, f"{run}")


def edges(folder, rng):
    """NaN and infinities are part of the reference; what no bound is known for takes tolerances."""
    job = {"Q": [[1.0, 2]], "K": [[1.0, 0], [0, 1]], "V": [["NaN", 1.0], [2, 3]]}
    (folder / "job.json").write_text(json.dumps(job))
    attn("run", "job.json", "--outputs", "context", "-o", "c.npy", "--nan", "allow", cwd=folder)
    compare(folder, "c.npy", "job.json", "--reference", code=0)
    np.save(folder / "c.npy", np.nan_to_num(np.load(folder / "c.npy")))
    compare(folder, "c.npy", "job.json", "--reference", code=1)
    q = rng.standard_normal((4, 4))
    np.save(folder / "q.npy", q)
    rotary = ["--q", "q.npy", "--k", "q.npy", "--rotary", "half"]
    attn("run", *rotary, "--outputs", "context,queries", "-o", "r.npz", cwd=folder)
    run = attn("compare", "r.npz", "--reference", *rotary, cwd=folder)
    checks.check(run.returncode == 2 and b"rotary" in run.stderr and b"--rtol" in run.stderr, f"{run}")
    compare(folder, "r.npz", "--reference", *rotary, "--rtol", "1e-9", code=0)
    np.savez(folder / "o.npz", o=np.load(folder / "r.npz")["context"], more=q)
    run = attn("compare", "o.npz", "--reference", *rotary, "--rtol", "1e-9", cwd=folder)
    checks.check(run.returncode == 1 and b"o: no output of the job" in run.stdout, f"{run}")
    compare(folder, "o.npz#o", "--reference", *rotary, "--rtol", "1e-9", code=0)
    compare(folder, "o.npz#o", "--reference", *rotary, "--rtol", "1e-9", "--as", "queries", code=1)
    # A nameless tensor is taken for the context: where the shape speaks against it, others are named.
    cross = ["--q", "q.npy", "--k", "cross.npy"]
    np.save(folder / "cross.npy", np.concatenate([q, q]))
    attn("run", *cross, "-o", "weights=w.npy", cwd=folder)
    run = attn("compare", "w.npy", "--reference", *cross, cwd=folder)
    checks.check(run.returncode == 1 and run.stderr.decode() == "attn: --as NAME says which output A "
                 "is; of its shape are scores, scaled_scores, masked_scores, weights, "
                 "mean_weights\n", f"{run}")
    compare(folder, "w.npy", "--reference", *cross, "--as", "weights", code=0)
    for args, word in ((["r.npz"], "--reference"), (["r.npz", "r.npz", "--q", "q.npy"], "--reference"),
                       (["r.npz", "--reference"], "--reference"),
                       (["r.npz", "--reference", *rotary, "--as", "output", "--rtol", "0"], "--as"),
                       (["o.npz#o", "--reference", *rotary, "--as", "output", "--rtol", "0"], "W_O"),
                       (["r.npz", "r.npz", "--sums", "f32"], "--reference")):
        run = attn("compare", *args, cwd=folder)
        checks.check(run.returncode == 2 and word in run.stderr.decode(), f"{args}: {run}")
    # What the reference has its own way of, and a name that --as cannot mean.
    decided = ": goes with the bound, which --rtol, --atol and --ulp replace"
    for flags, said in ((["--rtol", "1e-3", "--precision", "f16"], "--precision" + decided),
                        (["--ulp", "4", "--sums", "f16"], "--sums" + decided),
                        (["--outputs", "weights"], "--outputs: what A holds is compared; A#NAME picks one, "
                                                   "--as NAME says which output it is"),
                        (["--compute", "f32"], "--compute: the reference is computed in f64"),
                        (["--path", "fast"], "--path: the job is computed by path reference"),
                        (["--tokens", "a,b"], "--tokens: labels are those that A holds"),
                        (["--as", "weigths"], "--as: expected names of outputs, found 'weigths' (did you mean "
                                              "'weights'?)"),
                        (["--as", "output"], "--as: expected W_O for output, found none")):
        run = attn("compare", "w.npy", "--reference", *cross, *flags, cwd=folder)
        checks.check(run.returncode == 2 and run.stderr.decode() == f"attn: {said}\n" and run.stdout == b"",
                     f"{flags}: {run}")
    np.savez(folder / "inputs.npz", Q=np.eye(2), K=np.eye(2))
    for args in ["inputs.npz", "--reference", *rotary], ["inputs.npz", "inputs.npz", "--reference"]:
        for flags in [], ["--json"]:
            run = attn("compare", *args, *flags, cwd=folder)
            checks.check(run.returncode == 65 and run.stdout == b"" and run.stderr.count(b"\n") == 1
                         and b"expected a tensor to compare" in run.stderr, f"{args} {flags}: {run}")


checks = Checks("compare --reference")


def main():
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        kernels(folder, rng)
        own_results(folder, rng)
        inputs_beyond(folder)
        edges(folder, rng)
    checks.finish()


main()
