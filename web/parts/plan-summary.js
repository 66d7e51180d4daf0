// What a write would do, as `POST /v1/plan` says it: to objects, to addresses, and to the kernel of every node.
import { html, useState } from '../core/html.js';
import { count, plural } from '../core/format.js';
import { to } from '../core/route.js';
import { Lines, yaml } from './diff.js';
import { Field } from './field.js';
import { Shape } from './state.js';
import { Table } from './table.js';

const ACTIONS = { created: '+', updated: '~', deleted: '−', pruned: '−' };

/**
 * A plan.
 * @param {{plan: any, isShort?: boolean}} props `isShort` leaves the lines of the kernels to the plan's own view
 */
export function PlanSummary({ plan, isShort = false }) {
  const nodes = Object.entries(plan.nodes ?? {}).map(([name, node]) => rowOf(name, node, 'POST /v1/plan'));
  if (plan.objects.length === 0) return html`<p class="pad muted" data-plan="empty">Nothing would change: every object is so already.</p>`;
  return html`<div data-plan=${plan.id}>
    <${Guards} guards=${plan.guards ?? []} />
    <${Headline} plan=${plan} nodes=${nodes} />
    <ul class="plan-objects">${plan.objects.map((object) => html`<${PlannedObject} key=${object.object} object=${object} isOpen=${!isShort && plan.objects.length <= 4} />`)}</ul>
    <${Addresses} addresses=${plan.addresses} />
    ${nodes.length > 0 && html`<${Nodes} nodes=${nodes} isShort=${isShort} />`}
  </div>`;
}

function Guards({ guards }) {
  if (guards.length === 0) return null;
  return html`<div class="banner tone-bad" role="alert" data-guards><${Shape} state="degraded" /><div><b>A guard would hold this until it is confirmed; to apply the plan is to confirm it.</b>
    <ul>${guards.map((guard) => html`<li key=${guard}>${guard}</li>`)}</ul></div></div>`;
}

/** The whole in one line. */
function Headline({ plan, nodes }) {
  const actions = Object.groupBy(plan.objects, ({ action }) => action);
  const said = Object.entries(actions).map(([action, list]) => `${plural(list.length, 'object')} ${action}`);
  const sum = (key) => nodes.reduce((total, node) => total + (node[key] ?? 0), 0);
  const touched = nodes.filter((node) => node.added + node.removed > 0).length;
  if (nodes.length) said.push(`${plural(touched, 'node')} of ${count(nodes.length)} touched`);
  if (plan.addresses.length) said.push(`${plural(plan.addresses.length, 'address', 'addresses')} come, go or move`);
  if (sum('resets')) said.push(`${plural(sum('resets'), 'BGP session')} reset`);
  if (sum('risk')) said.push(`${plural(sum('risk'), 'connection')} at risk`);
  return html`<p class="plan-headline">${said.join(' · ')}</p>`;
}

function PlannedObject({ object: { object, action, fields, omitted }, isOpen }) {
  return html`<li data-object=${object} data-action=${action}>
    <details open=${isOpen}>
      <summary><span class=${`plan-action is-${action}`}>${ACTIONS[action] ?? ''} ${action}</span> <b>${object}</b> <span class="muted">${plural(fields.length + (omitted ?? 0), 'field')}</span></summary>
      <${Lines} lines=${fields.flatMap(linesOf)} label=${`What changes in ${object}`} />
    </details>
  </li>`;
}

/** A field before and after, as lines. */
function linesOf({ pointer, before, after }) {
  const said = (value) => yaml(value).split('\n');
  const lines = [[' ', pointer || '(the whole object)']];
  if (before !== undefined) lines.push(...said(before).map((line) => ['-', `  ${line}`]));
  if (after !== undefined) lines.push(...said(after).map((line) => ['+', `  ${line}`]));
  return lines;
}

function Addresses({ addresses }) {
  if (addresses.length === 0) return null;
  const of = (use) => (use ? html`${use.services.join(', ')}${use.nodes.length ? html`<span class="muted"> at ${use.nodes[0]}${use.nodes.length > 1 ? ` (then ${use.nodes.slice(1, 3).join(', ')}${use.nodes.length > 3 ? ', …' : ''})` : ''}</span>` : ''}` : html`<span class="muted">nobody</span>`);
  return html`<div class="plan-addresses">
    <h3>Addresses</h3>
    ${addresses.map(({ address, before, after }) => html`<p key=${address} data-address=${address}><code>${address}</code> ${of(before)} <span aria-label="becomes">→</span> ${of(after)}</p>`)}
  </div>`;
}

function rowOf(name, { preview, error }, asked) {
  if (!preview) return { name, error: error ?? 'not known', added: 0, removed: 0, announcements: 0, lines: [] };
  const { kernel = [], announcements = [], sessionResets = [], connectionsAtRisk, failures = [], omitted = 0 } = preview;
  const changed = (change) => kernel.filter((line) => line.change === change).length;
  return { name, asked, added: changed('added'), removed: changed('removed'), announcements: announcements.length, resets: sessionResets.length, sessionResets, risk: connectionsAtRisk, failures, omitted, kernel, announced: announcements };
}

/** A number of a node, counted in the answer to the question that was asked. */
const of = (row, key, shown) => (row.error ? shown : html`<${Field} path=${row.asked} at=${`/nodes/${row.name}/preview/${key}`}>${shown}<//>`);

function Nodes({ nodes, isShort }) {
  const [chosen, setChosen] = useState(undefined);
  const node = nodes.find(({ name }) => name === chosen) ?? nodes.find(({ added, removed, error }) => added + removed > 0 || error) ?? nodes[0];
  const columns = [
    { key: 'name', label: 'Node', width: '24%', by: (row) => row.name, words: (row) => row.name, show: (row) => (isShort ? html`<a href=${to(['nodes', row.name])}>${row.name}</a>` : html`<button type="button" class="quiet" aria-pressed=${row === node} onClick=${() => setChosen(row.name)}>${row.name}</button>`) },
    { key: 'added', label: 'Added', isNumber: true, width: '12%', by: (row) => row.added, show: (row) => of(row, 'kernel', row.added ? `+${count(row.added)}` : '0') },
    { key: 'removed', label: 'Removed', isNumber: true, width: '12%', by: (row) => row.removed, show: (row) => of(row, 'kernel', row.removed ? `−${count(row.removed)}` : '0') },
    { key: 'announcements', label: 'Announced', isNumber: true, isExtra: true, width: '13%', by: (row) => row.announcements, show: (row) => of(row, 'announcements', count(row.announcements)) },
    { key: 'risk', label: 'At risk', isNumber: true, isExtra: true, width: '12%', by: (row) => row.risk ?? -1, show: (row) => html`<span title="Established connections that would be cut or moved, where the node can tell">${count(row.risk)}</span>` },
    { key: 'said', label: 'Besides', by: (row) => row.error ?? '', show: (row) => html`<span class="muted" title=${said(row)}>${said(row)}</span>` },
  ];
  return html`<div class="plan-nodes">
    <h3>On every node</h3>
    <${Table} id="plan" label="Nodes" columns=${columns} rows=${nodes} keyOf=${(row) => row.name} hasFilter=${nodes.length > 12} />
    ${!isShort && node && html`<${NodeLines} node=${node} />`}
  </div>`;
}

/** What a write did on every node, as `GET /v1/history/{revision}/rules` says it. */
export const NodeRules = ({ nodes }) => html`<${Nodes} nodes=${Object.entries(nodes).map(([name, node]) => rowOf(name, node, 'the rules of this revision'))} />`;

const said = ({ error, failures = [], sessionResets = [] }) => [error, ...failures, ...sessionResets].filter(Boolean).join('; ');

/** The lines of the kernel's own listings that go and come on one node, by where they stand. */
function NodeLines({ node }) {
  const lines = [...(node.kernel ?? []), ...(node.announced ?? [])];
  const places = Object.groupBy(lines, ({ place }) => place);
  const shown = Object.entries(places).flatMap(([place, list]) => [[' ', place], ...list.map(({ change, line }) => [change === 'added' ? '+' : '-', `  ${line}`])]);
  return html`<div data-lines-of=${node.name}>
    <h3>${node.name}</h3>
    ${shown.length ? html`<${Lines} lines=${shown} label=${`Lines of ${node.name}`} />` : html`<p class="muted pad">${node.error ?? 'Nothing changes here.'}</p>`}
    ${node.omitted > 0 && html`<p class="muted pad">${plural(node.omitted, 'line')} more are not listed.</p>`}
  </div>`;
}
