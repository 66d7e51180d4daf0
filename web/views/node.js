// One node: whether it has what is wanted, what is odd on it, what it announces, and what would be if it failed.
import { request } from '../core/api.js';
import { html, useState } from '../core/html.js';
import { count, duration, plural } from '../core/format.js';
import { live } from '../core/live.js';
import { useWhyNot } from '../core/may.js';
import { to } from '../core/route.js';
import { useStore } from '../core/store.js';
import { useApi } from '../core/use.js';
import { Dialog } from '../parts/dialog.js';
import { conditionWords } from '../parts/condition.js';
import { Field } from '../parts/field.js';
import { Hour } from '../parts/hour.js';
import { Links } from '../parts/links.js';
import { Planned } from '../parts/planned.js';
import { Shape, State, tone } from '../parts/state.js';
import { Table } from '../parts/table.js';
import { Ago, Empty, Facts, Failed, Loaded, Panel, Tabs, View } from '../parts/view.js';

const TABS = [['', 'State'], ['addresses', 'Addresses and sessions'], ['doctor', 'Doctor'], ['failure', 'If it failed']];

export default function Node({ route }) {
  const name = route.path[1];
  const tab = route.params.tab ?? '';
  const path = `/v1/nodes/${encodeURIComponent(name)}`;
  const row = useStore(live, (state) => state.doc?.nodes.get(name));
  const object = useApi(path, { everyMs: 2_000, when: row });
  const [isPlanning, setPlanning] = useState(false);
  const why = useWhyNot('update', 'Node');
  const title = html`${name} ${row && html`<${State} state=${row.state} />`}`;
  return html`<${View} name="node" title=${title} heading=${name} kicker=${html`<a href=${to(['nodes'])}>Nodes</a>`} copy=${{ api: path, cli: `tidegate describe node ${name}` }}
    aside=${object.data && html`<${Links} of="node" names=${{ node: name }} /><button type="button" disabled=${Boolean(why)} title=${why ?? ''} onClick=${() => setPlanning(true)}>${object.data.spec.unschedulable ? 'Let it announce again…' : 'Move its addresses away…'}</button>${why && html`<span class="muted why" data-why>${why}</span>`}`}>
    <${Tabs} active=${tab} tabs=${TABS} to=${(key) => to(['nodes', name], key ? { tab: key } : {})} />
    <${Loaded} of=${object} rows=${6}>${(node) => html`
      ${tab === '' && html`<${Standing} ...${{ node, path, row }} /><${Troubles} node=${node} /><${Hour} of=${`node/${name}`} only=${['lag', 'behind', 'healthy']} /><${Machine} ...${{ node, path }} />`}
      ${tab === 'addresses' && html`<${Addresses} name=${name} /><${Sessions} name=${name} />`}
      ${tab === 'doctor' && html`<${Doctor} name=${name} />`}
      ${tab === 'failure' && html`<${WhatIf} name=${name} />`}
      ${isPlanning && html`<${Planned} title=${node.spec.unschedulable ? `Let ${name} announce again` : `Move the addresses of ${name} away`} objects=${[scheduled(node, !node.spec.unschedulable)]} close=${() => setPlanning(false)} />`}`}<//>
  <//>`;
}

/** The Node as it is to be written, with its announcements drained or not. */
function scheduled({ apiVersion, kind, metadata: { name, labels, annotations }, spec }, unschedulable) {
  return { apiVersion, kind, metadata: { name, labels, annotations }, spec: { ...spec, unschedulable } };
}

const revisionOf = (position) => (position ? `r${String(position).split('-').at(-1)}` : '–');

function Standing({ node: { status = {}, spec }, path, row }) {
  const wanted = useStore(live, (state) => state.doc?.position);
  const at = (pointer, value) => html`<${Field} path=${path} at=${pointer}>${value}<//>`;
  return html`<${Panel} title="Sync state">
    <${Facts} of=${[
      ['Wanted', revisionOf(wanted)],
      ['Received', at('/status/received', revisionOf(status.received))],
      ['Applied', at('/status/applied', revisionOf(status.applied))],
      ['Verified', at('/status/verified', revisionOf(status.verified))],
      ['Lag', duration(row?.lagMillis)],
      ['Reported', html`<${Ago} time=${status.lastReport} />`],
      ['Mode', html`${at('/status/mode', status.mode ?? '–')}${spec.mode && spec.mode !== status.mode ? html` <span class="muted">wanted: ${spec.mode}</span>` : ''}`],
      ['Repaired drift', at('/status/counters/driftRepairs', count(status.counters?.driftRepairs))],
    ]} />
    <ul class="conditions">${(status.conditions ?? []).map(({ type, status: holds, reason, message, hint }) => html`<li key=${type} data-condition=${type}>
      <${State} state=${holds === 'True' ? 'ok' : holds === 'False' ? 'failing' : 'unknown'} text=${conditionWords(type, holds)} /> <code class="muted">${reason}</code> ${message ?? ''} ${hint && html`<span class="muted">${hint}</span>`}</li>`)}</ul>
  <//>`;
}

/** What is held back, odd, or happened of late. */
function Troubles({ node: { status = {} } }) {
  const { held, warnings = [], events = [] } = status;
  return html`${held && html`<${Panel} title="It holds a state back"><p class="pad"><b>${held.reason}</b>: it goes on with ${revisionOf(held.inForce)} of another database until somebody confirms. <code>tidegate confirm node</code></p><//>`}
    ${warnings.length > 0 && html`<${Panel} title="Warnings"><ul class="conditions">${warnings.map((warning) => html`<li key=${warning}><${Shape} state="risk" /> ${warning}</li>`)}</ul><//>`}
    ${events.length > 0 && html`<${Panel} title="Recent events"><ul class="conditions">${[...events].reverse().map((event, index) => html`<li key=${index}><${Ago} time=${event.time} /> <code class="muted">${event.reason}</code> ${event.message}${event.count > 1 ? html` <span class="muted">${count(event.count)} times</span>` : ''}</li>`)}</ul><//>`}`;
}

function Machine({ node: { status = {}, spec, metadata }, path }) {
  const { facts = {}, counters = {} } = status;
  const certificates = useApi('/v1/agents', { everyMs: 60_000 });
  const certificate = certificates.data?.items?.find((item) => (item.node ?? item.name) === metadata.name);
  const at = (pointer, value) => html`<${Field} path=${path} at=${pointer}>${value}<//>`;
  return html`<${Panel} title="The machine">
    <${Facts} of=${[
      ['Agent', at('/status/agentVersion', status.agentVersion ?? '–')],
      ['Kernel', at('/status/facts/kernel', facts.kernel ?? '–')],
      ['Modes available', (facts.capabilities ?? []).join(', ') || '–'],
      spec.zone && ['Zone', spec.zone],
      ['Addresses', html`<span class="mono">${(spec.addresses ?? []).join(', ') || '–'}</span>`],
      ['Workloads', html`<span class="mono">${(spec.workloadCIDRs ?? []).join(', ') || '–'}</span>`],
      ['Kernel messages', at('/status/counters/kernelMessages', count(counters.kernelMessages))],
      ['Bytes received', at('/status/counters/feedBytes', count(counters.feedBytes))],
      certificate && ['Certificate', html`until <${Ago} time=${certificate.notAfter ?? certificate.expires} />`],
    ]} />
    <ul class="conditions">${Object.entries(facts.subnets ?? {}).map(([link, nets]) => html`<li key=${link}><b>${link}</b> <span class="mono muted">${nets.join(', ')}</span></li>`)}</ul>
  <//>`;
}

const ADDRESSES = [
  { key: 'address', label: 'Address', width: '26%', by: (row) => row.spec.address, words: (row) => row.spec.address, show: (row) => html`<a class="mono" href=${to(['addresses', row.metadata.name])}>${row.spec.address}</a>` },
  { key: 'services', label: 'Services', width: '34%', by: (row) => row.spec.services.join(), words: (row) => row.spec.services.join(' '), show: (row) => row.spec.services.join(', ') },
  { key: 'role', label: 'Its part', show: (row) => (row.part ? html`${row.part.role} <span class="muted">${row.part.reason ?? ''}</span>` : 'announces it') },
];

function Addresses({ name }) {
  const answer = useApi(`/v1/addresses?node=${encodeURIComponent(name)}&limit=500`);
  return html`<${Panel} title="Addresses it announces or stands by for"><${Loaded} of=${answer} rows=${4}>${(data) => html`<${Table} id="owned" label="Addresses" columns=${ADDRESSES} rows=${data.items.map((item) => ({ ...item, part: item.status?.nodes?.[name] }))} keyOf=${(row) => row.metadata.name} linkOf=${(row) => to(['addresses', row.metadata.name])} initialSort="address"
    empty=${html`<${Empty} title="None">This node answers for no load balancer address. Which nodes may is said by Advertisements.<//>`} />`}<//><//>`;
}

const SESSIONS = [
  { key: 'state', label: 'State', width: '18%', by: (row) => row.session.state, show: (row) => html`<${State} state=${row.session.state === 'Established' ? 'established' : 'down'} text=${row.session.state} />` },
  { key: 'peer', label: 'Peer', width: '24%', by: (row) => row.session.peer, words: (row) => `${row.session.peer} ${row.session.address ?? ''}`, show: (row) => html`<a href=${to(['bgp'], { peer: row.session.peer })}>${row.session.peer}</a> <span class="mono muted">${row.session.address ?? ''}</span>` },
  { key: 'since', label: 'Since', width: '14%', by: (row) => row.session.since, show: (row) => html`<${Ago} time=${row.session.since} />` },
  { key: 'reason', label: 'Why', show: (row) => html`<span class="muted" title=${row.trouble?.message ?? row.session.reason}>${row.trouble?.message ?? row.session.reason}</span>` },
];

function Sessions({ name }) {
  const answer = useApi(`/v1/bgp/sessions?node=${encodeURIComponent(name)}&limit=500`);
  return html`<${Panel} title="Sessions with routers"><${Loaded} of=${answer} rows=${3}>${(data) => html`<${Table} id="sessions" label="Sessions" columns=${SESSIONS} rows=${data.items} keyOf=${(row) => `${row.session.peer} ${row.session.address}`} initialSort="peer" hasFilter=${false}
    empty=${html`<${Empty} title="None">No BgpPeer selects this node.<//>`} />`}<//><//>`;
}

const FINDINGS = { Fine: 'ok', Warning: 'risk', Error: 'failing', Broken: 'failing', Unknown: 'unknown' };

/** What is odd on its machine; asked for when one wants to know, because the agent has to look. */
function Doctor({ name }) {
  const path = `/v1/nodes/${encodeURIComponent(name)}/doctor`;
  const answer = useApi(path, { everyMs: 600_000 });
  const [fix, setFix] = useState(undefined);
  return html`<${Panel} title="Doctor" aside=${html`<button type="button" class="quiet" onClick=${answer.refresh}>Look again</button>`}>
    <${Loaded} of=${answer} rows=${8}>${({ findings }) => {
      const isFine = ({ state }) => state === 'Fine';
      const odd = findings.filter((finding) => !isFine(finding));
      return html`<p class="pad">${odd.length ? plural(odd.length, 'finding') : 'No findings'}; ${plural(findings.length, 'check')} made.</p>
        <ul class="findings">${[...odd, ...findings.filter(isFine)].map((finding) => html`<li key=${finding.check} class=${`tone-${tone(FINDINGS[finding.state] ?? 'unknown')}`}>
          <${State} state=${FINDINGS[finding.state] ?? 'unknown'} text=${finding.state} />
          <div><b>${finding.check}</b> ${finding.message}${finding.why && html`<p class="muted">${finding.why}</p>`}${finding.fix && html`<p><code>${finding.fix}</code></p>`}
          ${finding.safeFix && html`<button type="button" onClick=${() => setFix(finding)}>Fix…</button>`}</div></li>`)}</ul>`;
    }}<//>
    ${fix && html`<${Fix} ...${{ name, finding: fix, close: () => setFix(undefined), done: answer.refresh }} />`}
  <//>`;
}

function Fix({ name, finding, close, done }) {
  const why = useWhyNot('fix', 'Node');
  const [state, setState] = useState({});
  const apply = async () => {
    try {
      setState({ answer: await request(`/v1/nodes/${encodeURIComponent(name)}/fixes`, { method: 'POST', body: { fixes: [finding.safeFix] } }) });
      done();
    } catch (error) {
      setState({ error });
    }
  };
  return html`<${Dialog} title=${`Fix ${finding.check} on ${name}`} close=${close}>
    <p>The agent is asked to do this on its machine: <code>${finding.fix ?? finding.safeFix}</code>. It does so only where its operator allowed it.</p>
    ${state.error && html`<${Failed} error=${state.error} />`}
    ${state.answer ? html`<pre>${JSON.stringify(state.answer, null, 2)}</pre>` : html`<button type="button" class="primary" disabled=${Boolean(why)} title=${why ?? ''} onClick=${apply}>Do it</button>`}
    ${why && html`<p class="muted">${why}</p>`}
  <//>`;
}

/** What would be if it failed: who takes over what, and what would be lost. */
function WhatIf({ name }) {
  const path = `/v1/what-if?fail=${encodeURIComponent(name)}`;
  const answer = useApi(path);
  return html`<${Loaded} of=${answer} rows=${6}>${({ addresses, services, singlePoints, omitted }) => {
    const lost = addresses.filter(({ isLost }) => isLost);
    const down = services.filter(({ isDown }) => isDown);
    const isSafe = lost.length + down.length === 0;
    return html`<${Panel}><div class=${`verdict tone-${isSafe ? 'ok' : 'worst'}`} data-safe=${isSafe}><${Shape} state=${isSafe ? 'ok' : 'unreachable'} size=${28} /><div>
        <b>${isSafe ? 'It can fail or be taken down' : 'Users would notice'}</b>
        <p>${isSafe ? `Every address has another node, every Service endpoints elsewhere.` : [lost.length && plural(lost.length, 'address is', 'addresses are') + ' announced by nobody else', down.length && plural(down.length, 'Service has', 'Services have') + ' no endpoint elsewhere'].filter(Boolean).join('; ')}</p></div></div><//>
      <div class="columns">
        <${Panel} title="Addresses">${addresses.length ? html`<ul class="conditions">${addresses.map((move) => html`<li key=${move.address}><a class="mono" href=${to(['addresses', move.address])}>${move.address}</a> ${move.isLost ? html`<${State} state="unreachable" text="nobody" />` : html`→ ${move.nextOwner ?? plural(move.pathsLeft, 'path')}`} <span class="muted">${move.services.join(', ')}</span></li>`)}</ul>` : html`<p class="pad muted">It announces none.</p>`}<//>
        <${Panel} title="Services">${services.length ? html`<ul class="conditions">${services.map((loss) => html`<li key=${loss.service}><a href=${to(['services', ...loss.service.split('/')])}>${loss.service}</a> ${loss.isDown ? html`<${State} state="unreachable" text="no endpoint left" />` : html`<meter min="0" max="100" value=${loss.capacityLeft} aria-label=${`Capacity left: ${loss.capacityLeft} %`}></meter> ${loss.capacityLeft} % left`} <span class="muted">${count(loss.endpointsLeft)} of ${count(loss.endpoints)} endpoints</span></li>`)}</ul>` : html`<p class="pad muted">None has endpoints on it.</p>`}<//>
      </div>
      ${singlePoints.length > 0 && html`<${Panel} title="Then everything would hang on"><ul class="conditions">${singlePoints.map((point) => html`<li key=${point.node}><a href=${to(['nodes', point.node])}>${point.node}</a> <span class="muted">${[...point.services, ...point.addresses].join(', ')}</span></li>`)}</ul><//>`}
      ${omitted > 0 && html`<p class="muted">${plural(omitted, 'more line')} not listed.</p>`}`;
  }}<//>`;
}

