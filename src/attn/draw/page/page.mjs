// The page: makes its parts, connects them and opens it.

import {Address} from './address.mjs';
import {nameFacts, writeFacts} from './cell_facts.mjs';
import {blockNote} from './cells.mjs';
import {cellBetween, listenToButtons, listenToChoices, writeControls, writeTheme} from './controls.mjs';
import {Data, StageMatrix, kSum} from './data.mjs';
import {byId, say} from './dom.mjs';
import {textReader} from './element_text.mjs';
import {Finder} from './finder.mjs';
import {setKinds, writeHelp, writeOptions} from './fixed_words.mjs';
import {GlPainter} from './gl.mjs';
import {HeadScales} from './head_scales.mjs';
import {headWords} from './head_words.mjs';
import {Heads} from './heads.mjs';
import {listKeys, listenToKeys, matrixKeys, overviewKeys, pageKeys, whyKeys} from './keyboard.mjs';
import {Matrices} from './matrices.mjs';
import {Names} from './names.mjs';
import {OriginalFiles} from './original_files.mjs';
import {Overview} from './overview.mjs';
import {CanvasPainter} from './paint.mjs';
import {device} from './pen.mjs';
import {pointAtLines, pointAtList, pointAtMatrices, pointAtOverview, pointAtText} from './pointer.mjs';
import {Printing} from './printing.mjs';
import {savingButtons, shownRow} from './saving.mjs';
import {SelectedWeights, kSelected} from './selected.mjs';
import {Selection} from './selection.mjs';
import {ShownHead} from './shown_head.mjs';
import {ShownNumbers} from './shown_numbers.mjs';
import {SideBox} from './side_box.mjs';
import {StageChoice} from './stage_choice.mjs';
import {State, placesOf} from './state.mjs';
import {nextTask} from './tasks.mjs';
import {Tiles} from './tiles.mjs';
import {stagesOf} from './why.mjs';

// ---- its data, and its state

const night = matchMedia('(prefers-color-scheme: dark)');
/** @type {import('./data.mjs').Facts} */
const facts = JSON.parse(byId('attn').textContent ?? '');
const rows = facts.rows.length, columns = facts.columns.length;
const data = new Data(facts, textReader()), {compares, hasSums} = data;
data.tiles = new Tiles(data, hasSums && !facts.signed);
const stages = stagesOf(facts.why, facts.hidden[0]);
const state = new State({
  heads: data.count, places: placesOf(facts, data.tiles.list), rows, columns, sets: facts.sets.length,
  dark: night.matches,
  side: rows > 1 ? 'lines' : stages.length > 0 ? 'why' : 'text',  // lines of one query would repeat its bars
  orders: ['file', kSelected, ...facts.statistics.map(({name}) => name)], order: compares ? 'difference' : 'file',
  head: facts.opening, scale: facts.chosenLimits ? 'shared' : 'matrix', stages,
});
const address = new Address(state), saveSoon = () => address.saveSoon();
const names = new Names(data, state, stages), scales = new HeadScales(data, state, names);
const selectedTitle = [`selected ${hasSums ? 'weight' : 'value'}`, blockNote(facts.step)].filter(Boolean).join(', ');
const selected = data.headCount > 1 ? new SelectedWeights(data, state, selectedTitle) : null;

// ---- what is drawn

const finder = new Finder(facts, state, () => {
  matrices.draw();
  saveSoon();
});
const overview = new Overview(byId('overview'), data, state, (set, head) => scales.of(set, head, state.scale === 'head'));
const matrices = new Matrices(byId('matrices'), data, state, names, scales, {marked: () => finder.isFound, drawn: drawFocus, moved: saveSoon});
const isStage = () => names.stage !== 'weights';
/** @type {SideBox} */
const side = new SideBox(data, state, {
  values: set => {
    const matrix = numbers.matrix(set);
    return compares && !(matrix instanceof StageMatrix) ? matrix : head.weights;
  },
  exact: set => numbers.ofFile(set),
  sumOf: set => compares || !isStage() ? numbers.ofRow(set, kSum) : head.weights?.row(state.row, kSum) ?? NaN,
  scaleOf: (set, head, own) => scales.of(set, head, own), found: () => finder.isFound, titleOf: head => names.title(head), isStage});
await nextTask();  // so that no task is long

const files = new OriginalFiles(data, state, {drawHead: () => head.draw(), drawFocus});
const numbers = new ShownNumbers(data, state, matrices.figures, files.sources);
const selection = new Selection(state, matrices, side, drawFocus);
const heads = new Heads(data, state, names, scales, overview, selected, address, {drawHead: () => head.draw(), drawSide: () => side.draw()});
/** @type {ShownHead} */
const head = new ShownHead(data, state, names, scales, {matrices, overview, side, heads, files});
const stageChoice = new StageChoice(stages, state, () => {
  head.draw();
  heads.draw();
  say(matrices.figures[0].caption);
  saveSoon();
});

/** Draws what shows the selected cell. */
function drawFocus() {
  matrices.drawFocus();
  if (selected?.reset()) heads.orderBySelected();
  writeSelected();
  side.draw();
  if (files.isOpen) readRows();
  saveSoon();
}
function writeSelected() {
  writeFacts(data, state, numbers);
  if (state.find !== '') finder.count();
  selection.writeLock();
}
/** Reads the selected row from the files, if they are open. */
async function readRows() {
  if (!await numbers.readRows((source, file, error) => files.refuse(source, file, error))) return;
  writeSelected();
  side.draw();
}

/** Lays out everything and draws it. */
function redraw() {
  matrices.layOut();
  heads.draw();
  matrices.draw();
}

// ---- the address

/** Reads the state from the address and shows it in the controls. */
function readAddress() {
  state.read(location.hash.slice(1));
  files.writeNotes();
  if (state.missing) say(files.lack);
  if (state.side === 'why' && !facts.why) state.side = state.defaults.side;
  writeControls(state, scales.differ ? state.mode : scales.mode(), side.shown);
  heads.showRange();
  finder.count();
}
window.addEventListener('hashchange', () => {
  readAddress();
  matrices.restoreView();
  redraw();
  overview.reveal();
  heads.loadOverview();
  head.draw();
});

// ---- input

/** @param {State['side']} shown */
function showSide(shown) {
  side.choose(shown);
  saveSoon();
}
/** Selects the next query or key that is found. @param {boolean} ofKeys */
function findNext(ofKeys) {
  const cell = finder.next(ofKeys, head.weights);
  if (cell) selection.focus(...cell, {byKey: true});
  finder.count();
}
/** @param {boolean} dark */
function chooseTheme(dark) {
  state.dark = dark;
  writeTheme(state);
  redraw();
}

pointAtMatrices(state, matrices, selection, numbers);
pointAtOverview(overview, heads, head => headWords(head, data, state.set, names, overview.scaleOf(state.set, head), selected));
pointAtLines(state, side.lines, selection);
pointAtList(side.strongest, selection);
pointAtText(state, side.text, selection, rows === columns);
listenToKeys({matrices: matrixKeys(state, selection), overview: overviewKeys(overview, heads), strongest: listKeys(side.strongest, selection), why: whyKeys(side.why)},
             pageKeys(data, selection, matrices, heads, head, stageChoice, showSide), finder, findNext,
             id => { if (id === 'overview') say(heads.refused || (byId('panel').textContent ?? '')); });
listenToChoices(state, address, {redraw, selectBetween: () => selection.focus(...cellBetween(facts, state, head.weights)), showSide, find: () => finder.find()});
listenToButtons({
  locked: () => selection.lock(!state.locked), before: () => heads.step(-1), after: () => heads.step(1),
  in: () => matrices.zoom(1.5), out: () => matrices.zoom(1 / 1.5), fit: () => matrices.showAll(), theme: () => chooseTheme(!state.dark),
  ...savingButtons(names, numbers, address, () => [...files.notes, scales.note, compares ? names.axes : ''].filter(Boolean))});
night.addEventListener('change', () => { if (!device.print) chooseTheme(night.matches); });
const printing = new Printing(state, heads, matrices, side, () => scales.note, redraw);

// ---- start

writeHelp(data, side.lines.pale, matrices.figures[0].isBars, stages.length > 0);
nameFacts(data);
writeOptions(data, names.sets, scales.differ);
setKinds(data);
writeTheme(state);
readAddress();
head.undecided = !/\b(row|column)=/.test(location.hash);
const resized = new ResizeObserver(() => {
  if (device.print) return;
  side.revealed = false;
  redraw();
});
await nextTask();
matrices.layOut();
matrices.restoreView();
await nextTask();
redraw();
overview.reveal();
await nextTask();
head.draw();
heads.loadOverview();
heads.orderBySelected();
for (const box of [byId('overview'), byId('matrices'), byId('scroll'), ...matrices.figures.map(figure => figure.box)]) resized.observe(box);
document.body.dataset.ready = 'yes';

/** For tests and the browser's console. */
Object.assign(window, {attn: {
  facts, data, state, figures: matrices.figures, overview, lines: side.lines, text: side.text, why: side.why, camera: matrices.camera,
  chooseHead: heads.choose.bind(heads), focusOn: selection.focus.bind(selection), redraw, scaleOf: scales.of.bind(scales),
  rowText: () => shownRow(numbers, names), matrixCsv: () => numbers.csv(state.set),
  beforePrint: () => printing.begin(), afterPrint: () => printing.end(), GlPainter, CanvasPainter,
  get painter() { return matrices.painter; },
  set painter(other) { matrices.painter = other; matrices.draw(); },
}});
