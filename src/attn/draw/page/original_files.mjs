// The original files that the user opens for exact values, and what the page says of them.

import {Matrix} from './data.mjs';
import {byId} from './dom.mjs';
import {Source} from './source.mjs';

/** @typedef {import('./source.mjs').OpenFile} OpenFile */

export class OriginalFiles {
  /**
   * @param {import('./data.mjs').Data} data
   * @param {import('./state.mjs').State} state
   * @param {{drawHead: () => void, drawFocus: () => void}} around the selected head, and its selected cell
   */
  constructor(data, state, around) {
    this.data = data;
    this.facts = data.facts;
    this.state = state;
    this.around = around;
    this.sources = (data.facts.sources ?? []).map((_, set) => new Source(data.facts, set));
    data.levelOfFile = (set, head) => this.sources[set]?.file?.levels.get(head);
    this.outputs = this.sources.map(source => this.chooserOf(source));
  }

  /** Makes a control that opens the file of a result; returns what says whether it is open. @param {Source} source */
  chooserOf(source) {
    const label = document.createElement('label'), chooser = document.createElement('input');
    const output = document.createElement('output');
    chooser.type = 'file';
    label.append(`for exact values, open ${source.about.file} `, chooser, output);
    chooser.addEventListener('change', async () => {
      const chosen = chooser.files?.[0], {head, row} = this.state;
      if (!chosen) return;
      output.textContent = '';
      try {
        const isOpen = await source.open(chosen, async file => {
          const matrix = await this.data.matrix(source.set, head);
          if (matrix instanceof Matrix) await file.row(matrix, row);
        });
        if (isOpen) this.show(source, 'exact');
      } catch (error) {
        this.showError(source, error);
      }
    });
    byId('sources').append(label);
    return output;
  }

  get isOpen() { return this.sources.some(({file}) => file); }

  /** Says whether the file of a result is open, and shows its numbers or those of the page. @param {Source} source @param {string} words */
  show({set}, words) {
    this.outputs[set].textContent = words;
    this.writeNotes();
    if (this.facts.step > 1) this.around.drawHead();
    else this.around.drawFocus();
  }
  /** @param {Source} source @param {unknown} error */
  showError(source, error) { this.show(source, error instanceof Error ? error.message : String(error)); }
  /** Closes a file, if it is open. @param {Source} source @param {OpenFile} file @param {unknown} error */
  refuse(source, file, error) {
    if (source.close(file)) this.showError(source, error);
  }

  /** Blocks of cells of the page are replaced by those of the file, if it is open. @param {number} head */
  async readHead(head) {
    const {data, state} = this;
    if (this.facts.step === 1 || data.tile(head)) return;
    await Promise.all(this.sources.map(async source => {
      const {file, set} = source;
      if (!file || file.levels.has(head)) return;
      try {
        file.levels.set(head, await file.level(/** @type {Matrix} */ (await data.matrix(set, head))));
        if (state.head === head && source.file === file) this.around.drawHead();
      } catch (error) {
        this.refuse(source, file, error);
      }
    }));
  }

  /** What the page says below its title. */
  get notes() {
    const names = this.sources.flatMap(({file, about}) => file ? [about.file] : []);
    const exact = `exact from ${names.join(' and ')}: ${this.facts.step > 1 ? 'the matrix, ' : ''}the selected row and the CSV`;
    return [...this.facts.notes, ...names.length > 0 ? [exact] : []];
  }
  get lack() { return this.state.missing && `This page has no ${this.state.missing}.`; }
  writeNotes() { byId('notes').textContent = [this.lack, ...this.notes].filter(Boolean).join(' · '); }
}
