// The page as a file: samples of many kinds, at both widths, light, dark and in print.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { assemble } from "../assemble.mjs";
import { sample } from "../sample.mjs";
import { NARROW_AND_WIDE, OUT, SIZES, load, open, picture, unfold } from "./browser.mjs";
import * as checks from "./checks.mjs";

const folder = mkdtempSync(join(tmpdir(), "fl-page-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
const SAMPLES = {
  usual: { rounds: 40, clients: 10 }, few: { rounds: 5, clients: 4, ranks: true, costs: true }, one: { rounds: 1, clients: 3 }, none: { rounds: 0, clients: 3 },
  running: { rounds: 8, clients: 12, running: true }, blind: { rounds: 20, clients: 6, blind: true }, unbalanced: { rounds: 30, clients: 8, unbalanced: true },
  language: { rounds: 20, clients: 6, language: true }, mixed: { rounds: 6, clients: 4, mixed: true },
  large: { rounds: 1000, clients: 100 },
};
const text = {};
const address = (name) => {
  const path = join(folder, `${name}.html`);
  if (!text[name]) {
    text[name] = assemble(JSON.stringify(sample({ seed: 1, ...SAMPLES[name] })), name);
    writeFileSync(path, text[name]);
  }
  return `file://${path}`;
};
/** Opens a sample with its folds open (or `folded`), gives it to `work`, and asks that nothing was complained of. */
async function on(browser, name, { folded = false, ...options }, work) {
  const { page, faults, close } = await open(browser, options);
  const took = await load(page, address(name));
  if (!folded) await unfold(page);
  await work(page, took);
  assert.deepEqual(faults, []);
  await close();
}

export const tests = {
  "every sample opens at both widths, light and dark, without a complaint, and fits": async (browser) => {
    for (const name of Object.keys(SAMPLES)) {
      for (const [width, size] of Object.entries(SIZES)) {
        for (const scheme of name === "usual" || name === "large" ? ["light", "dark"] : ["light"]) {
          await on(browser, name, { size, scheme }, async (page) => {
            await checks.fits(page);
            await checks.labels(page);
            await picture(page, `${name}-${width}-${scheme}`, name !== "large");
          });
        }
      }
    }
  },
  "the first screen says what was run, whether it is good, when it ends and what to change": async (browser) => {
    for (const name of ["usual", "running", "blind", "language", "mixed", "few", "large"]) {
      for (const [width, size] of Object.entries(NARROW_AND_WIDE)) {
        for (const scheme of ["light", "dark"]) {
          await on(browser, name, { size, scheme, folded: true }, async (page) => {
            await picture(page, `first-${name}-${width}-${scheme}`);
            const parts = [".progress", ".cost", ".verdict", ...(name === "blind" ? [] : [".pair"]), ".settings dd >> nth=0", ".settings dd >> nth=7", ".changes li >> nth=0"];
            for (const part of parts) {
              const shape = await page.locator(part).boundingBox();
              assert.ok(shape.y + shape.height <= size.height, `${name}, ${width}: ${part} ends at ${shape.y + shape.height} of ${size.height}`);
            }
          });
        }
      }
    }
  },
  "an end is expected once a round has closed, from the last rounds": async (browser) => {
    await on(browser, "running", {}, async (page) => assert.match(await page.textContent(".progress"), /^7 of 20 rounds, ~[\d.]+ (s|min \d+ s) left$/));
    await on(browser, "usual", {}, async (page) => assert.match(await page.textContent(".progress"), /^40 of 40 rounds in \d+ min \d+ s$/));
    const report = sample({ rounds: 1, clients: 3, running: true });
    writeFileSync(join(folder, "early.html"), assemble(JSON.stringify(report)));
    const { page, close } = await open(browser);
    await load(page, `file://${join(folder, "early.html")}`);
    assert.equal(await page.textContent(".progress"), "0 of 13 rounds");
    assert.match(await page.textContent("main"), /No round has closed yet/);
    assert.equal(await page.locator("figure:visible").count(), 0);
    assert.match(await page.textContent(".settings"), /batch_size 32, epochs 1, learning_rate 0.05/);
    await close();
  },
  "charts of accuracy and loss turn from rounds to bytes": (browser) => on(browser, "usual", {}, async (page) => {
    const labels = () => page.$$eval("#accuracy .axes text", (all) => all.map((one) => one.textContent).join(" "));
    assert.doesNotMatch(await labels(), /MiB/);
    await page.click(".switch button >> nth=1");
    assert.match(await labels(), /\d MiB/);
    assert.deepEqual(await page.$$eval(".switch button", (all) => all.map((one) => one.getAttribute("aria-pressed"))), ["false", "true"]);
  }),
  "sections are folded, a link opens its own, and run.toml is in one": (browser) => on(browser, "usual", { folded: true }, async (page) => {
    assert.equal(await page.locator(".fold[open]").count(), 0);
    await page.click("#links a >> nth=0");
    assert.ok(await page.isVisible("#clients table"));
    assert.equal(await page.locator(".fold[open]").count(), 1);
    await page.click("#settings summary");
    assert.match(await page.textContent("#settings pre"), /# A comment\nname = "fashion-mnist-topk"/);
  }),
  "each client has the accuracy and loss of its latest evaluation": (browser) => on(browser, "usual", {}, async (page) => {
    const cells = await page.$$eval("#clients .block tbody tr:first-child td", (all) => all.map((one) => one.textContent));
    const { clients } = sample({ seed: 1, ...SAMPLES.usual });
    assert.equal(cells[4], `${(clients.accuracy[0] * 100).toFixed(1)} %`);
    assert.equal(cells[5], clients.evaluation_loss[0].toFixed(3));
    assert.equal(cells[6], "40");
    assert.match(await page.textContent(".cost"), /Clients: 8[67][\d.]* % to 9[\d.]+ %/);
  }),
  "a trend and a client that falls behind are named with what to change": async (browser) => {
    const notes = async (accuracy, own) => {
      const report = sample({ rounds: 4, clients: 3 });
      report.rounds.accuracy = accuracy;
      own.forEach((value, i) => (report.clients.accuracy[i] = value));
      writeFileSync(join(folder, "trend.html"), assemble(JSON.stringify(report)));
      const { page, close } = await open(browser);
      await load(page, `file://${join(folder, "trend.html")}`);
      const found = await page.$$eval(".changes .note", (all) => all.slice(1).map((one) => one.textContent));
      await close();
      return found;
    };
    assert.deepEqual(await notes([0.5, 0.8, 0.85, 0.9], [0.9, 0.9, 0.9]), ["Accuracy still rose at the end, by 40.0 points in 3 rounds: more rounds may raise it further."]);
    assert.deepEqual(await notes([0.5, 0.9, 0.85, 0.8], [0.9, 0.9, 0.9]), ["Accuracy fell from 90.0 % in round 2 to 80.0 %: lower learning_rate in [train], or evaluate an average."]);
    assert.deepEqual(await notes([0.9, 0.9, 0.9, 0.9], [0.95, 0.6, 0.94]), ["clinic-02 has an accuracy of 60.0 %, the median client 94.0 %: look at the data of this client."]);
    assert.deepEqual(await notes([0.9, 0.9, 0.9, 0.9], [0.9, 0.85, 0.94]), []);
  },
  "labels of the axes do not touch, whatever the number of rounds": async (browser) => {
    for (const rounds of [59, 60, 61, 64, 75, 99, 101, 140, 260, 1100]) {
      const path = join(folder, `labels-${rounds}.html`);
      writeFileSync(path, assemble(JSON.stringify(sample({ rounds, clients: 3 }))));
      for (const size of Object.values(SIZES)) {
        const { page, close } = await open(browser, { size });
        await load(page, `file://${path}`);
        await unfold(page);
        await checks.labels(page);
        await page.click(".switch button >> nth=1");
        await checks.labels(page);
        await close();
      }
    }
  },
  "1,000 rounds of 100 clients open in time": async (browser) => {
    const times = [];
    for (let i = 0; i < 5; i += 1) await on(browser, "large", {}, async (_, took) => times.push(Math.round(took)));
    const best = Math.min(...times);
    console.log(`    page ${(text.large.length / 1024 / 1024).toFixed(1)} MiB, opened in ${times.join(", ")} ms (page without data: ${(assemble(null).length / 1024).toFixed(0)} KiB)`);
    assert.ok(best < 5000, `opened in ${best} ms at best`);
  },
  "every chart has its data as a table": async (browser) => {
    for (const name of ["usual", "few", "one", "blind"]) await on(browser, name, {}, async (page) => assert.ok((await checks.tables(page)) >= 15));
  },
  "every fold opens to words and figures, and fits": async (browser) => {
    for (const name of ["usual", "few", "running"]) {
      for (const [width, size] of Object.entries(NARROW_AND_WIDE)) {
        await on(browser, name, { size }, async (page) => {
          assert.ok((await checks.folds(page)) >= 15);
          await page.evaluate(() => document.querySelectorAll("#proof details").forEach((one) => (one.open = true)));
          assert.match(await page.textContent(".words"), /heartbeat, transport/);
          assert.equal(await page.locator(".words dt").count(), await page.locator(".words dd").count());
          if (name === "usual") await picture(page, `folds-${width}`, true);
        });
      }
    }
  },
  "an open round is not taken for updates that were lost": (browser) => on(browser, "running", {}, async (page) => {
    const tile = page.locator(".tiles div", { hasText: "Updates accepted" });
    assert.match(await tile.textContent(), /of \d+ asked in closed rounds; \d+ of \d+ so far in round 8$/);
    assert.match(await page.textContent(".cost"), /at least [\d.]+ times fewer bytes than FedAvg in fp32 would have moved for the first 6 rounds/);
    assert.match(await page.textContent(".verdict"), /3\.43 KiB of it are not on disk yet/);
  }),
  "no stage is drawn as compression that expands": (browser) => on(browser, "usual", {}, async (page) => {
    const names = (id) => page.$$eval(`#${id} .legend .entry`, (all) => all.map((one) => one.textContent));
    assert.ok((await names("up-stage")).includes("reduced"));
    const report = sample({ rounds: 4, clients: 3 });
    report.rounds.reduced_up = report.rounds.fp32_up.map((bytes) => Math.round(1.07 * bytes));
    writeFileSync(join(folder, "expands.html"), assemble(JSON.stringify(report)));
    await load(page, `file://${join(folder, "expands.html")}`);
    await unfold(page);
    assert.deepEqual((await names("up-stage")).includes("reduced"), false);
    assert.match(await page.textContent("#up-stage figcaption"), /Not drawn: reduced, larger than the stage before/);
  }),
  "the largest costs are shown with how to reduce them": (browser) => on(browser, "usual", {}, async (page) => {
    assert.equal(await page.locator("#save li:not(.note)").count(), 3);
    assert.match(await page.textContent("#save .note >> nth=0"), /where the budget asks for 0.25: the limit of the error, 0.25 to 0.8 by round 6; budget in/);
    assert.equal(await page.textContent("#save li:not(.note) >> nth=0 >> code"), "budget");
    assert.match(await page.textContent("#save li:not(.note) >> nth=0"), /Model updates, [\d.]+ MiB \([\d.]+ %\): Lower budget/);
  }),
  "on a phone, tables and navigation show that they scroll": (browser) => on(browser, "usual", { size: SIZES.phone }, async (page) => {
    const more = (selector) => page.waitForSelector(`${selector}[data-more="right"]`);
    await more("#links");
    const table = await more("#clients .scroller");
    assert.notEqual(await table.evaluate((one) => getComputedStyle(one).maskImage), "none");
    await table.evaluate((one) => one.scrollTo({ left: one.scrollWidth, behavior: "instant" }));
    await page.waitForSelector('#clients .scroller[data-more="left"]');
  }),
  "uploads of a few milliseconds say nothing of the link": (browser) => on(browser, "usual", {}, async (page) => {
    assert.ok(await page.isVisible("#rates"));
    const report = sample({ rounds: 4, clients: 3 });
    report.totals.upload_ms = 40;
    writeFileSync(join(folder, "quick.html"), assemble(JSON.stringify(report)));
    await load(page, `file://${join(folder, "quick.html")}`);
    await unfold(page);
    assert.ok(!(await page.isVisible("#rates")));
  }),
  "tiles say fewer, and times carry a zone": (browser) => on(browser, "usual", {}, async (page) => {
    assert.match(await page.locator(".tiles div", { hasText: "Against FedAvg" }).textContent(), /[\d.]+× fewer.*bytes; [\d.]+× fewer in frames alone/);
    assert.match(await page.textContent(".facts"), /\d\d:\d\d:\d\d to [\d:\- ]+ UTC/);
  }),
  "all is reached and worked by keyboard": (browser) => on(browser, "usual", {}, async (page) => {
    console.log(`    ${await checks.keyboard(page)} stops`);
    await checks.keys(page);
  }),
  "pointer, legend, sorting and copying work": (browser) => on(browser, "usual", {}, async (page) => {
    await checks.pointer(page);
    await page.locator("#up-stage .plot").hover({ position: { x: 200, y: 100 } });
    await picture(page, "tooltip");
    await checks.copies(page);
  }),
  "an unbalanced ledger is an alert that names the round": (browser) => on(browser, "unbalanced", {}, async (page) => {
    assert.match(await page.textContent(".verdict[role=alert]"), /differ in round 16 \(sockets \+1,431 B up\)/);
  }),
  "a balanced ledger is confirmed": (browser) => on(browser, "usual", {}, async (page) => {
    assert.match(await page.textContent(".verdict[role=status]"), /to the byte/);
  }),
  "a report without rounds or accuracy explains itself in words": async (browser) => {
    await on(browser, "none", {}, async (page) => {
      assert.match(await page.textContent("main"), /No round has closed yet/);
      assert.equal(await page.locator("figure:visible").count(), 0);
    });
    await on(browser, "blind", {}, async (page) => {
      assert.ok(!(await page.isVisible("#perplexity")) && !(await page.isVisible("#accuracy")));
      assert.match(await page.textContent(".cost"), /No round was evaluated/);
    });
  },
  "a run whose models do not classify shows perplexity and the learners' metrics": async (browser) => {
    const shown = (page) => page.$$eval("#overview figure, #metrics figure", (all) => all.filter((one) => one.offsetParent).map((one) => one.id));
    await on(browser, "language", {}, async (page) => {
      assert.deepEqual(await shown(page), ["perplexity", "loss", "metric-grad/norm", "metric-reward", "metric-top5"]);
      assert.match(await page.textContent("[id='metric-reward'] figcaption"), /A metric of the round's model on held-out examples: mean/);
      assert.match(await page.textContent(".cost"), /The model reached a perplexity of [\d.]+ in round \d+/);
      assert.match(await page.locator(".tiles div", { hasText: "Best perplexity" }).textContent(), /perplexity[\d.]+in round \d+/);
      assert.deepEqual(await page.$$eval("#metric-top5 .legend .entry, [id='metric-top5'] .legend .entry", (all) => [...new Set(all.map((one) => one.textContent))]), ["training", "evaluation"]);
    });
    await on(browser, "mixed", {}, async (page) => {
      assert.deepEqual((await shown(page)).slice(0, 3), ["accuracy", "perplexity", "loss"]);
      assert.match(await page.textContent(".cost"), /reached an accuracy of/);
    });
  },
  "the theme is chosen by the system, then by the reader": (browser) => on(browser, "usual", { scheme: "dark" }, async (page) => {
    const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await back();
    await page.click("#theme");
    assert.notEqual(await back(), dark);
    assert.equal(await page.textContent("#theme"), "Dark");
  }),
  "a name that looks like HTML stays text": async (browser) => {
    const report = sample({ rounds: 3, clients: 2 });
    report.run.name = "</script><img src=x onerror=alert(1)><!--DATA-->";
    report.clients.client[0] = "<b>bold</b>";
    const path = join(folder, "hostile.html");
    writeFileSync(path, assemble(JSON.stringify(report), report.run.name));
    const { page, faults, close } = await open(browser);
    await load(page, `file://${path}`);
    assert.equal(await page.textContent("h1"), report.run.name);
    assert.equal(await page.locator("main img, main b:text-is('bold')").count(), 0);
    assert.deepEqual(faults, []);
    await close();
  },
  "printed, it is light, whole and without controls": (browser) => on(browser, "usual", { scheme: "dark", folded: true }, async (page) => {
    const pdf = await page.pdf({ format: "A4", printBackground: true, path: OUT ? `${OUT}/print.pdf` : undefined });
    assert.ok(pdf.length > 20_000);
    if (OUT) {
      try {
        execFileSync("pdftoppm", ["-r", "70", "-png", `${OUT}/print.pdf`, `${OUT}/print`]);
      } catch {
        console.log("    pdftoppm is not installed: the PDF is not turned into pictures");
      }
    }
    assert.equal(await page.locator(".fold[open]").count(), 0, "folds stay open after printing");
    await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
    assert.ok((await page.locator("figure svg path.line").count()) > 10, "charts of closed folds are not drawn");
    await page.emulateMedia({ media: "print", colorScheme: "dark" });
    assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(255, 255, 255)");
    assert.equal(await page.locator("nav:visible, button:visible:not(.entry):not(.sort)").count(), 0);
  }),
};
