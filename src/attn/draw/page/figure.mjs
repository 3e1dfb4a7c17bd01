// A head as a matrix with its tokens, or as bars if it has one query, and the colour bar.

import {levelFor} from './codes.mjs';
import {arrow, cellMarks, colour, contextOf, cutTo, device, em, isStacked, kFont, ring, sized, stepFor, targetOf, widest} from './pen.mjs';
import {drawBars} from './bars.mjs';
import {Camera} from './camera.mjs';
import {placeIn} from './dom.mjs';
import {brief, inkOn} from './scale.mjs';
import {CanvasPainter} from './paint.mjs';

/** @typedef {import('./data.mjs').Data} Data */
/** @typedef {import('./data.mjs').Head} Head */
/** @typedef {import('./scale.mjs').Scale} Scale */

/** Of labels and numbers. */
const labelSize = () => 12 * em();
const kMostBar = 320;
const kRing = 4;  // pixels of a ring outside of its cell
const kLeastNumber = 8;  // a font of 6 points in print
const kArrow = 10;
const kLeastRinged = 6 * kRing;  // a ring covers the gaps beside a narrower bar, and its neighbours
const kLeastShare = .001;  // of the colour scale; smaller numbers are less dark

export class Figure {
  /**
   * @param {HTMLElement} parent
   * @param {Data} data
   * @param {import('./state.mjs').State} state
   * @param {number} set
   * @param {string} caption
   */
  constructor(parent, data, state, set, caption) {
    this.data = data;
    this.state = state;
    this.set = set;
    this.camera = new Camera();
    this.isBars = data.facts.rows.length === 1;
    const figure = this.figure = document.createElement('figure');
    const text = document.createElement('figcaption');
    this.box = document.createElement('div');
    this.box.className = 'matrix';
    this.base = document.createElement('canvas');
    this.over = document.createElement('canvas');
    this.over.className = 'over';
    this.bar = document.createElement('canvas');
    this.box.append(this.base, this.over);
    const head = document.createElement('div');
    head.className = 'caption';
    head.append(text, this.bar);
    figure.append(head, this.box);
    parent.append(figure);
    /** @type {Head} */
    this.head = {levels: [], matrix: null};
    this.left = this.top = 0;
    this.text = text;
    this.title = caption;
    this.name(caption, '');
    /** @type {Scale | null} */
    this.scale = null;
  }

  get caption() { return this.text.textContent ?? ''; }
  /** @param {string} title @param {string} legend what patterns of cells mean */
  name(title, legend) {
    this.title = title;
    this.text.textContent = [title, legend].filter(Boolean).join(' · ');
  }

  /** Space for labels, and the camera's space. */
  layout() {
    const stacked = isStacked();
    if (stacked) this.box.style.height = '';
    const {facts} = this.data, width = this.box.clientWidth, height = this.box.clientHeight;
    const side = this.isBars ? ['≤ 0.0001'] : facts.rows;
    this.left = Math.ceil(this.labelWidth(side, Math.min(110 * em(), width * .24)) + 10);
    this.top = Math.ceil(this.labelWidth(facts.columns, Math.min(100 * em(), height * .22)) + 10);
    const tall = height - this.top - this.below;
    this.camera.resize(facts.columns.length, facts.rows.length, width - this.left - kRing, this.isBars ? Math.min(tall, kMostBar) : tall);
    if (this.isBars) this.camera.base.y = this.camera.height;
    if (stacked) this.box.style.height = `${this.neededHeight}px`;
  }
  /** Of the box, without zoom. */
  get neededHeight() { return Math.ceil(this.top + this.camera.rows * this.camera.base.y) + this.below; }
  /** The space for the mark of the selection below the cells. */
  get below() { return this.isBars ? kArrow : kRing; }

  /** @param {string[]} labels @param {number} most */
  labelWidth(labels, most) { return widest(labels, most, labelSize()); }

  /**
   * @param {import('./gl.mjs').GlPainter | CanvasPainter} painter
   * @param {Scale} scale
   * @param {(label: string) => boolean} marked
   */
  draw(painter, scale, marked) {
    this.scale = scale;
    const {camera, left, top} = this;
    const context = sized(this.base, this.box.clientWidth, this.box.clientHeight);
    const {view} = camera, width = camera.shownWidth, height = camera.shownHeight;
    const target = targetOf(left, top, width, height);
    const marks = cellMarks();
    if (this.isBars) {
      drawBars(context, this, scale, this.state.dark);
    } else if (this.head.levels.length > 0) {
      const level = levelFor(this.head.levels, view.height / target.height, view.width / target.width);
      try {
        painter.paint(context, level, view, target, scale, marks);
      } catch (error) {  // a lost context, or too large a texture
        new CanvasPainter().paint(context, level, view, target, scale, marks);
      }
    }
    context.strokeStyle = colour('--line');
    context.strokeRect(left - .5, top - .5, width + 1, height + 1);
    if (!this.isBars) this.drawNumbers(context, scale);
    this.drawLabels(context, marked);
    this.bar.hidden = this.isBars;
    if (!this.isBars) this.drawBar(scale);
  }

  /** Rows or columns in view, as [first, end). */
  get shown() {
    const {view, rows, columns} = this.camera;
    return {rows: [Math.floor(view.y), Math.min(rows, Math.ceil(view.y + view.height))],
            columns: [Math.floor(view.x), Math.min(columns, Math.ceil(view.x + view.width))]};
  }
  /** The centre of a row or column on the canvas. @param {number} row */
  yOf(row) { return this.top + (row + .5 - this.camera.y) * this.camera.scaleY; }
  /** @param {number} column */
  xOf(column) { return this.left + (column + .5 - this.camera.x) * this.camera.scaleX; }

  /** Writes values into cells that are large enough. @param {CanvasRenderingContext2D} context @param {Scale} scale */
  drawNumbers(context, scale) {
    const {camera, head} = this;
    if (!head.matrix || head.matrix.step > 1 || camera.scaleX < 38 * em() || camera.scaleY < 15 * em()) return;
    const {rows, columns} = this.shown;
    /** @type {{i: number, j: number, value: number, text: string}[]} */
    const numbers = [];
    for (let i = rows[0]; i < rows[1]; ++i)
      for (let j = columns[0]; j < columns[1]; ++j) {
        const value = head.matrix.value(i, j);
        if (value !== null && !Number.isNaN(value)) numbers.push({i, j, value, text: brief(value)});
      }
    const most = em() * Math.max(11, Math.min(16, Math.min(camera.scaleX, camera.scaleY) / 5));
    const wide = widest(numbers.map(({text}) => text), 1e3, most);
    // The ring of the selected cell is over its neighbours.
    const size = Math.min(most, most / wide * (camera.scaleX - 2 * kRing - 2));
    if (size < kLeastNumber) return;
    context.save();
    context.beginPath();
    context.rect(this.left, this.top, camera.shownWidth, camera.shownHeight);
    context.clip();
    context.font = `${size}px ${kFont}`;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    for (const {i, j, value, text} of numbers) {
      context.fillStyle = Math.abs(value) < kLeastShare * scale.high ? colour('--soft') : inkOn(scale.rgb(value));
      context.fillText(text, this.xOf(j), this.yOf(i));
    }
    context.restore();
  }

  /** Labels, and a bar beside each row and column whose label is searched. @param {CanvasRenderingContext2D} context @param {(label: string) => boolean} marked */
  drawLabels(context, marked) {
    const {camera, left, top} = this, {facts} = this.data, {rows, columns} = this.shown;
    const ink = colour('--ink'), mark = colour('--mark');
    context.textBaseline = 'middle';
    const size = (/** @type {number} */ scale) => Math.max(9, Math.min(labelSize(), scale / 1.12));
    const down = size(camera.scaleY), stepDown = stepFor(down * 1.12 / camera.scaleY);
    context.font = `${down}px ${kFont}`;
    context.textAlign = 'right';
    const inside = (/** @type {number} */ at, /** @type {number} */ from, /** @type {number} */ length) =>
        at >= from - 1 && at <= from + length + 1;
    if (this.isBars && this.scale) {
      context.fillStyle = ink;
      context.fillText(brief(this.scale.high), left - 5, top + down / 2);
      context.fillText(this.scale.middleText, left - 5, top + camera.shownHeight / 2);
      context.fillText(this.scale.lowText, left - 5, top + camera.shownHeight - down / 2);
    }
    for (let i = Math.ceil(rows[0] / stepDown) * stepDown; !this.isBars && i < rows[1]; i += stepDown) {
      if (!inside(this.yOf(i), top, camera.shownHeight)) continue;
      context.fillStyle = marked(facts.rows[i]) ? mark : ink;
      context.fillText(cutTo(context, facts.rows[i], left - 8), left - 5, this.yOf(i));
    }
    const across = size(camera.scaleX), stepAcross = stepFor(across * 1.12 / camera.scaleX);
    context.font = `${across}px ${kFont}`;
    const isFlat = camera.scaleX > 20 * em() && widest(facts.columns, camera.scaleX, across) < camera.scaleX - 6;
    context.textAlign = isFlat ? 'center' : 'left';
    for (let j = Math.ceil(columns[0] / stepAcross) * stepAcross; j < columns[1]; j += stepAcross) {
      if (!inside(this.xOf(j), left, camera.shownWidth)) continue;
      context.save();
      context.translate(this.xOf(j), top - 5);
      if (!isFlat) context.rotate(-Math.PI / 2);
      context.fillStyle = marked(facts.columns[j]) ? mark : ink;
      context.fillText(cutTo(context, facts.columns[j], isFlat ? camera.scaleX : top - 8), 0, isFlat ? -5 : 0);
      context.restore();
    }
    context.fillStyle = mark;
    const tall = Math.max(camera.scaleY, 1.5), wide = Math.max(camera.scaleX, 1.5);
    for (let i = rows[0]; i < rows[1]; ++i)
      if (marked(facts.rows[i])) context.fillRect(left - 4, this.yOf(i) - tall / 2, 3, tall);
    for (let j = columns[0]; j < columns[1]; ++j)
      if (marked(facts.columns[j])) context.fillRect(this.xOf(j) - wide / 2, top - 4, wide, 3);
  }

  /** The selected row as a band, the selected cell with a ring, a narrow bar above an arrow. Prints have one canvas. */
  drawFocus() {
    const {camera, left, top, state} = this;
    const context = device.print ? contextOf(this.base) : sized(this.over, this.box.clientWidth, this.box.clientHeight);
    context.save();
    context.beginPath();
    context.rect(left - kRing, top - kRing, camera.shownWidth + 2 * kRing, kRing + camera.shownHeight + this.below);
    context.clip();
    const tall = this.isBars ? camera.shownHeight : Math.max(camera.scaleY, 2), wide = Math.max(camera.scaleX, 2);
    const y = this.isBars ? top : this.yOf(state.row) - tall / 2, x = this.xOf(state.column) - wide / 2;
    const line = (/** @type {number} */ at, /** @type {string} */ style) => {
      context.strokeStyle = style;
      context.beginPath();
      context.moveTo(left, at);
      context.lineTo(left + camera.shownWidth, at);
      context.stroke();
    };
    if (!this.isBars && camera.scaleX * camera.columns > 3 * wide)
      for (const [at, out] of [[y, -.5], [y + tall, .5]]) {
        line(at + out, '#fff');
        line(at + 3 * out, '#000');
      }
    if (this.isBars && wide < kLeastRinged) arrow(context, this.xOf(state.column), top + tall, kArrow);
    else ring(context, x, y, wide, tall);
    context.restore();
  }

  /** The colour bar. @param {Scale} scale */
  drawBar(scale) {
    const width = Math.floor(Math.min(200 * em(), this.figure.clientWidth)), context = sized(this.bar, width, 14 + 15 * em(), false);
    for (let x = 0; x < width; ++x) {
      const colour = scale.palette[Math.round(255 * x / (width - 1))];
      context.fillStyle = `rgb(${colour & 255},${colour >> 8 & 255},${colour >> 16 & 255})`;
      context.fillRect(x, 0, 1 + 1 / device.ratio, 12);
    }
    context.strokeStyle = colour('--line');
    context.strokeRect(.5, .5, width - 1, 11);
    context.font = `${labelSize()}px ${kFont}`;
    context.fillStyle = colour('--ink');
    const marks = /** @type {[string, CanvasTextAlign, number][]} */ (
        [[scale.lowText, 'left', 0], [scale.middleText, 'center', .5], [brief(scale.high), 'right', 1]]);
    for (const [words, align, share] of marks) {
      context.textAlign = align;
      context.fillText(words, share * width, 12 + 13 * em());
    }
    this.bar.setAttribute('role', 'img');
    this.bar.setAttribute('aria-label', `colours from ${scale.lowText} to ${brief(scale.high)}`);
  }

  /** The row or column whose label is at a pointer's position. @param {PointerEvent | MouseEvent} event @returns {{row?: number, column?: number}} */
  labelAt(event) {
    const [left, top] = placeIn(this.box, event), x = left - this.left, y = top - this.top;
    if (x < 0 && !this.isBars) return {row: this.camera.at(0, y)?.row};
    return y < 0 ? {column: this.camera.at(x, 0)?.column} : {};
  }

  /** The cell at a pointer's position, or null. Only positions of moves have fractions. @param {PointerEvent | MouseEvent | WheelEvent} event */
  cellAt(event) {
    const box = this.box.getBoundingClientRect();
    return this.camera.at(Math.floor(event.clientX) - box.left - this.left, Math.floor(event.clientY) - box.top - this.top);
  }
}
