// Looks at every view with Chromium: `node views.mjs URL CHROMIUM [FOLDER]`; into the folder go screenshots.
//
// It asks for a loss by the line "lose a node" on standard output, and reads the node's number from standard input. By the line
// "repair it" it asks for the repair.
import assert from "node:assert/strict";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [url, executablePath, folder] = process.argv.slice(2);
const origin = new URL(url).origin;
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const problems = [];

async function opened(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1180, height: 900 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  // A loaded machine takes its time.
  page.setDefaultTimeout(90000);
  page.on("console", (message) => {
    // A question that the coordinator answers with an error is shown by the page itself.
    const expected = message.text().includes("400 (Bad Request)") || message.text().includes("404 (Not Found)");
    if (message.type() === "error" && !expected) problems.push(message.text());
  });
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(origin)) problems.push(`asked elsewhere: ${request.url()}`);
  });
  return page;
}

/** What must hold in every view. */
async function sound(page, what) {
  const wrong = await page.evaluate(() => {
    const found = [];
    const named = (element) => (element.getAttribute("aria-label") ?? element.textContent ?? "").trim() !== "" || element.labels?.length > 0;
    if (document.querySelectorAll("h1").length !== 1) found.push("expected one h1");
    for (const element of document.querySelectorAll("button, a, input, select")) if (!named(element)) found.push(`no name: ${element.outerHTML}`);
    for (const picture of document.querySelectorAll("svg, img")) {
      if (!picture.hasAttribute("aria-label") && !picture.hasAttribute("alt")) found.push(`no words: ${picture.outerHTML.slice(0, 80)}`);
    }
    const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
    if (new Set(ids).size !== ids.length) found.push(`an id twice: ${ids}`);
    if (document.documentElement.scrollWidth > innerWidth + 1) found.push(`wider than the window: ${document.documentElement.scrollWidth} > ${innerWidth}`);
    // Text that cannot be read well: contrast below 4.5 (WCAG 2.2, 1.4.3) of the words outside pictures.
    const light = (colour) => {
      const [r, g, b] = colour.match(/[\d.]+/g).map(Number).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const colour = getComputedStyle(at).backgroundColor;
        if (!/, 0\)$|transparent/.test(colour)) return colour;
      }
      return "rgb(255, 255, 255)";
    };
    for (const element of document.querySelectorAll("main :not(svg, svg *, .zero)")) {
      if (![...element.childNodes].some((node) => node.nodeType === 3 && node.nodeValue.trim() !== "")) continue;
      const [a, b] = [light(getComputedStyle(element).color), light(ground(element))];
      const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (contrast < 4.5) found.push(`contrast ${contrast.toFixed(2)}: ${element.outerHTML.slice(0, 90)}`);
    }
    return found;
  });
  assert.deepEqual(wrong, [], what);
}

async function shot(page, name) {
  if (folder) await page.screenshot({ path: `${folder}/${name}.png`, animations: "disabled" });
}

async function go(page, hash, heading) {
  await page.goto(`${url}${hash}`);
  await page.getByRole("heading", { level: 1, name: heading }).waitFor();
}

const pressed = (page) => page.locator(".block[aria-pressed=true]").count();

async function seen(page) {
  // The cluster.
  await go(page, "#/", "Cluster");
  await page.locator(".node").first().waitFor();
  assert.equal(await page.locator(".node").count(), 9);
  assert.equal(await page.locator(".rack").count(), 3);
  assert.match(await page.getByRole("status").innerText(), /healthy/);
  await sound(page, "cluster");

  // By keyboard alone: the content, then a view.
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await page.getByRole("link", { name: "Objects" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Objects" }).waitFor();
  await page.getByRole("link", { name: "films/" }).click();
  await page.getByRole("link", { name: "films/one.mkv" }).waitFor();
  assert.equal(await page.getByRole("link", { name: "notes" }).count(), 0);
  await sound(page, "objects");
  // A name is text, whatever is in it.
  await go(page, "#/objects", "Objects");
  await page.getByRole("link", { name: "notes <b>.txt" }).click();
  await page.getByRole("heading", { level: 1, name: "notes <b>.txt" }).waitFor();

  // An object: two blocks are chosen by keyboard, and explained.
  await go(page, "#/objects/films%2Fone.mkv", "films/one.mkv");
  const first = page.locator(".block").first();
  await first.focus();
  await page.keyboard.press("Space");
  await page.locator(".graph").waitFor();
  assert.equal(await pressed(page), 1);
  assert.equal(await page.evaluate(() => document.activeElement.textContent.startsWith("b0")), true, "focus stays where it was");
  await page.getByLabel("Method").selectOption("conventional");
  await page.getByRole("img", { name: /by conventional/ }).waitFor();
  await sound(page, "object");
  await shot(page, "object");
  await page.getByRole("button", { name: /^b1,/ }).first().click();
  await page.getByRole("button", { name: /^b2,/ }).first().click();
  await page.getByRole("alert").filter({ hasText: "cannot rebuild" }).waitFor();

  // Codes.
  await go(page, "#/codes", "Codes");
  await page.getByRole("link", { name: /^azure-lrc:/ }).first().waitFor();
  await sound(page, "codes");
  await page.getByLabel("Code", { exact: true }).fill("azure-lrc:n=16,k=12,r=6");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "azure-lrc:n=16,k=12,r=6" }).waitFor();
  await page.locator(".graph").waitFor();
  const boxes = await page.locator(".graph .box").count();
  await page.getByRole("button", { name: /^b13,/ }).click();
  await page.getByRole("img", { name: /repair of b0 b13/ }).waitFor();
  assert.notEqual(await page.locator(".graph .box").count(), boxes);
  assert.equal(await page.locator(".matrix tr").count(), 16);
  await sound(page, "code");
  await shot(page, "code");
  await go(page, "#/codes/rs%3An%3D3", "Codes");
  await page.getByRole("alert").filter({ hasText: "expected" }).waitFor();

  // Volumes.
  await go(page, "#/volumes", "Volumes");
  await page.getByRole("cell", { name: "disk", exact: true }).waitFor();
  await sound(page, "volumes");

  await experimented(page);
}

/** Results of an experiment: a chart, and tables that open. */
async function experimented(page) {
  await go(page, "#/experiments", "Experiments");
  const section = page.getByRole("region", { name: "ecpipe-8a", exact: true }).first();
  await section.getByRole("img", { name: /^ecpipe-8a: seconds by code/ }).waitFor();
  assert.equal(await section.locator(".bars rect").count(), 4);
  assert.deepEqual(await section.locator(".legend li").allInnerTexts(), ["conventional", "pipeline"]);
  await sound(page, "experiments");
  for (const summary of await section.locator("summary").all()) {
    await summary.focus();
    await page.keyboard.press("Enter");
  }
  await section.getByRole("cell", { name: "1.01", exact: true }).waitFor();
  await section.getByRole("cell", { name: "1.147", exact: true }).waitFor();
  await sound(page, "experiments with their tables");
}

/** A loss, and its repair while it runs. */
async function repaired(page, lost) {
  await go(page, "#/", "Cluster");
  await page.locator(".node.error").filter({ hasText: `node ${lost}` }).waitFor();
  await page.locator(".cause").first().waitFor();
  await sound(page, "cluster with a dead node");
  await shot(page, "loss");
  await go(page, "#/repairs", "Repairs");
  console.log("repair it");
  await page.locator(".repair .graph").first().waitFor();
  const done = () => page.evaluate(() => document.querySelector(".repair .bar .part")?.getAttribute("width"));
  const before = await done();
  assert.ok((await page.locator(".repair .slices").count()) > 0, "slices move");
  await page.locator(".links li").first().waitFor();
  await sound(page, "repairs");
  await page.waitForFunction((before) => {
    const now = document.querySelector(".repair .bar .part")?.getAttribute("width");
    return now !== undefined && now !== before;
  }, before);
  await shot(page, "repairs");
}

try {
  const page = await opened();
  await seen(page);
  await go(page, "#/repairs", "Repairs");
  await page.getByText("Nothing is being repaired.").waitFor();
  await sound(page, "no repairs");

  const answer = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  console.log("lose a node");
  const lost = (await answer.next()).value;
  await repaired(page, lost);

  // In the dark, and on a small screen.
  const dark = await opened({ colorScheme: "dark", viewport: { width: 390, height: 800 } });
  await go(dark, "#/repairs", "Repairs");
  await dark.locator(".charts").waitFor();
  assert.notEqual(await dark.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(255, 255, 255)");
  await sound(dark, "repairs in the dark");
  await experimented(dark);
  await go(dark, "#/codes/clay%3An%3D6%2Ck%3D4%2Cd%3D5", "clay:n=6,k=4,d=5");
  await dark.locator(".graph").waitFor();
  await sound(dark, "code in the dark");
  await dark.setViewportSize({ width: 1180, height: 900 });
  await shot(dark, "code-dark");

  // Without JavaScript.
  const still = await opened({ javaScriptEnabled: false });
  await still.goto(url);
  await still.getByRole("heading", { name: "This page needs JavaScript" }).waitFor();

  assert.deepEqual(problems, []);
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  await browser.close();
  process.stdin.destroy();
}
