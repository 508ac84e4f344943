/** News from the server: one small request a second says whether anything has changed. */

import { effect, signal } from "../vendor/index.js";
import { state } from "./state.js";

const PERIOD = 1000; // milliseconds

export const commits = signal({}); // run -> version of its data
export const listVersion = signal(0);
export const failed = signal(false); // the server did not answer last time

async function poll() {
  const runs = [...new Set([state.run.peek(), ...state.runs.peek()])].filter(Boolean);
  const query = runs.map((run) => `run=${encodeURIComponent(run)}`).join("&");
  const response = await fetch(`/api/version?${query}`, { cache: "no-store" });
  if (!response.ok) throw new Error(response.statusText);
  const news = await response.json();
  failed.value = false;
  listVersion.value = news.list;
  const changed = Object.entries(news.runs).some(([run, commit]) => commits.peek()[run] !== commit);
  if (changed) commits.value = { ...commits.peek(), ...news.runs };
}

/** Poll while the page is visible. */
export function follow() {
  let timer = 0;
  const next = async () => {
    clearTimeout(timer);
    if (!document.hidden) await poll().catch(() => (failed.value = true));
    timer = setTimeout(next, PERIOD);
  };
  document.addEventListener("visibilitychange", () => !document.hidden && next());
  effect(() => {
    void state.run.value;
    void state.runs.value;
    next();
  });
}
