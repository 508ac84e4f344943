/** Depth x time: a measure of every matrix as a heat map, scalars above it on the same axis. */

import { html, useMemo } from "../vendor/index.js";
import { url, useAnswer } from "../data/api.js";
import { orNotStored, storedWords, when } from "../data/format.js";
import { storedColumns } from "../data/frame.js";
import { detailOf, formatFor, shownInterval, shownRows, windowOf } from "../data/run.js";
import { go, state } from "../data/state.js";
import { NOT_STORED } from "../draw/cells.js";
import { drawHeat, fieldOf, layoutRows, rowAt, topOf } from "../draw/heat.js";
import { palette } from "../draw/palette.js";
import { nearest } from "../draw/time.js";
import { chosenQuantity, Heading, Nothing, PartsToggle, QuantitySelect, Segments, TimeControls } from "../ui/controls.js";
import { WITH_NAMES } from "../ui/panel.js";
import { cursorOf, hovered, timeOf, TimePanel } from "../ui/timepanel.js";
import { ScalarsPanel } from "./scalars.js";

const FEW = 0.1; // share of snapshots below which a row that is stored there is left out
const ORDERS = [["model", "by depth"], ["kind", "by kind"], ["moved", "by movement"]];

/** Return the height of a heat map with so many rows. */
export const heatHeight = (rows) => Math.max(150, Math.min(620, rows * 19)) + 30;

/** Ratios to chance have their middle at 1 and colours of their own. */
export const isRatio = (quantity) => /relative_|over_|ratio/.test(quantity.metric);

/** Return the rows of a field that are stored, and not only here and there while others are often. */
function storedRows({ codes, rows, columns }) {
  const counts = Array.from({ length: rows }, (_, row) => {
    let count = 0;
    for (let i = row * columns; i < (row + 1) * columns; i++) if (codes[i] !== NOT_STORED) count++;
    return count;
  });
  const least = Math.max(1, Math.max(...counts) > columns / 2 ? columns * FEW : 1);
  return counts.map((_, row) => row).filter((row) => counts[row] >= least);
}

/** Return a row's name in the margin: what both matrices of a pair have in common stands there once. */
export function rowLabel({ label }) {
  return label.replace(/^(.+ )(.+) > \1(.+)$/, "$1$2 > $3").replace(/^(.+)(, .+) > (.+)\2$/, "$1 > $3$2");
}

function ratioRange(values) {
  let high = 2;
  for (const value of values) if (value > high && value < Infinity) high = value;
  return [1 / high, high];
}

export function HeatPanel({ run, info, time, quantity, title, note, margins = WITH_NAMES }) {
  const order = state.order.value;
  const rows = shownRows(info, quantity.axis);
  const request = {
    run, of: quantity.of, metric: quantity.metric, order, format: formatFor(info, rows.length), ...windowOf(info),
    ...(quantity.axis === "matrix" ? { parts: state.parts.value } : {}),
  };
  const answer = useAnswer(url("heat", request), [run]);
  const drawn = useMemo(() => {
    if (!answer.data?.arrays.values.length) return null;
    const frame = storedColumns(answer.data);
    const { meta, arrays } = frame;
    const all = info.axes[meta.axis ?? quantity.axis]?.rows ?? [];
    const ratio = isRatio(quantity) && arrays.values instanceof Float32Array;
    const field = fieldOf(frame, ratio ? { kind: "log", range: ratioRange(arrays.values) } : {});
    const indices = Uint32Array.from(storedRows(field));
    const shown = Array.from(indices, (i) => all[arrays.rows[i]]);
    if (!shown.length || shown.some((row) => !row)) return null; // of another axis; its answer is on the way
    const groups = shown.map((row) => (order === "moved" ? "" : order === "kind" ? row.kind_label : row.block));
    return { field, shown, groups, indices, x: arrays.x, map: ratio ? "ratios" : "viridis", empty: field.rows - shown.length, times: frame.times };
  }, [answer.data, order, quantity.of, quantity.metric]);
  const height = heatHeight(drawn?.shown.length ?? rows.length);
  const layout = useMemo(() => drawn && layoutRows(drawn.groups, height - 30), [drawn, height]);
  const under = (x, y, { plot }) => (drawn && x >= plot.x ? rowAt(layout, y - plot.y) : -1);
  const tip = (x, y, box) => {
    const row = under(x, y, box);
    if (row < 0) return null;
    const { field, shown, indices } = drawn;
    const i = nearest(drawn.x, cursorOf(time)), value = field.value(indices[row], i);
    return [
      [shown[row].label], [shown[row].name],
      [quantity.label, (field.exact ? "" : "≈ ") + orNotStored(value)], [info.along, when(timeOf(value, drawn.x[i], time))],
    ];
  };
  const open = (x, y, box) => {
    const row = under(x, y, box);
    const target = row >= 0 && detailOf(quantity.axis, drawn.shown[row]);
    if (target) go({ ...target, of: quantity.of, metric: quantity.metric });
  };
  const legend = drawn && { scale: { map: drawn.map, ...drawn.field } };
  const words = [storedWords(drawn?.times ?? {}, info.along), note, drawn?.empty && `${drawn.empty} stored seldom or never, left out`].filter(Boolean);
  return html`<${TimePanel} name="heat" title=${title} note=${words.join(" · ")} legend=${legend} height=${height} margins=${margins}
    time=${time} answer=${answer} tip=${tip} pick=${open}
    label=${`${quantity.label} of ${rows.length} rows over ${info.along}`}
    empty=${answer.data && !drawn ? `No values of ${quantity.label} are stored here. Choose another measure.` : null}
    exports=${{ request: () => ({ panel: "heat", ...request, ...shownInterval(), format: null, width: null }), subtitle: info.summary.name }}
    draw=${drawn && ((surface, { plot }, colours) => drawHeat(surface, plot, time.scale, {
      ...drawn, layout, order: drawn.indices, labels: drawn.shown.map(rowLabel), colours, timeLabel: info.along,
    }))}
    overlay=${(surface, { plot }) => {
      const here = hovered.value;
      if (here?.name !== "heat" || !layout) return;
      const row = rowAt(layout, here.y - plot.y);
      if (row < 0) return;
      const top = plot.y + topOf(layout, row), tall = Math.max(1, layout.unit);
      const { ink } = palette.peek();
      surface.path([plot.x, top, plot.x + plot.width, top], { colour: ink, width: 1, opacity: 0.8 });
      surface.path([plot.x, top + tall, plot.x + plot.width, top + tall], { colour: ink, width: 1, opacity: 0.8 });
    }}
  />`;
}

export function Depth(context) {
  const { info } = context;
  const quantity = chosenQuantity(info);
  if (!quantity) return html`<${Nothing} title="This run stores no measures over depth">
    <p>Track matrices with <span class="code">rs.Tracker(model, path)</span>.</p></${Nothing}>`;
  return html`<${Heading} title="Depth × time" note=${quantity.help ?? ""} />
    <div class="bar">
      <${QuantitySelect} info=${info} quantity=${quantity} />
      <${Segments} label="Order of rows" value=${state.order.value} options=${ORDERS} onChange=${(value) => (state.order.value = value)} />
      ${quantity.axis === "matrix" && html`<${PartsToggle} info=${info} />`}
      <span class="push" /><${TimeControls} along=${info.along} />
    </div>
    <${ScalarsPanel} ...${context} margins=${WITH_NAMES} />
    <${HeatPanel} ...${context} quantity=${quantity} title=${`${quantity.label}, ${quantity.group}`}
      note=${`${shownRows(info, quantity.axis).length} rows · click one to open it`} />`;
}
