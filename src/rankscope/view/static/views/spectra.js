/** The spectrum of one matrix or product: over time, at the cursor, and its energy. */

import { computed, html, signal, useEffect, useMemo, useRef } from "../vendor/index.js";
import { load, url, useAnswer } from "../data/api.js";
import { count, orNotStored, percent, short, storedWords, when } from "../data/format.js";
import { firstRows, storedColumns } from "../data/frame.js";
import { shownInterval } from "../data/run.js";
import { state } from "../data/state.js";
import { valueScale } from "../draw/axes.js";
import { fieldOf } from "../draw/heat.js";
import { drawLines } from "../draw/lines.js";
import { palette } from "../draw/palette.js";
import {
  curvePoints, drawIndexAxes, drawSpectra, energyShares, indexLayout, indexScale, rankOfShare,
} from "../draw/spectrum.js";
import { interpolate, nearest } from "../draw/time.js";
import { ExportMenu } from "../ui/export.js";
import { Panel } from "../ui/panel.js";
import { cursorOf, timeOf, TimePanel } from "../ui/timepanel.js";

const SHARES = [0.5, 0.9, 0.99];
const COLUMNS = 1024, ROWS = 1024;
const DECADES = 1e-3;
const DASHES = [[], [5, 4], [1, 3]];
const PAUSE = 120; // milliseconds that the cursor rests before exact numbers are asked for
const MARGINS = { gutter: 60, narrow: 48 };

/** Return the spectra of one row over time as {x, index, k, field, column(i), energy(i), percentiles, ...}. */
export function useSpectra(run, info, of, row) {
  const request = of && row ? { run, of, matrix: row.name, width: COLUMNS, height: ROWS, format: "float32",
    ...(info.snapshots > COLUMNS ? { from: state.from.value, to: state.to.value } : {}) } : null;
  const answer = useAnswer(request && url("spectra", request), [run]);
  const spectra = useMemo(() => {
    if (!answer.data) return null;
    const frame = storedColumns(answer.data);
    const { meta, arrays } = frame;
    const { x, percentiles } = arrays;
    const index = withValues(arrays, x.length);
    const field = fieldOf(firstRows(frame, index.length), { kind: "log", range: logRange(arrays.values) });
    const column = (i) => Float32Array.from(index, (_, r) => arrays.values[r * x.length + i]);
    const isNumber = arrays.values.some((value) => value === value); // else all of it failed
    const k = isNumber ? Math.min(meta.k, index[index.length - 1] + 1) : meta.k;
    const missing = k < meta.k; // archives keep the largest value alone of some matrices
    const energy = (i) => energyShares(index, column(i), missing ? NaN : arrays.norms?.[i]);
    const ranks = SHARES.map(() => new Float64Array(x.length));
    for (let i = 0; i < x.length; i++) {
      const shares = energy(i);
      SHARES.forEach((share, s) => (ranks[s][i] = rankOfShare(index, shares, share)));
    }
    const part = k < meta.whole_k ? `the ${k} largest of ${count(meta.whole_k)}` : "";
    const times = frame.times ?? { times: x };
    return { x, times, index, k, part, missing, field, column, energy, percentiles, ranks, name: meta.name, of };
  }, [answer.data]);
  return { answer, spectra: answer.stale && spectra?.name !== row?.name ? null : spectra, request };
}

/** Return the indices up to the last that has a value at a `share` of the snapshots. */
export function withValues({ values, index }, columns, share = 0) {
  let rows = index.length;
  for (; rows > 1; rows--) {
    let count = 0;
    for (let i = (rows - 1) * columns; i < rows * columns; i++) if (values[i] === values[i]) count++;
    if (count > 0 && count >= share * columns) break;
  }
  return index.subarray(0, rows);
}

/** Return a log scale's ends: the largest value and, at most three decades below it, the smallest. */
function logRange(values) {
  let high = 0, low = Infinity;
  for (const value of values) if (value > high && value < Infinity) high = value;
  for (const value of values) if (value > DECADES * high && value < low) low = value;
  return high > 0 ? [Math.min(low, high / 10), high] : [0.1, 1];
}

export function ImagePanel({ run, info, time, spectra, answer, request, title }) {
  const kind = state.index.value;
  const layout = useMemo(() => spectra && indexLayout(spectra.index, spectra.k, kind), [spectra, kind]);
  const order = useMemo(() => spectra && Uint32Array.from(spectra.index, (_, i) => i), [spectra]);
  const lines = spectra && !spectra.missing ? spectra.ranks.map((values, i) => ({ values, dash: DASHES[i] })) : [];
  const tip = (x, y, { plot }) => {
    if (!spectra) return null;
    const i = nearest(spectra.x, cursorOf(time));
    const row = layout.rowOf(layout.scale.fromUnit(Math.max(0, Math.min(0.9999, (y - plot.y) / plot.height))));
    const value = spectra.field.value(row, i);
    return [
      [`value ${spectra.index[row] + 1} of ${spectra.k}`, orNotStored(value)], [info.along, when(timeOf(value, spectra.x[i], time))],
      ...lines.map(({ values }, s) => [`${percent(SHARES[s])} of the energy`, `${short(values[i])} values`]),
    ];
  };
  const legend = spectra && {
    entries: lines.map((_, i) => ({ text: `${percent(SHARES[i])}${i === 2 ? " of energy" : ""}`, colour: palette.value.ink, dash: DASHES[i] })),
    scale: { map: "viridis", ...spectra.field, label: "singular value" },
  };
  return html`<${TimePanel} name="image" title=${title} note=${[storedWords(spectra?.times ?? {}, info.along), "index down, 1 = largest", spectra?.part].filter(Boolean).join(" · ")} legend=${legend} height=${300} margins=${MARGINS}
    time=${time} answer=${answer} tip=${tip} label=${`${title} over ${info.along}`}
    exports=${{ request: () => ({ panel: "spectra", ...request, ...shownInterval(), format: null, height: null, width: null }), subtitle: request?.matrix }}
    draw=${spectra && ((surface, { plot }, colours) => drawSpectra(surface, plot, time.scale, {
      ...spectra, layout, order, lines, colours, timeLabel: info.along,
    }))} />`;
}

export function PercentilePanel({ run, info, time, spectra, answer, request }) {
  const colour = palette.value.accent;
  const [p0, p5, p25, p50, p75, p95, p100] = spectra
    ? Array.from({ length: 7 }, (_, i) => spectra.percentiles.subarray(i * spectra.x.length, (i + 1) * spectra.x.length)) : [];
  const x = spectra?.x;
  const series = spectra ? [
    { x, y: p100, low: p0, high: p100, colour, width: 1 }, { x, y: p95, low: p5, high: p95, colour, opacity: 0 },
    { x, y: p50, low: p25, high: p75, colour, width: 2 },
  ] : [];
  const range = spectra && [spectra.field.low, spectra.field.high * 1.2];
  const tip = () => {
    const i = nearest(x, cursorOf(time));
    return [[info.along, when(x[i])], ["largest", short(p100[i])], ["95%", short(p95[i])], ["median", short(p50[i])], ["5%", short(p5[i])], ["smallest", short(p0[i])]];
  };
  return html`<${TimePanel} name="percentiles" title="Percentiles of the values" note=${[storedWords(spectra?.times ?? {}, info.along), ["bands 0–100, 5–95, 25–75%", spectra?.part && `of ${spectra.part}`].filter(Boolean).join(" ")].filter(Boolean).join(" · ")} height=${236}
    margins=${MARGINS} time=${time} answer=${answer} tip=${spectra && tip} empty=${lacking(spectra, "Percentiles")}
    exports=${{ request: () => ({ panel: "spectra", ...request, ...shownInterval(), format: null, height: null, width: null }), subtitle: request?.matrix }}
    draw=${spectra && ((surface, { plot }, colours) => drawLines(surface, plot, time.scale, { series, kind: "log", range, colours, timeLabel: info.along }))} />`;
}

/** Return why a picture that needs all values shows nothing, or null. */
const lacking = (spectra, what) => (spectra?.missing ? `${what} need all singular values. Stored: ${spectra.part}.` : null);

/** Return the position, among the snapshots with a spectrum, of the one nearest to the cursor. */
const atCursor = (spectra, time) => storedNear(spectra, cursorOf(time));
const storedNear = ({ x, times: { times } }, at) => nearest(x, times[nearest(times, at)] ?? at);

/** Return the position of the first snapshot with a spectrum. */
const atStart = (spectra) => storedNear(spectra, -Infinity);

/** Exact numbers at the cursor, asked for when it rests: {now, start, change} and noise. */
export function useExact(run, time, spectra, row) {
  const exact = useRef(signal(null)).current;
  const [name, of] = [row?.name, spectra?.of];
  useEffect(() => {
    exact.value = null;
  }, [run, of, name]);
  useEffect(() => {
    if (!spectra) return undefined;
    let timer = 0, control = null;
    const stop = state.at.subscribe(() => {
      clearTimeout(timer);
      control?.abort();
      timer = setTimeout(async () => {
        control = new AbortController();
        const step = spectra.x[atCursor(spectra, time)];
        const answer = await load(url("spectrum", { run, of, matrix: name, step }), control).catch(() => null);
        if (answer) exact.value = answer;
      }, exact.peek() ? PAUSE : 0);
    });
    return () => {
      stop();
      clearTimeout(timer);
      control?.abort();
    };
  }, [run, spectra, name, time]);
  return exact;
}

function legendOf(change, more) {
  const { accent, warm, muted } = palette.value;
  const entries = [{ text: "at the cursor", colour: accent }, { text: "start", colour: muted }, change && { text: "change", colour: warm }, more];
  return { entries: entries.filter(Boolean) };
}

/** What is exported of one spectrum: the one that is drawn, with its curve. */
function exportsOf(request, spectra, time) {
  const step = () => spectra.x[atCursor(spectra, time)];
  return {
    request: () => ({ panel: "spectrum", ...request, format: null, height: null, width: null, from: null, to: null, step: step() }),
    subtitle: request?.matrix,
    above: true,
  };
}

/** The spectrum at the cursor, against the start, the change and chance. */
export function SpectrumPanel({ run, info, time, spectra, change, exact, request, answer }) {
  const { accent, warm, muted, faint } = palette.value;
  const chance = useRef(computed(() => exact.value?.arrays.chance)).current;
  const noise = exact.value?.meta.noise;
  const scale = spectra && indexScale(Math.max(spectra.k, change?.k ?? 0), state.index.value);
  const top = spectra && Math.max(spectra.field.high, change?.field.high ?? 0) * 1.25;
  const valuesOf = (plot) => valueScale(top / 1e5 > spectra.field.low ? top / 1e5 : spectra.field.low / 1.3, top, "log", plot);
  const draw = (surface, { plot }, colours) => {
    const values = valuesOf(plot);
    drawIndexAxes(surface, plot, values, scale, colours);
    surface.clipped(plot.x, plot.y, plot.width, plot.height, () => {
      const all = Array.from({ length: chance.value?.length ?? 0 }, (_, i) => i);
      if (all.length) surface.path(curvePoints(all, chance.value, scale, values.place, plot), { colour: muted, dash: [2, 3], width: 1.3 });
      const floor = noise?.rounding_floor ?? noise?.solver_floor;
      if (floor) surface.rect(plot.x, values.place(floor), plot.width, plot.height, faint, 0.25);
      surface.path(curvePoints(spectra.index, spectra.column(atStart(spectra)), scale, values.place, plot), { colour: muted, width: 1.5 });
    });
  };
  const overlay = (surface, { plot }) => {
    const values = valuesOf(plot);
    const line = (one, colour, width) => {
      const points = curvePoints(one.index, one.column(atCursor(one, time)), scale, values.place, plot);
      if (points.length === 2) surface.dot(...points, 3, colour);
      else surface.path(points, { colour, width });
    };
    surface.clipped(plot.x, plot.y, plot.width, plot.height, () => {
      if (change) line(change, warm, 1.5);
      line(spectra, accent, 2);
    });
    const i = atCursor(spectra, time), broke = Number.isNaN(spectra.field.value(0, i));
    surface.text(`${info.along} ${when(spectra.x[i])}${broke ? ": NaN" : ""}`, plot.x + plot.width - 2, plot.y + 8, { colour: accent, align: "right", weight: 500 });
  };
  const tip = (x, y, { plot }) => {
    const index = Math.round(scale.fromUnit(Math.max(0, Math.min(1, (x - plot.x) / plot.width))));
    const value = (one, i) => short(interpolate(index - 1, one.index, one.column(i)));
    const now = atCursor(spectra, time);
    return [[`value ${Math.min(index, spectra.k)}`], ["now", value(spectra, now), accent], ["start", value(spectra, atStart(spectra)), muted],
      ...(change ? [["change", value(change, atCursor(change, time)), warm]] : [])];
  };
  const legend = legendOf(change, chance.value?.length && { text: "chance", colour: muted, dash: [2, 3] });
  return html`<${Panel} name="spectrum" title="Spectrum" note="value over index" legend=${legend} height=${290} margins=${{ ...MARGINS, top: 10 }} answer=${answer}
    exports=${exportsOf(request, spectra, time)}
    signals=${[state.at]} overlay=${spectra && overlay} tip=${spectra && tip} draw=${spectra && draw} label="Spectrum at the cursor" />`;
}

/** Cumulative energy, with the ranks that hold 50, 90 and 99%. */
export function EnergyPanel({ run, info, time, spectra, change, request, answer }) {
  const { accent, warm, muted, ink, surface: surfaceColour } = palette.value;
  const scale = spectra && indexScale(Math.max(spectra.k, change?.k ?? 0), state.index.value);
  const valuesOf = (plot) => ({ ...valueScale(0, 1, "linear", plot), ticks: [0, 0.5, 0.9, 0.99] });
  const curve = (surface, plot, values, one, i, colour, width) => {
    const shares = one.energy(i);
    surface.path(curvePoints(one.index, shares, scale, values.place, plot), { colour, width });
    return shares;
  };
  const draw = (surface, { plot }, colours) => {
    const values = valuesOf(plot);
    drawIndexAxes(surface, plot, { ...values, ticks: [0, 0.5, 0.9, 1] }, scale, colours, percent);
    curve(surface, plot, values, spectra, atStart(spectra), muted, 1.5);
  };
  const overlay = (surface, { plot }) => {
    const values = valuesOf(plot);
    if (change) curve(surface, plot, values, change, atCursor(change, time), warm, 1.5);
    const shares = curve(surface, plot, values, spectra, atCursor(spectra, time), accent, 2);
    for (const share of SHARES) {
      const rank = rankOfShare(spectra.index, shares, share);
      if (!(rank > 0)) continue;
      // A rank may hold more than the share that it is the first to hold.
      const held = interpolate(rank - 1, spectra.index, shares);
      const x = plot.x + scale.toUnit(rank) * plot.width, y = values.place(held);
      surface.path([x, y, x, plot.y + plot.height], { colour: accent, width: 1, dash: [2, 3] });
      surface.dot(x, y, 3, accent);
      const right = x > plot.x + plot.width - 66;
      const text = `${percent(share)}: ${rank}`, low = plot.y + plot.height - 10 - 15 * SHARES.indexOf(share);
      const left = right ? x - 6 - surface.measure(text, 11, 500) : x + 6;
      surface.rect(left - 2, low - 7, surface.measure(text, 11, 500) + 4, 14, surfaceColour, 0.85);
      surface.text(text, left, low, { colour: ink, weight: 500 });
    }
  };
  const legend = legendOf(change);
  return html`<${Panel} name="energy" title="Energy" note="share of the sum of squares" legend=${legend} height=${290} margins=${{ ...MARGINS, top: 10 }}
    answer=${answer} empty=${lacking(spectra, "Shares of the energy")} exports=${exportsOf(request, spectra, time)}
    signals=${[state.at]} overlay=${spectra && overlay} draw=${spectra && draw} label="Energy over rank at the cursor" />`;
}

/** The ranks of the spectrum at the cursor, exactly. */
export function RankPanel({ run, exact, along }) {
  const { ranks, of, name, x, status, k, whole_k: whole } = exact.value?.meta ?? {};
  const columns = [["start", "start"], ["now", `${along} ${when(x)}`], ["change", "change"]].filter(([part]) => !ranks || ranks[part]);
  const rows = [["50", "50% of energy"], ["90", "90% of energy"], ["99", "99% of energy"], ["effective", "effective rank"], ["stable", "stable rank"], ["numerical", "numerical rank"]];
  const title = "Ranks at the cursor";
  // The answer has null for a rank that is not a number, and leaves out those it cannot tell.
  const textOf = (rank) => (rank === null ? "NaN" : short(rank));
  return html`<section class="panel" data-panel="facts"><header><div class="titles"><h2>${title}</h2></div>
      ${ranks && html`<${ExportMenu} title=${title} subtitle=${name} request=${() => ({ panel: "ranks", run, of, matrix: name, step: x })} />`}</header>
    <table class="facts"><caption class="out-of-sight">${title}</caption>
    <thead><tr><td />${columns.map(([, text]) => html`<th scope="col" class="number">${text}</th>`)}</tr></thead>
    <tbody>${rows.map(([key, text]) => html`<tr><th scope="row">${text}</th>${columns.map(([part]) =>
      html`<td class="number">${ranks?.[part] ? textOf(ranks[part][key]) : "–"}</td>`)}</tr>`)}</tbody></table>
    ${status && status !== "ok" && html`<p class="note">${STATUS[status] ?? status}</p>`}
    ${k < whole && html`<p class="note">Only leading values are stored; the other ranks need the whole spectrum.</p>`}</section>`;
}

const STATUS = { zero: "The matrix is zero here.", failed: "The matrix is not finite here." };
