/** Loss and other scalars over time, with the run's events. */

import { html } from "../vendor/index.js";
import { url, useAnswer } from "../data/api.js";
import { short, when } from "../data/format.js";
import { MOST_COLUMNS, shownInterval } from "../data/run.js";
import { state } from "../data/state.js";
import { drawLines } from "../draw/lines.js";
import { palette } from "../draw/palette.js";
import { nearest } from "../draw/time.js";
import { cursorOf, TimePanel } from "../ui/timepanel.js";

const SYMBOLS = { nan: "✕", failed: "✕", diverged: "✕", collapse: "▼", jump: "▲", resume: "↻", rate: "↓", stopped: "■" };
const GRAVE = ["nan", "failed", "diverged", "collapse"];
const CLUSTER = 34; // pixels within which events share a mark
const LOG_FROM = 20; // ratio of largest to smallest loss from which its axis is logarithmic

/** Return {name, label, x, y} of all scalars on the time axes of a frame. */
export function scalarSeries(info, { meta, arrays }) {
  const labels = new Map(info.scalars.map((scalar) => [scalar.name, scalar.label]));
  return Object.entries(meta.names).flatMap(([axis, names]) => {
    const x = arrays[`x:${axis}`];
    return names.map((name, i) => ({
      name, x, label: labels.get(name) ?? name, axis,
      y: arrays[`values:${axis}`].subarray(i * x.length, (i + 1) * x.length),
    }));
  });
}

/** Return the names that are shown when the address names none: the losses, at most three. */
export function defaultScalars(info) {
  const losses = info.scalars.filter((scalar) => scalar.loss).map(({ name }) => name);
  const everyStep = new Set(losses.filter((name) => name.endsWith("_every_step")));
  const plain = losses.filter((name) => !everyStep.has(name) && !everyStep.has(`${name}_every_step`));
  const first = [...everyStep, ...plain].slice(0, 3);
  return first.length ? first : info.scalars.slice(0, 1).map(({ name }) => name);
}

/** Return the number of a series at a time; a run stores the same where none was logged and for NaN. */
function numberAt({ x, y }, at) {
  const value = y[nearest(x, at)];
  return value === value ? short(value) : "none, or NaN";
}

function axisKind(series) {
  let low = Infinity, high = -Infinity;
  for (const { y } of series) {
    for (const value of y) {
      if (value <= 0) return "linear";
      if (value < low) low = value;
      if (value > high && value < Infinity) high = value;
    }
  }
  return high > LOG_FROM * low ? "log" : "linear";
}

/** Return clusters of events that would stand on each other, at their first: {x, events}, the gravest event first. */
export function clusters(events, { plot }, time) {
  const placed = events
    .map((event) => ({ event, x: plot.x + time.scale.toUnit(event.x) * plot.width }))
    .filter(({ x }) => x >= plot.x - 1 && x <= plot.x + plot.width + 1)
    .sort((a, b) => a.x - b.x);
  const groups = [];
  for (const { event, x } of placed) {
    const last = groups[groups.length - 1];
    if (last && x - last.x < CLUSTER) last.events.push(event);
    else groups.push({ x, events: [event] });
  }
  const weight = ({ kind, size }) => (GRAVE.includes(kind) ? 1e9 : 0) + (kind === "jump" ? 0 : 1e6) + (size ?? 0);
  for (const { events: members } of groups) members.sort((a, b) => weight(b) - weight(a));
  return groups;
}

function drawEvents(surface, box, events, time, colours) {
  for (const { x, events: members } of clusters(events, box, time)) {
    const { kind } = members[0];
    const colour = GRAVE.includes(kind) ? colours.warm : colours.muted;
    const text = members.length > 1 ? `${SYMBOLS[kind] ?? "•"}${members.length}` : SYMBOLS[kind] ?? "•";
    surface.text(text, x, box.plot.y - 9, { colour, size: 10, align: "center" });
  }
}

/** The panel above heat maps: scalars on the same axis. */
export function ScalarsPanel({ run, info, time, scalars, margins }) {
  const wanted = state.scalars.value.length ? state.scalars.value : defaultScalars(info);
  const all = scalarSeries(info, scalars);
  const { data: news } = useAnswer(url("events", { run }), [run]);
  const events = news?.events ?? [];
  const { categories } = palette.value;
  const series = all.filter(({ name }) => wanted.includes(name)).map((one, i) => ({ ...one, colour: categories[i % categories.length] }));
  if (!all.length) return null;
  const kind = axisKind(series);
  const toggle = (name) => {
    const next = wanted.includes(name) ? wanted.filter((other) => other !== name) : [...wanted, name];
    state.scalars.value = next;
  };
  const top = events.length ? 20 : 6;
  const tip = (x, y, { plot }) => {
    const at = cursorOf(time);
    const close = clusters(events, { plot }, time).find((cluster) => Math.abs(cluster.x - x) < CLUSTER / 2)?.events ?? [];
    return [
      [info.along, when(at)],
      ...series.map((one) => [one.label, numberAt(one, at), one.colour]),
      ...close.slice(0, 4).map((event) => [event.label]),
      ...(close.length > 4 ? [[`and ${close.length - 4} more`]] : []),
    ];
  };
  const chips = html`<div class="chips" role="group" aria-label="Scalars">${all.map(
    ({ name, label }) => {
      const colour = series.find((one) => one.name === name)?.colour;
      return html`<button key=${name} class="chip" aria-pressed=${Boolean(colour)} onClick=${() => toggle(name)}>
        ${colour && html`<i style=${{ background: colour }} />`}${label}</button>`;
    },
  )}</div>`;
  return html`<${TimePanel} name="scalars" title="Scalars" controls=${chips} height=${150} margins=${{ ...margins, top }}
    time=${time} tip=${tip} label=${`Scalars over ${info.along}: ${series.map(({ label }) => label).join(", ")}`}
    empty=${series.length ? null : "Choose a scalar above."}
    legend=${{ entries: series.map(({ label, colour }) => ({ text: label, colour })) }}
    exports=${{ request: () => ({ panel: "scalars", run, name: wanted, width: MOST_COLUMNS, ...shownInterval() }), subtitle: info.summary.name }}
    draw=${(surface, box, colours) => {
      drawLines(surface, box.plot, time.scale, { series, kind, colours, timeLabel: info.along });
      drawEvents(surface, box, events, time, colours);
    }}
  />`;
}
