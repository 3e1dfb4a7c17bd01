"""attn.run(): arrays of all kinds, without copies; settings; errors; threads and processes."""

import array
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

from support.attn import ROOT
from support.dlpack import CUDA, DLPackArray, bfloat16

Q, K, V = (np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32) for seed in range(3))


@pytest.fixture(scope="module")
def attn(attn_module):
    return attn_module


def context(module, **job):
    return module.run(outputs=["context"], **job)["context"]


def softmax_context(q, k, v, scale):
    scores = (q @ k.T) * scale
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True) @ v


def test_default_outputs(attn):
    assert list(attn.run(Q=Q, K=K, V=V)) == ["scores", "weights", "context"]


def test_values_are_those_of_the_formula(attn):
    expected = softmax_context(*(x.astype(float) for x in (Q, K, V)), 1 / np.sqrt(8))
    np.testing.assert_allclose(context(attn, Q=Q, K=K, V=V), expected, rtol=1e-5, atol=1e-6)


def test_lists_are_numbers_of_the_job(attn):
    assert attn.run(Q=[[1, 0]], K=[[1, 2], [3, 4]], V="K", outputs=["scores"])["scores"].dtype == np.int64


def test_nan_in_a_list(attn):
    found = attn.run(Q=[[1.0, float("nan")]], K=[[1.0, 1.0]], V="K", outputs=["Q"], nan="allow")["Q"]
    assert np.isnan(found[0, 1])


def test_numbers_of_numpy_are_numbers(attn):
    expected = context(attn, Q=Q, K=K, V=V, scale=0.5, heads=2)
    assert (context(attn, Q=Q, K=K, V=V, scale=np.float32(0.5), heads=np.int64(2)) == expected).all()


def test_array_as_an_option(attn):
    expected = context(attn, Q=Q, K=K, V=V, window=[1, 0])
    assert (context(attn, Q=Q, K=K, V=V, window=np.array([1, 0])) == expected).all()


def test_group_of_keys(attn):
    found = attn.run(Q=Q, K=K, V=V, rotary={"kind": "half", "base": 100}, outputs=["queries"])["queries"]
    assert not (found == Q).all()


def test_files_and_random_tensors(attn, tmp_path):
    np.save(tmp_path / "k.npy", K)
    found = attn.run(Q={"randn": {"shape": [4, 8]}}, K=str(tmp_path / "k.npy"), V="K", seed=0, outputs=["Q", "K"])
    assert (found["K"] == K).all()
    assert (found["Q"] == np.random.RandomState(0).randn(4, 8)).all()


class TestArrays:
    """Every kind of array gives the result of the NumPy array with the same values."""

    @pytest.mark.parametrize("change", [
        np.asfortranarray,
        lambda x: np.repeat(x, 3, axis=1)[:, ::3],
        lambda x: x[::-1].copy()[::-1],
        lambda x: x.astype(">f4"),
        lambda x: np.broadcast_to(x[None], (1, 4, 8))[0],
        lambda x: np.frombuffer(b"x" + x.tobytes(), np.uint8)[1:].view("f4").reshape(4, 8),
        lambda x: memoryview(x),
        lambda x: DLPackArray(x),
        lambda x: DLPackArray(x.T.copy().T),
        lambda x: DLPackArray(x, offset=64),
    ], ids=["fortran", "strided", "reversed", "big-endian", "broadcast", "unaligned", "memoryview", "dlpack",
            "dlpack-strided", "dlpack-offset"])
    def test_same_result(self, attn, change):
        changed = [change(x) for x in (Q, K, V)]
        assert (context(attn, Q=changed[0], K=changed[1], V=changed[2]) == context(attn, Q=Q, K=K, V=V)).all()

    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8",
                                       "uint16", "uint32", "uint64", "bool"])
    def test_dtype(self, attn, dtype):
        given = (np.arange(6) % 2).reshape(2, 3).astype(dtype)
        for same in given, DLPackArray(given), memoryview(given):
            found = attn.run(Q=same, K=Q[:2, :3], V="K", outputs=["Q"])["Q"]
            assert found.dtype == given.dtype
            assert (found == given).all()

    def test_standard_array(self, attn):
        found = attn.run(Q=Q, K=K, V=V, key_lengths=array.array("q", [3]), outputs=["weights"])["weights"]
        assert (found[:, 3] == 0).all()
        assert (found[:, :3] > 0).all()

    def test_bfloat16_by_dlpack(self, attn):
        values = np.array([[1, 2.5], [-3, 0.0078125]], np.float32)
        found = attn.run(Q=bfloat16(values), K=bfloat16(values), V=bfloat16(values), outputs=["V", "context"])
        assert found["V"].dtype == np.float32, "as float32 without ml_dtypes"
        assert (found["V"] == values).all()
        assert (found["context"].view(np.uint32) & 0xFFFF == 0).all(), "rounded to bfloat16"

    def test_8_bit_floats_by_dlpack(self, attn):
        """As those of PyTorch, with scales: 0x38 is 1 in e4m3, 0x3c is 1 in e5m2, 128 is 2 in e8m0."""
        codes = np.array([[0x38, 0xc0, 0x01], [0x40, 0x3c, 0x00]], np.uint8)
        in_e4m3 = np.array([[1, -2, 2.0**-9], [2, 1.5, 0]])
        in_e5m2 = np.array([[0.5, -2, 2.0**-16], [2, 1, 0]])
        found = attn.run(Q=np.ones((1, 3), "f4"), K=DLPackArray(codes, "float8_e4m3fn"),
                         V=DLPackArray(codes, "float8_e5m2"), k_scale=0.5,
                         v_scale=DLPackArray(np.array([128], np.uint8), "float8_e8m0fnu"), outputs=["K", "V"])
        assert (found["K"] == in_e4m3 * 0.5).all() and (found["V"] == in_e5m2 * 2).all()

    def test_8_bit_floats_in_other_orders(self, attn):
        codes = np.arange(12, dtype=np.uint8).reshape(3, 4)
        whole = attn.run(Q=np.ones((1, 4), "f4"), K=DLPackArray(codes, "float8_e5m2"), V="K", outputs=["K"])["K"]
        column_major = DLPackArray(np.asfortranarray(codes), "float8_e5m2")
        assert (attn.run(Q=np.ones((1, 4), "f4"), K=column_major, V="K", outputs=["K"])["K"] == whole).all()

    def test_no_elements(self, attn):
        assert context(attn, Q=np.zeros((0, 8)), K=np.zeros((3, 8)), V=np.zeros((3, 2))).shape == (0, 2)

    def test_many_axes(self, attn):
        with pytest.raises(attn.Error, match="Q: expected .* axes"):
            attn.run(Q=np.zeros((1,) * 9), K=K, V=V)


def read_only(array):
    view = array.view()
    view.flags.writeable = False
    return view


class TestMemory:
    """Inputs are read where they are, and outputs are not copied."""

    @pytest.mark.parametrize("make", [lambda x: x, read_only, memoryview, DLPackArray],
                             ids=["numpy", "read-only", "buffer", "dlpack"])
    def test_address_of_input(self, attn, make):
        tensor = sys.modules["attn._tensors"].tensor_of("Q", make(Q))
        assert tensor.address == Q.ctypes.data

    def test_library_copies_nothing(self, attn):
        run = sys.modules["attn._run"]
        options, tensors = run.split_job(dict(Q=Q, K=DLPackArray(K), V=memoryview(V), mask=np.ones((4, 4), bool)))
        assert run.call(run.json_of(options), tensors, None)[1] == 0

    def test_library_copies_what_is_not_contiguous(self, attn):
        run = sys.modules["attn._run"]
        _, tensors = run.split_job(dict(Q=np.asfortranarray(Q), K=K, V=V))
        assert run.call(None, tensors, None)[1] == Q.nbytes

    @pytest.mark.parametrize("make", [
        lambda: {"mask": np.broadcast_to(np.ones((1, 1)), (20000, 20000))},
        lambda: {"Q": np.broadcast_to(np.ones((1, 8), np.float32), (60_000_000, 8))},
        lambda: {"Q": np.broadcast_to(np.ones((1, 8), ">f4"), (60_000_000, 8))},
        lambda: {"Q": np.asfortranarray(np.ones((8_000_000, 2)))}], ids=["mask", "Q", "other byte order", "Fortran"])
    def test_copies_are_limited(self, attn, make):
        """The peak of the process stays below that of the copy, 122 to 3,052 MiB."""
        status = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) << 10
        job = {"Q": Q, "K": K, "V": V} | make()
        before = status()
        with pytest.raises(attn.Error, match="takes more than 100000000 bytes of memory to copy") as raised:
            attn.run(**job, max_memory=100_000_000)
        assert raised.value.exit_code == 65
        assert status() - before < 50 << 20

    def test_other_byte_order_is_copied(self, attn):
        expected = context(attn, Q=Q, K=K, V=V)
        for dtype in ">f4", "<f4":
            assert (context(attn, Q=Q.astype(dtype)[::-1], K=K.astype(dtype), V=V.astype(dtype)) == expected[::-1]).all()

    def test_name_with_a_nul_is_unknown(self, attn):
        with pytest.raises(attn.Error, match=r"unknown key 'Q\\x00x'"):
            attn.run(**{"Q\0x": Q, "K": K, "V": V})

    def test_peak_is_that_of_the_inputs(self, attn, module_environment):
        """64 MiB of keys and values; the rest of the process is far smaller."""
        program = """if True:
            import resource, numpy as np, attn
            def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            attn.run(Q=np.ones((1, 64)), K=np.ones((2, 64)), V="K")
            keys = np.ones((2**17, 64), np.float32)
            values = np.ones((2**17, 64), np.float32)
            before = peak()
            found = attn.run(Q=np.ones((1, 64), np.float32), K=keys, V=values, outputs=["context"])
            print(peak() - before, keys.nbytes)"""
        run = subprocess.run([sys.executable, "-c", program], env=module_environment, capture_output=True, text=True,
                             timeout=60)
        assert run.returncode == 0, run.stderr
        growth, size = map(int, run.stdout.split())
        assert growth < size / 4

    def test_outputs_may_be_written_to(self, attn):
        found = attn.run(Q=Q, K=K, V=V, outputs=["Q", "queries"])
        found["queries"][:] = 7
        assert (found["Q"] == np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)).all()
        assert not (Q == 7).any()

    def test_outputs_outlive_everything_else(self, attn):
        part = attn.run(Q=Q.copy(), K=K.copy(), V=V.copy(), outputs=["weights"])["weights"][1:, 1:]
        expected = part.copy()
        gc.collect()
        attn.run(Q=K, K=Q, V=V)
        assert (part == expected).all()

    def test_memory_of_outputs_is_freed(self, attn):
        big = np.ones((1024, 8), np.float32)
        pages = lambda: int(open("/proc/self/statm").read().split()[1])
        attn.run(Q=big, K=big, V=big)
        before = pages()
        for _ in range(30):  # 8 MiB each
            attn.run(Q=big, K=big, V=big)
        assert (pages() - before) * 4096 < 100 << 20

    def test_inputs_are_not_kept(self, attn):
        class Array(np.ndarray):
            pass
        given = Q.copy().view(Array)
        gone = weakref.ref(given)
        found = attn.run(Q=given, K=given, V=given)
        del given
        gc.collect()
        assert gone() is None
        assert found["context"].shape == (4, 8)


class TestErrors:
    @pytest.mark.parametrize("job, code, message", [
        (dict(Q=Q, K=K[:, :5], V=V), 65, "K: expected (*, 8) to match Q (4, 8), found (4, 5)"),
        (dict(Q=Q, K=K, V=V, caussal=True), 65, "unknown key 'caussal' (did you mean 'causal'?)"),
        (dict(Q="no.npy", K=K, V=V), 66, "no.npy: No such file or directory"),
        (dict(Q=Q.astype(complex), K=K, V=V), 65, "Q: expected float16, bfloat16, float32, float64, an 8-bit float "
                                                  "such as float8_e4m3fn, int8 to int64, uint8 to uint64 or bool, "
                                                  "found dtype complex128"),
        (dict(Q=np.array([["x"]]), K=K, V=V), 65, "expected a number, found the string 'x'"),
        (dict(Q=Q, K=K, V=V, threads=-1), 2, "threads: expected an integer from 0 to 1024, found -1"),
        (dict(Q=Q, K=K, V=V, nan="never"), 2, 'nan: expected allow, refuse or warn, found "never"'),
        (dict(Q=Q, K=K, V=V, max_memory="1K"), 65, "needs "),
        (dict(Q=Q * np.nan, K=K, V=V, nan="refuse"), 65, "Q holds 32, the first at [0, 0]"),
        (dict(), 65, "Q"),
    ])
    def test_code_and_message(self, attn, job, code, message):
        with pytest.raises(attn.Error) as raised:
            attn.run(**job)
        assert raised.value.exit_code == code
        assert message in str(raised.value)

    def test_each_problem_is_a_line(self, attn):
        with pytest.raises(attn.Error) as raised:
            attn.run(Q=Q, K=K, V=V, caussal=True, heds=2)
        assert len(str(raised.value).splitlines()) == 2

    def test_gpu(self, attn):
        with pytest.raises(BufferError, match=r"K: expected an array in the memory of the CPU, found one on CUDA "
                                              r"device 0; copy it first: x\.cpu\(\)"):
            attn.run(Q=Q, K=DLPackArray(K, device=CUDA), V=V)

    def test_masked_array(self, attn):
        with pytest.raises(TypeError, match="masked arrays"):
            attn.run(Q=np.ma.masked_array(Q), K=K, V=V)

    def test_value_of_no_job(self, attn):
        with pytest.raises(TypeError, match="object is no value of a job"):
            attn.run(Q=Q, K=K, V=V, scale=object())

    def test_can_be_pickled(self, attn):
        error = pickle.loads(pickle.dumps(attn.Error("message", 65)))
        assert (str(error), error.exit_code) == ("message", 65)

    def test_warning_is_that_of_the_caller(self, attn):
        with pytest.warns(attn.AttnWarning, match="Q holds 1, the first at") as caught:
            attn.run(Q=np.where(np.arange(32).reshape(4, 8) == 9, np.nan, Q), K=K, V=V)
        assert caught[0].filename == __file__

    def test_nothing_is_printed(self, attn, capfd):
        with pytest.warns(attn.AttnWarning):
            attn.run(Q=Q * np.nan, K=K)
        with pytest.raises(attn.Error):
            attn.run(Q=Q, K=K[:1, :3])
        assert capfd.readouterr() == ("", "")


class TestThreads:
    def test_several_at_the_same_time(self, attn):
        big = np.random.default_rng(0).standard_normal((256, 64)).astype(np.float32)
        expected = attn.run(Q=big, K=big, V=big, causal=True)
        wrong = []

        def work():
            for i in range(20):
                found = attn.run(Q=big, K=big, V=big, causal=True, threads=1 + i % 3)
                if any(found[name].tobytes() != expected[name].tobytes() for name in expected):
                    wrong.append(i)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []

    def test_other_threads_run_during_the_computation(self, attn):
        draw = {"randint": {"high": 2**25, "shape": [400, 400]}}
        done = threading.Event()
        worker = threading.Thread(target=lambda: (attn.run(seed=1, Q=draw, K=draw, V="K", outputs=["scores"]),
                                                  done.set()))
        worker.start()
        steps = 0
        while not done.is_set():
            steps += 1
        worker.join()
        assert steps > 100, "the interpreter was locked"

    def test_forked_process(self, attn):
        """The threads of the pool do not exist in a forked process."""
        big = np.ones((512, 64), np.float32)
        attn.run(Q=big, K=big, V=big, threads=4)
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(20)
                found = attn.run(Q=big, K=big, V=big, threads=4, outputs=["context"])
                os._exit(0 if (found["context"] == 1).all() else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0

    def test_forked_process_that_exits(self, attn, module_environment):
        program = """if True:
            import os, signal, sys, numpy as np, attn
            big = np.ones((512, 64), np.float32)
            attn.run(Q=big, K=big, V=big, threads=4)
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                sys.exit(3)
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"""
        run = subprocess.run([sys.executable, "-c", program], env=module_environment, timeout=60)
        assert run.returncode == 3


def test_threads_and_environment_of_openblas_are_those_of_the_process(attn, module_environment):
    """Debian's NumPy may use the same OpenBLAS."""
    program = """if True:
        import ctypes, attn
        library = ctypes.CDLL("libopenblas.so.0")
        library.openblas_set_num_threads(2)
        x = [[1.0, 2.0], [3.0, 4.0]]
        attn.run(embeddings=x, W_Q=x, W_K=x, W_V=x, path="reference")
        c = ctypes.CDLL(None)
        c.getenv.restype = ctypes.c_char_p
        print(library.openblas_get_num_threads(), c.getenv(b"OPENBLAS_NUM_THREADS"))"""
    clean = {name: value for name, value in module_environment.items() if not name.startswith("OPENBLAS")}
    run = subprocess.run([sys.executable, "-c", program], env=clean, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout.strip()) == (0, "2 None"), run.stderr


def test_version(attn, attn_module):
    project = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    assert f"project(attn VERSION {attn.__version__} " in project


def test_missing_library(module_environment):
    run = subprocess.run([sys.executable, "-c", "import attn"], capture_output=True, text=True,
                         env={**module_environment, "ATTN_LIBRARY": "/nowhere/libattn.so.0"}, timeout=60)
    assert run.stderr.splitlines()[-1].startswith("OSError: /nowhere/libattn.so.0: cannot open")


def test_keys_of_the_docstring_exist(attn):
    """Every option that the docstring names is a key."""
    schema = json.loads(subprocess.run([os.environ.get("ATTN", str(ROOT / "build/release/attn")), "schema"],
                                       capture_output=True, timeout=60, check=True).stdout)
    keys = set(schema["properties"])
    for name in ["Q", "K", "V", "embeddings", "W_Q", "W_K", "W_V", "mask", "causal", "window", "scale", "softcap",
                 "heads", "kv_heads", "layout", "rotary", "outputs"]:
        assert name in attn.run.__doc__
        assert name in keys


def test_arrays_in_a_dictionary(attn):
    """Tables of a mask rule, and factors of rotary positions."""
    documents = np.array([0, 0, 1, 1])
    by_rule = context(attn, Q=Q, K=K, V=V, mask_rule="doc[q] == doc[k]", mask_tables={"doc": documents})
    assert np.array_equal(by_rule, context(attn, Q=Q, K=K, V=V, mask=documents[:, None] == documents))
    numbers = np.array([0.5, -1.25, 0, 3])
    by_rule = context(attn, Q=Q, K=K, V=V, bias_rule="t[q] * k", mask_tables={"t": numbers})
    assert np.array_equal(by_rule, context(attn, Q=Q, K=K, V=V, bias=np.float32(numbers[:, None] * np.arange(4))))
    rotary = {"kind": "half", "scaling": "longrope", "original_length": 2, "factor": 2}
    factors = {"short_factor": np.array([1.0, 1, 2, 4]), "long_factor": np.array([1.0, 2, 4, 8])}
    lists = {name: list(values) for name, values in factors.items()}
    assert np.array_equal(context(attn, Q=Q, K=K, V=V, rotary=rotary | factors),
                          context(attn, Q=Q, K=K, V=V, rotary=rotary | lists))


def test_keys_in_pages(attn):
    """The kernels read the pool; the output K gathers it."""
    rng = np.random.default_rng(7)
    pool = rng.standard_normal((2, 5, 3, 2, 4)).astype(np.float32)  # keys and values of 5 pages with 3 slots
    pool[:, 0] = np.nan  # in no sequence
    q, table, lengths = rng.standard_normal((2, 2, 4, 4)).astype(np.float32), np.array([[3, 1], [2, 0]]), np.array([5, 3])
    paged = attn.run(Q=q, K_pages=pool[0], V_pages=pool[1], block_table=table, key_lengths=lengths, causal=True,
                     outputs=["context", "K"])
    keys, values = np.zeros((2, 2, 5, 2, 4), np.float32)
    for rows, part in (keys, pool[0]), (values, pool[1]):
        rows[0], rows[1, :3] = part[[3, 1]].reshape(6, 2, 4)[:5], part[2]
    keys, values = (np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (keys, values))
    whole = context(attn, Q=q, K=keys, V=values, key_lengths=lengths, causal="bottom-right")
    assert (paged["K"] == keys).all()
    assert (paged["context"] == whole).all()


def test_latent_attention(attn):
    rng = np.random.default_rng(8)
    nope, pe = rng.standard_normal((2, 3, 2, 8)), rng.standard_normal((2, 3, 2, 4))
    ckv, k_pe = rng.integers(-9, 9, (2, 5, 8)).astype(np.int8), rng.standard_normal((2, 5, 4)).astype(np.float16)
    found = attn.run(Q_nope=nope, Q_pe=pe, CKV=ckv, K_pe=k_pe, k_scale=0.25, scale=0.5, outputs=["context", "weights"])
    scores = 0.5 * (nope @ (0.25 * ckv)[:, None].swapaxes(2, 3) + pe @ k_pe.astype(float)[:, None].swapaxes(2, 3))
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    assert np.allclose(found["weights"], weights, rtol=1e-12)
    assert np.allclose(found["context"], weights @ (0.25 * ckv)[:, None], rtol=1e-12)
