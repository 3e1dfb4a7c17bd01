
'use strict';
// Decodes values. #attn has the metadata. Each matrix is in its own element in base 85 and is decoded
// on first use. The value of a hidden cell is null.

const facts = JSON.parse(document.getElementById('attn').textContent);
const rows = facts.rows.length, columns = facts.columns.length;

// starts[i] + j is the index of cell (i, j).
const starts = [];
facts.first.reduce((at, first, i) => {
  starts.push(at - first);
  return at + facts.end[i] - first;
}, 0);

const digits = new Uint8Array(128);
'0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@[]^_{|'
    .split('').forEach((letter, digit) => { digits[letter.charCodeAt(0)] = digit; });

// Five base-85 digits, the most significant first, encode a little-endian 32-bit word
// (report/markup.h).
function decoded(id, Type) {
  const text = document.getElementById(id).textContent, count = text.length / 5;
  const groups = new Uint32Array(count);
  for (let k = 0, at = 0; k < count; ++k, at += 5) {
    let number = 0;
    for (let i = 0; i < 5; ++i) number = number * 85 + digits[text.charCodeAt(at + i)];
    groups[k] = number;
  }
  return new Type(groups.buffer);
}

// Four numbers for each row: sum, entropy in nats, minimum, maximum.
const kSum = 0, kEntropy = 1, kLeast = 2, kMost = 3;

class Matrix {
  constructor(set, panel) {
    const types = {64: Float64Array, 32: Float32Array, 16: Uint16Array, 8: Uint8Array};
    this.cells = decoded(`values-${set}-${panel}`, types[facts.bits]);
    this.ofRows = decoded(`rows-${set}-${panel}`, Float32Array);
    this.top = facts.bits > 16 ? 0 : 2 ** facts.bits - 1;  // hidden; one below: NaN
  }
  row(i, what) { return this.ofRows[4 * i + what]; }
  value(i, j) {
    if (j < facts.first[i] || j >= facts.end[i]) return null;
    const cell = this.cells[starts[i] + j];
    if (this.top === 0) return cell === -Infinity ? null : cell;
    if (cell >= this.top - 1) return cell === this.top ? null : NaN;
    const least = this.row(i, kLeast);
    return least + (this.row(i, kMost) - least) * cell / (this.top - 2);
  }
  // The largest difference between the page's values and those of the file; 0: they are equal.
  error(i) {
    return this.top === 0 ? 0 : (this.row(i, kMost) - this.row(i, kLeast)) / (this.top - 2) / 2;
  }
  range() {
    let least = Infinity, most = -Infinity;
    for (let i = 0; i < rows; ++i) {
      if (this.row(i, kLeast) <= this.row(i, kMost)) {
        least = Math.min(least, this.row(i, kLeast));
        most = Math.max(most, this.row(i, kMost));
      }
    }
    return least <= most ? [least, most] : [0, 1];
  }
}

// The first result minus the second. A cell is hidden if it is hidden in either.
class Difference {
  constructor(panel) { this.a = matrix(0, panel); this.b = matrix(1, panel); }
  row() { return NaN; }
  value(i, j) {
    const a = this.a.value(i, j), b = this.b.value(i, j);
    return a === null || b === null ? null : a - b;
  }
  error(i) { return this.a.error(i) + this.b.error(i); }
  range() {
    let most = 0;
    for (let i = 0; i < rows; ++i)
      for (let j = 0; j < columns; ++j) most = Math.max(most, Math.abs(this.value(i, j)) || 0);
    return [-most, most];
  }
}

const compares = facts.sets.length === 2;
const kDifference = 2;
const setNames = compares ? [...facts.sets, `${facts.sets[0]} − ${facts.sets[1]}`] : facts.sets;
const matrices = new Map();

function matrix(set, panel) {
  const key = `${set}-${panel}`;
  if (!matrices.has(key))
    matrices.set(key, set === kDifference ? new Difference(panel) : new Matrix(set, panel));
  return matrices.get(key);
}

// All digits of an exact value, otherwise value ± error.
function written(value, error, single = facts.bits === 32) {
  if (value === null) return facts.hidden || 'hidden';
  if (value === undefined || Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  if (error > 0) return `${Number(value.toPrecision(4))} ± ${error.toPrecision(1)}`;
  return String(single ? shortest32(value) : value);
}

// The shortest number that rounds to this 32-bit float.
function shortest32(value) {
  for (let digits = 1; digits < 9; ++digits) {
    const number = Number(value.toPrecision(digits));
    if (Math.fround(number) === value) return number;
  }
  return Number(value.toPrecision(9));
}
