/** Move the cursor through a run by itself. */

import { effect, html, signal, useEffect } from "../vendor/index.js";
import { state } from "../data/state.js";
import { moveCursor } from "./timepanel.js";

const LENGTH = 8000; // milliseconds that a whole run takes
const SLOWEST = 400; // milliseconds for one snapshot

export const playing = signal(false);

/** Advance the cursor with the frames while `playing` is true. */
export function usePlay(time) {
  useEffect(() => {
    let frame = 0, last = 0;
    const pause = Math.min(SLOWEST, LENGTH / Math.max(1, time.x.length));
    const tick = (now) => {
      const steps = Math.floor((now - last) / pause);
      if (steps > 0) {
        last = now;
        if (moveCursor(time, steps) >= time.x.length - 1) playing.value = false;
      }
      if (playing.peek()) frame = requestAnimationFrame(tick);
    };
    const stop = effect(() => {
      cancelAnimationFrame(frame);
      if (!playing.value) return;
      const end = time.x[time.x.length - 1];
      if (state.at.peek() === null || state.at.peek() >= end) state.at.value = time.x[0];
      last = performance.now();
      frame = requestAnimationFrame(tick);
    });
    return () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }, [time]);
  useEffect(() => () => (playing.value = false), []);
}

export function PlayButton() {
  return html`<button class="button" aria-pressed=${playing.value} onClick=${() => (playing.value = !playing.value)}>
    ${playing.value ? "❚❚ Pause" : "▶ Play"}</button>`;
}
