// Starts the page: with the report in it, or with the one that its server sends and keeps up to date.
const EMPTY = "No round has closed yet. Charts appear here once the first one closes.";

function start() {
  theme();
  unfoldForPrint();
  const head = makeHead();
  const overview = makeOverview();
  const sections = [clientsSection(), metricsSection(), bytesSection(), timeSection(), codingSection(), proofSection()];
  const main = document.getElementById("main");
  const nothing = h("p", { class: "nothing", hidden: true }, EMPTY);
  const bodies = sections.map(fold);
  const links = sections.map((section, i) => h("li", {}, h("a", { href: `#${section.id}`, onclick: () => (bodies[i].element.open = true) }, section.title)));
  document.getElementById("links").append(...links);
  const asked = bodies.find((body) => `#${body.element.id}` === location.hash);
  if (asked) asked.element.open = true;
  showsMore(document.getElementById("links"));
  const show = (report) => {
    const none = !closedRounds(report.rounds);
    nothing.hidden = !none;
    head.update(report);
    overview.update(report);
    sections.forEach((section, i) => {
      links[i].hidden = bodies[i].element.hidden = none || section.has?.(report) === false;
      if (none) return;
      section.update(report);
      bodies[i].update();
    });
  };
  const text = document.getElementById("data");
  main.append(head.element);
  if (text) {
    main.append(overview.element, nothing, ...bodies.map((body) => body.element));
    guarded(() => show(JSON.parse(text.textContent)));
    done();
  } else {
    const live = makeLive();
    head.element.querySelector(".title").after(live.status);
    main.append(overview.element, nothing, live.element, ...bodies.map((body) => body.element));
    overview.element.hidden = true;
    for (const body of bodies) body.element.hidden = true;
    watch(live, head, (report) => {
      overview.element.hidden = false;
      live.rounds(report.rounds);
      show(report);
    });
  }
}

/** A section that is opened by its title. Charts without data are left out, and the reasons are listed below the others. */
function fold(section) {
  const grid = h("div", { class: "grid" }, section.parts.map((part) => part.element));
  const missing = h("p", { class: "about missing" });
  return {
    element: h("details", { id: section.id, class: "fold" },
      h("summary", {}, h("h2", {}, section.title), h("span", { class: "about" }, section.about)), grid, missing),
    update() {
      const reasons = [...grid.querySelectorAll(".empty:not([hidden])")].map((empty) => empty.textContent);
      say(missing, [...new Set(reasons)].join(" "));
    },
  };
}
/** Subscribes to the server: `live` events feed the panel, `report` events announce a newer report. Reconnects. */
function watch(live, head, show) {
  let busy = false;
  let behind = true;
  async function fetchReport() {
    if (busy) return;
    busy = true;
    while (behind) {
      behind = false;
      try {
        const answer = await fetch("report.json", { cache: "no-store" });
        if (answer.status === 401 || answer.status === 403) return location.assign("login");
        if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
        const report = await answer.json();
        guarded(() => show(report));
        done();
      } catch (error) {
        live.connection("reconnecting");
        await new Promise((resolve) => setTimeout(resolve, 2000));
        behind = true;
      }
    }
    busy = false;
    return undefined;
  }
  function connect() {
    const source = new EventSource("live");
    source.addEventListener("open", () => {
      live.connection("live");
      behind = true;
      fetchReport();
    });
    source.addEventListener("live", (event) => {
      live.connection("live");
      guarded(() => {
        const state = JSON.parse(event.data);
        live.update(state);
        head.now(state);
      });
    });
    source.addEventListener("report", () => {
      behind = true;
      fetchReport();
    });
    source.addEventListener("error", () => {
      live.connection("reconnecting");
      if (source.readyState !== EventSource.CLOSED) return;
      source.close();
      setTimeout(connect, 3000);
    });
  }
  fetchReport();
  connect();
}

start();
