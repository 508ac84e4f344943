/** The overview in a notebook cell: scalars, a heat map and what moved, from one frame. */

import { decode, storedColumns } from "./data/frame.js";
import { orNotStored, short, storedWords, when } from "./data/format.js";
import { drawHeat, fieldOf, layoutRows, rowAt } from "./draw/heat.js";
import { drawLegend } from "./draw/legend.js";
import { drawLines } from "./draw/lines.js";
import { CanvasSurface } from "./draw/surface.js";
import { nearest, timeScale } from "./draw/time.js";

const THEMES = {
  light: {
    ink: "#16191d", muted: "#5a636e", faint: "#b4bbc4", line: "#e7eaee", surface: "rgb(255,255,255)", missing: "rgb(217,220,224)",
    accent: "#0b6e8a", categories: ["#0b6e8a", "#d55e00", "#7a5aa6", "#1f8a5f"],
  },
  dark: {
    ink: "#e6e9ec", muted: "#9aa4af", faint: "#545d68", line: "#262b31", surface: "rgb(21,24,28)", missing: "rgb(58,64,72)",
    accent: "#5cc3de", categories: ["#5cc3de", "#f0955a", "#b79be0", "#5fc99b"],
  },
};
const PADDING = 14, WIDE = 560, GUTTER = 172, NARROW = 96, RIGHT = 14, SCALARS = 110, ROW = 18, MOST_HEIGHT = 420, MOST_SCALARS = 3, MOST_MOVED = 8;

function element(tag, className, parent, text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  parent.append(made);
  return made;
}

function canvas(parent, width, height) {
  const made = element("canvas", "rankscope-canvas", parent);
  const ratio = devicePixelRatio || 1;
  made.width = Math.round(width * ratio);
  made.height = Math.round(height * ratio);
  made.style.width = `${width}px`;
  made.style.height = `${height}px`;
  return [made, new CanvasSurface(made.getContext("2d"), ratio)];
}

/** Return the theme that the model names, else that of the page around it. */
function themeOf(model, place) {
  const wanted = model.get("theme");
  if (wanted in THEMES) return wanted;
  for (let around = place; around; around = around.parentElement) {
    const [red, green, blue, opacity = 1] = getComputedStyle(around).backgroundColor.match(/[\d.]+/g)?.map(Number) ?? [];
    if (opacity > 0.5) return red + green + blue < 1.5 * 255 ? "dark" : "light";
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Return the data as the drawings want it. */
function prepared(view) {
  const { buffer, byteOffset, byteLength } = view;
  const { meta, arrays } = decode(buffer.slice(byteOffset, byteOffset + byteLength));
  const { x, positions, heat: values } = arrays;
  const { times, ...stored } = storedColumns({ meta, arrays: { values, x } });
  const scale = timeScale({ x, positions, kind: "snapshots", from: null, to: null });
  const names = meta.scalar_names ?? [];
  const scalars = names.map((label, i) => ({ label, x, y: arrays.scalars.subarray(i * x.length, (i + 1) * x.length) }));
  return { meta, x, times, heatX: stored.arrays.x, scale, field: fieldOf(stored), rows: meta.rows_info, scalars: scalars.slice(0, MOST_SCALARS) };
}

function drawAll(root, data, colours) {
  root.replaceChildren();
  const width = Math.max(320, Math.floor((root.clientWidth || 720) - 2 * PADDING));
  const { meta, x, times, heatX, scale, field, rows } = data;
  element("div", "rankscope-title", root, meta.title);
  element("div", "rankscope-note", root, [`${meta.metric_label}, ${meta.along} ${when(x[0])} to ${when(x[x.length - 1])}`, storedWords(times, meta.along)].filter(Boolean).join(" · "));
  const left = width < WIDE ? NARROW : GUTTER;
  const plotWidth = width - left - RIGHT;
  if (data.scalars.length) {
    const [, surface] = canvas(root, width, SCALARS);
    const series = data.scalars.map((one, i) => ({ ...one, colour: colours.categories[i] }));
    const positive = series.every(({ y }) => y.every((value) => value !== value || value > 0));
    drawLines(surface, { x: left, y: 6, width: plotWidth, height: SCALARS - 30 }, scale, { series, kind: positive ? "log" : "linear", colours });
    series.forEach((one, i) => surface.text(one.label, 8, 16 + 16 * i, { colour: one.colour }));
  }
  const height = Math.min(MOST_HEIGHT, Math.max(80, rows.length * ROW));
  const [map, surface] = canvas(root, width, height + 56);
  const layout = layoutRows(rows.map((row) => row.block), height);
  const plot = { x: left, y: 4, width: plotWidth, height };
  const order = Uint32Array.from(rows, (_, i) => i);
  drawHeat(surface, plot, scale, { field, x: heatX, layout, order, labels: rows.map((row) => row.label), map: "viridis", colours, timeLabel: meta.along });
  drawLegend(surface, { scale: { map: "viridis", ...field } }, { x: left, y: height + 44, right: width }, colours);
  const readout = element("div", "rankscope-note", root, "\u00a0");
  map.addEventListener("pointermove", (event) => {
    const row = rowAt(layout, event.offsetY - plot.y);
    const share = (event.offsetX - plot.x) / plot.width;
    if (row < 0 || share < 0 || share > 1) return;
    const at = scale.fromUnit(share), i = nearest(heatX, at), value = field.value(row, i);
    const shown = value === undefined ? x[nearest(x, at)] : heatX[i];
    readout.textContent = `${rows[row].label} · ${meta.along} ${when(shown)} · ${orNotStored(value)}`;
  });
  listMoved(root, meta);
}

function listMoved(root, { moved }) {
  const rows = (moved?.rows ?? []).slice(0, MOST_MOVED);
  if (!rows.length) return;
  const table = element("table", "rankscope-moved", root);
  const head = element("tr", "", element("thead", "", table));
  for (const text of ["What moved", "first", "last", "moved"]) element("th", "", head, text);
  const body = element("tbody", "", table);
  for (const row of rows) {
    const line = element("tr", "", body);
    const last = row.broke === null ? short(row.last) : "NaN";
    for (const text of [row.label, short(row.first), last, short(row.moved)]) element("td", "", line, text);
  }
}

function render({ model, el }) {
  const root = element("div", "rankscope-widget", el);
  let theme = null;
  const draw = () => {
    theme = themeOf(model, el);
    root.className = `rankscope-widget rankscope-${theme}`;
    drawAll(root, prepared(model.get("overview")), THEMES[theme]);
  };
  let frame = requestAnimationFrame(draw);
  const again = () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(draw);
  };
  model.on?.("change:overview", again);
  let width = 0;
  const observer = new ResizeObserver(() => {
    if (root.clientWidth !== width) again();
    width = root.clientWidth;
  });
  observer.observe(root);
  // Notebooks mark their theme on the body, and change it while they are open.
  const themes = new MutationObserver(() => themeOf(model, el) !== theme && again());
  themes.observe(document.body, { attributes: true });
  return () => {
    cancelAnimationFrame(frame);
    observer.disconnect();
    themes.disconnect();
    model.off?.("change:overview", again);
  };
}

export default { render };
