/** The page: a bar of views, the open one below it, and news from the server. */

import { effect, html, render, useEffect, useRef } from "./vendor/index.js";
import { failure, follow } from "./data/live.js";
import { useRun } from "./data/run.js";
import { followRuns, runList, titleOf } from "./data/runs.js";
import { dark, followAddress, state, theme } from "./data/state.js";
import { Heading, Nothing } from "./ui/controls.js";
import { Dialogs } from "./ui/dialogs.js";
import { followKeys, openDialog, refusal } from "./ui/keys.js";
import { followPlay } from "./ui/play.js";
import { Alignment } from "./views/alignment.js";
import { Compare } from "./views/compare.js";
import { Depth } from "./views/depth.js";
import { Heads } from "./views/heads.js";
import { Matrix } from "./views/matrix.js";
import { Moved } from "./views/moved.js";
import { Papers } from "./views/papers.js";
import { Runs, Status } from "./views/runs.js";
import { Theory } from "./views/theory.js";

const OF_A_RUN = { moved: Moved, depth: Depth, matrix: Matrix, alignment: Alignment, heads: Heads };
const NAMES = {
  runs: "Runs", moved: "What moved", depth: "Depth × time", matrix: "Matrix", alignment: "Alignment",
  heads: "Heads", theory: "Theory", compare: "Compare", papers: "Papers",
};

function viewsOf(info) {
  const has = (axis) => (info.axes[axis]?.size ?? 0) > 0;
  const lacks = info && {
    moved: !info.quantities.length && "measures", depth: !info.quantities.length && "measures", matrix: !has("matrix") && "matrices",
    alignment: !has("pair") && "pairs", heads: !has("product") && "attention heads", theory: !info.theory && "theory",
  };
  const reason = (name) => {
    if (!isOfTheRun(name)) return "";
    if (!state.run.value) return "open a run first";
    return lacks?.[name] ? `this run stores no ${lacks[name]}` : "";
  };
  return Object.entries(NAMES).map(([name, text]) => ({ name, text, reason: reason(name) }));
}

function Bar({ views }) {
  const tabs = useRef(null);
  useEffect(() => {
    const tab = tabs.current.querySelector("[aria-current]"); // phones show a part of the bar
    tabs.current.scrollLeft = tab.offsetLeft - (tabs.current.clientWidth - tab.offsetWidth) / 2;
  }, [state.view.value]);
  return html`<header class="top">
    <button class="brand" onClick=${() => (state.view.value = "runs")} aria-label="rankscope: all runs"><img src="static/icon.svg" alt="" />rankscope</button>
    <nav class="tabs" aria-label="Views" ref=${tabs}>${views.map(({ name, text, reason }) => html`<button key=${name} data-view=${name} disabled=${Boolean(reason)} title=${reason || undefined}
      aria-current=${state.view.value === name ? "page" : undefined} onClick=${() => (state.view.value = name)}>${text}</button>`)}</nav>
    <div class="tools">
      <button class="button quiet" onClick=${() => (openDialog.value = "search")} aria-label="Search"><span class="wide-only">Search</span> <kbd>/</kbd></button>
      <button class="button quiet icon" onClick=${() => (openDialog.value = "keys")} aria-label="Keys">?</button>
      <button class="button quiet icon" aria-label=${dark.value ? "Light theme" : "Dark theme"} onClick=${() => (theme.value = dark.value ? "light" : "dark")}>${dark.value ? "☀" : "☾"}</button>
    </div></header>`;
}

const isOfTheRun = (view) => !["runs", "papers", "compare"].includes(view);

function RunLine({ info }) {
  if (!info || !isOfTheRun(state.view.value)) return null;
  // The list knows when a writer dies, which changes nothing in the run.
  const summary = runList.value?.runs.find(({ id }) => id === info.id) ?? info.summary;
  return html`<div class="runline"><button class="link" onClick=${() => (state.view.value = "runs")}>Runs</button><span class="muted">/</span>
    <span class="runname">${titleOf(summary)}</span><${Status} run=${summary} /></div>`;
}

function View({ run, info, time, scalars, error }) {
  const view = state.view.value;
  if (view === "runs") return html`<${Runs} />`;
  if (view === "papers") return html`<${Papers} />`;
  if (view === "compare") return html`<${Compare} />`;
  if (!run) return html`<${Nothing} title="Choose a run first"><p><button class="button primary" onClick=${() => (state.view.value = "runs")}>Show all runs</button></p></${Nothing}>`;
  if (view === "theory") return html`<${Theory} run=${run} />`;
  if (error && !info) {
    return html`<${Nothing} title="This run cannot be read"><p>${error}</p><p><button class="button" onClick=${() => (state.view.value = "runs")}>Show all runs</button></p></${Nothing}>`;
  }
  if (info && !info.snapshots) {
    const isRunning = info.summary?.status === "running";
    return html`<${Nothing} title=${isRunning ? "No snapshot yet" : "No snapshot"}><p>${isRunning
      ? "The run has begun. Its first snapshot shows here by itself."
      : "The run ended before its first snapshot. Call tracker.observe at every step of the training."}</p></${Nothing}>`;
  }
  if (!time) return html`<${Heading} title=${NAMES[view]} note="Reading…" />`;
  const Chosen = OF_A_RUN[view];
  return html`<${Chosen} key=${`${view} ${run}`} run=${run} info=${info} time=${time} scalars=${scalars} />`;
}

const shown = { views: [] }; // for keys

function App() {
  const opened = useRun();
  const views = viewsOf(opened.info);
  shown.views = views;
  return html`<a class="skip" href="#main">Skip to the view</a>
    <${Bar} views=${views} />
    <main id="main">
      ${failure.value && html`<p class="notice" role="alert">${failure.value}</p>`}
      ${refusal.value && html`<p class="notice" role="status">${refusal.value}</p>`}
      <${RunLine} info=${opened.info} />
      ${opened.info && opened.error && !failure.value && isOfTheRun(state.view.value) && html`<p class="notice" role="alert">This is the run as it was last read: ${opened.error}.</p>`}
      <${View} ...${opened} />
    </main>
    <${Dialogs} info=${opened.info} views=${views.filter(({ reason }) => !reason).map(({ name, text }) => [name, text])} />`;
}

followAddress();
followKeys(() => shown.views);
followPlay();
follow();
followRuns();
effect(() => {
  document.title = `${NAMES[state.view.value]} · rankscope`;
});
render(html`<${App} />`, document.getElementById("app"));
