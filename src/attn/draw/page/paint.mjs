// Draws levels of codes as pixels. No strong cell is lost: a pixel shows the strongest of all cells
// that it covers, and each cell is covered by a pixel.

import {colourOfCode, packedHex} from './scale.mjs';

/** @typedef {import('./codes.mjs').Level} Level */
/** @typedef {import('./scale.mjs').Scale} Scale */
/**
 * The part of a matrix that an image shows, in cells.
 * @typedef {{x: number, y: number, width: number, height: number}} View
 */
/**
 * An image of `width` x `height` device pixels whose upper left corner is at (left, top) of the
 * canvas; patterns continue across images. `ratio`: device pixels per CSS pixel.
 * @typedef {{width: number, height: number, left: number, top: number, ratio: number}} Target
 */
/** @typedef {{ground: string, hatch: string, nan: string}} Marks */

/** Cells smaller than this, in CSS pixels, that are NaN are filled instead of crossed out. */
export const kPatternSize = 6;

/**
 * For each of `count` pixels the blocks [first, end) that it shows. Blocks smaller than a pixel are
 * all shown; of larger blocks, the one at the pixel's centre.
 * @param {number} start cells
 * @param {number} length cells
 * @param {number} count pixels
 * @param {number} size cells of a block
 * @param {number} blocks
 */
export function ranges(start, length, count, size, blocks) {
  const first = new Int32Array(count), end = new Int32Array(count), step = length / count;
  const inside = (/** @type {number} */ block) => Math.max(0, Math.min(blocks - 1, block));
  for (let k = 0; k < count; ++k) {
    if (size >= step) {
      first[k] = inside(Math.floor((start + (k + .5) * step) / size));
      end[k] = first[k] + 1;
    } else {
      first[k] = inside(Math.floor((start + k * step) / size + 1e-9));
      end[k] = Math.max(inside(Math.ceil((start + (k + 1) * step) / size - 1e-9) - 1), first[k]) + 1;
    }
  }
  return {first, end};
}

/** @param {Marks} marks */
const packedMarks = marks => ({ground: packedHex(marks.ground), hatch: packedHex(marks.hatch),
                               nan: packedHex(marks.nan)});

/** @param {Target} target */
export function patternOf(target) {
  return {period: Math.max(Math.round(kPatternSize * target.ratio), 3),
          line: Math.max(Math.round(target.ratio), 1)};
}

/**
 * The pixels of an image.
 * @param {Level} level
 * @param {View} view
 * @param {Target} target
 * @param {Scale} scale
 * @param {Marks} marks
 * @param {Uint32Array} pixels width x height, written
 */
export function paintPixels(level, view, target, scale, marks, pixels) {
  const {width, height, left, top} = target, {codes, columns} = level;
  const across = ranges(view.x, view.width, width, level.wide, level.columns);
  const down = ranges(view.y, view.height, height, level.tall, level.rows);
  const from = across.first[0], to = across.end[width - 1];
  const strongest = new Uint16Array(to - from);
  const {period, line} = patternOf(target), colours = packedMarks(marks);
  const cell = Math.min(width / view.width * level.wide, height / view.height * level.tall);
  const small = cell < kPatternSize * target.ratio;
  const {table, palette, factor} = scale, shift = .5 - scale.from * factor;
  const first = across.first, end = across.end;
  for (let y = 0, at = 0; y < height; ++y) {
    if (y === 0 || down.first[y] !== down.first[y - 1] || down.end[y] !== down.end[y - 1]) {
      const start = down.first[y] * columns;
      strongest.set(codes.subarray(start + from, start + to));
      for (let row = down.first[y] + 1; row < down.end[y]; ++row)
        for (let c = 0, k = row * columns + from; c < strongest.length; ++c, ++k)
          if (codes[k] > strongest[c]) strongest[c] = codes[k];
    }
    for (let x = 0; x < width; ++x, ++at) {
      let code = strongest[first[x] - from];
      for (let c = first[x] + 1; c < end[x]; ++c)
        if (strongest[c - from] > code) code = strongest[c - from];
      if (code >= 4 && code < 0xFFFE) {
        const place = table[code] * factor + shift;
        pixels[at] = palette[place > 0 ? place < 255 ? place | 0 : 255 : 0];
      } else {
        pixels[at] = colourOfCode(code, scale, colours, small, left + x, top + y, period, line);
      }
    }
  }
}

/** Draws with the processor. */
export class CanvasPainter {
  constructor() { this.name = 'canvas'; }

  /**
   * @param {CanvasRenderingContext2D} context the image is put there without its transformation
   * @param {Level} level
   * @param {View} view
   * @param {Target} target
   * @param {Scale} scale
   * @param {Marks} marks
   */
  paint(context, level, view, target, scale, marks) {
    if (target.width < 1 || target.height < 1) return;
    const image = context.createImageData(target.width, target.height);
    paintPixels(level, view, target, scale, marks, new Uint32Array(image.data.buffer));
    context.putImageData(image, target.left, target.top);
  }
}
