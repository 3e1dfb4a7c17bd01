#!/usr/bin/env python3
"""The program is built so that a memory error that slips through ends it and does not steer it; and
it reads and writes what it is told to, nothing else.

What readelf says of the binary; then what strace says of a run: no other program is started, no
socket is opened, and nothing is written outside the folder that was asked for.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from support.attn import ATTN, Checks, attn, under_sanitizer  # noqa: E402


def readelf(flag):
    return subprocess.run(["readelf", "-W", flag, ATTN], capture_output=True, text=True,
                          check=True).stdout


def is_optimised():
    cache = pathlib.Path(ATTN).parent / "CMakeCache.txt"
    return cache.exists() and "CMAKE_BUILD_TYPE:STRING=Release" in cache.read_text()


def the_binary(checks):
    if under_sanitizer():
        print("the binary: not looked at, a sanitizer is in its place")
        return
    segments, dynamic, symbols = readelf("-l"), readelf("-d"), readelf("--dyn-syms")
    checks.check(re.search(r"Type:\s+DYN", readelf("-h")) and "PIE" in dynamic, "stands anywhere (PIE)")
    checks.check("GNU_RELRO" in segments and "BIND_NOW" in dynamic, "full RELRO")
    stack = re.search(r"GNU_STACK.*", segments)
    checks.check(stack and " RW " in stack[0] and "RWE" not in segments, f"no code on the stack: {stack}")
    loads = re.findall(r"LOAD .*", segments)
    checks.check(loads and not any(re.search(r"\bRWE|\bW E", line) for line in loads), f"W^X: {loads}")
    checks.check("__stack_chk_fail" in symbols, "stack protector")
    if is_optimised():
        checks.check(re.search(r"__(memcpy|snprintf|fprintf|read|vsnprintf)_chk", symbols), "FORTIFY")
    checks.check("RPATH" not in dynamic and "RUNPATH" not in dynamic, "no library paths of its own")
    checks.check("TEXTREL" not in dynamic, "no text relocations")
    for name in "system", "popen", "execve", "execvp", "posix_spawn", "gets", "tmpnam", \
            "mktemp", "connect", "socket", "getaddrinfo":
        checks.check(not re.search(rf" {name}(@|$)", symbols, re.M), f"{name} is not called")


def calls(folder, *args):
    command = ["strace", "-f", "-qq", "-o", "/dev/stderr", "-e",
               "trace=execve,socket,connect,creat,open,openat,rename,renameat2,link,linkat,unlink,"
               "mkdir,symlink,chmod", ATTN, *args]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return run, [line for line in run.stderr.splitlines() if "(" in line]


def the_calls(checks, folder):
    """No pickle, no plug-in, no shell, no network: whatever a file says."""
    if under_sanitizer() or not shutil.which("strace"):
        print("the calls: not looked at: no strace, or a sanitizer")
        return
    import pickle

    class Evil:
        def __reduce__(self):
            return pathlib.Path.touch, (folder / "canary",)

    (folder / "evil.npy").write_bytes(
        b"\x93NUMPY\x01\x00\x46\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
        .ljust(79) + b"\n" + pickle.dumps([Evil()]))
    np.savez(folder / "q.npz", Q=np.eye(3), K=np.eye(3), **{"../../up": np.eye(2)})
    (folder / "job.json").write_text(json.dumps(
        {"Q": "q.npz#Q", "K": "q.npz#K", "tokens": ["$(touch canary)", "`touch canary`", "|sh"]}))
    (folder / "load.json").write_text(json.dumps(
        {"Q": "http://localhost/q.npy", "K": "file:///etc/passwd"}))
    for args, code in [(["run", "job.json", "-o", "out.npz", "--view=page.html"], 0),
                       (["inspect", "evil.npy"], 65), (["run", "load.json"], 66),
                       (["convert", "q.npz", "-o", "again.npz"], 0),
                       (["svd", "q.npz#Q", "-o", "svd/"], 0),
                       (["run", "q.npz#Q; touch canary"], 66)]:
        run, made = calls(folder, *args)
        checks.check(run.returncode == code, f"{args}: {run.stderr[-500:]}")
        started = [line for line in made if "execve(" in line]
        checks.check(len(started) == 1, f"{args}: starts {started}")
        checks.check(not any("socket(" in line or "connect(" in line for line in made), f"{args}: network")
        written = [line for line in made if re.search(r"O_WRONLY|O_RDWR|rename|mkdir|link", line)
                   and "unlink" not in line]
        outside = [line for line in written if re.search(r'"(/(?!dev/)|[^"]*\.\./)', line)]
        checks.check(not outside, f"{args}: writes {outside}")
    checks.check(not (folder / "canary").exists(), "nothing was run")


ESCAPES = ["\x1b[31m", "\x1b]0;title\x07", "\r", "\x9b2J", "\u202e", "\x08", "\x7f"]


def the_messages(checks, folder):
    """What a file, a name or an argument says moves no cursor and forges no line on a terminal."""
    def quiet(run, what):
        text = run.stderr + run.stdout
        raw = [mark for mark in ESCAPES if mark.encode() in text and mark != "\x9b2J"]
        lines = run.stderr.decode("utf-8", "replace").splitlines()
        checks.check(not raw and b"\xc2\x9b" not in text, f"{what}: raw {raw} in {text[:300]}")
        checks.check(run.returncode in (0, 1, 2, 3, 65, 66, 73)
                     and all(line.startswith("attn: ") for line in lines), f"{what}: {lines}")

    for number, mark in enumerate(ESCAPES):
        name = f"x{mark}y"
        np.savez(folder / "names.npz", **{name: np.eye(2), "b": np.eye(2)})
        (folder / f"{name}.json").write_text("[1, }")
        (folder / f"{name}.csv").write_text("1,x\n")
        (folder / f"{name}.npy").write_bytes(b"\x93NUMPY\x01\x00")
        key = json.dumps({name: 1, "Q": [[1.0]], "K": [[1.0]]})
        for args, stdin in [
            (["run", "-"], key), (["inspect", f"{name}.json", f"{name}.csv", f"{name}.npy"], ""),
            (["inspect", "names.npz"], ""), (["convert", "names.npz"], ""),
            (["convert", "names.npz#gone"], ""), (["convert", f"names.npz#{name}z"], ""),
            (["compare", "names.npz", f"names.npz#{name}"], ""), (["view", "names.npz"], ""),
            (["view", "names.npz", "--of", name], ""), ([name], ""), (["run", f"--{name}"], ""),
            (["run", name], ""), (["run", "-o", f"{name}.xyz", "--q", "[[1]]"], ""),
            (["run", "-", "-o", f"{name}/x.npz"], '{"Q": [[1.0]], "K": [[1.0]]}'),
            (["run", "--q", "names.npz"], ""), (["run", "--scale", name, "--q", "[[1]]"], ""),
            (["run", "-"], json.dumps({"Q": {name: {}}, "K": [[1.0]]})),
            (["run", "-"], json.dumps({"Q": [[1.0]], "K": [[1.0]], "score": name})),
            (["run", "-"], json.dumps({"Q": name, "K": [[1.0]]})),
            (["run", "-"], json.dumps({"Q": [[1.0]], "K": [[1.0]], "outputs": [name]})),
            (["run", "-", "--view"], json.dumps({"Q": [[1.0]], "K": [[1.0]], "tokens": [name]})),
            (["run", "-", "--explain", "-", "-o", f"o{number}.npz"],
             json.dumps({"Q": [[1.0]], "K": [[1.0]], "tokens": [name]})),
            (["batch", f"{name}.json", "--out-dir", f"out{number}"], ""),
            (["batch", "-", "--base", f"{name}.json"], ""), (["batch", "--files-from", name], ""),
            (["merge", f"{name}.npy", "names.npz"], ""), (["svd", f"{name}.csv"], ""),
            (["examples", "run", name], ""), (["examples", "list", "--data", name], ""),
            (["random", name, "--seed", "1"], ""), (["completions", name], ""), (["help", name], ""),
            (["man", name], ""), (["convert", "b.npy", "--dtype", name], ""),
        ]:
            quiet(attn(*args, stdin=stdin, cwd=folder), f"{args} {stdin}")


if __name__ == "__main__":
    checks = Checks("hardened")
    the_binary(checks)
    for part in the_calls, the_messages:
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder))
    checks.finish()
