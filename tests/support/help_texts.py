"""What the help of attn names: commands, topics, flags."""

import functools
import re

from support.attn import attn


@functools.cache
def text_of(*arguments):
    """The output of `attn ARGUMENTS`, which must succeed."""
    run = attn(*arguments)
    assert (run.returncode, run.stderr) == (0, b"")
    return run.stdout.decode()


def listed(title, *command):
    """The names that `attn help COMMAND` lists below a title."""
    block = text_of("help", *command).partition(f"\n{title}:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  ([\w-]+) ", block, re.MULTILINE)


COMMANDS, TOPICS = listed("Commands"), listed("Topics")
SUBCOMMANDS = [f"{name} {part}" for name in COMMANDS for part in listed("Subcommands", name)]


def flags_in(help_text):
    lines = re.findall(r"^  (?:-\w, |    )(--.*)", help_text, re.MULTILINE)
    return {flag for line in lines for flag in re.findall(r"--[\w-]+", line.split("  ")[0])}
