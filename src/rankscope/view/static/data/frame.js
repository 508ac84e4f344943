/** The binary frames in which numbers travel: JSON that describes arrays, and the arrays. */

import { NOT_STORED } from "../draw/cells.js";

const KINDS = {
  uint8: Uint8Array,
  int32: Int32Array,
  float32: Float32Array,
  float64: Float64Array,
};

/** Decode a binary frame into {meta, arrays}; arrays have a `shape`. */
export function decode(buffer) {
  const length = new DataView(buffer).getUint32(4, true);
  const meta = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const arrays = {};
  for (const [name, { dtype, shape, offset }] of Object.entries(meta.arrays)) {
    const size = shape.reduce((a, b) => a * b, 1);
    arrays[name] = new KINDS[dtype](buffer, 8 + length + offset, size);
    arrays[name].shape = shape;
  }
  return { meta, arrays };
}

const WIDE = 1 / 12; // of all columns: the distance of stored ones above which a gap stays between them

/**
 * Return a frame without the columns at which nothing is stored, but with the wide gaps.
 *
 * A run may store its spectra at some of its snapshots only. A gap that is wide keeps its first and
 * its last column, so that no stored column fills it. The arrays over columns lose the same. `stored`
 * says which cells or columns are stored; without it all are. The result's `times` are
 * {stored, columns, times}: how many columns are stored, how many there are, and the stored ones.
 */
export function storedColumns(frame) {
  const { meta, arrays } = frame;
  const { values, stored, x } = arrays;
  const isStored = values instanceof Uint8Array ? (i) => values[i] !== NOT_STORED : stored && ((i) => stored[i] === 1);
  if (!isStored || meta.complete === false) return frame;
  const places = columnsWith(x.length, (stored ?? values).length, isStored);
  const times = { stored: places.length, columns: x.length, times: Float64Array.from(places, (place) => x[place]) };
  return { ...withColumns(frame, x.length, withGaps(places, x.length)), times };
}

/** Return the stored columns with both ends of every wide gap between, before and after them. */
function withGaps(places, columns) {
  if (!places.length) return places;
  const least = Math.max(2, columns * WIDE);
  const all = new Set(places);
  for (const [low, high] of [-1, ...places].map((place, i) => [place, places[i] ?? columns])) {
    if (high - low > least) [low + 1, high - 1].forEach((place) => all.add(place));
  }
  return [...all].filter((place) => place >= 0 && place < columns).sort((a, b) => a - b);
}

/** Return a frame without the columns in which the array `name` has no number at all. */
export function filledColumns(frame, name) {
  const values = frame.arrays[name];
  const columns = values.shape[values.shape.length - 1];
  return withColumns(frame, columns, columnsWith(columns, values.length, (i) => values[i] === values[i]));
}

/** Return a frame with the first `count` rows of its values. */
export function firstRows({ meta, arrays }, count) {
  const { values, stored, x } = arrays;
  const cut = (array) => Object.assign(array.subarray(0, count * x.length), { shape: [count, x.length] });
  const isOfCells = stored?.length === values.length;
  return { meta, arrays: { ...arrays, values: cut(values), ...(isOfCells ? { stored: cut(stored) } : {}) } };
}

/** Return the value of a row of a frame at a column; undefined where nothing is stored. */
export function valueAt({ arrays: { values, stored, x } }, row, column) {
  const i = row * x.length + column;
  return stored?.[i] === 0 ? undefined : values[i];
}

/** Return the columns in which any of `size` cells is wanted. */
function columnsWith(columns, size, isWanted) {
  const filled = new Uint8Array(columns);
  for (let i = 0; i < size; i++) if (isWanted(i)) filled[i % columns] = 1;
  return Array.from({ length: columns }, (_, i) => i).filter((i) => filled[i]);
}

function withColumns({ meta, arrays }, columns, places) {
  if (places.length === columns || !places.length) return { meta, arrays };
  return { meta, arrays: Object.fromEntries(Object.entries(arrays).map(([key, array]) => [key, chosen(array, columns, places)])) };
}

function chosen(array, columns, places) {
  const shape = array.shape ?? [array.length];
  if (shape[shape.length - 1] !== columns) return array;
  const rows = array.length / columns;
  const result = new array.constructor(rows * places.length);
  for (let row = 0; row < rows; row++) {
    places.forEach((place, i) => (result[row * places.length + i] = array[row * columns + place]));
  }
  result.shape = [...shape.slice(0, -1), places.length];
  return result;
}
