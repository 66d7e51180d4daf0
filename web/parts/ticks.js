// The scale of a chart: few round numbers, the largest at least as large as what is drawn. Pure.

/** Steps of a scale, times a power of the base. */
const STEPS = [1, 2, 2.5, 5, 10];

/**
 * The ticks of an axis that begins with 0: two or three.
 * @param {number} max the largest value
 * @param {{isCount?: boolean, base?: number}} options a count has whole ticks; bytes go by 1000 as all units here
 * @returns {number[]} from 0 to the top of the chart
 */
export function ticksOf(max, { isCount = false } = {}) {
  if (!(max > 0)) return [0, 1];
  if (isCount && max <= 1) return [0, 1];
  const power = 10 ** Math.floor(Math.log10(max / 2));
  const found = STEPS.map((step) => step * power).find((step) => step * 2 >= max && (!isCount || Number.isInteger(step)));
  const step = found ?? (isCount ? Math.ceil(max / 2) : max / 2);
  return [0, step, step * 2].map((tick) => Number(tick.toPrecision(12)));
}

/**
 * The last `seconds` of series, with gaps where the server has nothing yet.
 * @param {{start: string, stepSeconds: number, series: {points: (number | null)[]}[]}} answer of `GET /v1/series`
 * @param {number} seconds
 */
export function windowOf({ start, stepSeconds, series }, seconds) {
  const length = Math.max(0, ...series.map(({ points }) => points.length));
  const wanted = Math.max(2, Math.round(seconds / stepSeconds));
  const first = Date.parse(start) + (length - wanted) * stepSeconds * 1_000;
  const cut = (points) => (length >= wanted ? points.slice(length - wanted) : [...Array(wanted - length).fill(null), ...points]);
  return { start: new Date(first).toISOString(), stepSeconds, series: series.map((one) => ({ ...one, points: cut(one.points) })) };
}

/** Ranges that one can choose, in seconds. */
const RANGES = [
  [300, '5 min'],
  [900, '15 min'],
  [3_600, '1 h'],
];

/** The ranges of which the server has something that a shorter one does not show; always the shortest. */
export function rangesOf({ stepSeconds, series }) {
  const has = Math.max(0, ...series.map(({ points }) => points.length)) * stepSeconds;
  return RANGES.filter((_, at) => at === 0 || has > RANGES[at - 1][0]);
}
