// Zooming and moving a drawing with the mouse wheel and by dragging; long presses.

import {placeIn} from './dom.mjs';

/** @typedef {import('./camera.mjs').Camera} Camera */

/** Zooms and moves with the wheel. @param {HTMLElement} box @param {Camera} of @param {{left: number, top: number}} origin of the drawing in the box @param {() => void} draw */
export function wheeled(box, of, origin, draw) {
  box.addEventListener('wheel', event => {
    if (event.ctrlKey || event.metaKey) {
      const [left, top] = placeIn(box, event);
      of.zoomBy(Math.exp(-event.deltaY * (event.deltaMode === 1 ? .05 : .002)), left - origin.left, top - origin.top);
    } else if (of.pans.x || of.pans.y) {
      const factor = event.deltaMode === 1 ? 18 : 1, [x, y] = event.shiftKey ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
      const before = [of.x, of.y];
      of.pan(-x * factor, -y * factor);
      if (before[0] === of.x && before[1] === of.y) return;
    } else return;
    event.preventDefault();
    draw();
  }, {passive: false});
}

/**
 * Moves the view while the pointer is dragged; returns whether it moved since it was pressed.
 * @param {HTMLElement} box
 * @param {Camera} of
 * @param {() => void} draw
 */
export function draggable(box, of, draw) {
  let moved = false;
  box.addEventListener('pointerdown', event => {
    moved = false;
    if (event.button !== 0) return;
    let [x, y] = [event.clientX, event.clientY];
    const start = [x, y];
    const move = (/** @type {PointerEvent} */ next) => {
      if (!moved && Math.hypot(next.clientX - start[0], next.clientY - start[1]) < 5) return;
      if (!of.pans.x && !of.pans.y) return;
      moved = true;
      of.pan(next.clientX - x, next.clientY - y);
      [x, y] = [next.clientX, next.clientY];
      draw();
    };
    const end = () => {
      window.removeEventListener('pointermove', move, true);
      window.removeEventListener('pointerup', end);
      window.removeEventListener('pointercancel', end);
    };
    window.addEventListener('pointermove', move, true);  // before what is at the pointer is looked up
    window.addEventListener('pointerup', end);
    window.addEventListener('pointercancel', end);
  });
  return () => moved;
}

const kLong = 500, kResting = 10;  // milliseconds, and pixels

/** Acts when a finger or a pen rests on the box; returns whether the last press did, so that it is no click. @param {HTMLElement} box @param {(event: PointerEvent) => void} act */
export function longPress(box, act) {
  let timer = 0, held = false, start = [0, 0];
  const end = () => clearTimeout(timer);
  box.addEventListener('pointerdown', event => {
    end();
    held = false;
    start = [event.clientX, event.clientY];
    if (event.pointerType === 'mouse' || !event.isPrimary) return;
    timer = window.setTimeout(() => {
      held = true;
      act(event);
    }, kLong);
  });
  box.addEventListener('pointermove', event => { if (Math.hypot(event.clientX - start[0], event.clientY - start[1]) > kResting) end(); });
  for (const type of ['pointerup', 'pointercancel', 'pointerleave']) box.addEventListener(type, end);
  box.addEventListener('contextmenu', event => { if (held) event.preventDefault(); });
  return () => held;
}
