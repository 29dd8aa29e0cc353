// Where the time goes: what a round is made of, when updates came, what the link was doing, what had to be sent again.
const SPLIT = [
  { name: "download", colour: "sky", pattern: "dots" },
  { name: "train", colour: "blue" },
  { name: "encode", colour: "purple" },
  { name: "upload", colour: "orange", pattern: "hatch" },
  { name: "wait", colour: "grey" },
  { name: "aggregate", colour: "green" },
];

/** Uploads that take less on average say nothing of the link. */
const LEAST_UPLOAD_MS = 10;

function timeSection() {
  const split = makeFigure({ id: "split", wide: true, title: "Where a round's time goes", toggles: true, about: "Seconds per accepted update, mean over clients. Clients work in parallel, so the parts do not add up to the round's duration." });
  const finish = makeFigure({ id: "finish", title: "When updates arrived", about: "Seconds from the opening of the round to the median update, the last update and the round's model." });
  const rates = makeFigure({ id: "rates", title: "Throughput of the links", about: "One upload: bytes of updates per second of upload, mean over clients. Sockets: all bytes of the round over its duration." });
  const busy = makeFigure({ id: "busy", title: "Share of the round in which the link was busy", about: "Share of the round in which a client sent an upload or received a model, mean over clients." });
  const people = makeFigure({ id: "people", title: "Cohort and accepted updates", about: "Closed rounds only. The gap between the lines is updates that were late, refused or lost." });
  const again = makeFigure({ id: "again", title: "Sent again, aborted, refused", toggles: true, about: "Bytes of uploads that contributed to no model." });
  const retries = makeFigure({ id: "retries", title: "Uploads resumed or sent again", about: "How often an upload was resumed or sent again after it was interrupted." });
  return {
    id: "time", title: "Time and link", about: "where rounds spend their time, what was sent again", parts: [split, finish, rates, busy, people, again, retries],
    update({ rounds, totals }) {
      const per = (values, by, scale = 1) => values.map((value, i) => (has(value) && by[i] > 0 ? (value * scale) / by[i] : null));
      const { updates, asked, seconds } = rounds;
      const upload = per(rounds.upload_ms, updates, 0.001);
      const download = per(rounds.download_ms, asked, 0.001);
      const parts = [download, per(rounds.train_seconds, updates), per(rounds.encode_seconds, updates), upload, per(rounds.wait_seconds, updates), rounds.aggregate_seconds];
      const chart = (series, unit, yLabel, more = {}) => ({ kind: "lines", x: rounds.round, xUnit: "round", xLabel: "round", series, unit, yLabel, ...more });
      const series = SPLIT.map((one, k) => ({ ...one, values: parts[k] })).filter((one) => one.values.some((value) => value > 0));
      split.update(series.length ? chart(series, "seconds", "seconds", { kind: "stack" }) : { empty: "No update has been accepted yet." });
      const ends = [{ name: "model ready", short: "model", colour: "grey", dash: "2 3", values: seconds }, { name: "last update", short: "last", colour: "orange", dash: "6 3", values: rounds.finish_last },
        { name: "median update", short: "median", colour: "blue", values: rounds.finish_median }].filter((one) => one.values.some(has));
      finish.update(ends.length ? chart(ends, "seconds", "seconds since the round opened") : { empty: "No update has been accepted yet." });
      const arrived = rounds.update.map((value, i) => value + rounds.refused[i] + rounds.aborted[i]);
      const both = rounds.socket_up.map((value, i) => value + rounds.socket_down[i]);
      const speeds = [{ name: "one upload", short: "upload", colour: "blue", values: per(arrived, rounds.upload_ms, 1000) },
        { name: "sockets, both directions, whole round", short: "sockets", colour: "orange", dash: "6 3", values: per(both, seconds) }].filter((one) => one.values.some(has));
      // An upload of a few milliseconds says how fast the processor was, not the link.
      const mean = totals.upload_ms / Math.max(1, updates.reduce((a, b) => a + b, 0));
      rates.element.hidden = mean > 0 && mean < LEAST_UPLOAD_MS;
      if (!rates.element.hidden) rates.update(speeds.length ? chart(speeds, "rate", "bytes per second") : { empty: "No upload has been timed yet." });
      const shares = [{ name: "uploads", colour: "blue", values: per(upload, seconds) }, { name: "downloads", colour: "orange", dash: "6 3", values: per(download, seconds) }]
        .filter((one) => one.values.some(has));
      busy.update(shares.length ? chart(shares, "share", "share of the round") : { empty: "No round has been timed yet." });
      const inClosed = (values) => values.map((value, i) => (rounds.closed[i] ? value : null));
      people.update(rounds.closed.some(Boolean) ? chart([{ name: "asked", colour: "grey", dash: "6 3", values: inClosed(asked) },
        { name: "accepted updates", short: "accepted", colour: "blue", values: inClosed(updates) }], "count", "clients") : { empty: "No round is closed yet." });
      const lost = KINDS_UP.filter(({ key }) => (key === "aborted" || key === "refused") && totals[key] > 0)
        .map((kind) => ({ ...kind, values: rounds[kind.key], legend: bytes(totals[kind.key]) }));
      again.update(lost.length ? chart(lost, "bytes", "bytes per round", { kind: "stack" }) : { empty: "No upload was aborted or refused." });
      retries.update(totals.retries > 0 ? chart([{ name: "retries", colour: "orange", pattern: "hatch", values: rounds.retries, legend: plural(totals.retries, "retry", "retries") }], "count", "retries", { kind: "stack" })
        : { empty: "No upload had to be resumed or sent again." });
    },
  };
}
