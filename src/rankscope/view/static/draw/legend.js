/** What the colours and lines of a picture mean, drawn beside it. */

import { short } from "../data/format.js";
import { cssColour } from "./colours.js";

export const BAR = { width: 120, height: 10 }, LINE = 18; // pixels
const GAP = 14, SWATCH = 10; // pixels

/** Return the ends of a scale in words. */
export const endsOf = ({ low, high, below, above }) => [`${below ? "≤ " : ""}${short(low)}`, `${above ? "≥ " : ""}${short(high)}`];

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
  const [low, high] = endsOf(scale);
  write(low);
  for (let i = 0; i < BAR.width; i++) {
    surface.rect(x + i, y - BAR.height / 2, 1.5, BAR.height, cssColour(scale.map, i / (BAR.width - 1)));
  }
  x += BAR.width + 6;
  write(high + (scale.kind === "log" ? " log" : ""));
  const swatch = (draw, text) => {
    x += GAP / 2;
    draw(x, y - SWATCH / 2);
    x += SWATCH + 6;
    write(text);
  };
  if (scale.notStored) swatch((left, top) => surface.rect(left, top, SWATCH, SWATCH, colours.missing), "not stored");
  if (scale.notANumber) swatch((left, top) => drawHatched(surface, left, top, colours), "NaN");
}

function drawHatched(surface, x, y, colours) {
  surface.clipped(x, y, SWATCH, SWATCH, () => {
    for (let shift = 0; shift <= 2 * SWATCH; shift += 4) {
      surface.path([x + shift, y, x + shift - SWATCH, y + SWATCH], { colour: colours.muted, width: 1.4 });
    }
  });
}
