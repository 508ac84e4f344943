/** Alignment: pairs x time over background, and the diagonal of one pair. */

import { html, useMemo } from "../vendor/index.js";
import { url, useAnswer } from "../data/api.js";
import { orNotStored, short, storedWords, when } from "../data/format.js";
import { firstRows, storedColumns } from "../data/frame.js";
import { shownInterval, windowOf } from "../data/run.js";
import { state } from "../data/state.js";
import { fieldOf } from "../draw/heat.js";
import { drawLines } from "../draw/lines.js";
import { palette } from "../draw/palette.js";
import { drawSpectra, indexLayout } from "../draw/spectrum.js";
import { nearest } from "../draw/time.js";
import { chosenQuantity, Heading, Nothing, QuantitySelect, Segments, TimeControls } from "../ui/controls.js";
import { WITH_NAMES } from "../ui/panel.js";
import { cursorOf, timeOf, TimePanel } from "../ui/timepanel.js";
import { HeatPanel } from "./depth.js";
import { chosenRow, RowSelect } from "./matrix.js";
import { withValues } from "./spectra.js";

const FEW = 0.1; // share of snapshots with values below which a direction is left out

const ofPairs = (quantity) => quantity.axis === "pair";

/** The overlap matrix's diagonal of one pair over time. */
function DiagonalPanel({ info, time, answer, request, row }) {
  const kind = state.index.value;
  const drawn = useMemo(() => {
    if (!answer.data) return null;
    const filled = storedColumns(answer.data);
    const { arrays } = filled;
    const directions = withValues(arrays, arrays.x.length, FEW); // from 1
    const field = fieldOf(firstRows(filled, directions.length), { kind: "linear" });
    const index = directions.map((i) => i - 1);
    return { field, index, x: arrays.x, order: Uint32Array.from(index, (_, i) => i), k: index[index.length - 1] + 1, times: filled.times };
  }, [answer.data]);
  const layout = useMemo(() => drawn && indexLayout(drawn.index, drawn.k, kind), [drawn, kind]);
  const tip = (x, y, { plot }) => {
    const place = layout.rowOf(layout.scale.fromUnit(Math.max(0, Math.min(0.9999, (y - plot.y) / plot.height))));
    const i = nearest(drawn.x, cursorOf(time)), value = drawn.field.value(place, i);
    return [[`direction ${drawn.index[place] + 1}`, orNotStored(value)], [info.along, when(timeOf(value, drawn.x[i], time))]];
  };
  const legend = drawn && { scale: { map: "viridis", ...drawn.field, label: "overlap" } };
  return html`<${TimePanel} name="diagonal" title="Diagonal of the overlap matrix" note=${[storedWords(drawn?.times ?? {}, info.along), `direction i of ${row.earlier ?? "the earlier"} with i of ${row.later ?? "the later"}`].filter(Boolean).join(" · ")}
    legend=${legend} height=${280} margins=${WITH_NAMES} time=${time} answer=${answer} tip=${drawn && tip}
    exports=${{ request: () => ({ panel: "alignment", ...request, ...shownInterval(), width: null }), subtitle: row.name }}
    draw=${drawn && ((surface, { plot }, colours) => drawSpectra(surface, plot, time.scale, {
      ...drawn, layout, lines: [], colours, timeLabel: info.along,
    }))} />`;
}

function MeanPanel({ info, time, answer, request, row }) {
  const { accent, muted } = palette.value;
  const data = useMemo(() => answer.data && storedColumns(answer.data), [answer.data]);
  const x = data?.arrays.x;
  const chance = data?.meta.chance ?? row.chance;
  const series = data ? [
    ...(chance ? [{ x, y: new Float64Array(x.length).fill(chance), colour: muted, dash: [2, 3], width: 1, label: "chance" }] : []),
    { x, y: data.arrays.background, colour: muted, width: 1.5, label: "background" },
    { x, y: data.arrays.mean, colour: accent, width: 2, label: "mean of the first ten" },
  ] : [];
  const tip = () => {
    const i = nearest(x, cursorOf(time));
    return [[info.along, when(x[i])], ...series.toReversed().map((one) => [one.label, short(one.y[i]), one.colour])];
  };
  const legend = { entries: series.toReversed().map(({ label, colour, dash }) => ({ text: label, colour, dash })) };
  return html`<${TimePanel} name="mean" title="Mean alignment" note=${[storedWords(data?.times ?? {}, info.along), row.label].filter(Boolean).join(" · ")} legend=${legend} height=${180} margins=${WITH_NAMES} time=${time} answer=${answer}
    tip=${data && tip} exports=${{ request: () => ({ panel: "alignment", ...request, ...shownInterval(), width: null }), subtitle: row.name }}
    draw=${data && ((surface, { plot }, colours) => drawLines(surface, plot, time.scale, { series, kind: "linear", colours, timeLabel: info.along }))} />`;
}

export function Alignment({ run, info, time }) {
  const rows = info.axes.pair?.rows ?? [];
  const preferred = info.quantities.find((one) => ofPairs(one) && one.metric === "relative_alignment");
  const named = chosenQuantity(info, ofPairs);
  const quantity = named && named.of === state.of.value ? named : preferred ?? named;
  const row = chosenRow(rows, state.pair.value);
  const diagonal = info.diagonals.find(({ of }) => of === quantity?.of) ?? info.diagonals[0];
  const request = diagonal && row ? { run, of: diagonal.of, pair: row.name, format: "float32", ...windowOf(info, 1024) } : null;
  const answer = useAnswer(request && url("alignment", request), [run]);
  if (!quantity || !row) {
    return html`<${Nothing} title="This run has no pairs"><p>Track them to see which directions neighbours share:</p>
      <p class="code">rs.Tracker(model, path, pairs=rs.discover_pairs(model, inputs))</p></${Nothing}>`;
  }
  const context = { run, info, time };
  return html`<${Heading} title="Alignment" note="Overlap of the leading directions of neighbouring matrices, over what random overlap gives" />
    <div class="bar"><${QuantitySelect} info=${info} quantity=${quantity} allowed=${ofPairs} /><span class="push" /><${TimeControls} along=${info.along} /></div>
    <${HeatPanel} ...${context} quantity=${quantity} title=${quantity.label} note=${`${rows.length} pairs · click one`} />
    <div class="bar" id="pair"><h2 class="section">One pair</h2><${RowSelect} label="Pair" rows=${rows} row=${row} onChange=${(name) => (state.pair.value = name)} />
      <${Segments} label="Index axis" value=${state.index.value} options=${[["log", "log index"], ["linear", "linear"]]} onChange=${(value) => (state.index.value = value)} /></div>
    ${diagonal && html`<${DiagonalPanel} ...${context} answer=${answer} request=${request} row=${row} />
      <${MeanPanel} ...${context} answer=${answer} request=${request} row=${row} />`}`;
}
