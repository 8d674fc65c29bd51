// The facts, as the coordinator gives them.

export type Level = "healthy" | "warning" | "error";

export interface AbsentBlock { index: number; node: number; lost: boolean }
export interface DamagedStripe {
  stripe: number; object: string; volume?: boolean; code: string; readable: boolean; bears: number; absent: AbsentBlock[];
}
export interface Cause {
  level: Level; kind: string; title: string; advice: string; count: number; nodes?: number[];
  stripes?: DamagedStripe[]; details?: string[];
}
export interface Health { verdict: Level; headline: string; causes: Cause[] }
export interface DiskUsage { blocks: number; bytes: number; free_bytes: number; capacity_bytes: number; aside_bytes: number }
export interface NodeInfo {
  id: number; rack: number; state: string; dir: string; silent_ms: number; usage: DiskUsage | null; reserve_bytes: number;
  fullness: string; placed_blocks: number; lost_blocks: number; name: string | null; rack_name: string | null;
  failed: string | null;
}
export interface Status {
  objects: number; object_bytes: number; stripes: number; alive: number; dead: number; degraded_stripes: number;
  unreadable_stripes: number; repairs_pending: number; puts_pending: number; garbage: number; cluster: string | null;
  held_back: string[]; metadata_copy: { age_seconds: number } | null;
}
export interface Job {
  id: number; kind: string; what: string; automatic: boolean; state: string; began: number; seconds: number;
  done: number; total: number; note: string; unit: "bytes" | "blocks" | "seconds";
}
export interface Limit {
  rate: number | null; why: string; sent: number; p99_us: number | null; usual_us: number | null; target_us: number | null;
}
export type LinkEnd = { node: number } | { rack: number } | { pair: [number, number] };
export interface KnownLink { end: LinkEnd; way: string; capacity: [number, string] | null; foreground: number | null }
export interface DrawnBox {
  vertex: number; x: number; y: number; width: number; height: number; name: string; place: string | null;
  node: number | null; colour: string | null; symbol: boolean; target: boolean;
}
export interface DrawnEdge { from: number; to: number; coef: number; local: boolean; start: [number, number]; end: [number, number] }
export interface DrawnFrame { unit: number; x: number; y: number; width: number; height: number }
export interface Drawing { width: number; height: number; boxes: DrawnBox[]; edges: DrawnEdge[]; frames: DrawnFrame[] }
export interface RunningRepair {
  stripe: number; object: string; code: string; method: string; lost: number[]; requestors: number[]; helpers: number[];
  start: number; upto: number; whole: number; seconds: number; rate: number | null;
  nodes: { node: number; upto: number; bytes_read: number }[];
  around: { node: number; upto: number; why: string }[]; lanes: number; drawing: Drawing | null;
}
export type WhyWaits = "nothing" | "limit" | "passed" | { full: [LinkEnd, string] } | { busy: number };
export interface Repairs {
  count: number; running: RunningRepair[]; waiting_count: number;
  waiting: { stripe: number; bears: number; urgent: boolean; why: WhyWaits }[];
  links: { end: LinkEnd; way: string; bytes: number; enough: number; rate: number | null }[];
}
export interface Overview {
  health: Health; status: Status; nodes: NodeInfo[]; jobs: Job[]; repair_limit: Limit | null;
  repair_limit_text: string | null; rates: { links: KnownLink[] }; repairs: Repairs;
}
export interface ObjectInfo {
  name: string; size: number; code: string; encoding: string; encoded: boolean; stripes: number; created: number;
  checksum?: string; attributes?: { content_type?: string; user?: Record<string, string> };
}
export interface LocatedBlock {
  stripe: number; index: number; node: number; rack: number | null; path: string | null; length: number;
  checksum: string | null; lost: boolean; fault: string | null;
}
export interface StripeShown {
  id: number; code: string; n: number; k: number | null; offset: number; encoded: boolean; blocks: LocatedBlock[];
}
export interface ObjectShown {
  object: ObjectInfo; first: number; stripes: StripeShown[];
  damage: { health: string; unreadable_stripes: number; damaged_stripes: { stripe: number; readable: boolean | null }[] };
}
export interface Explained {
  code: string; method: string; lost: number[]; requestors: number[]; helpers: number[]; graph: string;
  nodes: { node: number; rack: number | null; tasks: string[] }[];
  account: {
    links: { from: number; to: number; bytes: number; across_racks: boolean }[]; bytes_read: number; bytes_moved: number;
    bytes_across_racks: number; max_link_bytes: number;
  };
  slice_bytes: number; slices: number; timeslots: number; timeslots_whole_blocks: number;
  compared: { methods: { method: string; seconds: number }[]; bound_seconds: number | null } | null;
  drawing: Drawing | null; lanes: number;
}
export interface Volume {
  name: string; size: number; code: string; block_bytes: number; stripes: number; durability: string; writer: boolean;
  epoch: number;
}
export interface Family {
  family: string; about: string; example: string; w: number; keys: { name: string; about: string; default: string | null }[];
}
export interface CodesShown { families: Family[]; registered: { name: string; n: number; k: number; w: number; distance: number }[] }
export interface CodeShown {
  name: string; n: number; k: number; w: number; field: string; generator: string[]; groups: number[][]; distance: number;
  rows: number; columns: number;
  costs: {
    per_block: { block: number; read: number; moved: number; helpers: number }[]; arc: number; nrc: number;
    degraded: number; overhead: number; rd_ratio: number;
  } | null;
}
export interface Experiment {
  name: string; title: string; source: string; differs: string;
  chart: {
    axis: string; groups_are: string; series: string[];
    groups: { label: string; bars: { series: number; value: number; range: [number, number] }[] }[];
  };
  tables: { headings: string[]; rows: string[][] }[];
}
export interface Method { name: string; about: string }

export class Refused extends Error {
  constructor(readonly kind: string, message: string) {
    super(message);
  }
}

/** Asks for facts. Fails with the words of the coordinator. */
export async function get<T>(path: string, ask: Record<string, string | number> = {}): Promise<T> {
  const query = new URLSearchParams(Object.entries(ask).map(([key, value]) => [key, String(value)]));
  const response = await fetch(`/api/${path}?${query}`, { headers: { accept: "application/json" } });
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body as T;
  const error = body?.error ?? { kind: "http", message: `expected facts, got ${response.status} ${response.statusText}` };
  throw new Refused(error.kind, error.message);
}

export function linkName(end: LinkEnd, way: string): string {
  if ("node" in end) return `node ${end.node} ${way}`;
  if ("rack" in end) return `rack ${end.rack} ${way}`;
  return `node ${end.pair[0]} to node ${end.pair[1]}`;
}
