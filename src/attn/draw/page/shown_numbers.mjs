// The numbers that the page shows, copies and saves: its own, or those of the original files, if the user has opened them.

import {blockNote, isSingle, sumAndEntropy} from './cells.mjs';
import {FileNumbers, matrixCsv, rowText} from './copies.mjs';
import {Difference, Matrix, StageMatrix, blankName, differenceOf, kDifference, kSum} from './data.mjs';
import {written} from './scale.mjs';
import {errorOf} from './tiles.mjs';

/** The sets whose numbers are in a set: both results in their difference. @param {number} set */
const partsOf = set => set === kDifference ? [0, 1] : [set];

/** What was read: the files of the parts of a set, the matrix of the page and its row. @typedef {{files: (OpenFile | null)[], matrix: AnyMatrix, row: number, values: number[]}} ReadRow */
/** @typedef {import('./source.mjs').OpenFile} OpenFile */
/** @typedef {import('./data.mjs').Head['matrix']} AnyMatrix */

export class ShownNumbers {
  /**
   * @param {import('./data.mjs').Data} data
   * @param {import('./state.mjs').State} state
   * @param {import('./figure.mjs').Figure[]} figures of the sets
   * @param {import('./source.mjs').Source[]} sources
   */
  constructor(data, state, figures, sources) {
    this.data = data;
    this.facts = data.facts;
    this.state = state;
    this.figures = figures;
    this.sources = sources;
    /** The rows that were read from files, for each set. @type {ReadRow[]} */
    this.rows = [];
  }

  /** @param {number} set */
  matrix(set) { return this.figures[set].head.matrix; }
  /** The open files of the parts of a set. @param {number} set */
  files(set) { return partsOf(set).map(part => this.sources[part]?.file ?? null); }
  /** The selected row of a set in its file, if it has been read. @param {number} set */
  fileRow(set) {
    const read = this.rows[set], files = this.files(set);
    return read && read.matrix === this.matrix(set) && read.row === this.state.row && files.every((file, k) => file !== null && file === read.files[k])
        ? read.values : null;
  }
  /** The same as a matrix with this row. @param {number} set */
  ofFile(set) {
    const matrix = this.matrix(set), row = this.fileRow(set);
    return matrix && row ? new FileNumbers(matrix, row, this.isSingle(set), this.facts.columns.length, this.state.row) : null;
  }
  /** Whether the numbers of a file are 32-bit floats. @param {number} set */
  isSingle(set) { return set !== kDifference && this.sources[set].file?.single === true; }
  /** Whether the selected row of all sets has been read. */
  get isExact() { return this.figures.every((_, set) => this.ofFile(set)); }

  /**
   * Reads the selected row from the open files; returns whether that changed what is shown.
   * @param {(source: import('./source.mjs').Source, file: OpenFile, error: unknown) => void} refuse
   */
  async readRows(refuse) {
    const {state: {row}, rows} = this, before = [...rows];
    for (const source of this.sources) {
      const {set, file} = source, matrix = this.matrix(set);
      if (!file || this.fileRow(set) || !(matrix instanceof Matrix)) continue;
      try {
        rows[set] = {files: [file], matrix, row, values: await file.row(matrix, row)};
      } catch (error) {
        refuse(source, file, error);
      }
    }
    const [first, second] = this.data.compares ? [this.fileRow(0), this.fileRow(1)] : [];
    if (first && second && !this.fileRow(kDifference)) {
      const seen = (/** @type {number} */ x) => x === -Infinity ? null : x;  // hidden
      const values = first.map((a, j) => differenceOf(seen(a), seen(second[j]), this.facts.areWeights) ?? -Infinity);
      rows[kDifference] = {files: this.files(kDifference), matrix: this.matrix(kDifference), row: this.state.row, values};
    }
    return rows.some((one, set) => one !== before[set] && this.fileRow(set) !== null);
  }

  /** What blocks of cells have in a set; "" for single cells. @param {number} set */
  blocksOf(set) { return blockNote(this.facts.step, set === kDifference); }

  /** The value of a cell in a set, exactly if it is in the selected row and the file is open. @param {number} set @param {number} row @param {number} column */
  text(set, row, column) {
    const matrix = this.matrix(set), {facts} = this;
    if (!matrix) return '…';
    const value = matrix.value(row, column), exact = row === this.state.row ? this.fileRow(set) : null;
    if (value === null) return blankName(facts, set);
    if (exact) return written(exact[column], 0, this.isSingle(set), 'hidden');
    const shown = written(value, errorOf(matrix, row, column), isSingle(matrix, value), ''), note = this.blocksOf(set);
    return note ? `${shown} (${note})` : shown;
  }

  /** The sum or the entropy of the selected row of weights; rows of blocks have none. @param {number} set @param {number} what */
  ofRow(set, what) {
    const exact = this.facts.step > 1 ? this.fileRow(set) : null;
    return exact ? sumAndEntropy(exact)[what === kSum ? 'sum' : 'entropy'] : this.matrix(set)?.row(this.state.row, what) ?? NaN;
  }

  /** How the page's numbers of a set differ from those of the file. @param {number} set */
  inexactness(set) {
    const matrix = this.matrix(set), {bits} = this.facts;
    if (!matrix || matrix instanceof StageMatrix) return '';
    return [this.blocksOf(set), bits <= 16 ? `rounded to ${bits} bits` : ''].filter(Boolean).join(', ');
  }

  /** The selected row in each set, with a line of names; that of the files if all are open. @param {string[]} names of the sets */
  rowText(names) {
    const {isExact} = this, matrices = names.flatMap((_, set) => (isExact ? this.ofFile(set) : this.matrix(set)) ?? []);
    const notes = names.map((_, set) => isExact ? '' : this.inexactness(set));
    return rowText(this.facts, matrices, names.map((name, set) => notes[set] ? `${name} (${notes[set]})` : name), this.state.row);
  }

  /** The matrices of the page whose numbers in the files are those of a set. @param {number} set */
  parts(set) {
    const matrix = this.matrix(set);
    return matrix instanceof Matrix ? [matrix] : matrix instanceof Difference ? [matrix.a, matrix.b] : [];
  }
  /** Whether the numbers of the head can be read from the files. @param {number} set */
  canRead(set) { return this.parts(set).length > 0 && this.files(set).every(Boolean); }
  /** The numbers of the head in a set: those of the files, if they are open. @param {number} set */
  async csv(set) {
    const {facts} = this, matrix = this.matrix(set), files = this.files(set);
    if (!matrix || !this.canRead(set)) return matrixCsv(facts, matrix, this.inexactness(set));
    const single = this.isSingle(set);
    const [first, second] = await Promise.all(this.parts(set).map((part, k) => /** @type {OpenFile} */ (files[k]).numbers(part.head, 0, facts.rows.length)));
    return matrixCsv(facts, new FileNumbers(matrix, second ? first.map((a, k) => a - second[k]) : first, single, facts.columns.length));
  }
}
