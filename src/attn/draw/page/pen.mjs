// Helpers for drawing with canvases.

export const kFont = 'system-ui, "DejaVu Sans", sans-serif';

/** Sizes are given for a font of 15 pixels; the page's font is larger on large screens. */
export const em = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 15;

/** A custom property of the style sheet. @param {string} name */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** A colour of the style sheet as #rrggbb, also if it is a system colour. @param {string} name */
export function hexColour(name) {
  const pen = /** @type {CanvasRenderingContext2D} */ (document.createElement('canvas').getContext('2d'));
  pen.fillStyle = colour(name);
  const style = String(pen.fillStyle);
  return style.startsWith('#') ? style.slice(0, 7) : '#000000';
}

/** The colours of cells that have no colour of the scale. */
export const cellMarks = () => ({ground: hexColour('--ground'), hatch: hexColour('--hatch'), nan: hexColour('--nan')});

/**
 * An opaque mixture of two colours #rrggbb; canvases round the channels of weak transparent colours.
 * @param {string} colour @param {string} ground @param {number} share of the colour
 */
export function tint(colour, ground, share) {
  const [of, on] = [colour, ground].map(hex => [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16)));
  return `rgb(${of.map((channel, k) => Math.round(on[k] + (channel - on[k]) * share)).join(',')})`;
}

/** Device pixels of a CSS pixel; `print` is set while the page is printed. */
export const device = {print: 0, get ratio() { return this.print || window.devicePixelRatio || 1; }};

/** Whether the parts of the page are below each other. */
export const isStacked = () => !device.print && getComputedStyle(document.getElementsByTagName('main')[0]).display !== 'grid';

/**
 * Sizes a canvas, in CSS pixels, and returns its context, which draws in CSS pixels.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 * @param {boolean} hasImages otherwise only lines and text, which prints record: clearing them would hide earlier text in some viewers
 */
export function sized(canvas, width, height, hasImages = true) {
  const {ratio} = device, isReset = !hasImages && device.print > 0;
  const [wide, tall] = [width, height].map(side => Math.max(1, Math.round(side * ratio)));
  if (isReset || canvas.width !== wide || canvas.height !== tall) {
    canvas.width = wide;
    canvas.height = tall;
  }
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = contextOf(canvas);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  if (!isReset) context.clearRect(0, 0, width, height);
  return context;
}

/** @param {HTMLCanvasElement} canvas */
export const contextOf = canvas => /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));

/**
 * The device pixels of a rectangle in CSS pixels.
 * @param {number} left
 * @param {number} top
 * @param {number} width
 * @param {number} height
 */
export function targetOf(left, top, width, height) {
  const {ratio} = device, at = (/** @type {number} */ length) => Math.round(length * ratio);
  return {left: at(left), top: at(top), width: Math.max(1, at(left + width) - at(left)),
          height: Math.max(1, at(top + height) - at(top)), ratio};
}

const segmenter = 'Segmenter' in Intl ? new Intl.Segmenter() : null;

/** @param {string} text */
function graphemesOf(text) {
  return segmenter ? Array.from(segmenter.segment(text), part => part.segment) : Array.from(text);
}

/**
 * The text, cut to a width with "…".
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} width
 */
export function cutTo(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const letters = graphemesOf(text.slice(0, 200));
  while (letters.length > 0 && context.measureText(`${letters.join('')}…`).width > width) letters.pop();
  return `${letters.join('')}…`;
}

/**
 * The width of the widest label, at most `most`. Of many labels only the longest are measured.
 * @param {string[]} labels
 * @param {number} most
 * @param {number} size
 */
export function widest(labels, most, size) {
  const pen = /** @type {CanvasRenderingContext2D} */ (document.createElement('canvas').getContext('2d'));
  pen.font = `${size}px ${kFont}`;
  const some = labels.length > 200 ? [...labels].sort((a, b) => b.length - a.length).slice(0, 100) : labels;
  let width = 0;
  for (const label of some) {
    width = Math.max(width, pen.measureText(label.slice(0, 60)).width);
    if (width >= most) return most;
  }
  return width;
}

/** The smallest of 1, 2, 5, 10, 20, ... that is at least `least`. @param {number} least */
export function stepFor(least) {
  let step = 1;
  for (let i = 0; step < least; ++i) step = i % 3 === 1 ? step / 2 * 5 : step * 2;
  return step;
}

/**
 * A ring that is visible on any colour: one of its two lines has a contrast of at least 4.5 : 1.
 * @param {CanvasRenderingContext2D} context
 * @param {number} left
 * @param {number} top
 * @param {number} width
 * @param {number} height
 */
export function ring(context, left, top, width, height) {
  context.lineWidth = 1.5;
  context.strokeStyle = '#fff';
  context.strokeRect(left - .75, top - .75, width + 1.5, height + 1.5);
  context.strokeStyle = '#000';
  context.strokeRect(left - 2.25, top - 2.25, width + 4.5, height + 4.5);
  context.lineWidth = 1;
}

/** An arrow that points up to a place. @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} size */
export function arrow(context, x, y, size) {
  context.fillStyle = colour('--mark');
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x - size * .6, y + size);
  context.lineTo(x + size * .6, y + size);
  context.fill();
}

/** Colours of lines of several heads (Okabe and Ito 2008), for light and for dark grounds. */
const kHeadColours = {
  light: ['#a84f00', '#0060a0', '#00785a', '#a0307a', '#5a5a00', '#3a3aa8', '#7a2a2a'],
  dark: ['#ffb04d', '#56b4e9', '#3fd0a4', '#f08cc4', '#f0e442', '#a0a8ff', '#ff9a8a'],
};

/** @param {number} k @param {boolean} dark */
export const headColour = (k, dark) => kHeadColours[dark ? 'dark' : 'light'][k % 7];
