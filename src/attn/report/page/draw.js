
'use strict';
// Drawing on canvases.

function tableOf(hex) {
  const table = new Uint8Array(hex.length / 2);
  for (let i = 0; i < table.length; ++i) table[i] = parseInt(hex.substr(2 * i, 2), 16);
  return table;
}
const tables = {paper: tableOf(facts.maps.paper), night: tableOf(facts.maps.night),
                diverging: tableOf(facts.maps.diverging),
                divergingNight: tableOf(facts.maps.divergingNight)};

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Maps values to the 256 colours of a table.
class Scale {
  constructor(range, isSigned, logarithmic, dark) {
    const reach = Math.max(Math.abs(range[0]), Math.abs(range[1])) || 1;
    this.isSigned = isSigned;
    this.log = logarithmic && !isSigned;
    this.high = isSigned ? reach : range[1] || 1;
    this.low = isSigned ? -reach : this.log ? this.high / 1e4 : Math.min(0, range[0]);
    this.table = tables[isSigned ? (dark ? 'divergingNight' : 'diverging') : dark ? 'night' : 'paper'];
    this.nan = dark ? [64, 224, 160] : [192, 32, 128];
  }
  place(value) {
    const share = this.log ? Math.log(Math.max(value, this.low) / this.low) / Math.log(this.high / this.low)
                           : (value - this.low) / (this.high - this.low);
    return Math.max(0, Math.min(255, Math.round(255 * share)));
  }
}

// Cells smaller than this that are NaN are filled instead of crossed out.
const kPatternSize = 6;

// A value in at most six characters, as short_number() in report/heat_map.cpp writes it.
function brief(value) {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  const size = Math.abs(value);
  if (size !== 0 && (size < .001 || size >= 99999.5))
    return value.toExponential(0).replace('e+', 'e');
  return String(Number(value.toPrecision(size >= 100 ? 5 : size >= 1 ? 3 : size >= .01 ? 2 : 1)));
}

// One pixel per cell. Hidden cells are transparent, so that the pattern below them is visible.
function imageOf(values, scale) {
  const canvas = document.createElement('canvas');
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext('2d');
  const image = context.createImageData(columns, rows);
  for (let i = 0, at = 0; i < rows; ++i)
    for (let j = 0; j < columns; ++j, at += 4) {
      const value = values.value(i, j);
      if (value === null) continue;
      const isNan = Number.isNaN(value), table = isNan ? scale.nan : scale.table;
      const from = isNan ? 0 : 3 * scale.place(value);
      for (let k = 0; k < 3; ++k) image.data[at + k] = table[from + k];
      image.data[at + 3] = 255;
    }
  context.putImageData(image, 0, 0);
  return canvas;
}

// Hidden cells are hatched. Dots mark weights of exactly 0 if it is not known which keys are hidden.
// NaN is crossed out.
function pattern(context, kind) {
  const tile = document.createElement('canvas'), size = kPatternSize;
  tile.width = tile.height = size;
  const pen = tile.getContext('2d');
  pen.fillStyle = pen.strokeStyle = colour(kind === 'nan' ? '--nan' : '--hatch');
  if (kind === 'exactly 0') pen.fillRect(0, 0, 1, 1);
  const line = (x, y, x2, y2) => { pen.moveTo(x, y); pen.lineTo(x2, y2); };
  if (kind !== 'exactly 0') for (const shift of [-size, 0, size]) line(shift, size, shift + size, 0);
  if (kind === 'nan') line(0, 0, size, size);
  pen.stroke();
  return context.createPattern(tile, 'repeat');
}

function fillPattern(context, kind, x, y, width, height) {
  context.fillStyle = colour('--ground');
  context.fillRect(x, y, width, height);
  context.fillStyle = pattern(context, kind);
  context.fillRect(x, y, width, height);
}

// Crosses out cells that are NaN. imageOf() has filled them.
function crossOut(context, g, values) {
  if (!facts.nan || g.cell < kPatternSize) return;
  for (let i = 0; i < rows; ++i)
    for (let j = 0; j < columns; ++j)
      if (Number.isNaN(values.value(i, j) ?? 0))
        fillPattern(context, 'nan', g.left + j * g.cell, g.top + i * g.cell, g.cell, g.cell);
}

// Scales the canvas by devicePixelRatio; drawing still uses CSS pixels.
function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

function drawCells(context, image, x, y, width, height) {
  fillPattern(context, facts.hidden, x, y, width, height);
  context.imageSmoothingEnabled = width < columns;
  context.drawImage(image, x, y, width, height);
  context.strokeStyle = colour('--line');
  context.strokeRect(x + .5, y + .5, width - 1, height - 1);
}

const segmenter = 'Segmenter' in Intl ? new Intl.Segmenter() : null;
function graphemesOf(text) {
  return segmenter ? Array.from(segmenter.segment(text), part => part.segment) : Array.from(text);
}

function cutTo(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const letters = graphemesOf(text);
  while (letters.length > 0 && context.measureText(`${letters.join('')}…`).width > width) letters.pop();
  return `${letters.join('')}…`;
}

function widest(labels, most) {
  const pen = document.createElement('canvas').getContext('2d');
  pen.font = '12px system-ui, "DejaVu Sans", sans-serif';
  return labels.reduce((width, label) => Math.max(width, Math.min(most, pen.measureText(label).width)), 0);
}

// The layout of a matrix in `width`: the space for labels, and the side of a cell.
function geometryOf(width) {
  const left = widest(facts.rows, Math.min(96, width * .25)) + 12;
  const top = widest(facts.columns, Math.min(84, width * .22)) + 12;
  const cell = Math.min((width - left - 1) / columns, 64);
  return {left, top, cell, width: left + cell * columns + 1, height: top + cell * rows + 1};
}

// The smallest of 1, 2, 5, 10, 20, ... that is at least `least`.
function stepFor(least) {
  let step = 1;
  for (let i = 0; step < least; ++i) step = i % 3 === 1 ? step / 2 * 5 : step * 2;
  return step;
}

function drawLabels(context, g, marked) {
  const size = Math.max(9, Math.min(12, g.cell / 1.15)), step = stepFor(size * 1.15 / g.cell);
  context.font = `${size}px system-ui, "DejaVu Sans", sans-serif`;
  context.textBaseline = 'middle';
  const ink = colour('--ink'), mark = colour('--mark');
  context.textAlign = 'right';
  for (let i = 0; i < rows; i += step) {
    context.fillStyle = marked(facts.rows[i]) ? mark : ink;
    context.fillText(cutTo(context, facts.rows[i], g.left - 8), g.left - 5, g.top + (i + .5) * g.cell);
  }
  context.textAlign = 'left';
  for (let j = 0; j < columns; j += step) {
    context.save();
    context.translate(g.left + (j + .5) * g.cell, g.top - 5);
    context.rotate(-Math.PI / 2);
    context.fillStyle = marked(facts.columns[j]) ? mark : ink;
    context.fillText(cutTo(context, facts.columns[j], g.top - 8), 0, 0);
    context.restore();
  }
}

// Writes values into cells that are large enough.
function drawNumbers(context, g, values, scale) {
  if (g.cell < 40) return;
  context.font = '11px system-ui, "DejaVu Sans", sans-serif';
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  for (let i = 0; i < rows; ++i)
    for (let j = 0; j < columns; ++j) {
      const value = values.value(i, j);
      if (value === null || Number.isNaN(value)) continue;
      const k = 3 * scale.place(value), [r, green, b] = scale.table.slice(k, k + 3);
      context.fillStyle = r * .3 + green * .59 + b * .11 > 128 ? '#000' : '#fff';
      context.fillText(brief(value), g.left + (j + .5) * g.cell, g.top + (i + .5) * g.cell);
    }
}

// A bar beside each row and column whose label matches the search.
function drawMarks(context, g, marked) {
  context.fillStyle = colour('--mark');
  const thick = Math.max(g.cell, 1.5);
  facts.rows.forEach((label, i) => {
    if (marked(label)) context.fillRect(g.left - 4, g.top + i * g.cell, 3, thick);
  });
  facts.columns.forEach((label, j) => {
    if (marked(label)) context.fillRect(g.left + j * g.cell, g.top - 4, thick, 3);
  });
}

function drawFocus(context, g, row, column) {
  context.strokeStyle = colour('--mark');
  context.strokeRect(g.left + .5, g.top + row * g.cell + .5, g.cell * columns - 1, Math.max(g.cell - 1, 1));
  context.lineWidth = 2;
  context.strokeRect(g.left + column * g.cell, g.top + row * g.cell, Math.max(g.cell, 2), Math.max(g.cell, 2));
  context.lineWidth = 1;
}

// The colour bar, and the legend of patterns.
function drawBar(canvas, scale) {
  const marks = [facts.hidden, facts.nan ? 'nan' : ''].filter(kind => kind !== '');
  const width = 200, context = sized(canvas, width, marks.length > 0 ? 56 : 34);
  for (let x = 0; x < width; ++x) {
    const k = 3 * Math.round(255 * x / (width - 1));
    context.fillStyle = `rgb(${scale.table[k]},${scale.table[k + 1]},${scale.table[k + 2]})`;
    context.fillRect(x, 0, 1, 12);
  }
  context.strokeStyle = colour('--line');
  context.strokeRect(.5, .5, width - 1, 11);
  context.font = '12px system-ui, "DejaVu Sans", sans-serif';
  context.fillStyle = colour('--ink');
  const middle = scale.log ? Math.sqrt(scale.low * scale.high) : (scale.low + scale.high) / 2;
  [[scale.low, 'left', 0], [middle, 'center', width / 2], [scale.high, 'right', width]].forEach(
      ([value, align, x]) => {
        context.textAlign = align;
        context.fillText(brief(value), x, 28);
      });
  context.textAlign = 'left';
  marks.forEach((kind, k) => {
    const x = k * width / 2;
    fillPattern(context, kind, x, 40, 14, 14);
    context.strokeRect(x + .5, 40.5, 13, 13);
    context.fillStyle = colour('--ink');
    context.fillText(kind, x + 20, 51);
  });
}

const kLineHeight = 17;

// Draws the tokens on both sides, and a line from the selected query to each key, as wide as its weight.
// The lines of other queries are faint. Pages with more than 64 queries omit them.
function drawLines(canvas, width, values, scale, focus, marked) {
  const tall = kLineHeight, height = Math.max(rows, columns) * tall + 4, side = Math.min(130, width * .36);
  const context = sized(canvas, width, height);
  const line = (i, j, strength, alpha) => {
    context.globalAlpha = alpha;
    context.lineWidth = .5 + 7 * strength;
    context.beginPath();
    context.moveTo(side, (i + .5) * tall);
    context.lineTo(width - side, (j + .5) * tall);
    context.stroke();
  };
  const linesOf = (i, alpha) => {
    for (let j = 0; j < columns; ++j) {
      const value = values.value(i, j);
      if (value === null || Number.isNaN(value)) continue;
      const strength = Math.min(1, Math.abs(value) / Math.max(Math.abs(scale.low), Math.abs(scale.high)));
      context.strokeStyle = value < 0 ? '#2f7fc1' : colour('--mark');
      if (strength > .005) line(i, j, strength, alpha * (.25 + .75 * strength));
    }
  };
  if (rows <= 64) for (let i = 0; i < rows; ++i) if (i !== focus.row) linesOf(i, .12);
  linesOf(focus.row, 1);
  context.globalAlpha = 1;
  context.font = '12px system-ui, "DejaVu Sans", sans-serif';
  context.textBaseline = 'middle';
  const word = (text, x, y, align, inFocus) => {
    context.textAlign = align;
    context.font = `${inFocus ? 'bold ' : ''}12px system-ui, "DejaVu Sans", sans-serif`;
    context.fillStyle = colour(inFocus || marked(text) ? '--mark' : '--ink');
    context.fillText(cutTo(context, text, side - 8), x, y);
  };
  facts.rows.forEach((text, i) => word(text, side - 6, (i + .5) * tall, 'right', i === focus.row));
  facts.columns.forEach((text, j) => word(text, width - side + 6, (j + .5) * tall, 'left', j === focus.column));
}
