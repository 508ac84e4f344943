/** Axes and grids of all panels. */

import { tick as tickText, when } from "../data/format.js";
import { logTicks, roundTicks } from "./time.js";

const TEXT = 11;
const BEYOND = 4; // pixels outside the plot at which infinity stands, and 0 on a log axis

/** Return a scale from values to vertical places inside `plot`, with its ticks. */
export function valueScale(low, high, kind, plot) {
  if (kind === "log" && !(low > 0)) low = high > 0 ? high / 1e6 : 1e-6;
  if (kind === "log" && !(high > 0)) high = 1;
  if (!(high > low)) {
    const pad = kind === "log" ? 2 : Math.abs(high) * 0.1 || 1;
    [low, high] = kind === "log" ? [low / pad, high * pad] : [low - pad, high + pad];
  }
  const f = kind === "log" ? Math.log10 : (value) => value;
  const [bottom, top] = [f(low), f(high)];
  const most = Math.max(2, Math.floor(plot.height / 34));
  return {
    low,
    high,
    kind,
    place: (value) => {
      const share = (f(value) - bottom) / (top - bottom);
      if (Math.abs(share) === Infinity) return share > 0 ? plot.y - BEYOND : plot.y + plot.height + BEYOND;
      return plot.y + plot.height * (1 - share);
    },
    ticks: kind === "log" ? logTicks(low, high, most) : roundTicks(low, high, most),
  };
}

/** Return [low, high] of the finite values, with room around them; only positive ones on a log axis. */
export function extent(arrays, kind, room = 0.06) {
  let low = Infinity, high = -Infinity;
  for (const values of arrays) {
    for (const value of values) {
      if (value < low && (kind !== "log" || value > 0)) low = value;
      if (value > high && value < Infinity) high = value;
    }
  }
  if (!(low < Infinity) || !(high > -Infinity)) return kind === "log" ? [0.1, 1] : [0, 1];
  if (kind === "log") {
    const factor = (high / low) ** room;
    return [low / factor, high * factor];
  }
  const pad = (high - low) * room;
  return [low >= 0 && low - pad < 0 ? 0 : low - pad, high + pad];
}

const LEAST_APART = 13; // pixels between the middles of two numbers
const isPower = (value) => Number.isInteger(Math.log10(value));

/** Draw horizontal grid lines and, where they do not overlap, their numbers left of the plot. */
export function drawValueAxis(surface, plot, scale, colours, format = tickText) {
  const numbered = [];
  const ticks = scale.kind === "log" ? [...scale.ticks].sort((a, b) => isPower(b) - isPower(a)) : scale.ticks;
  for (const tick of ticks) {
    const y = Math.round(scale.place(tick)) + 0.5;
    if (y < plot.y - 1 || y > plot.y + plot.height + 1) continue;
    surface.path([plot.x, y, plot.x + plot.width, y], { colour: colours.line, width: 1 });
    if (numbered.some((other) => Math.abs(y - other) < LEAST_APART)) continue;
    numbered.push(y);
    surface.text(format(tick), plot.x - 8, y, { colour: colours.muted, size: TEXT, align: "right" });
  }
}

/** Draw the shared time axis below the plot. */
export function drawTimeAxis(surface, plot, scale, colours, label = "") {
  const y = plot.y + plot.height;
  surface.path([plot.x, y + 0.5, plot.x + plot.width, y + 0.5], { colour: colours.faint, width: 1 });
  const most = Math.max(2, Math.floor(plot.width / 88));
  let free = -Infinity; // labels keep a distance
  for (const tick of scale.ticks(most)) {
    const x = plot.x + scale.toUnit(tick) * plot.width;
    if (x < plot.x - 1 || x > plot.x + plot.width + 1) continue;
    const text = when(tick);
    const half = surface.measure(text, TEXT) / 2;
    if (x - half < free) continue;
    surface.path([x, y, x, y + 4], { colour: colours.faint, width: 1 });
    const shown = Math.min(Math.max(x, plot.x + Math.min(half, 4) + Math.max(0, half - 6)), plot.x + plot.width - half + 8);
    surface.text(text, shown, y + 13, { colour: colours.muted, size: TEXT, align: "center" });
    free = x + half + 14;
  }
  if (label) {
    surface.text(label, plot.x - 10, y + 13, { colour: colours.muted, size: TEXT, align: "right" });
  }
}

const LEAST_WORD = 3; // letters that stay of a word

/** Shorten the longest words of a text until it fits a width, or else the text in its middle. */
export function fitted(surface, text, width, size = TEXT, weight = 400) {
  if (surface.measure(text, size, weight) <= width) return text;
  const words = text.split(" ");
  const kept = words.map((word) => word.length);
  while (words.length > 1 && Math.max(...kept) > LEAST_WORD) {
    kept[kept.indexOf(Math.max(...kept))]--;
    const shortened = words.map((word, i) => (kept[i] < word.length ? `${word.slice(0, kept[i])}…` : word)).join(" ");
    if (surface.measure(shortened, size, weight) <= width) return shortened;
  }
  let length = text.length;
  while (length > 3) {
    length--;
    const head = Math.ceil(length * 0.6);
    const shortened = `${text.slice(0, head)}…${text.slice(text.length - (length - head))}`;
    if (surface.measure(shortened, size, weight) <= width) return shortened;
  }
  return "…";
}
