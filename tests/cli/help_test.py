#!/usr/bin/env python3
"""Help texts, manual pages and completions: complete, and every example in them runs."""

import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from attn import ATTN, ROOT, Checks, attn  # noqa: E402

checks = Checks("help")


def text_of(*args):
    run = attn(*args)
    checks.check(run.returncode == 0 and run.stderr == b"", f"attn {args}: {run}")
    return run.stdout.decode()


def commands():
    """The names that `attn help` lists."""
    listed = text_of("help").partition("Commands:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  (\w+) ", listed, re.MULTILINE)


def topics():
    """The names of the topics that `attn help` lists."""
    listed = text_of("help").partition("Topics:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  ([\w-]+) ", listed, re.MULTILINE)


def flags_in(help_text):
    lines = re.findall(r"^  (?:-\w, |    )(--.*)", help_text, re.MULTILINE)
    return {flag for line in lines for flag in re.findall(r"--[\w-]+", line.split("  ")[0])}


def examples_in(help_text):
    """The command lines below "Example:"."""
    block = help_text.partition("Example:\n")[2].partition("\n\n")[0]
    return [line.strip() for line in block.splitlines() if line.strip()]


def make_files(folder):
    """What the examples name."""
    rng = np.random.default_rng(3)
    arrays = {name: rng.standard_normal((8, 8)) for name in ["Q", "K", "V", "W_Q", "W_K", "x"]}
    for name, array in [("q", "Q"), ("k", "K"), ("v", "V"), ("k1", "K"), ("v1", "V"),
                        ("k2", "K"), ("v2", "V"), ("queries", "Q"), ("keys", "K"),
                        ("values", "V"), ("x", "x"), ("embeddings", "x")]:
        np.save(folder / f"{name}.npy", arrays[array])
    np.savez(folder / "model.npz", W_Q=arrays["W_Q"], W_K=arrays["W_K"])
    np.savez(folder / "weights.npz", W_Q=arrays["W_Q"])
    for name in ["embeddings.csv", "ratings.csv"]:
        np.savetxt(folder / name, arrays["x"], delimiter=",")
    job = '{"Q": [[1, 0], [0, 1]], "K": [[1, 2], [3, 4]]}'
    (folder / "jobs").mkdir()
    for name in ["job.json", "jobs/a.json", "jobs/b.json"]:
        (folder / name).write_text(job)
    (folder / "common.json").write_text('{"scale": "none"}')
    (folder / "jobs.ndjson").write_text((job + "\n") * 2)
    for name in ["expected", "before", "after", "result"]:
        attn("run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--heads", "4", "-o", f"{name}.npz",
             cwd=folder)
    for part in ["1", "2"]:
        attn("run", "--q", "q.npy", "--k", f"k{part}.npy", "--v", f"v{part}.npy", "--outputs",
             "logsumexp,head_context", "-o", f"{part}.npz", cwd=folder)
    np.save(folder / "mine.npy", np.load(folder / "result.npz")["weights"])


def test_examples_run(names):
    """Those of one command one after another, in a folder of their own."""
    env = {**os.environ, "ATTN_DATA": str(ROOT / "data" / "examples")}
    parts = [("examples", part, "--help") for part in ("list", "run", "check")]
    for name in [(), *(("help", name) for name in names), *parts]:
        examples = examples_in(text_of(*(name or ["help"])))
        checks.check(examples, f"attn help {name}: no example")
        with tempfile.TemporaryDirectory() as path:
            folder = pathlib.Path(path)
            make_files(folder)
            (folder / "bin").mkdir()
            (folder / "bin" / "attn").symlink_to(ATTN)
            env["PATH"] = f"{folder}/bin:/usr/bin:/bin"
            for example in examples:
                for target in re.findall(r"(?:-o|--view)[ =](?:\w+=)?([\w./]+)", example):
                    (folder / target).unlink(missing_ok=True)
                for target in re.findall(r"--out-dir (\S+)", example):
                    if "--resume" not in example:
                        shutil.rmtree(folder / target, ignore_errors=True)
                run = subprocess.run(["bash", "-c", example], cwd=folder, env=env, timeout=60,
                                     capture_output=True, stdin=subprocess.DEVNULL)
                checks.check(run.returncode == 0, f"$ {example}: exit {run.returncode}, {run.stderr}")


def test_help(names, about):
    checks.check({"shapes", "masks", "exit-codes", "environment", "limits", "manifest"} <= set(about),
                 f"topics: {about}")
    checks.check(not set(names) & set(about), "no topic stands in a command's way")
    for name in [None, *names, *about]:
        text = text_of("help", *([name] if name else []))
        checks.check(name not in names or text == text_of(name, "--help"), f"attn {name} --help")
        wide = [line for line in text.splitlines() if len(line) > (76 if name in about else 80)]
        checks.check(not wide, f"{name}: too wide: {wide}")
        checks.check("\n\n\n" not in text and not text.endswith("\n\n") and text[0] != "\n",
                     f"{name}: one empty line at a time")
        checks.check(not re.search(r" $", text, re.MULTILINE), f"{name}: spaces at a line's end")
    run = attn("help", "rum")
    checks.check(run.returncode == 2 and b"did you mean 'run'" in run.stderr, f"{run}")
    run = attn("help", "mask")
    checks.check(run.returncode == 2 and b"did you mean 'masks'" in run.stderr, f"{run}")


def test_empty_values(names):
    """`--base ''`, as a script writes whose variable is not set, is not taken for no --base."""
    count = 0
    for name in names:
        text = text_of("help", name)
        flags = re.findall(r"^  (?:-\w, |    )(--[\w-]+) [A-Z]", text, re.MULTILINE)
        for flag in flags:
            run = attn(name, flag, "")
            checks.check(run.returncode == 2 and run.stderr.startswith(f"attn: {flag}: ".encode())
                         and run.stderr.count(b"\n") == 1, f"{name} {flag} '': {run}")
            count += 1
    checks.check(count > 100, f"only {count} flags take a value")


def test_topics_are_true():
    """What the program can say by itself, it says the same way."""
    from_topic = set(re.findall(r"^  (\d+)", text_of("help", "exit-codes"), re.MULTILINE))
    header = (ROOT / "src/attn/base/error.h").read_text()
    declared = set(re.findall(r"= (\d+),", header.partition("enum class ErrorKind")[2].partition("};")[0]))
    checks.check(declared <= from_topic and len(declared) > 5, f"exit codes {declared - from_topic}")
    read = set()
    for source in (ROOT / "src").rglob("*.cpp"):
        read |= set(re.findall(r'(?:getenv|environment)\("([A-Z_]+)"\)', source.read_text()))
    listed = set(re.findall(r"^  ([A-Z_]+) ", text_of("help", "environment"), re.MULTILINE))
    checks.check(read == listed and read, f"variables: {read ^ listed}")
    rows = re.findall(r"^  (\w+) +\(", text_of("help", "outputs"), re.MULTILINE)
    run = attn("run", "--q", "[[1.0]]", "--k", "[[1.0]]", "--outputs", "nothing-like-it")
    names = re.findall(r"\w+", run.stderr.decode().rpartition("there are ")[2])
    checks.check(rows == names and len(rows) > 15, f"outputs: {set(rows) ^ set(names)}")
    for said in text_of("help", "numbers"), (ROOT / "README.md").read_text():
        checks.check("as NumPy 1.24 prints" in said, "whose text arrays have")
    large = attn("convert", "-", "--repr", stdin=str([[0] * 50] * 40)).stdout.decode()
    checks.check("..., " in large and "shape=" not in large, f"and have it: {large}")
    size = re.search(r"as (\w+); values", " ".join(text_of("help", "view").split()))[1]
    units = re.search(r"a (\w), (\w), (\w) or (\w),", text_of("help", "limits")).groups()
    checks.check(size[-1] in units and size[:-1].isdigit(), f"--max-html-bytes {size}: {units}")


def plain(page):
    """A page as groff shows it, without its bold and underlining."""
    run = subprocess.run(["groff", "-man", "-Tascii", "-P-c", "-ww"], input=page.encode(),
                         capture_output=True)
    checks.check(run.returncode == 0 and run.stderr == b"", f"groff: {run.stderr}")
    return re.sub(".\b", "", run.stdout.decode())


def test_manual_pages(names, about):
    """Every flag of the help text stands in the page; groff, where there is one, finds no fault."""
    with tempfile.TemporaryDirectory() as folder:
        checks.check(attn("man", "--all", folder).returncode == 0, "man --all")
        written = sorted(path.name for path in pathlib.Path(folder).glob("man*/*"))
        checks.check(written == sorted(["attn.1", *(f"attn-{name}.1" for name in names),
                                        *(f"attn-{name}.7" for name in about)]), f"{written}")
        for name in about:
            page = text_of("man", name)
            checks.check((pathlib.Path(folder) / "man7" / f"attn-{name}.7").read_text() == page, name)
            if shutil.which("groff"):
                shown = plain(page)
                lost = [line for line in text_of("help", name).splitlines()
                        if line.strip() not in shown and line != "Example:"]
                checks.check(not lost, f"man {name}: {lost}")
        for name in names:
            page = text_of("man", name)
            usage = re.search(r"^Usage: (.*)$", text_of("help", name), re.MULTILINE)[1]
            synopsis = re.search(r"^\.SH SYNOPSIS\n(.*)$", page, re.MULTILINE)[1]
            checks.check(re.sub(r"\\f[BIR]", "", synopsis).replace("\\-", "-") == usage, f"{name}: {synopsis}")
            checks.check((pathlib.Path(folder) / "man1" / f"attn-{name}.1").read_text() == page, f"{name}.1")
            flags = flags_in(text_of("help", name))
            source = page.replace("\\-", "-")
            missing = [flag for flag in flags if f"\\fB{flag}\\fR" not in source]
            checks.check(flags and not missing, f"man {name}: without {missing}")
            if shutil.which("groff"):
                shown = plain(page)
                checks.check(all(flag in shown for flag in flags), f"man {name}: flags are shown")
    main_page = text_of("man").replace("\\-", "-")
    checks.check(all(f"attn-{name}" in main_page for name in [*names, *about]), "attn(1) names all pages")
    for args, says in ((["man", "rum"], "did you mean 'run'?"),
                       (["man", "foo"], "'attn help' names commands and topics"),
                       (["examples", "lst"], "did you mean 'list'?"),
                       (["batch", "--workers", "3"], "unknown flag '--workers'; see"),
                       (["batch", "--threads", "3"], "unknown flag '--threads'; -j (--jobs) says"),
                       (["run", "x", "-o", "wts=w.npy"], "'attn help outputs' names them"),
                       (["run", "x", "-o", "wieghts=w.npy"], "did you mean 'weights'?"),
                       (["run", "x", "--max-memory", "8q"], "K, M, G and T are powers of 1024"),
                       (["run", "--cuasal"], "did you mean '--causal'?")):
        run = attn(*args)
        checks.check(run.returncode == 2 and says in run.stderr.decode(), f"{args}: {run}")


def complete(line):
    """What bash offers at the end of a command line."""
    words = line.split(" ")
    script = (f'source <("{ATTN}" completions bash)\nCOMP_WORDS=({" ".join(map(repr, words))})\n'
              f"COMP_CWORD={len(words) - 1}\n_attn\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"")
    path = f"{os.path.dirname(ATTN)}:{os.environ['PATH']}"
    run = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60,
                         env={**os.environ, "PATH": path})
    checks.check(run.returncode == 0 and run.stderr == "", f"bash: {line}: {run}")
    return set(run.stdout.split())


def test_completions(names, about):
    checks.check(complete("attn ") == {*names, "help", "--help", "--version"}, "commands")
    checks.check(complete("attn com") == {"compare", "completions"}, "commands by prefix")
    for name in names:
        flags = flags_in(text_of("help", name))
        checks.check(flags <= complete(f"attn {name} --"), f"flags of {name}")
    checks.check(complete("attn run --comp") == {"--compute"}, "a flag by prefix")
    checks.check({"dot", "cosine"} <= complete("attn run --score "), "words of a job's key")
    checks.check({"dot", "cosine"} <= complete("attn run --score ="), "the same behind =")
    checks.check(complete("attn run --score = co") == {"cosine", "concat"}, "and begun")
    checks.check("safetensors" in complete("attn convert a.npy --format s"), "words of a format")
    checks.check(complete("attn completions ") == {"bash", "zsh", "fish"}, "words of an argument")
    checks.check({"list", "run", "check"} <= complete("attn examples "), "subcommands")
    for command in "help", "man":
        checks.check(complete(f"attn {command} ") == {*names, *about}, f"{command} on a command or a topic")
    outputs = complete("attn run --outputs ")
    checks.check({"scores", "weights", "logsumexp", "Q"} <= outputs == complete("attn view --of "), f"{outputs}")
    for name in outputs:
        run = attn("run", "--q", "[[1]]", "--k", "[[1]]", "--outputs", name, "-q")
        checks.check(b"expected names of outputs" not in run.stderr, f"--outputs {name}: {run}")
    checks.check(complete("attn run --outputs con") == {"context"}, "an output by prefix")
    checks.check(complete("attn run --outputs weights,con") == {"weights,context"}, "the second of a list")
    checks.check(complete("attn run --score dot,co") != {"dot,cosine"}, "one word is no list")
    examples = {line.split()[0] for line in text_of("examples", "list").splitlines()}
    for part in "run", "check":
        checks.check(complete(f"attn examples {part} ") == examples, f"examples {part}")
        checks.check(complete(f"attn examples {part} general-attention enc") ==
                     {"encoder-decoder"}, f"examples {part}, the second")
    with tempfile.TemporaryDirectory() as folder:  # whose path has no space to quote
        (pathlib.Path(folder) / "README.md").touch()
        for before in "run", "examples run --data":
            checks.check(complete(f"attn {before} {folder}/READ") == {f"{folder}/README.md"}, f"{before}: files")
    for shell, check in [("zsh", ["-n"]), ("fish", ["--no-execute"])]:
        text = text_of("completions", shell)
        for name in names:
            for flag in flags_in(text_of("help", name)):
                shown = f"-l {flag[2:]} " if shell == "fish" else f"*{flag}["
                checks.check(shown in text, f"{shell}: {name} {flag}")
        if shutil.which(shell):
            run = subprocess.run([shell, *check], input=text, capture_output=True, text=True)
            checks.check(run.returncode == 0 and run.stderr == "", f"{shell}: {run.stderr}")
    checks.check(attn("completions", "tcsh").returncode == 2, "a shell that there is none for")


def typed(shell, setup, line, expected):
    """Types `line` and Tab, twice, into a shell on a terminal: is `expected` offered?"""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(PATH=f"{os.path.dirname(ATTN)}:/usr/bin:/bin", TERM="dumb", PS1="$ ")
        os.execvp(shell[0], shell)
    os.write(terminal, f"{setup}; echo 'ready'-now\n".encode())
    seen, step, deadline = "", 0, time.monotonic() + 30
    while time.monotonic() < deadline and not (step == 2 and expected in seen):
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 65536).decode(errors="replace")
        if step == 0 and "ready-now" in seen:
            seen, step = "", 1
            os.write(terminal, f"{line}\t\t".encode())
        elif step == 1 and line in seen.replace("\r", ""):
            step = 2
    os.close(terminal)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return expected in seen


def test_shells():
    """Completions as people meet them: a terminal, the Tab key."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "_attn").write_text(text_of("completions", "zsh"))
        bash = ["bash", "--norc", "--noprofile", "-i"], "source <(attn completions bash)"
        zsh = ["zsh", "-f", "-i"], (f"fpath=({folder} $fpath); autoload -U compinit; "
                                    f"compinit -u -d {folder}/dump")
        for shell, setup in (bash, zsh):
            if not shutil.which(shell[0]):
                print(f"skipped: there is no {shell[0]}")
                continue
            for line, expected in (("attn comple", "completions"), ("attn run --softmax-a", "--softmax-axis"),
                                   ("attn run --score ", "additive"), ("attn help ex", "exit-codes"),
                                   ("attn man ex", "exit-codes"), ("attn run --outputs logs", "logsumexp"),
                                   ("attn run --outputs weights,logs", "weights,logsumexp"),
                                   ("attn examples run genera", "general-attention")):
                checks.check(typed(shell, setup, line, expected), f"{shell[0]}: {line} Tab")


def main():
    names = commands()
    checks.check({"run", "convert", "compare", "man", "completions"} <= set(names), f"{names}")
    about = topics()
    test_help(names, about)
    test_empty_values(names)
    test_topics_are_true()
    test_examples_run([*names, *about])
    test_manual_pages(names, about)
    test_completions(names, about)
    test_shells()
    checks.finish()


main()
