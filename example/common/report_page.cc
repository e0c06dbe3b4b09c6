#include "example/common/report_page.h"

namespace infini_train {

// The two colours of curves are Okabe and Ito's: the colour-blind can tell them apart.
const std::string_view kReportStyle = R"css(
:root { color-scheme: light dark; --page: #ffffff; --card: #f6f7f9; --ink: #1c1f23; --grey: #5d6670; --rule: #d9dde2;
  --s0: #0072b2; --s1: #d55e00; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --page: #15181c; --card: #1e2329; --ink: #e6e9ed; --grey: #9aa5b1;
  --rule: #363d46; --s0: #56b4e9; --s1: #e69f00; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 20px; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; }
h1 { font-size: 24px; margin: 0 0 14px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 30px 0 10px; }
small, .name { color: var(--grey); }
.notes { margin: 0 0 14px; padding: 10px 14px 10px 32px; border-left: 4px solid var(--s1); background: var(--card); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 10px; margin: 0; }
.tiles div { background: var(--card); border-radius: 8px; padding: 10px 12px; }
.tiles dt { color: var(--grey); font-size: 13px; }
.tiles dd { margin: 0; font-size: 19px; font-variant-numeric: tabular-nums; }
.tiles dd small { font-size: 13px; white-space: nowrap; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 14px; }
figure { margin: 0; background: var(--card); border-radius: 8px; padding: 12px 16px 34px 12px; min-width: 0; }
figcaption { margin-bottom: 12px; }
.key { margin-left: 10px; white-space: nowrap; }
.key::before { content: ""; display: inline-block; width: 16px; height: 3px; margin-right: 5px; vertical-align: middle;
  background: currentColor; }
.key.s0 { color: var(--s0); } .key.s1 { color: var(--s1); }
.bad { color: var(--bad); }
.plot { position: relative; height: 230px; margin-left: 52px; touch-action: pan-y; }
.plot svg { position: absolute; width: 100%; height: 100%; overflow: visible; }
.plot path { vector-effect: non-scaling-stroke; fill: none; }
.plot .grid { stroke: var(--rule); }
.plot .line { stroke-width: 1.6px; stroke-linejoin: round; stroke-linecap: round; }
.plot .dots { stroke-width: 6px; stroke-linecap: round; }
.plot .band { opacity: 0.25; stroke-width: 1px; }
.line.s0, .dots.s0 { stroke: var(--s0); } .line.s1, .dots.s1 { stroke: var(--s1); }
.plot .band.s0 { fill: var(--s0); stroke: var(--s0); } .plot .band.s1 { fill: var(--s1); stroke: var(--s1); }
.plot i { position: absolute; font-style: normal; font-size: 12px; color: var(--grey); white-space: nowrap; }
.plot .y { right: calc(100% + 8px); transform: translateY(-50%); }
.plot .x { top: calc(100% + 5px); transform: translateX(-50%); }
.plot .xname { right: calc(100% + 8px); top: calc(100% + 5px); }
.plot .cursor { top: 0; bottom: 0; border-left: 1px solid var(--grey); pointer-events: none; }
.plot .tip { top: 4px; padding: 4px 8px; border: 1px solid var(--rule); border-radius: 6px; background: var(--page);
  color: var(--ink); white-space: pre; pointer-events: none; font-variant-numeric: tabular-nums; z-index: 1; }
.scroll { overflow-x: auto; }
.scroll svg { display: block; border-radius: 8px; }
.bars { display: grid; grid-template-columns: auto 1fr auto; gap: 5px 12px; align-items: center; }
.bars b { display: block; height: 8px; border-radius: 2px; margin: 2px 0; }
.bars .s0 { background: var(--s0); } .bars .s1 { background: var(--s1); }
.bars span { font-variant-numeric: tabular-nums; }
.sections { columns: 3 340px; column-gap: 26px; }
section, details { break-inside: avoid; margin-bottom: 16px; }
h3, summary { font-size: 15px; font-weight: 600; margin: 0 0 4px; }
summary { cursor: pointer; }
table { border-collapse: collapse; width: 100%; }
td { padding: 3px 0; border-top: 1px solid var(--rule); vertical-align: top; overflow-wrap: anywhere; }
td.name { padding-right: 12px; width: 46%; }
pre { margin: 4px 0 14px; padding: 10px 12px; max-height: 340px; overflow: auto; background: var(--card);
  border-radius: 8px; white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.45 ui-monospace, Menlo, Consolas,
  "DejaVu Sans Mono", monospace; }
@media (max-width: 600px) { body { padding: 12px; } .plot { height: 200px; margin-left: 46px; } .plot .odd { display: none; }
  .bars { grid-template-columns: auto 1fr; } .bars span { grid-column: 1 / -1; margin-bottom: 6px; } }
)css";

const std::string_view kReportScript = R"js(
for (const plot of document.querySelectorAll('.plot')) {
  const [low, high] = JSON.parse(plot.dataset.x), series = JSON.parse(plot.dataset.series);
  const cursor = plot.appendChild(document.createElement('i')), tip = plot.appendChild(document.createElement('i'));
  cursor.className = 'cursor'; tip.className = 'tip';
  const hide = () => { cursor.hidden = tip.hidden = true; };
  const number = value => value === 0 ? '0' : Math.abs(value) < 1e-3 || Math.abs(value) >= 1e9 ? value.toExponential(2)
    : String(Number(value.toPrecision(5)));
  const distance = (point, step) => step < point[0] ? point[0] - step : step > point[1] ? step - point[1] : 0;
  const show = event => {
    const box = plot.getBoundingClientRect();
    const part = (event.clientX - box.left) / box.width;
    if (part < 0 || part > 1) return hide();
    const step = low + part * (high - low);
    const near = series.filter(one => one[1].length).map(([name, points]) =>
      [name, points.reduce((best, point) => distance(point, step) < distance(best, step) ? point : best)]);
    tip.textContent = near.map(([name, point]) => 'step ' + (point[0] === point[1] ? point[0] : point[0] + ' to ' + point[1])
      + ': ' + name + ' ' + (point.length < 3 ? 'not finite' : number(point[2])
      + (point[3] === point[4] ? '' : ' (' + number(point[3]) + ' to ' + number(point[4]) + ')'))).join('\n');
    cursor.hidden = tip.hidden = false;
    cursor.style.left = 100 * part + '%';
    tip.style.left = Math.max(0, Math.min(part * box.width + 8, box.width - tip.offsetWidth)) + 'px';
  };
  hide();
  plot.addEventListener('pointermove', show);
  plot.addEventListener('pointerdown', show);
  plot.addEventListener('pointerleave', hide);
}
)js";

}  // namespace infini_train
