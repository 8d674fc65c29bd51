// Numbers for people.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(count: number | null | undefined): string {
  if (count === null || count === undefined) return "not known";
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value < 100 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

export function rate(count: number | null | undefined): string {
  return count === null || count === undefined ? "not known" : `${bytes(count)}/s`;
}

export function seconds(count: number): string {
  if (count < 1) return `${(count * 1000).toFixed(0)} ms`;
  if (count < 120) return `${count.toFixed(count < 10 ? 2 : 0)} s`;
  if (count < 7200) return `${Math.round(count / 60)} min`;
  return `${Math.round(count / 3600)} h`;
}

export function number(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toFixed(2).replace(/0+$/, "").replace(/\.$/, "");
}

export function moment(unix: number): string {
  return new Date(unix * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";
}

export function many(count: number, one: string, more = `${one}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : more}`;
}
