// Which colour scale each head has, by what is chosen in the controls.

import {StageMatrix, kDifference} from './data.mjs';
import {byId, chosenText} from './dom.mjs';
import {statistic} from './order.mjs';
import {Scale, modeOf, paletteOf} from './scale.mjs';

export class HeadScales {
  /**
   * @param {import('./data.mjs').Data} data
   * @param {import('./state.mjs').State} state
   * @param {import('./names.mjs').Names} names
   */
  constructor(data, state, names) {
    const {maps} = data.facts;
    this.data = data;
    this.facts = data.facts;
    this.state = state;
    this.names = names;
    this.palettes = {light: [paletteOf(maps.paper), paletteOf(maps.diverging)],
                     dark: [paletteOf(maps.night), paletteOf(maps.divergingNight)]};
    /** @type {Map<number, number>} */
    this.largestOfTiles = new Map();
    /** @type {Map<string, Scale>} */
    this.known = new Map();
  }

  /** Whether the results have another scale than their difference, unless one is chosen. */
  get differ() { return this.data.compares && !this.facts.signed && this.facts.curve === 'root'; }

  /** Of the values that are shown; also the overview has the scale of scores while they are. @param {boolean} signed */
  mode(signed = this.facts.signed || this.names.stage !== 'weights') { return modeOf(this.state.mode, this.facts.curve, signed); }

  /** The mode in words, if it is not linear. */
  get note() { return this.mode() === 'linear' ? '' : `${byId('mode-name').textContent}: ${chosenText('colours')}`; }

  /** @param {boolean} signed */
  palette(signed) { return this.palettes[this.state.dark ? 'dark' : 'light'][signed ? 1 : 0]; }

  /** The largest magnitude of a head, from its overview. @param {number} set @param {number} head */
  largest(set, head) {
    if (this.data.tile(head)) return this.largestOfTiles.get(head) ?? 1;
    return (set === kDifference ? statistic(this.facts, 'difference', set) : this.facts.largest[set])[head] ?? 0;
  }

  /** @param {number} tile that has been computed @param {number} largest */
  addTile(tile, largest) {
    this.largestOfTiles.set(tile, largest);
    this.known.clear();
  }

  /**
   * The scale of a head's colours. The two results of a comparison have the same.
   * @param {number} set
   * @param {number} head
   * @param {boolean} own whether it ends at the largest value of the head, instead of all heads
   */
  of(set, head, own = this.state.scale !== 'shared') {
    const {facts} = this, signed = facts.signed || set === kDifference;
    const mode = this.mode(signed || this.names.stage !== 'weights'), key = [set, own ? head : '', mode, this.state.dark].join();
    let scale = this.known.get(key);
    if (!scale) {
      let range = facts.limits;
      const sets = set === kDifference ? [kDifference] : facts.sets.map((_, k) => k);
      if (own) range = [0, Math.max(...sets.map(k => this.largest(k, head)))];
      else if (set === kDifference) range = [0, Math.max(...facts.heads.map((_, h) => this.largest(set, h)))];
      scale = new Scale(range, signed, mode, this.palette(signed), facts.unit);
      this.known.set(key, scale);
    }
    return scale;
  }

  /** The scale of what a figure shows; stages before the weights have their own. @param {import('./figure.mjs').Figure} figure */
  ofFigure({head: {matrix}, set}) {
    if (!(matrix instanceof StageMatrix)) return this.of(set, this.state.head);
    return new Scale([0, matrix.largest], true, this.mode(), this.palette(true), matrix.unit);
  }
}
