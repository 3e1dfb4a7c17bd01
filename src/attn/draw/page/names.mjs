// What the page calls what it shows: heads, numbers, the matrix and its patterns, and saved files.

import {rowsOfZeros} from './cells.mjs';
import {Matrix, aMatrix, kDifference, kSum, matrixName} from './data.mjs';
import {one} from './dom.mjs';
import {TileMatrix} from './tiles.mjs';
import {kStages} from './why.mjs';

const kWideBars = 1000;  // more may share pixels

export class Names {
  /**
   * @param {import('./data.mjs').Data} data
   * @param {import('./state.mjs').State} state
   * @param {import('./why.mjs').StageName[]} stages that the page can show
   */
  constructor(data, state, stages) {
    this.data = data;
    this.facts = data.facts;
    this.state = state;
    this.stages = stages;
  }

  /** Of the selected head. */
  get tile() { return this.data.tile(this.state.head); }
  get isRollout() { return this.tile?.kind === 'rollout'; }
  /** What the matrix shows; tiles have only weights. */
  get stage() { return this.tile ? 'weights' : this.state.stage; }

  /** The results; of two also their difference. */
  get sets() {
    const {sets} = this.facts;
    return this.data.compares ? [...sets, `${sets[0]} − ${sets[1]}`] : sets;
  }

  /** "layer 3, head 5". @param {number} head */
  title(head) {
    const group = this.data.groupOf(head), name = this.data.nameOf(head);
    return group === name ? name : [group, name].filter(Boolean).join(', ');
  }

  /** Which heads have the keys of this one; '' if no other has. @param {number} head */
  sharing(head) {
    const {why, heads} = this.facts, keyed = why && typeof why === 'object' ? why.keyed : [];
    const numbers = keyed.flatMap((keys, other) => keys === keyed[head] ? [/\d+$/.exec(heads[other])?.[0]] : []);
    return numbers.length > 1 ? `${matrixName(this.facts)}s ${numbers[0]}–${numbers[numbers.length - 1]} share keys` : '';
  }

  /** What the text shows of the selected row. */
  get reads() {
    const row = one(this.facts.rowAxis);
    return this.facts.signed ? `text of this ${row}` : this.isRollout ? `what this ${row} depends on` : `what this ${row} reads`;
  }
  /** What the text shows of the selected column. */
  get readBy() {
    const column = one(this.facts.columnAxis);
    return this.facts.signed ? `text of this ${column}` : this.isRollout ? `what this ${column} is part of` : `who reads this ${column}`;
  }

  /** The number of a cell. */
  get number() {
    if (this.tile) return this.tile.kind;
    return this.stages.length > 0 ? kStages[this.stage].join(' ') : this.data.hasSums ? 'weight' : 'value';
  }

  get axes() {
    const {rows, columns, rowAxis, columnAxis} = this.facts;
    if (rows.length > 1) return `${rowAxis} down, ${columnAxis} across`;
    return `${columnAxis} across${columns.length > kWideBars ? '; of those that share a pixel, the strongest' : ''}`;
  }

  /** The matrix of one result. */
  get matrix() {
    const {tile, facts: {why, rowAxis}, stage} = this, [name, letter] = kStages[stage];
    if (tile?.kind === 'mean') return `${tile.title}: ${this.axes}`;
    if (tile) return `rollout: ${this.data.tiles?.about(tile)} · ${rowAxis} down, input tokens across`;
    const caps = stage === 'scaled' && typeof why === 'object' && why && why.softcap > 0 && !why.capsMasked;
    return (this.stages.length > 0 ? `${name}s ${letter.toUpperCase()}${caps ? ' (after the softcap)' : ''}: ` : '') + this.axes;
  }

  /** What the patterns of the cells of a set mean. @param {number} set @param {import('./data.mjs').Head['matrix']} matrix of the head, if it is known */
  patterns(set, matrix = null) {
    const {data, facts, isRollout, stage} = this, isDifference = set === kDifference;
    const has = (/** @type {boolean[]} */ kinds) => isDifference ? kinds.some(Boolean) : kinds[set];
    const isMasked = stage === 'masked' || stage === 'weights';
    const hides = isMasked && has(facts.hidden), zeros = isMasked && !isRollout && !isDifference && has(facts.zeros);
    const who = this.tile && facts.hidden[0] ? ` in ${data.tiles?.hiddenAreZero ? `all ${matrixName(facts)}s` : aMatrix(facts)}` : '';
    return [hides && !isRollout ? `hatched: hidden${who}` : '', zeros || (matrix instanceof TileMatrix && matrix.hasExactZeros) ? 'dotted: exactly 0' : '',
            has(facts.nan) ? 'crossed out, or filled if small: NaN' : '',
            data.hasSums && !data.compares && stage === 'weights' && matrix instanceof Matrix ? rowsOfZeros(facts.rows.map((_, i) => matrix.row(i, kSum)), facts.rowAxis) : '']
        .filter(Boolean).join(' · ');
  }

  /** The title of a picture. */
  get picture() {
    const {stage, data, facts: {title}, state: {head}} = this, group = data.groupOf(head);
    return [title, group && title.endsWith(group) ? data.nameOf(head) : this.title(head), stage === 'weights' ? '' : stage].filter(Boolean).join(' · ');
  }
  /** The name of a file without its suffix. @param {string} set whose numbers it has */
  file(set = '') { return [this.picture, set].filter(Boolean).join(' · ').replace(/[^\w.-]+/g, '-').replace(/-$/, ''); }
}
