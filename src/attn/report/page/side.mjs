// Beside the matrix: lines from the selected query to its keys, or the tokens as text, shaded by weight.

import {Pauses} from './data.mjs';
import {colour, cutTo, em, headColour, kFont, sized} from './pen.mjs';
import {inkOn} from './scale.mjs';

/** @typedef {import('./data.mjs').Data} Data */
/** @typedef {import('./data.mjs').Matrix | import('./data.mjs').Difference} Values */
/** @typedef {import('./scale.mjs').Scale} Scale */
/** A head whose lines are drawn. @typedef {{values: Values, scale: Scale, colour: string, title: string}} Lined */

const lineHeight = () => 18 * em();
const kFaintLines = 64;  // queries, at most, whose lines are all drawn
const kLeastStrength = .004;

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
    /** @type {(label: string) => boolean} */
    this.marked = () => false;
    /** Tokens whose lines are drawn. @type {{query: (i: number) => boolean, key: (j: number) => boolean}} */
    this.inside = {query: () => true, key: () => true};
    scroll.addEventListener('scroll', () => requestAnimationFrame(() => this.draw()));
  }

  /** The height of all lines. */
  get allHeight() { return this.count * lineHeight() + 6; }
  get count() { return Math.max(this.data.facts.rows.length, this.data.facts.columns.length); }
  get side() { return Math.min(130 * em(), this.width * .34); }
  get width() { return Math.max(this.scroll.clientWidth, 120); }

  /** Draws what is in view. The token of a query outside of it is at the edge. @param {number} height for print */
  draw(height = 0) {
    const {facts} = this.data, {state, side, width} = this, line = lineHeight();
    const all = this.allHeight;
    this.tall.style.height = `${all}px`;
    const shown = height || Math.min(this.scroll.clientHeight, all);
    const from = Math.max(0, Math.min(this.scroll.scrollTop, all - shown));
    const context = sized(this.canvas, width, shown);
    const y = (/** @type {number} */ i) => (i + .5) * line + 3 - from;
    const queryY = (/** @type {number} */ i) => Math.max(line / 2, Math.min(shown - line / 2, y(i)));
    const first = Math.max(0, Math.floor(from / line) - 1), end = Math.ceil((from + shown) / line) + 1;
    const linesOf = (/** @type {Lined} */ head, /** @type {number} */ i, /** @type {number} */ alpha,
                     /** @type {number} */ start) => {
      for (let j = 0; j < facts.columns.length; ++j) {
        const value = this.inside.key(j) ? head.values.value(i, j) : null;
        if (value === null || Number.isNaN(value)) continue;
        const reach = Math.max(Math.abs(head.scale.low), Math.abs(head.scale.high));
        const strength = Math.min(1, Math.abs(value) / reach);
        if (strength < kLeastStrength || (j < first - 200 || j > end + 200) && strength < .05) continue;
        context.globalAlpha = alpha * (.25 + .75 * strength);
        context.lineWidth = Math.max(.5, 7.5 * strength);
        context.setLineDash(value < 0 ? [4, 3] : []);
        context.strokeStyle = head.colour;
        context.beginPath();
        context.moveTo(side, start);
        context.lineTo(width - side, y(j));
        context.stroke();
      }
    };
    if (this.heads.length > 0) {
      if (facts.rows.length <= kFaintLines && this.heads.length === 1)
        for (let i = 0; i < facts.rows.length; ++i) if (i !== state.row && this.inside.query(i)) linesOf(this.heads[0], i, .12, y(i));
      this.heads.forEach((head, k) =>
          linesOf(head, state.row, 1, queryY(state.row) + (k - (this.heads.length - 1) / 2) * 3));
    }
    context.globalAlpha = 1;
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
    for (let j = first; j < Math.min(end, facts.columns.length); ++j)
      word(facts.columns[j], width - side + 6, y(j), 'left', j === state.column);
  }

  /** Scrolls to the selected query, or to its strongest key if there is one query. */
  reveal() {
    const {state, scroll} = this, {rows, columns} = this.data.facts, line = lineHeight();
    const at = (rows.length * 4 < columns.length ? state.column : state.row) * line;
    if (at < scroll.scrollTop || at > scroll.scrollTop + scroll.clientHeight - 2 * line)
      scroll.scrollTop = at - scroll.clientHeight / 2;
  }

  /** The token at a click: {query: i} or {key: j}. @param {MouseEvent} event */
  at(event) {
    const box = this.canvas.getBoundingClientRect(), {facts} = this.data, line = lineHeight();
    const all = this.allHeight, from = Math.max(0, Math.min(this.scroll.scrollTop, all - box.height));
    const place = Math.floor((event.clientY - box.top - 3 + from) / line);
    if (event.clientX - box.left < box.width / 2)
      return place >= 0 && place < facts.rows.length ? {query: place} : {};
    return place >= 0 && place < facts.columns.length ? {key: place} : {};
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
   * @param {Values} values
   * @param {Scale} scale
   * @param {(label: string) => boolean} marked
   */
  async draw(values, scale, marked) {
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
        const value = toKey ? values.value(i, state.column) : values.value(state.row, i), token = this.tokens[i];
        const none = value === null || Number.isNaN(value), rgb = none ? [0, 0, 0] : scale.rgb(/** @type {number} */ (value));
        token.style.backgroundColor = none ? 'transparent' : `rgb(${rgb.join(',')})`;
        token.style.color = none ? '' : inkOn(rgb);
        token.classList.toggle('focus', i === (toKey ? state.row : state.column));
        token.classList.toggle('from', same && i === (toKey ? state.column : state.row));
        token.classList.toggle('found', marked(labels[i]));
      }
      await pauses.pause();
      if (run !== this.run) return;
    }
  }

  /** The token at an event, or null. @param {Event} event */
  at(event) {
    const token = event.target instanceof HTMLElement ? event.target.dataset.token : undefined;
    return token === undefined ? null : Number(token);
  }
}
