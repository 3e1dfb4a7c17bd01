// The strongest keys of a query, or queries of a key, with their values.

import {brief} from './scale.mjs';

/** @typedef {{index: number, value: number}} Item */

/**
 * The `most` values of the largest magnitude, the largest first.
 * @param {number} count
 * @param {(index: number) => number | null} valueOf null: hidden
 * @param {number} most
 * @returns {Item[]}
 */
export function strongest(count, valueOf, most) {
  /** @type {Item[]} */
  const items = [];
  const size = (/** @type {Item} */ item) => Math.abs(item.value);
  for (let index = 0; index < count; ++index) {
    const value = valueOf(index);
    if (value === null || Number.isNaN(value)) continue;
    const item = {index, value};
    if (items.length === most && size(item) <= size(items[most - 1])) continue;
    let at = items.length;
    while (at > 0 && size(items[at - 1]) < size(item)) --at;
    items.splice(at, 0, item);
    if (items.length > most) items.pop();
  }
  return items;
}

export class StrongestList {
  /** @param {HTMLElement} box with a heading and a list */
  constructor(box) {
    this.heading = /** @type {HTMLElement} */ (box.querySelector('h3'));
    this.list = /** @type {HTMLElement} */ (box.querySelector('ol'));
  }

  /**
   * @param {string} title
   * @param {Item[]} items
   * @param {(index: number) => string} nameOf
   * @param {number} selected
   */
  draw(title, items, nameOf, selected) {
    this.heading.textContent = title;
    const reach = Math.abs(items[0]?.value ?? 0) || 1;
    this.list.replaceChildren(...items.map(({index, value}) => {
      const item = document.createElement('li'), bar = document.createElement('i');
      const [name, number] = [nameOf(index), brief(value)].map(words => {
        const part = document.createElement('span');
        part.textContent = words;
        return part;
      });
      item.dataset.index = String(index);
      item.title = String(value);
      bar.className = value < 0 ? 'negative' : '';
      bar.style.width = `${95 * Math.abs(value) / reach}%`;
      item.classList.toggle('focus', index === selected);
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
