// What was changed, by whom, and what for; and who asked for what.
import { request } from '../core/api.js';
import { html, useEffect, useState } from '../core/html.js';
import { count, plural, utc } from '../core/format.js';
import { live } from '../core/live.js';
import { remark, to, toObject } from '../core/route.js';
import { useStore } from '../core/store.js';
import { useApi } from '../core/use.js';
import { Field } from '../parts/field.js';
import { State } from '../parts/state.js';
import { Table } from '../parts/table.js';
import { Ago, Empty, Failed, Loaded, Panel, Tabs, View } from '../parts/view.js';

/** Entries of a page. */
const PAGE = 100;
/** Kinds that can be asked for. */
const KINDS = ['Service', 'EndpointSet', 'Workload', 'Node', 'AddressPool', 'Address', 'Advertisement', 'BgpPeer', 'BfdProfile', 'DnsZone', 'Gateway', 'HttpRoute', 'TlsRoute', 'Certificate', 'WorkloadNetwork', 'NetworkPolicy', 'Block', 'Attachment', 'EndpointHealth'];
const VERBS = { ADDED: 'created', MODIFIED: 'changed', DELETED: 'deleted' };

export default function History({ route }) {
  const tab = route.params.tab === 'audit' ? 'audit' : 'changes';
  const { kind, namespace, name } = route.params;
  const of = kind && name ? `${kind} ${namespace ? `${namespace}/` : ''}${name}` : undefined;
  const cli = tab === 'audit' ? 'tidegate audit' : of ? `tidegate history ${kind.toLowerCase()} ${name}${namespace ? ` -n ${namespace}` : ''}` : 'tidegate history';
  return html`<${View} name="history" title="History" kicker=${of && html`of <a href=${toObject({ kind, namespace, name })}>${of}</a> · <a href=${to(['history'])}>all</a>`} copy=${{ api: tab === 'audit' ? '/v1/audit' : pathOf(route.params), cli }}>
    <${Tabs} active=${tab} tabs=${[['changes', 'Changes'], ['audit', 'Who asked for what']]} to=${(key) => to(['history'], key === 'audit' ? { tab: 'audit' } : {})} />
    ${tab === 'audit' ? html`<${Audit} />` : html`<${Changes} params=${route.params} />`}
  <//>`;
}

function pathOf({ kind, namespace, name }) {
  const query = new URLSearchParams(Object.entries({ limit: PAGE, kind, namespace: namespace || undefined, name: name || undefined }).filter(([, value]) => value));
  return `/v1/history?${query}`;
}

/** A listing of the API with a button for what is older. */
function usePages(path, when) {
  const first = useApi(path, { when, everyMs: 15_000 });
  const [older, setOlder] = useState({ path, items: [], next: undefined, error: undefined });
  useEffect(() => setOlder({ path, items: [], next: undefined, error: undefined }), [path]);
  const token = older.items.length || older.isEnd ? older.next : first.data?.metadata?.continue;
  const more = async () => {
    try {
      const page = await request(`${path}&continue=${encodeURIComponent(token)}`);
      setOlder((before) => ({ path, items: [...before.items, ...page.items], next: page.metadata.continue, isEnd: !page.metadata.continue, error: undefined }));
    } catch (error) {
      setOlder((before) => ({ ...before, error }));
    }
  };
  const items = [...(first.data?.items ?? []), ...older.items];
  return { first, items: [...new Map(items.map((item) => [item.revision ?? item.id ?? `${item.at}${item.requestId}`, item])).values()], hasMore: Boolean(token), more, error: older.error };
}

const CHANGES = [
  { key: 'revision', label: 'Revision', width: '10%', by: (row) => row.revision, words: (row) => String(row.revision), show: (row) => html`<a href=${to(['history', String(row.revision)])}><${Field} path=${`/v1/history/${row.revision}`} at="/revision">r${row.revision}<//></a>` },
  { key: 'at', label: 'When', width: '14%', by: (row) => row.at, show: (row) => html`<${Ago} time=${row.at} />` },
  { key: 'author', label: 'Who', width: '18%', by: (row) => row.author, words: (row) => row.author, show: (row) => html`<span title=${row.source ? `from ${row.source}` : ''}>${row.author}</span>` },
  { key: 'message', label: 'Why', width: '26%', by: (row) => row.message ?? '', words: (row) => row.message ?? '', show: (row) => html`<span title=${row.message ?? ''}>${row.message ?? html`<span class="muted">–</span>`}</span>` },
  { key: 'what', label: 'What', words: what, show: (row) => html`<span title=${what(row)}>${what(row)}</span>` },
];

function what({ changes = [], changesTotal }) {
  const named = changes.slice(0, 3).map(({ kind, object }) => `${VERBS[kind] ?? kind} ${object.kind} ${object.namespace ? `${object.namespace}/` : ''}${object.name}`);
  const more = (changesTotal ?? changes.length) - named.length;
  return named.join(', ') + (more > 0 ? ` and ${count(more)} more` : '');
}

function Changes({ params }) {
  const position = useStore(live, (state) => state.doc?.position);
  const { first, items, hasMore, more, error } = usePages(pathOf(params), position);
  const floor = first.data?.metadata?.floor;
  const filters = html`<label><span class="unseen">Kind</span><select value=${params.kind ?? ''} onChange=${(event) => remark({ kind: event.target.value, namespace: '', name: '' })}>
    <option value="">All kinds</option>${KINDS.map((kind) => html`<option key=${kind}>${kind}</option>`)}</select></label>`;
  return html`<${Panel}>
    <${Loaded} of=${first} rows=${8}>${() => html`
      <${Table} id="history" label="Changes" columns=${CHANGES} rows=${items} keyOf=${(row) => String(row.revision)} linkOf=${(row) => to(['history', String(row.revision)])} initialSort="-revision" filters=${filters}
        empty=${html`<${Empty} title="Nothing was changed yet" command=${"tidegate apply -f web.yaml --message 'the shop opens'"}>Every write is kept: who made it, why, what it changed in objects and in every kernel, and how to undo it.<//>`} />
      <${More} ...${{ hasMore, more, error, floor }} />`}<//>
  <//>`;
}

function More({ hasMore, more, error, floor }) {
  return html`<div class="pad">
    ${hasMore && html`<button type="button" onClick=${more}>Older</button>`}
    ${error && html`<${Failed} error=${error} retry=${more} />`}
    ${!hasMore && floor > 0 && html`<span class="muted">What was before revision ${count(floor)} is no longer kept.</span>`}
  </div>`;
}

const statusOf = (row) => (row.status < 400 ? 'ok' : row.status === 401 || row.status === 403 ? 'unreachable' : 'degraded');
const AUDIT = [
  { key: 'at', label: 'When', width: '20%', by: (row) => row.at, words: (row) => row.at, show: (row) => html`<span title=${row.requestId ?? ''}>${utc(row.at)}</span>` },
  { key: 'author', label: 'Who', width: '18%', by: (row) => row.author ?? '', words: (row) => `${row.author ?? ''} ${row.source ?? ''}`, show: (row) => html`<span title=${row.source ? `from ${row.source}` : ''}>${row.author ?? '–'}</span>` },
  { key: 'what', label: 'Request', words: (row) => `${row.method} ${row.path}`, by: (row) => row.path, show: (row) => html`<code title=${`${row.method} ${row.path}`}>${row.method} ${row.path}</code>` },
  { key: 'status', label: 'Answer', width: '20%', by: (row) => row.status, words: (row) => `${row.status} ${row.code ?? ''}`, show: (row) => html`<${State} state=${statusOf(row)} text=${`${row.status}${row.code ? ` ${row.code}` : ''}`} />` },
  { key: 'revision', label: 'Revision', width: '11%', isExtra: true, by: (row) => row.revision ?? 0, show: (row) => (row.revision ? html`<a href=${to(['history', String(row.revision)])}>r${row.revision}</a>` : html`<span class="muted">–</span>`) },
];

function Audit() {
  const { first, items, hasMore, more, error } = usePages(`/v1/audit?limit=${PAGE}`);
  return html`<${Panel}>
    <${Loaded} of=${first} rows=${8}>${() => html`
      <${Table} id="audit" label="Requests" columns=${AUDIT} rows=${items} keyOf=${(row) => row.id ?? `${row.at} ${row.requestId}`} initialSort="-at" empty=${html`<${Empty} title="Nobody has asked for a change">Every request that would change something is kept here, also those that were refused.<//>`} />
      <${More} ...${{ hasMore, more, error }} />
      <p class="pad muted">${plural(items.length, 'request')} shown, the newest first.</p>`}<//>
  <//>`;
}
