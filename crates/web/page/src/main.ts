// Chooses the view by the address, and keeps it true.

import "uplot/dist/uPlot.min.css";
import "./page.css";

import { h, morph, prose, type Child } from "./dom";
import { forget } from "./charts";
import { begin, current, listen, silence } from "./live";
import type { Overview } from "./api";
import { failed, type View } from "./view";
import { cluster } from "./views/cluster";
import { code, codes } from "./views/codes";
import { experiments } from "./views/experiments";
import { object, objects } from "./views/objects";
import { repairs } from "./views/repairs";
import { volumes } from "./views/volumes";

const NAV: [string, string][] = [
  ["#/", "Cluster"], ["#/repairs", "Repairs"], ["#/objects", "Objects"], ["#/volumes", "Volumes"], ["#/codes", "Codes"],
  ["#/experiments", "Experiments"],
];
const main = document.getElementById("main")!;
const nav = document.getElementById("nav")!;
const verdict = document.getElementById("verdict")!;

let draw: (() => Child[]) | null = null;
let turn = 0;

/** Shows what there is to show now. */
function show(): void {
  if (draw) morph(main, h("main", {}, draw()));
}

function live(of: (now: Overview) => Child[]): () => Child[] {
  return () => {
    const now = current();
    const gone = silence();
    return [
      gone !== null && h("p", { class: "note error", role: "alert" }, "The cluster does not answer: ", prose(gone), now ? " What is below is old." : ""),
      now ? of(now) : gone === null && h("p", { class: "quiet" }, "Asking the coordinator…"),
    ];
  };
}

function chosen(): { view: View | null; live: (() => Child[]) | null; top: string } {
  const [path, query] = (location.hash || "#/").slice(1).split("?");
  const [, top = "", ...rest] = path.split("/");
  const name = decodeURIComponent(rest.join("/"));
  const prefix = new URLSearchParams(query ?? "").get("prefix") ?? "";
  switch (top) {
    case "repairs": return { view: null, live: live(repairs), top };
    case "objects": return { view: name === "" ? objects(prefix) : object(name), live: null, top };
    case "volumes": return { view: volumes(), live: null, top };
    case "experiments": return { view: experiments(), live: null, top };
    case "codes": return { view: name === "" ? codes() : code(name), live: null, top };
    default: return { view: null, live: live(cluster), top: "" };
  }
}

async function go(): Promise<void> {
  const mine = ++turn;
  const next = chosen();
  for (const link of nav.querySelectorAll("a")) {
    if (link.getAttribute("href") === `#/${next.top}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const title = NAV.find(([to]) => to === `#/${next.top}`)?.[1] ?? "Cluster";
  document.title = `${title} – Kintsu`;
  draw = next.live;
  main.replaceChildren();
  if (next.view) {
    main.setAttribute("aria-busy", "true");
    const redraw = () => { if (mine === turn) show(); };
    const drawn = await next.view.load(redraw).catch((error: Error) => () => [h("h1", {}, title), failed(error)]);
    if (mine !== turn) return;
    draw = drawn;
  }
  main.removeAttribute("aria-busy");
  show();
  window.scrollTo(0, 0);
}

function judged(): void {
  const health = current()?.health;
  const level = silence() !== null ? "error" : health?.verdict ?? "unknown";
  const words = level === "error" && silence() !== null ? "no answer" : level;
  morph(verdict, h("p", {}, h("span", { class: `dot ${level}`, "aria-hidden": "true" }), words));
}

nav.append(...NAV.map(([to, text]) => h("a", { href: to }, text)));
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", () => {
  void go();
  // A screen reader goes on with what is new.
  main.focus({ preventScroll: true });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forget(); show(); });
listen(() => {
  judged();
  const { live } = chosen();
  if (live) show();
});
begin();
judged();
void go();
