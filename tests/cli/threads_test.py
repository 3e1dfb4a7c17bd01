"""The bytes of a result do not depend on the number of threads, nor on other rows, heads or batch items."""

import numpy as np
import pytest

from support.attn import attn


def arrays_of(dtype):
    rng = np.random.default_rng(5)
    return {name: rng.standard_normal((2, 4, 300, 40)).astype(dtype) for name in "QKV"}


@pytest.mark.parametrize("dtype", ["float32", "float64"], scope="class")
@pytest.mark.parametrize("options", [[], ["--causal"], ["--window", "17,3", "--softcap", "5"]], scope="class")
class TestResult:
    @pytest.fixture(scope="class")
    def run(self, class_path, dtype):
        """Runs with these arguments and returns the outputs."""
        def run(*arguments, tensors=arrays_of(dtype)):
            np.savez(class_path / "in.npz", **tensors)
            assert attn("run", class_path / "in.npz", "-o", class_path / "out.npz", "--force",
                        *arguments).returncode == 0
            with np.load(class_path / "out.npz") as archive:
                return dict(archive)
        return run

    @pytest.fixture(scope="class")
    def one_thread(self, run, options):
        return run("--threads", 1, *options)

    @pytest.mark.parametrize("threads", [2, 3, 4, 7])
    def test_is_the_same_with_several_threads(self, run, one_thread, options, threads):
        several = run("--threads", threads, *options)
        assert [name for name in one_thread if several[name].tobytes() != one_thread[name].tobytes()] == []

    def test_is_the_same_for_some_rows(self, run, one_thread, options):
        rows = run("--rows", "7,130,299", *options)
        assert rows["weights"].tobytes() == one_thread["weights"][:, :, [7, 130, 299]].tobytes()

    def test_is_the_same_for_one_head(self, run, one_thread, options, dtype):
        head = {name: array[1:, 2:3] for name, array in arrays_of(dtype).items()}
        assert run(*options, tensors=head)["context"].tobytes() == one_thread["context"][1:, 2:3].tobytes()

    def test_is_close_to_the_reference_path(self, run, one_thread, options, dtype):
        reference = run("--path", "reference", *options)
        assert np.abs(reference["context"] - one_thread["context"]).max() < 100 * np.finfo(dtype).eps

    def test_is_not_computed_by_the_reference_path(self, run, one_thread, options):
        reference = run("--path", "reference", *options)
        assert any(reference[name].tobytes() != one_thread[name].tobytes() for name in reference)
