// The page fed by a server. Without URL it is the fake server, whose run is known; with URL it is the real one, watched for as long
// as WATCH seconds (60) for rounds to be added. Pictures go to OUT.
import assert from "node:assert/strict";
import { NARROW_AND_WIDE, SIZES, load, open, picture, unfold } from "./browser.mjs";
import * as checks from "./checks.mjs";
import { fake } from "./fake.mjs";

const rounds = (page) => page.evaluate(() => Number(document.querySelector("#up-kind .plot")?.getAttribute("aria-valuemax") ?? 0));
/** Waits until the page is painted: a browser keeps what is read in its place once a frame, after the layout. */
const painted = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
/** Waits until the charts show more rounds than `before`, without a reload. */
const grown = (page, before, seconds) => page.waitForFunction((n) => Number(document.querySelector("#up-kind .plot")?.getAttribute("aria-valuemax")) > n, before, { timeout: seconds * 1000 });

export const tests = {
  "rounds are added as they close, without a reload, moving nothing the reader uses": async (browser) => {
    const own = process.env.URL ? null : await fake({ rounds: 400 });
    const url = process.env.URL ?? own.url;
    const { page, faults, close } = await open(browser, { origin: new URL(url).origin });
    try {
      await load(page, url);
      await page.waitForSelector(".link[data-state=live]");
      await page.waitForSelector("#bytes:not([hidden])", { timeout: 60_000 });
      await picture(page, "live-desktop");
      await unfold(page);
      await page.waitForSelector("#up-kind svg");
      await page.evaluate(() => {
        window.stayed = true;
        document.querySelector("#down-kind details.data").open = true;
      });
      await page.focus("#down-kind .plot");
      await page.evaluate(() => document.querySelector("#down-kind").scrollIntoView({ behavior: "instant" }));
      await page.waitForTimeout(600);
      await painted(page);
      const top = await page.evaluate(() => document.querySelector("#down-kind").getBoundingClientRect().top);
      const before = await rounds(page);
      await grown(page, before, Number(process.env.WATCH ?? 60));
      await painted(page);
      const after = await page.evaluate(() => ({ stayed: window.stayed, focus: document.activeElement.closest("figure")?.id,
        open: document.querySelector("#down-kind details.data").open, top: document.querySelector("#down-kind").getBoundingClientRect().top,
        rows: document.querySelectorAll("#down-kind details.data tbody tr").length }));
      assert.ok(after.stayed, "the page was loaded again");
      assert.equal(after.focus, "down-kind", "the focus was moved");
      assert.ok(after.open, "open details were closed");
      assert.ok(Math.abs(after.top - top) < 2, `the page was scrolled by ${after.top - top} px`);
      assert.ok(after.rows > before + 1, "the open table did not grow");
      await checks.fits(page);
      assert.deepEqual(faults, []);
    } finally {
      await close();
      own?.close();
    }
  },
  "the panel says what the server is doing, at both widths": async (browser) => {
    const own = process.env.URL ? null : await fake({ rounds: 400 });
    const url = process.env.URL ?? own.url;
    try {
      await panel(browser, own, url);
    } finally {
      own?.close();
    }
  },
  "every fold of the live page opens to words and figures, and fits": async (browser) => {
    const own = process.env.URL ? null : await fake({ rounds: 400, first: 3 });
    const url = process.env.URL ?? own.url;
    try {
      for (const size of Object.values(NARROW_AND_WIDE)) {
        const { page, faults, close } = await open(browser, { size, origin: new URL(url).origin });
        await load(page, url);
        await page.waitForSelector("#bytes:not([hidden])", { timeout: 60_000 });
        await unfold(page);
        assert.ok((await checks.folds(page)) >= 15);
        assert.deepEqual(faults, []);
        await close();
      }
    } finally {
      own?.close();
    }
  },
  "bytes grow between two reports, and what is over shows no empty bars": async (browser) => {
    if (process.env.URL) return;
    const own = await fake({ rounds: 4, first: 3, pace: 900 });
    const { page, close } = await open(browser, { origin: own.url });
    try {
      await load(page, own.url);
      await page.waitForFunction(() => /not on disk yet/.test(document.querySelector(".verdict").textContent));
      assert.match(await page.textContent(".live .events time"), /^\d\d:\d\d:\d\d$/);
      assert.match(await page.textContent(".live"), /Events \(times in UTC/);
      await page.waitForSelector(".live[data-phase=done]", { timeout: 20_000 });
      assert.equal(await page.locator(".live .track:visible").count(), 0);
      assert.doesNotMatch(await page.textContent(".live .now > div:not([hidden]) dt"), /Round closes/);
    } finally {
      await close();
      own.close();
    }
  },
  "a lost connection is shown and reestablished": async (browser) => {
    if (process.env.URL) return;
    const own = await fake({ rounds: 400 });
    const { page, close } = await open(browser, { origin: own.url });
    try {
      await load(page, own.url);
      await page.waitForSelector(".link[data-state=live]");
      own.drop();
      await page.waitForSelector(".link[data-state=reconnecting]", { timeout: 5000 });
      await page.waitForSelector(".link[data-state=live]", { timeout: 15_000 });
    } finally {
      await close();
      own.close();
    }
  },
};

async function panel(browser, own, url) {
  for (const [width, size] of Object.entries(SIZES)) {
    for (const scheme of ["light", "dark"]) {
      const { page, faults, close } = await open(browser, { size, scheme, origin: new URL(url).origin });
      await load(page, url);
      await page.waitForSelector(".link[data-state=live]");
      assert.match(await page.textContent("#live-title"), /\S/);
      if (own) {
        assert.match(await page.textContent("#live-title"), /Training · Round \d+ of 400/);
        await page.waitForFunction(() => document.querySelectorAll(".cohort li").length === 10);
        await page.waitForSelector(".alerts p");
        assert.match(await page.textContent(".summary"), /1 absent/);
        await page.waitForFunction(() => /late, awaited until \d/.test(document.querySelector(".cohort").textContent));
        assert.match(await page.textContent(".certificates .soon"), /clinic-04.*ends soon: 2026-12-01/);
        assert.equal(await page.textContent("summary.soon"), "3 certificates, 1 of them end soon");
        assert.ok(!(await page.isVisible(".certificates")), "certificates are folded");
        assert.match(await page.textContent(".progress"), /^\d+ of 400 rounds, ~.* left \(until ~\d\d:\d\d:\d\d UTC\)$/);
      }
      await checks.fits(page);
      await picture(page, `live-${width}-${scheme}`);
      await picture(page, `live-${width}-${scheme}-whole`, true);
      assert.deepEqual(faults, []);
      await close();
    }
  }
}
