/** Move the cursor through a run by itself. */

import { effect, html, signal } from "../vendor/index.js";
import { state } from "../data/state.js";
import { moveCursor, shownTime } from "./timepanel.js";

const LENGTH = 8000; // milliseconds that a whole run takes
const SLOWEST = 400; // milliseconds for one snapshot

export const playing = signal(false);

/** Advance the cursor with the frames while `playing` is true, until the run or the view ends. */
export function followPlay() {
  effect(() => {
    void state.view.value;
    playing.value = false;
  });
  effect(() => {
    if (!playing.value) return undefined;
    let frame = 0, last = performance.now();
    const tick = (now) => {
      const time = shownTime.peek();
      if (!time?.x.length) return void (playing.value = false);
      const pause = Math.min(SLOWEST, LENGTH / time.x.length);
      const steps = Math.floor((now - last) / pause);
      if (steps > 0) {
        last += steps * pause; // what is left of a frame belongs to the next step
        if (moveCursor(time, steps) >= time.x.length - 1) playing.value = false;
      }
      if (playing.peek()) frame = requestAnimationFrame(tick);
    };
    const x = shownTime.peek()?.x ?? [];
    if (state.at.peek() === null || state.at.peek() >= x[x.length - 1]) state.at.value = x[0] ?? null;
    frame = requestAnimationFrame(tick);
    return () => cancelAnimationFrame(frame);
  });
}

export function PlayButton() {
  return html`<button class="button" aria-pressed=${playing.value} onClick=${() => (playing.value = !playing.value)}>
    ${playing.value ? "❚❚ Pause" : "▶ Play"}</button>`;
}
