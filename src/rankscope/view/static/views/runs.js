/** Every run under the given folders. */

import { html } from "../vendor/index.js";
import { count, day, duration, percent, plural, short, when } from "../data/format.js";
import { runList, runListError, titleOf } from "../data/runs.js";
import { go, openRun, state } from "../data/state.js";
import { Heading, Nothing } from "../ui/controls.js";
import { ExportMenu } from "../ui/export.js";
import { VirtualTable } from "../ui/table.js";

const ORDER = { running: 0, interrupted: 1, done: 2, collapsed: 3, damaged: 4 };
const HINTS = { collapsed: "The training loss ends no lower than that of a constant predictor" };
const WIDE = "number wide-only";
// Name, heading, value that sorts, class and text of a cell, its tooltip.
const COLUMNS = [
  ["name", "Run", (run) => titleOf(run)],
  ["status", "Status", (run) => ORDER[run.status]],
  ["network", "Network", (run) => run.network_title ?? run.model, "roomy", String],
  ["decay", "Decay", (run) => run.decay, WIDE, String],
  ["alpha", "log₁₀ α", (run) => run.alpha_log10, WIDE, short],
  ["scale", "Scale", (run) => run.scale, "roomy", String],
  ["seed", "Seed", (run) => run.seed, WIDE, String],
  ["snapshots", "Snapshots", (run) => run.snapshots, "number roomy", count],
  ["last", "Last step", (run) => run.last, WIDE, when],
  ["loss", "Last loss", (run) => (run.loss_broke ? NaN : run.last_loss), "number", short],
  ["matrices", "Matrices", (run) => run.matrices || null, "number roomy", count],
  ["cost", "Tracker", (run) => run.tracker_seconds, WIDE, duration, shareOfTime],
  ["begun", "Begun", (run) => run.started, "number spare muted", day],
];
const ROW = 44; // pixels

/** Return in words how much of a run's time the tracker took. */
function shareOfTime({ tracker_seconds: seconds, tracker_share: share, wall_seconds: wall, status }) {
  if (lacks(seconds)) return undefined;
  if (lacks(share)) return status === "running" ? "Its share of the time is known when the run ends" : "The run has no total time";
  return `${percent(share)} of ${duration(wall)}`;
}

/** Return the runs whose text holds every word of a query. */
export function matching(runs, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return runs;
  return runs.filter((run) => {
    const text = [run.name, run.folder, run.experiment, run.network, run.network_title, run.model, run.variant, run.status, run.kind, `seed ${run.seed}`]
      .join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

function compare(a, b) {
  if (hasNoOrder(a) || hasNoOrder(b)) return hasNoOrder(a) - hasNoOrder(b);
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

/** Return runs in the order of the address: "name" or "-name"; by default running ones, then the newest. */
export function sorted(runs, by) {
  const descending = by.startsWith("-");
  const column = COLUMNS.find(([name]) => name === by.replace("-", ""));
  const live = (run) => (run.status === "running" ? 0 : 1);
  const natural = (a, b) => live(a) - live(b) || -compare(day(a.started), day(b.started)) || compare(titleOf(a), titleOf(b));
  if (!column) return [...runs].sort(natural);
  const value = column[2];
  return [...runs].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    const last = hasNoOrder(x) - hasNoOrder(y);
    return last || (descending ? -compare(x, y) : compare(x, y)) || natural(a, b);
  });
}

function toggle(id) {
  const runs = state.runs.peek();
  state.runs.value = runs.includes(id) ? runs.filter((other) => other !== id) : [...runs, id];
}

const lacks = (value) => value === null || value === undefined;
const hasNoOrder = (value) => lacks(value) || Number.isNaN(value);

/** Return the columns in which some run has a value. */
const columnsOf = (runs) => COLUMNS.filter(([name, , value]) => name === state.sort.value.replace("-", "") || runs.some((run) => !lacks(value(run))));

function head(columns) {
  const by = state.sort.value;
  return [
    html`<th class="check"><span class="out-of-sight">Select</span></th>`,
    ...columns.map(([name, text, , kind]) => {
      const now = by === name ? "ascending" : by === `-${name}` ? "descending" : "none";
      const next = by === name ? `-${name}` : by === `-${name}` ? "" : name;
      return html`<th key=${name} class=${kind} aria-sort=${now}>
        <button onClick=${() => (state.sort.value = next)}>${text}<i aria-hidden="true">${{ ascending: "↑", descending: "↓", none: "" }[now]}</i></button></th>`;
    }),
  ];
}

export function Status({ run }) {
  return html`<span class="status ${run.status}" title=${run.error ?? HINTS[run.status] ?? ""}><i />${run.status}</span>`;
}

function row(run, columns) {
  const chosen = state.runs.value.includes(run.id);
  const name = titleOf(run);
  const parts = name.split("/");
  const title = parts.slice(-2).join(" / "), folder = [run.folder, ...parts.slice(0, -2)].filter(Boolean).join("/");
  const view = run.kind === "theory" ? "theory" : "moved";
  return html`<tr key=${run.id} class=${chosen ? "chosen" : ""} onClick=${(event) => {
    if (!event.target.closest("button, input, label")) openRun(run.id, view);
  }}>
    <td class="check"><input type="checkbox" checked=${chosen} aria-label=${`Select ${name}`} onChange=${() => toggle(run.id)} /></td>
    <td class="name"><button class="link" data-row data-run=${run.id} disabled=${run.status === "damaged"} onClick=${() => openRun(run.id, view)}>${title}</button>
      ${run.error ? html`<small class="bad">${run.error}</small>` : html`<small class="muted">${folder}</small>`}</td>
    <td><${Status} run=${run} /></td>
    ${columns.filter(([, , , , text]) => text).map(([name, , value, kind, text, hint]) =>
      html`<td key=${name} class=${kind} title=${hint?.(run)}>${lacks(value(run)) ? "–" : text(value(run), run)}</td>`)}
  </tr>`;
}

export function Runs() {
  const list = runList.value;
  if (!list) return html`<${Heading} title="Runs" note=${runListError.value ?? "Reading the folders…"} />`;
  if (!list.runs.length) {
    return html`<${Nothing} title="No runs here yet">
      <p>Looked in ${list.folders.join(", ")}. Track a training, then this page fills by itself:</p>
      <p class="code">with rs.Tracker(model, "runs/first") as tracker: ...</p></${Nothing}>`;
  }
  const shown = sorted(matching(list.runs, state.query.value), state.sort.value);
  const columns = columnsOf(shown);
  const known = new Set(list.runs.map((run) => run.id));
  const chosen = state.runs.value.filter((id) => known.has(id));
  const running = list.runs.filter((run) => run.status === "running").length;
  const note = `${plural(list.runs.length, "run")} in ${list.folders.join(", ")}${running ? ` · ${running} running` : ""}${
    list.skipped ? ` · ${count(list.skipped)} more are not listed` : ""}`;
  return html`<${Heading} title="Runs" note=${note} />
    <div class="bar" data-panel="runs">
      <label><span class="out-of-sight">Filter runs</span><input class="field filter" type="search" placeholder="Filter by name, network, status, seed…"
        value=${state.query.value} onInput=${(event) => (state.query.value = event.target.value)} /></label>
      <span class="muted">${shown.length === list.runs.length ? "" : `${shown.length} shown`}</span>
      <span class="push" />
      ${chosen.length > 0 && html`<button class="button quiet" onClick=${() => (state.runs.value = [])}>Clear ${chosen.length}</button>`}
      <button class="button ${chosen.length > 1 ? "primary" : ""}" disabled=${chosen.length < 2}
        onClick=${() => go({ view: "compare" })}>${chosen.length > 1 ? `Compare ${chosen.length} runs` : "Select runs to compare"}</button>
      ${shown.length > 0 && html`<${ExportMenu} title="Runs" request=${() => ({ panel: "runs", query: state.query.value })} />`}
    </div>
    ${shown.length
      ? html`<div class="panel flush"><${VirtualTable} label="Runs" rows=${shown} rowHeight=${ROW} columns=${columns.length + 1}
          head=${head(columns)} render=${(run) => row(run, columns)} name=${`${state.query.value} ${state.sort.value}`} /></div>`
      : html`<${Nothing} title="No run matches"><p>Remove a word of the filter.</p></${Nothing}>`}`;
}
