// How a weight comes about: the steps from a query and a key to their weight, with the names of `attn run --explain`.

/**
 * The member `why` of the facts (report/page_steps.h). `headScales`, `sinks` and `keyed` have a number for each matrix.
 * @typedef {{cosine: boolean, factor: number, root: number, headScales: number[] | null, softcap: number,
 *   capsMasked: boolean, masked: boolean, added: string[], temperature: number, sinks: (number | null)[] | null, width: number,
 *   valueWidth: number, note: string, keyed: number[], bits: number, rounding: number}} Why
 */
/** @typedef {Float32Array | Float64Array} Numbers */
/** Rows of numbers, one after the other. @typedef {{queries: Numbers, masked: Numbers | null, keys: Numbers, values: Numbers}} Vectors */

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
  return {queries: first.subarray(0, ends[0]), masked: why.masked ? first.subarray(ends[0], ends[1]) : null,
          keys: second.subarray(0, ends[2]), values: second.subarray(ends[2], ends[3])};
}

/** @param {Numbers} a @param {Numbers} b */
function dot(a, b) {
  let sum = 0;
  for (let d = 0; d < a.length; ++d) sum += a[d] * b[d];
  return sum;
}

/** @param {number} cap @param {number} x */
const capped = (cap, x) => cap === 0 ? x : cap * Math.tanh(x / cap);

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
 * @property {Numbers} v
 * @property {number[]} contribution a v_d, what the key adds to the context
 * @property {number[]} context sum of a v_d over all keys
 * @property {number | null} share of the context: the sum of a v_d c_d, divided by that of c_d c_d
 */

/**
 * @param {Why} why
 * @param {Vectors} vectors of the head
 * @param {number} head the matrix
 * @param {number} row
 * @param {number} column
 * @param {(column: number) => boolean} isHidden of the keys of this row; not used if masked scores are stored
 * @param {boolean} hides whether keys are hidden from some queries
 * @returns {Steps}
 */
export function stepsOf(why, vectors, head, row, column, isHidden, hides) {
  const {width, valueWidth} = why, count = vectors.keys.length / width;
  const q = vectors.queries.subarray(row * width, (row + 1) * width);
  const keyOf = (/** @type {number} */ j) => vectors.keys.subarray(j * width, (j + 1) * width);
  const size = why.cosine ? Math.sqrt(dot(q, q)) : 1, ownScale = why.headScales?.[head] ?? 1;
  const scoreOf = (/** @type {number} */ j) => {
    const k = keyOf(j), sum = dot(q, k);
    return why.cosine ? sum / (size * Math.sqrt(dot(k, k))) : sum;
  };
  const unscaledOf = (/** @type {number} */ s) => (why.root > 0 ? s / Math.sqrt(why.root) : why.factor * s) * ownScale;
  const scaledOf = (/** @type {number} */ s) => capped(why.capsMasked ? 0 : why.softcap, unscaledOf(s));
  const maskedRow = vectors.masked?.subarray(row * count, (row + 1) * count);
  const maskedOf = (/** @type {number} */ j) => maskedRow ? maskedRow[j]
      : isHidden(j) ? -Infinity : capped(why.capsMasked ? why.softcap : 0, scaledOf(scoreOf(j)));

  const k = keyOf(column), products = Array.from(q, (x, d) => x * k[d]), sum = dot(q, k), score = scoreOf(column);
  const scaled = scaledOf(score), logits = Array.from({length: count}, (_, j) => maskedOf(j) / why.temperature);
  const sink = why.sinks?.[head] ?? null, logit = logits[column];
  const largest = logits.reduce((a, b) => a > b || Number.isNaN(a) ? a : b, -Infinity), seesNone = largest === -Infinity;
  const max = sink === null ? largest : Math.max(largest, sink);
  const terms = logits.map(x => x === -Infinity ? 0 : Math.exp(x - max));
  const total = terms.reduce((a, b) => a + b, sink === null ? 0 : Math.exp(sink - max));
  const masked = logit * why.temperature, hidden = masked === -Infinity;
  const isScaled = why.root > 0 || why.factor !== 1 || ownScale !== 1 || (why.softcap > 0 && !why.capsMasked);

  const v = vectors.values.subarray(column * valueWidth, (column + 1) * valueWidth), context = new Array(valueWidth).fill(0);
  if (!seesNone)
    for (let j = 0, at = 0; j < count; ++j)
      for (let d = 0; d < valueWidth; ++d, ++at)
        if (terms[j] !== 0) context[d] += terms[j] / total * vectors.values[at];
  const weight = seesNone && sink === null ? null : terms[column] / total;
  const contribution = Array.from(v, x => weight ? weight * x : 0), square = dot(Float64Array.from(context), Float64Array.from(context));
  return {
    q, k, products, sum, norms: why.cosine ? [size, Math.sqrt(dot(k, k))] : null, score,
    unscaled: isScaled ? unscaledOf(score) : null, scaled: isScaled ? scaled : null,
    added: maskedRow && !hidden && !capsAfter(why) ? withoutRounding(masked - scaled, why, products, masked) : null,
    masked: maskedRow || hides || capsAfter(why) ? masked : null,
    isHidden: hidden, seesNone, logit, max, total, term: terms[column], sink, weight, v, contribution, context,
    share: square > 0 && weight !== null ? dot(Float64Array.from(contribution), Float64Array.from(context)) / square : null,
  };
}

/** Whether the softcap follows the biases. @param {Why} why */
export const capsAfter = why => why.capsMasked && why.softcap > 0;

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

/**
 * The steps as words and formulas.
 * @param {Why} why
 * @param {Steps} steps
 * @param {number} head
 * @param {number} row
 * @param {number} column
 * @returns {Step[]}
 */
export function writtenSteps(why, steps, head, row, column) {
  const of = (/** @type {string} */ letter, at = `${row},${column}`) => [letter, {index: at}];
  /** @type {Step[]} */
  const written = [];
  const {score, scaled, masked, unscaled} = steps;
  written.push({name: 'Scores', words: 'How well the query matches the key.', strips: 'score', formulas: [
    [...of('s'), ...steps.norms ? [' = Σ q · k / (|q| · |k|) = ', steps.sum, ' / (', steps.norms[0], ' · ', steps.norms[1], ') = ', score]
                                : [' = Σ q · k = ', score]]]});
  if (scaled !== null && unscaled !== null) {
    const ownScale = why.headScales?.[head];
    const product = [...why.root > 0 ? [score, ` / √${why.root}`] : why.factor !== 1 ? [why.factor, ' · ', ...factor(score)] : [score],
                     ...ownScale === undefined ? [] : [' · ', ...factor(ownScale)]];
    const caps = why.softcap > 0 && !why.capsMasked;
    written.push({name: 'Scale', words: caps ? 'The softcap limits the scaled score.' : '', strips: null, formulas: [
      [...of("s'"), ' = ', ...caps ? [why.softcap, ' · tanh((', ...product, ') / ', why.softcap, ')'] : product, ' = ', scaled]]});
  }
  const before = scaled ?? score;
  if (masked !== null) {
    const what = why.added.join(', ');
    const words = steps.isHidden ? 'The query may not see this key.'
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
    const minus = [' − ', ...factor(steps.max)];
    softmax.push([`max ${x} = `, steps.max]);
    softmax.push(['Σ e', {power: [`${x} − max ${x}`]}, ' = ', ...steps.sink === null ? [] : ['(with the sink, e', {power: [steps.sink, ...minus]}, ') '],
                  steps.total]);
    if (steps.weight !== null)
      softmax.push([...of('a'), ' = ', ...steps.isHidden ? ['0'] : ['e', {power: [steps.logit, ...minus]}], ' / ', steps.total, ' = ', steps.weight]);
  }
  written.push({name: steps.sink === null && !divided ? 'Softmax' : 'Weights', strips: null, formulas: softmax,
                words: steps.seesNone ? 'This query sees no key.' : 'Exponentials, divided by their sum over the keys.'});
  if (steps.v.length > 0)
    written.push({name: 'Context', strips: 'context', words: ['What this key adds to the sum of the values, c (grey).', why.note].join(' ').trim(),
                  formulas: steps.share === null ? [] : [['share of the context: ', steps.share]]});
  else if (why.note)
    written.push({name: 'Context', strips: null, words: why.note, formulas: []});
  return written;
}

/** A number that follows a sign: in parentheses if it is negative. @param {number} number @returns {Part[]} */
function factor(number) { return number < 0 ? ['(', number, ')'] : [number]; }
