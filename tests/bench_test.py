"""scripts/bench/peers: the description of the machine and the table of targets."""

import sys

import pytest

from support.attn import ROOT

sys.path.append(str(ROOT / "scripts" / "bench" / "measure"))
import gates  # noqa: E402
import main  # noqa: E402
sys.path.pop()  # its peers.py would hide tests/peers

ERRORS = [{"attn": (1e-8, 1e-7), "torch": (2e-8, 2e-7)}]


def row(tokens, peak):
    problem = {"H": 8, "G": 8, "L": tokens, "S": tokens, "D": 64, "dtype": "float32", "causal": False}
    return {"name": f"f32 H8:8 L{tokens} S{tokens} D64 full", "problem": problem, "fraction": [0.9],
            "peak": peak, "times": {"torch": [2.0], "ort-mha": [2.0], "ort-attention": [2.0]}}


@pytest.fixture
def verdicts(monkeypatch, capsys):
    """The last column of the table, for kernels with the given peaks."""
    monkeypatch.setattr(gates, "kernel_gates", lambda rows: [("fraction of peak", 0.9, 0.8, None, False)])

    def verdicts(*peaks):
        gates.show({"kernels": [row(512, peaks)], "errors": ERRORS})
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")][2:]
        return [line.split("|")[-2].strip() for line in lines]
    return verdicts


def test_targets_are_judged_if_the_peak_is_steady(verdicts):
    assert verdicts(100e9, 109e9) == ["yes", "aim"]


def test_times_are_not_judged_if_the_peak_varies_by_more_than_10_percent(verdicts):
    assert verdicts(100e9, 111e9)[0] == "not judged"


def test_errors_are_judged_in_any_case(verdicts):
    assert verdicts(100e9, 150e9)[1] == "aim"


def test_memory_bandwidth_may_vary():
    assert gates.variation({"kernels": [row(1, [1e9, 5e9])]}) == 0


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setattr(main.kernels, "instruction_set", lambda: "avx2")
    return main.machine(2)


@pytest.mark.parametrize("name", ["processor", "caches", "instruction set", "load", "threads"])
def test_machine_is_described(machine, name):
    assert machine[name] not in ("", None)


def test_caches_are_those_of_data(tmp_path):
    for index, (level, kind, size) in enumerate([(1, "Data", "32K"), (1, "Instruction", "32K"), (2, "Unified", "512K")]):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    assert main.caches(tmp_path) == "L1d 32K, L2 512K"
