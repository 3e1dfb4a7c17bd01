// The overview: all heads as small pictures, layers down and heads across, or in the order of a
// statistic.

import {Camera} from './camera.mjs';
import {levelFor} from './codes.mjs';
import {matrixName} from './data.mjs';
import {cellMarks, colour, contextOf, cutTo, device, em, headColour, isStacked, kFont, ring, sized, targetOf, widest} from './pen.mjs';
import {CanvasPainter} from './paint.mjs';
import {rowsOfHeads, statistic} from './order.mjs';
import {brief} from './scale.mjs';
import {nextTask} from './tasks.mjs';

/** @typedef {import('./data.mjs').Data} Data */
/** @typedef {import('./state.mjs').State} State */

/** "layer 10" as "L10". @param {string} text */
const initialed = text => text.replace(/^(\p{L})\p{L}* (\d+)$/u, (_, letter, number) => letter.toUpperCase() + number);

const kGap = 3, kMostSlot = 170, kCaption = 16, kCaptionSize = 10, kMargin = 3, kAboveRing = 5;
/** The least width of a picture with its gap; 2.1 mm on sheets. */
const leastSlot = () => device.print ? 8 : 12;
const kNumberEms = 4.2;  // of a number and its distance from the title

export class Overview {
  /**
   * @param {HTMLElement} box
   * @param {Data} data
   * @param {State} state
   * @param {(set: number, head: number) => import('./scale.mjs').Scale} scaleOf
   */
  constructor(box, data, state, scaleOf) {
    this.box = box;
    this.data = data;
    this.state = state;
    this.scaleOf = scaleOf;
    this.base = document.createElement('canvas');
    this.over = document.createElement('canvas');
    this.over.className = 'over';
    box.append(this.base, this.over);
    this.painter = new CanvasPainter();
    this.camera = new Camera();
    /** @type {number[]} */
    this.heads = [];
    /** @type {{title: string, heads: number[]}[]} */
    this.rows = [];
    this.byLayer = false;
    /** Of the widest title, in ems. @type {number | undefined} */
    this.captionWidth = undefined;
    this.captionLines = 1;
    /** Whether not all heads are in view without zoom. */
    this.hasMore = false;
    this.left = this.top = 0;
    this.run = 0;
    /** @type {Map<string, import('./codes.mjs').Level[]>} */
    this.decoded = new Map();
    this.soon = 0;
  }

  /** Lays out these heads. @param {number[]} heads @param {boolean} byLayer */
  arrange(heads, byLayer) {
    const {facts} = this.data, width = this.box.clientWidth;
    const stacked = isStacked();
    // Its height follows from its heads, up to a limit.
    const fixed = device.print > 0 || document.body.classList.contains('wide') && !stacked;
    if (!fixed) this.box.style.height = '';
    const height = fixed ? this.box.clientHeight : Math.max(120, (byLayer || stacked ? .42 : .5) * innerHeight);
    this.byLayer = byLayer && facts.groups.length > 1;
    const {headCount, count} = this.data, tiles = Array.from({length: count - headCount}, (_, t) => headCount + t);
    const all = this.byLayer ? heads : [...heads, ...this.shownOf(tiles)];
    this.captionLines = 1;
    this.layOut(all, width, height, fixed);
    // The number that orders the heads is beside the title, or below it.
    const side = this.camera.base.x, beside = ((this.captionWidth ?? 0) + kNumberEms) * kCaptionSize * em() + kGap;
    if (this.state.order !== 'file' && this.captioned(side) && side < beside) {
      this.captionLines = 2;
      this.layOut(all, width, height, fixed);
    }
    this.heads = this.rows.flatMap(row => row.heads);
  }

  /** @param {number[]} heads @param {number} width @param {number} most height @param {boolean} fixed whether the box has a height */
  layOut(heads, width, most, fixed) {
    const {facts, tiles} = this.data, {byLayer, camera} = this, ratio = this.aspect(), line = this.captionLines * kCaption * em();
    const space = width - 2 * kMargin, all = this.acrossFor(heads.length, space, most - 2 * kMargin);
    // Ordered heads have captions, so not all of many are in view.
    const scrolls = this.state.order !== 'file' && !byLayer && space / all < this.captionedSide;
    this.rows = rowsOfHeads(facts, heads, byLayer, scrolls ? Math.max(1, Math.floor(space / this.captionedSide)) : all);
    if (byLayer) this.rows.forEach((row, group) => row.heads.push(...this.shownOf(tiles?.ofGroup(group) ?? [])));
    const columns = Math.max(1, ...this.rows.map(row => row.heads.length));
    const down = Math.max(1, this.rows.length);
    this.left = byLayer ? Math.min(70 * em(), width * .16) : kMargin;
    this.top = byLayer ? 18 * em() : kMargin;
    let height = most;
    if (!fixed) {
      const slot = Math.max(leastSlot(), Math.min(kMostSlot * em(), (width - this.left - kMargin) / columns));
      const caption = this.captioned(slot) ? line : 0;
      height = Math.ceil(Math.min(this.top + kMargin + (slot / ratio + caption) * down, most));
      this.box.style.height = `${height}px`;
    }
    const wide = Math.max(width - this.left - kMargin, 1), tall = Math.max(height - this.top - kMargin, 1);
    Object.assign(camera, {columns, rows: down, width: wide, height: tall});
    const widestSide = Math.min(wide / columns, kMostSlot * em());
    const sideWith = (/** @type {number} */ caption) =>
        Math.max(scrolls ? Math.min(widestSide, this.captionedSide) : leastSlot(), Math.min(widestSide, (tall / down - caption) * ratio));
    const captioned = sideWith(line), isCaptioned = this.captioned(captioned);
    const side = isCaptioned ? captioned : sideWith(0);
    camera.base = {x: side, y: side / ratio + (isCaptioned ? line : 0)};
    if (scrolls && !fixed) {  // whole rows
      camera.height = Math.max(1, Math.floor(tall / camera.base.y)) * camera.base.y;
      this.box.style.height = `${Math.ceil(this.top + camera.height) + kMargin}px`;
    }
    camera.clamp();
    this.hasMore = columns * camera.base.x > camera.width + 1 || down * camera.base.y > camera.height + 1;
  }

  /** The tiles that have a place. On a sheet, those of a kind of which one is computed. @param {number[]} tiles */
  shownOf(tiles) {
    if (!device.print) return tiles;
    const {data} = this, [pictures] = data.overviews;
    const isComputed = (/** @type {string | undefined} */ kind) => data.tiles?.list.some((tile, t) => tile.kind === kind && pictures[data.headCount + t]);
    return tiles.filter(head => isComputed(data.tile(head)?.kind));
  }

  /** Whether all rows are in view, without zoom. */
  get isWhole() { return this.camera.height > this.rows.length * this.camera.base.y - 1; }
  /** Of the box with the rows that are in view as a whole, without zoom. */
  get neededHeight() {
    const {rows, camera: {height, base: {y}}} = this;
    return Math.ceil(this.top + y * (this.isWhole ? rows.length : Math.max(1, Math.floor(height / y)))) + kMargin;
  }

  /** Leaves out the rows and columns that are not in view as a whole. Of the box, only the height may have changed. */
  leaveOut() {
    const {camera: {width, base: {x, y}}} = this;
    const whole = (/** @type {number} */ space, /** @type {number} */ side) => Math.max(1, Math.floor((space + 1) / side));
    const down = whole(this.box.clientHeight - this.top - kMargin, y), across = whole(width, x);
    this.rows = this.rows.slice(0, down).map(({title, heads}) => ({title, heads: heads.slice(0, across)}));
    this.heads = this.rows.flatMap(row => row.heads);
  }

  /** Width of a picture divided by its height. */
  aspect() {
    const {rows, columns} = this.data.facts;
    return Math.min(Math.max(columns.length / rows.length, 2 / 3), 3 / 2);
  }

  /**
   * How many pictures are side by side: the fewest with which all rows fit, so that they are large.
   * @param {number} count
   * @param {number} width
   * @param {number} height
   */
  acrossFor(count, width, height) {
    const most = Math.max(1, Math.min(count, Math.floor(width / leastSlot())));
    for (let across = Math.max(1, Math.floor(width / (kMostSlot * em()))); across < most; ++across) {
      const slot = Math.min(kMostSlot * em(), width / across);
      const tall = slot / this.aspect() + (this.captioned(slot) ? this.captionLines * kCaption * em() : 0);
      if (Math.ceil(count / across) * tall <= height) return across;
    }
    return most;
  }

  /** The least width of pictures with captions. */
  get captionedSide() {
    this.captionWidth ??= widest(this.data.facts.heads.map((_, head) => this.shortTitle(head)), 100, kCaptionSize) / kCaptionSize;
    return this.captionWidth * kCaptionSize * em() + kGap + 4;
  }

  /** Whether pictures of this width have captions. @param {number} side */
  captioned(side) {
    if (this.byLayer) return false;
    return side >= this.captionedSide;
  }

  /** The picture of a slot, in CSS pixels of the canvas. @param {number} row @param {number} column */
  boxOf(row, column) {
    const {camera} = this, wide = camera.scaleX, tall = camera.scaleY;
    const caption = this.captioned(wide) ? this.captionLines * kCaption * em() : 0, gap = Math.min(kGap, wide * .12);
    return {left: this.left + (column - camera.x) * wide, top: this.top + (row - camera.y) * tall + caption,
            width: wide - gap, height: tall - gap - caption};
  }

  /** Draws the pictures; a few at a time, so that the page stays responsive. `now`: all at once. */
  draw(now = false) {
    const run = ++this.run, {data, state, camera} = this, {facts} = data;
    // Where a finger cannot move the pictures, it scrolls the page.
    const {x, y} = camera.pans;
    this.box.style.touchAction = x ? y ? 'pinch-zoom' : 'pan-y pinch-zoom' : y ? 'pan-x pinch-zoom' : '';
    const width = this.box.clientWidth, height = this.box.clientHeight;
    const context = sized(this.base, width, height);
    const marks = cellMarks();
    const frame = colour('--frame'), soft = colour('--soft'), {letters} = this;
    const view = {x: 0, y: 0, width: facts.columns.length, height: facts.rows.length};
    /** @type {number[][]} row, column and head */
    const slots = [];
    const [firstRow, lastRow] = [Math.floor(camera.y), Math.ceil(camera.y + camera.view.height)];
    const [firstColumn, lastColumn] = [Math.floor(camera.x), Math.ceil(camera.x + camera.view.width)];
    for (let r = firstRow; r < Math.min(lastRow, this.rows.length); ++r)
      for (let c = firstColumn; c < Math.min(lastColumn, this.rows[r].heads.length); ++c)
        slots.push([r, c, this.rows[r].heads[c]]);
    let next = 0;
    const some = () => {
      if (run !== this.run) return;
      const start = performance.now();
      context.textBaseline = 'alphabetic';
      while (next < slots.length && (now || performance.now() - start < 10)) {
        const [row, column, head] = slots[next++], box = this.boxOf(row, column);
        const level = data.overviews[state.set][head];
        if (!level && (device.print || !data.tile(head))) continue;
        const isFramed = box.width >= 16, edge = isFramed ? 1 : 0;
        const target = targetOf(box.left + edge, box.top + edge, box.width - 2 * edge, box.height - 2 * edge);
        const tall = view.height / target.height, wide = view.width / target.width;
        if (level) {
          const finer = tall < level.tall / 1.5 || wide < level.wide / 1.5 ? this.finer(state.set, head) : [];
          this.painter.paint(context, levelFor([level, ...finer], tall, wide), view, target,
                             this.scaleOf(state.set, head), marks);
        } else {
          context.font = `${kCaptionSize * em()}px ${kFont}`;
          context.fillStyle = soft;
          context.textAlign = 'center';
          const kind = data.tile(head)?.kind ?? '';
          context.fillText(context.measureText(kind).width < box.width - 2 ? kind : '·', box.left + box.width / 2, box.top + box.height / 2 + 3);
          context.textAlign = 'left';
        }
        if (isFramed) {
          context.strokeStyle = frame;
          context.strokeRect(box.left + .5, box.top + .5, box.width - 1, box.height - 1);
        }
        if (this.captioned(camera.scaleX)) {
          context.font = `${kCaptionSize * em()}px ${kFont}`;
          context.fillStyle = soft;
          const title = cutTo(context, this.shortTitle(head, letters), box.width), value = statistic(facts, state.order, state.set)[head] ?? null;
          const number = value === null ? '' : brief(value), below = this.captionLines === 2 && number !== '';
          context.fillText(title, box.left, box.top - kAboveRing - (below ? (kCaption - 2) * em() : 0));
          context.fillText(number, below ? box.left : box.left + box.width - context.measureText(number).width - 4, box.top - kAboveRing);
        }
      }
      if (next < slots.length) {
        nextTask().then(some);
      } else {
        this.drawTitles(context, soft);
        const complete = slots.every(([, , head]) => data.tile(head) !== undefined || data.overviews[state.set][head] !== undefined);
        document.body.dataset.overview = complete ? 'complete' : 'loading';
        if (complete) performance.mark('overview');
      }
    };
    some();
    this.drawRings();
  }

  /** Levels finer than the overview's, once they are decoded. @param {number} set @param {number} head */
  finer(set, head) {
    const key = `${set}-${head}`;
    if (this.heads.length > 0 && this.camera.scaleX > 100 && !this.decoded.has(key) && !this.data.tile(head)) {
      this.decoded.set(key, []);
      this.data.head(set, head).then(({levels}) => {
        if (this.decoded.size > 60) this.decoded.clear();
        this.decoded.set(key, levels);
        this.drawSoon();
      });
    }
    return this.decoded.get(key) ?? [];
  }

  drawSoon() {
    clearTimeout(this.soon);
    this.soon = window.setTimeout(() => this.draw(), 60);
  }

  /** "layer 3, head 5" as "L3 H5". @param {number} head @param {number} letters of the kind of a tile */
  shortTitle(head, letters = 1) {
    const group = this.data.groupOf(head), name = this.data.tile(head)?.kind.slice(0, letters) ?? this.data.facts.heads[head];
    return `${initialed(group)} ${initialed(name)}`.trim();
  }

  /** Of rows and columns. @param {CanvasRenderingContext2D} context @param {string} soft */
  drawTitles(context, soft) {
    if (!this.byLayer) return;
    const {camera} = this, {ratio} = device;
    context.clearRect(0, 0, this.base.width / ratio, this.top - 1);
    context.clearRect(0, 0, this.left - 1, this.base.height / ratio);
    context.font = `${11 * em()}px ${kFont}`;
    context.fillStyle = soft;
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    const every = Math.ceil(13 * em() / camera.scaleY), narrow = Math.ceil(24 * em() / camera.scaleX);
    const fits = this.rows.every(({title}) => context.measureText(title).width <= this.left - 6);
    for (let r = 0; r < this.rows.length; r += every) {
      const y = this.boxOf(r, 0).top + (camera.scaleY - kGap) / 2;
      if (y > this.top && y < this.base.height / ratio)
        context.fillText(cutTo(context, fits ? this.rows[r].title : initialed(this.rows[r].title), this.left - 6), this.left - 6, y);
    }
    context.textAlign = 'center';
    const longest = this.rows.reduce((a, b) => b.heads.length > a.heads.length ? b : a, this.rows[0]);
    const wide = camera.scaleX >= 52 * em();
    const {letters} = this;
    longest.heads.forEach((head, c) => {
      const x = this.boxOf(0, c).left + (camera.scaleX - kGap) / 2, name = this.data.facts.heads[head], tile = this.data.tile(head);
      if (x <= this.left || (!tile && c % narrow > 0)) return;
      context.fillText(tile ? tile.kind.slice(0, letters) : wide ? name : /\d+$/.exec(name)?.[0] ?? name, x, this.top / 2);
    });
    context.textAlign = 'left';
  }

  /** How many letters of their kind are above tiles: all, or one if the longest title does not fit. */
  get letters() {
    const {byLayer, data: {facts: {groups}}} = this, size = (byLayer ? 11 : kCaptionSize) * em();
    const longest = (/** @type {number} */ count) => (byLayer ? [''] : groups).map(group => `${initialed(group)} ${'rollout'.slice(0, count)}`.trim());
    return [7, 1].find(count => widest(longest(count), 1e3, size) < this.camera.scaleX - 3 * kGap) ?? 1;
  }

  get kinds() { return [...new Set(this.heads.map(head => this.data.tile(head)?.kind).filter(kind => kind !== undefined))]; }
  /** "mean and rollout" */
  get tileKinds() { return this.kinds.join(' and '); }
  /** What single letters above tiles mean. */
  get initials() {
    const isTitled = this.byLayer || this.captioned(this.camera.scaleX);
    return (isTitled && this.letters === 1 ? this.kinds : []).map(kind => kind === 'mean' ? `m: mean of ${matrixName(this.data.facts)}s` : 'r: rollout').join(', ');
  }

  /** Rings of the selected head and of those whose lines are drawn. */
  drawRings() {
    const {state} = this;
    const context = device.print ? contextOf(this.base) : sized(this.over, this.box.clientWidth, this.box.clientHeight);
    this.rows.forEach((row, r) => row.heads.forEach((head, c) => {
      const pin = state.pinned.indexOf(head);
      if (pin < 0 && head !== state.head) return;
      const box = this.boxOf(r, c);
      if (pin >= 0) {
        context.fillStyle = headColour(head === state.head ? 0 : pin + 1, state.dark);
        context.fillRect(box.left, box.top + box.height - 4, box.width, 4);
      }
      if (head === state.head) ring(context, box.left, box.top, box.width, box.height);
    }));
  }

  /** The head at a point of the canvas, or null. @param {number} left @param {number} top */
  headAt(left, top) {
    const at = this.camera.at(left - this.left, top - this.top);
    return at ? this.rows[at.row]?.heads[at.column] ?? null : null;
  }

  /** The row and column of a head, or null if it is not shown. @param {number} head */
  placeOf(head) {
    for (let row = 0; row < this.rows.length; ++row) {
      const column = this.rows[row].heads.indexOf(head);
      if (column >= 0) return {row, column};
    }
    return null;
  }

  /** The head next to the selected one. @param {number} right @param {number} down */
  neighbour(right, down) {
    const place = this.placeOf(this.state.head);
    if (!place) return this.heads[0] ?? null;
    const row = this.rows[Math.max(0, Math.min(this.rows.length - 1, place.row + down))].heads;
    return row[Math.max(0, Math.min(row.length - 1, place.column + right))];
  }

  /** Moves the view so that the selected head is visible. */
  reveal() {
    const place = this.placeOf(this.state.head);
    if (!place) return;
    const {x, y} = this.camera;
    this.camera.show(place.column, place.row);
    if (x !== this.camera.x || y !== this.camera.y) this.draw();
    else this.drawRings();
  }
}
