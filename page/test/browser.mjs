// A headless Chromium for the tests, and what every page is watched for: console messages, errors, requests to anywhere.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { assemble } from "../assemble.mjs";

const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
export const SIZES = { phone: { width: 390, height: 844 }, desktop: { width: 1440, height: 900 } };
/** Widths at which every fold of a page is opened. */
export const NARROW_AND_WIDE = { phone: SIZES.phone, laptop: { width: 1280, height: 800 } };
/** Where pictures go; null where nobody asked for them. */
export const OUT = process.env.OUT ?? null;

/** Starts Chromium: CHROMIUM names it where it is not in one of the usual places. */
export async function launch() {
  const path = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((name) => name && existsSync(name));
  if (!path) throw new Error("no Chromium is installed: apt-get install chromium, or set CHROMIUM to its path");
  if (OUT) mkdirSync(OUT, { recursive: true });
  return chromium.launch({ executablePath: path, args: FLAGS });
}

/** Opens a page of a size and colour scheme. `faults` gathers all it must not do; `origin` is the only place it may ask. */
export async function open(browser, { size = SIZES.desktop, scheme = "light", origin = "file://" } = {}) {
  const context = await browser.newContext({ viewport: size, colorScheme: scheme, deviceScaleFactor: size.width < 500 ? 2 : 1 });
  const page = await context.newPage();
  const faults = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && faults.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(origin) && !request.url().startsWith("data:")) faults.push(`asked for ${request.url()}`);
  });
  return { page, faults, close: () => context.close() };
}
/** Opens the folds of the page's sections, so that their charts are drawn. */
export async function unfold(page) {
  await page.evaluate(() => document.querySelectorAll(".fold").forEach((one) => (one.open = true)));
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}
/** Goes to an address and waits until the charts are drawn; the milliseconds that took, from the start of navigation. */
export async function load(page, address) {
  await page.goto(address);
  await page.waitForFunction(() => document.documentElement.dataset.rendered === "yes", null, { timeout: 30_000 });
  return page.evaluate(() => performance.getEntriesByName("rendered")[0].startTime);
}
export async function picture(page, name, fullPage = false) {
  if (OUT) await page.screenshot({ path: `${OUT}/${name}.png`, fullPage });
}

const folder = mkdtempSync(join(tmpdir(), "fl-page-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
/** Opens a page of `data` as a file, gives it to `work`, and asks that nothing was complained of. */
export async function onFile(browser, kind, data, title, options, work) {
  const path = join(folder, "page.html");
  writeFileSync(path, assemble(JSON.stringify(data), title, kind));
  await at(browser, path, options, work);
}
/** The same of the file at `path`. */
export async function at(browser, path, options, work) {
  const { page, faults, close } = await open(browser, options);
  await load(page, `file://${path}`);
  await work(page);
  assert.deepEqual(faults, []);
  await close();
}
