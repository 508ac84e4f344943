/** Requests to the server: JSON and binary frames, kept while they are current. */

import { useEffect, useState } from "../vendor/index.js";
import { decode } from "./frame.js";
import { changes, failure, noteAnswer, noteCommit, returns } from "./live.js";

const MOST_KEPT = 48; // answers
const AGAIN = 300; // milliseconds until an incomplete answer is asked for again

/** Return the address of an endpoint; null, undefined and "" are left out, lists are repeated. */
export function url(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const part of Array.isArray(value) ? value : [value]) {
      if (part !== null && part !== undefined && part !== "") query.append(name, part);
    }
  }
  return `/api/${path}?${query}`;
}

/** Fetch JSON or a frame; an Error carries the server's sentence. */
export async function load(address, { signal } = {}) {
  let response;
  try {
    response = await fetch(address, { signal, cache: "no-cache" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    noteAnswer(null);
    throw new Error(failure.peek());
  }
  noteAnswer(response);
  const type = response.headers.get("content-type") ?? "";
  if (!response.ok) {
    const sentence = type.includes("json") ? (await response.json()).error : null;
    throw new Error(sentence ?? `The server answered ${response.status}.`);
  }
  if (type.includes("octet-stream")) return decode(await response.arrayBuffer());
  return type.includes("json") ? response.json() : response.text();
}

const answers = new Map(); // key -> answer
const pending = new Map(); // key -> request on its way

function keep(key, answer) {
  answers.delete(key);
  answers.set(key, answer);
  if (answers.size > MOST_KEPT) answers.delete(answers.keys().next().value);
}

const isComplete = (answer) => (answer.meta ?? answer).complete !== false;
/** Return what names an answer: its address, and how often its runs and the server have changed. */
const keyOf = (address, runs) => [address, ...runs.map((run) => changes.value[run] ?? 0), returns.value].join(" ");

/**
 * Load once for all who ask at the same time, as {answer, leave}; complete answers are kept.
 *
 * leave() is called by those who no longer wait. The last one ends the request.
 */
function ask(address, key, runs) {
  if (answers.has(key)) return { answer: Promise.resolve(answers.get(key)), leave() {} };
  let request = pending.get(key);
  if (!request) {
    request = { control: new AbortController(), waiting: 0 };
    request.answer = loadAndKeep(address, key, runs, request);
    pending.set(key, request);
  }
  request.waiting++;
  const leave = () => {
    if (--request.waiting === 0) forget(key, request);
  };
  return { answer: request.answer, leave };
}

async function loadAndKeep(address, key, runs, request) {
  try {
    const data = await load(address, request.control);
    if (runs.length === 1) noteCommit(runs[0], (data.meta ?? data).commit);
    if (isComplete(data)) keep(key, data);
    return data;
  } finally {
    forget(key, request);
  }
}

function forget(key, request) {
  if (pending.get(key) === request) pending.delete(key);
  request.control.abort(); // nothing happens if it is answered
}

/**
 * The answer to a request as {data, error, loading, stale}; null asks for nothing.
 *
 * The last answer stays until the next arrives, so that panels never jump; it is stale when it
 * answers another request. When one of `runs` gets a new snapshot, or an answer is incomplete,
 * the request is made again.
 */
export function useAnswer(address, runs = []) {
  const key = keyOf(address, runs);
  const [shown, show] = useState({ data: answers.get(key), error: null, key: null, address });
  useEffect(() => {
    let current = Boolean(address);
    let timer = 0, request = null;
    const next = async () => {
      request = ask(address, key, runs);
      try {
        const data = await request.answer;
        if (!current) return;
        show({ data, error: null, key, address });
        if (!isComplete(data)) timer = setTimeout(next, AGAIN);
      } catch (error) {
        if (current) show((last) => ({ data: last.data, error: error.message, key, address }));
      }
    };
    if (current) next();
    return () => {
      current = false;
      clearTimeout(timer);
      request?.leave();
    };
  }, [key]);
  if (!address) return { data: undefined, error: null, loading: false, stale: false };
  if (shown.key !== key && answers.has(key)) {
    return { data: answers.get(key), error: null, loading: false, stale: false };
  }
  const stale = shown.address !== address;
  return { data: shown.data, error: stale ? null : shown.error, loading: shown.key !== key, stale };
}

/** Ask for something that will be needed soon. */
export function prefetch(address, runs) {
  ask(address, keyOf(address, runs), runs).answer.catch(() => {});
}
