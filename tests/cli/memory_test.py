"""With too little address space, `attn run` fails with one line and an exit code, and never hangs."""

import resource
import subprocess

import numpy as np
import pytest

from support.attn import ATTN, under_asan

pytestmark = pytest.mark.skipif(under_asan(), reason="AddressSanitizer's shadow memory")
LIMITS = [40, 60, 80, 120, 160, 240, 320, 480, 640, 1280]  # MiB


@pytest.fixture(scope="module")
def runs(module_path):
    """A run for each limit and path."""
    rng = np.random.default_rng(0)
    np.savez(module_path / "in.npz", embeddings=rng.standard_normal((512, 64)),
             W_Q=rng.standard_normal((64, 64)), W_K=rng.standard_normal((64, 64)))

    def limited(mebibytes, path):
        limit = mebibytes << 20
        return subprocess.run([ATTN, "run", "in.npz", "--path", path, "--format", "npz"], cwd=module_path,
                              capture_output=True, timeout=60,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    return {(mebibytes, path): limited(mebibytes, path) for mebibytes in LIMITS for path in ("auto", "reference")}


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("mebibytes", LIMITS)
class TestRun:
    def test_succeeds_or_is_refused(self, runs, mebibytes, path):
        # 127: the dynamic loader could not load the program's libraries.
        assert runs[mebibytes, path].returncode in (0, 65, 127)

    def test_refusal_is_one_line(self, runs, mebibytes, path):
        run = runs[mebibytes, path]
        if run.returncode == 65:
            assert run.stderr.startswith(b"attn: ")
            assert run.stderr.count(b"\n") == 1

    def test_failure_prints_no_result(self, runs, mebibytes, path):
        run = runs[mebibytes, path]
        assert run.returncode == 0 or run.stdout == b""


def test_some_limits_are_enough_and_some_are_not(runs):
    assert {0, 65} <= {run.returncode for run in runs.values()}
