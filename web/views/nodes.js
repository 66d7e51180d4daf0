// All nodes: who has what is wanted, how late, and why not.
import { html, useMemo } from '../core/html.js';
import { count, duration } from '../core/format.js';
import { live } from '../core/live.js';
import { remark, to } from '../core/route.js';
import { useStore } from '../core/store.js';
import { useApi } from '../core/use.js';
import { Field } from '../parts/field.js';
import { State, word } from '../parts/state.js';
import { Table } from '../parts/table.js';
import { Ago, Empty, Facts, Loaded, Panel, View, Waiting } from '../parts/view.js';

/** From the worst on. */
const ORDER = ['disconnected', 'failing', 'drifted', 'lagging', 'unknown', 'converged'];

const revisionOf = (position) => (position ? Number(String(position).split('-').at(-1)) : undefined);

const COLUMNS = [
  { key: 'state', label: 'State', width: '142px', by: (row) => ORDER.indexOf(row.state), words: (row) => `${row.state} ${row.reason ?? ''}`, show: (row) => html`<${State} state=${row.state} />` },
  { key: 'name', label: 'Node', width: '17%', by: (row) => row.name, words: (row) => row.name, show: (row) => html`<a href=${to(['nodes', row.name])}>${row.name}</a>` },
  { key: 'zone', label: 'Zone', width: '9%', isWide: true, by: (row) => row.zone ?? '', words: (row) => row.zone ?? '', show: (row) => row.zone ?? html`<span class="muted">–</span>` },
  { key: 'mode', label: 'Mode', width: '104px', isExtra: true, by: (row) => row.mode ?? '', words: (row) => row.mode ?? '', show: (row) => row.mode ?? html`<span class="muted">–</span>` },
  { key: 'verified', label: 'Verified', width: '98px', isNumber: true, by: (row) => revisionOf(row.verified) ?? Number.MAX_SAFE_INTEGER, show: (row) => (row.verified ? html`<${Field} path=${`/v1/nodes/${encodeURIComponent(row.name)}`} at="/status/verified">r${revisionOf(row.verified)}<//>` : row.state === 'converged' ? 'all' : html`<span class="muted">–</span>`) },
  { key: 'lag', label: 'Lag', width: '8%', isNumber: true, by: (row) => row.lagMillis ?? -1, show: (row) => duration(row.lagMillis) },
  { key: 'addresses', label: 'Addresses', width: '112px', isNumber: true, isExtra: true, by: (row) => row.addresses, words: () => '', show: (row) => html`<a href=${to(['nodes', row.name], { tab: 'addresses' })} title="Load balancer addresses that the node announces by ARP or NDP">${count(row.addresses)}</a>` },
  { key: 'since', label: 'Since', width: '10%', isExtra: true, by: (row) => row.since ?? '', show: (row) => html`<${Ago} time=${row.since} />` },
  { key: 'reason', label: 'Why', isExtra: true, by: (row) => row.reason ?? '', words: (row) => row.message ?? '', show: (row) => html`<span class="muted" title=${row.message ?? ''}>${row.state === 'converged' ? '' : (row.message ?? row.reason)}</span>` },
];

export default function Nodes({ route }) {
  const doc = useStore(live, (state) => state.doc);
  const state = route.params.state ?? '';
  const nodes = doc?.nodes;
  const rows = useMemo(() => [...(nodes?.values() ?? [])].filter((row) => !state || row.state === state), [nodes, state]);
  const filters = html`<label><span class="unseen">State</span><select value=${state} onChange=${(event) => remark({ state: event.target.value })}>
    <option value="">All states</option>${ORDER.map((one) => html`<option key=${one} value=${one}>${word(one)}</option>`)}</select></label>`;
  return html`<${View} name="nodes" title="Nodes" copy=${{ api: '/v1/nodes', cli: 'tidegate get nodes' }}
    aside=${doc?.totals.nodes && html`<span class="muted"><${Field} path="/v1/overview" at="/totals/nodes/converged">${count(doc.totals.nodes?.converged)}<//> of <${Field} path="/v1/overview" at="/totals/nodes/total">${count(doc.totals.nodes?.total)}<//> converged</span>`}>
    <${Lag} />
    <${Panel}>
      ${doc
        ? html`<${Table} id="nodes" label="Nodes" columns=${COLUMNS} rows=${rows} keyOf=${(row) => row.name} stateOf=${(row) => row.state} linkOf=${(row) => to(['nodes', row.name])} initialSort="state" filters=${filters}
            empty=${html`<${Empty} title="No node yet" command="tidegate-agent --api https://CONTROL:7440 --node NAME">An agent on each machine programs its kernel. It registers itself when it first comes.<//>`} />`
        : html`<${Waiting} rows=${8} />`}
    <//>
  <//>`;
}

/** How long changes take until the nodes have them. */
function Lag() {
  const path = '/v1/convergence';
  const answer = useApi(path);
  const at = (pointer, value) => html`<${Field} path=${path} at=${pointer}>${value}<//>`;
  return html`<${Panel} title="How long changes take" aside="from the write until it was read back from the kernel">
    <${Loaded} of=${answer} rows=${1}>${(data) => html`<${Facts} of=${[
      ['Changes measured', at('/changes', count(data.changes))],
      ['Half of them', known(data.p50Ms) ? at('/p50Ms', duration(data.p50Ms)) : '–'],
      ['99 of 100', known(data.p99Ms) ? at('/p99Ms', duration(data.p99Ms)) : '–'],
      data.slowest && ['The slowest node', html`<a href=${to(['nodes', data.slowest.node])}>${data.slowest.node}</a> <span class="muted">${data.slowest.message}</span>`],
    ]} />`}<//>
  <//>`;
}

const known = (value) => value !== null && value !== undefined;
