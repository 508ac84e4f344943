/** The time axis that all panels of a run share. */

/**
 * Return a scale from values of the axis to positions from 0 (left) to 1 (right).
 *
 * x, positions: axis values and indices of known snapshots. kind: "snapshots" stands them at equal
 * distances; "linear" and "log" follow the value, log from the first positive one.
 */
export function timeScale({ x, positions, kind, from, to }) {
  const first = x.length ? x[0] : 0;
  const last = x.length ? x[x.length - 1] : 1;
  const unit = positiveUnit(x);
  const forward = {
    snapshots: (value) => interpolate(value, x, positions),
    linear: (value) => value,
    log: (value) => Math.sign(value) * Math.log1p(Math.abs(value) / unit),
  }[kind];
  const backward = {
    snapshots: (value) => interpolate(value, positions, x),
    linear: (value) => value,
    log: (value) => Math.sign(value) * Math.expm1(Math.abs(value)) * unit,
  }[kind];
  const low = forward(from ?? first);
  let high = forward(to ?? last);
  if (!(high > low)) high = low + 1;
  const scale = {
    kind,
    first: from ?? first,
    last: to ?? last,
    toUnit: (value) => (forward(value) - low) / (high - low),
    fromUnit: (share) => backward(low + share * (high - low)),
  };
  return { ...scale, ticks: (most) => ticksOf(scale, x, unit, most) };
}

function positiveUnit(x) {
  for (const value of x) if (value > 0) return value;
  return 1;
}

/** Return the value at `at` of the line through (x, y), continued at its ends. */
export function interpolate(at, x, y) {
  const size = x.length;
  if (!size) return at;
  if (size === 1) return y[0] + (at - x[0]);
  let low = 0, high = size - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] <= at) low = middle;
    else high = middle;
  }
  const span = x[high] - x[low] || 1;
  return y[low] + ((at - x[low]) / span) * (y[high] - y[low]);
}

/** Return the position of the value nearest to `at` in a rising array. */
export function nearest(x, at) {
  let low = 0, high = x.length - 1;
  if (high < 0) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] <= at) low = middle;
    else high = middle;
  }
  return at - x[low] <= x[high] - at ? low : high;
}

/** Return at most about `most` round numbers between two values. */
export function roundTicks(low, high, most) {
  if (!(high > low) || most < 1) return [low];
  const raw = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((size) => size >= raw * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) {
    ticks.push(Number((i * step).toPrecision(12)));
  }
  return ticks;
}

/** Return powers of ten between two positive values; with 2 and 5 times these if there are few. */
export function logTicks(low, high, most) {
  const powers = powersBetween(low, high, most, [1]);
  if (powers.length >= 3 || (most < 3 && powers.length)) return powers;
  const more = powersBetween(low, high, most, [1, 2, 5]);
  return more.length >= 2 ? more : roundTicks(low, high, most);
}

function powersBetween(low, high, most, factors) {
  const ticks = new Map(); // of each power
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    const inside = factors.map((factor) => Number((factor * 10 ** power).toPrecision(3)))
      .filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
    if (inside.length) ticks.set(power, inside);
  }
  const every = Math.max(1, Math.ceil(ticks.size / most));
  return [...ticks.values()].filter((_, i) => i % every === 0).flat();
}

function ticksOf(scale, x, unit, most) {
  const { kind, first, last } = scale;
  if (kind === "snapshots") return snapshotTicks(scale, x, most);
  if (kind === "linear") return roundTicks(first, last, most);
  const ticks = logTicks(Math.max(first, unit), Math.max(last, unit), most);
  return first <= 0 ? [0, ...ticks] : ticks;
}

const UNEVEN = 2; // times the mean distance of ticks, up to which they count as even
const REACH = 0.3; // of the distance between ticks that one may move to a rounder value

/** Return round values of an axis on which snapshots stand at equal distances, whatever their steps. */
function snapshotTicks(scale, x, most) {
  const { first, last, toUnit, fromUnit } = scale;
  const inside = x.filter((value) => value >= first && value <= last);
  if (inside.length < 2) return [...inside];
  const round = roundTicks(first, last, most);
  const places = [0, ...round.map(toUnit), 1];
  const widest = Math.max(...places.slice(1).map((place, i) => place - places[i]));
  if (inside.length > most && widest <= UNEVEN / round.length) return round;
  const gaps = Math.min(most, inside.length - 1);
  const least = inside.every(Number.isInteger) ? 1 : 0;
  const ticks = Array.from({ length: gaps + 1 }, (_, i) => {
    const [low, high] = [i - REACH, i + REACH].map((at) => fromUnit(Math.max(0, Math.min(1, at / gaps))));
    const snapshot = inside[nearest(inside, fromUnit(i / gaps))];
    const round = roundest(low, high, least) ?? snapshot;
    return digitsOf(snapshot) <= digitsOf(round) ? snapshot : round;
  });
  return [...new Set(ticks)].sort((a, b) => a - b);
}

/** Return how many digits a number needs, without zeros at its ends. */
const digitsOf = (value) => Math.abs(value).toExponential().split("e")[0].length;

/** Return the multiple of the largest 1, 2 or 5 times a power of ten, at least `least`, from low to high. */
function roundest(low, high, least) {
  if (low <= 0 && high >= 0) return 0;
  const middle = (low + high) / 2;
  for (let power = Math.floor(Math.log10(Math.max(-low, high))); 10 ** power >= (high - low) / 10; power--) {
    for (const size of [5, 2, 1].map((factor) => factor * 10 ** power)) {
      const nearby = Number((Math.round(middle / size) * size).toPrecision(12));
      if (size >= least && nearby >= low && nearby <= high) return nearby;
    }
  }
  return undefined;
}
