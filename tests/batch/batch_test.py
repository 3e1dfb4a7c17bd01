#!/usr/bin/env python3
"""`attn batch` from outside: which jobs, in which order, and what fails."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn  # noqa: E402
from support.jobs import (WORDS, contents, is_expected, job, manifest_of,  # noqa: E402
                          write_jobs)


def lines_of(run):
    return [json.loads(line) for line in run.stdout.splitlines()]


def which_jobs(checks, folder):
    write_jobs(folder / "jobs", range(3))
    write_jobs(folder / "jobs" / "deep", [3])
    (folder / "jobs" / "notes.txt").write_text("no job")
    (folder / "jobs" / ".hidden.json").write_text("no job")
    names = [f"jobs/job{i:04}.json" for i in range(3)]
    for words, seeds in [
        (["jobs"], [3, 0, 1, 2]),  # by name: jobs/deep/... comes first
        (["jobs/job*.json"], [0, 1, 2]),
        ([names[2], names[0]], [2, 0]),
        ([names[1], "jobs", names[1]], [1, 3, 0, 2]),  # each job once
    ]:
        run = attn("batch", *words, cwd=folder)
        results = lines_of(run)
        checks.check(run.returncode == 0 and len(results) == len(seeds), f"{words}: {run}")
        checks.check(all(map(is_expected, results, seeds)), f"{words}: results in order")

    for flags, listing in [([], "\n".join(names)), ([], "\r\n".join(names) + "\r\n"),
                           (["-0"], "\0".join(names) + "\0")]:
        run = attn("batch", "--files-from", "-", *flags, stdin=listing, cwd=folder)
        checks.check(all(map(is_expected, lines_of(run), range(3))), f"--files-from -: {run}")
        (folder / "list").write_text(listing)
        again = attn("batch", "--files-from", "list", *flags, cwd=folder)
        checks.check(again.stdout == run.stdout, "--files-from FILE")

    (folder / "list").write_text("\0".join(names))
    run = attn("batch", "--files-from", "list", cwd=folder)
    checks.check(run.returncode == 65 and run.stderr.decode() == "attn: list: expected a name a line, found a NUL; "
                 "-0 reads names that end in NUL (find -print0)\n" and not run.stdout, f"{run}")

    alone = b"".join(attn("run", name, "--format", "ndjson", cwd=folder).stdout for name in names)
    checks.check(attn("batch", *names, cwd=folder).stdout == alone, "the same bytes as attn run")

    for words, code in [(["none.json"], 66), (["no*.json"], 66), ([], 2), (["-", "jobs"], 2),
                        (["jobs", "-0"], 2), (["-", "--files-from", "list"], 2)]:
        run = attn("batch", *words, cwd=folder)
        checks.check(run.returncode == code and not run.stdout, f"{words}: {run}")


def names_without_a_file(checks, folder):
    """They fail by themselves, among others; alone they are an error at once."""
    write_jobs(folder / "jobs", range(3))
    (folder / "empty").mkdir()
    listing = "jobs/job0000.json\nmissing.json\njobs/job0002.json\nno*.json\n"
    run = attn("batch", "--files-from", "-", "--out-dir", "out", stdin=listing, cwd=folder)
    recorded = {name: line.get("code", 0) for name, line in manifest_of(folder / "out").items()}
    checks.check(run.returncode == 3 and b"attn: missing.json: No such file" in run.stderr
                 and recorded == dict(zip(listing.splitlines(), [0, 66, 0, 66])), f"{recorded}: {run}")
    (folder / "missing.json").write_text(json.dumps(job(7)))
    run = attn("batch", "--files-from", "-", "--out-dir", "out", "--resume", cwd=folder,
               stdin=listing.replace("no*.json\n", ""))
    checks.check(run.returncode == 0 and b"1 done, 2 skipped" in run.stderr, f"it came: {run}")
    run = attn("batch", "jobs", "empty", cwd=folder)
    checks.check(run.returncode == 0 and len(lines_of(run)) == 3, f"an empty folder among others: {run}")
    run = attn("batch", "empty", "gone.json", "no*.json", "--out-dir", "out2", cwd=folder)
    checks.check(run.returncode == 66 and run.stderr.decode().splitlines() == [
        "attn: empty: no .json file in this folder", "attn: gone.json: No such file or directory",
        "attn: no*.json: no file matches"], f"nothing at all: {run}")
    checks.check(not (folder / "out2").exists(), "and nothing is made")

    # Root reads everything, unless it gives that up.
    drop = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    locked = folder / "jobs" / "locked"
    locked.mkdir(mode=0)
    for words, seeds in (["jobs"], range(3)), (["jobs/locked/*.json", "jobs/job0001.json"], [1]):
        run = subprocess.run([*drop, ATTN, "batch", *words, "-q"], cwd=folder, capture_output=True)
        results = lines_of(run)
        good = [result for result in results if "error" not in result]
        bad = [result["error"] for result in results if "error" in result]
        checks.check(run.returncode == 3 and bad == [["jobs/locked: Permission denied"]]
                     and len(good) == len(seeds) and all(map(is_expected, good, seeds)),
                     f"{words}, a folder that is closed: {run}")
    locked.chmod(0o755)


def each_file_once(checks, folder):
    paths = write_jobs(folder / "jobs", range(2))
    (folder / "link").symlink_to("jobs")
    words = ["jobs", "jobs/job0000.json", "./jobs/job0000.json", paths[1], "link", "jobs/../jobs/*"]
    run = attn("batch", *words, "--dry-run", cwd=folder)
    names = [line["job"] for line in lines_of(run)]
    checks.check(names == ["jobs/job0000.json", "jobs/job0001.json"], f"one spelling of each: {names}")
    # A link to a file is a job of its own: relative paths in it start elsewhere.
    (folder / "jobs" / "alias.json").symlink_to("job0000.json")
    run = attn("batch", "jobs", "--dry-run", cwd=folder)
    checks.check(len(lines_of(run)) == 3, f"links to files: {run}")

    # A pattern that matches folders means what the shell would make of it.
    write_jobs(folder / "more", [5])
    run = attn("batch", "*o*", "--name", "{job}", "--out-dir", "out", cwd=folder)
    checks.check(sorted(contents(folder / "out")) == ["alias.npz", "job0000.npz", "job0001.npz",
                                                      "job0005.npz"], f"folders by a pattern: {run}")
    again = attn("batch", "*o*", "--dry-run", "--out-dir", "out", cwd=folder)
    checks.check(len(lines_of(again)) == 4, f"save that of the results: {again}")


def folders_of_failed_jobs(checks, folder):
    """Folders are made for results: where there are none, they go again."""
    write_jobs(folder / "jobs" / "good", [0])
    write_jobs(folder / "jobs" / "both" / "good", [1])
    for name in "bad/worse", "both/bad":
        (folder / "jobs" / name).mkdir(parents=True)
        # (Known only when it is computed.)
        (folder / "jobs" / name / "x.json").write_text(
            '{"Q": [[9007199254740993]], "K": [[9223372036854775807]], "outputs": ["scores"]}')
    run = attn("batch", "jobs", "--out-dir", "out", "--name", "{job}", "-j", "2", cwd=folder)
    made = sorted(path.relative_to(folder / "out").as_posix()
                  for path in (folder / "out").rglob("*") if path.is_dir())
    checks.check(run.returncode == 3 and b"2 done, 0 skipped, 2 failed" in run.stderr
                 and made == ["both", "both/good", "good"], f"folders {made}: {run}")


def lines_on_stdin(checks, folder):
    text = "".join(json.dumps(job(seed)) + "\n" for seed in range(200))
    run = attn("batch", "-", "-j", "4", stdin=text)
    results = lines_of(run)
    checks.check(len(results) == 200 and all(map(is_expected, results, range(200))),
                 "200 lines in, 200 results out, in order")
    one = attn("batch", "-", "-j", "1", stdin=text)
    checks.check(one.stdout == run.stdout, "the same bytes with one worker and with four")

    text = "\n".join([json.dumps(job(0)), "", "{nonsense", json.dumps({"Q": [[1.0]]}), "  \r",
                      json.dumps(job(1))])  # the last line has no end
    run = attn("batch", "-", stdin=text)
    results = lines_of(run)
    checks.check(run.returncode == 3 and len(results) == 4, f"a line that is no job: {run}")
    checks.check(is_expected(results[0], 0) and is_expected(results[3], 1), "the others")
    checks.check(results[1]["job"] == "line 3" and results[1]["code"] == 65
                 and results[1]["error"][0].startswith("line 3: column 2: "), f"its error: {results[1]}")
    checks.check("K" in results[2]["error"][0], f"the other error: {results[2]}")
    checks.check(b"attn: line 3: " in run.stderr and b"2 failed" in run.stderr, f"{run.stderr}")

    for path in "-", "/dev/stdin", "/dev/fd/0":
        run = attn("batch", "-", "--q", path, stdin='{"K": [[1.0]]}\n{"K": [[2.0]]}\n')
        checks.check(run.returncode == 3 and len(lines_of(run)) == 2
                     and b"standard input holds the jobs" in run.stderr, f"--q {path}: {run}")
    run = attn("batch", "-", stdin="")
    checks.check(run.returncode == 0 and run.stdout == b"", "no lines, no results")
    unreadable = os.open(folder, os.O_RDONLY)
    run = subprocess.run([ATTN, "batch", "-"], stdin=unreadable, capture_output=True)
    os.close(unreadable)
    checks.check(run.returncode == 74 and b"attn: standard input: Is a directory\n" in run.stderr, f"no lines: {run}")


def a_failure_while_lines_may_come(checks, _):
    """With --fail-fast it is the end, whoever waits for another line."""
    with subprocess.Popen([ATTN, "batch", "-", "-q", "-j", "2", "--fail-fast"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as batch:
        batch.stdin.write(b"{}\n")
        batch.stdin.flush()
        results = [json.loads(line) for line in batch.stdout]  # up to its end
        checks.check(len(results) == 1 and results[0]["code"] == 65 and batch.wait() == 3, f"{results}")


def a_common_base(checks, folder):
    rng = np.random.default_rng(1)
    q, k, v = rng.standard_normal((3, 5, 4))
    (folder / "sub").mkdir()
    np.save(folder / "sub" / "k.npy", k)
    np.save(folder / "v.npy", v)
    base = {"K": "k.npy", "V": [[9.0] * 4] * 5, "scale": 2, "causal": True}
    (folder / "sub" / "base.json").write_text(json.dumps(base))
    lines = "".join(json.dumps(line) + "\n" for line in [
        {"Q": q.tolist()}, {"Q": q.tolist(), "scale": "none"}, {"Q": q.tolist(), "causal": False}])
    run = attn("batch", "-", "--base", "sub/base.json", "--v", "v.npy", stdin=lines, cwd=folder)
    results = lines_of(run)
    for result, scale, causal in zip(results, [2, 1, 2], [True, True, False]):
        scores = np.where(np.tri(5, dtype=bool) | (not causal), scale * (q @ k.T), -np.inf)
        e = np.exp(scores - scores.max(axis=1, keepdims=True))
        want = e / e.sum(axis=1, keepdims=True) @ v
        checks.check(np.allclose(result["context"], want, rtol=1e-12), f"scale {scale}, {causal}")
        checks.check("sub/base.json" in result["made_by"]["inputs"], "the base is an input")
    checks.check(len(results) == 3, f"{run}")

    # What all share need not mean something to each; what a job says itself has to.
    (folder / "seed.json").write_text(json.dumps({"seed": 3, "K": [[1.0], [2.0]]}))
    lines = [{"Q": [[1.0]]}, {"Q": {"rand": {"shape": [1, 1]}}}]
    text = "\n".join(map(json.dumps, lines))
    for flags in ["--base", "seed.json"], ["--seed", "3", "--k", "[[1.0], [2.0]]"]:
        run = attn("batch", "-", *flags, stdin=text, cwd=folder)
        scores = [result.get("scores") for result in map(json.loads, run.stdout.splitlines())]
        drawn = np.random.RandomState(3).rand()
        checks.check(run.returncode == 0 and scores == [[[1, 2]], [[drawn, 2 * drawn]]],
                     f"a shared seed: {run}")
    run = attn("batch", "-", stdin=json.dumps({"seed": 3, "Q": [[1.0]], "K": [[1.0]]}))
    checks.check(run.returncode == 3 and b"seed: expected a random tensor" in run.stderr, f"{run}")

    # Numbers written out in the base are read once and still known by their shape.
    base = {"K": k.tolist(), "V": v.tolist()}
    (folder / "base.json").write_text(json.dumps(base))
    run = attn("batch", "-", "--base", "base.json", stdin=json.dumps({"Q": q.tolist()}), cwd=folder)
    result = lines_of(run)[0]
    checks.check(result["made_by"]["job"]["K"] == "numbers of shape (5, 4)", f"{result['made_by']}")
    run = attn("batch", "-", "--heads", "none", stdin="{}")
    checks.check(run.returncode == 2 and run.stderr.count(b"\n") == 1 and b"--heads" in run.stderr,
                 f"a flag that is wrong: {run}")
    (folder / "bad.json").write_text('{"causal": 3}')
    run = attn("batch", "-", "--base", "bad.json", "--out-dir", "bad", stdin="{}\n{}", cwd=folder)
    checks.check(run.returncode == 65 and run.stderr.count(b"\n") == 1 and b"bad.json: causal: " in
                 run.stderr and not (folder / "bad").exists(), f"a base that is wrong: {run}")


def failures(checks, folder):
    paths = write_jobs(folder, range(6))
    paths[1].write_text('{"embeddings": [[1, 2], [3]]}')
    paths[2].write_text('{"Q": "gone.npy", "K": [[1.0]]}')
    paths[3].write_text("")
    run = attn("batch", *paths, "--out-dir", "out", cwd=folder)
    checks.check(run.returncode == 3, f"exit code 3: {run}")
    checks.check(sorted(contents(folder / "out"))
                 == ["job0000.npz", "job0004.npz", "job0005.npz"], "the others are there")
    lines = manifest_of(folder / "out")
    codes = [lines[str(path)].get("code", 0) for path in paths]
    checks.check(codes == [0, 65, 66, 65, 0, 0], f"codes in the manifest: {codes}")
    checks.check("gone.npy" in lines[str(paths[2])]["error"][0], "and the error")
    checks.check(b"out/manifest.ndjson" in run.stderr, "the summary says where to look")
    for path in paths[1:4]:
        checks.check(f"attn: {path}: ".encode() in run.stderr, f"{path.name} is named")

    many = write_jobs(folder / "many", range(50))
    for path in many[1:]:
        path.write_text("{}")
    run = attn("batch", "many", "-j", "1", "--fail-fast", "--out-dir", "fast", cwd=folder)
    checks.check(run.returncode == 3 and len(manifest_of(folder / "fast")) == 2, f"{run}")
    checks.check(b"48 not done" in run.stderr, f"what was not done: {run.stderr}")
    run = attn("batch", "many", "--out-dir", "slow", cwd=folder)
    checks.check(len(manifest_of(folder / "slow")) == 50, "by default it keeps going")
    checks.check(run.stderr.count(b"\n") == 22, f"errors shown: {run.stderr.count(b'%c' % 10)}")

    run = attn("batch", paths[0], "--out-dir", "npy", "--format", "npy", cwd=folder)
    checks.check(run.returncode == 3 and b"--outputs scores chooses one" in run.stderr
                 and b" -o " not in run.stderr, f"an .npy of three outputs: {run}")
    run = attn("batch", paths[0], "--out-dir", "npy", "--format", "npy", "--outputs", "weights",
               "--resume", cwd=folder)
    checks.check(run.returncode == 0 and (folder / "npy/job0000.npy").exists(), f"of one: {run}")

    run = attn("batch", "-", "--nan", "refuse", stdin='{"Q": [["NaN"]], "K": [[1.0]]}')
    checks.check(run.returncode == 3 and b"NaN" in run.stderr, f"--nan refuse: {run}")
    run = attn("batch", "-", stdin='{"Q": [["NaN"]], "K": [[1.0]]}')
    checks.check(run.returncode == 0 and b"line 1: warning: " in run.stderr, f"--nan warn: {run}")


def what_is_doubtful(checks, folder):
    doubtful = {"Q": [[1.0]], "K": [[1.0]], "V": [[1.0]], "mask": [[1.0]], "tokens": ["a", "b", "c"]}
    run = attn("batch", "-", "--out-dir", "out", stdin=json.dumps(doubtful), cwd=folder)
    warning = manifest_of(folder / "out")["line 1"].get("warning", "")
    checks.check(run.returncode == 0 and b"line 1: warning: " in run.stderr
                 and "hide nothing" in warning and "they label nothing" in warning, f"{run} {warning}")
    run = attn("batch", "-", stdin=25 * (json.dumps(doubtful) + "\n"), cwd=folder)
    checks.check(run.stderr.count(b": warning: ") == 20, f"no more than 20 are shown: {run.stderr}")


def shards(checks, folder):
    write_jobs(folder / "jobs", range(10))
    attn("batch", "jobs", "--out-dir", "whole", "--name", "{index}", cwd=folder)
    for i in (1, 2, 3):
        run = attn("batch", "jobs", "--out-dir", "parts", "--name", "{index}", "--shard", f"{i}/3",
                   cwd=folder)
        done = len(manifest_of(folder / "parts", f"manifest.{i}-of-3.ndjson"))
        checks.check(run.returncode == 0 and done == (4 if i == 1 else 3), f"shard {i}: {run}")
    checks.check(contents(folder / "whole") == contents(folder / "parts"),
                 "all shards together are the whole")
    lines = "".join(json.dumps(job(seed)) + "\n" for seed in range(10))
    parts = [lines_of(attn("batch", "-", "--shard", f"{i}/3", stdin=lines)) for i in (1, 2, 3)]
    checks.check([list(map(is_expected, parts[i], range(i, 10, 3))) for i in range(3)]
                 == [[True] * 4, [True] * 3, [True] * 3], f"of lines: {parts}")
    for shard in ["0/3", "4/3", "1", "1/", "a/b", "1/3x", "-1/3"]:
        run = attn("batch", "jobs", f"--shard={shard}", cwd=folder)
        checks.check(run.returncode == 2 and b"--shard" in run.stderr, f"{shard}: {run}")


def files_shared_by_all(checks, folder):
    """A file that many jobs name is read once: a FIFO gives its bytes one time only."""
    os.mkfifo(folder / "w")
    rng = np.random.default_rng(2)
    weights = rng.standard_normal((3, 3))
    np.save(folder / "w.npy", weights)
    line = json.dumps({"embeddings": WORDS, "W_Q": "w"}) + "\n"
    process = subprocess.Popen([ATTN, "batch", "-", "-j", "4"], stdin=subprocess.PIPE, cwd=folder,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    feeder = subprocess.Popen(["sh", "-c", "cat w.npy > w"], cwd=folder)
    out, err = process.communicate((line * 20).encode(), timeout=60)
    feeder.wait()
    results = [json.loads(text) for text in out.splitlines()]
    want = np.array(WORDS) @ weights @ np.array(WORDS).T
    checks.check(len(results) == 20 and all(np.allclose(result["scores"], want, rtol=1e-12)
                                            for result in results), f"{err}")


if __name__ == "__main__":
    checks = Checks("attn batch")
    for part in (which_jobs, names_without_a_file, each_file_once, folders_of_failed_jobs, lines_on_stdin,
                 a_failure_while_lines_may_come, a_common_base, failures, what_is_doubtful, shards,
                 files_shared_by_all):
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder))
    checks.finish()
