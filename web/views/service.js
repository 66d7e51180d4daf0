// One Service: whether users reach it, by which way, and where that way is broken.
import { html, useMemo, useState } from '../core/html.js';
import { count, perSecond, bytes, plural } from '../core/format.js';
import { live } from '../core/live.js';
import { useWhyNot } from '../core/may.js';
import { to } from '../core/route.js';
import { useStore } from '../core/store.js';
import { useApi } from '../core/use.js';
import { marksOf } from '../parts/changes-model.js';
import { CopyButton } from '../parts/copy.js';
import { endpointRows, nodeRows } from '../parts/endpoints-model.js';
import { Field } from '../parts/field.js';
import { Hour } from '../parts/hour.js';
import { Ladder } from '../parts/ladder.js';
import { Links } from '../parts/links.js';
import { Maintain } from '../parts/maintain.js';
import { PathGraph } from '../parts/path.js';
import { COLUMNS, graphOf } from '../parts/path-model.js';
import { Changes, Endpoints, Nodes } from '../parts/service-tables.js';
import { State } from '../parts/state.js';
import { Ago, Empty, Failed, Panel, View, Waiting } from '../parts/view.js';
import { yaml } from '../parts/yaml.js';

const RUNGS = ['Accepted', 'AddressAssigned', 'EndpointsAvailable', 'Programmed', 'Announced', 'Ready'];
/** Writes that are shown. */
const CHANGES_SHOWN = 10;
/** Between two looks at what costs the server more, in ms. */
const SLOWLY_MS = 10_000;

/** All that the view asks for; again at once when the row of the overview is another. */
function useService(namespace, name, row) {
  const path = `/v1/namespaces/${namespace}/services/${name}`;
  const when = row && [row.state, row.reason, row.revision, row.endpointsReady, row.endpointsTotal, row.endpointsNotChecked, row.nodesVerified, row.addresses.join()].join();
  const service = useApi(path, { when });
  const isThere = service.data !== undefined;
  const hasPackets = isThere && service.data.spec.type !== 'ExternalName';
  const isDraining = service.data?.status?.endpoints?.draining > 0;
  return {
    path,
    service,
    compiled: useApi(hasPackets ? `/v1/namespaces/${namespace}/endpoints/${name}` : undefined, { when }),
    health: useApi(hasPackets ? `${path}/health` : undefined, { when }),
    traffic: useApi(hasPackets ? `${path}/traffic` : undefined),
    addresses: useApi(isThere && service.data.spec.type === 'LoadBalancer' ? `/v1/addresses?service=${namespace}/${name}` : undefined, { when }),
    drains: useApi(isDraining ? `/v1/drains?namespace=${namespace}&service=${name}` : undefined, { everyMs: 2_000 }),
    explained: useApi(hasPackets ? `${path}/explain?desiredOnly=true` : undefined, { everyMs: SLOWLY_MS, when }),
    // The newest write of the Service itself; and those of all that has its name, such as its EndpointSet.
    last: useApi(isThere ? `/v1/history?kind=Service&namespace=${namespace}&name=${name}&limit=1` : undefined, { everyMs: SLOWLY_MS, when }),
    history: useApi(isThere ? `/v1/history?namespace=${namespace}&name=${name}&limit=${CHANGES_SHOWN}` : undefined, { when }),
  };
}

export default function ServiceView({ route }) {
  const [, namespace, name] = route.path;
  const doc = useStore(live, (state) => state.doc);
  const row = doc?.services.get(`${namespace}/${name}`);
  const known = useService(namespace, name, row);
  const problems = doc?.problems.filter((one) => one.kind === 'Service' && one.namespace === namespace && one.name === name);
  const [asked, setAsked] = useState(undefined);
  const service = known.service.data;
  const title = `${namespace}/${name}`;
  const copy = { api: known.path, cli: `tidegate describe service ${name} -n ${namespace}` };
  if (!service) return html`<${View} name="service" title=${title} kicker="Service" copy=${copy}><${Panel}>${known.service.error ? html`<${Gone} error=${known.service.error} retry=${known.service.refresh} name=${title} />` : html`<${Waiting} rows=${10} />`}<//><//>`;
  const heading = html`${title} <span class="service-state">${row && html`<${State} state=${wordOf(row, service)} />`}${row?.since && html`<span class="service-since">since <${Ago} time=${row.since} /></span>`}</span>`;
  return html`<${View} name="service" title=${heading} heading=${title} kicker=${kicker(service)} copy=${copy} aside=${html`<${Actions} service=${service} known=${known} ask=${setAsked} />`}>
    <${Head} known=${known} />
    <${Panel} title="Conditions"><${Ladder} path=${known.path} conditions=${service.status?.conditions ?? []} order=${RUNGS} problems=${problems} /><//>
    ${service.spec.type === 'ExternalName' ? html`<${Pathless} service=${service} />` : html`<${Reach} known=${known} doc=${doc} ask=${setAsked} />`}
    <${Hour} of=${`service/${namespace}/${name}`} marks=${marksOf(known.history.data)} />
    <${Changes} answer=${known.history} namespace=${namespace} name=${name} />
    <${Source} service=${service} />
    ${asked && html`<${Maintain} ...${asked} close=${() => { setAsked(undefined); known.service.refresh(); known.compiled.refresh(); }} />`}
  <//>`;
}

/** The one word for a Service; what users do not notice can still keep it from being ready. */
const wordOf = ({ state }, { status }) => (state === 'ok' && status?.conditions?.some(({ type, status: holds }) => type === 'Ready' && holds !== 'True') ? 'notReady' : state);

function Gone({ error, retry, name }) {
  if (error.status !== 404) return html`<${Failed} error=${error} retry=${retry} />`;
  return html`<${Empty} title="There is no such Service">${name} was deleted, or never was. <a href=${to(['services'])}>All Services</a>, or <a href=${to(['history'], { kind: 'Service', namespace: name.split('/')[0], name: name.split('/')[1] })}>what was changed</a>.<//>`;
}

const kicker = ({ spec }) => html`<a href=${to(['services'])}>Services</a> · ${spec.type}${spec.disabled ? ' · disabled' : ''}`;

function Actions({ service, known, ask }) {
  const { namespace, name } = service.metadata;
  const why = useWhyNot('update', 'Service', namespace);
  const isOut = Boolean(service.spec.maintenance);
  const begin = () => ask({ subject: { kind: 'Service', path: known.path }, name: `Service ${namespace}/${name}`, isBack: isOut });
  return html`<${Links} of="service" names=${{ namespace, name }} /><a class="button" href=${to(['explain'], { service: `${namespace}/${name}` })}>Explain</a><button type="button" disabled=${Boolean(why)} title=${why ?? ''} data-action=${isOut ? 'undrain' : 'drain'} onClick=${begin}>${isOut ? 'Give back…' : 'Take out of service…'}</button>${why && html`<span class="muted why" data-why>${why}</span>`}`;
}

/** In three chips what is wanted, what the nodes have, and what the endpoints are; then who changed it last. */
function Head({ known: { path, service: { data: service }, last: newest } }) {
  const { endpoints = {}, nodes = {}, conditions = [] } = service.status ?? {};
  const met = (type) => conditions.find((one) => one.type === type)?.status === 'True';
  const at = (pointer, value) => html`<${Field} path=${path} at=${pointer}>${value}<//>`;
  const isAccepted = met('Accepted') && met('AddressAssigned');
  const last = newest.data?.items?.[0];
  const out = service.spec.maintenance;
  return html`<div class="service-head">
    <p class="service-chips">
      <${Chip} label="intent" state=${isAccepted ? 'ok' : 'failing'}>${isAccepted ? 'accepted' : 'not accepted'}<//>
      <${Chip} label="sync" state=${nodes.total === 0 ? 'disabled' : nodes.verified === nodes.total ? 'ok' : nodes.verified ? 'lagging' : 'failing'}>${at('/status/nodes/verified', count(nodes.verified))}/${at('/status/nodes/total', count(nodes.total))}<//>
      <${Chip} label="health" state=${endpoints.total === 0 ? (met('EndpointsAvailable') ? 'disabled' : 'down') : endpoints.ready === endpoints.total ? 'ok' : endpoints.ready ? 'atRisk' : 'down'}>${at('/status/endpoints/ready', count(endpoints.ready))}/${at('/status/endpoints/total', count(endpoints.total))}<//>
      ${out && html`<${Chip} label=${out.mode === 'Drain' ? 'drains' : 'maintenance'} state="draining">${out.reason ?? 'no reason given'}${out.by ? `, by ${out.by}` : ''}<//>`}
    </p>
    <p class="muted service-last">
      <span>revision ${at('/metadata/resourceVersion', service.metadata.resourceVersion)}</span>
      ${last && html`<span>last changed by <b>${last.author || 'unknown'}</b> in <a href=${to(['history', String(last.revision)])}>r${last.revision}</a>, <${Ago} time=${last.at} />${last.message ? `: “${last.message}”` : ''}</span>`}
    </p>
  </div>`;
}

function Chip({ label, state, children }) {
  return html`<span class="chip" data-chip=${label}><span class="muted">${label}</span><${State} state=${state} text=${children} /></span>`;
}

/** Why no packet goes through nodes to a Service; nothing where packets do. */
function whyPathless({ spec }) {
  if (spec.type === 'ExternalName') return ['Only a name', html`A Service of type ExternalName stands for <code>${spec.externalName}</code>; no packet goes through nodes.`];
  if (spec.disabled) return ['Disabled', html`No node has this Service, until <code>spec.disabled</code> is false.`];
  if (spec.clusterIPs?.[0] === 'None' || spec.clusterIP === 'None') return ['Without an address', html`This Service is headless (<code>clusterIP: None</code>): clients learn its endpoints by name, and go to them without nodes in between.`];
  return undefined;
}

function Pathless({ service }) {
  const [title, text] = whyPathless(service);
  return html`<${Panel} id="path" title="Path of packets"><${Empty} title=${title}>${text}<//><//>`;
}

/** The graph, and the tables of what is in it. */
function Reach({ known, doc, ask }) {
  const [service, compiled, health, traffic, drains, explained] = ['service', 'compiled', 'health', 'traffic', 'drains', 'explained'].map((key) => known[key].data);
  const addresses = known.addresses.data?.items;
  const endpoints = useMemo(() => endpointRows({ compiled, health, traffic, drains }), [compiled, health, traffic, drains]);
  const nodes = useMemo(() => nodeRows({ service, nodes: doc?.nodes ?? new Map(), traffic }), [service, doc?.nodes, traffic]);
  const isKnown = compiled && doc && (explained || known.explained.error) && (addresses || service.spec.type !== 'LoadBalancer' || known.addresses.error);
  const graph = useMemo(() => (isKnown ? graphOf({ service, compiled, addresses, endpoints, nodes, explained }) : undefined), [isKnown, service, compiled, addresses, endpoints, nodes, explained]);
  const { namespace, name } = service.metadata;
  const table = html`<${Endpoints} rows=${endpoints} known=${known} namespace=${namespace} ask=${ask} />`;
  if (whyPathless(service)) return html`<${Pathless} service=${service} />${table}`;
  return html`<${Panel} id="path" title="Path of packets" aside=${traffic && html`<${Total} traffic=${traffic} path=${`${known.path}/traffic`} />`}>
      ${graph ? html`<${PathGraph} graph=${graph} headings=${COLUMNS} label=${`Path of packets to ${namespace}/${name}`} paths=${{ service: known.path, traffic: `${known.path}/traffic` }} />` : known.compiled.error ? html`<${Failed} error=${known.compiled.error} retry=${known.compiled.refresh} />` : html`<${Waiting} rows=${6} />`}
    <//>
    ${table}
    <${Nodes} rows=${nodes} known=${{ ...known, isPartial: doc?.isWhole === false }} />`;
}

function Total({ traffic: { total, nodes }, path }) {
  const counted = Object.keys(nodes).length;
  if (counted === 0) return html`<span>no node has counted anything yet</span>`;
  const at = (pointer, value, show) => (value === undefined || value === null ? undefined : html`<${Field} path=${path} at=${pointer}>${show(value)}<//>`);
  const rate = at('/total/perSecond/connections', total.perSecond?.connections, perSecond);
  const flow = at('/total/perSecond/bytes', total.perSecond?.bytes, bytes);
  const active = at('/total/active', total.active, count);
  return html`<span class="path-total">${[rate && html`${rate} new connections`, flow && html`${flow}/s`, active && html`${active} active`, `as ${plural(counted, 'node')} counted`].filter(Boolean).map((part, at) => html`<span key=${at}>${part}</span>`)}</span>`;
}

/** The object, as `tidegate apply` takes it. */
function Source({ service: { status, ...object } }) {
  const text = yaml(object);
  return html`<${Panel}><details class="source-yaml"><summary>YAML of the object</summary><div class="source-tools"><${CopyButton} text=${text} label="Copy YAML" /></div><pre tabindex="0" aria-label="YAML of the object"><code>${text}</code></pre></details><//>`;
}
