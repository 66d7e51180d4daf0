// The last hour of something, as control keeps it: `GET /v1/series`.
import { html } from '../core/html.js';
import { bytes, duration, perSecond, short } from '../core/format.js';
import { useApi } from '../core/use.js';
import { Chart } from './chart.js';
import { Loaded, Panel } from './view.js';

/** A new point comes every ten seconds. */
const EVERY_MS = 10_000;

const TITLES = {
  connections: 'New connections',
  bytes: 'Traffic',
  active: 'Open connections',
  lag: 'Lag behind what is wanted',
  behind: 'Revisions behind',
  programmed: 'Revision programmed',
  healthy: 'Reporting and well',
  servicesNotOk: 'Services that are not ok',
  nodesNotConverged: 'Nodes that have not converged',
  endpointsUnhealthy: 'Endpoints that are unhealthy',
  convergenceP99: 'Until verified, 99 of 100 changes',
};

const SHOWN = { '1/s': perSecond, 'B/s': (value) => `${bytes(value)}/s`, ms: duration, '': short };

/**
 * Charts of the last hour.
 * @param {{of: string, only?: string[], marks?: any[]}} props `of` as the API takes it; `only` names figures
 */
export function Hour({ of, only, marks }) {
  const answer = useApi(`/v1/series?of=${encodeURIComponent(of)}`, { everyMs: EVERY_MS });
  return html`<${Panel} title="The last hour" aside=${answer.data?.leftOut}>
    <${Loaded} of=${answer} rows=${4}>${({ start, stepSeconds, series }) => html`<div class="columns">${series
      .filter(({ name }) => !only || only.includes(name))
      .map((one) => html`<${Chart} key=${one.name} label=${TITLES[one.name] ?? one.name} start=${start} stepSeconds=${stepSeconds} series=${[one]} show=${SHOWN[one.unit] ?? short} marks=${marks} />`)}</div>`}<//>
  <//>`;
}
