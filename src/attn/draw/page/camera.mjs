// Zoom and position of a drawing. Lengths are CSS pixels; positions in the content are in its units,
// which may be scaled differently along x and y.

const kMostUnit = 120;
const kMostZoomed = 64;
// The least side of a content of few rows or columns, so that each of them is visible.
const kLeastUnit = 12, kLeastSide = 28, kEnough = 120;

/**
 * Scales that fit columns x rows units into the space, equal along x and y unless a side would be
 * too short to see.
 * @param {number} columns
 * @param {number} rows
 * @param {number} width
 * @param {number} height
 * @param {number} most largest scale
 */
export function fit(columns, rows, width, height, most = kMostUnit) {
  const scale = Math.min(width / columns, height / rows, most);
  const least = (/** @type {number} */ count, /** @type {number} */ space) =>
      Math.max(scale, Math.min(space, Math.max(kLeastSide, Math.min(kLeastUnit * count, kEnough))) / count);
  return {x: least(columns, width), y: least(rows, height)};
}

export class Camera {
  constructor() {
    this.columns = this.rows = this.width = this.height = 1;
    this.base = {x: 1, y: 1};
    this.zoom = 1;
    this.x = this.y = 0;  // units at the upper left corner
  }

  /**
   * @param {number} columns
   * @param {number} rows
   * @param {number} width space
   * @param {number} height
   * @param {number} most largest scale without zoom
   */
  resize(columns, rows, width, height, most = kMostUnit) {
    Object.assign(this, {columns, rows, width: Math.max(width, 1), height: Math.max(height, 1)});
    this.base = fit(columns, rows, this.width, this.height, most);
    this.clamp();
  }

  /** Pixels of a unit. */
  get scaleX() { return this.base.x * this.zoom; }
  get scaleY() { return this.base.y * this.zoom; }
  /** The visible part in pixels. */
  get shownWidth() { return Math.min(this.width, this.columns * this.scaleX); }
  get shownHeight() { return Math.min(this.height, this.rows * this.scaleY); }
  /** The visible part in units. */
  get view() {
    return {x: this.x, y: this.y, width: this.shownWidth / this.scaleX, height: this.shownHeight / this.scaleY};
  }
  /** Whether there is more along x and y than is visible. */
  get pans() { return {x: this.shownWidth < this.columns * this.scaleX - 1, y: this.shownHeight < this.rows * this.scaleY - 1}; }
  get mostZoom() { return Math.max(1, kMostZoomed / Math.min(this.base.x, this.base.y)); }

  clamp() {
    this.zoom = Math.min(Math.max(this.zoom, 1), this.mostZoom);
    const inside = (/** @type {number} */ at, /** @type {number} */ most) => Math.max(0, Math.min(at, most));
    this.x = inside(this.x, this.columns - this.shownWidth / this.scaleX);
    this.y = inside(this.y, this.rows - this.shownHeight / this.scaleY);
  }

  /**
   * Zooms so that the point at (left, top), in pixels, stays.
   * @param {number} factor
   * @param {number} left
   * @param {number} top
   */
  zoomBy(factor, left, top) {
    const x = this.x + left / this.scaleX, y = this.y + top / this.scaleY;
    this.zoom = Math.min(Math.max(this.zoom * factor, 1), this.mostZoom);
    this.x = x - left / this.scaleX;
    this.y = y - top / this.scaleY;
    this.clamp();
  }

  /**
   * Moves the content by pixels.
   * @param {number} left
   * @param {number} top
   */
  pan(left, top) {
    this.x -= left / this.scaleX;
    this.y -= top / this.scaleY;
    this.clamp();
  }

  /**
   * Moves as little as needed to show a unit.
   * @param {number} column
   * @param {number} row
   */
  show(column, row) {
    const {width, height} = this.view;
    this.x = Math.min(Math.max(this.x, column + 1 - width), column);
    this.y = Math.min(Math.max(this.y, row + 1 - height), row);
    this.clamp();
  }

  reset() {
    this.zoom = 1;
    this.x = this.y = 0;
  }

  /**
   * The unit at a point in pixels, or null.
   * @param {number} left
   * @param {number} top
   */
  at(left, top) {
    if (left < 0 || top < 0 || left >= this.shownWidth || top >= this.shownHeight) return null;
    return {column: Math.min(this.columns - 1, Math.floor(this.x + left / this.scaleX)),
            row: Math.min(this.rows - 1, Math.floor(this.y + top / this.scaleY))};
  }
}
