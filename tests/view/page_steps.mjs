// Prints the steps of all weights of a page as JSON, computed by the page's own modules: node page_steps.mjs PAGE.
// {steps: [[steps of query 0], ...] for each head, stages: {name: a matrix for each head}}; infinities and NaN are strings, as --format json writes them.

import {readFileSync} from 'node:fs';

const folder = new URL('../../src/attn/draw/page/', import.meta.url);
const {Data} = await import(new URL('data.mjs', folder));
const {agrees, stagesOf, stepsOf, writtenSteps} = await import(new URL('why.mjs', folder));

const page = readFileSync(process.argv[2], 'utf8');
const textOf = id => new RegExp(`<script type="[a-z/]*" id="${id}">([^<]*)</script>`).exec(page)[1];
const facts = JSON.parse(textOf('attn')), {why} = facts;
const data = new Data(facts, async id => textOf(id)), heads = [];
const stages = Object.fromEntries(stagesOf(why, facts.hidden[0]).map(name => [name, []]));
for (let head = 0; head < facts.heads.length; ++head) {
  const vectors = await data.vectors(head), matrix = await data.matrix(0, head);
  heads.push(facts.rows.map((_, i) => facts.columns.map((_, j) => {
    const steps = stepsOf(why, vectors, head, i, j, (query, key) => matrix.value(query, key) === null, facts.hidden[0]);
    return {...steps, agrees: agrees(why, steps, matrix.value(i, j) ?? 0, matrix.error(i)),
            written: writtenSteps(why, steps, head, i, j)};
  })));
  for (const [name, matrices] of Object.entries(stages)) {
    const shown = name === 'weights' ? matrix : (await data.stage(head, name)).matrix;
    matrices.push(facts.rows.map((_, i) => facts.columns.map((_, j) => shown.value(i, j))));
  }
}
const plain = (key, value) => ArrayBuffer.isView(value) ? Array.from(value)
    : typeof value === 'number' && !Number.isFinite(value) ? Number.isNaN(value) ? 'NaN' : value > 0 ? 'Infinity' : '-Infinity' : value;
console.log(JSON.stringify({steps: heads, stages}, plain));
