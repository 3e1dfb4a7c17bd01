"""Writes tests/golden/tensor-text: random tensors, and how PyTorch and JAX print them with random print options.

    build/peers-venv/bin/python tests/print/tensor_text_golden.py
"""

import importlib.metadata
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from peers.tensor_text import cases  # noqa: E402
from support.attn import ROOT  # noqa: E402
from support.random_tensors import write  # noqa: E402

SETS, TENSORS_OF_A_SET, LARGEST = {"torch": 16, "jax": 6}, 14, 40
FOLDER = ROOT / "tests/golden/tensor-text"


def golden_set(options, tensors, texts):
    """The first small tensors, and one that is summarised if there is one."""
    threshold = options.get("threshold", 1000)
    small = [name for name in texts["str"] if tensors[name].size <= LARGEST][:TENSORS_OF_A_SET]
    large = [name for name in texts["str"] if tensors[name].size > max(threshold, LARGEST)
             and len(texts["str"][name]) < 2000][:1]
    names = small + large
    return ({"options": options, **{form: {name: by_name[name] for name in names} for form, by_name in texts.items()}},
            {name: tensors[name] for name in names})


def main():
    FOLDER.mkdir(exist_ok=True)
    for style, count in SETS.items():
        sets = []
        for number, case in enumerate(cases(style, count)):
            chosen, tensors = golden_set(*case)
            write(FOLDER / f"{style}-{number}.safetensors", tensors)
            sets.append(chosen)
        (FOLDER / f"{style}.json").write_text(
            json.dumps({style: importlib.metadata.version(style), "sets": sets}, indent=1) + "\n")


if __name__ == "__main__":
    main()
