/** Papers: a mark per claim and network; a claim opens its numbers, figures and runs. */

import { html } from "../vendor/index.js";
import { url, useAnswer } from "../data/api.js";
import { short } from "../data/format.js";
import { runList, titleOf } from "../data/runs.js";
import { go, openRun, state } from "../data/state.js";
import { Heading, Nothing } from "../ui/controls.js";
import { ExportMenu } from "../ui/export.js";

const MARKS = {
  holds: ["✔", "good", "holds"], met: ["✔", "good", "holds"], fails: ["✘", "bad", "fails"], "not met": ["✘", "bad", "fails"],
  mixed: ["◐", "warm", "seeds disagree"], "holds so far": ["○", "good", "holds so far"], "fails so far": ["●", "bad", "fails so far"],
  "mixed so far": ["◐", "warm", "seeds disagree so far"], "no data": ["–", "muted", "no data"], "-": ["–", "muted", "no data"],
};
const MOST_RUNS = 4; // of a network, as links
const MOST_COLUMNS = 7;
const markOf = (verdict) => MARKS[verdict] ?? ["–", "muted", verdict ?? "no data"];

function Mark({ verdict }) {
  const [symbol, tone, text] = markOf(verdict);
  return html`<span class=${`mark ${tone}`} title=${text}><span aria-hidden="true">${symbol}</span><span class="out-of-sight">${text}</span></span>`;
}

function Table({ columns, rows, title }) {
  const kinds = columns.map((_, i) => (rows.some((row) => typeof row[i] === "number") ? "number" : ""));
  return html`${title && html`<p class="muted" aria-hidden="true">${title}</p>`}<div class="scroll" tabindex="0" role="region" aria-label=${title || "Numbers"}><table class="facts">${title && html`<caption class="out-of-sight">${title}</caption>`}
    <thead><tr>${columns.map((column, i) => html`<th scope="col" class=${kinds[i]}>${column}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell, i) => html`<td class=${kinds[i]}>${typeof cell === "number" ? short(cell) : String(cell ?? "–")}</td>`)}</tr>`)}</tbody></table></div>`;
}

/** Say which runs are missing: text, or {network, runs, seeds, reason}. */
function missingText(one) {
  if (typeof one === "string") return one;
  const seeds = one.seeds?.length ? `seed${one.seeds.length > 1 ? "s" : ""} ${one.seeds.join(", ")} of ` : "";
  return `${seeds}${(one.runs ?? [one.network]).join(", ")}: ${one.reason ?? "missing"}`;
}

/** The export of a paper's claims, or of one of them. */
function Exports({ paper: { key, scale }, claim = null }) {
  return html`<${ExportMenu} title=${claim ?? key} request=${() => ({ panel: "claims", paper: key, scale, claim })} />`;
}

function Claim({ claim, paper }) {
  const { titles } = paper;
  return html`<section class="panel claim" data-panel="claim"><header><div class="titles"><h2>${claim.claim}</h2><p class="note">${claim.quantity}; bound ${claim.bound}</p></div>
      <button class="button quiet" onClick=${() => (state.claim.value = "")}>Close</button><${Exports} paper=${paper} claim=${claim.claim} /></header>
    <p class="sentence">${claim.sentence}</p>
    ${(claim.figures ?? []).map((path) => html`<figure><a href=${url("figure", { path })} target="_blank" rel="noopener" title="Open in full size"><img src=${url("figure", { path })} alt=${`Figure for ${claim.claim}: ${claim.sentence}`} /></a></figure>`)}
    ${claim.headline && html`<p>${claim.headline}</p>`}${claim.reason && html`<p class="muted">${claim.reason}</p>`}
    ${claim.networks.map((part) => html`<div class="verdict" key=${part.label}>
      <h3>${networkTitle(titles, part.label)} <${Mark} verdict=${part.verdict} /> ${markOf(part.verdict)[2]}</h3>
      <p class="seeds">${part.seeds.map((seed) => html`<span class=${seed.met ? "good" : seed.met === false ? "bad" : "muted"}>seed ${seed.seed}: <b>${short(seed.value)}</b></span>`)}
        ${!part.seeds.length && html`<span class="muted">no seed can tell</span>`}</p>
      ${part.runs?.length > 0 && html`<p class="links">${!Object.keys(part.variant).length && html`<span class="muted">runs of these seeds</span>`}${part.runs.slice(0, MOST_RUNS).map((run, i) => html`<button class="chip" data-open=${run} onClick=${() => openRun(run)}>${runTitle(run, i)}</button>`)}
        ${part.runs.length > 1 && html`<button class="chip" onClick=${() => go({ view: "compare", runs: part.runs })}>compare all ${part.runs.length}</button>`}</p>`}
    </div>`)}
    ${(claim.missing ?? []).length > 0 && html`<p class="muted">${claim.missing.map(missingText).join(" · ")}</p>`}
    ${(claim.remarks ?? []).map((remark) => html`<p class="muted">${remark}</p>`)}
    ${(claim.tables ?? []).map((table) => html`<${Table} ...${table} />`)}
  </section>`;
}

const isReplaced = (claim) => claim.claim.endsWith("-first");

/** Return whether a claim is listed: a rule that a later one replaced is if it is asked for. */
const isListed = (id, claim) => state.rules.value === "replaced" || !isReplaced(claim) || state.claim.value === id;

/** Return the last two parts of a run's path, which tell it from others. */
function runTitle(id, i) {
  const run = runList.value?.runs.find((one) => one.id === id);
  return run ? titleOf(run).split("/").slice(-2).join(" / ") : `run ${i + 1}`;
}

/** Return the name of a network, or of a part of it: "vgg, scale 1" with titles {vgg: "VGG"}. */
function networkTitle(titles, key) {
  const [network, ...parts] = key.split(", ");
  return titles?.[key] ?? [titles?.[network] ?? network, ...parts].join(", ");
}

function Paper({ paper }) {
  const networks = paper.networks;
  const wide = networks.length > MOST_COLUMNS; // marks then stand in one column, with names
  return html`<section class="panel" data-panel=${paper.key}><header><div class="titles"><h2>${paper.title || paper.key}</h2><p class="note">${paper.key} · scale ${paper.scale}</p></div><${Exports} paper=${paper} /></header>
    <div class="scroll" tabindex="0" role="region" aria-label=${paper.title || paper.key}><table class="claims"><thead><tr><th scope="col">Claim</th>${wide ? html`<th scope="col">Marks</th>` : networks.map((network) => html`<th scope="col" class="network">${networkTitle(paper.titles, network)}</th>`)}</tr></thead>
      <tbody>${paper.claims.map((claim) => {
        const id = `${paper.key}/${claim.claim}`;
        if (!isListed(id, claim)) return null;
        return html`<tr key=${id} class=${`${state.claim.value === id ? "chosen" : ""} ${isReplaced(claim) ? "replaced" : ""}`}>
          <td class="name"><button class="link" data-row data-claim=${claim.claim} onClick=${() => (state.claim.value = id)}><b>${claim.claim}</b> ${claim.sentence}</button></td>
          ${wide ? html`<td class="marks">${Object.entries(claim.marks).map(([network, verdict]) => html`<span>${networkTitle(paper.titles, network)} <${Mark} verdict=${verdict} /></span>`)}</td>`
            : networks.map((network) => html`<td class="network">${network in claim.marks ? html`<${Mark} verdict=${claim.marks[network]} />` : ""}</td>`)}</tr>`;
      })}</tbody></table></div></section>`;
}

export function Papers() {
  const answer = useAnswer(url("papers", {}), []);
  const { data } = answer;
  if (answer.error) return html`<${Nothing} title="No verdicts to show"><p>${answer.error}</p></${Nothing}>`;
  if (!data) return html`<${Heading} title="Papers" note="Reading…" />`;
  if (!data.papers.length) {
    return html`<${Nothing} title="No verdicts under these folders"><p>${data.hint ?? ""}</p><p class="code">rankscope reproduce</p></${Nothing}>`;
  }
  const chosen = data.papers.flatMap((paper) => paper.claims.map((claim) => ({ id: `${paper.key}/${claim.claim}`, claim, paper })))
    .find(({ id }) => id === state.claim.value);
  return html`<${Heading} title="Papers" note=${data.legend}>
      ${data.papers.some((paper) => paper.claims.some(isReplaced)) && html`<button class="chip" aria-pressed=${state.rules.value === "replaced"}
        onClick=${() => (state.rules.value = state.rules.value ? "" : "replaced")}>show replaced rules</button>`}</${Heading}>
    <div class=${`papers ${chosen ? "split" : ""}`}><div>${data.papers.map((paper) => html`<${Paper} paper=${paper} />`)}</div>
      ${chosen && html`<aside aria-label=${`Claim ${chosen.claim.claim}`}><${Claim} ...${chosen} /></aside>`}</div>`;
}
