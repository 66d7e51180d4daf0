// DNS servers: which of them answer, from which state, the zones that they have, and the names that clients ask for.
import { html, useMemo } from '../core/html.js';
import { count, short } from '../core/format.js';
import { to } from '../core/route.js';
import { useApi } from '../core/use.js';
import { Field } from '../parts/field.js';
import { State } from '../parts/state.js';
import { Table } from '../parts/table.js';
import { Ago, Empty, Facts, Loaded, Panel, Tabs, View } from '../parts/view.js';
import { busiestNames, perSecondOf, stateOfServer } from '../parts/dns-model.js';

const SERVERS = '/v1/dns/servers';
const ZONES = '/v1/dnszones?limit=1000';
const TABS = [['', 'Servers'], ['names', 'Busiest names'], ['failures', 'Failures'], ['zones', 'Zones']];
const START = 'tidegate-dns --api http://CONTROL:7440 --listen ADDRESS --upstream RESOLVER';
const ZONE = `apiVersion: tidegate/v1
kind: DnsZone
metadata: {name: example}
spec:
  zone: example.org
  allowedNamespaces: [shop]`;

export default function Dns({ route }) {
  const { tab = '', server = '' } = route.params;
  const answer = useApi(SERVERS);
  const servers = answer.data?.servers;
  const good = servers?.filter((one) => !one.problems?.length).length;
  return html`<${View} name="dns" title="DNS" copy=${{ api: SERVERS, cli: 'tidegate dns servers' }}
    aside=${servers?.length > 0 && html`<span class="muted">${count(good)} of <${Field} path=${SERVERS} at="/servers">${count(servers.length)}<//> servers without a problem</span>`}>
    <${Tabs} active=${tab} tabs=${TABS} to=${(key) => to(['dns'], { tab: key })} />
    ${tab === 'zones'
      ? html`<${Zones} servers=${servers ?? []} />`
      : html`<${Loaded} of=${answer} rows=${5}>${(data) => (data.servers.length === 0
          ? html`<${Panel}><${Empty} title="No DNS server reports" command=${START}>Each tidegate-dns reports to the control servers every five seconds. One on each node answers the names of Services, also while no control server is reachable.<//><//>`
          : tab === ''
            ? html`<${Servers} servers=${data.servers} chosen=${server} />`
            : html`<${Names} servers=${data.servers} isFailing=${tab === 'failures'} />`)}<//>`}
  <//>`;
}

const field = (row, pointer, value) => html`<${Field} path=${SERVERS} at=${`/servers/${row.index}${pointer}`}>${value}<//>`;
const usable = ({ report }) => (report.upstreams ?? []).filter(({ state }) => state === 'ok').length;
const problemsOf = (row) => (row.problems ?? []).join('; ');

const COLUMNS = [
  { key: 'state', label: 'State', width: '142px', by: stateOfServer, words: (row) => stateOfServer(row), show: (row) => html`<${State} state=${stateOfServer(row)} />` },
  { key: 'name', label: 'Server', width: '17%', by: (row) => row.name, words: (row) => row.name, show: (row) => html`<a href=${to(['dns'], { server: row.name })}>${row.name}</a>` },
  { key: 'revision', label: 'Revision', width: '98px', isNumber: true, isExtra: true, by: (row) => row.report.revision ?? -1, show: (row) => field(row, '/report/revision', row.report.revision === undefined ? '–' : count(row.report.revision)) },
  { key: 'rate', label: 'Questions/s', width: '112px', isNumber: true, by: (row) => perSecondOf(row.report.names), show: (row) => short(perSecondOf(row.report.names)) },
  { key: 'failed', label: 'Failed', width: '84px', isNumber: true, by: (row) => row.report.names.total.failed, show: (row) => field(row, '/report/names/total/failed', count(row.report.names.total.failed)) },
  { key: 'upstreams', label: 'Upstreams', width: '104px', isNumber: true, isExtra: true, by: usable, show: (row) => html`${count(usable(row))} of ${count((row.report.upstreams ?? []).length)}` },
  { key: 'reported', label: 'Reported', width: '104px', isExtra: true, by: (row) => row.reportedAt, show: (row) => html`<${Ago} time=${row.reportedAt} />` },
  { key: 'problems', label: 'Problems', words: problemsOf, show: (row) => html`<span class="muted" title=${problemsOf(row)}>${problemsOf(row)}</span>` },
];

function Servers({ servers, chosen }) {
  const rows = useMemo(() => servers.map((server, index) => ({ ...server, index })), [servers]);
  const one = rows.find(({ name }) => name === chosen);
  return html`${one && html`<${Server} row=${one} />`}
    <${Panel} title="Servers"><${Table} id="dns" label="DNS servers" columns=${COLUMNS} rows=${rows} keyOf=${(row) => row.name} stateOf=${stateOfServer} linkOf=${(row) => to(['dns'], { server: row.name })} initialSort="-state" /><//>`;
}

/** One server: its zones, upstream servers and cache. */
function Server({ row }) {
  const { report } = row;
  const { questions, missing } = report.names.total;
  return html`<${Panel} title=${row.name} aside=${html`<a href=${to(['dns'])}>Close</a>`}>
    ${(row.problems ?? []).map((problem, index) => html`<p class="pad" key=${index}>${field(row, `/problems/${index}`, problem)}</p>`)}
    <${Facts} of=${[
      ['Version', field(row, '/report/version', report.version)],
      ['Control server', field(row, '/report/connected', report.connected ? 'yes' : 'no')],
      ['Zones', html`<span class="mono">${(report.zones ?? []).join(', ') || '–'}</span>`],
      ['Upstream servers', (report.upstreams ?? []).length ? report.upstreams.map(({ server, state }, index) => html`<span key=${index} class="mono">${field(row, `/report/upstreams/${index}/server`, server)} ${state === 'ok' ? '' : html`<b>${state}</b>`} </span>`) : 'none: other names are refused'],
      ['Questions', html`${field(row, '/report/names/total/questions', count(questions))} in ${field(row, '/report/names/seconds', count(report.names.seconds))} s, ${field(row, '/report/names/total/missing', count(missing))} for names that do not exist`],
      ['Cached responses', html`${field(row, '/report/cache/positive', count(report.cache.positive))} with records, ${field(row, '/report/cache/negative', count(report.cache.negative))} without`],
    ]} />
  <//>`;
}

const NAMES = [
  { key: 'name', label: 'Name', words: (row) => row.name, by: (row) => row.name, show: (row) => html`<span class="mono" title=${row.name}>${row.name}</span>` },
  { key: 'questions', label: 'Questions', width: '112px', isNumber: true, by: (row) => row.questions, show: (row) => count(row.questions) },
  { key: 'missing', label: 'No name', width: '104px', isNumber: true, by: (row) => row.missing, show: (row) => count(row.missing) },
  { key: 'failed', label: 'Failed', width: '104px', isNumber: true, by: (row) => row.failed, show: (row) => count(row.failed) },
  { key: 'servers', label: 'Servers', width: '104px', isNumber: true, isExtra: true, by: (row) => row.servers, show: (row) => count(row.servers) },
];

/** The names that all servers together were asked for, or those that failed or do not exist. */
function Names({ servers, isFailing }) {
  const rows = useMemo(() => busiestNames(servers, isFailing), [servers, isFailing]);
  const empty = isFailing
    ? html`<${Empty} title="No failures">Every question of the last one to two minutes got an answer with records.<//>`
    : html`<${Empty} title="No questions">No client has asked within the last one to two minutes.<//>`;
  const title = isFailing ? 'Names that fail or do not exist' : 'Busiest names';
  return html`<${Panel} title=${title} aside="of all servers, in the last one to two minutes">
    <${Table} id=${isFailing ? 'failures' : 'names'} label=${title} columns=${NAMES} rows=${rows} keyOf=${(row) => row.name} initialSort=${isFailing ? '-failed' : '-questions'} empty=${empty} /><//>`;
}

const isUsed = ({ status }) => !(status?.conditions ?? []).some(({ status: state }) => state === 'False');
const zoneField = (row, pointer, value) => html`<${Field} path=${ZONES} at=${`/items/${row.index}${pointer}`}>${value}<//>`;
const numberOf = (map) => Object.keys(map ?? {}).length;

const ZONE_COLUMNS = [
  { key: 'state', label: 'State', width: '142px', by: (row) => String(isUsed(row)), show: (row) => html`<${State} state=${isUsed(row) ? 'ok' : 'notice'} />` },
  { key: 'zone', label: 'Zone', by: (row) => row.spec.zone, words: (row) => `${row.spec.zone} ${row.metadata.name}`, show: (row) => html`<a class="mono" href=${to(['history'], { kind: 'DnsZone', name: row.metadata.name })}>${zoneField(row, '/spec/zone', row.spec.zone)}</a>` },
  { key: 'seen', label: 'Clients', width: '112px', isExtra: true, by: (row) => row.spec.visibility ?? 'External', show: (row) => (row.spec.visibility === 'Cluster' ? 'of the cluster' : 'all') },
  { key: 'records', label: 'Records', width: '104px', isNumber: true, by: (row) => (row.spec.records ?? []).length, show: (row) => count((row.spec.records ?? []).length) },
  { key: 'names', label: 'Host names', width: '112px', isNumber: true, by: (row) => numberOf(row.status?.hostnames), show: (row) => html`<span title=${Object.keys(row.status?.hostnames ?? {}).join(', ')}>${count(numberOf(row.status?.hostnames))}</span>` },
  { key: 'refused', label: 'Refused', width: '104px', isNumber: true, by: (row) => numberOf(row.status?.refused), show: (row) => html`<span title=${Object.entries(row.status?.refused ?? {}).map(([name, owner]) => `${name}: ${owner}`).join(', ')}>${count(numberOf(row.status?.refused))}</span>` },
];

/** The cluster zones of the servers, and the DnsZones. */
function Zones({ servers }) {
  const answer = useApi(ZONES, { everyMs: 10_000 });
  const clusterZones = [...new Set(servers.map(({ report }) => report.zones?.[0]).filter(Boolean))];
  return html`${clusterZones.length > 0 && html`<${Panel} title="Cluster zone"><p class="pad"><span class="mono">${clusterZones.join(', ')}</span> <span class="muted">has the names of Services, endpoints and Workloads.</span></p><//>`}
    <${Panel} title="DnsZones"><${Loaded} of=${answer} rows=${4}>${(data) => html`<${Table} id="zones" label="DnsZones" columns=${ZONE_COLUMNS} rows=${data.items.map((row, index) => ({ ...row, index }))} keyOf=${(row) => row.metadata.name} initialSort="zone"
      empty=${html`<${Empty} title="No DnsZone" command=${ZONE}>A DnsZone is a zone outside of the cluster zone, with static records and the host names of Services and HttpRoutes.<//>`} />`}<//><//>`;
}
