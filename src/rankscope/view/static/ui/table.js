/** Tables of any length: only the rows in sight exist. */

import { html, useEffect, useRef, useState } from "../vendor/index.js";

/**
 * A table that scrolls by itself.
 *
 * head: cells of the header. render(row, index) returns a <tr> of `rowHeight` pixels. Arrow keys move
 * between the first buttons or links of rows.
 */
export function VirtualTable({ rows, rowHeight, head, render, label, columns, name = "" }) {
  const ref = useRef(null);
  const [top, setTop] = useState(0);
  const [room, setRoom] = useState(700);
  useEffect(() => {
    const measure = () => setRoom(ref.current?.clientHeight ?? 700);
    measure();
    addEventListener("resize", measure);
    return () => removeEventListener("resize", measure);
  }, []);
  useEffect(() => {
    ref.current.scrollTop = 0;
  }, [name]);
  const first = Math.max(0, Math.floor(top / rowHeight) - 8);
  const end = Math.min(rows.length, Math.ceil((top + room) / rowHeight) + 8);
  const space = (count) =>
    count > 0 && html`<tr class="space" aria-hidden="true"><td colspan=${columns} style=${{ height: `${count * rowHeight}px` }} /></tr>`;
  return html`<div class="table" ref=${ref} tabindex="0" role="region" aria-label=${label} onKeyDown=${moveFocus}
      onScroll=${(event) => setTop(event.currentTarget.scrollTop)}>
    <table>
      <thead><tr>${head}</tr></thead>
      <tbody>${space(first)}${rows.slice(first, end).map((row, i) => render(row, first + i))}${space(rows.length - end)}</tbody>
    </table>
  </div>`;
}

function moveFocus(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const targets = [...event.currentTarget.querySelectorAll("tbody [data-row]")];
  const here = targets.indexOf(document.activeElement);
  const next = here < 0 ? targets[0] : targets[here + step];
  if (!next) return;
  event.preventDefault();
  event.stopPropagation();
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}
