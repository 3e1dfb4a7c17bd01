"""The commands that faults are injected into: one of each kind of input, output and subcommand."""

import dataclasses
import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ROOT  # noqa: E402
from support.jobs import job, write_jobs  # noqa: E402
from support.safetensors_file import build, entry  # noqa: E402


@dataclasses.dataclass
class Command:
    """`attn ARGS...`, run in a folder that `write_inputs` has filled.

    `old` names outputs that exist before the run. `batch` is the folder of a batch's results. `report` is
    the exit code of a command that reports failures on stdout.
    """

    name: str
    args: list
    stdin: bytes = b""
    old: tuple = ()
    batch: str = ""
    report: int = None


LINES = "".join(json.dumps(job(seed)) + "\n" for seed in range(4)).encode()
EXAMPLES = str(ROOT / "data" / "examples")

COMMANDS = [
    Command("run", ["run", "job.json"]),
    Command("run, JSON to stdout", ["run", "job.json", "--format", "json"]),
    Command("run, a line to stdout", ["run", "job.json", "--format", "ndjson"]),
    Command("run, stdin to CSV", ["run", "-", "--outputs", "weights", "--format", "csv"],
            stdin=json.dumps(job(3)).encode()),
    Command("run, npz to stdout", ["run", "q.npz", "--format", "npz"]),
    Command("run, npz over an old one", ["run", "job.json", "-o", "out.npz", "--force"],
            old=("out.npz",)),
    Command("run, compressed input", ["run", "packed.npz", "-o", "out.json"]),
    Command("run, safetensors", ["run", "layer.safetensors", "-o", "out.safetensors"]),
    Command("run, several outputs",
            ["run", "job.json", "-o", "weights=w.npy", "-o", "context=c.csv", "-o", "all.npz",
             "--force"], old=("c.csv",)),
    Command("run, a folder", ["run", "job.json", "-o", "results/"]),
    Command("run, large and durable",
            ["run", "--q", "large.npy", "--k", "large.npy", "--durable", "-o", "out.npz", "--force"],
            old=("out.npz",)),
    Command("run, large, one array",
            ["run", "--q", "large.npy", "--k", "large.npy", "--causal", "--heads", "2",
             "-o", "weights=w.npy"]),
    Command("run, gradients", ["run", "loss.npz", "--outputs", "grad_Q,grad_K,grad_V,delta", "-o", "out.npz"]),
    Command("run, page", ["run", "job.json", "--view=page.html", "--force"], old=("page.html",)),
    Command("run, SVG", ["run", "job.json", "--view=map.svg"]),
    Command("run, PDF", ["run", "job.json", "--view=map.pdf"]),
    Command("run, PNG", ["run", "job.json", "--view=map.png"]),
    Command("run, explained", ["run", "job.json", "--explain", "steps.md", "-o", "out.npz"]),
    Command("run, explained as HTML", ["run", "job.json", "--explain", "steps.html"]),
    Command("run, planned", ["run", "job.json", "--dry-run"]),
    Command("convert", ["convert", "q.npz", "-o", "q.safetensors"]),
    Command("convert, CSV from stdin", ["convert", "-", "-o", "table.npy", "--force"],
            stdin=b"1,2\n3,4\n", old=("table.npy",)),
    Command("convert to text", ["convert", "packed.npz#K", "--repr"]),
    Command("inspect", ["inspect", "packed.npz"]),
    Command("compare", ["compare", "q.npz", "packed.npz"]),
    Command("compare, gradients", ["compare", "gradients.npz", "--reference", "loss.npz"]),
    Command("merge", ["merge", "part1.npz", "part2.npz", "-o", "all.npz"]),
    Command("random", ["random", "randn", "--seed", "1", "--shape", "300,300", "-o", "r.npy"]),
    Command("svd", ["svd", "q.npz#Q", "-o", "svd/"]),
    Command("view", ["view", "packed.npz", "--of", "Q"]),
    Command("examples", ["examples", "check", "latent-factors", "gpt-head", "--data", EXAMPLES], report=1),
    Command("examples, copied", ["examples", "copy", "latent-factors", "copies/new", "--data", EXAMPLES]),
    Command("schema", ["schema"]),
    Command("batch of files", ["batch", "jobs", "--out-dir", "results", "-j", "2"],
            batch="results"),
    Command("batch, folders, durable",
            ["batch", "jobs", "--out-dir", "results", "--format", "folder", "--durable", "-j", "1"],
            batch="results"),
    Command("batch of lines", ["batch", "-", "-j", "2"], stdin=LINES),
    Command("batch of lines, manifest",
            ["batch", "-", "--out-dir", "results", "--format", "json", "-j", "1"], stdin=LINES,
            batch="results"),
    Command("batch, bundles", ["batch", "jobs", "--out-dir", "results", "--bundle", "2", "-j", "1"],
            batch="results"),
    Command("batch, bundles resumed",
            ["batch", "jobs", "--out-dir", "bundled", "--bundle", "3", "--resume", "-j", "1"],
            batch="bundled"),
    Command("batch, summary",
            ["batch", "-", "--summary", "summary.csv", "--out-dir", "results", "-j", "1"],
            stdin=LINES, batch="results"),
    Command("batch, status", ["batch", "--status", "half"]),
    Command("batch, resumed", ["batch", "jobs", "--out-dir", "half", "--resume", "-j", "1"],
            batch="half"),
]


def write_inputs(folder, attn):
    """Writes all files that the commands read; `attn(ARGS...)` runs the program."""
    random = np.random.default_rng(1)
    (folder / "job.json").write_text(json.dumps(job(3) | {"tokens": ["I", "am", "a", "job"]}))
    Q, K = random.standard_normal((6, 4)), random.standard_normal((8, 4))
    np.savez(folder / "q.npz", Q=Q, K=K)
    np.savez_compressed(folder / "packed.npz", Q=Q, K=K)
    np.save(folder / "large.npy", random.standard_normal((300, 16)))
    (folder / "layer.safetensors").write_bytes(build(
        {"Q": entry(0, 48, "F32", [3, 4]), "K": entry(48, 96, "F32", [3, 4])},
        random.standard_normal((6, 4)).astype("<f4").tobytes()))
    for part, keys in enumerate((K[:5], K[5:]), 1):
        np.savez(folder / "part.npz", Q=Q, K=keys)
        attn("run", "part.npz", "--outputs", "logsumexp,head_context", "-o", f"part{part}.npz")
    (folder / "part.npz").unlink()
    np.savez(folder / "loss.npz", Q=Q, K=K, V=K, grad_context=Q)
    attn("run", "loss.npz", "--outputs", "grad_Q,delta", "-o", "gradients.npz")
    write_jobs(folder / "jobs", range(4))
    for flags in (["--out-dir", "half"], ["--out-dir", "bundled", "--bundle", "3"]):
        attn("batch", "jobs/job0000.json", "jobs/job0002.json", "-q", *flags)
