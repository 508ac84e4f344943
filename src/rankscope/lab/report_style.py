"""How the report looks: on a screen, light or dark, on a phone and on paper."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --faint: #5d6570; --line: #d5d9de;
  --shade: #f4f6f8; --link: #0b57a4; --yes: #0a6b3d; --no: #a61b1b; --undecided: #7a5200; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6e9; --paper: #16181b; --faint: #9ba4af;
  --line: #3a3f46; --shade: #202327; --link: #7fb8f5; --yes: #58c98b; --no: #f08a80;
  --undecided: #e0b357; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 78rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: .5rem 0 1rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .75rem; padding-bottom: .3rem;
  border-bottom: 1px solid var(--line); }
h3 { font-size: 1.08rem; margin: 2rem 0 .5rem; }
p, li, figcaption { max-width: 46rem; }
a { color: var(--link); }
code, pre { font: .9em/1.5 ui-monospace, Menlo, Consolas, monospace; background: var(--shade); }
code { padding: .1em .3em; border-radius: 3px; }
pre { padding: .75rem 1rem; overflow-x: auto; border-radius: 6px; }
nav ul { columns: 2; padding-left: 1.2rem; max-width: 46rem; }
.faint, caption { color: var(--faint); }
.keys a { margin-right: .9em; white-space: nowrap; text-decoration: none; }
.tally { font-size: 1.15rem; max-width: none; }
.tally > span { display: inline-block; margin-right: 1.4em; }
.scroll { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .92rem; }
.claims { width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .45rem .8rem .45rem 0;
  border-top: 1px solid var(--line); }
th { font-weight: 600; border-top: 0; color: var(--faint); }
.claims > tbody > tr > td:nth-child(2) { min-width: 18rem; }
td.bound { min-width: 5.5rem; max-width: 15rem; }
td.number { white-space: nowrap; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .4rem 0; font-size: .92rem; }
.claims > tbody > tr.behind > td { border-top: 0; padding-top: 0; }
.key { font-weight: 600; white-space: nowrap; }
.verdict { font-weight: 600; white-space: nowrap; }
.yes { color: var(--yes); } .no { color: var(--no); } .undecided { color: var(--undecided); }
.quantity { display: block; color: var(--faint); font-size: .88rem; }
details { margin: .1rem 0 .6rem; }
summary { cursor: pointer; color: var(--link); font-size: .92rem; }
summary .verdict { margin-left: .2em; }
details > :not(summary) { margin-left: 1rem; }
figure { margin: 1.5rem 0 2.5rem; }
figure img { display: block; max-width: 100%; height: auto; background: #fff; padding: .5rem;
  border: 1px solid var(--line); border-radius: 6px; }
.picture { position: relative; display: block; cursor: zoom-in; }
.picture input { position: absolute; opacity: 0; }
.frame { display: block; }
input:focus-visible + .frame { outline: 2px solid var(--link); }
@media screen {
  input:checked + .frame { overflow-x: auto; cursor: zoom-out; width: calc(100vw - 3rem);
    margin-left: calc(50% - 50vw + 1.5rem); }
  input:checked + .frame img { max-width: none; }
}
figcaption { margin-top: .6rem; }
figcaption b { display: block; }
.remark { color: var(--undecided); }
@media (max-width: 46rem) {
  nav ul { columns: 1; }
  .claims, .claims > tbody, .claims > tbody > tr, .claims > tbody > tr > td { display: block; }
  .claims > thead { display: none; }
  .claims > tbody > tr > td:nth-child(2) { min-width: 0; }
  td.bound { min-width: 0; max-width: none; }
  td.number { white-space: normal; }
  .claims > tbody > tr { padding: .6rem 0 0; border-top: 1px solid var(--line); }
  .claims > tbody > tr.behind { border-top: 0; }
  .claims > tbody > tr > td { border: 0; padding: .1rem 0; }
  .claims > tbody > tr > td[data-label]::before { content: attr(data-label) ": ";
    color: var(--faint); }
}
@media print { body { max-width: none; font-size: 11pt; } nav, .screen { display: none; }
  figure, tr { break-inside: avoid; } .scroll { overflow: visible; } }
"""
