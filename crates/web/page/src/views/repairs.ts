// Repairs as they run, what waits and why, the load of links, and what users feel of it.

import { linkName, type Job, type KnownLink, type Overview, type RunningRepair, type WhyWaits } from "../api";
import { bar, h, prose, table, type Child } from "../dom";
import { bytes, many, rate, seconds } from "../format";
import { graph } from "../graph";
import { charts } from "../charts";

const LINKS = 16;

export function repairs(now: Overview): Child[] {
  const { repairs } = now;
  const jobs = [...now.jobs].reverse();
  return [
    h("h1", {}, "Repairs"),
    h("p", { class: "lead" },
      repairs.count === 0 ? "Nothing is being repaired." : `${many(repairs.count, "stripe")} under repair, ${repairs.waiting_count.toLocaleString("en")} waiting.`,
      now.repair_limit_text ? ` Repairs: ${now.repair_limit_text}.` : ""),
    repairs.running.map(running),
    repairs.waiting.length > 0 && h("section", { "aria-labelledby": "waiting" },
      h("h2", { id: "waiting" }, "What comes next, and why not now"),
      h("p", { class: "quiet" }, "The stripe that bears the fewest further losses goes first; it begins when the links that it needs have room."),
      table(`The next ${repairs.waiting.length} of ${repairs.waiting_count} stripes`, ["stripe", "survives", "asked for", "why it waits"],
        repairs.waiting.map((wait) => [
          `s${wait.stripe}`, `${wait.bears} more`, wait.urgent ? "by an operator or a reader" : "automatically", why(wait.why),
        ]))),
    repairs.links.length > 0 && h("section", { "aria-labelledby": "links" },
      h("h2", { id: "links" }, "Links: what they still carry for repairs"),
      h("p", { class: "quiet" }, "A full bar means that the link is given no further repair until it has carried some."),
      h("ul", { class: "links" }, repairs.links.slice(0, LINKS).map((link) => {
        const name = linkName(link.end, link.way);
        return h("li", { "data-key": name }, h("span", {}, name), bar(name, link.bytes / link.enough),
          h("span", { class: "quiet" }, `${bytes(link.bytes)} of ${bytes(link.enough)}${link.rate ? ` at ${rate(link.rate)}` : ""}`));
      }))),
    h("section", { "aria-labelledby": "felt" },
      h("h2", { id: "felt" }, "Since this page was opened"),
      charts(),
      now.repair_limit?.p99_us == null && h("p", { class: "quiet" },
        prose("Users do too little now for a percentile (fewer than 20 operations in 20 seconds). With `kintsu config set repair.target 20%` repairs keep it near what is usual."))),
    h("section", { "aria-labelledby": "jobs" },
      h("h2", { id: "jobs" }, "Jobs"),
      jobs.length === 0 ? h("p", { class: "quiet" }, "No jobs since the coordinator's start.")
        : table("The newest first", ["job", "kind", "what", "state", "progress", "for", "note"], jobs.map(job))),
    rates(now.rates.links),
  ];
}

function why(why: WhyWaits): string {
  if (why === "nothing") return "it begins now";
  if (why === "limit") return "as many stripes as allowed are under repair";
  if (why === "passed") return "a stripe that waited longer goes first";
  if ("full" in why) return `${linkName(why.full[0], why.full[1])} has enough to carry`;
  return `node ${why.busy} takes part in as many repairs as was asked for`;
}

function running(repair: RunningRepair): HTMLElement {
  const share = (upto: number) => (upto - repair.start) / Math.max(1, repair.whole - repair.start);
  const lost = repair.lost.map((block, i) => `b${block} to node ${repair.requestors[i]}`).join(", ");
  const label = `Stripe ${repair.stripe}: ${lost}, by ${repair.method}, from nodes ${repair.helpers.join(", ")}`;
  const reached = new Map(repair.nodes.map((node) => [node.node, share(node.upto)]));
  return h("article", { class: "repair", "data-key": `r${repair.stripe}` },
    h("h2", {}, `Stripe ${repair.stripe} of `, h("a", { href: `#/objects/${encodeURIComponent(repair.object)}` }, repair.object)),
    h("p", { class: "quiet" }, `${repair.code}; ${lost}; ${repair.method}; ${seconds(repair.seconds)}`,
      repair.lanes > 1 ? `; the first of ${repair.lanes} graphs` : "",
      repair.rate ? `; paced to ${rate(repair.rate)}` : ""),
    bar("repaired", repair.upto / Math.max(1, repair.whole)),
    h("p", { class: "quiet" }, `${bytes(repair.upto)} of ${bytes(repair.whole)} of every block`),
    repair.around.map((around) => h("p", { class: "note" }, `Planned around node ${around.node} from byte ${around.upto.toLocaleString("en")} on: ${around.why}`)),
    repair.drawing
      ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Graph of stripe ${repair.stripe}` }, graph(repair.drawing, label, { reached, moving: true }))
      : h("p", { class: "quiet" }, `${label}. Its graph is too large to draw.`));
}

function job(job: Job): Child[] {
  const progress = job.unit === "bytes" ? `${bytes(job.done)} of ${bytes(job.total)}`
    : job.unit === "blocks" ? `${job.done} of ${job.total} blocks` : seconds(job.done);
  return [
    String(job.id), `${job.kind}${job.automatic ? " (automatic)" : ""}`, job.what,
    h("span", { class: `tag ${job.state === "failed" ? "error" : ""}` }, job.state), progress, seconds(job.seconds), job.note,
  ];
}

function rates(links: KnownLink[]): Child {
  if (links.length === 0) {
    return h("p", { class: "quiet" }, prose("No rates of links are known: `kintsu rates measure` measures them, `kintsu rates set FILE` sets them."));
  }
  const rows = links.map((link): Child[] => [
    linkName(link.end, link.way), rate(link.capacity?.[0]), link.capacity?.[1] ?? "", link.foreground === null ? "" : rate(link.foreground),
  ]);
  return h("details", {}, h("summary", {}, "Links and disks"), table("What is known of them", ["link", "rate", "known", "users take"], rows, [1, 3]));
}
