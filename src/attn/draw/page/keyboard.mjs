// What keys do: in the matrix, the overview, the list, the panel "why this weight", the field "find", and everywhere.

import {aMatrix} from './data.mjs';
import {byId, menu, say} from './dom.mjs';
import {whyNot} from './why.mjs';

/** By the name of the key. @typedef {Record<string, () => void>} Keys */
/** @typedef {import('./selection.mjs').Selection} Selection */

/** @param {import('./state.mjs').State} state @param {Selection} selection */
export const matrixKeys = (state, selection) => /** @type {Keys} */ ({
  ArrowUp: () => selection.move(-1, 0),
  ArrowDown: () => selection.move(1, 0),
  ArrowLeft: () => selection.move(0, -1),
  ArrowRight: () => selection.move(0, 1),
  PageUp: () => selection.move(-10, 0),
  PageDown: () => selection.move(10, 0),
  Home: () => selection.move(0, -Infinity),
  End: () => selection.move(0, Infinity),
  Enter: () => selection.lock(!state.locked),
});

/** @param {import('./overview.mjs').Overview} overview @param {import('./heads.mjs').Heads} heads */
export const overviewKeys = (overview, heads) => /** @type {Keys} */ ({
  ArrowUp: () => heads.choose(overview.neighbour(0, -1)),
  ArrowDown: () => heads.choose(overview.neighbour(0, 1)),
  ArrowLeft: () => heads.choose(overview.neighbour(-1, 0)),
  ArrowRight: () => heads.choose(overview.neighbour(1, 0)),
  Home: () => heads.choose(overview.heads[0] ?? null),
  End: () => heads.choose(overview.heads.at(-1) ?? null),
  Enter: () => byId('matrices').focus(),
  ' ': () => heads.pin(overview.state.head),
});

/** @param {import('./strongest.mjs').StrongestList} list @param {Selection} selection */
export const listKeys = (list, selection) => /** @type {Keys} */ ({
  ArrowUp: () => selection.focusListed(list.next(-1), true),
  ArrowDown: () => selection.focusListed(list.next(1), true),
});

/** @param {import('./why_panel.mjs').WhyPanel} why */
export const whyKeys = why => /** @type {Keys} */ ({
  ArrowUp: () => say(why.step(-1)),
  ArrowDown: () => say(why.step(1)),
  ArrowLeft: () => say(why.move(-1)),
  ArrowRight: () => say(why.move(1)),
  Home: () => say(why.step(-Infinity)),
  End: () => say(why.step(Infinity)),
});

/**
 * Keys that do the same everywhere.
 * @param {import('./data.mjs').Data} data
 * @param {Selection} selection
 * @param {import('./matrices.mjs').Matrices} matrices
 * @param {import('./heads.mjs').Heads} heads
 * @param {import('./shown_head.mjs').ShownHead} head
 * @param {import('./stage_choice.mjs').StageChoice} stages
 * @param {(side: 'why') => void} showSide
 */
export const pageKeys = (data, selection, matrices, heads, head, stages, showSide) => /** @type {Keys} */ ({
  Escape: () => {
    if (menu().open) menu().open = false;
    else selection.lock(false);
  },
  '[': () => heads.step(-1),
  ']': () => heads.step(1),
  '/': () => byId('find').focus(),
  '?': () => {
    menu().open = true;
    menu().querySelector('summary')?.focus();
    byId('shortcuts').style.display = 'grid';  // there is a keyboard
  },
  w: () => {
    const {facts} = data;
    if (!facts.why) return say(whyNot(facts));
    if (data.tile(heads.state.head)) return say(`Select ${aMatrix(facts)} to see why its weights are what they are.`);
    showSide('why');
    byId('why').focus();
  },
  m: () => {
    if (!head.isDecoded) return;
    const {row, column} = head.largest;
    selection.focus(row, column, {byKey: true});
  },
  s: () => stages.next(),
  '+': () => matrices.zoom(1.5),
  '=': () => matrices.zoom(1.5),
  '-': () => matrices.zoom(1 / 1.5),
  0: () => matrices.showAll(),
});

/**
 * @param {Record<string, Keys>} keysOf elements, by id
 * @param {Keys} everywhere
 * @param {import('./finder.mjs').Finder} finder
 * @param {(ofKeys: boolean) => void} findNext
 * @param {(id: string) => void} done what follows a key in an element
 */
export function listenToKeys(keysOf, everywhere, finder, findNext, done) {
  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const {target, key} = event;
    if (!(target instanceof HTMLElement)) return;
    if (target.id === 'find' && key === 'Enter') {
      event.preventDefault();
      return findNext(event.shiftKey);
    }
    if (target.id === 'find' && key === 'Escape') {
      event.preventDefault();
      finder.clear();
      return target.blur();
    }
    const isText = target instanceof HTMLInputElement && !/radio|file/.test(target.type);
    if (isText && key === 'Escape') return target.blur();
    if (isText || (target.tagName === 'SELECT' && /^\w$/.test(key))) return;  // which choose from the list
    const isBody = target === document.body, own = keysOf[isBody ? 'matrices' : target.id];
    // Keys that scroll do so unless the matrix has the focus.
    const scrolls = isBody && !/^Arrow|Enter/.test(key);
    const action = (scrolls ? undefined : own?.[key]) ?? everywhere[key];
    if (!action) return;
    event.preventDefault();
    action();
    done(target.id);
  });
}
