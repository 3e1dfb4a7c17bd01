"""Files that change, links and clashing names, at random times and in random layouts.

Each group runs the program once with a `dice` in an empty folder, and returns what went wrong, or "".
"""

import json
import os
import pathlib
import shutil
import subprocess
import time

import numpy as np

from support.attn import ATTN
from support.jobs import contents

LONG_AGO = 1_000_000_000  # a write within one tick of the file system's clock is not detected
SIDE = 260                # more than 128 KiB: mapped instead of copied, except by a batch
CODES = (0, 1, 3, 65, 66, 73, 74)
ROWS = [[1.0, 0.5], [0.25, -1.0]]


def start(args, folder, stdin=b""):
    (folder / "stdin").write_bytes(stdin)
    with open(folder / "stdin", "rb") as lines:
        return subprocess.Popen([ATTN, *args], cwd=folder, stdin=lines, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def problem_of(run, stderr):
    """A crash, or an end without a message."""
    if run.returncode not in CODES:
        return f"exit code {run.returncode}: {stderr.decode()[-200:]}"
    if run.returncode not in (0, 1) and not any(line.startswith("attn: ") for line in stderr.decode().splitlines()):
        return f"exit code {run.returncode} without a message"
    return ""


# Inputs that change while they are read.

def weights(seed):
    random = np.random.default_rng(seed)
    values = random.random((SIDE, SIDE)).astype(np.float32)
    return values / values.sum(1, keepdims=True)


def write_input(path, seed):
    array = weights(seed)
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez(path, w=array)
    elif path.suffix == ".csv":
        np.savetxt(path, array, delimiter=",", fmt="%.9g")
    elif path.suffix == ".json":
        path.write_text(json.dumps({"w": array.tolist()}))
    else:
        header = json.dumps({"w": {"dtype": "F32", "shape": [SIDE, SIDE], "data_offsets": [0, array.nbytes]}}).encode()
        header += b" " * (-len(header) % 8)
        path.write_bytes(len(header).to_bytes(8, "little") + header + array.tobytes())


def readers(name):
    """Commands that read the file: arguments, standard input, and the output."""
    job = {"Q": name, "K": name, "outputs": ["context"]}
    line = json.dumps(job).encode()
    batch = ["batch", "-", "-q", "-j", "2"]
    return {
        "run": (["run", "--q", name, "--k", name, "--outputs", "context", "-o", "out.npy"], b"", "out.npy"),
        "run to stdout": (["run", "--q", name, "--k", name, "--outputs", "weights", "--format", "ndjson"], b"", None),
        "view": (["view", name, "-o", "out.html"], b"", "out.html"),
        "picture": (["view", name, "-o", "out.png"], b"", "out.png"),
        "convert": (["convert", name, "-o", "out.npz"], b"", "out.npz"),
        "text": (["convert", name, "-o", "out.csv"], b"", "out.csv"),
        "stats": (["stats", name, "-o", "out.csv"], b"", "out.csv"),
        "svd": (["svd", name, "-o", "out.npz"], b"", "out.npz"),
        "rollout": (["rollout", name, "-o", "out.npy"], b"", "out.npy"),
        "inspect": (["inspect", name], b"", None),
        "batch": (batch, line, None),
        "batch with processes": ([*batch, "--isolate"], line, None),
        "batch to a file": ([*batch, "--out-dir", "out"], b"\n".join([line] * 3), "out/3.npz"),
        "bundle": ([*batch, "--out-dir", "out", "--bundle", "2"], b"\n".join([line] * 4), "out/bundle-2.npz"),
    }


def result_of(process, folder, output):
    stdout, stderr = process.communicate(timeout=120)
    path = folder / output if output else None
    data = path.read_bytes() if path is not None and path.exists() else None
    return (process.returncode, stdout if output is None else b"", data), stderr


class Changing:
    """A group: an input of a random command is changed at a random time."""

    known = {}  # results and durations of undisturbed runs

    def __init__(self, changes):
        self.changes = changes

    def undisturbed(self, folder, command, path, seed):
        key = command, path.suffix, seed
        if key not in self.known:
            write_input(path, seed)
            args, stdin, output = readers(path.name)[command]
            before = time.monotonic()
            result, _ = result_of(start(args, folder, stdin), folder, output)
            self.known[key] = result, time.monotonic() - before
            shutil.rmtree(folder / "out", ignore_errors=True)
            if output and (folder / output).exists():
                (folder / output).unlink()
        return self.known[key]

    def __call__(self, dice, folder):
        path = folder / ("x" + dice.choice([".npy", ".npz", ".safetensors", ".csv", ".json"]))
        command = dice.choice(sorted(readers("")))
        old, seconds = self.undisturbed(folder, command, path, 1)
        new, _ = self.undisturbed(folder, command, path, 2)
        if old[0] != 0:
            return f"{command} {path.suffix}: exit code {old[0]} without a change"
        other = folder / ("other" + path.suffix)
        write_input(other, 2)
        data = other.read_bytes()
        write_input(path, 1)
        os.utime(path, (LONG_AGO, LONG_AGO))
        args, stdin, output = readers(path.name)[command]
        process = start(args, folder, stdin)
        time.sleep(dice.uniform(0, 1.1 * seconds))
        change = dice.choice(self.changes)
        if change == "cut":
            os.truncate(path, dice.choice([0, 1, dice.randrange(len(data)), len(data) - 1]))
        elif change == "replace":
            os.replace(other, path)
        elif change == "write":
            with open(path, "r+b", buffering=0) as file:
                file.write(data)
                file.truncate()
        else:
            path.unlink()
        result, stderr = result_of(process, folder, output)
        where = f"{command} {path.suffix} {change}: "
        if problem := problem_of(process, stderr):
            return where + problem
        if process.returncode != 0 or result in (old, new):
            return ""
        if change == "cut":  # a shorter table is another table
            shutil.rmtree(folder / "out", ignore_errors=True)
            again, _ = result_of(start([*args, "--force"] if output else args, folder, stdin), folder, output)
            if result == again:
                return ""
        return where + "a mixture"


# A bundle that is cut while a batch resumes it.

def bundle_cut(dice, folder):
    suffix = dice.choice(["npz", "safetensors"])
    write_jobs_of_arrays(folder / "jobs", 6)
    flags = ["--out-dir", "out", "--bundle", "4", "--format", suffix, "-j2"]
    flags += ["--isolate"] if dice.random() < 0.5 else []
    subprocess.run([ATTN, "batch", "jobs", *flags], cwd=folder, capture_output=True, check=True)
    good = contents(folder / "out")
    changed = folder / "jobs" / f"{dice.randrange(6)}.json"
    if dice.random() < 0.5:
        changed.write_text(changed.read_text() + "\n")
    bundle = folder / "out" / f"bundle-{dice.choice([1, 2])}.{suffix}"
    process = start(["batch", "jobs", *flags, "--resume"], folder)
    time.sleep(dice.uniform(0, 0.04))
    os.truncate(bundle, dice.randrange(len(good[bundle.name])))
    _, stderr = process.communicate(timeout=120)
    if problem := problem_of(process, stderr):
        return problem
    again = subprocess.run([ATTN, "batch", "jobs", *flags, "--resume"], cwd=folder, capture_output=True)
    if again.returncode != 0:
        return f"cannot be resumed: {again.stderr.decode()[-200:]}"
    return "" if contents(folder / "out") == good else "another result"


def write_jobs_of_arrays(folder, count):
    folder.mkdir()
    for number in range(count):
        rows = np.random.default_rng(number).standard_normal((60, 60)).tolist()
        (folder / f"{number}.json").write_text(json.dumps({"Q": rows, "K": rows, "outputs": ["weights"]}))


# Links below the output folder.

def links(dice, folder):
    """Files outside the output folder stay as they are."""
    for name in "jobs", "jobs/deep", "jobs/deep/er", "victim", "victim/er":
        (folder / name).mkdir()
    for number in range(12):
        place = dice.choice(["", "deep/", "deep/er/"])
        (folder / "jobs" / place / f"{number}.json").write_text(json.dumps({"Q": ROWS, "K": [[1.0, number]]}))
    for name in "data.npz", "er/1.npz", "bundle-1.npz", "manifest.ndjson", "1.npz":
        (folder / "victim" / name).write_bytes(b"precious")
    flags = ["--out-dir", "out", "--name", "{job}"]
    layout = dice.choice([[], ["--format", "folder"], ["--bundle", "5"], ["--format", "csv", "--outputs", "weights"]])
    flags += layout + dice.choice([[], ["--isolate"]]) + dice.choice([[], ["--durable"]])
    if dice.random() < 0.7:
        subprocess.run([ATTN, "batch", "jobs", *flags], cwd=folder, capture_output=True)
        for path in (folder / "jobs").rglob("*.json"):
            if dice.random() < 0.3:
                path.unlink()
            elif dice.random() < 0.5:
                path.write_text(json.dumps({"Q": ROWS, "K": [[2.0, 1.0]]}))
    (folder / "out").mkdir(exist_ok=True)

    def place_link():
        entries = [folder / "out" / "deep"]
        for inside, folders, files in os.walk(folder / "out"):  # unlike rglob(), ignores those that disappear
            entries += [pathlib.Path(inside) / name for name in folders + files]
        path = dice.choice(entries)
        target = dice.choice([folder / "victim", folder / "victim" / "data.npz", folder / "victim" / "new",
                              folder / "victim" / "manifest.ndjson", folder / "jobs"])
        try:
            if path.is_symlink() or not path.exists():
                path.unlink(missing_ok=True)
            else:
                path.rename(folder / "moved" / str(len(os.listdir(folder / "moved"))))
            path.symlink_to(target)
        except OSError:  # the batch has changed the entry
            pass

    (folder / "moved").mkdir()
    in_advance = dice.random() < 0.5
    if in_advance:
        place_link()
    before = contents(folder / "jobs", ()), contents(folder / "victim", ())
    whole_files = [] if "--bundle" in flags else [["--resume", "--prune"], ["--no-clobber"]]
    again = dice.choice([["--resume"], ["--force"], *whole_files])
    process = start(["batch", "jobs", *flags, *again], folder)
    while not in_advance and process.poll() is None:
        time.sleep(dice.uniform(0, 0.004))
        place_link()
    _, stderr = process.communicate(timeout=120)
    if before != (contents(folder / "jobs", ()), contents(folder / "victim", ())):
        return f"{flags} {again}: a file outside the output folder changed"
    return problem_of(process, stderr)


# Outputs with names of inputs and of other outputs.

def save(path, values, suffix):
    if suffix == "npy":
        np.save(path, values)
    elif suffix == "npz":
        np.savez(path, w=values)
    else:
        path.write_text("\n".join(",".join(map(str, row)) for row in values) + "\n")


def link_randomly(dice, folder, names):
    """Some further names of the files, as hard and symbolic links."""
    links = []
    for number in range(dice.randrange(3)):
        name = dice.choice(names)
        link = f"{dice.choice(['', 'in/', 'linked/'])}link{number}{os.path.splitext(name)[1]}"
        if dice.random() < 0.5:
            os.link(folder / name, folder / link)
        else:
            os.symlink(folder / name, folder / link)
        links.append(link)
    return links


def replaced(folder, inputs):
    for name, data in inputs.items():
        if not (folder / name).exists() or (folder / name).read_bytes() != data:
            return name
    return ""


def batch_names(dice, folder):
    """A batch of files with --force: no input is replaced, and each result that is done can be read."""
    suffix = dice.choice(["npy", "npz", "csv"])
    for name in "in", "out", "jobs", "linked":
        (folder / name).mkdir()
    names = []
    for number in range(4):
        name = f"{dice.choice(['in', 'out', 'out', '.'])}/{dice.randrange(6)}.{suffix}"
        if name not in names:
            save(folder / name, ROWS, suffix)
            names.append(name)
    names += link_randomly(dice, folder, names)
    for number in range(5):
        V = dice.choice([ROWS, "../" + dice.choice(names) + ("#w" if suffix == "npz" else "")])
        (folder / "jobs" / f"{number}.json").write_text(
            json.dumps({"Q": ROWS, "K": ROWS, "V": V, "outputs": ["context"]}))
    job_files = [f"jobs/{number}.json" for number in range(5)]
    (folder / "list.csv").write_text("\n".join(job_files) + "\n")
    args = dice.choice([["batch", "jobs"], ["batch", "--files-from", "list.csv"], ["batch", *dice.sample(job_files, 5)]])
    args += ["--out-dir", dice.choice(["out", "./in/../out", "in"]), "--format", dice.choice([suffix, suffix, "folder"])]
    if dice.random() < 0.5:
        args += ["--summary", dice.choice(["list.csv", "s.csv", "out/2.csv", "in/1.csv", "link0.csv", "in/../out/4.csv"])]
    if dice.random() < 0.3:
        args += ["--manifest", dice.choice(["m.ndjson", f"out/1.{suffix}", "list.csv", "in/m.ndjson"])]
    if dice.random() < 0.2 and suffix == "npz" and "folder" not in args:
        args += ["--bundle", "2"]
    args += dice.choice([[], ["--isolate"]]) + dice.choice([["-j1"], ["-j3"]]) + dice.choice([["--force"]] * 4 + [[]])
    used = set(job_files) | ({"list.csv"} if "--files-from" in args else set())
    for path in job_files:
        V = json.loads((folder / path).read_text())["V"]
        used |= {V[3:].split("#")[0]} if isinstance(V, str) else set()
    inputs = {name: (folder / name).read_bytes() for name in used}
    process = start(args, folder)
    _, stderr = process.communicate(timeout=120)
    if name := replaced(folder, inputs):
        return f"{args}: {name} was replaced"
    if problem := problem_of(process, stderr):
        return f"{args}: {problem}"
    return lost_result(folder, args) if process.returncode in (0, 3) else ""


def lost_result(folder, args):
    """A result that the manifest says is done, but is another file."""
    out = folder / args[args.index("--out-dir") + 1]
    path = folder / args[args.index("--manifest") + 1] if "--manifest" in args else out / "manifest.ndjson"
    for line in map(json.loads, path.read_text().splitlines()):
        for output in line.get("outputs", {}) if line.get("status") == "done" else {}:
            name = out / output.split("#")[0]
            data = name.read_bytes() if name.exists() else b""
            right = {".npy": b"\x93NUMPY", ".npz": b"PK"}.get(name.suffix, b"1" if data[:1] == b"1" else b"0.")
            if not data.startswith(right) and not (name.suffix == ".csv" and data[:3] not in (b"job", b'{"j')):
                return f"{args}: {output} is lost"
    if "--summary" in args and not (folder / args[args.index("--summary") + 1]).read_bytes().startswith(b"job,id"):
        return f"{args}: the summary is lost"
    return ""


def line_names(dice, folder):
    """A batch of lines on one worker: an input that was read is not replaced later."""
    (folder / "out").mkdir()
    lines, first = [], {}
    for number in range(1, 7):
        V = dice.choice([ROWS, f"out/{dice.randrange(1, 7)}.npy", "x.csv"])
        lines.append({"Q": ROWS, "K": ROWS, "V": V, "outputs": ["context"]})
        if isinstance(V, str):
            first.setdefault(V, number)
    inputs = {}
    for name, line in first.items():
        save(folder / name, ROWS, name[-3:])
        if name == "x.csv" or int(name[4]) >= line:
            inputs[name] = (folder / name).read_bytes()
    args = ["batch", "-", "--out-dir", "out", "--format", "npy", "-j1", "--force"] + dice.choice([[], ["--isolate"]])
    args += dice.choice([[], ["--summary", "x.csv"], ["--summary", "s.csv"]])
    process = start(args, folder, "\n".join(map(json.dumps, lines)).encode())
    _, stderr = process.communicate(timeout=120)
    if name := replaced(folder, inputs):
        return f"{args}: {name} was replaced"
    return problem_of(process, stderr)


def command_names(dice, folder):
    """Single commands: inputs stay as they are."""
    for name in "in", "linked":
        (folder / name).mkdir()
    names = ["in/a.npy", "b.npy", "c.csv", "in/d.npz"]
    for name in names:
        save(folder / name, np.array(ROWS) ** 2, name[-3:])
    names += link_randomly(dice, folder, names)
    name = dice.choice(names)
    Q = name + ("#w" if name.endswith(".npz") else "")
    (folder / "job.json").write_text(json.dumps({"Q": Q, "K": Q, "outputs": ["context", "weights"]}))

    def output(*suffixes):
        found = [path for path in [*names, "job.json", "new.npy", "new.html", "new.npz"] if path.endswith(suffixes)]
        prefix = dice.choice(["", "./", "in/../"])
        return prefix + dice.choice(found or ["new" + suffixes[0]])

    if dice.random() < 0.2:
        os.symlink(dice.choice([name, "job.json"]), folder / "page.html")
    args = dice.choice([
        ["run", "job.json", "-o", "weights=" + output(".npy", ".csv"), "-o", "context=" + output(".npy", ".csv")],
        ["run", "job.json", "-o", output(".npz", ".json"), "--view", dice.choice(["page.html", "new.html"])],
        ["run", "job.json", "-o", output(".npz"), "--explain", dice.choice(["page.html", "new.html"])],
        ["convert", Q, "-o", output(".npy", ".csv", ".npz")],
        ["stats", Q, "-o", output(".csv")],
        ["view", Q, "-o", dice.choice(["page.html", "new.html"])],
        ["rollout", Q, "-o", output(".npy")],
        ["svd", Q, "-o", output(".npz")],
        ["compare", Q, "b.npy", "--view", dice.choice(["page.html", "new.html"])],
    ]) + dice.choice([["--force"]] * 4 + [[]])
    used = [name] + {"run": ["job.json"], "compare": ["b.npy"]}.get(args[0], [])
    inputs = {path: (folder / path).read_bytes() for path in used}
    process = start(args, folder)
    stdout, stderr = process.communicate(timeout=120)
    if path := replaced(folder, inputs):
        return f"{args}: {path} was replaced"
    return "" if process.returncode == 2 else problem_of(process, stderr)


GROUPS = {
    "inputs that are cut": Changing(["cut"]),
    "bundles that are cut": bundle_cut,
    "inputs that are changed": Changing(["write", "replace", "remove"]),
    "links": links,
    "names in a batch": batch_names,
    "names in lines": line_names,
    "names in commands": command_names,
}
