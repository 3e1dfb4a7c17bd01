"""Times of attn's kernels, of other libraries, and of the kernels relative to the machine's peak."""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
BENCH = ROOT / "build" / "release" / "attn-bench"
PEERS = ["numpy", "torch", "ort-mha", "ort-attention", "jax"]

# Holds libraries to the instruction set that ATTN_ISA selects for attn. onnxruntime cannot be held.
HELD = {"avx2": {"OPENBLAS_CORETYPE": "Haswell", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
                 "ONEDNN_MAX_CPU_ISA": "AVX2", "XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}}


def problem(H, G, L, S, D, dtype="float32", causal=False):
    return {"H": H, "G": G, "L": L, "S": S, "D": D, "dtype": dtype, "causal": causal}


def problems(quick):
    sizes = [(n, d) for n in ([128, 512, 2048] if quick else [128, 512, 2048, 8192]) for d in (64, 128)]
    found = [problem(8, groups, n, n, d, causal=causal)
             for groups in (8, 2) for causal in (False, True) for n, d in sizes]
    found += [problem(8, groups, 1, 8192, d) for groups in (8, 2) for d in (64, 128)]
    found += [problem(8, 8, n, n, d, "float64", causal) for causal in (False, True) for n, d in sizes]
    return found


def name(p):
    """The name that attn-bench uses."""
    dtype = {"float32": "f32", "float64": "f64"}[p["dtype"]]
    kind = ("causal" if p["causal"] else "full") + (" backward" if p.get("backward") else "")
    return f"{dtype} H{p['H']}:{p['G']} L{p['L']} S{p['S']} D{p['D']} {kind}"


def report(text, threads, isa=None, program=BENCH):
    """The output of attn-bench."""
    environment = dict(os.environ, **({"ATTN_ISA": isa} if isa else {}))
    run = subprocess.run([program, "--json", "--threads", str(threads), *text], env=environment,
                         check=True, stdout=subprocess.PIPE)
    return json.loads(run.stdout)


def bench(text, threads, isa=None, program=BENCH):
    """Rows of attn-bench, by name."""
    return {row["name"]: row for row in report(text, threads, isa, program)["rows"]}


def instruction_set():
    """The one that the kernels use."""
    return report(["no such workload"], 1)["isa"]


class Peer:
    """A library in a separate process that times one problem at a time.

    The process is stopped while others are measured, because threads of some libraries keep spinning after
    a call. If memory runs out, the system kills this process first; it is restarted for the next problem.
    """

    def __init__(self, library, threads):
        self.library, self.threads = library, threads
        self.begin()

    def begin(self):
        library, threads = self.library, self.threads
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads),
                           JAX_PLATFORMS="cpu", **HELD.get(os.environ.get("ATTN_ISA"), {}))
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", pathlib.Path(__file__).with_name("peers.py"), library,
             str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment)
        pathlib.Path(f"/proc/{self.process.pid}/oom_score_adj").write_text("1000")
        self.process.send_signal(signal.SIGSTOP)

    def seconds(self, p, budget):
        """Median time of a call; None if the library does not support the problem."""
        if self.process.poll() is not None:
            self.begin()
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(dict(p, budget=budget)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            print(f"({self.library} was killed: not enough memory for {name(p)})", file=sys.stderr)
            return None
        answer = json.loads(line)
        self.process.send_signal(signal.SIGSTOP)
        return statistics.median(answer["seconds"]) if "seconds" in answer else None

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait()


def in_turn(sides, first):
    """Rotates the order in each round, because the clock rate depends on what ran before."""
    first %= len(sides)
    return sides[first:] + sides[:first]


def measure(arguments):
    """One row per problem: attn's seconds and fraction of peak, and multiples for each peer and the attn of before."""
    others = [*PEERS, *(["before"] if arguments.before else [])]
    print("Seconds of one call; peers as multiples of attn's time, medians of "
          f"{arguments.rounds} interleaved rounds (minimum to maximum).\n")
    print("| problem | attn, ms | of peak | " + " | ".join(others) + " |")
    print("| --- | ---: | ---: |" + " ---: |" * len(others), flush=True)
    rows = []
    peers = {library: Peer(library, arguments.threads) for library in PEERS}
    for p in problems(arguments.quick):
        row = {"name": name(p), "problem": p, "seconds": [], "fraction": [], "peak": [],
               "times": {side: [] for side in others}}
        # Small problems also run for two seconds, because an idle processor starts at a low clock rate.
        shorter = ["--quick"] if p["L"] == 2048 else []
        for number in range(arguments.rounds):
            theirs = {}
            for side in in_turn(["attn", *others], 2 * number):
                if side == "attn":
                    ours = bench([*shorter, name(p)], arguments.threads)[name(p)]
                elif side == "before":
                    theirs[side] = bench([*shorter, name(p)], arguments.threads, program=arguments.before)[name(p)]["seconds"]
                else:
                    theirs[side] = peers[side].seconds(p, 0.2)
            row["seconds"].append(ours["seconds"])
            row["fraction"].append(ours["fraction"])
            row["peak"].append(ours["peak"])
            for library, seconds in theirs.items():
                if seconds is not None:
                    row["times"][library].append(seconds / ours["seconds"])
        rows.append(row)
        print(f"| {row['name']} | {1e3 * statistics.median(row['seconds']):.3g} "
              f"| {statistics.median(row['fraction']):.2f} | "
              + " | ".join(map(spread, row["times"].values())) + " |", flush=True)
    for peer in peers.values():
        peer.close()
    return rows


def measure_backward(arguments):
    """Time of the gradients of Q, K and V, and of PyTorch's backward pass as a multiple of it."""
    print("| problem | attn, ms | of peak | torch |\n| --- | ---: | ---: | ---: |")
    rows, peer = [], Peer("torch", arguments.threads)
    for p in (problem(8, 8, n, n, d, causal=causal) | {"backward": True}
              for n in (512, 2048) for d in (64, 128) for causal in (False, True)):
        row = {"name": name(p), "problem": p, "seconds": [], "fraction": [], "peak": [], "torch": []}
        for _ in range(arguments.rounds):
            ours = bench([name(p)], arguments.threads)[name(p)]
            for key in ("seconds", "fraction", "peak"):
                row[key].append(ours[key])
            theirs = peer.seconds(p, 0.5)
            if theirs is not None:
                row["torch"].append(theirs / ours["seconds"])
        rows.append(row)
        print(f"| {row['name']} | {1e3 * statistics.median(row['seconds']):.3g} | {spread(row['fraction'])} "
              f"| {spread(row['torch'])} |", flush=True)
    peer.close()
    return rows


def measure_bf16(arguments):
    """Time with `compute: bf16`, and multiples of it: attn without the key, and PyTorch in bfloat16 and float32."""
    columns = ["attn float32", "torch bfloat16", "torch float32"]
    print("| problem | inputs | attn, ms | " + " | ".join(columns) + " |")
    print("| --- | --- | ---: |" + " ---: |" * len(columns))
    rows, peer = [], Peer("torch", arguments.threads)
    square = [(problem(8, 8, n, n, d, causal=causal), dtype) for n in (512, 2048) for d in (64, 128)
              for causal, dtype in ((False, "float32"), (True, "float32"), (False, "bfloat16"))]
    decoding = [(problem(8, 8, 1, 8192, d), dtype) for d in (64, 128) for dtype in ("float32", "bfloat16")]
    for p, dtype in square + decoding:
        ours = (name(p).replace("full", "bf16") if dtype == "bfloat16" else name(p)) + " bf16-products"
        row = {"name": ours, "problem": p, "inputs": dtype, "seconds": [], "times": {column: [] for column in columns}}
        for number in range(arguments.rounds):
            seconds = {}
            for side in in_turn(["attn", *columns], number):
                if side.startswith("attn"):
                    key = ours if side == "attn" else name(p)
                    # The name of one may be part of that of the other.
                    seconds[side] = bench([f"{'bf16 ' if side == 'attn' else 'size ' if p['L'] > 1 else 'decode '}{key}"],
                                          arguments.threads)[key]["seconds"]
                else:
                    seconds[side] = peer.seconds(p | {"inputs": side.split()[1]}, 0.5)
            row["seconds"].append(seconds.pop("attn"))
            for column, value in seconds.items():
                if value is not None:
                    row["times"][column].append(value / row["seconds"][-1])
        rows.append(row)
        print(f"| {name(p)} | {dtype} | {1e3 * statistics.median(row['seconds']):.3g} | "
              + " | ".join(map(spread, row["times"].values())) + " |", flush=True)
    peer.close()
    return rows


def measure_dtypes(arguments):
    """Calls from Python with arrays of each type: times as multiples of those of attn with float32."""
    sides = [f"{library} {dtype}" for library in ("attn", "torch") for dtype in ("float32", "float16", "bfloat16")]
    print(f"| problem | {sides[0]}, ms | " + " | ".join(sides[1:]) + " |\n| --- | ---: |" + " ---: |" * (len(sides) - 1))
    rows, peers = [], {library: Peer(library, arguments.threads) for library in ("attn", "torch")}
    for p in (problem(8, 8, n, n, d, causal=causal)
              for n in (128, 512, 2048) for d in (64, 128) for causal in (False, True)):
        row = {"name": name(p), "problem": p, "seconds": [], "times": {side: [] for side in sides[1:]}}
        for number in range(arguments.rounds):
            seconds = {}
            for side in in_turn(sides, number):
                library, dtype = side.split()
                seconds[side] = peers[library].seconds(p | {"inputs": dtype}, 0.3)
            row["seconds"].append(seconds[sides[0]])
            for side in sides[1:]:
                if seconds[side] is not None:
                    row["times"][side].append(seconds[side] / seconds[sides[0]])
        rows.append(row)
        print(f"| {row['name']} | {1e3 * statistics.median(row['seconds']):.3g} | "
              + " | ".join(map(spread, row["times"].values())) + " |", flush=True)
    for peer in peers.values():
        peer.close()
    return rows


def spread(values):
    if not values:
        return "–"
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def measure_options(arguments):
    """Time of each option relative to the plain problem, and results for lower instruction sets."""
    keys = list(bench(["--quick", "options"], arguments.threads))
    plain = next(key for key in keys if key.endswith(" full"))
    times = {key: [] for key in keys if key != plain}
    for _ in range(arguments.rounds):
        for key, ratios in times.items():  # each next to the plain problem, because clock rates change
            one = bench(["--quick", f"options {plain}", f"options {key}"], arguments.threads)
            ratios.append(one[key]["seconds"] / one[plain]["seconds"])
    print("| option | relative time |\n| --- | ---: |")
    for key, values in times.items():
        print(f"| {key} | {spread(values)} |")
    lower = {}
    print("\n| instruction set | problem | fraction of its peak |\n| --- | --- | ---: |")
    for isa in ("avx2", "baseline"):
        for d in (64, 128):
            p = problem(8, 8, 2048, 2048, d)
            lower[f"{isa} D{d}"] = [bench([name(p)], arguments.threads, isa)[name(p)]["fraction"]
                                    for _ in range(arguments.rounds)]
            print(f"| {isa} | {name(p)} | {spread(lower[f'{isa} D{d}'])} |", flush=True)
    return {"times": times, "lower": lower}


def measure_threads(arguments):
    """Speed-up by several threads."""
    rows = {}
    print("| problem | threads | speed-up |\n| --- | ---: | ---: |")
    for p in (problem(8, 8, 2048, 2048, 64), problem(8, 8, 2048, 2048, 64, causal=True)):
        for threads in range(2, arguments.threads + 1):
            rows[f"{name(p)}, {threads}"] = ratios = [
                bench([name(p)], 1)[name(p)]["seconds"] / bench([name(p)], threads)[name(p)]["seconds"]
                for _ in range(arguments.rounds)]
            print(f"| {name(p)} | {threads} | {spread(ratios)} |", flush=True)
    return rows
