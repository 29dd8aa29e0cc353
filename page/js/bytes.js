// Where the bytes go: by kind, by stage of compression, against what FedAvg would have moved.
const KINDS_UP = [
  { key: "update", name: "update", colour: "blue" },
  { key: "evaluation", name: "evaluation", colour: "green" },
  { key: "control_up", name: "control", colour: "purple" },
  { key: "heartbeat_up", name: "heartbeat", colour: "sky", pattern: "dots" },
  { key: "transport_up", name: "transport", colour: "grey" },
  { key: "aborted", name: "aborted", colour: "orange", pattern: "hatch" },
  { key: "refused", name: "refused", colour: "red", pattern: "cross" },
];
const KINDS_DOWN = [
  { key: "steps", name: "model updates", colour: "blue" },
  { key: "snapshot", name: "snapshot", colour: "green", pattern: "hatch" },
  { key: "base", name: "base model", colour: "orange", pattern: "dots" },
  { key: "control_down", name: "control", colour: "purple" },
  { key: "heartbeat_down", name: "heartbeat", colour: "sky", pattern: "dots" },
  { key: "transport_down", name: "transport", colour: "grey" },
];
const STAGES = [
  { key: "fp32", name: "fp32", colour: "grey" },
  { key: "reduced", name: "reduced", colour: "sky", dash: "7 3" },
  { key: "quantized", name: "quantized", colour: "purple", dash: "2 3" },
  { key: "coded", name: "coded", colour: "green", dash: "9 3 2 3" },
  { key: "framed", name: "framed", colour: "blue" },
  { key: "bound", name: "bound (entropy)", short: "bound", colour: "orange", dash: "4 4" },
];

const STAGES_ABOUT = { up: "Bytes of the round's updates after each stage of compression, added up; the bound is the order-0 entropy of the coded symbols.",
  down: "Bytes of the round's model update after each stage; the frame is counted once, though every client gets it." };

function bytesSection() {
  const up = makeFigure({ id: "up-kind", title: "Bytes clients sent, by kind", toggles: true, about: "All bytes read from the clients' sockets, by round. Select a name to hide it." });
  const down = makeFigure({ id: "down-kind", title: "Bytes clients received, by kind", toggles: true, about: "All bytes written to the clients' sockets, by round. Select a name to hide it." });
  const upStage = makeFigure({ id: "up-stage", title: "Updates, stage by stage", about: STAGES_ABOUT.up });
  const downStage = makeFigure({ id: "down-stage", title: "Model update, stage by stage", about: STAGES_ABOUT.down });
  const against = makeBars({ id: "against", word: "method", whole: "both", parts: WAYS, title: "The same rounds with other methods", about: "Bytes in both directions. FedAvg counts payload only, without transport." });
  const tiles = h("dl", { class: "tiles wide" });
  let drawn = "";
  return {
    id: "bytes", title: "Bytes", about: "by kind, by stage of compression, against FedAvg", parts: [{ element: tiles }, against, up, down, upStage, downStage],
    update(report) {
      const { rounds, totals, baselines } = report;
      const shown = tilesOf(report);
      // What has not changed stays, so that it can be selected.
      if (drawn !== (drawn = JSON.stringify(shown))) {
        tiles.classList.toggle("eight", shown.length > 6);
        tiles.replaceChildren(...shown.map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("b", {}, value), h("span", {}, more)))));
      }
      up.update(kinds(rounds, totals, KINDS_UP, "socket_up"));
      down.update(kinds(rounds, totals, KINDS_DOWN, "socket_down"));
      upStage.update(stages(rounds, "up", "No update has been accepted yet."));
      downStage.update(stages(rounds, "down", "No model update has been made yet."));
      against.update(baselines?.length ? { bars: methods(totals, baselines) } : { empty: "There is nothing to compare until a round has closed." });
    },
  };
}
function kinds(rounds, totals, list, all) {
  const series = list.filter(({ key }) => totals[key] > 0).map((kind) => ({ ...kind, values: rounds[kind.key],
    legend: `${bytes(totals[kind.key])} · ${percent(totals[kind.key] / totals[all])}` }));
  if (!series.length) return { empty: "There is no traffic yet." };
  return { kind: "stack", x: rounds.round, xUnit: "round", series, unit: "bytes", xLabel: "round", yLabel: "bytes per round" };
}
function stages(rounds, way, none) {
  const sum = (key) => (rounds[`${key}_${way}`] ?? []).reduce((a, b) => a + (b ?? 0), 0);
  // Before coding an index counts 4 bytes, so a stage can be larger than the one before it; no such form is sent.
  const larger = [];
  for (const [key, before] of [["reduced", ["fp32"]], ["quantized", ["fp32", "reduced"]]]) {
    if (sum(key) > Math.min(...before.filter((one) => !larger.includes(one)).map(sum))) larger.push(key);
  }
  const series = STAGES.filter(({ key }) => !larger.includes(key)).map((stage) => ({ ...stage, values: (rounds[`${stage.key}_${way}`] ?? []).map((value) => (value > 0 ? value : null)) }))
    .filter((one) => one.values.some(has));
  if (!series.length) return { empty: none };
  return { kind: "lines", log: true, x: rounds.round, xUnit: "round", series, unit: "bytes", xLabel: "round", yLabel: "bytes per round, log scale",
    about: `${STAGES_ABOUT[way]}${larger.length ? ` Not drawn: ${listed(larger)}, larger than the stage before, because an index counts 4 bytes before coding.` : ""}` };
}
const METHODS = { "fedavg-fp32": "FedAvg, fp32", "fedavg-fp16": "FedAvg, fp16" };
const WAYS = [{ name: "up", colour: "blue" }, { name: "down", colour: "sky", pattern: "hatch" }];
function methods(totals, baselines) {
  const frames = { up: totals.update, down: totals.steps + totals.snapshot };
  const made = baselines.filter((one) => one.up + one.down > 0).map((one) => ({ name: METHODS[one.name] ?? one.name, up: one.up, down: one.down,
    says: one.socket_ratio ? `this run's sockets carried ${fewer(one.socket_ratio)} bytes` : "" }));
  return [...made, { name: "This run, sockets", up: totals.socket_up, down: totals.socket_down, own: true },
    { name: "This run, frames only", ...frames, own: true }]
    .map((one) => ({ ...one, values: [one.up, one.down], more: `${bytes(one.up)} up, ${bytes(one.down)} down` }));
}
