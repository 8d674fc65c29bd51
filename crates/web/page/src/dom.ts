// Makes elements, and changes what is shown into what should be shown without losing focus or scroll.

type Child = Node | string | number | null | undefined | false | Child[];
type Props = Record<string, unknown>;

const HANDLERS = ["onclick", "oninput", "onchange", "onsubmit", "onkeydown"] as const;
const SVG = "http://www.w3.org/2000/svg";

function fill(element: Element, props: Props, children: Child[]): void {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) (element as unknown as Props)[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(9) as Child[]) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** An HTML element. Properties that begin with `on` are handlers, others attributes. */
export function h(tag: string, props: Props = {}, ...children: Child[]): HTMLElement {
  const element = document.createElement(tag);
  fill(element, props, children);
  return element;
}

/** An SVG element. */
export function s(tag: string, props: Props = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS(SVG, tag);
  fill(element, props, children);
  return element;
}

/** Text in which `code` stands between backquotes. */
export function prose(text: string): Child[] {
  return text.split("`").map((part, i) => (i % 2 === 1 ? h("code", {}, part) : part));
}

/** Makes the children of `shown` those of `wanted`. */
export function morph(shown: Element, wanted: Element): void {
  const now = [...shown.childNodes];
  const then = [...wanted.childNodes];
  for (const [i, next] of then.entries()) {
    const old = now[i];
    if (!old) shown.append(next);
    else if (!alike(old, next)) old.replaceWith(next);
    else if (old instanceof Element) {
      adopt(old, next as Element);
      if (!old.hasAttribute("data-own")) morph(old, next as Element);
    } else if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
  }
  for (const rest of now.slice(then.length)) rest.remove();
}

function alike(a: Node, b: Node): boolean {
  if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName) return false;
  if (!(a instanceof Element) || !(b instanceof Element)) return true;
  return a.getAttribute("data-key") === b.getAttribute("data-key");
}

function adopt(old: Element, next: Element): void {
  for (const { name } of [...old.attributes]) {
    // What the user opened stays open.
    if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of [...next.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const handler of HANDLERS) {
    (old as unknown as Props)[handler] = (next as unknown as Props)[handler];
  }
}

/** A table: headings, and rows of cells. Cells of numbers are to the right. */
export function table(label: string, headings: string[], rows: Child[][], numbers: number[] = []): HTMLElement {
  const side = (i: number) => (numbers.includes(i) ? "number" : null);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    h("table", {},
      h("caption", { class: "quiet" }, label),
      h("thead", {}, h("tr", {}, headings.map((text, i) => h("th", { scope: "col", class: side(i) }, text)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => h("td", { class: side(i) }, cell)))))));
}

/** A bar that is full to a share from 0 to 1. */
export function bar(label: string, share: number, kind = ""): SVGElement {
  const part = Math.max(0, Math.min(1, Number.isFinite(share) ? share : 0));
  return s("svg", { class: `bar ${kind}`, viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${Math.round(part * 100)} %` },
    s("rect", { class: "track", width: 100, height: 6 }),
    s("rect", { class: "part", width: part * 100, height: 6 }));
}

export type { Child };
