// The page of a comparison of codecs: what `fl-compress compare` writes of ten specs (a test of fl-compress keeps the keys of
// compare.json), more specs, and a real comparison if COMPARE names its file.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { COMPARE } from "../assemble.mjs";
import { NARROW_AND_WIDE, at, onFile, picture } from "./browser.mjs";
import * as checks from "./checks.mjs";

const text = readFileSync(new URL("compare.json", import.meta.url), "utf8");

/** The data of a comparison, changed by `change`. */
function data(change = () => {}) {
  const report = JSON.parse(text);
  change(report);
  return report;
}
const on = (browser, report, options, work) => onFile(browser, COMPARE, report, report.file, options, work);
async function holds(page) {
  await checks.fits(page);
  await checks.labels(page);
  await checks.tables(page);
  await checks.folds(page);
}
const many = (report) => {
  for (let i = 1; i <= 20; i += 1) {
    const like = report.specs[i % 4];
    report.specs.push({ ...like, spec: `spec-${String.fromCharCode(96 + i)}`, relative_error: like.relative_error / (1 + i), bits_per_parameter: like.bits_per_parameter * (1 + i / 7) });
  }
};

export const tests = {
  "few and many specs fit at both widths, light and dark, and have their data as tables": async (browser) => {
    for (const [name, change] of Object.entries({ ten: undefined, many })) {
      for (const [width, size] of Object.entries(NARROW_AND_WIDE)) {
        for (const scheme of ["light", "dark"]) {
          await on(browser, data(change), { size, scheme }, async (page) => {
            await picture(page, `compare-${name}-${width}-${scheme}`, true);
            await holds(page);
          });
        }
      }
    }
  },
  "a chart has a point for each spec that has an error, and a line for names that differ in a number": (browser) => on(browser, data(), {}, async (page) => {
    assert.equal(await page.locator("#error circle.dot").count(), 9);
    assert.deepEqual(await page.$$eval("#error .legend .entry", (all) => all.map((one) => one.textContent)), ["default", "top-k", "signs"]);
    assert.equal(await page.locator("#error path.line").count(), 3);
    assert.match(await page.getAttribute("#error path.line >> nth=0", "d"), /^M[\d.]+,[\d.]+(L[\d.]+,[\d.]+){3}$/);
    assert.match(await page.textContent("#error .names"), /top-k 0\.25/);
    assert.equal(await page.textContent("#error .about"), "Lower and further left is better. Exact, so not drawn: fp32.");
    await page.focus("#error .plot");
    await page.keyboard.press("Home");
    assert.equal(await page.getAttribute("#error .plot", "aria-valuetext"), "default 0.1, error 0.271, bits 0.100, ratio 320x");
    const heights = await page.$$eval("#error circle.dot", (all) => all.map((one) => Number(one.getAttribute("cy"))));
    assert.ok(heights[0] > heights[1], "a larger error is drawn higher");
  }),
  "the table has all figures of all specs": (browser) => on(browser, data(), {}, async (page) => {
    assert.equal(await page.locator("section > .grid > .wide > .table tbody tr").count(), 10);
    assert.match(await page.textContent("section > .grid > .wide > .table tbody tr >> nth=9"), /^fp32621,096/);
  }),
  "exact specs alone and a name that looks like HTML are said": async (browser) => {
    const name = "</script><img src=x onerror=alert(1)>";
    const exact = data((report) => {
      report.specs = report.specs.slice(-1);
      report.file = name;
    });
    await on(browser, exact, {}, async (page) => {
      assert.equal(await page.textContent("#error .empty"), "All specs are exact.");
      assert.equal(await page.textContent("h1"), name);
      assert.equal(await page.locator("main img").count(), 0);
    });
  },
  "the page that fl-compress wrote of real specs draws them": async (browser) => {
    if (!process.env.COMPARE) return;
    for (const [width, size] of Object.entries(NARROW_AND_WIDE)) {
      await at(browser, process.env.COMPARE, { size }, async (page) => {
        await picture(page, `compare-real-${width}`, true);
        assert.ok((await page.locator("#error circle.dot").count()) >= 2);
        await holds(page);
      });
    }
  },
};
