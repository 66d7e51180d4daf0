// What stands below the path of a Service: its endpoints, the nodes, and who changed it.
import { html } from '../core/html.js';
import { count, duration, short } from '../core/format.js';
import { useWhyNot } from '../core/may.js';
import { to, toObject } from '../core/route.js';
import { useNow } from '../core/use.js';
import { WORST_FIRST } from './endpoints-model.js';
import { Field } from './field.js';
import { State } from './state.js';
import { Table } from './table.js';
import { Ago, Empty, Loaded, Panel } from './view.js';

/** Where a state stands among all, the worst first. */
const rank = ({ state }) => WORST_FIRST.indexOf(state);

/** The endpoints, each with what can be done to it. */
export function Endpoints({ rows, known, namespace, ask }) {
  const why = useWhyNot('update', 'EndpointSet', namespace);
  const path = `/v1/namespaces/${namespace}/endpoints/${known.service.data.metadata.name}`;
  const columns = endpointColumns({ rows, path, trafficPath: `${known.path}/traffic`, healthPath: `${known.path}/health`, namespace, ask, why, isChecked: (known.health.data?.endpoints ?? []).some(({ state }) => state !== 'NotChecked') });
  const empty = html`<${Empty} title="No endpoint yet" command="tidegate apply -f endpoints.yaml">Workloads whose labels match the selector of the Service are its endpoints, and so is what an EndpointSet lists.<//>`;
  const panic = known.health.data?.panicPorts ?? [];
  return html`<${Panel} id="endpoints" title="Endpoints" aside=${html`<a href=${`#/explain?service=${namespace}/${known.service.data.metadata.name}`}>Why each is used or not</a>`}>
    ${panic.length > 0 && html`<p class="pad tone-risk panic">Too few endpoints of ${panic.join(', ')} are healthy (panicThreshold): all of them are used.</p>`}
    <${Table} id="endpoints" label="Endpoints" columns=${columns} rows=${rows} keyOf=${(row) => row.key} stateOf=${(row) => row.state} initialSort="state" hasFilter=${rows.length > 8} empty=${empty} />
  <//>`;
}

function endpointColumns({ rows, path, trafficPath, healthPath, namespace, ask, why, isChecked }) {
  const traffic = (row, pointer, value, show) => (row.traffic && value !== undefined && value !== null ? html`<${Field} path=${trafficPath} at=${`/endpoints/${row.traffic.at}${pointer}`}>${show(value)}<//>` : html`<span class="muted" title="This proxy mode does not count it">–</span>`);
  const hasPorts = new Set(rows.map(({ servicePorts }) => servicePorts.join())).size > 1;
  return [
    { key: 'state', label: 'State', width: '142px', by: rank, words: (row) => row.text, show: (row) => html`<${State} state=${row.state} text=${row.text} />` },
    { key: 'endpoint', label: 'Endpoint', width: '216px', by: (row) => row.socket, words: (row) => `${row.socket} ${row.protocol}`, show: (row) => html`<code><${Field} path=${path} at=${`${row.at}/address`}>${row.socket}<//></code>${row.protocol === 'TCP' ? '' : html` <span class="muted">${row.protocol}</span>`}` },
    hasPorts && { key: 'ports', label: 'Of port', isExtra: true, width: '9%', by: (row) => row.servicePorts[0], words: (row) => row.servicePorts.join(' '), show: (row) => html`<span title=${row.servicePorts.join(', ')}>${row.servicePorts.join(', ')}</span>` },
    { key: 'node', label: 'Node', isExtra: true, width: '11%', by: (row) => row.node ?? '', words: (row) => `${row.node ?? ''} ${row.zone ?? ''}`, show: (row) => html`${row.node ? html`<a href=${to(['nodes', row.node])}>${row.node}</a>` : html`<span class="muted">–</span>`}${row.zone && html` <span class="muted" title=${`zone ${row.zone}`}>in ${row.zone}</span>`}` },
    { key: 'weight', label: 'Weight', isNumber: true, isWide: true, width: '86px', by: (row) => row.weight, show: (row) => html`<${Field} path=${path} at=${`${row.at}/weight`}>${count(row.weight)}<//>` },
    isChecked && { key: 'health', label: 'Health votes', isWide: true, width: '118px', by: (row) => row.votes.healthy / (row.votes.total || 1), show: (row) => html`<${Votes} row=${row} path=${healthPath} />` },
    { key: 'rate', label: 'New/s', isNumber: true, isExtra: true, width: '80px', by: (row) => row.traffic?.of.perSecond?.connections ?? -1, show: (row) => traffic(row, '/perSecond/connections', row.traffic?.of.perSecond?.connections, short) },
    { key: 'active', label: 'Active', isNumber: true, isWide: true, width: '82px', by: (row) => row.traffic?.of.active ?? -1, show: (row) => traffic(row, '/active', row.traffic?.of.active, count) },
    { key: 'why', label: 'Why', isExtra: true, by: (row) => row.reason ?? '', words: (row) => row.reason ?? '', show: (row) => html`<${Why} row=${row} />` },
    { key: 'action', label: html`<span class="unseen">Do</span>`, width: '112px', show: (row) => html`<${Act} ...${{ row, namespace, ask, why }} />` },
  ].filter(Boolean);
}

/** How many of the nodes that check it say that it is healthy. */
function Votes({ row, path }) {
  if (!row.checked) return html`<span class="muted">–</span>`;
  const said = Object.entries(row.checked.of.checkers).map(([node, { isReporting, state, message }]) => `${node}: ${isReporting ? (state ?? 'nothing yet') : 'silent'}${message ? `, ${message}` : ''}`);
  return html`<span title=${said.join('\n')}><${Field} path=${path} at=${`/endpoints/${row.checked.at}/share`}><span class="unseen">share ${row.checked.of.share} %, </span>${count(row.votes.healthy)} of ${count(row.votes.total)}<//></span>`;
}

/** Why it is in the state that it is in; of a drain how far it is. */
function Why({ row: { reason, maintenance, drained } }) {
  const unknown = Object.keys(drained?.of.unknown ?? {});
  const said = [drained && `${count(drained.of.connections)} left`, maintenance?.deadline && until(maintenance.deadline, Date.now()), unknown.length && `not known of ${unknown.join(', ')}`, reason].filter(Boolean).join(' · ');
  // Only what counts down is drawn every second.
  return html`<span class="muted fine" title=${said}>${maintenance?.deadline ? html`<${Countdown} time=${maintenance.deadline} before=${drained ? `${count(drained.of.connections)} left · ` : ''} after=${[unknown.length && `not known of ${unknown.join(', ')}`, reason].filter(Boolean).join(' · ')} />` : said}</span>`;
}

function Countdown({ time, before, after }) {
  return html`${before}${until(time, useNow())}${after && ` · ${after}`}`;
}

/** When what is left is cut. */
function until(time, now) {
  const ms = Date.parse(time) - now;
  return ms > 0 ? `cut in ${duration(ms)}` : 'cut';
}

function Act({ row, namespace, ask, why }) {
  const isOut = Boolean(row.maintenance);
  const begin = () => ask({ subject: { kind: 'Endpoint', namespace, address: row.address }, name: `endpoint ${row.address}`, isBack: isOut });
  return html`<button type="button" class="quiet" disabled=${Boolean(why)} title=${why ?? ''} aria-label=${`${isOut ? 'Give back' : 'Drain'} ${row.address}`} data-action=${isOut ? 'undrain' : 'drain'} onClick=${begin}>${isOut ? 'Give back' : 'Drain…'}</button>`;
}

const PHASES = ['Failed', 'Pending', 'Received', 'Applied', undefined, 'Verified'];

/** What each node has of the Service. */
export function Nodes({ rows, known }) {
  const trafficPath = `${known.path}/traffic`;
  const columns = [
    { key: 'state', label: 'State', width: '15%', by: rank, words: (row) => row.state, show: (row) => html`<${State} state=${row.state} text=${row.state === 'ok' ? 'Verified' : undefined} />` },
    { key: 'node', label: 'Node', width: '16%', by: (row) => row.name, words: (row) => row.name, show: (row) => html`<a href=${toObject({ kind: 'Node', name: row.name })}>${row.name}</a>` },
    { key: 'mode', label: 'Mode', isExtra: true, width: '11%', by: (row) => row.mode ?? '', words: (row) => row.mode ?? '', show: (row) => row.mode ?? html`<span class="muted">–</span>` },
    { key: 'phase', label: 'Phase', width: '12%', by: (row) => PHASES.indexOf(row.phase), words: (row) => row.phase ?? '', show: (row) => (row.at ? html`<${Field} path=${known.path} at=${`${row.at}/phase`}>${row.phase}<//>` : (row.phase ?? html`<span class="muted">not known</span>`)) },
    { key: 'lag', label: 'Lag', isNumber: true, width: '10%', isExtra: true, by: (row) => row.lagMillis ?? -1, show: (row) => duration(row.lagMillis) },
    { key: 'rate', label: 'New/s', isNumber: true, isExtra: true, width: '10%', by: (row) => row.traffic?.total.perSecond?.connections ?? -1, show: (row) => (row.traffic?.total.perSecond ? html`<${Field} path=${trafficPath} at=${`/nodes/${row.name}/total/perSecond/connections`}>${short(row.traffic.total.perSecond.connections)}<//>` : html`<span class="muted">–</span>`) },
    { key: 'why', label: 'Why', isExtra: true, by: (row) => row.reason ?? '', words: (row) => `${row.reason ?? ''} ${row.message ?? ''}`, show: (row) => html`<span class="muted" title=${row.message ?? ''}>${[row.reason, row.message].filter(Boolean).join(': ')}</span>` },
  ];
  return html`<${Panel} id="nodes" title="Nodes" aside=${html`<a href=${to(['nodes'])}>All nodes</a>`}>
    <${Table} id="onnodes" label="Nodes" columns=${columns} rows=${rows} keyOf=${(row) => row.name} stateOf=${(row) => row.state} linkOf=${(row) => to(['nodes', row.name])} initialSort="state" hasFilter=${rows.length > 12}
      empty=${known.isPartial ? html`<${Empty} title="No node is shown">Your token sees namespaces, and no node has told of this Service yet.<//>` : html`<${Empty} title="No node yet" command="tidegate-agent --api https://CONTROL:7440 --node NAME">An agent on each machine programs its kernel. It registers itself when it first comes.<//>`} />
  <//>`;
}

/** Who changed it. */
export function Changes({ answer, namespace, name }) {
  return html`<${Panel} id="changes" title="Changes" aside=${html`<a href=${to(['history'], { namespace, name })}>All</a>`}>
    <${Loaded} of=${answer} rows=${4}>${({ items }) =>
      items.length === 0
        ? html`<${Empty} title="No write is kept">The history begins with what was written since it is kept.<//>`
        : html`<ul class="changes">${items.map((change) => html`<li key=${change.revision} data-key=${change.revision}><a href=${to(['history', String(change.revision)])}>r${change.revision}</a><span class="what" title=${change.message ?? ''}>${change.message ? `${change.message} · ` : ''}<span class="muted">${did(change, name)}</span>${change.author && html` <span class="muted">· ${change.author}</span>`}</span><${Ago} time=${change.at} /></li>`)}</ul>`}<//>
  <//>`;
}

/** What a write did to what has this name. */
function did({ changes, changesTotal }, name) {
  const own = changes.find(({ object }) => object.name === name) ?? changes[0];
  return own ? `${VERBS[own.kind] ?? own.kind} ${own.object.kind}${changesTotal > 1 ? ` and ${count(changesTotal - 1)} more` : ''}` : '';
}

const VERBS = { ADDED: 'created', MODIFIED: 'changed', DELETED: 'deleted' };
