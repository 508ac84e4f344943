/** Keys that work everywhere but in a field. */

import { effect, signal } from "../vendor/index.js";
import { state, theme } from "../data/state.js";
import { playing } from "./play.js";
import { moveCursor, panBy, resetZoom, shownTime, zoomBy } from "./timepanel.js";

/** The dialog that is open: "search", "keys" or "". */
export const openDialog = signal("");

/** Why the view of the last key does not open, or "". */
export const refusal = signal("");

/** What the list of keys shows. */
export const KEYS = [
  [["/"], "search runs, matrices, measures"],
  [["?"], "this list"],
  [["1", "…", "9"], "runs, moved, … papers"],
  [["←", "→"], "cursor by a snapshot"],
  [["shift", "←"], "cursor by ten snapshots"],
  [["home", "end"], "cursor to the start, the end"],
  [["space"], "play, pause"],
  [["[", "]"], "previous, next matrix or pair"],
  [["+", "−"], "zoom in, out at the cursor"],
  [["a", "d"], "move the window"],
  [["0"], "whole run"],
  [["l"], "time axis: snapshots, linear, log"],
  [["m"], "next measure"],
  [["↑", "↓"], "rows of a table"],
  [["enter"], "open a row"],
  [["t"], "light, dark"],
  [["esc"], "close"],
];

const AXES = ["snapshots", "linear", "log"];
const JUMP = 10; // snapshots
const ZOOM = 0.6, PAN = 0.25; // of the window

const step = (which) => document.querySelector(`[data-step="${which}"]`)?.click();

function nextMeasure() {
  const select = document.querySelector('main select[name="measure"]');
  if (!select) return;
  select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
  select.dispatchEvent(new Event("change", { bubbles: true }));
}

function overTime(time) {
  return {
    ArrowLeft: (event) => moveCursor(time, event.shiftKey ? -JUMP : -1),
    ArrowRight: (event) => moveCursor(time, event.shiftKey ? JUMP : 1),
    Home: () => moveCursor(time, -Infinity),
    End: () => moveCursor(time, Infinity),
    " ": () => (playing.value = !playing.peek()),
    "+": () => zoomBy(time, ZOOM),
    "=": () => zoomBy(time, ZOOM),
    "-": () => zoomBy(time, 1 / ZOOM),
    a: () => panBy(time, -PAN),
    d: () => panBy(time, PAN),
    0: resetZoom,
    l: () => (state.axis.value = AXES[(AXES.indexOf(state.axis.peek()) + 1) % AXES.length]),
  };
}

const ANYWHERE = {
  "/": () => (openDialog.value = "search"),
  "?": () => (openDialog.value = "keys"),
  "[": () => step("previous"),
  "]": () => step("next"),
  m: nextMeasure,
  t: () => (theme.value = document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
};

/** Answer keys; `views()` returns those of the page, in the order of their numbers. */
export function followKeys(views) {
  effect(() => {
    void [state.view.value, state.run.value];
    refusal.value = "";
  });
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (openDialog.peek() || document.querySelector("dialog[open]")) return;
    const { target } = event;
    if (target.closest("input:not([type=checkbox]):not([type=range]), textarea, select")) return;
    if (target.closest("input[type=range]") && /Arrow|Home|End/.test(event.key)) return;
    if (event.key === " " && target.closest("button, summary, input, a")) return;
    const time = shownTime.peek();
    const view = views()[Number(event.key) - 1];
    const action = ANYWHERE[event.key] ?? (time && overTime(time)[event.key]);
    if (event.key >= "1" && event.key <= "9") {
      if (view && !view.reason) state.view.value = view.name;
      refusal.value = view?.reason ? `${view.text}: ${view.reason}.` : "";
    } else if (action) {
      action(event);
    } else return;
    event.preventDefault();
  });
}
