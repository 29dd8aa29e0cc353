// The parts of D3 the page uses: scales (ticks, logarithms) and shapes (lines, areas, stacks). `npm run build` makes
// `charts.js` of them, one file without a module system, whose global is `d3`.
export { scaleLinear, scaleLog } from "d3-scale";
export { area, line, stack } from "d3-shape";
