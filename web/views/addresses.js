// Pools and what is had of them: who holds which address, who answers for it, and since when.
import { html } from '../core/html.js';
import { count, plural } from '../core/format.js';
import { live } from '../core/live.js';
import { remark, to } from '../core/route.js';
import { useStore } from '../core/store.js';
import { useApi } from '../core/use.js';
import { Field } from '../parts/field.js';
import { PoolMap } from '../parts/pool-map.js';
import { State } from '../parts/state.js';
import { Table } from '../parts/table.js';
import { Ago, Empty, Loaded, Panel, View } from '../parts/view.js';
import Address from './address.js';

/** Pools and addresses that are asked for at once. */
const PAGE = 5_000;

const POOL = `apiVersion: tidegate/v1
kind: AddressPool
metadata: {name: default}
spec:
  addresses: [192.0.2.10-192.0.2.99]
---
apiVersion: tidegate/v1
kind: Advertisement
metadata: {name: default}
spec: {type: L2}`;

/** Of an Address, from its conditions. */
export function stateOf({ status = {} }) {
  const announced = (status.conditions ?? []).find(({ type }) => type === 'Announced');
  if (!announced) return 'unknown';
  if (announced.status === 'True') return 'announced';
  return ['Conflict', 'TwoOwners'].includes(announced.reason) ? 'conflicting' : 'waiting';
}

const COLUMNS = [
  { key: 'state', label: 'State', width: '154px', by: stateOf, words: stateOf, show: (row) => html`<${State} state=${stateOf(row)} />` },
  { key: 'address', label: 'Address', width: '23%', by: (row) => row.spec.address, words: (row) => row.spec.address, show: (row) => html`<a class="mono" href=${to(['addresses', row.metadata.name])}>${row.spec.address}</a>` },
  { key: 'services', label: 'Held by', by: (row) => row.spec.services.join(), words: (row) => row.spec.services.join(' '), show: (row) => html`<span title=${row.spec.services.join(', ')}>${row.spec.services.join(', ') || html`<span class="muted">nobody</span>`}</span>` },
  { key: 'pool', label: 'Pool', width: '13%', isWide: true, by: (row) => row.spec.pool ?? '', words: (row) => row.spec.pool ?? '', show: (row) => row.spec.pool ?? html`<span class="muted">–</span>` },
  { key: 'owner', label: 'Announced by', width: '14%', by: (row) => owner(row), words: owner, show: (row) => owner(row) || html`<span class="muted">–</span>` },
  { key: 'since', label: 'Since', width: '116px', isExtra: true, by: (row) => row.status?.since ?? '', show: (row) => html`<${Ago} time=${row.status?.since} />` },
];

function owner({ status = {} }) {
  return status.owner ?? (status.byBgp ? 'BGP' : '');
}

export default function Addresses({ route }) {
  return route.path[1] ? html`<${Address} name=${route.path[1]} />` : html`<${All} route=${route} />`;
}

function All({ route }) {
  const totals = useStore(live, (state) => state.doc?.totals);
  const pools = useApi(`/v1/addresspools?limit=${PAGE}`, { when: totals });
  const addresses = useApi(`/v1/addresses?limit=${PAGE}`, { when: totals });
  const chosen = route.params.pool ?? '';
  const at = (pointer, value) => html`<${Field} path="/v1/overview" at=${pointer}>${value}<//>`;
  return html`<${View} name="addresses" title="Addresses" copy=${{ api: '/v1/addresses', cli: 'tidegate get addresses' }}
    aside=${totals?.addresses && html`<span class="muted">${at('/totals/addresses/announced', count(totals.addresses.announced))} of ${at('/totals/addresses/total', count(totals.addresses.total))} announced</span>`}>
    <${Loaded} of=${pools} rows=${4}>${(data) => (data.items.length === 0
      ? html`<${Panel}><${Empty} title="No pool yet" command=${POOL}>A pool says which addresses Services of type LoadBalancer may have; an Advertisement says who announces them. Save this as a file for <code>tidegate apply -f</code>, or <a href=${to(['plan'])}>plan it here</a>.<//><//>`
      : html`<div class="pools">${data.items.map((pool, index) => html`<${Pool} key=${pool.metadata.name} pool=${pool} index=${index} isChosen=${pool.metadata.name === chosen} addresses=${(addresses.data?.items ?? []).filter(({ spec }) => spec.pool === pool.metadata.name)} />`)}</div>`)}<//>
    <${Panel} title="Addresses in use" aside=${chosen && html`of pool ${chosen} <button type="button" class="quiet" onClick=${() => remark({ pool: '' })}>All pools</button>`}>
      <${Loaded} of=${addresses} rows=${6}>${(data) => html`<${Table} id="addresses" label="Addresses" columns=${COLUMNS} rows=${chosen ? data.items.filter(({ spec }) => spec.pool === chosen) : data.items} keyOf=${(row) => row.metadata.name} stateOf=${stateOf} linkOf=${(row) => to(['addresses', row.metadata.name])} initialSort="address"
        empty=${html`<${Empty} title="No Service has a load balancer address">Services of type LoadBalancer get one from a pool.<//>`} />`}<//>
    <//>
  <//>`;
}

function Pool({ pool, index, addresses, isChosen }) {
  const { metadata, spec, status = {} } = pool;
  const path = `/v1/addresspools?limit=${PAGE}`;
  const bad = (status.conditions ?? []).find((condition) => condition.status === 'False');
  const usage = (family) => {
    const { assigned = 0, total = 0 } = status[family] ?? {};
    return total ? html`<span><${Field} path=${path} at=${`/items/${index}/status/${family}/assigned`}>${count(assigned)}<//> of <${Field} path=${path} at=${`/items/${index}/status/${family}/total`}>${count(total)}<//> ${family === 'ipv6' ? 'IPv6' : 'IPv4'}</span>` : null;
  };
  return html`<section class="panel pool" aria-label=${`Pool ${metadata.name}`} data-key=${metadata.name} aria-current=${isChosen ? 'true' : undefined}>
    <header class="panel-head"><h2>${metadata.name}</h2><div class="panel-aside">${usage('ipv4')}${usage('ipv6')}</div></header>
    <p class="pad muted mono">${spec.addresses.join(', ')}</p>
    <${PoolMap} pool=${pool} addresses=${addresses} />
    ${bad && html`<p class="pad"><${State} state="degraded" text=${bad.reason} /> ${bad.message} <span class="muted">${bad.hint ?? ''}</span></p>`}
    <p class="pad">${spec.disabled ? html`<${State} state="disabled" /> ` : ''}${spec.autoAssign === false ? html`<span class="muted">on request only · </span>` : ''}${plural(addresses.length, 'address', 'addresses')} held · <button type="button" class="quiet" onClick=${() => remark({ pool: metadata.name })}>List them</button></p>
  </section>`;
}
