#!/usr/bin/env python3
"""`attn run` from outside: where jobs come from, where results go, and what is refused."""

import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
from scipy.special import softmax

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn  # noqa: E402

WORDS = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]
JOB = {
    "embeddings": WORDS,
    "seed": 42,
    "W_Q": {"randint": {"high": 3, "shape": [3, 3]}},
    "W_K": {"randint": {"high": 3, "shape": [3, 3]}},
    "W_V": {"randint": {"high": 3, "shape": [3, 3]}},
}


def expected():
    np.random.seed(42)
    q, k, v = (np.array(WORDS) @ np.random.randint(3, size=(3, 3)) for _ in range(3))
    scores = q @ k.T
    weights = softmax(scores / np.sqrt(3), axis=1)
    return {"queries": q, "scores": scores, "weights": weights, "context": weights @ v}


def close(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-13, atol=0)


def where_jobs_come_from(checks, folder):
    want = expected()
    (folder / "job.json").write_text(json.dumps(JOB))
    run = attn("run", "job.json", "--format", "json", cwd=folder)
    got = json.loads(run.stdout)
    checks.check(list(got) == ["schema", "made_by", "scores", "weights", "context"], f"{run}")
    for name in "scores", "weights", "context":
        checks.check(close(got[name], want[name]), f"job.json: {name}")
    checks.check(np.array(got["scores"]).dtype.kind == "i", "integer scores stay integers")
    made_by = got["made_by"]
    checks.check(made_by["job"]["seed"] == 42 and "job.json" in made_by["inputs"], "made_by")

    run = attn("run", "-", "--format", "ndjson", stdin=json.dumps(JOB))
    checks.check(run.stdout.count(b"\n") == 1, "ndjson is one line")
    checks.check(close(json.loads(run.stdout)["context"], want["context"]), "a job from stdin")
    run = attn("run", "/dev/stdin", "--format", "ndjson", stdin=json.dumps(JOB), cwd=folder)
    checks.check(close(json.loads(run.stdout)["context"], want["context"]), "a job from /dev/stdin")

    # An .npz with the keys' names is a job, from a file and from a pipe; flags join it.
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(s) for s in ((5, 4), (6, 4), (6, 3)))
    np.savez(folder / "in.npz", Q=q, K=k, V=v)
    run = attn("run", "in.npz", "--causal", "-o", "out.npz", cwd=folder)
    checks.check(run.returncode == 0 and run.stdout == b"" and run.stderr == b"", f"npz: {run}")
    s = np.where(np.tri(5, 6, dtype=bool), q @ k.T / 2, -np.inf)
    with np.load(folder / "out.npz") as out:
        checks.check(sorted(out.files) == ["context", "scores", "weights"], "names in the .npz")
        checks.check(close(out["scores"], q @ k.T), "npz: scores")
        checks.check(close(out["context"], softmax(s, axis=1) @ v), "npz: context")
    with zipfile.ZipFile(folder / "out.npz") as archive:
        checks.check(json.loads(archive.comment)["job"]["causal"] is True, "the .npz says its job")
    write = ("import sys, numpy as np; rng = np.random.default_rng(0);"
             "q, k, v = (rng.standard_normal(s) for s in ((5, 4), (6, 4), (6, 3)));"
             "np.savez(sys.stdout.buffer, Q=q, K=k, V=v)")
    numpy = subprocess.Popen(["/usr/bin/python3", "-c", write], stdout=subprocess.PIPE)
    piped = subprocess.run([ATTN, "run", "-", "--causal", "--format", "npz"], stdin=numpy.stdout,
                           capture_output=True)
    numpy.wait()
    with np.load(io.BytesIO(piped.stdout)) as out:
        checks.check(close(out["context"], softmax(s, axis=1) @ v), "npz from pipe to pipe")

    # Flags alone; a flag wins over the document; inline numbers; relative paths of the job file.
    np.save(folder / "q.npy", q)
    run = attn("run", "--q", "q.npy", "--k", "in.npz#K", "--v", "in.npz#V", "-o", "context=c.npy",
               cwd=folder)
    checks.check(run.returncode == 0, f"flags: {run}")
    checks.check(close(np.load(folder / "c.npy"), softmax(q @ k.T / 2, axis=1) @ v), "flags")
    run = attn("run", "job.json", "--scale", "none", "--format", "json", cwd=folder)
    checks.check(close(json.loads(run.stdout)["weights"], softmax(want["scores"], axis=1)),
                 "a flag wins")
    run = attn("run", "--q", "[[1, 2]]", "--k", "[[1, 2], [3, 4]]", "--format", "json")
    checks.check(json.loads(run.stdout)["scores"] == [[5, 11]], "inline numbers")
    (folder / "sub").mkdir()
    (folder / "sub" / "job.json").write_text(json.dumps({"Q": "../q.npy", "K": "../in.npz#K"}))
    run = attn("run", str(folder / "sub" / "job.json"), "--format", "json")
    checks.check(close(json.loads(run.stdout)["scores"], q @ k.T), "paths start at the job file")


def where_results_go(checks, folder):
    want = expected()
    job = folder / "job.json"
    job.write_text(json.dumps({**JOB, "tokens": ["a", "b", "c", "d"]}))

    def run(*args, code=0):
        done = attn("run", job, *args, cwd=folder)
        checks.check(done.returncode == code, f"{args}: {done}")
        return done

    text = run().stdout.decode()
    for name in "scores", "weights", "context":
        checks.check(f"{name} {want[name].shape}: " in text, f"text: {name}")
        checks.check(str(want[name]) in text, f"text: {name} as NumPy prints it")
    checks.check(repr(want["context"]) in run("--repr").stdout.decode(), "--repr")
    csv = run("--outputs", "weights", "--format", "csv").stdout
    checks.check(close(np.loadtxt(io.BytesIO(csv), delimiter=","), want["weights"]), "csv")
    npy = run("--outputs", "context", "--format", "npy").stdout
    checks.check(close(np.load(io.BytesIO(npy)), want["context"]), "npy on stdout")

    run("-o", "r.json")
    result = json.loads((folder / "r.json").read_text())
    checks.check(result["tokens"] == ["a", "b", "c", "d"], "tokens are kept")
    checks.check(close(result["weights"], want["weights"]), "r.json")
    run("-o", "all/", "--outputs", "queries,scores")
    checks.check(sorted(os.listdir(folder / "all")) == ["queries.npy", "scores.npy"], "a folder")
    checks.check(np.array_equal(np.load(folder / "all" / "queries.npy"), want["queries"]),
                 "integers in .npy")
    run("-o", "weights=w.npy", "-o", "context=c.csv")
    checks.check(close(np.load(folder / "w.npy"), want["weights"]), "weights=w.npy")

    # An existing file is kept without --force; the same bytes come again with it.
    first = (folder / "r.json").read_bytes()
    (folder / "r.json").write_bytes(b"mine")
    refused = run("-o", "r.json", code=73)
    checks.check(b"--force" in refused.stderr, f"names --force: {refused.stderr}")
    checks.check((folder / "r.json").read_bytes() == b"mine", "kept without --force")
    run("-o", "r.json", "--force")
    checks.check((folder / "r.json").read_bytes() == first, "the same bytes again")
    run("-o", job, "--force", code=73)  # an input is never written over
    checks.check(json.loads(job.read_text())["seed"] == 42, "the input is whole")
    leftovers = [name for name in os.listdir(folder) if name.startswith(".")]
    checks.check(leftovers == [], f"nothing is left over: {leftovers}")


def refusals(checks, folder):
    np.save(folder / "q.npy", np.ones((3, 4)))
    np.save(folder / "k.npy", np.ones((5, 4)))
    np.save(folder / "v.npy", np.ones((5, 2)))
    np.save(folder / "v4.npy", np.ones((4, 2)))
    np.save(folder / "mask.npy", np.ones((2, 5), dtype=bool))
    np.save(folder / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(folder / "nan.npy", np.full((3, 4), np.nan))
    (folder / "cut.npy").write_bytes((folder / "q.npy").read_bytes()[:-8])
    np.savez(folder / "two.npz", a=np.ones(2), b=np.ones(2))
    (folder / "secret.json").write_text("{}")
    (folder / "table.csv").write_text("1,2\n3,4\n")
    (folder / "no_name.json").write_text('{"": [[1, 2]], "a": [3]}')
    qkv = ["--q", "q.npy", "--k", "k.npy", "--v", "v.npy"]
    huge = [[2**62, 0, 0, 0]]
    cases = [
        # what is typed, exit code, what the line says
        (["nope.json"], 66, "nope.json: "),
        (["table.csv"], 65, "table.csv: expected a job (.json, .npz or .safetensors), found CSV; name its role "
                            "with a flag, such as --embeddings table.csv"),
        (["q.npy"], 65, "q.npy: expected a job (.json, .npz or .safetensors), found one array; name its role"),
        (["no_name.json#"], 66, "no_name.json#: "),
        (["--q", "no_name.json#", "--k", "k.npy"], 65, "no_name.json: holds an array without a name"),
        (["--q", "nope.npy", "--k", "k.npy"], 66, "nope.npy: "),
        (["--q", ".", "--k", "k.npy"], 66, "directory"),
        (["--q", "cut.npy", "--k", "k.npy"], 65, "cut.npy: "),
        (["--q", "objects.npy", "--k", "k.npy"], 65, "pickle"),
        (["--q", "two.npz", "--k", "k.npy"], 65, "two.npz"),
        (["--q", "two.npz#c", "--k", "k.npy"], 65, "two.npz"),
        (["--q", "q.npy", "--k", "v.npy"], 65, "v.npy: K: expected"),
        (["--q", "q.npy", "--k", "k.npy", "--v", "v4.npy"], 65, "v4.npy: V: expected"),
        ([*qkv, "--mask", "mask.npy"], 65, "mask.npy: mask: expected"),
        ([*qkv, "--heads", "3"], 65, "heads"),
        ([*qkv, "--heads", "4", "--kv-heads", "3"], 65, "heads"),
        ([*qkv, "--rows", "7"], 2, "attn: --rows: "),
        (["--q", "q.npy"], 65, "K"),
        ([*qkv, "--outputs", "wieghts"], 2, "did you mean 'weights'?"),
        ([*qkv, "--outputs", "attn_weights"], 2, "did you mean 'weights'?"),
        ([*qkv, "--outputs", "weights,,context"], 2, "outputs: expected names of outputs, found an empty one\n"),
        ([*qkv, "--outputs", "output"], 2, "output"),
        ([*qkv, "--outputs", "everything"], 2, "there are positions, inputs, "),
        ([*qkv, "--scale", "big"], 2, "--scale: expected"),
        ([*qkv, "--heads", "0"], 2, "--heads: expected"),
        ([*qkv, "--score", "cosin"], 2, "did you mean 'cosine'?"),
        ([*qkv, "--window", "1"], 2, "--window: expected 2 whole numbers"),
        ([*qkv, "--hedas", "2"], 2, "did you mean '--heads'?"),
        ([*qkv, "--num-heads", "8"], 2, "did you mean '--heads'?"),
        ([*qkv, "--attn-mask", "m.npy"], 2, "did you mean '--mask'?"),
        ([*qkv, "--key-padding-mask", "m.npy"], 2, "did you mean '--key-mask'?"),
        ([*qkv, "--is-causal"], 2, "did you mean '--causal'?"),
        *(([f"--{name}", "q.npy"], 2, f"did you mean '--{name[0]}'?)") for name in ("query", "key", "value")),
        ([*qkv, "-o", "x.txt"], 2, "x.txt"),
        ([*qkv, "-o", "x.npy"], 2, "holds one output"),
        ([*qkv, "-o", "wights=x.npy"], 2, "did you mean 'weights'?"),
        ([*qkv, "-o", "none/x.npz"], 73, "none"),
        ([*qkv, "--repr", "--format", "json"], 2, "--repr"),
        (["--q", json.dumps(huge), "--k", json.dumps(huge)], 65, "int64"),
        (["--q", "nan.npy", "--k", "k.npy", "--nan", "refuse"], 65, "weights: expected no NaN"),
        ([], 2, "expected a job file or tensors"),
    ]
    for args, code, says in cases:
        out = [] if "-o" in args else ["-o", "result.npz"]
        if "--repr" in args:
            out = []
        run = attn("run", *args, *out, cwd=folder)
        err = run.stderr.decode()
        checks.check(run.returncode == code, f"{args}: exit {run.returncode}, {err}")
        checks.check(all(line.startswith("attn: ") for line in err.splitlines()), f"{args}: {err}")
        checks.check(says in err, f"{args}: expected '{says}' in {err}")
        checks.check(not (folder / "result.npz").exists(), f"{args}: no output")
    run = attn("run", "--q", "nan.npy", "--k", "k.npy", cwd=folder)
    checks.check(run.returncode == 0 and b"nan.npy: Q holds 12, the first at [0, 0]" in run.stderr, f"NaN: {run}")
    run = attn("run", "--q", "nan.npy", "--k", "k.npy", "--nan", "allow", cwd=folder)
    checks.check(run.returncode == 0 and run.stderr == b"", f"--nan allow: {run}")
    run = attn("run", "--q", "nan.npy", "--k", "k.npy", "-q", cwd=folder)
    checks.check(run.returncode == 0 and run.stderr == b"", f"-q: {run}")
    for number in ".5", "0.5", "5e-1":
        run = attn("run", *qkv, "--scale", number, "--outputs", "scaled_scores", "--format", "json",
                   cwd=folder)
        checks.check(json.loads(run.stdout)["scaled_scores"][0][0] == 2, f"--scale {number}: {run}")
    np.save(folder / "float_mask.npy", np.tri(3, 5))
    run = attn("run", *qkv, "--mask", "float_mask.npy", cwd=folder)
    checks.check(run.returncode == 0 and b"warning: float_mask.npy: mask: floats are" in run.stderr,
                 f"a float mask of 0 and 1: {run}")
    np.save(folder / "float_mask.npy", np.where(np.tri(3, 5), 0, -np.inf))
    run = attn("run", *qkv, "--mask", "float_mask.npy", cwd=folder)
    checks.check(run.returncode == 0 and run.stderr == b"", f"an additive mask: {run}")
    run = attn("run", "--q", "q.npy", "--k", "v.npy", "--mask", "mask.npy", "--rows", 9, cwd=folder)
    checks.check(len(run.stderr.splitlines()) == 2, f"all at once: {run.stderr}")


def documents(checks, folder):
    cases = [
        # document, exit code, what the line says
        ({"embedings": WORDS}, 65, "did you mean 'embeddings'?"),
        ({"num_heads": 2}, 65, "did you mean 'heads'?"),
        ({"is_causal": True}, 65, "did you mean 'causal'?"),
        ({"attn_mask": [[1]]}, 65, "did you mean 'mask'?"),
        *(({name: [[1]]}, 65, f"did you mean '{name[0].upper()}'?")
          for name in ("query", "key", "value", "queries", "keys", "values")),
        ({"Q": [[1, 2], [3]], "K": [[1, 2]]}, 65, "job.json: Q: row [1]"),
        ({"Q": [[1, "x"]], "K": [[1, 2]]}, 65, "job.json: Q: "),
        ({"Q": [[1, None]], "K": [[1, 2]]}, 65, "job.json: Q: "),
        ({"Q": "no.npy", "K": [[1, 2]]}, 66, "no.npy"),
        ({"Q": [[1, 2]], "K": [[1, 2]], "heads": 1.5}, 65, "job.json: heads: expected"),
        ({"Q": [[1, 2]], "K": [[1, 2]], "causal": "top"}, 65, "job.json: causal: expected"),
        ({"Q": [[1, 2]], "K": [[1, 2]], "schema": "attn/9"}, 65, "job.json: schema: expected"),
        ({"Q": [[1, 2]], "K": [[1, 2]], "softmax": {"axes": "all"}}, 65, "did you mean 'axis'?"),
        ({"Q": [[1, 2]], "K": [[1, 2]], "softmax": "all"}, 65, "softmax: expected an object"),
        ({"Q": {"randn": {"shape": [1, 2]}}, "K": [[1, 2]]}, 65, "needs a seed"),
        ({"seed": -1, "Q": {"randn": {"shape": [1, 2]}}, "K": [[1, 2]]}, 65, "seed: expected"),
        ({"seed": 1, "Q": {"randm": {"shape": [1, 2]}}, "K": [[1, 2]]}, 65, "did you mean 'rand'"),
        ({"seed": 1, "Q": {"randn": {"size": [1, 2]}}, "K": [[1, 2]]}, 65, "unknown argument"),
        ({"seed": 1, "Q": {"randint": {"high": 0, "shape": [1]}}, "K": [[1]]}, 65, "low < high"),
        ([1, 2], 65, "expected a job"),
    ]
    for document, code, says in cases:
        (folder / "job.json").write_text(json.dumps(document))
        run = attn("run", "job.json", "-o", "result.npz", cwd=folder)
        err = run.stderr.decode()
        checks.check(run.returncode == code, f"{document}: exit {run.returncode}, {err}")
        checks.check(err.startswith("attn: ") and says in err, f"{document}: '{says}' in {err}")
        checks.check(not (folder / "result.npz").exists(), f"{document}: no output")
    np.savez(folder / "in.npz", q=np.ones((2, 2)), K=np.ones((2, 2)))
    run = attn("run", "in.npz", cwd=folder)
    checks.check(run.returncode == 65 and b"did you mean 'Q'?" in run.stderr, f"npz: {run}")
    np.savez(folder / "in.npz", query=np.ones((2, 2)), K=np.ones((2, 2)))
    run = attn("run", "in.npz", cwd=folder)
    checks.check(run.returncode == 65 and b"'query' (did you mean 'Q'?" in run.stderr, f"npz: {run}")
    np.savez(folder / "in.npz", Q=np.ones((2, 4)), K=np.ones((2, 4)), heads=2, scale=0.5)
    run = attn("run", "in.npz", "--outputs", "weights", "--format", "json", cwd=folder)
    checks.check(np.shape(json.loads(run.stdout)["weights"]) == (2, 2, 2), "options in an .npz")


def what_computes(checks):
    """`--version -v`: the version, the kernels' instruction set, BLAS, processors."""
    for flag in "-v", "--verbose":
        run = attn("--version", flag)
        lines = run.stdout.decode().splitlines()
        said = dict(line.split(": ", 1) for line in lines[1:])
        checks.check(run.returncode == 0 and lines[0] + "\n" == attn("--version").stdout.decode(),
                     f"{flag}: {run}")
        checks.check(list(said) == ["kernels", "BLAS", "processors"], f"{flag}: {lines}")
        checks.check("OpenBLAS" in said["BLAS"] and "/" in said["BLAS"], f"{flag}: {lines}")
        checks.check(int(said["processors"]) <= len(os.sched_getaffinity(0)), f"{flag}: {lines}")
    one = subprocess.run([ATTN, "--version", "-v"], capture_output=True, check=True,
                         env={**os.environ, "ATTN_ISA": "baseline"},
                         preexec_fn=lambda: os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]))
    checks.check(b"kernels: baseline (of baseline" in one.stdout, f"ATTN_ISA: {one}")
    checks.check(b"processors: 1\n" in one.stdout, f"affinity: {one}")
    run = subprocess.run([ATTN, "--version", "-v"], capture_output=True,
                         env={**os.environ, "ATTN_ISA": "mmx"})
    checks.check(run.returncode == 2 and b"ATTN_ISA" in run.stderr, f"mmx: {run}")


def the_program(checks):
    checks.check(attn("--version").stdout.startswith(b"attn "), "--version")
    what_computes(checks)
    for args in ["--help"], ["run", "--help"], ["schema"]:
        run = attn(*args)
        checks.check(run.returncode == 0 and run.stderr == b"", f"{args}")
    checks.check(b"Example" in attn("run", "--help").stdout.split(b"Usage")[0], "an example first")
    checks.check(attn().returncode == 2 and attn().stdout == b"", "no command")
    run = attn("rnu")
    checks.check(run.returncode == 2 and b"did you mean 'run'?" in run.stderr, "a near command")
    schema = json.loads(attn("schema").stdout)
    checks.check({"embeddings", "W_Q", "softmax", "position"} <= set(schema["properties"]),
                 "the schema has the keys")
    # A reader that goes away early is no error worth a word.
    pipe = subprocess.run(f"'{ATTN}' random randn --seed 1 --shape 300,300 --format csv | head -c 9",
                          shell=True, capture_output=True)
    checks.check(pipe.returncode == 0 and pipe.stderr == b"", f"broken pipe: {pipe}")
    with open("/dev/full", "wb") as full:
        run = subprocess.run([ATTN, "schema"], stdout=full, stderr=subprocess.PIPE)
    checks.check(run.returncode == 74 and run.stderr.startswith(b"attn: "), f"full disk: {run}")


def main():
    checks = Checks("run")
    the_program(checks)
    for part in where_jobs_come_from, where_results_go, refusals, documents:
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder))
    checks.finish()


if __name__ == "__main__":
    main()
