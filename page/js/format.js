// Numbers as text. A number that is missing is an en dash, never a zero.
const MISSING = "–";
const has = (value) => value !== null && value !== undefined && Number.isFinite(value);

/** Bytes with three digits and a unit of 1024, as fl-server prints them. */
function bytes(value) {
  if (!has(value)) return MISSING;
  if (Math.abs(value) < 1024) return `${Math.round(value)} B`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let scaled = value / 1024;
  let unit = 0;
  while (Math.abs(scaled) >= 1000 && unit + 1 < units.length) {
    scaled /= 1024;
    unit += 1;
  }
  const size = Math.abs(scaled);
  return `${scaled.toFixed(size < 10 ? 2 : size < 100 ? 1 : 0)} ${units[unit]}`;
}

/** Bytes at a tick, without needless digits ("1 MiB", "1.5 MiB"). */
const byteTick = (value) => bytes(value).replace(/(\.\d*?)0+(?= )/, "$1").replace(/\.(?= )/, "");
const rate = (value) => (has(value) ? `${bytes(value)}/s` : MISSING);
const rateTick = (value) => (value === 0 ? "0" : `${byteTick(value)}/s`);

/** An integer with thousands separators. */
const count = (value) => (has(value) ? Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",") : MISSING);

/** A number with three significant digits, without an exponent where possible. */
function digits(value) {
  if (!has(value)) return MISSING;
  const size = Math.abs(value);
  if (size >= 1000) return count(value);
  if (size === 0) return "0";
  if (size < 0.001) return String(Number(value.toPrecision(2)));
  return value.toFixed(size < 1 ? 3 : size < 10 ? 2 : size < 100 ? 1 : 0);
}
const tick = (value) => (has(value) ? String(Number(value.toPrecision(6))) : MISSING);
const percent = (value) => {
  if (!has(value)) return MISSING;
  const of = value * 100;
  return `${of === 0 || of >= 100 ? of.toFixed(0) : of < 0.01 ? "<0.01" : of.toFixed(of < 1 ? 2 : 1)} %`;
};
const percentTick = (value) => `${tick(value * 100)} %`;

/** A duration, from seconds. */
function duration(value) {
  if (!has(value)) return MISSING;
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`;
  if (value < 100) return `${digits(value)} s`;
  const whole = Math.round(value);
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  if (h >= 48) return `${Math.floor(h / 24)} d ${h % 24} h`;
  return h ? `${h} h ${m} min` : `${m} min ${s} s`;
}
const durationTick = (value) => (value === 0 ? "0" : value < 1 ? `${tick(value * 1000)} ms` : `${tick(value)} s`);

const pad = (value) => String(value).padStart(2, "0");
/** Date and time as `2026-11-20 08:30:05`, in the reader's time zone. */
function moment(ms) {
  if (!has(ms)) return MISSING;
  const at = new Date(ms);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock(ms)}`;
}
/** The reader's time zone at a moment: `UTC`, `UTC+1`, `UTC-3:30`. */
function zone(ms) {
  const minutes = -new Date(ms).getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return minutes === 0 ? "UTC" : `UTC${minutes < 0 ? "-" : "+"}${hours}${rest ? `:${pad(rest)}` : ""}`;
}
function clock(ms) {
  const at = new Date(ms);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}
/** From one moment to another, with the time zone; the day is said once where it is the same. */
function span(from, to) {
  const [first, last] = [moment(from), moment(to)];
  return `${first} to ${first.slice(0, 10) === last.slice(0, 10) ? last.slice(11) : last} ${zone(to)}`;
}
const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : (many ?? `${one}s`)}`;

/** Names in a sentence: "a, b and c", at most `most` of them. */
function listed(names, most = 6) {
  const shown = names.slice(0, most).map(String);
  const left = names.length - shown.length;
  if (left > 0) return `${shown.join(", ")} and ${left} more`;
  return shown.length < 2 ? shown.join("") : `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}`;
}
