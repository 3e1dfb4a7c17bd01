// The panel "why this weight": the steps of the selected weight, with the elements of its vectors as strips.

import {named, one, shortened} from './dom.mjs';
import {colour, device, em, kFont, sized} from './pen.mjs';
import {Scale, paletteOf, written} from './scale.mjs';
import {hideTip, showTip} from './tip.mjs';
import {agrees, stepsOf, weightLetter, writtenSteps} from './why.mjs';

/** @typedef {import('./why.mjs').Steps} Steps */
/** @typedef {import('./why.mjs').Part} Part */
/** A row of a strip; grey bars may be behind its bars. @typedef {{name: string, values: ArrayLike<number>, reach: number, behind?: {name: string, values: number[]}}} StripRow */

const kCell = 15, kBars = 40, kLeastProduct = 1.5, kRowGap = 3, kNames = 40;

/** NaN is larger than all numbers. @param {number} value */
const magnitude = value => Number.isNaN(value) ? Infinity : Math.abs(value);

/** The largest magnitude. @param {ArrayLike<number>[]} lists */
function reachOf(...lists) {
  let reach = 0;
  for (const list of lists) for (let d = 0; d < list.length; ++d) if (Math.abs(list[d]) > reach) reach = Math.abs(list[d]);
  return reach || 1;
}

/** "q₄". @param {string} letter @param {number} d */
const elementOf = (letter, d) => letter + String(d).replace(/\d/g, digit => '₀₁₂₃₄₅₆₇₈₉'[Number(digit)]);

/** Draws "q_d" with a small d. @param {CanvasRenderingContext2D} context @param {string} name @param {number} y of its middle @param {number} unit @param {number} x */
function drawName(context, name, y, unit, x = 0) {
  name.split(/_(.)/).forEach((part, k) => {
    context.font = `${(k % 2 ? 9 : 12) * unit}px ${kFont}`;
    context.fillText(part, x, k % 2 ? y + 3 * unit : y);
    x += context.measureText(part).width;
  });
}

/** With a true minus sign. @param {string} digits */
const signed = digits => digits.replace(/-/g, '−').replace('inf', '∞');

/** The elements of some vectors below each other; those of a product are bars. */
class Strip {
  /** @param {(d: number | null, pointer: MouseEvent | null, isClick: boolean) => void} choose a dimension, or leave the strip */
  constructor(choose) {
    this.canvas = document.createElement('canvas');
    this.canvas.className = 'strip';
    this.canvas.setAttribute('aria-hidden', 'true');  // the line below says the same
    this.line = document.createElement('p');
    this.line.className = 'elements';
    /** @type {StripRow[]} */
    this.rows = [];
    this.canvas.addEventListener('pointermove', event => choose(this.at(event), event, false));
    this.canvas.addEventListener('click', event => choose(this.at(event), event, true));
    this.canvas.addEventListener('pointerleave', () => choose(null, null, false));
  }

  get count() { return this.rows[0]?.values.length ?? 0; }
  get left() { return kNames * em(); }

  /** @param {MouseEvent} event */
  at(event) {
    const box = this.canvas.getBoundingClientRect(), share = (event.clientX - box.left - this.left) / (box.width - this.left);
    return Math.max(0, Math.min(this.count - 1, Math.floor(share * this.count)));
  }

  /** @param {number} width @param {number} d the selected dimension @param {Uint32Array} palette */
  draw(width, d, palette) {
    const unit = em(), {left, count} = this, wide = (width - left) / Math.max(count, 1);
    const heights = this.rows.map((_, r) => (r === this.rows.length - 1 ? kBars : kCell) * unit);
    const context = sized(this.canvas, width, heights.reduce((sum, height) => sum + height + kRowGap, 3), false);
    context.textBaseline = 'middle';
    const each = Math.max(wide - (wide > 5 ? 1 : 0), .5);
    let top = 2;
    this.rows.forEach(({name, values, reach, behind}, r) => {
      const height = heights[r], scale = new Scale([-reach, reach], true, 'linear', palette, 1);
      context.fillStyle = colour('--soft');
      drawName(context, name, top + height / (behind ? 4 : 2), unit);
      if (behind) {
        drawName(context, behind.name, top + height * 3 / 4, unit, 12 * unit);
        context.fillStyle = colour('--frame');
        context.fillRect(0, top + height * 3 / 4 - 4 * unit, 8 * unit, 8 * unit);
      }
      const bar = (/** @type {number} */ at, /** @type {number} */ value, /** @type {number} */ share, /** @type {string} */ fill) => {
        const tall = value === 0 ? 0 : Math.max(kLeastProduct, Math.min(1, Math.abs(value) / reach) * height / 2);  // beyond the line at 0
        context.fillStyle = fill;
        context.fillRect(left + at * wide + each * (1 - share) / 2, value < 0 ? top + height / 2 : top + height / 2 - tall, each * share, tall);
      };
      const isBars = r === this.rows.length - 1;
      if (isBars) {
        context.fillStyle = colour('--raised');
        context.fillRect(left, top, width - left, height);
      }
      for (let at = 0; at < count; ++at) {
        const value = values[at];
        if (behind) bar(at, behind.values[at], 1, colour('--frame'));
        if (isBars) {
          bar(at, value, behind ? .6 : 1, `rgb(${scale.rgb(value < 0 ? -reach * .75 : reach * .75)})`);
        } else {
          context.fillStyle = `rgb(${scale.rgb(value)})`;
          context.fillRect(left + at * wide, top, each, height);
        }
      }
      if (isBars) {
        context.fillStyle = colour('--line');
        context.fillRect(left, top + height / 2 - .5, width - left, 1);
      }
      top += height + kRowGap;
    });
    if (device.print) return;
    context.strokeStyle = colour('--mark');
    context.lineWidth = 2;
    context.strokeRect(left + d * wide - 1, 1, Math.max(each, 2) + 2, top - kRowGap + 1);
  }
}

export class WhyPanel {
  /**
   * @param {HTMLElement} box
   * @param {import('./data.mjs').Data} data
   * @param {import('./state.mjs').State} state
   */
  constructor(box, data, state) {
    this.box = box;
    this.data = data;
    this.state = state;
    this.palettes = [paletteOf(data.facts.maps.diverging), paletteOf(data.facts.maps.divergingNight)];
    /** The selected step, and dimension in each strip; null: that of the largest product. */
    this.current = 0;
    /** @type {{score: number | null, context: number | null}} */
    this.chosen = {score: null, context: null};
    this.head = state.head;
    /** The dimension that is pointed at. @type {{score: number | null, context: number | null}} */
    this.pointed = {score: null, context: null};
    this.strips = {score: new Strip((d, event, isClick) => this.point('score', d, event, isClick)),
                   context: new Strip((d, event, isClick) => this.point('context', d, event, isClick))};
    /** @type {Steps | null} */
    this.steps = null;
    this.run = 0;
  }

  /**
   * @param {import('./data.mjs').Matrix | import('./data.mjs').Difference} values of the head
   * @param {string} title of the head
   */
  async draw(values, title) {
    const {facts} = this.data, {why} = facts, {head, row, column} = this.state, run = ++this.run;
    if (head !== this.head) Object.assign(this, {head, chosen: {score: null, context: null}});
    if (!why || typeof why === 'string') {
      this.steps = null;
      this.box.replaceChildren(this.paragraph([why ?? '']));
      return;
    }
    const vectors = await this.data.vectors(head), hidingKey = await this.data.hidingKey(head, row, column);
    if (run !== this.run) return;
    const steps = this.steps = stepsOf(why, vectors, head, row, column, (i, j) => values.value(i, j) === null, facts.hidden[0]);
    const heading = document.createElement('h3');
    heading.textContent = [`${one(facts.rowAxis)} ${named(facts.rows, row)} → ${one(facts.columnAxis)} ${named(facts.columns, column)}`, title].filter(Boolean).join(', ');
    const all = writtenSteps(why, steps, head, row, column, hidingKey);
    this.current = Math.min(this.current, all.length - 1);
    this.strips.score.rows = [{name: 'q', values: steps.q, reach: reachOf(steps.q)}, {name: 'k', values: steps.k, reach: reachOf(steps.k)},
                              {name: 'q_d k_d', values: steps.products, reach: reachOf(steps.products)}];
    this.strips.context.rows = [{name: 'v', values: steps.v, reach: reachOf(steps.v)},
                                {name: `${weightLetter(why)} v_d`, values: steps.contribution, reach: reachOf(steps.contribution, steps.context), behind: {name: 'c_d', values: steps.context}}];
    const boxes = all.map(({name, words, formulas, strips}, k) => {
      const box = document.createElement('div'), title = document.createElement('h4');
      box.className = 'step';
      box.dataset.step = String(k);
      title.textContent = `${k + 1}. ${name}`;
      box.append(title, ...words ? [this.paragraph([words])] : [],
                 ...strips ? [this.strips[strips].canvas, this.strips[strips].line] : [], ...formulas.map(parts => this.paragraph(parts, 'formula')));
      if (/Softmax|Weights/.test(name)) box.append(...this.inResult(values));
      return box;
    });
    const {scrollTop} = this.box;
    this.box.replaceChildren(heading, ...boxes);
    this.box.scrollTop = scrollTop;
    this.mark();
    this.drawStrips();
  }

  drawStrips() {
    this.drawStrip('score');
    this.drawStrip('context');
  }

  /** The weight of the result, if it differs from the computed one. @param {import('./data.mjs').Matrix | import('./data.mjs').Difference} values */
  inResult(values) {
    const {row, column} = this.state, stored = values.value(row, column), {steps} = this, why = /** @type {import('./why.mjs').Why} */ (this.data.facts.why);
    if (stored === null || !steps || steps.weight === null) return [];
    if (!agrees(why, steps, stored, values.error(row)))
      return [this.paragraph(['The result has another weight, ', stored, ', so it was computed otherwise.'], 'warning')];
    const differs = shortened(String(stored)) !== shortened(String(steps.weight));
    return differs && values.error(row) === 0 ? [this.paragraph(['The result, which has numbers of fewer bits, has ', stored])] : [];
  }

  /** @param {Part[]} parts @param {string} kind */
  paragraph(parts, kind = '') {
    const box = document.createElement('p');
    box.className = kind;
    box.append(...parts.map(part => this.node(part)));
    return box;
  }

  /** @param {Part} part @returns {Node | string} */
  node(part) {
    if (typeof part === 'string') return part;
    const box = document.createElement(typeof part === 'number' ? 'span' : 'power' in part ? 'sup' : 'sub');
    if (typeof part === 'number') {
      const digits = this.digits(part);
      box.textContent = signed(shortened(digits));
      box.title = digits;
    } else if ('power' in part) {
      box.append(...part.power.map(one => this.node(one)));
    } else {
      box.textContent = part.index;
    }
    return box;
  }

  /** All digits. @param {number} value */
  digits(value) {
    const why = /** @type {import('./why.mjs').Why} */ (this.data.facts.why);
    return written(value, 0, why.bits === 32 && Math.fround(value) === value, '');
  }

  /** The selected dimension. @param {'score' | 'context'} which */
  dimension(which) {
    const {rows} = this.strips[which], values = Array.from(rows[rows.length - 1].values, magnitude), chosen = this.pointed[which] ?? this.chosen[which];
    return chosen === null ? Math.max(0, values.indexOf(Math.max(...values))) : Math.max(0, Math.min(values.length - 1, chosen));
  }

  /** What the elements of a dimension are. @param {'score' | 'context'} which @returns {[string, number][]} */
  elements(which) {
    const d = this.dimension(which), steps = /** @type {Steps} */ (this.steps);
    return which === 'score'
        ? [[elementOf('q', d), steps.q[d]], [elementOf('k', d), steps.k[d]], [`${elementOf('q', d)} ${elementOf('k', d)}`, steps.products[d]],
           ['sum up to this element', steps.products.slice(0, d + 1).reduce((sum, product) => sum + product, 0)]]
        : [[elementOf('v', d), steps.v[d]], [`${weightLetter(/** @type {import('./why.mjs').Why} */ (this.data.facts.why))} ${elementOf('v', d)}`, steps.contribution[d]], [elementOf('c', d), steps.context[d]]];
  }
  /** "element 4 of 0–7" @param {'score' | 'context'} which */
  place(which) { return `element ${this.dimension(which)} of 0–${this.strips[which].count - 1}`; }

  /** The place of a product among all by magnitude. @param {number} d */
  rank(d) {
    const {products} = /** @type {Steps} */ (this.steps), size = magnitude(products[d]);
    const place = 1 + products.filter(product => magnitude(product) > size).length;
    return `${place === 1 ? 'the largest' : `number ${place}`} by magnitude of ${products.length} products`;
  }

  /** @param {'score' | 'context'} which */
  drawStrip(which) {
    const strip = this.strips[which];
    if (!strip.canvas.isConnected || !this.steps) return;
    const d = this.dimension(which);
    strip.draw(Math.max(160, Math.floor(strip.line.getBoundingClientRect().width)), d, this.palettes[this.state.dark ? 1 : 0]);
    strip.line.replaceChildren(`${this.place(which)}: `, ...this.elements(which).flatMap(([name, value], k) => [k > 0 ? ', ' : '', `${name} = `, this.node(value)]),
                               which === 'score' ? `, ${this.rank(d)}` : '');
  }

  /** Shows a dimension, or selects it; null: nowhere. @param {'score' | 'context'} which @param {number | null} d @param {MouseEvent | null} event @param {boolean} isClick */
  point(which, d, event, isClick) {
    this.pointed[which] = d;
    if (isClick) this.chosen[which] = d;
    this.drawStrip(which);
    if (d === null || !event) return hideTip();
    showTip([this.place(which), ...this.elements(which).map(([name, value]) => `${name} = ${this.digits(value)}`)].join('\n'), event, true);
  }

  mark() {
    for (const box of this.box.querySelectorAll('.step')) {
      const isCurrent = /** @type {HTMLElement} */ (box).dataset.step === String(this.current);
      if (isCurrent) box.setAttribute('aria-current', 'step');
      else box.removeAttribute('aria-current');
    }
  }

  /** Selects the step so many below; returns its words. @param {number} by */
  step(by) {
    const boxes = [...this.box.querySelectorAll('.step')];
    this.current = Math.max(0, Math.min(boxes.length - 1, this.current + by));
    this.mark();
    boxes[this.current]?.scrollIntoView({block: 'nearest'});
    return boxes[this.current]?.textContent ?? this.box.textContent ?? '';
  }

  /** Moves along the strip of the selected step, or of the scores; returns its elements. @param {number} by */
  move(by) {
    if (!this.steps) return '';
    const box = this.box.querySelector('[aria-current]'), which = box?.contains(this.strips.context.line) ? 'context' : 'score';
    this.chosen[which] = this.dimension(which) + by;
    this.pointed[which] = null;
    this.chosen[which] = this.dimension(which);
    this.drawStrip(which);
    return this.strips[which].line.textContent ?? '';
  }
}
