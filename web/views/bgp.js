// Sessions with routers: which node has which, what they were told, and what happened to them.
import { html, useMemo } from '../core/html.js';
import { count } from '../core/format.js';
import { live } from '../core/live.js';
import { remark, to } from '../core/route.js';
import { useStore } from '../core/store.js';
import { useApi } from '../core/use.js';
import { Field } from '../parts/field.js';
import { Shape, State } from '../parts/state.js';
import { Table } from '../parts/table.js';
import { Ago, Empty, Facts, Loaded, Panel, Tabs, View } from '../parts/view.js';

/** Sessions that are asked for at once. */
const PAGE = 5_000;
/** Nodes beyond which the matrix gives way to the list. */
const MATRIX_ROWS_MAX = 60;

const TABS = [['', 'Sessions'], ['routes', 'What routers were told'], ['events', 'Events']];
const PEER = `apiVersion: tidegate/v1
kind: BgpPeer
metadata: {name: tor-1}
spec:
  peerAddress: 192.0.2.1
  peerASN: 65001
  localASN: 64512
  bfdProfile: fast`;

/** What is asked for the sessions and the peers. */
const SESSIONS = `/v1/bgp/sessions?limit=${PAGE}`;
const PEERS = `/v1/bgppeers?limit=${PAGE}`;

const stateOf = ({ session, isReporting }) => (!isReporting ? 'unknown' : session.state === 'Established' ? 'established' : 'down');
const keyOf = ({ node, session }) => `${node} ${session.peer} ${session.address ?? ''}`;

export default function Bgp({ route }) {
  const { tab = '', peer = '', session = '' } = route.params;
  const totals = useStore(live, (state) => state.doc?.totals);
  const peers = useApi(PEERS, { everyMs: 10_000 });
  const at = (pointer, value) => html`<${Field} path="/v1/overview" at=${pointer}>${value}<//>`;
  return html`<${View} name="bgp" title="BGP and BFD" copy=${{ api: '/v1/bgp/sessions', cli: 'tidegate bgp sessions' }}
    aside=${totals?.bgpSessions && html`<span class="muted">${at('/totals/bgpSessions/established', count(totals.bgpSessions.established))} of ${at('/totals/bgpSessions/total', count(totals.bgpSessions.total))} established</span>`}>
    <${Loaded} of=${peers} rows=${5}>${(data) => (data.items.length === 0
      ? html`<${Panel}><${Empty} title="No router is a peer yet" command=${PEER}>A BgpPeer names a router; every node that it selects speaks BGP with it and announces the addresses that an Advertisement of type BGP says. BFD finds a dead path within a second.<//><//>`
      : html`<${Tabs} active=${tab} tabs=${TABS} to=${(key) => to(['bgp'], { tab: key, peer })} />
        ${tab === '' && html`<${Sessions} peers=${data.items} peer=${peer} chosen=${session} />`}
        ${tab === 'routes' && html`<${Routes} peer=${peer} />`}
        ${tab === 'events' && html`<${Events} peer=${peer} />`}`)}<//>
  <//>`;
}

const COLUMNS = [
  { key: 'state', label: 'State', width: '15%', by: (row) => row.session.state, words: (row) => row.session.state, show: (row) => html`<${State} state=${stateOf(row)} text=${row.isReporting ? row.session.state : 'silent'} />` },
  { key: 'node', label: 'Node', width: '15%', by: (row) => row.node, words: (row) => row.node, show: (row) => html`<a href=${to(['bgp'], { session: keyOf(row) })}>${row.node}</a>` },
  { key: 'peer', label: 'Peer', width: '22%', by: (row) => row.session.peer, words: (row) => `${row.session.peer} ${row.session.address ?? ''}`, show: (row) => html`${row.session.peer} <span class="mono muted">${row.session.address ?? ''}</span>` },
  { key: 'since', label: 'Since', width: '11%', isExtra: true, by: (row) => row.session.since, show: (row) => html`<${Ago} time=${row.session.since} />` },
  { key: 'prefixes', label: 'Prefixes', width: '9%', isNumber: true, isExtra: true, by: (row) => row.session.counters.prefixesSent, show: (row) => html`<${Field} path=${SESSIONS} at=${`/items/${row.index}/session/counters/prefixesSent`}>${count(row.session.counters.prefixesSent)}<//>` },
  { key: 'bfd', label: 'BFD', width: '9%', isExtra: true, by: (row) => row.session.bfd ?? '', words: (row) => row.session.bfd ?? '', show: (row) => row.session.bfd ?? html`<span class="muted">–</span>` },
  { key: 'reason', label: 'Why', by: (row) => row.session.reason, words: (row) => row.session.reason, show: (row) => html`<span class="muted" title=${row.session.reason}>${row.session.reason}</span>` },
];

function Sessions({ peers, peer, chosen }) {
  const answer = useApi(SESSIONS, { everyMs: 2_000 });
  return html`<${Loaded} of=${answer} rows=${6}>${(data) => {
    const items = data.items.map((row, index) => ({ ...row, index }));
    const rows = peer ? items.filter(({ session }) => session.peer === peer) : items;
    const index = items.findIndex((row) => keyOf(row) === chosen);
    return html`${index >= 0 && html`<${One} row=${items[index]} at=${(pointer, value) => html`<${Field} path=${SESSIONS} at=${`/items/${index}${pointer}`}>${value}<//>`} />`}
      <${Peers} peers=${peers} chosen=${peer} />
      <${Matrix} peers=${peers} rows=${items} />
      <${Panel} title="Sessions" aside=${peer && html`with ${peer} <button type="button" class="quiet" onClick=${() => remark({ peer: '' })}>All peers</button>`}>
        <${Table} id="sessions" label="Sessions" columns=${COLUMNS} rows=${rows} keyOf=${keyOf} stateOf=${stateOf} linkOf=${(row) => to(['bgp'], { session: keyOf(row) })} initialSort="-state"
          empty=${html`<${Empty} title="No session">No node that reports speaks BGP with this peer.<//>`} />
      <//>`;
  }}<//>`;
}

/** Peers that nobody uses, or that lack sessions, and why. */
function Peers({ peers, chosen }) {
  return html`<div class="peers">${peers.map(({ metadata, spec, status = {} }, index) => {
    const bad = (status.conditions ?? []).find((condition) => condition.status === 'False');
    const { established = 0, total = 0 } = status.sessions ?? {};
    return html`<a key=${metadata.name} class="total" href=${to(['bgp'], { peer: metadata.name })} data-key=${metadata.name} aria-current=${chosen === metadata.name ? 'true' : undefined}>
      <span class="total-label"><b>${metadata.name}</b><${Shape} state=${spec.disabled ? 'disabled' : bad ? 'down' : 'established'} /></span>
      <div><${Field} path=${PEERS} at=${`/items/${index}/status/sessions/established`}>${count(established)}<//> <span class="muted">of <${Field} path=${PEERS} at=${`/items/${index}/status/sessions/total`}>${count(total)}<//> sessions</span></div>
      <div class="total-note"><span class="mono">${spec.peerAddress ?? spec.interface}</span> · AS ${spec.peerASN}</div>
      ${bad && html`<div class="total-note has-tone tone-bad">${bad.message ?? bad.reason}</div>`}</a>`;
  })}</div>`;
}

/** Nodes by peers: the state as a shape, its words when it is pointed at. */
function Matrix({ peers, rows }) {
  const { nodes, cells } = useMemo(() => {
    const map = new Map();
    for (const row of rows) {
      const key = `${row.node}\n${row.session.peer}`;
      map.set(key, [...(map.get(key) ?? []), row]);
    }
    return { nodes: [...new Set(rows.map(({ node }) => node))], cells: map };
  }, [rows]);
  if (nodes.length === 0) return null;
  const worst = (node) => peers.some(({ metadata }) => (cells.get(`${node}\n${metadata.name}`) ?? []).some((row) => stateOf(row) !== 'established'));
  const shown = nodes.length > MATRIX_ROWS_MAX ? nodes.filter(worst).slice(0, MATRIX_ROWS_MAX) : nodes;
  if (shown.length === 0) return null;
  return html`<${Panel} title="Nodes and peers" aside=${shown.length < nodes.length ? `${count(shown.length)} of ${count(nodes.length)} nodes: those with a session that is not established` : ''}>
    <div class="matrix" tabindex="0" role="group" aria-label="Nodes and peers"><table>
      <thead><tr><th scope="col"><span class="unseen">Node</span></th>${peers.map(({ metadata }) => html`<th scope="col" key=${metadata.name}>${metadata.name}</th>`)}</tr></thead>
      <tbody>${shown.map((node) => html`<tr key=${node}><th scope="row"><a href=${to(['nodes', node])}>${node}</a></th>${peers.map(({ metadata }) => html`<td key=${metadata.name}>${(cells.get(`${node}\n${metadata.name}`) ?? []).map((row) => html`<a key=${keyOf(row)} href=${to(['bgp'], { session: keyOf(row) })} title=${`${row.session.state}: ${row.session.reason}`}><${State} state=${stateOf(row)} text=${row.session.state} /></a>`)}</td>`)}</tr>`)}</tbody>
    </table></div>
  <//>`;
}

/** One session: what both agreed on, and what was said last. */
function One({ row: { node, session, trouble, asn, routerId, isReporting }, at }) {
  const { negotiated, lastSent, lastReceived, counters } = session;
  const said = (error) => html`${error.message} <span class="muted">(${error.code}/${error.subcode}, <${Ago} time=${error.at} />)</span>`;
  return html`<${Panel} title=${`${node} with ${session.peer}`} aside=${html`<a href=${to(['bgp'])}>Close</a>`} class="session">
    <p class="pad"><${State} state=${stateOf({ session, isReporting })} text=${session.state} /> ${at('/session/reason', session.reason)} ${trouble && html`<b>${trouble.reason}</b>: ${trouble.hint}`}</p>
    <${Facts} of=${[
      ['Neighbour', html`<span class="mono">${session.address ?? 'not known'}</span> ${session.hostName ?? ''}`],
      ['Since', html`<${Ago} time=${session.since} />`],
      ['AS here and there', html`${asn} · ${session.remoteASN ?? '–'}`],
      ['Identifiers', html`<span class="mono">${routerId} · ${session.remoteRouterId ?? '–'}</span>`],
      ['Established', html`${at('/session/established', count(session.established))} times`],
      ['Prefixes told', at('/session/counters/prefixesSent', count(counters.prefixesSent))],
      ['Messages', html`${at('/session/counters/messagesSent', count(counters.messagesSent))} sent, ${at('/session/counters/messagesReceived', count(counters.messagesReceived))} received`],
      ['Connections failed', at('/session/counters/connectionFailures', count(counters.connectionFailures))],
      negotiated && ['Hold and keepalive', html`${negotiated.holdTime} s · ${negotiated.keepaliveTime} s`],
      negotiated && ['Both can', negotiated.capabilities.join(', ')],
      session.bfd && ['BFD', session.bfd],
      lastSent && ['Last NOTIFICATION sent', said(lastSent)],
      lastReceived && ['Last NOTIFICATION received', said(lastReceived)],
    ]} />
  <//>`;
}

const ROUTES = [
  { key: 'state', label: 'State', width: '14%', by: (row) => row.withheld ?? '', words: (row) => row.withheld ?? '', show: (row) => (row.withheld ? html`<${State} state="waiting" text="withheld" />` : html`<${State} state="announced" />`) },
  { key: 'prefix', label: 'Prefix', width: '20%', by: (row) => row.prefix, words: (row) => `${row.prefix} ${row.addresses.join(' ')}`, show: (row) => html`<span class="mono">${row.prefix}</span>` },
  { key: 'node', label: 'Node', width: '14%', by: (row) => row.node, words: (row) => row.node, show: (row) => html`<a href=${to(['nodes', row.node])}>${row.node}</a>` },
  { key: 'for', label: 'For', width: '16%', isExtra: true, words: (row) => row.addresses.join(' '), show: (row) => html`<span class="mono">${row.addresses.join(', ')}</span>` },
  { key: 'told', label: 'What each router was told', words: told, show: (row) => html`<span title=${told(row)}>${told(row)}</span>` },
];

function told({ withheld, peers = {} }) {
  return withheld ?? Object.entries(peers).map(([peer, { text }]) => `${peer}: ${text}`).join(' · ');
}

function Routes({ peer }) {
  const answer = useApi(`/v1/bgp/routes?limit=${PAGE}${peer ? `&peer=${encodeURIComponent(peer)}` : ''}`);
  return html`<${Panel}><${Loaded} of=${answer} rows=${6}>${(data) => html`<${Table} id="routes" label="Prefixes" columns=${ROUTES} rows=${data.items} keyOf=${(row) => `${row.node} ${row.prefix}`} initialSort="prefix"
    empty=${html`<${Empty} title="Nothing is announced">An Advertisement of type BGP says which pools' addresses routers are told.<//>`} />`}<//><//>`;
}

const EVENTS = [
  { key: 'time', label: 'When', width: '15%', by: (row) => row.time, show: (row) => html`<${Ago} time=${row.time} />` },
  { key: 'reason', label: 'What', width: '16%', by: (row) => row.reason, words: (row) => row.reason, show: (row) => html`<${State} state=${row.reason === 'BgpSessionUp' ? 'up' : 'down'} />` },
  { key: 'node', label: 'Node', width: '16%', by: (row) => row.node, words: (row) => row.node, show: (row) => html`<a href=${to(['nodes', row.node])}>${row.node}</a>` },
  { key: 'peer', label: 'Peer', width: '18%', by: (row) => row.peer ?? '', words: (row) => `${row.peer ?? ''} ${row.address ?? ''}`, show: (row) => html`${row.peer ?? ''} <span class="mono muted">${row.address ?? ''}</span>` },
  { key: 'message', label: 'Why', words: (row) => row.message, show: (row) => html`<span title=${row.message}>${row.message}${row.count > 1 ? html` <span class="muted">${count(row.count)} times</span>` : ''}</span>` },
];

function Events({ peer }) {
  const answer = useApi(`/v1/bgp/events?limit=500${peer ? `&peer=${encodeURIComponent(peer)}` : ''}`);
  return html`<${Panel}><${Loaded} of=${answer} rows=${6}>${(data) => html`<${Table} id="events" label="Events" columns=${EVENTS} rows=${data.items} keyOf=${(row) => String(row.id)} initialSort="-time"
    empty=${html`<${Empty} title="Nothing happened">Sessions that come and go are listed here, since this control server started.<//>`} />`}<//><//>`;
}
