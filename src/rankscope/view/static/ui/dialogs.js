/** Dialogs: search, the list of keys, Python lines. */

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/index.js";
import { runList, titleOf } from "../data/runs.js";
import { go, openRun, state } from "../data/state.js";
import { shownLines } from "./export.js";
import { KEYS, openDialog } from "./keys.js";

const MOST = 40; // results

/** A modal dialog; the browser keeps focus inside it and closes it with Escape. */
function Dialog({ label, onClose, className = "", children }) {
  const ref = useRef(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    ref.current.showModal();
    return () => before?.focus?.();
  }, []);
  const outside = (event) => event.target === ref.current && onClose();
  return html`<dialog ref=${ref} class=${className} aria-label=${label} onClose=${onClose} onClick=${outside}>${children}</dialog>`;
}

function Titled({ title, onClose, children }) {
  return html`<${Dialog} label=${title} onClose=${onClose}>
    <header><h2>${title}</h2><button class="button quiet" onClick=${onClose}>Close</button></header>
    <div class="body" tabindex="0" role="region" aria-label=${title}>${children}</div></${Dialog}>`;
}

function KeyList() {
  return html`<${Titled} title="Keys" onClose=${() => (openDialog.value = "")}>
    <div class="keys">${KEYS.map(([keys, text]) => html`<div><span>${text}</span><span>${keys.map((key) => html`<kbd>${key}</kbd> `)}</span></div>`)}</div></${Titled}>`;
}

function Lines() {
  const { title, lines } = shownLines.value;
  const [button, setButton] = useState("Copy");
  const text = useRef(null);
  const copy = async () => {
    // Browsers have no clipboard for pages of other machines without encryption.
    const isCopied = await navigator.clipboard?.writeText(lines).then(() => true, () => false);
    if (!isCopied) getSelection().selectAllChildren(text.current);
    setButton(isCopied ? "Copied" : "Selected: press Ctrl C");
  };
  return html`<${Titled} title=${title} onClose=${() => (shownLines.value = null)}>
    <pre class="lines" ref=${text}>${lines}</pre><p><button class="button" onClick=${copy}>${button}</button></p></${Titled}>`;
}

/** Return everything that can be searched: {text, kind, open}. */
function candidates(info, views) {
  const rows = (axis, kind, open) => (info?.axes[axis]?.rows ?? []).map((row) => ({ text: row.label, more: row.name, kind, open: () => open(row.name) }));
  return [
    ...views.map(([view, text]) => ({ text, kind: "view", open: () => go({ view }) })),
    ...rows("matrix", "matrix", (matrix) => go({ view: "matrix", matrix })),
    ...(info?.quantities ?? []).map(({ of, metric, label, group }) => ({ text: label, more: group, kind: "measure", open: () => go({ of, metric, view: state.view.peek() === "runs" ? "moved" : state.view.peek() }) })),
    ...rows("pair", "pair", (pair) => go({ view: "alignment", pair })),
    ...rows("product", "head", (product) => go({ view: "heads", product })),
    ...(runList.value?.runs ?? []).filter((run) => run.status !== "damaged")
      .map((run) => ({ text: titleOf(run), more: run.folder, kind: "run", open: () => openRun(run.id, run.kind === "theory" ? "theory" : "moved") })),
  ];
}

function Search({ info, views }) {
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const all = useMemo(() => candidates(info, views).map((one) => ({ ...one, searched: `${one.text} ${one.more ?? ""} ${one.kind}`.toLowerCase() })),
    [info, runList.value]);
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = all.filter(({ searched }) => words.every((word) => searched.includes(word))).slice(0, MOST);
  const close = () => (openDialog.value = "");
  const open = (hit) => {
    close();
    hit?.open();
  };
  const press = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && hits.length) {
      event.preventDefault();
      setAt((at + step + hits.length) % hits.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(hits[at]);
    }
  };
  const list = useRef(null);
  useEffect(() => list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" }), [at, query]);
  return html`<${Dialog} label="Search" className="palette top-placed" onClose=${close}>
    <input type="text" role="combobox" aria-label="Search runs, matrices, measures and views" aria-expanded="true" aria-controls="hits" aria-activedescendant=${hits.length ? `hit${at}` : undefined}
      placeholder="Search runs, matrices, measures, views…" value=${query} autofocus onKeyDown=${press} onInput=${(event) => {
        setQuery(event.target.value);
        setAt(0);
      }} />
    <ul id="hits" role="listbox" aria-label="Results" ref=${list}>${hits.map((hit, i) => html`<li key=${i} id=${`hit${i}`} role="option" aria-selected=${i === at} onClick=${() => open(hit)}>
      <span>${hit.text} ${hit.more && html`<small>${hit.more}</small>`}</span><small>${hit.kind}</small></li>`)}
      ${!hits.length && html`<li role="option" aria-selected="false"><span>Nothing matches.</span></li>`}</ul></${Dialog}>`;
}

export function Dialogs({ info, views }) {
  if (shownLines.value) return html`<${Lines} />`;
  if (openDialog.value === "keys") return html`<${KeyList} />`;
  if (openDialog.value === "search") return html`<${Search} info=${info} views=${views} />`;
  return null;
}
