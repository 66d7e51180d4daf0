// Numbers and times in words. Times of the API are RFC 3339 in UTC.

/** @param {number | undefined | null} value */
export const count = (value) => (value === undefined || value === null ? '–' : value.toLocaleString('en'));

const UNITS = ['', 'k', 'M', 'G', 'T'];

/** A number in three digits: 1,234 is 1.23 k. */
export function short(value) {
  if (value === undefined || value === null) return '–';
  let unit = 0;
  let rest = Math.abs(value);
  while (rest >= 999.5 && unit < UNITS.length - 1) {
    rest /= 1000;
    unit += 1;
  }
  const digits = unit === 0 && Number.isInteger(rest) ? 0 : rest >= 100 ? 0 : rest >= 10 ? 1 : 2;
  return `${value < 0 ? '−' : ''}${rest.toFixed(digits)}${unit ? ` ${UNITS[unit]}` : ''}`;
}

export const bytes = (value) => (value === undefined || value === null ? '–' : `${short(value)}B`.replace(/(\d)B$/, '$1 B'));
export const perSecond = (value) => (value === undefined || value === null ? '–' : `${short(value)}/s`);

/** A duration: `350 ms`, `2.4 s`, `3 min`, `5 h`, `2 d`. */
export function duration(ms) {
  if (ms === undefined || ms === null) return '–';
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1_000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  const minutes = seconds / 60;
  if (minutes < 100) return `${Math.round(minutes)} min`;
  const hours = minutes / 60;
  return hours < 48 ? `${Math.round(hours)} h` : `${Math.round(hours / 24)} d`;
}

/** How long ago a time of the API is, at `now` in ms. */
export function ago(time, now) {
  if (!time) return '–';
  const ms = now - Date.parse(time);
  return ms < 1_000 ? 'now' : `${duration(ms).replace(/\.\d/, '')} ago`;
}

/** A time of the API as it is read by people, in UTC, without fractions. */
export const utc = (time) => (time ? `${new Date(time).toISOString().slice(0, 19).replace('T', ' ')} UTC` : '–');

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
