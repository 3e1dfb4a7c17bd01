// Draws levels of codes with WebGL2. The pixels are those of paint.mjs, except that a colour may be the
// next one of its palette, because shaders compute with 32-bit floats.

import {kPatternSize, patternOf} from './paint.mjs';
import {packedHex} from './scale.mjs';

/** @typedef {import('./codes.mjs').Level} Level */
/** @typedef {import('./scale.mjs').Scale} Scale */
/** @typedef {import('./paint.mjs').View} View */
/** @typedef {import('./paint.mjs').Target} Target */
/** @typedef {import('./paint.mjs').Marks} Marks */

const kVertexShader = `#version 300 es
void main() { gl_Position = vec4(gl_VertexID == 1 ? 3. : -1., gl_VertexID == 2 ? 3. : -1., 0, 1); }`;

// `codes` is wider than `wide` only if the level has more columns than a texture may have; the index
// of a code runs through the rows of the texture.
const kFragmentShader = `#version 300 es
precision highp float; precision highp int; precision highp usampler2D; precision highp sampler2D;
uniform usampler2D codes;
uniform sampler2D places, palette;
uniform ivec2 blocks, texture_size, corner, target_size;
uniform vec4 view;      // x, y, width, height, in blocks
uniform float start, scale_factor;
uniform int period, line;
uniform bool small_cells;
uniform vec3 ground, hatch, nan_colour;
out vec4 colour;

uint code_at(int row, int column) {
  int index = row * blocks.x + column;
  return texelFetch(codes, ivec2(index % texture_size.x, index / texture_size.x), 0).r;
}
ivec2 range(float from, float blocks_per_pixel, int pixel, int count) {
  int first, end;
  if (blocks_per_pixel <= 1.) {
    first = clamp(int(floor(from + (float(pixel) + .5) * blocks_per_pixel)), 0, count - 1);
    end = first + 1;
  } else {
    first = clamp(int(floor(from + float(pixel) * blocks_per_pixel + 1e-4)), 0, count - 1);
    end = max(clamp(int(ceil(from + float(pixel + 1) * blocks_per_pixel - 1e-4)) - 1, 0, count - 1), first) + 1;
  }
  return ivec2(first, end);
}
void main() {
  ivec2 pixel = ivec2(int(gl_FragCoord.x), target_size.y - 1 - int(gl_FragCoord.y));
  ivec2 across = range(view.x, view.z / float(target_size.x), pixel.x, blocks.x);
  ivec2 down = range(view.y, view.w / float(target_size.y), pixel.y, blocks.y);
  uint code = 0u;
  for (int row = down.x; row < down.y; ++row)
    for (int column = across.x; column < across.y; ++column) code = max(code, code_at(row, column));
  if (code >= 4u && code < 65534u) {
    float value = texelFetch(places, ivec2(int(code & 255u), int(code >> 8)), 0).r;
    float place = clamp((value - start) * scale_factor + .5, 0., 255.);
    colour = texelFetch(palette, ivec2(int(place), 0), 0);
    return;
  }
  ivec2 at = corner + pixel;
  bool rising = (at.x + at.y) % period < line;
  bool falling = (at.x - at.y % period + period) % period < line;
  bool dot = at.x % period < line && at.y % period < line;
  bool marked = code == 0u ? rising : code == 2u ? dot : small_cells || rising || falling;
  colour = vec4(marked ? (code > 2u ? nan_colour : hatch) : ground, 1);
}`;

/** @param {string} hex */
const rgb = hex => [packedHex(hex) & 255, packedHex(hex) >> 8 & 255, packedHex(hex) >> 16 & 255].map(c => c / 255);

export class GlPainter {
  /**
   * Fails if there is no WebGL2.
   * @param {boolean} software whether a slow context, without a graphics processor, will do
   */
  constructor(software = false) {
    this.name = 'webgl2';
    this.canvas = document.createElement('canvas');
    const gl = this.canvas.getContext('webgl2', {failIfMajorPerformanceCaveat: !software, antialias: false,
                                                 preserveDrawingBuffer: true, alpha: false});
    if (!gl) throw new Error('no WebGL2');
    const about = gl.getExtension('WEBGL_debug_renderer_info');
    const renderer = about ? String(gl.getParameter(about.UNMASKED_RENDERER_WEBGL)) : '';
    if (!software && /swiftshader|llvmpipe|software/i.test(renderer)) throw new Error('no graphics processor');
    this.gl = gl;
    this.most = gl.getParameter(gl.MAX_TEXTURE_SIZE);
    const program = this.program = gl.createProgram();
    for (const [kind, source] of /** @type {[number, string][]} */ (
             [[gl.VERTEX_SHADER, kVertexShader], [gl.FRAGMENT_SHADER, kFragmentShader]])) {
      const shader = /** @type {WebGLShader} */ (gl.createShader(kind));
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader) ?? '');
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program) ?? '');
    gl.useProgram(program);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    /** @type {Map<Level, WebGLTexture>} the least recently used first */
    this.textures = new Map();
    /** @type {WeakMap<object, WebGLTexture>} of tables and palettes */
    this.tables = new WeakMap();
    /** @type {Map<string, WebGLUniformLocation | null>} */
    this.places = new Map();
  }

  /** @param {string} name */
  at(name) {
    if (!this.places.has(name)) this.places.set(name, this.gl.getUniformLocation(this.program, name));
    return this.places.get(name) ?? null;
  }

  /**
   * @param {number} unit
   * @param {number} format
   * @param {number} width
   * @param {number} height
   * @param {number} layout
   * @param {number} type
   * @param {ArrayBufferView} data
   */
  texture(unit, format, width, height, layout, type, data) {
    const {gl} = this, texture = /** @type {WebGLTexture} */ (gl.createTexture());
    gl.activeTexture(gl.TEXTURE0 + unit);
    gl.bindTexture(gl.TEXTURE_2D, texture);
    gl.texImage2D(gl.TEXTURE_2D, 0, format, width, height, 0, layout, type, data);
    for (const side of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER])
      gl.texParameteri(gl.TEXTURE_2D, side, gl.NEAREST);
    return texture;
  }

  /** The width of the texture of a level. @param {Level} level */
  widthOf(level) { return Math.min(level.columns, this.most); }

  /** @param {Level} level */
  bindCodes(level) {
    const {gl} = this, width = this.widthOf(level);
    let texture = this.textures.get(level);
    if (texture) {
      this.textures.delete(level);
      gl.activeTexture(gl.TEXTURE0);
      gl.bindTexture(gl.TEXTURE_2D, texture);
    } else {
      const height = Math.ceil(level.codes.length / width);
      let codes = level.codes;
      if (width * height > codes.length) {
        codes = new Uint16Array(width * height);
        codes.set(level.codes);
      }
      texture = this.texture(0, gl.R16UI, width, height, gl.RED_INTEGER, gl.UNSIGNED_SHORT, codes);
      if (this.textures.size >= 512) {
        const [oldest, unused] = /** @type {[Level, WebGLTexture]} */ (this.textures.entries().next().value);
        gl.deleteTexture(unused);
        this.textures.delete(oldest);
      }
    }
    this.textures.set(level, texture);
  }

  /**
   * @param {number} unit
   * @param {Float32Array | Uint32Array} table
   */
  bindTable(unit, table) {
    const {gl} = this, texture = this.tables.get(table);
    gl.activeTexture(gl.TEXTURE0 + unit);
    if (texture) return gl.bindTexture(gl.TEXTURE_2D, texture);
    this.tables.set(table, table instanceof Float32Array
        ? this.texture(unit, gl.R32F, 256, 256, gl.RED, gl.FLOAT, table)
        : this.texture(unit, gl.RGBA, 256, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(table.buffer)));
  }

  /**
   * Errors: if the context is lost or the level is larger than a texture.
   * @param {CanvasRenderingContext2D} context
   * @param {Level} level
   * @param {View} view
   * @param {Target} target
   * @param {Scale} scale
   * @param {Marks} marks
   */
  paint(context, level, view, target, scale, marks) {
    const {gl, canvas} = this, {width, height} = target;
    if (width < 1 || height < 1) return;
    if (gl.isContextLost() || level.codes.length > this.widthOf(level) * this.most) throw new Error('no texture');
    if (canvas.width < width || canvas.height < height) {
      canvas.width = Math.max(canvas.width, width);
      canvas.height = Math.max(canvas.height, height);
    }
    gl.viewport(0, 0, width, height);
    gl.useProgram(this.program);
    this.bindCodes(level);
    this.bindTable(1, scale.table);
    this.bindTable(2, scale.palette);
    ['codes', 'places', 'palette'].forEach((name, unit) => gl.uniform1i(this.at(name), unit));
    gl.uniform2i(this.at('blocks'), level.columns, level.rows);
    gl.uniform2i(this.at('texture_size'), this.widthOf(level), 1);
    gl.uniform2i(this.at('corner'), target.left, target.top);
    gl.uniform2i(this.at('target_size'), width, height);
    gl.uniform4f(this.at('view'), view.x / level.wide, view.y / level.tall, view.width / level.wide,
                 view.height / level.tall);
    gl.uniform1f(this.at('start'), scale.from);
    gl.uniform1f(this.at('scale_factor'), scale.factor);
    const {period, line} = patternOf(target);
    gl.uniform1i(this.at('period'), period);
    gl.uniform1i(this.at('line'), line);
    const cell = Math.min(width / view.width * level.wide, height / view.height * level.tall);
    gl.uniform1i(this.at('small_cells'), cell < kPatternSize * target.ratio ? 1 : 0);
    gl.uniform3fv(this.at('ground'), rgb(marks.ground));
    gl.uniform3fv(this.at('hatch'), rgb(marks.hatch));
    gl.uniform3fv(this.at('nan_colour'), rgb(marks.nan));
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(canvas, 0, canvas.height - height, width, height, target.left, target.top, width, height);
    context.restore();
  }
}
