/** Lines over time, with bands. */

import { drawTimeAxis, drawValueAxis, extent, valueScale } from "./axes.js";

/** Return the part of a series inside the window, with one neighbour on each side. */
function windowOf(x, scale) {
  let first = 0, end = x.length;
  while (first < end && x[first] < scale.first) first++;
  while (end > first && x[end - 1] > scale.last) end--;
  return [Math.max(0, first - 1), Math.min(x.length, end + 1)];
}

/**
 * Return [x0, y0, x1, y1, ...] of a series in pixels, with NaN for a value that is missing.
 *
 * Within a pixel column of a dense series, only the extremes of its values.
 */
export function linePoints(x, y, [first, end], scale, values, plot) {
  const points = [];
  const dense = end - first > 3 * plot.width;
  let column = NaN, low = Infinity, high = -Infinity;
  const flush = () => {
    if (column !== column) return;
    points.push(column, low <= high ? low : NaN);
    if (high > low) points.push(column, high);
  };
  for (let i = first; i < end; i++) {
    const px = plot.x + scale.toUnit(x[i]) * plot.width;
    const py = values.place(y[i]);
    if (!dense) {
      points.push(px, py);
      continue;
    }
    const here = Math.round(px);
    if (here !== column) {
      flush();
      [column, low, high] = [here, Infinity, -Infinity];
    }
    if (py < low) low = py;
    if (py > high) high = py;
  }
  if (dense) flush();
  return points;
}

/** Return the gaps of a line as [x0, y0, x1, y1, NaN, NaN, ...], and the points between two gaps. */
export function gapsOf(points) {
  const bridges = [], lone = [];
  let last = -1;
  for (let i = 0; i < points.length; i += 2) {
    if (points[i + 1] !== points[i + 1]) continue;
    if (last >= 0 && last < i - 2) bridges.push(points[last], points[last + 1], points[i], points[i + 1], NaN, NaN);
    const isFirst = last !== i - 2 || i === 0;
    if (isFirst && Number.isNaN(points[i + 3] ?? NaN)) lone.push(points[i], points[i + 1]);
    last = i;
  }
  return { bridges, lone };
}

const ALONE = 2; // pixels on either side of a value of a band that has no neighbour

/** Return the outlines of a band, one for each stretch without a gap. */
export function bandsOf(series, [first, end], scale, values, plot) {
  const stretches = [[]];
  for (let i = first; i < end; i++) {
    const low = values.place(series.low[i]), high = values.place(series.high[i]);
    if (low === low && high === high) stretches[stretches.length - 1].push([plot.x + scale.toUnit(series.x[i]) * plot.width, low, high]);
    else stretches.push([]);
  }
  return stretches.filter((points) => points.length).map((points) => {
    const [x, low, high] = points[0];
    const shown = points.length > 1 ? points : [[x - ALONE, low, high], [x + ALONE, low, high]];
    return [...shown.flatMap(([at, bottom]) => [at, bottom]), ...shown.toReversed().flatMap(([at, , top]) => [at, top])];
  });
}

/** Draw a line through points. Faint dashes lead over gaps; a point between two of them is a dot. */
export function drawCurve(surface, points, { colour, width = 1.5, dash = [], opacity = 1 }) {
  const { bridges, lone } = gapsOf(points);
  surface.path(points, { colour, width, dash, opacity });
  surface.path(bridges, { colour, width: 1, dash: [2, 4], opacity: 0.6 * opacity });
  for (let i = 0; i < lone.length; i += 2) surface.dot(lone[i], lone[i + 1], 2.5, colour, opacity);
}

/**
 * Draw lines with axes inside `plot`.
 *
 * series: {x, y, colour, width, dash, opacity, low, high}. range: [low, high] or null for the data's.
 * marks: {x, label, colour} as vertical lines. Faint dashes lead over missing values; a value between
 * two of them is a dot. Returns the value scale.
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
        for (const outline of bandsOf(one, windows[i], scale, values, plot)) surface.area(outline, one.colour, 0.18);
      }
    });
    series.forEach((one, i) => {
      const points = linePoints(one.x, one.y, windows[i], scale, values, plot);
      drawCurve(surface, points, one);
    });
  });
  return values;
}
