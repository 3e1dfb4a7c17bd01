"""What people type first: it does what they mean, or the message names the command that does."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn

RNG = np.random.default_rng(9)
Q, K, V = (RNG.standard_normal((4, 8)) for _ in range(3))


@pytest.fixture
def folder(tmp_path):
    for name, array in {"q": Q, "k": K, "v": V, "mask": np.ones((1, 4), bool)}.items():
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "lower.npz", q=Q, k=K, v=V)
    np.savez(tmp_path / "both.npz", Q=Q, K=K, V=V, q=Q)
    np.savez(tmp_path / "result.npz", weights=np.eye(4), context=V)
    (tmp_path / "job.json").write_text(json.dumps({"Q": Q.tolist(), "K": K.tolist(), "V": V.tolist()}))
    (tmp_path / "tokens.txt").write_text("the\ncat\nsat\ndown\n")
    (tmp_path / "list.json").write_text(json.dumps([{"Q": Q.tolist(), "K": K.tolist()}] * 2))
    (tmp_path / "model").mkdir()
    (tmp_path / "jobs" / "llama").mkdir(parents=True)
    (tmp_path / "jobs" / "llama" / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    return tmp_path


FLAGS = "run --q q.npy --k k.npy --v v.npy "


@pytest.mark.parametrize("typed, code, message", [
    ("run q.npy k.npy v.npy", 2, "give tensors with flags, as in --q q.npy --k k.npy --v v.npy"),
    ("run job.json other.json", 2, "and several jobs to 'attn batch'"),
    ("examples general-attention", 2, "unexpected argument 'general-attention'; 'attn examples run NAME' runs an example"),
    ("examples lst", 2, "unexpected argument 'lst' (did you mean 'list'?)"),
    ("mask --shape 2,2 --causal -o m.gif", 2,
     "expected a name that ends in .npz, .npy, .safetensors, .json or .csv, or .svg, .pdf, .png or .html"),
    ("job.json", 2, "expected a command before job.json: 'attn run' computes a job"),
    ("q.npy", 2, "expected a command before q.npy: 'attn view' draws an array"),
    ("jobs/llama", 2, "expected a command before jobs/llama: 'attn model inspect' shows a model"),
    ("jobs", 2, "expected a command before jobs: 'attn batch' computes the jobs in a folder"),
    ("run --q q.npy --k k.npy -o out", 2, "or a folder (ending in /)"),
    ("run --query q.npy --k k.npy", 2, "did you mean '--q'?"),
    ("plot q.npy", 2, "did you mean 'view'?"),
    ("explain job.json", 2, "did you mean 'run JOB --explain -'?"),
    ("compare q.npy", 2, "expected a reference file B, or --reference and a job"),
    ("run model", 66, "model: is the folder of a model; to compute a layer of the model, give --model model --layer N"),
    ("model model", 2, "attn model inspect DIR"),
    ("inspect model", 66, "model: is a directory; attn model inspect shows the layers of a model"),
    ("view model", 66, "model: is a directory; attn model inspect shows the layers of a model"),
    ("run q.npy", 65, "expected a job (.npz, .safetensors or .json), found one array (.npy); give it with the flag"),
    ("run", 2, "expected a job file (- for standard input) or tensors"),
    (FLAGS + "--convention flash_attn", 2, "did you mean 'flash'?"),
    (FLAGS + "--outputs q", 2, "did you mean 'queries'?"),
    (FLAGS + "--attention-mask mask.npy", 2, "--key-mask"),
    ("random torch.randn --shape 2,2", 2, "randn --generator torch"),
    ("run both.npz", 65, "'q'"),
    ("run result.npz", 65, "result.npz: is a result (weights, context), not a job; 'attn view' draws results"),
    ("run lower.npz --head 2", 2, "--heads sets the number of heads"),
    (FLAGS + "--tokens tokens.txt", 2,
     "--tokens: tokens.txt is a file; to read a label from each line, write @tokens.txt"),
    ("view q.npy --key-tokens ./tokens.txt", 2, "--key-tokens: ./tokens.txt is a file; to read a label from each line, write @"),
    (FLAGS + "--outputs weights context", 2, "unexpected argument 'context'; write --outputs weights,context"),
    ("run job.json --outputs weights context scores", 2, "write --outputs weights,context,scores"),
    ("run -q q.npy --k k.npy --v v.npy", 2, "-q means --quiet; to give the queries, write --q q.npy"),
    ("run list.json", 65, "found an array; 'attn batch -' reads several jobs from standard input, one per line"),
    ("convert q.npy q.csv", 2, "unexpected argument 'q.csv'; the output file follows -o, as in -o out.csv"),
    ("random normal 2 3", 2, "unexpected argument '2'; the shape follows --shape, as in --shape 2,3"),
    ("version", 2, "unknown command 'version' (did you mean '--version'?)"),
    ("hepl", 2, "unknown command 'hepl' (did you mean 'help'?)"),
    ("compare q.npy k.npy --reference", 2, "--reference: expected a job to compute, as a file or as flags such as --q, --k "
     "and --v, found one array (k.npy); without --reference, A is compared with it"),
])
def test_message_names_what_to_type(folder, typed, code, message):
    assert_error(attn(*typed.split(), cwd=folder), code, message)


def test_batch_over_arrays_names_the_flag_that_makes_jobs(folder):
    run = attn("batch", "q.npy", "k.npy", cwd=folder)
    assert run.returncode == 3
    assert run.stderr.decode().count("'attn batch --pattern' makes jobs of such files") == 2


def test_archive_may_have_lower_case_names(folder):
    lower = attn("run", "lower.npz", "--outputs", "context", cwd=folder)
    assert lower.returncode == 0
    assert lower.stdout == attn(*FLAGS.split(), "--outputs", "context", cwd=folder).stdout


def test_what_the_messages_name_is_what_was_meant(folder):
    def output(line, **options):
        run = attn(*line.split(), cwd=folder, **options)
        assert run.returncode == 0, run.stderr.decode()
        return run.stdout
    drawn = output(FLAGS + "--view --tokens @tokens.txt")
    assert drawn == output(FLAGS + "--view --tokens the,cat,sat,down") and b"down" in drawn
    assert output(FLAGS + "--outputs weights,context").count(b"(4, ") == 2
    output("convert q.npy -o q.csv")
    np.testing.assert_array_equal(np.loadtxt(folder / "q.csv", delimiter=","), Q)
    drawn = json.loads(output("random normal --shape 2,3 --seed 1 --format json"))
    np.testing.assert_array_equal(drawn, np.random.RandomState(1).normal(size=(2, 3)))
    lines = "".join(json.dumps(job) + "\n" for job in json.loads((folder / "list.json").read_text()))
    output("batch - --out-dir out", stdin=lines)
    assert len(list((folder / "out").glob("*.npz"))) == 2


def test_one_label_may_have_the_name_of_a_file(folder):
    """In a list, or without a dot or a slash."""
    np.save(folder / "one.npy", Q[:1])
    (folder / "cat").write_text("")
    for label in "cat", '["tokens.txt"]':
        run = attn("run", "--q", "one.npy", "--k", "one.npy", "--view", "--tokens", label, cwd=folder)
        assert run.returncode == 0 and label.strip('[]"').encode() in run.stdout


@pytest.mark.parametrize("shape, heads, words", [
    ((2, 8), 2, "; heads concatenated"), ((1, 2, 8), 2, "; heads concatenated"), ((1, 2, 2, 4), None, "")])
def test_context_is_described_as_it_is(folder, shape, heads, words):
    """With four axes, heads are one of them."""
    for name, array in zip("qkv", (Q, K, V)):
        np.save(folder / f"{name}h.npy", array[:2].reshape(shape))
    command = ["run", "--q", "qh.npy", "--k", "kh.npy", "--v", "vh.npy", *(["--heads", heads] if heads else [])]
    run = attn(*command, "--outputs", "context", cwd=folder)
    heading = f"context {shape}: weights V, the weighted sums of the values{words}\n"
    assert run.stdout.decode().startswith(heading)
    assert attn(*command, "-o", "r.npz", cwd=folder).returncode == 0
    drawn = attn("view", "r.npz", "--of", "context", cwd=folder).stdout.decode()
    assert f"the weighted sums of the values{words}\n" in drawn
