"""Asks bash, zsh and fish what they offer at the end of a command line."""

import atexit
import functools
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from support.attn import ATTN
from support.help_texts import text_of

ENVIRONMENT = {**os.environ, "PATH": f"{os.path.dirname(ATTN)}:/usr/bin:/bin", "TERM": "dumb"}

# Completion writes the matches to the file `offered` instead of showing them. (Calls with -O, -A or -D are questions
# of zsh's own functions.)
ZSH_SETUP = """
fpath=($FOLDER $fpath)
autoload -U compinit
compinit -u -d $FOLDER/dump
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]]; then
    builtin compadd "$@"
    return
  fi
  local -a matches
  builtin compadd -A matches "$@"
  (($#matches)) && print -rl -- $matches >> $FOLDER/offered
  return $(($#matches == 0))
}
finish() { print -r -- END >> $FOLDER/offered }
offer() {
  comppostfuncs=(finish)
  zle complete-word
  zle kill-whole-line
}
zle -N offer
bindkey '^I' offer
print -r -- END >> $FOLDER/offered
"""


class Zsh:
    """An interactive zsh with the completions of attn."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, self.folder)
        (self.folder / "_attn").write_text(text_of("completions", "zsh"))
        (self.folder / "setup").write_text(ZSH_SETUP)
        child, self.terminal = pty.fork()
        if child == 0:
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**ENVIRONMENT, "FOLDER": str(self.folder)})
        atexit.register(os.waitpid, child, 0)
        atexit.register(os.kill, child, signal.SIGKILL)
        self.answer_to("source $FOLDER/setup\n")

    def answer_to(self, typed):
        """The lines before END in the file `offered`."""
        offered, deadline = self.folder / "offered", time.monotonic() + 30
        offered.write_text("")
        os.write(self.terminal, typed.encode())
        while time.monotonic() < deadline:
            if select.select([self.terminal], [], [], 0.02)[0]:
                os.read(self.terminal, 65536)
            lines = offered.read_text().splitlines()
            if lines[-1:] == ["END"]:
                return lines[:-1]
        raise TimeoutError(f"zsh did not complete {typed!r}")

    def offers(self, line, folder):
        self.answer_to(f"cd {folder}; print END >> $FOLDER/offered\n")
        return self.answer_to(f"{line}\t")


@functools.cache
def zsh():
    return Zsh()


def printed(command, folder):
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder, env=ENVIRONMENT)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.splitlines()


def bash_offers(line, folder):
    words = [part for word in line.split(" ") for part in re.split("(=)", word) if part or "=" not in word]
    return printed(["bash", "-c", f"source <(attn completions bash)\nCOMP_WORDS=({' '.join(map(repr, words))})\n"
                                  f"COMP_CWORD={len(words) - 1}\n_attn\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""], folder)


def fish_offers(line, folder):
    """Each without its description."""
    lines = printed(["fish", "--no-config", "-c", f'attn completions fish | source\ncomplete -C "{line}"'], folder)
    return [offered.split("\t")[0] for offered in lines]


OFFERS = {"bash": bash_offers, "zsh": lambda line, folder: zsh().offers(line, folder), "fish": fish_offers}
SHELLS = [shell for shell in OFFERS if shutil.which(shell)]


def offers(shell, line, folder):
    """What a shell offers at the end of `line` in a folder: words, without the earlier part of --flag=A,B and the last
    / or =. Of zsh, without the flags that it offers where no argument can follow."""
    before = re.match("(--[^=]*=)?(.*,)?", line.split(" ")[-1])
    words = {offered.removeprefix(before[1] or "").removeprefix(before[2] or "").rstrip("/=")
             for offered in OFFERS[shell](line, folder) if offered}
    only_flags = line.endswith(" ") and all(word.startswith("-") for word in words)
    return set() if shell == "zsh" and only_flags else words
