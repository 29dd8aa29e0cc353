// The page of a sweep: what `fl-sim sweep` writes of two points (sweep.json, which a test of fl-sim keeps), more points, and the
// page of a real sweep if SWEEP names its file.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { SWEEP } from "../assemble.mjs";
import { NARROW_AND_WIDE, at, onFile, picture } from "./browser.mjs";
import * as checks from "./checks.mjs";

const text = readFileSync(new URL("sweep.json", import.meta.url), "utf8");

/** The data of a sweep, changed by `change`, of which the second point is repeated `more` times with other bytes and qualities. */
function data({ more = 0, change = () => {} } = {}) {
  const sweep = JSON.parse(text);
  const { points, table } = sweep.phases[0];
  for (let i = 1; i <= more; i += 1) {
    const point = structuredClone(points[1]);
    point.name = `${point.name}, learning_rate=0.${i}`;
    for (const one of [point, ...point.seeds]) one.bytes *= 1 + 0.4 * i;
    for (const seed of point.seeds) seed.quality += i % 5;
    point.mean += i % 5;
    point.front = false;
    points.push(point);
    table.rows.push(table.rows[1]);
  }
  change(sweep);
  return sweep;
}
const on = (browser, sweep, options, work) => onFile(browser, SWEEP, sweep, sweep.title, options, work);
async function holds(page) {
  await checks.fits(page);
  await checks.labels(page);
  assert.ok((await checks.tables(page)) >= 3);
  await checks.folds(page);
}

export const tests = {
  "few and many points fit at both widths, light and dark, and have their data as tables": async (browser) => {
    for (const [name, more] of Object.entries({ two: 0, eight: 6, many: 20 })) {
      for (const [width, size] of Object.entries(NARROW_AND_WIDE)) {
        for (const scheme of ["light", "dark"]) {
          await on(browser, data({ more }), { size, scheme }, async (page) => {
            await picture(page, `sweep-${name}-${width}-${scheme}`, true);
            await holds(page);
          });
        }
      }
    }
  },
  "a chart shows the means, the seeds and the Pareto front": (browser) => on(browser, data(), {}, async (page) => {
    assert.equal(await page.locator("#report-front circle.dot").count(), 2);
    assert.equal(await page.locator("#report-front circle.seed").count(), 4);
    assert.match(await page.getAttribute("#report-front path.front", "d"), /^M[\d.]+,[\d.]+H[\d.]+V[\d.]+$/);
    assert.match(await page.textContent("#report-front .names"), /fp32/);
    assert.equal(await page.textContent("#report-front .axes .label >> nth=0"), "accuracy, %");
    await page.focus("#report-front .plot");
    await page.keyboard.press("Home");
    assert.equal(await page.getAttribute("#report-front .plot", "aria-valuetext"), "budget=0.2 bits, accuracy, % 60.00 ± 7.07, bytes 50 B, ratio 8.0x, seeds 2");
    await page.keyboard.press("ArrowRight");
    assert.match(await page.textContent("#report-front .tip"), /^fp32accuracy, %/);
  }),
  "loss is drawn with the range of the seeds, bytes by kind and by round, times as a table": (browser) => on(browser, data(), {}, async (page) => {
    assert.equal(await page.textContent("#report-loss .axes .label >> nth=0"), "test loss");
    assert.equal(await page.locator("#report-loss path.line").count(), 2);
    assert.equal(await page.locator("#report-loss path.band").count(), 2);
    assert.equal(await page.locator("#report-kinds .bars li").count(), 2);
    assert.match(await page.textContent("#report-kinds .bars"), /\d+ %/);
    assert.equal(await page.locator(".small figure").count(), 2);
    assert.equal(await page.locator(".small figure >> nth=0 >> path.area").count(), 3);
    assert.match(await page.textContent(".block:has(h3:text-is('Time against link'))"), /3\.5/);
  }),
  "many points have the color of their variant, no names and no ranges": (browser) => on(browser, data({ more: 20 }), {}, async (page) => {
    assert.deepEqual(await page.$$eval("#report-front .legend .entry", (all) => all.map((one) => one.textContent)), ["fp32", "ours"]);
    assert.equal(await page.locator("#report-front .names text, #report-loss path.band").count(), 0);
    assert.equal(await page.locator(".small figure").count(), 8);
    await page.locator("#report-loss .plot").hover({ position: { x: 200, y: 100 } });
    assert.match(await page.textContent("#report-loss .tip"), /and 10 more$/);
  }),
  "what was chosen is marked, warnings are shown, and what was not measured is said": async (browser) => {
    const chosen = data({ more: 1, change: (sweep) => {
      sweep.phases[0].points[1].marked = true;
      sweep.warnings.push("The quick form: fewer rounds");
    } });
    await on(browser, chosen, {}, async (page) => {
      assert.equal(await page.locator("tr.chosen").count(), 1);
      assert.equal(await page.locator("circle.ring").count(), 1);
      assert.equal(await page.textContent(".warn"), "The quick form: fewer rounds");
    });
    const blind = data({ change: (sweep) => sweep.phases[0].points.forEach((point) => (point.mean = null)) });
    await on(browser, blind, {}, async (page) => assert.equal(await page.textContent("#report-front .empty"), "No model was evaluated."));
  },
  "a name that looks like HTML stays text": (browser) => {
    const name = "</script><img src=x onerror=alert(1)>";
    const sweep = data({ change: (one) => {
      one.title = name;
      one.phases[0].points[0].name = name;
    } });
    return on(browser, sweep, {}, async (page) => {
      assert.equal(await page.textContent("h1"), name);
      assert.equal(await page.locator("main img").count(), 0);
    });
  },
  "the page that fl-sim wrote of a real sweep draws all of its charts": async (browser) => {
    if (!process.env.SWEEP) return;
    for (const [width, size] of Object.entries(NARROW_AND_WIDE)) {
      await at(browser, process.env.SWEEP, { size }, async (page) => {
        await picture(page, `sweep-real-${width}`, true);
        assert.deepEqual(await page.$$eval("section.phase", (all) => all.map((one) => one.id)), ["report", "choice"]);
        for (const phase of ["report", "choice"]) assert.ok((await page.locator(`#${phase}-front circle.dot`).count()) >= 2);
        await holds(page);
      });
    }
  },
};
