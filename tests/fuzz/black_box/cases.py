"""Random runs of attn: a valid command line with valid files, of which some parts are changed."""

import copy
import dataclasses
import json
import random
import re
import struct
import zlib

import make_corpus
import seeds

MIB = 1 << 20
MAX_WORD = 30_000  # characters; Linux refuses words of 128 KiB
LIMITS = [32 * MIB, 48 * MIB, 64 * MIB]
TENSOR_SUFFIXES = ("npy", "npz", "safetensors", "json", "csv")

# Valid command lines. {npy}, {npz}, ... stand for a file of that kind, {any} for a tensor file, {out} for an
# output and {picture} for a picture.
COMMANDS = """
run {job}
run {job} -o {out}
run {job} -o {out} --force
run {job} --format json
run {job} --repr --precision 3
run {job} --view
run {job} --view={picture}
run {job} --explain steps.md -o {out}
run {job} --explain steps.html
run {job} --explain steps.tex --explain-query -1
run {job} --dry-run
run {job} -o weights=w.npy -o results/ --outputs weights,context
run - --format npz
run {npz} -o out.npz
run {npz} --q {any} -o out.json
run {safetensors} --outputs scores -o out.safetensors
run --q {any} --k {any} --v {any}
run --q {any} --k {any} --causal -o {out}
run --q {npy} --k {npy} --mask {any} --nan refuse
run --q {npy} --k {npy} --dropout-mask {any} --dropout-p 0.25 --outputs dropped_weights
run loss.npz --outputs grad_Q,grad_K,grad_V,delta -o {out}
run loss.npz --causal --mask {any} --outputs dq,grad_mask,delta
run loss.npz --dropout-mask {any} --dropout-p 0.25 --outputs grad_V,dk --format json
run --q {npy} --k {npy} --grad-context {any} --outputs grad_Q,grad_K,delta
run --embeddings {any} --wq {any} --wk {any} --grad-context {any} --outputs grad_embeddings,grad_W_Q -o {out}
run --q result.npz#context --k {any} --format csv --outputs weights
run --embeddings {any} --wq {any} --wk {any} --heads 2
run layer.npz --heads 2 --convention torch-mha -o out.npz
run model.pt
run --model . --layer 0 --hidden {any} -o weights=w.npy
run --model . --layer all --hidden hidden.npy -o {out}
run --model . --layer 0:2 --hidden hidden.npy -o layer{layer}.npz
run --model . --layer 1,0 --hidden {any} --dry-run
model inspect .
batch {job} {job} --out-dir results -q
batch {job} {npz} --out-dir results --format json --isolate -j 1
batch {job} --base {job} --out-dir results --format folder
batch {job} --out-dir results --manifest manifest.ndjson --resume
batch --files-from names.txt --out-dir results --name {index}
batch - -j 2
batch - --json --out-dir results -j 1
batch - --dry-run
batch - --shard 1/2 --bundle 2 --out-dir results --name {index}
batch - --shard auto/2
batch {job} {npz} --bundle 2 --out-dir results --format safetensors --resume
batch - --summary summary.csv
batch {job} --out-dir results --summary summary.ndjson --statistics mean,entropy
batch --status .
batch {job} --status . --json
view {any}
view {any} -o {picture}
view {npz} --of Q --head 0 --width 40
view result.npz {npz} -o page.html
view {json} --tokens a,b,c --color always
inspect {any} {any}
inspect {any} --json
inspect {any} --provenance
convert {any} -o {out}
convert {any} -o {out} --dtype f32
convert {any} --repr
convert {any} --format {suffix}
convert - -o {out}
convert {npz}#Q -o {out}
compare {any} {any}
compare {any} {any} --json
compare {any} {any} --rtol 1e-3 --equal-nan --view
compare result.npz result.safetensors --view={picture}
compare result.npz --reference {job}
compare {any} --reference --q {any} --k {any} --precision bf16
compare gradients.npz --reference loss.npz
compare gradients.npz --reference loss.npz --causal --json
compare {any} --reference loss.npz --as grad_K --softcap 2
merge part1.npz part2.npz -o {out}
merge part1.npz {npz}
stats {any}
stats result.npz {any} --format csv
stats {any} --token-ids {any} --by item --format ndjson
stats . --by all -o out.csv
stats result.npz {npz} --similarity
rollout {any}
rollout result.npz {any} --heads max --discard 0.5 --residual 0.3 -o {out}
run {job} --outputs weight_sum,entropy,effective_keys,keys_95,distance,first_key_weight,previous_token_weight
run --q {npy} --k {npy} --token-ids {any} --outputs induction_weight,duplicate_token_weight
random randn --shape 3,4 --seed 1
random randint --high 5 --shape 2,3 --seed 7 --repeat 2 -o {out}
random choice --input {any} --seed 2 --shape 5
random shuffle --input {any} --seed 2
random integers --generator default_rng --low 0 --high 9 --shape 4 --seed 3,4
svd {any}
svd {any} --rank 1 -o {out}
svd {npz}#Q -o folder/
examples list
examples run latent-factors
conventions
completions bash
man run
schema
help formats
--version -v
""".strip().splitlines()

STRANGE_TEXTS = ["", "-", "--", "--x", "=", "#", "a#b", "#Q", "result.npz#", "'", "\x1b[2J", "a\nattn: all is well", "\u202eabc",
                 "\ufeff", "\u0301", "\U0001f469\u200d\U0001f4bb", "\udcff\udcfe", "\x7f", "\t", " ", "*", "{index}", "{stem}",
                 "\\x1b", "\\", "%s%n", "{", "nul", "x" * 300, "x" * 100000, "é" * 5000, "a," * 2000, "[1]" * 100, "[" * 200, ".npz",
                 ".", "out.npz/", "a/b/c.npz", "/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/full"]
NUMBERS = ["0", "1", "2", "3", "-1", "-2", "7", "64", "65", "127", "128", "255", "256", "1000", "65535", "65536", "100000",
           "2147483647", "2147483648", "-2147483648", "4294967295", "4294967296", "9223372036854775807",
           "9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616", "9" * 400,
           "0.5", "-0", "-0.0", "1e-3", "1e-320", "1e308", "1e309", "-1e400", "nan", "inf", "-inf", "0x10", "1_000", "+5",
           " 5", "5 ", "1.", ".5", "1e", "١"]
LISTS = ["0", "0,1", "0:2", "-1", "0:9999999", "1:0", "0,0,0", ",", "1,", "0:3:1", "a,b", "3,4", "4", "1000,1000",
         "100000,100000", "0,5", "2,3,4", "1,1,1,1,1,1,1,1", ",".join(["1"] * 65), ",".join(["2"] * 70), "-1,4", "I,am"]
SIZES = ["0", "1", "1K", "64K", "1M", "16M", "32m", "0.5M", "1G", "-1", "1X", "1e3", "16777216T", "99999999999999999999"]
JSON_TEXTS = ["[", "{}", "[]", "[1,2]", "[[1]]", "[1.5,null]", '["a"]', '["a","b","c"]', '[["a"],["b"]]', '{"a":1}', "true", "null",
              '""', '"a"', "1e999", '["\\u001b[2J"]', '["\\ud800"]', '[{"randn":{"shape":[2,3]}}]', '{"randn":{"shape":[3,-4]}}',
              '{"randn":{"shape":[99999999999]}}', '{"randn":{}}', '{"kind":"half"}', '{"kind":"half","base":0}', '{"sinusoidal":2}',
              '{"Q":[[1]],"Q":[[2]]}', "[1,]", "[1] [2]", "[\t1]", '{"a"', "[" * 600 + "]" * 600, "[" + "1," * 3000 + "1]"]
# How values are given in place of a word: of a file, of a part of it, as the name of another flag's value.
FORMS = ["@{}", "{}#Q", "{}#weights", "{}#", "{}#Q[0]", "{}#Q[0:1]", "{}#Q[:,1]", "{}#Q[-1:]", "{}#Q[0:99999999999]", "{}#Q.T",
         "{}#Q.T[0]", "{}#[0]", "{},{}", "{}=", "={}", "./{}", "{}/", "{}/x", "{} ", " {}", "-{}", "{}:{}", "{}x{}", "{}.npz",
         "weights={}", "weights=out.npy,{}", "'{}'", "{}\n", "{}\t", "{}\x1b[2J", "\u202e{}", "{}\u0301", "{}\r", "{}\x7f", "{}\x9b1m"]
INTEGERS = [0, 1, 2, 3, 7, 8, 63, 64, 65, 127, 128, 255, 256, 1 << 15, (1 << 16) - 1, 1 << 16, (1 << 31) - 1, 1 << 31,
            (1 << 32) - 1, 1 << 32, (1 << 53) + 1, (1 << 62) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -1, -2]
ENVIRONMENT = {"COLUMNS": NUMBERS, "TERM": ["dumb", "xterm-256color", "", "\x1b[2J"], "COLORTERM": ["truecolor", "x"],
               "NO_COLOR": ["", "1"], "ATTN_ISA": ["baseline", "avx2", "none", ""], "LANG": ["C", "de_DE.UTF-8", "x"],
               "LC_ALL": ["tr_TR.UTF-8", "C.UTF-8", ""], "ATTN_DATA": ["", ".", "missing", "\x1b[2J"],
               "OPENBLAS_NUM_THREADS": NUMBERS, "OMP_NUM_THREADS": NUMBERS, "TZ": ["x", ""], "HOME": ["", "."],
               "OPENBLAS_VERBOSE": ["2"], "FONTCONFIG_FILE": ["missing"], "TMPDIR": ["missing", ""],
               "SOURCE_DATE_EPOCH": NUMBERS}
# What the name of a file may begin with.
STRANGE_NAMES = ["\x1b[2J", "a\nattn: all is well\n", "\u202e", "\udcff", "\x9b", " ", "-", "--q=", "#", "a#b", "@", "{", "é" * 80, "x=", "a,b"]
# Members that a mutated zip archive may get.
NAMES = ["Q.npy", "K.npy", "Q", ".npy", "a/b.npy", "../up.npy", "/root.npy", "\x1b[2J.npy", "Q.NPY", "é.npy", "x" * 300 + ".npy"]


@dataclasses.dataclass
class Case:
    """`attn ARGS...` in a folder with `files`. `limit` is its --max-memory in bytes, or None."""

    args: list
    files: dict
    stdin: bytes = b""
    environment: dict = dataclasses.field(default_factory=dict)
    limit: int = None


class Pool:
    """The honest files and flags of seeds.py."""

    def __init__(self):
        self.files, self.flags, self.words = seeds.files(), seeds.flags(), make_corpus.words()
        self.by_kind = {suffix: [name for name in self.files if name.endswith("." + suffix)]
                        for suffix in (*TENSOR_SUFFIXES, "ndjson")}
        self.by_kind["job"] = [name for name in self.files if name.endswith(".job.json")] + ["tokens.json"] * 4
        self.by_kind["any"] = [name for suffix in TENSOR_SUFFIXES for name in self.by_kind[suffix]]
        self.fixed = [name for name in ("result.npz", "result.safetensors", "result.json", "part1.npz", "part2.npz",
                                        "layer.npz", "model.pt", "names.txt", "manifest.ndjson", "job.npz",
                                        "config.json", "model.safetensors", "hidden.npy",
                                        "tokens.json")]


# Mutations of bytes.


def mutate_bytes(dice, data, others):
    """A few changes at random places."""
    data = bytearray(data)
    for _ in range(dice.choice([1, 1, 1, 2, 3, 8])):
        at = dice.randrange(len(data) + 1)
        # Headers and directories are at the ends.
        if dice.random() < 0.3:
            at = min(at, dice.randrange(128))
        elif dice.random() < 0.3:
            at = max(0, len(data) - dice.randrange(128))
        size = dice.choice([1, 1, 2, 4, 8, 64])
        kind = dice.randrange(10)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = dice.randrange(256)
        elif kind == 2:
            del data[at:at + size]
        elif kind == 3:
            data[at:at] = bytes(dice.randrange(256) for _ in range(size))
        elif kind == 4:
            data[at:at] = data[at:at + size] * dice.choice([1, 1, 2, 50])
        elif kind == 5:
            del data[at:]
        elif kind == 6:
            width = dice.choice("<H <I <Q >I".split())
            number = dice.choice(INTEGERS) % (1 << 8 * struct.calcsize(width))
            data[at:at + struct.calcsize(width)] = struct.pack(width, number)
        elif kind == 7:
            other = others[dice.randrange(len(others))]
            start = dice.randrange(len(other) + 1)
            data[at:at + size] = other[start:start + size]
        elif kind == 8:
            digits = list(re.finditer(rb"\d+", bytes(data[:4096])))
            if digits:
                found = dice.choice(digits)
                data[found.start():found.end()] = dice.choice(NUMBERS).encode()
        else:
            data[at:at] = dice.choice(STRANGE_TEXTS).encode("utf-8", "surrogateescape")
    return bytes(data)


# Mutations of the structure of each format.


def json_value(dice, words, depth=0):
    kind = dice.randrange(9)
    if kind == 0:
        return dice.choice(INTEGERS)
    if kind == 1:
        return dice.choice([None, True, False, 0.5, -1e300, 5e-324, 1e16, "NaN", "Infinity", "-Infinity"])
    if kind == 2:
        return dice.choice(STRANGE_TEXTS)
    if kind == 3:
        return dice.choice(words)
    if kind == 4 and depth < 3:
        return {dice.choice(words): json_value(dice, words, depth + 1) for _ in range(dice.randrange(4))}
    if kind == 5:
        value = dice.choice([1, [], {}])
        for _ in range(dice.choice([1, 3, 63, 64, 65, 71, 72, 73, 500])):
            value = [value]
        return value
    if kind == 6:
        return [json_value(dice, words, depth + 1) for _ in range(dice.randrange(4))] if depth < 3 else []
    if kind == 7:
        return [dice.choice([1, 0.5, [1], [], {}, "a", True])] * dice.choice([1, 10, 1000, 30000])
    rows, columns = dice.randrange(1, 9), dice.randrange(1, 9)
    return [[dice.choice([0, 1, -2, 0.25]) for _ in range(columns)] for _ in range(rows)]


def mutate_json_tree(dice, value, words):
    """Replaces, removes or adds one thing somewhere in the tree."""
    if isinstance(value, (dict, list)) and value and dice.random() < 0.75:
        key = dice.choice(list(value)) if isinstance(value, dict) else dice.randrange(len(value))
        kind = dice.randrange(8)
        if kind < 4:
            value[key] = mutate_json_tree(dice, value[key], words)
        elif kind == 4:
            del value[key]
        elif kind == 5 and isinstance(value, dict):
            value[dice.choice(words + STRANGE_TEXTS)] = value.pop(key)
        elif isinstance(value, dict):
            value[dice.choice(words)] = json_value(dice, words)
        else:
            value.insert(key, copy.deepcopy(dice.choice(value)) if kind == 6 else json_value(dice, words))
        return value
    return json_value(dice, words)


def json_bytes(dice, value):
    text = json.dumps(value, ensure_ascii=dice.random() < 0.5, separators=dice.choice([(",", ":"), (", ", ": ")]))
    return text.encode("utf-8", "surrogateescape")


def mutate_json(dice, data, words):
    lines = data.split(b"\n") if b"\n" in data.strip() else [data]
    at = dice.randrange(len(lines))
    try:
        lines[at] = json_bytes(dice, mutate_json_tree(dice, json.loads(lines[at]), words))
    except ValueError:
        pass
    return b"\n".join(lines)


def npy(header, data, major=1):
    """A file of this header; its length is that of the header but for what does not fit."""
    length = len(header) % (1 << 16)
    return b"\x93NUMPY" + bytes([major, 0]) + struct.pack("<H" if major == 1 else "<I", length) + header + data


def mutate_npy(dice, data, _):
    """Replaces fields of the header, the version or the data."""
    start = 10 + int.from_bytes(data[8:10], "little")
    shape = dice.choice(["()", "(0,)", "(6,)", "(2, 3)", "(3, 2)", "(1, 2, 3)", "(6L,)", "(2, 3, 0)", "(-1, 6)", "[2, 3]",
                         f"({dice.choice(NUMBERS)}, {dice.choice(NUMBERS)})", f"({dice.choice(NUMBERS)},)",
                         "(" + "1, " * dice.choice([31, 32, 33, 64, 65, 3000]) + ")"])
    descr = dice.choice(["'<f8'", "'<f4'", "'>f8'", "'|i1'", "'<u8'", "'|b1'", "'=f8'", "'f8'", "'<f2'", "'>i8'", "'<c16'",
                         "'|O'", "'<U3'", "'<f16'", "'<V2'", "[('a', '<f8')]", "'<f80000000000000000000'", "'bfloat16'", "8"])
    order = dice.choice(["False", "True", "True", "0", "None"])
    header = data[10:start]
    for pattern, value in ((rb"\([^()]*\)", shape), (rb"'[<>|][^']*'", descr), (rb"False|True", order)):
        if dice.random() < 0.35:
            header = re.sub(pattern, lambda _, value=value: value.encode("utf-8", "surrogateescape"), header, count=1)
    body = data[start:]
    if dice.random() < 0.2:
        body = dice.choice([bytes(dice.randrange(64)), body * dice.choice([2, 1000]), body[:-1]])
    if dice.random() < 0.1:
        header += dice.choice([b" ", b"\n", b" " * 70000, b"\0"])
    return npy(header, body, dice.choice([1] * 12 + [2, 3, 0, 255]))


def mutate_safetensors(dice, data, words):
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:8 + length])
    except ValueError:
        return data
    if dice.random() < 0.1:
        header = {f"t{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(dice.choice([100, 20000]))}
    elif dice.random() < 0.2:
        header["__metadata__"] = dice.choice([{"tokens": "[1]"}, {"made_by": "{" * 100}, {"a": 1}, [], {"tokens": '["\\u001b[2J"]'},
                                              {"schema": "attn/2"}, {"made_by": '{"job":[[[[]]]]}'}])
    header = mutate_json_tree(dice, header, words)
    text = json_bytes(dice, header) + b" " * dice.choice([0, 0, 1, 7])
    return struct.pack("<Q", (len(text) + dice.choice([0, 0, 0, 0, 1, -1, 1 << 40])) % (1 << 64)) + text + data[8 + length:]


def zip_of(dice, members, comment=b""):
    """An archive of these (name, bytes), each field wrong with a small probability."""
    def off(number, bits):
        return (dice.choice(INTEGERS) if dice.random() < 0.01 else number) % (1 << bits)

    body, directory = b"", b""
    for name, data in members:
        packed, method = data, 0
        if dice.random() < 0.5:
            pack = zlib.compressobj(9, zlib.DEFLATED, -15)
            packed, method = pack.compress(data) + pack.flush(), 8
        name = name.encode("utf-8", "surrogateescape")
        flags = dice.choice([0, 0, 0, 0x800, 8, 1]) if dice.random() < 0.1 else 0
        common = struct.pack("<5H3I2H", off(20, 16), flags, off(method, 16), 0, 33, off(zlib.crc32(data), 32),
                             off(len(packed), 32), off(len(data), 32), off(len(name), 16), off(0, 16))
        directory += b"PK\1\2" + struct.pack("<H", 20) + common + struct.pack("<3H2I", off(0, 16), off(0, 16), 0, 0,
                                                                            off(len(body), 32)) + name
        body += b"PK\3\4" + common + name + packed
    end = struct.pack("<4H2IH", off(0, 16), off(0, 16), off(len(members), 16), off(len(members), 16),
                      off(len(directory), 32), off(len(body), 32), off(len(comment), 16))
    return body + directory + b"PK\5\6" + end + comment


def mutate_npz(dice, data, words):
    """A new archive of honest, mutated, doubled or huge members."""
    plain = npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }\n", struct.pack("<6d", *range(6)))
    members = []
    for name in dice.choices(NAMES[:6] + NAMES, k=dice.choice([0, 1, 2, 2, 3])):
        body = plain
        if dice.random() < 0.4:
            body = mutate_npy(dice, plain, words)
        elif dice.random() < 0.1:
            count = dice.choice([1, 4, 24]) * MIB // 8
            header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({count},), }}"
            body = npy(header.encode(), bytes(8 * count))
        members.append((name, body))
    comment = dice.choice([b"", b"", b"x", b'{"schema":"attn/1","tokens":["a"]}', b'{"tokens":["\\u001b[2J"]}', b"PK\5\6" + bytes(18)])
    archive = zip_of(dice, members, comment)
    return archive * 2 if dice.random() < 0.03 else archive


def mutate_csv(dice, data, _):
    rows = [line.split(b",") for line in data.splitlines()] or [[b""]]
    for _ in range(dice.choice([1, 1, 3])):
        row = dice.choice(rows)
        cell = dice.choice(NUMBERS + STRANGE_TEXTS + ['"', '"a""b"', "1;2", "NaN", "-Infinity", "1 2"])
        row[dice.randrange(len(row))] = cell.encode("utf-8", "surrogateescape")
    kind = dice.randrange(6)
    if kind == 0:
        rows *= dice.choice([2, 1000])
    elif kind == 1:
        rows = [row * dice.choice([2, 300]) for row in rows]
    elif kind == 2:
        rows.insert(dice.randrange(len(rows) + 1), [])
    return dice.choice([b"\n", b"\r\n", b"\r"]).join(b",".join(row) for row in rows) + dice.choice([b"\n", b"", b"\n\n"])


STRUCTURE = {"npy": mutate_npy, "npz": mutate_npz, "safetensors": mutate_safetensors, "json": mutate_json,
             "csv": mutate_csv, "ndjson": mutate_json}


def hostile_bulk(dice):
    """A file of up to 2 MB whose contents are small things, which take more memory than their text."""
    member = dice.choice([b"[1]", b"[]", b"{}", b'"a"', b"1", b'"\\u0041"', b"[[]]", b"1e5", b"true", b"null"])
    count = dice.choice([1000, 30000, 2 * MIB // (len(member) + 1)])
    kind = dice.randrange(4)
    if kind == 0:
        return b'{"Q":[' + b",".join([member] * count) + b"]}"
    if kind == 1:
        return b"{" + b",".join(b'"%d":%s' % (i, member) for i in range(min(count, 200000))) + b"}"
    if kind == 2:
        return dice.choice([b"\n", b","]).join([b"1"] * count)
    return b"[" + b",".join([member] * count) + b"]"


def mutate_file(dice, pool, name, data):
    kind = name.rpartition(".")[2]
    if dice.random() < 0.01:
        return hostile_bulk(dice)
    if dice.random() < 0.02:
        return dice.choice(list(pool.files.values()))
    if kind in STRUCTURE and data and dice.random() < 0.55:
        data = STRUCTURE[kind](dice, data, pool.words)
        if dice.random() < 0.8:
            return data
    others = [pool.files[dice.choice(pool.by_kind.get(kind) or list(pool.files))]]
    return mutate_bytes(dice, data, others)


# Command lines.


def mutate_value(dice, value, names):
    """A value as it may be mistyped: another number, an element of a list more or less, another form."""
    kind = dice.randrange(9)
    if kind == 0:
        return dice.choice(STRANGE_TEXTS)
    if kind == 1:
        return dice.choice(NUMBERS + SIZES + LISTS)
    if kind == 2:
        return dice.choice(JSON_TEXTS)
    if kind == 3:
        return dice.choice(FORMS).replace("{}", dice.choice([value, value, *names]))
    if kind == 4:
        return value * dice.choice([2, 2, 100]) if len(value) < 100 else value[:-1]
    if kind == 5:
        parts = value.split(",")
        parts.insert(dice.randrange(len(parts) + 1), dice.choice([*parts, "", dice.choice(NUMBERS)]))
        return ",".join(parts)
    if kind == 6:
        return re.sub(r"[0-9.]+", lambda _: dice.choice(NUMBERS), value, count=1)
    if kind == 7:
        return dice.choice([value.upper(), value.title(), value[:-1], value[1:], value[::-1]])
    at = dice.randrange(len(value) + 1)
    return value[:at] + dice.choice(STRANGE_TEXTS + JSON_TEXTS) + value[at:]


def mutate_values(dice, args, names):
    """Changes the values of some flags and arguments, not the flags."""
    args = list(args)
    for _ in range(dice.choice([1, 1, 1, 2])) if args else []:
        at = dice.randrange(1, len(args)) if len(args) > 1 else 0
        flag, equals, value = args[at].partition("=")
        if args[at].startswith("--") and equals:
            args[at] = flag + "=" + mutate_value(dice, value, names)
        elif not args[at].startswith("--"):
            args[at] = mutate_value(dice, args[at], names)
    return args


def value_of(dice, pool, metavariable, words, names):
    if dice.random() < 0.15:
        return dice.choice(STRANGE_TEXTS + NUMBERS + JSON_TEXTS)
    if "FILE" in metavariable or "PATH" in metavariable:
        return dice.choice([dice.choice(names or ["q.npy"]), "q.npy", f"out.{dice.choice(TENSOR_SUFFIXES)}", "x.svg", "p.html",
                            "[[1,0],[2,3]]", '{"randn":{"shape":[3,4]}}', "result.npz#weights", "-", "missing.npy"])
    if metavariable in ("WORD", "NAME", "DTYPE", "WORDS", "PATTERN", "LIST") and words and dice.random() < 0.8:
        return dice.choice(words + [",".join(dice.choices(words, k=2))])
    if metavariable == "SIZE":
        return dice.choice(SIZES)
    return dice.choice(LISTS if "," in metavariable or metavariable == "LIST" or dice.random() < 0.2 else NUMBERS)


def random_flag(dice, pool, command, names):
    flags = pool.flags.get(command) or pool.flags["run"]
    flag, metavariable, words = dice.choice(flags)
    if not metavariable and dice.random() < 0.9:
        return [flag]
    value = value_of(dice, pool, metavariable, words, names)
    return [f"{flag}={value}"] if dice.random() < 0.4 else [flag, value]


def mutate_args(dice, pool, args, names):
    args = list(args)
    for _ in range(dice.choice([1, 1, 2, 4])):
        at = dice.randrange(len(args) + 1)
        kind = dice.randrange(10)
        if kind < 5:
            args[at:at] = random_flag(dice, pool, args[0] if args else "run", names)
        elif kind == 5:
            del args[at:at + 1]
        elif kind == 6 and args:
            args[min(at, len(args) - 1)] = dice.choice(STRANGE_TEXTS + names)
        elif kind == 7 and args:
            args.insert(at, dice.choice(args))
        elif kind == 8 and at < len(args):
            args[at] = mutate_bytes(dice, args[at].encode("utf-8", "surrogateescape"), [b"--"]) \
                .replace(b"\0", b"").decode("utf-8", "surrogateescape")[:20000]
        else:
            args[at:at] = [dice.choice(NUMBERS)]
    return args


def is_harmless(word):
    """Whether the word names nothing outside the folder of the run."""
    devices = word.startswith("/dev/") and word in STRANGE_TEXTS
    return devices or not re.search(r"(^|[=#@,:' ])/|\.\.|^-[a-z]/|~", word)


def make_case(pool, seed):
    """The run number of a seed."""
    dice = random.Random(seed)
    names, stdin = [], b""

    def file_of(match):
        kind = match.group(1)
        if kind in ("index", "layer"):
            return match.group(0)  # of batch --name, of layers
        if kind == "out":
            return "out." + dice.choice(TENSOR_SUFFIXES)
        if kind == "picture":
            return "picture." + dice.choice(["svg", "pdf", "png", "html"])
        if kind == "suffix":
            return dice.choice(TENSOR_SUFFIXES)
        names.append(dice.choice(pool.by_kind[kind]))
        return names[-1]

    args = [re.sub(r"\{(\w+)\}", file_of, word) for word in dice.choice(COMMANDS).split()]
    named = [word.partition("#")[0] for word in args if word.partition("#")[0] in pool.files]
    if args[0] == "model" or "--model" in args:
        named += ["config.json", "model.safetensors"]
    files = {name: pool.files[name] for name in [*named, *pool.fixed]}
    if "-" in args:
        kind = "ndjson" if args[0] == "batch" else "job" if args[0] == "run" else "any"
        stdin_name = dice.choice(pool.by_kind[kind])
        stdin = pool.files[stdin_name]
        if dice.random() < 0.6:
            stdin = mutate_file(dice, pool, stdin_name, stdin)
    for name in dict.fromkeys(named):
        if dice.random() < 0.4:
            files[name] = mutate_file(dice, pool, name, files[name])
    if dice.random() < 0.35:
        args = mutate_args(dice, pool, args, list(files))
    if named and dice.random() < 0.05:
        name = dice.choice(named)
        strange = dice.choice(STRANGE_NAMES) + name
        files[strange] = files[name]
        args = [word.replace(name, strange) for word in args]
    if dice.random() < 0.4:
        args = mutate_values(dice, args, list(files))
    args = [word for word in args
            if is_harmless(word) and not word.startswith("--max-mem") and len(word) <= MAX_WORD]
    limit = None
    takes_limit = pool.flags.get(args[0], []) if args else []
    if any(flag == "--max-memory" for flag, _, _ in takes_limit):
        limit = dice.choice(LIMITS)
        args[1:1] = ["--max-memory", str(limit)]
    environment = {}
    if dice.random() < 0.1:
        for name in dice.sample(sorted(ENVIRONMENT), 2):
            environment[name] = dice.choice(ENVIRONMENT[name])
    return Case(args, files, stdin, environment, limit)
