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
