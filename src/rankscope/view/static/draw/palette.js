/** The colours of the page's theme, for canvases. */

import { computed } from "../vendor/index.js";
import { dark } from "../data/state.js";

const NAMES = ["ink", "muted", "faint", "line", "surface", "accent", "warm", "missing"];

// Okabe and Ito's colours, readable with colour blindness; darker or paler by theme.
const CATEGORIES = {
  light: ["#0b6e8a", "#d55e00", "#7a5aa6", "#1f8a5f", "#b8467f", "#a67c00", "#5b6673", "#3579c4"],
  dark: ["#5cc3de", "#f0955a", "#b79be0", "#5fc99b", "#e58ab8", "#dcb545", "#a5b0bd", "#7fb2f0"],
};

/** The theme's colours as a browser resolves them: {ink, muted, ..., categories}. */
export const palette = computed(() => {
  const theme = dark.value ? "dark" : "light";
  const probe = document.createElement("span");
  document.body.append(probe);
  const colours = { theme, categories: CATEGORIES[theme] };
  for (const name of NAMES) {
    probe.style.color = `var(--${name})`;
    colours[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return colours;
});
