/** A panel over time: one cursor for all of them, and a window that a drag or two fingers select. */

import { html, signal, useEffect } from "../vendor/index.js";
import { state } from "../data/state.js";
import { nearest } from "../draw/time.js";
import { palette } from "../draw/palette.js";
import { LEAST_DRAG, Panel } from "./panel.js";
import { isPinch, liftFinger, moveFinger, putFinger } from "./pinch.js";

/** The drag in progress, in units of the axis: {from, to}, shown in all panels. */
const brush = signal(null);
let dragStart = null; // pixels
/** The panel and place under the pointer. */
export const hovered = signal(null);
/** The time axis of the view that is open, or null: keys move along it. */
export const shownTime = signal(null);

/** Return the cursor's value on the axis: the last snapshot unless somebody moved it. */
export function cursorOf(time) {
  const { x } = time;
  if (!x.length) return 0;
  return state.at.value === null ? x[x.length - 1] : x[nearest(x, state.at.value)];
}

/** Return the time that a readout names: where nothing is stored that of the cursor, not of a neighbour. */
export const timeOf = (value, at, time) => (value === undefined ? cursorOf(time) : at);

/** Put the cursor on the snapshot nearest to a value. */
export function setCursor(time, value) {
  const at = time.x[nearest(time.x, value)];
  if (at !== undefined && at !== state.at.peek()) state.at.value = at;
}

/** Move the cursor by snapshots. */
export function moveCursor(time, by) {
  const last = time.x.length - 1;
  const here = state.at.peek() === null ? last : nearest(time.x, state.at.peek());
  const next = Math.max(0, Math.min(last, here + by));
  state.at.value = time.x[next];
  return next;
}

/** Draw the cursor's line and the drag in progress. */
export function drawCursor(surface, { plot }, time) {
  const colours = palette.peek();
  const place = (value) => plot.x + time.scale.toUnit(value) * plot.width;
  if (brush.value) {
    const { from, to } = brush.value;
    const [a, b] = [place(from), place(to)].sort((p, q) => p - q);
    surface.rect(a, plot.y, b - a, plot.height, colours.accent, 0.16);
  }
  const x = place(cursorOf(time));
  if (x < plot.x - 1 || x > plot.x + plot.width + 1) return;
  surface.path([x, plot.y, x, plot.y + plot.height], { colour: colours.surface, width: 3, opacity: 0.55 });
  surface.path([x, plot.y, x, plot.y + plot.height], { colour: colours.ink, width: 1 });
}

/** A panel whose horizontal axis is `time` = {x, positions, scale}. */
export function TimePanel(props) {
  const { time, name } = props;
  useEffect(() => {
    shownTime.value = time ?? null;
    return () => {
      if (shownTime.peek() === time) shownTime.value = null;
    };
  }, [time]);
  const placeOf = (x, { plot }) => (x - plot.x) / plot.width;
  const valueAt = (x, box) => time.scale.fromUnit(Math.max(0, Math.min(1, placeOf(x, box))));
  const drag = (x, box) => {
    const moved = dragStart !== null && Math.abs(x - dragStart) >= LEAST_DRAG;
    brush.value = moved ? { from: valueAt(dragStart, box), to: valueAt(x, box) } : null;
    return moved;
  };
  return html`<${Panel}
    ...${props}
    signals=${[state.at, brush, hovered, ...(props.signals ?? [])]}
    overlay=${(surface, box) => {
      drawCursor(surface, box, time);
      props.overlay?.(surface, box);
    }}
    tip=${props.tip && ((x, y, box, event) => (isPinch(event) ? null : props.tip(x, y, box)))}
    onTouchMove=${(event) => {
      if (event.touches.length > 1 && event.cancelable) event.preventDefault(); // no scrolling beside
    }}
    onMove=${(x, y, box, event) => {
      const pinched = moveFinger(event, placeOf(x, box));
      if (pinched) showWindow(pinched.time, pinched.low, pinched.high);
      if (isPinch(event)) return;
      if (dragStart !== null && event.buttons && drag(x, box)) return;
      setCursor(time, valueAt(x, box));
      hovered.value = { name, x, y };
    }}
    onLeave=${(event) => {
      liftFinger(event);
      dragStart = null;
      brush.value = null;
      hovered.value = null;
    }}
    onDown=${(x, y, box, event) => {
      putFinger(event, placeOf(x, box), time);
      if (isPinch(event)) return void (hovered.value = null);
      dragStart = event.pointerType === "mouse" ? x : null;
      if (dragStart !== null) event.currentTarget.setPointerCapture(event.pointerId); // a drag may end outside
      setCursor(time, valueAt(x, box));
    }}
    onUp=${(x, y, box) => {
      if (dragStart !== null && drag(x, box)) zoomTo(time, brush.value);
      dragStart = null;
      brush.value = null;
    }}
    onDouble=${resetZoom}
  />`;
}

function zoomTo(time, { from, to }) {
  const [low, high] = [Math.min(from, to), Math.max(from, to)].map((value) => nearest(time.x, value));
  if (low === high) return;
  state.from.value = time.x[low];
  state.to.value = time.x[high];
}

export function resetZoom() {
  state.from.value = null;
  state.to.value = null;
}

/** Zoom around the cursor by a factor, or move the window by a share of itself. */
export function zoomBy(time, factor) {
  const centre = time.scale.toUnit(cursorOf(time));
  showWindow(time, centre - centre * factor, centre + (1 - centre) * factor);
}

export function panBy(time, share) {
  showWindow(time, share, 1 + share);
}

/** Show a window, in shares of the axis as it is, moved to lie inside the run. */
function showWindow({ x, scale }, low, high) {
  const width = high - low, first = scale.toUnit(x[0]), last = scale.toUnit(x[x.length - 1]);
  low = Math.max(first, Math.min(low, last - width));
  high = Math.min(last, low + width);
  const from = nearest(x, scale.fromUnit(low)), to = nearest(x, scale.fromUnit(high));
  if (to - from < 1) return;
  const whole = from <= 0 && to >= x.length - 1;
  state.from.value = whole ? null : x[from];
  state.to.value = whole ? null : x[to];
}
