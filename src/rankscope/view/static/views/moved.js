/** What moved: matrices by how much a measure changed, with roll-ups by kind and by depth. */

import { html } from "../vendor/index.js";
import { url, useAnswer } from "../data/api.js";
import { capital, plural, short, storedWords, when } from "../data/format.js";
import { detailOf, shownRows } from "../data/run.js";
import { go, state, zoomed } from "../data/state.js";
import { drawRows, LINE, sparkRange } from "../draw/spark.js";
import { chosenQuantity, Heading, Nothing, PartsToggle, QuantitySelect, Spark, TimeControls } from "../ui/controls.js";
import { ExportMenu } from "../ui/export.js";
import { VirtualTable } from "../ui/table.js";
import { ScalarsPanel } from "./scalars.js";

const ROW = 46; // pixels
const MOST = 2500; // rows of the ranking
const EXPORTED = 40; // rows of a ranking
// What the rows of an axis are, one and several.
const NOUNS = { matrix: ["matrix", "matrices"], pair: ["pair", "pairs"], product: ["product", "products"] };
const nounsOf = (quantity) => NOUNS[quantity.axis] ?? ["row", "rows"];

/** The last value of a row, unless it broke before. */
const lastOf = (row) => (row.broke === null ? short(row.last) : "NaN");

function Ranking({ rows, axis, quantity, most }) {
  const head = [
    html`<th class="number rank">#</th><th>${capital(nounsOf(quantity)[0])}</th><th>Over the run</th><th class="number wide-only">First</th>
      <th class="number wide-only">Last</th><th class="number">Moved</th><th class="wide-only"><span class="out-of-sight">Share</span></th>`,
  ];
  const render = (row, i) => {
    const target = detailOf(axis, row);
    const open = () => target && go({ ...target, of: quantity.of, metric: quantity.metric });
    return html`<tr key=${row.row} onClick=${open}>
      <td class="number rank muted">${i + 1}</td>
      <td class="name"><button class="link" data-row data-name=${row.name} onClick=${open}>${row.label}</button><small class="muted">${row.name}</small></td>
      <td><${Spark} values=${row.spark} width=${132} /></td>
      <td class="number wide-only">${short(row.first)}</td>
      <td class="number wide-only">${lastOf(row)}</td>
      <td class="number"><b>${short(row.moved)}</b></td>
      <td class="wide-only share"><div class="extent"><i style=${{ width: `${(100 * (row.moved ?? 0)) / (most || 1)}%` }} /></div></td>
    </tr>`;
  };
  return html`<${VirtualTable} label="Ranking by movement" rows=${rows} rowHeight=${ROW} columns=${7} head=${head} render=${render}
    name=${`${quantity.of} ${quantity.metric}`} />`;
}

/** A menu of exports of rows of names and curves. */
function Exports({ title, panel, rows, request, info }) {
  const size = { width: 760, height: rows.length * LINE + 16 };
  const box = { ...size, plot: { x: 14, y: 4, width: size.width - 28, height: size.height - 8 } };
  return html`<${ExportMenu} title=${title} subtitle=${info.summary.name} request=${() => ({ panel, ...request })} box=${box}
    draw=${(surface, { plot }, colours) => drawRows(surface, plot, rows, colours)} />`;
}

/** Return the rows of an exported ranking. */
const rankingRows = (rows) => rows.slice(0, EXPORTED).map((row, i) => ({
  label: `${i + 1}   ${row.label}`, spark: row.spark, text: `${short(row.first)} → ${lastOf(row)}`, strong: short(row.moved),
}));

const endsOf = (entry) => `${short(entry.first)} → ${short(entry.last)}`;

function Rollup({ title, panel, entries, name, quantity, request, info }) {
  const range = sparkRange(entries.flatMap(({ low, high }) => [low, high]));
  const rows = entries.map((entry) => ({ ...entry, label: name(entry), range, text: endsOf(entry) }));
  return html`<section class="panel rollup" data-panel=${panel}><header><div class="titles"><h2>${title}</h2><p class="note">mean, in a band from least to most</p></div>
      <${Exports} title=${title} panel=${panel} rows=${rows} request=${request} info=${info} /></header>
    <ul>${entries.map((entry) => html`<li key=${name(entry)}>
      <span class="label" title=${name(entry)}>${name(entry)}<small class="muted">${plural(entry.count, ...nounsOf(quantity))}</small></span>
      <${Spark} values=${entry.spark} low=${entry.low} high=${entry.high} range=${range} width=${90} />
      <span class="number">${endsOf(entry)}</span></li>`)}</ul></section>`;
}

export function Moved(context) {
  const { run, info } = context;
  const quantity = chosenQuantity(info);
  const request = quantity && { run, of: quantity.of, metric: quantity.metric, from: state.from.value, to: state.to.value, parts: state.parts.value, limit: MOST };
  const answer = useAnswer(quantity && url("moved", request), [run]);
  if (!quantity) return html`<${Nothing} title="This run stores no spectra"><p>Its scalars and theory are in the other views.</p></${Nothing}>`;
  const data = answer.data;
  const interval = zoomed.value ? `between ${info.along} ${when(context.time.scale.first)} and ${when(context.time.scale.last)}` : "over the whole run";
  const ranked = `${plural(data?.total ?? shownRows(info, quantity.axis).length, ...nounsOf(quantity))}, ranked by how far each moved ${interval}`;
  const note = [ranked, storedWords(data ? { ...data, times: data.x } : {}, info.along)].filter(Boolean).join(" · ");
  return html`<${Heading} title="What moved" note=${note} />
    <div class="bar"><${QuantitySelect} info=${info} quantity=${quantity} />${quantity.axis === "matrix" && html`<${PartsToggle} info=${info} />`}<span class="push" /><${TimeControls} along=${info.along} /></div>
    <${ScalarsPanel} ...${context} />
    ${answer.error && html`<p class="notice" role="alert">${answer.error}</p>`}
    ${data?.damage && html`<p class="notice" role="alert" title=${data.damage}>Parts of this run are damaged and cannot be read.</p>`}
    <div class="moved ${answer.loading ? "loading" : ""}">
      <section class="panel flush ranking" data-panel="moved">
        ${data?.rows?.length > 0 && html`<header><div class="titles"><h2>Ranking</h2><p class="note">click one to open it</p></div>
          <${Exports} title=${`${quantity.label}: what moved`} panel="moved" rows=${rankingRows(data.rows)} request=${request} info=${info} /></header>`}
        ${data?.rows?.length
          ? html`<${Ranking} rows=${data.rows} axis=${quantity.axis} quantity=${quantity} most=${data.rows[0].moved} />`
          : html`<p class="placeholder">${data ? "No values in this interval. Show the whole run." : "Reading…"}</p>`}
      </section>
      <div class="rollups">${data?.rows?.length > 0 && html`
        <${Rollup} title="By kind" panel="kinds" quantity=${quantity} info=${info} request=${request} entries=${data.kinds} name=${(entry) => entry.label} />
        ${data.depths.length > 1 && html`<${Rollup} title="By depth" panel="depths" quantity=${quantity} info=${info} request=${request} entries=${data.depths} name=${(entry) => entry.block} />`}`}
      </div>
    </div>`;
}
