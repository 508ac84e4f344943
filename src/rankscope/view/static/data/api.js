/** Requests to the server: JSON and binary frames, kept while they are current. */

import { useEffect, useState } from "../vendor/index.js";
import { decode } from "./frame.js";
import { commits, failed } from "./live.js";

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
    failed.value = true;
    throw new Error("The server does not answer. Start `rankscope view` again.");
  }
  failed.value = false;
  const type = response.headers.get("content-type") ?? "";
  if (!response.ok) {
    const sentence = type.includes("json") ? (await response.json()).error : null;
    throw new Error(sentence ?? `The server answered ${response.status}.`);
  }
  if (type.includes("octet-stream")) return decode(await response.arrayBuffer());
  return type.includes("json") ? response.json() : response.text();
}

const answers = new Map();
const pending = new Map();

function keep(key, answer) {
  answers.delete(key);
  answers.set(key, answer);
  if (answers.size > MOST_KEPT) answers.delete(answers.keys().next().value);
}

const isComplete = (answer) => (answer.meta ?? answer).complete !== false;
const versionOf = (runs) => runs.map((run) => commits.value[run] ?? "").join(" ");

/** Load once for all who ask at the same time; complete answers are kept. */
async function ask(address, key) {
  if (answers.has(key)) return answers.get(key);
  if (!pending.has(key)) {
    pending.set(key, load(address).finally(() => pending.delete(key)));
  }
  const data = await pending.get(key);
  if (isComplete(data)) keep(key, data);
  return data;
}

/**
 * The answer to a request as {data, error, loading, stale}; null asks for nothing.
 *
 * The last answer stays until the next arrives, so that panels never jump; it is stale when it
 * answers another request. When one of `runs` gets a new snapshot, or an answer is incomplete,
 * the request is made again.
 */
export function useAnswer(address, runs = []) {
  const key = `${address} ${versionOf(runs)}`;
  const [shown, show] = useState({ data: answers.get(key), error: null, key: null, address });
  useEffect(() => {
    let current = Boolean(address);
    let timer = 0;
    const next = async () => {
      try {
        const data = await ask(address, key);
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
  ask(address, `${address} ${versionOf(runs)}`).catch(() => {});
}
