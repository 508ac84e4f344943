/** The binary frames in which numbers travel: JSON that describes arrays, and the arrays. */

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
 * Return a frame without the columns in which `values` has no value at all.
 *
 * A run may store its spectra at some of its snapshots only. The arrays over columns lose the same.
 */
export function withoutEmptyColumns(frame, name = "values") {
  const { meta, arrays } = frame;
  const values = arrays[name];
  if (!(values instanceof Float32Array) || meta.complete === false) return frame;
  const [rows, columns] = values.shape;
  const filled = new Uint8Array(columns);
  for (let i = 0; i < values.length; i++) if (values[i] === values[i]) filled[i % columns] = 1;
  const places = Array.from({ length: columns }, (_, i) => i).filter((i) => filled[i]);
  if (places.length === columns || !places.length || !rows) return frame;
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
