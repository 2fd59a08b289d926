// Figures and times for people.
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function count(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

export function compact(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 10000 ? whole.format(Math.round(value)) : short.format(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let size = value;
  for (const unit of ["B", "KB", "MB", "GB", "TB"]) {
    if (size < 1000 || unit === "TB") {
      return `${unit === "B" || size >= 100 ? Math.round(size) : size.toFixed(1)} ${unit}`;
    }
    size /= 1000;
  }
  return "";
}

export function bytesRate(value) {
  return value === null || value === undefined ? "–" : `${bytes(value)}/s`;
}

/** A short time: 0.4 ms, 12 ms, 1.2 s. */
export function millis(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1000) return `${(value / 1000).toFixed(1)} s`;
  return `${value === 0 || value >= 10 ? Math.round(value) : value.toFixed(1)} ms`;
}

/** Messages a second. */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0/s";
  if (value < 0.1) return "< 0.1/s";
  return `${value < 10 ? value.toFixed(1) : compact(value)}/s`;
}

/** A moment in the person's own time zone, with milliseconds. */
export function moment(ms) {
  if (ms === null || ms === undefined || ms < 0) return "no time";
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return "no time";
  const two = (value) => String(value).padStart(2, "0");
  return (
    `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.` +
    String(date.getMilliseconds()).padStart(3, "0")
  );
}

export function ago(ms, now = Date.now()) {
  const seconds = Math.max(0, (now - ms) / 1000);
  if (seconds < 5) return "just now";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return `${Math.floor(seconds)} s ago`;
}

/** A length of time: 7 d, 12 h, 30 s. */
export function duration(ms) {
  if (ms === null || ms === undefined || ms < 0) return "for ever";
  for (const [unit, size] of [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]]) {
    if (ms >= size) return `${+(ms / size).toFixed(1)} ${unit}`;
  }
  return `${ms} ms`;
}

/** How long something is behind or has waited: 0 s, 4.2 s, 3 min. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  return value < 60 ? `${value < 10 ? value.toFixed(1) : Math.round(value)} s` : duration(Math.round(value) * 1000);
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
