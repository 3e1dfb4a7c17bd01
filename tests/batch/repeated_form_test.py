"""`attn batch` with jobs that differ from the one before them only in their numbers, or in more than these. Each has
the result that it has alone."""

import json
import random

import pytest

from support.attn import assert_error, attn, json_lines

DRAW = {"randn": {"shape": [3, 4]}}
MATRICES = {"Q": DRAW, "K": DRAW, "V": DRAW}
WORDS = {"embeddings": {"randn": {"shape": [3, 5]}}, "W_Q": {"randn": {"shape": [5, 4]}}, "W_K": {"randn": {"shape": [5, 4]}}}

FORMS = [
    MATRICES,
    {**MATRICES, "V": {"randn": {"shape": [3, 2]}}},
    {**MATRICES, "Q": {"randint": {"high": 9, "shape": [3, 4]}}},
    {**MATRICES, "compute": "f32"},
    WORDS,
    {**WORDS, "position": "sinusoidal"},
    {**WORDS, "b_Q": {"randn": {"shape": [4]}}, "outputs": ["queries", "context"]},
    {**MATRICES, "causal": True},
    {**MATRICES, "scale": 0.0},
    {**MATRICES, "scale": -0.0},
    {**MATRICES, "heads": 2, "alibi": True},
    {**MATRICES, "heads": 2, "rotary": "half"},
    {**MATRICES, "heads": 2, "qk_norm": "rms", "q_norm": {"randn": {"shape": [2]}}},
    {**MATRICES, "bias": {"randn": {"shape": [3, 3]}}},
    {**MATRICES, "mask": {"randint": {"high": 2, "shape": [3, 3]}}},
    {**MATRICES, "key_mask": {"randint": {"high": 2, "shape": [3]}}},
    {**MATRICES, "key_lengths": {"randint": {"low": 1, "high": 4, "shape": []}}},
    {**MATRICES, "sinks": {"randn": {"shape": [1]}}},
    {**MATRICES, "past_K": DRAW, "past_V": DRAW},
    {**MATRICES, "mask_rule": "q >= k"},
    {**MATRICES, "documents": {"randint": {"high": 2, "shape": [3]}}, "key_documents": {"randint": {"high": 2, "shape": [3]}}},
    {**MATRICES, "outputs": ["grad_Q"], "grad_context": DRAW},
    {**MATRICES, "outputs": ["masked_scores", "logsumexp"], "window": [1, 0]},
]


def lines_of(jobs):
    return "".join(json.dumps(job) + "\n" for job in jobs)


def results(jobs, *flags):
    """The result of each job without its name."""
    run = attn("batch", "-", "--jobs", "1", "-q", "--progress", "none", *flags, stdin=lines_of(jobs))
    assert run.returncode == 0, run.stderr.decode()
    return [{key: value for key, value in line.items() if key != "job"} for line in json_lines(run.stdout)]


@pytest.fixture(scope="module")
def alone():
    """(the job of a form and a seed, its result in a batch of its own)"""
    jobs = [[{"seed": seed, **form} for seed in (1, 2)] for form in FORMS]
    return [[(job, results([job])[0]) for job in each] for each in jobs]


def test_numbers_alone_differ_from_job_to_job(alone):
    for (one, its_result), (other, other_result) in alone:
        assert its_result != other_result
        assert results([one, other, one]) == [its_result, other_result, its_result]


def test_forms_in_any_order(alone):
    order = [pair for pairs in alone for pair in pairs] * 4
    random.Random(1).shuffle(order)
    assert results([job for job, _ in order]) == [result for _, result in order]


def test_a_dry_run_plans_each_job():
    plans = []
    for seed in 1, 2:
        run = attn("batch", "-", "--dry-run", "-q", "--jobs", "1", stdin=lines_of([{"seed": seed, **form} for form in FORMS for _ in range(2)]))
        assert run.returncode == 0, run.stderr.decode()
        plans.append([{key: value for key, value in line.items() if key not in ("job", "item")} for line in json_lines(run.stdout)])
    assert plans[0] == plans[1]
    assert plans[0][::2] == plans[0][1::2]


def test_numbers_of_the_same_form_are_still_checked():
    large = [[2 ** 64 - 1, 0], [0, 1]]
    whole = {"Q": {"randint": {"high": 5, "shape": [2, 2], "dtype": "uint64"}}, "K": {"randn": {"shape": [2, 2]}}, "seed": 1}
    run = attn("batch", "-", "--jobs", "1", "-q", stdin=lines_of([whole, whole, {**whole, "Q": large}, whole]))
    assert_error(run, 3, "line 3: Q: 18446744073709551615 does not fit int64")
    assert ["error" in result for result in json_lines(run.stdout)] == [False, False, True, False]
    mask = {**MATRICES, "seed": 1, "mask": [[0, 1, 1]] * 3}
    run = attn("batch", "-", "--jobs", "1", "-q", stdin=lines_of([mask, mask, {**mask, "mask": [[0, 2, 1]] * 3}]))
    assert_error(run, 3, "line 3: mask:", "found the integer 2")
