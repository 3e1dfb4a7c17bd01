// Cells as 16-bit codes in the order of their strength, so that the strongest cell of a block has the
// largest code. draw/page_levels.h describes the codes.

export const kHidden = 0, kZero = 2, kNan = 0xFFFE;
const kFirstRank = 2, kInfinity = 0x7C00;

const float = new Float32Array(1), bits = new Uint32Array(float.buffer);

/**
 * The IEEE 754 binary16 nearest to a number that is at least 0, as its bits.
 * @param {number} x
 */
export function halfBits(x) {
  if (x < 2 ** -14) {
    const units = x * 2 ** 24, floor = Math.floor(units), rest = units - floor;
    return rest > .5 || (rest === .5 && floor % 2 === 1) ? floor + 1 : floor;
  }
  float[0] = x;
  const magnitude = bits[0] - 0x38000000;
  return Math.min((magnitude + 0xFFF + (magnitude >> 13 & 1)) >> 13, kInfinity);
}

/**
 * @param {number | null} value null: hidden
 * @param {number} unit
 */
export function codeOf(value, unit) {
  if (value === null) return kHidden;
  if (Number.isNaN(value)) return kNan;
  const size = Math.abs(value) / unit;
  const half = size > 65504 ? kInfinity : halfBits(size);
  return 2 * (kFirstRank + half) + (value < 0 ? 1 : 0);
}

/** @param {number} half bits of an IEEE 754 binary16 without sign */
export function halfValue(half) {
  const power = half >> 10, part = half & 1023;
  if (power === 31) return part ? NaN : Infinity;
  return power ? 2 ** (power - 15) * (1 + part / 1024) : part * 2 ** -24;
}

/** @type {Float32Array | null} */
let table = null;

/** The value of each code, divided by the unit: 0 for hidden cells and zeros. */
export function codeValues() {
  if (table) return table;
  table = new Float32Array(0x10000);
  for (let code = 2 * kFirstRank; code < 0x10000; ++code) {
    const half = (code >> 1) - kFirstRank;
    const size = half > kInfinity ? NaN : halfValue(half);
    table[code] = code & 1 ? -size : size;
  }
  return table;
}

/** @param {number} code */
export const isValue = code => code >= 2 * kFirstRank && code < kNan;

/**
 * A matrix of codes, each the strongest of a block of tall x wide cells.
 * @typedef {{tall: number, wide: number, rows: number, columns: number, codes: Uint16Array}} Level
 */

/**
 * The order of bytes in the page: all upper bytes, then all lower bytes.
 * @param {Uint8Array} bytes
 * @param {number} from
 * @param {number} count codes
 * @param {number} all codes in `bytes`
 */
export function codesFrom(bytes, from, count, all) {
  const codes = new Uint16Array(count);
  for (let k = 0; k < count; ++k) codes[k] = bytes[from + k] << 8 | bytes[all + from + k];
  return codes;
}

/**
 * @param {number} rows of the matrix
 * @param {number} columns
 * @param {number[]} blocks [tall, wide]
 * @returns {Level} without codes
 */
export function levelOf(rows, columns, [tall, wide]) {
  return {tall, wide, rows: Math.ceil(rows / tall), columns: Math.ceil(columns / wide),
          codes: new Uint16Array(0)};
}

/**
 * The level to draw when a pixel covers tall x wide cells: the coarsest whose blocks are not larger
 * than a pixel, otherwise the finest.
 * @param {Level[]} levels
 * @param {number} tall
 * @param {number} wide
 */
export function levelFor(levels, tall, wide) {
  const finest = levels.reduce((a, b) => b.tall * b.wide < a.tall * a.wide ? b : a);
  return levels.reduce((best, level) =>
      (level.tall <= Math.max(tall, 1) && level.wide <= Math.max(wide, 1) &&
       level.tall * level.wide > best.tall * best.wide) ? level : best, finest);
}
