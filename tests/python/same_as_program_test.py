"""attn.run() gives the same bytes, messages, exit codes and warnings as the program, for random jobs.

Each job is computed by `attn run` from files, and by the module from arrays in memory. ATTN_TEST_JOBS is the
number of jobs.
"""

import json
import os
import random
import re
import warnings

import numpy as np

from support.attn import attn

JOBS = int(os.environ.get("ATTN_TEST_JOBS", 60))
OUTPUTS = ["scores", "scaled_scores", "masked_scores", "weights", "head_context", "context", "logsumexp",
           "entropy", "row_max", "mean_weights", "key_weights", "queries", "keys", "values", "output"]


def random_tensor(rng, shape, kind):
    if kind == "int":
        return rng.integers(-4, 5, shape)
    array = rng.standard_normal(shape).astype(kind)
    if rng.random() < 0.03:
        array.flat[0] = np.nan
    return array


def random_layout(rng, array):
    """The same values with other strides."""
    kind = rng.integers(0, 5)
    if kind == 0:
        return np.asfortranarray(array)
    if kind == 1:
        return np.repeat(array, 2, axis=0)[::2]
    if kind == 2:
        return array[::-1].copy()[::-1]
    if kind == 3:
        return array.astype(array.dtype.newbyteorder(">"))
    return array


def random_job(seed):
    """Options of a job, and its arrays."""
    choose, rng = random.Random(seed), np.random.default_rng(seed)
    options, arrays = {}, {}
    kind = choose.choice(["float32", "float32", "float64", "float16", "int"])
    L, S = choose.randint(1, 9), choose.randint(1, 9)
    heads = choose.choice([1, 1, 2, 4])
    groups = choose.choice([1, heads])
    D, Dv = choose.choice([1, 3, 8]), choose.choice([2, 8])
    if choose.random() < 0.25:
        M = choose.choice([3, 6])
        S = L
        arrays["embeddings"] = random_tensor(rng, (L, M), kind)
        for key, columns in ("W_Q", heads * D), ("W_K", groups * D), ("W_V", groups * Dv):
            arrays[key] = random_tensor(rng, (M, columns), kind)
        if choose.random() < 0.3:
            options["W_O"] = random_tensor(rng, (heads * Dv, 2), kind).tolist()
            options["W_O"] = [[x if x == x else "NaN" for x in row] for row in options["W_O"]]
    elif choose.random() < 0.3:
        B = choose.randint(1, 3)
        arrays["Q"] = random_tensor(rng, (B, heads, L, D), kind)
        arrays["K"] = random_tensor(rng, (B, groups, S, D), kind)
        arrays["V"] = random_tensor(rng, (B, groups, S, Dv), kind)
    else:
        arrays["Q"] = random_tensor(rng, (L, heads * D), kind)
        arrays["K"] = random_tensor(rng, (S, groups * D), kind)
        if choose.random() < 0.8:
            arrays["V"] = random_tensor(rng, (S, groups * Dv), kind)
        else:
            options["V"] = "K"
    if heads > 1 and ("Q" not in arrays or arrays["Q"].ndim == 2):
        options["heads"] = heads
        if groups != heads:
            options["kv_heads"] = groups
    for key, value in [("causal", choose.choice([True, "bottom-right"])), ("scale", choose.choice([0.5, "none"])),
                       ("softcap", 5.0), ("window", [choose.randint(0, 4), choose.randint(0, 4)]),
                       ("temperature", 2), ("normaliser", choose.choice(["sparsemax", "sigmoid", "entmax15"])),
                       ("compute", choose.choice(["f32", "f64"])), ("alibi", True), ("path", "reference")]:
        if choose.random() < 0.12:
            options[key] = value
    if choose.random() < 0.25:
        mask = rng.integers(0, 2, (L, S))
        arrays["mask"] = mask.astype(bool) if choose.random() < 0.5 else np.where(mask, 0.0, -np.inf)
    if choose.random() < 0.1:  # an error
        name = choose.choice(list(arrays))
        arrays[name] = arrays[name][..., :-1] if choose.random() < 0.5 else arrays[name].astype(complex)
    if choose.random() < 0.05:
        options[choose.choice(["casual", "heads", "softmax"])] = choose.choice([0, "x"])
    options["outputs"] = choose.sample(OUTPUTS, choose.randint(1, 5))
    return options, arrays, rng


def without_places(text):
    """A message without the files that the program read."""
    return re.sub(r"\b(job\.json|\w+\.npy): ", "", text)


def by_program(folder, options, arrays):
    """The outputs, or the exit code and the messages; and the warnings."""
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    (folder / "job.json").write_text(json.dumps({**options, **{name: f"{name}.npy" for name in arrays}}))
    run = attn("run", "job.json", "-o", "out.npz", "--force", cwd=folder)
    lines = [without_places(line.removeprefix("attn: ")) for line in run.stderr.decode().splitlines()]
    if run.returncode != 0:
        return (run.returncode, lines), []
    with np.load(folder / "out.npz") as archive:
        return dict(archive), [line.removeprefix("warning: ") for line in lines]


def by_module(module, options, arrays):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outputs = module.run(**options, **arrays)
        except module.Error as error:
            return (error.exit_code, str(error).splitlines()), []
    return outputs, [str(warning.message) for warning in caught]


def test_random_jobs(attn_module, tmp_path):
    seen = {"equal": 0, "errors": 0, "warnings": 0}
    for seed in range(JOBS):
        options, arrays, rng = random_job(seed)
        expected, expected_warnings = by_program(tmp_path, options, arrays)
        arrays = {name: random_layout(rng, array) for name, array in arrays.items()}
        found, found_warnings = by_module(attn_module, options, arrays)
        assert type(found) is type(expected), (seed, expected, found)
        if isinstance(expected, tuple):
            is_dtype = any("complex" in line for line in expected[1] + found[1])  # named differently, and earlier
            assert found[0] == expected[0], (seed, expected, found)
            assert is_dtype or found[1] == expected[1], (seed, expected, found)
            seen["errors"] += 1
            continue
        names = [name for name in expected if not name.startswith("__")]
        for name in found:
            assert found[name].dtype == expected[name].dtype, (seed, name)
            assert found[name].shape == expected[name].shape, (seed, name)
            assert found[name].tobytes() == expected[name].tobytes(), (seed, name)
        assert set(found) <= set(names), seed
        assert len(found) == len(set(options["outputs"])), seed
        assert [without_places(line) for line in found_warnings] == expected_warnings, seed
        seen["equal"] += 1
        seen["warnings"] += len(found_warnings)
    assert min(seen.values()) > JOBS / 50, seen
