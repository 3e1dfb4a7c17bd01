"""Completions in shells: what bash, zsh and fish offer at each place of a command line."""

import os
import pty
import select
import shutil
import signal
import subprocess
import time

import pytest

from support.attn import ATTN, attn
from support.completing import SHELLS, offers
from support.help_texts import COMMANDS, SUBCOMMANDS, TOPICS, flags_in, text_of

FILES = {"e.html", "job.json", "model", "q.npy", "steps.json"}
EXAMPLES = {line.split()[0] for line in text_of("examples", "list").splitlines() if line.startswith("  ")}
PARTS = {name.split()[1] for name in SUBCOMMANDS if name.startswith("examples ")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    for name in FILES - {"model"}:
        (path / name).touch()
    (path / "model").mkdir()
    return path


@pytest.mark.parametrize("line, words", [
    ("attn ", {*COMMANDS, "help"}),
    ("attn com", {"compare", "completions"}),
    ("attn he", {"help"}),
    ("attn --", {"--help", "--version"}),
    ("attn --version=", set()),
    ("attn unknown ", set()),
    # Flags.
    ("attn run --comp", {"--compute"}),
    ("attn run job.json --comp", {"--compute"}),
    ("attn examples run --l", set()),
    ("attn examples run general-attention --ce", {"--cells"}),
    ("attn man run --", {"--all", "--help", "--quiet"}),
    ("attn help run --", set()),
    # Values of flags.
    ("attn run --score=co", {"cosine", "concat"}),
    ("attn run --score co", {"cosine", "concat"}),
    ("attn run --score dot,co", set()),
    ("attn run --layout=b", {"bhld", "blhd"}),
    ("attn run --layout b", {"bhld", "blhd"}),
    ("attn run --causal=", {"true", "false"}),
    ("attn run --causal=f", {"false"}),
    ("attn view --log=", {"true", "false"}),
    ("attn compare --baseline=", set()),
    ("attn run --scale ", set()),
    ("attn run --scale=", set()),
    ("attn random --seed ", set()),
    ("attn random --generator=t", {"torch"}),
    ("attn convert q.npy --format s", {"safetensors"}),
    ("attn examples run --color n", {"never"}),
    # Lists.
    ("attn run --outputs con", {"context"}),
    ("attn run --outputs weights,con", {"context"}),
    ("attn run --outputs weights,sca", {"scaled_scores"}),
    ("attn run --outputs=weights,sca", {"scaled_scores"}),
    ("attn compare --preset fa", {"fa2", "fa3"}),
    ("attn compare --preset fa2,fla", {"fla", "flashmla", "flashinfer"}),
    ("attn batch --statistics mean,ma", {"max"}),
    # Files as values of flags.
    ("attn run --q ", FILES),
    ("attn run --q=q", {"q.npy"}),
    ("attn run --explain=e.", {"e.html"}),
    ("attn run --view=", FILES),
    ("attn run --model m", {"model"}),
    ("attn random --for j", {"job.json"}),
    ("attn man --all m", {"model"}),
    ("attn examples --data m", {"model"}),
    ("attn examples run --data m", {"model"}),
    ("attn examples exercise general-attention -o ", FILES),
    ("attn examples exercise general-attention --output=e", {"e.html"}),
    # Arguments.
    ("attn help ", {*COMMANDS, *TOPICS}),
    ("attn man ", {*COMMANDS, *TOPICS}),
    ("attn man run ", set()),
    ("attn completions ", {"bash", "zsh", "fish"}),
    ("attn completions bash ", set()),
    ("attn run ", FILES),
    ("attn run --layout bhld ", FILES),
    ("attn run --layout=bhld --causal ", FILES),
    ("attn run --view e.html j", {"job.json"}),
    ("attn mask job.json ", set()),
    ("attn compare a.npy q", {"q.npy"}),
    ("attn inspect a.npy b.npy q", {"q.npy"}),
    ("attn view run --l", {"--linear", "--log", "--layer"}),
    ("attn random randi", {"randint"}),
    ("attn random --seed 3 Lin", {"Linear"}),
    ("attn random ste", {"steps.json"}),
    ("attn random --seed 3 ste", {"steps.json"}),
    ("attn random randint ", set()),
    # Subcommands and their arguments.
    ("attn model ", {"inspect"}),
    ("attn model inspect ", FILES),
    ("attn model inspect --layer 3 m", {"model"}),
    ("attn examples ", PARTS),
    ("attn examples --data run ", PARTS),
    *((f"attn examples {part} ", EXAMPLES) for part in ("run", "copy", "exercise", "check")),
    ("attn examples run general-attention enc", {"encoder-decoder"}),
    ("attn examples check general-attention enc", {"encoder-decoder"}),
    ("attn examples exercise enc", {"encoder-decoder"}),
    ("attn examples exercise general-attention ", set()),
    ("attn examples copy --force general-attention ", FILES),
    ("attn examples copy general-attention mine ", set()),
], ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("shell", SHELLS)
def test_offers_exactly(folder, shell, line, words):
    assert offers(shell, line, folder) == words


@pytest.mark.parametrize("line, words", [
    ("attn run --score ", {"dot", "cosine"}),
    ("attn run --outputs ", {"scores", "weights", "logsumexp", "Q"}),
    ("attn random ", {"rand", "randint", "normal", *FILES}),
], ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("shell", SHELLS)
def test_offers_at_least(folder, shell, line, words):
    assert words <= offers(shell, line, folder)


@pytest.mark.parametrize("name", [*COMMANDS, *SUBCOMMANDS])
@pytest.mark.parametrize("shell", SHELLS)
def test_offers_the_flags_of_each_command(folder, shell, name):
    flags = flags_in(text_of(*name.split(), "--help")) | flags_in(text_of("help", name.split()[0]))
    # Those of a job are not in these texts.
    others = flags_in(text_of("help", "run")) if name in ("compare", "sensitivity") else set()
    assert flags <= offers(shell, f"attn {name} --", folder) <= flags | others


@pytest.mark.parametrize("shell", SHELLS)
def test_offers_the_same_outputs_to_view_as_to_run(folder, shell):
    assert offers(shell, "attn view --of ", folder) == offers(shell, "attn run --outputs ", folder)


def test_offered_outputs_exist(folder):
    for name in offers("bash", "attn run --outputs ", folder):
        run = attn("run", "--q", "[[1]]", "--k", "[[1]]", "--outputs", name, "-q")
        assert b"unknown output" not in run.stderr, name


@pytest.mark.parametrize("shell", SHELLS)
def test_offers_files_in_other_folders(folder, tmp_path, shell):
    assert offers(shell, f"attn run {folder}/j", tmp_path) & {"job.json", f"{folder}/job.json"}


@pytest.mark.parametrize("shell, check", [("zsh", "-n"), ("fish", "--no-execute")])
def test_scripts_of_other_shells_are_valid(shell, check):
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
    ("attn run --outputs weights,logs", "weights,logsumexp"), ("attn examples run genera", "general-attention"),
    ("attn run --layout=bh", "--layout=bhld"), ("attn examples run --ce", "--cells"),
    ("attn random --seed 3 Linea", "Linear")],
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
