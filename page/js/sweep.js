// The page of a sweep: a section for each phase, with its table, quality against bytes, loss, bytes and times.

/** The ranges of so many lines can be told from one another. */
const BANDS_AT_MOST = 5;
/** Rounds are drawn for so many points. */
const SMALL_AT_MOST = 8;
const TRAFFIC = [
  { name: "updates, clients to server", colour: "blue" },
  { name: "model updates, server to clients", colour: "sky" },
  { name: "messages, HTTP/2 and TLS of the rounds", colour: "orange" },
  { name: "joining, leaving, the last model", colour: "grey" },
];

function front({ id, quality, digits }, { points: all, entries }) {
  const shown = all.filter((point) => has(point.mean) && point.bytes > 0).sort((a, b) => a.bytes - b.bytes);
  const figure = makeFigure({ id: `${id}-front`, title: "Quality against bytes", word: "points",
    about: "Mean of the last three rounds; small dots are seeds, the line is the Pareto front." });
  const seeds = (point) => point.seeds.filter((one) => has(one.quality));
  const [least, most] = extent(shown.flatMap((point) => [point.mean, ...seeds(point).map((one) => one.quality)])) ?? [0, 1];
  const margin = (most - least) * 0.06 || 0.5;
  figure.update(shown.length ? { kind: "points", tall: true, x: shown.map((point) => point.bytes), xUnit: "bytes", unit: "number", entries,
    xLabel: "bytes of a run, both directions, log scale", yLabel: quality, low: least - margin, high: most + margin,
    series: shown.map((point, k) => ({ name: point.name, colour: point.colour, ring: point.marked, values: shown.map((_, i) => (i === k ? point.mean : null)),
      seeds: seeds(point).map((one) => [one.bytes, one.quality]) })),
    front: shown.map((_, k) => k).filter((k) => shown[k].front),
    says: shown.map((point) => [[quality, point.spread], ["bytes", bytes(point.bytes)], ["ratio", `${point.ratio.toFixed(1)}x`], ["seeds", count(point.seeds.length)]]),
    table: { columns: [{ name: "point", text: true }, { name: "seed", format: count }, { name: "bytes", format: count }, { name: quality, format: (value) => value.toFixed(digits) }],
      rows: shown.flatMap((point) => point.seeds.map((one) => [point.name, one.seed, one.bytes, one.quality])) } }
    : { empty: "No model was evaluated." });
  return figure;
}

function loss({ id, loss: kind }, { points: all, entries }) {
  const rounds = Math.max(0, ...all.map((point) => point.loss.length));
  const figure = makeFigure({ id: `${id}-loss`, title: "Loss against round", about: `Mean of the seeds${all.length <= BANDS_AT_MOST ? " and their range" : ""}.` });
  figure.update(rounds ? { kind: "lines", tall: true, x: Array.from({ length: rounds }, (_, i) => i + 1), xUnit: "round", unit: "number", xLabel: "round", yLabel: kind, entries,
    series: all.map((point) => ({ name: point.name, colour: point.colour, values: point.loss.map((range) => range.mean),
      band: all.length <= BANDS_AT_MOST ? point.loss.map((range) => [range.low, range.high]) : undefined })) }
    : { empty: "No round has ended." });
  return figure;
}

function byRound({ id }, all) {
  const chosen = all.filter((point) => point.rounds.length).slice(0, SMALL_AT_MOST);
  const figures = chosen.map((point, i) => {
    const figure = makeFigure({ id: `${id}-rounds-${i}`, title: point.name, about: "", compact: true });
    figure.update({ kind: "stack", x: point.rounds.map((_, at) => at + 1), xUnit: "round", unit: "bytes", xLabel: "round", yLabel: "bytes per round",
      series: TRAFFIC.slice(0, 3).map((part, k) => ({ ...part, values: point.rounds.map((parts) => parts[k]) })) });
    return figure.element;
  });
  return block("Bytes by round", "By kind, mean of the seeds; each chart has its own scale.", h("div", { class: "small" }, figures));
}

function block(title, about, ...parts) {
  return h("div", { class: "block wide" }, h("h3", {}, title), h("p", { class: "about" }, about), parts);
}

/** The element of a phase. `phase`: { id, title, about, quality, digits, loss, points, table: { columns, rows }, times? }. */
function phaseSection(phase) {
  // The legend has the points, or their variants if the points are too many for colors of their own.
  const known = coloured(phase.points, phase.points.length <= POINT_COLOURS.length ? "name" : "variant");
  const rows = (table, marked) => {
    const made = makeTable({ caption: phase.title, marked, columns: table.columns.map((column, j) => ({ ...column, text: j < 2, wrap: j === 1 })) });
    made.update(table.rows);
    return made.element;
  };
  const marks = new Set(phase.table.rows.filter((_, i) => phase.points[i].marked));
  const bars = makeBars({ id: `${phase.id}-kinds`, title: "Bytes by kind", word: "point", whole: "all", parts: TRAFFIC, shares: true,
    about: "Shares of a run's bytes on the sockets, mean of the seeds; the total is on the right." });
  bars.update({ bars: phase.points.map((point) => ({ name: point.name, values: point.kinds })) });
  return h("section", { id: phase.id, class: "phase" }, h("h2", {}, phase.title), h("p", { class: "about" }, phase.about),
    h("div", { class: "grid" }, h("div", { class: "wide" }, rows(phase.table, (row) => marks.has(row))),
      front(phase, known).element, loss(phase, known).element, bars.element, byRound(phase, known.points),
      phase.times ? block("Time against link", `Seconds of all rounds on the virtual clock, training included: links of the file, the mean time from the first update of a round to its last
        on them, then every client on a link of these megabits a second and milliseconds a way.`, rows(phase.times)) : null));
}

function start() {
  theme();
  unfoldForPrint();
  const main = document.getElementById("main");
  guarded(() => {
    const { title, warnings, phases } = JSON.parse(document.getElementById("data").textContent);
    document.getElementById("links").append(...phases.map((phase) => h("li", {}, h("a", { href: `#${phase.id}` }, phase.title))));
    main.append(h("header", { class: "head" }, h("div", { class: "title" }, h("h1", {}, title)), warnings.map((warning) => h("p", { class: "warn" }, warning))),
      ...phases.map(phaseSection));
  }, "The same figures are in trials.json beside this page.");
  done();
}

start();
