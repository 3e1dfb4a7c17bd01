// Colours of values, and values as text.

import {codeValues, kHidden, kNan, kZero} from './codes.mjs';

/** @typedef {'linear' | 'root' | 'log'} Mode */
/** @typedef {{ground: string, hatch: string, nan: string}} Marks colours as #rrggbb */

/**
 * A colour as canvases store it: 0xAABBGGRR.
 * @param {number} red
 * @param {number} green
 * @param {number} blue
 */
export const packed = (red, green, blue) => (0xFF000000 | blue << 16 | green << 8 | red) >>> 0;

/** @param {string} hex #rrggbb */
export function packedHex(hex) {
  const number = parseInt(hex.slice(1), 16);
  return packed(number >> 16, number >> 8 & 255, number & 255);
}

/** @param {string} hex 256 colours of six hexadecimal digits */
export function paletteOf(hex) {
  const palette = new Uint32Array(hex.length / 6);
  for (let i = 0; i < palette.length; ++i) palette[i] = packedHex(`#${hex.slice(6 * i, 6 * i + 6)}`);
  return palette;
}

/**
 * The mode of values: the chosen one or, if none is, that of weights. Values with both signs are linear, unless the square root is chosen.
 * @param {Mode | ''} chosen @param {Mode} usual of weights @param {boolean} signed
 * @returns {Mode}
 */
export function modeOf(chosen, usual, signed) {
  if (signed) return chosen === 'root' ? 'root' : 'linear';
  return chosen || usual;
}

/**
 * @param {Mode} mode
 * @param {number} value
 */
function transformed(mode, value) {
  if (mode === 'root') return Math.sign(value) * Math.sqrt(Math.abs(value));
  return mode === 'log' ? Math.log(Math.max(value, 0)) : value;
}

/** @type {Map<Mode, Float32Array>} */
const tables = new Map();

/** The transformed value of each code. @param {Mode} mode */
function tableOf(mode) {
  let table = tables.get(mode);
  if (!table) {
    table = mode === 'linear' ? codeValues() : codeValues().map(value => transformed(mode, value));
    tables.set(mode, table);
  }
  return table;
}

/** Maps values, and their codes, to the 256 colours of a palette. */
export class Scale {
  /**
   * @param {number[]} range least and greatest value
   * @param {boolean} signed 0 is in the middle
   * @param {Mode} mode 'log' is linear if signed
   * @param {Uint32Array} palette
   * @param {number} unit of codes
   */
  constructor(range, signed, mode, palette, unit) {
    const reach = Math.max(Math.abs(range[0]), Math.abs(range[1])) || 1;
    this.signed = signed;
    /** @type {Mode} */
    this.mode = signed && mode === 'log' ? 'linear' : mode;
    this.high = signed ? reach : range[1] || 1;
    this.low = signed ? -reach : this.mode === 'log' ? this.logLow(range[0]) : Math.min(0, range[0]);
    this.palette = palette;
    this.unit = unit;
    this.table = tableOf(this.mode);
    this.from = transformed(this.mode, this.low / unit);
    this.factor = 255 / (transformed(this.mode, this.high / unit) - this.from);
  }

  /** The low end as text; smaller values have its colour if it is not the least of a logarithmic scale. */
  get lowText() { return this.mode === 'log' && this.low === this.high / 1e4 ? `≤ ${brief(this.low)}` : brief(this.low); }

  /** Four decades below the greatest value, or the least value if that is more. @param {number} least */
  logLow(least) { return least > this.high / 1e4 && least < this.high ? least : this.high / 1e4; }

  /** 0 to 255. @param {number} value */
  place(value) {
    const place = Math.round((transformed(this.mode, value / this.unit) - this.from) * this.factor);
    return Math.max(0, Math.min(255, place));
  }

  /** The colour of a value as [red, green, blue]. @param {number} value */
  rgb(value) {
    const colour = this.palette[this.place(value)];
    return [colour & 255, colour >> 8 & 255, colour >> 16 & 255];
  }

  /** The value in the middle of the colour bar. */
  get middle() {
    const value = this.valueAt(.5);
    return Math.abs(value) < this.high * 1e-9 ? 0 : value;  // rounded
  }

  /** At least two digits, unless it is 0. */
  get middleText() {
    const {middle} = this, size = Math.abs(middle);
    if (size === 0 || size >= .01) return brief(middle);
    return size < .00095 ? middle.toExponential(1) : String(Number(middle.toPrecision(2)));
  }

  /** The value at a share of the colour bar, 0 to 1. @param {number} share */
  valueAt(share) {
    const t = this.from + share * 255 / this.factor;
    const value = this.mode === 'log' ? Math.exp(t) : this.mode === 'root' ? Math.sign(t) * t * t : t;
    return value * this.unit;
  }
}

/**
 * The colour of a cell on a scale; `marks` are packed colours.
 * @param {number} code
 * @param {Scale} scale
 * @param {{ground: number, hatch: number, nan: number}} marks
 * @param {boolean} small NaN is filled instead of crossed out
 * @param {number} x device pixels, for patterns
 * @param {number} y
 * @param {number} period of patterns
 * @param {number} line width of their lines
 */
export function colourOfCode(code, scale, marks, small, x, y, period, line) {
  if (code >= 4 && code < kNan) {
    const place = (scale.table[code] - scale.from) * scale.factor + .5;
    return scale.palette[place > 0 ? place < 255 ? place | 0 : 255 : 0];
  }
  const rising = (x + y) % period < line;
  if (code === kHidden) return rising ? marks.hatch : marks.ground;
  if (code === kZero) return x % period < line && y % period < line ? marks.hatch : marks.ground;
  const falling = (x - y % period + period) % period < line;
  return small || rising || falling ? marks.nan : marks.ground;
}

/**
 * A value in at most six characters, as short_number() in draw/heat_map.cpp writes it.
 * @param {number} value
 */
export function brief(value) {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  const size = Math.abs(value);
  if (size !== 0 && (size < .00095 || size >= 99999.5))
    return value.toExponential(0).replace('e+', 'e');
  return String(Number(value.toPrecision(size >= 100 ? 5 : size >= 1 ? 3 : size >= .01 ? 2 : 1)));
}

/** Three digits of a number, rounded by Math.floor or Math.ceil. @param {number} number @param {(x: number) => number} round */
export function threeDigits(number, round) {
  if (number === 0 || !Number.isFinite(number)) return brief(number);
  const unit = 10 ** (Math.floor(Math.log10(Math.abs(number))) - 2);
  return String(Number((round(Number((number / unit).toPrecision(12))) * unit).toPrecision(3)));
}

/**
 * All digits of an exact value, otherwise value ± error up to one digit below the error's.
 * @param {number | null} value null: hidden
 * @param {number} error 0: exact
 * @param {boolean} single whether the value is a 32-bit float
 * @param {string} hidden what null means
 */
export function written(value, error, single, hidden) {
  if (value === null) return hidden;
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  if (error > 0) {
    const power = Math.floor(Math.log10(error)), place = Math.max(0, 1 - power), unit = 10 ** power;
    // The value's own rounding counts, and the bound is rounded up.
    const bound = (Math.ceil(Number(((error + .5 * 10 ** -place) / unit).toPrecision(12))) * unit).toPrecision(1);
    const digits = value.toFixed(Math.min(place, 100));
    return `${bound.includes('e') ? Number(digits) : digits.replace(/\.0+$|(\.\d*?)0+$/, '$1')} ± ${bound}`;
  }
  const number = single ? shortest32(value) : value;
  return Math.abs(number) < 1e-4 && number !== 0 ? number.toExponential() : String(number);
}

/**
 * An entropy with so many digits, or after "≈" with those that its error leaves.
 * @param {number} entropy @param {number} error a bound @param {number} digits after the point
 */
export function entropyText(entropy, error, digits) {
  const right = Math.max(0, Math.floor(-Math.log10(2 * error)));
  if (right < digits) return `≈ ${entropy.toFixed(right)}`;
  return entropy > 0 && entropy < 5e-4 && error < entropy / 20 ? brief(entropy) : entropy.toFixed(digits);
}

/** The shortest number that rounds to this 32-bit float. @param {number} value */
export function shortest32(value) {
  for (let digits = 1; digits < 9; ++digits) {
    const number = Number(value.toPrecision(digits));
    if (Math.fround(number) === value) return number;
  }
  return Number(value.toPrecision(9));
}

/** Black or white, whichever has more contrast (WCAG 2.1). @param {number[]} rgb */
export function inkOn(rgb) {
  return luminance(rgb) > .179 ? '#000' : '#fff';
}

/** Relative luminance (WCAG 2.1). @param {number[]} rgb 0 to 255 */
export function luminance(rgb) {
  const [r, g, b] = rgb.map(v => v / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
}
