// Objects: names, then one with its stripes; blocks that are chosen as lost are explained.

import { get, type Explained, type Method, type ObjectInfo, type ObjectShown, type StripeShown } from "../api";
import { h, table, type Child } from "../dom";
import { bytes, many, moment } from "../format";
import { explained, methods } from "../explained";
import { failed, type View } from "../view";

export function objects(prefix: string): View {
  return {
    async load() {
      const page = await get<{ objects: ObjectInfo[]; prefixes?: string[]; more: boolean }>("objects", { prefix, delimiter: "/" });
      const up = prefix.replace(/[^/]*\/?$/, "");
      const link = (to: string, text: string) => h("a", { href: `#/objects?${new URLSearchParams({ prefix: to })}` }, text);
      const rows = [
        ...(page.prefixes ?? []).map((each): Child[] => [link(each, each), "", "", "", ""]),
        ...page.objects.map((object): Child[] => [
          h("a", { href: `#/objects/${encodeURIComponent(object.name)}` }, object.name), bytes(object.size), object.code,
          object.encoded ? many(object.stripes, "stripe") : "not encoded yet", moment(object.created),
        ]),
      ];
      return () => [
        h("h1", {}, "Objects"),
        h("form", { class: "field", role: "search", onsubmit: (event: Event) => {
          event.preventDefault();
          const field = document.getElementById("prefix") as HTMLInputElement;
          location.hash = `#/objects?${new URLSearchParams({ prefix: field.value })}`;
        } },
        h("label", { for: "prefix" }, "Names that begin with"), h("input", { id: "prefix", type: "search", value: prefix, autocomplete: "off" }),
        h("button", { type: "submit" }, "Show")),
        prefix !== "" && h("p", {}, link(up, up === "" ? "All objects" : `Up to ${up}`)),
        rows.length === 0 ? h("p", { class: "quiet" }, "No objects.")
          : table(prefix === "" ? "All objects" : `Below ${prefix}`, ["name", "size", "code", "stripes", "changed"], rows, [1]),
        page.more && h("p", { class: "quiet" }, "There are more: type the beginning of a name."),
      ];
    },
  };
}

export function object(name: string): View {
  let stripe: StripeShown | null = null;
  let lost = new Set<number>();
  let method = "auto";
  let answer: Explained | Error | null = null;
  let asked = 0;
  return {
    async load(redraw) {
      const [shown, all] = await Promise.all([get<ObjectShown>("object", { name }), get<Method[]>("methods")]);
      stripe = shown.stripes[0] ?? null;
      const ask = async () => {
        const mine = ++asked;
        if (lost.size === 0 || !stripe) answer = null;
        else {
          const position = shown.first + shown.stripes.indexOf(stripe);
          const found = await get<Explained>("explain", { name, stripe: position, lost: [...lost].join(","), method })
            .catch((error: Error) => error);
          if (mine !== asked) return;
          answer = found;
        }
        redraw();
      };
      const toggle = (index: number) => {
        lost = new Set(lost.has(index) ? [...lost].filter((each) => each !== index) : [...lost, index]);
        void ask();
      };
      return () => [
        h("h1", {}, name),
        about(shown),
        h("section", { "aria-labelledby": "stripes" },
          h("h2", { id: "stripes" }, "Stripes"),
          h("p", { class: "quiet" }, "Choose blocks of a stripe: the repair that would follow their loss is explained below."),
          h("ol", { class: "stripes", start: shown.first }, shown.stripes.map((each, i) => blocks(each, shown.first + i, each === stripe ? lost : new Set(), (index) => {
            if (stripe !== each) { stripe = each; lost = new Set(); }
            toggle(index);
          }))),
          shown.stripes.length < shown.object.stripes && h("p", { class: "quiet" }, `The first ${shown.stripes.length} of ${shown.object.stripes}.`)),
        h("section", { "aria-labelledby": "explained", "aria-live": "polite" },
          h("h2", { id: "explained" }, lost.size === 0 || !stripe ? "The repair, explained" : `If ${[...lost].map((block) => `b${block}`).join(", ")} of stripe ${stripe.id} were lost`),
          methods(all, method, (chosen) => { method = chosen; void ask(); }),
          lost.size === 0 ? h("p", { class: "quiet" }, "No block is chosen.") : answer instanceof Error ? failed(answer) : answer ? explained(answer) : h("p", {}, "…")),
      ];
    },
  };
}

function about({ object, damage }: ObjectShown): HTMLElement {
  const rows: [string, Child][] = [
    ["size", `${bytes(object.size)} (${object.size.toLocaleString("en")} bytes)`],
    ["code", h("a", { href: `#/codes/${encodeURIComponent(object.code)}` }, object.code)],
    ["stripes", String(object.stripes)],
    ["health", h("span", { class: `tag ${damage.health === "whole" ? "" : damage.health === "degraded" ? "warning" : "error"}` }, damage.health)],
    ["changed", moment(object.created)],
    ["checksum", object.checksum ?? "not known"],
  ];
  if (object.attributes?.content_type) rows.push(["type", object.attributes.content_type]);
  for (const [key, value] of Object.entries(object.attributes?.user ?? {})) rows.push([key, value]);
  return h("dl", { class: "rows" }, rows.map(([what, value]) => h("div", {}, h("dt", {}, what), h("dd", {}, value))));
}

function blocks(stripe: StripeShown, position: number, lost: Set<number>, toggle: (index: number) => void): HTMLElement {
  const cells = stripe.blocks.map((block) => {
    const kind = block.index < (stripe.k ?? stripe.n) ? "data" : "parity";
    const words = `b${block.index}, ${kind}, node ${block.node}, rack ${block.rack ?? "unknown"}, ${bytes(block.length)}${block.fault ? `, ${block.fault.toLowerCase()}` : ""}`;
    return h("button", { type: "button", class: `block ${kind} ${block.fault ? "fault" : ""}`, "aria-pressed": lost.has(block.index) ? "true" : "false", "aria-label": words, title: words, onclick: () => toggle(block.index) },
      h("b", {}, `b${block.index}`), h("span", {}, `N${block.node}`), h("span", {}, block.fault ? block.fault.toLowerCase() : `r${block.rack ?? "?"}`));
  });
  return h("li", { "data-key": String(stripe.id) }, h("span", { class: "quiet" }, `s${stripe.id}${stripe.encoded ? "" : ", not encoded yet"}`),
    h("div", { class: "blocks", role: "group", "aria-label": `Blocks of stripe ${position}` }, cells));
}
