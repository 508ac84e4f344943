/** News from the server: one small request a second says whether anything has changed. */

import { batch, effect, signal } from "../vendor/index.js";
import { state } from "./state.js";

const PERIOD = 1000; // milliseconds
const SILENT = "The server does not answer. This page goes on when it does. If it has ended, start rankscope view again and open the address that it prints.";
const LOCKED = "This page belongs to a server that has ended. Open the address that rankscope view printed last.";

const commits = new Map(); // run -> commit of its files, as last heard of
/** How often each run has changed since the page was opened. */
export const changes = signal({});
/** Version of the list of runs, or null before the server said it. */
export const listVersion = signal(null);
/** Why the server gave no answer last time, or "". */
export const failure = signal("");
/** How often the server has come back. */
export const returns = signal(0);

/** Note whether the server answers: `response` is null if it was silent. */
export function noteAnswer(response) {
  const now = response === null ? SILENT : response.status === 401 ? LOCKED : "";
  if (now === failure.peek()) return;
  batch(() => {
    if (!now) returns.value++;
    failure.value = now;
  });
}

/** Note the commit of a run, from which the next one is a change. */
export function noteCommit(run, commit) {
  if (commit !== undefined && !commits.has(run)) commits.set(run, commit);
}

async function poll() {
  const runs = [...new Set([state.run.peek(), ...state.runs.peek()])].filter(Boolean);
  const query = runs.map((run) => `run=${encodeURIComponent(run)}`).join("&");
  const response = await fetch(`/api/version?${query}`, { cache: "no-store" }).catch(() => null);
  noteAnswer(response);
  if (!response?.ok) return;
  const news = await response.json();
  listVersion.value = news.list;
  const changed = Object.entries(news.runs).filter(([run, commit]) => commits.has(run) && commits.get(run) !== commit);
  for (const [run, commit] of Object.entries(news.runs)) commits.set(run, commit);
  if (!changed.length) return;
  const counts = changed.map(([run]) => [run, (changes.peek()[run] ?? 0) + 1]);
  changes.value = { ...changes.peek(), ...Object.fromEntries(counts) };
}

/** Poll while the page is visible. */
export function follow() {
  let timer = 0, polls = 0;
  const next = async () => {
    const mine = ++polls; // a poll that is asked for meanwhile takes over
    clearTimeout(timer);
    if (!document.hidden) await poll().catch(() => {}); // cut off within an answer
    if (mine === polls) timer = setTimeout(next, PERIOD);
  };
  document.addEventListener("visibilitychange", () => !document.hidden && next());
  effect(() => {
    void state.run.value;
    void state.runs.value;
    next();
  });
}
