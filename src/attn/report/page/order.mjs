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

/**
 * The heads in the order of a statistic, the largest first, or in that of the file for 'file'. Heads
 * without a number are last. Heads outside of [least, most] are left out.
 * @param {Facts} facts
 * @param {string} name
 * @param {number} set
 * @param {number} least
 * @param {number} most
 * @returns {number[]}
 */
export function orderedHeads(facts, name, set, least = -Infinity, most = Infinity) {
  const heads = facts.heads.map((_, head) => head);
  if (name === 'file') return heads;
  const values = statistic(facts, name, set);
  const size = (/** @type {number} */ head) => values[head] ?? -Infinity;
  const unlimited = least === -Infinity && most === Infinity;
  return heads.filter(head => unlimited || (values[head] !== null && size(head) >= least && size(head) <= most))
      .sort((a, b) => (size(a) === size(b) ? 0 : size(b) - size(a)) || a - b);
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
