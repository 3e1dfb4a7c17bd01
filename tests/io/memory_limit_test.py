"""--max-memory bounds the memory of reading: at most the limit plus 16 MiB, whatever a file contains."""

import io
import json
import struct
import sys

import numpy as np
import pytest

from support.attn import assert_error, attn, attn_and_peak, under_sanitizer

MIB = 1 << 20
LIMIT = 64 * MIB

pytestmark = pytest.mark.skipif(under_sanitizer(), reason="sanitizers need more memory")


def npz_of(members, zeros):
    file = io.BytesIO()
    np.savez_compressed(file, **{f"a{i}": np.zeros(zeros) for i in range(members)})
    return file.getvalue()


def bytes_to_convert(count):
    """Integers of one byte, which the computation needs as int64."""
    header = json.dumps({"Q": {"dtype": "U8", "shape": [count // 4, 4], "data_offsets": [0, count]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(count)


def safetensors_of(count):
    tensors = {f"t{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(count)}
    header = json.dumps(tensors, separators=(",", ":")).encode()
    return struct.pack("<Q", len(header)) + header


HOSTILE = {
    "lists of one number": ("in.json", lambda: b"[" + b",".join([b"[1]"] * (5 * MIB)) + b"]"),
    "empty lists": ("in.json", lambda: b"[" + b",".join([b"[]"] * (5 * MIB)) + b"]"),
    "empty objects": ("in.json", lambda: b"[" + b",".join([b"{}"] * (5 * MIB)) + b"]"),
    "strings": ("in.json", lambda: b"[" + b",".join([b'"a"'] * (5 * MIB)) + b"]"),
    "numbers": ("in.json", lambda: b"[" + b",".join([b"1"] * (15 * MIB)) + b"]"),
    "keys": ("in.json", lambda: b"{" + b",".join(b'"%d":1' % i for i in range(MIB)) + b"}"),
    "nested lists": ("in.json", lambda: b"[" + b",".join([b"[" * 60 + b"]" * 60] * 100_000) + b"]"),
    "escapes in strings": ("in.json", lambda: b"[" + b",".join([b'"\\u0041"'] * (3 * MIB)) + b"]"),
    "one string": ("in.json", lambda: b'["' + b'\\"' * (20 * MIB) + b'"]'),
    "one string with rare escapes": ("in.json", lambda: b'["' + b"\\u0041" * (6 * MIB) + b'"]'),
    "one column": ("in.csv", lambda: b"1\n" * (15 * MIB)),
    "one row": ("in.csv", lambda: b",".join([b"1"] * (15 * MIB))),
    "small integers": ("in.safetensors", lambda: bytes_to_convert(20 * MIB)),
    "safetensors entries": ("in.safetensors", lambda: safetensors_of(200_000)),
    "compressed members": ("in.npz", lambda: npz_of(10, MIB)),
}


@pytest.fixture(scope="module", params=HOSTILE)
def hostile(request, module_path):
    name, make = HOSTILE[request.param]
    path = module_path / name
    path.write_bytes(make())
    return path


def check_peak(peak):
    assert peak < LIMIT + 16 * MIB, f"{peak / MIB:.0f} MiB"


def test_input(hostile):
    run, peak = attn_and_peak("run", "--q", hostile, "--k", hostile, "--max-memory", "64M")
    assert run.returncode == 65
    assert b"--max-" in run.stderr
    check_peak(peak)


def test_compare(hostile):
    run, peak = attn_and_peak("compare", hostile, hostile, "--max-memory", "64M")
    assert run.returncode == 65
    check_peak(peak)


def test_lines_of_a_batch_share_the_memory():
    """Each line takes most of the limit while it is parsed."""
    line = "{" + ",".join(f'"{i}":1' for i in range(170_000)) + "}\n"
    run, peak = attn_and_peak("batch", "-", "-j", "4", "--max-memory", "64M", stdin=line.encode() * 8)
    assert run.returncode == 3
    check_peak(peak)


@pytest.mark.parametrize("names", ["{i}\n", "{i:0200}\n"], ids=["short", "long"])
def test_names_of_jobs(tmp_path, names):
    (tmp_path / "names").write_text("".join(names.format(i=i) for i in range(200_000)))
    run, peak = attn_and_peak("batch", "--files-from", "names", "--out-dir", "out", "--max-memory", "64M", cwd=tmp_path)
    assert_error(run, 65, "takes more than 67108864 bytes of memory")
    check_peak(peak)


def test_one_name_of_megabytes(tmp_path):
    (tmp_path / "names").write_text("n" * (14 * MIB))
    run, peak = attn_and_peak("batch", "--files-from", "names", "--out-dir", "out", "--max-memory", "64M", cwd=tmp_path)
    assert run.returncode == 65
    check_peak(peak)


def test_comparison_of_many_tensors(tmp_path):
    (tmp_path / "many.safetensors").write_bytes(safetensors_of(20_000))
    run, peak = attn_and_peak("compare", *["many.safetensors"] * 2, "--json", "--max-memory", "64M", cwd=tmp_path)
    assert_error(run, 65, "takes more than 67108864 bytes of memory; --max-memory raises the limit")
    check_peak(peak)


def test_file_after_one_that_left_many_free_blocks(tmp_path):
    nested = "[" * 64 + "]" * 64
    (tmp_path / "nested.json").write_text('{"Q":[' + ",".join([nested] * (40 * MIB // 130)) + "]}")
    (tmp_path / "flat.json").write_text('{"Q": [[' + ", ".join(["1.0"] * (63 * MIB // 5)) + "]]}")
    run, peak = attn_and_peak("inspect", "nested.json", "flat.json", "--json", "--max-memory", "64M", cwd=tmp_path)
    assert run.returncode == 65
    check_peak(peak)


def test_text_of_small_integers(tmp_path):
    np.save(tmp_path / "in.npy", np.full(MIB, 7, np.uint8))
    run, peak = attn_and_peak("convert", "in.npy", "--threshold", "99999999", "--max-memory", "64M", cwd=tmp_path)
    assert_error(run, 65, "takes more than 67108864 bytes of memory; --max-memory raises the limit")
    check_peak(peak)


def test_many_small_draws():
    run, peak = attn_and_peak("random", "randn", "--repeat", "1000000", "--shape", "1", "--seed", "1",
                              "--max-memory", "64M")
    assert_error(run, 65, "takes more than 67108864 bytes of memory; --max-memory raises the limit")
    check_peak(peak)


@pytest.mark.parametrize("member", ["[1]", "{}", "[]", '"a"'])
def test_job(member, tmp_path):
    (tmp_path / "job.json").write_text('{"Q":[' + ",".join([member] * (5 * MIB)) + "]}")
    run, peak = attn_and_peak("run", tmp_path / "job.json", "--max-memory", "64M")
    assert run.returncode == 65
    check_peak(peak)


def test_batch_line():
    line = '{"Q":[' + ",".join(["[1]"] * (2 * MIB)) + "]}\n"
    run, peak = attn_and_peak("batch", "-", "-j", 1, "--max-memory", "64M", stdin=line.encode())
    assert b"--max-memory" in run.stdout
    check_peak(peak)


def test_pipe():
    run, peak = attn_and_peak("run", "--q", "-", "--k", "-", "--max-memory", "64M", stdin=b"1\n" * (60 * MIB))
    assert run.returncode == 65
    check_peak(peak)


def test_several_archives_in_one_job(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.npz").write_bytes(npz_of(1, 4 * MIB))
    run, peak = attn_and_peak("run", "--q", "0.npz", "--k", "1.npz", "--v", "2.npz", "--max-memory", "64M",
                              cwd=tmp_path)
    assert run.returncode == 65
    check_peak(peak)


@pytest.mark.parametrize("args", [["view"], ["merge"], ["inspect", "--provenance"]], ids=" ".join)
def test_result(args, hostile):
    run, peak = attn_and_peak(*args, hostile, "--max-memory", "64M")
    assert run.returncode == 65
    check_peak(peak)


def test_option_of_an_archive(tmp_path):
    np.savez_compressed(tmp_path / "job.npz", Q=[[1.0]], K=[[1.0]], window=np.zeros(2 * MIB))
    run, peak = attn_and_peak("run", "job.npz", "--max-memory", "64M", cwd=tmp_path)
    assert_error(run, 65, "job.npz#window: takes more than", "--max-memory")
    check_peak(peak)


@pytest.mark.parametrize("text", ["\n" * (4 * MIB), "[" + ",".join(['"a"'] * (4 * MIB)) + "]"], ids=["lines", "list"])
@pytest.mark.parametrize("args", [["view", "q.json"], ["run", "--q", "q.json", "--k", "q.json"]], ids=" ".join)
def test_token_file(args, text, tmp_path):
    (tmp_path / "q.json").write_text("[[1,2],[3,4]]")
    (tmp_path / "tokens").write_text(text)
    run, peak = attn_and_peak(*args, "--tokens", "@tokens", "--max-memory", "64M", cwd=tmp_path)
    assert_error(run, 65, "tokens: takes more than", "--max-memory")
    check_peak(peak)


# What commands make of inputs that fit the limit.
LARGE = {
    "text": ["convert", "wide.npy", "--repr", "--threshold", "99999999"],
    "json": ["convert", "wide.npy", "-o", "out.json"],
    "heat map": ["view", "wide.npy"],
    "picture": ["view", "wide.npy", "-o", "out.svg"],
    "difference": ["compare", "wide.npy", "wide.npy"],
    "factors": ["svd", "matrix.npy"],
    "merged parts": ["merge", "part.npz", "part.npz"],
    "arrays": ["random", "randn", "--seed", "1", "--shape", "1000", "--repeat", "100000"],
    "one array": ["random", "permutation", "--seed", "1", "--n", "30000000"],
    "names": ["convert", "names.json", "-o", "out.npz"],
    "metadata": ["view", "metadata.safetensors"],
}


@pytest.fixture(scope="module")
def large(module_path):
    np.save(module_path / "wide.npy", np.zeros((1, 40 * MIB), "u1"))
    np.save(module_path / "matrix.npy", np.arange(2000 * 1500, dtype="f8").reshape(2000, 1500))
    part = np.zeros((1, 1, 12 * MIB), "u1").view("?")
    np.savez(module_path / "part.npz", logsumexp=part[..., :1].astype("f4"), head_context=part.reshape(1, 1, 1, -1).astype("f2"))
    header = json.dumps({"__metadata__": {"tokens": "[" + ",".join(['"a"'] * (6 * MIB)) + "]"},
                         "weights": {"dtype": "U8", "shape": [1, 1], "data_offsets": [0, 1]}}).encode()
    (module_path / "metadata.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"1")
    (module_path / "names.json").write_text("{" + ",".join(f'"{i}":[]' for i in range(200_000)) + "}")
    return module_path


@pytest.mark.parametrize("case", LARGE)
def test_work(case, large):
    run, peak = attn_and_peak(*LARGE[case], "--max-memory", "64M", cwd=large)
    assert_error(run, 65, "takes more than 67108864 bytes of memory", "--max-memory")
    check_peak(peak)


# What grows with the length of a list in the input, in small pieces.


def job_with(key, values, length):
    shape = [length, 1, 1, 1] if key == "key_lengths" else [1, length, 1]
    q = {"randn": {"shape": shape}}
    return json.dumps({"Q": q, "K": q, "seed": 1, key: values, "outputs": ["context"]} |
                      ({"cu_seqlens_k": values} if key == "cu_seqlens_q" else {}))


LISTS = {
    "keys of one query": (16, ["stats", "row.npy"]),
    "explained keys": (16, ["run", "--q", "one.npy", "--k", "keys.npy", "--v", "keys.npy", "--explain", "steps.md"]),
    "missing names": (16, ["batch", "--files-from", "names", "--out-dir", "out"]),
    "documents": (16, ["run", "documents.json", "-o", "out.npz"]),
    "offsets of sequences": (32, ["run", "cu_seqlens_q.json", "-o", "out.npz"]),
    "lengths of sequences": (32, ["run", "key_lengths.json", "-o", "out.npz"]),
    "named draws": (16, ["random", "steps.json", "--seed", "1", "-o", "out.npz"]),
    "tensors with a prefix": (16, ["run", "many.safetensors#t"]),
    "missing among many tensors": (16, ["run", "--q", "many.safetensors#x", "--k", "many.safetensors#x"]),
}


@pytest.fixture(scope="module")
def lists(module_path):
    np.save(module_path / "row.npy", np.zeros((1, 1, 1, 3_200_000), "f4"))
    np.save(module_path / "one.npy", np.zeros((1, 1), "f4"))
    np.save(module_path / "keys.npy", np.zeros((500_000, 1), "f4"))
    (module_path / "names").write_text("".join(f"{i}.json\n" for i in range(60_000)))
    for key, values in [("documents", range(320_000)), ("cu_seqlens_q", range(320_001)), ("key_lengths", [1] * 320_000)]:
        (module_path / f"{key}.json").write_text(job_with(key, list(values), 320_000))
    (module_path / "steps.json").write_text(json.dumps([{"randn": {"shape": [1]}, "to": [f"n{i}"]} for i in range(64_000)]))
    (module_path / "many.safetensors").write_bytes(safetensors_of(160_000))
    return module_path


@pytest.mark.parametrize("case", LISTS)
def test_list(case, lists):
    limit, args = LISTS[case]
    run, peak = attn_and_peak(*args, "--max-memory", f"{limit}M", cwd=lists)
    assert_error(run, 65, "memory", "--max-memory raises the limit")
    assert peak < (limit + 16) * MIB, f"{peak / MIB:.0f} MiB"


def test_names_of_many_files(tmp_path):
    np.save(tmp_path / "w.npy", np.full((1, 2, 2), 0.5))
    run, peak = attn_and_peak("rollout", *["w.npy"] * 12_000, "--max-memory", "4M", cwd=tmp_path)
    assert run.returncode == 0
    assert peak < 20 * MIB


def test_wide_heads():
    """The kernels work on blocks of keys, however few keys there are."""
    wide = '{"randn":{"shape":[1,300000]}}'
    run, peak = attn_and_peak("run", "--q", wide, "--k", wide, "--seed", 1, "--max-memory", "64M")
    assert_error(run, 65, "of memory, more than the limit of 64.0 MiB")
    check_peak(peak)


def test_rows(tmp_path):
    (tmp_path / "q.json").write_text("[[1,2],[3,4]]")
    run, peak = attn_and_peak("run", "--q", "q.json", "--k", "q.json", "--rows", "0:900000", "--max-memory", "16M",
                              cwd=tmp_path)
    assert_error(run, 65, "--rows: takes more than", "--max-memory")
    assert peak < 32 * MIB


def test_honest_input_needs_little_more_than_its_size(tmp_path):
    numbers = np.arange(1_000_000) % 1000
    (tmp_path / "q.json").write_text(json.dumps(numbers.reshape(-1, 10).tolist()))
    assert attn("compare", "q.json", "q.json", "--max-memory", "128M", cwd=tmp_path).returncode == 0


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))


@pytest.mark.parametrize("args", ["convert m.safetensors#zz", "convert m.safetensors", "inspect m.safetensors", "view m.safetensors",
                                  "stats m.safetensors", "run m.safetensors", "run m.safetensors#zz"])
@pytest.mark.parametrize("metadata", [False, True])
def test_file_is_named_once(args, metadata, tmp_path):
    """Of 20,000 tensors, or of metadata."""
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    tensors = {"__metadata__": {f"m{i}" * 40: "y" * 40 for i in range(20_000)}} if metadata else {
        f"layer.{i}.weight": entry for i in range(20_000)}
    header = json.dumps(tensors).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    run = attn(*args.split(), "--max-memory", 2 * len(header), cwd=tmp_path)
    assert (run.returncode, run.stderr.decode()) == (
        65, f"attn: m.safetensors: takes more than {2 * len(header)} bytes of memory to read; "
        "--max-memory raises the limit\n")
