"""`attn stats` of saved weights has the numbers of the job's own outputs, and both those of docs/statistics.md.

Random jobs combine documents, interleaved ones too, caches, lengths, offsets, selected rows and appended keys.
SAVED_WEIGHTS_JOBS=N in the environment runs N jobs for each format instead of the default.
"""

import itertools
import json
import math
import os

import numpy as np
import pytest

from support import safetensors_file
from support.attn import attn

JOBS = int(os.environ.get("SAVED_WEIGHTS_JOBS", 150))
DTYPES = {"F64": "f8", "I64": "i8"}
MEANS = ["entropy", "effective_keys", "keys_95"]
SHARES = ["distance", "first_key_weight", "previous_token_weight", "duplicate_token_weight", "induction_weight"]


# Random jobs.


def random_documents(rng, count):
    """Ids of `count` tokens: packed, interleaved, or with padding."""
    ids = rng.integers(-1 if rng.random() < 0.3 else 0, rng.integers(1, 4), count)
    return np.sort(ids) if rng.random() < 0.5 else ids


def random_job(rng):
    B, H, L, P, N = (int(rng.integers(1, n)) for n in (4, 3, 7, 5, 7))
    P = P if rng.random() < 0.4 else 0
    N = L if rng.random() < 0.5 else N
    S, D = P + N, 2
    with_batch = rng.random() < 0.8
    if not with_batch:
        B, H = 1, 1
    with_heads = with_batch and rng.random() < 0.7
    axes = (B, H) if with_heads else (B,) if with_batch else ()
    if not with_heads:
        H = 1
    job = {"Q": rng.standard_normal((*axes, L, D)) * 2, "K": rng.standard_normal((*axes, N, D)), "V": np.ones((*axes, N, 1))}
    if P:
        job |= {"past_K": rng.standard_normal((*axes, P, D)), "past_V": np.ones((*axes, P, 1))}
    if rng.random() < 0.5:
        add_documents(rng, job, B, L, S)
    for name, count in [("query_lengths", L), ("key_lengths", S)]:
        if rng.random() < 0.3:
            job[name] = rng.integers(0, count + 1, B if rng.random() < 0.7 else ())
    if rng.random() < 0.6:
        job["causal"] = [True, "top-left", "bottom-right"][rng.integers(3)]
    elif rng.random() < 0.5:
        job["alignment"] = ["top-left", "bottom-right"][rng.integers(2)]
    has_documents = "key_documents" in job or "documents" in job or "cu_seqlens_q" in job
    if not has_documents and "alignment" not in job and job.get("causal") in (True, None) and rng.random() < 0.4:
        job["causal_offset"] = int(rng.integers(-L - 2, S + 3))
    if rng.random() < 0.3:
        job["rows"] = rng.integers(-L, L, rng.integers(1, L + 2)).tolist()
    if rng.random() < 0.25:
        job["zero_key"] = True
    if rng.random() < 0.25:
        job |= {"bias_K": rng.standard_normal(H * D), "bias_V": np.ones(H)}
    if rng.random() < 0.2:
        job["mask"] = rng.random((L, S)) < 0.7
    if rng.random() < 0.15 or ("causal" not in job and ("alignment" in job or "causal_offset" in job)):
        job["window"] = [int(rng.integers(-1, 3)), int(rng.integers(0, 3))]
    if rng.random() < 0.3:
        job["path"] = "reference"
    job["empty_rows"] = ["zero", "uniform"][rng.integers(2)]
    job["token_ids"] = rng.integers(0, 3, (S,) if rng.random() < 0.5 or not with_batch else (B, S))
    return job


def add_documents(rng, job, B, L, S):
    def boundaries(count):
        return np.concatenate([[0], np.sort(rng.integers(0, count + 1, 2)), [count]])

    def ids(count):
        return np.stack([random_documents(rng, count) for _ in range(B)]) if rng.random() < 0.4 and job["Q"].ndim > 2 \
            else random_documents(rng, count)

    packed = rng.random() < 0.3
    job["cu_seqlens_q" if packed else "documents"] = boundaries(L) if packed else ids(L)
    if S != L or rng.random() < 0.3:
        job["cu_seqlens_k" if packed else "key_documents"] = boundaries(S) if packed else ids(S)


# The definitions.


def documents_of(job, name, cu, item, count):
    """The document of each token of a batch item; negative ids are one of their own."""
    if cu in job:
        return np.repeat(np.arange(len(job[cu]) - 1), np.diff(job[cu]))
    ids = job.get(name, np.zeros(count, int))
    return np.maximum(ids if ids.ndim == 1 else ids[item], -1)


def places(job, item, L, S, P):
    """For each query its own key and the first key of its document, or None: query number n of a document is at its
    key number n + offset, and numbers continue before the first key and after the last. Padded keys have numbers."""
    keys_like_queries = "documents" in job and "key_documents" not in job
    cu_k = "cu_seqlens_k" if "cu_seqlens_k" in job or "cu_seqlens_q" not in job else "cu_seqlens_q"
    of_queries = documents_of(job, "documents", "cu_seqlens_q", item, L)
    of_keys = documents_of(job, "documents" if keys_like_queries else "key_documents", cu_k, item, S)
    end_q, end_k = (np.resize(job.get(name, count), item + 1)[item] for name, count in
                    [("query_lengths", L), ("key_lengths", S)])
    bottom_right = "bottom-right" in (job.get("causal"), job.get("alignment"))
    found = []
    for i in range(L):
        keys = np.flatnonzero(of_keys == of_queries[i])
        if not len(keys):
            found.append(None)
            continue
        counted_keys, counted_queries = (keys < end_k).sum(), (of_queries[:end_q] == of_queries[i]).sum()
        offset = counted_keys - counted_queries if bottom_right else (keys < min(P, end_k)).sum()
        n = (of_queries[:i] == of_queries[i]).sum() + job.get("causal_offset", offset)
        own = keys[n] if 0 <= n < len(keys) else keys[0] + n if n < 0 else keys[-1] + n - len(keys) + 1
        found.append((own, keys[0]))
    return found


def is_self_attention(job, L, S):
    return L == S and not any(name in job for name in ["past_K", "key_documents", "cu_seqlens_k", "causal_offset", "query_lengths",
                                                       "key_lengths"])


def numbers_of_row(w, place, tokens):
    """The statistics of the weights of a query; the first three are 0 if it has none."""
    entropy, total = -sum(x * math.log(x) for x in w if x > 0), sum(w)
    sums = itertools.accumulate(sorted(w, reverse=True))
    numbers = {"entropy": entropy, "effective_keys": math.exp(entropy) if total else 0,
               "keys_95": sum(x < 0.949999 * total for x in sums) + 1 if total else 0}
    keys, values = len(tokens), dict.fromkeys(SHARES, 0)
    if place is not None:
        own, first = place
        before = [j for j in range(first, own) if own < keys and tokens[j] == tokens[own]]
        values = {
            "distance": sum(w[j] * abs(own - j) for j in range(keys)),
            "first_key_weight": w[first],
            "previous_token_weight": w[own - 1] if first < own <= keys else 0,
            "duplicate_token_weight": sum(w[j] for j in before),
            "induction_weight": sum(w[j + 1] for j in before)}
    return numbers | values


def expected_lines(job, weights):
    """For each item and head what `attn stats --by item` prints, and the outputs of its queries."""
    L, P = job["Q"].shape[-2], job["past_K"].shape[-2] if "past_K" in job else 0
    S = P + job["K"].shape[-2]
    rows = [i % L for i in job.get("rows", range(L))]
    w = weights.reshape(job["Q"].shape[0] if job["Q"].ndim > 2 else 1, -1, *weights.shape[-2:])
    lines = []
    for item, head in np.ndindex(w.shape[:2]):
        of_queries = places(job, item, L, S, P)
        if is_self_attention(job, L, S):
            assert [place[0] for place in of_queries] == list(range(L))
        tokens = (job["token_ids"] if job["token_ids"].ndim == 1 else job["token_ids"][item]).tolist()
        found = [numbers_of_row(w[item, head, r].tolist(), of_queries[i], tokens) for r, i in enumerate(rows)]
        used = [row for row in found if row["keys_95"]]
        line = {"queries": len(used)}
        if used:
            line |= {name: sum(row[name] for row in used) / len(used) for name in MEANS}
            line |= {name: sum(row[name] for row in used) / w[item, head].sum() for name in SHARES}
        lines.append((line, found))
    return lines


# The program.


def tensors_in(path):
    if path.suffix == ".npz":
        return dict(np.load(path))
    if path.suffix == ".safetensors":
        tensors, _ = safetensors_file.read(path.read_bytes())
        return {name: np.frombuffer(data, DTYPES[dtype]).reshape(shape) for name, (dtype, shape, data) in tensors.items()}
    return {name: np.array(x) for name, x in json.loads(path.read_text()).items() if isinstance(x, list)}


def run_jobs(folder, jobs, suffix, *flags):
    lines = [json.dumps({k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in job.items()} |
                        {"outputs": ["weights", "weight_sum", "token_ids", *MEANS, *SHARES]}) for job in jobs]
    run = attn("batch", "-", "--out-dir", "out", "--format", suffix, *flags, "-q", stdin="\n".join(lines) + "\n", cwd=folder)
    assert run.returncode == 0, run.stderr[:2000]
    (folder / "out" / "manifest.ndjson").unlink()


def printed_lines(folder):
    """The lines of `attn stats` for each job."""
    run = attn("stats", "out", "--by", "item", "--format", "ndjson", cwd=folder, timeout=600)
    assert run.returncode == 0 and run.stderr == b"", run.stderr[:2000]
    of_jobs = {}
    for line in map(json.loads, run.stdout.splitlines()):
        in_bundle = "/" in line["name"]
        number = line["name"].split("/")[0] if in_bundle else line["file"].split("/")[1].split(".")[0]
        of_jobs.setdefault(int(number), []).append(line)
    return of_jobs


def check(jobs, tensors_of, of_jobs):
    for number, job in enumerate(jobs, 1):
        tensors, printed = tensors_of(number), of_jobs[number]
        expected = expected_lines(job, tensors["weights"])
        assert len(printed) == len(expected), job
        lines = {f"stats, head {head}: {name}": (found[name], value)
                 for head, ((line, _), found) in enumerate(zip(expected, printed)) for name, value in line.items()}
        outputs = {f"output {name}, row {i}": pair for name in MEANS + SHARES for i, pair in enumerate(
            zip(tensors[name].ravel().tolist(), (row[name] for _, rows in expected for row in rows), strict=True))}
        wrong = {what: pair for what, pair in (lines | outputs).items() if not math.isclose(*pair, rel_tol=1e-9, abs_tol=1e-12)}
        assert not wrong, job


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "json"])
def test_statistics_of_saved_weights(tmp_path, suffix):
    rng = np.random.default_rng(len(suffix))
    jobs = [random_job(rng) for _ in range(JOBS)]
    run_jobs(tmp_path, jobs, suffix)
    check(jobs, lambda number: tensors_in(tmp_path / "out" / f"{number}.{suffix}"), printed_lines(tmp_path))


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_statistics_of_weights_in_bundles(tmp_path, suffix):
    """Bundles record no job, so three axes would be taken as heads."""
    rng = np.random.default_rng(len(suffix))
    jobs = [job for job in (random_job(rng) for _ in range(JOBS)) if job["Q"].ndim != 3]
    run_jobs(tmp_path, jobs, suffix, "--bundle", "40")
    bundles = [tensors_in(file) for file in sorted((tmp_path / "out").iterdir(), key=lambda file: int(file.stem[7:]))]

    def tensors_of(number):
        start = f"{number}/"
        return {name[len(start):]: x for name, x in bundles[(number - 1) // 40].items() if name.startswith(start)}

    check(jobs, tensors_of, printed_lines(tmp_path))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_saved_attentions_are_layers(tmp_path, save):
    """np.savez(file, *attentions), as of a Hugging Face model, has the statistics of weights (layers, B, H, L, S)."""
    attentions = tuple(np.random.default_rng(layer).dirichlet(np.ones(5), (2, 3, 5)) for layer in range(12))
    save(tmp_path / "a.npz", *attentions)
    np.savez(tmp_path / "w.npz", weights=np.stack(attentions))
    saved, whole = ([line.split(",")[2:] for line in attn("stats", name, "--format", "csv", cwd=tmp_path).stdout.decode().splitlines()]
                    for name in ("a.npz", "w.npz"))
    assert len(saved) == 1 + 12 * 3
    assert saved == whole
