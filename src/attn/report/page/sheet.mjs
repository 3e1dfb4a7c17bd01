// Sizes of the drawings on a sheet of A4. page.css has the rest of the layout of prints.

const kSheetWidth = 700;
const kTallest = {overview: 900, matrix: 880, pair: 310, three: 790, wide: 240};  // heights, in pixels
const kBetween = 14;  // between two results
const kAboveMatrix = 60;  // of columns, about

/** The parts of the page are those of the screen until it is printed, so boxes get the sizes that they have on the sheet. */
export class Sheet {
  /**
   * @param {import('./overview.mjs').Overview} overview
   * @param {import('./figure.mjs').Figure[]} figures
   * @param {HTMLElement[]} others which are as wide as the sheet
   */
  constructor(overview, figures, others) {
    this.overview = overview;
    this.figures = figures;
    this.boxes = [overview.box, ...others, ...figures.map(({box}) => box)];
  }

  /** Sets the sizes of all boxes. */
  layOut() {
    const {overview, figures} = this;
    for (const box of this.boxes) Object.assign(box.style, {width: `${kSheetWidth}px`, flex: 'none'});
    const down = Math.max(overview.rows.length, 1), across = Math.max(1, ...overview.rows.map(row => row.heads.length));
    overview.box.style.height = `${Math.min(kTallest.overview, Math.max(60, 30 + kSheetWidth / across * down / overview.aspect()))}px`;
    if (figures.length === 1) return this.fit(figures[0], kSheetWidth, figures[0].isBars ? Math.max(240, this.tall(kSheetWidth)) : this.tall(kSheetWidth));
    // Both results and their difference are on one sheet.
    if (document.body.classList.contains('wide')) return figures.forEach(figure => this.fit(figure, kSheetWidth, kTallest.wide));
    const [first, second, difference] = figures, half = (kSheetWidth - kBetween) / 2;
    for (const figure of [first, second]) this.fit(figure, half, kTallest.pair);
    this.fit(difference, kSheetWidth, kTallest.three - Math.max(first.box.clientHeight, second.box.clientHeight));
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
