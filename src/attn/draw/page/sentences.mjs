// Sentences that separator tokens end, and pairs of them.

const kSeparators = ['[SEP]', '</s>', '<sep>', '<|endoftext|>', '<eos>'];

/**
 * The sentences [first, end) of the tokens, named A, B, ...; none if there are fewer than two or more than four.
 * @param {string[]} labels
 */
export function sentencesOf(labels) {
  const sentences = [];
  let first = 0;
  for (let i = 0; i < labels.length; ++i) {
    if (!kSeparators.includes(labels[i].trim()) && i !== labels.length - 1) continue;
    const isEmpty = i === first && kSeparators.includes(labels[i].trim());  // as in </s></s>
    if (!isEmpty) sentences.push({name: 'ABCDE'[sentences.length], first, end: i + 1});
    if (sentences.length > 4) return [];
    first = i + 1;
  }
  return sentences.length > 1 ? sentences : [];
}

/**
 * Whether queries and keys are in the sentences of a pair such as "AB", queries first. "": all are.
 * @param {string[]} rows
 * @param {string[]} columns
 * @param {string} pair
 */
export function insideOf(rows, columns, pair) {
  const [query, key] = [rows, columns].map((labels, k) => {
    const sentence = sentencesOf(labels).find(({name}) => name === pair[k]);
    return (/** @type {number} */ i) => !sentence || (i >= sentence.first && i < sentence.end);
  });
  return {query, key};
}
