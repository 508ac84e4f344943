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

/**
 * Return a frame without the columns at which nothing is stored.
 *
 * A run may store its spectra at some of its snapshots only. The arrays over columns lose the same.
 * `stored` says which cells or columns are stored; without it all are.
 */
export function storedColumns(frame) {
  const { meta, arrays } = frame;
  const { values, stored } = arrays;
  const isStored = values instanceof Uint8Array ? (i) => values[i] !== NOT_STORED : stored && ((i) => stored[i] === 1);
  if (!isStored || meta.complete === false) return frame;
  return withColumns(frame, arrays.x.length, (stored ?? values).length, isStored);
}

/** Return a frame without the columns in which the array `name` has no number at all. */
export function filledColumns(frame, name) {
  const values = frame.arrays[name];
  return withColumns(frame, values.shape[values.shape.length - 1], values.length, (i) => values[i] === values[i]);
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

function withColumns({ meta, arrays }, columns, size, isKept) {
  const filled = new Uint8Array(columns);
  for (let i = 0; i < size; i++) if (isKept(i)) filled[i % columns] = 1;
  const places = Array.from({ length: columns }, (_, i) => i).filter((i) => filled[i]);
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
