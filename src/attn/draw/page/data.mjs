// The data of the page. draw/page.h lists the elements that have them.

import {codeOf, codesFrom, kZero, levelOf} from './codes.mjs';
import {Pauses} from './tasks.mjs';
import {Scores, vectorsOf} from './why.mjs';

/** @typedef {import('./codes.mjs').Level} Level */
/**
 * The element `attn`. In `sources`, `places` are the matrices' positions in the tensor of the file, of `size`
 * bytes; its elements begin at `offset`, if `packed` in what these bytes (begin, count) expand to. `why` is a sentence if
 * the page does not say how its weights came about, and null if they are no weights of a job. `largest` has the largest magnitude of
 * each head in each set, also of queries that read one key.
 * @typedef {{title: string, notes: string[], sets: string[], rowAxis: string, columnAxis: string,
 *   rows: string[], columns: string[], heads: string[], groups: string[], groupEnds: number[],
 *   bits: number, step: number, first: number[], end: number[],
 *   sources: {file: string, size: number, dtype: string, offset: number, packed: number[] | null, places: number[]}[] | null,
 *   hidden: boolean[], zeros: boolean[], nan: boolean[], areWeights: boolean, limits: number[], signed: boolean, curve: 'linear' | 'root' | 'log', chosenLimits: boolean,
 *   maps: {paper: string, night: string, diverging: string, divergingNight: string},
 *   unit: number, largest: (number | null)[][], overview: number[], opening: number, gradient: boolean, chunk: number, pyramid: number[][],
 *   statistics: {name: string, title: string, note: string, of: (number | null)[][]}[], why: import('./why.mjs').Why | string | null}} Facts
 */

/** The set that is the difference of the two results. */
export const kDifference = 2;

const digits = new Uint8Array(128);
'0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@[]^_{|'
    .split('').forEach((letter, digit) => { digits[letter.charCodeAt(0)] = digit; });

/**
 * Five base-85 digits, the most significant first, encode a little-endian 32-bit word (draw/markup.h).
 * @param {string} text
 */
async function decodedBase85(text) {
  const words = new Uint32Array(Math.floor(text.length / 5)), pauses = new Pauses();
  for (let k = 0, at = 0; k < words.length; ++k, at += 5) {
    words[k] = (((digits[text.charCodeAt(at)] * 85 + digits[text.charCodeAt(at + 1)]) * 85 +
                 digits[text.charCodeAt(at + 2)]) * 85 + digits[text.charCodeAt(at + 3)]) * 85 +
        digits[text.charCodeAt(at + 4)];
    if (k % 16384 === 0) await pauses.pause();
  }
  return new Uint8Array(words.buffer);
}

/**
 * Expands a zlib stream that follows its length.
 * @param {Uint8Array} bytes
 */
async function inflated(bytes) {
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const packed = new ReadableStream({start(control) { control.enqueue(bytes.subarray(4, 4 + length)); control.close(); }});
  const stream = packed.pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Four numbers for each row: sum, entropy in nats, least, greatest.
export const kSum = 0, kEntropy = 1, kLeast = 2, kMost = 3;

/** The values of a matrix. Blocks of facts.step x facts.step cells have one value. */
export class Matrix {
  /**
   * @param {Facts} facts
   * @param {number} set
   * @param {number} head
   * @param {Uint8Array} bytes of the element values-S-P
   */
  constructor(facts, set, head, bytes) {
    this.facts = facts;
    this.head = head;
    this.step = facts.step;
    this.rows = Math.ceil(facts.rows.length / this.step);
    this.columns = Math.ceil(facts.columns.length / this.step);
    const size = facts.bits / 8, begin = 16 * this.rows;
    this.ofRows = new Float32Array(bytes.buffer, bytes.byteOffset, 4 * this.rows);
    const count = Math.floor((bytes.byteLength - begin) / size);
    const body = bytes.slice(begin, begin + count * size).buffer;
    this.cells = facts.bits === 64 ? new Float64Array(body) : facts.bits === 32 ? new Float32Array(body)
               : facts.bits === 16 ? new Uint16Array(body) : new Uint8Array(body);
    /** Whether the values are 32-bit floats. */
    this.single = facts.bits === 32;
    this.top = facts.bits > 16 ? 0 : 2 ** facts.bits - 1;  // hidden; one below: NaN
    /** What cells without a value are. */
    this.blank = facts.zeros[set] && !facts.hidden[set] ? kZero : 0;
    /** starts[i] + j is the index of cell (i, j). @type {number[]} */
    this.starts = [];
    facts.first.reduce((at, first, i) => {
      this.starts.push(at - first);
      return at + facts.end[i] - first;
    }, 0);
  }

  /**
   * @param {number} i row of the tensor
   * @param {number} what
   */
  row(i, what) { return this.ofRows[4 * Math.floor(i / this.step) + what]; }

  /**
   * The value of the block of a cell; null if it is hidden.
   * @param {number} i
   * @param {number} j
   */
  value(i, j) {
    if (this.step > 1) {
      i = Math.floor(i / this.step);
      j = Math.floor(j / this.step);
    }
    return this.blockValue(i, j);
  }

  /**
   * @param {number} i row of blocks
   * @param {number} j
   * @returns {number | null}
   */
  blockValue(i, j) {
    if (j < this.facts.first[i] || j >= this.facts.end[i]) return null;
    const cell = this.cells[this.starts[i] + j];
    if (this.top === 0) return cell === -Infinity ? null : cell;
    if (cell >= this.top - 1) return cell === this.top ? null : NaN;
    const least = this.ofRows[4 * i + kLeast];
    return least + (this.ofRows[4 * i + kMost] - least) * cell / (this.top - 2);
  }

  /**
   * The same, but 0 if the cell is a weight of exactly 0 that may be hidden.
   * @param {number} i row of blocks
   * @param {number} j
   */
  blockNumber(i, j) { return this.blockValue(i, j) ?? (this.blank === kZero ? 0 : null); }

  /**
   * A bound of the difference between the page's values of a row and those of the file; 0: they are equal. The limits of the
   * row are 32-bit floats.
   * @param {number} i
   */
  error(i) {
    const least = this.row(i, kLeast), most = this.row(i, kMost);
    return this.top === 0 ? 0 : (most - least) / (this.top - 2) / 2 + Math.max(Math.abs(least), Math.abs(most)) * 2 ** -24;
  }

  /** The codes of all cells. @returns {Promise<Level>} */
  async level() {
    const {facts} = this, pauses = new Pauses();
    const level = levelOf(facts.rows.length, facts.columns.length, [this.step, this.step]);
    const codes = level.codes = new Uint16Array(this.rows * this.columns).fill(this.blank);
    const steps = this.top === 255 ? new Uint16Array(256) : null;
    for (let i = 0, at = 0; i < this.rows; ++i) {
      const start = i * this.columns + facts.first[i], count = facts.end[i] - facts.first[i];
      if (steps && count > 128) {
        const least = this.ofRows[4 * i + kLeast], width = this.ofRows[4 * i + kMost] - least;
        for (let cell = 0; cell < 254; ++cell) steps[cell] = codeOf(least + width * cell / 253, facts.unit);
        steps[254] = codeOf(NaN, 1);
        steps[255] = this.blank;
        for (let k = 0; k < count; ++k) codes[start + k] = steps[this.cells[at + k]];
      } else {
        for (let k = 0; k < count; ++k) {
          const value = this.blockValue(i, facts.first[i] + k);
          codes[start + k] = value === null ? this.blank : codeOf(value, facts.unit);
        }
      }
      at += count;
      if (i % 16 === 0) await pauses.pause();
    }
    return level;
  }
}

/**
 * A number of the first result minus that of the second; null if hidden in both, or, unless these are weights, in either.
 * @param {number | null} a
 * @param {number | null} b
 * @param {boolean} areWeights
 */
export function differenceOf(a, b, areWeights) {
  const isHidden = areWeights ? a === null && b === null : a === null || b === null;
  return isHidden ? null : (a ?? 0) - (b ?? 0);
}

/** The first result minus the second. */
export class Difference {
  /**
   * @param {Matrix} a
   * @param {Matrix} b
   * @param {boolean} areWeights
   */
  constructor(a, b, areWeights) { this.a = a; this.b = b; this.areWeights = areWeights; this.step = a.step; this.single = a.single; }
  row() { return NaN; }
  /**
   * @param {number} i
   * @param {number} j
   */
  value(i, j) {
    const {step} = this;
    return this.blockValue(Math.floor(i / step), Math.floor(j / step));
  }
  /**
   * @param {number} i
   * @param {number} j
   */
  blockValue(i, j) {
    return differenceOf(this.a.blockNumber(i, j), this.b.blockNumber(i, j), this.areWeights);
  }
  /** @param {number} i */
  error(i) { return this.a.error(i) + this.b.error(i); }
  /** @returns {Promise<Level>} */
  async level() {
    const {facts, step} = this.a;
    return levelFrom(facts, step, facts.unit, (i, j) => this.blockValue(i, j));
  }
}

/**
 * @param {Facts} facts
 * @param {number} step
 * @param {number} unit
 * @param {(i: number, j: number) => number | null} blockValue
 */
export async function levelFrom(facts, step, unit, blockValue) {
  const level = levelOf(facts.rows.length, facts.columns.length, [step, step]), {rows, columns} = level, pauses = new Pauses();
  level.codes = new Uint16Array(rows * columns);
  for (let i = 0; i < rows; ++i) {
    for (let j = 0; j < columns; ++j) level.codes[i * columns + j] = codeOf(blockValue(i, j), unit);
    await pauses.pause();
  }
  return level;
}

/** The scores of a head at a stage before the softmax. */
export class StageMatrix {
  /** @param {Facts} facts @param {Scores} scores @param {'scores' | 'scaled' | 'masked'} stage */
  constructor(facts, scores, stage) {
    this.facts = facts;
    this.step = 1;
    this.scores = scores;
    this.single = scores.why.bits === 32;
    this.stage = stage;
    /** The largest magnitude that can have a weight, and the unit of the level's codes. */
    this.largest = 0;
    this.unit = 1;
  }
  row() { return NaN; }
  error() { return 0; }
  /** @param {number} i @param {number} j */
  value(i, j) {
    const value = this.scores[this.stage](i, j);
    return this.stage === 'masked' && value === -Infinity ? null : value;
  }
  /** @returns {Promise<Level>} */
  async level() {
    const {facts, scores: {why}} = this, columns = facts.columns.length, pauses = new Pauses();
    const all = new Float64Array(facts.rows.length * columns);
    for (let i = 0; i < facts.rows.length; ++i) {
      const row = all.subarray(i * columns, (i + 1) * columns);
      for (let j = 0; j < columns; ++j) row[j] = this.value(i, j) ?? -Infinity;
      // Masks that add -1e9 to scores would leave no colours for the others: their weights are 0.
      const least = this.stage === 'masked' ? row.reduce((a, b) => Math.max(a, b), -Infinity) - kMostExponent * why.temperature : -Infinity;
      for (const value of row) if (Number.isFinite(value) && value >= least) this.largest = Math.max(this.largest, Math.abs(value));
      await pauses.pause();
    }
    this.unit = 2 ** Math.ceil(Math.log2(this.largest || 1) - 14);
    return levelFrom(facts, 1, this.unit, (i, j) => this.stage === 'masked' && all[i * columns + j] === -Infinity ? null : all[i * columns + j]);
  }
}
/** exp(-x) is 0 for larger x. */
const kMostExponent = 745;

/** A cache that forgets what was used longest ago. @template T */
class Recent {
  /** @param {number} size entries */
  constructor(size) {
    this.size = size;
    /** @type {Map<string, T>} */
    this.entries = new Map();
  }
  /**
   * @param {string} key
   * @param {() => T} make
   */
  get(key, make) {
    const known = this.entries.get(key), entry = known ?? make();
    this.entries.delete(key);
    this.entries.set(key, entry);
    if (this.entries.size > this.size) this.entries.delete(/** @type {string} */ (this.entries.keys().next().value));
    return entry;
  }
}

/**
 * What can be drawn of a matrix. `matrix` is null, and `levels` are the coarse ones only, until its
 * values are decoded.
 * @typedef {{levels: Level[], matrix: Matrix | Difference | StageMatrix | null}} Head
 */

/** Parts of the overview that are expanded at the same time: each waits for tasks of the browser that read the page. */
const kChunksAtOnce = 16;

export class Data {
  /**
   * @param {Facts} facts
   * @param {(id: string) => Promise<string>} textOf an element
   */
  constructor(facts, textOf) {
    this.facts = facts;
    this.textOf = textOf;
    this.compares = facts.sets.length === 2;
    /** @type {(Level | undefined)[][]} for each set and matrix */
    this.overviews = [[], [], []];
    const cells = Math.max(1, facts.rows.length * facts.columns.length / facts.step ** 2);
    const kept = Math.max(6, Math.min(64, Math.floor(4e7 / cells)));
    /** @type {Recent<Promise<Matrix | Difference>>} */
    this.matrices = new Recent(kept);
    /** @type {Recent<Promise<Level[]>>} */
    this.pyramids = new Recent(kept);
    /** @type {Recent<Promise<Level>>} */
    this.finest = new Recent(kept);
    /** @type {Recent<Promise<import('./why.mjs').Vectors>>} */
    this.ofSteps = new Recent(6);
    /** @type {Recent<Promise<Uint8Array>>} */
    this.ofHiding = new Recent(6);
    /** @type {Recent<Promise<Head>>} */
    this.stages = new Recent(6);
    /** All cells of a head in the original file, which replace those of the page. @type {(set: number, head: number) => Level | undefined} */
    this.levelOfFile = () => undefined;
    /** Computed matrices, which are numbered after the heads. @type {import('./tiles.mjs').Tiles | null} */
    this.tiles = null;
  }

  /** Whether the values are weights, whose rows have sums and entropies. */
  get hasSums() { return this.facts.statistics.some(({name}) => name === 'entropy'); }
  get headCount() { return this.facts.heads.length; }
  /** Heads and tiles. */
  get count() { return this.headCount + (this.tiles?.list.length ?? 0); }
  /** @param {number} head */
  tile(head) { return this.tiles?.tile(head); }
  /** @param {number} head */
  nameOf(head) { return this.tile(head)?.title ?? this.facts.heads[head]; }
  /** @param {number} head */
  groupOf(head) {
    const {groups, groupEnds} = this.facts;
    return groups[this.tile(head)?.group ?? groupEnds.findIndex(end => head < end)] ?? '';
  }

  /** @param {string} id */
  async bytes(id) { return inflated(await decodedBase85(await this.textOf(id))); }

  /**
   * Decodes the overview levels of a set; `ready(first, end)` is called for each part.
   * @param {number} set
   * @param {(first: number, end: number) => void} ready
   */
  async loadOverview(set, ready) {
    const {facts} = this, of = this.overviews[set], pauses = new Pauses();
    /** @type {Promise<Uint8Array>[]} */
    const parts = [], chunks = Math.ceil(this.headCount / facts.chunk);
    for (let chunk = 0; chunk < chunks; ++chunk) {
      const first = chunk * facts.chunk, end = Math.min(first + facts.chunk, this.headCount);
      if (!of[first]) {
        for (let next = chunk; next < Math.min(chunk + kChunksAtOnce, chunks); ++next) parts[next] ??= this.bytes(`overview-${set}-${next}`);
        const bytes = await parts[chunk];
        for (let head = first; head < end; ++head) {
          const level = levelOf(facts.rows.length, facts.columns.length, facts.overview);
          const count = level.rows * level.columns;
          level.codes = codesFrom(bytes, (head - first) * count, count, (end - first) * count);
          of[head] = level;
        }
      }
      ready(first, end);
      await pauses.pause();
    }
  }

  /**
   * @param {number} set
   * @param {number} head
   * @returns {Promise<Matrix | Difference>}
   */
  matrix(set, head) {
    if (this.tiles && this.tile(head)) return /** @type {Promise<any>} */ (this.tiles.matrix(head));
    return this.matrices.get(`${set}-${head}`, async () => {
      if (set !== kDifference) return new Matrix(this.facts, set, head, await this.bytes(`values-${set}-${head}`));
      const [a, b] = /** @type {[Matrix, Matrix]} */ (await Promise.all([this.matrix(0, head), this.matrix(1, head)]));
      return new Difference(a, b, this.facts.areWeights);
    });
  }

  /** Queries, keys and values of a head; `why` of the facts is an object. @param {number} head */
  vectors(head) {
    return this.ofSteps.get(String(head), async () => {
      const {rows, columns} = this.facts, why = /** @type {import('./why.mjs').Why} */ (this.facts.why);
      const bytes = await Promise.all([this.bytes(`steps-0-${head}`), this.bytes(`keyed-0-${why.keyed[head]}`)]);
      return vectorsOf(why, bytes[0], bytes[1], rows.length, columns.length);
    });
  }

  /** The options that hide a cell, if the page knows. @param {number} head @param {number} row @param {number} column */
  async hidingKey(head, row, column) {
    const {hiding} = /** @type {import('./why.mjs').Why} */ (this.facts.why);
    if (!hiding) return null;
    const cells = await this.ofHiding.get(String(hiding.of[head]), () => this.bytes(`hiding-0-${hiding.of[head]}`));
    return hiding.sets[cells[row * this.facts.columns.length + column]];
  }

  /** A head at a stage before the softmax. @param {number} head @param {'scores' | 'scaled' | 'masked'} stage @returns {Promise<Head>} */
  stage(head, stage) {
    return this.stages.get(`${stage}-${head}`, async () => {
      const [vectors, weights] = await Promise.all([this.vectors(head), this.matrix(0, head)]);
      const why = /** @type {import('./why.mjs').Why} */ (this.facts.why);
      const scores = new Scores(why, vectors, head, (i, j) => weights.value(i, j) === null);
      const matrix = new StageMatrix(this.facts, scores, stage);
      return {levels: [await matrix.level()], matrix};
    });
  }

  /**
   * The levels between the overview and the values.
   * @param {number} set
   * @param {number} head
   */
  pyramid(set, head) {
    return this.pyramids.get(`${set}-${head}`, async () => {
      const {facts} = this;
      if (facts.pyramid.length === 0 || this.tile(head)) return [];
      const bytes = await this.bytes(`pyramid-${set}-${head}`);
      const levels = facts.pyramid.map(blocks => levelOf(facts.rows.length, facts.columns.length, blocks));
      const all = levels.reduce((count, level) => count + level.rows * level.columns, 0);
      levels.reduce((at, level) => {
        const count = level.rows * level.columns;
        level.codes = codesFrom(bytes, at, count, all);
        return at + count;
      }, 0);
      return levels;
    });
  }

  /**
   * The matrix with all levels. The strongest cells of a difference are those of the pyramid and the
   * overview, which attn computed from exact values.
   * @param {number} set
   * @param {number} head
   * @returns {Promise<{levels: Level[], matrix: Matrix | Difference}>}
   */
  async head(set, head) {
    const matrix = await this.matrix(set, head), pyramid = await this.pyramid(set, head);
    const finest = await this.finest.get(`${set}-${head}`, () => matrix.level());
    const overview = this.overviews[set][head], read = this.levelOfFile(set, head);
    return {matrix, levels: [read ?? [], finest, pyramid, overview ?? []].flat()};
  }
}

/** What each matrix is: a head or, if there is no axis of heads, an item of a batch or a layer. @param {{heads: string[]}} facts */
export function matrixName({heads}) {
  const isOf = (/** @type {RegExp} */ axis) => heads.every(name => axis.test(name));
  return isOf(/^batch \d+$/) ? 'item' : isOf(/^layer \d+$/) ? 'layer' : 'head';
}

/** "a head" @param {{heads: string[]}} facts */
export function aMatrix(facts) {
  const name = matrixName(facts);
  return `${name === 'item' ? 'an' : 'a'} ${name}`;
}

/** What cells without a value are, in words. @param {Facts} facts @param {number} set */
export function blankName(facts, set) {
  const of = (/** @type {boolean[]} */ kinds) => set === kDifference ? kinds.some(Boolean) : kinds[set];
  return of(facts.hidden) || !of(facts.zeros) ? 'hidden' : 'exactly 0';
}
