// The order of heads in the overview, and which of them are shown.

/** @typedef {import('./data.mjs').Facts} Facts */

/**
 * A statistic of all heads. That of the difference of two results is its change, first minus second.
 * @param {Facts} facts
 * @param {string} name
 * @param {number} set
 * @returns {(number | null)[]}
 */
export function statistic(facts, name, set) {
  const found = facts.statistics.find(one => one.name === name);
  if (!found) return facts.heads.map(() => null);
  const {of} = found;
  if (of.length === 1) return of[0];
  if (set < 2) return of[set];
  return of[0].map((a, head) => { const b = of[1][head]; return a === null || b === null ? null : a - b; });
}

/** The mean of a statistic over heads; null if one has none, as with NaN. @param {Facts} facts @param {string} name @param {number[]} heads */
export function meanOf(facts, name, heads) {
  const all = statistic(facts, name, 0), numbers = heads.flatMap(head => all[head] ?? []);
  return heads.length > 0 && numbers.length === heads.length ? numbers.reduce((a, b) => a + b, 0) / numbers.length : null;
}

/** Whether the statistic of a set is a change. @param {Facts} facts @param {string} name @param {number} set */
export const isChange = (facts, name, set) => set === 2 && facts.statistics.find(one => one.name === name)?.of.length === 2;

/**
 * The heads in the order of a statistic, the largest first, or in that of the file for 'file'. Changes are ordered by magnitude. Heads
 * without a number are last. Heads outside of [least, most] are left out.
 * @param {Facts} facts
 * @param {string} name
 * @param {number} set
 * @param {number} least
 * @param {number} most
 * @param {boolean} lowestFirst
 * @returns {number[]}
 */
export function orderedHeads(facts, name, set, least = -Infinity, most = Infinity, lowestFirst = false) {
  const heads = facts.heads.map((_, head) => head);
  if (name === 'file') return heads;
  const values = statistic(facts, name, set);
  const unlimited = least === -Infinity && most === Infinity, changes = isChange(facts, name, set);
  const place = (/** @type {number} */ head) => {
    const value = values[head];
    return value === null ? Infinity : (lowestFirst ? 1 : -1) * (changes ? Math.abs(value) : value);
  };
  const isWithin = (/** @type {number | null} */ value) => value !== null && value >= least && value <= most;
  return heads.filter(head => unlimited || isWithin(values[head]))
      .sort((a, b) => (place(a) === place(b) ? 0 : place(a) - place(b)) || a - b);
}

/**
 * The rows of the overview: each layer if the heads are in the order of the file and there are
 * several layers, otherwise rows of equal length.
 * @param {Facts} facts
 * @param {number[]} heads
 * @param {boolean} byLayer
 * @param {number} across heads of a row, if not by layer
 * @returns {{title: string, heads: number[]}[]}
 */
export function rowsOfHeads(facts, heads, byLayer, across) {
  if (byLayer && facts.groups.length > 1) {
    const ends = facts.groupEnds;
    return facts.groups.map((title, g) => ({title, heads: heads.slice(g === 0 ? 0 : ends[g - 1], ends[g])}));
  }
  const rows = [];
  for (let from = 0; from < heads.length; from += across)
    rows.push({title: '', heads: heads.slice(from, from + across)});
  return rows;
}
