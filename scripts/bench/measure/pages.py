"""Opens pages of attn and BertViz in headless Chromium and measures them. Called by scripts/bench/pages."""

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
from support.attn import ATTN  # noqa: E402
from view.browser import Chromium  # noqa: E402

LAYERS, HEADS = 6, 12
SETTLE = 3  # seconds; after its start, Chromium loads pages of its own
LIBRARIES = {"require": "requirejs/require.js", "jquery": "jquery/dist/jquery.min.js", "d3": "d3/dist/d3.min.js"}

# Runs before the scripts of a page. `times.drawn`: when the second frame begins after all marks exist, so that the
# first one with them has been painted. `times.hover`: from an event of the mouse to the second frame after its changes.
PROBE = """(() => {
  const times = window.times = {longest: 0, hover: null, changes: 0};
  new PerformanceObserver(list => {
    for (const {duration} of list.getEntries()) times.longest = Math.max(times.longest, duration);
  }).observe({type: 'longtask', buffered: true});
  const afterFrames = (count, then) => requestAnimationFrame(() => count ? afterFrames(count - 1, then) : then());
  const poll = () => {
    if (!document.body || !(MARKS)) return requestAnimationFrame(poll);
    afterFrames(1, () => { times.drawn = performance.now(); });
  };
  poll();
  let since = null;
  const moved = event => {
    if (since !== null || !times.isWaiting) return;
    since = event.timeStamp;
    times.isWaiting = false;
    const observer = new MutationObserver(list => { times.changes += list.length; });
    observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
    afterFrames(2, () => {
      times.hover = performance.now() - since;
      since = null;
      observer.disconnect();
    });
  };
  for (const kind of ['pointerover', 'pointermove']) addEventListener(kind, moved, true);
})()"""
SPIN = """const start = performance.now();
let x = 1;
for (let k = 0; k < 2e7; ++k) x = Math.imul(x, 31) + k | 0;
return performance.now() - start + (x === 0.5);"""

LINES = "document.getElementsByTagName('line').length >= "
OURS = "document.body.dataset.overview === 'complete' && document.body.dataset.head !== undefined"
OUR_TOKEN = """const box = document.getElementById('lines').getBoundingClientRect();
const at = [...Array(200)].map((_, k) => [box.left + 5, box.top + 4 + 2 * k]);
const queryAt = ([clientX, clientY]) => attn.lines.at({clientX, clientY}).query;
const shown = [...new Set(at.map(queryAt))].filter(query => query !== undefined);  // the lines may be scrolled
return at.find(place => queryAt(place) === shown[arguments[0]]);"""
THEIR_TOKEN = """const token = [...document.querySelectorAll(SELECTOR)].filter(one => one.textContent !== '')[arguments[0]];
const box = token.getBoundingClientRect();
return [box.left + box.width / 2, box.top + box.height / 2];"""
DETAIL = """const head = [...document.querySelectorAll('#vis svg > g')][0].lastChild;
head.dispatchEvent(new MouseEvent('click', {bubbles: true}));"""


class Page:
    """A kind of page: what to call it, the page of attn that it is compared with, and how it is opened and pointed at."""

    def __init__(self, name, title, ours, marks, token, before=""):
        self.name, self.title, self.ours, self.marks, self.token, self.before = name, title, ours, marks, token, before


def kinds(n):
    def theirs(name, title, ours, lines, selector, before=""):
        return Page(name, title, ours, f"{LINES}{lines}", THEIR_TOKEN.replace("SELECTOR", repr(selector)), before)

    return [Page("attn", "attn", "attn", OURS, OUR_TOKEN),
            theirs("head", "BertViz, head view", "attn", HEADS * n * n, "#left text"),
            theirs("model", "BertViz, model view", "attn", LAYERS * HEADS * n * n, "text.token", DETAIL),
            Page("why", "attn, with queries, keys and values", "why", OURS, OUR_TOKEN),
            theirs("neuron", "BertViz, neuron view", "why", n * n, "#collapsed #leftText text")]


def write_pages(folder, tools, sizes):
    program = [tools / "venv" / "bin" / "python", "-W", "ignore", ROOT / "scripts" / "bench" / "measure" / "page_files.py"]
    done = subprocess.run([*program, folder, *map(str, sizes)], check=True, stdout=subprocess.PIPE, text=True)
    (folder / "versions.txt").write_text(done.stdout, encoding="utf-8")
    for n in sizes:
        tokens = ["--tokens", f"@tokens-{n}.json"]
        for words in (["view", f"weights-{n}.npz", *tokens, "-o", f"attn-{n}.html"],
                      ["run", "--model", "model", "--layer", "all", "--hidden", f"h-{n}.npy", *tokens, "--outputs",
                       "weights,queries,keys,values", "-o", f"layers-{n}.npz"],
                      ["view", f"layers-{n}.npz", "-o", f"why-{n}.html"]):
            subprocess.run([ATTN, *words], check=True, cwd=folder, stderr=subprocess.DEVNULL)
    for name, path in LIBRARIES.items():
        (folder / f"{name}.js").write_bytes((tools / "node_modules" / path).read_bytes())


def loaded(text):
    """The addresses of the scripts that a page loads."""
    return list(dict.fromkeys(re.findall(rf"https://[^'\"\s]*/(?:{'|'.join(LIBRARIES)})[^'\"\s]*\.min(?:\.js)?(?=['\"])", text)))


def offline(path):
    """The same page, with the scripts from the folder of the page."""
    if path.name.startswith(("attn", "why")):
        return path
    text = path.read_text(encoding="utf-8")
    for address in loaded(text):
        name = next(name for name in LIBRARIES if f"/{name}" in address)
        text = text.replace(address, name + (".js" if address.endswith(".js") else ""))
    copy = path.with_name(f"offline-{path.name}")
    if not copy.exists():
        copy.write_text(text, encoding="utf-8")
    return copy


def processes(pid):
    """(processor seconds of the descendants of a process, MB of the largest renderer among them)."""
    parents, seconds, memory = {}, {}, 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        seconds[int(stat.parent.name)] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    below = set()
    for one in parents:
        above = one
        while above in parents and above != pid:
            above = parents[above]
        if above == pid:
            below.add(one)
    for one in below:
        try:
            if b"--type=renderer" in pathlib.Path(f"/proc/{one}/cmdline").read_bytes():
                lines = pathlib.Path(f"/proc/{one}/status").read_text().splitlines()
                memory = max(memory, *(int(line.split()[1]) for line in lines if line.startswith("VmRSS")))
        except OSError:
            pass
    return sum(seconds[one] for one in below), memory / 1000


class Opened:
    """A page in a new browser, drawn."""

    def __init__(self, path, kind, limit):
        self.kind, self.browser = kind, Chromium()
        try:
            self.browser.driver.set_page_load_timeout(limit)
            self.browser.driver.set_script_timeout(limit)
            self.command("Page.addScriptToEvaluateOnNewDocument", source=PROBE.replace("MARKS", kind.marks))
            self.browser.visit("about:blank")
            time.sleep(SETTLE)
            self.spin = self.browser.run(SPIN)
            before, _ = processes(self.browser.pid)
            self.browser.visit(f"file://{path}")
            self.browser.wait("return times.drawn !== undefined", limit)
            time.sleep(.3)
            after, self.memory = processes(self.browser.pid)
            self.busy = after - before
        except BaseException:
            self.browser.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.close()

    def command(self, name, **parameters):
        return self.browser.driver.execute_cdp_cmd(name, parameters)

    def hover(self, token):
        """Milliseconds, and the number of changes in the document."""
        place = self.browser.run(self.kind.token, token)
        if place is None:
            sys.exit(f"scripts/bench/pages: {self.kind.title}: no token to point at is in view")
        x, y = place
        self.browser.run("Object.assign(times, {hover: null, changes: 0, isWaiting: true})")
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.browser.wait("return times.hover !== null", 200)
        return self.browser.run("return [times.hover, times.changes]")


MEASURES = ["drawn", "processor time", "longest task", "elements", "hover", "JavaScript heap", "process"]


def measure(path, kind, limit):
    """A number for each of MEASURES: three in seconds, elements, milliseconds, MB and MB; and the time of SPIN."""
    with Opened(path, kind, limit) as page:
        run = page.browser.run
        drawn, longest, elements = run("return [times.drawn, times.longest, document.getElementsByTagName('*').length]")
        page.command("HeapProfiler.collectGarbage")
        page.command("Performance.enable")
        metrics = {metric["name"]: metric["value"] for metric in page.command("Performance.getMetrics")["metrics"]}
        heap = metrics["JSHeapUsedSize"] / 1e6
        if kind.before:
            run(kind.before)
            time.sleep(.2)
        hovers = [page.hover(token) for token in (1, 3, 2)]
        assert all(changes > 0 for _, changes in hovers), f"{kind.name}: pointing changes nothing"
        hover = statistics.median(milliseconds for milliseconds, _ in hovers)
        return [drawn / 1000, page.busy, longest / 1000, elements, hover, heap, page.memory], page.spin


def shown(name, value):
    formats = {"drawn": "{:.2f} s", "processor time": "{:.2f} s", "longest task": "{:.2f} s", "elements": "{:,.0f}", "hover": "{:.0f} ms",
               "JavaScript heap": "{:.1f} MB", "process": "{:.0f} MB", "bytes": "{:.2f} MB"}
    return formats[name].format(value)


def times_ours(values, own):
    """The ratio of the medians."""
    median = statistics.median(own)
    if median == 0:
        return ""
    ratio = statistics.median(values) / median
    return f" ({ratio:.2g})" if ratio < 99.5 else f" ({ratio:.0f})"


def print_table(n, pages, sizes, results, failures):
    print(f"\n### {n} tokens\n\n| page | bytes | {' | '.join(MEASURES)} |\n| --- |{' ---: |' * (len(MEASURES) + 1)}", flush=True)
    for kind in pages:
        is_ours = kind.name == kind.ours
        cells = [shown("bytes", sizes[kind.name] / 1e6) + ("" if is_ours else times_ours([sizes[kind.name]], [sizes[kind.ours]]))]
        for k, name in enumerate(MEASURES):
            if kind.name in failures:
                cells.append(failures[kind.name] if k == 0 else "–")
                continue
            values, own = ([one[k] for one in results[which]] for which in (kind.name, kind.ours))
            cells.append(shown(name, statistics.median(values)) + ("" if is_ours else times_ours(values, own)))
        runs = "" if kind.name in failures or len(results[kind.name]) == len(results["attn"]) else f" ({len(results[kind.name])} run)"
        print(f"| {kind.title}{runs} | {' | '.join(cells)} |", flush=True)


def measure_size(folder, n, rounds, limit, spins):
    pages = kinds(n)
    results, failures = {kind.name: [] for kind in pages}, {}
    for count in range(rounds):
        for kind in random.Random(count).sample(pages, len(pages)):
            if kind.name in failures or any(numbers[0] > limit / 3 for numbers in results[kind.name]):
                continue
            try:
                numbers, spin = measure(offline(folder / f"{kind.name}-{n}.html"), kind, limit)
                results[kind.name].append(numbers)
                spins.append(spin)
                print(f"{count + 1}: {kind.name}-{n}: {', '.join(map(shown, MEASURES, numbers))}", file=sys.stderr)
            except Exception as error:  # of the browser or its driver
                words = str(error).lower()
                failures[kind.name] = "crashes" if "crash" in words or "disconnected" in words else f"not in {limit} s"
                print(f"{kind.name}-{n}: {failures[kind.name]}: {error}", file=sys.stderr)
    sizes = {kind.name: (folder / f"{kind.name}-{n}.html").stat().st_size for kind in pages}
    print_table(n, pages, sizes, results, failures)


def embedded(path):
    """The weights in a page of BertViz (layers, heads, n, n)."""
    text = path.read_text(encoding="utf-8")
    start = re.search(r"(?:const params|window\.bertviz_params) = ", text).end()
    attention = json.JSONDecoder().raw_decode(text, start)[0]["attention"]
    return np.array(attention["all"]["attn"] if isinstance(attention, dict) else attention[0]["attn"], dtype="f8")


NUMBERS = r"""return [...document.querySelectorAll('body *')].filter(one => !/SCRIPT|STYLE/.test(one.tagName))
    .flatMap(one => [...one.childNodes].filter(node => node.nodeType === 3).map(node => node.data)
                    .concat(one.getAttribute('title') ?? []))
    .filter(words => /\d\.\d|e-\d/.test(words));"""


def print_digits(folder, n, limit):
    """What each page shows of a weight when the mouse points at it, against the float32 tensor."""
    weights = np.load(folder / f"weights-{n}.npy")[:, 0]
    ours, head, model, _, neuron = kinds(n)
    rng = np.random.default_rng(1)
    with Opened(folder / f"attn-{n}.html", ours, limit) as page:
        equal, digits, count = 0, 0, 30
        for _ in range(count):
            layer, which, i, j = (int(rng.integers(size)) for size in weights.shape)
            page.browser.run("attn.chooseHead(arguments[0])", layer * HEADS + which)
            page.browser.wait(f"return document.body.dataset.head === '{layer * HEADS + which}'")
            page.browser.move(*page.browser.run(
                "const figure = attn.figures[0], box = figure.box.getBoundingClientRect();"
                "return [box.left + figure.xOf(arguments[1]), box.top + figure.yOf(arguments[0])]", i, j))
            text = page.browser.text("tip").split("\n")[1]
            equal += np.float32(text) == weights[layer, which, i, j]
            digits = max(digits, len(text.lstrip("0.").partition("e")[0].replace(".", "")))
    print(f"\n### Digits, {n} tokens\n\n- attn: pointing at a cell shows up to {digits} digits; {equal} of {count} are the float32.")
    for kind in head, model, neuron:
        values = embedded(folder / f"{kind.name}-{n}.html")
        with Opened(offline(folder / f"{kind.name}-{n}.html"), kind, limit) as page:
            if kind.before:
                page.browser.run(kind.before)
            page.hover(2)
            numbers = page.browser.run(NUMBERS)
            opacities = sorted(float(text) for text in page.browser.run(
                "return [...document.querySelectorAll('line')].map(line => line.getAttribute('stroke-opacity'))"
                "    .filter(text => text !== null)"))
        drawn = "unlike"
        for scale, name in ((1, "the weights"), (HEADS, f"the weights divided by {HEADS}")):
            for part in (weights, weights[0], weights[0, 0]):
                if len(opacities) >= part.size and np.isin(part.ravel() / scale, np.array(opacities).astype("f4")).mean() > .99:
                    drawn = f"equal to {name} of {part.size // n**2} heads"
                    break
        difference = np.abs(values - weights).max()
        print(f"- {kind.title}: shows {len(numbers)} numbers; contains weights that differ by at most {difference:.2g} from the "
              f"float32; the opacity of lines is {drawn}.")


def print_offline(folder, n):
    """BertViz's own page, when nothing can be loaded."""
    for kind in kinds(n):
        path = folder / f"{kind.name}-{n}.html"
        browser = Chromium()
        try:
            command = browser.driver.execute_cdp_cmd
            command("Network.enable", {})
            command("Network.emulateNetworkConditions", {"offline": True, "latency": 0, "downloadThroughput": 0,
                                                         "uploadThroughput": 0})
            browser.visit(f"file://{path}")
            time.sleep(3)
            marks = browser.run(f"return Boolean({kind.marks})")
        finally:
            browser.close()
        names = [re.sub(r"^https://[^/]*/", "", address) for address in loaded(path.read_text(encoding="utf-8"))]
        print(f"- {kind.title}: {'is' if marks else 'is not'} drawn offline; loads {', '.join(names) or 'nothing'}.")


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench/pages")
    parser.add_argument("tools", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("tokens", type=int, nargs="*", default=[12, 64, 128])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--files", type=pathlib.Path)
    options = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as name:
        folder = (options.files or pathlib.Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "require.js").exists():
            write_pages(folder, options.tools, options.tokens)
        print(f"{len(os.sched_getaffinity(0))} processors, {(folder / 'versions.txt').read_text(encoding='utf-8').strip()}")
        spins = []
        for n in options.tokens:
            measure_size(folder, n, options.rounds, options.limit, spins)
        print_digits(folder, options.tokens[0], options.limit)
        print("\n### Offline\n")
        print_offline(folder, options.tokens[0])
        print(f"\nA loop in JavaScript took {statistics.median(spins):.0f} ms ({min(spins):.0f} to {max(spins):.0f}) before the pages "
              f"were opened; load {os.getloadavg()[0]:.1f}.")


if __name__ == "__main__":
    main()
