/** What the colours and lines of a picture mean, as elements of the page. */

import { html, useLayoutEffect, useRef } from "../vendor/index.js";
import { cssColour } from "../draw/colours.js";
import { BAR, endsOf, LINE } from "../draw/legend.js";

/** A colour bar with its ends and unit, and what stands for cells without a value. */
function ScaleBar({ map, kind, label, notStored, notANumber, ...ends }) {
  const [low, high] = endsOf(ends);
  const canvas = useRef(null);
  useLayoutEffect(() => {
    const context = canvas.current.getContext("2d");
    for (let x = 0; x < BAR.width; x++) {
      context.fillStyle = cssColour(map, x / (BAR.width - 1));
      context.fillRect(x, 0, 1, BAR.height);
    }
  }, [map]);
  return html`<span class="scale">${label && html`<em class="unit">${label}</em>`}
    <span>${low}</span><canvas ref=${canvas} ...${BAR} role="img" aria-label=${`${map} colour scale`} />
    <span>${high}</span>${kind === "log" && html`<span>log</span>`}
    ${notStored && html`<span><i class="not-stored" />not stored</span>`}${notANumber && html`<span><i class="not-a-number" />NaN</span>`}</span>`;
}

/** entries: [{text, colour, dash}], without colour for words alone. scale: {map, low, high, kind, label}. */
export function Legend({ entries = [], scale }) {
  return html`${entries.map(({ text, colour, dash = [] }) => html`<span>${colour && html`<svg width=${LINE} height="4" aria-hidden="true">
      <path d=${`M0 2H${LINE}`} stroke=${colour} stroke-width="2" stroke-dasharray=${dash.join(" ")} /></svg>`}${text}</span>`)}
    ${scale && html`<${ScaleBar} ...${scale} />`}`;
}
