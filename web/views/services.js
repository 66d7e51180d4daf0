// All Services, with what is wrong first.
import { html, useMemo } from '../core/html.js';
import { count } from '../core/format.js';
import { live } from '../core/live.js';
import { remark, to } from '../core/route.js';
import { useStore } from '../core/store.js';
import { Field } from '../parts/field.js';
import { State, word } from '../parts/state.js';
import { Table } from '../parts/table.js';
import { Empty, Panel, View, Waiting } from '../parts/view.js';

/** From the worst on. */
export const ORDER = ['unreachable', 'degraded', 'atRisk', 'unknown', 'ok', 'disabled'];

const key = (row) => `${row.namespace}/${row.name}`;

/** A number of a row, as the Service itself has it. */
const of = (row, pointer, value) => html`<${Field} path=${`/v1/namespaces/${encodeURIComponent(row.namespace)}/services/${encodeURIComponent(row.name)}`} at=${pointer}>${count(value)}<//>`;

/** So many of so many; a dash where there are none to count. */
function share(row, what, which, [some, all]) {
  if (!all) return html`<span class="muted">–</span>`;
  return html`${of(row, `/status/${what}/${which}`, some)} <span class="muted">of ${of(row, `/status/${what}/total`, all)}</span>`;
}

const COLUMNS = [
  { key: 'state', label: 'State', width: '11%', by: (row) => ORDER.indexOf(row.state), words: (row) => `${row.state} ${row.reason ?? ''}`, show: (row) => html`<${State} state=${row.state} />` },
  { key: 'name', label: 'Service', width: '19%', by: key, words: key, show: (row) => html`<a href=${to(['services', row.namespace, row.name])}><span class="muted">${row.namespace}/</span>${row.name}</a>` },
  { key: 'addresses', label: 'Addresses', width: '21%', by: (row) => row.addresses[0] ?? '', words: (row) => row.addresses.join(' '), show: (row) => html`<span class="mono" title=${row.addresses.join(', ')}>${row.addresses.join(', ') || '–'}</span>` },
  { key: 'ports', label: 'Ports', isExtra: true, width: '12%', by: (row) => parseInt(row.ports[0], 10) || 0, words: (row) => row.ports.join(' '), show: (row) => html`<span class="mono" title=${row.ports.join(', ')}>${row.ports.join(', ')}</span>` },
  { key: 'type', label: 'Type', isExtra: true, width: '10.5%', by: (row) => row.type, words: (row) => row.type, show: (row) => row.type },
  { key: 'endpoints', label: 'Endpoints', width: '9.5%', isNumber: true, by: (row) => (row.endpointsTotal ? row.endpointsReady / row.endpointsTotal : -1), show: (row) => share(row, 'endpoints', 'ready', [row.endpointsReady, row.endpointsTotal]) },
  { key: 'nodes', label: 'Verified', isExtra: true, width: '8.5%', isNumber: true, by: (row) => (row.nodesTotal ? row.nodesVerified / row.nodesTotal : -1), show: (row) => share(row, 'nodes', 'verified', [row.nodesVerified, row.nodesTotal]) },
  { key: 'reason', label: 'Why', isExtra: true, by: (row) => row.reason ?? '', words: (row) => row.message ?? '', show: (row) => html`<span class="muted" title=${row.message ?? ''}>${row.state === 'ok' ? '' : row.reason}</span>` },
];

export default function Services({ route }) {
  const doc = useStore(live, (state) => state.doc);
  const namespace = route.params.namespace ?? '';
  const state = route.params.state ?? '';
  const services = doc?.services;
  const all = useMemo(() => [...(services?.values() ?? [])], [services]);
  const rows = useMemo(() => all.filter((row) => (!namespace || row.namespace === namespace) && (!state || row.state === state)), [all, namespace, state]);
  const namespaces = useMemo(() => [...new Set(all.map((row) => row.namespace))].sort(), [all]);
  const filters = html`<label><span class="unseen">Namespace</span><select value=${namespace} onChange=${(event) => remark({ namespace: event.target.value })}>
      <option value="">All namespaces</option>${namespaces.map((one) => html`<option key=${one}>${one}</option>`)}</select></label>
    <label><span class="unseen">State</span><select value=${state} onChange=${(event) => remark({ state: event.target.value })}>
      <option value="">All states</option>${ORDER.map((one) => html`<option key=${one} value=${one}>${word(one)}</option>`)}</select></label>`;
  return html`<${View} name="services" title="Services" copy=${{ api: '/v1/services', cli: 'tidegate get services -A' }}
    aside=${doc && html`<span class="muted"><${Field} path="/v1/overview" at="/totals/services/ok">${count(doc.totals.services.ok)}<//> of <${Field} path="/v1/overview" at="/totals/services/total">${count(doc.totals.services.total)}<//> ok</span>`}>
    <${Panel}>
      ${doc
        ? html`<${Table} id="services" label="Services" columns=${COLUMNS} rows=${rows} keyOf=${key} stateOf=${(row) => row.state} linkOf=${(row) => to(['services', row.namespace, row.name])} initialSort="state" filters=${filters}
            empty=${html`<${Empty} title="No Service here yet" command="tidegate apply -f web.yaml">A Service gives changing backends one address. Write one with the CLI or the API, or <a href=${to(['plan'])}>paste one here and see what it would do</a>.<//>`} />`
        : html`<${Waiting} rows=${8} />`}
    <//>
  <//>`;
}
