/** Heat maps over time: rows in groups, one shared time axis, one image of pixels. */

import { drawTimeAxis, fitted } from "./axes.js";
import { columnsOfPixels, halvings, hatch, NOT_A_NUMBER, NOT_STORED, paint, TOP } from "./cells.js";
import { channels, colourTable, pixel } from "./colours.js";

const GAP = 3; // pixels between groups
const LEAST_GROUP = 9; // pixels below which groups have no gaps
const LABEL = 13; // pixels that a label needs
const HATCHED = 1; // stands for cells that are not a number until they are hatched

/**
 * Return cells of a frame as {codes, rows, columns, low, high, kind, value(row, column), ...}.
 *
 * Floats are coded here, between the data's extremes; bytes come coded from the server. value() is
 * undefined where nothing is stored. below, above: whether values lie beyond `low` and `high`.
 * notStored, notANumber: whether there are such cells.
 */
export function fieldOf({ meta, arrays }, { kind, range } = {}) {
  const [rows, columns] = arrays.values.shape;
  if (arrays.values instanceof Uint8Array) {
    const { kind: coded, low, high } = meta.scale;
    const codes = arrays.values;
    const value = (row, column) => decoded(codes[row * columns + column], coded, low, high);
    return { codes, rows, columns, low, high, kind: coded, value, exact: false, ...gapsOf(codes) };
  }
  const data = arrays.values;
  kind ??= meta.scale?.kind ?? "linear";
  const [low, high] = range ?? limits(data, kind);
  const codes = new Uint8Array(data.length);
  const f = kind === "log" ? Math.log : (value) => value;
  const [bottom, span] = [f(low), f(high) - f(low) || 1];
  const isStored = storedAt(arrays, rows, columns);
  let below = false, above = false;
  for (let i = 0; i < data.length; i++) {
    const value = data[i];
    if (value !== value) {
      codes[i] = isStored(i) ? NOT_A_NUMBER : NOT_STORED;
      continue;
    }
    below ||= value < low;
    above ||= value > high;
    const share = (f(value) - bottom) / span;
    codes[i] = 1 + Math.round((TOP - 1) * (share > 0 ? Math.min(share, 1) : 0));
  }
  const value = (row, column) => {
    const i = row * columns + column;
    return codes[i] === NOT_STORED ? undefined : data[i];
  };
  return { codes, rows, columns, low, high, kind, value, exact: true, below, above, ...gapsOf(codes) };
}

const gapsOf = (codes) => ({ notStored: codes.includes(NOT_STORED), notANumber: codes.includes(NOT_A_NUMBER) });

/** Return a function of a cell's place: `stored` of a frame is of cells, of columns, or left out. */
function storedAt({ stored }, rows, columns) {
  if (!stored) return () => true;
  return stored.length === rows * columns ? (i) => stored[i] === 1 : (i) => stored[i % columns] === 1;
}

function decoded(code, kind, low, high) {
  if (code === NOT_STORED) return undefined;
  if (code === NOT_A_NUMBER) return NaN;
  const share = (code - 1) / (TOP - 1);
  return kind === "log" ? low * (high / low) ** share : low + share * (high - low);
}

function limits(data, kind) {
  let low = Infinity, high = -Infinity;
  for (const value of data) {
    if (value < low && (kind !== "log" || value > 0)) low = value;
    if (value > high && value < Infinity) high = value;
  }
  if (!(low < high)) return low < Infinity && low === high ? [low, low + (Math.abs(low) || 1)] : [0, 1];
  return [low, high];
}

/** Keep the coarser copies beside a field; they are computed when it is first drawn. */
export function levelsOf(field) {
  field.levels ??= halvings(field.codes, field.rows, field.columns);
  return field.levels;
}

/**
 * Return places of rows: {bands, groups} for `height` pixels.
 *
 * names: the group of each row, in the order shown; neighbours of one name form a group.
 */
export function layoutRows(names, height) {
  const groups = [];
  names.forEach((name, i) => {
    const last = groups[groups.length - 1];
    if (last?.name === name) last.end = i + 1;
    else groups.push({ name, first: i, end: i + 1 });
  });
  const gap = groups.length > 1 && height / groups.length >= LEAST_GROUP ? GAP : 0;
  const unit = (height - gap * (groups.length - 1)) / Math.max(1, names.length);
  let top = 0;
  for (const group of groups) {
    group.top = top;
    group.height = (group.end - group.first) * unit;
    top += group.height + gap;
  }
  return { groups, unit };
}

/** Return the row shown at a height, or -1. */
export function rowAt({ groups, unit }, y) {
  for (const { first, end, top, height } of groups) {
    if (y >= top && y < top + height) return Math.min(end - 1, first + Math.floor((y - top) / unit));
  }
  return -1;
}

/** Return the top of a row. */
export function topOf({ groups, unit }, row) {
  const group = groups.find(({ first, end }) => row >= first && row < end);
  return group.top + (row - group.first) * unit;
}

function bandsOf({ groups, unit }, ratio, pixels) {
  const bands = new Array(pixels).fill(null);
  for (const { first, end, top, height } of groups) {
    const stop = Math.min(pixels, Math.round((top + height) * ratio));
    for (let y = Math.round(top * ratio); y < stop; y++) {
      const begin = first + Math.floor((y / ratio - top) / unit + 1e-6);
      const after = first + Math.floor(((y + 1) / ratio - top) / unit + 1e-6);
      const low = Math.max(first, Math.min(end - 1, begin));
      bands[y] = [low, Math.max(low + 1, Math.min(end, after))];
    }
  }
  return shared(bands);
}

/** Let neighbouring pixel rows of one band share it, so that they are painted once. */
function shared(bands) {
  for (let y = 1; y < bands.length; y++) {
    const [above, here] = [bands[y - 1], bands[y]];
    if (above && here && above[0] === here[0] && above[1] === here[1]) bands[y] = above;
  }
  return bands;
}

/** Return, for each pixel edge, its position in columns; cells meet halfway between snapshots. */
export function columnEdges(x, scale, pixels) {
  const edges = new Float64Array(pixels + 1);
  const size = x.length;
  const units = Float64Array.from(x, scale.toUnit);
  const cuts = new Float64Array(size + 1);
  for (let i = 1; i < size; i++) cuts[i] = (units[i - 1] + units[i]) / 2;
  cuts[0] = size > 1 ? units[0] - (cuts[1] - units[0]) : -1;
  cuts[size] = size > 1 ? units[size - 1] + (units[size - 1] - cuts[size - 1]) : 2;
  let column = 0;
  for (let i = 0; i <= pixels; i++) {
    const at = i / pixels;
    while (column < size && cuts[column + 1] <= at) column++;
    if (column >= size) edges[i] = size + 1e-9;
    else edges[i] = column + (at - cuts[column]) / (cuts[column + 1] - cuts[column] || 1);
  }
  return edges;
}

/** Draw the cells of a field. `layout` places its rows; `order` lists them as shown. */
export function drawCells(surface, plot, scale, { field, x, layout, order, map, colours }) {
  const ratio = surface.ratio;
  const width = Math.max(1, Math.round(plot.width * ratio));
  const height = Math.max(1, Math.round(plot.height * ratio));
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const levels = levelsOf(field);
  const columns = columnsOfPixels(columnEdges(x, scale, width), width, levels);
  const gap = pixel(channels(colours.surface));
  const stripe = pixel(channels(colours.muted)), pixels = new Uint32Array(image.data.buffer);
  const table = colourTable(map, { notStored: pixel(channels(colours.missing)), notANumber: HATCHED });
  const bands = layout.bands ? layout.bands(height) : bandsOf(layout, ratio, height);
  paint(pixels, width, bands, order, levels, columns, table, gap);
  if (field.notANumber) hatch(pixels, width, HATCHED, { stripe, ground: gap });
  context.putImageData(image, 0, 0);
  surface.image(canvas, plot.x, plot.y, plot.width, plot.height);
}

/** Draw a heat map with the names of its groups, or of its rows where there is room. */
export function drawHeat(surface, plot, scale, options) {
  const { layout, labels, colours, timeLabel } = options;
  drawCells(surface, plot, scale, options);
  drawTimeAxis(surface, plot, scale, colours, timeLabel);
  const width = plot.x - 12;
  let free = -Infinity;
  const write = (text, y, weight) => {
    if (y - LABEL / 2 < free) return;
    const shown = fitted(surface, text, width, 11, weight);
    surface.text(shown, plot.x - 8, y, { colour: colours.muted, align: "right", weight });
    free = y + LABEL / 2;
  };
  if (layout.unit >= LABEL - 1) {
    labels.forEach((label, i) => write(label, plot.y + topOf(layout, i) + layout.unit / 2, 400));
  } else {
    for (const { name, top, height } of layout.groups) write(name, plot.y + top + height / 2, 400);
  }
}
