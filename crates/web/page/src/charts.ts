// Charts over time. A chart is a canvas, so its last values stand beside it as text.

import uPlot from "uplot";
import { h } from "./dom";
import { past } from "./live";

interface Line { label: string; of: (moment: (typeof past)[number]) => number | null; dash?: number[]; accent?: boolean }

const holders = new Map<string, { holder: HTMLElement; chart: uPlot | null }>();

function colours(): { ink: string; quiet: string; line: string; accent: string } {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(name).trim();
  return { ink: of("--ink"), quiet: of("--quiet"), line: of("--line"), accent: of("--accent") };
}

function draw(key: string, title: string, unit: string, lines: Line[]): HTMLElement {
  let held = holders.get(key);
  if (!held) {
    held = { holder: h("div", { class: "chart", "data-own": true, "data-key": key }), chart: null };
    holders.set(key, held);
  }
  const data = [past.map((moment) => moment.at), ...lines.map((line) => past.map(line.of))] as uPlot.AlignedData;
  const width = Math.max(240, Math.min(500, (document.getElementById("main")?.clientWidth ?? 548) - 48));
  if (!held.chart) {
    const { quiet, line, ink, accent } = colours();
    const axis = { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    held.chart = new uPlot({
      width, height: 180, title, legend: { show: false }, cursor: { show: false },
      axes: [axis, { ...axis, size: 60, label: unit, labelSize: 18 }],
      scales: { y: { range: (_chart, _low, high) => [0, Math.max(1, high * 1.1)] } },
      series: [{}, ...lines.map((each) => ({ label: each.label, stroke: each.accent ? accent : ink, width: each.accent ? 2 : 1.2, dash: each.dash, points: { show: false } }))],
    }, data, held.holder);
  } else held.chart.setData(data);
  const last = past[past.length - 1];
  const words = lines.map((line) => {
    const value = last && line.of(last);
    return `${line.label}: ${value === null || value === undefined ? "not known" : `${value.toFixed(1)} ${unit}`}`;
  });
  return h("figure", { "data-key": `figure-${key}` }, held.holder, h("figcaption", { class: "quiet" }, words.join("; ")));
}

/** New colours: charts are drawn again. */
export function forget(): void {
  for (const held of holders.values()) held.chart?.destroy();
  holders.clear();
}

export function charts(): HTMLElement {
  return h("div", { class: "charts" },
    draw("sent", "Repairs, at the busiest node", "MB/s", [{ label: "sent by repairs", of: (moment) => moment.sent / 1e6, accent: true }]),
    draw("felt", "Users' operations, 99th percentile", "ms", [
      { label: "now", of: (moment) => moment.p99, accent: true },
      { label: "without repairs", of: (moment) => moment.usual },
      { label: "target", of: (moment) => moment.target, dash: [5, 4] },
    ]));
}
