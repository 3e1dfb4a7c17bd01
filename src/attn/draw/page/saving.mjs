// The buttons that copy the row and a link, and save the numbers and the picture.

import {copy, saveAs} from './copies.mjs';
import {byId, named, say} from './dom.mjs';
import {savedPicture} from './saved_picture.mjs';

/** @param {string} words */
function tell(words) {
  byId('said').textContent = words;
  say(words);
}
/** @param {string} words @param {string} what it is */
async function copyAndTell(words, what) {
  await copy(words);
  tell(`copied ${what}`);
}
/** @param {string} words @param {string} note */
const afterComma = (words, note) => [words, note].filter(Boolean).join(', ');

/** The selected row with the names of its numbers. @param {import('./shown_numbers.mjs').ShownNumbers} numbers @param {import('./names.mjs').Names} names */
export const shownRow = (numbers, names) => numbers.rowText(names.data.compares ? names.sets : [byId('first-name').textContent ?? '']);

/**
 * What the buttons do, by their ids.
 * @param {import('./names.mjs').Names} names
 * @param {import('./shown_numbers.mjs').ShownNumbers} numbers
 * @param {import('./address.mjs').Address} address
 * @param {() => string[]} notes of the picture
 */
export const savingButtons = (names, numbers, address, notes) => ({
  'copy-row': () => copyAndTell(shownRow(numbers, names), afterComma(`the row of ${named(names.facts.rows, names.state.row)}`, numbers.isExact ? '' : numbers.inexactness(0))),
  'copy-link': () => {
    address.save();
    copyAndTell(location.href, 'the link');
  },
  'save-csv': async () => {
    const {set} = names.state, name = `${names.file(names.data.compares ? names.sets[set] : '')}.csv`, note = numbers.canRead(set) ? '' : numbers.inexactness(set);
    saveAs(new Blob([await numbers.csv(set)], {type: 'text/csv'}), name);
    tell(afterComma(`saved ${name}`, note));
  },
  'save-png': () => savedPicture(names.picture, notes(), numbers.figures).toBlob(blob => {
    if (!blob) return;
    saveAs(blob, `${names.file()}.png`);
    tell(`saved ${names.file()}.png`);
  }),
});
