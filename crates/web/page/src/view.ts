// What a view is.

import { h, type Child } from "./dom";

export interface View {
  /** Asks for what it shows. The result draws it; `redraw` draws again after a choice. */
  load(redraw: () => void): Promise<() => Child[]>;
}

/** An error, in the words of the coordinator. */
export function failed(error: Error): HTMLElement {
  return h("p", { class: "note error", role: "alert" }, error.message);
}
