"""Inputs and outputs are opened safely: no descriptor of attn's own, no symbolic link swapped in."""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from support.attn import ATTN, attn

JOB = {"Q": "q.npy", "K": "q.npy"}


def save(folder, name="q.npy"):
    np.save(folder / name, np.arange(6.0).reshape(3, 2))


@pytest.mark.parametrize("number", range(3, 12))
def test_batch_line_cannot_name_a_descriptor_of_attn(number, tmp_path):
    save(tmp_path)
    lines = [{"Q": f"/dev/fd/{number}", "K": "q.npy"}, JOB] * 50
    run = attn("batch", "-", "-j", 4, stdin="\n".join(map(json.dumps, lines)), cwd=tmp_path)
    results = [json.loads(line) for line in run.stdout.splitlines()]
    errors = [result for result in results if "error" in result]
    scores = [result["scores"] for result in results if "error" not in result]
    assert len(errors) == len(scores) == 50
    assert all(each == scores[0] for each in scores)


@pytest.mark.parametrize("path", ["/proc/self/fd/{}", "/proc/thread-self/fd/{}", "//dev/fd/{}", "link{}"])
def test_input_cannot_reach_an_open_output(path, tmp_path):
    """Whatever leads to the result file being written is refused; another file has nothing there."""
    save(tmp_path)
    for number in range(3, 12):
        (tmp_path / f"link{number}").symlink_to(f"/proc/self/fd/{number}")
    lines = [json.dumps({"Q": path.format(number), "K": "q.npy"}) for number in range(3, 12)]
    run = attn("batch", "-", "--out-dir", "out", "--format", "npz", stdin="\n".join(lines), cwd=tmp_path)
    assert run.returncode != 0
    assert not list((tmp_path / "out").glob("*.npz"))


def test_inherited_descriptor_is_read(tmp_path):
    save(tmp_path)
    with open(tmp_path / "q.npy", "rb") as file:
        run = subprocess.run([ATTN, "run", "--q", f"/dev/fd/{file.fileno()}", "--k", "q.npy"],
                             pass_fds=[file.fileno()], cwd=tmp_path, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr


def test_input_through_a_link_to_standard_input(tmp_path):
    save(tmp_path)
    (tmp_path / "in").symlink_to("/dev/stdin")
    run = attn("inspect", "in", stdin=(tmp_path / "q.npy").read_bytes(), cwd=tmp_path)
    assert run.returncode == 0


def test_input_through_the_working_folder_link(tmp_path):
    save(tmp_path)
    assert attn("inspect", "/proc/self/cwd/q.npy", cwd=tmp_path).returncode == 0


def test_pipe_of_any_size(tmp_path):
    array = np.arange(100_000.0)
    np.save(tmp_path / "q.npy", array)
    run = attn("convert", "-", "-o", "out.npy", stdin=(tmp_path / "q.npy").read_bytes(), cwd=tmp_path)
    assert run.returncode == 0
    assert np.array_equal(np.load(tmp_path / "out.npy"), array)


def swap(folder, stop):
    """Replaces the FIFO `out` by a symbolic link to `kept`, and back."""
    fifo, link, out = folder / "fifo", folder / "link", folder / "out"
    while not stop.is_set():
        if not link.is_symlink():
            link.symlink_to("kept")
        os.replace(link, out)
        if not fifo.exists():
            os.mkfifo(fifo)
        os.replace(fifo, out)


def test_link_swapped_in_for_a_fifo_is_not_followed(tmp_path):
    save(tmp_path)
    (tmp_path / "kept").write_bytes(b"kept")
    os.mkfifo(tmp_path / "out")
    stop = threading.Event()
    swapping = threading.Thread(target=swap, args=(tmp_path, stop))
    swapping.start()
    try:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            run = subprocess.Popen([ATTN, "convert", "q.npy", "-o", "out"], cwd=tmp_path,
                                   stderr=subprocess.DEVNULL)
            try:
                run.wait(0.05)
            except subprocess.TimeoutExpired:  # waits for the reader of a FIFO
                run.kill()
                run.wait()
            assert (tmp_path / "kept").read_bytes() == b"kept"
    finally:
        stop.set()
        swapping.join()


def test_fifo_as_output_waits_for_its_reader(tmp_path):
    save(tmp_path)
    os.mkfifo(tmp_path / "out")
    with subprocess.Popen([ATTN, "convert", "q.npy", "-o", "out"], cwd=tmp_path) as run:
        time.sleep(0.2)
        assert run.poll() is None
        assert (tmp_path / "out").read_bytes()
        assert run.wait() == 0


def test_openblas_variables_have_no_effect(tmp_path):
    generator = np.random.default_rng(1)
    np.save(tmp_path / "m.npy", generator.random((40, 30)))
    plain = attn("svd", "m.npy", cwd=tmp_path)
    os.environ.update(OPENBLAS_CORETYPE="Prescott", OPENBLAS_VERBOSE="2")
    try:
        changed = attn("svd", "m.npy", cwd=tmp_path)
    finally:
        del os.environ["OPENBLAS_CORETYPE"], os.environ["OPENBLAS_VERBOSE"]
    assert plain.returncode == 0
    assert (changed.stdout, changed.stderr) == (plain.stdout, plain.stderr)


def test_examples_folder_is_printed_escaped(tmp_path):
    folder = tmp_path / "a\x1b[2Jb"
    folder.mkdir()
    for args in ("list", "--json"), ("check",), ("run",):
        run = attn("examples", *args, "--data", folder)
        assert b"\x1b" not in run.stdout + run.stderr


@pytest.mark.parametrize("character", ["\ufffe", "\uffff"])
def test_svg_is_xml_for_any_label(character, tmp_path):
    import xml.etree.ElementTree  # pylint: disable=import-outside-toplevel
    save(tmp_path)
    (tmp_path / "job.json").write_text(json.dumps({**JOB, "tokens": ["a", f"b{character}", "c"]}))
    run = attn("run", "job.json", "--view=out.svg", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    xml.etree.ElementTree.parse(tmp_path / "out.svg")


if __name__ == "__main__":
    sys.exit(pytest.main([str(pathlib.Path(__file__))]))
