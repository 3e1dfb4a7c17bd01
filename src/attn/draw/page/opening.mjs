// The cell that a page selects first: a pair of words.

import {isValue} from './codes.mjs';
import {matrixName} from './data.mjs';
import {one} from './dom.mjs';

/** @typedef {import('./data.mjs').Facts} Facts */
/** @typedef {import('./codes.mjs').Level} Level */

/** Whether a token is a word: neither a special token such as [SEP] or <s>, nor punctuation or a number. @param {string} label */
export function isWord(label) {
  return /\p{L}{2}|\p{Lo}/u.test(label) && !/^\s*(\[.*\]|<.*>)\s*$/.test(label);
}

/** Where a page opens, as a sentence. @param {Facts} facts @param {boolean} areWeights */
export function openingWords(facts, areWeights) {
  const {sets, heads, gradient, rows, columns, rowAxis, columnAxis} = facts;
  if (sets.length > 1) return 'The page opens at the cell that differs most.';
  const head = heads.length === 1 ? '' : areWeights ? `the ${matrixName(facts)} of the least entropy that does not read mostly the first key, at ` : `the first ${matrixName(facts)}, at `;
  const cell = gradient ? 'the element of largest magnitude' : rows.some(isWord) && columns.some(isWord) ? 'the strongest pair of different words'
      : `the strongest ${one(columnAxis)} of the last ${one(rowAxis)}`;
  return `The page opens at ${head}${cell}.`;
}

const kMostCells = 1e6;

/**
 * The cell of the largest magnitude; of equal codes, that of the largest value.
 * @param {Level} level the finest one
 * @param {(row: number, column: number) => number | null} valueAt
 */
export function largestCell({codes, columns, tall, wide}, valueAt) {
  const most = codes.reduce((best, code) => isValue(code) && code >> 1 > best ? code >> 1 : best, 0);
  let best = {row: 0, column: 0, size: -1};
  codes.forEach((code, k) => {
    if (code >> 1 !== most || !isValue(code)) return;
    const row = Math.floor(k / columns) * tall, column = k % columns * wide, size = Math.abs(valueAt(row, column) ?? 0);
    if (size > best.size) best = {row, column, size};
  });
  return best;
}

/**
 * The strongest pair of different words among the last queries; without words, the strongest key of the last query. Of equal codes,
 * that of the largest value, unless there are many.
 * @param {Facts} facts
 * @param {Level} level the finest one
 * @param {(row: number, column: number) => number | null} valueAt
 * @returns {{row: number, column: number}}
 */
export function openingCell(facts, level, valueAt) {
  const {codes, columns} = level, kMany = 1e4;
  const cell = (/** @type {number} */ k) =>
      ({row: Math.floor(k / columns) * level.tall, column: k % columns * level.wide});
  const valueOf = (/** @type {number} */ k) => { const {row, column} = cell(k); return valueAt(row, column) ?? 0; };
  /** @param {number} from @param {(k: number) => boolean} may */
  const strongest = (from, may) => {
    /** @type {number[]} */
    let best = [];
    for (let k = from; k < codes.length; ++k) {
      if ((best.length > 0 && codes[k] < codes[best[0]]) || !may(k)) continue;
      if (best.length > 0 && codes[k] > codes[best[0]]) best = [];
      if (best.length < kMany) best.push(k);
    }
    return best.length === 0 ? -1 : best.length === kMany ? best[0] : best.reduce((a, b) => valueOf(b) > valueOf(a) ? b : a);
  };
  const words = [facts.rows, facts.columns].map(labels => labels.map(isWord));
  const firstRow = Math.max(0, level.rows - Math.floor(kMostCells / columns));
  const pair = strongest(firstRow * columns, k => {
    const {row, column} = cell(k);
    return words[0][row] && words[1][column] && row !== column;
  });
  if (pair >= 0) return cell(pair);
  return {row: facts.rows.length - 1, column: cell(strongest((level.rows - 1) * columns, () => true)).column};
}
