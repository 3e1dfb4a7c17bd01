// Text of the matrix that is shown, and how it gets to the clipboard or into a file.

import {blockLabels, isSingle, rowOf} from './cells.mjs';
import {kZero} from './codes.mjs';
import {Matrix} from './data.mjs';
import {distinct, one} from './dom.mjs';
import {shortest32} from './scale.mjs';
import {Pauses} from './tasks.mjs';

/** @typedef {import('./data.mjs').Facts} Facts */
/** @typedef {import('./data.mjs').Head['matrix']} AnyMatrix */

/** Numbers of the file, where the page has a value. */
export class FileNumbers {
  /** @param {Exclude<AnyMatrix, null>} page @param {number[]} numbers of rows from `first` on @param {boolean} single whether they are 32-bit floats @param {number} columns @param {number} first */
  constructor(page, numbers, single, columns, first = 0) {
    this.page = page;
    this.numbers = numbers;
    this.single = single;
    this.columns = columns;
    this.first = first;
    this.step = 1;
  }
  /** @param {number} i @param {number} j @returns {number | null} */
  value(i, j) {
    const number = this.numbers[(i - this.first) * this.columns + j];
    const isBlank = this.page.value(i, j) === null && blankOf(this.page) !== kZero;
    return isBlank || number === -Infinity ? null : number;
  }
  error() { return 0; }
}

/** kZero if cells without a value are 0. @param {import('./cells.mjs').Numbers} matrix */
const blankOf = matrix => matrix instanceof Matrix ? matrix.blank : 0;

/** @param {import('./cells.mjs').Numbers} matrix @param {number | null} value */
const plain = (matrix, value) => value === null ? blankOf(matrix) === kZero ? '0' : '' : String(isSingle(matrix, value) ? shortest32(value) : value);

/** The labels of rows or columns, and of blocks if the page has no others. @param {string[]} labels @param {number} step */
const namesOf = (labels, step) => blockLabels(step > 1 ? labels : distinct(labels), step);

/**
 * "query, key, value" for each key, with tabs, below a line of names.
 * @param {Facts} facts
 * @param {import('./cells.mjs').Numbers[]} matrices with a value each
 * @param {string[]} names of the values
 * @param {number} row
 */
export function rowText(facts, matrices, names, row) {
  if (matrices.length === 0) return '';
  const {step} = matrices[0], query = namesOf(facts.rows, step)[Math.floor(row / step)];
  const rows = matrices.map(matrix => rowOf(matrix, row, facts.columns.length));
  const lines = namesOf(facts.columns, step).map((key, block) =>
      [query, key, ...rows.map((cells, k) => plain(matrices[k], cells.value(block)))].join('\t'));
  return `${[[one(facts.rowAxis), one(facts.columnAxis), ...names].join('\t'), ...lines].join('\n')}\n`;
}

/**
 * The matrix with its labels as CSV (RFC 4180).
 * @param {Facts} facts
 * @param {import('./cells.mjs').Numbers | null} matrix
 * @param {string} note how the numbers differ from those of the file; the first cell has it and the names of the axes
 */
export async function matrixCsv(facts, matrix, note = '') {
  const pauses = new Pauses(), parts = [], step = matrix?.step ?? 1;
  const quoted = (/** @type {string} */ words) => /[",\r\n]/.test(words) ? `"${words.replace(/"/g, '""')}"` : words;
  const queries = namesOf(facts.rows, step), keys = namesOf(facts.columns, step);
  const axes = `${one(facts.rowAxis)} / ${one(facts.columnAxis)}`;
  parts.push([note ? `${axes} (${note})` : axes, ...keys].map(quoted).join(','));
  for (let block = 0; matrix && block < queries.length; ++block) {
    const cells = rowOf(matrix, block * step, facts.columns.length);
    parts.push([quoted(queries[block]), ...keys.map((_, k) => plain(matrix, cells.value(k)))].join(','));
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
