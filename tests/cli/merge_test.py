#!/usr/bin/env python3
"""`attn merge`: attention over keys that were split, put together, is attention over all of them."""

import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402
from support.plain_attention import attend  # noqa: E402

PARTIAL = "logsumexp,head_context,weights"


def run_part(checks, folder, name, t, options=(), outputs=PARTIAL):
    np.savez(folder / "in.npz", **t)
    done = attn("run", "in.npz", *options, "--outputs", outputs, "-o", name, "--force", cwd=folder)
    checks.check(done.returncode == 0, f"{name}: {done.stderr.decode()}")


def merged(checks, folder, *parts):
    done = attn("merge", *parts, "-o", "all.npz", "--force", cwd=folder)
    checks.check(done.returncode == 0, f"merge: {done.stderr.decode()}")
    return np.load(folder / "all.npz")


def is_close(found, wanted, most=1e-14):
    with np.errstate(invalid="ignore"):
        same = (found == wanted) | (abs(found - wanted) <= most * max(1, abs(wanted).max(
            initial=0, where=np.isfinite(wanted))))
    return found.shape == wanted.shape and same.all()


def split_keys(checks, folder):
    rng = np.random.default_rng(3)
    t = {"Q": rng.standard_normal((2, 4, 3, 6)), "K": 3 * rng.standard_normal((2, 2, 9, 6)),
         "V": rng.standard_normal((2, 2, 9, 5)), "mask": rng.random((3, 9)) < 0.6}
    t["mask"][0, :4] = False  # sees nothing of the first part
    t["mask"][1] = False      # nor this one anything of any
    t["mask"][2] = True
    wanted = attend(t, {})
    cuts = [(0, 4), (4, 5), (5, 9)]
    for i, (a, b) in enumerate(cuts):
        part = {"Q": t["Q"], "K": t["K"][:, :, a:b], "V": t["V"][:, :, a:b],
                "mask": t["mask"][:, a:b]}
        run_part(checks, folder, f"{i}.npz", part, ["--empty-rows", "uniform"])
    with merged(checks, folder, "0.npz", "1.npz", "2.npz") as out:
        for name, stage in ("head_context", "context"), ("logsumexp",) * 2, ("weights",) * 2:
            checks.check(is_close(out[name], wanted[stage]), f"{name} of three parts")
        for stage in "head_context", "logsumexp":
            with np.load(folder / "0.npz") as one:
                checks.check(not is_close(out[stage], one[stage]), f"{stage} is not a part's")

    # Far apart: no part overflows another.
    for i, shift in enumerate((-900.0, 900.0)):
        part = {"Q": np.ones((1, 1)), "K": np.array([[shift], [shift + 1]]), "V": np.eye(2)}
        run_part(checks, folder, f"{i}.npz", part, ["--scale", "none"], "logsumexp,head_context")
    with merged(checks, folder, "0.npz", "1.npz") as out, np.load(folder / "1.npz") as last:
        checks.check(is_close(out["head_context"], last["head_context"]), "far apart")
        checks.check(sorted(out.files) == ["head_context", "logsumexp"], "no weights, none made")

    # float32 parts give float32.
    for i, (a, b) in enumerate(cuts):
        part = {name: t[name].astype("f4")[:, :, a:b] for name in "KV"}
        run_part(checks, folder, f"{i}.json", {"Q": t["Q"].astype("f4"), **part})
        run_part(checks, folder, f"{i}.npz", {"Q": t["Q"].astype("f4"), **part})
    wanted = attend({k: v.astype("f4").astype("f8") for k, v in t.items() if k != "mask"}, {})
    with merged(checks, folder, "0.npz", "1.npz", "2.npz") as out:
        checks.check(out["head_context"].dtype == "float32", "dtype")
        checks.check(is_close(out["head_context"], wanted["context"], 1e-6), "float32")
    with merged(checks, folder, "0.json", "1.json", "2.json") as out:
        checks.check(is_close(out["head_context"], wanted["context"], 1e-6), "from JSON")


def refusals(checks, folder):
    q, k = np.ones((2, 3)), np.ones((4, 3))
    run_part(checks, folder, "a.npz", {"Q": q, "K": k})
    run_part(checks, folder, "few.npz", {"Q": q, "K": k}, outputs="weights")
    run_part(checks, folder, "rows.npz", {"Q": np.ones((3, 3)), "K": k})
    run_part(checks, folder, "wide.npz", {"Q": q, "K": k, "V": np.ones((4, 7))})
    for parts, code, says in (
            (["a.npz", "few.npz"], 65, "few.npz: logsumexp: expected it in each part"),
            (["a.npz", "rows.npz"], 65, "rows.npz: logsumexp: expected floats (2,), found float64 (3,)"),
            (["a.npz", "wide.npz"], 65,
             "wide.npz: head_context: expected floats (2, 3) to match the first part"),
            (["a.npz", "none.npz"], 66, "none.npz"), ([], 2, "PART")):
        done = attn("merge", *parts, cwd=folder)
        checks.check(done.returncode == code and says in done.stderr.decode(), f"{parts}: {done}")


def main():
    checks = Checks("merge")
    for part in split_keys, refusals:
        with tempfile.TemporaryDirectory() as name:
            part(checks, pathlib.Path(name))
    checks.finish()


main()
