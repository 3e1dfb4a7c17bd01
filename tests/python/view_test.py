"""attn.view() and attn.explain(): pages, pictures and text are those of the program for the same arrays in files."""

import base64
import gc
import html.parser
import json
import os

import warnings

import numpy as np
import pytest

from support.attn import attn as program
from support.dlpack import DLPackArray, bfloat16

Q, K, V = (np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32) for seed in range(3))
JOB = {"Q": Q.tolist(), "K": K.tolist(), "V": V.tolist(), "heads": 2, "causal": True}
TOKENS = ["the", "cat", "[", "a,b"]


@pytest.fixture(scope="module")
def attn(attn_module):
    return attn_module


@pytest.fixture
def result(attn):
    return attn.run(Q=Q, K=K, V=V, heads=2, causal=True)


def save(folder, **tensors):
    """result.safetensors, by the program."""
    np.savez(folder / "result.npz", **tensors)
    assert program("convert", "result.npz", "-o", "result.safetensors", cwd=folder).returncode == 0


def printed(folder, *arguments):
    """What the program prints, or the page or explanation that it writes."""
    run = program(*arguments, cwd=folder)
    assert run.returncode == 0, run.stderr
    return (folder / "page.html").read_text() if (folder / "page.html").exists() else run.stdout.decode()


def facts_of(view):
    """The first element of a page with data."""
    return json.loads(view.html.split('<script type="application/json" id="attn">')[1].split("</script>")[0])


class Output(html.parser.HTMLParser):
    """The attributes of each tag, and the text, of what a notebook is given."""

    def __init__(self, shown):
        super().__init__()
        self.attributes, self.text = {}, ""
        self.feed(shown._repr_html_())

    def handle_starttag(self, tag, attributes):
        self.attributes[tag] = dict(attributes)

    def handle_data(self, text):
        self.text += text


def test_view_is_the_page_of_the_program(attn, result, tmp_path):
    save(tmp_path, **result)
    view = attn.view(result, tokens=TOKENS, head=[1, 0], title="a title", log=True)
    assert view.html == printed(tmp_path, "view", "result.safetensors", "-o", "page.html", "--tokens", json.dumps(TOKENS), "--head", "1,0",
                                "--title", "a title", "--log")


def test_view_is_a_frame_in_notebooks(attn, result):
    view = attn.view(result)
    frame = Output(view).attributes["iframe"]
    assert frame["srcdoc"] == view.html
    assert frame["sandbox"] == "allow-scripts allow-downloads", "the page cannot reach the notebook"


def test_view_is_a_picture_in_notebooks_that_are_not_trusted(attn, result):
    """These drop the frame and keep the content of <noscript>. jupyterlab_test.py shows it."""
    view = attn.view(result)
    output = Output(view)
    assert list(output.attributes) == ["style", "iframe", "noscript", "p", "img"]
    picture = output.attributes["img"]
    assert base64.b64decode(picture["src"].removeprefix("data:image/png;base64,")) == view._repr_png_()
    assert 2 * int(picture["width"]) == int.from_bytes(view._repr_png_()[16:20], "big")
    two = Output(attn.view(result, result))
    assert list(two.attributes) == ["style", "iframe", "noscript", "p"]
    assert "Trust the notebook" in two.text


def test_view_is_a_picture_or_text_elsewhere(attn, result, tmp_path):
    np.savez(tmp_path / "result.npz", **result)
    view = attn.view(result, of="scores")
    assert program("view", "result.npz", "--of", "scores", "-o", "page.png", cwd=tmp_path).returncode == 0
    assert view._repr_png_() == (tmp_path / "page.png").read_bytes()
    assert str(view) == printed(tmp_path, "view", "result.npz", "--of", "scores", "--color", "never")
    for suffix, start in (".png", b"\x89PNG"), (".svg", b"<svg"), (".pdf", b"%PDF"), (".html", b"<!DOCTYPE html>"):
        view.save(tmp_path / f"saved{suffix}")
        assert (tmp_path / f"saved{suffix}").read_bytes().startswith(start)
    view.save(tmp_path / "dark.png", dark=True, size=200)
    assert int.from_bytes((tmp_path / "dark.png").read_bytes()[16:20], "big") == 400, "192 pixels per inch"


def test_view_of_a_job_shows_why(attn, tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    view = attn.view(**JOB)
    assert view.html == printed(tmp_path, "run", "job.json", "--view=page.html")
    assert facts_of(view)["why"]["width"] == 4
    assert facts_of(attn.view(attn.run(**JOB)))["why"] is None, "arrays do not say how they were computed"


@pytest.mark.parametrize("shape", [(5, 5), (2, 5, 5), (1, 2, 5, 5)])
@pytest.mark.parametrize("kind", [tuple, list])
def test_arrays_in_a_sequence_are_layers(attn, tmp_path, shape, kind):
    layers = np.random.default_rng(1).random((3, *shape))
    save(tmp_path, weights=layers.reshape(3, *(1, 1, *shape)[-4:]))
    view = attn.view(kind(layers))
    assert view.html == printed(tmp_path, "view", "result.safetensors", "-o", "page.html")
    facts = facts_of(view)
    assert facts["heads" if facts["groups"] == [""] else "groups"] == ["layer 0", "layer 1", "layer 2"]


def test_layers_of_different_shapes_are_refused(attn):
    with pytest.raises(ValueError, match=r"layers differ: float64 \(2, 2\), float64 \(3, 3\)"):
        attn.view([np.eye(2), np.eye(3)])


def test_arrays_of_any_library_and_layout(attn, result):
    w = result["weights"]
    page = attn.view(w).html
    assert "queries down, keys across" in str(attn.view(w))
    for same in np.asfortranarray(w), w[:, ::-1][:, ::-1], w.astype(">f4"), w.tolist(), DLPackArray(w), {"weights": w}:
        assert facts_of(attn.view(same))["statistics"] == facts_of(attn.view(w))["statistics"]
    assert attn.view(w.astype(">f4")).html == page
    halves = np.array([[[0.5, 0.5], [0.25, 0.75]]], np.float32)
    assert attn.view(bfloat16(halves)).html == attn.view(halves).html


def test_two_results_and_their_difference(attn, result, tmp_path):
    other = {**result, "weights": result["weights"] * 0.5}
    view = attn.view(result, other, head=1)
    assert facts_of(view)["sets"] == ["first.safetensors", "second.safetensors"]
    assert view._repr_png_() is None
    assert str(view) == f"first: {attn.view(result, head=1)}\nsecond: {attn.view(other, head=1)}"
    view.save(tmp_path / "both.html")
    assert "second.safetensors" in (tmp_path / "both.html").read_text()
    with pytest.raises(attn.Error, match=r"both\.svg: two results are saved as a page, NAME\.html") as error:
        view.save(tmp_path / "both.svg")
    assert error.value.exit_code == 2


def test_options_of_numpy_and_ranges(attn, result):
    tokens = list("abcdefgh")[:len(result["weights"][0])]
    listed = str(attn.view(result, head=[0, 1], tokens=tokens))
    assert str(attn.view(result, head=range(2), tokens=np.array(tokens))) == listed
    assert str(attn.view(result, head=np.array([0, 1]), tokens=np.array(tokens, object))) == listed


def test_file_of_tokens_is_in_the_current_folder(attn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("one\ntwo\n")
    assert str(attn.view(np.eye(2), tokens="@words.txt")) == str(attn.view(np.eye(2), tokens=["one", "two"]))


def test_large_pages_fit_into_notebooks(attn):
    """Jupyter drops outputs of more than 3 MB."""
    view = attn.view(np.random.default_rng(5).random((8, 500, 500)))
    assert len(view.html) <= 2_000_000
    assert view._repr_png_() is None
    job = {name: np.random.default_rng(6).random((1, 16, 200, 64)) for name in "QKV"}
    assert len(attn.view(**job).html) <= 2_000_000
    assert len(attn.view(np.random.default_rng(5).random((8, 500, 500)), max_html_bytes="4M").html) > 2_000_000


def test_files(attn, result, tmp_path, monkeypatch):
    np.savez(tmp_path / "r.npz", **result)
    monkeypatch.chdir(tmp_path)
    assert str(attn.view("r.npz")) == str(attn.view(result)) == str(attn.view(tmp_path / "r.npz"))
    assert str(attn.view("r.npz#scores")) == str(attn.view(result, of="scores"))
    np.save("q.npy", Q)
    assert str(attn.explain(Q="q.npy", K=K, V=V)) == str(attn.explain(Q=Q, K=K, V=V)), "a job names files in the current folder"


def test_explanation_is_that_of_the_program(attn, tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    explanation = attn.explain(query=1, head=1, precision=3, **JOB)
    choice = ["--explain-query", "1", "--explain-head", "1", "--precision", "3"]
    assert str(explanation) == printed(tmp_path, "run", "job.json", "--explain", "-", *choice)
    assert explanation.html == printed(tmp_path, "run", "job.json", "--explain", "page.html", *choice)
    output = Output(explanation)
    frame = output.attributes["iframe"]
    assert frame["srcdoc"] == explanation.html
    assert frame["sandbox"] == "allow-same-origin" and "<script" not in explanation.html
    assert str(explanation) in output.text, "for notebooks that are not trusted"
    explanation.save(tmp_path / "steps.tex")
    assert "\\begin{document}" in (tmp_path / "steps.tex").read_text()


def test_explanation_of_arrays_and_groups_of_keys(attn):
    """Arrays are passed in a file, also those of a group."""
    doc = np.array([0, 0, 1, 1])
    a = attn.explain(Q=Q, K=K, V=V, mask_rule="doc[q] == doc[k]", mask_tables={"doc": doc}, threads=1)
    b = attn.explain(Q=Q, K=K, V=V, mask=doc[:, None] == doc)
    assert str(a) == str(b)


def test_errors_and_warnings_are_those_of_the_program(attn, result):
    with pytest.raises(attn.Error, match="^result: has no tensor keys; select one with --of: scores, weights, context") as error:
        attn.view(result, of="keys")
    assert error.value.exit_code == 2
    with pytest.raises(attn.Error, match=r"^K: expected \(\*, 8\) to match Q"):
        attn.explain(Q=Q, K=K[:, :5], V=V)
    with pytest.raises(attn.Error, match=r"^--max-html-bytes: the smallest page has \d+ bytes; [^\n]*$"):
        attn.view(np.random.default_rng(0).random((2, 2, 64, 64)), max_html_bytes="200K")
    with pytest.raises(attn.Error, match="^--title: expected a value, found ''"):
        attn.view(result, title="")
    with pytest.raises(attn.Error, match="nofile.safetensors: No such file or directory"):
        attn.view("nofile.safetensors")
    with pytest.raises(attn.Error, match=r"^a\.jpg: expected a name that ends in"):
        attn.view(result).save("a.jpg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = {name: np.random.default_rng(6).random((2, 3, 4, 8)) for name in "QKV"}
        attn.view(attn.run(**batch, outputs=["weights", "context"]))
    with pytest.warns(attn.AttnWarning, match="tokens") as warned:
        attn.view(result, result, tokens=["a"])
    assert {warning.filename for warning in warned} == {__file__}
    with pytest.warns(attn.AttnWarning, match=r"^weights \(3, 2, 4, 4\): the axes are taken as batch, head, L, S; if"):
        attn.view(np.random.default_rng(0).random((3, 2, 4, 4)))
    with pytest.warns(attn.AttnWarning, match="Q holds 1, the first at") as warned:
        attn.explain(Q=np.where(np.arange(Q.size).reshape(Q.shape) == 1, np.nan, Q), K=K, V=V)
    assert "/" not in str(warned[0].message) and warned[0].filename == __file__
    with pytest.warns(attn.AttnWarning, match="tokens"):
        attn.explain(Q=Q, K=K, V=V, tokens=["a", "b"])


def test_files_are_removed_with_the_object(attn, result):
    view = attn.view(result)
    folder = view._command.folder.path
    assert os.path.exists(folder)
    del view
    gc.collect()
    assert not os.path.exists(folder)
