// What the tooltip says of a head in the overview.

import {kDifference, matrixName} from './data.mjs';
import {shortened} from './dom.mjs';
import {meanOf, statistic} from './order.mjs';
import {brief} from './scale.mjs';
import {kSelected} from './selected.mjs';

/**
 * @param {number} head
 * @param {import('./data.mjs').Data} data
 * @param {number} set of the overview
 * @param {import('./names.mjs').Names} names
 * @param {import('./scale.mjs').Scale} scale
 * @param {import('./selected.mjs').SelectedWeights | null} selected
 */
export function headWords(head, {facts, overviews, tiles}, set, names, scale, selected) {
  const tile = tiles?.tile(head), heads = tile?.kind === 'mean' ? tiles?.headsOf(tile.group) ?? [] : [];
  const numbers = facts.statistics.map(({name, title}) => {
    if (tile) {
      const mean = name === kSelected || name === 'largest' ? null : meanOf(facts, name, heads);
      return mean === null ? '' : `\n${title}: ${brief(mean)} (mean of the ${matrixName(facts)}s)`;
    }
    const value = statistic(facts, name, set)[head] ?? null, isDifference = set === kDifference;
    const change = isDifference && name !== 'difference' ? 'change of ' : '';
    return value === null ? '' : `\n${change}${title}: ${name === kSelected && selected && !isDifference ? shortened(selected.text(set, head)) : brief(value)}`;
  });
  const isLate = tile && !overviews[0][head];
  const about = [tile && tiles?.about(tile), tile?.kind === 'rollout' && 'dotted: exactly 0, the query does not depend on the token', names.sharing(head),
                 isLate ? 'a click computes it' : `colours from ${scale.lowText} to ${brief(scale.high)}`].filter(Boolean);
  return `${names.title(head)}${numbers.join('')}\n${about.join('\n')}`;
}
