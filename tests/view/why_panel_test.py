"""The panel "why this weight" in Chromium shows the numbers of `attn run --explain`, for random jobs."""

import importlib.util
import json
import re
import shutil

import numpy as np
import pytest

from support.attn import attn

from view.browser import Chromium
from view.explain_test import matrices, numbers_of

COUNT = 200
MISSING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
MISSING += [] if importlib.util.find_spec("selenium") else ["selenium"]

# The page's own classes show the panels of other pages, whose elements are the argument, in one page.
PANELS = """
  const {data: {constructor: Data}, why: {constructor: WhyPanel}} = attn;
  const all = [];
  for (const {elements, head, row} of arguments[0]) {
    const data = new Data(JSON.parse(elements.attn), async id => elements[id]), box = document.createElement('div');
    document.body.append(box);
    const panel = new WhyPanel(box, data, {head, row, dark: false}), values = await data.matrix(0, head);
    const digits = element => [...element.querySelectorAll('span')].map(span => span.title);
    const keys = [];
    for (let column = 0; column < data.facts.columns.length; ++column) {
      panel.state.column = column;
      await panel.draw(values, '');
      keys.push([...box.querySelectorAll('.step')].map(step => ({
        name: step.querySelector('h4').textContent.replace(/^\\d+\\. /, ''), warns: step.querySelector('.warning') !== null,
        formulas: [...step.querySelectorAll('.formula')].map(formula => [formula.textContent, digits(formula)])})));
    }
    const context = [];
    for (panel.chosen.context = 0; panel.chosen.context < panel.strips.context.count; ++panel.chosen.context) {
      panel.drawStrip('context');
      context.push(digits(panel.strips.context.line)[2]);
    }
    box.remove();
    all.push({keys, context});
  }
  return all;"""


def random_job(rng):
    """A job of at most 6 queries and keys, whose matrices --explain shows as a whole."""
    chance = lambda share: rng.random() < share
    size = lambda most: int(rng.integers(1, most + 1))
    normal = lambda *shape: (rng.standard_normal(shape) * 1.5).tolist()
    heads, queries, keys, width = size(4), size(6), size(6), size(8)
    groups = int(rng.choice([count for count in range(1, heads + 1) if heads % count == 0]))
    job = {"Q": normal(1, heads, queries, width), "K": normal(1, groups, keys, width), "V": normal(1, groups, keys, size(4))}
    if chance(0.3):
        job["softcap"] = round(rng.uniform(0.5, 5), 3)
        job["softcap_order"] = str(rng.choice(["before-mask", "after-mask"]))
    job |= [{"alibi": True}, {"bias": normal(heads, queries, keys)}, {}][rng.integers(3)]
    if chance(0.4):
        job["mask"] = normal(queries, keys) if chance(0.5) else (rng.random((queries, keys)) < 0.7).tolist()
    if chance(0.4):
        job |= {"causal": True, "alignment": str(rng.choice(["top-left", "bottom-right"]))}
    if chance(0.3):
        job["window"] = rng.integers(-1, 4, 2).tolist()
    if chance(0.5):
        job["scale"] = "none" if chance(0.3) else round(rng.uniform(-1, 1), 3)
    if chance(0.25):
        job |= {"dropout_mask": (rng.random((heads, queries, keys)) < 0.6).tolist(), "dropout_p": round(rng.uniform(0, 0.9), 3)}
    if chance(0.2):
        job["sinks"] = normal(heads)
    if chance(0.2):
        job["temperature"] = round(rng.uniform(0.3, 3), 3)
    return job, {"head": int(rng.integers(heads)), "row": int(rng.integers(queries))}


def assert_shows_explanation(panel, text, head, row):
    names = [re.sub(r"^\d+\. ", "", line[3:]) for line in text.splitlines() if line.startswith("## ")]
    whole, numbers = matrices(text), numbers_of(text, least=0)
    known = 0
    for key, steps in enumerate(panel["keys"]):
        assert not any(step["warns"] for step in steps)
        shown = [step["name"] for step in steps]
        if "Mask" not in names:  # it changes nothing in this head
            shown = [name for name in shown if name != "Mask"]
        assert shown == names[names.index("Scores"):names.index("Context") + 1]
        for step in steps:
            for formula, digits in step["formulas"]:
                value = float(digits[-1])
                name = re.match(r"before|share|max|weight of the sink|Σ e|s'*|a'*|x|p", formula).group()
                if name == "weight of the sink":
                    stated = [1 - whole["A"][row].sum()]
                elif name == "Σ e":
                    stated = [number for left, number in numbers.items() if left.startswith(r"\sum")]
                elif name == "max":
                    stated = [number for left, number in numbers.items() if left.startswith(r"\max")]
                else:
                    stated = [whole[name.upper()][row, key]] if name.upper() in whole else []
                    if f"{name}_{{{row},{key}}}" in numbers:
                        stated.append(numbers[f"{name}_{{{row},{key}}}"])
                assert stated == pytest.approx([value] * len(stated), abs=1e-11), formula
                known += len(stated)
    for d, value in enumerate(panel["context"]):
        stated = numbers[f"c_{{{row},{d}}}"]
        assert stated == pytest.approx(float(value), abs=1e-11)
    assert known >= 2 * len(panel["keys"]), "at least the scores and the weights"


@pytest.mark.long
@pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed")
def test_panel_shows_the_numbers_of_explain(tmp_path):
    rng = np.random.default_rng(35)
    cases, explanations = [], []
    for _ in range(COUNT):
        job, place = random_job(rng)
        (tmp_path / "job.json").write_text(json.dumps(job))
        run = attn("run", "job.json", "--view=page.html", "--explain", "e.md", "--explain-head", place["head"], "--explain-query",
                   place["row"], "--precision", "12", "--force", cwd=tmp_path)
        assert run.returncode == 0, run.stderr.decode()
        page = (tmp_path / "page.html").read_text()
        elements = {name: text for name, text in re.findall(r'<script type="[a-z/]*" id="([^"]*)">([^<]*)</script>', page)}
        cases.append(place | {"elements": elements})
        explanations.append((tmp_path / "e.md").read_text())
    browser = Chromium()
    try:
        browser.open(tmp_path / "page.html")
        script = f"return (async function() {{{PANELS}}})(...arguments)"
        panels = [panel for at in range(0, COUNT, 25) for panel in browser.run(script, cases[at:at + 25])]
    finally:
        browser.close()
    for case, panel, text in zip(cases, panels, explanations):
        assert_shows_explanation(panel, text, case["head"], case["row"])
