"""Runs every command with every fault, or with a sample of the faults."""

import collections
import concurrent.futures
import os
import pathlib
import sys
import tempfile

from commands import COMMANDS, write_inputs
from injection import FAULTS, MEMORY, Bench

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import attn  # noqa: E402

Tally = collections.namedtuple("Tally", "runs injected problems")


def calls(count, every, start):
    """Every `every`-th of the calls 1 to `count`, at least one; `start` determines the first."""
    return range(1 + start % min(every, count), count + 1, every) if count else ()


def sweep_one(number, inputs, every, every_allocation):
    """Makes every N-th call of each kind fail in turn, in each possible way, in one command."""
    bench = Bench(COMMANDS[number], inputs)
    runs, injected, problems = 0, 0, []
    for kind, actions in FAULTS.items():
        for at, action in enumerate(actions):
            step = every_allocation if kind == "alloc" else every
            for call in calls(bench.counts[kind], step, 7 * number + 3 * at):
                count, found = bench.try_fault(kind, action, call)
                runs += 1
                injected += count
                problems += found
    return Tally(runs, injected, problems)


def sweep_last_allocations(number, inputs, most):
    """Makes each of the last `most` allocations of one command fail in turn."""
    bench = Bench(COMMANDS[number], inputs)
    count = bench.counts["alloc"]
    tried = [bench.try_fault("alloc", "ENOMEM", call) for call in range(max(1, count - most), count + 1)]
    return Tally(len(tried), sum(injected for injected, _ in tried),
                 [problem for _, found in tried for problem in found])


def sweep(every, every_allocation, chosen="", last_allocations=0):
    """Sweeps all commands whose name contains `chosen`, in parallel. With `last_allocations`, only that many
    last allocations of each fail."""
    def checked(*args):
        run = attn(*args, cwd=inputs)
        assert run.returncode == 0, run

    sweep_one_command, how = (sweep_last_allocations, [last_allocations]) if last_allocations \
        else (sweep_one, [every, every_allocation])
    with tempfile.TemporaryDirectory(prefix="attn-faults-", dir=MEMORY) as name:
        inputs = pathlib.Path(name)
        write_inputs(inputs, checked)
        with concurrent.futures.ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            parts = [pool.submit(sweep_one_command, number, inputs, *how)
                     for number, command in enumerate(COMMANDS) if chosen in command.name]
            parts = [part.result() for part in parts]
    return Tally(sum(part.runs for part in parts), sum(part.injected for part in parts),
                 [problem for part in parts for problem in part.problems])
