// The selected weight in all heads, as a statistic that the overview can be ordered by.

import {written} from './scale.mjs';
import {Pauses} from './tasks.mjs';
import {errorOf} from './tiles.mjs';

/** @typedef {import('./data.mjs').Facts} Facts */

export const kSelected = 'selected';

export class SelectedWeights {
  /** @param {import('./data.mjs').Data} data @param {import('./state.mjs').State} state @param {string} title */
  constructor(data, state, title) {
    this.data = data;
    this.state = state;
    /** @type {Facts['statistics'][number]} */
    this.statistic = {name: kSelected, title, note: '', of: []};
    this.cell = '';
    /** By set and head. @type {Map<string, number>} */
    this.errors = new Map();
    this.run = 0;
    this.reset();
    data.facts.statistics.push(this.statistic);
  }

  /** Forgets the values of another cell; returns whether it did. */
  reset() {
    const {facts} = this.data, {row, column} = this.state.chosen, cell = `${row} ${column}`;
    if (cell === this.cell) return false;
    this.cell = cell;
    this.statistic.of = facts.sets.map(() => facts.heads.map(() => null));
    return true;
  }

  /** Whether the value of a head has not been read. @param {number} head */
  lacks(head) { return this.statistic.of[0][head] === null; }

  /** The value of a head as text, with its error. @param {number} set @param {number} head */
  text(set, head) {
    const value = this.statistic.of[set]?.[head] ?? null;
    return value === null ? '' : written(value, this.errors.get(`${set} ${head}`) ?? 0, false, '');
  }

  /** The values of one head. @param {number} head */
  async read(head) {
    const {cell, statistic: {of}} = this, {row, column} = this.state.chosen;
    for (let set = 0; set < of.length; ++set) {
      const matrix = await this.data.matrix(set, head);
      if (cell !== this.cell) return;
      of[set][head] = matrix.value(row, column);
      this.errors.set(`${set} ${head}`, errorOf(matrix, row, column));
    }
  }

  /** The values of all heads. @param {(done: number) => void} report @returns {Promise<boolean>} false if the selection changed */
  async readAll(report) {
    const run = ++this.run, pauses = new Pauses();
    for (let head = 0; head < this.data.headCount; ++head) {
      if (head % 16 === 0) report(head);
      await this.read(head);
      await pauses.pause();
      if (run !== this.run) return false;
    }
    return true;
  }
}
