/** Lines over time, with bands. */

import { drawTimeAxis, drawValueAxis, extent, valueScale } from "./axes.js";

/** Return the part of a series inside the window, with one neighbour on each side. */
function windowOf(x, scale) {
  let first = 0, end = x.length;
  while (first < end && x[first] < scale.first) first++;
  while (end > first && x[end - 1] > scale.last) end--;
  return [Math.max(0, first - 1), Math.min(x.length, end + 1)];
}

/** Return [x0, y0, x1, y1, ...] of a series in pixels; within a pixel column, only its extremes. */
export function linePoints(x, y, [first, end], scale, values, plot) {
  const points = [];
  const dense = end - first > 3 * plot.width;
  let column = NaN, low = 0, high = 0;
  const flush = () => {
    if (column !== column) return;
    points.push(column, low);
    if (high !== low) points.push(column, high);
  };
  for (let i = first; i < end; i++) {
    const px = plot.x + scale.toUnit(x[i]) * plot.width;
    const py = values.place(y[i]);
    if (!dense) {
      points.push(px, py);
      continue;
    }
    const here = Math.round(px);
    if (here !== column || py !== py) {
      flush();
      [column, low, high] = [here, py, py];
    } else {
      low = Math.min(low, py);
      high = Math.max(high, py);
    }
  }
  if (dense) flush();
  return points;
}

function band(series, [first, end], scale, values, plot) {
  const there = [], back = [];
  for (let i = first; i < end; i++) {
    const low = values.place(series.low[i]), high = values.place(series.high[i]);
    if (low !== low || high !== high) continue;
    const x = plot.x + scale.toUnit(series.x[i]) * plot.width;
    there.push(x, low);
    back.push(high, x); // reversed below
  }
  return [...there, ...back.reverse()];
}

/**
 * Draw lines with axes inside `plot`.
 *
 * series: {x, y, colour, width, dash, opacity, low, high}. range: [low, high] or null for the data's.
 * marks: {x, label, colour} as vertical lines. Returns the value scale.
 */
export function drawLines(surface, plot, scale, { series, kind, range, marks = [], colours, timeLabel }) {
  const windows = series.map(({ x }) => windowOf(x, scale));
  const seen = series.flatMap(({ y, low, high }, i) =>
    [y, low, high].filter(Boolean).map((array) => array.slice(...windows[i])),
  );
  const values = valueScale(...(range ?? extent(seen, kind)), kind, plot);
  drawValueAxis(surface, plot, values, colours);
  drawTimeAxis(surface, plot, scale, colours, timeLabel);
  surface.clipped(plot.x, plot.y - 2, plot.width + 2, plot.height + 4, () => {
    for (const mark of marks) {
      const x = plot.x + scale.toUnit(mark.x) * plot.width;
      surface.path([x, plot.y, x, plot.y + plot.height], {
        colour: mark.colour ?? colours.faint, dash: [2, 3],
      });
    }
    series.forEach((one, i) => {
      if (one.low && one.high) {
        surface.area(band(one, windows[i], scale, values, plot), one.colour, 0.18);
      }
    });
    series.forEach((one, i) => {
      const points = linePoints(one.x, one.y, windows[i], scale, values, plot);
      if (points.length === 2) surface.dot(points[0], points[1], 2.5, one.colour);
      const { colour, width = 1.5, dash = [], opacity = 1 } = one;
      surface.path(points, { colour, width, dash, opacity });
    });
  });
  return values;
}
