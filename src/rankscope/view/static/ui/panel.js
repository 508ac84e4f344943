/** A titled picture with its legend, tooltip and exports. */

import { html, useRef } from "../vendor/index.js";
import { palette } from "../draw/palette.js";
import { Canvas, useWidth } from "./canvas.js";
import { ExportMenu } from "./export.js";
import { Legend } from "./legend.js";

const NARROW = 560; // pixels

/** Return the plot inside a picture; all pictures of a view have the same sides. */
export function plotOf(width, height, { gutter = 64, narrow = 48, top = 6, bottom = 24, right = 14 } = {}) {
  const left = width < NARROW ? narrow : gutter;
  return { x: left, y: top, width: Math.max(1, width - left - right), height: Math.max(1, height - top - bottom) };
}

const UNREADABLE = "Parts of this run are damaged and cannot be read.";

/** The margins of panels with row names, and of those that stand above or below one. */
export const WITH_NAMES = { gutter: 172, narrow: 96 };

/**
 * A picture on a canvas.
 *
 * draw(surface, box) and overlay(surface, box) with box = {width, height, plot}; `signals` are those
 * that the overlay reads. tip(x, y, box) returns rows [label, value, colour] or null. pick(x, y, box)
 * answers a click. answer: {data, error, loading} of the data behind it. legend: what Legend takes;
 * controls stand in its place, and it is in exported files alone. exports: {request, subtitle, above},
 * above to export the overlay too.
 */
export function Panel(props) {
  const { title, note, legend, controls, height, margins, answer, empty, exports, label } = props;
  const [ref, width] = useWidth();
  const tip = useRef(null), pressed = useRef(null);
  const size = typeof height === "function" ? height(width) : height;
  const box = { width, height: size, plot: plotOf(width, size, margins) };
  const damage = (answer?.data?.meta ?? answer?.data)?.damage;
  const problem = answer?.error ?? (!answer?.loading && empty && (damage ? UNREADABLE : empty)) ?? null;
  const waiting = answer?.loading && !answer?.data;
  const ready = width && !problem && !waiting && props.draw;
  const done = answer?.data?.meta?.done ?? answer?.data?.done;
  const partial = (answer?.data?.meta ?? answer?.data)?.complete === false;
  const overlay = props.overlay && ((surface) => props.overlay(surface, box));
  if (overlay) overlay.signals = props.signals ?? [];
  const heading = title || note || legend || controls || exports;
  return html`<section class="panel ${answer?.loading ? "loading" : ""}" data-panel=${props.name}>
    ${heading &&
    html`<header>
      <div class="titles">
        <h2>${title}</h2>
        ${note && html`<p class="note">${note}</p>`}
      </div>
      ${damage && !problem && html`<span class="damage" role="status" title=${damage}>${UNREADABLE}</span>`}
      ${partial && html`<span class="partial" role="status">reading ${Math.floor(100 * done)}%</span>`}
      ${(controls || legend) && html`<div class="legend">${controls ?? html`<${Legend} ...${legend} />`}</div>`}
      ${exports && ready && html`<${ExportMenu} ...${exports} title=${title} legend=${legend} draw=${props.draw} overlay=${exports.above && props.overlay} box=${box} />`}
    </header>`}
    <div class="picture" ref=${ref} style=${{ minHeight: `${size}px` }}>
      ${ready &&
      html`<${Canvas}
        width=${width}
        height=${size}
        label=${label ?? title}
        draw=${(surface) => props.draw(surface, box, palette.value)}
        overlay=${overlay}
        handlers=${handlersOf(props, box, tip, pressed)}
      />`}
      ${waiting && html`<p class="state" role="status">Reading…</p>`}
      ${problem && html`<p class="state ${answer?.error ? "error" : ""}" role="status">${problem}</p>`}
      <div class="tip" ref=${tip} hidden />
    </div>
  </section>`;
}

function place(event) {
  const { left, top } = event.currentTarget.getBoundingClientRect();
  return [event.clientX - left, event.clientY - top];
}

export const LEAST_DRAG = 6; // pixels from which a press is no click

function handlersOf(props, box, tip, pressed) {
  const { onMove, onLeave, onDown, onUp, pick, onDouble, onTouchMove } = props;
  return {
    onTouchMove,
    onPointerMove: (event) => {
      const [x, y] = place(event);
      onMove?.(x, y, box, event);
      showTip(tip.current, props.tip?.(x, y, box, event), x, y, box);
    },
    onPointerLeave: (event) => {
      onLeave?.(event);
      showTip(tip.current, null);
    },
    onPointerDown: (event) => {
      const [x, y] = place(event);
      pressed.current = event.isPrimary ? [x, y] : null; // two fingers pick nothing
      onDown?.(x, y, box, event);
    },
    onPointerUp: (event) => {
      const [x, y] = place(event);
      const from = pressed.current;
      pressed.current = null;
      onUp?.(x, y, box, event);
      if (from && Math.hypot(x - from[0], y - from[1]) < LEAST_DRAG) pick?.(x, y, box, event);
    },
    onDblClick: () => onDouble?.(),
  };
}

function showTip(element, rows, x, y, box) {
  if (!element) return;
  element.hidden = !rows;
  if (!rows) return;
  element.replaceChildren(
    ...rows.map(([label, value, colour]) => {
      const row = document.createElement("div");
      if (colour) {
        const key = row.appendChild(document.createElement("i"));
        key.style.background = colour;
      }
      row.appendChild(document.createElement("span")).textContent = label;
      if (value !== undefined) row.appendChild(document.createElement("b")).textContent = value;
      return row;
    }),
  );
  const wide = element.offsetWidth;
  const left = x + 16 + wide > box.width ? Math.max(0, Math.min(x, box.width) - wide - 12) : Math.max(0, x + 16);
  element.style.transform = `translate(${left}px, ${Math.max(0, Math.min(y + 14, box.height - element.offsetHeight))}px)`;
}
