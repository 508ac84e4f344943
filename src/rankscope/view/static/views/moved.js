/** What moved: matrices by how much a measure changed, with roll-ups by kind and by depth. */

import { html } from "../vendor/index.js";
import { url, useAnswer } from "../data/api.js";
import { count, plural, short, when } from "../data/format.js";
import { detailOf, shownRows } from "../data/run.js";
import { go, state, zoomed } from "../data/state.js";
import { chosenQuantity, Heading, Nothing, PartsToggle, QuantitySelect, Spark, TimeControls } from "../ui/controls.js";
import { ExportMenu } from "../ui/export.js";
import { VirtualTable } from "../ui/table.js";
import { ScalarsPanel } from "./scalars.js";

const ROW = 46; // pixels
const MOST = 2500; // rows of the ranking
const EXPORTED = 40, LINE = 26; // rows of an exported ranking, and their pixels

/** The last value of a row, unless it broke before. */
const lastOf = (row) => (row.broke === null ? short(row.last) : "NaN");

const range = (rows) => {
  let low = Infinity, high = -Infinity;
  for (const row of rows) {
    if (Number.isFinite(row.low)) low = Math.min(low, row.low);
    if (Number.isFinite(row.high)) high = Math.max(high, row.high);
  }
  return low < high ? [low, high] : undefined;
};

function Ranking({ rows, axis, quantity, most }) {
  const head = [
    html`<th class="number rank">#</th><th>Matrix</th><th>Over the run</th><th class="number wide-only">First</th>
      <th class="number wide-only">Last</th><th class="number">Moved</th><th class="wide-only"><span class="out-of-sight">Share</span></th>`,
  ];
  const render = (row, i) => {
    const target = detailOf(axis, row);
    const open = () => target && go({ ...target, of: quantity.of, metric: quantity.metric });
    return html`<tr key=${row.row} onClick=${open}>
      <td class="number rank muted">${i + 1}</td>
      <td class="name"><button class="link" data-row data-name=${row.name} onClick=${open}>${row.label}</button><small class="muted">${row.name}</small></td>
      <td><${Spark} values=${row.spark} width=${132} height=${30} /></td>
      <td class="number wide-only">${short(row.first)}</td>
      <td class="number wide-only">${lastOf(row)}</td>
      <td class="number"><b>${short(row.moved)}</b></td>
      <td class="wide-only share"><div class="extent"><i style=${{ width: `${(100 * (row.moved ?? 0)) / (most || 1)}%` }} /></div></td>
    </tr>`;
  };
  return html`<${VirtualTable} label="Matrices by movement" rows=${rows} rowHeight=${ROW} columns=${7} head=${head} render=${render}
    name=${`${quantity.of} ${quantity.metric}`} />`;
}

/** Draw the ranking for export: a line of text and a small curve per matrix. */
function drawRanking(surface, { plot }, rows, colours) {
  const [left, right] = [plot.x, plot.x + plot.width];
  rows.forEach((row, i) => {
    const top = plot.y + i * LINE, middle = top + LINE / 2;
    surface.text(String(i + 1), left, middle, { colour: colours.muted });
    surface.text(row.label, left + 28, middle, { colour: colours.ink });
    const known = row.spark.filter(Number.isFinite);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const points = row.spark.flatMap((value, j) => [
      right - 260 + (j / Math.max(1, row.spark.length - 1)) * 110,
      value === null ? NaN : top + LINE - 4 - ((value - low) / (high - low || 1)) * (LINE - 8),
    ]);
    surface.path(points, { colour: colours.accent, width: 1.5 });
    surface.text(`${short(row.first)} → ${lastOf(row)}`, right - 64, middle, { colour: colours.muted, align: "right" });
    surface.text(short(row.moved), right, middle, { colour: colours.ink, align: "right", weight: 600 });
  });
}

function Exports({ rows, request, title, info }) {
  const shown = rows.slice(0, EXPORTED);
  const size = { width: 760, height: shown.length * LINE + 16 };
  const box = { ...size, plot: { x: 14, y: 4, width: size.width - 28, height: size.height - 8 } };
  return html`<${ExportMenu} title=${title} subtitle=${info.summary.name} request=${() => ({ panel: "moved", ...request })} box=${box}
    draw=${(surface, place, colours) => drawRanking(surface, place, shown, colours)} />`;
}

function Rollup({ title, panel, entries, name, request, info }) {
  const shared = range(entries.map(({ low, high }) => ({ low: Math.min(...low.filter(Number.isFinite)), high: Math.max(...high.filter(Number.isFinite)) })));
  return html`<section class="panel rollup" data-panel=${panel}><header><div class="titles"><h2>${title}</h2><p class="note">mean, in a band from least to most</p></div>
      <${ExportMenu} title=${title} subtitle=${info.summary.name} request=${() => ({ panel, ...request })} /></header>
    <ul>${entries.map((entry) => html`<li key=${name(entry)}>
      <span class="label" title=${name(entry)}>${name(entry)}<small class="muted">${plural(entry.count, "matrix").replace(/matrixs$/, "matrices")}</small></span>
      <${Spark} values=${entry.spark} low=${entry.low} high=${entry.high} range=${shared} width=${90} height=${30} />
      <span class="number">${short(entry.first)} → ${short(entry.last)}</span></li>`)}</ul></section>`;
}

export function Moved(context) {
  const { run, info } = context;
  const quantity = chosenQuantity(info);
  const request = quantity && { run, of: quantity.of, metric: quantity.metric, from: state.from.value, to: state.to.value, parts: state.parts.value, limit: MOST };
  const answer = useAnswer(quantity && url("moved", request), [run]);
  if (!quantity) return html`<${Nothing} title="This run stores no spectra"><p>Its scalars and theory are in the other views.</p></${Nothing}>`;
  const data = answer.data;
  const interval = zoomed.value ? `between ${info.along} ${when(context.time.scale.first)} and ${when(context.time.scale.last)}` : "over the whole run";
  const note = `${count(data?.total ?? shownRows(info, quantity.axis).length)} rows, ranked by how far each moved ${interval}`;
  return html`<${Heading} title="What moved" note=${note} />
    <div class="bar"><${QuantitySelect} info=${info} quantity=${quantity} />${quantity.axis === "matrix" && html`<${PartsToggle} info=${info} />`}<span class="push" /><${TimeControls} along=${info.along} /></div>
    <${ScalarsPanel} ...${context} />
    ${answer.error && html`<p class="notice" role="alert">${answer.error}</p>`}
    ${data?.damage && html`<p class="notice" role="alert" title=${data.damage}>Parts of this run are damaged and cannot be read.</p>`}
    <div class="moved ${answer.loading ? "loading" : ""}">
      <section class="panel flush ranking" data-panel="moved">
        ${data?.rows?.length > 0 && html`<header><div class="titles"><h2>Ranking</h2><p class="note">click one to open it</p></div>
          <${Exports} rows=${data.rows} request=${request} title=${`${quantity.label}: what moved`} info=${info} /></header>`}
        ${data?.rows?.length
          ? html`<${Ranking} rows=${data.rows} axis=${quantity.axis} quantity=${quantity} most=${data.rows[0].moved} />`
          : html`<p class="placeholder">${data ? "No values in this interval. Show the whole run." : "Reading…"}</p>`}
      </section>
      <div class="rollups">${data?.rows?.length > 0 && html`
        <${Rollup} title="By kind" panel="kinds" info=${info} request=${request} entries=${data.kinds} name=${(entry) => entry.label} />
        ${data.depths.length > 1 && html`<${Rollup} title="By depth" panel="depths" info=${info} request=${request} entries=${data.depths} name=${(entry) => entry.block} />`}`}
      </div>
    </div>`;
}
