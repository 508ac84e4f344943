/** Colour maps, even in lightness and readable with colour blindness, as tables of 256 pixels. */

import { NOT_A_NUMBER, NOT_STORED, TOP } from "./cells.js";

// 17 colours of matplotlib's maps at equal distances; the tables interpolate between them.
const ANCHORS = {
  viridis:
    "44015448186a472d7b4240863b528b33638d2c728e26828e21918c1fa08828ae803fbc735ec96284d44baddc30d8e219fde725",
  cividis:
    "00224e002e6a1a386f32436d434e6c535a6d61656f6f70737d7c788c88789b9476aba072bcae6ccdbb63dec958f0d846fee838",
  // For ratios: blue below 1, pale at 1, red above.
  ratios:
    "0530611752902a71b23f8ec06bacd19bc9e0c2ddece0ecf3f7f6f6fbe5d8fbccb4f5aa89e48066d05548ba2832930e2667001f",
};

export const MAPS = Object.keys(ANCHORS);

/** Return [red, green, blue] of a map at a share from 0 to 1. */
export function colourAt(map, share) {
  const hex = ANCHORS[map];
  const last = hex.length / 6 - 1;
  const position = Math.max(0, Math.min(1, share)) * last;
  const below = Math.min(Math.floor(position), last - 1);
  const part = position - below;
  return [0, 2, 4].map((channel) => {
    const a = parseInt(hex.substr(6 * below + channel, 2), 16);
    const b = parseInt(hex.substr(6 * below + 6 + channel, 2), 16);
    return Math.round(a + part * (b - a));
  });
}

export function cssColour(map, share) {
  return `rgb(${colourAt(map, share).join(",")})`;
}

/** Return the table of a map: a pixel for every code of a cell. */
export function colourTable(map, { notStored, notANumber }) {
  const table = new Uint32Array(256);
  for (let code = 1; code <= TOP; code++) table[code] = pixel(colourAt(map, (code - 1) / (TOP - 1)));
  table[NOT_STORED] = notStored;
  table[NOT_A_NUMBER] = notANumber;
  return table;
}

/** Return [red, green, blue] as a pixel of canvas data, which browsers keep little-endian. */
export function pixel([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** Return [red, green, blue] of "rgb(...)" or "#rrggbb". */
export function channels(colour) {
  if (colour.startsWith("#")) return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return colour.match(/[\d.]+/g).slice(0, 3).map(Number);
}

/** Return `count` colours for things in an order, from dark to light, all visible on the page. */
export function shades(count, theme) {
  const [low, high] = theme === "dark" ? [0.3, 1] : [0, 0.86];
  return Array.from({ length: count }, (_, i) =>
    cssColour("viridis", low + ((high - low) * i) / Math.max(1, count - 1)),
  );
}
