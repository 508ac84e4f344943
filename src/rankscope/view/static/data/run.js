/** The run that is open: what it holds and its time axis. */

import { useMemo } from "../vendor/index.js";
import { timeScale } from "../draw/time.js";
import { url, useAnswer } from "./api.js";
import { state } from "./state.js";

export const MOST_COLUMNS = 4096; // of one answer
const MOST_FLOATS = 1.5e6; // cells that are asked for as floats

/** Return {info, time, error} of the open run; time is {x, positions, scale, along}. */
export function useRun() {
  const run = state.run.value;
  const runs = run ? [run] : [];
  const about = useAnswer(run ? url("run", { run }) : null, runs);
  const info = about.stale ? undefined : about.data;
  const axis = useAnswer(run ? url("scalars", { run, width: MOST_COLUMNS }) : null, runs);
  const scalars = axis.stale ? undefined : axis.data;
  const [kind, from, to] = [state.axis.value, state.from.value, state.to.value];
  const time = useMemo(() => {
    if (!info || !scalars) return null;
    const x = scalars.arrays[`x:${info.along}`] ?? new Float64Array();
    const positions = scalars.arrays[`positions:${info.along}`] ?? new Int32Array();
    return { x, positions, along: info.along, scale: timeScale({ x, positions, kind, from, to }) };
  }, [info, scalars, kind, from, to]);
  return { run, info, time, scalars, error: about.error ?? axis.error };
}

/** Parameters of a request over time: the whole run, or the window if the run has more snapshots. */
export function windowOf(info, width = MOST_COLUMNS) {
  const whole = info.snapshots <= width;
  return { width, ...(whole ? {} : { from: state.from.value, to: state.to.value }) };
}

/** Return the interval that pictures show now, for exports. */
export const shownInterval = () => ({ from: state.from.peek(), to: state.to.peek() });

/** Return the format in which to ask for so many rows. */
export function formatFor(info, rows) {
  return rows * Math.min(info.snapshots, MOST_COLUMNS) <= MOST_FLOATS ? "float32" : "uint8";
}

/** Return whether some matrices are cut from others. */
export const hasParts = (info) => Boolean(info.axes.matrix?.rows.some((row) => row.part_of));

/** Return the rows of an axis that a heat map shows: whole matrices unless parts are wanted. */
export function shownRows(info, axis) {
  const rows = info.axes[axis]?.rows ?? [];
  return axis === "matrix" && !state.parts.value ? rows.filter((row) => !row.part_of) : rows;
}

/** Return the view and values that show a row of an axis by itself. */
export function detailOf(axis, row) {
  if (axis === "matrix") return { view: "matrix", matrix: row.name };
  if (axis === "pair") return { view: "alignment", pair: row.name };
  if (axis === "product") return { view: "heads", product: row.name };
  return null;
}
