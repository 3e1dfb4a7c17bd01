// Matrices that the page computes of others: the mean of the heads of a layer, and the attention rollout up to a layer
// (Abnar and Zuidema 2020, arXiv:2005.00928), as stats/rollout.h.

import {kHidden, kZero} from './codes.mjs';
import {aMatrix, kEntropy, kSum, levelFrom, matrixName} from './data.mjs';
import {Pauses} from './tasks.mjs';

/** @typedef {import('./data.mjs').Facts} Facts */
/** A computed matrix of a group of heads. @typedef {{kind: 'mean' | 'rollout', group: number, title: string}} Tile */

const kResidual = .5;      // of the rollout: the share of the residual connection
const kMostProducts = 1e10;  // of a rollout: more would take the page about half a minute
const kAtOnce = {cells: 4e6, products: 2e8};  // of all heads, to compute the tiles when the page opens

/** A matrix in float64; -Infinity: hidden. */
export class TileMatrix {
  /**
   * @param {Facts} facts
   * @param {Float64Array} cells
   * @param {Float64Array} errors of each row
   * @param {Float64Array | null} sums of the rows of the file; null: those of the cells
   * @param {boolean} isRollout its zeros are tokens that a query does not depend on
   */
  constructor(facts, cells, errors, sums, isRollout) {
    this.sums = sums;
    this.isRollout = isRollout;
    this.facts = facts;
    this.step = 1;
    this.single = false;
    this.cells = cells;
    this.errors = errors;
    this.hasExactZeros = isRollout && cells.includes(0);
    this.largest = cells.reduce((most, x) => Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most, 0);
  }
  /** @param {number} i @param {number} j */
  value(i, j) {
    const cell = this.cells[i * this.facts.columns.length + j];
    return cell === -Infinity ? null : cell;
  }
  /** Zeros are exact. @param {number} i @param {number} j */
  error(i, j) { return this.value(i, j) === 0 ? 0 : this.errors[i]; }
  /** @param {number} i */
  seen(i) {
    const count = this.facts.columns.length;
    return this.cells.subarray(i * count, (i + 1) * count).filter(x => x !== -Infinity);
  }
  /** @param {number} i @param {number} what */
  row(i, what) {
    const numbers = this.seen(i), sum = numbers.reduce((a, b) => a + b, 0);
    if (what === kSum) return this.sums?.[i] ?? sum;
    return what === kEntropy ? numbers.reduce((total, x) => total - (x > 0 ? x / sum * Math.log(x / sum) : 0), 0) : NaN;
  }
  /** A bound of the error of a row's entropy. @param {number} i */
  entropyError(i) {
    const error = this.errors[i], numbers = this.seen(i).filter(x => x > 0);
    if (error === 0) return 0;
    const sum = numbers.reduce((a, b) => a + b, 0), entropy = this.row(i, kEntropy);
    // Its derivative is that of the entropy of the cells divided by their sum.
    const term = (/** @type {number} */ x) => x > 0 ? -x * (Math.log(x / sum) - 1 + entropy) / sum : 0;
    const bound = numbers.reduce((total, x) =>
        total + Math.max(Math.abs(term(x + error) - term(x)), Math.abs(term(Math.max(0, x - error)) - term(x))), 0);
    return bound / Math.max(.1, 1 - numbers.length * error / sum);  // the sum may be less
  }
  async level() {
    const {facts} = this, level = await levelFrom(facts, 1, facts.unit, (i, j) => this.value(i, j));
    // Cells without a value are what they are in the heads.
    if (facts.zeros[0] && !facts.hidden[0]) level.codes = level.codes.map(code => code === kHidden ? kZero : code);
    if (this.isRollout) level.codes = level.codes.map((code, at) => this.cells[at] === 0 ? kZero : code);
    return level;
  }
}

/**
 * The error of a cell's value; 0: it is exact.
 * @param {import('./cells.mjs').Numbers} matrix @param {number} row @param {number} column
 */
export const errorOf = (matrix, row, column) => matrix instanceof TileMatrix ? matrix.error(row, column) : matrix.error(row);

export class Tiles {
  /** @param {import('./data.mjs').Data} data @param {boolean} areWeights */
  constructor(data, areWeights) {
    this.data = data;
    /** Tile t is head number data.headCount + t. @type {Tile[]} */
    this.list = [];
    /** Of the tile that is being computed, in percent. */
    this.progress = 0;
    /** @type {Map<number, Promise<TileMatrix>>} */
    this.computed = new Map();
    /** How many layers the rollout has that is being computed. */
    this.last = 1;
    /** Products of the rollout up to a layer. @type {Map<number, Promise<Float64Array>>} */
    this.rollouts = new Map();
    const {facts} = data, {groups} = facts;
    this.hiddenAreZero = areWeights || (facts.zeros[0] && !facts.hidden[0]);
    if (data.compares || facts.step > 1) return;
    const isModel = areWeights && groups.length > 1 && groups.every(name => /^layer \d+$/.test(name)) &&
        facts.rows.length === facts.columns.length && facts.rows.every((label, i) => label === facts.columns[i]) &&
        groups.length * facts.rows.length ** 3 <= kMostProducts;
    groups.forEach((_, group) => {
      const count = this.headsOf(group).length;
      if (count > 1) this.list.push({kind: 'mean', group, title: `mean of ${count} ${matrixName(facts)}s`});
      if (isModel) this.list.push({kind: 'rollout', group, title: 'rollout'});
    });
  }

  /** @param {number} group */
  headsOf(group) {
    const {groupEnds} = this.data.facts, first = group === 0 ? 0 : groupEnds[group - 1];
    return Array.from({length: groupEnds[group] - first}, (_, k) => first + k);
  }

  /** The numbers of the tiles of a group. @param {number} group */
  ofGroup(group) {
    return this.list.flatMap((tile, t) => tile.group === group ? [this.data.headCount + t] : []);
  }

  /** What a tile is. @param {Tile} tile */
  about({kind}) {
    if (kind === 'rollout') return 'product of (mean of heads + identity) / 2, up to this layer';
    const a = aMatrix(this.data.facts);
    return this.hiddenAreZero ? `keys that ${a} hides count as 0` : `hidden where ${a} hides the key`;
  }

  /** The tile with this number, or undefined for a head. @param {number} head */
  tile(head) { return this.list[head - this.data.headCount]; }

  /** Whether all tiles take little time. */
  get isQuick() {
    const {facts} = this.data, n = facts.rows.length;
    return facts.heads.length * n * facts.columns.length <= kAtOnce.cells &&
        (this.list.every(({kind}) => kind !== 'rollout') || facts.groups.length * n ** 3 <= kAtOnce.products);
  }

  /** @param {number} head of a tile @returns {Promise<TileMatrix>} */
  matrix(head) {
    const known = this.computed.get(head), tile = this.list[head - this.data.headCount];
    const matrix = known ?? (tile.kind === 'mean' ? this.mean(tile.group) : this.rollout(tile.group));
    this.computed.set(head, matrix);
    return matrix;
  }

  /**
   * The mean of the heads of a group. Weights of hidden keys are 0: a key is hidden in the mean if all heads hide it. Scores of
   * hidden keys are -inf: so is the mean if one head hides a key, but NaN if another has NaN.
   * @param {number} group
   * @param {number} done percent, of a rollout
   */
  async mean(group, done = -1) {
    const {facts} = this.data, rows = facts.rows.length, columns = facts.columns.length, heads = this.headsOf(group), pauses = new Pauses();
    const cells = new Float64Array(rows * columns), seen = new Uint16Array(rows * columns), least = this.hiddenAreZero ? 1 : heads.length;
    const errors = new Float64Array(rows), sums = new Float64Array(rows);
    for (const head of heads) {
      const matrix = await this.data.matrix(0, head);
      if (done < 0) this.progress = Math.round(100 * heads.indexOf(head) / heads.length);
      for (let i = 0; i < rows; ++i) {
        errors[i] += matrix.error(i) / heads.length;
        sums[i] += matrix.row(i, kSum) / heads.length;
        for (let j = 0, at = i * columns; j < columns; ++j, ++at) {
          const value = matrix.value(i, j);
          if (value === null) continue;
          cells[at] += value;
          ++seen[at];
        }
        await pauses.pause();
      }
    }
    for (let at = 0; at < cells.length; ++at) cells[at] = seen[at] >= least || Number.isNaN(cells[at]) ? cells[at] / heads.length : -Infinity;
    return new TileMatrix(facts, cells, errors, sums, false);
  }

  /** A R, with R of the layer before and A = the mean of heads and the residual connection. @param {number} group @returns {Promise<Float64Array>} */
  product(group) {
    const known = this.rollouts.get(group) ?? this.multiplied(group);
    this.rollouts.set(group, known);
    return known;
  }
  /** @param {number} group */
  async multiplied(group) {
    const n = this.data.facts.rows.length, pauses = new Pauses();
    const before = group === 0 ? null : await this.product(group - 1);
    this.progress = Math.round(100 * group / this.last);
    const {cells} = await this.mean(group, this.progress);
    const product = new Float64Array(n * n), row = new Float64Array(n);
    for (let i = 0; i < n; ++i) {
      for (let j = 0; j < n; ++j) row[j] = (1 - kResidual) * Math.max(cells[i * n + j], 0) + (i === j ? kResidual : 0);
      const sum = row.reduce((a, b) => a + b, 0), out = product.subarray(i * n, (i + 1) * n);
      for (let k = 0; k < n; ++k) {
        const share = row[k] / sum;
        if (share === 0) continue;
        if (!before) out[k] = share;
        else for (let j = 0, at = k * n; j < n; ++j, ++at) out[j] += share * before[at];
      }
      await pauses.pause();
    }
    this.rollouts.delete(group - 2);  // only the next layer needs the one before
    return product;
  }
  /** Errors of a row are the sums of those of its heads in all layers: an estimate, as it also reads other rows. @param {number} group */
  async rollout(group) {
    this.last = group + 1;
    const {facts} = this.data, cells = (await this.product(group)).slice(), errors = new Float64Array(facts.rows.length);
    for (let layer = 0; layer <= group; ++layer) {
      const all = await Promise.all(this.headsOf(layer).map(head => this.data.matrix(0, head)));
      errors.forEach((_, i) => { errors[i] += all.reduce((sum, matrix) => sum + matrix.error(i), 0) / all.length; });
    }
    return new TileMatrix(facts, cells, errors, null, true);
  }
}
