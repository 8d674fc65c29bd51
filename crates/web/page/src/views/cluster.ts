// The cluster: verdict, causes, stripes at risk, racks and nodes.

import type { Cause, DamagedStripe, NodeInfo, Overview } from "../api";
import { bar, h, prose, table, type Child } from "../dom";
import { bytes, many, seconds } from "../format";

const SAFE = new Set(["alive", "draining"]);

export function cluster(now: Overview): Child[] {
  const { health, status } = now;
  return [
    h("h1", {}, "Cluster"),
    h("p", { class: `headline ${health.verdict}` }, health.headline),
    h("dl", { class: "figures" },
      figure("objects", status.objects.toLocaleString("en")),
      figure("stored", bytes(status.object_bytes)),
      figure("stripes", status.stripes.toLocaleString("en")),
      figure("nodes alive", `${status.alive} of ${status.alive + status.dead}`),
      figure("stripes degraded", status.degraded_stripes.toLocaleString("en")),
      figure("unreadable", status.unreadable_stripes.toLocaleString("en")),
      figure("blocks to repair", status.repairs_pending.toLocaleString("en"))),
    status.held_back.map((reason) => h("p", { class: "note" }, "Held back: ", prose(reason))),
    health.causes.length > 0 && h("section", { "aria-labelledby": "causes" },
      h("h2", { id: "causes" }, "What needs attention"), health.causes.map(cause)),
    h("section", { "aria-labelledby": "racks" }, h("h2", { id: "racks" }, "Racks and nodes"), racks(now.nodes)),
  ];
}

function figure(what: string, value: string): HTMLElement {
  return h("div", {}, h("dt", {}, what), h("dd", {}, value));
}

function cause(cause: Cause): HTMLElement {
  const word = cause.level === "healthy" ? "note" : cause.level;
  return h("article", { class: `cause ${cause.level}`, "data-key": cause.kind },
    h("h3", {}, h("span", { class: "tag" }, word), " ", cause.title),
    (cause.details ?? []).map((detail) => h("p", { class: "quiet" }, prose(detail))),
    (cause.stripes ?? []).length > 0 && damaged(cause.stripes ?? [], cause.count),
    h("p", {}, prose(cause.advice)));
}

function damaged(stripes: DamagedStripe[], count: number): HTMLElement {
  const rows = stripes.map((stripe): Child[] => [
    `s${stripe.stripe}`,
    stripe.volume
      ? h("a", { href: "#/volumes" }, `volume ${stripe.object}`)
      : h("a", { href: `#/objects/${encodeURIComponent(stripe.object)}` }, stripe.object),
    stripe.code,
    stripe.readable ? (stripe.bears === 0 ? "no more for sure" : `${stripe.bears} more`) : h("strong", {}, "cannot be read"),
    stripe.absent.map((block) => `b${block.index} on node ${block.node} (${block.lost ? "lost" : "down"})`).join(", "),
  ]);
  const label = stripes.length < count ? `The worst ${stripes.length} of ${count} stripes` : many(count, "stripe");
  return table(label, ["stripe", "object", "code", "survives", "missing"], rows);
}

function racks(nodes: NodeInfo[]): HTMLElement {
  const byRack = new Map<string, NodeInfo[]>();
  for (const node of nodes) {
    const name = node.rack_name ?? `rack ${node.rack}`;
    byRack.set(name, [...(byRack.get(name) ?? []), node]);
  }
  const sections = [...byRack].map(([name, nodes]) => {
    const down = nodes.filter((node) => !SAFE.has(node.state)).length;
    return h("section", { class: "rack", "data-key": name },
      h("h3", {}, name, h("span", { class: "quiet" }, ` ${many(nodes.length, "node")}${down > 0 ? `, ${down} down` : ""}`)),
      h("ul", { class: "nodes" }, nodes.map(node)));
  });
  return h("div", { class: "racks" }, sections);
}

function node(node: NodeInfo): HTMLElement {
  const { usage } = node;
  const well = SAFE.has(node.state);
  const share = usage && usage.capacity_bytes > 0 ? 1 - usage.free_bytes / usage.capacity_bytes : 0;
  const full = node.fullness === "full" || node.fullness === "nearly_full";
  const words = [
    node.state,
    full && node.fullness.replace("_", " "),
    node.lost_blocks > 0 && `${many(node.lost_blocks, "block")} lost`,
    !well && `silent for ${seconds(node.silent_ms / 1000)}`,
  ].filter(Boolean).join(", ");
  return h("li", { class: `node ${well ? (full || node.lost_blocks > 0 ? "warning" : "") : "error"}`, title: node.dir, "data-key": String(node.id) },
    h("strong", {}, node.name ?? `node ${node.id}`),
    h("span", { class: "state" }, words),
    usage ? bar("disk full", share, full ? "warning" : "") : null,
    h("span", { class: "quiet" }, `${many(node.placed_blocks, "block")}, ${bytes(usage?.bytes)}`),
    node.failed && h("span", { class: "quiet" }, node.failed));
}
