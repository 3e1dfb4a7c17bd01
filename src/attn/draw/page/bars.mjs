// A single query as a bar chart over its keys.

import {colour} from './pen.mjs';

/** @typedef {import('./figure.mjs').Figure} Figure */

/**
 * A bar for each key in view; of keys that share a pixel, the strongest. Heights are on the colour scale. Keys without
 * a value are hatched.
 * @param {CanvasRenderingContext2D} context
 * @param {Figure} figure
 * @param {import('./scale.mjs').Scale} scale
 * @param {boolean} isDark
 */
export function drawBars(context, figure, scale, isDark) {
  const {camera, left, top} = figure, {matrix} = figure.head;
  if (!matrix) return;
  const height = camera.shownHeight, [from, to] = figure.shown.columns;
  const heightOf = (/** @type {number} */ value) => height * scale.place(value) / 255;
  const ground = scale.signed ? heightOf(0) : 0, wide = Math.max(camera.scaleX * .86, 1);
  /** The strongest value of each pixel. @type {Map<number, number>} */
  const values = new Map();
  context.save();
  context.beginPath();
  context.rect(left, top, camera.shownWidth, height);
  context.clip();
  context.fillStyle = colour('--hatch');
  for (let j = from; j < to; ++j) {
    // The first bars are in the first pixel, not before it.
    const value = matrix.value(0, j), x = wide > 1 ? figure.xOf(j) - wide / 2 : Math.floor(figure.xOf(j));
    if (value === null || Number.isNaN(value)) {
      context.fillRect(x, top + height - 3, wide, 3);
      continue;
    }
    const known = values.get(x);
    if (known === undefined || Math.abs(value) > Math.abs(known)) values.set(x, value);
  }
  const [negative, positive] = scale.signed ? [-.75, .75].map(share => scale.palette[Math.round(127.5 + 127.5 * share)])
                                            : [0, scale.palette[isDark ? 210 : 190]];
  const rgb = (/** @type {number} */ packed) => `rgb(${[0, 8, 16].map(shift => packed >> shift & 255).join(',')})`;
  for (const [x, value] of values) {
    context.fillStyle = rgb(value < 0 ? negative : positive);
    const at = heightOf(value);
    context.fillRect(x, top + height - Math.max(at, ground), wide, Math.max(Math.abs(at - ground), .5));
  }
  context.restore();
}
