// The heads in the overview: which are shown, in what order, what is said about them, and the tiles among them.

import {kDifference, matrixName} from './data.mjs';
import {byId, chosenText, input} from './dom.mjs';
import {isChange, orderedHeads, statistic} from './order.mjs';
import {device} from './pen.mjs';
import {kSelected} from './selected.mjs';
import {TileMatrix} from './tiles.mjs';
import {hideTip} from './tip.mjs';

const kMostPinned = 6;

export class Heads {
  /**
   * @param {import('./data.mjs').Data} data
   * @param {import('./state.mjs').State} state
   * @param {import('./names.mjs').Names} names
   * @param {import('./head_scales.mjs').HeadScales} scales
   * @param {import('./overview.mjs').Overview} overview
   * @param {import('./selected.mjs').SelectedWeights | null} selected
   * @param {import('./address.mjs').Address} address
   * @param {{drawHead: () => void, drawSide: () => void}} around the selected head, and the lines of all heads
   */
  constructor(data, state, names, scales, overview, selected, address, around) {
    this.data = data;
    this.state = state;
    this.names = names;
    this.scales = scales;
    this.overview = overview;
    this.selected = selected;
    this.address = address;
    this.around = around;
    this.noun = `${matrixName(data.facts)}s`;
    /** What is wrong with the limits of a statistic, or why the lines of a head are not added. */
    this.refused = '';
    this.listen();
  }

  /** Follows the controls of the overview. */
  listen() {
    const {state, address} = this;
    address.onChange('set', value => {
      state.set = Number(value);
      this.showRange();
      this.arrange();
      this.around.drawSide();
      this.loadOverview();
    });
    address.onChange('order', value => {
      state.lowestFirst = value.startsWith('-');
      state.order = value.replace(/^-/, '');
      state.least = -Infinity;
      state.most = Infinity;
      input('least').value = input('most').value = '';
      this.showRange();
      this.drawFromStart();
      this.orderBySelected();
    });
    for (const [id, none] of /** @type {[('least' | 'most'), number][]} */ ([['least', -Infinity], ['most', Infinity]])) {
      address.onChange(id, value => {
        const number = value.trim() === '' ? none : Number(value);
        input(id).setAttribute('aria-invalid', String(Number.isNaN(number)));
        state[id] = Number.isNaN(number) ? none : number;
        this.refused = Number.isNaN(number) ? `${value.trim()} is not a number` : '';
        this.drawFromStart();
      });
      let typing = 0;
      byId(id).addEventListener('input', () => {
        clearTimeout(typing);
        typing = window.setTimeout(() => byId(id).dispatchEvent(new Event('change')), 400);
      });
    }
  }

  /** Says the range of the statistic that orders the heads, at the fields that limit it. */
  showRange() {
    const {data, state, noun} = this;
    byId('range').hidden = state.order === 'file';
    const numbers = statistic(data.facts, state.order, state.set).filter(value => value !== null);
    const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
    const stay = data.count > data.headCount ? ', tiles stay' : '';
    [input('least').title, input('most').title] = numbers.length > 0 ? [`${noun} with less are left out${stay}; the least is ${least}`, `${noun} with more are left out${stay}; the largest is ${most}`] : ['', ''];
  }

  arrange() {
    const {state, state: {order}} = this;
    this.overview.arrange(orderedHeads(this.data.facts, order, state.set, state.least, state.most, state.lowestFirst), order === 'file');
    this.write();
  }
  draw() {
    this.arrange();
    this.overview.draw();
  }
  drawFromStart() {
    this.overview.camera.reset();
    this.draw();
  }

  /** Says which heads the overview has. */
  write() { byId('shown').textContent = this.words; }
  get words() {
    const {data, data: {facts}, state, state: {order, set}, overview, noun} = this, {length} = overview.heads.filter(head => !data.tile(head));
    const isScreen = !device.print;
    // What the controls say, which a sheet does not have.
    const printed = isScreen ? '' : `${data.compares ? ` of ${chosenText('set')}` : ''} ${order === 'file' ? 'in the order of the file' : chosenText('order')}`;
    const shown = (length === data.headCount ? `${length} ${noun}` : `${length} of ${data.headCount} ${noun}`) + printed;
    const changes = isChange(facts, order, set), first = `the ${state.lowestFirst ? changes ? 'smallest' : 'lowest' : 'largest'}${changes ? ' change' : ''} first`;
    const note = facts.statistics.find(({name}) => name === order)?.note ?? '';
    return this.refused || [shown, order === 'file' ? '' : first, note, order === 'difference' && set !== kDifference ? 'numbers are of the difference' : '', this.names.stage === 'weights' ? '' : 'weights', changes ? 'first minus second' : '',
                            isScreen && overview.hasMore ? 'scroll for more' : '', overview.initials,
                            isScreen && this.tilesAreLate ? `a click computes ${overview.tileKinds}` : ''].filter(Boolean).join(', ');
  }
  /** Whether tiles are shown that are computed when they are selected. */
  get tilesAreLate() {
    const {data, overview} = this;
    return overview.heads.some(head => data.tile(head) && !data.tiles?.isQuick && !data.overviews[0][head]);
  }

  /** @param {number | null} head */
  choose(head) {
    const {state, data} = this;
    if (head === null || head === state.head) return;
    hideTip();
    state.head = (head + data.count) % data.count;
    this.overview.reveal();
    this.around.drawHead();
    this.address.saveSoon();
  }
  /** The next head in the order of the overview. @param {number} step */
  step(step) {
    const {heads} = this.overview, {length} = heads;
    let at = heads.indexOf(this.state.head);
    for (let k = 0; k < length; ++k) {
      at = (at + step + length) % length;
      if (!this.data.tile(heads[at])) return this.choose(heads[at]);
    }
  }

  /** Adds the lines of a head, or removes them. @param {number} head */
  pin(head) {
    const {pinned} = this.state, at = pinned.indexOf(head);
    if (at >= 0) pinned.splice(at, 1);
    else if (pinned.length < kMostPinned) pinned.push(head);
    this.refused = at < 0 && !pinned.includes(head) ? `lines of at most ${kMostPinned + 1} ${this.noun}; remove those of one first` : '';
    this.arrange();
    this.overview.drawRings();
    this.address.saveSoon();
    this.loadTile(head).then(this.around.drawSide);
  }

  /** Reads the selected weight of all heads, if they are ordered by it. */
  async orderBySelected() {
    const {selected} = this;
    if (this.state.order !== kSelected || !selected) return;
    this.showRange();
    this.overview.draw();
    const isComplete = await selected.readAll(done => { byId('shown').textContent = `${done} of ${this.data.headCount} ${this.noun} read`; });
    if (!isComplete) return;
    this.showRange();
    this.draw();
  }

  /** Decodes and draws the overview of a set. */
  async loadOverview() {
    const {data, state, state: {set}, overview} = this;
    overview.draw();
    await data.loadOverview(set, () => { if (set === state.set) overview.drawSoon(); });
    if (set === state.set) overview.draw();
    this.loadTiles();
  }
  /** Computes a tile and its picture in the overview. @param {number} head */
  async loadTile(head) {
    const {data} = this;
    if (!data.tile(head) || data.overviews[0][head]) return;
    const {matrix, levels: [level]} = await data.head(0, head);
    if (!(matrix instanceof TileMatrix)) return;
    this.scales.addTile(head, matrix.largest);
    data.overviews[0][head] = level;
    this.arrange();
    this.overview.drawSoon();
  }
  async loadTiles() {
    const {data} = this;
    if (!data.tiles?.isQuick) return;
    for (let head = data.headCount; head < data.count; ++head) await this.loadTile(head);
  }
}
