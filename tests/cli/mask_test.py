"""attn mask: which keys each query sees."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn

PICTURE = """mask (10, 10): 34 of 100 pairs are visible (34 %); # visible, . hidden
  0  #.........
  1  ##........
  2  ###.......
  3  ####......
  4  #.###.....
  5  #..###....
  6  #...###...
  7  #....###..
  8  #.....###.
  9  #......###
"""


def test_the_picture_of_a_rule():
    run = attn("mask", "--shape", "10,10", "--mask-rule", "q >= k and (q - k < 3 or k < 1)")
    assert (run.returncode, run.stderr, run.stdout.decode()) == (0, b"", PICTURE)


def test_heads_and_batch_items():
    text = attn("mask", "--shape", "2,2,1,2", "--mask-rule", "k == (b + h) % 2").stdout.decode()
    assert text.splitlines()[1:] == ["batch 0, head 0", "  0  #.", "batch 0, head 1", "  0  .#",
                                     "batch 1, head 0", "  0  .#", "batch 1, head 1", "  0  #."]


def test_a_large_mask_is_reduced():
    lines = attn("mask", "--shape", "640,640", "--causal", "--width", "39").stdout.decode().splitlines()
    assert lines[0].startswith("mask (640, 640): 205120 of 409600 pairs") and "of 10 x 20 pairs" in lines[0]
    assert len(lines) == 65 and all(len(line) <= 39 for line in lines[1:])
    assert lines[1] == "    0  +" + 31 * "." and lines[2] == "   10  +" + 31 * "." and lines[3] == "   20  #+" + 30 * "."
    assert lines[64] == "  630  " + 31 * "#" + "+"


@pytest.mark.parametrize("flags, expected", [
    (["--causal=bottom-right"], np.tri(4, 7, 3)),
    (["--causal", "--window", "1,0"], np.tri(4, 7) - np.tri(4, 7, -2)),
    (["--key-lengths", "[3]"], np.broadcast_to(np.arange(7) < 3, (4, 7))),
])
def test_an_array(flags, expected, tmp_path):
    assert attn("mask", "--shape", "4,7", *flags, "-o", tmp_path / "mask.npy").returncode == 0
    mask = np.load(tmp_path / "mask.npy")
    assert mask.dtype == bool and np.array_equal(mask, expected.astype(bool))


def test_a_job_and_its_masks(tmp_path):
    given = np.random.default_rng(0).random((2, 1, 3, 5)) < 0.5
    np.save(tmp_path / "given.npy", given)
    np.save(tmp_path / "x.npy", np.zeros((2, 2, 3, 4)))
    np.save(tmp_path / "k.npy", np.zeros((2, 2, 5, 4)))
    (tmp_path / "job.json").write_text(json.dumps({"Q": "x.npy", "K": "k.npy", "mask": "given.npy", "causal": True}))
    assert attn("mask", "job.json", "-o", "mask.npz", cwd=tmp_path).returncode == 0
    assert np.array_equal(np.load(tmp_path / "mask.npz")["mask"], given & np.tri(3, 5, dtype=bool))


@pytest.mark.parametrize("suffix, start", [("svg", b"<svg"), ("pdf", b"%PDF"), ("png", b"\x89PNG"), ("html", b"<!")])
def test_pictures(suffix, start, tmp_path):
    run = attn("mask", "--shape", "6,6", "--causal", "-o", f"mask.{suffix}", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / f"mask.{suffix}").read_bytes().lstrip().startswith(start)


@pytest.mark.parametrize("words, code, text", [
    ([], 2, "expected a job, or --shape L,S"),
    (["--shape", "4"], 2, "--shape: expected L,S or B,H,L,S, such as 8,8, found '4'"),
    (["--shape", "4,-1"], 2, "--shape: expected L,S"),
    (["--shape", "4,4", "--force"], 2, "--force"),
    (["--shape", "60000,60000", "--max-memory", "1G"], 65, "the mask: takes more than "),
    (["--shape", "4,4", "--heads", "2"], 2, "--heads"),
])
def test_errors(words, code, text):
    assert_error(attn("mask", *words), code, text)


def test_shape_and_queries(tmp_path):
    (tmp_path / "job.json").write_text(json.dumps({"Q": [[1]], "K": [[1]]}))
    assert_error(attn("mask", tmp_path / "job.json", "--shape", "1,1"), 2, "--shape: not used with a job that has Q")


def test_keys_before_the_first_one_are_hidden():
    run = attn("mask", "--shape", "2,1,2,3", "--key-starts", "[1,0]")
    assert run.stdout.decode().split("\n")[1:7] == ["batch 0", "  0  .##", "  1  .##", "batch 1", "  0  ###", "  1  ###"]
