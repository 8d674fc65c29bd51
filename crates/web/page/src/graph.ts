// Draws a graph where the planner has put its boxes, and shows how far a running repair is.

import type { Drawing, DrawnEdge } from "./api";
import { s } from "./dom";

/** With more edges, coefficients are left out. */
const LABELLED = 32;

export interface Progress {
  /** By node, from 0 to 1. */
  reached: Map<number, number>;
  /** Slices move. */
  moving: boolean;
}

function path({ start: [x1, y1], end: [x2, y2] }: DrawnEdge): string {
  const bend = (x2 - x1) / 2;
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

function along(t: number, edge: DrawnEdge): [number, number] {
  const [[x1, y1], [x2, y2]] = [edge.start, edge.end];
  const middle = (x1 + x2) / 2;
  const u = 1 - t;
  const curve = (a: number, b: number, c: number, d: number) =>
    u * u * u * a + 3 * u * u * t * b + 3 * u * t * t * c + t * t * t * d;
  return [curve(x1, middle, middle, x2), curve(y1, y1, y2, y2)];
}

/** The graph as a picture with a sentence for those who do not see it. */
export function graph(drawing: Drawing, label: string, progress?: Progress): SVGElement {
  const { width, height } = drawing;
  const svg = s("svg", { class: "graph", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  for (const frame of drawing.frames) {
    svg.append(s("rect", { class: "frame", x: frame.x, y: frame.y, width: frame.width, height: frame.height, rx: 6 }));
  }
  for (const edge of drawing.edges) {
    svg.append(s("path", { class: edge.local ? "edge local" : "edge", d: path(edge) }));
    if (progress?.moving && !edge.local) svg.append(s("path", { class: "slices", d: path(edge) }));
  }
  if (drawing.edges.length <= LABELLED) {
    for (const edge of drawing.edges.filter((edge) => edge.coef !== 1)) {
      const [x, y] = along(0.3, edge);
      svg.append(s("text", { class: "coef", x, y: y + 3.5 }, edge.coef.toString(16).padStart(2, "0")));
    }
  }
  for (const box of drawing.boxes) {
    const { x, y, width: w, height: tall } = box;
    svg.append(s("rect", {
      class: box.target ? "box target" : "box", x, y, width: w, height: tall, rx: box.symbol ? 3 : tall / 2,
      fill: box.colour ?? "#eeeeee",
    }));
    const reached = box.node === null ? undefined : progress?.reached.get(box.node);
    if (reached !== undefined && box.symbol) {
      svg.append(s("rect", { class: "reached", x: x + 3, y: y + tall - 4, width: Math.max(0, (w - 6) * reached), height: 2.5, rx: 1 }));
    }
    const base = y + tall / 2 + (box.place ? -2 : 4);
    svg.append(s("text", { class: "name", x: x + w / 2, y: base }, box.name));
    if (box.place) svg.append(s("text", { class: "place", x: x + w / 2, y: base + 13 }, box.place));
  }
  return svg;
}
