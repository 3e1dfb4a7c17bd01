// What pointing and clicking do in the matrices, the overview, the lines, the text and the list.

import {byId, named, placeIn} from './dom.mjs';
import {draggable, longPress, wheeled} from './gestures.mjs';
import {isStacked} from './pen.mjs';
import {hideTip, showTip} from './tip.mjs';

/** @typedef {import('./state.mjs').State} State */
/** @typedef {import('./selection.mjs').Selection} Selection */

/**
 * @param {State} state
 * @param {import('./matrices.mjs').Matrices} matrices
 * @param {Selection} selection
 * @param {import('./shown_numbers.mjs').ShownNumbers} numbers
 */
export function pointAtMatrices(state, matrices, selection, numbers) {
  const {rows, columns} = numbers.facts;
  for (const figure of matrices.figures) {
    const {box, camera} = figure;
    /** Pointing at the label of a row or column selects it, a click also locks it. @param {MouseEvent} event @param {boolean} click */
    const labelEvent = (event, click) => {
      const {row, column} = figure.labelAt(event);
      if (row === undefined && column === undefined) return selection.endPreview();
      hideTip();
      if (state.locked && !click) return;
      if (click) state.locked = true;
      selection.focus(row ?? state.chosen.row, column ?? state.chosen.column, {preview: !click});
    };
    const draw = () => {
      matrices.align(camera);
      matrices.drawSoon();
    };
    const moved = draggable(box, camera, draw);
    box.addEventListener('pointermove', event => {
      const cell = figure.cellAt(event);
      if (!cell) return labelEvent(event, false);
      if (!state.locked) selection.focus(cell.row, cell.column, {preview: true});
      showTip(`${named(rows, cell.row)} → ${named(columns, cell.column)}\n${numbers.text(figure.set, cell.row, cell.column)}`, event);
    });
    box.addEventListener('pointerleave', () => selection.endPreview());
    box.addEventListener('click', event => {
      const cell = figure.cellAt(event);
      if (moved()) return;
      if (!cell) return labelEvent(event, true);
      const again = state.locked && cell.row === state.row && cell.column === state.column;
      state.select(cell.row, cell.column);
      selection.lock(!again);
    });
    box.addEventListener('dblclick', () => matrices.showAll());
    wheeled(box, camera, figure, draw);
  }
}

/**
 * @param {import('./overview.mjs').Overview} overview
 * @param {import('./heads.mjs').Heads} heads
 * @param {(head: number) => string} wordsOf
 */
export function pointAtOverview(overview, heads, wordsOf) {
  const {box, camera, data} = overview, {selected} = heads, draw = () => overview.draw();
  /** @param {MouseEvent} event */
  const headAt = event => {
    const [left, top] = placeIn(box, event);
    return overview.headAt(left, top);
  };
  const moved = draggable(box, camera, draw);
  const held = longPress(box, event => {
    const head = headAt(event);
    if (head !== null) heads.pin(head);
  });
  box.addEventListener('click', event => {
    const head = headAt(event);
    if (head === null || moved() || held()) return;
    if (event.shiftKey || event.ctrlKey || event.metaKey) return heads.pin(head);
    heads.choose(head);
    if (isStacked()) byId('detail').scrollIntoView();
  });
  /** @param {number} head @param {PointerEvent} event */
  const showHead = (head, event) => {
    showTip(wordsOf(head), event);
    byId('tip').dataset.head = String(head);
  };
  box.addEventListener('pointermove', event => {
    const head = headAt(event);
    if (head === null) return hideTip();
    showHead(head, event);
    if (!data.tile(head) && selected?.lacks(head)) {
      selected.read(head).then(() => {
        if (!byId('tip').hidden && byId('tip').dataset.head === String(head)) showHead(head, event);
      });
    }
  });
  box.addEventListener('pointerleave', hideTip);
  wheeled(box, camera, overview, draw);
}

/**
 * Pointing shows the lines of a token; a click also locks them.
 * @param {State} state
 * @param {import('./side.mjs').Lines} lines
 * @param {Selection} selection
 */
export function pointAtLines(state, lines, selection) {
  /** @param {MouseEvent} event @param {boolean} click */
  const lineEvent = (event, click) => {
    if (state.locked && !click) return;
    const {query, key} = lines.at(event);
    if (query === undefined && key === undefined) return;
    if (click) state.locked = true;
    lines.toKey = key !== undefined;
    selection.focus(query ?? state.chosen.row, key ?? state.chosen.column, {inLines: true, preview: !click});
  };
  lines.canvas.addEventListener('pointermove', event => lineEvent(event, false));
  lines.canvas.addEventListener('pointerleave', () => {
    if (!state.locked && lines.toKey) {
      lines.toKey = false;
      lines.draw();
    }
    selection.endPreview(true);
  });
  lines.canvas.addEventListener('click', event => lineEvent(event, true));
}

/** @param {import('./strongest.mjs').StrongestList} list @param {Selection} selection */
export function pointAtList(list, selection) {
  byId('strongest').addEventListener('click', event => selection.focusListed(list.at(event), false));
}

/**
 * @param {State} state
 * @param {import('./side.mjs').TokenText} text
 * @param {Selection} selection
 * @param {boolean} same whether queries and keys are the same tokens
 */
export function pointAtText(state, text, selection, same) {
  /** @param {Event} event @param {boolean} click */
  const tokenEvent = (event, click) => {
    const token = text.at(event);
    if (token === null || (state.locked && !click)) return;
    if (click) state.locked = true;
    const how = {preview: !click, inLines: true};
    if (state.side === 'keys') selection.focus(click || !same ? token : state.row, same && !click ? token : state.column, how);
    else selection.focus(same ? token : state.row, same ? state.column : token, how);
  };
  text.box.addEventListener('pointerover', event => tokenEvent(event, false));
  text.box.addEventListener('pointerleave', () => selection.endPreview());
  text.box.addEventListener('click', event => tokenEvent(event, true));
}
