// Selects cells, shows others while the pointer is at them, and locks the selection.

import {byId, say} from './dom.mjs';
import {hideTip} from './tip.mjs';

export class Selection {
  /**
   * @param {import('./state.mjs').State} state
   * @param {import('./matrices.mjs').Matrices} matrices
   * @param {import('./side_box.mjs').SideBox} side
   * @param {() => void} draw what shows the selected cell
   */
  constructor(state, matrices, side, draw) {
    this.state = state;
    this.matrices = matrices;
    this.side = side;
    this.draw = draw;
    /** Whether it is drawn in the next frame: several moves within a frame are drawn once. */
    this.isAsked = false;
    /** Whether the value is then said: a key has moved the selection. */
    this.saysNext = false;
  }

  /**
   * @param {number} row
   * @param {number} column
   * @param {{byKey?: boolean, inLines?: boolean, preview?: boolean}} how by the keyboard: the view moves to the cell; in the
   *   lines, which stay; by pointing, until the pointer leaves
   */
  focus(row, column, {byKey = false, inLines = false, preview = false} = {}) {
    const {state, side, matrices, matrices: {camera}} = this;
    state.select(row, column, preview);
    if (byKey) {
      hideTip();
      const {x, y} = camera;
      camera.show(state.column, state.row);
      if (x !== camera.x || y !== camera.y) matrices.drawSoon();
    }
    if (!inLines) side.revealed = side.lines.toKey = false;
    this.saysNext ||= byKey;
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      this.draw();
      if (!this.saysNext) return;
      this.saysNext = false;
      say(`${byId('query').textContent}, ${byId('key').textContent}: ${byId('value').textContent}`);
    });
  }

  /** Moves by the keyboard. @param {number} down @param {number} right */
  move(down, right) { this.focus(this.state.row + down, this.state.column + right, {byKey: true}); }

  /** Selects an entry of the list of strongest tokens; null: none. @param {number | null} index @param {boolean} byKey */
  focusListed(index, byKey) {
    const {state} = this;
    if (index === null) return;
    if (!byKey) state.locked = true;
    if (state.side === 'keys') this.focus(index, state.column, {byKey});
    else this.focus(state.row, index, {byKey});
  }

  /** Selects what was chosen before the pointer showed other cells. @param {boolean} inLines */
  endPreview(inLines = false) {
    hideTip();
    const {state, state: {chosen: {row, column}}} = this;
    if (row !== state.row || column !== state.column) this.focus(row, column, {inLines});
  }

  /** @param {boolean} locked */
  lock(locked) {
    const {state} = this;
    state.locked = locked;
    if (locked) state.select(state.row, state.column);
    else this.side.lines.toKey = false;
    this.draw();
  }
  /** Says at its button whether it is locked. */
  writeLock() {
    const {locked} = this.state;
    byId('locked').textContent = locked ? 'locked' : 'lock';
    byId('locked').setAttribute('aria-pressed', String(locked));
  }
}
