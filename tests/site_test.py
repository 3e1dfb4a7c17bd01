"""scripts/site: the documentation as a site, whose links lead somewhere and which loads nothing from other hosts."""

import importlib.machinery
import importlib.util
import json
import os
import subprocess

import pytest

from support.attn import ATTN, ROOT, under_sanitizer

pytest.importorskip("mkdocs", reason="mkdocs is not installed")
pytestmark = pytest.mark.skipif(under_sanitizer(), reason="the pages are the same in the release build")


@pytest.fixture(scope="module")
def site(module_path):
    run = subprocess.run([ROOT / "scripts" / "site", module_path / "site"], env=os.environ | {"ATTN": ATTN}, capture_output=True,
                         text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return module_path / "site"


@pytest.fixture(scope="module")
def script():
    loader = importlib.machinery.SourceFileLoader("site_script", str(ROOT / "scripts" / "site"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("site_script", loader))
    loader.exec_module(module)
    return module


def test_all_pages_are_in_the_navigation(site):
    index = (site / "index.html").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert f'href="{page.relative_to(ROOT / "docs").with_suffix(".html")}"' in index, page


def test_search_finds_a_flag(site):
    texts = [entry["text"] for entry in json.loads((site / "search" / "search_index.json").read_text())["docs"]]
    assert any("--mask-rule" in text for text in texts)


def test_gallery_shows_pages_of_examples(site, script):
    gallery = (site / "gallery.html").read_text()
    for name, _, title in script.GALLERY:
        assert title in gallery and f'href="gallery/{name}.html"' in gallery
        assert "</html>" in (site / "gallery" / f"{name}.html").read_text()


def test_other_folders_are_not_replaced(tmp_path):
    (tmp_path / "file").write_text("mine")
    run = subprocess.run([ROOT / "scripts" / "site", tmp_path], env=os.environ | {"ATTN": ATTN}, capture_output=True, text=True)
    assert run.returncode == 1 and run.stderr == f"{tmp_path} is neither empty nor a site\n"
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("text, message", [
    ("[x](missing.md)", "docs/masks.md: missing.md does not exist"),
    ("![p](images/nope.png)", "docs/masks.md: images/nope.png does not exist")])
def test_links_to_missing_files_are_errors(script, text, message):
    with pytest.raises(SystemExit, match=message):
        script.with_links_of_site(text, ROOT / "docs" / "masks.md")


@pytest.mark.parametrize("element, problem", [
    ('<a href="absent.html">x</a>', "a.html: absent.html does not exist"),
    ('<a href="#absent">x</a>', "a.html: #absent: no such heading"),
    ('<a href="b.html#absent">x</a>', "a.html: b.html#absent: no such heading"),
    ('<img src="absent.png">', "a.html: absent.png does not exist"),
    ('<script src="https://example.org/x.js"></script>', "a.html: loads https://example.org/x.js")])
def test_wrong_links_are_found(tmp_path, script, element, problem):
    (tmp_path / "b.html").write_text('<h1 id="b">b</h1><a href="a.html">a</a>')
    (tmp_path / "a.html").write_text(f'<a href="b.html#b">b</a><a href="https://example.org">x</a>{element}')
    assert list(script.problems_of(tmp_path)) == [problem]
