/** Pixels of heat maps: 8-bit cells through a colour table, at any zoom. */

/** Codes of cells without a value. Codes 1 to TOP run from the lowest to the highest value. */
export const NOT_STORED = 0, NOT_A_NUMBER = 255;
export const TOP = 254;

const isValue = (code) => code !== NOT_STORED && code !== NOT_A_NUMBER;
/** The code of a cell that covers several, some of which have no value. */
const worse = (a, b) => (a === NOT_A_NUMBER || b === NOT_A_NUMBER ? NOT_A_NUMBER : NOT_STORED);

/**
 * Return coarser copies of `cells` (row after row), each with half the columns of the one before.
 *
 * A pixel that covers many snapshots then costs as much as one that covers a single one. A coarse
 * cell is the mean of its two; it has no value if one of them has none, so that no gap is hidden.
 */
export function halvings(cells, rows, columns) {
  const levels = [{ cells, columns }];
  while (columns > 64) {
    const finer = levels[levels.length - 1].cells;
    const half = columns >> 1;
    const coarse = new Uint8Array(rows * half);
    for (let row = 0; row < rows; row++) {
      let from = row * columns;
      const end = (row + 1) * half;
      for (let to = row * half; to < end; to++, from += 2) {
        const a = finer[from], b = finer[from + 1];
        coarse[to] = isValue(a) && isValue(b) ? (a + b) >> 1 : worse(a, b);
      }
    }
    columns = half;
    levels.push({ cells: coarse, columns });
  }
  return levels;
}

/**
 * Choose a level and a column of it for every pixel.
 *
 * `edges` holds, for `width` pixels, width + 1 rising positions in columns; a pixel outside the
 * data has a position below 0 or beyond the last column.
 */
export function columnsOfPixels(edges, width, levels) {
  const level = new Uint8Array(width);
  const column = new Int32Array(width);
  const total = levels[0].columns;
  for (let x = 0; x < width; x++) {
    const middle = (edges[x] + edges[x + 1]) / 2;
    if (!(middle >= 0 && middle < total)) {
      column[x] = -1;
      continue;
    }
    const span = edges[x + 1] - edges[x];
    const power = Math.max(0, Math.min(levels.length - 1, Math.floor(Math.log2(span))));
    level[x] = power;
    column[x] = Math.min(Math.floor(middle) >> power, levels[power].columns - 1);
  }
  return { level, column };
}

/**
 * Fill `pixels` (Uint32Array, width x height) from the cells.
 *
 * `bands` has one entry for each pixel row: the rows of the data it covers, as [first, end) in
 * `order`, or null for a gap. Several rows in a pixel are averaged, if all have a value.
 */
export function paint(pixels, width, bands, order, levels, { level, column }, table, gap) {
  let same = null;
  for (let y = 0; y < bands.length; y++) {
    const out = y * width;
    const band = bands[y];
    if (!band) {
      pixels.fill(gap, out, out + width);
    } else if (same && same[0] === band[0] && same[1] === band[1]) {
      pixels.copyWithin(out, out - width, out);
    } else if (band[1] - band[0] === 1) {
      const row = order[band[0]];
      for (let x = 0; x < width; x++) {
        const at = levels[level[x]];
        pixels[out + x] = column[x] < 0 ? gap : table[at.cells[row * at.columns + column[x]]];
      }
    } else {
      for (let x = 0; x < width; x++) {
        pixels[out + x] = column[x] < 0 ? gap : table[mean(levels[level[x]], column[x], band, order)];
      }
    }
    same = band;
  }
}

function mean(level, column, [first, end], order) {
  let sum = 0, without = null;
  for (let i = first; i < end; i++) {
    const cell = level.cells[order[i] * level.columns + column];
    if (isValue(cell)) sum += cell;
    else without = worse(cell, without);
  }
  return without ?? Math.round(sum / (end - first));
}

const STRIPE = 6; // pixels from one stripe to the next

/** Replace all pixels that are `wanted` by stripes of one pixel on another. */
export function hatch(pixels, width, wanted, { stripe, ground }) {
  for (let i = 0; i < pixels.length; i++) {
    if (pixels[i] !== wanted) continue;
    const isStripe = ((i % width) + Math.floor(i / width)) % STRIPE < STRIPE / 3;
    pixels[i] = isStripe ? stripe : ground;
  }
}
