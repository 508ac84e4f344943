/** The list of runs under the given folders. */

import { effect, signal } from "../vendor/index.js";
import { load, url } from "./api.js";
import { listVersion, returns } from "./live.js";

/** The answer of /api/runs, or null before it arrives. */
export const runList = signal(null);
/** Why the list cannot be read, or null. */
export const runListError = signal(null);

export const titleOf = (run) => run.name || run.experiment || run.id;

/** Keep the list as the server has it. */
export function followRuns() {
  effect(() => {
    void returns.value;
    if (listVersion.value === null) return undefined;
    const control = new AbortController();
    load(url("runs", {}), control).then(
      (list) => {
        runList.value = list;
        runListError.value = null;
      },
      (error) => {
        if (error.name !== "AbortError") runListError.value = error.message;
      },
    );
    return () => control.abort();
  });
}
