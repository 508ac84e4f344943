/** Spectra: the image of all values over time, and curves over the index. */

import { drawTimeAxis, drawValueAxis } from "./axes.js";
import { drawCells } from "./heat.js";
import { interpolate, logTicks, roundTicks } from "./time.js";

/** Return a scale from an index (1 = largest) to a share from 0 to 1. */
export function indexScale(k, kind) {
  const last = Math.max(2, k + 1);
  const toUnit = kind === "log" ? (index) => Math.log(index) / Math.log(last) : (index) => (index - 1) / (last - 1);
  const fromUnit = kind === "log" ? (share) => last ** share : (share) => 1 + share * (last - 1);
  const ticks = (most) => (kind === "log" ? logTicks(1, k, most) : [1, ...roundTicks(1, k, most).filter((tick) => tick > 1)])
    .filter((tick) => Number.isInteger(tick));
  return { toUnit, fromUnit, ticks, kind };
}

/** Return a layout for drawCells: rows of the image at the places of their indices. */
export function indexLayout(index, k, kind) {
  const scale = indexScale(k, kind);
  const rowOf = (value) => {
    // The last row whose index is at most the value; rows are k's from 0.
    let low = 0, high = index.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (index[middle] + 1 <= value) low = middle;
      else high = middle - 1;
    }
    return low;
  };
  const bands = (pixels) => {
    const result = [];
    for (let y = 0; y < pixels; y++) {
      const first = rowOf(scale.fromUnit(y / pixels));
      const after = rowOf(scale.fromUnit((y + 1) / pixels));
      const last = result[y - 1];
      const band = [first, Math.max(first + 1, after)];
      result.push(last && last[0] === band[0] && last[1] === band[1] ? last : band);
    }
    return result;
  };
  return { bands, scale, rowOf };
}

/** Draw the image of singular values, index down and time across, with lines over it. */
export function drawSpectra(surface, plot, scale, { field, x, layout, order, lines, colours, timeLabel, map = "viridis" }) {
  drawCells(surface, plot, scale, { field, x, layout, order, map, colours });
  surface.clipped(plot.x, plot.y, plot.width, plot.height, () => {
    for (const { values, dash } of lines) {
      const points = [];
      for (let i = 0; i < x.length; i++) {
        const share = layout.scale.toUnit(values[i]);
        points.push(plot.x + scale.toUnit(x[i]) * plot.width, plot.y + share * plot.height);
      }
      surface.path(points, { colour: "rgb(0,0,0)", width: 3, opacity: 0.35 });
      surface.path(points, { colour: "rgb(255,255,255)", width: 1.4, dash });
    }
  });
  for (const tick of layout.scale.ticks(Math.floor(plot.height / 40))) {
    const y = plot.y + layout.scale.toUnit(tick) * plot.height;
    surface.text(String(tick), plot.x - 8, y + 4, { colour: colours.muted, align: "right" });
  }
  drawTimeAxis(surface, plot, scale, colours, timeLabel);
}

/** Draw the axes of curves over the index: values up, index across. */
export function drawIndexAxes(surface, plot, values, scale, colours, format) {
  drawValueAxis(surface, plot, values, colours, format);
  const y = plot.y + plot.height;
  surface.path([plot.x, y + 0.5, plot.x + plot.width, y + 0.5], { colour: colours.faint, width: 1 });
  let free = -Infinity;
  for (const tick of scale.ticks(Math.max(2, Math.floor(plot.width / 60)))) {
    const x = plot.x + scale.toUnit(tick) * plot.width;
    if (x < free) continue;
    surface.path([x, y, x, y + 4], { colour: colours.faint, width: 1 });
    surface.text(String(tick), x, y + 13, { colour: colours.muted, align: "center" });
    free = x + 36;
  }
}

/** Return points of values over their index; values of 0 or below, or NaN, end the line on a log axis. */
export function curvePoints(index, values, scale, place, plot) {
  const points = [];
  for (let i = 0; i < values.length; i++) {
    points.push(plot.x + scale.toUnit(index[i] + 1) * plot.width, place(values[i]));
  }
  return points;
}

/**
 * Return cumulative shares of the sum of squares; values between known indices are interpolated.
 *
 * norm: the Frobenius norm, if there are smaller values than those. Without it, and with a value
 * missing, no share is known.
 */
export function energyShares(index, values, norm) {
  const sums = new Float64Array(values.length);
  let total = 0;
  for (let i = 0; i < values.length; i++) {
    const width = i ? index[i] - index[i - 1] : 1;
    total += width * values[i] ** 2;
    sums[i] = total;
  }
  const whole = norm === undefined ? total : norm ** 2;
  return sums.map((sum) => (whole > 0 ? sum / whole : NaN));
}

/** Return the smallest rank whose values hold a share of the energy. */
export function rankOfShare(index, shares, share) {
  for (let i = 0; i < shares.length; i++) {
    if (!(shares[i] >= share)) continue;
    if (!i || index[i] - index[i - 1] === 1) return index[i] + 1;
    return Math.ceil(interpolate(share, [shares[i - 1], shares[i]], [index[i - 1], index[i]])) + 1;
  }
  return NaN;
}
