// What the figures rest on: the chain of rounds, the digests, and every round's line in full.
const ROUND_WORDS = new Set(["model", "frame", "link", "closed", "balanced"]);
function proofSection() {
  const facts = h("dl", { class: "digests" });
  const details = dataDetails("every round, every column", () => rowsOf(report));
  details.element.querySelector("summary").textContent = "Every round, every column";
  const words = h("details", { class: "data" }, h("summary", {}, "What the words mean"), h("dl", { class: "words" },
    WORDS.map(([word, text]) => [h("dt", {}, word), h("dd", {}, text)])));
  const block = h("div", { class: "block wide" }, facts, details.element, words);
  let report = null;
  return {
    id: "proof", title: "Proof and data", parts: [{ element: block }],
    update(next) {
      report = next;
      const { run } = next;
      const rows = [["Run", run.instance], ["Newest model", run.model], ["Newest link of the chain", run.chain]].filter(([, value]) => value);
      facts.replaceChildren(...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, h("code", {}, value))]));
      details.draw();
    },
  };
}
function rowsOf({ rounds }) {
  const names = Object.keys(rounds);
  return { columns: names.map((name) => ({ name, text: ROUND_WORDS.has(name), format: ROUND_WORDS.has(name) ? brief : String })), rows: rounds.round.map((_, i) => names.map((name) => rounds[name][i])) };
}
const brief = (value) => (typeof value === "string" && value.length > 16 ? `${value.slice(0, 16)}…` : value === true ? "yes" : value === false ? "no" : String(value));
const WORDS = [
  ["update", "frames of updates that were taken"],
  ["refused, broken off", "frames that were refused or sent twice; frames that never came to their end"],
  ["steps, snapshot", "frames that bring a client's model from one round to the next; whole models, for clients that have none"],
  ["control", "all other messages: join, watch, offers, headers"],
  ["heartbeat, transport", "TLS records of the size of an HTTP/2 ping; all the rest of TLS and HTTP/2"],
  ["socket", "everything read from or written to the clients' sockets: the sum of all kinds"],
  ["reduced, quantized, coded, framed", "what is left after each stage: fewer values, fewer bits, entropy coding, with the frame's head and checksum"],
  ["bound", "the least bytes any code could reach for the same symbols, by their entropy"],
  ["wait", "from the moment an update was taken until the round's model was made"],
];
