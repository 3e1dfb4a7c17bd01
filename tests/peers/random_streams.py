"""Compares arrays that a library drew with those that `attn random` draws in the same steps."""

import collections
import json
import pathlib
import tempfile

import numpy as np

from support.attn import attn
from support.torch_steps import differences


def compare(runs, drawn, kind_of):
    """The numbers of arrays and of equal arrays by kind, and a line for each that differs. `runs` are generator,
    a title and steps; `drawn` returns the library's arrays by name; `kind_of` is the kind of a generator and a name."""
    counts = collections.defaultdict(lambda: [0, 0])
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        for generator, title, steps in runs:
            (path / "steps.json").write_text(json.dumps(steps))
            run = attn("random", "steps.json", "--generator", generator, "--seed", 0, "-o", "drawn.npz", "--force",
                       cwd=path)
            if run.returncode != 0:
                raise SystemExit(run.stderr.decode())
            with np.load(path / "drawn.npz") as archive:
                found = dict(archive)
            expected = drawn(steps, generator)
            unequal = set(differences(expected, found))
            lines += [f"{generator}, {title}: {name}" for name in unequal]
            for name in expected:
                kind = kind_of(generator, name)
                counts[kind][0] += 1
                counts[kind][1] += name not in unequal
    return counts, lines
