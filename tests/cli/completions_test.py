"""Completions in shells: what bash, zsh and fish offer at each place of a command line."""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time

import pytest

from support.attn import ATTN, ROOT, attn
from support.completing import SHELLS, offers
from support.help_texts import COMMANDS, EXAMPLES_PARTS, TOPICS, flags_in, text_of


def complete(line):
    """The words that bash offers at the end of a command line."""
    words = line.split(" ")
    script = (f'source <("{ATTN}" completions bash)\nCOMP_WORDS=({" ".join(map(repr, words))})\n'
              f"COMP_CWORD={len(words) - 1}\n_attn\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"")
    path = f"{os.path.dirname(ATTN)}:{os.environ['PATH']}"
    run = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, cwd=ROOT,
                         env={**os.environ, "PATH": path})
    assert (run.returncode, run.stderr) == (0, "")
    return set(run.stdout.split())


@pytest.mark.parametrize("line, words", [
    ("attn ", {*COMMANDS, "help", "--help", "--version"}),
    ("attn com", {"compare", "completions"}),
    ("attn run --comp", {"--compute"}),
    ("attn run --score = co", {"cosine", "concat"}),
    ("attn completions ", {"bash", "zsh", "fish"}),
    ("attn help ", {*COMMANDS, *TOPICS}),
    ("attn man ", {*COMMANDS, *TOPICS}),
    ("attn run --outputs con", {"context"}),
    ("attn run --outputs weights,con", {"weights,context"}),
    ("attn examples run general-attention enc", {"encoder-decoder"}),
    ("attn examples check general-attention enc", {"encoder-decoder"}),
    ("attn run --causal =", {"true", "false"}),
    ("attn run --causal = f", {"false"}),
    ("attn view --log =", {"true", "false"}),
    ("attn run --scale ", set()),
    ("attn run --scale =", set()),
    ("attn random --seed ", set()),
    ("attn random randi", {"randint"}),
], ids=lambda value: value if isinstance(value, str) else "")
def test_bash_offers_exactly(line, words):
    assert complete(line) == words


@pytest.mark.parametrize("line, words", [
    ("attn run --score ", {"dot", "cosine"}),
    ("attn run --score =", {"dot", "cosine"}),
    ("attn convert a.npy --format s", {"safetensors"}),
    ("attn examples ", set(EXAMPLES_PARTS)),
    ("attn run --outputs ", {"scores", "weights", "logsumexp", "Q"}),
    ("attn random ", {"rand", "randint", "normal"}),
    ("attn run --q ", {"README.md"}),
    ("attn run --view =", {"README.md"}),
], ids=lambda value: value if isinstance(value, str) else "")
def test_bash_offers_at_least(line, words):
    assert words <= complete(line)


@pytest.mark.parametrize("name", COMMANDS)
def test_bash_offers_all_flags(name):
    assert flags_in(text_of("help", name)) <= complete(f"attn {name} --")


def test_bash_offers_no_list_for_a_single_word():
    assert complete("attn run --score dot,co") != {"dot,cosine"}


def test_bash_offers_the_same_outputs_to_view_as_to_run():
    assert complete("attn view --of ") == complete("attn run --outputs ")


def test_outputs_that_bash_offers_exist():
    for name in complete("attn run --outputs "):
        run = attn("run", "--q", "[[1]]", "--k", "[[1]]", "--outputs", name, "-q")
        assert b"unknown output" not in run.stderr, name


@pytest.mark.parametrize("part", ["run", "copy", "check"])
def test_bash_offers_the_examples(part):
    assert complete(f"attn examples {part} ") == {line.split()[0] for line in text_of("examples", "list").splitlines()
                                                  if line.startswith("  ")}


@pytest.mark.parametrize("before", ["run", "examples run --data"])
def test_bash_offers_files(tmp_path, before):
    (tmp_path / "README.md").touch()
    assert complete(f"attn {before} {tmp_path}/READ") == {f"{tmp_path}/README.md"}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("shell, shown", [("zsh", r"\*--{}(=-?)?\["), ("fish", "-l {} ")])
def test_completions_of_other_shells_have_all_flags(shell, shown, name):
    text = text_of("completions", shell)
    flags = flags_in(text_of("help", name))
    assert [flag for flag in flags if not re.search(shown.format(flag[2:]), text)] == []


@pytest.mark.parametrize("shell, check", [("zsh", "-n"), ("fish", "--no-execute")])
def test_completions_of_other_shells_are_valid(shell, check):
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    run = subprocess.run([shell, check], input=text_of("completions", shell), capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


def test_unknown_shell_is_refused():
    assert attn("completions", "tcsh").returncode == 2


# Completions in interactive shells.


def typed(shell, setup, line, expected):
    """Types `line` and two tabs into a shell on a terminal, and returns whether `expected` appears."""
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


@pytest.mark.parametrize("line, expected", [
    ("attn comple", "completions"), ("attn run --softmax-a", "--softmax-axis"), ("attn run --score ", "additive"),
    ("attn help ex", "exit-codes"), ("attn man ex", "exit-codes"), ("attn run --outputs logs", "logsumexp"),
    ("attn run --outputs weights,logs", "weights,logsumexp"), ("attn examples run genera", "general-attention")],
    ids=lambda value: value.strip())
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_tab_completes(tmp_path, shell, line, expected):
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    (tmp_path / "_attn").write_text(text_of("completions", "zsh"))
    command, setup = {
        "bash": (["bash", "--norc", "--noprofile", "-i"], "source <(attn completions bash)"),
        "zsh": (["zsh", "-f", "-i"], f"fpath=({tmp_path} $fpath); autoload -U compinit; "
                                     f"compinit -u -d {tmp_path}/dump")}[shell]
    assert typed(command, setup, line, expected)


# What each shell offers.


@pytest.mark.parametrize("line, words", [
    ("attn run --layout=b", {"bhld", "blhd"}),
    ("attn run --layout b", {"bhld", "blhd"}),
    ("attn run --q=q", {"q.npy"}),
    ("attn run --explain=e.", {"e.html"}),
    ("attn random --generator=t", {"torch"}),
    ("attn run --outputs weights,sca", {"scaled_scores"}),
    ("attn run --outputs=weights,sca", {"scaled_scores"}),
    ("attn compare --preset fa", {"fa2", "fa3"}),
    ("attn compare --preset fa2,fla", {"fla", "flashmla", "flashinfer"}),
    ("attn batch --statistics mean,ma", {"max"}),
], ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("shell", SHELLS)
def test_shell_offers_exactly(tmp_path, shell, line, words):
    for name in ("q.npy", "e.html", "job.json"):
        (tmp_path / name).touch()
    assert offers(shell, line, tmp_path) == words
