// The code explorer: a code's generator, groups and costs, and losses that are clicked together, explained as graphs.

import { get, type CodeShown, type CodesShown, type Explained, type Method } from "../api";
import { bar, h, table, type Child } from "../dom";
import { number } from "../format";
import { explained, figure, methods } from "../explained";
import { failed, type View } from "../view";

export function codes(): View {
  return {
    async load() {
      const { families, registered } = await get<CodesShown>("codes");
      return () => [
        h("h1", {}, "Codes"),
        h("p", { class: "lead" }, "Choose a code, or type the name of any: its generator, its groups, what its repairs cost, and the graph of any loss."),
        field(""),
        table("Families", ["example", "sub-blocks", "what for", "parameters"], families.map((family): Child[] => [
          h("a", { href: `#/codes/${encodeURIComponent(family.example)}` }, family.example), String(family.w), family.about,
          family.keys.map((key) => (key.default === null ? key.name : `${key.name}=${key.default}`)).join(", "),
        ]), [1]),
        registered.length > 0 && table("Registered with this cluster", ["name", "n", "k", "sub-blocks", "distance"], registered.map((code): Child[] => [
          h("a", { href: `#/codes/${encodeURIComponent(code.name)}` }, code.name), String(code.n), String(code.k), String(code.w), String(code.distance),
        ]), [1, 2, 3, 4]),
      ];
    },
  };
}

function field(name: string): HTMLElement {
  return h("form", { class: "field", onsubmit: (event: Event) => {
    event.preventDefault();
    const typed = (document.getElementById("code") as HTMLInputElement).value.trim();
    if (typed !== "") location.hash = `#/codes/${encodeURIComponent(typed)}`;
  } },
  h("label", { for: "code" }, "Code"), h("input", { id: "code", value: name, placeholder: "rs:n=14,k=10", autocomplete: "off", spellcheck: "false" }),
  h("button", { type: "submit" }, "Show"));
}

export function code(name: string): View {
  let lost = [0];
  let method = "auto";
  let racks = 0;
  let answer: Explained | Error | null = null;
  let asked = 0;
  return {
    async load(redraw) {
      const [code, all] = await Promise.all([get<CodeShown>("code", { name }), get<Method[]>("methods")]);
      const ask = async () => {
        const mine = ++asked;
        const found = lost.length === 0 ? null
          : await get<Explained>("code/explain", { code: name, lost: lost.join(","), method, racks }).catch((error: Error) => error);
        if (mine !== asked) return;
        answer = found;
        redraw();
      };
      void ask();
      const toggle = (block: number) => {
        lost = lost.includes(block) ? lost.filter((each) => each !== block) : [...lost, block].sort((a, b) => a - b);
        void ask();
      };
      return () => [
        h("h1", {}, code.name),
        field(code.name),
        h("dl", { class: "figures" },
          figure("blocks", String(code.n)), figure("of data", String(code.k)), figure("sub-blocks", String(code.w)),
          figure("any losses borne", String(code.distance - 1)), figure("overhead", `${number(code.n / code.k)} ×`),
          code.costs && figure("read by a repair", `${number(code.costs.arc)} blocks`),
          code.costs && figure("by a degraded read", `${number(code.costs.degraded)} blocks`)),
        h("section", { "aria-labelledby": "losses", "aria-live": "polite" },
          h("h2", { id: "losses" }, "A loss, explained"),
          h("p", { class: "quiet" }, "Choose the blocks that are lost. Blocks of one local group have the same mark."),
          h("div", { class: "blocks", role: "group", "aria-label": "Lost blocks" }, [...Array(code.n).keys()].map((block) => {
            const group = code.groups.findIndex((each) => each.includes(block));
            const kind = block < code.k ? "data" : "parity";
            const words = `b${block}, ${kind}${group >= 0 ? `, group ${group}` : ""}`;
            return h("button", { type: "button", class: `block ${kind}`, "aria-pressed": lost.includes(block) ? "true" : "false", "aria-label": words, title: words, onclick: () => toggle(block) },
              h("b", {}, `b${block}`), h("span", {}, kind), h("span", {}, group >= 0 ? `group ${group}` : " "));
          })),
          methods(all, method, (chosen) => { method = chosen; void ask(); }),
          h("p", { class: "field" }, h("label", { for: "racks" }, "Racks"),
            h("input", { id: "racks", type: "number", min: 0, max: 2 * code.n - code.k, value: racks, onchange: (event: Event) => { racks = Number((event.target as HTMLInputElement).value) || 0; void ask(); } }),
            h("span", { class: "quiet" }, "0: as few as still bear the loss of one")),
          lost.length === 0 ? h("p", { class: "quiet" }, "No block is lost.") : answer instanceof Error ? failed(answer) : answer ? explained(answer) : h("p", {}, "…")),
        code.costs && costs(code),
        code.groups.length > 0 && h("section", { "aria-labelledby": "groups" }, h("h2", { id: "groups" }, "Local repair groups"),
          h("ul", {}, code.groups.map((group, i) => h("li", {}, `group ${i}: ${group.map((block) => `b${block}`).join(" ")}`)))),
        generator(code),
      ];
    },
  };
}

function costs(code: CodeShown): Child {
  const rows = code.costs?.per_block ?? [];
  const most = Math.max(...rows.map((row) => row.read), 1);
  return h("section", { "aria-labelledby": "costs" }, h("h2", { id: "costs" }, "What the repair of one block costs"),
    table("In blocks", ["block", "read", "", "moved", "from"], rows.map((row): Child[] => [
      `b${row.block}`, number(row.read), bar(`b${row.block} reads`, row.read / most), number(row.moved), `${row.helpers} blocks`,
    ]), [1, 3]));
}

function generator(code: CodeShown): Child {
  const shape = `${code.rows} rows, one for each symbol, by ${code.columns} columns, over ${code.field}`;
  if (code.generator.length === 0) {
    return h("section", {}, h("h2", {}, "Generator"), h("p", { class: "quiet" }, `${shape}: too large to show here; \`kintsu code show ${code.name} --generator\` prints it.`));
  }
  const cells = (row: string) => row.match(/../g) ?? [];
  return h("section", { "aria-labelledby": "generator" }, h("h2", { id: "generator" }, "Generator"), h("p", { class: "quiet" }, shape),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Generator" },
      h("table", { class: "matrix" }, h("tbody", {}, code.generator.map((row, i) => h("tr", {},
        h("th", { scope: "row" }, code.w > 1 ? `b${Math.floor(i / code.w)}.${i % code.w}` : `b${i}`),
        cells(row).map((cell) => h("td", { class: cell === "00" ? "zero" : cell === "01" ? "one" : "other" }, cell))))))));
}
