// Traffic by Service: rates of all from one answer of the API, and lines of the last minutes of those that are in sight.
import { request } from '../core/api.js';
import { html, useEffect, useMemo, useState } from '../core/html.js';
import { perSecond } from '../core/format.js';
import { useApi } from '../core/use.js';
import { Spark } from './chart.js';
import { Field } from './field.js';

/** The Services with the most traffic; the server lists no more. */
const PATH = '/v1/traffic?limit=1000';
/** Points of a line: five minutes of one each ten seconds. */
const POINTS = 30;
/** Services whose lines are asked for at once, and how often those of one are. */
const LINES_MAX = 24;
const EVERY_MS = 30_000;
/** Between two looks for lines that are due, in ms. */
const LOOK_MS = 5_000;
/** Lines that are kept, of Services in sight or seen before. */
const KEPT_MAX = 200;

/** Lines by Service: `{at, points}`; `points` is undefined where there are none. */
const lines = new Map();

/**
 * What each Service with traffic has, with where it stands in the answer, busiest first.
 * @returns {Map<string, {of: any, at: number}>} by namespace/name
 */
export function useTraffic() {
  const { data } = useApi(PATH);
  return useMemo(() => new Map((data?.services ?? []).map((of, at) => [of.service, { of, at }])), [data]);
}

/** Asks for the lines of these Services, one after the other, so that one page never asks for many at once. */
export function useLines(keys) {
  const [, redraw] = useState(0);
  const wanted = keys.slice(0, LINES_MAX).join(' ');
  useEffect(() => {
    const controller = new AbortController();
    let timer;
    const round = async () => {
      for (const key of document.hidden ? [] : wanted.split(' ').filter(Boolean)) {
        if (Date.now() - (lines.get(key)?.at ?? 0) < EVERY_MS) continue;
        const points = await pointsOf(key, controller.signal);
        if (controller.signal.aborted) return;
        keep(key, points);
        redraw((count) => count + 1);
      }
      timer = setTimeout(round, LOOK_MS);
    };
    round();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [wanted]);
}

async function pointsOf(key, signal) {
  try {
    const { series } = await request(`/v1/series?of=service/${key}`, { signal });
    return series.find(({ name }) => name === 'connections')?.points.slice(-POINTS);
  } catch {
    return undefined;
  }
}

function keep(key, points) {
  lines.delete(key);
  lines.set(key, { at: Date.now(), points });
  if (lines.size > KEPT_MAX) lines.delete(lines.keys().next().value);
}

/** New connections a second of a Service, of what `useTraffic` has. */
export function Rate({ counted }) {
  const rate = counted?.of.perSecond?.connections;
  if (rate === undefined || rate === null) return html`<span class="muted" title="No node has counted any">–</span>`;
  return html`<${Field} path=${PATH} at=${`/services/${counted.at}/perSecond/connections`}>${perSecond(rate)}<//>`;
}

/** The line of a Service, where it is known that it had traffic. */
export function Line({ of }) {
  const points = lines.get(of)?.points;
  if (!points?.some((point) => point > 0)) return html`<span class="spark"></span>`;
  return html`<${Spark} points=${points} label=${`New connections of ${of} in the last five minutes`} />`;
}
