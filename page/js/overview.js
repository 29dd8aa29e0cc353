// The first screen below the head: accuracy and loss against rounds or bytes, what was run, and what to change.
function makeOverview() {
  const figures = {
    accuracy: makeFigure({ id: "accuracy", title: "Accuracy", about: "", compact: true }),
    perplexity: makeFigure({ id: "perplexity", title: "Perplexity", about: "", compact: true }),
    loss: makeFigure({ id: "loss", title: "Loss", about: "", compact: true }),
  };
  let report = null;
  let axis = "rounds";
  const choices = ["rounds", "bytes (log)"].map((name) => h("button", { type: "button", class: "quiet", "aria-pressed": String(name === axis), onclick: () => {
    axis = name;
    for (const choice of choices) choice.setAttribute("aria-pressed", String(choice.textContent === axis));
    draw();
  } }, name));
  const charts = h("div", { class: "block charts" },
    h("div", { class: "block-head" }, h("h2", {}, "How good it is"), h("div", { class: "switch", role: "group", "aria-label": "Horizontal axis" }, "against ", choices)),
    h("div", { class: "pair" }, Object.values(figures).map((figure) => figure.element)));
  const settings = h("dl", { class: "settings" });
  const toml = h("code", {});
  const whole = h("details", { class: "data" }, h("summary", {}, "run.toml"), h("pre", { tabindex: 0, "aria-label": "run.toml" }, toml));
  const run = h("div", { class: "block", id: "settings" }, h("h2", {}, "What was run"), settings, whole);
  const changes = h("ol", { class: "changes" });
  const save = h("div", { class: "block", id: "save" }, h("h2", {}, "What to change"), changes);

  function draw() {
    const { rounds, baselines } = report;
    const moved = axis !== "rounds" ? cumulative(rounds) : null;
    const marks = moved ? (baselines ?? []).map((one) => ({ value: one.up + one.down, name: METHODS[one.name] ?? one.name })) : [];
    const line = (name, values) => [{ name, colour: "blue", join: true, values: values ?? [] }];
    const [low, high] = extent(rounds.accuracy) ?? [0, 1];
    const span = { low: low > 0.5 ? Math.floor(low * 10) / 10 : 0, high: high <= 1 ? Math.min(1, Math.ceil(high * 10 + 0.01) / 10) : high };
    const losses = [...line("test", rounds.evaluation_loss), { name: "train", colour: "orange", dash: "5 3", values: rounds.loss }].filter((one) => one.values.some(has));
    const more = { references: marks, yLabel: "" };
    plotted(figures.accuracy, rounds, moved, line("accuracy", rounds.accuracy), "share", "", "none", { ...more, ...span });
    plotted(figures.perplexity, rounds, moved, line("perplexity", rounds.perplexity), "number", "", "none", { ...more, log: true });
    plotted(figures.loss, rounds, moved, losses, "number", "", "none", { ...more, references: [] });
  }
  return {
    element: h("section", { id: "overview", class: "overview", "aria-label": "Overview" }, charts, run, save),
    update(next) {
      report = next;
      const { rounds } = next;
      charts.hidden = !closedRounds(rounds);
      if (!charts.hidden) draw();
      const { words: rows = [], run_toml = "" } = next.settings ?? {};
      run.hidden = !rows.length;
      settings.replaceChildren(...rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
      whole.hidden = !run_toml;
      say(toml, run_toml);
      const { cost = [], bytes: sizes, share, why, change } = next.savings ?? {};
      changes.replaceChildren(...[...(next.notes ?? []), trend(next), outlier(next)].filter(Boolean).map((note) => h("li", { class: "note" }, ...marked(note))),
        ...cost.map((name, i) => h("li", { title: why[i] }, h("b", {}, `${name[0].toUpperCase()}${name.slice(1)}, ${bytes(sizes[i])} (${percent(share[i])}): `), ...marked(change[i]))));
      save.hidden = !changes.children.length;
    },
  };
}
/** A change of this much is a trend and not noise; a client this far below the median is worth a look. */
const [RISE, BEHIND, TREND_ROUNDS] = [0.005, 0.1, 3];
/** Whether the accuracy still rose in the last rounds of a run, or is below its best. */
function trend({ run, rounds }) {
  const known = rounds.accuracy.filter(has);
  const all = extremes(rounds, "accuracy", (a, b) => a > b);
  const rise = known.at(-1) - known.at(-1 - TREND_ROUNDS);
  if (!all) return null;
  if (all.best > all.newest + 2 * RISE) return `Accuracy fell from ${percent(all.best)} in round ${count(all.bestRound)} to ${percent(all.newest)}: lower \`learning_rate\` in [train], or evaluate an \`average\`.`;
  return isOver(run) && all.newest === all.best && rise > RISE ? `Accuracy still rose at the end, by ${(100 * rise).toFixed(1)} points in ${TREND_ROUNDS} rounds: more \`rounds\` may raise it further.` : null;
}
/** The client whose accuracy is far below the median, of those that evaluated the newest model. */
function outlier({ clients }) {
  if (!clients?.accuracy) return null;
  const newest = Math.max(...clients.evaluated_version);
  const known = clients.client.map((client, i) => [client, clients.accuracy[i], i]).filter(([, value, i]) => has(value) && clients.evaluated_version[i] === newest)
    .sort((a, b) => a[1] - b[1]);
  const median = known[known.length >> 1]?.[1];
  return known.length > 2 && known[0][1] < median - BEHIND ? `${known[0][0]} has an accuracy of ${percent(known[0][1])}, the median client ${percent(median)}: look at the data of this client.` : null;
}
/** Text whose parts between backticks are code. */
function marked(text) {
  return text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
}
