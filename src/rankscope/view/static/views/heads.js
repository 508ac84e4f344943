/** Heads: K-Q and V-O products of every layer and head as small multiples, and one head's spectrum. */

import { html, useMemo } from "../vendor/index.js";
import { url, useAnswer } from "../data/api.js";
import { orNotStored, short, storedWords, when } from "../data/format.js";
import { storedColumns, valueAt } from "../data/frame.js";
import { shownInterval, windowOf } from "../data/run.js";
import { state } from "../data/state.js";
import { extent } from "../draw/axes.js";
import { drawCurve, linePoints } from "../draw/lines.js";
import { palette } from "../draw/palette.js";
import { nearest } from "../draw/time.js";
import { chosenQuantity, Heading, Nothing, QuantitySelect, Segments, TimeControls } from "../ui/controls.js";
import { Panel } from "../ui/panel.js";
import { PlayButton } from "../ui/play.js";
import { cursorOf, setCursor, timeOf } from "../ui/timepanel.js";
import { chosenRow, RowSelect } from "./matrix.js";
import { EnergyPanel, ImagePanel, SpectrumPanel, useExact, useSpectra } from "./spectra.js";

const KINDS = { kq: "K-Q", vo: "V-O", lora: "LoRA" };
const CELL = 58; // pixels of height
const HEAD = 18; // pixels above the cells

const ofProducts = (quantity) => quantity.axis === "product";

/** Return the place of a cell. */
function cellPlot({ plot }, columns, line, column) {
  const width = plot.width / columns;
  return { x: plot.x + column * width + 2, y: plot.y + line * CELL + 3, width: width - 4, height: CELL - 6 };
}

function GridPanel({ run, info, time, quantity, selected }) {
  const request = { run, of: quantity.of, metric: quantity.metric, ...windowOf(info, 1024) };
  const answer = useAnswer(url("heads", request), [run]);
  const data = useMemo(() => answer.data && storedColumns(answer.data), [answer.data]);
  const kinds = data?.meta.kinds ?? [];
  const kind = kinds.includes(state.heads.value) ? state.heads.value : kinds[0];
  const cells = (data?.meta.grid ?? []).filter((cell) => cell.kind === kind);
  const layers = [...new Set(cells.map(({ layer }) => layer))].sort((a, b) => a - b);
  const heads = [...new Set(cells.map(({ head }) => head))].sort((a, b) => a - b);
  const x = data?.arrays.x;
  const valuesOf = (cell) => data.arrays.values.subarray(cell.row * x.length, (cell.row + 1) * x.length);
  const [low, high] = data ? extent(cells.map(valuesOf), quantity.scale) : [0, 1];
  const height = HEAD + Math.max(1, layers.length) * CELL + 6;
  const scaleIn = (plot) => {
    const f = quantity.scale === "log" ? Math.log10 : (value) => value;
    return { place: (value) => plot.y + plot.height * (1 - (f(value) - f(low)) / (f(high) - f(low) || 1)) };
  };
  const placed = (box) => cells.map((cell) => ({
    cell, plot: cellPlot(box, heads.length, layers.indexOf(cell.layer), heads.indexOf(cell.head)),
  }));
  const under = (px, py, box) => placed(box).find(({ plot }) => px >= plot.x && px < plot.x + plot.width && py >= plot.y && py < plot.y + plot.height);
  const draw = (surface, box, colours) => {
    const words = (part, value) => cells.find((cell) => cell[part] === value)?.label.split(", ").find((word) => word.startsWith(part)) ?? `${part} ${value}`;
    layers.forEach((layer, i) => surface.text(words("layer", layer), box.plot.x - 8, box.plot.y + (i + 0.5) * CELL, { colour: colours.muted, align: "right" }));
    const every = Math.ceil((48 * heads.length) / box.plot.width);
    heads.forEach((head, i) => {
      if (i % every === 0) surface.text(words("head", head), cellPlot(box, heads.length, 0, i).x, box.plot.y - 8, { colour: colours.muted });
    });
    for (const { cell, plot } of placed(box)) {
      surface.rect(plot.x, plot.y, plot.width, plot.height, colours.line, cell.name === selected?.name ? 1 : 0.45);
      const points = linePoints(x, valuesOf(cell), [0, x.length], time.scale, scaleIn(plot), plot);
      surface.clipped(plot.x, plot.y, plot.width, plot.height, () => drawCurve(surface, points, { colour: colours.accent }));
      if (cell.name === selected?.name) {
        const { x: left, y: top, width, height: tall } = plot;
        surface.path([left, top, left + width, top, left + width, top + tall, left, top + tall, left, top], { colour: colours.accent, width: 1.5 });
      }
    }
  };
  const overlay = (surface, box) => {
    const at = cursorOf(time), colours = palette.peek();
    const i = nearest(x, at);
    for (const { cell, plot } of placed(box)) {
      const px = plot.x + time.scale.toUnit(at) * plot.width;
      if (px < plot.x - 1 || px > plot.x + plot.width + 1) continue;
      surface.path([px, plot.y, px, plot.y + plot.height], { colour: colours.ink, width: 1, opacity: 0.5 });
      const value = valueAt(data, cell.row, i);
      if (value === value) surface.dot(px, scaleIn(plot).place(value), 2.5, colours.accent);
      if (plot.width > 52) {
        const text = orNotStored(value), wide = surface.measure(text, 10) + 6;
        surface.rect(plot.x + plot.width - wide, plot.y + 1, wide - 1, 15, colours.surface, 0.8);
        surface.text(text, plot.x + plot.width - 4, plot.y + 9, { colour: colours.ink, size: 10, align: "right" });
      }
    }
  };
  const move = (px, py, box) => {
    const hit = under(px, py, box);
    if (hit) setCursor(time, time.scale.fromUnit((px - hit.plot.x) / hit.plot.width));
  };
  const tip = (px, py, box) => {
    const hit = under(px, py, box);
    if (!hit) return null;
    const i = nearest(x, cursorOf(time)), value = valueAt(data, hit.cell.row, i);
    return [[hit.cell.label], [quantity.label, orNotStored(value)], [info.along, when(timeOf(value, x[i], time))]];
  };
  const legend = data && { entries: [{ text: `all cells from ${short(low)} to ${short(high)}${quantity.scale === "log" ? " (log)" : ""}` }] };
  return html`<div class="bar"><${QuantitySelect} info=${info} quantity=${quantity} allowed=${ofProducts} />
      ${kinds.length > 1 && html`<${Segments} label="Products" value=${kind} options=${kinds.map((one) => [one, KINDS[one] ?? one])} onChange=${(value) => (state.heads.value = value)} />`}
      <span class="push" /><${TimeControls} along=${info.along} /></div>
    <${Panel} name="heads" title=${`${quantity.label} of ${KINDS[kind] ?? "products"}`} note=${[storedWords(data?.times ?? {}, info.along), quantity.group, `a line per head over ${info.along}`, "click one"].filter(Boolean).join(" · ")} legend=${legend}
      height=${height} margins=${{ gutter: 64, narrow: 52, top: HEAD, bottom: 4 }} answer=${answer} onMove=${move} tip=${data && tip}
      pick=${(px, py, box) => {
        const hit = under(px, py, box);
        if (hit) state.product.value = hit.cell.name;
      }}
      exports=${{ request: () => ({ panel: "heads", ...request, ...shownInterval(), width: null }), subtitle: info.summary.name, above: true }}
      signals=${[state.at]} overlay=${data && overlay} draw=${data && draw} label=${`${quantity.label} of every head`} />`;
}

export function Heads({ run, info, time }) {
  const rows = info.axes.product?.rows ?? [];
  const quantity = chosenQuantity(info, ofProducts);
  const row = chosenRow(rows, state.product.value);
  const stored = info.spectra.filter((spectra) => spectra.axis === "product");
  const whole = stored.find((spectra) => !spectra.change_of) ?? stored[0];
  const changes = stored.find((spectra) => spectra.change_of === whole?.of);
  const main = useSpectra(run, info, whole?.of, row);
  const change = useSpectra(run, info, changes?.of, row);
  const exact = useExact(run, time, main.spectra, row);
  if (!row || !quantity) {
    return html`<${Nothing} title="This run has no products of heads"><p>A tracker follows every attention head that it can read. The run says how each matrix was read:</p>
      <p class="code">print(rs.open(path).attrs["coverage"])</p></${Nothing}>`;
  }
  const context = { run, info, time };
  return html`<${Heading} title="Heads" note="What each attention head multiplies by: queries with keys, values with outputs" />
    <${GridPanel} ...${context} quantity=${quantity} selected=${row} />
    <div class="bar"><h2 class="section">One head</h2><${RowSelect} label="Head" rows=${rows} row=${row} onChange=${(name) => (state.product.value = name)} /><${PlayButton} /></div>
    <div class="columns"><${SpectrumPanel} ...${context} ...${main} change=${change.spectra} exact=${exact} />
      <${EnergyPanel} ...${context} ...${main} change=${change.spectra} /></div>
    <${ImagePanel} ...${context} ...${main} title=${`Singular values of ${row.label}`} />`;
}
