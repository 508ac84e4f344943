"""The report's style sheet: light and dark, screen, phone and paper."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --faint: #5d6570; --line: #d5d9de;
  --shade: #f4f6f8; --link: #0b57a4; --holds: #0a6b3d; --fails: #a61b1b; --mixed: #7a5200; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6e9; --paper: #16181b; --faint: #9ba4af;
  --line: #3a3f46; --shade: #202327; --link: #7fb8f5; --holds: #58c98b; --fails: #f08a80;
  --mixed: #e0b357; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1.25rem 4rem; max-width: 84rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .25rem 0; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .75rem; padding-bottom: .3rem;
  border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .25rem; }
h1 + p, h3 + p { margin-top: 0; }
p, li, figcaption { max-width: 52rem; }
a { color: var(--link); }
pre { font: .9em/1.5 ui-monospace, Menlo, Consolas, monospace; background: var(--shade);
  padding: .75rem 1rem; overflow-x: auto; border-radius: 6px; }
.faint, .dim, caption, .legend, cite { color: var(--faint); }
.seen { font-size: 1.05rem; padding-left: 1.2rem; margin: .5rem 0 1rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(30rem, 1fr));
  gap: 1rem; align-items: start; }
figure { margin: 0; }
figure img { display: block; width: 100%; height: auto; background: #fff; padding: .4rem;
  border: 1px solid var(--line); border-radius: 6px; }
details figure img, figure.natural img { width: auto; max-width: 100%; }
.overview { margin: 1rem 0; min-height: 24rem; }
@media (scripting: none) { .overview { display: none; } }
figure.natural { margin-bottom: 1rem; }
figcaption { margin-top: .4rem; font-size: .92rem; color: var(--faint); }
table { border-collapse: collapse; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .9rem .35rem 0;
  border-top: 1px solid var(--line); }
th { font-weight: 600; border-top: 0; color: var(--faint); }
caption { text-align: left; padding: .4rem 0; }
.marks td:nth-child(2) { min-width: 18rem; }
.key { font-weight: 600; white-space: nowrap; }
.mark { white-space: nowrap; margin-right: .8em; }
.green { color: var(--holds); } .red { color: var(--fails); } .yellow { color: var(--mixed); }
.scroll { overflow-x: auto; margin: .75rem 0; }
details { margin: .3rem 0; }
details[open] { padding-bottom: 1rem; }
summary { cursor: pointer; }
summary b { margin-right: .4em; }
details > :not(summary) { margin-left: 1rem; }
@media (max-width: 46rem) {
  .pictures { grid-template-columns: 1fr; }
  .marks tr, .marks td { display: block; border: 0; padding: .1rem 0; }
  .marks tr { border-top: 1px solid var(--line); padding: .5rem 0; }
  .marks td:nth-child(2) { min-width: 0; }
}
@media print { body { max-width: none; font-size: 11pt; } figure, tr { break-inside: avoid; }
  .scroll { overflow: visible; } }
"""
