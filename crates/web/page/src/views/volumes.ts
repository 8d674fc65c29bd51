// Volumes: virtual disks.

import { get, type Volume } from "../api";
import { h, prose, table } from "../dom";
import { bytes } from "../format";
import type { View } from "../view";

export function volumes(): View {
  return {
    async load() {
      const all = await get<Volume[]>("volumes");
      return () => [
        h("h1", {}, "Volumes"),
        all.length === 0
          ? h("p", { class: "quiet" }, prose("No volumes: `kintsu volume create disk --size 10GiB` makes one."))
          : table("Fixed-size virtual disks", ["name", "size", "stripes written", "code", "block", "survives", "writer"], all.map((volume) => [
            volume.name, bytes(volume.size), volume.stripes.toLocaleString("en"),
            h("a", { href: `#/codes/${encodeURIComponent(volume.code)}` }, volume.code), bytes(volume.block_bytes), volume.durability,
            volume.writer ? "yes" : "none",
          ]), [1, 2, 4]),
      ];
    },
  };
}
