// Is anything wrong for users, what changed, where, and what to do: in one look.
import { html, useLayoutEffect, useMemo } from '../core/html.js';
import { count, duration, plural } from '../core/format.js';
import { live } from '../core/live.js';
import { to, toObject } from '../core/route.js';
import { useStore } from '../core/store.js';
import { useApi } from '../core/use.js';
import { Busiest } from '../parts/busiest.js';
import { Checklist } from '../parts/checklist.js';
import { CopyButton } from '../parts/copy.js';
import { Field } from '../parts/field.js';
import { Hour } from '../parts/hour.js';
import { Links } from '../parts/links.js';
import { LiveMap } from '../parts/map.js';
import { marksOf } from '../parts/changes-model.js';
import { Recent } from '../parts/recent.js';
import { Shape, State, tone, word } from '../parts/state.js';
import { useTraffic } from '../parts/traffic.js';
import { Ago, Empty, Panel, View, Waiting } from '../parts/view.js';

const API = '/v1/overview';
/** Problems that are shown before one asks for all. */
const PROBLEMS_SHOWN = 12;
/** Writes that are looked at for those of people. */
const CHANGES_READ = 60;
/** Up to so many nodes have their name on their cell. */
const NAMED_MAX = 24;
/** Nodes that are a cell each; more are summed up by the list. */
const CELLS_MAX = 1_000;

const at = (pointer, value) => html`<${Field} path=${API} at=${pointer}>${value}<//>`;

export default function Overview() {
  const doc = useStore(live, (state) => state.doc);
  useLayoutEffect(() => {
    // What the first look is for is there.
    if (doc && performance.getEntriesByName('tidegate:first-content').length === 0) performance.mark('tidegate:first-content');
  }, [doc]);
  return html`<${View} name="overview" title=${doc ? headline(doc) : 'Overview'} heading="Overview" copy=${{ api: API, cli: 'tidegate status' }} aside=${html`<${Links} of="cluster" />`}>
    ${doc ? html`<${Whole} doc=${doc} />` : html`<${Waiting} rows=${8} />`}
  <//>`;
}

/** What is wrong comes before the totals on a phone: order in style/views.css. */
function Whole({ doc }) {
  const traffic = useTraffic();
  const history = useApi(`/v1/history?limit=${CHANGES_READ}`, { when: doc.position });
  const marks = useMemo(() => marksOf(history.data), [history.data]);
  const isMany = doc.nodes.size > NAMED_MAX;
  const nodes = doc.totals.nodes && html`<${Nodes} doc=${doc} />`;
  return html`<div class=${doc.problems.length ? 'glance has-problems' : 'glance'}><${Totals} doc=${doc} /><div class="overview">
      <div>${doc.services.size === 0 && html`<${First} doc=${doc} />`}${(doc.services.size > 0 || doc.problems.length > 0) && html`<${Problems} doc=${doc} />`}${doc.services.size > 0 && html`<${LiveMap} doc=${doc} traffic=${traffic} />`}${isMany && nodes}</div>
      <div><${Busiest} traffic=${traffic} />${!isMany && nodes}<${Recent} answer=${history} /></div>
    </div></div>
    ${doc.isWhole !== false && html`<${Hour} of="cluster" marks=${marks} />`}`;
}

/** The answer to the first question, in words. */
function headline({ totals, problems }) {
  const { unreachable, degraded } = totals.services;
  if (unreachable) return `${plural(unreachable, 'Service')} cannot be reached`;
  if (degraded) return `${plural(degraded, 'Service')} ${degraded === 1 ? 'is' : 'are'} degraded`;
  if (problems.length) return 'Users are served; some things need a look';
  return totals.services.total ? 'Everything is as it should be' : 'Ready for the first Service';
}

/** What sums up the cluster is left out for those who may see some namespaces only. */
function Totals({ doc: { totals, convergence } }) {
  const { services, nodes, endpoints, addresses, bgpSessions, bfdSessions, pools } = totals;
  const lag = convergence?.p99Millis;
  return html`<div class="totals" aria-label="At a glance" role="group">
    <${Total} href=${to(['services'])} label="Services ok" state=${services.unreachable ? 'unreachable' : services.degraded ? 'degraded' : services.atRisk ? 'atRisk' : 'ok'}
      number=${html`${at('/totals/services/ok', count(services.ok))} <small>of ${count(services.total - services.disabled)}</small>`}
      note=${parts([[services.unreachable, 'unreachable'], [services.degraded, 'degraded'], [services.atRisk, 'at risk'], [services.notChecked, 'not checked']])} fine="all can be reached" />
    ${nodes && html`<${Total} href=${to(['nodes'])} label="Nodes converged" state=${nodes.disconnected ? 'disconnected' : nodes.failing ? 'failing' : nodes.drifted ? 'drifted' : nodes.lagging ? 'lagging' : 'ok'}
      number=${html`${at('/totals/nodes/converged', count(nodes.converged))} <small>of ${count(nodes.total)}</small>`}
      note=${parts([[nodes.disconnected, 'disconnected'], [nodes.failing, 'failing'], [nodes.drifted, 'drifted'], [nodes.lagging, 'lagging']])} fine=${lag === undefined || lag === null ? 'all have what is wanted' : html`within ${at('/convergence/p99Millis', duration(lag))} (p99)`} />`}
    <${Total} href=${to(['services'])} label="Endpoints ready" state=${endpoints.unhealthy ? 'unhealthy' : endpoints.draining ? 'draining' : 'ok'}
      number=${html`${at('/totals/endpoints/ready', count(endpoints.ready))} <small>of ${count(endpoints.total)}</small>`}
      note=${parts([[endpoints.unhealthy, 'unhealthy'], [endpoints.draining, 'draining']])} fine="none is unhealthy" />
    ${addresses && html`<${Total} href=${to(['addresses'])} label="Addresses announced" state=${addresses.conflicting ? 'conflicting' : addresses.waiting || pools?.nearlyFull ? 'waiting' : 'ok'}
      number=${html`${at('/totals/addresses/announced', count(addresses.announced))} <small>of ${count(addresses.total)}</small>`}
      note=${parts([[addresses.conflicting, 'in conflict'], [addresses.waiting, 'waiting'], [pools?.nearlyFull, pools?.nearlyFull === 1 ? 'pool nearly full' : 'pools nearly full']])} fine=${pools ? plural(pools.total, 'pool') : ''} />`}
    ${bgpSessions && html`<${Total} href=${to(['bgp'])} label="BGP sessions" state=${bgpSessions.established < bgpSessions.total || bfdSessions?.up < bfdSessions?.total ? 'down' : bgpSessions.total ? 'ok' : 'disabled'}
      number=${html`${at('/totals/bgpSessions/established', count(bgpSessions.established))} <small>of ${count(bgpSessions.total)}</small>`}
      note=${parts([[bgpSessions.total - bgpSessions.established, 'down'], [bfdSessions && bfdSessions.total - bfdSessions.up, 'BFD down']])} fine=${bgpSessions.total ? 'all are up' : 'no peers'} />`}
  </div>`;
}

const parts = (list) => list.filter(([number]) => number).map(([number, what]) => `${count(number)} ${what}`).join(', ');

function Total({ href, label, state, number, note, fine }) {
  // A total has three tones: its number and note say how bad it is.
  const ofTotal = { ok: 'ok', disabled: 'none' }[state] ?? (state === 'atRisk' || state === 'lagging' || state === 'draining' || state === 'drifted' || state === 'waiting' ? 'risk' : 'bad');
  return html`<a class=${`total tone-${ofTotal}`} href=${href} data-state=${state}>
    <span class="total-label"><span>${label}</span><${Shape} state=${state} /></span>
    <span class="total-number">${number}</span>
    <div class=${`total-note ${note ? 'has-tone' : ''}`}>${note || fine}</div>
  </a>`;
}

/** What to do on a cluster without Services. */
function First({ doc }) {
  return html`<${Panel} id="first" title="First steps">${doc.isWhole === false ? html`<${Empty} title="No Service yet" command=${'tidegate apply -f web.yaml'}>Your token sees namespaces, and none of them has a Service.<//>` : html`<${Checklist} doc=${doc} />`}<//>`;
}

function Problems({ doc }) {
  const { problems, problemsTotal } = doc;
  const total = problemsTotal ?? problems.length;
  const shown = problems.slice(0, PROBLEMS_SHOWN);
  return html`<${Panel} id="problems" title="Problems now" aside=${html`<span aria-live="polite">${total ? plural(total, 'problem') : ''}</span>`}>
    ${problems.length === 0
      ? html`<div class="calm"><${Shape} state="ok" size=${40} /><div><b>No problems.</b><p class="muted">Every Service that should be reachable is, on every node, as read back from the kernels.</p></div></div>`
      : shown.map((problem, index) => html`<${Problem} key=${problem.id} problem=${problem} index=${index} />`)}
    ${total > shown.length && html`<p class="pad muted">…and ${count(total - shown.length)} more: <code>tidegate status</code> lists them, and so do <a href=${to(['services'], { 'services.sort': 'state' })}>Services</a> and <a href=${to(['nodes'], { 'nodes.sort': 'state' })}>nodes</a>.</p>`}
  <//>`;
}

function Problem({ problem, index }) {
  const { impact, kind, namespace, name, reason, message, hint, since, affects = [], affectsMore, change } = problem;
  const object = `${kind} ${namespace ? `${namespace}/` : ''}${name}`;
  return html`<div class=${`problem tone-${tone(impact)}`} data-problem=${problem.id} data-impact=${impact}>
    <${Shape} state=${impact} size=${18} />
    <div>
      <div class="problem-head"><a class="problem-object" href=${toObject(problem)}>${object}</a><span class="unseen">${word(impact)}:</span><code class="muted">${at(`/problems/${index}/reason`, reason)}</code></div>
      <p class="problem-message">${message}</p>
      ${hint && html`<p class="problem-hint">${hint}</p>`}
      ${affects.length > 0 && html`<p class="problem-hint">Affects ${affects.map((one, place) => html`${place > 0 ? ', ' : ''}<a key=${place} href=${toObject(one)}>${one.kind === 'Service' ? `${one.namespace}/${one.name}` : `${one.kind} ${one.name}`}</a>`)}${affectsMore ? ` and ${count(affectsMore)} more` : ''}</p>`}
    </div>
    <div class="problem-since"><${Ago} time=${since} /></div>
    ${change && html`<p class="problem-change">Before it: <a href=${to(['history', String(change.revision)])}>revision ${change.revision}</a>${change.author ? ` by ${change.author}` : ''}${change.message ? html`: “${change.message}”` : ''}, ${before(change.at, since)}</p>`}
    <div class="problem-foot">
      ${kind === 'Service' && html`<a class="quiet button" href=${to(['explain'], { service: `${namespace}/${name}` })}>Explain</a>`}
      <${CopyButton} text=${kind === 'DnsServer' ? 'tidegate dns servers' : `tidegate describe ${kind.toLowerCase()} ${name}${namespace ? ` -n ${namespace}` : ''}`} label="Copy command" />
    </div>
  </div>`;
}

/** How long one time of the API is before another. */
function before(time, other) {
  const ms = Date.parse(other) - Date.parse(time);
  return Number.isFinite(ms) && ms >= 0 ? `${duration(ms)} before` : html`<${Ago} time=${time} />`;
}

/** Each node with its state and how many addresses it announces; of many only the state. */
function Nodes({ doc: { nodes } }) {
  const rows = [...nodes.values()].slice(0, CELLS_MAX);
  const states = [...new Set(rows.map((row) => row.state))];
  const isNamed = rows.length <= NAMED_MAX;
  return html`<${Panel} title="Nodes" aside=${html`<a href=${to(['nodes'])}>All nodes</a>`}>
    ${rows.length === 0
      ? html`<${Empty} title="No node yet" command="tidegate-agent --api https://CONTROL:7440 --node NAME">An agent on each machine programs its kernel. It registers itself when it first comes.<//>`
      : html`<div class=${`node-strip ${isNamed ? 'is-named' : ''}`}>${rows.map((row) => html`<a key=${row.name} class=${`tone-${tone(row.state)}`} href=${to(['nodes', row.name])} data-key=${row.name} data-state=${row.state} title=${`${row.name}: ${word(row.state)}${row.reason ? ` (${row.reason})` : ''}`} aria-label=${isNamed ? undefined : `${row.name}: ${word(row.state)}`}><${Shape} state=${row.state} size=${14} />${isNamed && html`<span>${row.name}</span><span class="unseen">${word(row.state)}, </span><span class="muted">${row.state === 'converged' ? plural(row.addresses ?? 0, 'address', 'addresses') : word(row.state)}</span>`}</a>`)}</div>
          ${!isNamed && html`<p class="legend">${states.map((state) => html`<span key=${state}><${State} state=${state} /></span>`)}</p>`}`}
  <//>`;
}
