"""`attn merge`: results over parts of the keys, merged, equal attention over all keys."""

import numpy as np
import pytest

from support.attn import assert_error, attn
from support.plain_attention import attend

PARTS = [(0, 4), (4, 5), (5, 9)]  # ranges of keys


def run_part(folder, name, tensors, *flags, outputs="logsumexp,head_context,weights"):
    """Writes the results over a part of the keys."""
    np.savez(folder / "in.npz", **tensors)
    run = attn("run", "in.npz", *flags, "--outputs", outputs, "-o", name, "--force", cwd=folder)
    assert run.returncode == 0


def merge(folder, *parts):
    run = attn("merge", *parts, "-o", "all.npz", "--force", cwd=folder)
    assert run.returncode == 0
    with np.load(folder / "all.npz") as archive:
        return dict(archive)


def is_close(found, wanted, tolerance=1e-14):
    """Relative to the largest finite number; infinities must be equal."""
    with np.errstate(invalid="ignore"):
        largest = max(1, abs(wanted).max(initial=0, where=np.isfinite(wanted)))
        same = (found == wanted) | (abs(found - wanted) <= tolerance * largest)
    return found.shape == wanted.shape and same.all()


@pytest.fixture(scope="module")
def tensors():
    rng = np.random.default_rng(3)
    tensors = {"Q": rng.standard_normal((2, 4, 3, 6)), "K": 3 * rng.standard_normal((2, 2, 9, 6)),
               "V": rng.standard_normal((2, 2, 9, 5)), "mask": rng.random((3, 9)) < 0.6}
    tensors["mask"][0, :4] = False  # query 0 sees no key of the first part
    tensors["mask"][1] = False  # query 1 sees no key at all
    tensors["mask"][2] = True
    return tensors


class TestPartsWithMask:
    @pytest.fixture(scope="class")
    def merged(self, tensors, class_path):
        for i, (a, b) in enumerate(PARTS):
            part = {"Q": tensors["Q"], "K": tensors["K"][:, :, a:b], "V": tensors["V"][:, :, a:b],
                    "mask": tensors["mask"][:, a:b]}
            run_part(class_path, f"{i}.npz", part, "--empty-rows", "uniform")
        return merge(class_path, "0.npz", "1.npz", "2.npz")

    @pytest.mark.parametrize("output, stage", [
        ("head_context", "context"), ("logsumexp", "logsumexp"), ("weights", "weights")])
    def test_output_equals_attention_over_all_keys(self, merged, tensors, output, stage):
        assert is_close(merged[output], attend(tensors, {})[stage])

    @pytest.mark.parametrize("output", ["head_context", "logsumexp"])
    def test_output_is_not_that_of_a_part(self, merged, class_path, output):
        with np.load(class_path / "0.npz") as part:
            assert not is_close(merged[output], part[output])


class TestPartsWithScoresFarApart:
    @pytest.fixture(scope="class")
    def merged(self, class_path):
        for i, shift in enumerate((-900.0, 900.0)):
            part = {"Q": np.ones((1, 1)), "K": np.array([[shift], [shift + 1]]), "V": np.eye(2)}
            run_part(class_path, f"{i}.npz", part, "--scale", "none", outputs="logsumexp,head_context")
        return merge(class_path, "0.npz", "1.npz")

    def test_nothing_overflows(self, merged, class_path):
        with np.load(class_path / "1.npz") as last:
            assert is_close(merged["head_context"], last["head_context"])

    def test_outputs_that_the_parts_lack_are_not_written(self, merged):
        assert sorted(merged) == ["head_context", "logsumexp"]


@pytest.mark.parametrize("suffix", ["npz", "json"])
def test_parts_in_float32(tensors, tmp_path, suffix):
    single = {name: tensors[name].astype("f4") for name in "QKV"}
    for i, (a, b) in enumerate(PARTS):
        run_part(tmp_path, f"{i}.{suffix}",
                 {"Q": single["Q"], "K": single["K"][:, :, a:b], "V": single["V"][:, :, a:b]})
    merged = merge(tmp_path, *(f"{i}.{suffix}" for i in range(3)))
    wanted = attend({name: array.astype("f8") for name, array in single.items()}, {})
    assert is_close(merged["head_context"], wanted["context"], 1e-6)
    if suffix == "npz":
        assert merged["head_context"].dtype == "float32"


@pytest.mark.parametrize("parts, code, reason", [
    (["a.npz", "few.npz"], 65, "few.npz: logsumexp: missing; each part must contain it"),
    (["a.npz", "rows.npz"], 65, "rows.npz: logsumexp: expected floats (2,), found float64 (3,)"),
    (["a.npz", "wide.npz"], 65, "wide.npz: head_context: expected floats (2, 3) to match the first part"),
    (["a.npz", "none.npz"], 66, "none.npz"),
    ([], 2, "PART"),
])
def test_parts_that_do_not_match_are_refused(tmp_path, parts, code, reason):
    q, k = np.ones((2, 3)), np.ones((4, 3))
    run_part(tmp_path, "a.npz", {"Q": q, "K": k})
    run_part(tmp_path, "few.npz", {"Q": q, "K": k}, outputs="weights")
    run_part(tmp_path, "rows.npz", {"Q": np.ones((3, 3)), "K": k})
    run_part(tmp_path, "wide.npz", {"Q": q, "K": k, "V": np.ones((4, 7))})
    assert_error(attn("merge", *parts, cwd=tmp_path), code, reason)


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "json"])
@pytest.mark.parametrize("bases", [(2, 2, 2), (2, "e", 2), ("e", "e", "e")], ids=str)
@pytest.mark.parametrize("base", ["e", 2])
def test_parts_are_converted_to_one_base(tensors, tmp_path, suffix, bases, base):
    for i, (a, b) in enumerate(PARTS):
        part = {"Q": tensors["Q"], "K": tensors["K"][:, :, a:b], "V": tensors["V"][:, :, a:b]}
        run_part(tmp_path, f"{i}.{suffix}", part, "--lse-base", bases[i])
    run = attn("merge", *(f"{i}.{suffix}" for i in range(3)), "--lse-base", base, "-o", "all.npz", cwd=tmp_path)
    assert run.returncode == 0
    assert run.stderr.decode() == "".join(
        f"attn: {i}.{suffix}: logsumexp is in base {bases[i]}, as the file records; converted to base {base}\n"
        for i in range(3) if bases[i] != base)
    wanted = attend({name: tensors[name] for name in "QKV"}, {})
    with np.load(tmp_path / "all.npz") as merged:
        assert is_close(merged["head_context"], wanted["context"])
        assert is_close(merged["logsumexp"], wanted["logsumexp"] / (np.log(2) if base == 2 else 1))
        assert is_close(merged["weights"], wanted["weights"])


class TestPartsInFloat16:
    """The logsumexp of 16-bit problems is float32: its rounding error is a relative error of the weights."""

    Q, K, V = [[32, 1]], [[31.39, 0.05], [31.39, 0.45]], [[0], [1]]

    def part(self, keys):
        return {name: np.array(rows, "f2") for name, rows in
                zip("QKV", (self.Q, self.K[keys], self.V[keys]))}

    def run(self, folder):
        for name, keys in ("0.npz", slice(0, 1)), ("1.npz", slice(1, 2)):
            run_part(folder, name, self.part(keys), "--scale", "none", outputs="logsumexp,head_context")

    def test_merged_context(self, tmp_path):
        self.run(tmp_path)
        merged = merge(tmp_path, "0.npz", "1.npz")
        q, k = (np.array(rows, "f2").astype(float) for rows in (self.Q, self.K))
        low, high = (q @ k.T)[0]
        exact = 1 / (1 + np.exp(low - high))
        assert abs(merged["head_context"][0, 0] - exact) <= 2 ** -11 * exact
        assert {name: array.dtype.name for name, array in merged.items()} == {
            "logsumexp": "float32", "head_context": "float16"}

    def test_logsumexp_is_planned_as_float32(self, tmp_path):
        np.savez(tmp_path / "in.npz", **self.part(slice(2)))
        plan = attn("run", "in.npz", "--outputs", "weights,logsumexp", "--dry-run", cwd=tmp_path)
        lines = plan.stdout.decode().splitlines()
        assert ["float32" in line for line in lines if line.lstrip().startswith("logsumexp")] == [True]
        assert ["float16" in line for line in lines if line.lstrip().startswith("weights")] == [True]

    @pytest.mark.parametrize("dtype, warns", [("f2", True), ("f4", False), ("f8", False)])
    def test_warning(self, tmp_path, dtype, warns):
        self.run(tmp_path)
        with np.load(tmp_path / "0.npz") as first, np.load(tmp_path / "1.npz") as part:
            first, arrays = dict(first), dict(part)
        np.savez(tmp_path / "0.npz", **first | {"logsumexp": first["logsumexp"].astype("f4")})
        np.savez(tmp_path / "1.npz", **arrays | {"logsumexp": arrays["logsumexp"].astype(dtype)})
        run = attn("merge", "0.npz", "1.npz", "-o", "all.npz", cwd=tmp_path)
        warning = ("attn: warning: 1.npz: logsumexp is float16, too coarse to weight the parts exactly; "
                   "'attn run' writes it in float32\n")
        assert run.stderr.decode() == (warning if warns else "")


class TestPartsOfAnotherProgram:
    """Parts named out and lse, with logsumexp in base 2."""

    @pytest.fixture(autouse=True)
    def parts(self, tensors, tmp_path):
        for i, (a, b) in enumerate(PARTS):
            run_part(tmp_path, "part.npz", {"Q": tensors["Q"], "K": tensors["K"][:, :, a:b], "V": tensors["V"][:, :, a:b]})
            with np.load(tmp_path / "part.npz") as part:
                np.savez(tmp_path / f"{i}.npz", out=part["head_context"], lse=part["logsumexp"] / np.log(2))

    @pytest.fixture
    def whole(self, tensors):
        return attend({name: tensors[name] for name in "QKV"}, {})

    @pytest.mark.parametrize("context", ["head_context", "context"])
    def test_are_merged(self, whole, tmp_path, context):
        merged = merge(tmp_path, "0.npz", "1.npz", "2.npz", "--as", f"out={context},lse=logsumexp", "--lse-base", "2")
        assert is_close(merged["head_context"], whole["context"])
        assert is_close(merged["logsumexp"], whole["logsumexp"] / np.log(2))

    def test_need_names(self, tmp_path):
        assert_error(attn("merge", "0.npz", "1.npz", cwd=tmp_path), 65,
                     "0.npz: logsumexp: missing; each part must contain it (--outputs logsumexp,head_context); "
                     "--as TENSOR=logsumexp uses one of out, lse")

    @pytest.mark.parametrize("value, message", [
        ("out=weigths", "--as: expected logsumexp, head_context, context, weights, found 'weigths' (did you mean "
                        "'weights'?)"),
        ("out", "--as: expected TENSOR=NAME, found 'out'"),
        ("ouy=context", "--as: 0.npz has no tensor 'ouy' (did you mean 'out'?)")])
    def test_refuses_wrong_names(self, tmp_path, value, message):
        assert_error(attn("merge", "0.npz", "1.npz", "--as", value, cwd=tmp_path), 2, message)


def test_a_file_with_one_unnamed_array_has_no_names_to_suggest(tmp_path):
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.ones((2, 3)))
    run = attn("merge", "a.npy", "b.npy", "-o", "all.npz", cwd=tmp_path)
    assert_error(run, 65, "a.npy: logsumexp: missing")
    assert b"uses one of" not in run.stderr


def test_only_one_part_may_have_sinks(tensors, tmp_path):
    """A sink in two parts counts twice. The reference has it once."""
    tensors = {name: tensors[name] for name in "QKV"}
    halves = [{**tensors, "K": tensors["K"][:, :, keys], "V": tensors["V"][:, :, keys]} for keys in (slice(4), slice(4, 9))]
    sinks = "[0.5, 1, 1.5, 2]"
    run_part(tmp_path, "whole.npz", tensors, "--sinks", sinks)
    run_part(tmp_path, "a.npz", halves[0], "--sinks", sinks)
    run_part(tmp_path, "b.npz", halves[1])
    merged = merge(tmp_path, "a.npz", "b.npz")
    with np.load(tmp_path / "whole.npz") as whole:
        assert is_close(merged["head_context"], whole["head_context"])
    run_part(tmp_path, "b.npz", halves[1], "--sinks", sinks)
    run = attn("merge", "a.npz", "b.npz", "-o", "no.npz", cwd=tmp_path)
    assert_error(run, 65, "a.npz and b.npz: only one part may have sinks, which would be counted once per part")
    assert not (tmp_path / "no.npz").exists()
