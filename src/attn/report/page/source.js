'use strict';
// Reads exact values from the original file, if the user opens it on a page that holds rounded ones.
// Only the selected row is read. Nothing is sent anywhere.

const kReaders = {
  f8: [8, (v, at) => v.getFloat64(at, true)], f4: [4, (v, at) => v.getFloat32(at, true)],
  f2: [2, (v, at) => half(v.getUint16(at, true))],
  bf16: [2, (v, at) => { word.setUint32(0, v.getUint16(at, true) << 16); return word.getFloat32(0); }],
  i8: [8, (v, at) => Number(v.getBigInt64(at, true))], u8: [8, (v, at) => Number(v.getBigUint64(at, true))],
  i4: [4, (v, at) => v.getInt32(at, true)], u4: [4, (v, at) => v.getUint32(at, true)],
  i2: [2, (v, at) => v.getInt16(at, true)], u2: [2, (v, at) => v.getUint16(at, true)],
  i1: [1, (v, at) => v.getInt8(at)], u1: [1, (v, at) => v.getUint8(at)], b1: [1, (v, at) => v.getUint8(at)],
};
const kSafetensors = {F64: 'f8', F32: 'f4', F16: 'f2', BF16: 'bf16', I64: 'i8', I32: 'i4', I16: 'i2', I8: 'i1',
                      U64: 'u8', U32: 'u4', U16: 'u2', U8: 'u1', BOOL: 'b1'};
const word = new DataView(new ArrayBuffer(4));

function half(bits) {
  const power = bits >> 10 & 31, part = bits & 1023, sign = bits >> 15 ? -1 : 1;
  if (power === 31) return part ? NaN : sign * Infinity;
  return sign * (power ? 2 ** (power - 15) * (1 + part / 1024) : 2 ** -14 * part / 1024);
}

async function view(blob, from, to) {
  return new DataView(await blob.slice(from, to).arrayBuffer());
}
async function text(blob, from, to) { return new TextDecoder('latin1').decode(await blob.slice(from, to).arrayBuffer()); }

const refuse = why => { throw new Error(why); };
const missing = name => refuse(name ? `the file has no tensor ${name}` : 'expected an .npy file');

// Each function below returns {blob, at, kind, shape}: the offset, dtype and shape of the elements.

async function inNpy(blob) {
  const start = await view(blob, 0, 12), wide = start.getUint8(6) > 1;
  const begin = wide ? 12 : 10;
  const end = begin + (wide ? start.getUint32(8, true) : start.getUint16(8, true));
  const header = await text(blob, begin, end);
  const dtype = /'descr': '[<|]([a-z]\d)'/.exec(header), shape = /'shape': \(([^)]*)\)/.exec(header);
  if (!dtype || !shape || !header.includes("'fortran_order': False"))
    refuse('unsupported .npy header: expected C order and little-endian numbers');
  return {blob, at: end, kind: dtype[1], shape: shape[1].split(',').filter(n => n.trim()).map(Number)};
}

async function inNpz(blob, name) {
  const size = blob.size, tail = await view(blob, Math.max(0, size - 65557), size);
  let end = tail.byteLength - 22;
  while (end >= 0 && tail.getUint32(end, true) !== 0x06054b50) --end;
  if (end < 0) refuse('incomplete zip archive');
  const from = tail.getUint32(end + 16, true), list = await view(blob, from, from + tail.getUint32(end + 12, true));
  for (let at = 0; at + 46 <= list.byteLength;) {
    const letters = list.getUint16(at + 28, true), extra = list.getUint16(at + 30, true);
    const member = await text(blob, from + at + 46, from + at + 46 + letters);
    if (member === `${name}.npy`) return inNpy(await unpacked(blob, list, at));
    at += 46 + letters + extra + list.getUint16(at + 32, true);
  }
  return missing(name);
}

async function unpacked(blob, list, at) {
  const method = list.getUint16(at + 10, true), size = list.getUint32(at + 20, true);
  const place = list.getUint32(at + 42, true), local = await view(blob, place, place + 30);
  if (size === 0xffffffff || place === 0xffffffff) refuse('larger than 4 GB');
  const begin = place + 30 + local.getUint16(26, true) + local.getUint16(28, true);
  const part = blob.slice(begin, begin + size);
  if (method === 0) return part;
  return new Response(part.stream().pipeThrough(new DecompressionStream('deflate-raw'))).blob();
}

async function inSafetensors(blob, name) {
  const length = Number((await view(blob, 0, 8)).getBigUint64(0, true));
  const header = JSON.parse(await blob.slice(8, 8 + length).text());
  const entry = header[name] || missing(name);
  return {blob, at: 8 + length + entry.data_offsets[0], kind: kSafetensors[entry.dtype], shape: entry.shape};
}

async function found(file, name) {
  const start = await text(file, 0, 8);
  if (start.slice(1, 6) === 'NUMPY') return inNpy(file);
  if (start.startsWith('PK')) return inNpz(file, name);
  return start.charCodeAt(7) === 0 ? inSafetensors(file, name) : refuse('unsupported file format');
}

// The file of one result, once the user has opened it, and the last row that was read.
class Source {
  constructor(set) { this.set = set; this.place = null; this.row = {key: '', values: null}; }

  async open(file) {
    const place = await found(file, facts.sources[this.set].tensor);
    const length = place.shape.length, matrix = place.shape.slice(length - 2);
    if (!kReaders[place.kind]) refuse(`unsupported dtype ${place.kind}`);
    if (length < 2 || matrix[0] !== rows || matrix[1] !== columns) refuse('its shape differs from that of the page');
    this.place = place;
    this.row = {key: '', values: null};
    await this.read(state.panel, state.row);
  }

  // The values of a row, or null while they are read; `then` is called when they are there.
  values(panel, row, then) {
    if (this.place === null) return null;
    if (this.row.key === `${panel}-${row}`) return this.row.values;
    this.row = {key: `${panel}-${row}`, values: null};
    this.read(panel, row).then(then, error => said(this.set, error));
    return null;
  }

  async read(panel, row) {
    const key = `${panel}-${row}`, {blob, at, kind} = this.place, [size, reader] = kReaders[kind];
    const from = at + (facts.sources[this.set].places[panel] * rows + row) * columns * size;
    const bytes = await view(blob, from, from + columns * size);
    if (bytes.byteLength < columns * size) refuse('the file is truncated');
    const values = Array.from({length: columns}, (_, j) => reader(bytes, j * size));
    const page = matrix(this.set, panel), error = page.error(row) * 1.001;
    values.forEach((value, j) => {
      const shown = page.value(row, j), reach = error + 1e-6 * Math.abs(value);
      if (shown !== null && !Number.isNaN(shown) && !(Math.abs(value - shown) <= reach))
        refuse('its values differ from those of the page');
    });
    if (this.row.key === key || this.row.key === '') this.row = {key, values};  // still selected
  }
}

const sources = (facts.sources || []).map((_, set) => new Source(set));

function said(set, error) {
  sources[set].place = null;
  document.getElementById('sources').children[set].querySelector('output').textContent = error.message;
  drawFocusAndFacts();
}

// The exact value if the file is open, and whether it is a float of at most 32 bits; otherwise the
// page's value and its error bound.
function exact(set, panel, row, column, then) {
  const page = matrix(set, panel), value = page.value(row, column);
  const one = which => sources[which] && sources[which].values(panel, row, then);
  if (value === null) return [value, 0];
  if (set !== kDifference) {
    const values = one(set);
    return values ? [values[column], 0, /^(f4|f2|bf16)$/.test(sources[set].place.kind)]
                  : [value, page.error(row)];
  }
  const [a, b] = [one(0), one(1)];
  return a && b ? [a[column] - b[column], 0] : [value, page.error(row)];
}

function buildSources() {
  (facts.sources || []).forEach((source, set) => {
    const label = document.createElement('label'), input = document.createElement('input');
    input.type = 'file';
    label.append(`for exact values, open ${source.file} `, input, document.createElement('output'));
    input.addEventListener('change', () => {
      if (input.files.length === 0) return;
      sources[set].open(input.files[0]).then(() => {
        label.querySelector('output').textContent = 'exact';
        drawFocusAndFacts();
      }, error => said(set, error));
    });
    document.getElementById('sources').append(label);
  });
}
