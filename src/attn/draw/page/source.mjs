// Reads exact values from the original file, if the user opens it on a page that has rounded ones. The page
// knows where they are in the file (Facts.sources). Nothing is sent anywhere.

import {codeOf, halfValue} from './codes.mjs';
import {Matrix} from './data.mjs';
import {Pauses} from './tasks.mjs';

/** @typedef {import('./data.mjs').Facts} Facts */

const word = new DataView(new ArrayBuffer(4));

/** @param {number} bits of a binary16 */
const half = bits => (bits >> 15 ? -1 : 1) * halfValue(bits & 0x7FFF);

/** Size and reader of an element, for each dtype. @type {Record<string, [number, (v: DataView, at: number) => number]>} */
const kReaders = {
  float64: [8, (v, at) => v.getFloat64(at, true)], float32: [4, (v, at) => v.getFloat32(at, true)],
  float16: [2, (v, at) => half(v.getUint16(at, true))],
  bfloat16: [2, (v, at) => { word.setUint32(0, v.getUint16(at, true) << 16); return word.getFloat32(0); }],
  int64: [8, (v, at) => Number(v.getBigInt64(at, true))], uint64: [8, (v, at) => Number(v.getBigUint64(at, true))],
  int32: [4, (v, at) => v.getInt32(at, true)], uint32: [4, (v, at) => v.getUint32(at, true)],
  int16: [2, (v, at) => v.getInt16(at, true)], uint16: [2, (v, at) => v.getUint16(at, true)],
  int8: [1, (v, at) => v.getInt8(at)], uint8: [1, (v, at) => v.getUint8(at)], bool: [1, (v, at) => v.getUint8(at)],
};

/** @param {string} why @returns {never} */
function refuse(why) { throw new Error(why); }

/** @param {Facts} facts @param {number} set */
const aboutOf = (facts, set) => /** @type {NonNullable<Facts['sources']>} */ (facts.sources)[set];

/** @param {Blob} packed */
const expanded = packed => new Response(packed.stream().pipeThrough(new DecompressionStream('deflate-raw'))).blob();

/** An opened file of one result, and the last row that was read. */
export class OpenFile {
  /** @param {Facts} facts @param {number} set @param {Blob} blob the file, or its part with the tensor, expanded */
  constructor(facts, set, blob) {
    this.facts = facts;
    this.about = aboutOf(facts, set);
    this.blob = blob;
    /** Whether the values are floats of at most 32 bits. */
    this.single = /^(float32|float16|bfloat16)$/.test(this.about.dtype);
    /** @type {{page: Matrix | null, row: number, values: Promise<number[]>}} */
    this.last = {page: null, row: 0, values: Promise.resolve([])};
    /** All cells of heads, for pages that store blocks of cells. @type {Map<number, import('./codes.mjs').Level>} */
    this.levels = new Map();
  }

  /** @param {number} head @param {number} from first row @param {number} count rows */
  async numbers(head, from, count) {
    const {places, dtype, offset} = this.about, [size, reader] = kReaders[dtype];
    const columns = this.facts.columns.length, rows = this.facts.rows.length;
    const start = offset + (places[head] * rows + from) * columns * size, length = count * columns * size;
    const bytes = new DataView(await this.blob.slice(start, start + length).arrayBuffer());
    if (bytes.byteLength < length) refuse('the file is truncated');
    return Array.from({length: count * columns}, (_, k) => reader(bytes, k * size));
  }

  /** The values of a row, compared with those of the page. @param {Matrix} page @param {number} row @returns {Promise<number[]>} */
  row(page, row) {
    if (this.last.page !== page || this.last.row !== row) {
      this.last = {page, row, values: this.numbers(page.head, row, 1).then(values => {
        if (page.step === 1) this.compare(page, row, values);
        return values;
      })};
    }
    return this.last.values;
  }

  /** @param {Matrix} page @param {number} row @param {number[]} values */
  compare(page, row, values) {
    const error = page.error(row) * 1.001;
    values.forEach((value, j) => {
      const shown = page.value(row, j), reach = error + 1e-6 * Math.abs(value);
      if (shown !== null && !Number.isNaN(shown) && !(Math.abs(value - shown) <= reach))
        refuse('its values differ from those of the page');
    });
  }

  /**
   * All cells of a matrix as a level, for pages that store blocks of cells. Errors: if a block of the
   * page is not the strongest cell of the file's.
   * @param {Matrix} page
   * @returns {Promise<import('./codes.mjs').Level>}
   */
  async level(page) {
    const rows = this.facts.rows.length, columns = this.facts.columns.length, {step} = page;
    const codes = new Uint16Array(rows * columns), pauses = new Pauses();
    for (let top = 0; top < rows; top += step) {
      const count = Math.min(step, rows - top), values = await this.numbers(page.head, top, count);
      const strongest = new Float64Array(page.columns);
      values.forEach((value, k) => {
        const i = top + Math.floor(k / columns), j = k % columns, block = Math.floor(j / step);
        const blank = value === -Infinity || (value === 0 && page.blank !== 0);
        codes[i * columns + j] = blank ? page.blank : codeOf(value, this.facts.unit);
        if (Math.abs(value) > strongest[block] && Number.isFinite(value)) strongest[block] = Math.abs(value);
      });
      for (let block = 0; block < page.columns; ++block) {
        const shown = page.blockValue(top / step, block);
        if (shown === null || !Number.isFinite(shown)) continue;
        const reach = page.error(top) * 1.001 + 1e-6 * strongest[block];
        if (!(Math.abs(Math.abs(shown) - strongest[block]) <= reach)) refuse('its values differ from those of the page');
      }
      await pauses.pause();
    }
    return {tall: 1, wide: 1, rows, columns, codes};
  }
}

/** Which file of one result is open. What is read from a file is of the OpenFile, so that nothing of it is taken for another's. */
export class Source {
  /** @param {Facts} facts @param {number} set */
  constructor(facts, set) {
    this.facts = facts;
    this.set = set;
    this.about = aboutOf(facts, set);
    /** Null if none is open. @type {OpenFile | null} */
    this.file = null;
    /** The last that the user chose. @type {Blob | null} */
    this.chosen = null;
  }

  /**
   * Opens a file instead of another. Errors: if it cannot be the file of the page.
   * @param {Blob} chosen
   * @param {(file: OpenFile) => Promise<unknown>} check
   * @returns {Promise<boolean>} false if the user has chosen another file since
   */
  async open(chosen, check) {
    this.chosen = chosen;
    this.file = null;
    try {
      const {size, packed} = this.about;
      if (chosen.size !== size) refuse(`it has ${chosen.size} bytes, the page's file ${size}`);
      const file = new OpenFile(this.facts, this.set, packed ? await expanded(chosen.slice(packed[0], packed[0] + packed[1])) : chosen);
      await check(file);
      if (this.chosen === chosen) this.file = file;
    } catch (error) {
      if (this.chosen === chosen) throw error;
    }
    return this.chosen === chosen;
  }

  /** Closes this file; false if it is not open. @param {OpenFile} file */
  close(file) {
    if (this.file !== file) return false;
    this.file = null;
    return true;
  }
}
