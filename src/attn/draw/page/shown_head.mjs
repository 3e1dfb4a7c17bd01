// The selected head: decodes it, draws its matrices and names what they show.

import {byId, checkRadios, input, select} from './dom.mjs';
import {largestCell, openingCell} from './opening.mjs';
import {nextTask} from './tasks.mjs';

/** @typedef {import('./figure.mjs').Figure} Figure */
/**
 * What it draws, and what computes and reads its numbers.
 * @typedef {{matrices: import('./matrices.mjs').Matrices, overview: import('./overview.mjs').Overview, side: import('./side_box.mjs').SideBox,
 *   heads: import('./heads.mjs').Heads, files: import('./original_files.mjs').OriginalFiles}} AroundHead
 */

/** The matrix of a figure, for functions that look for a cell. @param {Figure} figure @returns {(i: number, j: number) => number | null} */
const valueIn = figure => (i, j) => figure.head.matrix?.value(i, j) ?? null;
/** @param {Figure} figure */
const finestOf = figure => figure.head.levels.reduce((a, b) => b.tall * b.wide < a.tall * a.wide ? b : a);

export class ShownHead {
  /**
   * @param {import('./data.mjs').Data} data
   * @param {import('./state.mjs').State} state
   * @param {import('./names.mjs').Names} names
   * @param {import('./head_scales.mjs').HeadScales} scales
   * @param {AroundHead} around
   */
  constructor(data, state, names, scales, around) {
    this.data = data;
    this.state = state;
    this.names = names;
    this.scales = scales;
    this.around = around;
    this.figures = around.matrices.figures;
    /** In the first result; null until it is decoded. @type {import('./data.mjs').Matrix | import('./data.mjs').Difference | null} */
    this.weights = null;
    /** The last head that was wanted. */
    this.wanted = '';
    /** Whether the address left the selected cell open. */
    this.undecided = false;
  }

  /** Lays out and draws it; its coarse levels until its values are decoded. */
  async draw() {
    const {data, state: {head}, names, names: {stage}, figures} = this, {matrices, overview, side, heads, files} = this.around;
    const key = this.wanted = `${head} ${stage}`, isLate = data.tile(head) !== undefined && !data.overviews[0][head];
    const writeTitle = (more = '') => { byId('panel').textContent = names.title(head) + more; };
    this.weights = null;
    writeTitle();
    byId('panel').title = names.sharing(head);
    document.body.classList.toggle('computing', isLate);
    this.writeNames();
    this.nameFigures();
    if (isLate) {
      for (const figure of figures) figure.head = {levels: [], matrix: null};
      matrices.draw();
      const report = () => { if (key === this.wanted) writeTitle(` (${data.tiles?.progress ?? 0} % computed)`); };
      const watch = window.setInterval(report, 250);
      report();
      await heads.loadTile(head);
      clearInterval(watch);
      if (key !== this.wanted) return;
      document.body.classList.remove('computing');
      writeTitle();
    }
    overview.drawRings();
    for (const figure of figures) {
      const level = data.overviews[figure.set][head];
      figure.head = {levels: level && stage === 'weights' ? [level] : [], matrix: null};
    }
    matrices.draw();
    const decoded = await Promise.all(figures.map(({set}) => data.head(set, head)));
    const before = stage === 'weights' ? null : await data.stage(head, stage);
    await nextTask();
    if (key !== this.wanted) return;
    decoded.forEach((one, k) => { figures[k].head = one; });
    this.weights = decoded[0].matrix;
    if (this.undecided) this.selectOpening();
    if (before) figures[0].head = before;
    this.nameFigures();
    matrices.draw();
    document.body.dataset.head = `${head}`;
    performance.mark('head');
    side.draw();
    files.readHead(head);
  }

  selectOpening() {
    const {data: {compares, facts}, state, figures: [figure]} = this;
    this.undecided = false;
    const {row, column} = compares || facts.gradient ? this.largest : openingCell(facts, finestOf(figure), valueIn(figure));
    state.select(row, column);
    this.around.side.revealed = false;
  }
  /** The cell of largest magnitude; of two results, in their difference. */
  get largest() {
    const figure = this.figures[this.figures.length - 1];
    return largestCell(finestOf(figure), valueIn(figure));
  }
  get isDecoded() { return this.figures[0].head.matrix !== null; }

  nameFigures() {
    for (const figure of this.figures) figure.name(figure.title, this.names.patterns(figure.set, this.weights));
  }
  /** Names what is shown, and offers what can be. */
  writeNames() {
    const {data, data: {facts}, names} = this, isTile = names.tile !== undefined;
    byId('reads').textContent = names.reads;
    byId('read-by').textContent = names.readBy;
    input('why-radio').disabled = !facts.why || isTile;
    checkRadios('side', this.around.side.shown);
    if (data.compares) return;
    byId('first-name').textContent = names.number;
    this.figures[0].title = names.matrix;
    /** @type {HTMLFieldSetElement} */ (byId('stages')).disabled = isTile;
    document.body.classList.toggle('plain', !data.hasSums || names.stage !== 'weights');
    checkRadios('stage', names.stage);
    if (facts.signed) return;
    const log = /** @type {HTMLOptionElement} */ (select('colours').querySelector('[value=log]'));
    log.disabled = names.stage !== 'weights';
    select('colours').value = this.scales.mode();
  }
}
