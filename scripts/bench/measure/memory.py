"""Peak memory of runs whose L x S arrays would not fit in it."""

import pathlib
import re
import subprocess
import tempfile
import time

from kernels import ROOT
from processes import attn, write_inputs

MIB = 1 << 20


def peak(command):
    """Peak resident bytes of this process alone."""
    process = subprocess.Popen(command)
    most = 0
    while process.poll() is None:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"VmHWM:\s+(\d+) kB", status)  # absent while the process is exiting
        most = max(most, 1024 * int(found[1]) if found else 0)
        time.sleep(0.002)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return most


def measure(arguments):
    rows = {}
    print("One head, D=64, float32.\n")
    print("| tokens | outputs | L x S, MiB | inputs and context, MiB | peak, MiB |")
    print("| ---: | --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        folder = pathlib.Path(name)
        scale = 4 if arguments.quick else 1
        for tokens, with_weights in ((131072 // scale, False), (32768 // scale, True)):
            inputs = write_inputs(folder, 1, tokens, 64)
            outputs = [folder / "context.npy"] + ([folder / "weights.npy"] if with_weights else [])
            most = peak(attn(inputs, *outputs))
            files = sum(path.stat().st_size for path in inputs + outputs[:1])
            rows["weights" if with_weights else "context"] = {"peak": most, "files": files,
                                                              "tokens": tokens}
            print(f"| {tokens} | {'context and weights' if with_weights else 'context'} "
                  f"| {4 * tokens * tokens // MIB} | {files // MIB} | {most // MIB} |", flush=True)
            for path in inputs + outputs:
                path.unlink()
    return rows
