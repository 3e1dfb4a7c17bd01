// The words and choices of the page that follow from its data alone, not from what is selected.

import {byId, one, select} from './dom.mjs';
import {openingWords} from './opening.mjs';
import {whyNot} from './why.mjs';

/** @typedef {import('./data.mjs').Data} Data */

/** What the menu says about the page. @param {Data} data @param {string} pale whose lines are pale @param {boolean} isBars @param {boolean} hasStages */
export function writeHelp({facts, hasSums}, pale, isBars, hasStages) {
  byId('title').textContent = facts.title;
  byId('reading').textContent = [
    openingWords(facts, hasSums), `Widths of lines are proportional to ${hasSums ? 'weights' : 'magnitudes'}${pale && `; pale lines are those of ${pale}`}.`,
    isBars ? '' : 'Grey numbers in cells are below 1/1000 of the end of the colour scale.', hasSums ? whyNot(facts) : ''].filter(Boolean).join(' ');
  byId('find-help').textContent = `find a token; Enter: next ${one(facts.rowAxis)}, Shift and Enter: next ${one(facts.columnAxis)}`;
  for (const key of [...facts.why ? [] : ['w'], ...hasStages ? [] : ['s']])
    for (const part of document.querySelectorAll(`#shortcuts .of-${key}`)) part.remove();
  byId('copy-link').hidden = location.protocol === 'about:';  // the frame of a notebook has no address
}

/** @param {Data} data @param {string[]} sets @param {boolean} differ whether the results have another scale than their difference */
export function writeOptions({facts, compares}, sets, differ) {
  sets.forEach((name, set) => select('set').append(new Option(name, String(set))));
  const isOfLayers = facts.groups.length > 1 && facts.groups.every(group => group.startsWith('layer'));
  const lowestFirst = document.createElement('optgroup');
  lowestFirst.label = 'lowest first';
  lowestFirst.append(...facts.statistics.map(({name, title}) => new Option(`by ${title}`, `-${name}`)));
  select('order').append(new Option(isOfLayers ? 'of layers and heads' : 'of the file', 'file'),
      ...facts.statistics.map(({name, title}) => new Option(`by ${title}`, name)), lowestFirst);
  const ofLog = /** @type {HTMLOptionElement} */ (select('colours').querySelector('[value=log]'));
  if (facts.signed) ofLog.remove();
  else if (compares) ofLog.text += ', difference linear';
  if (differ) select('colours').prepend(new Option('square root, difference linear', ''));
  byId('mode-name').textContent = facts.rows.length === 1 ? 'heights' : 'colours';
}

/** Tells the style sheet what the page has. @param {Data} data */
export function setKinds({facts, compares, headCount, hasSums}) {
  const {rows, columns, bits, step} = facts;
  for (const [kind, has] of Object.entries({compares, single: headCount === 1, rounded: bits <= 16, blocks: step > 1, wide: columns.length > 2.2 * rows.length, plain: !hasSums}))
    document.body.classList.toggle(kind, has);
}
