// Clients: a map of clients by rounds, and a table to sort.
const CLIENT_QUANTITIES = [
  ["socket_up", "bytes sent (socket)", "bytes"],
  ["socket_down", "bytes received (socket)", "bytes"],
  ["finish_seconds", "time until the update was accepted", "seconds"],
  ["train_seconds", "training time", "seconds"],
  ["retries", "uploads resumed or sent again", "count"],
];

function clientsSection() {
  const map = makeHeat({ id: "client-map", title: "Clients by rounds", about: "Each client in each round. Hatched: no update or no connection.", rowWord: "client" });
  const list = makeTable({ caption: "Clients, all rounds together", sortable: true, columns: [{ name: "client", text: true }, { name: "asked", format: count },
    { name: "updates", format: count }, { name: "examples", format: count }, { name: "accuracy", format: percent }, { name: "loss", format: digits }, { name: "evaluated", format: count }, { name: "sent", format: bytes }, { name: "received", format: bytes },
    { name: "frames", format: bytes }, { name: "wasted", format: bytes }, { name: "retries", format: count },
    { name: "connections", format: count }, { name: "finish", format: duration }, { name: "training", format: duration }] });
  const block = h("div", { class: "block wide" }, h("h3", {}, "Clients, all rounds together"), h("p", { class: "about" }, "Select a column head to sort. Accuracy, loss: of the model version “evaluated”, the client's latest, on its own held-out examples. Frames: accepted updates. Wasted: refused or aborted. Finish, training: means. “unknown”: connections without a client certificate."), list.element);
  return {
    id: "clients", title: "Clients", about: "accuracy, loss, bytes and time of each", parts: [{ element: block }, map],
    update({ rounds, clients, participations }) {
      map.update(clientMap(rounds, participations));
      list.update((clients?.client ?? []).map((client, i) => [client === "-" ? "unknown" : client, clients.asked[i], clients.updates[i], clients.examples[i],
        clients.accuracy?.[i], clients.evaluation_loss?.[i], has(clients.evaluation_loss?.[i]) ? clients.evaluated_version[i] : null, clients.socket_up[i], clients.socket_down[i], clients.framed[i], clients.refused[i] + clients.aborted[i], clients.retries[i], clients.connections[i],
        clients.finish_mean[i], clients.updates[i] ? clients.train_seconds[i] / clients.updates[i] : null]));
    },
  };
}
/** Cells of the map. Times are only shown where an update was taken, bytes only where there were any: a zero there says nothing. */
function clientMap(rounds, participations) {
  if (!participations?.round?.length) return { empty: "This report has no data per client and round." };
  const names = [...new Set(participations.client)].sort((a, b) => (a === "-") - (b === "-") || a.localeCompare(b, undefined, { numeric: true }));
  const rowOf = new Map(names.map((name, i) => [name, i]));
  const columnOf = new Map(rounds.round.map((round, i) => [round, i]));
  const place = Int32Array.from(participations.client, (client, i) => {
    const column = columnOf.get(participations.round[i]);
    return column === undefined ? -1 : rowOf.get(client) * rounds.round.length + column;
  });
  const choices = [];
  for (const [key, name, unit] of CLIENT_QUANTITIES) {
    const values = participations[key];
    if (!values) continue;
    const timed = unit === "seconds";
    const fill = (cells) => {
      for (let i = 0; i < place.length; i += 1) {
        const value = values[i];
        if (place[i] < 0 || value === null || (timed && !participations.updated?.[i]) || (unit === "bytes" && value === 0)) continue;
        cells[place[i]] = value;
      }
    };
    if (values.some((value) => value > 0)) choices.push({ key, name, unit, fill });
  }
  return choices.length ? { rows: names.map((name) => (name === "-" ? "unknown" : name)), rounds: rounds.round, choices } : { empty: "No client has sent or received anything yet." };
}
