/** What the colours and lines of a picture mean, on the page and in exported files. */

import { html, useLayoutEffect, useRef } from "../vendor/index.js";
import { short } from "../data/format.js";
import { cssColour } from "../draw/colours.js";

const BAR = { width: 120, height: 10 }, LINE = 18; // pixels
const GAP = 14; // pixels between entries of an exported legend

/** A colour bar with its ends and unit. */
function ScaleBar({ map, low, high, kind, label }) {
  const canvas = useRef(null);
  useLayoutEffect(() => {
    const context = canvas.current.getContext("2d");
    for (let x = 0; x < BAR.width; x++) {
      context.fillStyle = cssColour(map, x / (BAR.width - 1));
      context.fillRect(x, 0, 1, BAR.height);
    }
  }, [map]);
  return html`<span class="scale">${label && html`<em class="unit">${label}</em>`}
    <span>${short(low)}</span><canvas ref=${canvas} ...${BAR} role="img" aria-label=${`${map} colour scale`} />
    <span>${short(high)}</span>${kind === "log" && html`<span>log</span>`}
    <span><i class="none" />no value</span></span>`;
}

/** entries: [{text, colour, dash}], without colour for words alone. scale: {map, low, high, kind, label}. */
export function Legend({ entries = [], scale }) {
  return html`${entries.map(({ text, colour, dash = [] }) => html`<span>${colour && html`<svg width=${LINE} height="4" aria-hidden="true">
      <path d=${`M0 2H${LINE}`} stroke=${colour} stroke-width="2" stroke-dasharray=${dash.join(" ")} /></svg>`}${text}</span>`)}
    ${scale && html`<${ScaleBar} ...${scale} />`}`;
}

/** Draw a legend from `x` on, as far as there is room up to `right`. */
export function drawLegend(surface, { entries = [], scale }, { x, y, right }, colours) {
  const style = { colour: colours.muted, size: 11 };
  for (const { text, colour, dash } of entries) {
    const before = colour ? LINE + 6 : 0;
    const end = x + before + surface.measure(text);
    if (end > right) return;
    if (colour) surface.path([x, y, x + LINE, y], { colour, width: 2, dash });
    surface.text(text, x + before, y, style);
    x = end + GAP;
  }
  if (!scale) return;
  const write = (text) => {
    surface.text(text, x, y, style);
    x += surface.measure(text) + 6;
  };
  if (scale.label) write(scale.label);
  write(short(scale.low));
  for (let i = 0; i < BAR.width; i++) {
    surface.rect(x + i, y - BAR.height / 2, 1.5, BAR.height, cssColour(scale.map, i / (BAR.width - 1)));
  }
  x += BAR.width + 6;
  write(short(scale.high) + (scale.kind === "log" ? " log" : ""));
}
