"""Runs attn-mpi on several ranks of one machine.

ATTN_MPI names the programs: "MPIRUN=ATTN_MPI". Without the variable, tests are skipped.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from mpi.mpi_jobs import ENVIRONMENT, command

NEEDS_MPI = pytest.mark.skipif("ATTN_MPI" not in os.environ, reason="ATTN_MPI is not set")
MPIRUN, PROGRAM = os.environ.get("ATTN_MPI", "=").split("=")


def launch(words, cwd, limit=60, env=None, text=""):
    """`text` is standard input."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        file.write(text)
        file.seek(0)
        return subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=limit,
                              check=False, env={**os.environ, **ENVIRONMENT, **(env or {})}, stdin=file)


def messages(run):
    return [line for line in run.stderr.splitlines() if line.startswith("attn")]


def mpi(folder, *words, ranks=3, lines=None, **options):
    """All ranks with the same words. `lines` is their standard input, as a file that each rank opens: mpirun
    does not forward much."""
    program = [PROGRAM]
    if lines is not None:
        (folder / "lines").write_text(lines, encoding="utf-8")
        program = ["sh", "-c", 'exec "$@" < lines', "sh", PROGRAM]
    return launch([*command(MPIRUN, ranks), *program, *words], folder, **options)


def with_script(folder, rank, script, *words, ranks=3, **options):
    """Runs a shell script before the program on one rank."""
    path = folder / "on_rank.sh"
    path.write_text(f'#!/bin/bash\nif [ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = {rank} ]; then\n{script}\nfi\n'
                    'exec "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return launch([*command(MPIRUN, ranks), path, PROGRAM, *words], folder, **options)


def start(folder, *words, ranks=3):
    # pylint: disable=consider-using-with
    return subprocess.Popen([*command(MPIRUN, ranks), PROGRAM, *words], cwd=folder, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **ENVIRONMENT})


def ranks_of(process):
    """The process identifiers of the ranks, in no order."""
    found, waiting = [], [process.pid]
    while waiting:
        children = Path(f"/proc/{waiting[0]}/task/{waiting[0]}/children")
        below = [int(pid) for pid in children.read_text().split()] if children.exists() else []
        waiting = waiting[1:] + below
        found += [pid for pid in below if Path(f"/proc/{pid}/comm").read_text().strip() == Path(PROGRAM).name[:15]]
    return found
