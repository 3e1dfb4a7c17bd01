
'use strict';
// The state of the page, its input events, and what it draws.

const byId = id => document.getElementById(id);
const state = {set: 0, panel: 0, row: 0, column: 0, locked: false, own: false, log: facts.log,
               dark: matchMedia('(prefers-color-scheme: dark)').matches, find: ''};

const marked = label => state.find !== '' && label.toLowerCase().includes(state.find);

// The range that the colours of a set span: of one head or of all; explicit limits take precedence.
const ranges = new Map();
function rangeOf(set, panel) {
  if (set !== kDifference && !state.own) return facts.limits;
  const key = state.own ? `${set}-${panel}` : set;
  if (!ranges.has(key)) {
    const some = state.own ? [matrix(set, panel).range()]
                           : facts.panels.map((_, p) => matrix(set, p).range());
    ranges.set(key, [Math.min(...some.map(r => r[0])), Math.max(...some.map(r => r[1]))]);
  }
  return ranges.get(key);
}
function scaleOf(set, panel) {
  return new Scale(rangeOf(set, panel), facts.signed || set === kDifference, state.log, state.dark);
}

// ---- the grid of heads

let gridRun = 0;
function drawGrid() {
  const run = ++gridRun;
  const buttons = [...byId('grid').children];
  let next = 0;
  const some = () => {  // draws for 12 ms per frame, so that the page stays responsive
    const start = performance.now();
    while (run === gridRun && next < buttons.length && performance.now() - start < 12) {
      const canvas = buttons[next].firstChild, context = canvas.getContext('2d');
      context.clearRect(0, 0, canvas.width, canvas.height);
      drawCells(context, imageOf(matrix(state.set, next), scaleOf(state.set, next)), 0, 0,
                canvas.width, canvas.height);
      ++next;
    }
    if (run === gridRun && next < buttons.length) requestAnimationFrame(some);
    else if (run === gridRun) document.body.dataset.grid = 'drawn';
  };
  requestAnimationFrame(some);
}

function buildGrid() {
  facts.panels.forEach((title, p) => {
    const button = document.createElement('button'), canvas = document.createElement('canvas');
    canvas.width = canvas.height = 96;
    button.type = 'button';
    button.append(canvas, title);
    button.title = title;
    button.addEventListener('click', () => choosePanel(p));
    byId('grid').append(button);
  });
}

// ---- one head

const figures = setNames.map((name, set) => {
  const figure = document.createElement('figure'), caption = document.createElement('figcaption');
  const box = document.createElement('div');
  const [base, over, bar] = [0, 1, 2].map(() => document.createElement('canvas'));
  const axes = `${facts.rowAxis} down, ${facts.columnAxis} across`;
  caption.textContent = compares ? name : axes;
  box.className = 'matrix';
  box.tabIndex = 0;
  box.setAttribute('role', 'application');
  box.setAttribute('aria-label', `${name}: arrow keys move from cell to cell`);
  box.append(base, over);
  figure.append(caption, box, bar);
  byId('matrices').append(figure);
  return {set, figure, box, base, over, bar, g: null};
});

byId('matrices').style.maxWidth = `${figures.length * (112 + 64 * columns)}px`;

function drawDetail() {
  for (const f of figures) {
    f.g = geometryOf(Math.max(f.figure.clientWidth, 120));
    f.box.style.height = `${f.g.height}px`;
    const context = sized(f.base, f.g.width, f.g.height);
    const values = matrix(f.set, state.panel), scale = scaleOf(f.set, state.panel);
    const image = imageOf(values, scale);
    drawCells(context, image, f.g.left, f.g.top, f.g.cell * columns, f.g.cell * rows);
    crossOut(context, f.g, values);
    drawNumbers(context, f.g, values, scale);
    drawLabels(context, f.g, marked);
    drawMarks(context, f.g, marked);
    drawBar(f.bar, scale);
  }
  byId('panel').textContent = facts.panels[state.panel];
  [...byId('grid').children].forEach((button, p) =>
      button.setAttribute('aria-current', String(p === state.panel)));
  drawFocusAndFacts();
}

const named = (labels, i) => labels[i] === String(i) ? labels[i] : `${i}: ${labels[i]}`;

function drawFocusAndFacts() {
  for (const f of figures)
    drawFocus(sized(f.over, f.g.width, f.g.height), f.g, state.row, state.column);
  const a = matrix(0, state.panel), {row, column} = state;
  const texts = figures.map(f => written(...exact(f.set, state.panel, row, column, drawFocusAndFacts)));
  byId('query').textContent = named(facts.rows, row);
  byId('key').textContent = named(facts.columns, column);
  byId('value').textContent = texts[0];
  if (compares) [byId('other').textContent, byId('difference').textContent] = [texts[1], texts[2]];
  const sum = a.row(row, kSum);
  byId('sum').textContent = Number.isFinite(sum) ? String(Number(sum.toPrecision(6))) : brief(sum);
  const entropy = a.row(row, kEntropy);
  byId('entropy').textContent = Number.isNaN(entropy) ? '–' : `${entropy.toFixed(3)} nats`;
  byId('locked').textContent = state.locked ? 'locked' : 'follows the pointer';
  const figure = byId('lines');
  drawLines(figure.querySelector('canvas'), Math.max(figure.clientWidth - 16, 200), a,
            scaleOf(0, state.panel), state, marked);
  if (!figure.matches(':hover')) figure.scrollTop = kLineHeight * row - figure.clientHeight / 2;
}

// Several moves within a frame are drawn once.
let asked = false;
function focusOn(row, column) {
  state.row = Math.max(0, Math.min(rows - 1, row));
  state.column = Math.max(0, Math.min(columns - 1, column));
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; drawFocusAndFacts(); });
}

function choosePanel(panel) {
  state.panel = (panel + facts.panels.length) % facts.panels.length;
  drawDetail();
}

function lock(locked) {
  state.locked = locked;
  drawFocusAndFacts();
}

// ---- input events

function cellAt(f, event) {
  const box = f.box.getBoundingClientRect();
  const row = Math.floor((event.clientY - box.top - f.g.top) / f.g.cell);
  const column = Math.floor((event.clientX - box.left - f.g.left) / f.g.cell);
  return row >= 0 && row < rows && column >= 0 && column < columns ? [row, column] : null;
}

for (const f of figures) {
  f.box.addEventListener('pointermove', event => {
    const cell = cellAt(f, event);
    if (cell && !state.locked) focusOn(...cell);
  });
  f.box.addEventListener('click', event => {
    const cell = cellAt(f, event);
    if (!cell) return;
    const again = state.locked && cell[0] === state.row && cell[1] === state.column;
    [state.row, state.column] = cell;
    lock(!again);
  });
}

byId('lines').querySelector('canvas').addEventListener('click', event => {
  const box = event.currentTarget.getBoundingClientRect();
  const place = Math.floor((event.clientY - box.top) / kLineHeight);
  if (event.clientX - box.left < box.width / 2) focusOn(place, state.column);
  else focusOn(state.row, place);
});

function findNext() {
  for (let step = 1; step <= rows; ++step) {
    const row = (state.row + step) % rows;
    if (marked(facts.rows[row])) return focusOn(row, state.column);
  }
}

const keys = {
  ArrowUp: () => focusOn(state.row - 1, state.column),
  ArrowDown: () => focusOn(state.row + 1, state.column),
  ArrowLeft: () => focusOn(state.row, state.column - 1),
  ArrowRight: () => focusOn(state.row, state.column + 1),
  Home: () => focusOn(state.row, 0),
  End: () => focusOn(state.row, columns - 1),
  Enter: () => lock(!state.locked),
  Escape: () => lock(false),
  '[': () => choosePanel(state.panel - 1),
  ']': () => choosePanel(state.panel + 1),
  '/': () => byId('find').focus(),
};

document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const tag = event.target.tagName, typing = tag === 'INPUT' || tag === 'SELECT';
  if (event.target === byId('find') && event.key === 'Enter') {
    event.preventDefault();
    return findNext();
  }
  if (typing && event.key === 'Escape') return event.target.blur();
  if (typing || (tag === 'BUTTON' && event.key === 'Enter') || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});

function redraw() {
  drawDetail();
  drawGrid();
}

byId('set').addEventListener('change', event => { state.set = Number(event.target.value); drawGrid(); });
byId('scale').addEventListener('change', event => { state.own = event.target.value === 'own'; redraw(); });
byId('log').addEventListener('change', event => { state.log = event.target.checked; redraw(); });
byId('before').addEventListener('click', () => choosePanel(state.panel - 1));
byId('after').addEventListener('click', () => choosePanel(state.panel + 1));
byId('theme').addEventListener('click', () => { state.dark = !state.dark; theme(); redraw(); });
byId('controls').addEventListener('submit', event => event.preventDefault());
byId('find').addEventListener('input', event => {
  state.find = event.target.value.toLowerCase();
  const count = facts.rows.filter(marked).length;
  byId('found').textContent = state.find === '' ? '' : `${count} of ${rows}`;
  drawDetail();
});
window.addEventListener('resize', drawDetail);

function theme() { document.documentElement.dataset.theme = state.dark ? 'dark' : 'light'; }

byId('title').textContent = facts.title;
byId('notes').textContent = facts.notes.join(' · ');
const one = axis => ({queries: 'query', keys: 'key', batches: 'batch'})[axis] || axis.replace(/s$/, '');
byId('row-axis').textContent = one(facts.rowAxis);
byId('column-axis').textContent = one(facts.columnAxis);
byId('log').checked = state.log;
byId('log').disabled = facts.signed;
setNames.forEach((name, set) => byId('set').append(new Option(name, set)));
document.body.classList.toggle('compares', compares);
document.body.classList.toggle('single', facts.panels.length === 1);
theme();
buildSources();
buildGrid();
redraw();
document.body.dataset.ready = 'yes';
