// The cells of a row or column as lists, lines and copied text show them: one by one, or the blocks of which the page has
// only the largest magnitude.

import {Difference, StageMatrix} from './data.mjs';
import {one} from './dom.mjs';
import {written} from './scale.mjs';
import {errorOf} from './tiles.mjs';

/** @typedef {NonNullable<import('./data.mjs').Head['matrix']>} AnyMatrix */
/** Numbers of a matrix of the page, or of its file. @typedef {AnyMatrix | import('./copies.mjs').FileNumbers} Numbers */
/**
 * `count` blocks of `step` cells, of which the last may have fewer. A value is null if the cells are hidden; the bound of its
 * error is 0 if it is exact. `text` is the value with all its digits. `note` says what the values of blocks are, `isBound` whether no cell exceeds them.
 * @typedef {{step: number, note: string, isBound: boolean, length: number, count: number, value: (block: number) => number | null, error: (block: number) => number, text: (block: number) => string}} Cells
 */

/** Whether a number is a 32-bit float, or the difference of two. @param {Numbers} matrix of the number @param {number | null} value */
export function isSingle(matrix, value) {
  return matrix.single && (!(matrix instanceof StageMatrix) || Math.fround(value ?? 0) === value);
}

/** @param {Numbers} matrix @param {number} length @param {(block: number) => [number, number]} at row and column @returns {Cells} */
function blocksOf(matrix, length, at) {
  const {step} = matrix, isDifference = matrix instanceof Difference;
  const value = (/** @type {number} */ block) => matrix.value(...at(block)), error = (/** @type {number} */ block) => errorOf(matrix, ...at(block));
  const text = (/** @type {number} */ block) => written(value(block), error(block), isSingle(matrix, value(block)), '');
  return {step, length, count: Math.ceil(length / step), note: blockNote(step, isDifference), isBound: step > 1 && !isDifference, value, error, text};
}

/** @param {Numbers} matrix @param {number} row @param {number} length @returns {Cells} */
export function rowOf(matrix, row, length) {
  return blocksOf(matrix, length, block => [row, block * matrix.step]);
}

/** @param {Numbers} matrix @param {number} column @param {number} length @returns {Cells} */
export function columnOf(matrix, column, length) {
  return blocksOf(matrix, length, block => [block * matrix.step, column]);
}

/** The first and the last cell of a block. @param {Cells} cells @param {number} block */
export function endsOf({step, length}, block) { return [block * step, Math.min(length, (block + 1) * step) - 1]; }

/** The cells, hidden in blocks of which no cell is inside. @param {Cells} cells @param {(index: number) => boolean} inside @returns {Cells} */
export function within(cells, inside) {
  return {...cells, value: block => {
    const [first, last] = endsOf(cells, block);
    for (let index = first; index <= last; ++index) if (inside(index)) return cells.value(block);
    return null;
  }};
}

/** The labels of blocks: "4–5: the cat", or "4–5" if they are numbers. @param {string[]} labels @param {number} step */
export function blockLabels(labels, step) {
  if (step === 1) return labels;
  const isNumbered = labels.every((label, i) => label === String(i));
  return Array.from({length: Math.ceil(labels.length / step)}, (_, block) => {
    const part = labels.slice(block * step, (block + 1) * step), first = block * step, last = first + part.length - 1;
    const range = first === last ? String(first) : `${first}–${last}`;
    return isNumbered ? range : `${range}: ${part.join(' ')}`;
  });
}

/** What the values of blocks are, in words; "" for single cells. @param {number} step @param {boolean} isDifference */
export const blockNote = (step, isDifference = false) => step > 1 ? `${isDifference ? 'difference of the ' : ''}largest of ${step} × ${step}` : '';

/** Names rows whose weights are all 0, or that see no key; "" if there are none. @param {number[]} sums of the rows @param {string} axis "rows" */
export function rowsOfZeros(sums, axis) {
  const empty = sums.flatMap((sum, row) => sum === 0 ? [row] : []);
  if (empty.length === 0) return '';
  return empty.length > 4 ? `sum 0: ${empty.length} ${axis}, first ${empty[0]}` : `sum 0: ${empty.length === 1 ? one(axis) : axis} ${empty.join(', ')}`;
}

/** Sum and entropy of a row of weights, as attn stats has them; NaN if they have none. @param {number[]} weights */
export function sumAndEntropy(weights) {
  const finite = weights.filter(weight => weight !== -Infinity), sum = finite.reduce((total, weight) => total + weight, 0);
  const has = sum > 0 && Number.isFinite(sum) && finite.every(weight => weight >= 0);
  return {sum, entropy: has ? finite.reduce((total, weight) => weight > 0 ? total - weight * Math.log(weight) : total, 0) : NaN};
}
