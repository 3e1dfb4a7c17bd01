"""Plots the kernel table: each library's time as a multiple of attn's."""

from statistics import median

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

from kernels import PEERS  # noqa: E402

COLOURS = dict(zip(PEERS, ("#888888", "#d55e00", "#0072b2", "#56b4e9", "#009e73")))  # Okabe and Ito


def save(results, path):
    rows = [row for row in results["kernels"] if row["problem"]["dtype"] == "float32"]
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "attn", "font.size": 9})
    figure, axes = pyplot.subplots(figsize=(8, 0.24 * len(rows) + 1.2), layout="constrained")
    heights = range(len(rows))
    for library in PEERS:
        points = [(median(row["times"][library]), height)
                  for height, row in zip(heights, rows) if row["times"][library]]
        axes.scatter(*zip(*points), s=22, color=COLOURS[library], label=library, zorder=3)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(heights, [row["name"].removeprefix("f32 ") for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xticks([1, 2, 5, 10, 20], ["1 (attn)", "2", "5", "10", "20"])
    axes.grid(axis="x", which="major", color="#dddddd")
    axes.set_xlabel("multiple of attn's time, float32, log scale; right is slower "
                    f"({results['machine']['threads']} threads)")
    axes.legend(loc="upper right")
    figure.savefig(path, metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"), dpi=110)
