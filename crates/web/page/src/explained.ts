// One explanation of a repair: its graph, what it moves, and how long it takes.

import type { Explained, Method } from "./api";
import { h, table, type Child } from "./dom";
import { bytes, number, seconds } from "./format";
import { graph } from "./graph";

export function explained(e: Explained): Child[] {
  const list = (of: number[]) => of.map((block) => `b${block}`).join(" ");
  const to = e.lost.map((block, i) => `b${block} goes to node ${e.requestors[i]}`).join(", ");
  const label = `Graph of the repair of ${list(e.lost)} by ${e.method} from ${list(e.helpers)}; ${to}. Its text is below.`;
  const { account } = e;
  return [
    h("dl", { class: "figures" },
      figure("read", bytes(account.bytes_read)), figure("moved", bytes(account.bytes_moved)),
      figure("across racks", bytes(account.bytes_across_racks)), figure("busiest link", bytes(account.max_link_bytes)),
      figure("timeslots", number(e.timeslots)), figure("slices", `${e.slices.toLocaleString("en")} of ${bytes(e.slice_bytes)}`)),
    h("p", {}, `${to}. Helpers, in the order of the path: ${list(e.helpers)}.`,
      e.lanes > 1 ? ` The slices are divided among ${e.lanes} graphs; the first is drawn.` : ""),
    e.drawing
      ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Graph" }, graph(e.drawing, label))
      : h("p", { class: "quiet" }, "The graph is too large to draw."),
    h("p", { class: "quiet" }, "A box is a vertex on its node, with a colour for each rack: square for symbols, rounded for partial sums, with a heavy border for what is rebuilt. A strong edge is a transfer, a pale one stays on its node; a number is a coefficient other than 1. A timeslot is the time in which one link carries one block."),
    e.compared && table("Every method at the known rates of links", ["method", "time"],
      [...e.compared.methods.map((each): Child[] => [each.method, seconds(each.seconds)]),
        ...(e.compared.bound_seconds === null ? [] : [["no repair takes less than", seconds(e.compared.bound_seconds)]])], [1]),
    h("details", {}, h("summary", {}, "Traffic of each link"),
      table(`${account.links.length} links`, ["from", "to", "bytes", ""], account.links.map((link) => [
        name(link.from), name(link.to), bytes(link.bytes), link.across_racks ? "across racks" : "",
      ]), [2])),
    h("details", {}, h("summary", {}, "The graph as text, and the tasks of every node"),
      h("pre", { tabindex: 0 }, e.graph),
      e.nodes.map((node) => [h("h4", {}, name(node.node), node.rack === null ? "" : ` in rack ${node.rack}`), h("ul", { class: "tasks" }, node.tasks.map((task) => h("li", {}, task)))])),
  ];
}

const name = (node: number) => (node === 4294967295 ? "client" : `node ${node}`);

export function figure(what: string, value: string): HTMLElement {
  return h("div", {}, h("dt", {}, what), h("dd", {}, value));
}

/** A choice of methods. */
export function methods(all: Method[], chosen: string, choose: (name: string) => void): HTMLElement {
  const select = h("select", { id: "method", onchange: (event: Event) => choose((event.target as HTMLSelectElement).value) },
    all.map((method) => h("option", { value: method.name, selected: method.name === chosen }, method.name)));
  const about = all.find((method) => method.name === chosen)?.about ?? "";
  return h("p", { class: "field" }, h("label", { for: "method" }, "Method"), select, h("span", { class: "quiet" }, about));
}
