// Axes: places and labels of ticks. Bytes have ticks at powers and multiples of 2, as their units do.

/** The kinds of numbers: format of values, format of ticks, whether ticks are binary. */
const UNITS = {
  bytes: { format: bytes, tick: byteTick, binary: true },
  rate: { format: rate, tick: rateTick, binary: true },
  seconds: { format: duration, tick: durationTick },
  share: { format: percent, tick: percentTick },
  count: { format: count, tick: count, whole: true },
  number: { format: digits, tick },
};

/** Ticks of a linear axis from 0 or `low` to `high`, about `n` of them. */
function linearTicks(low, high, n, unit) {
  if (unit.binary) {
    const step = 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(1, (high - low) / n))));
    const ticks = [];
    for (let at = Math.ceil(low / step) * step; at <= high; at += step) ticks.push(at);
    return ticks;
  }
  const ticks = d3.scaleLinear().domain([low, high]).ticks(n);
  return unit.whole ? ticks.filter(Number.isInteger) : ticks;
}
/** Ticks of a logarithmic axis, about `n`. Of bytes: powers of two, and halfway between them where there would be hardly any;
 * of other units: powers of ten, and steps between them where they fit. */
function logTicks(low, high, n, unit) {
  if (!unit.binary) return decimalTicks(low, high, n);
  const [first, last] = [Math.ceil(Math.log2(low) - 1e-9), Math.floor(Math.log2(high) + 1e-9)];
  const step = [1, 2, 5, 10, 20].find((size) => (last - first) / size <= n) ?? 20;
  const ticks = [];
  for (let power = Math.ceil(first / step) * step; power <= last; power += step) ticks.push(2 ** power);
  if (ticks.length > 2 || n < 4) return ticks;
  for (let power = first - 1; power <= last; power += 1) ticks.push(1.5 * 2 ** power);
  return ticks.filter((at) => at >= low && at <= high).sort((a, b) => a - b);
}
function decimalTicks(low, high, n) {
  const decades = Math.log10(high / low);
  const steps = decades < n / 6 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : decades < n / 2 ? [1, 2, 5] : [1];
  const every = Math.ceil(decades / n);
  const ticks = [];
  for (let power = Math.floor(Math.log10(low) / every) * every; 10 ** power <= high; power += every) {
    // As text: 3 * 10 ** -4 is not the number 0.0003.
    ticks.push(...steps.map((step) => Number(`${step}e${power}`)));
  }
  return ticks.filter((at) => at >= low && at <= high);
}
/** Ticks of an axis of rounds: whole numbers. */
function roundTicks(first, last, n) {
  if (first === last) return [first];
  const ticks = d3.scaleLinear().domain([first, last]).ticks(n).filter(Number.isInteger);
  if (ticks[0] !== first && ticks.length > 1 && ticks[0] - first >= (ticks[1] - ticks[0]) * 0.7) ticks.unshift(first);
  return ticks;
}

/** Ticks whose labels do not overlap: a label that would touch the one before is left out. */
function apart(ticks, place, text) {
  let end = -Infinity;
  return ticks.filter((at) => {
    const half = text(at).length * 3.5;
    const fits = place(at) - half >= end + 6;
    if (fits) end = place(at) + half;
    return fits;
  });
}

/** Minimum and maximum of the numbers that are not missing; null if all are. */
function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!has(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}
/** The value below which a share `q` of the numbers lies. */
function quantile(values, q) {
  const sorted = Float64Array.from(values.filter(has)).sort();
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] : null;
}
