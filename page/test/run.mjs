// Runs the tests of the page, one after another: `npm test` all, `npm test -- live` those of files or names that hold the word.
// With URL set (a live server) only those of live.mjs.
import { launch } from "./browser.mjs";

const word = process.argv[2] ?? (process.env.URL ? "live" : "");
const browser = await launch();
let failed = 0;
for (const file of ["static", "sweep", "compare", "live"]) {
  const { tests } = await import(`./${file}.mjs`);
  for (const [name, test] of Object.entries(tests)) {
    if (word && file !== word && !name.includes(word)) continue;
    if (process.env.URL && file !== "live") continue;
    const start = performance.now();
    try {
      await Promise.race([test(browser), late()]);
      console.log(`ok   ${file}: ${name} (${((performance.now() - start) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL ${file}: ${name}\n${error.stack}`);
    }
  }
}
await Promise.race([browser.close(), new Promise((resolve) => setTimeout(resolve, 5000))]);
process.exit(failed ? 1 : 0);

/** Fails a test that does not come to its end. */
function late() {
  return new Promise((_, reject) => setTimeout(() => reject(new Error("not done after 180 s")), 180_000).unref());
}
