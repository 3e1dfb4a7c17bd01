// The state of the page, and its text in the URL's fragment.

/** @typedef {import('./scale.mjs').Mode} Mode */
/** Whose largest value ends the colour scale. @typedef {'matrix' | 'shared' | 'head'} ScaleChoice */

/**
 * What links have of each matrix: the numbers of layer (or batch item) and head, or for tiles 'mean' or 'rollout' instead of the
 * head. The axis is '' if there is one group, the head null if there is no such axis. Null for other matrices, of which links have the position.
 * @param {import('./data.mjs').Facts} facts @param {import('./tiles.mjs').Tile[]} tiles which follow the heads
 * @returns {({axis: string, group: number, head: number | string | null} | null)[]}
 */
export function placesOf({heads, groups, groupEnds}, tiles = []) {
  const ofHeads = heads.map((name, at) => {
    const group = groups[groupEnds.findIndex(end => at < end)], title = group === '' || group === name ? name : `${group}, ${name}`;
    const parts = /^(layer|batch) (\d+)(?:, head (\d+))?$/.exec(title);
    return parts && {axis: parts[1], group: Number(parts[2]), head: parts[3] ? Number(parts[3]) : null};
  });
  const ofTiles = tiles.map(({kind, group}) => {
    const parts = /^(?:(layer|batch) (\d+))?$/.exec(groups[group]);
    return parts && {axis: parts[1] ?? '', group: Number(parts[2] ?? 0), head: kind};
  });
  return [...ofHeads, ...ofTiles];
}

export class State {
  /**
   * @param {{heads: number, places: ReturnType<typeof placesOf>, rows: number, columns: number, sets: number, dark: boolean, side: State['side'],
   *   orders: string[], order: string, head: number, scale: ScaleChoice, stages: import('./why.mjs').StageName[]}} defaults
   */
  constructor({heads, places, rows, columns, sets, dark, side, orders, order, head, scale, stages}) {
    this.places = places;
    this.limits = {heads, rows, columns, sets, orders, stages};
    this.defaults = {order, head, scale, side, set: sets > 1 ? 2 : 0};
    this.set = this.defaults.set;  // of the overview
    this.head = head;
    /** What the fragment names and the page does not have; '' if nothing. */
    this.missing = '';
    this.row = 0;
    this.column = 0;
    /** The cell to which the selection returns when the pointer leaves. */
    this.chosen = {row: 0, column: 0};
    this.locked = false;
    /** 'matrix': of the head for its matrix, shared for the overview. @type {ScaleChoice} */
    this.scale = scale;
    /** What is chosen; '': nothing. @type {Mode | ''} */
    this.mode = '';
    this.dark = dark;
    this.find = '';
    /** Sentences whose tokens are joined by lines, such as "AB". */
    this.between = '';
    this.order = order;
    this.lowestFirst = false;
    this.least = -Infinity;
    this.most = Infinity;
    /** @type {'lines' | 'text' | 'keys' | 'why'} */
    this.side = side;
    /** Of the matrix. @type {import('./why.mjs').StageName} */
    this.stage = 'weights';
    /** Heads whose lines are drawn as well. @type {number[]} */
    this.pinned = [];
    this.zoom = 1;
    this.x = 0;
    this.y = 0;
  }

  /** @param {number} row @param {number} column @param {boolean} preview until the pointer leaves */
  select(row, column, preview = false) {
    const {rows, columns} = this.limits;
    this.row = Math.max(0, Math.min(rows - 1, row));
    this.column = Math.max(0, Math.min(columns - 1, column));
    if (!preview) this.chosen = {row: this.row, column: this.column};
  }

  /** What differs from the defaults, as "layer=2&head=3&row=5". */
  fragment() {
    const {defaults} = this, parts = new URLSearchParams();
    const add = (/** @type {string} */ key, /** @type {unknown} */ value, /** @type {unknown} */ usual) => {
      if (value !== usual) parts.set(key, String(value));
    };
    add('set', this.set, defaults.set);
    const place = this.head === defaults.head ? null : this.places[this.head] ?? null;
    if (place?.axis) add(place.axis, place.group, null);
    add('head', place ? place.head : this.head, place ? null : defaults.head);
    add('row', this.chosen.row, null);
    add('column', this.chosen.column, null);
    add('locked', this.locked ? 1 : 0, 0);
    add('scale', this.scale, defaults.scale);
    add('colours', this.mode, '');
    add('order', this.order, defaults.order);
    add('first', this.lowestFirst ? 'lowest' : '', '');
    add('least', this.least, -Infinity);
    add('most', this.most, Infinity);
    add('side', this.side, defaults.side);
    add('stage', this.stage, 'weights');
    add('pinned', this.pinned.join('.'), '');
    add('find', this.find, '');
    add('between', this.between, '');
    if (this.zoom > 1) parts.set('zoom', [this.zoom, this.x, this.y].map(n => Number(n.toPrecision(5))).join('_'));
    return parts.toString();
  }

  /** Sets what the fragment has; ignores what is not valid. @param {string} text */
  read(text) {
    const parts = new URLSearchParams(text), {limits} = this;
    const index = (/** @type {string} */ key, /** @type {number} */ count, /** @type {number} */ usual) => {
      const value = Number(parts.get(key) ?? usual);
      return Number.isInteger(value) && value >= 0 && value < count ? value : usual;
    };
    const number = (/** @type {string} */ key, /** @type {number} */ usual) => {
      const value = Number(parts.get(key) ?? usual);
      return Number.isNaN(value) ? usual : value;
    };
    /** @type {<T extends string>(key: string, choices: readonly T[], usual: T) => T} */
    const choice = (key, choices, usual) =>
        choices.find(one => one === parts.get(key)) ?? usual;
    this.set = index('set', limits.sets > 1 ? 3 : 1, this.defaults.set);
    const axis = ['layer', 'batch'].find(axis => parts.has(axis)), named = parts.get('head');
    const at = axis ? this.places.findIndex(place => place?.axis === axis && String(place.group) === parts.get(axis) && (named === null || String(place.head) === named))
        : named && Number.isNaN(Number(named)) ? this.places.map(place => place?.head).lastIndexOf(named)  // a tile
        : index('head', limits.heads, named === null ? this.defaults.head : -1);
    const lacking = (/** @type {string} */ key, /** @type {number} */ count) => index(key, count, -1) < 0 && parts.has(key) ? `${key} ${parts.get(key)}` : '';
    this.missing = [at < 0 && axis ? `${axis} ${parts.get(axis)}` : '', at < 0 && named !== null ? `head ${named}` : '',
                    lacking('row', limits.rows), lacking('column', limits.columns)].filter(Boolean).join(', ').slice(0, 100);
    this.head = at < 0 ? this.defaults.head : at;
    this.select(index('row', limits.rows, 0), index('column', limits.columns, 0));
    this.locked = parts.get('locked') === '1';
    this.scale = choice('scale', /** @type {const} */ (['matrix', 'shared', 'head']), this.defaults.scale);
    this.mode = choice('colours', /** @type {const} */ (['linear', 'root', 'log']), '');
    this.order = choice('order', limits.orders, this.defaults.order);
    this.lowestFirst = this.order !== 'file' && parts.get('first') === 'lowest';
    this.least = number('least', -Infinity);
    this.most = number('most', Infinity);
    this.side = choice('side', /** @type {const} */ (['lines', 'text', 'keys', 'why']), this.defaults.side);
    this.stage = choice('stage', limits.stages, 'weights');
    this.pinned = (parts.get('pinned') ?? '').split('.').filter(text => text !== '').map(Number)
        .filter((head, k, all) => Number.isInteger(head) && head >= 0 && head < limits.heads && all.indexOf(head) === k)
        .slice(0, 6);
    this.find = (parts.get('find') ?? '').slice(0, 100);
    this.between = /^[A-E]{2}$/.exec(parts.get('between') ?? '')?.[0] ?? '';
    const [zoom, x, y] = (parts.get('zoom') ?? '1_0_0').split('_').map(Number);
    const valid = [zoom, x, y].every(Number.isFinite);
    [this.zoom, this.x, this.y] = valid ? [Math.max(zoom, 1), x, y] : [1, 0, 0];
  }
}
