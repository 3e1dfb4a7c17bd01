"""The HTML page in headless Chromium: mouse and keys, the numbers that it shows, and its security policy.

The numbers on the page are compared with the file's. scripts/test-page runs this; it needs a browser, so
the name does not end in _test.py. Screenshots go to the folder ATTN_SCREENSHOTS, if set.
"""

import json
import os
import sys
import time

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.chrome.service import Service

from support.attn import attn

ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--window-size=1280,1000"]
EVIL = ["</script><img src=x onerror=\"window.broken=1\">", "<b>bold</b>", "\u2028'\"\\", "${1}`",
        "<!--", "]]>"]


class Page:
    def __init__(self, folder, dark=False):
        options = webdriver.ChromeOptions()
        for argument in ARGUMENTS + [f"--user-data-dir={folder}/browser-{time.monotonic_ns()}"]:
            options.add_argument(argument)
        if dark:
            options.add_argument("--force-dark-mode")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)

    def open(self, path):
        start = time.monotonic()
        self.driver.get(f"file://{path}")
        self.wait("return document.body.dataset.ready === 'yes'")
        return time.monotonic() - start

    def wait(self, script, seconds=20):
        end = time.monotonic() + seconds
        while not self.driver.execute_script(script):
            if time.monotonic() > end:
                raise TimeoutError(f"{script}: {self.text('sources')}, {self.logs()[0]}")
            time.sleep(0.02)

    def text(self, name):
        time.sleep(0.06)  # a frame or two
        return self.driver.execute_script("return document.getElementById(arguments[0]).textContent",
                                          name)

    def box(self, which=0):
        return self.driver.find_elements(By.CLASS_NAME, "matrix")[which]

    def over(self, row, column, which=0, click=False):
        g = self.driver.execute_script(f"return figures[{which}].g")
        box = self.box(which)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", box)
        x = g["left"] + (column + .5) * g["cell"] - box.rect["width"] / 2
        y = g["top"] + (row + .5) * g["cell"] - box.rect["height"] / 2
        actions = ActionChains(self.driver).move_to_element_with_offset(box, round(x), round(y))
        (actions.click() if click else actions).perform()

    def press(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()

    def logs(self):
        """(console messages, requested URLs) since the last call."""
        console = [e["message"] for e in self.driver.get_log("browser")
                   if "willReadFrequently" not in e["message"]]  # a warning about pixel() below
        events = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        requested = [e["params"]["request"]["url"] for e in events
                 if e["method"] == "Network.requestWillBeSent"]
        return console, requested


@pytest.fixture(scope="module")
def folder(module_path):
    return module_path


@pytest.fixture(scope="module")
def browser(folder):
    page = Page(folder)
    yield page
    page.driver.quit()


@pytest.fixture
def page(browser, folder, request):
    """The browser. After each test its console must be empty, and it must have requested only files of the test."""
    yield browser
    if "ATTN_SCREENSHOTS" in os.environ:
        browser.driver.save_screenshot(os.path.join(os.environ["ATTN_SCREENSHOTS"], f"{request.node.name}.png"))
    console, requests = browser.logs()
    assert console == []
    # The browser's new tab page, which is open at first, requests chrome: and chrome-untrusted: URLs.
    allowed = f"file://{folder}", "data:", "chrome:", "chrome-untrusted:"
    assert [url for url in requests if not url.startswith(allowed)] == []


HEADS, TOKENS = 6, [f"t{i}" for i in range(12)]


@pytest.fixture(scope="module")
def weights(folder):
    """The weights on the page heads.html."""
    rng = np.random.default_rng(4)
    n = len(TOKENS)
    s = rng.standard_normal((HEADS, n, n)) * 2 + np.triu(np.full((n, n), -np.inf), 1)
    w = np.exp(s) / np.exp(s).sum(2, keepdims=True)
    np.savez(folder / "w.npz", weights=w, masked_scores=s)
    run = attn("view", "w.npz", "-o", "heads.html", "--tokens", ",".join(TOKENS), cwd=folder)
    assert run.returncode == 0
    assert b"6 matrices of 12 x 12, 64 bits" in run.stderr
    return w


def entropy(row):
    p = row[row > 0] / row.sum()
    return -(p * np.log(p)).sum()


def assert_shows(page, w, head, i, j, tokens, what):
    """The page shows the facts of this cell."""
    got = {name: page.text(name) for name in ("query", "key", "value", "sum", "entropy")}
    row = w[head, i]
    want = {"query": f"{i}: {tokens[i]}", "key": f"{j}: {tokens[j]}"}
    right = all(got[k] == v for k, v in want.items())
    if row[j] == 0:
        right &= got["value"] in ("hidden", "exactly 0")
    else:
        right &= float(got["value"]) == row[j]
    right &= np.isclose(float(got["sum"]), row.sum(), rtol=2e-6)
    right &= abs(float(got["entropy"].split()[0]) - entropy(row)) < 6e-4
    assert bool(right), f"{what}: {got}, not {want} {row[j]}"


def test_mouse_and_keys(page, weights, folder):
    w, tokens = weights, TOKENS
    page.open(folder / "heads.html")
    for i, j in (5, 3), (11, 0), (7, 7), (2, 9):
        page.over(i, j)
        assert_shows(page, w, 0, i, j, tokens, f"hover {i, j}")
    page.over(4, 2, click=True)
    assert page.text("locked") == "locked", "a click locks"
    page.over(9, 1)
    assert_shows(page, w, 0, 4, 2, tokens, "locked: hovering changes nothing")
    page.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert_shows(page, w, 0, 5, 4, tokens, "arrow keys")
    page.press(Keys.END, Keys.ARROW_RIGHT, Keys.HOME, Keys.ARROW_LEFT, Keys.ARROW_UP)
    assert_shows(page, w, 0, 4, 0, tokens, "Home, End, and the focus stays inside the matrix")
    page.press("]", "]")
    assert_shows(page, w, 2, 4, 0, tokens, "] is the next head")
    page.press("[", "[", "[")
    assert_shows(page, w, 5, 4, 0, tokens, "[ wraps around to the last head")
    page.driver.find_elements(By.CSS_SELECTOR, "#grid button")[3].click()
    assert_shows(page, w, 3, 4, 0, tokens, "a head of the grid")
    page.press(Keys.ESCAPE)
    assert page.text("locked") == "follows the pointer", "Escape unlocks"
    page.driver.execute_script("document.activeElement.blur()")
    page.press("/", "T1")
    assert page.text("found") == "3 of 12", f"search: {page.text('found')}"
    page.press(Keys.ENTER)
    assert_shows(page, w, 3, 10, 0, tokens, "Enter selects the next match")
    page.press(Keys.ENTER)
    assert_shows(page, w, 3, 11, 0, tokens, "the match after that")


def test_colours_of_cells(page, weights, folder):
    page.open(folder / "heads.html")

    def pixel(row, column):
        return page.driver.execute_script(
            "const f = figures[0], g = f.g, r = f.base.width / g.width;"
            "return [...f.base.getContext('2d').getImageData((g.left + (arguments[1] + .2) * g.cell)"
            " * r, (g.top + (arguments[0] + .2) * g.cell) * r, 1, 1).data].slice(0, 3)", row, column)

    scale = page.driver.find_element(By.ID, "scale")
    page.driver.execute_script("choosePanel(0)")
    most = page.driver.execute_script("return matrix(0, 0).range()[1]")
    at = page.driver.execute_script(
        "for (let i = 0; i < rows; ++i) for (let j = 0; j < columns; ++j)"
        " if (Math.fround(matrix(0, 0).value(i, j)) === arguments[0]) return [i, j]", most)
    assert pixel(*at) == [18, 18, 52], f"the largest weight is darkest: {pixel(*at)}"
    scale.send_keys("per head")
    page.driver.execute_script("choosePanel(1)")
    own = page.driver.execute_script(
        "const m = matrix(0, 1), top = m.range()[1];"
        "for (let i = 0; i < rows; ++i) for (let j = 0; j < columns; ++j)"
        " if (Math.fround(m.value(i, j)) === top) return [i, j]")
    assert pixel(*own) == [18, 18, 52], f"per head, the largest weight of each is darkest: {pixel(*own)}"
    page.driver.find_element(By.ID, "theme").click()
    theme = page.driver.execute_script("return document.documentElement.dataset.theme")
    want = [253, 244, 180] if theme == "dark" else [18, 18, 52]
    assert pixel(*own) == want, f"{theme}: {pixel(*own)}"
    page.driver.find_element(By.ID, "theme").click()
    before = pixel(6, 2)
    page.driver.find_element(By.ID, "log").click()
    assert sum(pixel(6, 2)) < sum(before), "the log scale darkens small weights"
    page.driver.find_element(By.ID, "log").click()


def test_tokens_are_not_markup(page, folder):
    np.savez(folder / "e.npz", weights=np.full((6, 6), 1 / 6))
    (folder / "e.json").write_text(json.dumps({"weights": [[1 / 6] * 6] * 6, "tokens": EVIL}))
    attn("view", "e.json", "-o", "evil.html", cwd=folder)
    page.open(folder / "evil.html")
    page.over(0, 1)
    assert "onerror" in page.text("query"), f"shown as text: {page.text('query')}"
    assert page.text("key") == "1: <b>bold</b>", f"text, not markup: {page.text('key')}"
    time.sleep(0.3)
    counts = page.driver.execute_script(
        "return [typeof window.broken, document.images.length, document.querySelectorAll('b').length]")
    assert counts == ["undefined", 0, 0], f"nothing runs: {counts}"
    stopped = page.driver.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.broken = 2';"
        "document.body.append(s); return typeof window.broken")
    assert stopped == "undefined", "the security policy blocks scripts that are not part of the page"
    page.logs()  # discards the refusal


def test_two_results_are_side_by_side(page, folder):
    rng = np.random.default_rng(6)
    a, b = (rng.random((2, 5, 5)) for _ in range(2))
    np.savez(folder / "a.npz", weights=a)
    np.savez(folder / "b.npz", weights=b)
    attn("view", "a.npz", "b.npz", "-o", "two.html", cwd=folder)
    page.open(folder / "two.html")
    for which in range(3):
        page.over(3, which, which)
        got = [float(page.text(name)) for name in ("value", "other", "difference")]
        want = [a[0, 3, which], b[0, 3, which], a[0, 3, which] - b[0, 3, which]]
        assert got == want, f"side by side: {got}, not {want}"
    captions = [e.text for e in page.driver.find_elements(By.CSS_SELECTOR, "#matrices figcaption")]
    assert captions == ["a.npz", "b.npz", "a.npz − b.npz"], f"{captions}"


def test_large_page_opens_and_is_accurate(page, folder):
    """12 layers of 12 heads, 512 tokens: at most 50 MB, and numbers within half a step."""
    rng = np.random.default_rng(7)
    w = rng.random((12, 1, 12, 512, 512), np.float32) ** 8
    w /= w.sum(-1, keepdims=True)
    np.save(folder / "large.npy", w)
    run = attn("view", "large.npy", "-o", "large.html", cwd=folder)
    size = (folder / "large.html").stat().st_size
    assert run.returncode == 0, f"{size} bytes: {run.stderr}"
    assert size <= 50_000_000, f"{size} bytes: {run.stderr}"
    seconds = page.open(folder / "large.html")
    start = time.monotonic()
    page.wait("return document.body.dataset.grid === 'drawn'")
    print(f"12 x 12 heads of 512 x 512: {size / 1e6:.1f} MB, ready in {seconds:.2f} s, "
          f"all heads drawn {time.monotonic() - start:.2f} s later", file=sys.stderr)
    page.driver.execute_script("choosePanel(100); focusOn(300, 17)")
    value, error = page.text("value").split(" ± ")
    want = w[8, 0, 4, 300, 17]
    assert abs(float(value) - want) <= float(error) * 1.1 + 1e-7, f"{value} ± {error}: {want}"
    assert "rounded to 8 bits" in page.text("notes"), "the page states it"
    page.driver.find_element(By.CSS_SELECTOR, "#sources input").send_keys(str(folder / "large.npy"))
    page.wait("return !document.getElementById('value').textContent.includes('±')")
    for row, column in (300, 17), (511, 511), (0, 200):
        page.driver.execute_script(f"focusOn({row}, {column})")
        page.wait("return !document.getElementById('value').textContent.includes('±')")
        assert len(page.text("value").lstrip("0.")) <= 9, f"a float32's digits: {page.text('value')}"
        got = np.float32(page.text("value"))
        assert got == w[8, 0, 4, row, column], f"exact: {row, column}: {got}"
    moves = page.driver.execute_script(
        "const start = performance.now();"
        "for (let i = 0; i < 50; ++i) { state.row = i; drawFocusAndFacts(); }"
        "return (performance.now() - start) / 50")
    print(f"a move of the focus is drawn in {moves:.1f} ms", file=sys.stderr)


def test_file_gives_exact_values(page, folder):
    """A page with rounded numbers reads the exact ones from its file; other files are refused."""
    rng = np.random.default_rng(8)
    w = rng.standard_normal((2, 3, 1, 40, 50)).astype("f4")
    half = w.astype("f2")
    np.save(folder / "x.npy", w)
    np.savez(folder / "x.npz", first=np.zeros(3), weights=w)
    np.savez_compressed(folder / "deflated.npz", weights=w.astype("f8"))
    np.savez(folder / "half.npz", weights=half)
    attn("convert", "x.npz", "-o", "x.safetensors", cwd=folder)
    np.savez(folder / "wrong.npz", weights=w[::-1])
    np.savez(folder / "small.npz", weights=w[..., :4])
    for name, want in (("x.npy", w), ("x.npz", w), ("deflated.npz", w), ("half.npz", half),
                       ("x.safetensors", w)):
        run = attn("view", name, "-o", "exact.html", "--force", "--max-html-bytes", "75000", *(
                   [] if name == "x.npy" else ["--of", "weights"]), cwd=folder)
        assert run.returncode == 0, f"{run}"
        assert b"rounded" in run.stderr, f"{run}"
        page.open(folder / "exact.html")
        page.driver.execute_script("choosePanel(4); focusOn(7, 5)")
        before = page.text("value")
        assert "±" in before, f"{name}: rounded: {before}"
        chooser = page.driver.find_element(By.CSS_SELECTOR, "#sources input")
        for other, words in (("wrong.npz", "expected an .npy" if name == "x.npy" else "values differ"),
                             ("small.npz", "expected an .npy" if name == "x.npy" else "shape differs")):
            chooser.send_keys(str(folder / other))
            page.wait(f"return document.querySelector('#sources output').textContent.includes('{words}')")
            assert "±" in page.text("value"), f"{name}: {other} is not taken"
        chooser.send_keys(str(folder / name))
        page.wait("return document.querySelector('#sources output').textContent === 'exact'")
        for panel, i, j in (4, 7, 5), (0, 0, 0), (5, 38, 49), (2, 3, 9):
            page.driver.execute_script(f"choosePanel({panel}); focusOn({i}, {j})")
            page.wait("return !document.getElementById('value').textContent.includes('±')")
            got = np.float32(page.text("value"))
            assert got == want[panel // 3, panel % 3, 0, i, j], f"{name}: {panel, i, j}: {got}"
    attn("view", "x.npz", "half.npz", "-o", "both.html", "--max-html-bytes", "100000", cwd=folder)
    page.open(folder / "both.html")
    for chooser, name in zip(page.driver.find_elements(By.CSS_SELECTOR, "#sources input"), ("x.npz", "half.npz")):
        chooser.send_keys(str(folder / name))
    page.driver.execute_script("choosePanel(1); focusOn(2, 3)")
    page.wait("return !document.getElementById('difference').textContent.includes('±')")
    want = float(w[0, 1, 0, 2, 3]) - float(half[0, 1, 0, 2, 3])
    assert float(page.text("difference")) == want, f"{page.text('difference')}, not {want}"


def test_page_fits_a_phone(page, weights, folder):
    page.driver.set_window_size(500, 850)  # as narrow as a headless window gets
    page.open(folder / "heads.html")
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True})
    time.sleep(0.3)
    wide = page.driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= 360, f"nothing runs over the edge of a phone: {wide}"
