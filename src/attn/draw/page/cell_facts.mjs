// The list of facts about the selected cell and its row.

import {kDifference, kEntropy, kSum} from './data.mjs';
import {byId, named, one, shortened} from './dom.mjs';
import {widest} from './pen.mjs';
import {entropyText} from './scale.mjs';
import {TileMatrix} from './tiles.mjs';

/** @typedef {import('./data.mjs').Data} Data */
/** @typedef {import('./data.mjs').Facts} Facts */
/** @typedef {import('./state.mjs').State} State */
/** @typedef {import('./shown_numbers.mjs').ShownNumbers} ShownNumbers */

const kLeastEntry = 6.6, kSumError = .01;  // rem; of the sum of a row

/** @param {Facts} facts */
const hasSinks = ({why}) => typeof why === 'object' && Boolean(why?.sinks);

/** Names the entries and sets their widths. @param {Data} data */
export function nameFacts({facts, compares}) {
  byId('row-axis').textContent = one(facts.rowAxis);
  byId('column-axis').textContent = one(facts.columnAxis);
  for (const [id, labels] of /** @type {[string, string[]][]} */ ([['query', facts.rows], ['key', facts.columns]])) {
    const wide = widest(labels.map((_, i) => named(labels, i)), 300, 15) / 15 + .3;
    if (wide > kLeastEntry) /** @type {HTMLElement} */ (byId(id).parentElement).style.flex = `2 1 ${wide}rem`;
  }
  if (compares) [byId('first-name').textContent, byId('second-name').textContent] = facts.sets;
  if (!hasSinks(facts)) return;
  byId('sum-name').textContent = 'sum without sink';
  byId('sum-name').title = 'of the weights of the row';
}

/** Six digits; all of them in a tooltip. @param {string} id @param {string} text */
function writeNumber(id, text) {
  byId(id).textContent = shortened(text);
  byId(id).title = text;
}

/** Says that the entropy is of the row as it is, if the row does not sum to 1; that of a mean is divided by the sum. @param {Facts} facts @param {boolean} isTile @param {number[]} sums */
function nameEntropy(facts, isTile, sums) {
  const isAsIs = hasSinks(facts) || (!isTile && sums.some(sum => Math.abs(sum - 1) > kSumError));
  byId('entropy-name').textContent = isAsIs ? 'entropy −Σ a ln a, nats' : 'entropy in nats';
  byId('entropy-name').title = isAsIs ? `of the weights of the row as they are, which do not sum to 1${hasSinks(facts) ? ' without the sink' : ''}` : '';
}

/** @param {Data} data @param {State} state @param {ShownNumbers} numbers */
export function writeFacts(data, state, numbers) {
  const {facts, compares} = data, {row, column} = state, matrix = numbers.matrix(0);
  byId('query').textContent = byId('query').title = named(facts.rows, row);
  byId('key').textContent = byId('key').title = named(facts.columns, column);
  for (const [set, id] of /** @type {[number, string][]} */ ([[0, 'value'], ...compares ? [[1, 'other'], [kDifference, 'difference']] : []]))
    writeNumber(id, numbers.text(set, row, column));
  /** A number of the row in each result. @param {string} id @param {number} what @param {(number: number) => string} format */
  const writeOfRow = (id, what, format) => {
    const all = facts.sets.map((_, set) => numbers.ofRow(set, what));
    byId(id).textContent = all.map(number => Number.isFinite(number) ? format(number) : '–').join(' and ');
    const digits = all.map(number => String(Number(number.toPrecision(7))));  // stored as float32
    byId(id).title = compares ? facts.sets.map((name, set) => `${name}: ${digits[set]}`).join('\n') : digits[0];
    return all;
  };
  const sums = writeOfRow('sum', kSum, sum => String(Number(sum.toPrecision(6))));
  const error = matrix instanceof TileMatrix ? matrix.entropyError(row) : 0;
  writeOfRow('entropy', kEntropy, entropy => entropyText(entropy, error, compares ? 2 : 3));
  nameEntropy(facts, data.tile(state.head) !== undefined, sums);
}
