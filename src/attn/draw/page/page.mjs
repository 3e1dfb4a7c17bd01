// The page: its state, its input events, and what it draws.

import {blockNote} from './cells.mjs';
import {copy, saveAs} from './copies.mjs';
import {Data, Matrix, StageMatrix, aMatrix, kDifference, kEntropy, kSum, matrixName} from './data.mjs';
import {byId, input, named, one, select, shortened} from './dom.mjs';
import {Figure} from './figure.mjs';
import {draggable, longPress, wheel} from './gestures.mjs';
import {GlPainter} from './gl.mjs';
import {Names} from './names.mjs';
import {largestCell, openingCell, openingWords} from './opening.mjs';
import {isChange, meanOf, orderedHeads, statistic} from './order.mjs';
import {Overview} from './overview.mjs';
import {CanvasPainter} from './paint.mjs';
import {device, isStacked, widest} from './pen.mjs';
import {savedPicture} from './saved_picture.mjs';
import {Scale, brief, entropyText, modeOf, paletteOf} from './scale.mjs';
import {insideOf} from './sentences.mjs';
import {SelectedWeights, kSelected} from './selected.mjs';
import {ShownNumbers} from './shown_numbers.mjs';
import {Sheet} from './sheet.mjs';
import {SideBox} from './side_box.mjs';
import {Source} from './source.mjs';
import {State, placesOf} from './state.mjs';
import {nextTask} from './tasks.mjs';
import {TileMatrix, Tiles} from './tiles.mjs';
import {strongest} from './strongest.mjs';
import {kStages, stagesOf, whyNot} from './why.mjs';

/** @typedef {import('./data.mjs').Facts} Facts */
/** @typedef {import('./camera.mjs').Camera} Camera */

/** Called when the browser has read more of the page. @type {(() => void)[]} */
const waiting = [];
const resumeAll = () => { for (const resume of waiting.splice(0)) resume(); };
const reading = new MutationObserver(resumeAll);
reading.observe(document.body, {childList: true});
document.addEventListener('DOMContentLoaded', () => { reading.disconnect(); resumeAll(); });
/** The text of an element, which may not have been read yet; it is complete if another follows it. @param {string} id */
async function textOf(id) {
  while (document.readyState === 'loading' && !document.getElementById(id)?.nextElementSibling)
    await new Promise(resume => { waiting.push(() => resume(null)); });
  return document.getElementById(id)?.textContent ?? '';
}

const night = matchMedia('(prefers-color-scheme: dark)');
/** @type {Facts} */
const facts = JSON.parse(byId('attn').textContent ?? '');
const rows = facts.rows.length, columns = facts.columns.length, matrices = `${matrixName(facts)}s`;
const data = new Data(facts, textOf), compares = data.compares;
const {hasSums} = data;
data.tiles = new Tiles(data, hasSums && !facts.signed);
const stages = stagesOf(facts.why, facts.hidden[0]);
const state = new State({
  heads: data.count, places: placesOf(facts, data.tiles.list), rows, columns, sets: facts.sets.length,
  dark: night.matches,
  side: rows > 1 ? 'lines' : stages.length > 0 ? 'why' : 'text',  // lines of one query would repeat its bars
  orders: ['file', kSelected, ...facts.statistics.map(({name}) => name)], order: compares ? 'difference' : 'file',
  head: facts.opening, scale: facts.chosenLimits ? 'shared' : 'matrix', stages,
});

const names = new Names(data, state, stages);

const selectedTitle = [`selected ${hasSums ? 'weight' : 'value'}`, blockNote(facts.step)].filter(Boolean).join(', ');
const selected = data.headCount > 1 ? new SelectedWeights(data, state, selectedTitle) : null;

// ---- colours

const palettes = {light: [paletteOf(facts.maps.paper), paletteOf(facts.maps.diverging)],
                  dark: [paletteOf(facts.maps.night), paletteOf(facts.maps.divergingNight)]};

/** The largest magnitude of a head, from its overview. @param {number} set @param {number} head */
function largestOf(set, head) {
  if (data.tile(head)) return largestOfTiles.get(head) ?? 1;
  return (set === kDifference ? statistic(facts, 'difference', set) : facts.largest[set])[head] ?? 0;
}

/** Whether the results have another scale than their difference, unless one is chosen. */
const differs = compares && !facts.signed && facts.curve === 'root';
/** Of the values that are shown; also the overview has the scale of scores while they are. @param {boolean} signed */
function shownMode(signed = facts.signed || names.stage !== 'weights') { return modeOf(state.mode, facts.curve, signed); }

/** @type {Map<number, number>} */
const largestOfTiles = new Map();

/** @type {Map<string, Scale>} */
const scales = new Map();

/**
 * The scale of a head's colours. The two results of a comparison have the same.
 * @param {number} set
 * @param {number} head
 * @param {boolean} own whether it ends at the largest value of the head, instead of all heads
 */
function scaleOf(set, head, own = state.scale !== 'shared') {
  const signed = facts.signed || set === kDifference;
  const mode = shownMode(signed || names.stage !== 'weights'), key = [set, own ? head : '', mode, state.dark].join();
  let scale = scales.get(key);
  if (!scale) {
    let range = facts.limits;
    const sets = set === kDifference ? [kDifference] : facts.sets.map((_, k) => k);
    if (own) range = [0, Math.max(...sets.map(k => largestOf(k, head)))];
    else if (set === kDifference) range = [0, Math.max(...facts.heads.map((_, h) => largestOf(set, h)))];
    scale = new Scale(range, signed, mode, palettes[state.dark ? 'dark' : 'light'][signed ? 1 : 0], facts.unit);
    scales.set(key, scale);
  }
  return scale;
}

/** The scale of what a figure shows; stages before the weights have their own. @param {Figure} figure */
function scaleOfFigure({head: {matrix}, set}) {
  if (!(matrix instanceof StageMatrix)) return scaleOf(set, state.head);
  return new Scale([0, matrix.largest], true, shownMode(), palettes[state.dark ? 'dark' : 'light'][1], matrix.unit);
}

// ---- what is drawn

const overview = new Overview(byId('overview'), data, state, (set, head) => scaleOf(set, head, state.scale === 'head'));
const figures = names.sets.map((name, set) =>
    new Figure(byId('matrices'), data, state, set, compares ? name : names.axes));
/** The view that the controls and the address have. Other matrices follow. */
const {camera} = figures[0];
/** @param {Camera} from */
function alignCameras(from) {
  for (const {camera: other} of figures) {
    Object.assign(other, {zoom: from.zoom, x: from.x, y: from.y});
    other.clamp();
  }
}
const side = new SideBox(data, state, {
  values: set => {
    const {matrix} = figures[set].head;
    return compares && !(matrix instanceof StageMatrix) ? matrix : weights;
  },
  exact: set => numbers.ofFile(set),
  sumOf: set => compares || names.stage === 'weights' ? numbers.ofRow(set, kSum) : weights?.row(state.row, kSum) ?? NaN,
  scaleOf, found: () => found(),
  titleOf: head => names.title(head), isStage: () => names.stage !== 'weights'});
const {lines, text, strongest: strongestList} = side;
/** Of the selected head, in the first result. @type {import('./data.mjs').Matrix | import('./data.mjs').Difference | null} */
let weights = null;
const sources = (facts.sources ?? []).map((_, set) => new Source(facts, set));
data.levelOfFile = (/** @type {number} */ set, /** @type {number} */ head) => sources[set]?.file?.levels.get(head);
const numbers = new ShownNumbers(data, state, figures, sources);

/** @returns {GlPainter | CanvasPainter} */
function newPainter() {
  try {
    return new GlPainter();
  } catch (error) {
    return new CanvasPainter();
  }
}
let painter = newPainter();
await nextTask();  // so that no task is long

const found = () => {
  const words = state.find.toLowerCase();
  return (/** @type {string} */ label) => words !== '' && label.toLowerCase().includes(words);
};

function drawMatrices() {
  for (const figure of figures) figure.draw(painter, scaleOfFigure(figure), found());
  drawFocus();
}

/** Lays out and draws the selected head; its coarse levels until its values are decoded. */
let wanted = '';
async function drawHead() {
  const {head} = state, stage = names.stage, key = wanted = `${head} ${stage}`;
  weights = null;
  byId('panel').textContent = names.title(head);
  byId('panel').title = names.sharing(head);
  const isLate = data.tile(head) !== undefined && !data.overviews[0][head];
  document.body.classList.toggle('computing', isLate);
  writeNames();
  for (const figure of figures) figure.name(figure.title, names.patterns(figure.set));
  if (isLate) {
    for (const figure of figures) figure.head = {levels: [], matrix: null};
    drawMatrices();
    const report = () => { if (key === wanted) byId('panel').textContent = `${names.title(head)} (${data.tiles?.progress ?? 0} % computed)`; };
    const watch = window.setInterval(report, 250);
    report();
    await loadTile(head);
    clearInterval(watch);
    if (key !== wanted) return;
    document.body.classList.remove('computing');
    byId('panel').textContent = names.title(head);
  }
  overview.drawRings();
  for (const figure of figures) {
    const level = data.overviews[figure.set][head];
    figure.head = {levels: level && stage === 'weights' ? [level] : [], matrix: null};
  }
  drawMatrices();
  const heads = await Promise.all(figures.map(figure => data.head(figure.set, head)));
  const before = stage === 'weights' ? null : await data.stage(head, stage);
  await nextTask();
  if (key !== wanted) return;
  heads.forEach((one, k) => { figures[k].head = one; });
  weights = heads[0].matrix;
  if (undecided) selectOpening();
  if (before) figures[0].head = before;
  for (const figure of figures) figure.name(figure.title, names.patterns(figure.set, weights));
  drawMatrices();
  document.body.dataset.head = `${head}`;
  performance.mark('head');
  side.draw();
  readFile(head);
}

/** Whether the fragment left the selected cell open. */
let undecided = false;
function selectOpening() {
  undecided = false;
  const {row, column} = compares || facts.gradient ? largestShown() : openingCell(facts, finestOf(figures[0]), (i, j) => figures[0].head.matrix?.value(i, j) ?? null);
  state.select(row, column);
  side.revealed = false;
}
/** @param {Figure} figure */
const finestOf = figure => figure.head.levels.reduce((a, b) => b.tall * b.wide < a.tall * a.wide ? b : a);
/** Selects the value of largest magnitude in the matrix; of two results, in their difference. */
function chooseLargest() {
  if (!figures[0].head.matrix) return;
  const {row, column} = largestShown();
  focusOn(row, column, {byKey: true});
}
function largestShown() {
  const figure = figures[figures.length - 1];
  return largestCell(finestOf(figure), (i, j) => figure.head.matrix?.value(i, j) ?? null);
}
/** Blocks of cells of the page are replaced by those of the file, if it is open. @param {number} head */
async function readFile(head) {
  if (facts.step === 1 || data.tile(head)) return;
  await Promise.all(sources.map(async source => {
    const {file, set} = source;
    if (!file || file.levels.has(head)) return;
    try {
      file.levels.set(head, await file.level(/** @type {Matrix} */ (await data.matrix(set, head))));
      if (state.head === head && source.file === file) drawHead();
    } catch (error) {
      refuseSource(source, file, error);
    }
  }));
}

/** Names what is shown. */
function writeNames() {
  byId('reads').textContent = names.reads;
  byId('read-by').textContent = names.readBy;
  input('why-radio').disabled = !facts.why || data.tile(state.head) !== undefined;
  checkRadios('side', side.shown);
  if (compares) return;
  byId('first-name').textContent = names.number;
  figures[0].title = names.matrix;
  /** @type {HTMLFieldSetElement} */ (byId('stages')).disabled = data.tile(state.head) !== undefined;
  document.body.classList.toggle('plain', !hasSums || names.stage !== 'weights');
  checkRadios('stage', names.stage);
  if (facts.signed) return;
  const log = /** @type {HTMLOptionElement} */ (select('colours').querySelector('[value=log]'));
  log.disabled = names.stage !== 'weights';
  select('colours').value = shownMode();
}

/** Reads the selected row from the files, if they are open. */
async function readRows() {
  if (!await numbers.readRows(refuseSource)) return;
  writeFacts();
  side.draw();
}

/** Six digits; all of them in a tooltip. @param {string} id @param {string} text */
function writeNumber(id, text) {
  byId(id).textContent = shortened(text);
  byId(id).title = text;
}

/** A number of the selected row in each result. @param {string} id @param {number} what @param {(number: number) => string} format */
function writeOfRow(id, what, format) {
  const all = facts.sets.map((_, set) => numbers.ofRow(set, what));
  byId(id).textContent = all.map(number => Number.isFinite(number) ? format(number) : '–').join(' and ');
  const digits = all.map(number => String(Number(number.toPrecision(7))));  // stored as float32
  byId(id).title = compares ? facts.sets.map((name, set) => `${name}: ${digits[set]}`).join('\n') : digits[0];
}

function writeFacts() {
  const {row, column} = state;
  byId('query').textContent = byId('query').title = named(facts.rows, row);
  byId('key').textContent = byId('key').title = named(facts.columns, column);
  const text = (/** @type {number} */ set) => numbers.text(set, row, column);
  writeNumber('value', text(0));
  if (compares) {
    writeNumber('other', text(1));
    writeNumber('difference', text(kDifference));
  }
  writeOfRow('sum', kSum, sum => String(Number(sum.toPrecision(6))));
  const {matrix} = figures[0].head, error = matrix instanceof TileMatrix ? matrix.entropyError(row) : 0;
  writeOfRow('entropy', kEntropy, entropy => entropyText(entropy, error, compares ? 2 : 3));
  nameEntropy();
  if (state.find !== '') countFound();
  byId('locked').textContent = state.locked ? 'locked' : 'lock';
  byId('locked').setAttribute('aria-pressed', String(state.locked));
}

const hasSinks = typeof facts.why === 'object' && Boolean(facts.why?.sinks), kSumError = .01;
/** Says that the entropy is of the row as it is, if the row does not sum to 1; that of a mean is divided by the sum. */
function nameEntropy() {
  const isOther = (/** @type {number} */ sum) => Math.abs(sum - 1) > kSumError;
  const isAsIs = hasSinks || (!data.tile(state.head) && facts.sets.some((_, set) => isOther(numbers.ofRow(set, kSum))));
  byId('entropy-name').textContent = isAsIs ? 'entropy −Σ a ln a, nats' : 'entropy in nats';
  byId('entropy-name').title = isAsIs ? `of the weights of the row as they are, which do not sum to 1${hasSinks ? ' without the sink' : ''}` : '';
}

function drawFocus() {
  for (const figure of figures) figure.drawFocus();
  if (selected?.reset()) orderBySelected();
  writeFacts();
  side.draw();
  if (sources.some(source => source.file)) readRows();
  saveSoon();
}

/** Several moves within a frame are drawn once. */
let asked = false;
/**
 * @param {number} row
 * @param {number} column
 * @param {{byKey?: boolean, inLines?: boolean, preview?: boolean}} how by the keyboard: the view moves to the cell; in the
 *   lines, which stay; by pointing, until the pointer leaves
 */
function focusOn(row, column, {byKey = false, inLines = false, preview = false} = {}) {
  state.select(row, column, preview);
  if (byKey) {
    hideTip();
    const {x, y} = camera;
    camera.show(state.column, state.row);
    if (x !== camera.x || y !== camera.y) drawMatricesSoon();
  }
  if (!inLines) side.revealed = lines.toKey = false;
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    drawFocus();
    if (byKey) {
      byId('status').textContent = `${byId('query').textContent}, ${byId('key').textContent}: ${byId('value').textContent}`;
    }
  });
}

let drawing = false;
function drawMatricesSoon() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    alignCameras(camera);
    saveCamera();
    drawMatrices();
  });
}

/** Selects what was chosen before the pointer showed other cells. @param {boolean} inLines */
function endPreview(inLines = false) {
  hideTip();
  const {row, column} = state.chosen;
  if (row !== state.row || column !== state.column) focusOn(row, column, {inLines});
}

/** @param {number | null} head */
function chooseHead(head) {
  if (head === null || head === state.head) return;
  hideTip();
  state.head = (head + data.count) % data.count;
  overview.reveal();
  drawHead();
  saveSoon();
}

/** The next head in the order of the overview. @param {number} step */
function stepHead(step) {
  const {heads} = overview, {length} = heads;
  let at = heads.indexOf(state.head);
  for (let k = 0; k < length; ++k) {
    at = (at + step + length) % length;
    if (!data.tile(heads[at])) return chooseHead(heads[at]);
  }
}

/** What is wrong with the limits of a statistic, or why the lines of a head are not added. */
let refused = '';
const kMostPinned = 6;
/** @param {number} head */
function pin(head) {
  const at = state.pinned.indexOf(head);
  if (at >= 0) state.pinned.splice(at, 1);
  else if (state.pinned.length < kMostPinned) state.pinned.push(head);
  refused = at < 0 && !state.pinned.includes(head) ? `lines of at most ${kMostPinned + 1} ${matrices}; remove those of one first` : '';
  arrange();
  overview.drawRings();
  saveSoon();
  loadTile(head).then(() => side.draw());
}

/** @param {boolean} locked */
function lock(locked) {
  state.locked = locked;
  if (locked) state.select(state.row, state.column);
  else lines.toKey = false;
  drawFocus();
}

function arrange() {
  overview.arrange(orderedHeads(facts, state.order, state.set, state.least, state.most, state.lowestFirst), state.order === 'file');
  writeShown();
}

/** The selected option of a control. @param {string} id */
const chosen = id => select(id).selectedOptions[0].text;
/** What the controls of the overview say, which a sheet does not have. */
const printedOrder = () => `${compares ? ` of ${chosen('set')}` : ''} ${state.order === 'file' ? 'in the order of the file' : chosen('order')}`;
/** Writes which heads the overview has. */
function writeShown() {
  const {length} = overview.heads.filter(head => !data.tile(head));
  const shown = (length === data.headCount ? `${length} ${matrices}` : `${length} of ${data.headCount} ${matrices}`) + (device.print ? printedOrder() : '');
  const changes = isChange(facts, state.order, state.set), first = `the ${state.lowestFirst ? changes ? 'smallest' : 'lowest' : 'largest'}${changes ? ' change' : ''} first`;
  const note = facts.statistics.find(({name}) => name === state.order)?.note ?? '';
  const isScreen = !device.print;
  byId('shown').textContent = refused || [shown, state.order === 'file' ? '' : first, note, state.order === 'difference' && state.set !== kDifference ? 'numbers are of the difference' : '', names.stage === 'weights' ? '' : 'weights', changes ? 'first minus second' : '',
                                          isScreen && overview.hasMore ? 'scroll for more' : '', overview.initials,
                                          isScreen && tilesAreLate() ? `a click computes ${overview.tileKinds}` : ''].filter(Boolean).join(', ');
}

/** Whether tiles are shown that are computed when they are selected. */
const tilesAreLate = () => overview.heads.some(head => data.tile(head) && !data.tiles?.isQuick && !data.overviews[0][head]);

/** Reads the selected weight of all heads, if they are ordered by it. */
async function orderBySelected() {
  if (state.order !== kSelected || !selected) return;
  showRange();
  overview.draw();
  const isComplete = await selected.readAll(done => { byId('shown').textContent = `${done} of ${data.headCount} ${matrices} read`; });
  if (!isComplete) return;
  showRange();
  arrange();
  overview.draw();
}

/** Computes a tile and its picture in the overview. @param {number} head */
async function loadTile(head) {
  if (!data.tile(head) || data.overviews[0][head]) return;
  const {matrix, levels: [level]} = await data.head(0, head);
  if (!(matrix instanceof TileMatrix)) return;
  largestOfTiles.set(head, matrix.largest);
  scales.clear();
  data.overviews[0][head] = level;
  arrange();
  overview.drawSoon();
}
async function loadTiles() {
  if (!data.tiles?.isQuick) return;
  for (let head = data.headCount; head < data.count; ++head) await loadTile(head);
}

/** Lays out everything and draws it. */
function redraw() {
  for (const figure of figures) figure.layout();
  arrange();
  overview.draw();
  drawMatrices();
}

function theme() {
  document.documentElement.dataset.theme = state.dark ? 'dark' : 'light';
  byId('theme').textContent = state.dark ? 'light colours' : 'dark colours';
}

/** Decodes and draws the overview of a set. */
async function loadOverview() {
  const {set} = state;
  overview.draw();
  await data.loadOverview(set, () => { if (set === state.set) overview.drawSoon(); });
  if (set === state.set) overview.draw();
  loadTiles();
}

// ---- the URL's fragment

let saving = 0;
function saveSoon() {
  clearTimeout(saving);
  saving = window.setTimeout(save, 300);
}
function save() {
  clearTimeout(saving);
  const fragment = state.fragment();
  if (`#${fragment}` === (location.hash || '#')) return;
  try {
    history.replaceState(null, '', `#${fragment}`);
  } catch (error) {  // some browsers limit how often the address may change
  }
}
function saveCamera() {
  Object.assign(state, {zoom: camera.zoom, x: camera.x, y: camera.y});
  for (const figure of figures) figure.box.classList.toggle('zoomed', camera.zoom > 1);
  saveSoon();
}
/** Zooms and moves as the state says, within the space of the next layout. */
function restoreCamera() { for (const figure of figures) Object.assign(figure.camera, {zoom: state.zoom, x: state.x, y: state.y}); }

/** @param {string} name @param {string} value */
function checkRadios(name, value) {
  for (const radio of document.querySelectorAll(`input[name=${name}]`))
    if (radio instanceof HTMLInputElement) radio.checked = radio.value === value;
}

/** Reads the state from the fragment and shows it in the controls. */
function readFragment() {
  state.read(location.hash.slice(1));
  writeNotes();
  if (state.missing) say(lackText());
  if (state.side === 'why' && !facts.why) state.side = state.defaults.side;
  select('set').value = String(state.set);
  select('scale').value = state.scale;
  select('colours').value = differs ? state.mode : shownMode();
  select('order').value = (state.lowestFirst ? '-' : '') + state.order;
  const number = (/** @type {number} */ limit) => Number.isFinite(limit) ? String(limit) : '';
  input('least').value = number(state.least);
  input('most').value = number(state.most);
  input('find').value = state.find;
  select('between').value = state.between;
  checkRadios('side', side.shown);
  showRange();
  countFound();
}

// ---- input events

/** @param {string} words @param {number} left @param {number} top @param {boolean} isAbove the pointer */
function showTip(words, left, top, isAbove = false) {
  const tip = byId('tip');
  tip.hidden = false;
  tip.textContent = words;
  const {width, height} = tip.getBoundingClientRect();
  const x = left + 16 + width > innerWidth ? left - 12 - width : left + 16;
  const y = isAbove || top + 18 + height > innerHeight ? top - 12 - height : top + 18;
  tip.style.transform = `translate(${Math.max(2, x)}px, ${Math.max(2, y)}px)`;
}
const hideTip = () => { byId('tip').hidden = true; };
Object.assign(side.why, {showTip, hideTip});

/** Pointing at the label of a row or column selects it, a click also locks it. @param {Figure} figure @param {MouseEvent} event @param {boolean} click */
function labelEvent(figure, event, click) {
  const {row, column} = figure.labelAt(event);
  if (row === undefined && column === undefined) return endPreview();
  hideTip();
  if (state.locked && !click) return;
  if (click) state.locked = true;
  focusOn(row ?? state.chosen.row, column ?? state.chosen.column, {preview: !click});
}

for (const figure of figures) {
  const draw = () => {
    alignCameras(figure.camera);
    drawMatricesSoon();
  };
  const moved = draggable(figure.box, figure.camera, draw);
  figure.box.addEventListener('pointermove', event => {
    const cell = figure.cellAt(event);
    if (!cell) return labelEvent(figure, event, false);
    if (!state.locked) focusOn(cell.row, cell.column, {preview: true});
    showTip(`${named(facts.rows, cell.row)} → ${named(facts.columns, cell.column)}\n${numbers.text(figure.set, cell.row, cell.column)}`, event.clientX, event.clientY);
  });
  figure.box.addEventListener('pointerleave', () => endPreview());
  figure.box.addEventListener('click', event => {
    const cell = figure.cellAt(event);
    if (moved()) return;
    if (!cell) return labelEvent(figure, event, true);
    const again = state.locked && cell.row === state.row && cell.column === state.column;
    state.select(cell.row, cell.column);
    lock(!again);
  });
  figure.box.addEventListener('dblclick', () => { camera.reset(); drawMatricesSoon(); });
  figure.box.addEventListener('wheel', event => {
    const box = figure.box.getBoundingClientRect();
    wheel(event, figure.camera, event.clientX - box.left - figure.left, event.clientY - box.top - figure.top, draw);
  }, {passive: false});
}

/** @param {PointerEvent | MouseEvent} event */
function headAt(event) {
  const box = byId('overview').getBoundingClientRect();
  return overview.headAt(event.clientX - box.left, event.clientY - box.top);
}
const movedOverview = draggable(byId('overview'), overview.camera, () => overview.draw());
const held = longPress(byId('overview'), event => {
  const head = headAt(event);
  if (head !== null) pin(head);
});
byId('overview').addEventListener('click', event => {
  const head = headAt(event);
  if (head === null || movedOverview() || held()) return;
  if (event.shiftKey || event.ctrlKey || event.metaKey) return pin(head);
  chooseHead(head);
  if (isStacked()) byId('detail').scrollIntoView();
});
byId('overview').addEventListener('pointermove', event => {
  const head = headAt(event);
  if (head === null) return hideTip();
  showHeadTip(head, event);
  if (!data.tile(head) && selected && statistic(facts, kSelected, 0)[head] === null) {
    selected.read(head).then(() => {
      if (!byId('tip').hidden && byId('tip').dataset.head === String(head)) showHeadTip(head, event);
    });
  }
});
/** @param {number} head @param {PointerEvent} event */
function showHeadTip(head, event) {
  const tile = data.tile(head), heads = tile?.kind === 'mean' ? data.tiles?.headsOf(tile.group) ?? [] : [];
  const means = facts.statistics.filter(({name}) => tile && name !== kSelected && name !== 'largest').map(({name, title}) => {
    const mean = meanOf(facts, name, heads);
    return mean === null ? '' : `\n${title}: ${brief(mean)} (mean of the ${matrices})`;
  });
  const numbers = tile ? means : facts.statistics.map(({name, title}) => {
    const value = statistic(facts, name, state.set)[head] ?? null;
    const change = state.set === kDifference && name !== 'difference' ? 'change of ' : '';
    return value === null ? '' : `\n${change}${title}: ${name === kSelected && selected && state.set !== kDifference ? shortened(selected.text(state.set, head)) : brief(value)}`;
  });
  const isLate = tile && !data.overviews[0][head], scale = overview.scaleOf(state.set, head);
  const about = [tile && data.tiles?.about(tile), tile?.kind === 'rollout' && 'dotted: exactly 0, the query does not depend on the token', names.sharing(head),
                 isLate ? 'a click computes it' : `colours from ${scale.lowText} to ${brief(scale.high)}`].filter(Boolean);
  showTip(`${names.title(head)}${numbers.join('')}\n${about.join('\n')}`, event.clientX, event.clientY);
  byId('tip').dataset.head = String(head);
}
byId('overview').addEventListener('pointerleave', hideTip);
byId('overview').addEventListener('wheel', event => {
  const box = byId('overview').getBoundingClientRect();
  wheel(event, overview.camera, event.clientX - box.left - overview.left, event.clientY - box.top - overview.top,
        () => overview.draw());
}, {passive: false});

/** Pointing shows the lines of a token; a click also locks them. @param {MouseEvent} event @param {boolean} click */
function lineEvent(event, click) {
  if (state.locked && !click) return;
  const {query, key} = lines.at(event);
  if (query === undefined && key === undefined) return;
  if (click) state.locked = true;
  lines.toKey = key !== undefined;
  focusOn(query ?? state.chosen.row, key ?? state.chosen.column, {inLines: true, preview: !click});
}
byId('lines').addEventListener('pointermove', event => lineEvent(event, false));
byId('lines').addEventListener('pointerleave', () => {
  if (!state.locked && lines.toKey) {
    lines.toKey = false;
    lines.draw();
  }
  endPreview(true);
});
byId('lines').addEventListener('click', event => lineEvent(event, true));
/** @param {number | null} index of the list @param {boolean} byKey */
function chooseStrongest(index, byKey) {
  if (index === null) return;
  if (!byKey) state.locked = true;
  if (state.side === 'keys') focusOn(index, state.column, {byKey});
  else focusOn(state.row, index, {byKey});
}
byId('strongest').addEventListener('click', event => chooseStrongest(strongestList.at(event), false));
/** @param {Event} event @param {boolean} click */
function tokenEvent(event, click) {
  const token = text.at(event);
  if (token === null || (state.locked && !click)) return;
  if (click) state.locked = true;
  const how = {preview: !click, inLines: true}, same = rows === columns;
  if (state.side === 'keys') focusOn(click || !same ? token : state.row, same && !click ? token : state.column, how);
  else focusOn(same ? token : state.row, same ? state.column : token, how);
}
byId('text').addEventListener('pointerover', event => tokenEvent(event, false));
byId('text').addEventListener('pointerleave', () => endPreview());
byId('text').addEventListener('click', event => tokenEvent(event, true));

/** Zooms towards the selected cell, if it is in view. @param {number} factor */
function zoom(factor) {
  const {shownWidth, shownHeight, scaleX, scaleY} = camera;
  const left = (state.column + .5 - camera.x) * scaleX, top = (state.row + .5 - camera.y) * scaleY;
  const isInView = left >= 0 && left <= shownWidth && top >= 0 && top <= shownHeight;
  camera.zoomBy(factor, isInView ? left : shownWidth / 2, isInView ? top : shownHeight / 2);
  drawMatricesSoon();
}

/** Whether keys were searched last, so that they are counted. */
let findsKeys = false;
/** Selects the next query that is found; the next key if no query is, or if `ofKeys`. @param {boolean} ofKeys */
function findNext(ofKeys) {
  const queries = foundAmong(facts.rows), keys = foundAmong(facts.columns);
  const after = (/** @type {number[]} */ places, /** @type {number} */ at) => places.find(place => place > at) ?? places[0];
  if (queries.length > 0 && !(ofKeys && keys.length > 0)) {
    const row = after(queries, state.row), [most] = strongest(columns, j => weights?.value(row, j) ?? null, 1);
    focusOn(row, weights?.value(row, state.column) === null && most ? most.index : state.column, {byKey: true});  // not a hidden key
  }
  else if (keys.length > 0) focusOn(state.row, after(keys, state.column), {byKey: true});
  findsKeys = queries.length === 0 || (ofKeys && keys.length > 0);
  countFound();
}

/** @type {Record<string, () => void>} */
const matrixKeys = {
  ArrowUp: () => focusOn(state.row - 1, state.column, {byKey: true}),
  ArrowDown: () => focusOn(state.row + 1, state.column, {byKey: true}),
  ArrowLeft: () => focusOn(state.row, state.column - 1, {byKey: true}),
  ArrowRight: () => focusOn(state.row, state.column + 1, {byKey: true}),
  PageUp: () => focusOn(state.row - 10, state.column, {byKey: true}),
  PageDown: () => focusOn(state.row + 10, state.column, {byKey: true}),
  Home: () => focusOn(state.row, 0, {byKey: true}),
  End: () => focusOn(state.row, columns - 1, {byKey: true}),
  Enter: () => lock(!state.locked),
};
/** @type {Record<string, () => void>} */
const overviewKeys = {
  ArrowUp: () => chooseHead(overview.neighbour(0, -1)),
  ArrowDown: () => chooseHead(overview.neighbour(0, 1)),
  ArrowLeft: () => chooseHead(overview.neighbour(-1, 0)),
  ArrowRight: () => chooseHead(overview.neighbour(1, 0)),
  Home: () => chooseHead(overview.heads[0] ?? null),
  End: () => chooseHead(overview.heads.at(-1) ?? null),
  Enter: () => byId('matrices').focus(),
  ' ': () => pin(state.head),
};
/** @type {Record<string, () => void>} */
const strongestKeys = {
  ArrowUp: () => chooseStrongest(strongestList.next(-1), true),
  ArrowDown: () => chooseStrongest(strongestList.next(1), true),
};
const {why} = side, say = (/** @type {string} */ words) => { byId('status').textContent = words; };
/** @type {Record<string, () => void>} */
const whyKeys = {
  ArrowUp: () => say(why.step(-1)),
  ArrowDown: () => say(why.step(1)),
  ArrowLeft: () => say(why.move(-1)),
  ArrowRight: () => say(why.move(1)),
  Home: () => say(why.step(-Infinity)),
  End: () => say(why.step(Infinity)),
};
/** @param {State['side']} shown */
function showSide(shown) {
  state.side = shown;
  side.revealed = false;
  checkRadios('side', shown);
  side.draw();
  saveSoon();
}
/** @param {import('./why.mjs').StageName} stage */
function showStage(stage) {
  hideTip();
  state.stage = stage;
  drawHead();
  arrange();
  overview.draw();
  say(figures[0].caption);
  saveSoon();
}
/** @type {Record<string, () => void>} */
const pageKeys = {
  Escape: () => {
    const menu = /** @type {HTMLDetailsElement} */ (byId('menu'));
    if (menu.open) menu.open = false;
    else lock(false);
  },
  '[': () => stepHead(-1),
  ']': () => stepHead(1),
  '/': () => byId('find').focus(),
  '?': () => {
    /** @type {HTMLDetailsElement} */ (byId('menu')).open = true;
    byId('menu').querySelector('summary')?.focus();
    byId('shortcuts').style.display = 'grid';  // there is a keyboard
  },
  w: () => {
    if (!facts.why) return say(whyNot(facts));
    if (data.tile(state.head)) return say(`Select ${aMatrix(facts)} to see why its weights are what they are.`);
    showSide('why');
    byId('why').focus();
  },
  m: chooseLargest,
  s: () => { if (stages.length > 0) showStage(stages[(stages.indexOf(state.stage) + 1) % stages.length]); },
  '+': () => zoom(1.5),
  '=': () => zoom(1.5),
  '-': () => zoom(1 / 1.5),
  0: () => { camera.reset(); drawMatricesSoon(); },
};

document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const {target, key} = event;
  if (!(target instanceof HTMLElement)) return;
  if (target.id === 'find' && key === 'Enter') {
    event.preventDefault();
    return findNext(event.shiftKey);
  }
  if (target.id === 'find' && key === 'Escape') {
    event.preventDefault();
    input('find').value = '';
    find();
    return target.blur();
  }
  const isText = target instanceof HTMLInputElement && !/radio|file/.test(target.type);
  if (isText && key === 'Escape') return target.blur();
  if (isText || (target.tagName === 'SELECT' && /^\w$/.test(key))) return;  // which choose from the list
  const own = target.id === 'matrices' || target === document.body ? matrixKeys : target.id === 'overview' ? overviewKeys
      : target.id === 'why' ? whyKeys : target.id === 'strongest' ? strongestKeys : {};
  // Keys that scroll do so unless the matrix has the focus.
  const scrolls = target === document.body && !/^Arrow|Enter/.test(key);
  const action = (scrolls ? undefined : own[key]) ?? pageKeys[key];
  if (!action) return;
  event.preventDefault();
  action();
  if (target.id === 'overview') say(refused || (byId('panel').textContent ?? ''));
});

/** @param {string} id @param {(value: string) => void} set */
function onChange(id, set) {
  byId(id).addEventListener('change', event => {
    set(/** @type {HTMLInputElement} */ (event.target).value);
    saveSoon();
  });
}
onChange('set', value => {
  state.set = Number(value);
  showRange();
  arrange();
  side.draw();
  loadOverview();
});
onChange('scale', value => { state.scale = /** @type {import('./state.mjs').ScaleChoice} */ (value); redraw(); });
onChange('between', value => {
  state.between = value;
  const {query, key} = insideOf(facts.rows, facts.columns, value);
  const row = query(state.row) ? state.row : facts.rows.findIndex((_, i) => query(i));
  const [most] = strongest(columns, j => key(j) ? weights?.value(row, j) ?? null : null, 1);
  const column = key(state.column) ? state.column : most?.index ?? facts.columns.findIndex((_, j) => key(j));
  focusOn(row, column);
});
onChange('colours', value => { state.mode = /** @type {State['mode']} */ (value); redraw(); });
onChange('order', value => {
  state.lowestFirst = value.startsWith('-');
  state.order = value.replace('-', '');
  state.least = -Infinity;
  state.most = Infinity;
  input('least').value = input('most').value = '';
  showRange();
  overview.camera.reset();
  arrange();
  overview.draw();
  orderBySelected();
});
/** Says the range of the statistic that orders the heads, at the fields that limit it. */
function showRange() {
  byId('range').hidden = state.order === 'file';
  const numbers = statistic(facts, state.order, state.set).filter(value => value !== null);
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  const stay = data.count > data.headCount ? ', tiles stay' : '';
  [input('least').title, input('most').title] = numbers.length > 0 ? [`${matrices} with less are left out${stay}; the least is ${least}`, `${matrices} with more are left out${stay}; the largest is ${most}`] : ['', ''];
}
for (const [id, none] of /** @type {[('least' | 'most'), number][]} */ ([['least', -Infinity], ['most', Infinity]])) {
  onChange(id, value => {
    const number = value.trim() === '' ? none : Number(value);
    input(id).setAttribute('aria-invalid', String(Number.isNaN(number)));
    state[id] = Number.isNaN(number) ? none : number;
    refused = Number.isNaN(number) ? `${value.trim()} is not a number` : '';
    overview.camera.reset();
    arrange();
    overview.draw();
  });
  let typing = 0;
  byId(id).addEventListener('input', () => {
    clearTimeout(typing);
    typing = window.setTimeout(() => byId(id).dispatchEvent(new Event('change')), 400);
  });
}
for (const radio of document.querySelectorAll('input[name=side]'))
  radio.addEventListener('change', event =>
      showSide(/** @type {State['side']} */ (/** @type {HTMLInputElement} */ (event.target).value)));
byId('stages').hidden = stages.length === 0;
for (const stage of stages) {
  const label = document.createElement('label'), radio = document.createElement('input');
  Object.assign(radio, {type: 'radio', name: 'stage', value: stage});
  radio.addEventListener('change', () => showStage(stage));
  label.append(radio, ` ${stage} ${kStages[stage][1].toUpperCase()}`);
  byId('stages').append(label);
}
byId('locked').addEventListener('click', () => lock(!state.locked));
byId('before').addEventListener('click', () => stepHead(-1));
byId('after').addEventListener('click', () => stepHead(1));
byId('in').addEventListener('click', () => zoom(1.5));
byId('out').addEventListener('click', () => zoom(1 / 1.5));
byId('fit').addEventListener('click', () => pageKeys[0]());
/** @param {boolean} dark */
function chooseTheme(dark) {
  state.dark = dark;
  theme();
  redraw();
}
byId('theme').addEventListener('click', () => chooseTheme(!state.dark));
night.addEventListener('change', () => { if (!device.print) chooseTheme(night.matches); });
byId('copy-link').hidden = location.protocol === 'about:';  // the frame of a notebook has no address
byId('controls').addEventListener('submit', event => event.preventDefault());
/** @param {string[]} labels */
const foundAmong = labels => labels.flatMap((label, k) => found()(label) ? [k] : []);
/** How many queries, or keys, have the searched words, and which of these is selected. */
function countFound() {
  const queries = foundAmong(facts.rows), ofKeys = findsKeys || queries.length === 0;
  const places = ofKeys ? foundAmong(facts.columns) : queries, at = places.indexOf(ofKeys ? state.column : state.row);
  byId('found').textContent = state.find === '' ? '' : places.length === 0 ? 'not found'
      : at < 0 ? `${places.length} found` : `${at + 1} of ${places.length} ${findsKeys ? `${facts.columnAxis} ` : ''}found`;
}
/** Marks the tokens with the words of the field. */
function find() {
  state.find = input('find').value;
  findsKeys = false;
  countFound();
  drawMatrices();
  saveSoon();
}
byId('find').addEventListener('input', find);
document.addEventListener('pointerdown', event => {
  const menu = /** @type {HTMLDetailsElement} */ (byId('menu'));
  if (menu.open && event.target instanceof Node && !menu.contains(event.target)) menu.open = false;
});
window.addEventListener('hashchange', () => {
  readFragment();
  restoreCamera();
  redraw();
  overview.reveal();
  loadOverview();
  drawHead();
});

// ---- copy and save

/** The selected row with the names of its numbers. */
const shownRow = () => numbers.rowText(compares ? names.sets : [byId('first-name').textContent ?? '']);
/** @param {string} words @param {string} what it is */
async function copyAndSay(words, what) {
  await copy(words);
  tell(`copied ${what}`);
}
/** @param {string} words @param {string} note */
const afterComma = (words, note) => [words, note].filter(Boolean).join(', ');
/** @param {string} words */
function tell(words) { byId('said').textContent = byId('status').textContent = words; }
byId('copy-row').addEventListener('click', () =>
    copyAndSay(shownRow(), afterComma(`the row of ${named(facts.rows, state.row)}`, numbers.isExact ? '' : numbers.inexactness(0))));
byId('copy-link').addEventListener('click', () => { save(); copyAndSay(location.href, 'the link'); });
byId('save-csv').addEventListener('click', async () => {
  const {set} = state, name = `${names.file(compares ? names.sets[set] : '')}.csv`, note = numbers.canRead(set) ? '' : numbers.inexactness(set);
  saveAs(new Blob([await numbers.csv(set)], {type: 'text/csv'}), name);
  tell(afterComma(`saved ${name}`, note));
});
byId('save-png').addEventListener('click', () => {
  savedPicture(names.picture, [...notes(), scaleNote(), compares ? names.axes : ''].filter(Boolean), figures).toBlob(blob => {
    if (!blob) return;
    saveAs(blob, `${names.file()}.png`);
    tell(`saved ${names.file()}.png`);
  });
});

// ---- the original files

/** The scale, if it is not linear. */
const scaleNote = () => shownMode() === 'linear' ? '' : `${byId('mode-name').textContent}: ${chosen('colours')}`;
/** What the page says below its title. */
function notes() {
  const names = sources.flatMap(source => source.file ? [source.about.file] : []);
  const exact = `exact from ${names.join(' and ')}: ${facts.step > 1 ? 'the matrix, ' : ''}the selected row and the CSV`;
  return [...facts.notes, ...names.length > 0 ? [exact] : []];
}
const lackText = () => state.missing && `This page has no ${state.missing}.`;
function writeNotes() { byId('notes').textContent = [lackText(), ...notes()].filter(Boolean).join(' · '); }

/** @param {Source} source @param {import('./source.mjs').OpenFile} file @param {unknown} error */
function refuseSource(source, file, error) {
  if (source.close(file)) writeSource(source, error instanceof Error ? error.message : String(error));
}
/** Says whether the file of a result is open, and shows its numbers or those of the page. @param {Source} source @param {string} words */
function writeSource({set}, words) {
  sourceOutputs[set].textContent = words;
  writeNotes();
  if (facts.step > 1) drawHead();
  else drawFocus();
}
const sourceOutputs = sources.map(source => {
  const label = document.createElement('label'), chooser = document.createElement('input');
  const output = document.createElement('output');
  chooser.type = 'file';
  label.append(`for exact values, open ${source.about.file} `, chooser, output);
  chooser.addEventListener('change', async () => {
    const chosen = chooser.files?.[0], {head, row} = state;
    if (!chosen) return;
    output.textContent = '';
    try {
      const isOpen = await source.open(chosen, async file => {
        const matrix = await data.matrix(source.set, head);
        if (matrix instanceof Matrix) await file.row(matrix, row);
      });
      if (isOpen) writeSource(source, 'exact');
    } catch (error) {
      writeSource(source, error instanceof Error ? error.message : String(error));
    }
  });
  byId('sources').append(label);
  return output;
});

// ---- print

let printed = {dark: false, zoom: 1, x: 0, y: 0};
const sheet = new Sheet(overview, figures, side, arrange);
/** What the controls say about the drawings, which a sheet does not have. */
function writePrinted() {
  byId('printed').textContent = [data.headCount > 1 ? byId('shown').textContent : '', scaleNote()].filter(Boolean).join(' · ');
}

/** Lays everything out for a sheet of A4, light and without zoom. */
function beforePrint() {
  const {zoom, x, y} = overview.camera;
  printed = {dark: state.dark, zoom, x, y};
  state.dark = false;
  device.print = 2;
  document.documentElement.style.fontSize = '13px';
  theme();
  for (const figure of figures) figure.camera.reset();
  overview.camera.reset();
  if (side.shown === 'why') byId('why').style.display = 'block';
  sheet.layOut();
  overview.leaveOut();
  writeShown();
  writePrinted();
  overview.draw(true);
  for (const figure of figures) figure.draw(painter, scaleOfFigure(figure), found());
  for (const figure of figures) figure.drawFocus();
  if (side.shown === 'lines') side.printLines(sheet.linesHeight);
  why.drawStrips();
}
function afterPrint() {
  const {dark, zoom, x, y} = printed;
  state.dark = dark;
  device.print = 0;
  theme();
  document.documentElement.style.fontSize = '';
  sheet.reset();
  restoreCamera();
  Object.assign(overview.camera, {zoom, x, y});
  redraw();
}
window.addEventListener('beforeprint', beforePrint);
window.addEventListener('afterprint', afterPrint);

// ---- start

byId('title').textContent = facts.title;
byId('row-axis').textContent = one(facts.rowAxis);
byId('column-axis').textContent = one(facts.columnAxis);
byId('reading').textContent = [
  openingWords(facts, hasSums), `Widths of lines are proportional to ${hasSums ? 'weights' : 'magnitudes'}${lines.pale && `; pale lines are those of ${lines.pale}`}.`,
  figures[0].isBars ? '' : 'Grey numbers in cells are below 1/1000 of the end of the colour scale.', hasSums ? whyNot(facts) : ''].filter(Boolean).join(' ');
byId('find-help').textContent = `find a token; Enter: next ${one(facts.rowAxis)}, Shift and Enter: next ${one(facts.columnAxis)}`;
// Entries of #facts are at least 6.6 rem wide.
for (const [id, labels] of /** @type {[string, string[]][]} */ ([['query', facts.rows], ['key', facts.columns]])) {
  const wide = widest(labels.map((_, i) => named(labels, i)), 300, 15) / 15 + .3;
  if (wide > 6.6) /** @type {HTMLElement} */ (byId(id).parentElement).style.flex = `2 1 ${wide}rem`;
}
if (compares) [byId('first-name').textContent, byId('second-name').textContent] = facts.sets;
names.sets.forEach((name, set) => select('set').append(new Option(name, String(set))));
const isOfLayers = facts.groups.length > 1 && facts.groups.every(group => group.startsWith('layer'));
const lowestFirst = document.createElement('optgroup');
lowestFirst.label = 'lowest first';
lowestFirst.append(...facts.statistics.map(({name, title}) => new Option(`by ${title}`, `-${name}`)));
select('order').append(new Option(isOfLayers ? 'of layers and heads' : 'of the file', 'file'),
    ...facts.statistics.map(({name, title}) => new Option(`by ${title}`, name)), lowestFirst);
if (hasSinks) {
  byId('sum-name').textContent = 'sum without sink';
  byId('sum-name').title = 'of the weights of the row';
}
const ofLog = /** @type {HTMLOptionElement} */ (select('colours').querySelector('[value=log]'));
if (facts.signed) ofLog.remove();
else if (compares) ofLog.text += ', difference linear';
if (differs) select('colours').prepend(new Option('square root, difference linear', ''));
byId('mode-name').textContent = rows === 1 ? 'heights' : 'colours';
for (const key of [...facts.why ? [] : ['w'], ...stages.length > 0 ? [] : ['s']])
  for (const part of document.querySelectorAll(`#shortcuts .of-${key}`)) part.remove();
document.body.classList.toggle('compares', compares);
document.body.classList.toggle('single', data.headCount === 1);
document.body.classList.toggle('rounded', facts.bits <= 16);
document.body.classList.toggle('blocks', facts.step > 1);
document.body.classList.toggle('wide', columns > 2.2 * rows);
document.body.classList.toggle('plain', !hasSums);
theme();
readFragment();
undecided = !/\b(row|column)=/.test(location.hash);
const resized = new ResizeObserver(() => {
  if (device.print) return;
  side.revealed = false;
  redraw();
});
await nextTask();
for (const figure of figures) figure.layout();
restoreCamera();
await nextTask();
redraw();
overview.reveal();
await nextTask();
drawHead();
loadOverview();
orderBySelected();
for (const box of [byId('overview'), byId('matrices'), byId('scroll'), ...figures.map(figure => figure.box)]) resized.observe(box);
document.body.dataset.ready = 'yes';

/** For tests and the browser's console. */
Object.assign(window, {attn: {
  facts, data, state, figures, overview, lines, text, why, camera, chooseHead, focusOn, redraw, scaleOf, rowText: shownRow, matrixCsv: () => numbers.csv(state.set),
  beforePrint, afterPrint, GlPainter, CanvasPainter,
  get painter() { return painter; },
  set painter(other) { painter = other; drawMatrices(); },
}});
