/** Small curves in rows of text, and the rows of exported rankings. */

import { drawCurve } from "./lines.js";

/** Return [low, high] of all finite values; null is none. */
export function sparkRange(arrays) {
  let low = Infinity, high = -Infinity;
  for (const value of arrays.flat()) {
    if (!Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return low <= high ? [low, high] : [0, 1];
}

/** Return [x0, y0, x1, y1, ...] of values inside a box, NaN where there is none. */
export function sparkPoints(values, { x, y, width, height }, [low, high]) {
  const across = width / Math.max(1, values.length - 1);
  return values.flatMap((value, i) => [
    x + i * across,
    Number.isFinite(value) ? y + height - ((value - low) / (high - low || 1)) * height : NaN,
  ]);
}

const FEW = 3; // values that are dots: a line through them would tell a course that nobody measured

/** Return whether so few values are known that they are no line. */
export const isFew = (values) => values.filter(Number.isFinite).length <= FEW;

/** Return the points of a line through values; few values stand alone, with NaN between them. */
export function sparkLine(values, box, range) {
  const points = sparkPoints(values, box, range);
  return isFew(values) ? values.flatMap((_, i) => [points[2 * i], points[2 * i + 1], NaN, NaN]) : points;
}

/** Return the outline of a band between two curves, where both have values. */
export function sparkBand(low, high, box, range) {
  const known = low.map((_, i) => i).filter((i) => Number.isFinite(low[i]) && Number.isFinite(high[i]));
  const [below, above] = [sparkPoints(low, box, range), sparkPoints(high, box, range)];
  return [...known.map((i) => [below, i]), ...known.reverse().map((i) => [above, i])]
    .flatMap(([points, i]) => [points[2 * i], points[2 * i + 1]]);
}

export const LINE = 26; // pixels of a row
const CURVE = { width: 110, right: 260 }; // pixels, and their distance from the right side
const INSET = 4; // pixels above and below a curve

/**
 * Draw rows of a name, a small curve, and numbers at the right.
 *
 * rows: {label, spark, low, high, range, text, strong}, with low and high for a band.
 */
export function drawRows(surface, plot, rows, colours) {
  const right = plot.x + plot.width;
  rows.forEach(({ label, spark, low, high, range = sparkRange([spark]), text, strong = "" }, i) => {
    const top = plot.y + i * LINE, middle = top + LINE / 2;
    const box = { x: right - CURVE.right, y: top + INSET, width: CURVE.width, height: LINE - 2 * INSET };
    surface.text(label, plot.x, middle, { colour: colours.ink });
    if (low && !isFew(spark)) surface.area(sparkBand(low, high, box, range), colours.accent, 0.18);
    drawCurve(surface, sparkLine(spark, box, range), { colour: colours.accent });
    surface.text(text, right - (strong ? 64 : 0), middle, { colour: colours.muted, align: "right" });
    if (strong) surface.text(strong, right, middle, { colour: colours.ink, align: "right", weight: 600 });
  });
}
