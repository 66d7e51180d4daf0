// How something was of late, as control keeps it: `GET /v1/series`.
import { html } from '../core/html.js';
import { bytes, duration, perSecond, short } from '../core/format.js';
import { remark, useRoute } from '../core/route.js';
import { useApi } from '../core/use.js';
import { Chart } from './chart.js';
import { rangesOf, windowOf } from './ticks.js';
import { Loaded, Panel } from './view.js';

/** A new point comes every ten seconds. */
const EVERY_MS = 10_000;

const TITLES = {
  connections: 'New connections',
  bytes: 'Traffic',
  active: 'Open connections',
  lag: 'Lag behind the wanted state',
  behind: 'Revisions behind',
  programmed: 'Revision programmed',
  healthy: 'Agent up and in sync',
  servicesNotOk: 'Services that are not ok',
  nodesNotConverged: 'Nodes that have not converged',
  endpointsUnhealthy: 'Endpoints that are unhealthy',
  convergenceP99: 'Time until verified (p99)',
};

const SHOWN = { '1/s': perSecond, 'B/s': (value) => `${bytes(value)}/s`, ms: duration, '': short };

/** Figures that are yes or no. */
const YES_OR_NO = new Set(['healthy']);
const yesOrNo = (value) => (value ? 'yes' : 'no');

/** What each figure was over the range that is chosen in the address; the server has at most an hour. */
export function Hour({ of, only, marks }) {
  const { params } = useRoute();
  const answer = useApi(`/v1/series?of=${encodeURIComponent(of)}`, { everyMs: EVERY_MS });
  const ranges = answer.data ? rangesOf(answer.data) : [];
  const chosen = ranges.find(([seconds]) => String(seconds) === params.range) ?? initialOf(answer.data, ranges);
  const picker = html`${answer.data?.leftOut}<span class="ranges" role="group" aria-label="Range">${ranges.map(([seconds, label]) => html`<button key=${seconds} type="button" class="quiet" aria-pressed=${seconds === chosen[0]} onClick=${() => remark({ range: String(seconds) })}>${label}</button>`)}</span>`;
  return html`<${Panel} id="charts" title="Over time" aside=${picker}>
    <${Loaded} of=${answer} rows=${4}>${(data) => html`<${Charts} shown=${windowOf({ ...data, series: data.series.filter(({ name }) => !only || only.includes(name)) }, chosen[0])} marks=${marks} />`}<//>
  <//>`;
}

/** Without a choice: the longest range that is at least half full. */
function initialOf(data, ranges) {
  const has = Math.max(0, ...(data?.series ?? []).map(({ points }) => points.length)) * (data?.stepSeconds ?? 0);
  return ranges.findLast(([seconds]) => has * 2 >= seconds) ?? ranges[0];
}

function Charts({ shown: { start, stepSeconds, series }, marks }) {
  const show = ({ name, unit }) => (YES_OR_NO.has(name) ? yesOrNo : (SHOWN[unit] ?? short));
  return html`<div class="charts">${series.map((one) => html`<${Chart} key=${one.name} label=${TITLES[one.name] ?? one.name} start=${start} stepSeconds=${stepSeconds} series=${[one]} show=${show(one)} isCount=${one.unit === ''} marks=${marks} />`)}</div>`;
}
