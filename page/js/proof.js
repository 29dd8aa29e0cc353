// What the figures rest on: the chain of rounds, the digests, and every round's line in full.
const ROUND_WORDS = new Set(["model", "frame", "link", "closed", "balanced"]);
function proofSection() {
  const facts = h("dl", { class: "digests" });
  const details = dataDetails("every round, every column", () => rowsOf(report));
  details.element.querySelector("summary").textContent = "Every round, every column";
  const words = h("details", { class: "data" }, h("summary", {}, "Glossary"), h("dl", { class: "words" },
    WORDS.map(([word, text]) => [h("dt", {}, word), h("dd", {}, text)])));
  const block = h("div", { class: "block wide" }, facts, details.element, words);
  let report = null;
  return {
    id: "proof", title: "Proof and data", about: "digests, every column, glossary", parts: [{ element: block }],
    update(next) {
      report = next;
      const { run } = next;
      const rows = [["Run", run.instance], ["Newest model", run.model], ["Newest entry of the hash chain", run.chain]].filter(([, value]) => value);
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
  ["update", "frames of accepted updates"],
  ["refused, aborted", "frames that were refused or sent twice; frames whose upload broke off"],
  ["steps, snapshot", "frames of model updates, which advance a client's model by one round; whole models, for clients that have none"],
  ["base", "frozen tensors of the model, which a client without them fetches once"],
  ["control", "all other messages: join, watch, offers, headers"],
  ["heartbeat, transport", "TLS records of the size of an HTTP/2 ping; the rest of TLS and HTTP/2"],
  ["socket", "all bytes read from or written to the clients' sockets: the sum of all kinds"],
  ["reduced, quantized, coded, framed", "bytes after each stage: fewer values, fewer bits, entropy coding, with the frame's header and checksum"],
  ["bound", "order-0 entropy of the same symbols; only context coding can need fewer bytes"],
  ["wait", "time from an accepted update to the round's model"],
];
