// Makes elements. Text is always set as text: no part of a report is parsed as HTML.
const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes (`on…` are listeners, `false` and null are left out) and children: text, nodes, and lists of them
 * however deep. */
function h(name, attributes = {}, ...children) {
  return dress(document.createElement(name), attributes, children);
}
/** The same for SVG. */
function s(name, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, name), attributes, children);
}
function dress(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}
/** Fades the edges towards which an element can scroll: `data-more` is `left`, `right`, `both` or empty. */
function showsMore(element) {
  const look = () => {
    const rest = element.scrollWidth - element.clientWidth;
    const [left, right] = [element.scrollLeft > 2, element.scrollLeft < rest - 2];
    const more = left && right ? "both" : left ? "left" : right ? "right" : "";
    if (element.dataset.more !== more) element.dataset.more = more;
  };
  element.addEventListener("scroll", look, { passive: true });
  const sizes = new ResizeObserver(look);
  sizes.observe(element);
  for (const child of element.children) sizes.observe(child);
  return element;
}
/** Sets text only if it changed, so that a selection or announcement is not disturbed. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The swatch before a name: a line with its dashes, or a box with its pattern. */
function swatch(series, kind) {
  const mark = kind === "lines"
    ? [s("line", { x1: 1, x2: 21, y1: 6, y2: 6, class: `line ${series.colour}`, "stroke-dasharray": series.dash })]
    : [s("rect", { x: 4, y: 1, width: 14, height: 10, rx: 2, class: `area ${series.colour}` }),
      series.pattern ? s("rect", { x: 4, y: 1, width: 14, height: 10, rx: 2, fill: `url(#${series.pattern})` }) : null];
  return s("svg", { class: "swatch", viewBox: "0 0 22 12", width: 22, height: 12, "aria-hidden": "true" }, mark);
}
