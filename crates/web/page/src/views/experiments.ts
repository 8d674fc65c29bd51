// Experiments: results of `kintsu lab run`, as charts with their tables.

import { get, type Experiment } from "../api";
import { h, prose, s, table, type Child } from "../dom";
import { number } from "../format";
import type { View } from "../view";

const HEIGHT = 220;
const BAR = 16;
const LEFT = 56;
/** Patterns beside colours, so that series can be told apart without them. */
const SHADES = 6;

export function experiments(): View {
  return {
    async load() {
      const { folder, experiments } = await get<{ folder: string | null; experiments: Experiment[] }>("experiments");
      return () => [
        h("h1", {}, "Experiments"),
        folder === null
          ? h("p", { class: "lead" }, prose("`kintsu lab run NAME --out results` repeats a published figure on this machine; `kintsu page --results results` shows here what came of it."))
          : h("p", { class: "lead" }, `Results in ${folder}.`, experiments.length === 0 ? " There are none." : ""),
        experiments.map((each) => h("section", { "aria-label": each.name },
          h("h2", {}, each.title), h("p", { class: "quiet" }, `${each.name}; ${each.source}`, each.differs === "" ? "" : `. What differs: ${each.differs}`),
          h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Chart of ${each.name}` }, chart(each)),
          legend(each.chart.series),
          each.tables.map((shown, i) => h("details", {}, h("summary", {}, i === 0 ? "Claims, published and measured" : "Every point"),
            table(each.name, shown.headings, shown.rows))))),
      ];
    },
  };
}

function legend(series: string[]): HTMLElement {
  return h("ul", { class: "legend" }, series.map((name, i) => h("li", {},
    s("svg", { width: 14, height: 14, "aria-hidden": "true", "aria-label": "" }, s("rect", { class: `shade${i % SHADES}`, width: 14, height: 14, rx: 2 })), name)));
}

function chart({ name, chart }: Experiment): SVGElement {
  const values = chart.groups.flatMap((group) => group.bars.map((bar) => bar.range[1]));
  const top = nice(Math.max(...values, 1e-9));
  const y = (value: number) => 28 + (HEIGHT - 28) * (1 - value / top);
  const parts: Child[] = [0, 0.25, 0.5, 0.75, 1].map((share) => [
    s("line", { class: "grid", x1: LEFT, x2: "100%", y1: y(top * share), y2: y(top * share) }),
    s("text", { class: "tick", x: LEFT - 8, y: y(top * share) + 4 }, number(Number((top * share).toPrecision(3)))),
  ]);
  let x = LEFT + 12;
  for (const group of chart.groups) {
    const wide = Math.max(group.bars.length * BAR, group.label.length * 6.5);
    const from = x + (wide - group.bars.length * BAR) / 2;
    group.bars.forEach((bar, i) => {
      const middle = from + i * BAR + (BAR - 3) / 2;
      parts.push(s("rect", { class: `shade${bar.series % SHADES}`, x: from + i * BAR, y: y(bar.value), width: BAR - 3, height: Math.max(0, HEIGHT - y(bar.value)) },
        s("title", {}, `${chart.series[bar.series]}, ${group.label}: ${number(bar.value)} ${chart.axis}`)));
      parts.push(s("line", { class: "range", x1: middle, x2: middle, y1: y(bar.range[0]), y2: y(bar.range[1]) }));
    });
    parts.push(s("text", { class: "label", x: x + wide / 2, y: HEIGHT + 16 }, group.label));
    x += wide + 22;
  }
  parts.push(s("text", { class: "label", x: LEFT + (x - LEFT) / 2, y: HEIGHT + 34 }, chart.groups_are));
  const words = `${name}: ${chart.axis} by ${chart.groups_are}; the values are in the table below`;
  return s("svg", { class: "bars", width: Math.max(x, 320), height: HEIGHT + 44, role: "img", "aria-label": words },
    s("text", { class: "axis", x: 0, y: 12 }, chart.axis), parts);
}

/** The next round number. */
function nice(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 7.5, 10].map((each) => each * power).find((each) => each >= value * 0.999) ?? value;
}
