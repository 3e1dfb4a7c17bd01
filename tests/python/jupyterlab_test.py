"""The pages of attn.view() and attn.explain() in JupyterLab, in Chromium and Firefox, as a user meets them.

scripts/test-with/browsers runs this. JUPYTER is the path of a Python with JupyterLab; without it, the tests are
skipped. The server has a folder of its own as its home, so it neither reads nor changes settings of the user.
"""

import contextlib
import importlib.util
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
import urllib.request

import numpy as np
import pytest

from view.browser import Chromium, Firefox
from view.page_in_browser import cell, entropy

MISSING = [name for name in ("chromium", "chromedriver", "firefox-esr") if shutil.which(name) is None]
MISSING += [] if importlib.util.find_spec("selenium") else ["selenium"]
MISSING += [] if "JUPYTER" in os.environ else ["JupyterLab"]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)} (scripts/test-with/browsers)")

TOKENS = "the cat sat on the mat".split()
SOURCES = [
    "import attn\nimport numpy as np\nrng = np.random.default_rng(1)\nQ, K, V = rng.standard_normal((3, 6, 8))\n"
    f"attn.view(Q=Q, K=K, V=V, heads=2, causal=True, tokens={TOKENS})",
    "attn.explain(Q=Q, K=K, V=V, heads=2, causal=True, query=2, head=1)",
    "attn.view(rng.random((8, 500, 500)))",
    "full = attn.run(Q=Q, K=K, V=V, heads=2)\ncausal = attn.run(Q=Q, K=K, V=V, heads=2, causal=True)\nattn.view(full, causal)",
    "number = 1",
    "attn.view(causal)"]
JOB, STEPS, LARGE, BOTH, LATER = FRAMES = range(5)
VIEWS = JOB, LARGE, BOTH, LATER


def weights(causal=True):
    """Of the two heads of the job, by NumPy."""
    q, k, _ = np.random.default_rng(1).standard_normal((3, 6, 8)).reshape(3, 6, 2, 4).transpose(0, 2, 1, 3)
    scores = q @ k.transpose(0, 2, 1) / 2 + (np.triu(np.full((6, 6), -np.inf), 1) if causal else 0)
    exponentials = np.exp(scores - scores.max(2, keepdims=True))
    return exponentials / exponentials.sum(2, keepdims=True)


def notebook_of(sources):
    cells = [{"cell_type": "code", "id": f"cell{k}", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
             for k, source in enumerate(sources)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


class Server:
    """JupyterLab on a free port of the loopback interface."""

    def __init__(self, folder, environment):
        self.folder, self.notebooks, self.token = folder, folder / "notebooks", secrets.token_hex(16)
        self.notebooks.mkdir()
        settings = folder / "config" / "labconfig" / "page_config.json"
        settings.parent.mkdir(parents=True)
        settings.write_text(json.dumps({"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        kept = {name: value for name, value in environment.items() if not name.startswith(("JUPYTER", "IPYTHON", "XDG_"))}
        self.environment = {
            **kept, "HOME": str(folder), "JUPYTER_CONFIG_DIR": str(folder / "config"), "JUPYTER_DATA_DIR": str(folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"), "IPYTHONDIR": str(folder / "ipython"), "JUPYTER_TOKEN": self.token}
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [os.environ["JUPYTER"], "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
                 "--ServerApp.port_retries=0", f"--ServerApp.root_dir={self.notebooks}", "--LabApp.news_url=None",
                 "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.extension_manager=readonly"],
                cwd=folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise

    def wait(self, seconds=60):
        end = time.monotonic() + seconds
        while True:
            try:
                return urllib.request.urlopen(f"{self.address}/api/status?token={self.token}", timeout=5).close()
            except OSError:
                assert self.process.poll() is None and time.monotonic() < end, (self.folder / "log").read_text()[-3000:]
                time.sleep(0.1)

    def stop(self):
        """Also stops its kernels."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def server(module_environment, module_path):
    server = Server(module_path, module_environment)
    yield server
    server.stop()


class Notebook:
    """A notebook in JupyterLab."""

    def __init__(self, browser, server, name):
        self.browser, self.server, self.path = browser, server, server.notebooks / name
        self.run = browser.run

    def open(self):
        self.browser.size(1440, 1000)
        self.browser.visit(f"{self.server.address}/lab/tree/{self.path.name}?reset&token={self.server.token}")
        self.browser.wait(f"return document.querySelectorAll('.jp-CodeCell').length === {len(SOURCES)}", 60)
        self.browser.wait("return document.querySelector('.jp-Notebook-ExecutionIndicator[data-status=idle]') !== null", 60)

    def restart(self, number):
        """Loads a page again, so that it is as it was before clicks and keys."""
        self.run("const frame = document.querySelectorAll('.jp-OutputArea-output iframe')[arguments[0]];"
                 "return new Promise(done => { frame.addEventListener('load', () => done(null), {once: true});"
                 "frame.srcdoc = frame.srcdoc; })", number)

    def click(self, selector, words="", click=True):
        """Clicks the first element that is visible and has these words, when there is one."""
        script = """
          for (const element of document.querySelectorAll(arguments[0])) {
            const {left, top, width, height} = element.getBoundingClientRect();
            if (width > 0 && element.textContent.startsWith(arguments[1])) return [left + width / 2, top + height / 2];
          }
          return null;"""
        end = time.monotonic() + 20
        while (place := self.run(script, selector, words)) is None:
            assert time.monotonic() < end, f"{selector} {words} does not appear"
            time.sleep(0.05)
        self.browser.move(*place, click=click)

    def menu(self, *names):
        self.click(".lm-MenuBar-item", names[0])
        for name in names[1:]:
            self.click(".lm-Menu-itemLabel", name)

    def run_all(self):
        self.menu("Run", "Run All Cells")
        self.wait_for_frames()

    def wait_for_frames(self):
        self.browser.wait(f"return document.querySelectorAll('.jp-OutputArea-output iframe').length === {len(FRAMES)}", 120)

    def save(self):
        self.menu("File", "Save Notebook")
        end = time.monotonic() + 20
        while self.path.read_text().count("iframe") < 2 * len(FRAMES) or self.run("return document.title").startswith("*"):
            assert time.monotonic() < end, "the notebook is not saved"
            time.sleep(0.1)

    def codes(self):
        return self.run("return [...document.querySelectorAll('.jp-Notebook .jp-Cell')].map(cell =>"
                        "[cell.classList.contains('jp-CodeCell'), cell.querySelector('.cm-content')?.textContent])")

    @contextlib.contextmanager
    def frame(self, number):
        """Scripts, mouse and keys are those of this page."""
        self.run("document.querySelectorAll('.jp-OutputArea-output iframe')[arguments[0]].scrollIntoView()", number)
        time.sleep(0.2)
        self.browser.enter(".jp-OutputArea-output iframe", number)
        self.inside = number
        try:
            if number in VIEWS:
                self.browser.wait("return document.body?.dataset.overview === 'complete' && document.body.dataset.head !== undefined")
            yield
        finally:
            self.browser.leave()

    def point(self, row, column, which=0, click=False):
        """Moves the mouse to a cell of the page whose frame was entered, by its position in the window."""
        left, top = cell(self.browser, row, column, which)
        self.browser.leave()
        frame = self.run("const {left, top} = document.querySelectorAll('.jp-OutputArea-output iframe')[arguments[0]]"
                         ".getBoundingClientRect(); return [left, top]", self.inside)
        self.browser.move(frame[0] + left, frame[1] + top, click)
        self.browser.enter(".jp-OutputArea-output iframe", self.inside)

    def state(self, number):
        with self.frame(number):
            return self.run("const {head, row, column, locked, find, side, stage} = attn.state;"
                            "return {head, row, column, locked, find, side, stage}")

    def choose(self, number, head):
        with self.frame(number):
            self.run("attn.chooseHead(arguments[0])", head)
            self.browser.wait(f"return document.body.dataset.head === '{head}'")


@pytest.fixture(scope="module", params=[Chromium, Firefox], ids=["chromium", "firefox"])
def browser(request):
    browser = request.param()
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def executed(browser, server):
    """The notebook after Run All Cells."""
    path = server.notebooks / f"{browser.name}.ipynb"
    path.write_text(json.dumps(notebook_of(SOURCES)))
    notebook = Notebook(browser, server, path.name)
    notebook.open()
    notebook.run_all()
    return notebook


@pytest.fixture
def notebook(executed, request):
    """After each test, the console has nothing but JupyterLab's own lines, and nothing was requested from elsewhere."""
    yield executed
    save_picture(executed.browser, request)
    assert_quiet(executed.browser, executed.server.address)
    executed.restart(JOB)


def save_picture(browser, request, suffix=""):
    if "ATTN_SCREENSHOTS" in os.environ:
        with open(os.path.join(os.environ["ATTN_SCREENSHOTS"], f"{request.node.name}{suffix}.png"), "wb") as file:
            file.write(browser.picture())


def assert_quiet(browser, *origins):
    console, requests = browser.logs()
    own = tuple(f"{origin}/static/lab/" for origin in origins)
    assert [line for line in console if not line.startswith(own) and "GL Driver Message" not in line] == []
    allowed = (*origins, *(origin.replace("http:", "ws:") for origin in origins), "data:", "blob:", "about:", "chrome:", "chrome-untrusted:")
    assert [url for url in requests if not url.startswith(allowed)] == []


# What the outputs show.


@pytest.mark.parametrize("width, height", [(1280, 800), (1920, 1080)])
def test_each_page_fills_its_frame_and_nothing_scrolls_twice(notebook, width, height):
    notebook.browser.size(width, height)
    try:
        for number in FRAMES:
            with notebook.frame(number):
                time.sleep(0.5)
                inner, sizes = notebook.run("const {scrollWidth, scrollHeight} = document.documentElement;"
                                            "return [[innerWidth, innerHeight], [scrollWidth, scrollHeight]]")
                assert sizes == inner, f"page {number}"
                content = notebook.run("return document.documentElement.getBoundingClientRect().height")
            if number != STEPS:
                assert inner[1] == 720 and content > 600
            else:
                assert inner[1] == np.ceil(content) and 1000 < content < 10000, "an explanation is as high as its text"
        outputs = notebook.run("return [...document.querySelectorAll('.jp-OutputArea-output')].map(output =>"
                               "[output.scrollWidth - output.clientWidth, output.scrollHeight - output.clientHeight])")
        assert outputs == [[0, 0]] * len(FRAMES)
    finally:
        notebook.browser.size(1440, 1000)


@pytest.mark.parametrize("number", [JOB, LATER])
def test_pointing_shows_the_weight_that_numpy_computes(notebook, number):
    w = weights()
    for head in 0, 1:
        notebook.choose(number, head)
        with notebook.frame(number):
            for i, j in (5, 3), (2, 0), (4, 4):
                notebook.point(i, j)
                assert notebook.browser.text("query").startswith(f"{i}") and notebook.browser.text("key").startswith(f"{j}")
                assert float(notebook.run("return document.getElementById('value').title")) == pytest.approx(w[head, i, j], rel=1e-12)
                assert float(notebook.browser.text("entropy")) == pytest.approx(entropy(w[head, i]), abs=6e-4)
                assert f"{w[head, i, j]:.4f}"[:-1] in notebook.browser.text("tip")


def test_two_results_show_their_difference(notebook):
    full, causal = weights(causal=False), weights()
    notebook.choose(BOTH, 1)
    with notebook.frame(BOTH):
        notebook.point(3, 1, 2)
        shown = [float(notebook.run("return document.getElementById(arguments[0]).title", name)) for name in ("value", "other", "difference")]
    assert shown == pytest.approx([full[1, 3, 1], causal[1, 3, 1], full[1, 3, 1] - causal[1, 3, 1]], rel=1e-12)


def test_explanation_has_the_numbers_that_numpy_computes(notebook):
    with notebook.frame(STEPS):
        words = notebook.run("return document.body.innerText")
    assert words.startswith("Attention, step by step")
    numbers = {float(number.replace("\u2212", "-")) for number in re.findall(r"[-\u2212]?\d+\.\d+", words)}
    for weight in weights()[1, 2, :3]:
        assert min(abs(weight - number) for number in numbers) < 1e-6


# Mouse and keys.


def test_clicks_and_keys_stay_in_the_page(notebook):
    before = notebook.codes()
    notebook.choose(JOB, 0)
    with notebook.frame(JOB):
        notebook.point(4, 2, click=True)
        assert notebook.browser.text("locked") == "locked"
        notebook.point(5, 1)
        assert notebook.browser.text("key") == "2: sat", "locked: pointing changes nothing"
        notebook.browser.press("Escape")
        assert notebook.browser.text("locked") == "lock"
        # Commands of JupyterLab: cells above and below, deleted, cut, pasted, undone, as text, as headings.
        notebook.browser.press(*"abddxvzmry1", "Enter", "Escape")
        notebook.browser.press("ArrowUp", "ArrowLeft", "ArrowLeft", "]", "w")
        notebook.browser.wait("return document.body.dataset.head === '1'")
        assert notebook.run("const {row, column, side} = attn.state; return [row, column, side]") == [4 - 1, 0, "why"]
        assert "1. " in notebook.run("return document.getElementById('why').innerText")
        notebook.run("document.querySelector('input[value=lines]').click()")
    assert notebook.codes() == before


def test_keys_in_a_cell_do_not_reach_the_page(notebook):
    before = [notebook.state(number) for number in VIEWS]
    notebook.run("document.querySelectorAll('.jp-CodeCell')[4].scrollIntoView({block: 'center'})")
    time.sleep(0.2)
    notebook.click(".jp-CodeCell:nth-child(5) .cm-line, .jp-CodeCell[data-windowed-list-index='4'] .cm-line", "number")
    notebook.browser.press("End", *" + 10 # ws/", "Home", "ArrowRight", "Escape")
    assert notebook.codes()[4] == [True, "number = 1 + 10 # ws/"]
    assert [notebook.state(number) for number in VIEWS] == before


def test_pages_share_no_state(notebook):
    before = [notebook.state(number) for number in VIEWS[1:]]
    with notebook.frame(JOB):
        notebook.run("document.getElementById('find').focus()")
        notebook.browser.press(*"cat")
        assert notebook.browser.text("found") == "1 found"
        notebook.browser.press("Enter")
        notebook.point(3, 2, click=True)
    state = notebook.state(JOB)
    assert (state["find"], state["row"], state["column"], state["locked"]) == ("cat", 3, 2, True)
    assert [notebook.state(number) for number in VIEWS[1:]] == before
    assert notebook.state(JOB) == state, "a page that was scrolled out of view and back is as it was"
    assert notebook.run("return document.querySelectorAll('#matrices, #attn, #find').length") == 0


def test_pages_have_no_link_and_are_isolated(notebook):
    with notebook.frame(JOB):
        assert notebook.run("return document.getElementById('copy-link').getClientRects().length") == 0
        assert notebook.run("try { return parent.document.title; } catch { return 'isolated'; }") == "isolated"


# Themes.


COLOURS = """
  const numbers = colour => colour.match(/\\d+/g).slice(0, 3).map(Number);
  const style = getComputedStyle(document.body);
  return [numbers(style.backgroundColor), numbers(style.color)];"""


def luminance(colour):
    """Relative luminance, as in WCAG."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme, system", [("Dark", "light"), ("Light", "dark")], ids=["dark", "light"])
def test_pages_have_the_theme_of_the_notebook(notebook, theme, system):
    """Also those that are open when the theme changes. The system has the other theme."""
    try:
        notebook.browser.size(1440, 1000, dark=system == "dark")
        for name in ("Light", "Dark") if theme == "Dark" else ("Dark", "Light"):
            notebook.menu("Settings", "Theme", f"JupyterLab {name}")
            notebook.browser.wait(f"return document.body.dataset.jpThemeLight === '{str(name == 'Light').lower()}'")
        for number in FRAMES:
            with notebook.frame(number):
                time.sleep(0.3)
                ground, ink = map(luminance, notebook.run(COLOURS))
                assert (ground < 0.05) == (theme == "Dark"), f"page {number}"
                assert (max(ground, ink) + 0.05) / (min(ground, ink) + 0.05) > 7
    finally:
        notebook.menu("Settings", "Theme", "JupyterLab Light")
        notebook.browser.size(1440, 1000)


# Stored notebooks.


def test_saved_notebook_shows_the_pages_again(notebook):
    notebook.save()
    notebook.open()
    notebook.wait_for_frames()
    assert notebook.run("return document.querySelector('.jp-InputPrompt').textContent") == "[1]:", "stored, not executed"
    notebook.choose(LATER, 1)
    with notebook.frame(LATER):
        notebook.point(4, 3)
        assert float(notebook.run("return document.getElementById('value').title")) == pytest.approx(weights()[1, 4, 3], rel=1e-12)
    with notebook.frame(STEPS):
        notebook.browser.wait("return document.documentElement.scrollHeight <= innerHeight", 5)


def test_notebook_that_is_not_trusted_shows_pictures_and_text(notebook, request):
    notebook.save()
    stored = json.loads(notebook.path.read_text())
    stored["cells"][4]["source"] = "number = 'changed by another program'"
    other = Notebook(notebook.browser, notebook.server, f"{notebook.browser.name}-untrusted.ipynb")
    other.path.write_text(json.dumps(stored))
    outputs = "return [...document.querySelectorAll('.jp-OutputArea-output')]"
    with other.browser.tab():
        other.open()
        other.browser.wait(f"{outputs}.length === {len(FRAMES)}")
        assert other.run("return document.querySelectorAll('.jp-OutputArea-output iframe').length") == 0
        words = other.run(f"{outputs}.map(output => output.textContent)")
        assert words[STEPS].lstrip().startswith("Attention, step by step")
        assert [number for number in VIEWS if "Trust the notebook to see it." not in words[number]] == []
        pictures = other.run(f"{outputs}.map(output => [...output.querySelectorAll('img')]"
                             ".map(image => [image.naturalWidth, image.width]))")
        for number, picture in zip(FRAMES, pictures):
            assert len(picture) == (number in (JOB, LATER))
            assert all(natural > 200 and width == natural // 2 for natural, width in picture)
        save_picture(other.browser, request, "-before")
        other.menu("View", "Activate Command Palette")
        other.browser.press(*"trust notebook", "Enter")
        other.click(".jp-Dialog button.jp-mod-accept")
        other.wait_for_frames()
        save_picture(other.browser, request, "-after")
        assert_quiet(other.browser, other.server.address)


def convert(notebook, kind, *flags):
    notebook.save()
    command = [os.environ["JUPYTER"], "-m", "nbconvert", "--to", kind, *flags, notebook.path]
    subprocess.run(command, check=True, env=notebook.server.environment, capture_output=True, timeout=120)


def test_converted_notebook_shows_the_pages_offline(notebook, request):
    # Only the template's own scripts, for formulas in text, are on the network.
    convert(notebook, "html", "--HTMLExporter.require_js_url=", "--HTMLExporter.mathjax_url=", "--HTMLExporter.jquery_url=")
    page = Notebook(notebook.browser, notebook.server, f"{notebook.browser.name}.html")
    assert_quiet(notebook.browser, notebook.server.address)
    with page.browser.tab():
        page.browser.size(1440, 1000)
        page.browser.visit(f"file://{page.path}")
        page.wait_for_frames()
        page.choose(JOB, 1)
        with page.frame(JOB):
            page.point(4, 3)
            assert float(page.run("return document.getElementById('value').title")) == pytest.approx(weights()[1, 4, 3], rel=1e-12)
        with page.frame(STEPS):
            page.browser.wait("return document.documentElement.scrollHeight <= innerHeight", 5)
        save_picture(page.browser, request, "-page")
        assert_quiet(page.browser, f"file://{page.path}", notebook.server.address)


def test_notebook_converted_to_latex_has_the_pictures(notebook):
    convert(notebook, "latex")
    pictures = (notebook.path.parent / f"{notebook.browser.name}_files").iterdir()
    assert sorted(picture.read_bytes()[:4] for picture in pictures) == [b"\x89PNG"] * 2
