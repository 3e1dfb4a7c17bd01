// Text of the matrix that is shown, and how it gets to the clipboard or into a file.

import {kZero} from './codes.mjs';
import {Pauses, StageMatrix} from './data.mjs';
import {distinct} from './dom.mjs';
import {TileMatrix} from './tiles.mjs';

/** @typedef {import('./data.mjs').Facts} Facts */
/** @typedef {import('./data.mjs').Head['matrix']} AnyMatrix */

/** Whether a number of a matrix is a 32-bit float. @param {Facts} facts @param {AnyMatrix} matrix @param {number | null | undefined} value */
export function isSingle(facts, matrix, value) {
  if (matrix instanceof StageMatrix) return matrix.scores.why.bits === 32 && Math.fround(value ?? 0) === value;
  return facts.bits === 32 && !(matrix instanceof TileMatrix);
}

/** What has values. `blank` is kZero if those that are null are 0. @typedef {{value: (i: number, j: number) => number | null, blank?: number}} Numbers */

/** Numbers of the file, where the page has a value. @implements {Numbers} */
export class FileNumbers {
  /** @param {Numbers} page @param {number[]} numbers of rows from `first` on @param {number} columns @param {number} first */
  constructor(page, numbers, columns, first = 0) {
    this.page = page;
    this.numbers = numbers;
    this.columns = columns;
    this.first = first;
  }
  /** @param {number} i @param {number} j @returns {number | null} */
  value(i, j) {
    const number = this.numbers[(i - this.first) * this.columns + j];
    const isBlank = this.page.value(i, j) === null && this.page.blank !== kZero;
    return isBlank || number === -Infinity ? null : number;
  }
}

/** @param {Facts} facts @param {Numbers | null} matrix @param {number} i @param {number} j */
function plain(facts, matrix, i, j) {
  const value = matrix?.value(i, j) ?? null, isRounded = facts.bits === 32 && !(matrix instanceof StageMatrix || matrix instanceof TileMatrix);
  return value === null ? matrix?.blank === kZero ? '0' : '' : String(isRounded ? Math.fround(value) : value);
}

/** "query, key, value" for each key, with tabs. @param {Facts} facts @param {(Numbers | null)[]} matrices with a value each @param {number} row */
export function rowText(facts, matrices, row) {
  if (!matrices[0]) return '';
  const query = distinct(facts.rows)[row];
  const lines = distinct(facts.columns).map((key, j) => [query, key, ...matrices.map(one => plain(facts, one, row, j))].join('\t'));
  return `${lines.join('\n')}\n`;
}

/** The matrix with its labels as CSV (RFC 4180). @param {Facts} facts @param {Numbers | null} matrix */
export async function matrixCsv(facts, matrix) {
  const pauses = new Pauses(), parts = [];
  const quoted = (/** @type {string} */ words) => /[",\r\n]/.test(words) ? `"${words.replace(/"/g, '""')}"` : words;
  const queries = distinct(facts.rows);
  parts.push(['', ...distinct(facts.columns).map(quoted)].join(','));
  for (let i = 0; matrix && i < facts.rows.length; ++i) {
    parts.push([quoted(queries[i]), ...facts.columns.map((_, j) => plain(facts, matrix, i, j))].join(','));
    await pauses.pause();
  }
  return `${parts.join('\r\n')}\r\n`;
}

/** @param {string} words */
export async function copy(words) {
  try {
    await navigator.clipboard.writeText(words);
  } catch (error) {
    const area = document.createElement('textarea');
    area.value = words;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
}

/** @param {Blob} blob @param {string} name */
export function saveAs(blob, name) {
  const link = document.createElement('a'), address = URL.createObjectURL(blob);
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
