/** Two fingers on pictures over time: they hold two moments, and the window follows them. */

const LEAST_APART = 0.06; // of the plot; fingers that are nearer move the window and zoom no further

const fingers = new Map(); // pointer -> place on the plot, from 0 (left) to 1 (right)
let held = null; // {time, places} when the second finger came
let joined = false; // whether two fingers were down since the first came

const isFinger = ({ pointerType }) => pointerType === "touch";
const firstTwo = () => [...fingers.values()].slice(0, 2);

/** Return whether fingers zoom, rather than one moving the cursor: true until all are lifted. */
export const isPinch = (event) => joined && isFinger(event);

/** Note that a finger came down on a picture over `time`. */
export function putFinger(event, place, time) {
  if (!isFinger(event)) return;
  if (event.isPrimary) {
    fingers.clear(); // a finger whose picture left the page is never lifted
    joined = false;
  }
  fingers.set(event.pointerId, place);
  if (fingers.size < 2) return;
  joined = true;
  held = { time, places: firstTwo() };
}

/** Return what two fingers now show as {time, low, high}, in shares of that axis as it was; else null. */
export function moveFinger(event, place) {
  if (!fingers.has(event.pointerId)) return null;
  fingers.set(event.pointerId, place);
  if (!held) return null;
  const [before, now] = [held.places, firstTwo()].map(([a, b]) => ({
    middle: (a + b) / 2, apart: Math.max(LEAST_APART, Math.abs(a - b)),
  }));
  const width = before.apart / now.apart;
  const low = before.middle - now.middle * width;
  return { time: held.time, low, high: low + width };
}

/** Note that a finger was lifted, or taken by the browser to scroll. */
export function liftFinger(event) {
  if (fingers.delete(event.pointerId)) held = null;
}
