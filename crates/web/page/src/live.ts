// The facts that change: a stream from the page's server, and what was seen of it since the page was opened.

import type { Overview } from "./api";

/** Moments that are kept for charts. */
const KEPT = 600;

export interface Past { at: number; sent: number; p99: number | null; usual: number | null; target: number | null; running: number }

let now: Overview | null = null;
let away: string | null = null;
export const past: Past[] = [];
const listeners = new Set<() => void>();

export const current = (): Overview | null => now;
export const silence = (): string | null => away;

export function listen(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function keep(seen: Overview): void {
  const limit = seen.repair_limit;
  const ms = (micros: number | null | undefined) => (micros === null || micros === undefined ? null : micros / 1000);
  past.push({
    at: Date.now() / 1000, sent: limit?.sent ?? 0, p99: ms(limit?.p99_us), usual: ms(limit?.usual_us),
    target: ms(limit?.target_us), running: seen.repairs.count,
  });
  if (past.length > KEPT) past.shift();
}

export function begin(): void {
  const stream = new EventSource("/api/live");
  stream.addEventListener("now", (event) => {
    const told = JSON.parse((event as MessageEvent<string>).data) as { cluster?: Overview; away?: string };
    if (told.cluster) {
      now = told.cluster;
      away = null;
      keep(now);
    } else away = told.away ?? "no answer";
    for (const listener of listeners) listener();
  });
  stream.addEventListener("error", () => {
    away = "the page's own server does not answer; is `kintsu up` or `kintsu page` still running?";
    for (const listener of listeners) listener();
  });
}
