// Finds tokens by the words of the field "find".

import {byId, input} from './dom.mjs';
import {strongestKey} from './strongest.mjs';

export class Finder {
  /**
   * @param {import('./data.mjs').Facts} facts
   * @param {import('./state.mjs').State} state
   * @param {() => void} changed what follows when other tokens are found
   */
  constructor(facts, state, changed) {
    this.facts = facts;
    this.state = state;
    this.changed = changed;
    /** Whether keys were searched last, so that they are counted. */
    this.findsKeys = false;
  }

  /** Whether a label has the words. */
  get isFound() {
    const words = this.state.find.toLowerCase();
    return (/** @type {string} */ label) => words !== '' && label.toLowerCase().includes(words);
  }
  /** @param {string[]} labels */
  among(labels) {
    const {isFound} = this;
    return labels.flatMap((label, k) => isFound(label) ? [k] : []);
  }

  /** Says how many queries, or keys, have the words, and which of these is selected. */
  count() {
    const {facts, state, findsKeys} = this, queries = this.among(facts.rows), ofKeys = findsKeys || queries.length === 0;
    const places = ofKeys ? this.among(facts.columns) : queries, at = places.indexOf(ofKeys ? state.column : state.row);
    byId('found').textContent = state.find === '' ? '' : places.length === 0 ? 'not found'
        : at < 0 ? `${places.length} found` : `${at + 1} of ${places.length} ${findsKeys ? `${facts.columnAxis} ` : ''}found`;
  }

  /** Finds the words of the field. */
  find() {
    this.state.find = input('find').value;
    this.findsKeys = false;
    this.count();
    this.changed();
  }
  clear() {
    input('find').value = '';
    this.find();
  }

  /**
   * The row and column of the next query that is found; of the next key if no query is, or if `ofKeys`. Null if there is none.
   * @param {boolean} ofKeys
   * @param {import('./strongest.mjs').AnyWeights} weights which hide keys
   * @returns {[number, number] | null}
   */
  next(ofKeys, weights) {
    const {facts, state} = this, queries = this.among(facts.rows), keys = this.among(facts.columns);
    const after = (/** @type {number[]} */ places, /** @type {number} */ at) => places.find(place => place > at) ?? places[0];
    this.findsKeys = queries.length === 0 || (ofKeys && keys.length > 0);
    if (this.findsKeys) return keys.length > 0 ? [state.row, after(keys, state.column)] : null;
    const row = after(queries, state.row);
    return [row, weights?.value(row, state.column) === null ? strongestKey(weights, row, facts.columns.length) ?? state.column : state.column];  // not a hidden key
  }
}
