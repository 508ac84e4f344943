/** Numbers, durations and shares as a person reads them. */

const MINUS = "\u2212";

/** Format a value with three significant digits; "–" stands for none, which NaN is not. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : `${MINUS}∞`;
  if (value === 0) return "0";
  const size = Math.abs(value);
  let text;
  if (size >= 1e6 || size < 1e-3) {
    const [digits, power] = size.toExponential(2).split("e");
    text = `${Number(digits)}e${power.replace("+", "").replace("-", MINUS)}`;
  } else if (size >= 1000) {
    text = Math.round(size).toLocaleString("en-US");
  } else {
    text = Number.isInteger(size) ? String(size) : size.toPrecision(3);
  }
  return value < 0 ? MINUS + text : text;
}

/** Format a value of a run, which may be missing. */
export const orNotStored = (value) => (value === undefined ? "not stored" : short(value));

const FEW = 3; // times that are listed

/**
 * Say at how many of the snapshots an array is stored: "stored at 2 of 47 snapshots (steps 0 and 90)".
 *
 * times: those at which it is, where all are known. "" stands for an array that is stored everywhere.
 */
export function storedWords({ stored, columns, times = [] }, along) {
  if (!stored || stored === columns) return "";
  const words = Array.from(times, when);
  const ends = [words.slice(0, -1).join(", "), words[words.length - 1]].filter(Boolean).join(" and ");
  const listed = words.length === stored && stored <= FEW ? ` (${along}${stored > 1 ? "s" : ""} ${ends})` : "";
  return `stored at ${count(stored)} of ${plural(columns, "snapshot")}${listed}`;
}

/** Format the tick of an axis, without digits that say nothing. */
export function tick(value) {
  const text = short(value);
  return text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
}

/** Begin a sentence. */
export const capital = (text) => String(text).charAt(0).toUpperCase() + String(text).slice(1);

/** Format a training step or a time. */
export function when(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en-US").replace("-", MINUS);
  return tick(value);
}

/** Format a count; whole numbers have all their digits. */
export function count(value) {
  return Number.isFinite(value) ? Math.round(value).toLocaleString("en-US") : "–";
}

export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  const value = 100 * share;
  return `${value >= 10 ? Math.round(value) : Number(value.toPrecision(2))}%`;
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 60) return `${Number(seconds.toPrecision(2))} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

/** Format the day of an ISO date. */
export function day(text) {
  return text ? String(text).slice(0, 10) : "–";
}

export function plural(number, word, words = `${word}s`) {
  return `${count(number)} ${number === 1 ? word : words}`;
}
