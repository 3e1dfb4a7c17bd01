// Unit tests of the page's modules that need no browser. tests/view/page_modules_test.py runs them with node.

import assert from 'node:assert/strict';
import {test} from 'node:test';

const folder = new URL('../../src/attn/draw/page/', import.meta.url);
const load = name => import(new URL(`${name}.mjs`, folder));
const {codeOf, codeValues, halfBits, levelFor} = await load('codes');
const {Scale, brief, entropyText, inkOn, luminance, modeOf, paletteOf, shortest32, threeDigits, written} = await load('scale');
const {tint} = await load('pen');
const {paintPixels, ranges} = await load('paint');
const {Camera, fit} = await load('camera');
const {meanOf, orderedHeads, rowsOfHeads, statistic} = await load('order');
const {State, placesOf} = await load('state');
const {isWord, largestCell, openingCell} = await load('opening');
const {insideOf, sentencesOf} = await load('sentences');
const {strongest, sumOf, whyNone} = await load('strongest');
const {blockLabels, columnOf, endsOf, rowOf, rowsOfZeros, sumAndEntropy, within} = await load('cells');
const {FileNumbers, matrixCsv, rowText} = await load('copies');
const {OpenFile, Source} = await load('source');
const {ShownNumbers} = await load('shown_numbers');
const {SelectedWeights} = await load('selected');
const {Names} = await load('names');
const {Finder} = await load('finder');
const {cellBetween} = await load('controls');
const {HeadScales} = await load('head_scales');
const {Heads} = await load('heads');
const {headWords} = await load('head_words');
const {Tiles} = await load('tiles');
const {Difference, Matrix, matrixName} = await load('data');

const grey = Uint32Array.from({length: 256}, (_, i) => 0xFF000000 | i << 16 | i << 8 | i);
const marks = {ground: '#0000ff', hatch: '#00ff00', nan: '#ff0000'};

test('codes of values return the nearest binary16', () => {
  const values = codeValues();
  for (const x of [0, 1, 0.1, 1 / 3, 1000.25, 6e-8, 1e-6, 65504, 2 ** -14, 2 ** -15]) {
    assert.ok(Math.abs(values[codeOf(x, 1)] - x) <= Math.max(x * 2 ** -11, 2 ** -25), String(x));
    if (x > 0) assert.equal(values[codeOf(-x, 1)], -values[codeOf(x, 1)]);
  }
});

test('halves are rounded to even', () => {
  assert.equal(halfBits(1 + 2 ** -11), halfBits(1));
  assert.equal(halfBits(1 + 3 * 2 ** -11), halfBits(1 + 2 ** -9));
  assert.equal(halfBits(2.5 * 2 ** -24), 2);
});

test('codes are in the order of strength', () => {
  const cells = [null, 0, 1e-9, 1e-3, -2e-3, 0.5, -1, 2, Infinity, NaN].map(value => codeOf(value, 2 ** -13));
  assert.deepEqual([...cells].sort((a, b) => a - b), cells);
});

test('a pixel shows all blocks that it covers, and each block is shown', () => {
  for (const [blocks, pixels, size] of [[512, 37, 1], [100, 333, 1], [64, 64, 8], [7, 3, 4], [4096, 600, 1]]) {
    const {first, end} = ranges(0, blocks * size, pixels, size, blocks);
    const shown = new Set();
    for (let k = 0; k < pixels; ++k) for (let b = first[k]; b < end[k]; ++b) shown.add(b);
    assert.equal(shown.size, blocks);
  }
});

test('a lone strong cell changes a pixel at every position and size', () => {
  const n = 61, scale = new Scale([0, 1], false, 'linear', grey, 2 ** -14);
  for (const pixels of [5, 17, 61, 100]) {
    const view = {x: 0, y: 0, width: n, height: n};
    const target = {width: pixels, height: pixels, left: 0, top: 0, ratio: 1};
    const image = new Uint32Array(pixels * pixels), level = {tall: 1, wide: 1, rows: n, columns: n,
                                                             codes: new Uint16Array(n * n).fill(4)};
    for (let k = 0; k < n * n; ++k) {
      level.codes[k] = codeOf(1, 2 ** -14);
      paintPixels(level, view, target, scale, marks, image);
      assert.ok(image.includes(grey[255]), `${pixels} ${k}`);
      level.codes[k] = 4;
    }
  }
});

test('hidden cells are hatched, zeros dotted, NaN crossed out', () => {
  const scale = new Scale([0, 1], false, 'linear', grey, 1);
  const paint = (code, pixels) => {
    const image = new Uint32Array(pixels * pixels);
    paintPixels({tall: 1, wide: 1, rows: 1, columns: 1, codes: Uint16Array.of(code)}, {x: 0, y: 0, width: 1, height: 1},
                {width: pixels, height: pixels, left: 0, top: 0, ratio: 1}, scale, marks, image);
    const count = colour => image.filter(pixel => pixel === colour).length;
    return {ground: count(0xFFFF0000), hatch: count(0xFF00FF00), nan: count(0xFF0000FF)};
  };
  assert.deepEqual(paint(0, 12), {ground: 120, hatch: 24, nan: 0});
  assert.deepEqual(paint(2, 12), {ground: 140, hatch: 4, nan: 0});
  assert.deepEqual(paint(0xFFFE, 12), {ground: 104, hatch: 0, nan: 40});
  assert.deepEqual(paint(0xFFFE, 4), {ground: 0, hatch: 0, nan: 16});
});

test('the coarsest level without loss is drawn', () => {
  const levels = [1, 4, 16].map(size => ({tall: size, wide: size}));
  assert.equal(levelFor(levels, .2, .2).wide, 1);
  assert.equal(levelFor(levels, 3.9, 5).wide, 1);
  assert.equal(levelFor(levels, 4, 5).wide, 4);
  assert.equal(levelFor(levels.slice(1), .2, .2).wide, 4);
});

test('scales place values', () => {
  const linear = new Scale([0, 2], false, 'linear', grey, 1);
  assert.deepEqual([0, 1, 2, 3, -1].map(v => linear.place(v)), [0, 128, 255, 255, 0]);
  const root = new Scale([0, 1], false, 'root', grey, 1);
  assert.equal(root.place(.25), 128);
  const log = new Scale([0, 1], false, 'log', grey, 1);
  assert.deepEqual([1, 1e-2, 1e-4, 0].map(v => log.place(v)), [255, 128, 0, 0]);
  const signed = new Scale([-3, 1], true, 'linear', grey, 1);
  assert.deepEqual([-3, 0, 3].map(v => signed.place(v)), [0, 128, 255]);
  assert.deepEqual([linear, root, log, signed].map(scale => scale.lowText), ['0', '0', '≤ 1e-4', '-3']);
  assert.equal(new Scale([.2, 1], false, 'log', grey, 1).lowText, '0.2', 'no value is smaller');
  for (const scale of [linear, root, log, signed])
    for (const share of [0, .2, 1]) assert.equal(scale.place(scale.valueAt(share)), Math.round(255 * share));
});

test('values with both signs are linear, unless the square root is chosen', () => {
  const modes = signed => ['', 'linear', 'root', 'log'].map(chosen => modeOf(chosen, 'root', signed));
  assert.deepEqual(modes(false), ['root', 'linear', 'root', 'log']);
  assert.deepEqual(modes(true), ['linear', 'linear', 'root', 'linear']);
});

test('rings are visible on all colours: black or white has a contrast of 4.5 on each', () => {
  for (let k = 0; k < 1 << 12; ++k) {
    const rgb = [k & 15, k >> 4 & 15, k >> 8].map(v => v * 17), light = luminance(rgb);
    assert.ok(Math.max(1.05 / (light + .05), (light + .05) / .05) >= 4.5);
    const ink = inkOn(rgb) === '#000' ? (light + .05) / .05 : 1.05 / (light + .05);
    assert.ok(ink >= 4.5);
  }
});

test('numbers are written in full or with their error', () => {
  assert.equal(written(0.1 + 0.2, 0, false, ''), '0.30000000000000004');
  assert.equal(written(Math.fround(0.1), 0, true, ''), '0.1');
  assert.equal(written(0.0024449, 3e-5, false, ''), '0.002445 ± 0.00004');
  assert.equal(written(0.99876543, 2e-5, false, ''), '0.998765 ± 0.00003');
  assert.equal(written(5.96e-8, 7e-6, false, ''), '0.0000001 ± 0.000008');
  for (const [value, error] of [[0.00113, 0.00124], [12.3456, 0.149], [7, 9.99e-5], [1234.5, 130]]) {
    const [shown, bound] = written(value, error, false, '').split(' ± ').map(Number);
    assert.ok(Math.abs(shown - value) + error <= bound * (1 + 1e-12), `${shown} ± ${bound}`);
  }
  assert.equal(written(1.5e-7, 0, false, ''), '1.5e-7');
  assert.deepEqual([written(null, 0, false, 'hidden'), written(NaN, 0, false, ''), written(-Infinity, 0, false, '')],
                   ['hidden', 'nan', '-inf']);
  assert.equal(shortest32(Math.fround(1 / 3)), 0.33333334);
  assert.deepEqual([0.4444, -12.34, 0.0005, -Infinity, 123456].map(brief), ['0.44', '-12.3', '5e-4', '-inf', '1e5']);
  assert.deepEqual([...paletteOf('0102ff')], [0xFFFF0201]);
});

test('a single row is tall enough to see, and squares stay square', () => {
  assert.deepEqual(fit(512, 512, 600, 700), {x: 600 / 512, y: 600 / 512});
  assert.ok(fit(8192, 1, 600, 400).y >= 28);
  assert.ok(fit(1, 8192, 600, 400).x >= 28);
  assert.ok(fit(8192, 3, 600, 400).y * 3 >= 28);
  assert.ok(fit(4096, 1, 300, 20).y <= 20);
});

test('zooming keeps the point under the pointer', () => {
  const camera = new Camera();
  camera.resize(100, 100, 500, 500);
  const before = camera.at(123, 321);
  camera.zoomBy(3, 123, 321);
  assert.deepEqual(camera.at(123, 321), before);
  camera.pan(1e6, 1e6);
  assert.deepEqual([camera.x, camera.y], [0, 0]);
  camera.show(99, 99);
  assert.deepEqual(camera.at(camera.shownWidth - 1, camera.shownHeight - 1), {column: 99, row: 99});
  camera.zoomBy(1e-9, 0, 0);
  assert.equal(camera.zoom, 1);
});

const facts = {heads: ['head 0', 'head 1', 'head 0', 'head 1'], groups: ['layer 0', 'layer 1'], groupEnds: [2, 4],
               statistics: [{name: 'entropy', of: [[1, 4, null, 2], [1, 1, 1, 5]]}, {name: 'difference', of: [[0, 3, 1, 2]]}]};

test('heads are sorted and filtered', () => {
  assert.deepEqual(orderedHeads(facts, 'file', 0), [0, 1, 2, 3]);
  assert.deepEqual(orderedHeads(facts, 'entropy', 0), [1, 3, 0, 2]);
  assert.deepEqual(orderedHeads(facts, 'entropy', 0, 1.5), [1, 3]);
  assert.deepEqual(orderedHeads(facts, 'entropy', 0, -Infinity, 1.5), [0]);
  assert.deepEqual(orderedHeads(facts, 'difference', 2), [1, 3, 2, 0]);
  assert.deepEqual(statistic(facts, 'entropy', 2), [0, 3, null, -3]);
  assert.deepEqual(orderedHeads(facts, 'entropy', 0, -Infinity, Infinity, true), [0, 3, 1, 2], 'the lowest first');
  assert.deepEqual([[0, 1], [0, 1, 2], [2], []].map(heads => meanOf(facts, 'entropy', heads)), [2.5, null, null, null]);
  assert.deepEqual(orderedHeads(facts, 'entropy', 2), [1, 3, 0, 2], 'changes by magnitude');
});

test('layers are rows, or rows have equal lengths', () => {
  assert.deepEqual(rowsOfHeads(facts, [0, 1, 2, 3], true, 3),
                   [{title: 'layer 0', heads: [0, 1]}, {title: 'layer 1', heads: [2, 3]}]);
  assert.deepEqual(rowsOfHeads(facts, [3, 1, 0], false, 2), [{title: '', heads: [3, 1]}, {title: '', heads: [0]}]);
});

const state = () => new State({head: 0, scale: 'matrix', stages: ['scores', 'weights'], heads: 10, places: placesOf({...facts, heads: [...facts.heads, 'head 0'], groupEnds: [2, 4, 5], groups: ['layer 3', 'layer 4', 'batch 1']}), rows: 5, columns: 7, sets: 1, dark: false, side: 'lines',
                                orders: ['file', 'entropy'], order: 'file'});

test('the fragment restores the state', () => {
  const one = state();
  one.select(4, 6);
  Object.assign(one, {head: 3, locked: true, scale: 'head', mode: 'root', order: 'entropy', lowestFirst: true, least: .5,
                      side: 'text', stage: 'scores', pinned: [1, 7], find: 'a&b=c', zoom: 2.5, x: 1.5, y: .25});
  const other = state();
  other.read(one.fragment());
  assert.deepEqual(other, Object.assign(one, {dark: other.dark}));
});

test('the fragment has what was chosen, not what is pointed at', () => {
  const one = state(), other = state();
  one.select(4, 6);
  one.select(9, -1, true);
  assert.deepEqual([one.row, one.column], [4, 0]);
  other.read(one.fragment());
  assert.deepEqual([other.row, other.column], [4, 6]);
});

test('a link has the numbers of layer, or batch item, and head', () => {
  const one = state(), other = state();
  one.head = 3;
  assert.match(one.fragment(), /^layer=4&head=1&/);
  other.read(one.fragment());
  assert.equal(other.head, 3);
  const headOf = text => { other.read(text); return other.head; };
  assert.deepEqual(['head=3', 'layer=3&head=1', 'head=4', 'head=9', 'layer=0&head=1', 'layer=4&head=2'].map(headOf), [3, 1, 4, 9, 0, 0]);
  assert.deepEqual([headOf('layer=4'), headOf('batch=1')], [2, 4], 'the first head');
  assert.deepEqual(['layer=77&head=99', 'layer=4', 'head=99&row=99&column=x', 'head=3&row=1&column=-1', 'head=3&row=1&column=1', '']
                       .map(text => { other.read(text); return other.missing; }),
                   ['layer 77, head 99', '', 'head 99, row 99, column x', 'column -1', '', '']);
  one.head = 4;
  assert.match(one.fragment(), /^batch=1&head=0&/);
  assert.equal(headOf('batch=1&head=0'), 4);
  one.head = 7;
  assert.match(one.fragment(), /^head=7&/, 'the position of a matrix that is not a head of a layer');
});

test('a link has the number of a batch item without heads', () => {
  const one = state(), headOf = text => { one.read(text); return one.head; };
  one.places = placesOf({heads: ['batch 0', 'batch 1'], groups: [''], groupEnds: [2]}, [{kind: 'mean', group: 0, title: ''}]);
  const links = [1, 2].map(head => { one.head = head; return one.fragment().split('&row')[0]; });
  assert.deepEqual(links, ['batch=1', 'head=mean']);
  assert.deepEqual([...links, 'head=1', 'batch=0'].map(headOf), [1, 2, 1, 0]);
  assert.equal(one.missing, '');
});

test('a link to a tile has its kind', () => {
  const groups = ['layer 3', 'layer 4'], kinds = ['mean', 'rollout'];
  const tiles = groups.flatMap((_, group) => kinds.map(kind => ({kind, group, title: ''})));
  const one = state(), headOf = text => { one.read(text); return one.head; };
  one.places = placesOf({...facts, groups}, tiles);
  const links = [4, 5, 6, 7].map(head => { one.head = head; return one.fragment().split('&row')[0]; });
  assert.deepEqual(links, ['layer=3&head=mean', 'layer=3&head=rollout', 'layer=4&head=mean', 'layer=4&head=rollout']);
  assert.deepEqual(links.map(headOf), [4, 5, 6, 7]);
  assert.deepEqual(['head=5', 'head=rollout', 'head=mode'].map(headOf), [5, 7, 0], 'the position, and the last one');
  one.places = placesOf({heads: facts.heads, groups: [''], groupEnds: [4]}, [{kind: 'mean', group: 0, title: ''}]);
  one.head = 4;
  assert.match(one.fragment(), /^head=mean&/);
  assert.equal(headOf('head=mean'), 4);
});

test('a fragment that is not valid is ignored', () => {
  for (const text of ['head=10&row=-1&column=1.5', 'head=x&zoom=a_b_c', 'pinned=99.1e9.-1&order=__proto__', '%%%=&&', 'set=2', 'stage=scaled']) {
    const one = state();
    one.read(text);
    assert.deepEqual([one.head, one.row, one.column, one.set, one.order, one.zoom, one.stage, one.pinned], [0, 0, 0, 0, 'file', 1, 'weights', []]);
  }
});

test('the strongest values come first, the first of equal ones', () => {
  const values = [.1, null, -.5, .3, NaN, .3, 0], places = (...all) => strongest(...all).map(({index}) => index);
  assert.deepEqual(strongest(values.length, i => values[i], 2), [{index: 2, value: -.5, error: 0}, {index: 3, value: .3, error: 0}]);
  assert.deepEqual(places(values.length, i => values[i], 3), [2, 3, 5]);
  assert.deepEqual(places(2, i => values[i], 3), [0]);
  assert.deepEqual(places(values.length, i => values[i], 9, () => .1), [2, 3, 5], 'those that may be 0 have no place');
  assert.deepEqual(places(values.length, i => values[i], 9), [2, 3, 5, 0], 'nor has 0 itself');
});

test('the sum of the strongest values has the digits that their errors leave', () => {
  const items = (...values) => values.map(value => ({index: 0, value, error: 0}));
  assert.equal(sumOf(items(.5, .25, .223), false, 1), 'these 3 together: 0.973 of the row\'s sum 1');
  assert.equal(sumOf(items(.5, .25).map(item => ({...item, error: .01})), false, 1), 'these 2 together: ≈ 0.75 of the row\'s sum 1');
  assert.deepEqual([sumOf(items(.5), false, 1), sumOf(items(.5, .2), true, 1), sumOf(items(.5, .2), false, NaN)], ['', '', '']);
});

test('sentences end at separators', () => {
  const names = labels => sentencesOf(labels).map(({name, first, end}) => `${name}${first}-${end}`).join(' ');
  assert.equal(names(['[CLS]', 'a', '[SEP]', 'b', '[SEP]']), 'A0-3 B3-5');
  assert.equal(names(['<s>', 'a', '</s>', '</s>', 'b', '</s>']), 'A0-3 B4-6');
  assert.equal(names(['a', 'b', '[SEP]']), '');
  const {query, key} = insideOf(['a', '[SEP]', 'b'], ['a', '[SEP]', 'b'], 'AB');
  assert.deepEqual([0, 1, 2].map(query), [true, true, false]);
  assert.deepEqual([0, 1, 2].map(key), [false, false, true]);
  assert.ok(insideOf(['a'], ['b'], '').key(0));
});

test('words are neither special tokens nor punctuation', () => {
  assert.deepEqual(['animal', 'Ġthe', '東', 'a1', '[SEP]', '<s>', '.', '12', ''].map(isWord),
                   [true, true, true, false, false, false, false, false, false]);
});

test('the page opens at a pair of words', () => {
  const facts = {rows: ['[CLS]', 'it', 'animal'], columns: ['[CLS]', 'it', 'animal']};
  const level = {tall: 1, wide: 1, rows: 3, columns: 3, codes: Uint16Array.of(9, 9, 9, 9, 9, 5, 9, 4, 9)};
  const equal = () => .5;
  assert.deepEqual(openingCell(facts, level, equal), {row: 1, column: 2});
  assert.deepEqual(openingCell({...facts, rows: ['0', '1', '2']}, level, equal), {row: 2, column: 0});
  level.codes[7] = 5;  // animal -> it
  assert.deepEqual(openingCell(facts, level, equal), {row: 1, column: 2});
  assert.deepEqual(openingCell(facts, level, row => row / 4), {row: 2, column: 1}, 'of equal codes, the largest value');
});

test('matrices without an axis of heads are items or layers', () => {
  const data = pageOf(1, 2, () => .5), heads = ['batch 0', 'batch 1'], facts = {...data.facts, heads, groups: [''], nan: [false]};
  const tiles = new Tiles({...data, facts}, true), one = state(), names = new Names({...data, facts, tiles, tile: () => tiles.list[0]}, one, []);
  assert.equal(tiles.list[0].title, 'mean of 2 items');
  assert.equal(tiles.about(tiles.list[0]), 'keys that an item hides count as 0');
  assert.match(names.patterns(0), /hidden in all items/);
  assert.deepEqual([facts, {heads: ['layer 3', 'layer 4']}, {heads: ['head 0']}, {heads: ['']}].map(matrixName), ['item', 'layer', 'head', 'head']);
});

test('the largest cell is found among those of equal codes', () => {
  const values = [.1, NaN, null, -.5, .5000001, .5], codes = Uint16Array.from(values, value => codeOf(value, 2 ** -14));
  assert.equal(new Set(codes.slice(3).map(code => code >> 1)).size, 1);
  assert.deepEqual(largestCell({tall: 1, wide: 1, rows: 2, columns: 3, codes}, (i, j) => values[3 * i + j]), {row: 1, column: 1, size: .5000001});
});

/** A page of layers x 2 heads of n x n; null: hidden. */
function pageOf(layers, n, value, rounding = 0, sum = 1, areWeights = true) {
  const labels = Array.from({length: n}, (_, i) => String(i));
  const facts = {rows: labels, columns: labels, sets: ['a'], step: 1, unit: 2 ** -14, statistics: [], zeros: [false], hidden: [true],
                 heads: Array.from({length: 2 * layers}, (_, h) => `head ${h % 2}`),
                 groups: Array.from({length: layers}, (_, g) => `layer ${g}`), groupEnds: Array.from({length: layers}, (_, g) => 2 * g + 2)};
  const data = {facts, compares: false, headCount: 2 * layers,
                matrix: async (_, head) => ({value: (i, j) => value(head, i, j), error: () => rounding, row: () => sum})};
  return Object.assign(data, {tiles: new Tiles(data, areWeights)});
}

test('the mean of heads skips hidden keys, and rounding errors are averaged', async () => {
  const {tiles} = pageOf(1, 2, (head, i, j) => i === 0 && j === 1 ? null : i === 0 ? 1 : head === 0 && j === 1 ? null : j === 0 ? 1 - head / 4 : .25, .01);
  assert.deepEqual(tiles.list.map(({title}) => title), ['mean of 2 heads']);
  const mean = await tiles.matrix(2);
  assert.deepEqual([0, 1].map(i => [0, 1].map(j => mean.value(i, j))), [[1, null], [.875, .125]]);
  assert.equal(mean.error(0), .01);
  Object.assign(mean.facts, {zeros: [true], hidden: [false]});
  assert.deepEqual([...(await mean.level()).codes].map(code => code === 2), [false, true, false, false], 'exactly 0');
  assert.equal(mean.row(1, 0), 1);
});

test('the mean of scores is -inf where a head hides the key', async () => {
  const value = (head, i, j) => head === 1 && j > i ? null : -head - j, mean = await pageOf(1, 2, value, 0, NaN, false).tiles.matrix(2);
  assert.deepEqual([0, 1].map(i => [0, 1].map(j => mean.value(i, j))), [[-.5, null], [-.5, -1.5]]);
  const withNan = await pageOf(1, 2, head => head === 1 ? null : NaN, 0, NaN, false).tiles.matrix(2);
  assert.ok(Number.isNaN(withNan.value(0, 0)), 'not hidden by the other head');
});

test('the sum of a row of the mean is that of the exact numbers of the file', async () => {
  const mean = await pageOf(1, 2, () => .25, .01, .9375).tiles.matrix(2);
  assert.equal(mean.row(1, 0), .9375, 'that of rounded cells would be .5');
});

test('the error of an entropy is bounded, and its digits are right', async () => {
  const p = [.7, .2, .0999, .0001], entropy = q => q.reduce((sum, x) => x > 0 ? sum - x / total(q) * Math.log(x / total(q)) : sum, 0);
  const total = q => q.reduce((a, b) => a + b, 0), error = 1e-4;
  const mean = await pageOf(1, 4, (head, i, j) => p[j], error).tiles.matrix(2), bound = mean.entropyError(0);
  const worst = Math.max(...Array.from({length: 81}, (_, k) => {
    const off = p.map((x, j) => x + (Math.floor(k / 3 ** j) % 3 - 1) * error);
    return Math.abs(entropy(off) - entropy(p));
  }));
  assert.ok(worst <= bound && bound < 2 * worst, `${worst} ${bound}`);
  assert.equal((await pageOf(1, 4, (head, i, j) => p[j]).tiles.matrix(2)).entropyError(0), 0);
  assert.deepEqual([0, 4e-4, 5.1e-4, .004, .3, 9].map(error => entropyText(2.34567, error, 3)), ['2.346', '2.346', '≈ 2.35', '≈ 2.35', '≈ 2', '≈ 2']);
  assert.deepEqual([[1e-5, 0], [1e-5, 1e-6], [0, 0]].map(([value, error]) => entropyText(value, error, 3)), ['1e-5', '0.000', '0.000']);
});

test('a tint is a mixture of a colour and the ground', () => {
  assert.deepEqual([0, .25, 1].map(share => tint('#a85000', '#ffffff', share)), ['rgb(255,255,255)', 'rgb(233,211,191)', 'rgb(168,80,0)']);
});

test('short numbers are those of pictures', () => {
  assert.deepEqual([0, .25, .0074, .00052, .00096, -12.34, 123456, Infinity].map(brief),
                   ['0', '0.25', '0.007', '5e-4', '0.001', '-12.3', '1e5', 'inf']);
});

test('limits of a statistic are rounded outwards', () => {
  assert.deepEqual([[.00171, Math.floor], [4.1138, Math.ceil], [-1.3849, Math.floor], [.93, Math.ceil], [0, Math.floor], [1 / 3, Math.ceil]]
                       .map(([number, round]) => threeDigits(number, round)), ['0.00171', '4.12', '-1.39', '0.93', '0', '0.334']);
});

test('the rollout multiplies the layers with their residual connections', async () => {
  const {tiles} = pageOf(2, 2, (head, i, j) => head < 2 ? .5 : i === 0 ? 1 - j : [.25, .75][j]);
  assert.deepEqual(tiles.list.map(({kind, group}) => kind + group), ['mean0', 'rollout0', 'mean1', 'rollout1']);
  const first = await tiles.matrix(5), second = await tiles.matrix(7);
  // A0 = [[.75, .25], [.25, .75]]; A1 = [[1, 0], [.125, .875]]; A1 A0
  assert.deepEqual([0, 1].map(i => [0, 1].map(j => first.value(i, j))), [[.75, .25], [.25, .75]]);
  assert.deepEqual([0, 1].map(i => [0, 1].map(j => second.value(i, j))), [[.75, .25], [.3125, .6875]]);
});

test('a zero of a rollout is exact and has the pattern of zeros', async () => {
  const {tiles} = pageOf(2, 2, (head, i, j) => j > i ? null : 1 / (i + 1), .01), rollout = await tiles.matrix(7);
  assert.equal(rollout.value(0, 1), 0);
  assert.deepEqual([rollout.error(0, 1), rollout.error(1, 1)], [0, .02]);
  Object.assign(rollout.facts, {zeros: [false], hidden: [true]});
  assert.deepEqual([...(await rollout.level()).codes].map(code => code === 2), [false, true, false, false]);
});

test('there are no rollouts without layers of one text', () => {
  const data = pageOf(2, 2, () => .5), kinds = facts => new Tiles({...data, facts: {...data.facts, ...facts}}, true).list.map(({kind}) => kind);
  assert.deepEqual(kinds({columns: ['0', '2']}), ['mean', 'mean']);
  assert.deepEqual(kinds({groups: ['batch 0', 'batch 1']}), ['mean', 'mean']);
  assert.deepEqual(kinds({step: 2}), []);
  assert.deepEqual(new Tiles(data, false).list.map(({kind}) => kind), ['mean', 'mean']);
});

test('heads have the name of the only layer, which titles of pictures have once', () => {
  const data = pageOf(1, 2, () => .5), one = state(), names = Object.assign(new Names(data, one, []), {facts: {...data.facts, title: 'weights, gpt, layer 7'}});
  Object.assign(data, {groupOf: () => 'layer 7', nameOf: head => data.facts.heads[head], tile: () => undefined});
  one.head = 1;
  assert.equal(names.title(1), 'layer 7, head 1');
  assert.equal(names.picture, 'weights, gpt, layer 7 · head 1');
  assert.equal(names.file('a b.npz'), 'weights-gpt-layer-7-head-1-a-b.npz');
  data.groupOf = () => '';
  assert.equal(names.picture, 'weights, gpt, layer 7 · head 1');
});

test('heads name those that share their keys', () => {
  const names = (why, heads) => new Names({facts: {why, heads}}, state(), []), heads = ['head 0', 'head 1', 'head 2', 'head 5'];
  assert.deepEqual([0, 1, 2, 3, 4].map(head => names({keyed: [0, 0, 0, 1]}, heads).sharing(head)), [...['0–2', '0–2', '0–2', ''].map(of => of && `heads ${of} share keys`), '']);
  assert.deepEqual([null, 'not stored', {keyed: [0, 1, 2, 3]}].map(why => names(why, heads).sharing(1)), ['', '', '']);
});

test('the selected weight of all heads is that of the chosen cell', async () => {
  const data = pageOf(2, 3, (head, i, j) => 100 * head + 10 * i + j), one = state();
  one.select(1, 2);
  const selected = new SelectedWeights(data, one, 'selected weight');
  one.select(0, 0, true);
  assert.equal(await selected.readAll(() => {}), true);
  assert.deepEqual(selected.statistic.of, [[12, 112, 212, 312]]);
  assert.equal(selected.reset(), false);
  one.select(2, 0);
  assert.equal(selected.reset(), true);
  assert.deepEqual(selected.statistic.of, [[null, null, null, null]]);
});

/** A matrix whose values are those of blocks of 2 x 2 cells. */
const inBlocks = (blocks, error = 0) => ({step: 2, value: (i, j) => blocks[i >> 1][j >> 1], error: () => error});

test('a block is one entry, not one for each of its cells', () => {
  const matrix = inBlocks([[.1, .9, null], [0, .3, .2]], .01), labels = ['0', '1', '2', '3', '4'];
  const row = rowOf(matrix, 1, 5), column = columnOf(matrix, 3, 4);
  assert.deepEqual(strongest(row.count, row.value, 10, row.error).map(({index}) => endsOf(row, index)), [[2, 3], [0, 1]]);
  assert.deepEqual([0, 1].map(block => column.value(block)), [.9, .3]);
  assert.deepEqual(blockLabels(labels, 2), ['0–1', '2–3', '4']);
  assert.deepEqual(blockLabels(['the', 'cat', 'sat'], 2), ['0–1: the cat', '2: sat']);
  const inside = within(row, j => j === 3);
  assert.deepEqual([0, 1, 2].map(block => inside.value(block)), [null, .9, null], 'a block is inside with any of its cells');
});

test('the difference of two blocks is no bound of those of their cells', () => {
  const [a, b] = [[[.5, .25]], [[.25, 1]]].map(blocks => ({step: 2, blockNumber: (i, j) => blocks[i][j], error: () => 0}));
  const row = rowOf(new Difference(a, b, true), 1, 4);
  assert.deepEqual([row.isBound, row.note, [0, 1].map(row.value)], [false, 'difference of the largest of 2 × 2', [.25, -.75]]);
  assert.deepEqual([rowOf(inBlocks([[.5, .25]]), 1, 4)].map(({isBound, note}) => [isBound, note]), [[true, 'largest of 2 × 2']]);
});

test('a key that one result hides differs by its weight in the other one', () => {
  const [a, b] = [[[.5, null, .5, null]], [[.25, .75, null, null]]].map(rows => ({step: 1, blockNumber: (i, j) => rows[i][j], error: () => 0}));
  const values = areWeights => [0, 1, 2, 3].map(j => new Difference(a, b, areWeights).value(0, j));
  assert.deepEqual(values(true), [.25, -.75, .5, null]);
  assert.deepEqual(values(false), [.25, null, null, null], 'a difference of scores is infinite');
});

test('copied rows and CSV have one number for each block', async () => {
  const labels = ['0', '1', '2', '3'], facts = {rows: labels, columns: labels, rowAxis: 'queries', columnAxis: 'keys', bits: 8};
  const page = inBlocks([[.5, .25], [null, 1]]);
  assert.equal(rowText(facts, [page, page], ['a', 'b'], 2), 'query\tkey\ta\tb\n2–3\t0–1\t\t\n2–3\t2–3\t1\t1\n');
  assert.equal(await matrixCsv(facts, page, 'largest of 2 × 2, rounded to 8 bits'),
               '"query / key (largest of 2 × 2, rounded to 8 bits)",0–1,2–3\r\n0–1,0.5,0.25\r\n2–3,,1\r\n');
  const file = new FileNumbers(page, [.5, .125, .25, -Infinity], false, 4, 1);
  assert.equal(rowText(facts, [file], ['weight'], 1), 'query\tkey\tweight\n1\t0\t0.5\n1\t1\t0.125\n1\t2\t0.25\n1\t3\t\n');
});

test('copied rows and CSV have the shortest digits of 32-bit floats, and all of 64-bit ones', async () => {
  const facts = {rows: ['0'], columns: ['0', '1'], rowAxis: 'queries', columnAxis: 'keys'}, x = Math.fround(.9969577);
  for (const [single, digits] of [[true, '0.9969577'], [false, String(x)]]) {
    const page = {step: 1, single, value: (i, j) => j === 0 ? x : null, error: () => 0};
    assert.equal(rowText(facts, [page], ['weight'], 0), `query\tkey\tweight\n0\t0\t${digits}\n0\t1\t\n`);
    assert.equal(await matrixCsv(facts, page), `query / key,0,1\r\n0,${digits},\r\n`);
    assert.equal(rowOf(page, 0, 2).text(0), digits, 'in lists');
    assert.equal(columnOf(new FileNumbers(page, [x, 1], single, 2), 0, 1).text(0), digits);
  }
});

test('a list without entries says why', () => {
  const why = (...values) => whyNone({step: 1, length: values.length, count: values.length, value: k => values[k], error: () => 0}, 'hidden');
  assert.deepEqual([why(0, 0, null), why(null, null), why(NaN), why(0, .1)],
                   ['none, all are exactly 0', 'none, all are hidden', 'none, all are NaN', 'none, all may be 0']);
});

test('rows of zeros are named', () => {
  assert.deepEqual([[1, 0, NaN], [0, 0, 0, 0, 0, 1], [1]].map(sums => rowsOfZeros(sums, 'rows')), ['sum 0: row 1', 'sum 0: 5 rows, first 0', '']);
});

test('rows of zeros are named only where the matrix shows weights', () => {
  const rows = ['a', 'b'], one = state(), matrix = Object.assign(Object.create(Matrix.prototype), {step: 1, ofRows: Float32Array.of(1, 0, 0, 0, 0, 0, 0, 0)});
  const data = {facts: {rows, rowAxis: 'queries', hidden: [false], zeros: [false], nan: [false]}, hasSums: true, compares: false, tile: () => undefined};
  const names = new Names(data, one, ['scores', 'masked', 'weights']), legends = ['scores', 'masked', 'weights'].map(stage => {
    one.stage = stage;
    return names.patterns(0, matrix);
  });
  assert.deepEqual(legends, ['', '', 'sum 0: query 1']);
});

test('the legend of each of two results has its patterns', () => {
  const facts = {rows: ['a'], rowAxis: 'queries', hidden: [false, true], zeros: [true, false], nan: [true, false]};
  const names = new Names({facts, hasSums: true, compares: true, tile: () => undefined}, state(), []), nan = 'crossed out, or filled if small: NaN';
  assert.deepEqual([0, 1, 2].map(set => names.patterns(set)), [`dotted: exactly 0 · ${nan}`, 'hatched: hidden', `hatched: hidden · ${nan}`]);
});

test('sum and entropy of a row of a file', () => {
  assert.deepEqual(sumAndEntropy([.5, .5, 0, -Infinity]), {sum: 1, entropy: Math.log(2)});
  assert.deepEqual([sumAndEntropy([0, 0]).entropy, sumAndEntropy([1, NaN]).entropy, sumAndEntropy([1, -.5]).entropy], [NaN, NaN, NaN]);
});

/** A page of two heads of one row, whose file has the numbers [[1, 2], [3, 4]]; `facts` for Source and Matrix. */
function rounded() {
  const labels = ['0', '1'], source = {file: 'x.npy', size: 16, dtype: 'float32', offset: 0, packed: null, places: [0, 1]};
  const facts = {rows: ['0'], columns: labels, bits: 32, step: 1, first: [0], end: [2], zeros: [false], hidden: [false], sets: ['x'], sources: [source]};
  const matrices = [[1, 2], [3, 4]].map((cells, head) => new Matrix(facts, 0, head, new Uint8Array(Float32Array.of(0, 0, 0, 4, ...cells).buffer)));
  return {facts, matrices, blob: numbers => new Blob([Float32Array.from(numbers)])};
}

test('rows of a file are compared with the matrix that is shown, and are those of its head', async () => {
  const {facts, matrices, blob} = rounded(), state = {head: 0, row: 0}, figures = [{head: {matrix: matrices[0]}}];
  const source = new Source(facts, 0), numbers = new ShownNumbers({facts, compares: false, tile: () => undefined}, state, figures, [source]);
  await source.open(blob([1, 2, 3, 4]), file => file.row(matrices[0], 0));
  const refuse = (_source, _file, error) => { throw error; };
  state.head = 1;  // the address has changed, and the matrix of head 1 is not decoded yet
  await numbers.readRows(refuse);
  figures[0].head = {matrix: matrices[1]};
  assert.equal(numbers.fileRow(0), null, 'not the row of head 0');
  await numbers.readRows(refuse);
  assert.deepEqual(numbers.fileRow(0), [3, 4]);
});

test('what is read from a file is not taken for numbers of the next file', async () => {
  const {facts, matrices, blob} = rounded(), figures = [{head: {matrix: matrices[0]}}];
  const source = new Source(facts, 0), numbers = new ShownNumbers({facts, compares: false, tile: () => undefined}, {head: 0, row: 0}, figures, [source]);
  await source.open(blob([1, 2, 3, 4]), async () => {});
  const {file} = source, reading = numbers.readRows(() => assert.fail());
  const opening = source.open(blob([1, 2]), async () => {});
  await assert.rejects(opening, /it has 8 bytes/);
  await reading;
  assert.equal(numbers.fileRow(0), null);
  assert.equal(source.close(file), false, 'an error of the first file does not close the second');
});

test('of two files that are opened, the last chosen one is open', async () => {
  const {facts, blob} = rounded(), source = new Source(facts, 0), [first, second] = [blob([1, 2, 3, 4]), blob([1, 2, 3, 4])];
  /** @type {() => void} */
  let resume = () => {};
  const slow = source.open(first, () => new Promise((_, reject) => { resume = () => reject(new Error('other values')); }));
  assert.equal(await source.open(second, async () => {}), true);
  resume();
  assert.equal(await slow, false, 'the error of the first is not reported');
  assert.ok(source.file instanceof OpenFile && source.file.blob === second);
});

test('the next token that is found is a query, or a key with Shift, and no hidden one', () => {
  const labels = ['the', 'cat', 'The', 'dog', 'the'], one = state(), weights = {value: (i, j) => j > i ? null : j === 1 ? .9 : .1};
  const finder = new Finder({rows: labels, columns: labels}, one, () => {});
  assert.deepEqual(finder.among(labels), [], 'nothing is searched');
  one.find = 'THE';
  assert.deepEqual(finder.among(labels), [0, 2, 4]);
  one.select(1, 3);
  assert.deepEqual([false, true].map(ofKeys => finder.next(ofKeys, weights)), [[2, 1], [1, 4]], 'query 2 does not see key 3, and reads key 1 most');
  assert.equal(finder.findsKeys, true);
  one.select(4, 3);
  assert.deepEqual([finder.next(false, weights), finder.next(false, null)], [[0, 0], [0, 3]], 'the first one follows the last one');
  assert.deepEqual(new Finder({rows: ['a'], columns: labels}, one, () => {}).next(false, null), [4, 4], 'a key if no query is found');
  one.find = 'bird';
  assert.equal(finder.next(false, weights), null);
});

test('the cell between two sentences is the selected one, if it is inside', () => {
  const labels = ['a', '[SEP]', 'b', 'c', '[SEP]'], one = state(), facts = {rows: labels, columns: labels};
  const cell = (row, column, weights) => { one.select(row, column); return cellBetween(facts, one, weights); };
  one.between = 'BA';
  const weights = {value: (_, j) => [.2, .3, .9, .1, .1][j]};
  assert.deepEqual([cell(3, 0, weights), cell(0, 3, weights), cell(3, 4, null)], [[3, 0], [2, 1], [3, 0]]);
});

/** Scales of a page of two results. */
function scalesOf(...sets) {
  const colours = Object.fromEntries(['paper', 'night', 'diverging', 'divergingNight'].map((name, k) => [name, `00000${k}`.repeat(256)]));
  const found = {...facts, sets, maps: colours, limits: [0, .9], largest: [[.1, .2, .3, .4], [.5, .1, .1, .1]], signed: false, curve: 'root', unit: 1};
  const one = state(), data = {facts: found, compares: sets.length > 1, tile: head => head > 3 ? {kind: 'mean'} : undefined};
  return {one, data, scales: new HeadScales(data, one, {stage: 'weights'})};
}

test('a scale ends at the largest value of the head in both results, or of all heads', () => {
  const {one, scales} = scalesOf('a', 'b');
  assert.deepEqual([0, 1].map(set => scales.of(set, 0).high), [.5, .5]);
  assert.deepEqual([scales.of(2, 1).high, scales.of(2, 1).low], [3, -3]);
  assert.equal(scales.differ, true);
  assert.deepEqual([scales.of(0, 0).mode, scales.of(2, 0).mode], ['root', 'linear']);
  one.scale = 'shared';
  assert.deepEqual([0, 2].map(set => scales.of(set, 1).high), [.9, 3]);
  assert.equal(scales.of(0, 1, true).high, .2);
  const light = scales.of(0, 1);
  one.dark = true;
  assert.notEqual(scales.of(0, 1).palette, light.palette);
});

test('the scale of a tile is known when it is computed', () => {
  const {scales} = scalesOf('a');
  assert.equal(scales.of(0, 4).high, 1);
  scales.addTile(4, .25);
  assert.equal(scales.of(0, 4).high, .25);
});

test('the tooltip of a head has its statistics and scale', () => {
  const {data, scales} = scalesOf('a', 'b'), names = {title: head => `head ${head}`, sharing: () => ''};
  Object.assign(data, {overviews: [[]], facts: {...data.facts, statistics: facts.statistics.map(one => ({...one, title: one.name}))}});
  const words = (head, set) => headWords(head, data, set, names, scales.of(set, head), null);
  assert.equal(words(1, 0), 'head 1\nentropy: 4\ndifference: 3\ncolours from 0 to 0.2');
  assert.equal(words(1, 2), 'head 1\nchange of entropy: 3\ndifference: 3\ncolours from -3 to 3');
  assert.equal(words(2, 0), 'head 2\ndifference: 1\ncolours from 0 to 0.3', 'no statistic of NaN');
});

test('the tooltip of a mean of heads has the means of their statistics', () => {
  const {scales} = scalesOf('a'), data = pageOf(1, 2, () => .5), names = {title: () => 'mean', sharing: () => ''};
  data.facts.statistics = [{name: 'entropy', title: 'entropy', of: [[1, 2]]}, {name: 'largest', title: 'largest', of: [[1, 1]]}];
  Object.assign(data, {overviews: [[]]});
  const words = () => headWords(2, data, 0, names, scales.of(0, 4), null).split('\n');
  assert.deepEqual(words(), ['mean', 'entropy: 1.5 (mean of the heads)', 'keys that a head hides count as 0', 'a click computes it']);
  data.overviews[0][2] = {};
  assert.equal(words()[3], 'colours from 0 to 1');
});

test('a sentence says which heads the overview has, and in what order', () => {
  const one = state(), overview = {heads: [0, 1, 2, 3], initials: '', hasMore: false}, data = {facts, headCount: 4, compares: true, tile: () => undefined, overviews: [[]]};
  const heads = Object.assign(Object.create(Heads.prototype), {data, state: one, names: {stage: 'weights'}, overview, noun: 'heads', refused: ''});
  assert.equal(heads.words, '4 heads');
  Object.assign(one, {order: 'entropy', set: 2});
  Object.assign(overview, {heads: [3, 1], hasMore: true});
  assert.equal(heads.words, '2 of 4 heads, the largest change first, first minus second, scroll for more');
  Object.assign(one, {lowestFirst: true, set: 0});
  assert.equal(heads.words, '2 of 4 heads, the lowest first, scroll for more');
  heads.refused = 'x is not a number';
  assert.equal(heads.words, 'x is not a number');
});
