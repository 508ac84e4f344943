/** A canvas that fills its column, and an overlay above it that moves with the cursor. */

import { effect, html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/index.js";
import { CanvasSurface } from "../draw/surface.js";
import { palette } from "../draw/palette.js";

/** Return [ref, width]: the width of an element, followed. */
export function useWidth() {
  const ref = useRef(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const measure = () => setWidth(Math.floor(ref.current?.clientWidth ?? 0));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

function prepared(canvas, width, height) {
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  return new CanvasSurface(canvas.getContext("2d"), ratio);
}

/**
 * Draw `draw(surface, width, height)` when the component renders, and `overlay` of the same
 * arguments whenever a signal that it reads changes, at most once a frame.
 */
export function Canvas({ width, height, draw, overlay, label, handlers = {} }) {
  const base = useRef(null), above = useRef(null), drawOverlay = useRef(null);
  void palette.value;
  useLayoutEffect(() => {
    if (!width || !base.current) return;
    const surface = prepared(base.current, width, height);
    surface.clear(width, height);
    draw(surface, width, height);
  });
  drawOverlay.current = overlay;
  useEffect(() => {
    if (!overlay || !width) return;
    let waiting = 0;
    const show = () => {
      waiting = 0;
      if (!above.current) return; // it left the page within this frame
      const surface = prepared(above.current, width, height);
      surface.clear(width, height);
      drawOverlay.current(surface, width, height);
    };
    const stop = effect(() => {
      // Reads the overlay's signals without drawing, so that moves within a frame draw once.
      overlay.signals.forEach((signal) => void signal.value);
      if (!waiting) waiting = requestAnimationFrame(show);
    });
    return () => {
      stop();
      cancelAnimationFrame(waiting);
    };
  });
  return html`<div class="canvas" role="img" aria-label=${label} ...${handlers}>
    <canvas ref=${base} /><canvas ref=${above} class="above" />
  </div>`;
}
