#!/usr/bin/env python3
"""`attn view` and `attn run --view` on the terminal: what is drawn, in which width and colours."""

import json
import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile
import unicodedata

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn  # noqa: E402

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def width_of(line):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
               for c in line)


def view(*args, cwd=None):
    run = attn("view", *args, cwd=cwd)
    assert run.returncode == 0, run
    return run.stdout.decode()


def what_is_drawn(checks, folder):
    job = {"Q": [[1, 0], [0, 2]], "K": [[1, 0], [0, 3]], "causal": True, "scale": "none",
           "tokens": ["one", "two"], "outputs": ["weights", "masked_scores", "scores"]}
    (folder / "job.json").write_text(json.dumps(job))
    assert attn("run", "job.json", "-o", "r.npz", "-o", "r.json", cwd=folder).returncode == 0
    text = view("r.npz", cwd=folder)
    low, high = 1 / (1 + np.exp(6)), 1 / (1 + np.exp(-6))
    lines = text.splitlines()
    want = ["weights", lines[1], "queries down, keys across", "",
            "      one     two", "one    1    ╱╱╱╱╱╱╱╱",
            f"two  {low:.3f}    {1 if high > .995 else high:.2g}"]
    checks.check(lines[:6] == want[:6] and all(line == line.rstrip() for line in lines),
                 f"small, no blanks at the ends: {text}")
    checks.check(lines[6].split() == want[6].split() and 'key (column)' in lines[1], f"values: {lines}")
    checks.check("hidden" in lines[-1] and text.count("╱") == 9, f"legend: {lines[-1]}")
    checks.check(view("r.json", cwd=folder) == text, "JSON and .npz give the same")
    checks.check(attn("run", "job.json", "--view", cwd=folder).stdout.decode() == text, "run --view")
    run = attn("run", "job.json", "--outputs", "weights", "-o", "w.npz", "--view=w.svg", cwd=folder)
    checks.check(run.returncode == 0 and run.stdout == b"", f"run --view=FILE: {run}")
    with np.load(folder / "w.npz") as made:
        checks.check(made.files == ["weights"], "what is drawn adds nothing to what is written")
    svg = (folder / "w.svg").read_text()
    attn("view", "r.npz", "-o", "v.svg", cwd=folder)
    checks.check(svg == (folder / "v.svg").read_text(), "run --view=FILE is view -o FILE")
    checks.check("scores" in view("r.npz", "--of", "scores", cwd=folder).splitlines()[0], "--of")
    for name in "r.npz", "r.json":
        checks.check(view(f"{name}#scores", cwd=folder) == view(name, "--of", "scores", cwd=folder), f"{name}#scores")
    attn("view", "r.npz#scores", "r.json#weights", "-o", "both.html", cwd=folder)
    checks.check('"sets":["r.npz#scores","r.json#weights"]' in (folder / "both.html").read_text(), "on a page")
    with open(folder / "r.npz", "rb") as stdin:
        piped = subprocess.run([ATTN, "view", "-"], stdin=stdin, capture_output=True)
        checks.check(piped.stdout.decode() == text, "standard input")


def it_fits(checks, folder):
    words = ["cat", "neighbourhood", "猫", "e\u0301te\u0301", "a"]
    rng = np.random.default_rng(5)
    for shape in (4, 4), (32, 32), (40, 128), (128, 128), (6, 20, 20), (12, 64, 64):
        np.savez(folder / "w.npz", weights=rng.random(shape))
        tokens = ",".join(words[i % 5] for i in range(shape[-1]))
        for width in 20, 80, 200:
            for colour in "never", "always":
                text = view("w.npz", "--width", width, "--color", colour, "--tokens", tokens,
                            cwd=folder)
                checks.check(("\x1b[" in text) == (colour == "always"), "colour codes")
                wide = max(width_of(line) for line in ESCAPE.sub("", text).splitlines())
                checks.check(wide <= width, f"{shape}, {width}, {colour}: {wide}")
                checks.check(wide > 40 or width < 80 or shape == (4, 4), f"uses the room: {wide}")


def colours_by_terminal(checks, folder):
    np.savez(folder / "w.npz", weights=np.array([[0.25, 1.0]]))

    def on_terminal(*args, **environment):
        inside, outside = pty.openpty()
        subprocess.run([ATTN, "view", str(folder / "w.npz"), *args], stdout=outside, check=True,
                       env={"PATH": os.environ["PATH"], **environment})
        os.close(outside)
        text = b""
        try:
            while part := os.read(inside, 65536):
                text += part
        except OSError:
            pass  # the other end is closed
        os.close(inside)
        return text.decode()

    checks.check("[48;2;253;244;180m" in on_terminal(TERM="xterm", COLORTERM="truecolor"), "24 bits")
    palette = on_terminal(TERM="xterm-256color")
    checks.check("[48;5;229m" in palette and "[48;2" not in palette, f"256 colours: {palette!r}")
    for environment in ({"TERM": "dumb"}, {}, {"TERM": "xterm"},
                        {"TERM": "xterm-256color", "NO_COLOR": "1"}):
        checks.check("\x1b" not in on_terminal(**environment), f"no colours: {environment}")
    checks.check("\x1b" in on_terminal(TERM="xterm-256color", NO_COLOR=""), "an empty NO_COLOR")
    checks.check("\x1b" in on_terminal("--color", "always", TERM="dumb"), "--color always")
    checks.check("\x1b" not in on_terminal("--color", "never", TERM="xterm-256color"), "never")
    run = subprocess.run([ATTN, "view", str(folder / "w.npz")], capture_output=True,
                         env={"TERM": "xterm-256color", "COLORTERM": "truecolor"})
    checks.check(b"\x1b" not in run.stdout, "no colours into a pipe")


def choices(checks, folder):
    w = np.arange(1, 1 + 2 * 3 * 4 * 5).reshape(2, 3, 4, 5) / 200
    np.savez(folder / "w.npz", weights=w)
    text = view("w.npz", "--batch", "1", "--head", "2", "--rows", "3,0", "--cols", "1:3,-1",
                cwd=folder)
    got = [[float(x) for x in line.split()[1:]] for line in text.splitlines()[5:7]]
    want = w[1, 2][[3, 0]][:, [1, 2, 4]]
    checks.check(np.allclose(got, want, atol=6e-3), f"--rows, --cols, --head, --batch: {text}")
    checks.check("batch 1, head 2" in text.splitlines()[0], f"which one: {text}")
    checks.check(text.splitlines()[4].split() == ["1", "2", "4"], "indices as labels")
    np.save(folder / "w.npy", w[0, 0])
    checks.check("w.npy" in view("w.npy", "--vmax", "2", cwd=folder).splitlines()[0], ".npy")
    checks.check(view("w.npy", "--vmax", "2", cwd=folder).splitlines()[-1].endswith(" 2"), "--vmax")
    text = view("w.npy", "--tokens", "a,b,c,d", "--key-tokens", "v,w,x,y,z", cwd=folder)
    checks.check(text.splitlines()[3].split() == list("vwxyz") and text.splitlines()[4][0] == "a",
                 f"--key-tokens: {text}")
    evil = "\x1b[2Jx"
    checks.check("\x1b" not in view("w.npy", "--tokens", f"{evil},b,c,d", cwd=folder),
                 "a token cannot steer the terminal")


def axes_by_meaning(checks, folder):
    """What the drawing calls rows and columns, for every output and input, by core/attention.h's shapes."""
    rng = np.random.default_rng(2)
    job = {"embeddings": rng.random((3, 4)).tolist(), "heads": 2, "position": {"kind": "sinusoidal"},
           "tokens": ["one", "two", "six"],
           **{f"W_{x}": rng.random((4, 4)).tolist() for x in "QKVO"}}
    past = {"Q": rng.random((3, 4)).tolist(), "K": rng.random((3, 4)).tolist(), "heads": 2,
            "past_K": rng.random((2, 1, 2)).tolist(), "past_V": rng.random((2, 1, 2)).tolist()}
    split = {"Q": rng.random((2, 2, 3, 4)).tolist(), "K": rng.random((2, 2, 5, 4)).tolist()}
    blhd = {"Q": rng.random((2, 3, 2, 4)).tolist(), "K": rng.random((2, 5, 2, 4)).tolist(), "layout": "blhd"}
    batch = {"Q": rng.random((2, 3, 4)).tolist(), "K": rng.random((2, 5, 4)).tolist()}
    cases = [(job, {"positions": "tokens columns", "inputs": "tokens columns", "embeddings": "tokens columns",
                    "W_Q_heads": "rows columns", "W_Q": "rows columns", "queries": "queries columns",
                    "keys": "keys columns", "values": "keys columns", "scores": "queries keys",
                    "scaled_scores": "queries keys", "masked_scores": "queries keys", "weights": "queries keys",
                    "mean_weights": "queries keys", "key_weights": "heads keys", "row_max": "heads queries",
                    "logsumexp": "heads queries", "head_context": "queries columns",
                    "context": "queries columns", "output": "queries columns"}),
             (past, {"present_K": "keys columns", "present_V": "keys columns", "past_K": "keys columns",
                     "Q": "queries columns", "K": "keys columns"}),
             (split, {"context": "queries columns", "logsumexp": "heads queries", "Q": "queries columns"}),
             (blhd, {"context": "heads columns", "queries": "queries columns", "Q": "heads columns"}),
             (batch, {"logsumexp": "batches queries", "key_weights": "batches keys", "mean_weights": "queries keys",
                      "weights": "queries keys", "context": "queries columns"})]
    for document, meant in cases:
        (folder / "axes.json").write_text(json.dumps({**document, "outputs": list(meant)}))
        run = attn("run", "axes.json", "-o", "axes.npz", "--force", cwd=folder)
        assert run.returncode == 0, run
        for name, axes in meant.items():
            lines = view("axes.npz", "--of", name, "--color", "never", cwd=folder).splitlines()
            rows, columns = axes.split()
            checks.check(f"{rows} down, {columns} across" in lines, f"{name}: {axes}: {lines[:4]}")
            named = any("one" in line.split() for line in lines)
            checks.check(named == ("tokens" in document and bool({"tokens", "queries", "keys"} & {rows, columns})),
                         f"{name}: tokens where they are: {lines}")
            if document is batch and name in ("weights", "mean_weights", "context"):
                checks.check(any("batch 1" in line for line in lines), f"{name}: batches: {lines}")
    np.save(folder / "q.npy", np.ones((3, 4)))
    checks.check("rows down, columns across" in view("q.npy", cwd=folder), "an array of which nothing is known")


def refusals(checks, folder):
    np.savez(folder / "w.npz", weights=np.ones((2, 2)), empty=np.ones((0, 3)))
    for args, code, words in (
            (["--of", "wieghts"], 2, ["did you mean 'weights'", "--of"]),
            (["--head", "0"], 2, ["--head", "no such axis"]),
            (["--rows", "2"], 2, ["--rows 2", "-2 to 1"]),
            (["--rows", "x"], 2, ["--rows x"]),
            (["--cols", "2:"], 2, ["--cols 2:", "nothing"]),
            (["--vmin", "3", "--vmax", "1"], 2, ["--vmin, --vmax"]),
            (["--log", "--vmin", "0"], 2, ["--vmin", "--log"]),
            (["--of", "empty"], 65, ["empty", "(0, 3)"]),
            (["-o", "w.gif"], 2, ["w.gif", ".svg"]),
            (["-o", "w.svg"], 73, ["w.svg"])):
        (folder / "w.svg").write_text("kept")
        run = attn("view", "w.npz", *args, cwd=folder)
        error = run.stderr.decode()
        checks.check(run.returncode == code and all(word in error for word in words) and
                     error.count("\n") == 1 and run.stdout == b"", f"{args}: {run}")
    np.save(folder / "q4.npy", np.ones((2, 2)))
    (folder / "none.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    for name, of, says in (
            ("q4.npy", "weights", "but one tensor without a name, which is drawn without --of"),
            ("none.safetensors", "weights", "nor any other tensor"),
            ("none.safetensors", "", "nor any other tensor")):
        run = attn("view", name, *(["--of", of] if of else []), cwd=folder)
        checks.check(run.returncode == 2 and run.stdout == b"" and
                     run.stderr.decode() == f"attn: {name}: has no weights, {says}\n", f"{run}")
    for args, code, said in (
            (["w.npz#other"], 65, "w.npz: has no array 'other', only weights, empty"),
            (["q4.npy#other"], 65, "q4.npy: has one array, without a name; asked for 'other'"),
            (["w.npz#weights", "--of", "empty"], 2, "--of: w.npz#weights says already which tensor is drawn")):
        run = attn("view", *args, cwd=folder)
        checks.check(run.returncode == code and run.stdout == b"" and
                     run.stderr.decode() == f"attn: {said}\n", f"{run}")
    checks.check((folder / "w.svg").read_text() == "kept", "nothing is overwritten")
    checks.check(attn("view", "none.npz", cwd=folder).returncode == 66, "no such file")


def main():
    checks = Checks("view")
    with tempfile.TemporaryDirectory() as name:
        for test in (what_is_drawn, it_fits, colours_by_terminal, choices, axes_by_meaning,
                     refusals):
            test(checks, pathlib.Path(name))
    checks.finish()


main()
