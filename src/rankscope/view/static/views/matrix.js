/** One matrix: all its singular values over time, its spectrum at the cursor, its energy. */

import { html, useMemo } from "../vendor/index.js";
import { url, useAnswer } from "../data/api.js";
import { count, orNotStored, storedWords, when } from "../data/format.js";
import { storedColumns, valueAt } from "../data/frame.js";
import { shownInterval, windowOf } from "../data/run.js";
import { state } from "../data/state.js";
import { drawLines } from "../draw/lines.js";
import { palette } from "../draw/palette.js";
import { nearest } from "../draw/time.js";
import { chosenQuantity, Heading, Nothing, QuantitySelect, Segments, Select, TimeControls } from "../ui/controls.js";
import { PlayButton } from "../ui/play.js";
import { cursorOf, timeOf, TimePanel } from "../ui/timepanel.js";
import { EnergyPanel, ImagePanel, PercentilePanel, RankPanel, SpectrumPanel, useExact, useSpectra } from "./spectra.js";

/** Return the row that the address names, or the first. */
export function chosenRow(rows, name) {
  return rows.find((row) => row.name === name) ?? rows[0] ?? null;
}

/** Choose a row of an axis, or step to its neighbours. */
export function RowSelect({ label, rows, row, onChange }) {
  const groups = new Map();
  for (const one of rows) {
    if (!groups.has(one.block)) groups.set(one.block, []);
    groups.get(one.block).push([one.name, one.label]);
  }
  const at = rows.indexOf(row);
  const step = (by) => () => onChange(rows[(at + by + rows.length) % rows.length].name);
  return html`<span class="choice"><button class="button icon" aria-label=${`Previous ${label}`} data-step="previous" onClick=${step(-1)}>‹</button>
    <${Select} label=${label} hideLabel value=${row.name} groups=${[...groups]} onChange=${onChange} />
    <button class="button icon" aria-label=${`Next ${label}`} data-step="next" onClick=${step(1)}>›</button></span>`;
}

function MetricPanel({ run, info, time, row }) {
  const allowed = (quantity) => quantity.axis === "matrix";
  const quantity = chosenQuantity(info, allowed);
  const request = quantity && { run, of: quantity.of, metric: quantity.metric, matrix: row.name, ...windowOf(info, 2048) };
  const answer = useAnswer(request && url("lines", request), [run]);
  const data = useMemo(() => answer.data && storedColumns(answer.data), [answer.data]);
  if (!quantity) return null;
  const series = data ? [{ x: data.arrays.x, y: data.arrays.values, colour: palette.value.accent, width: 2 }] : [];
  const tip = () => {
    const i = nearest(data.arrays.x, cursorOf(time)), value = valueAt(data, 0, i);
    return [[info.along, when(timeOf(value, data.arrays.x[i], time))], [quantity.label, orNotStored(value)]];
  };
  return html`<${TimePanel} name="metric" controls=${html`<${QuantitySelect} info=${info} quantity=${quantity} allowed=${allowed} hideLabel />`} title=${quantity.label} note=${[storedWords(data?.times ?? {}, info.along), quantity.group].filter(Boolean).join(" · ")} height=${196} margins=${{ gutter: 60, narrow: 48 }} time=${time} answer=${answer}
    tip=${data && tip} empty=${data && data.arrays.values.every(Number.isNaN) ? `No values of ${quantity.label} are stored here.` : null}
    exports=${{ request: () => ({ panel: "lines", ...request, ...shownInterval(), width: null }), subtitle: row.name }}
    draw=${data && ((surface, { plot }, colours) => drawLines(surface, plot, time.scale, { series, kind: quantity.scale, colours, timeLabel: info.along }))} />`;
}

export function Matrix({ run, info, time }) {
  const rows = info.axes.matrix?.rows ?? [];
  const row = chosenRow(rows, state.matrix.value);
  const stored = info.spectra.filter((spectra) => spectra.axis === "matrix");
  const weights = stored.find((spectra) => !spectra.change_of) ?? stored[0];
  const changes = stored.find((spectra) => spectra.change_of === weights?.of);
  const shown = stored.find((spectra) => spectra.of === state.spectrum.value) ?? weights;
  const main = useSpectra(run, info, weights?.of, row);
  const change = useSpectra(run, info, row?.part_of ? null : changes?.of, row);
  const exact = useExact(run, time, main.spectra, row);
  if (!row || !weights) return html`<${Nothing} title="This run stores no spectra of matrices"><p>Choose another view.</p></${Nothing}>`;
  const image = shown === changes && change.spectra ? change : main;
  const title = shown === changes && change.spectra ? "Singular values of the change" : "Singular values";
  const note = `${row.name} · ${count(row.m)} × ${count(row.n)} · ${row.kind_label}${row.dtype ? ` · ${row.dtype}` : ""}`;
  const context = { run, info, time };
  return html`<${Heading} title=${row.label} note=${note} />
    <div class="bar">
      <${RowSelect} label="Matrix" rows=${rows} row=${row} onChange=${(name) => (state.matrix.value = name)} />
      <${PlayButton} />
      ${changes && html`<${Segments} label="Spectra" value=${shown.of} options=${[weights, changes].map(({ of, label }) => [of, label])} onChange=${(of) => (state.spectrum.value = of)} />`}
      <${Segments} label="Index axis" value=${state.index.value} options=${[["log", "log index"], ["linear", "linear"]]} onChange=${(value) => (state.index.value = value)} />
      <span class="push" /><${TimeControls} along=${info.along} />
    </div>
    <${ImagePanel} ...${context} ...${image} title=${title} />
    <div class="columns">
      <${SpectrumPanel} ...${context} ...${main} change=${change.spectra} exact=${exact} />
      <${EnergyPanel} ...${context} ...${main} change=${change.spectra} />
    </div>
    <div class="columns three">
      <${PercentilePanel} ...${context} ...${main} />
      <${MetricPanel} ...${context} row=${row} />
      <${RankPanel} run=${run} exact=${exact} along=${info.along} />
    </div>`;
}
