// All Services, with what is wrong first.
import { html, useMemo, useRef, useState } from '../core/html.js';
import { count } from '../core/format.js';
import { live } from '../core/live.js';
import { remark, to } from '../core/route.js';
import { useStore } from '../core/store.js';
import { split } from '../parts/condition.js';
import { Field } from '../parts/field.js';
import { State, word } from '../parts/state.js';
import { Table } from '../parts/table.js';
import { Line, Rate, useLines, useTraffic } from '../parts/traffic.js';
import { Empty, Panel, View, Waiting } from '../parts/view.js';

/** Heights of a row with two lines, and of a card on a phone, in CSS pixels. */
const ROW_PX = 56;
const CARD_PX = 116;

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

/** Address that clients outside use first; the others below it. */
function Addresses({ row: { addresses } }) {
  const [first, second, ...more] = addresses;
  return html`<span class="mono" title=${addresses.join(', ')}>${first ?? html`<span class="muted">none yet</span>`}</span>
    ${second && html`<span class="second mono">${second}${more.length ? ` +${more.length}` : ''}</span>`}`;
}

/** Only what is not as it should be has a reason. */
const reasonOf = ({ state, reason }) => (state === 'ok' ? '' : split(reason ?? ''));

/** The columns; only traffic is not in the rows: `latest.current` has it. */
const columnsOf = (latest) => [
  { key: 'state', label: 'State', width: '140px', by: (row) => ORDER.indexOf(row.state), words: (row) => `${row.state} ${row.reason ?? ''} ${row.message ?? ''}`, show: (row) => html`<${State} state=${row.state} />${reasonOf(row) && html`<span class="second" title=${row.message ?? ''}>${reasonOf(row)}</span>`}` },
  { key: 'name', label: 'Service', by: key, words: (row) => `${key(row)} ${row.type} ${row.ports.join(' ')}`, show: (row) => html`<a href=${to(['services', row.namespace, row.name])}><span class="muted">${row.namespace}/</span><wbr />${row.name}</a><span class="second" title=${`${row.type} ${row.ports.join(', ')}`}>${row.type} · ${row.ports.join(', ')}</span>` },
  { key: 'addresses', label: 'Addresses', width: '160px', by: (row) => row.addresses[0] ?? '', words: (row) => row.addresses.join(' '), show: (row) => html`<${Addresses} row=${row} />` },
  { key: 'line', label: html`<span class="unseen">Last five minutes</span>`, width: '112px', isWide: true, show: (row) => html`<${Line} of=${key(row)} />` },
  { key: 'traffic', label: 'New/s', width: '86px', isNumber: true, by: (row) => latest.current.get(key(row))?.of.perSecond?.connections ?? -1, show: (row) => html`<${Rate} counted=${latest.current.get(key(row))} />` },
  { key: 'endpoints', label: 'Endpoints', width: '108px', isNumber: true, by: (row) => (row.endpointsTotal ? row.endpointsReady / row.endpointsTotal : -1), words: (row) => (row.endpointsNotChecked ? 'not checked' : ''), show: (row) => html`${share(row, 'endpoints', 'ready', [row.endpointsReady, row.endpointsTotal])}${row.endpointsNotChecked > 0 && html`<span class="second" title="Nobody checks whether they answer: set spec.healthCheck">${row.endpointsNotChecked < row.endpointsTotal ? `${count(row.endpointsNotChecked)} ` : ''}not checked</span>`}` },
  { key: 'nodes', label: 'Verified', width: '100px', isNumber: true, by: (row) => (row.nodesTotal ? row.nodesVerified / row.nodesTotal : -1), show: (row) => html`${share(row, 'nodes', 'verified', [row.nodesVerified, row.nodesTotal])}${row.nodesTotal > 0 && html`<span class="second">nodes</span>`}` },
];

export default function Services({ route }) {
  const doc = useStore(live, (state) => state.doc);
  const namespace = route.params.namespace ?? '';
  const state = route.params.state ?? '';
  const services = doc?.services;
  const all = useMemo(() => [...(services?.values() ?? [])], [services]);
  const rows = useMemo(() => all.filter((row) => (!namespace || row.namespace === namespace) && (!state || row.state === state)), [all, namespace, state]);
  const traffic = useTraffic();
  const latest = useRef(traffic);
  latest.current = traffic;
  // New columns sort and filter all rows anew, which only the order by traffic needs.
  const isByTraffic = route.params['services.sort']?.endsWith('traffic');
  const columns = useMemo(() => columnsOf(latest), [isByTraffic && traffic]);
  const [drawn, setDrawn] = useState([]);
  useLines(useMemo(() => drawn.map(key).filter((one) => traffic.has(one)), [drawn, traffic]));
  const namespaces = useMemo(() => [...new Set(all.map((row) => row.namespace))].sort(), [all]);
  const filters = html`<label><span class="unseen">Namespace</span><select value=${namespace} onChange=${(event) => remark({ namespace: event.target.value })}>
      <option value="">All namespaces</option>${namespaces.map((one) => html`<option key=${one}>${one}</option>`)}</select></label>
    <label><span class="unseen">State</span><select value=${state} onChange=${(event) => remark({ state: event.target.value })}>
      <option value="">All states</option>${ORDER.map((one) => html`<option key=${one} value=${one}>${word(one)}</option>`)}</select></label>`;
  return html`<${View} name="services" title="Services" copy=${{ api: '/v1/services', cli: 'tidegate get services -A' }}
    aside=${doc && html`<span class="muted"><${Field} path="/v1/overview" at="/totals/services/ok">${count(doc.totals.services.ok)}<//> of <${Field} path="/v1/overview" at="/totals/services/total">${count(doc.totals.services.total)}<//> ok</span>`}>
    <${Panel}>
      ${doc
        ? html`<${Table} id="services" label="Services" columns=${columns} rows=${rows} rowPx=${ROW_PX} cardPx=${CARD_PX} onShown=${setDrawn} keyOf=${key} stateOf=${(row) => row.state} linkOf=${(row) => to(['services', row.namespace, row.name])} initialSort="state" filters=${filters}
            empty=${html`<${Empty} title="No Service here yet" command="tidegate apply -f web.yaml">A Service gives changing backends one address. Write one with the CLI or the API, or <a href=${to(['plan'])}>paste one here and see what it would do</a>.<//>`} />`
        : html`<${Waiting} rows=${8} />`}
    <//>
  <//>`;
}
