// Elements of the page and what their controls say, and names of its rows and columns.

/** @param {string} id @returns {HTMLElement} */
export const byId = id => /** @type {HTMLElement} */ (document.getElementById(id));
/** @param {string} id */
export const input = id => /** @type {HTMLInputElement} */ (byId(id));
/** @param {string} id */
export const select = id => /** @type {HTMLSelectElement} */ (byId(id));

export const menu = () => /** @type {HTMLDetailsElement} */ (byId('menu'));

/** The selected option of a control. @param {string} id */
export const chosenText = id => select(id).selectedOptions[0].text;

/** @param {string} name @param {string} value */
export function checkRadios(name, value) {
  for (const radio of document.querySelectorAll(`input[name=${name}]`))
    if (radio instanceof HTMLInputElement) radio.checked = radio.value === value;
}

/** The place of an event in a box. @param {HTMLElement} box @param {{clientX: number, clientY: number}} event */
export function placeIn(box, {clientX, clientY}) {
  const {left, top} = box.getBoundingClientRect();
  return [clientX - left, clientY - top];
}

/** Tells assistive technology. @param {string} words */
export const say = words => { byId('status').textContent = words; };

/** The name of one element of an axis. @param {string} axis */
export const one = axis => ({queries: 'query', keys: 'key', batches: 'batch'})[axis] ?? axis.replace(/s$/, '');
/** @param {string[]} labels @param {number} i */
export const named = (labels, i) => labels[i] === String(i) ? labels[i] : `${i}: ${labels[i]}`;

/** The same; "query 5" if the labels are numbers. @param {string} axis @param {string[]} labels @param {number} i */
export const titled = (axis, labels, i) => labels[i] === String(i) ? `${one(axis)} ${i}` : named(labels, i);

/** The labels, with their numbers if some are equal. @param {string[]} labels */
export const distinct = labels => new Set(labels).size === labels.length ? labels : labels.map((_, i) => named(labels, i));

/** Six digits of an exact number. @param {string} text */
export function shortened(text) {
  const [number, ...rest] = text.split(' '), value = Number(number);
  if (number === '' || !Number.isFinite(value) || rest[0] === '±') return text;
  const six = Number(value.toPrecision(6));
  return [Math.abs(six) < 1e-4 && six !== 0 ? six.toExponential() : String(six), ...rest].join(' ');
}
