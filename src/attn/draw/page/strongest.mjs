// The strongest keys of a query, or queries of a key, with their values.

import {endsOf} from './cells.mjs';
import {brief, threeDigits} from './scale.mjs';

/** @typedef {import('./cells.mjs').Cells} Cells */

/** @typedef {{index: number, value: number, error: number}} Item */

/**
 * The `most` values of the largest magnitude, the largest first, without those that are or may be 0.
 * @param {number} count
 * @param {(index: number) => number | null} valueOf null: hidden
 * @param {number} most
 * @param {(index: number) => number} errorAt
 * @returns {Item[]}
 */
export function strongest(count, valueOf, most, errorAt = () => 0) {
  /** @type {Item[]} */
  const items = [];
  const size = (/** @type {Item} */ item) => Math.abs(item.value);
  for (let index = 0; index < count; ++index) {
    const value = valueOf(index);
    if (value === null || Number.isNaN(value)) continue;
    const item = {index, value, error: errorAt(index)};
    if (size(item) <= item.error) continue;
    if (items.length === most && size(item) <= size(items[most - 1])) continue;
    let at = items.length;
    while (at > 0 && size(items[at - 1]) < size(item)) --at;
    items.splice(at, 0, item);
    if (items.length > most) items.pop();
  }
  return items;
}

/** Of a matrix, if it is known. @typedef {{value: (i: number, j: number) => number | null} | null} AnyWeights */

/** The strongest key of a query among those inside, if there is one. @param {AnyWeights} weights @param {number} row @param {number} count of keys @param {(key: number) => boolean} inside */
export function strongestKey(weights, row, count, inside = () => true) {
  return strongest(count, key => inside(key) ? weights?.value(row, key) ?? null : null, 1)[0]?.index;
}

/** Why cells have no strongest ones. @param {Cells} cells @param {string} blank what null means */
export function whyNone(cells, blank) {
  const values = Array.from({length: cells.count}, (_, block) => cells.value(block)).filter(value => value !== null);
  if (values.length === 0) return `none, all are ${blank}`;
  if (values.every(Number.isNaN)) return 'none, all are NaN';
  return values.some(value => value !== 0) ? 'none, all may be 0' : 'none, all are exactly 0';
}

/**
 * The value of an item in few digits, of which the last may be wrong after "≈"; or a bound of its magnitude.
 * @param {Item} item @param {boolean} isBound
 */
function numberOf({value, error}, isBound) {
  if (isBound) return `≤ ${threeDigits(Math.abs(value) + error, Math.ceil)}`;
  const isSharp = error === 0 || brief(value - error) === brief(value + error);
  return isSharp ? brief(value) : `≈ ${brief(value)}`;
}

/**
 * "these 10 together: 0.973 of the row's sum 1"; "" for bounds and if there are fewer than two.
 * @param {Item[]} items @param {boolean} isBound @param {number} whole the sum of the row; NaN: it has none
 */
export function sumOf(items, isBound, whole) {
  if (isBound || items.length < 2 || !Number.isFinite(whole)) return '';
  const [sum, error] = [items.reduce((total, {value}) => total + value, 0), items.reduce((total, item) => total + item.error, 0)];
  const three = (/** @type {number} */ number) => String(Number(number.toPrecision(3)));
  return `these ${items.length} together: ${three(sum - error) === three(sum + error) ? '' : '≈ '}${three(sum)} of the row's sum ${three(whole)}`;
}

const kMostListed = 10;

export class StrongestList {
  /** @param {HTMLElement} box with a heading, a paragraph and a list */
  constructor(box) {
    this.heading = /** @type {HTMLElement} */ (box.querySelector('h3'));
    this.sum = /** @type {HTMLElement} */ (box.querySelector('p'));
    this.list = /** @type {HTMLElement} */ (box.querySelector('ol'));
  }

  /**
   * @param {string} title
   * @param {Cells} cells
   * @param {string[]} names of the blocks
   * @param {number} selected cell
   * @param {string} blank what cells without a value are
   * @param {number} whole the sum of the row; NaN: it has none
   */
  draw(title, cells, names, selected, blank, whole) {
    const items = strongest(cells.count, cells.value, kMostListed, cells.error), {note} = cells;
    this.heading.textContent = `${title}${note && ` (${note})`}${items.length > 0 ? '' : `: ${whyNone(cells, blank)}`}`;
    this.sum.textContent = [sumOf(items, cells.isBound, whole), items.some(({value}) => value < 0) ? 'dashed: negative' : ''].filter(Boolean).join(' · ');
    const reach = Math.abs(items[0]?.value ?? 0) || 1;
    this.list.replaceChildren(...items.map(one => {
      const {index, value} = one, [first, last] = endsOf(cells, index);
      const item = document.createElement('li'), bar = document.createElement('i');
      const [name, number] = [names[index], numberOf(one, cells.isBound)].map(words => {
        const part = document.createElement('span');
        part.textContent = words;
        return part;
      });
      item.dataset.index = String(first);
      item.title = `${cells.text(index)}${note && ` (${note})`}`;
      bar.className = value < 0 ? 'negative' : '';
      bar.style.width = `${95 * Math.abs(value) / reach}%`;
      item.classList.toggle('focus', first <= selected && selected <= last);
      item.append(name, number, bar);
      return item;
    }));
  }

  /** The index of the item so many below the selected one, or the first; null: none. @param {number} by */
  next(by) {
    const items = [...this.list.children], at = items.findIndex(item => item.classList.contains('focus'));
    const item = items[at < 0 ? 0 : Math.max(0, Math.min(items.length - 1, at + by))];
    item?.scrollIntoView({block: 'nearest'});
    return item instanceof HTMLElement ? Number(item.dataset.index) : null;
  }

  /** The index of the item at an event, or null. @param {Event} event */
  at(event) {
    const item = event.target instanceof HTMLElement ? event.target.closest('li') : null;
    return item ? Number(item.dataset.index) : null;
  }
}
