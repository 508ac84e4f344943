/** Theory: the flow of a diagonal network, Algorithm 1's staircase, its times T_k, for any alpha. */

import { html, useEffect, useMemo } from "../vendor/index.js";
import { prefetch, url, useAnswer } from "../data/api.js";
import { plural, short } from "../data/format.js";
import { filledColumns } from "../data/frame.js";
import { shownInterval } from "../data/run.js";
import { state } from "../data/state.js";
import { shades } from "../draw/colours.js";
import { drawLines } from "../draw/lines.js";
import { palette } from "../draw/palette.js";
import { nearest, timeScale } from "../draw/time.js";
import { Heading, Nothing, Segments } from "../ui/controls.js";
import { ExportMenu } from "../ui/export.js";
import { cursorOf, TimePanel } from "../ui/timepanel.js";

const COLUMNS = 1024;
const MARGINS = { gutter: 60, narrow: 48 };
const MARK = 10, APART = 6; // pixels: size of a mark's label, and room between two
const NEGLIGIBLE = 0.02; // of the largest coordinate; those below stay grey

const flowOf = (run) => url("theory/flow", { run, width: COLUMNS });

function rowsOf(array, columns) {
  const count = columns ? array.length / columns : 0;
  return Array.from({ length: count }, (_, i) => array.subarray(i * columns, (i + 1) * columns));
}

/** Return lines of coordinates: coloured in the order in which they became active, others grey. */
function coordinateSeries(rows, x, theory, colours) {
  const largest = rows.map((row) => row.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0));
  const top = Math.max(...largest, 0);
  const crossed = new Map();
  for (const { coordinate, entered } of theory?.crossings ?? []) {
    if (entered !== false && !crossed.has(coordinate)) crossed.set(coordinate, crossed.size);
  }
  const active = rows.map((_, i) => i).filter((i) => crossed.has(i) || (!crossed.size && largest[i] > NEGLIGIBLE * top));
  active.sort((a, b) => (crossed.get(a) ?? 0) - (crossed.get(b) ?? 0));
  const tones = shades(active.length, colours.theme);
  const rank = new Map(active.map((i, order) => [i, order]));
  return rows.map((y, i) => rank.has(i)
    ? { x, y, colour: tones[rank.get(i)], width: 1.6, label: theory?.coordinates?.[i]?.name ?? `coordinate ${i}` }
    : { x, y, colour: colours.faint, width: 0.7, opacity: 0.6 }).sort((a, b) => a.width - b.width);
}

/**
 * Return labels of marks as {text, at}: one for each, or one for all that are too close to have their own.
 *
 * marks: {label, at} from left to right.
 */
export function markLabels(marks, measure) {
  const groups = [];
  for (const mark of marks) {
    let group = { first: mark, last: mark, ...labelOf(mark, mark, measure) };
    while (groups.length && group.left < groups[groups.length - 1].right + APART) {
      const { first } = groups.pop();
      group = { first, last: group.last, ...labelOf(first, group.last, measure) };
    }
    groups.push(group);
  }
  return groups.map(({ text, at }) => ({ text, at }));
}

function labelOf(first, last, measure) {
  const text = first === last ? first.label : `${first.label}–${last.label}`;
  const at = (first.at + last.at) / 2, half = measure(text) / 2;
  return { text, at, left: at - half, right: at + half };
}

function AlphaSlider({ theory, run }) {
  const flows = theory.alphas.filter(({ kind }) => kind !== "algorithm");
  const at = Math.max(0, flows.findIndex((alpha) => alpha.run === run));
  if (flows.length < 2) return html`<span class="muted">${theory.log10_alpha === null ? "" : `α = 1e${theory.log10_alpha}`}</span>`;
  return html`<label class="slider">α <input type="range" min="0" max=${flows.length - 1} step="1" value=${at} aria-valuetext=${flows[at].label}
    onInput=${(event) => (state.run.value = flows[event.target.value].run)} /><b>${flows[at].label}</b></label>`;
}

export function Theory({ run }) {
  const about = useAnswer(run ? url("theory", { run }) : null, [run]);
  const flow = useAnswer(run ? flowOf(run) : null, [run]);
  const theory = about.data;
  useEffect(() => {
    for (const alpha of theory?.alphas ?? []) {
      prefetch(url("theory", { run: alpha.run }), [alpha.run]);
      prefetch(flowOf(alpha.run), [alpha.run]);
    }
  }, [theory?.alphas?.length]);
  const x = flow.data?.arrays.time;
  const kind = state.axis.value === "log" ? "log" : "linear";
  const [from, to] = [state.from.value, state.to.value];
  const time = useMemo(() => x && { x, along: "time", scale: timeScale({ x, positions: Int32Array.from(x, (_, i) => i), kind, from, to }) }, [x, kind, from, to]);
  const colours = palette.value;
  const arrays = flow.data?.arrays;
  const names = flow.data?.meta.products;
  const lines = useMemo(() => {
    if (!arrays) return {};
    // Coordinates may be stored at fewer times than the loss.
    const rows = (name) => {
      if (!arrays[name]) return null;
      const stored = filledColumns(flow.data, name).arrays;
      return coordinateSeries(rowsOf(stored[name], stored.time.length), stored.time, theory, colours);
    };
    return { z: rows("z"), y: rows("y"), singular: rows("singular_values") };
  }, [arrays, theory, colours]);
  if (about.error) return html`<${Nothing} title="This run holds no theory"><p>${about.error}</p></${Nothing}>`;
  if (!theory) return html`<${Heading} title="Theory" note="Reading…" />`;
  if (!theory.stages?.length && flow.error) {
    return html`<${Nothing} title="This run holds no theory"><p>${flow.error}</p></${Nothing}>`;
  }
  const staircase = theory.staircase?.time?.length ? theory.staircase : null;
  const marks = (theory.marks ?? []).map((mark) => ({ x: mark.time, label: mark.label, colour: colours.warm }));
  const losses = [
    ...(staircase ? [{ x: staircase.time, y: staircase.loss, colour: colours.warm, width: 5, opacity: 0.35, label: "Algorithm 1" }] : []),
    ...(arrays?.loss ? [{ x, y: arrays.loss, colour: colours.accent, width: 2, label: "flow" }] : []),
  ];
  const common = { time, margins: { ...MARGINS, top: marks.length ? 20 : 8 }, answer: flow };
  const labelMarks = (surface, plot) => {
    const placed = marks.map(({ label, x: at }) => ({ label, at: plot.x + time.scale.toUnit(at) * plot.width }))
      .filter(({ at }) => at >= plot.x && at <= plot.x + plot.width);
    for (const { text, at } of markLabels(placed, (text) => surface.measure(text, MARK))) {
      surface.text(text, at, plot.y - 8, { colour: colours.warm, size: MARK, align: "center" });
    }
  };
  const panel = (name, title, note, series, height) => html`<${TimePanel} ...${common} name=${name} title=${title} note=${note} height=${height}
    tip=${() => [["time", short(cursorOf(time))], ...series.filter((one) => one.label).slice(-12).map((one) => [one.label, short(one.y[nearest(one.x, cursorOf(time))]), one.colour])]}
    legend=${name === "loss" && { entries: series.map(({ label, colour }) => ({ text: label, colour })) }}
    exports=${{ request: () => ({ panel: "theory/flow", run, part: name, ...shownInterval() }) }} draw=${time && ((surface, { plot }, tones) => {
      drawLines(surface, plot, time.scale, { series, kind: "linear", marks, colours: tones, timeLabel: "time" });
      labelMarks(surface, plot);
    })} />`;
  const count = (theory.stages ?? []).length;
  return html`<${Heading} title="Theory" note=${`${theory.message ?? ""}${count ? ` · ${plural(count, "stage")} of Algorithm 1` : ""}`} />
    <div class="bar"><${AlphaSlider} theory=${theory} run=${run} /><span class="push" />
      <${Segments} label="Time axis" value=${kind} options=${[["linear", "linear"], ["log", "log time"]]} onChange=${(value) => (state.axis.value = value)} /></div>
    ${losses.length > 0 && panel("loss", "Loss", "T_k as marks; time over log(1/α)", losses, 230)}
    ${lines.z && panel("z", "Coordinates z = u v", "coloured in the order in which they become active", lines.z, 320)}
    ${lines.y && panel("y", "Their logarithms y", "straight on a plateau: dy/dt = g", lines.y, 240)}
    ${lines.singular && panel("singular_values", "Singular values of the products", (names ?? []).join(", "), lines.singular, 320)}
    ${count > 0 && html`<section class="panel" data-panel="stages"><header><div class="titles"><h2>Stages</h2></div>
        <${ExportMenu} title="Stages" request=${() => ({ panel: "stages", run })} /></header><div class="scroll" tabindex="0" role="region" aria-label="Stages">
      <table class="facts"><thead><tr><th scope="col" class="number">stage</th><th scope="col" class="number">T_k</th><th scope="col" class="number">until</th><th scope="col" class="number">loss</th><th scope="col">winner</th><th scope="col" class="number">margin</th><th scope="col">remarks</th></tr></thead>
      <tbody>${theory.stages.map((stage) => html`<tr><td class="number">${stage.stage}</td><td class="number">${short(stage.time)}</td><td class="number">${short(stage.until)}</td>
        <td class="number">${short(stage.loss)}</td><td>${theory.coordinates?.[stage.winner]?.name ?? "–"}</td><td class="number">${short(stage.margin)}</td><td>${stage.remarks ?? ""}</td></tr>`)}</tbody></table></div></section>`}`;
}
