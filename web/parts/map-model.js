// The cluster as one drawing: addresses, the nodes that answer for them, the Services behind, and where their endpoints are.
// What is broken comes first, then what is busiest; the rest is summed up. Pure.
import { plural } from '../core/format.js';
import { to } from '../core/route.js';
import { worst } from './endpoints-model.js';
import { tone } from './state.js';

export const COLUMNS = ['Addresses', 'Nodes', 'Services', 'Endpoints on'];

/** Boxes of a column; what is beyond them is one box more. */
const SERVICES_MAX = 8;
const BOXES_MAX = 8;

/** The box of all addresses for clients inside. */
const INSIDE = 'address:inside';

/** States of a Service, from the worst on. */
const ORDER = ['unreachable', 'degraded', 'atRisk', 'unknown', 'ok'];

export const keyOf = ({ namespace, name }) => `${namespace}/${name}`;
const rateOf = (counts) => counts?.perSecond?.connections ?? 0;

/**
 * The Services that are drawn: those that are broken first, then the busiest, then those with an address for clients outside.
 * @param {any[]} rows of the overview
 * @param {Map<string, {of: any}>} traffic by namespace/name
 * @returns {{shown: any[], rest: any[]}}
 */
export function chosen(rows, traffic) {
  const weight = (row) => [ORDER.indexOf(row.state), -rateOf(traffic.get(keyOf(row))?.of), row.type === 'LoadBalancer' ? 0 : 1];
  const sorted = rows
    .filter(({ state, type }) => state !== 'disabled' && type !== 'ExternalName')
    .map((row) => ({ row, weight: weight(row), key: keyOf(row) }))
    .sort((a, b) => a.weight[0] - b.weight[0] || a.weight[1] - b.weight[1] || a.weight[2] - b.weight[2] || (a.key < b.key ? -1 : 1))
    .map(({ row }) => row);
  return { shown: sorted.slice(0, SERVICES_MAX), rest: sorted.slice(SERVICES_MAX) };
}

/**
 * The map.
 * @param {{services: any[], rest: any[], nodes: Map<string, any>, traffic: Map<string, {of: any}>, addresses?: any[], details: Map<string, {traffic?: any, compiled?: any}>}} known
 *   `services` those that are drawn, `rest` the others; `addresses` objects of kind Address, none where one may not see them; `details` of each Service
 * @returns {{columns: any[][], edges: any[]}} as parts/path.js draws it
 */
export function mapOf({ services, rest, nodes, traffic, addresses, details }) {
  const edges = new Edges();
  const fronts = frontsOf(services, addresses);
  const frontColumn = limited(fronts);
  const counted = new Map(services.map((row) => [keyOf(row), ratesByNode(details.get(keyOf(row))?.traffic)]));
  const nodeColumn = nodesOf(nodes, fronts, counted);
  for (const row of services) {
    const own = fronts.filter(({ keys }) => keys.includes(keyOf(row)));
    frontEdges({ row, own, rates: counted.get(keyOf(row)), frontColumn, nodeColumn, edges });
  }
  const hosts = hostsOf(services, details);
  for (const { row, host, ready, total, rate, isDrained } of hosts.parts) hostEdge({ row, box: hosts.boxOf(host), ready, total, rate, isDrained, edges });
  const serviceBoxes = services.map((row) => serviceBox(row, traffic.get(keyOf(row))?.of));
  if (rest.length) serviceBoxes.push({ id: 'service:more', state: worst(rest.map(({ state }) => state)), title: `${plural(rest.length, 'more Service', 'more Services')}`, note: 'all Services', isGroup: true, href: to(['services']), names: [] });
  const all = edges.all();
  // Of what is used from inside nothing is known without traffic.
  const boxes = frontColumn.boxes.filter(({ id }) => id !== INSIDE || all.some(({ from }) => from === id));
  return { columns: [boxes, nodeColumn.boxes, serviceBoxes, hosts.boxes], edges: all };
}

/** Edges by their ends; what two say of the same edge is put together. */
class Edges {
  #edges = new Map();

  add(from, to_, { state = 'ok', rate, cause, href, isDashed = false }) {
    const id = `${from} → ${to_}`;
    const known = this.#edges.get(id);
    if (!known) this.#edges.set(id, { id, from, to: to_, state, rate, cause, href, isDashed });
    else {
      known.state = worst([known.state, state]);
      known.cause ??= cause;
      known.isDashed &&= isDashed;
      if (rate !== undefined) known.rate = (known.rate ?? 0) + rate;
    }
  }

  all() {
    return [...this.#edges.values()];
  }
}

function serviceBox(row, counts) {
  const { state, name, namespace, reason, endpointsNotChecked, endpointsTotal } = row;
  const isUnchecked = state === 'ok' && endpointsTotal > 0 && endpointsNotChecked === endpointsTotal;
  return { id: `service:${keyOf(row)}`, state, title: name, note: `${namespace}${isUnchecked ? ' · not checked' : ''}`, reason: state === 'ok' ? undefined : reason?.replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`), sum: counts?.perSecond ? rateOf(counts) : undefined, href: to(['services', namespace, name]), names: [] };
}

/** The boxes of addresses: one for each that clients outside use, and one for what is used from inside only. */
function frontsOf(services, addresses) {
  const fronts = new Map();
  const put = (id, front, key) => {
    if (fronts.has(id)) fronts.get(id).keys.push(key);
    else fronts.set(id, { id, names: [], keys: [key], ...front });
  };
  for (const row of services) {
    const key = keyOf(row);
    const own = addresses?.filter(({ spec }) => spec.services.includes(key)) ?? [];
    for (const object of own) put(`address:${object.spec.address}`, addressBox(object), key);
    if (own.length) continue;
    if (row.type === 'LoadBalancer' && !addresses && row.addresses.length) put(`address:${row.addresses[0]}`, { state: 'unknown', title: row.addresses[0], note: 'announcer not known', nodes: [], href: to(['services', row.namespace, row.name]) }, key);
    else if (row.type === 'LoadBalancer') put(`address:none:${key}`, { state: 'waiting', title: 'No address yet', note: key, nodes: [], href: to(['services', row.namespace, row.name]) }, key);
    else put(INSIDE, { state: 'notice', title: 'Cluster IPs', note: 'for clients inside', nodes: undefined, href: to(['services']) }, key);
  }
  return [...fronts.values()];
}

function addressBox({ spec, status = {}, metadata }) {
  const announced = status.conditions?.find(({ type }) => type === 'Announced');
  const isBad = announced && announced.status !== 'True';
  const state = !announced ? 'unknown' : !isBad ? 'announced' : ['Conflict', 'TwoOwners'].includes(announced.reason) ? 'conflicting' : 'waiting';
  const nodes = status.owner ? [status.owner] : (status.byBgp?.announcedBy ?? []);
  const how = status.owner ? (spec.address.includes(':') ? 'NDP' : 'ARP') : status.byBgp ? 'BGP' : 'nobody announces it';
  return { state, title: spec.address, note: how, reason: isBad ? announced.message || announced.reason : undefined, nodes, href: to(['addresses', metadata.name]) };
}

/** The addresses that are drawn one by one; the rest is a box. */
function limited(fronts) {
  const shown = fronts.length > BOXES_MAX + 1 ? fronts.slice(0, BOXES_MAX) : fronts;
  const rest = fronts.slice(shown.length);
  if (rest.length === 0) return { boxes: shown, boxOf: ({ id }) => id };
  const more = { id: 'address:more', state: worst(rest.map(({ state }) => state)), title: `${plural(rest.length, 'more address', 'more addresses')}`, note: 'all addresses', isGroup: true, href: to(['addresses']), names: [] };
  return { boxes: [...shown, more], boxOf: (front) => (shown.includes(front) ? front.id : more.id) };
}

/** New connections a second of each node that counted some. */
const ratesByNode = (traffic) => new Map(Object.entries(traffic?.nodes ?? {}).map(([name, { total }]) => [name, rateOf(total)]).filter(([, rate]) => rate > 0));

/** The nodes that are drawn: those that are not well, those that announce or forward something, then others. */
function nodesOf(nodes, fronts, counted) {
  const used = new Set([...fronts.flatMap((front) => front.nodes ?? []), ...[...counted.values()].flatMap((rates) => [...rates.keys()])]);
  const rank = ({ name, state }) => (state !== 'converged' ? 0 : used.has(name) ? 1 : 2);
  const rows = [...nodes.values()].sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1));
  const shown = rows.length > BOXES_MAX + 1 ? rows.slice(0, BOXES_MAX) : rows;
  const rest = rows.slice(shown.length);
  const boxes = [...shown].sort((a, b) => (a.name < b.name ? -1 : 1)).map((row) => ({ id: `node:${row.name}`, state: row.state, title: row.name, note: row.addresses ? plural(row.addresses, 'address', 'addresses') : 'no address', reason: row.state === 'converged' ? undefined : row.reason?.replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`), href: to(['nodes', row.name]), names: [] }));
  if (rest.length) boxes.push({ id: 'node:more', state: worst(rest.map(({ state }) => state)), title: plural(rest.length, 'more node'), note: 'all nodes', isGroup: true, href: to(['nodes']), names: [] });
  const singly = new Set(shown.map(({ name }) => name));
  return { boxes, boxOf: (name) => (singly.has(name) ? `node:${name}` : rest.length ? 'node:more' : undefined), stateOf: (name) => nodes.get(name)?.state };
}

/** From its addresses to a Service. A node that only could forward for it, and counted nothing, has no edge. */
function frontEdges({ row, own, rates, frontColumn, nodeColumn, edges }) {
  const service = `service:${keyOf(row)}`;
  const href = to(['services', row.namespace, row.name]);
  const isDown = row.state === 'unreachable';
  const reached = new Set();
  for (const front of own) {
    for (const name of front.nodes ?? rates.keys()) {
      const box = nodeColumn.boxOf(name);
      if (!box) continue;
      const isLost = tone(front.state) === 'bad' || nodeColumn.stateOf(name) === 'disconnected';
      edges.add(frontColumn.boxOf(front), box, { state: isLost ? 'down' : 'ok', rate: rates.get(name), cause: isLost ? (front.reason ?? 'node is disconnected') : undefined, href: front.href });
      reached.add(name);
    }
  }
  for (const name of new Set([...reached, ...rates.keys()])) {
    const box = nodeColumn.boxOf(name);
    if (box) edges.add(box, service, { state: isDown ? 'down' : 'ok', rate: rates.get(name), cause: isDown ? row.reason : undefined, href });
  }
}

/** Where endpoints are: a box for each machine that has some, and what each Service has there. */
function hostsOf(services, details) {
  const parts = services.flatMap((row) => partsOf(row, details.get(keyOf(row))));
  const sums = new Map();
  for (const { host, ready, total, rate } of parts) {
    const sum = sums.get(host) ?? { host, ready: 0, total: 0, rate: 0 };
    sums.set(host, { host, ready: sum.ready + ready, total: sum.total + total, rate: sum.rate + (rate ?? 0) });
  }
  const rank = (one) => (one.ready < one.total ? 0 : 1);
  const sorted = [...sums.values()].sort((a, b) => rank(a) - rank(b) || b.rate - a.rate || b.total - a.total);
  const shown = sorted.length > BOXES_MAX + 1 ? sorted.slice(0, BOXES_MAX) : sorted;
  const rest = sorted.slice(shown.length);
  const boxes = shown.sort((a, b) => (a.host < b.host ? -1 : 1)).map(hostBox);
  if (rest.length) boxes.push({ id: 'host:more', state: rest.some((one) => rank(one) === 0) ? 'unhealthy' : 'ready', title: plural(rest.length, 'more node'), note: plural(rest.reduce((sum, { total }) => sum + total, 0), 'endpoint'), isGroup: true, names: [] });
  const singly = new Set(shown.map(({ host }) => host));
  return { parts, boxes, boxOf: (host) => (singly.has(host) ? `host:${host}` : 'host:more') };
}

/** Where the endpoints of a Service are; of one without any that there is none. */
function partsOf(row, detail) {
  if (!detail?.compiled) return [];
  const rates = new Map((detail.traffic?.endpoints ?? []).map((one) => [one.address, rateOf(one)]));
  const seen = new Map();
  for (const endpoint of (detail.compiled.ports ?? []).flatMap(({ endpoints = [] }) => endpoints)) {
    const known = seen.get(endpoint.address);
    if (!known || !endpoint.ready) seen.set(endpoint.address, endpoint);
  }
  if (seen.size === 0) return [{ row, host: NOWHERE, ready: 0, total: 0, rate: undefined }];
  const hosts = new Map();
  for (const { address, node, ready, maintenance } of seen.values()) {
    const host = node ?? OUTSIDE;
    const part = hosts.get(host) ?? { row, host, ready: 0, total: 0, rate: 0, isDrained: true };
    hosts.set(host, { ...part, ready: part.ready + (ready || maintenance ? 1 : 0), total: part.total + 1, rate: part.rate + (rates.get(address) ?? 0), isDrained: part.isDrained && Boolean(maintenance) });
  }
  return [...hosts.values()];
}

/** Names that no node has. */
const NOWHERE = '(none)';
const OUTSIDE = '(elsewhere)';

function hostBox({ host, ready, total }) {
  if (host === NOWHERE) return { id: `host:${host}`, state: 'down', title: 'No endpoint', note: 'nothing to connect to', names: [] };
  const isBad = ready < total;
  return { id: `host:${host}`, state: isBad ? 'unhealthy' : 'ready', title: host === OUTSIDE ? 'Other machines' : host, note: isBad ? `${ready} of ${plural(total, 'endpoint')}` : plural(total, 'endpoint'), names: [], href: host === OUTSIDE ? undefined : to(['nodes', host]) };
}

function hostEdge({ row, box, ready, total, rate, isDrained, edges }) {
  const isBad = ready < total || total === 0;
  const cause = total === 0 ? 'no endpoint' : isBad ? `${total - ready} of ${total} not ready` : undefined;
  edges.add(`service:${keyOf(row)}`, box, { state: isBad ? 'unhealthy' : isDrained ? 'draining' : 'ok', isDashed: isDrained && !isBad, rate, cause, href: to(['services', row.namespace, row.name]) });
}
