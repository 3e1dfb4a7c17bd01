// Saves the state in the address of the page, so that a link shows the same.

import {byId} from './dom.mjs';

export class Address {
  /** @param {import('./state.mjs').State} state */
  constructor(state) {
    this.state = state;
    this.timer = 0;
  }

  save() {
    clearTimeout(this.timer);
    const fragment = this.state.fragment();
    if (`#${fragment}` === (location.hash || '#')) return;
    try {
      history.replaceState(null, '', `#${fragment}`);
    } catch (error) {  // some browsers limit how often the address may change
    }
  }
  saveSoon() {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.save(), 300);
  }

  /** Acts when a control gets a value, and saves it. @param {string} id @param {(value: string) => void} act */
  onChange(id, act) {
    byId(id).addEventListener('change', event => {
      act(/** @type {HTMLInputElement} */ (event.target).value);
      this.saveSoon();
    });
  }
}
