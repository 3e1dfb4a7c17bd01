// The controls above the parts of the page: the choices of the menu and of the columns, and buttons.

import {byId, checkRadios, input, menu, select} from './dom.mjs';
import {insideOf} from './sentences.mjs';
import {strongestKey} from './strongest.mjs';

/** @typedef {import('./data.mjs').Facts} Facts */
/** @typedef {import('./state.mjs').State} State */
/** @typedef {import('./strongest.mjs').AnyWeights} AnyWeights */

/** Shows the state in the controls. @param {State} state @param {string} mode of colours @param {string} side */
export function writeControls(state, mode, side) {
  select('set').value = String(state.set);
  select('scale').value = state.scale;
  select('colours').value = mode;
  select('order').value = (state.lowestFirst ? '-' : '') + state.order;
  for (const id of /** @type {['least', 'most']} */ (['least', 'most'])) input(id).value = Number.isFinite(state[id]) ? String(state[id]) : '';
  input('find').value = state.find;
  select('between').value = state.between;
  checkRadios('side', side);
}

/** @param {State} state */
export function writeTheme({dark}) {
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  byId('theme').textContent = dark ? 'light colours' : 'dark colours';
}

/** The selected row and column, or the next ones of two sentences. @param {Facts} facts @param {State} state @param {AnyWeights} weights @returns {[number, number]} */
export function cellBetween(facts, state, weights) {
  const {query, key} = insideOf(facts.rows, facts.columns, state.between);
  const row = query(state.row) ? state.row : facts.rows.findIndex((_, i) => query(i));
  return [row, key(state.column) ? state.column : strongestKey(weights, row, facts.columns.length, key) ?? facts.columns.findIndex((_, j) => key(j))];
}

/**
 * Choices of what is shown.
 * @param {State} state
 * @param {import('./address.mjs').Address} address
 * @param {{redraw: () => void, selectBetween: () => void, showSide: (side: State['side']) => void, find: () => void}} acts
 */
export function listenToChoices(state, address, {redraw, selectBetween, showSide, find}) {
  address.onChange('scale', value => { state.scale = /** @type {import('./state.mjs').ScaleChoice} */ (value); redraw(); });
  address.onChange('between', value => { state.between = value; selectBetween(); });
  address.onChange('colours', value => { state.mode = /** @type {State['mode']} */ (value); redraw(); });
  for (const radio of document.querySelectorAll('input[name=side]'))
    radio.addEventListener('change', () => showSide(/** @type {State['side']} */ (/** @type {HTMLInputElement} */ (radio).value)));
  byId('controls').addEventListener('submit', event => event.preventDefault());
  byId('find').addEventListener('input', find);
  document.addEventListener('pointerdown', event => {
    if (menu().open && event.target instanceof Node && !menu().contains(event.target)) menu().open = false;
  });
}

/** @param {Record<string, () => void>} acts what the buttons do, by their ids */
export function listenToButtons(acts) {
  for (const [id, act] of Object.entries(acts)) byId(id).addEventListener('click', act);
}
