/** Small controls that several views use. */

import { html, useMemo } from "../vendor/index.js";
import { hasParts } from "../data/run.js";
import { state, zoomed } from "../data/state.js";
import { isFew, sparkBand, sparkLine, sparkRange } from "../draw/spark.js";
import { resetZoom } from "./timepanel.js";

/** One of a few options. options: [[value, text], ...]. */
export function Segments({ label, value, options, onChange }) {
  return html`<div class="segments" role="group" aria-label=${label}>
    ${options.map(
      ([option, text]) =>
        html`<button key=${option} aria-pressed=${option === value} onClick=${() => onChange(option)}>${text}</button>`,
    )}
  </div>`;
}

/** A list of options in groups: [[group, [[value, text], ...]], ...]. */
export function Select({ label, value, groups, onChange, hideLabel, name }) {
  const options = (entries) =>
    entries.map(([option, text]) => html`<option key=${option} value=${option} selected=${option === value}>${text}</option>`);
  return html`<label>
    <span class=${hideLabel ? "out-of-sight" : ""}>${label}</span>
    <select class="field" name=${name} value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${groups.map(([group, entries]) =>
        group ? html`<optgroup key=${group} label=${group}>${options(entries)}</optgroup>` : options(entries),
      )}
    </select>
  </label>`;
}

const keyOf = ({ of, metric }) => `${of} ${metric}`;

/** Return the quantity that the address names, or the run's default among `allowed`. */
export function chosenQuantity(info, allowed = () => true) {
  const known = info.quantities.filter(allowed);
  const named = known.find(({ of, metric }) => of === state.of.value && metric === state.metric.value);
  const usual = known.find(({ of, metric }) => of === "singular_values" && metric === "normalized_effective_rank");
  const fallback = known.find((one) => keyOf(one) === keyOf(info.default));
  return named ?? usual ?? fallback ?? known[0] ?? null;
}

/** Choose what is measured, and of what. */
export function QuantitySelect({ info, quantity, allowed = () => true, hideLabel }) {
  const groups = new Map();
  for (const one of info.quantities.filter(allowed)) {
    if (!groups.has(one.group)) groups.set(one.group, []);
    groups.get(one.group).push([keyOf(one), one.label]);
  }
  const choose = (key) => {
    const one = info.quantities.find((candidate) => keyOf(candidate) === key);
    state.of.value = one.of;
    state.metric.value = one.metric;
  };
  return html`<${Select} label="Measure" name="measure" hideLabel=${hideLabel} value=${quantity && keyOf(quantity)} groups=${[...groups]} onChange=${choose} />`;
}

/** Show heads and other parts beside the matrices they are cut from. */
export function PartsToggle({ info }) {
  if (!hasParts(info)) return null;
  const shown = Boolean(state.parts.value);
  return html`<button class="chip" aria-pressed=${shown} onClick=${() => (state.parts.value = shown ? "" : "1")}>show heads and gates</button>`;
}

/** The scale of the time axis, and a button that shows all of it. */
export function TimeControls({ along }) {
  const options = [["snapshots", "snapshots"], ["linear", along], ["log", `log ${along}`]];
  return html`<${Segments} label="Time axis" value=${state.axis.value} options=${options}
      onChange=${(value) => (state.axis.value = value)} />
    ${zoomed.value && html`<button class="button quiet" onClick=${resetZoom}>Whole run</button>`}`;
}

const SPARK = { height: 30, inset: 2 }; // pixels

/** Return a path of SVG through points; NaN begins a new line, and a point alone is a dot. */
function pathThrough(points) {
  let data = "", pen = "M";
  for (let i = 0; i < points.length; i += 2) {
    if (Number.isNaN(points[i + 1])) pen = "M";
    else {
      data += `${pen}${points[i].toFixed(1)} ${points[i + 1].toFixed(1)}${pen === "M" ? "h0" : ""}`;
      pen = "L";
    }
  }
  return data;
}

/** A small line, or dots of a few values, with a band if given; null values are gaps. */
export function Spark({ values, low, high, width, range }) {
  const { height, inset } = SPARK;
  const drawn = useMemo(() => {
    const box = { x: inset, y: inset, width: width - 2 * inset, height: height - 2 * inset };
    const ends = range ?? sparkRange([values, low ?? [], high ?? []]);
    const band = low && !isFew(values) ? pathThrough(sparkBand(low, high, box, ends)) : "";
    return { line: pathThrough(sparkLine(values, box, ends)), band: band && `${band}Z` };
  }, [values, low, high, width, range?.[0], range?.[1]]);
  return html`<svg class="spark" width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} aria-hidden="true">
    ${drawn.band && html`<path class="band" d=${drawn.band} />`}<path class=${isFew(values) ? "dots" : ""} d=${drawn.line} />
  </svg>`;
}

/** What to do where there is nothing to see. */
export function Nothing({ title, children }) {
  return html`<div class="nothing"><h2>${title}</h2>${children}</div>`;
}

/** The heading of a view. */
export function Heading({ title, note, children }) {
  return html`<div class="heading"><div><h1>${title}</h1>${note && html`<p>${note}</p>`}</div>${children}</div>`;
}
