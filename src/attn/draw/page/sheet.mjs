// Sizes of the drawings on a sheet of A4. page.css has the rest of the layout of prints.

import {byId} from './dom.mjs';

// Lengths are pixels. Texts are about as high as here; what does not fit is moved to the next sheet.
const kSheet = {width: 700, height: 1031};
const kTallest = {matrix: 880, wide: 240};
const kBetween = 14;  // between columns
const kColumns = {result: 220, lines: 480};  // beside the difference, and beside the list
const kAboveMatrix = 60;  // of columns, about
const kCaptioned = {one: 48, two: 64};  // of one and two lines, and the margin below the matrix
const kBelowTitle = 45;  // the line about the controls, and margins
const kAboveMatrices = 125, kAroundLines = 50, kList = 235, kMargins = 6;
const kNote = 20;  // a line about tokens that do not fit
const kShortest = {matrix: 480, matrices: 540};  // of one result, or both and their difference; less if they need less
const kLeastPicture = 32;

/** The parts of the page are those of the screen until it is printed, so boxes get the sizes that they have on the sheet. */
export class Sheet {
  /**
   * @param {import('./overview.mjs').Overview} overview
   * @param {import('./figure.mjs').Figure[]} figures
   * @param {import('./side_box.mjs').SideBox} side
   * @param {() => void} arrange lays out the overview in its box
   */
  constructor(overview, figures, side, arrange) {
    this.overview = overview;
    this.figures = figures;
    this.side = side;
    this.arrange = arrange;
    this.boxes = [overview.box, byId('about'), byId('scroll'), byId('why'), ...figures.map(({box}) => box)];
  }

  /** Sets the sizes of all boxes. */
  layOut() {
    const {figures} = this;
    for (const box of this.boxes) Object.assign(box.style, {width: `${kSheet.width}px`, flex: 'none'});
    if (this.side.shown === 'lines') byId('scroll').style.width = `${kColumns.lines}px`;
    if (figures.length > 1) this.layOutTwo();
    else this.layOutOne();
  }

  /** The matrix is on the first sheet, if the overview leaves space for it, else on the second. */
  layOutOne() {
    const {overview, figures: [figure]} = this, space = this.firstSheet, above = kAboveMatrices + kCaptioned.one;
    const tall = figure.isBars ? Math.max(240, this.tall(kSheet.width)) : this.tall(kSheet.width);
    const isFirst = this.shrinkOverview(space, space - above - Math.min(tall, kShortest.matrix));
    this.fit(figure, kSheet.width, isFirst ? Math.min(tall, space - above - overview.box.clientHeight) : tall);
  }

  /**
   * Both results and their difference are on one sheet: the first, if the overview leaves space for them, else the second. Lines
   * and list are below them if there is space.
   */
  layOutTwo() {
    const {overview, side: {shown}, firstSheet} = this;
    const least = Math.min(kShortest.matrices, this.fitMatrices(kSheet.height - kAboveMatrices));
    const isFirst = this.shrinkOverview(firstSheet, firstSheet - kAboveMatrices - least);
    const space = (isFirst ? firstSheet - overview.box.clientHeight : kSheet.height) - kAboveMatrices;
    const below = kAroundLines + (shown === 'lines' ? Math.max(this.linesHeight, kList) : byId('text').clientHeight + kList);
    this.fitMatrices(space - below >= least ? space - below : space);
  }

  /** The height of the first sheet below the title. */
  get firstSheet() { return kSheet.height - byId('about').clientHeight - kBelowTitle; }

  /** Of the drawn lines. */
  get linesHeight() {
    const {lines} = this.side, space = kSheet.height - kMargins - byId('colour-key').clientHeight;
    return lines.allHeight <= space ? lines.allHeight : space - kNote;
  }

  /** Gives the overview whole rows of at most this height. @param {number} most */
  fitOverview(most) {
    const {overview} = this;
    overview.box.style.height = `${most}px`;
    this.arrange();
    overview.box.style.height = `${Math.min(most, overview.neededHeight)}px`;
  }

  /** Gives the overview at most the lesser height if it then shows all heads, legibly. Returns whether it does. @param {number} most @param {number} lesser */
  shrinkOverview(most, lesser) {
    const {overview, overview: {camera}} = this;
    this.fitOverview(most);
    if (overview.box.clientHeight <= lesser) return true;
    const widest = camera.base.x, isCaptioned = overview.captioned(widest);
    this.fitOverview(lesser);
    const {x} = camera.base;
    if (overview.isWhole && x >= Math.min(widest, kLeastPicture) && overview.captioned(x) === isCaptioned) return true;
    this.fitOverview(most);
    return false;
  }

  /** Gives two results and their difference at most this height. Returns what they use. @param {number} most */
  fitMatrices(most) {
    const {figures, figures: [first, second, difference]} = this;
    if (document.body.classList.contains('wide')) {
      for (const figure of figures) this.fit(figure, kSheet.width, Math.min(kTallest.wide, most / 3 - kCaptioned.one));
      return figures.reduce((sum, {box}) => sum + box.clientHeight + kCaptioned.one, 0);
    }
    for (const figure of [first, second]) this.fit(figure, kColumns.result, most / 2 - kCaptioned.two);
    this.fit(difference, kSheet.width - kBetween - kColumns.result, most - kCaptioned.one);
    return Math.max(2 * (first.box.clientHeight + kCaptioned.two), difference.box.clientHeight + kCaptioned.one);
  }

  /** The height of a matrix of this width. @param {number} width */
  tall(width) {
    const {rows, columns} = this.overview.data.facts;
    return Math.min(kTallest.matrix, Math.max(140, kAboveMatrix + width * rows.length / columns.length));
  }

  /** Gives a figure a width and, if it needs it, a height. @param {import('./figure.mjs').Figure} figure @param {number} width @param {number} most */
  fit(figure, width, most) {
    Object.assign(figure.box.style, {width: `${width}px`, height: `${Math.min(most, figure.isBars ? most : this.tall(width))}px`});
    figure.layout();
    if (!figure.isBars) figure.box.style.height = `${figure.neededHeight}px`;
  }

  /** The sizes of the screen again. */
  reset() {
    for (const box of this.boxes) Object.assign(box.style, {width: '', height: '', flex: '', display: ''});
  }
}
