// Beside the matrix: lines or text with the strongest tokens, or how the selected weight came about.

import {blockLabels, columnOf, rowOf, within} from './cells.mjs';
import {blankName, kDifference} from './data.mjs';
import {byId, checkRadios, named, one, select, titled} from './dom.mjs';
import {headColour} from './pen.mjs';
import {insideOf, sentencesOf} from './sentences.mjs';
import {Lines, TokenText} from './side.mjs';
import {StrongestList} from './strongest.mjs';
import {whyNot} from './why.mjs';
import {WhyPanel} from './why_panel.mjs';

/** @typedef {import('./scale.mjs').Scale} Scale */
/**
 * What the rest of the page provides: the values of the selected head in a set, those of its file for the selected row if it has been
 * read, the sum of the selected row, a scale, whether a label is found, the name of a head, and whether the matrix shows a stage before the
 * weights.
 * @typedef {{values: (set: number) => import('./data.mjs').Matrix | import('./data.mjs').Difference | null,
 *   exact: (set: number) => import('./copies.mjs').FileNumbers | null, sumOf: (set: number) => number, scaleOf: (set: number, head: number, own?: boolean) => Scale, found: () => (label: string) => boolean,
 *   titleOf: (head: number) => string, isStage: () => boolean}} Around
 */

export class SideBox {
  /**
   * @param {import('./data.mjs').Data} data
   * @param {import('./state.mjs').State} state
   * @param {Around} around
   */
  constructor(data, state, around) {
    this.data = data;
    this.state = state;
    this.around = around;
    this.strongest = new StrongestList(byId('strongest'));
    this.lines = new Lines(byId('scroll'), byId('tall'), /** @type {HTMLCanvasElement} */ (byId('lines')), data, state);
    this.text = new TokenText(byId('text'), data, state);
    this.why = new WhyPanel(byId('why'), data, state);
    /** Whether the lines' view shows the selection. */
    this.revealed = false;
    byId('why-choice').hidden = !data.facts.why && (!data.hasSums || data.compares);
    byId('why-choice').title = whyNot(data.facts);
    const [rows, columns] = [data.facts.rows, data.facts.columns].map(sentencesOf);
    this.pairs = rows.flatMap(a => columns.map(b => a.name + b.name));
    byId('sentences').hidden = this.pairs.length === 0;
    select('between').append(new Option('all tokens', ''), ...this.pairs.map(pair => new Option(`sentence ${pair[0]} → ${pair[1]}`, pair)));
  }

  /** What is shown; nothing says why the weights of tiles are what they are. */
  get shown() {
    const {state: {side, head}, data} = this;
    return side !== 'why' || !data.tile(head) ? side : data.facts.rows.length > 1 ? 'lines' : 'text';
  }

  /** @param {import('./state.mjs').State['side']} shown */
  choose(shown) {
    this.state.side = shown;
    this.revealed = false;
    checkRadios('side', shown);
    this.draw();
  }

  /**
   * The selected head; of two results, that of the overview. If it shows their difference, the list has the largest differences, and
   * lines and text are those of the first.
   */
  async draw() {
    const {state, data, around, shown} = this, {facts} = data, {head} = state;
    byId('scroll').hidden = byId('strongest').hidden = shown === 'why';
    byId('why').hidden = shown !== 'why';
    byId('sentences').hidden = shown === 'why' || this.pairs.length === 0;
    byId('tall').hidden = shown !== 'lines';
    byId('text').hidden = shown === 'lines' || shown === 'why';
    const isDifference = state.set === kDifference, set = isDifference ? 0 : state.set;
    const values = around.values(set);
    if (!values) return;
    if (shown === 'why') {
      byId('colour-key').replaceChildren();
      return this.why.draw(values, around.titleOf(head));
    }
    const inside = insideOf(facts.rows, facts.columns, state.between), {row, column} = state;
    const toKey = shown === 'keys', isRollout = data.tile(head)?.kind === 'rollout';
    const ofSet = (data.compares ? ` in ${facts.sets[set]}` : '') + (around.isStage() ? ', by weight' : '');
    const query = titled(facts.rowAxis, facts.rows, row), key = titled(facts.columnAxis, facts.columns, column);
    /** @param {string} axis @param {string} label */
    const withAxis = (axis, label) => label.startsWith(one(axis)) ? label : `${one(axis)} ${label}`;
    const selected = toKey ? withAxis(facts.columnAxis, key) : withAxis(facts.rowAxis, query);
    const sentence = state.between === '' ? '' : ` in sentence ${state.between[toKey ? 0 : 1]}`;
    const cellsOf = (/** @type {number} */ set) => {
      const all = around.values(set) ?? values;
      return toKey ? columnOf(all, column, facts.rows.length) : rowOf(around.exact(set) ?? all, row, facts.columns.length);
    };
    const cells = cellsOf(set);
    const labels = toKey ? facts.rows : facts.columns;
    this.strongest.draw(
        isDifference ? `largest differences of ${selected}${sentence}`
        : (facts.signed ? `largest magnitudes of ${selected}`
         : toKey ? `${isRollout ? 'depend on' : 'read'} ${key} most` : `${query} ${isRollout ? 'depends on' : 'reads'} most`) + sentence + ofSet,
        within(isDifference ? cellsOf(kDifference) : cells, toKey ? inside.query : inside.key),
        cells.step > 1 ? blockLabels(labels, cells.step) : labels.map((_, i) => named(labels, i)), toKey ? row : column, blankName(facts, state.set),
        toKey || isDifference || !data.hasSums ? NaN : around.sumOf(set));
    if (shown !== 'lines') {
      const grey = [!isRollout && (facts.hidden[set] || facts.zeros[set]) ? blankName(facts, set) : '', sentence && 'in another sentence'].filter(Boolean).join(' or ');
      byId('colour-key').textContent =
          (toKey ? `${facts.signed ? '' : isRollout ? `${facts.rowAxis} that depend on ` : 'readers of '}${one(facts.columnAxis)} ${named(facts.columns, column)}`
                 : `${one(facts.rowAxis)} ${named(facts.rows, row)}${facts.signed ? '' : isRollout ? ' depends on' : ' reads'}`) + ofSet +
          (grey && ` (grey: ${grey})`) + (cells.note && ` (${cells.note})`) + ':';
      await this.text.draw(cells, around.scaleOf(set, head), around.found(), toKey ? inside.query : inside.key);
      if (!this.revealed) this.text.reveal(byId('scroll'));
      this.revealed = true;
      return;
    }
    const heads = [head, ...state.pinned.filter(pin => pin !== head)];
    const all = await Promise.all(heads.map(other => data.matrix(set, other)));
    if (head !== state.head || this.shown !== 'lines') return;
    const {lines} = this;
    lines.heads = heads.map((other, k) => ({
      values: all[k], row: k === 0 ? cells : rowOf(all[k], row, facts.columns.length), scale: around.scaleOf(set, other, heads.length === 1 && state.scale !== 'shared'), title: around.titleOf(other),
      hue: k === 0 ? 0 : state.pinned.indexOf(other) + 1}));
    lines.marked = around.found();
    lines.inside = inside;
    const about = [ofSet && `lines${ofSet}`, lines.isAxis ? `axis: all ${facts.columns.length} ${facts.columnAxis}, labels of the strongest` : '',
                   cells.note && `a line for each block, ${cells.note}`, facts.signed ? 'dashed: negative' : ''].filter(Boolean).join(' · ');
    byId('colour-key').replaceChildren(about, ...(lines.heads.length < 2 ? [] : lines.heads.map(lined => {
      const item = document.createElement('span'), swatch = document.createElement('i');
      item.append(swatch, lined.title || 'this head');
      return item;
    })));
    this.colourKey();
    lines.draw();
    if (!this.revealed) lines.reveal();
    this.revealed = true;
  }

  /** Gives the names of several heads the colours of their lines. */
  colourKey() {
    const swatches = byId('colour-key').getElementsByTagName('i');
    Array.from(swatches, (swatch, k) => { swatch.style.background = headColour(this.lines.heads[k].hue, this.state.dark); });
  }

  /** Draws the lines for a sheet, and says which tokens it has. @param {number} height */
  printLines(height) {
    this.colourKey();
    this.lines.draw(height);
    const part = document.createElement('span');
    part.textContent = this.lines.part;
    byId('colour-key').prepend(part);
  }
}
