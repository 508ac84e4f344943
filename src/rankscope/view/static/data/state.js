/** What a person looks at: signals whose values stand in the page's address. */

import { batch, computed, effect, signal } from "../vendor/index.js";

const text = (initial) => ({ initial, read: (values) => values[0], write: (value) => [value] });
const number = () => ({
  initial: null,
  read: (values) => (values[0] !== "" && Number.isFinite(Number(values[0])) ? Number(values[0]) : null),
  write: (value) => [String(value)],
});
const list = () => ({ initial: [], read: (values) => values, write: (value) => value });
const choice = (...options) => ({
  ...text(options[0]),
  read: (values) => (options.includes(values[0]) ? values[0] : options[0]),
});

export const VIEWS = [
  "runs", "moved", "depth", "matrix", "alignment", "heads", "theory", "compare", "papers",
];

const FIELDS = {
  view: choice(...VIEWS),
  run: text(""),
  runs: list(), // those selected for comparison
  of: text(""),
  metric: text(""),
  axis: choice("snapshots", "linear", "log"), // of time
  from: number(),
  to: number(),
  at: number(), // the cursor; null is the last snapshot
  order: choice("model", "kind", "moved"),
  parts: choice("", "1"), // whether rows that are cut from others are shown too
  scalars: list(),
  matrix: text(""),
  spectrum: text(""), // which spectra the image of a matrix shows
  index: choice("log", "linear"), // axis of singular values
  pair: text(""),
  product: text(""),
  heads: choice("kq", "vo"),
  scope: text(""), // of a comparison: "", "kind:...", "block:..." or "matrix:..."
  align: choice("step", "epoch", "loss", "fraction"),
  seeds: choice("seed", "none"),
  difference: text(""),
  claim: text(""),
  rules: choice("", "replaced"), // of claims: those in force, or replaced ones too
  query: text(""), // of the table of runs
  sort: text(""),
};

export const state = Object.fromEntries(
  Object.entries(FIELDS).map(([name, field]) => [name, signal(field.initial)]),
);

const PAUSE = 350; // milliseconds; the cursor moves often, and browsers allow 100 addresses in 30 s

/** Moving to another of these is a step that the browser's back button takes back. */
const STEPS = ["view", "run", "matrix", "pair", "product", "claim"];

function address() {
  const query = new URLSearchParams();
  for (const [name, field] of Object.entries(FIELDS)) {
    const value = state[name].value;
    if (value === field.initial || (Array.isArray(value) && !value.length)) continue;
    for (const part of field.write(value)) query.append(name, part);
  }
  const written = query.toString();
  return written ? `?${written}` : "/";
}

function readAddress() {
  const query = new URLSearchParams(location.search);
  batch(() => {
    for (const [name, field] of Object.entries(FIELDS)) {
      const values = query.getAll(name);
      const value = values.length ? field.read(values) : field.initial;
      if (JSON.stringify(value) !== JSON.stringify(state[name].peek())) state[name].value = value;
    }
  });
}

/** Keep signals and address the same from now on. */
export function followAddress() {
  readAddress();
  addEventListener("popstate", readAddress);
  let timer = 0;
  const write = () => {
    timer = 0;
    history.replaceState(null, "", address());
  };
  effect(() => {
    const next = address();
    const current = location.search || "/";
    if (next === current) return;
    if (stepOf(next) !== stepOf(current)) history.pushState(null, "", next);
    else timer ||= setTimeout(write, PAUSE);
  });
}

/** Return the part of an address that names a step. */
function stepOf(search) {
  const query = new URLSearchParams(search);
  return STEPS.map((name) => query.get(name) ?? "").join("\n");
}

/** Change several values at once. */
export function go(values) {
  batch(() => {
    for (const [name, value] of Object.entries(values)) state[name].value = value;
  });
}

/** Open a view of a run; what belonged to another run is forgotten. */
export function openRun(run, view = "moved", values = {}) {
  const other = run !== state.run.peek();
  const forgotten = other
    ? { from: null, to: null, at: null, of: "", metric: "", matrix: "", pair: "", product: "", scalars: [] }
    : {};
  go({ ...forgotten, run, view, ...values });
}

export const zoomed = computed(() => state.from.value !== null || state.to.value !== null);

/** The theme is the reader's own and not part of what an address shows. */
export const theme = signal(readTheme());

function readTheme() {
  const stored = localStorage.getItem("rankscope-theme");
  return ["light", "dark"].includes(stored) ? stored : "auto";
}

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(prefersDark.matches);
prefersDark.addEventListener("change", () => (systemDark.value = prefersDark.matches));

export const dark = computed(() =>
  theme.value === "auto" ? systemDark.value : theme.value === "dark",
);

effect(() => {
  localStorage.setItem("rankscope-theme", theme.value);
  document.documentElement.dataset.theme = dark.value ? "dark" : "light";
});
