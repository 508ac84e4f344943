/** Compare: one measure across runs, bands over seeds, differences, aligned by step, epoch or loss. */

import { html, useMemo } from "../vendor/index.js";
import { url, useAnswer } from "../data/api.js";
import { plural, short, when } from "../data/format.js";
import { shownInterval } from "../data/run.js";
import { runList, titleOf } from "../data/runs.js";
import { go, openRun, state } from "../data/state.js";
import { shades } from "../draw/colours.js";
import { drawLines } from "../draw/lines.js";
import { palette } from "../draw/palette.js";
import { nearest, timeScale } from "../draw/time.js";
import { chosenQuantity, Heading, Nothing, QuantitySelect, Segments, Select } from "../ui/controls.js";
import { ExportMenu } from "../ui/export.js";
import { cursorOf, TimePanel } from "../ui/timepanel.js";

const MOST = 64; // runs
const COLLAPSED = [6, 4]; // dashes of runs that learned nothing
const MARGINS = { gutter: 64, narrow: 48 };

function scopeGroups(info, axis) {
  const rows = info.axes[axis]?.rows ?? [];
  const unique = (key, label) => [...new Map(rows.map((row) => [row[key], row[label]])).entries()];
  return [
    [null, [["", "mean of all"]]],
    ["Kind", unique("kind", "kind_label").map(([kind, label]) => [`kind:${kind}`, label])],
    ["Block", unique("block", "block").map(([block]) => [`block:${block}`, block])],
    ["One", rows.map((row) => [`matrix:${row.name}`, row.label])],
  ].filter(([, entries]) => entries.length);
}

function scopeParameters(scope) {
  const cut = scope.indexOf(":");
  return cut < 0 ? {} : { [scope.slice(0, cut)]: scope.slice(cut + 1) };
}

/** Colours of curves: shades in the order of decay where all have one, else categories. */
export function curveColours(curves, colours) {
  const decays = curves.map(({ decay }) => decay);
  if (curves.length < 3 || decays.some((decay) => decay === null || decay === undefined) || new Set(decays).size < curves.length) {
    return curves.map((_, i) => (i < colours.categories.length ? colours.categories[i] : colours.muted));
  }
  const order = [...decays].sort((a, b) => a - b);
  const tones = shades(curves.length, colours.theme);
  return decays.map((decay) => tones[order.indexOf(decay)]);
}

function noteOf(quantity, data) {
  const isBand = data?.meta.curves.some(({ count }) => count > 1);
  const words = [quantity.group, isBand && "mean in a band from least to most, where all seeds are known", state.align.value === "loss" && "training goes to the left"];
  return words.filter(Boolean).join(" · ");
}

/** A curve has no value before its run begins and after it ends. */
const numberOf = (value) => (value === value ? value : undefined);

function CurveTable({ curves, series, time }) {
  const at = nearest(time.x, cursorOf(time));
  return html`<table class="facts curves"><thead><tr><th scope="col">Curve</th><th scope="col" class="number">Seeds</th><th scope="col" class="number">At the cursor</th><th scope="col" class="number wide-only">First</th><th scope="col" class="number wide-only">Last</th><th scope="col"><span class="out-of-sight">Difference</span></th></tr></thead>
    <tbody>${curves.map((curve, i) => {
      const known = Array.from(series[i].y).filter((value) => value === value);
      const isReference = curve.runs.includes(state.difference.value);
      return html`<tr key=${curve.runs[0]}><td><span class="curve"><i class="swatch" style=${{ background: series[i].colour }} /><button class="link" onClick=${() => openRun(curve.runs[0])}>${curve.label}</button></span></td>
        <td class="number">${curve.count}</td><td class="number">${short(numberOf(series[i].y[at]))}</td><td class="number wide-only">${short(known[0])}</td><td class="number wide-only">${short(known[known.length - 1])}</td>
        <td><button class="chip" aria-pressed=${isReference} onClick=${() => (state.difference.value = isReference ? "" : curve.runs[0])}>${isReference ? "reference" : "subtract"}</button></td></tr>`;
    })}</tbody></table>`;
}

export function Compare() {
  const runs = state.runs.value.slice(0, MOST);
  const about = useAnswer(runs.length ? url("run", { run: runs[0] }) : null, runs.slice(0, 1));
  const info = about.data;
  const comparable = (quantity) => ["matrix", "product", "pair"].includes(quantity.axis);
  const quantity = info && chosenQuantity(info, comparable);
  const request = quantity && runs.length ? {
    run: runs, of: quantity.of, metric: quantity.metric, ...scopeParameters(state.scope.value),
    align: state.align.value, group: state.seeds.value, width: 1024,
    difference: runs.includes(state.difference.value) ? state.difference.value : null, // the address may name another
  } : null;
  const answer = useAnswer(request && url("compare", request), runs);
  const { data } = answer;
  const kind = state.axis.value === "log" ? "log" : "linear";
  const colours = palette.value;
  const drawn = useMemo(() => {
    if (!data) return null;
    const { x, values, low, high } = data.arrays;
    const tones = curveColours(data.meta.curves, colours);
    const part = (array, i) => array.subarray(i * x.length, (i + 1) * x.length);
    const series = data.meta.curves.map((curve, i) => ({
      x, y: part(values, i), colour: tones[i], width: 2, label: curve.label, dash: curve.collapsed ? COLLAPSED : [],
      ...(curve.count > 1 ? { low: part(low, i), high: part(high, i) } : {}),
    }));
    return { series, x };
  }, [data, colours]);
  const time = useMemo(() => drawn && { x: drawn.x, scale: timeScale({ x: drawn.x, positions: Int32Array.from(drawn.x, (_, i) => i), kind, from: state.from.value, to: state.to.value }) },
    [drawn, kind, state.from.value, state.to.value]);
  if (!runs.length) {
    return html`<${Nothing} title="Select runs to compare"><p>Mark two or more in the table of runs.</p>
      <p><button class="button primary" onClick=${() => go({ view: "runs" })}>Choose runs</button></p></${Nothing}>`;
  }
  if (about.error) return html`<${Nothing} title="The first run cannot be read"><p>${about.error}</p></${Nothing}>`;
  if (!info) return html`<${Heading} title="Compare" note="Reading…" />`;
  if (!quantity) return html`<${Nothing} title="The first run stores nothing to compare"><p>Choose runs with spectra.</p></${Nothing}>`;
  const names = new Map((runList.value?.runs ?? []).map((run) => [run.id, titleOf(run)]));
  const xLabel = data?.meta.x_label ?? state.align.value;
  const tip = () => {
    const i = nearest(time.x, cursorOf(time));
    return [[xLabel, when(time.x[i])], ...drawn.series.slice(0, 14).map((one) => [one.label, short(numberOf(one.y[i])), one.colour])];
  };
  const legend = drawn && drawn.series.length <= 6 && { entries: drawn.series.map(({ label, colour, dash }) => ({ text: label, colour, dash })) };
  return html`<${Heading} title="Compare" note=${`${plural(runs.length, "run")}${state.runs.value.length > MOST ? ` of ${state.runs.value.length}; a comparison has at most ${MOST}` : ""}`} />
    <div class="bar">
      <${QuantitySelect} info=${info} quantity=${quantity} allowed=${comparable} />
      <${Select} label="of" value=${state.scope.value} groups=${scopeGroups(info, quantity.axis)} onChange=${(value) => (state.scope.value = value)} />
      <${Select} label="Aligned by" value=${state.align.value} groups=${[[null, [["step", "step"], ["epoch", "epoch"], ["loss", "loss"], ["fraction", "share of the run"]]]]}
        onChange=${(value) => go({ align: value, from: null, to: null, at: null })} />
      <${Segments} label="Seeds" value=${state.seeds.value} options=${[["seed", "bands over seeds"], ["none", "each run"]]} onChange=${(value) => (state.seeds.value = value)} />
      ${state.difference.value && html`<button class="button quiet" onClick=${() => (state.difference.value = "")}>Without difference</button>`}
      <span class="push" /><${Segments} label="Axis" value=${kind} options=${[["linear", "linear"], ["log", "log"]]} onChange=${(value) => (state.axis.value = value === "log" ? "log" : "linear")} />
    </div>
    <${TimePanel} name="compare" title=${`${quantity.label}${data?.meta.reference ? `, difference from ${data.meta.reference}` : ""}`} note=${noteOf(quantity, data)} legend=${legend} height=${420} margins=${MARGINS}
      time=${time} answer=${answer} tip=${drawn && tip} empty=${data && !data.meta.curves.length ? "None of these runs has this measure." : null}
      exports=${{ request: () => ({ panel: "compare", ...request, ...shownInterval(), width: null }) }}
      draw=${drawn && time && ((surface, { plot }, tones) => drawLines(surface, plot, time.scale, { series: drawn.series, kind: request.difference ? "linear" : quantity.scale, colours: tones, timeLabel: xLabel }))} />
    ${drawn && time && data.meta.curves.length > 0 && html`<section class="panel" data-panel="curves"><header><div class="titles"><h2>Curves</h2></div>
        <${ExportMenu} title="Curves" subtitle=${quantity.label} request=${() => ({ panel: "curves", ...request, step: cursorOf(time) })} /></header><div class="scroll" tabindex="0" role="region" aria-label="Curves"><${CurveTable} curves=${data.meta.curves} series=${drawn.series} time=${time} /></div></section>`}
    ${data?.meta.unavailable?.length > 0 && html`<p class="notice">${data.meta.unavailable.map(({ run, reason }) => `${names.get(run) ?? run} ${reason}`).join(" · ")}</p>`}`;
}
