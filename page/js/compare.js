// The page of `fl-compress compare`: error against size, and a table of all figures. Its data is that of `--format json`.

const COLUMNS = [
  { name: "spec", key: "spec", text: true },
  { name: "bytes", key: "bytes", format: count },
  { name: "ratio", key: "ratio", note: "to fp32", format: digits },
  { name: "bits", key: "bits_per_parameter", note: "a parameter", format: digits },
  { name: "bound", key: "bound_bytes", note: "bytes, entropy", format: count },
  { name: "coded", key: "coded_over_bound", note: "to the bound", format: digits },
  { name: "error", key: "relative_error", note: "relative", format: digits },
  { name: "cosine", key: "cosine", format: (value) => value.toFixed(5) },
  { name: "encode", key: "encode_mb_s", note: "MB/s of fp32", format: digits },
  { name: "decode", key: "decode_mb_s", note: "MB/s of fp32", format: digits },
];
const rowOf = (spec) => COLUMNS.map((column) => spec[column.key]);

/** Specs whose names differ in a number at their end are one series. */
const seriesOf = (name) => name.replace(/[\s_-]*[\d.]+$/, "") || name;

function chart(specs) {
  const shown = specs.filter((one) => one.bits_per_parameter > 0 && one.relative_error > 0).sort((a, b) => a.bits_per_parameter - b.bits_per_parameter);
  const exact = specs.filter((one) => one.relative_error === 0).map((one) => one.spec);
  const { points, entries } = coloured(shown.map((one) => ({ ...one, series: seriesOf(one.spec) })), "series");
  const members = (name) => points.map((_, k) => k).filter((k) => points[k].series === name);
  const figure = makeFigure({ id: "error", title: "Relative error against bits per parameter", word: "specs", wide: true,
    about: `Lower and further left is better.${exact.length ? ` Exact, so not drawn: ${listed(exact)}.` : ""}` });
  figure.update(points.length ? { kind: "points", tall: true, log: true, unit: "number", xUnit: "number", x: points.map((one) => one.bits_per_parameter), entries,
    xLabel: "bits per parameter, log scale", yLabel: "relative error |x - y| / |x|, log scale",
    series: points.map((one, k) => ({ name: one.spec, colour: one.colour, values: points.map((_, i) => (i === k ? one.relative_error : null)) })),
    joined: entries.map((entry) => members(entry.name)),
    says: points.map((one) => [["error", digits(one.relative_error)], ["bits", digits(one.bits_per_parameter)], ["ratio", `${digits(one.ratio)}x`]]),
    table: { columns: COLUMNS, rows: specs.map(rowOf) } }
    : { empty: exact.length ? "All specs are exact." : "No spec has an error." });
  return figure.element;
}

function start() {
  theme();
  unfoldForPrint();
  guarded(() => {
    const { file, parameters, fp32_bytes: whole, specs } = JSON.parse(document.getElementById("data").textContent);
    const table = makeTable({ caption: "Specs", columns: COLUMNS, sortable: true });
    table.update(specs.map(rowOf));
    document.getElementById("main").append(
      h("header", { class: "head" }, h("div", { class: "title" }, h("h1", {}, file))),
      h("section", { class: "phase" }, h("p", { class: "about" }, `${plural(specs.length, "spec")}, ${plural(parameters, "parameter")}, ${bytes(whole)} as fp32`),
        h("div", { class: "grid" }, chart(specs), h("div", { class: "wide" }, table.element))));
  }, "The same figures: fl-compress compare --format json.");
  done();
}

start();
