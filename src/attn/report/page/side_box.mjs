// Beside the matrix: lines or text with the strongest tokens, or how the selected weight came about.

import {blankName} from './data.mjs';
import {byId, named, one, titled} from './dom.mjs';
import {headColour} from './pen.mjs';
import {insideOf} from './sentences.mjs';
import {Lines, TokenText} from './side.mjs';
import {StrongestList, strongest} from './strongest.mjs';
import {errorOf} from './tiles.mjs';
import {WhyPanel} from './why_panel.mjs';

/** @typedef {import('./scale.mjs').Scale} Scale */
/**
 * What the rest of the page provides: the values of the selected head in the result of the overview (the first for a difference), the selected row of its
 * file if it has been read, a scale, whether a label is found, the name of a head, and whether the matrix shows a stage before the weights.
 * @typedef {{values: () => import('./data.mjs').Matrix | import('./data.mjs').Difference | null,
 *   exactRow: () => number[] | null, scaleOf: (set: number, head: number, own?: boolean) => Scale, found: () => (label: string) => boolean,
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
    byId('why-choice').hidden = !data.facts.why;
  }

  /** The selected head; of two results, that of the overview, or the first if it shows their difference. */
  async draw() {
    const {state, data, around} = this, {facts} = data, {head} = state;
    byId('scroll').hidden = byId('strongest').hidden = state.side === 'why';
    byId('why').hidden = state.side !== 'why';
    byId('tall').hidden = state.side !== 'lines';
    byId('text').hidden = state.side === 'lines';
    const values = around.values();
    if (!values) return;
    if (state.side === 'why') {
      byId('colour-key').replaceChildren();
      return this.why.draw(values, around.titleOf(head));
    }
    const inside = insideOf(facts.rows, facts.columns, state.between), {row, column} = state;
    const toKey = state.side === 'keys', isRollout = data.tile(head)?.kind === 'rollout';
    const set = data.compares && state.set === 1 ? 1 : 0;
    const ofSet = (data.compares ? ` in ${facts.sets[set]}` : '') + (around.isStage() ? ', by weight' : '');
    const query = titled(facts.rowAxis, facts.rows, row), key = titled(facts.columnAxis, facts.columns, column);
    const sentence = state.between === '' ? '' : ` in sentence ${state.between[toKey ? 0 : 1]}`;
    const exact = toKey ? null : around.exactRow();
    const items = strongest(toKey ? facts.rows.length : facts.columns.length, i => {
      if (!(toKey ? inside.query(i) : inside.key(i))) return null;
      const value = toKey ? values.value(i, column) : values.value(row, i);
      return value === null || !exact ? value : exact[i] === -Infinity ? null : exact[i];
    }, 10, i => exact ? 0 : errorOf(values, toKey ? i : row, toKey ? column : i));
    this.strongest.draw(
        (facts.signed ? `largest magnitudes of ${toKey ? key : query}`
         : toKey ? `${isRollout ? 'depend on' : 'read'} ${key} most` : `${query} ${isRollout ? 'depends on' : 'reads'} most`) + sentence + ofSet,
        items, i => named(toKey ? facts.rows : facts.columns, i), toKey ? row : column);
    if (state.side !== 'lines') {
      byId('colour-key').textContent =
          (toKey ? `${facts.signed ? '' : isRollout ? `${facts.rowAxis} that depend on ` : 'readers of '}${one(facts.columnAxis)} ${named(facts.columns, column)}`
                 : `${one(facts.rowAxis)} ${named(facts.rows, row)}${facts.signed ? '' : isRollout ? ' depends on' : ' reads'}`) + ofSet +
          (!isRollout && (facts.hidden[set] || facts.zeros[set]) ? ` (grey: ${blankName(facts, set)}):` : ':');
      await this.text.draw(values, around.scaleOf(set, head), around.found(), toKey ? inside.query : inside.key);
      if (!this.revealed) this.text.reveal(byId('scroll'));
      this.revealed = true;
      return;
    }
    const heads = [head, ...state.pinned.filter(pin => pin !== head)];
    const all = await Promise.all(heads.map(other => data.matrix(set, other)));
    if (head !== state.head || state.side !== 'lines') return;
    const {lines} = this;
    lines.heads = heads.map((other, k) => ({
      values: all[k], scale: around.scaleOf(set, other, heads.length === 1 && state.scale !== 'shared'), title: around.titleOf(other),
      colour: headColour(k === 0 ? 0 : state.pinned.indexOf(other) + 1, state.dark)}));
    lines.marked = around.found();
    lines.inside = inside;
    const about = [ofSet && `lines${ofSet}`, lines.isAxis ? `axis: all ${facts.columns.length} ${facts.columnAxis}, labels of the strongest` : '',
                   facts.signed ? 'dashed: negative' : ''].filter(Boolean).join(' · ');
    byId('colour-key').replaceChildren(about, ...(lines.heads.length < 2 ? [] : lines.heads.map(lined => {
      const item = document.createElement('span'), swatch = document.createElement('i');
      swatch.style.background = lined.colour;
      item.append(swatch, lined.title || 'this head');
      return item;
    })));
    lines.draw();
    if (!this.revealed) lines.reveal();
    this.revealed = true;
  }
}
