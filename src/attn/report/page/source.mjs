// Reads exact values from the original file, if the user opens it on a page that has rounded ones.
// Nothing is sent anywhere.

import {codeOf} from './codes.mjs';
import {Matrix, Pauses} from './data.mjs';

/** @typedef {import('./data.mjs').Facts} Facts */
/**
 * The elements of a tensor in a file, from byte `at`.
 * @typedef {{blob: Blob, at: number, kind: string, shape: number[]}} Place
 */

const word = new DataView(new ArrayBuffer(4));

/** @param {number} bits */
function half(bits) {
  const power = bits >> 10 & 31, part = bits & 1023, sign = bits >> 15 ? -1 : 1;
  if (power === 31) return part ? NaN : sign * Infinity;
  return sign * (power ? 2 ** (power - 15) * (1 + part / 1024) : 2 ** -14 * part / 1024);
}

/** Size and reader of an element, for each dtype. @type {Record<string, [number, (v: DataView, at: number) => number]>} */
const kReaders = {
  f8: [8, (v, at) => v.getFloat64(at, true)], f4: [4, (v, at) => v.getFloat32(at, true)],
  f2: [2, (v, at) => half(v.getUint16(at, true))],
  bf16: [2, (v, at) => { word.setUint32(0, v.getUint16(at, true) << 16); return word.getFloat32(0); }],
  i8: [8, (v, at) => Number(v.getBigInt64(at, true))], u8: [8, (v, at) => Number(v.getBigUint64(at, true))],
  i4: [4, (v, at) => v.getInt32(at, true)], u4: [4, (v, at) => v.getUint32(at, true)],
  i2: [2, (v, at) => v.getInt16(at, true)], u2: [2, (v, at) => v.getUint16(at, true)],
  i1: [1, (v, at) => v.getInt8(at)], u1: [1, (v, at) => v.getUint8(at)], b1: [1, (v, at) => v.getUint8(at)],
};
/** @type {Record<string, string>} */
const kSafetensors = {F64: 'f8', F32: 'f4', F16: 'f2', BF16: 'bf16', I64: 'i8', I32: 'i4', I16: 'i2', I8: 'i1',
                      U64: 'u8', U32: 'u4', U16: 'u2', U8: 'u1', BOOL: 'b1'};

/** @param {Blob} blob @param {number} from @param {number} to */
async function view(blob, from, to) { return new DataView(await blob.slice(from, to).arrayBuffer()); }
/** @param {Blob} blob @param {number} from @param {number} to */
async function latin1(blob, from, to) {
  return new TextDecoder('latin1').decode(await blob.slice(from, to).arrayBuffer());
}

/** @param {string} why @returns {never} */
function refuse(why) { throw new Error(why); }
/** @param {string} name @returns {never} */
const missing = name => refuse(name ? `the file has no tensor ${name}` : 'expected an .npy file');

/** @param {Blob} blob @returns {Promise<Place>} */
async function inNpy(blob) {
  const start = await view(blob, 0, 12), wide = start.getUint8(6) > 1;
  const begin = wide ? 12 : 10;
  const end = begin + (wide ? start.getUint32(8, true) : start.getUint16(8, true));
  const header = await latin1(blob, begin, end);
  const dtype = /'descr': '[<|]([a-z]\d)'/.exec(header), shape = /'shape': \(([^)]*)\)/.exec(header);
  if (!dtype || !shape || !header.includes("'fortran_order': False"))
    return refuse('unsupported .npy header: expected C order and little-endian numbers');
  return {blob, at: end, kind: dtype[1], shape: shape[1].split(',').filter(n => n.trim()).map(Number)};
}

/** @param {Blob} blob @param {string} name @returns {Promise<Place>} */
async function inNpz(blob, name) {
  const size = blob.size, tail = await view(blob, Math.max(0, size - 65557), size);
  let end = tail.byteLength - 22;
  while (end >= 0 && tail.getUint32(end, true) !== 0x06054b50) --end;
  if (end < 0) refuse('incomplete zip archive');
  const from = tail.getUint32(end + 16, true), list = await view(blob, from, from + tail.getUint32(end + 12, true));
  for (let at = 0; at + 46 <= list.byteLength;) {
    const letters = list.getUint16(at + 28, true), extra = list.getUint16(at + 30, true);
    const member = await latin1(blob, from + at + 46, from + at + 46 + letters);
    if (member === `${name}.npy`) return inNpy(await unpacked(blob, list, at));
    at += 46 + letters + extra + list.getUint16(at + 32, true);
  }
  return missing(name);
}

/** @param {Blob} blob @param {DataView} list @param {number} at */
async function unpacked(blob, list, at) {
  const method = list.getUint16(at + 10, true), size = list.getUint32(at + 20, true);
  const place = list.getUint32(at + 42, true), local = await view(blob, place, place + 30);
  if (size === 0xffffffff || place === 0xffffffff) refuse('larger than 4 GB');
  const begin = place + 30 + local.getUint16(26, true) + local.getUint16(28, true);
  const part = blob.slice(begin, begin + size);
  if (method === 0) return part;
  return new Response(part.stream().pipeThrough(new DecompressionStream('deflate-raw'))).blob();
}

/** @param {Blob} blob @param {string} name @returns {Promise<Place>} */
async function inSafetensors(blob, name) {
  const length = Number((await view(blob, 0, 8)).getBigUint64(0, true));
  const header = JSON.parse(await blob.slice(8, 8 + length).text());
  const entry = header[name] || missing(name);
  return {blob, at: 8 + length + entry.data_offsets[0], kind: kSafetensors[entry.dtype] ?? entry.dtype, shape: entry.shape};
}

/** @param {Blob} file @param {string} name */
async function placeIn(file, name) {
  const start = await latin1(file, 0, 8);
  if (start.slice(1, 6) === 'NUMPY') return inNpy(file);
  if (start.startsWith('PK')) return inNpz(file, name);
  return start.charCodeAt(7) === 0 ? inSafetensors(file, name) : refuse('unsupported file format');
}

/** The file of one result, once the user has opened it, and the last row that was read. */
export class Source {
  /** @param {Facts} facts @param {number} set */
  constructor(facts, set) {
    this.facts = facts;
    this.set = set;
    this.about = /** @type {NonNullable<Facts['sources']>} */ (facts.sources)[set];
    /** @type {Place | null} */
    this.place = null;
    /** @type {{key: string, values: Promise<number[]>}} */
    this.last = {key: '', values: Promise.resolve([])};
  }

  /** Errors: if the file has no such tensor, or its values are not those of the page. @param {Blob} file */
  async open(file) {
    const place = await placeIn(file, this.about.tensor);
    const length = place.shape.length, shape = place.shape.slice(length - 2);
    if (!kReaders[place.kind]) refuse(`unsupported dtype ${place.kind}`);
    if (length < 2 || shape[0] !== this.facts.rows.length || shape[1] !== this.facts.columns.length)
      refuse('its shape differs from that of the page');
    this.place = place;
    this.last.key = '';
  }

  close() { this.place = null; }

  /** Whether the values are floats of at most 32 bits. */
  get single() { return this.place !== null && /^(f4|f2|bf16)$/.test(this.place.kind); }

  /** @param {number} head @param {number} from first row @param {number} count rows */
  async numbers(head, from, count) {
    const {blob, at, kind} = /** @type {Place} */ (this.place), [size, reader] = kReaders[kind];
    const columns = this.facts.columns.length, rows = this.facts.rows.length;
    const start = at + (this.about.places[head] * rows + from) * columns * size, length = count * columns * size;
    const bytes = await view(blob, start, start + length);
    if (bytes.byteLength < length) refuse('the file is truncated');
    return Array.from({length: count * columns}, (_, k) => reader(bytes, k * size));
  }

  /**
   * The values of a row, compared with those of the page.
   * @param {Matrix} page
   * @param {number} head
   * @param {number} row
   * @returns {Promise<number[]>}
   */
  row(page, head, row) {
    const key = `${head}-${row}`;
    if (this.last.key !== key) {
      this.last = {key, values: this.numbers(head, row, 1).then(values => {
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
   * @param {number} head
   * @returns {Promise<import('./codes.mjs').Level>}
   */
  async level(page, head) {
    const rows = this.facts.rows.length, columns = this.facts.columns.length, {step} = page;
    const codes = new Uint16Array(rows * columns), pauses = new Pauses();
    for (let top = 0; top < rows; top += step) {
      const count = Math.min(step, rows - top), values = await this.numbers(head, top, count);
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
