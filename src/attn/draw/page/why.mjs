// How a weight comes about: the steps from a query and a key to their weight, with the names of `attn run --explain`.

/**
 * The member `why` of the facts (draw/page_steps.h). `headScales`, `sinks` and `keyed` have a number for each matrix. `dropout` is
 * the probability of dropout, null without it.
 * @typedef {{cosine: boolean, factor: number, root: number, headScales: number[] | null, softcap: number,
 *   capsMasked: boolean, masked: boolean, added: string[], hides: string[], hiding?: {sets: string[][], of: number[]}, temperature: number, dropout: number | null, sinks: (number | null)[] | null, width: number,
 *   valueWidth: number, note: string, keyed: number[], bits: number, rounding: number}} Why
 */
/** @typedef {Float32Array | Float64Array} Numbers */
/** Rows of numbers, one after the other; `kept` is 0 for weights that dropout sets to 0. @typedef {{queries: Numbers, masked: Numbers | null, kept: Uint8Array | null, keys: Numbers, values: Numbers}} Vectors */

/**
 * The numbers of the elements steps-0-P and keyed-0-G.
 * @param {Why} why
 * @param {Uint8Array} ofQueries
 * @param {Uint8Array} ofKeys
 * @param {number} rows
 * @param {number} columns
 * @returns {Vectors}
 */
export function vectorsOf(why, ofQueries, ofKeys, rows, columns) {
  const numbersOf = (/** @type {Uint8Array} */ bytes) => {
    const {buffer} = bytes.slice(0, bytes.length - bytes.length % (why.bits / 8));
    return why.bits === 64 ? new Float64Array(buffer) : new Float32Array(buffer);
  };
  const first = numbersOf(ofQueries), second = numbersOf(ofKeys);
  const ends = [rows * why.width, rows * (why.width + columns), columns * why.width, columns * (why.width + why.valueWidth)];
  const atKept = ends[why.masked ? 1 : 0] * why.bits / 8;
  return {queries: first.subarray(0, ends[0]), masked: why.masked ? first.subarray(ends[0], ends[1]) : null,
          kept: why.dropout === null ? null : ofQueries.subarray(atKept, atKept + rows * columns),
          keys: second.subarray(0, ends[2]), values: second.subarray(ends[2], ends[3])};
}

/** @param {number[]} a @param {number[]} b */
const inner = (a, b) => a.reduce((sum, x, d) => sum + x * b[d], 0);

/** @param {number} cap @param {number} x */
const capped = (cap, x) => cap === 0 ? x : cap * Math.tanh(x / cap);

/** What multiplies the values: a, or a' after dropout. @param {Why} why */
export const weightLetter = why => why.dropout === null ? 'a' : "a'";
/** Whether the softcap follows the biases. @param {Why} why */
const capsAfter = why => why.capsMasked && why.softcap > 0;
/** Whether the scores are scaled in heads with these scales. @param {Why} why @param {number[] | null} headScales */
const isScaled = (why, headScales) => (why.root > 0 ? why.root : why.factor) !== 1 || (why.softcap > 0 && !why.capsMasked) ||
    (headScales ?? []).some(scale => scale !== 1);
/** Whether something is added to the scores, or keys are hidden. @param {Why} why @param {boolean} hides */
const isMasked = (why, hides) => why.masked || hides || capsAfter(why);

/** What a matrix shows, with the letters of --explain. @typedef {'scores' | 'scaled' | 'masked' | 'weights'} StageName */
/** Of one cell: its name and its letter. @type {Record<StageName, [string, string]>} */
export const kStages = {scores: ['score', 's'], scaled: ['scaled score', "s'"], masked: ['masked score', "s''"], weights: ['weight', 'a']};

/** The stages that a job has, in order; none if the page does not have its steps. @param {Why | string | null} why @param {boolean} hides */
export function stagesOf(why, hides) {
  /** @type {StageName[]} */
  const stages = [];
  if (why !== null && typeof why !== 'string')
    stages.push('scores', ...isScaled(why, why.headScales) ? /** @type {const} */ (['scaled']) : [],
                ...isMasked(why, hides) ? /** @type {const} */ (['masked']) : [], 'weights');
  return stages;
}

/** Why a page does not say how its weights came about; '' if it does. @param {import('./data.mjs').Facts} facts */
export function whyNot({why, sets}) {
  if (why) return typeof why === 'string' ? why : '';
  return `To see how a weight comes about, ${sets.length > 1 ? 'draw one result' : 'write the page with attn run --view=page.html, which includes queries and keys'}.`;
}

/** The scores of a head, from its vectors. */
export class Scores {
  /**
   * @param {Why} why
   * @param {Vectors} vectors
   * @param {number} head the matrix
   * @param {(row: number, column: number) => boolean} isHidden not used if masked scores are stored
   */
  constructor(why, vectors, head, isHidden) {
    this.why = why;
    this.vectors = vectors;
    this.isHidden = isHidden;
    this.count = vectors.keys.length / why.width;
    this.ownScale = why.headScales?.[head] ?? 1;
    const norms = (/** @type {Numbers} */ all) => Float64Array.from({length: all.length / why.width}, (_, i) => Math.sqrt(this.dot(all, i, all, i)));
    this.norms = why.cosine ? {q: norms(vectors.queries), k: norms(vectors.keys)} : null;
  }

  /** Of a row of `a` and one of `b`. @param {Numbers} a @param {number} i @param {Numbers} b @param {number} j */
  dot(a, i, b, j) {
    const {width} = this.why;
    let sum = 0;
    for (let d = 0, x = i * width, y = j * width; d < width; ++d) sum += a[x + d] * b[y + d];
    return sum;
  }

  /** Σ q · k. @param {number} i @param {number} j */
  sum(i, j) { return this.dot(this.vectors.queries, i, this.vectors.keys, j); }
  /** @param {number} i @param {number} j */
  scores(i, j) { return this.norms ? this.sum(i, j) / (this.norms.q[i] * this.norms.k[j]) : this.sum(i, j); }
  /** Before the softcap. @param {number} i @param {number} j */
  unscaled(i, j) {
    const {root, factor} = this.why, score = this.scores(i, j);
    return (root > 0 ? score / Math.sqrt(root) : factor * score) * this.ownScale;
  }
  /** @param {number} i @param {number} j */
  scaled(i, j) { return capped(this.why.capsMasked ? 0 : this.why.softcap, this.unscaled(i, j)); }
  /** -Infinity: hidden. @param {number} i @param {number} j */
  masked(i, j) {
    const {masked} = this.vectors, {capsMasked, softcap} = this.why;
    return masked ? masked[i * this.count + j]
        : this.isHidden(i, j) ? -Infinity : capped(capsMasked ? softcap : 0, this.scaled(i, j));
  }
}

/**
 * The steps of one weight. Numbers are null in steps that the job does not have.
 * @typedef {object} Steps
 * @property {Numbers} q
 * @property {Numbers} k
 * @property {number[]} products q_d k_d
 * @property {number} sum of the products
 * @property {number[] | null} norms |q| and |k|, of cosines
 * @property {number} score s
 * @property {number | null} unscaled what the scale is multiplied with, before the softcap
 * @property {number | null} scaled s'
 * @property {number | null} added biases and additive masks; null if hidden
 * @property {number | null} masked s''
 * @property {boolean} isHidden
 * @property {boolean} seesNone the query sees no key
 * @property {number} logit masked score, divided by the temperature
 * @property {number} max of the row's logits and the sink
 * @property {number} total of exp(logit - max), with the sink
 * @property {number} term exp(logit - max) of this key
 * @property {number | null} sink
 * @property {number | null} weight null if the query sees neither a key nor a sink
 * @property {number | null} dropped the weight a' after dropout; null without dropout or a weight
 * @property {Numbers} v
 * @property {number[]} contribution a v_d, what the key adds to the context; a' v_d with dropout
 * @property {number[]} context sum of a v_d, or a' v_d, over all keys
 * @property {number | null} share of the context: the sum of a v_d c_d, or a' v_d c_d, divided by that of c_d c_d
 */

/**
 * @param {Why} why
 * @param {Vectors} vectors of the head
 * @param {number} head the matrix
 * @param {number} row
 * @param {number} column
 * @param {(row: number, column: number) => boolean} isHidden not used if masked scores are stored
 * @param {boolean} hides whether keys are hidden from some queries
 * @returns {Steps}
 */
export function stepsOf(why, vectors, head, row, column, isHidden, hides) {
  const {width, valueWidth} = why, scores = new Scores(why, vectors, head, isHidden), {count, norms} = scores;
  const q = vectors.queries.subarray(row * width, (row + 1) * width), k = vectors.keys.subarray(column * width, (column + 1) * width);
  const products = Array.from(q, (x, d) => x * k[d]), score = scores.scores(row, column);
  const logits = Array.from({length: count}, (_, j) => scores.masked(row, j) / why.temperature);
  const sink = why.sinks?.[head] ?? null, logit = logits[column];
  const largest = logits.reduce((a, b) => a > b || Number.isNaN(a) ? a : b, -Infinity), seesNone = largest === -Infinity;
  const max = sink === null ? largest : Math.max(largest, sink);
  const terms = logits.map(x => x === -Infinity ? 0 : Math.exp(x - max));
  const total = terms.reduce((a, b) => a + b, sink === null ? 0 : Math.exp(sink - max));
  const masked = logit * why.temperature, hidden = masked === -Infinity, scaled = scores.scaled(row, column);
  const scales = isScaled(why, [scores.ownScale]);

  /** A weight after dropout. @param {number} weight @param {number} j */
  const after = (weight, j) => why.dropout === null ? weight : vectors.kept?.[row * count + j] ? weight / (1 - why.dropout) : 0;
  const v = vectors.values.subarray(column * valueWidth, (column + 1) * valueWidth), context = new Array(valueWidth).fill(0);
  if (!seesNone)
    for (let j = 0, at = 0; j < count; ++j)
      for (let d = 0; d < valueWidth; ++d, ++at)
        if (terms[j] !== 0) context[d] += after(terms[j] / total, j) * vectors.values[at];
  const weight = seesNone && sink === null ? null : terms[column] / total, mixed = weight === null ? 0 : after(weight, column);
  const contribution = Array.from(v, x => mixed === 0 ? 0 : mixed * x), square = inner(context, context);
  return {
    q, k, products, sum: scores.sum(row, column), norms: norms && [norms.q[row], norms.k[column]], score,
    unscaled: scales ? scores.unscaled(row, column) : null, scaled: scales ? scaled : null,
    added: why.masked && !hidden && !capsAfter(why) ? withoutRounding(masked - scaled, why, products, masked) : null,
    masked: isMasked(why, hides) ? masked : null,
    isHidden: hidden, seesNone, logit, max, total, term: terms[column], sink, weight, dropped: why.dropout === null || weight === null ? null : mixed, v, contribution, context,
    share: square > 0 && weight !== null ? inner(contribution, context) / square : null,
  };
}

/**
 * What is added to a score, or 0 if it is not more than the rounding of the masked score and of the products.
 * @param {number} added
 * @param {Why} why
 * @param {number[]} products
 * @param {number} masked
 */
function withoutRounding(added, why, products, masked) {
  const scale = why.root > 0 ? 1 / Math.sqrt(why.root) : Math.abs(why.factor);
  const sizes = products.reduce((sum, product) => sum + Math.abs(product), 0) * scale + Math.abs(masked);
  return Math.abs(added) <= 8 * why.rounding * sizes ? 0 : added;
}

/**
 * Whether the computed weight is that of the result, apart from the rounding of its numbers.
 * @param {Why} why
 * @param {Steps} steps
 * @param {number} stored
 * @param {number} error of `stored`
 */
export function agrees(why, steps, stored, error) {
  if (steps.weight === null || Number.isNaN(steps.weight)) return true;
  const rounding = why.rounding * (64 + 16 * steps.products.reduce((sum, product) => Math.max(sum, Math.abs(product)), 0));
  return Math.abs(steps.weight - stored) <= 2 * error + rounding * Math.max(stored, steps.weight) + 1e-7;
}

/**
 * A part of a formula: text, or a number that is shown with six digits and with all of them on pointing at it.
 * @typedef {string | number | {power: Part[]} | {index: string}} Part
 */
/**
 * A step with the heading of --explain: what it says, and its formula, whose last part is its result.
 * @typedef {{name: string, words: string, formulas: Part[][], strips: 'score' | 'context' | null}} Step
 */

/** "q_d". @param {string} letter @returns {Part[]} */
const indexed = letter => [letter, {index: 'd'}];

/**
 * The steps as words and formulas.
 * @param {Why} why
 * @param {Steps} steps
 * @param {number} head
 * @param {number} row
 * @param {number} column
 * @param {string[] | null} hidingKey the options that hide this key, if they are known
 * @returns {Step[]}
 */
export function writtenSteps(why, steps, head, row, column, hidingKey) {
  const of = (/** @type {string} */ letter, at = `${row},${column}`) => [letter, {index: at}];
  /** @type {Step[]} */
  const written = [];
  const {score, scaled, masked, unscaled} = steps;
  written.push({name: 'Scores', words: 'How well the query matches the key. Orange is positive, blue negative.', strips: 'score', formulas: [
    [...of('s'), ' = Σ ', ...indexed('q'), ' ', ...indexed('k'), ...steps.norms ? [' / (|q| · |k|) = ', steps.sum, ' / (', steps.norms[0], ' · ', steps.norms[1], ') = ', score]
                                                                                : [' = ', score]]]});
  if (scaled !== null && unscaled !== null) {
    const ownScale = why.headScales?.[head];
    const product = [...why.root > 0 ? [score, ` / √${why.root}`] : why.factor !== 1 ? [why.factor, ' · ', ...factor(score)] : [score],
                     ...ownScale === undefined ? [] : [' · ', ...factor(ownScale)]];
    const caps = why.softcap > 0 && !why.capsMasked;
    written.push({name: 'Scale', words: caps ? 'The softcap limits the scaled score.' : '', strips: null,
                  formulas: caps ? [['before the softcap: ', ...product, ' = ', unscaled],
                                    [...of("s'"), ' = ', why.softcap, ' · tanh(', ...factor(unscaled), ' / ', why.softcap, ') = ', scaled]]
                                 : [[...of("s'"), ' = ', ...product, ' = ', scaled]]});
  }
  const before = scaled ?? score;
  if (masked !== null) {
    const what = why.added.join(', ');
    const names = hidingKey ?? why.hides, by = names.length > 1 && hidingKey ? `options ${joined(names, 'and')}` : `option ${joined(names, 'or')}`;
    const words = steps.isHidden ? `This key is hidden from the query${names.length > 0 ? ` by the ${by}` : ''}.`
        : capsAfter(why) ? `After ${what ? `${what} and ` : ''}the softcap.`
        : steps.added ? `Added by ${what}.` : 'The query sees this key; nothing is added.';
    written.push({name: 'Mask', words, strips: null, formulas: [[...of("s''"), ...steps.isHidden || (capsAfter(why) && why.masked) ? []
        : capsAfter(why) ? [' = ', why.softcap, ' · tanh(', before, ' / ', why.softcap, ')']
        : steps.added ? [' = ', before, ' + ', ...factor(steps.added)] : [], ' = ', masked]]});
  }
  const letter = masked !== null ? "s''" : scaled !== null ? "s'" : 's', divided = why.temperature !== 1;
  const x = divided ? 'x' : letter;
  /** @type {Part[][]} */
  const softmax = divided ? [[...of('x'), ` = ${letter} / `, why.temperature, ' = ', steps.logit]] : [];
  if (!steps.seesNone || steps.sink !== null) {
    const minus = [' − ', ...factor(steps.max)], max = steps.sink === null ? `max ${x}` : `max(${x}, sink)`;
    softmax.push([`${max} = `, steps.max]);
    softmax.push(['Σ e', {power: [`${x} − ${max}`]}, ...steps.sink === null ? [] : [' + e', {power: [steps.sink, ...minus]}, ' (sink)'],
                  ' = ', steps.total]);
    if (steps.sink !== null) softmax.push(['weight of the sink = e', {power: [steps.sink, ...minus]}, ' / ', steps.total, ' = ', Math.exp(steps.sink - steps.max) / steps.total]);
    if (steps.weight !== null)
      softmax.push([...of('a'), ' = ', ...steps.isHidden ? ['0'] : ['e', {power: [steps.logit, ...minus]}], ' / ', steps.total, ' = ', steps.weight]);
  }
  written.push({name: steps.sink === null && !divided ? 'Softmax' : 'Weights', strips: null, formulas: softmax,
                words: steps.seesNone ? `This query sees no key.${steps.sink === null ? '' : ' The sink takes the weight of the row.'}`
                    : `Exponentials, divided by their sum over the keys${steps.sink === null ? '' : ' and the sink'}.`});
  if (why.dropout !== null) {
    const keeps = steps.dropped !== 0 && steps.weight !== null;
    written.push({name: 'Dropout', strips: null,
                  words: steps.weight === null || steps.weight === 0 ? 'A weight of 0 stays 0.'
                      : keeps ? 'Dropout keeps this weight and divides it by 1 − p.' : 'Dropout sets this weight to 0.',
                  formulas: steps.weight === null || steps.dropped === null ? []
                      : [['p = ', why.dropout], [...of("a'"), ' = ', ...keeps ? [steps.weight, ' / ', 1 - why.dropout, ' = '] : [], steps.dropped]]});
  }
  const a = weightLetter(why);
  if (steps.v.length > 0)
    written.push({name: 'Context', strips: 'context',
                  words: [`${a} v (colour) is what this key adds to the context c (grey).`,
                          steps.share === null ? '' : 'Its share is negative if it points away from c. The shares of all keys add up to 1.', why.note].filter(Boolean).join(' '),
                  formulas: steps.share === null ? [] : [[`share of the context = (Σ ${a} `, ...indexed('v'), ' ', ...indexed('c'), ') / (Σ ', ...indexed('c'), ' ', ...indexed('c'), ') = ', steps.share]]});
  else if (why.note)
    written.push({name: 'Context', strips: null, words: why.note, formulas: []});
  return written;
}

/** "a, b or c". @param {string[]} names @param {string} last the word before the last one */
const joined = (names, last) => names.length < 2 ? names.join() : `${names.slice(0, -1).join(', ')} ${last} ${names[names.length - 1]}`;

/** A number that follows a sign: in parentheses if it is negative. @param {number} number @returns {Part[]} */
function factor(number) { return number < 0 ? ['(', number, ')'] : [number]; }
