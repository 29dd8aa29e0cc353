// Puts the page together as fl-page does, for looking at it and for its tests: `node assemble.mjs REPORT.json PAGE.html`.
// Without a report (REPORT.json is `-`) it is the live page.
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

/** The scripts of every page, then those of one, in the order they are put together; fl-page has the same lists. Only the last one starts anything. */
const SHARED = ["format", "dom", "table", "scale", "plot", "figure", "bars", "shell"];
export const REPORT = { scripts: ["heat", "bytes", "learning", "time", "clients", "head", "overview", "proof", "live", "page"],
  instead: "run fl-server report with --format text or csv" };
export const COMPARE = { scripts: ["compare"], instead: "run fl-compress compare with --format text or json" };
export const SWEEP = { scripts: ["sweep"], instead: "read trials.csv beside it" };
const read = (name) => readFileSync(new URL(name, import.meta.url), "utf8");
const escape = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");

/** The page as text. `json`: the text of its data, or null for the live page. */
export function assemble(json, title = "Communication report", { scripts, instead } = REPORT, nonce = "static") {
  const data = json === null ? "" : `<script type="application/json" id="data">${json.replaceAll("<", "\\u003c")}</script>`;
  const parts = { TITLE: escape(title), NONCE: nonce, STYLE: read("page.css"), CHARTS: read("charts.js"),
    INSTEAD: instead, SCRIPT: [...SHARED, ...scripts].map((name) => read(`js/${name}.js`)).join("\n"), DATA: data };
  return read("page.html").replace(/<!--([A-Z]+)-->/g, (_, name) => parts[name]);
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [from, to] = process.argv.slice(2);
  writeFileSync(to, assemble(from === "-" ? null : readFileSync(from, "utf8")));
}
