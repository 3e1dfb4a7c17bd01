// Prints the page: light, without zoom, and laid out for sheets of A4 (sheet.mjs) as long as the browser prints.

import {writeTheme} from './controls.mjs';
import {byId} from './dom.mjs';
import {device} from './pen.mjs';
import {Sheet} from './sheet.mjs';

export class Printing {
  /**
   * @param {import('./state.mjs').State} state
   * @param {import('./heads.mjs').Heads} heads
   * @param {import('./matrices.mjs').Matrices} matrices
   * @param {import('./side_box.mjs').SideBox} side
   * @param {() => string} note what the controls say about the drawings, which a sheet does not have
   * @param {() => void} redraw
   */
  constructor(state, heads, matrices, side, note, redraw) {
    this.state = state;
    this.heads = heads;
    this.matrices = matrices;
    this.side = side;
    this.note = note;
    this.redraw = redraw;
    this.sheet = new Sheet(heads.overview, matrices.figures, side, () => heads.arrange());
    /** What the screen has. */
    this.screen = {dark: false, zoom: 1, x: 0, y: 0};
    window.addEventListener('beforeprint', () => this.begin());
    window.addEventListener('afterprint', () => this.end());
  }

  begin() {
    const {state, heads, heads: {overview, overview: {camera}}, matrices, side, sheet} = this, {zoom, x, y} = camera;
    this.screen = {dark: state.dark, zoom, x, y};
    state.dark = false;
    device.print = 2;
    document.documentElement.style.fontSize = '13px';
    writeTheme(state);
    for (const figure of matrices.figures) figure.camera.reset();
    camera.reset();
    if (side.shown === 'why') byId('why').style.display = 'block';
    sheet.layOut();
    overview.leaveOut();
    heads.write();
    byId('printed').textContent = [heads.data.headCount > 1 ? byId('shown').textContent : '', this.note()].filter(Boolean).join(' · ');
    overview.draw(true);
    matrices.paint();
    matrices.drawFocus();
    if (side.shown === 'lines') side.printLines(sheet.linesHeight);
    side.why.drawStrips();
  }

  end() {
    const {state, screen: {dark, ...view}} = this;
    state.dark = dark;
    device.print = 0;
    writeTheme(state);
    document.documentElement.style.fontSize = '';
    this.sheet.reset();
    this.matrices.restoreView();
    Object.assign(this.heads.overview.camera, view);
    this.redraw();
  }
}
