"""Messages that were wrong or vague."""

import json
import pickle
import zipfile

import numpy as np

from support.attn import assert_error, attn


def test_overflowing_singular_value(tmp_path):
    """sigma_1 of an n x n matrix of ones times c is n c."""
    np.save(tmp_path / "big.npy", np.full((2, 2), 1e308))
    run = attn("svd", "big.npy", "--rank", "1", cwd=tmp_path)
    text = (run.stdout + run.stderr).decode()
    assert run.returncode == 0
    assert "1 of 2 singular values; s has values that are too large for float64" in text
    assert "inf%" not in text


def test_share_of_singular_values(tmp_path):
    np.save(tmp_path / "m.npy", np.diag([3.0, 4.0]))
    run = attn("svd", "m.npy", "--rank", "1", cwd=tmp_path)
    assert "1 of 2 singular values account for 64% of the sum of squares" in (run.stdout + run.stderr).decode()


def test_file_of_torch_save(tmp_path):
    """The members that torch.save writes."""
    with zipfile.ZipFile(tmp_path / "mha.pt", "w") as file:
        for name, data in ("mha/data.pkl", b"\x80\x02}q\x00."), ("mha/version", b"3\n"), ("mha/data/0", b"1234"):
            file.writestr(name, data)
    for command in "inspect", "run":
        assert_error(attn(command, "mha.pt", cwd=tmp_path), 65, "mha.pt: is a file of torch.save",
                     "safetensors.torch.save_file")


def test_file_of_torch_save_before_version_1_6(tmp_path):
    (tmp_path / "x.pt").write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + b"\x80\x02M\xe9\x03.")
    for command in "inspect", "run":
        assert_error(attn(command, "x.pt", cwd=tmp_path), 65, "x.pt: is a file of torch.save, which only Python can read",
                     "numpy.save('FILE.npy', tensor.numpy())")


def test_explanation_of_given_queries(tmp_path):
    job = {"Q": [[1.0, 2.0]], "K": [[1.0, 3.0]], "V": [[1.0, 3.0]]}
    for more, is_plain in ({}, True), ({"qk_norm": "rms"}, False), ({"rotary": {"kind": "half"}}, False):
        run = attn("run", "-", "--explain", "x.md", stdin=json.dumps({**job, **more}), cwd=tmp_path)
        assert run.returncode == 0, run.stderr.decode()
        text = (tmp_path / "x.md").read_text()
        (tmp_path / "x.md").unlink()
        assert "The queries are given, one row each" in text
        assert ("The queries are given, one row each." in text) == is_plain
        assert ("normalised or rotated by position" in text.split("Keys and values")[0]) != is_plain


def test_empty_command_is_unknown():
    """As from an unset variable; without any argument, attn prints its help."""
    assert_error(attn("", "run"), 2, "attn: unknown command ''")


def test_different_names_look_different(tmp_path):
    """A name with an escape character, and one that spells its \\x1b."""
    messages = [attn("inspect", name, cwd=tmp_path).stderr for name in ("a\x1b.npy", "a\\x1b.npy", "a\\n.npy")]
    assert messages[0].startswith(b"attn: a\\x1b.npy: ")
    assert messages[1].startswith(b"attn: a\\x5cx1b.npy: ")
    assert messages[2].startswith(b"attn: a\\n.npy: ")


def test_view_of_a_file_with_many_tensors(tmp_path):
    np.savez(tmp_path / "many.npz", **{f"t{n:03}": np.ones((2, 2)) for n in range(322)})
    names = ", ".join(f"t{n:03}" for n in range(10))
    run = attn("view", "many.npz", cwd=tmp_path)
    assert (run.returncode, run.stderr.decode()) == (
        2, f"attn: many.npz: has no tensor weights; select one with --of: {names} and 312 more\n")
