// The matrices of the selected head, one for each result and for the difference of two, with the same view.

import {Figure} from './figure.mjs';
import {GlPainter} from './gl.mjs';
import {CanvasPainter} from './paint.mjs';

/**
 * What the rest of the page provides: whether a label is marked, and what follows when the matrices have been drawn, or their view
 * has changed.
 * @typedef {{marked: () => (label: string) => boolean, drawn: () => void, moved: () => void}} AroundMatrices
 */

/** @returns {GlPainter | CanvasPainter} */
function newPainter() {
  try {
    return new GlPainter();
  } catch (error) {
    return new CanvasPainter();
  }
}

export class Matrices {
  /**
   * @param {HTMLElement} box
   * @param {import('./data.mjs').Data} data
   * @param {import('./state.mjs').State} state
   * @param {import('./names.mjs').Names} names
   * @param {import('./head_scales.mjs').HeadScales} scales
   * @param {AroundMatrices} around
   */
  constructor(box, data, state, names, scales, around) {
    this.state = state;
    this.scales = scales;
    this.around = around;
    this.figures = names.sets.map((name, set) => new Figure(box, data, state, set, data.compares ? name : names.axes));
    /** The view that the controls and the address have. Other matrices follow. */
    this.camera = this.figures[0].camera;
    this.painter = newPainter();
    /** Whether they are drawn in the next frame. */
    this.isAsked = false;
  }

  layOut() { for (const figure of this.figures) figure.layout(); }

  /** Draws all but the selection. */
  paint() { for (const figure of this.figures) figure.draw(this.painter, this.scales.ofFigure(figure), this.around.marked()); }
  drawFocus() { for (const figure of this.figures) figure.drawFocus(); }
  draw() {
    this.paint();
    this.around.drawn();
  }
  drawSoon() {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      this.align(this.camera);
      this.saveView();
      this.draw();
    });
  }

  /** @param {import('./camera.mjs').Camera} from */
  align(from) {
    for (const {camera} of this.figures) {
      Object.assign(camera, {zoom: from.zoom, x: from.x, y: from.y});
      camera.clamp();
    }
  }
  saveView() {
    const {camera: {zoom, x, y}} = this;
    Object.assign(this.state, {zoom, x, y});
    for (const {box} of this.figures) box.classList.toggle('zoomed', zoom > 1);
    this.around.moved();
  }
  /** Zooms and moves as the state says, within the space of the next layout. */
  restoreView() {
    const {zoom, x, y} = this.state;
    for (const {camera} of this.figures) Object.assign(camera, {zoom, x, y});
  }

  /** Zooms towards the selected cell, if it is in view. @param {number} factor */
  zoom(factor) {
    const {camera, state} = this, {shownWidth, shownHeight, scaleX, scaleY} = camera;
    const left = (state.column + .5 - camera.x) * scaleX, top = (state.row + .5 - camera.y) * scaleY;
    const isInView = left >= 0 && left <= shownWidth && top >= 0 && top <= shownHeight;
    camera.zoomBy(factor, isInView ? left : shownWidth / 2, isInView ? top : shownHeight / 2);
    this.drawSoon();
  }
  showAll() {
    this.camera.reset();
    this.drawSoon();
  }
}
