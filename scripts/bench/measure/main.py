"""scripts/bench/peers: parses arguments, runs the measurements, prints tables and targets."""

import argparse
import json
import os
import pathlib
import platform
import sys

import errors
import fallbacks
import gates
import kernels
import memory
import processes

PARTS = {"kernels": kernels.measure, "options": kernels.measure_options, "fallbacks": fallbacks.measure,
         "backward": kernels.measure_backward, "bf16": kernels.measure_bf16, "dtypes": kernels.measure_dtypes,
         "threads": kernels.measure_threads,
         "errors": errors.measure, "processes": processes.measure, "memory": memory.measure}


def caches(folder=pathlib.Path("/sys/devices/system/cpu/cpu0/cache")):
    """The caches of the first processor, such as "L1d 32K, L2 512K, L3 32768K"."""
    found = []
    for index in sorted(folder.glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found.append(f"L{level}{'d' if kind == 'Data' else ''} {size}")
    return ", ".join(found) or "unknown"


def machine(threads):
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                  if line.startswith("model name")), platform.processor())
    return {"processor": model, "caches": caches(), "instruction set": kernels.instruction_set(),
            "processors": len(os.sched_getaffinity(0)), "threads": threads,
            "system": platform.platform(terse=True), "load": round(os.getloadavg()[0], 1)}


def main():
    processors = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(prog="scripts/bench/peers")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=processors)
    parser.add_argument("--only", action="append", choices=list(PARTS), metavar="PART")
    parser.add_argument("--before", type=pathlib.Path, metavar="ATTN_BENCH")
    parser.add_argument("--save", type=pathlib.Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if not 1 <= arguments.threads <= processors or arguments.rounds < 1:
        parser.error(f"--threads: 1 to {processors}; --rounds: at least 1")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:arguments.threads])

    results = {"machine": machine(arguments.threads)}
    print(", ".join(f"{name} {value}" for name, value in results["machine"].items()))
    for part in arguments.only or PARTS:
        print(f"\n## {part.capitalize()}\n", flush=True)
        results[part] = PARTS[part](arguments)
    results["machine"]["load at the end"] = round(os.getloadavg()[0], 1)
    print(f"\n## Targets\n\nload at the end {results['machine']['load at the end']}\n")
    gates.show(results)
    if arguments.save:
        arguments.save.mkdir(parents=True, exist_ok=True)
        (arguments.save / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        if "kernels" in results:
            import plot
            plot.save(results, arguments.save / "kernels.svg")


if __name__ == "__main__":
    sys.exit(main())
