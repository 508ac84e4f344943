/** A panel as PNG, SVG, CSV, and as the Python lines that reproduce it; a table has no picture. */

import { html, signal, useRef } from "../vendor/index.js";
import { load, url } from "../data/api.js";
import { capital } from "../data/format.js";
import { drawLegend } from "../draw/legend.js";
import { palette } from "../draw/palette.js";
import { CanvasSurface, SvgSurface } from "../draw/surface.js";

const HEAD = 54; // pixels of title and legend above an exported picture
const SCALE = 2;

/** The Python lines that are shown, or null. */
export const shownLines = signal(null);

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function drawWhole(surface, { title, subtitle, draw, overlay, legend, box }) {
  const colours = palette.peek();
  surface.clear(box.width, box.height + HEAD, colours.surface);
  title = capital(title);
  surface.text(title, 12, 15, { colour: colours.ink, size: 14, weight: 600 });
  const after = 24 + surface.measure(title, 14, 600);
  if (subtitle) surface.text(subtitle, after, 15.5, { colour: colours.muted, size: 11 });
  if (legend) drawLegend(surface, legend, { x: 12, y: 36, right: box.width - 12 }, colours);
  draw(shifted(surface), box, colours);
  overlay?.(shifted(surface), box);
}

/** A surface whose drawings stand below the title. */
function shifted(surface) {
  const down = (points) => points.map((value, i) => (i % 2 ? value + HEAD : value));
  return {
    ratio: surface.ratio,
    measure: (...values) => surface.measure(...values),
    rect: (x, y, ...rest) => surface.rect(x, y + HEAD, ...rest),
    path: (points, style) => surface.path(down(points), style),
    area: (points, ...rest) => surface.area(down(points), ...rest),
    dot: (x, y, ...rest) => surface.dot(x, y + HEAD, ...rest),
    text: (text, x, y, style) => surface.text(text, x, y + HEAD, style),
    image: (canvas, x, y, ...rest) => surface.image(canvas, x, y + HEAD, ...rest),
    clipped: (x, y, ...rest) => surface.clipped(x, y + HEAD, ...rest),
  };
}

function savePng(props, name) {
  const canvas = document.createElement("canvas");
  canvas.width = props.box.width * SCALE;
  canvas.height = (props.box.height + HEAD) * SCALE;
  drawWhole(new CanvasSurface(canvas.getContext("2d"), SCALE), props);
  canvas.toBlob((blob) => save(blob, `${name}.png`));
}

function saveSvg(props, name) {
  const surface = new SvgSurface();
  drawWhole(surface, props);
  const text = surface.file(props.box.width, props.box.height + HEAD);
  save(new Blob([text], { type: "image/svg+xml" }), `${name}.svg`);
}

async function saveCsv({ request }, name) {
  const text = await load(url("export", { ...request(), file: "csv" }));
  save(new Blob([text], { type: "text/csv" }), `${name}.csv`);
}

async function showPython({ request, title }) {
  const lines = await load(url("export", { ...request(), file: "python" })).catch((error) => `# ${error.message}`);
  shownLines.value = { title: capital(title), lines };
}

const fileName = (title) =>
  String(title).toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "panel";

/**
 * A menu of exports.
 *
 * request() returns the parameters of /api/export at this moment. draw and overlay are those of the
 * panel, legend what drawLegend takes; a table has none of them.
 */
export function ExportMenu(props) {
  const menu = useRef(null);
  const name = fileName(`${props.title} ${props.subtitle ?? ""}`);
  const choose = (action) => async () => {
    menu.current.open = false;
    try {
      await action(props, name);
    } catch (error) {
      shownLines.value = { title: "Export", lines: error.message };
    }
  };
  const leave = (event) => {
    if (!menu.current.contains(event.relatedTarget)) menu.current.open = false;
  };
  const escape = (event) => {
    if (event.key !== "Escape" || !menu.current.open) return;
    event.stopPropagation();
    menu.current.open = false;
    menu.current.firstElementChild.focus();
  };
  return html`<details class="menu" ref=${menu} onFocusOut=${leave} onKeyDown=${escape}>
    <summary aria-label=${`Export ${props.title}`}>Export</summary>
    <div class="items">
      ${props.draw && html`<button onClick=${choose(savePng)}>PNG</button><button onClick=${choose(saveSvg)}>SVG</button>`}
      <button onClick=${choose(saveCsv)}>CSV</button>
      <button onClick=${choose(showPython)}>Python</button>
    </div>
  </details>`;
}
