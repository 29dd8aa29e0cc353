// What must hold of every page, whatever it shows. Each check throws an error that names what is wrong.
import assert from "node:assert/strict";

/** No part of the page is wider than the window. */
export async function fits(page) {
  const [whole, window, names] = await page.evaluate(() => {
    const wide = [...document.querySelectorAll("main *")].filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".scroller, svg, .unseen, nav, .tip"));
    return [document.documentElement.scrollWidth, innerWidth, wide.slice(0, 4).map((one) => `${one.tagName}.${one.className}`)];
  });
  assert.ok(whole <= window, `the page is ${whole} px wide in a window of ${window}: ${names}`);
  assert.deepEqual(names, [], "these stand out of the window");
}

/** Opens every fold and asks that no text is what a script makes of a value it does not know, and that the page still fits. */
export async function folds(page) {
  const count = await page.evaluate(async () => {
    const all = [...document.querySelectorAll("details")].filter((one) => one.checkVisibility());
    for (const one of all) one.open = true;
    await new Promise((resolve) => setTimeout(resolve, 50));
    return all.length;
  });
  assert.ok(count > 0, "there is no fold");
  const wrong = await page.evaluate(() => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (node.parentElement.closest("script, style")) continue;
      if (/\[object|\bundefined\b|\bNaN\b/.test(node.data)) found.push(`${node.parentElement.closest("[id]")?.id}: ${node.data.trim().slice(0, 80)}`);
    }
    for (const one of document.querySelectorAll("[aria-label], [aria-valuetext], [title]")) {
      for (const name of ["aria-label", "aria-valuetext", "title"]) {
        if (/\[object|\bundefined\b|\bNaN\b/.test(one.getAttribute(name) ?? "")) found.push(`${one.id} ${name}: ${one.getAttribute(name)}`);
      }
    }
    return found;
  });
  assert.deepEqual(wrong, [], "a value was shown that no reader can read");
  await fits(page);
  await page.evaluate(() => document.querySelectorAll("details").forEach((one) => (one.open = false)));
  return count;
}

/** No two labels of an axis touch each other. */
export async function labels(page) {
  const wrong = await page.evaluate(() => {
    const found = [];
    for (const axes of document.querySelectorAll("figure .axes")) {
      const all = [...axes.querySelectorAll("text:not(.label)")].map((one) => ({ text: one.textContent, ...one.getBoundingClientRect().toJSON() })).filter((one) => one.width);
      all.forEach((a, i) => all.slice(i + 1).forEach((b) => {
        if (a.left < b.right && b.left < a.right && a.top < b.bottom - 2 && b.top < a.bottom - 2) found.push(`${axes.closest("figure").id}: ${a.text} and ${b.text}`);
      }));
    }
    return found;
  });
  assert.deepEqual(wrong, [], "labels overlap");
}

/** Every chart has a title, a spoken name and a table of data that opens, with rows. */
export async function tables(page) {
  const count = await page.evaluate(() => document.querySelectorAll("figure").length);
  assert.ok(count > 0, "there is no chart");
  const wrong = await page.evaluate(async () => {
    const found = [];
    for (const figure of document.querySelectorAll("figure")) {
      if (!figure.offsetParent) continue;
      const name = figure.id;
      if (!figure.querySelector("h3")?.textContent) found.push(`${name}: no title`);
      const empty = figure.querySelector(".empty");
      if (empty && !empty.hidden) {
        if (!empty.textContent) found.push(`${name}: empty without words`);
        continue;
      }
      const plot = figure.querySelector(".plot");
      if (plot && !plot.getAttribute("aria-label")) found.push(`${name}: no spoken name`);
      const details = figure.querySelector("details.data");
      details.open = true;
      await new Promise((resolve) => setTimeout(resolve));
      if (!details.querySelector("tbody tr")) found.push(`${name}: no rows`);
      if (![...details.querySelectorAll("button")].some((button) => button.textContent === "Copy CSV")) found.push(`${name}: no CSV`);
      details.open = false;
    }
    return found;
  });
  assert.deepEqual(wrong, []);
  return count;
}

/** Every control is reached by Tab in the order it stands in, with an outline to be seen; nothing keeps the focus. */
export async function keyboard(page) {
  await page.evaluate(() => {
    const wanted = "a[href], button, select, summary, input, [tabindex='0']";
    window.controls = [...document.querySelectorAll(wanted)].filter((one) => one.checkVisibility() && !one.disabled);
    document.activeElement?.blur();
    scrollTo(0, 0);
  });
  const total = await page.evaluate(() => window.controls.length);
  const reached = [];
  for (let i = 0; i < total; i += 1) {
    await page.keyboard.press("Tab");
    const seen = await page.evaluate(() => {
      const one = document.activeElement;
      const style = getComputedStyle(one);
      return { at: window.controls.indexOf(one), outline: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1, name: `${one.tagName} ${one.id || one.textContent.slice(0, 20)}` };
    });
    assert.ok(seen.outline || seen.at === 0, `no visible focus on ${seen.name}`);
    reached.push(seen.at);
  }
  assert.deepEqual(reached, Array.from({ length: total }, (_, i) => i), "tab order differs from the order on the page");
  return total;
}

/** `details` open by Enter; arrow keys move a chart's crosshair and say its values. */
export async function keys(page) {
  await page.focus("#up-kind details.data summary");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#up-kind details.data tbody tr");
  await page.keyboard.press("Enter");
  await page.focus("#up-kind .plot");
  await page.keyboard.press("Home");
  const first = await page.getAttribute("#up-kind .plot", "aria-valuetext");
  await page.keyboard.press("ArrowRight");
  const second = await page.getAttribute("#up-kind .plot", "aria-valuetext");
  assert.match(first, /^Round 1, /);
  assert.match(second, /^Round 2, /);
  assert.ok(await page.isVisible("#up-kind .tip"), "the crosshair shows no values");
  await page.keyboard.press("Escape");
  assert.ok(!(await page.isVisible("#up-kind .tip")), "Escape does not hide the values");
}

/** The crosshair follows the pointer; a legend's name hides its series; a head sorts. */
export async function pointer(page) {
  await page.locator("#up-kind .plot").hover({ position: { x: 200, y: 100 } });
  assert.ok(await page.isVisible("#up-kind .tip"));
  await page.locator("#client-map .plot").hover({ position: { x: 200, y: 30 } });
  assert.ok(await page.isVisible("#client-map .tip"));
  const areas = () => page.evaluate(() => document.querySelector("#up-kind svg path.area").getAttribute("d"));
  const before = await areas();
  await page.click("#up-kind .legend button >> nth=0");
  assert.notEqual(await areas(), before, "hiding a series changes nothing");
  await page.click("#up-kind .legend button >> nth=0");
  await page.click("#clients .sort >> nth=7");
  const sent = await page.$$eval("#clients .block tbody tr td:nth-child(8)", (cells) => cells.map((cell) => cell.textContent));
  assert.equal(await page.getAttribute("#clients th >> nth=7", "aria-sort"), "descending");
  assert.equal(sent.at(-1), "512 B", "the table is not sorted");
}

/** Copies a chart's data and looks at what was copied. */
export async function copies(page) {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.click("#up-kind details.data summary");
  await page.click("#up-kind details.data button");
  await page.waitForFunction(() => document.querySelector("#up-kind details.data button").textContent === "Copied");
  const text = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(text, /^round,update \(bytes\),/);
  assert.match(text.split("\n")[1], /^1,\d+,/);
  await page.click("#up-kind details.data summary");
}
