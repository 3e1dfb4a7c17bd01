"""Random jobs for attn-mpi, compared with attn run.

    mpi_jobs.py ATTN JOBS SEED MPIRUN=ATTN_MPI...

Each job is computed by attn run, and by each MPI with 1, 2, 3, 4 and 7 ranks and 1 or 2 threads. The files
must have the same bytes, and the messages must be the same. Options that contradict each other are drawn
again. Most jobs are small: all ranks share one machine.
"""

import filecmp
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

RANKS = [1, 2, 3, 4, 7]
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
ROW_OUTPUTS = ["head_context", "context", "logsumexp", "row_max", "entropy", "queries"]
KEY_OUTPUTS = ["keys", "values", "present_K", "key_weights"]
GRADIENTS = 0.1  # the share of jobs with gradients
MATRICES = ["scores", "scaled_scores", "masked_scores", "weights", "mean_weights"]


def command(mpirun, ranks):
    """The start of a command line for this number of ranks on one machine."""
    flags = ["--oversubscribe", "--bind-to", "none"] if "openmpi" in mpirun else []
    return [mpirun, *flags, "-n", str(ranks)]


def lengths(rng):
    """The numbers of queries and keys: a few long, many short, or both medium."""
    kind = rng.random()
    if kind < 0.2:
        return rng.randint(1, 4), rng.randint(500, 5000)  # decoding
    if kind < 0.35:
        return rng.randint(1, 100), rng.randint(1, 100)
    if kind < 0.7:
        return rng.randint(50, 600), rng.randint(1, 600)
    if kind < 0.9:
        return rng.randint(500, 1500), rng.randint(100, 1500)
    return rng.randint(1000, 5000), rng.randint(1, 5000)


def random_job(rng, folder):
    """A job as a dict; its tensors are saved in `folder`."""
    numbers = np.random.default_rng(rng.getrandbits(64))
    L, S = lengths(rng)
    B, G, width = rng.choice([1, 1, 2, 3]), rng.choice([1, 2]), rng.choice([4, 8, 16])
    H = G * rng.choice([1, 2])
    if L * S > 2_000_000:
        B, G, H = 1, 1, rng.choice([1, 2])
    dtype = rng.choice(["float32", "float32", "float64", "float16"])
    job = {}

    def save(name, *shape, scale=1.0):
        array = (numbers.standard_normal(shape) * scale).astype(dtype)
        np.save(folder / f"{name}.npy", array)
        job[name] = f"{name}.npy"
        return array

    embedded = rng.random() < 0.35
    if embedded:
        M = rng.choice([8, 24])
        save("embeddings", B, L, M)
        if rng.random() < 0.4:
            save("memory", B, S, M)
        else:
            S = L
        save("W_Q", M, H * width, scale=0.4)
        save("W_K", M, G * width, scale=0.4)
        save("W_V", M, G * width, scale=0.4)
        if rng.random() < 0.5:
            save("W_O", H * width, M)
        add_projection_options(rng, job, save, (H, G, width, M))
    else:
        save("Q", B, H, L, width)
        add_keys(rng, numbers, job, folder, save, (B, H, G, S, width))
    job["heads"], job["kv_heads"] = H, G
    if not embedded:
        del job["heads"], job["kv_heads"]
        if "K" in job and rng.random() < 0.1:
            past = rng.randint(1, 300)
            save("past_K", B, G, past, width)
            save("past_V", B, G, past, width)
            S += past
    add_options(rng, numbers, job, folder, (B, H, L, S), embedded)
    add_more_options(rng, numbers, job, folder, save, (B, H, G, L, S, width))
    add_positions(rng, numbers, job, folder, (B, H, L, S))
    names = rng.sample(ROW_OUTPUTS, rng.randint(1, 3)) + rng.sample(KEY_OUTPUTS, rng.randint(0, 1))
    if B * H * L * S < 2_000_000:
        names += rng.sample(MATRICES, rng.randint(0, 2))
    elif "key_weights" in names and B * H * L * S > 20_000_000:
        names.remove("key_weights")
    if "W_O" in job:
        names.append("output")
    if rng.random() < GRADIENTS and B * H * L * S < 2_000_000:
        rows = len(job.get("rows", range(L)))
        save("grad_context", *((B, rows, H * width) if embedded else (B, H, rows, width)))
        of_keys = ["grad_K", "grad_V"] if "K" in job else []
        names += ["delta", "grad_embeddings", "grad_W_K"] if embedded else ["delta", "grad_Q", *of_keys]
    job["outputs"] = list(dict.fromkeys(names))
    return job


def add_keys(rng, numbers, job, folder, save, axes):  # pylint: disable=too-many-arguments
    """K and V, as they are, of 8 bits with scales, or in pages."""
    B, H, G, S, width = axes
    kind = rng.random()
    if kind < 0.12:
        size = rng.choice([1, 3, 16])
        pages = -(-S // size)
        np.save(folder / "table.npy", numbers.permutation(B * pages + 1)[:B * pages].reshape(B, pages))
        save("K_pages", B * pages + 1, size, G, width)
        save("V_pages", B * pages + 1, size, G, width)
        job |= {"block_table": "table.npy", "key_lengths": [rng.randint(max(0, S - 40), S) for _ in range(B)]}
        return
    for name in "KV":
        save(name, B, G, S, width)
        if kind < 0.2:
            np.save(folder / f"{name}.npy", numbers.integers(-127, 128, (B, G, S, width), dtype="int8"))
        if kind < 0.25:
            job[f"{name.lower()}_scale"] = [rng.uniform(0.01, 0.02) for _ in range(G)]
    if kind < 0.25:
        job["q_scale"] = [rng.uniform(0.5, 1.5) for _ in range(H)]


def add_positions(rng, numbers, job, folder, axes):
    """Rules, lists of keys and left padding."""
    B, H, L, S = axes
    if rng.random() < 0.1:
        job["mask_rule"] = rng.choice(["q >= k and (q - k < 100 or k < 4)", "k // 64 == q // 64", "(q + k) % 3 > 0", "k % 5 != b",
                                       "q >= k or (q + h) % 2 == 0", "kind[k % 20] != kind[q % 20]"])
    if rng.random() < 0.1 and B * H * L * S < 10_000_000:
        job["bias_rule"] = rng.choice(["-0.1 * abs(q - k)", "-slopes[h % 4] * abs(q - k)", "sqrt(abs(k)) / (1 + i) - b",
                                       "exp2(-h) * (k % 7 == 0)", "kind[j % 20] / 4"])
    rules = job.get("mask_rule", "") + job.get("bias_rule", "")
    if "[" in rules:
        tables = {"kind": [rng.randint(0, 3) for _ in range(20)], "slopes": [0.5, 0.125, 0.25, 0.0625]}
        job["mask_tables"] = {name: table for name, table in tables.items() if name in rules}
    if rng.random() < 0.08:
        step = rng.randint(1, 8)
        listed = numbers.integers(0, step, (L, 1)) + step * np.arange(max(1, min(40, S // step)))
        np.save(folder / "listed.npy", np.where(listed < S, listed, -1))
        job["key_indices"] = "listed.npy"
    if rng.random() < 0.06:
        job["key_starts"] = [rng.randint(0, S) for _ in range(B)]


def add_projection_options(rng, job, save, axes):
    H, G, width, M = axes
    if rng.random() < 0.3:
        for name, heads in ("b_Q", H), ("b_K", G), ("b_V", G):
            save(name, heads * width)
    if rng.random() < 0.15:
        save("W_gate", M, H * width)
    if rng.random() < 0.2:
        job["input_norm"] = rng.choice(["rms", "layer"])
    if rng.random() < 0.15:
        job["position"] = {"kind": "sinusoidal"}
    if rng.random() < 0.1:
        job["clip_qkv"] = 2


def add_more_options(rng, numbers, job, folder, save, axes):  # pylint: disable=too-many-arguments
    """Options that few jobs use."""
    B, H, G, L, S, width = axes
    small = B * H * L * S < 1_000_000

    def sometimes(chance):
        return rng.random() < chance

    if sometimes(0.06):
        documents = sorted(rng.randint(0, 3) for _ in range(max(L, S)))
        job["documents"], job["key_documents"] = documents[:L], documents[:S]
    if sometimes(0.06):
        job["query_lengths"] = [rng.randint(0, L) for _ in range(B)]
    if sometimes(0.06):
        job["key_mask"] = [rng.random() < 0.8 for _ in range(S)]
    if sometimes(0.05):
        save("bias_K", G * width)
        save("bias_V", G * width)
    if sometimes(0.04):
        job["zero_key"] = True
    if sometimes(0.05):
        save("relative_bias", 32, H)
    if sometimes(0.05):
        job["alibi_slopes"] = [rng.uniform(0, 0.5) for _ in range(H)]
    if sometimes(0.05):
        job["head_scale"] = [rng.uniform(0.5, 2) for _ in range(H)]
    if sometimes(0.05) and L * S < 1_000_000:
        job["dropout_p"] = 0.1
        np.save(folder / "dropped.npy", numbers.random((L, S)) < 0.9)
        job["dropout_mask"] = "dropped.npy"
    if sometimes(0.05):
        job["causal_offset"] = rng.randint(-S, S)
    if sometimes(0.05):
        job["compute"] = rng.choice(["f32", "f64"])
    if sometimes(0.05):
        job["lse_base"] = 2
    if sometimes(0.04):
        job["scale"] = rng.choice(["none", 0.3])
    if sometimes(0.04):
        job["query_scale"] = {"factor": 0.1, "length": 64}
    if sometimes(0.04) and small:
        job["normaliser"] = "top_k"
        job["top_k"] = rng.randint(1, S)
    if sometimes(0.15) and small:
        job["score"] = rng.choice(["cosine", "l2", "general", "additive"])
        if job["score"] == "general":
            save("W_score", width, width)
        if job["score"] == "additive":
            save("W_score_Q", width, 6)
            save("W_score_K", width, 6)
            save("v_score", 6)
    if job.get("qk_norm") and sometimes(0.4):
        save("q_norm", width)
        save("k_norm", width)
    if job.get("rotary") and sometimes(0.4):
        job["rotary"].update({"scaling": rng.choice(["linear", "ntk", "yarn"]), "factor": 2, "original_length": 128})


def add_options(rng, numbers, job, folder, axes, embedded):
    B, H, L, S = axes
    if rng.random() < 0.5:
        job["causal"] = True
        job["alignment"] = rng.choice(["top-left", "bottom-right"])
    if rng.random() < 0.2:
        job["window"] = [rng.randint(0, S), rng.randint(0, S)]
    if rng.random() < 0.15 and L * S < 3_000_000:
        np.save(folder / "mask.npy", numbers.random((L, S)) < 0.8)
        job["mask"] = "mask.npy"
    if rng.random() < 0.15 and L * S < 3_000_000:
        np.save(folder / "bias.npy", numbers.standard_normal((L, S)).astype("float32"))
        job["bias"] = "bias.npy"
    if rng.random() < 0.2 and "key_lengths" not in job:
        job["key_lengths"] = [rng.randint(0, S) for _ in range(B)]
    if rng.random() < 0.15:
        job["alibi"] = True
    if rng.random() < 0.2:
        job["softcap"] = rng.choice([5, 30])
    if rng.random() < 0.15:
        job["sinks"] = [rng.uniform(-1, 1) for _ in range(H)]
    if rng.random() < 0.2:
        job["rotary"] = {"kind": rng.choice(["half", "interleaved"])}
    if rng.random() < 0.1:
        job["qk_norm"] = rng.choice(["rms", "l2"])
    if rng.random() < 0.1:
        job["temperature"] = rng.choice([0.5, 3])
    if rng.random() < 0.15:
        job["rows"] = [rng.randint(-L, L - 1) for _ in range(rng.randint(1, min(L, 600)))]
    if rng.random() < 0.1 and B * H * L * S < 6_000_000:
        job["normaliser"] = rng.choice(["sparsemax", "sigmoid", "hardmax"])
    if rng.random() < 0.1 and B * H * L * S < 6_000_000:
        job["path"] = "reference"
    if rng.random() < 0.1:
        job["empty_rows"] = rng.choice(["uniform", "nan"])
    if rng.random() < 0.05 and L * S < 1_000_000:
        job["softmax"] = {"axis": "all"}


def target(rng):
    return rng.choice(["r.npz", "r.npz", "r.safetensors", "r.json", "r/"])


def run(words, folder, limit=120):
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=limit, check=False,
                              env={**os.environ, **ENVIRONMENT})
    except subprocess.TimeoutExpired:
        return None, [f"it took more than {limit} s"], ""
    lines = done.stderr.splitlines()
    messages = [line for line in lines if line.startswith("attn")]
    if done.returncode != 0 and not messages:
        messages = lines[-5:]  # of mpirun
    return done.returncode, messages, done.stdout


def files_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def difference(one, many):
    """What differs between two folders, or None."""
    if files_in(one) != files_in(many):
        return f"files {files_in(one)} and {files_in(many)}"
    for name in files_in(one):
        if not filecmp.cmp(one / name, many / name, shallow=False):
            return f"the bytes of {name}"
    return None


def check(attn, mpis, rng, folder):
    """Yields a line for each difference."""
    out = target(rng)
    (folder / "one").mkdir()
    alone = (1,)
    while alone[0] != 0:
        job = random_job(rng, folder)
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        alone = run([attn, "run", "job.json", "-o", f"one/{out}", "--threads", "1"], folder)
    for mpirun, program in mpis:
        for ranks in RANKS:
            name = f"{Path(mpirun).name.replace('.', '-')}-{ranks}"
            (folder / name).mkdir()
            words = [*command(mpirun, ranks), program, "run", "job.json", "-o", f"{name}/{out}",
                     "--threads", str(rng.choice([1, 1, 1, 2]))]
            many = run(words, folder)
            if alone[:2] != many[:2]:
                yield f"{name}: {alone[:2]} and {many[:2]}"
            elif (what := difference(folder / "one", folder / name)) is not None:
                yield f"{name}: {what}"


def main():
    attn, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    mpis = [word.split("=") for word in sys.argv[4:]]
    failed = 0
    for number in range(seed, seed + count):
        with tempfile.TemporaryDirectory(prefix="attn-mpi-") as name:
            folder = Path(name)
            found = list(check(attn, mpis, random.Random(number), folder))
            for line in found:
                print(f"job {number}: {line}", flush=True)
            if found:
                failed += 1
                print((folder / "job.json").read_text(encoding="utf-8"), flush=True)
        if (number - seed + 1) % 10 == 0:
            print(f"{number - seed + 1} jobs, {failed} differ", flush=True)
    print(f"{count} jobs with {RANKS} ranks under {len(mpis)} MPI libraries: {failed} differ")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
