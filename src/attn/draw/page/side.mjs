// Beside the matrix: lines from the selected query to its keys, or the tokens as text, shaded by weight.

import {blockLabels, endsOf, rowOf, within} from './cells.mjs';
import {colour, cutTo, em, headColour, hexColour, kFont, sized, tint} from './pen.mjs';
import {inkOn} from './scale.mjs';
import {strongest} from './strongest.mjs';
import {Pauses} from './tasks.mjs';

/** @typedef {import('./data.mjs').Data} Data */
/** @typedef {import('./data.mjs').Matrix | import('./data.mjs').Difference} Values */
/** @typedef {import('./scale.mjs').Scale} Scale */
/** @typedef {import('./cells.mjs').Cells} Cells */
/** A head whose lines are drawn, with its selected row. @typedef {{values: Values, row: Cells, scale: Scale, hue: number, title: string}} Lined */

const lineHeight = () => 18 * em();
const kAboveLines = 3;  // pixels above the first line and below the last one
const kFaintLines = 64;  // queries, at most, whose lines are all drawn
const kLeastStrength = .004;
const kBehind = .18;  // strength of the colour of lines that are not singled out
const kListedKeys = 64;  // at most, one below the other; more are points of an axis, and the strongest have labels
const kLabelled = 10, kConnector = 14;

/** A label beside the axis: its first key, where on the axis it is, and its height. @typedef {{key: number, name: string, place: number, isSelected: boolean, at: number}} Label */

/** A line; `share` is that of its colour on the ground. @typedef {{start: number, end: number, width: number, isDashed: boolean, colour: string, isFront: boolean, share: number}} Stroke */

/** The place of a block among the keys. @param {Cells} cells @param {number} block */
function middleOf(cells, block) {
  const [first, last] = endsOf(cells, block);
  return (first + last) / 2;
}

export class Lines {
  /**
   * @param {HTMLElement} scroll
   * @param {HTMLElement} tall
   * @param {HTMLCanvasElement} canvas
   * @param {Data} data
   * @param {import('./state.mjs').State} state
   */
  constructor(scroll, tall, canvas, data, state) {
    this.scroll = scroll;
    this.tall = tall;
    this.canvas = canvas;
    this.data = data;
    this.state = state;
    /** @type {Lined[]} */
    this.heads = [];
    /** Of keys on an axis. @type {Label[]} */
    this.labels = [];
    /** The lines, in the order in which they are drawn. @type {Stroke[]} */
    this.strokes = [];
    /** Which tokens a sheet has, if not all. */
    this.part = '';
    /** Whether the lines of the selected key are singled out, instead of those of the query. */
    this.toKey = false;
    /** @type {(label: string) => boolean} */
    this.marked = () => false;
    /** Tokens whose lines are drawn. @type {{query: (i: number) => boolean, key: (j: number) => boolean}} */
    this.inside = {query: () => true, key: () => true};
    scroll.addEventListener('scroll', () => requestAnimationFrame(() => this.draw()));
  }

  /** The height of all lines. */
  get allHeight() { return this.count * lineHeight() + 2 * kAboveLines; }
  get count() {
    const {rows, columns} = this.data.facts;
    return this.isAxis ? rows.length : Math.max(rows.length, columns.length);
  }
  /** Whether the keys are points of an axis, because there are too many for one line each. */
  get isAxis() { return this.data.facts.columns.length > kListedKeys; }
  /** Whose lines are pale; '' if none are. */
  get pale() {
    const {rows, rowAxis, columnAxis} = this.data.facts;
    return this.isAxis ? `weaker ${columnAxis}` : rows.length > 1 && rows.length <= kFaintLines ? `other ${rowAxis}` : '';
  }
  get side() { return Math.min(130 * em(), this.width * .34); }
  get width() { return Math.max(this.scroll.clientWidth, 120); }

  /** Draws what is in view. The token of a query outside of it is at the edge. @param {number} height for print */
  draw(height = 0) {
    const {facts} = this.data, {state, side, width, isAxis} = this, line = lineHeight();
    const all = this.allHeight;
    this.tall.style.height = `${all}px`;
    if (height) height = kAboveLines + Math.floor((height - kAboveLines) / line) * line;  // whole labels
    const shown = Math.max(height || Math.min(this.scroll.clientHeight, all), this.isAxis ? Math.min((kLabelled + 1) * line, this.scroll.clientHeight) : 0);
    const start = Math.max(0, Math.min(height ? (state.row + .5) * line - shown / 2 : this.scroll.scrollTop, all - shown));
    const from = height ? Math.floor(start / line) * line : start;
    const last = Math.min(this.count, Math.round((from + shown - kAboveLines) / line)) - 1;
    this.part = height && last + 1 - from / line < this.count ? `${isAxis ? facts.rowAxis : 'tokens'} ${from / line} to ${last} of ${this.count}` : '';
    const context = sized(this.canvas, width, shown, false);
    const y = (/** @type {number} */ i) => (i + .5) * line + kAboveLines - from;
    const queryY = (/** @type {number} */ i) => Math.max(line / 2, Math.min(shown - line / 2, y(i)));
    const keyCount = facts.columns.length;
    const keyY = (/** @type {number} */ j) => isAxis ? (j + .5) / keyCount * shown : y(j);
    const first = Math.max(0, Math.floor(from / line) - 1), end = Math.ceil((from + shown) / line) + 1;
    const [listedFrom, listedTo] = isAxis ? [0, keyCount] : [first - 200, end + 200];
    const right = width - side - (isAxis ? kConnector : 0);
    const labels = this.labels = isAxis ? this.labelsOf(keyY, shown) : [], labelled = new Set(labels.map(({place}) => place));
    const isWhole = !isAxis && facts.rows.length <= kFaintLines && this.heads.length === 1;
    const toKey = this.toKey && isWhole, strokes = /** @type {Stroke[]} */ (this.strokes = []);
    const addLines = (/** @type {Lined} */ head, /** @type {Cells} */ row, /** @type {number} */ query, /** @type {number} */ start, shift = 0) => {
      const cells = within(row, this.inside.key), values = Array.from({length: cells.count}, (_, block) => cells.value(block));
      const reach = isAxis ? values.reduce((/** @type {number} */ most, value) => Math.max(most, Math.abs(value ?? 0) || 0), 0) || 1
                           : Math.max(Math.abs(head.scale.low), Math.abs(head.scale.high));
      const selected = Math.floor(state.column / cells.step);
      values.forEach((value, block) => {
        if (value === null || Number.isNaN(value)) return;
        const j = middleOf(cells, block), isLabelled = labelled.has(j);
        const strength = Math.min(1, Math.abs(value) / reach);
        const least = !isAxis ? kLeastStrength : isLabelled ? 1e-9 : .1;
        if (strength < least || (j < listedFrom || j > listedTo) && strength < .05) return;
        const isFront = isAxis ? isLabelled : toKey ? block === selected : query === state.row;
        strokes.push({start: start + shift, end: keyY(j) + shift, width: Math.max(.5, 7.5 * strength), isDashed: value < 0, colour: headColour(head.hue, state.dark), isFront,
                      share: isFront ? .4 + .6 * strength : kBehind * (.25 + .75 * strength)});
      });
    };
    if (isWhole)
      for (let i = 0; i < facts.rows.length; ++i) if (i !== state.row && this.inside.query(i)) addLines(this.heads[0], rowOf(this.heads[0].values, i, keyCount), i, y(i));
    this.heads.forEach((head, k) =>
        addLines(head, head.row, state.row, queryY(state.row), (k - (this.heads.length - 1) / 2) * 3));  // beside each other
    strokes.sort((a, b) => Number(a.isFront) - Number(b.isFront) || a.share - b.share);
    const ground = hexColour('--ground');
    for (const {start, end, width, isDashed, colour, share} of strokes) {
      context.lineWidth = width;
      context.setLineDash(isDashed ? [4, 3] : []);
      context.strokeStyle = tint(colour, ground, share);
      context.beginPath();
      context.moveTo(side, start);
      context.lineTo(right, end);
      context.stroke();
    }
    context.setLineDash([]);
    context.textBaseline = 'middle';
    const word = (/** @type {string} */ text, /** @type {number} */ x, /** @type {number} */ at,
                  /** @type {CanvasTextAlign} */ align, /** @type {boolean} */ selected) => {
      context.textAlign = align;
      context.font = `${selected ? 'bold ' : ''}${12 * em()}px ${kFont}`;
      context.fillStyle = colour(selected || this.marked(text) ? '--mark' : '--ink');
      context.fillText(cutTo(context, text, side - 8), x, at);
    };
    for (let i = first; i < Math.min(end, facts.rows.length); ++i)
      if (i !== state.row && Math.abs(y(i) - queryY(state.row)) >= line * .8) word(facts.rows[i], side - 6, y(i), 'right', false);
    word(facts.rows[state.row], side - 6, queryY(state.row), 'right', true);
    if (isAxis) {
      context.strokeStyle = colour('--line');
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(right + .5, 0);
      context.lineTo(right + .5, shown);
      for (const {place, at} of labels) {
        context.moveTo(right, keyY(place));
        context.lineTo(width - side + 3, at);
      }
      context.stroke();
      for (const {name, at, isSelected} of labels) word(name, width - side + 6, at, 'left', isSelected);
      return;
    }
    for (let j = first; j < Math.min(end, keyCount); ++j)
      word(facts.columns[j], width - side + 6, y(j), 'left', j === state.column);
  }

  /**
   * Where the strongest keys of the selected query, and the selected key, have their labels: next to their places on the
   * axis, one below the other.
   * @param {(key: number) => number} keyY
   * @param {number} shown height
   * @returns {Label[]}
   */
  labelsOf(keyY, shown) {
    const {state, heads: [head]} = this, line = lineHeight();
    if (!head) return [];
    const most = Math.max(1, Math.min(kLabelled, Math.floor(shown / line)));
    const cells = within(head.row, this.inside.key), names = blockLabels(this.data.facts.columns, cells.step);
    const selected = Math.floor(state.column / cells.step);
    const listed = strongest(cells.count, cells.value, most, cells.error).map(({index}) => index).filter(index => index !== selected);
    const blocks = [selected, ...listed.slice(0, Math.max(1, Math.floor(shown / line)) - 1)].sort((a, b) => a - b);
    const labels = blocks.map(block => {
      const place = middleOf(cells, block);
      return {key: endsOf(cells, block)[0], name: names[block], place, isSelected: block === selected, at: Math.max(line / 2, keyY(place))};
    });
    labels.forEach((label, k) => { if (k > 0) label.at = Math.max(label.at, labels[k - 1].at + line); });
    for (let k = labels.length - 1, end = shown - line / 2; k >= 0; --k, end -= line) labels[k].at = Math.min(labels[k].at, end);
    return labels;
  }

  /** Scrolls to the selected query, or to its strongest key if there is one query. */
  reveal() {
    const {state, scroll} = this, {rows, columns} = this.data.facts, line = lineHeight();
    const at = (!this.isAxis && rows.length * 4 < columns.length ? state.column : state.row) * line;
    if (at < scroll.scrollTop || at > scroll.scrollTop + scroll.clientHeight - 2 * line)
      scroll.scrollTop = at - scroll.clientHeight / 2;
  }

  /** The token at a click: {query: i} or {key: j}. @param {MouseEvent} event @returns {{query?: number, key?: number}} */
  at(event) {
    const box = this.canvas.getBoundingClientRect(), {facts} = this.data, line = lineHeight();
    const all = this.allHeight, from = Math.max(0, Math.min(this.scroll.scrollTop, all - box.height));
    const place = Math.floor((event.clientY - box.top - 3 + from) / line);
    if (event.clientX - box.left < box.width / 2)
      return place >= 0 && place < facts.rows.length ? {query: place} : {};
    if (this.isAxis) return this.keyAt(event.clientX - box.left, event.clientY - box.top, box.height);
    return place >= 0 && place < facts.columns.length ? {key: place} : {};
  }

  /** The key of a label, or of a place on the axis. @param {number} x @param {number} y @param {number} height */
  keyAt(x, y, height) {
    const {columns} = this.data.facts;
    const label = x < this.width - this.side ? undefined : this.labels.find(({at}) => Math.abs(at - y) < lineHeight() / 2);
    if (x >= this.width - this.side) return label ? {key: label.key} : {};
    return {key: Math.max(0, Math.min(columns.length - 1, Math.floor(y / height * columns.length)))};
  }
}

const kTextChunk = 400;  // tokens made or coloured at once

export class TokenText {
  /**
   * @param {HTMLElement} box
   * @param {Data} data
   * @param {import('./state.mjs').State} state
   */
  constructor(box, data, state) {
    this.box = box;
    this.data = data;
    this.state = state;
    /** @type {HTMLElement[]} */
    this.tokens = [];
    /** @type {string[] | null} */
    this.labels = null;
    this.run = 0;
  }

  /**
   * Shades the keys by the weights of the selected query, or the queries by their weights of the
   * selected key, which is marked if it is among them.
   * @param {Cells} cells
   * @param {Scale} scale
   * @param {(label: string) => boolean} marked
   * @param {(token: number) => boolean} inside whether a token is shaded
   */
  async draw(cells, scale, marked, inside) {
    const run = ++this.run, {facts} = this.data, {state} = this, toKey = state.side === 'keys';
    const labels = toKey ? facts.rows : facts.columns, pauses = new Pauses();
    const same = facts.rows.length === facts.columns.length;  // queries and keys are the same tokens
    if (this.labels !== labels) {
      this.labels = labels;
      this.tokens = [];
      this.box.replaceChildren();
    }
    for (let from = 0; from < labels.length; from += kTextChunk) {
      const end = Math.min(from + kTextChunk, labels.length);
      if (this.tokens.length <= from) {
        const part = document.createElement('p');
        for (let i = from; i < end; ++i) {
          const token = document.createElement('span');
          token.textContent = labels[i];
          token.dataset.token = String(i);
          this.tokens.push(token);
          part.append(token, ' ');
        }
        this.box.append(part);
      }
      for (let i = from; i < end; ++i) {
        const value = cells.value(Math.floor(i / cells.step)), token = this.tokens[i];
        const none = value === null || Number.isNaN(value) || !inside(i), rgb = none ? [0, 0, 0] : scale.rgb(/** @type {number} */ (value));
        token.style.backgroundColor = none ? 'transparent' : `rgb(${rgb.join(',')})`;
        token.style.color = none ? 'var(--soft)' : inkOn(rgb);
        token.classList.toggle('focus', i === (toKey ? state.row : state.column));
        token.classList.toggle('from', same && i === (toKey ? state.column : state.row));
        token.classList.toggle('found', marked(labels[i]));
      }
      await pauses.pause();
      if (run !== this.run) return;
    }
  }

  /** Scrolls to the selected token. @param {HTMLElement} scroll */
  reveal(scroll) {
    const token = this.tokens[this.state.side === 'keys' ? this.state.row : this.state.column];
    if (!token) return;
    const {top, bottom} = token.getBoundingClientRect(), view = scroll.getBoundingClientRect();
    if (top < view.top || bottom > view.bottom) scroll.scrollTop += top - view.top - view.height / 2;
  }

  /** The token at an event, or null. @param {Event} event */
  at(event) {
    const token = event.target instanceof HTMLElement ? event.target.dataset.token : undefined;
    return token === undefined ? null : Number(token);
  }
}
