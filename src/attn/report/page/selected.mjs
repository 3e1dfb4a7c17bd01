// The selected weight in all heads, as a statistic that the overview can be ordered by.

import {Pauses} from './data.mjs';

/** @typedef {import('./data.mjs').Facts} Facts */

export const kSelected = 'selected';

export class SelectedWeights {
  /** @param {import('./data.mjs').Data} data @param {import('./state.mjs').State} state @param {string} title */
  constructor(data, state, title) {
    this.data = data;
    this.state = state;
    /** @type {Facts['statistics'][number]} */
    this.statistic = {name: kSelected, title, of: []};
    this.cell = '';
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

  /** The values of one head. @param {number} head */
  async read(head) {
    const {cell, statistic: {of}} = this, {row, column} = this.state.chosen;
    for (let set = 0; set < of.length; ++set) {
      const matrix = await this.data.matrix(set, head);
      if (cell === this.cell) of[set][head] = matrix.value(row, column);
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
