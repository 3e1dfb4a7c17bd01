"""key_indices: lists of the keys that each query sees, compared with NumPy and with masks."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn, under_sanitizer
from support.jobs import run_arrays
from support.jobs import run_jobs
from support.paged_jobs import bits

JOBS = 300
TOLERANCE = {"float64": 1e-12, "float32": 3e-5}


class ListJob:
    """A random job: `tensors` and `options`, without the batch axis if it is packed, and how often each query lists
    each key, (B, H, L, S), in `counts`. `other` (B, H, L, S) is what everything else shows."""

    def __init__(self, seed):
        self.rng = rng = np.random.default_rng([7, seed])
        pick = lambda *values: values[rng.integers(len(values))]
        self.kind = pick("plain", "plain", "lengths", "packed", "documents", "past")
        self.packed = self.kind == "packed"
        self.dtype = pick("float64", "float32")
        B, G = self.B, self.G = 1 if self.packed else pick(1, 2), pick(1, 2)
        H, L, S = self.H, self.L, self.S = G * pick(1, 2), pick(1, 3, 9, 40), pick(1, 5, 70, 300)
        self.D, self.Dv = 4, 3
        self.options = {"path": pick("auto", "reference"), "layout": "thd" if self.packed else pick("bhld", "blhd")}
        self.tensors = {name: rng.standard_normal(shape).astype(self.dtype) for name, shape in
                        {"Q": (B, H, L, 4), "K": (B, G, S, 4), "V": (B, G, S, 3)}.items()}
        self.queries, self.keys = np.zeros((B, L), int), np.zeros((B, S), int)  # their documents; -1: padding
        self.set_documents(pick)
        self.other = (self.queries[:, :, None] == self.keys[:, None] )[:, None] & (self.queries >= 0)[:, None, :, None]
        self.add_others(pick)
        self.block = pick(1, 1, 2, 16)
        self.duplicates = pick("error", "once", "count")
        self.counts = np.zeros((B, H, L, S), int)
        self.set_lists(pick(2, 3, "G", "H"))
        if self.block != 1:
            self.options["index_block"] = self.block
        if self.duplicates != "error":
            self.options["duplicates"] = self.duplicates

    def set_documents(self, pick):
        rng, B, L, S = self.rng, self.B, self.L, self.S
        if self.kind == "lengths":
            lengths, of_queries = rng.integers(0, S + 1, B), rng.integers(0, L + 1, B)
            self.tensors |= {"key_lengths": lengths, "query_lengths": of_queries}
            self.keys[np.arange(S) >= lengths[:, None]] = -1
            self.queries[np.arange(L) >= of_queries[:, None]] = -1
        elif self.kind == "packed":
            ends = {name: np.array([0, *sorted(rng.integers(0, n + 1, 2)), n]) for name, n in {"q": L, "k": S}.items()}
            self.tensors |= {f"cu_seqlens_{name}": end for name, end in ends.items()}
            self.queries[0], self.keys[0] = (np.repeat(np.arange(3), np.diff(ends[name])) for name in "qk")
        elif self.kind == "documents":
            self.queries, self.keys = rng.integers(-1, 3, (B, L)), rng.integers(-1, 3, (B, S))
            self.tensors |= {"documents": self.queries, "key_documents": self.keys}

    def add_others(self, pick):
        rng, shape = self.rng, (self.B, self.H, self.L, self.S)
        if self.kind in ("plain", "past") and pick(True, False):
            self.options |= {"causal": True, "causal_offset": int(rng.integers(-2, self.S))}
            offset = self.options["causal_offset"]
            self.other = self.other & (np.arange(self.S) <= np.arange(self.L)[:, None] + offset)
        if pick(True, False, False):
            self.tensors["mask"] = rng.random(shape if not self.packed else shape[1:]) < 0.8
            self.other = self.other & self.tensors["mask"]
        if pick(True, False, False):
            self.tensors["sinks"] = rng.standard_normal(self.H).astype(self.dtype)
        if pick(True, False):
            self.options["temperature"] = 1.5

    def set_lists(self, form):
        rng, B, L = self.rng, self.B, self.L
        items, heads = 1 if form == 2 else B, {"G": self.G, "H": self.H}.get(form, 1)
        n = int(rng.integers(0, 12))
        lists = np.zeros((items, heads, L, n), rng.choice([np.int32, np.int64]))
        for b, h, i in np.ndindex(items, heads, L):
            its_items = [a for a in (range(B) if items == 1 else [b]) if self.queries[a, i] >= 0]
            count = min((-(-np.sum(self.keys[a] == self.queries[a, i]) // self.block) for a in its_items), default=99)
            if self.duplicates == "error":
                numbers = rng.permutation(count)[:n]
            else:
                numbers = rng.integers(0, count, n) if count else []
            row = np.full(n, -1)
            row[:len(numbers)] = numbers
            row[rng.random(n) < 0.2] = rng.choice([-1, -99])
            lists[b, h, i] = rng.permutation(row)
            for a in its_items:
                keys = np.flatnonzero(self.keys[a] == self.queries[a, i])
                for number in lists[b, h, i][lists[b, h, i] >= 0]:
                    listed = keys[number * self.block:(number + 1) * self.block]
                    group = self.H // heads
                    self.counts[a, h * group:(h + 1) * group, i, listed] += 1
        self.tensors["key_indices"] = lists[0, 0] if form == 2 else lists[:, 0] if form == 3 else lists
        if rng.random() < 0.3:  # with the axes that are shared
            self.tensors["key_indices"] = lists

    @property
    def visible(self):
        return self.other & (self.counts > 0)

    def job(self, tensors):
        """The keys of the job with these tensors in the layout of the options."""
        tensors = dict(tensors)
        if self.kind == "past":
            for name in "KV":
                tensors[f"past_{name}"], tensors[name] = np.split(tensors[name], [self.S // 2], axis=2)
        for name in "QKV":
            if self.options["layout"] != "bhld":
                tensors[name] = tensors[name].transpose(0, 2, 1, 3)
            if self.packed:
                tensors[name] = tensors[name][0]
        return tensors | self.options | {"outputs": ["weights", "logsumexp", "head_context"]}

    def with_mask(self):
        """The job with a mask in place of the lists."""
        job = self.job(self.tensors)
        mask = self.counts > 0
        job["mask"] = job.get("mask", True) & (mask[0] if self.packed else mask)
        return {key: value for key, value in job.items() if key not in ("key_indices", "index_block", "duplicates")}

    def expected(self):
        Q, K, V = (self.tensors[name].astype(float) for name in "QKV")
        K, V = (x.repeat(self.H // self.G, axis=1) for x in (K, V))
        scores = Q @ K.swapaxes(2, 3) / 2 / self.options.get("temperature", 1)
        factors = np.where(self.visible, self.counts if self.duplicates == "count" else 1, 0)
        exponentials = factors * np.exp(scores)
        sums = exponentials.sum(-1) + (np.exp(self.tensors["sinks"].astype(float))[:, None] if "sinks" in self.tensors else 0)
        padding = np.broadcast_to((self.queries < 0)[:, None], sums.shape)
        with np.errstate(divide="ignore"):
            logs = np.log(np.where(padding, 0, sums)) if "sinks" not in self.tensors else np.log(sums)
        weights = exponentials / np.where(sums == 0, 1, sums)[..., None]
        return {"weights": weights, "logsumexp": logs, "head_context": weights @ V}


def test_random_lists(tmp_path):
    """Compared with NumPy; without counts, with the bytes of the same job with a mask."""
    jobs = [ListJob(seed) for seed in range(JOBS)]
    of_mask = [n for n, job in enumerate(jobs) if job.duplicates != "count"]
    results = list(run_jobs(tmp_path, [job.job(job.tensors) for job in jobs] + [jobs[n].with_mask() for n in of_mask]))
    for n, (job, found) in enumerate(zip(jobs, results)):
        for name, expected in job.expected().items():
            if name == "logsumexp" and "sinks" in job.tensors:
                continue
            np.testing.assert_allclose(found[name].reshape(expected.shape), expected, err_msg=f"{n}: {name}",
                                       rtol=TOLERANCE[job.dtype], atol=TOLERANCE[job.dtype])
        assert np.array_equal(found["weights"].reshape(job.visible.shape) > 0, job.visible), n
    for n, by_mask in zip(of_mask, results[JOBS:]):
        for name, expected in by_mask.items():
            assert np.array_equal(bits(results[n][name]), bits(expected)), (n, jobs[n].kind, name)


def arrays_of(L, S, B=1, H=1, seed=0):
    rng = np.random.default_rng(seed)
    return {"Q": rng.standard_normal((B, H, L, 4)), "K": rng.standard_normal((B, H, S, 4)), "V": rng.standard_normal((B, H, S, 3))}


@pytest.mark.parametrize("path", ["auto", "reference"])
def test_counts_are_those_of_gathered_keys(tmp_path, path):
    """A query of one list has the context and the gradients of the keys and values that are gathered for it."""
    tensors, rng = arrays_of(1, 30, H=2), np.random.default_rng(5)
    listed = rng.integers(0, 30, 50)
    seeds = {"grad_context": rng.standard_normal((1, 2, 1, 3)), "grad_logsumexp": rng.standard_normal((1, 2, 1))}
    options = {"outputs": ["context", "logsumexp", "entropy", "grad_Q", "grad_K", "grad_V"], "path": path, "temperature": 0.8}
    found = run_arrays(tmp_path, tensors | seeds | {"key_indices": listed[None]}, duplicates="count", **options)
    gathered = {name: tensors[name][:, :, listed] for name in "KV"}
    expected = run_arrays(tmp_path, tensors | seeds | gathered, **options)
    for name in "grad_K", "grad_V":
        summed = np.zeros_like(found[name])
        np.add.at(summed, (slice(None), slice(None), listed), expected[name])
        expected[name] = summed
    del expected["entropy"]  # of more, smaller weights
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-13, err_msg=name)


def test_gradients_have_the_bytes_of_masks(tmp_path):
    tensors = arrays_of(20, 90, H=2) | {"grad_context": arrays_of(20, 20, H=2, seed=9)["V"]}
    lists = np.stack([np.random.default_rng(i).permutation(90)[:15] for i in range(20)])
    mask = np.zeros((20, 90), bool)
    np.put_along_axis(mask, lists, True, axis=1)
    options = {"outputs": ["context", "grad_Q", "grad_K", "grad_V"]}
    found = run_arrays(tmp_path, tensors | {"key_indices": lists}, **options)
    expected = run_arrays(tmp_path, tensors | {"mask": mask}, **options)
    assert all(np.array_equal(bits(found[name]), bits(expected[name])) for name in expected)


def test_rows(tmp_path):
    tensors = arrays_of(9, 20, B=2) | {"key_indices": np.random.default_rng(1).integers(-1, 20, (2, 9, 8))}
    options = {"duplicates": "count", "outputs": ["weights"]}
    every = run_arrays(tmp_path, tensors, **options)["weights"]
    assert np.array_equal(run_arrays(tmp_path, tensors, rows=[7, 2], **options)["weights"], every[:, :, [7, 2]])


def test_a_comparison_has_bounds(tmp_path):
    """A result in float32 agrees with its job in the bounds of the counted scores, and not with other lists."""
    tensors = {name: array.astype("f4") for name, array in arrays_of(12, 200, H=2).items()}
    lists = np.random.default_rng(3).integers(0, 20, (12, 30))
    run_arrays(tmp_path, tensors | {"key_indices": lists}, duplicates="count", outputs=["context", "logsumexp"])
    assert attn("compare", "out.npz", "--reference", "job.json", cwd=tmp_path).returncode == 0
    assert attn("compare", "out.npz", "--reference", "job.json", "--duplicates", "once", cwd=tmp_path).returncode == 1


@pytest.mark.parametrize("result, job, claim", [
    ({"duplicates": "once"}, {"duplicates": "count"}, "--duplicates once (the job has count)"),
    ({"duplicates": "count"}, {"duplicates": "once"}, "--duplicates count (the job has once)"),
    ({}, {"duplicates": "once"}, "the job without --key-indices"),
])
def test_a_diagnosis_names_the_lists(tmp_path, result, job, claim):
    tensors = {name: array.astype("f4") for name, array in arrays_of(12, 20).items()}
    lists = {"key_indices": np.random.default_rng(3).integers(0, 20, (12, 30))}
    run_arrays(tmp_path, tensors | (lists if result else {}), outputs=["context"], **result)
    with np.load(tmp_path / "out.npz") as found:
        np.save(tmp_path / "context.npy", found["context"])
    run_arrays(tmp_path, tensors | lists, outputs=["context"], **job)
    run = attn("compare", "context.npy", "--reference", "job.json", "--diagnose", cwd=tmp_path)
    assert f"agrees with {claim}" in run.stdout.decode()


def test_numbers_count_the_keys_of_pages(tmp_path):
    """As those of the same sequence in one piece."""
    tensors, lists = arrays_of(3, 6, B=2), np.array([[[0, 4], [5, 1], [3, -1]], [[2, 0], [1, 2], [-1, 0]]])
    pages = {f"{name}_pages": tensors[name].reshape(6, 2, 1, -1) for name in "KV"}
    table = {"block_table": np.array([[0, 1, 2], [3, 4, 9]]), "key_lengths": np.array([6, 3])}
    found = run_arrays(tmp_path, {"Q": tensors["Q"], "key_indices": lists} | pages | table, outputs=["weights", "context"])
    mask = (lists[..., None] == np.arange(6)).any(2)[:, None]
    expected = run_arrays(tmp_path, tensors | {"mask": mask}, outputs=["weights", "context"])
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-14, atol=0)


@pytest.mark.skipif(under_sanitizer(), reason="takes long")
def test_a_mask_is_made_for_some_queries_at_a_time(tmp_path):
    """The mask of all queries would have 160 MB, and the logarithms of counts 640 MB."""
    tensors = {name: array[0, 0].astype("f4") for name, array in arrays_of(40_000, 4_000).items()}
    tensors["key_indices"] = np.random.default_rng(4).integers(0, 4_000, (40_000, 4), dtype="i4")
    np.savez(tmp_path / "in.npz", **tensors)
    flags = ["--outputs", "context", "--max-memory", "140M", "-o", "out.npz"]
    assert attn("run", "in.npz", "--duplicates", "count", *flags, cwd=tmp_path).returncode == 0
    with np.load(tmp_path / "out.npz") as found:
        for i in 0, 17_000, 39_999:
            listed = tensors["key_indices"][i]
            weights = np.exp(tensors["K"][listed].astype(float) @ tensors["Q"][i] / 2)
            np.testing.assert_allclose(found["context"][i], weights @ tensors["V"][listed] / weights.sum(), rtol=1e-5, atol=1e-6)


def test_lists_are_drawn(tmp_path):
    (tmp_path / "lists.json").write_text(json.dumps({"key_indices": [[0, -1], [1, 0], [2, 0]]}))
    run = attn("mask", "lists.json", "--shape", "3,12", "--index-block", "5", cwd=tmp_path)
    assert run.stdout.decode().splitlines()[1:] == ["  0  #####.......", "  1  ##########..", "  2  #####.....##"]


JOB = {"Q": [[1], [2], [3]], "K": [[1], [2], [3]], "outputs": ["weights"]}


@pytest.mark.parametrize("changes, code, texts", [
    ({"key_indices": [[0], [1], [3]]}, 65, ["key_indices: expected one of the 3 keys, or -1 for none, for batch item 0, "
                                            "query 2, found 3"]),
    ({"key_indices": [[0], [1], [2]], "index_block": 2}, 65,
     ["expected one of the 2 blocks of 3 keys, or -1 for none, for batch item 0, query 2, found 2"]),
    ({"key_indices": [[0, 1], [2, 2], [1, 1]]}, 65,
     ["expected each key once, unless duplicates is once or count, for batch item 0, query 1, found key 2 twice"]),
    ({"key_indices": [[[[0]] * 3, [[1]] * 3]], "heads": 2, "Q": [[1, 2]] * 3, "K": [[1, 2]] * 3}, 0, []),
    ({"key_indices": [[[[0, 1]] * 3, [[1, 1]] * 3]], "heads": 2, "Q": [[1, 2]] * 3, "K": [[1, 2]] * 3}, 65,
     ["for batch item 0, head 1, query 0, found key 1 twice"]),
    ({"key_indices": [[0], [1]]}, 65,
     ["key_indices: expected whole numbers of shape (3, n), (1, 3, n) or (1, 1, 3, n), found int64 (2, 1)"]),
    ({"key_indices": [[0.5], [1], [2]]}, 65, ["key_indices: expected whole numbers of shape ", "found float64 (3, 1)"]),
    ({"key_indices": [0, 1, 2]}, 65, ["found int64 (3,)"]),
    ({"key_indices": [[0], [1], [2]], "index_block": 0}, 65, ["index_block: "]),
    ({"index_block": 2}, 65, ["index_block: requires key_indices"]),
    ({"duplicates": "once"}, 65, ["duplicates: requires key_indices"]),
    ({"key_indices": [[0], [1], [2]], "duplicates": "count", "normaliser": "sparsemax"}, 65,
     ["duplicates: 'count' requires normaliser softmax"]),
    ({"key_indices": [[0], [1], [2]], "duplicates": "count", "softcap": 2, "softcap_order": "after-mask"}, 65,
     ["duplicates: 'count' requires softcap_order before-mask"]),
])
def test_errors(changes, code, texts, tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(JOB | changes))
    run = attn("run", "job.json", cwd=tmp_path)
    if code:
        assert_error(run, code, "job.json: ", *texts)
    else:
        assert run.returncode == 0, run.stderr.decode()


def test_a_large_number_is_refused(tmp_path):
    """A number of a block whose first key does not fit into 64 bits."""
    (tmp_path / "job.json").write_text(json.dumps(JOB | {"key_indices": [[2**62]] * 3, "index_block": 2**62}))
    assert_error(attn("run", "job.json", cwd=tmp_path), 65, "found 4611686018427387904")


@pytest.mark.parametrize("shape", [(0, 3, 2), (0, 2, 3, 2)])
def test_an_empty_batch(shape, tmp_path):
    np.savez(tmp_path / "j.npz", Q=np.ones((0, 2, 3, 4)), K=np.ones((0, 2, 5, 4)), V=np.ones((0, 2, 5, 4)), i=np.ones(shape, int))
    run = attn("run", "--q", "j.npz#Q", "--k", "j.npz#K", "--v", "j.npz#V", "--key-indices", "j.npz#i", "-o", "context=c.npy", cwd=tmp_path)
    assert run.returncode == 0, run.stderr.decode()
    assert np.load(tmp_path / "c.npy").shape == (0, 2, 3, 4)
