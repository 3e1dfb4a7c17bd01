// The tooltip at the pointer.

import {byId} from './dom.mjs';

/** @param {string} words @param {{clientX: number, clientY: number}} pointer @param {boolean} isAbove the pointer */
export function showTip(words, {clientX: left, clientY: top}, isAbove = false) {
  const tip = byId('tip');
  tip.hidden = false;
  tip.textContent = words;
  const {width, height} = tip.getBoundingClientRect();
  const x = left + 16 + width > innerWidth ? left - 12 - width : left + 16;
  const y = isAbove || top + 18 + height > innerHeight ? top - 12 - height : top + 18;
  tip.style.transform = `translate(${Math.max(2, x)}px, ${Math.max(2, y)}px)`;
}

export const hideTip = () => { byId('tip').hidden = true; };
