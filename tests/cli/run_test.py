"""`attn run`: sources of jobs, destinations of results, refusals; and the program as a whole."""

import functools
import io
import json
import os
import subprocess
import zipfile

import numpy as np
import pytest
from scipy.special import softmax

from support.attn import ATTN, assert_error, attn

WORDS = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]
JOB = {
    "embeddings": WORDS,
    "seed": 42,
    "W_Q": {"randint": {"high": 3, "shape": [3, 3]}},
    "W_K": {"randint": {"high": 3, "shape": [3, 3]}},
    "W_V": {"randint": {"high": 3, "shape": [3, 3]}},
}


@pytest.fixture(scope="module")
def expected():
    """The outputs of JOB by NumPy and SciPy."""
    random = np.random.RandomState(42)
    q, k, v = (np.array(WORDS) @ random.randint(3, size=(3, 3)) for _ in range(3))
    scores = q @ k.T
    weights = softmax(scores / np.sqrt(3), axis=1)
    return {"queries": q, "scores": scores, "weights": weights, "context": weights @ v}


def assert_close(found, wanted):
    assert np.shape(found) == np.shape(wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=0)


def npy(text):
    return np.load(io.BytesIO(text))


@pytest.fixture
def run(tmp_path):
    """Runs `attn run` in the test's folder."""
    return functools.partial(attn, "run", cwd=tmp_path)


# The program.


def test_version_names_the_program():
    assert attn("--version").stdout.startswith(b"attn ")


def versions(**options):
    """The lines of `attn --version -v` after the first, as a dict."""
    done = subprocess.run([ATTN, "--version", "-v"], capture_output=True, check=True, **options)
    return dict(line.split(": ", 1) for line in done.stdout.decode().splitlines()[1:])


@pytest.mark.parametrize("flag", ["-v", "--verbose"])
def test_verbose_version_begins_with_the_version(flag):
    done = attn("--version", flag)
    assert done.returncode == 0
    assert done.stdout.splitlines()[:1] == attn("--version").stdout.splitlines()
    assert list(versions()) == ["kernels", "BLAS", "processors", "sandbox"]


def test_verbose_version_names_the_blas_library():
    assert "OpenBLAS" in versions()["BLAS"]
    assert "/" in versions()["BLAS"]


def test_verbose_version_counts_the_available_processors():
    assert int(versions()["processors"]) <= len(os.sched_getaffinity(0))
    one = versions(preexec_fn=lambda: os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]))
    assert one["processors"] == "1"


def test_attn_isa_sets_the_instruction_set():
    kernels = versions(env={**os.environ, "ATTN_ISA": "baseline"})["kernels"]
    assert kernels.startswith("baseline (of baseline")


def test_unknown_attn_isa_is_refused():
    done = subprocess.run([ATTN, "--version", "-v"], capture_output=True, env={**os.environ, "ATTN_ISA": "mmx"})
    assert_error(done, 2, "ATTN_ISA")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["schema"]])
def test_information_goes_to_standard_output(arguments):
    done = attn(*arguments)
    assert (done.returncode, done.stderr) == (0, b"")


def test_help_begins_with_an_example():
    assert b"Example" in attn("run", "--help").stdout.split(b"Usage")[0]


def test_missing_command_is_refused():
    done = attn()
    assert (done.returncode, done.stdout) == (2, b"")


def test_misspelled_command_gets_a_suggestion():
    assert_error(attn("rnu"), 2, "did you mean 'run'?")


def test_schema_has_the_keys_of_a_job():
    schema = json.loads(attn("schema").stdout)
    assert {"embeddings", "W_Q", "softmax", "position"} <= set(schema["properties"])


def test_closed_pipe_is_not_an_error():
    done = subprocess.run(f"'{ATTN}' random randn --seed 1 --shape 300,300 --format csv | head -c 9",
                          shell=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_full_disk_is_an_error():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([ATTN, "schema"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 74
    assert done.stderr.startswith(b"attn: ")


# Sources of jobs.


class TestJobFile:
    @pytest.fixture
    def result(self, run, tmp_path):
        (tmp_path / "job.json").write_text(json.dumps(JOB))
        return json.loads(run("job.json", "--format", "json").stdout)

    def test_gives_these_keys(self, result):
        assert list(result) == ["schema", "made_by", "scores", "weights", "context"]

    @pytest.mark.parametrize("output", ["scores", "weights", "context"])
    def test_gives_the_outputs(self, result, expected, output):
        assert_close(result[output], expected[output])

    def test_of_integers_gives_integer_scores(self, result):
        assert np.array(result["scores"]).dtype.kind == "i"

    def test_is_recorded(self, result):
        assert result["made_by"]["job"]["seed"] == 42
        assert "job.json" in result["made_by"]["inputs"]


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_job_comes_from_standard_input(run, expected, name):
    done = run(name, "--format", "ndjson", stdin=json.dumps(JOB))
    assert done.stdout.count(b"\n") == 1
    assert_close(json.loads(done.stdout)["context"], expected["context"])


class TestTensors:
    """in.npz has Q, K and V; q.npy has Q."""

    @pytest.fixture
    def tensors(self, tmp_path):
        rng = np.random.default_rng(0)
        q, k, v = (rng.standard_normal(shape) for shape in ((5, 4), (6, 4), (6, 3)))
        np.savez(tmp_path / "in.npz", Q=q, K=k, V=v)
        np.save(tmp_path / "q.npy", q)
        return q, k, v

    @pytest.fixture
    def causal_context(self, tensors):
        q, k, v = tensors
        return softmax(np.where(np.tri(5, 6, dtype=bool), q @ k.T / 2, -np.inf), axis=1) @ v

    @pytest.fixture
    def archive(self, run, tensors, tmp_path):
        """The result of in.npz and --causal, with an alignment, as there are more keys than queries."""
        done = run("in.npz", "--causal", "--alignment", "top-left", "-o", "out.npz")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        return tmp_path / "out.npz"

    def test_of_an_npz_are_a_job(self, archive, tensors, causal_context):
        q, k, _ = tensors
        with np.load(archive) as out:
            assert sorted(out.files) == ["context", "scores", "weights"]
            assert_close(out["scores"], q @ k.T)
            assert_close(out["context"], causal_context)

    def test_npz_records_its_job(self, archive):
        with zipfile.ZipFile(archive) as out:
            assert json.loads(out.comment)["job"]["causal"] is True

    def test_of_an_npz_come_through_pipes(self, tensors, causal_context, tmp_path):
        done = subprocess.run(f"cat in.npz | '{ATTN}' run - --causal --format npz", shell=True, cwd=tmp_path,
                              capture_output=True)
        with npy(done.stdout) as out:
            assert_close(out["context"], causal_context)

    def test_are_named_by_flags(self, run, tensors, tmp_path):
        q, k, v = tensors
        done = run("--q", "q.npy", "--k", "in.npz#K", "--v", "in.npz#V", "-o", "context=c.npy")
        assert done.returncode == 0
        assert_close(np.load(tmp_path / "c.npy"), softmax(q @ k.T / 2, axis=1) @ v)

    def test_in_a_job_file_are_relative_to_it(self, run, tensors, tmp_path):
        q, k, _ = tensors
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "job.json").write_text(json.dumps({"Q": "../q.npy", "K": "../in.npz#K"}))
        done = run("sub/job.json", "--format", "json")
        assert_close(json.loads(done.stdout)["scores"], q @ k.T)


def test_npz_comes_through_a_pipe_from_numpy(tmp_path):
    write = "import sys, numpy as np; np.savez(sys.stdout.buffer, Q=np.eye(2), K=np.eye(2))"
    done = subprocess.run(f"/usr/bin/python3 -c '{write}' | '{ATTN}' run - --format npz", shell=True,
                          capture_output=True)
    with npy(done.stdout) as out:
        assert_close(out["scores"], np.eye(2))


def test_flag_overrides_the_job(run, expected, tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    done = run("job.json", "--scale", "none", "--format", "json")
    assert_close(json.loads(done.stdout)["weights"], softmax(expected["scores"], axis=1))


def test_numbers_may_be_given_on_the_command_line(run):
    done = run("--q", "[[1, 2]]", "--k", "[[1, 2], [3, 4]]", "--format", "json")
    assert json.loads(done.stdout)["scores"] == [[5, 11]]


# Destinations of results.


class TestResult:
    @pytest.fixture
    def run(self, tmp_path):
        """Runs a job with tokens."""
        (tmp_path / "job.json").write_text(json.dumps({**JOB, "tokens": ["a", "b", "c", "d"]}))

        def run(*arguments):
            done = attn("run", "job.json", *arguments, cwd=tmp_path)
            assert done.returncode == 0
            return done
        return run

    @pytest.mark.parametrize("output", ["scores", "weights", "context"])
    def test_is_printed_as_numpy_prints_it(self, run, expected, output):
        text = run().stdout.decode()
        assert f"{output} {expected[output].shape}: " in text
        assert str(expected[output]) in text

    def test_is_printed_as_numpy_repr(self, run, expected):
        assert repr(expected["context"]) in run("--repr").stdout.decode()

    def test_is_printed_as_csv(self, run, expected):
        csv = run("--outputs", "weights", "--format", "csv").stdout
        assert_close(np.loadtxt(io.BytesIO(csv), delimiter=","), expected["weights"])

    def test_is_printed_as_npy(self, run, expected):
        assert_close(npy(run("--outputs", "context", "--format", "npy").stdout), expected["context"])

    def test_in_json_has_tokens_and_outputs(self, run, expected, tmp_path):
        run("-o", "r.json")
        result = json.loads((tmp_path / "r.json").read_text())
        assert result["tokens"] == ["a", "b", "c", "d"]
        assert_close(result["weights"], expected["weights"])

    def test_in_a_folder_has_a_file_for_each_output(self, run, tmp_path):
        run("-o", "all/", "--outputs", "queries,scores")
        assert sorted(os.listdir(tmp_path / "all")) == ["queries.npy", "scores.npy"]

    def test_of_integers_is_exact(self, run, expected, tmp_path):
        run("-o", "all/", "--outputs", "queries")
        assert np.load(tmp_path / "all" / "queries.npy").tolist() == expected["queries"].tolist()

    def test_may_be_single_outputs(self, run, expected, tmp_path):
        run("-o", "weights=w.npy", "-o", "context=c.csv")
        assert_close(np.load(tmp_path / "w.npy"), expected["weights"])

    def test_of_outputs_without_a_file_is_refused(self, tmp_path):
        np.save(tmp_path / "q.npy", np.eye(2))
        job = ["run", "--q", "q.npy", "--k", "q.npy", "--outputs", "weights,scores", "-o", "weights=w.npy"]
        assert_error(attn(*job, cwd=tmp_path), 2, "--outputs: 'scores' is not written; add -o scores=FILE")
        assert not (tmp_path / "w.npy").exists()
        for more in (["-o", "scores=s.npy"], ["-o", "all.npz"], ["-o", "-"], ["--view=weights.png"]):
            assert attn(*job, *more, "--force", cwd=tmp_path).returncode == 0

    def test_leaves_no_temporary_file(self, run, tmp_path):
        run("-o", "r.json", "-o", "all/")
        assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


class TestExistingFile:
    @pytest.fixture
    def run(self, run, tmp_path):
        (tmp_path / "job.json").write_text(json.dumps(JOB))
        (tmp_path / "r.json").write_bytes(b"mine")
        return functools.partial(run, "job.json")

    def test_is_kept(self, run, tmp_path):
        assert_error(run("-o", "r.json"), 73, "--force")
        assert (tmp_path / "r.json").read_bytes() == b"mine"

    def test_is_replaced_with_force_by_the_same_bytes_each_time(self, run, tmp_path):
        assert run("-o", "new.json").returncode == 0
        assert run("-o", "r.json", "--force").returncode == 0
        assert (tmp_path / "r.json").read_bytes() == (tmp_path / "new.json").read_bytes()

    def test_is_kept_if_it_is_an_input(self, run, tmp_path):
        assert run("-o", "job.json", "--force").returncode == 73
        assert json.loads((tmp_path / "job.json").read_text()) == JOB

    def test_leaves_no_temporary_file(self, run, tmp_path):
        run("-o", "r.json")
        run("-o", "job.json", "--force")
        assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


# Refusals.


@pytest.fixture(scope="module")
def inputs(module_path):
    """Valid and invalid files."""
    np.save(module_path / "q.npy", np.ones((3, 4)))
    np.save(module_path / "k.npy", np.ones((5, 4)))
    np.save(module_path / "v.npy", np.ones((5, 2)))
    np.save(module_path / "v4.npy", np.ones((4, 2)))
    np.save(module_path / "mask.npy", np.ones((2, 5), dtype=bool))
    np.save(module_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(module_path / "nan.npy", np.full((3, 4), np.nan))
    (module_path / "cut.npy").write_bytes((module_path / "q.npy").read_bytes()[:-8])
    np.savez(module_path / "two.npz", a=np.ones(2), b=np.ones(2))
    (module_path / "table.csv").write_text("1,2\n3,4\n")
    (module_path / "no_name.json").write_text('{"": [[1, 2]], "a": [3]}')
    np.save(module_path / "zero_one.npy", np.tri(3, 5))
    np.save(module_path / "additive.npy", np.where(np.tri(3, 5), 0, -np.inf))
    return module_path


QKV = ["--q", "q.npy", "--k", "k.npy", "--v", "v.npy"]
HUGE = [[2**62, 0, 0, 0]]


@pytest.mark.parametrize("arguments, code, reason", [
    (["nope.json"], 66, "nope.json: "),
    (["table.csv"], 65, "table.csv: expected a job (.npz, .safetensors or .json), found one array (CSV); give it with the flag "
                        "of its input, such as --embeddings table.csv"),
    (["q.npy"], 65, "q.npy: expected a job (.npz, .safetensors or .json), found one array (.npy); give it with the flag"),
    (["no_name.json#"], 66, "no_name.json#: "),
    (["--q", "no_name.json#", "--k", "k.npy"], 65, "no_name.json: has an array without a name"),
    (["--q", "nope.npy", "--k", "k.npy"], 66, "nope.npy: "),
    (["--q", ".", "--k", "k.npy"], 66, "directory"),
    (["--q", "cut.npy", "--k", "k.npy"], 65, "cut.npy: "),
    (["--q", "objects.npy", "--k", "k.npy"], 65, "pickle"),
    (["--q", "two.npz", "--k", "k.npy"], 65, "two.npz"),
    (["--q", "two.npz#c", "--k", "k.npy"], 65, "two.npz"),
    (["--q", "q.npy", "--k", "v.npy"], 65, "v.npy: K: expected"),
    (["--q", "q.npy", "--k", "k.npy", "--v", "v4.npy"], 65, "v4.npy: V: expected"),
    ([*QKV, "--mask", "mask.npy"], 65, "mask.npy: mask: expected"),
    ([*QKV, "--heads", "3"], 65, "heads"),
    ([*QKV, "--heads", "4", "--kv-heads", "3"], 65, "heads"),
    ([*QKV, "--rows", "7"], 2, "attn: --rows: "),
    (["--q", "q.npy"], 65, "--q: requires --k"),
    ([*QKV, "--outputs", "wieghts"], 2, "did you mean 'weights'?"),
    ([*QKV, "--outputs", "attn_weights"], 2, "did you mean 'weights'?"),
    ([*QKV, "--outputs", "weights,,context"], 2, "outputs: expected the name of an output, found an empty string\n"),
    ([*QKV, "--outputs", "output"], 2, "output"),
    ([*QKV, "--outputs", "everything"], 2, "the outputs are positions, inputs, "),
    ([*QKV, "--scale", "big"], 2, "--scale: expected"),
    ([*QKV, "--heads", "0"], 2, "--heads: expected"),
    ([*QKV, "--score", "cosin"], 2, "did you mean 'cosine'?"),
    ([*QKV, "--window", "1"], 2, "--window: expected 2 whole numbers"),
    ([*QKV, "--hedas", "2"], 2, "did you mean '--heads'?"),
    ([*QKV, "--num-heads", "8"], 2, "did you mean '--heads'?"),
    ([*QKV, "--attn-mask", "m.npy"], 2, "did you mean '--mask'?"),
    ([*QKV, "--key-padding-mask", "m.npy"], 2, "did you mean '--key-mask' with"),
    ([*QKV, "--is-causal"], 2, "did you mean '--causal'?"),
    *(([f"--{name}", "q.npy"], 2, f"did you mean '--{name[0]}'?)") for name in ("query", "key", "value")),
    ([*QKV, "-o", "x.txt"], 2, "x.txt"),
    ([*QKV, "-o", "x.npy"], 2, "holds one output"),
    ([*QKV, "-o", "wights=x.npy"], 2, "did you mean 'weights'?"),
    ([*QKV, "-o", "none/x.npz"], 73, "none"),
    ([*QKV, "--repr", "--format", "json"], 2, "--repr"),
    (["--q", json.dumps(HUGE), "--k", json.dumps(HUGE)], 65, "int64"),
    (["--q", "nan.npy", "--k", "k.npy", "--nan", "refuse"], 65, "values are NaN"),
    ([], 2, "expected a job file (- for standard input) or tensors"),
])
def test_invalid_command_line_is_refused(inputs, arguments, code, reason):
    output = [] if {"-o", "--repr"} & set(arguments) else ["-o", "result.npz"]
    run = attn("run", *arguments, *output, cwd=inputs)
    assert_error(run, code, reason)
    assert [line for line in run.stderr.decode().splitlines() if not line.startswith("attn: ")] == []
    assert not (inputs / "result.npz").exists()


def test_nan_is_a_warning(inputs):
    run = attn("run", "--q", "nan.npy", "--k", "k.npy", cwd=inputs)
    assert_error(run, 0, "nan.npy: Q holds 12, the first at [0, 0]")


@pytest.mark.parametrize("flags", [["--nan", "allow"], ["-q"]])
def test_nan_warning_can_be_switched_off(inputs, flags):
    run = attn("run", "--q", "nan.npy", "--k", "k.npy", "--v", "k.npy", *flags, cwd=inputs)
    assert (run.returncode, run.stderr) == (0, b"")


@pytest.mark.parametrize("number", [".5", "0.5", "5e-1"])
def test_scale_is_a_number_in_any_notation(inputs, number):
    run = attn("run", *QKV, "--scale", number, "--outputs", "scaled_scores", "--format", "json", cwd=inputs)
    assert json.loads(run.stdout)["scaled_scores"][0][0] == 2


def test_float_mask_of_zeros_and_ones_is_a_warning(inputs):
    run = attn("run", *QKV, "--mask", "zero_one.npy", cwd=inputs)
    assert_error(run, 0, "warning: zero_one.npy: mask: floats are")


def test_additive_mask_gives_no_warning(inputs):
    run = attn("run", *QKV, "--mask", "additive.npy", cwd=inputs)
    assert (run.returncode, run.stderr) == (0, b"")


def test_all_errors_are_reported(inputs):
    run = attn("run", "--q", "q.npy", "--k", "v.npy", "--mask", "mask.npy", "--rows", 9, cwd=inputs)
    assert len(run.stderr.splitlines()) == 2


@pytest.mark.parametrize("job, code, reason", [
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
    ({"seed": 1, "Q": {"randn": {"extent": [1, 2]}}, "K": [[1, 2]]}, 65, "unknown argument"),
    ({"seed": 1, "Q": {"randint": {"high": 0, "shape": [1]}}, "K": [[1]]}, 65, "low < high"),
    ([1, 2], 65, "expected a job"),
], ids=lambda value: json.dumps(value) if isinstance(value, (dict, list)) else None)
def test_invalid_job_is_refused(run, tmp_path, job, code, reason):
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = run("job.json", "-o", "result.npz")
    assert_error(done, code, reason)
    assert done.stderr.startswith(b"attn: ")
    assert not (tmp_path / "result.npz").exists()


@pytest.mark.parametrize("name, suggestion", [
    ("w_q", "did you mean 'W_Q'?"), ("query", "'query' (did you mean 'Q'?")])
def test_unknown_name_in_an_npz_gets_a_suggestion(run, tmp_path, name, suggestion):
    np.savez(tmp_path / "in.npz", **{name: np.ones((2, 2)), "K": np.ones((2, 2))})
    assert_error(run("in.npz"), 65, suggestion)


def test_npz_may_hold_options(run, tmp_path):
    np.savez(tmp_path / "in.npz", Q=np.ones((2, 4)), K=np.ones((2, 4)), heads=2, scale=0.5)
    done = run("in.npz", "--outputs", "weights", "--format", "json")
    assert np.shape(json.loads(done.stdout)["weights"]) == (2, 2, 2)
