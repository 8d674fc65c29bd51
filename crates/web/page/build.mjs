// Builds the page: `node build.mjs [FOLDER]`, by default into ../dist, which is kept with the sources.
import { build } from "esbuild";
import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "../dist");
mkdirSync(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { page: "src/main.ts" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "eof",
  charset: "utf8",
  outdir: out,
});
for (const file of ["index.html", "icon.svg"]) copyFileSync(join(here, "src", file), join(out, file));
