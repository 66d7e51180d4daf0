// The way of packets through a Service, from clients to endpoints, as boxes in columns and edges between them. What is fine is
// grouped when it is much; what is not stands by itself. Pure.
import { plural } from '../core/format.js';
import { to, toObject } from '../core/route.js';
import { socketOf, worst } from './endpoints-model.js';
import { tone } from './state.js';

export const COLUMNS = ['Clients', 'Addresses', 'Announced by', 'Nodes', 'Endpoints'];

/** Up to so many that are fine are drawn one by one; more are a box together. */
const FINE_SINGLY_MAX = 8;
/** So many that are not fine are drawn one by one. */
const BAD_SINGLY_MAX = 8;
/** Addresses that are drawn one by one. */
const ADDRESSES_MAX = 8;

const isBad = ({ state }) => tone(state) !== 'ok' && state !== 'notChecked';
const isReady = ({ state }) => state === 'ready' || state === 'notChecked';

/**
 * The graph of a Service.
 * @param {{service: any, compiled: any, addresses?: any[], endpoints: any[], nodes: any[], explained?: any}} known `endpoints` and `nodes` are rows of
 *   endpoints-model.js, `addresses` objects of kind Address, none where one
 *   may not see them, `explained` the answer of `…/explain`
 * @returns {{columns: any[][], edges: any[]}}
 */
export function graphOf({ service, compiled, addresses, endpoints, nodes, explained }) {
  const fronts = frontsOf(service, compiled, addresses);
  const nodeBoxes = grouped(nodes, nodeBox, 'node', 'verified', to(['nodes']), BAD_SINGLY_MAX, new Set(fronts.flatMap(({ announcer }) => (announcer.nodes?.length === 1 ? announcer.nodes : []))));
  const endpointBoxes = grouped(byAddress(endpoints), endpointBox(explained), 'endpoint', 'ready', undefined, BAD_SINGLY_MAX, new Set());
  if (endpoints.length === 0) endpointBoxes.push(noEndpoint(service));
  const announcers = [...new Map(fronts.map(({ announcer }) => [announcer.id, announcer])).values()];
  const clients = [
    fronts.some(({ isInside }) => !isInside) && { id: 'client:outside', state: 'notice', title: 'Clients', note: allowedClients(compiled) },
    fronts.some(({ isInside }) => isInside) && { id: 'client:inside', state: 'notice', title: 'Workloads', note: 'inside' },
  ].filter(Boolean);
  const edges = [...frontEdges(fronts, nodeBoxes, explained), ...endpointEdges(nodes, endpoints, nodeBoxes, endpointBoxes, explained)];
  return { columns: [clients, fronts, announcers, nodeBoxes, endpointBoxes], edges: merged(edges) };
}

/** The clients outside of the cluster that may connect. */
function allowedClients(compiled) {
  const ranges = compiled?.sourceRanges ?? [];
  if (ranges.length === 0) return 'from anywhere';
  const entries = compiled.sourceRangesScope === 'LoadBalancerOnly' ? ', to load balancer addresses' : '';
  return `from ${ranges.join(', ')}${entries}`;
}

/** The addresses of a Service, each with who answers for it. */
function frontsOf(service, compiled, addresses) {
  const ports = (service.spec.ports ?? []).map(({ port, protocol = 'TCP' }) => `${port}/${protocol}`).join(' ');
  const nodePorts = (compiled?.ports ?? []).filter(({ nodePort }) => nodePort);
  const balanced = (service.status?.loadBalancer?.ingress ?? []).map(({ ip }, index) => {
    const object = addresses?.find(({ spec }) => spec.address === ip);
    return { address: ip, kind: 'load balancer', announcer: addresses ? announcerOf(ip, object) : UNSEEN, href: to(['addresses', ip]), at: ['service', `/status/loadBalancer/ingress/${index}/ip`] };
  });
  const wanted = service.spec.type === 'LoadBalancer' && balanced.length === 0 ? [missing(service)] : [];
  const routed = (service.spec.externalIPs ?? []).map((address, index) => ({ address, kind: 'external', announcer: ROUTED, at: ['service', `/spec/externalIPs/${index}`] }));
  const inside = (service.spec.clusterIPs ?? []).map((address, index) => ({ address, index })).filter(({ address }) => address !== 'None').map(({ address, index }) => ({ address, kind: 'cluster', isInside: true, announcer: EVERY, at: ['service', `/spec/clusterIPs/${index}`] }));
  const all = [...wanted, ...balanced, ...routed, ...inside].map((front) => ({ id: `address:${front.address}`, state: front.announcer.state, title: front.address, note: `${front.kind} · ${ports}`, href: to(['explain'], { destination: front.address }), ...front }));
  const shown = all.slice(0, ADDRESSES_MAX);
  if (all.length > shown.length) shown.push({ id: 'address:more', state: worst(all.slice(ADDRESSES_MAX).map(({ state }) => state)), title: `+ ${plural(all.length - shown.length, 'address', 'addresses')}`, announcer: EVERY, isGroup: true });
  if (nodePorts.length) shown.push({ id: 'address:nodeport', state: 'ok', title: nodePorts.length === 1 ? `Node port ${nodePorts[0].nodePort}` : 'Node ports', note: nodePorts.length === 1 ? 'every node' : nodePorts.map(({ nodePort }) => nodePort).join(', '), announcer: EVERY, nodePorts: nodePorts.map(({ nodePort }) => nodePort), isInside: false });
  return shown;
}

const EVERY = { id: 'every', state: 'ok', title: 'Every node', note: 'answers by itself' };
const UNSEEN = { id: 'unseen', state: 'unknown', title: 'Not known', note: 'addresses cannot be read' };
const ROUTED = { id: 'routed', state: 'notice', title: 'Your network', note: 'routes it to nodes' };

function missing(service) {
  const assigned = service.status?.conditions?.find(({ type }) => type === 'AddressAssigned');
  return { address: 'No address', kind: 'load balancer', announcer: { id: 'nobody', state: 'down', title: 'Nobody', reason: assigned?.message ?? 'it has no address yet', nodes: [] }, state: 'down', href: undefined };
}

function announcerOf(ip, object) {
  const { status } = object ?? {};
  const condition = status?.conditions?.find(({ type }) => type === 'Announced');
  const reason = condition && condition.status !== 'True' ? condition.message || condition.reason : undefined;
  const path = `/v1/addresses/${ip}`;
  if (status?.owner) {
    const { owner, nodes = {} } = status;
    const said = nodes[owner];
    const standby = Object.values(nodes).filter(({ role }) => role === 'Standby').length;
    const state = said?.conflict ? 'conflicting' : reason ? 'down' : 'ok';
    const how = ip.includes(':') ? 'NDP' : 'ARP';
    return { id: `l2:${owner}`, state, title: owner, note: `${how}${said?.interfaces?.length ? ` ${said.interfaces.join(', ')}` : ''}${standby ? ` · ${standby} stand by` : ''}`, reason: said?.conflict ? `${said.conflict.node ?? said.conflict.mac} answers as well` : reason, href: toObject({ kind: 'Node', name: owner }), nodes: [owner], at: [path, '/status/owner'] };
  }
  const bgp = status?.byBgp;
  if (bgp?.routers) {
    const not = Object.entries(bgp.notBy ?? {});
    const who = `BGP, by ${plural(bgp.nodes, 'node')}${not.length ? `, not by ${not.length}` : ''}`;
    return { id: `bgp:${(bgp.announcedTo ?? [bgp.routers]).join()}`, state: reason ? 'atRisk' : 'ok', title: plural(bgp.routers, 'router'), note: who, detail: [`${who}:`, ...(bgp.announcedTo ?? []), ...not.map(([node, why]) => `not by ${node}: ${why}`)].join('\n'), reason, href: to(['bgp']), nodes: bgp.announcedBy ?? [], at: [path, '/status/byBgp/routers'] };
  }
  if (reason) return { id: `nobody:${ip}`, state: 'down', title: 'Nobody', reason, nodes: [], href: to(['addresses', ip]) };
  return ROUTED;
}

function nodeBox(row) {
  const words = { Verified: 'verified', Applied: 'applied, not read back', Received: 'received, not applied', Pending: 'not received yet', Failed: 'failed' };
  return { id: `node:${row.name}`, state: row.state, title: row.name, note: [row.mode, row.state === 'disconnected' ? 'agent is silent' : words[row.phase]].filter(Boolean).join(' · '), reason: isBad(row) ? row.message || row.reason : undefined, href: toObject({ kind: 'Node', name: row.name }), rate: row.traffic?.total?.perSecond?.connections, rateAt: row.traffic && `/nodes/${row.name}/total/perSecond/connections`, names: [row.name] };
}

/** The ports of an address are one box: most often they are one workload. */
function byAddress(rows) {
  const units = [...Map.groupBy(rows, ({ address }) => address).values()];
  return units.map((of) => ({ rows: of, state: worst(of.map(({ state }) => state)) }));
}

const endpointBox = (explained) => ({ rows, state }) => {
  const row = rows.find((one) => one.state === state);
  const rates = rows.map(({ traffic }) => traffic?.of.perSecond?.connections).filter((rate) => rate !== undefined && rate !== null);
  const isOne = rows.length === 1;
  const ports = rows.map(({ port, protocol }) => `${port}/${protocol}`).join(' ');
  const counted = { rate: isOne ? rates[0] : undefined, rateAt: row.traffic && `/endpoints/${row.traffic.at}/perSecond/connections`, sum: !isOne && rates.length ? total(rates) : undefined };
  return {
    id: `endpoint:${isOne ? row.key : row.address}`, state, title: isOne ? row.socket : row.address, note: [isOne ? (row.protocol === 'TCP' ? '' : row.protocol) : ports, row.node, row.zone, isBad({ state }) || state === 'notChecked' ? row.text.toLowerCase() : `weight ${row.weight}`].filter(Boolean).join(' · '), reason: isBad({ state }) ? row.reason : undefined,
    ...counted, names: rows.map(({ key }) => key), isDrained: state === 'draining' || state === 'disabled', href: explainOf((explained?.paths ?? []).find(({ candidates = [] }) => candidates.some((one) => socketOf(one.address, one.port) === row.socket)), row.socket),
  };
};

const total = (numbers) => numbers.reduce((all, number) => all + number, 0);

/** What is fine as one box when it is much; what is not each by itself, and the rest of it as one. */
function grouped(rows, boxOf, noun, word, href, badMax, singly) {
  const bad = rows.filter((row) => isBad(row) || singly.has(row.name));
  const fine = rows.filter((row) => !isBad(row) && !singly.has(row.name));
  const boxes = bad.slice(0, badMax).map(boxOf);
  const rest = bad.slice(badMax);
  if (rest.length) boxes.push(together(rest, boxOf, `${noun}s:bad`, `+ ${plural(rest.length, noun)}`, 'not as they should be', href));
  if (fine.length <= FINE_SINGLY_MAX) boxes.push(...fine.map(boxOf));
  else boxes.push(together(fine, boxOf, `${noun}s:fine`, `${bad.length ? '+ ' : ''}${plural(fine.length, noun)}`, word, href));
  return boxes;
}

function together(rows, boxOf, id, title, note, href) {
  const boxes = rows.map(boxOf);
  const rates = boxes.map(({ rate, sum }) => rate ?? sum).filter((rate) => rate !== undefined && rate !== null);
  return { id, title, note, href, isGroup: true, state: worst(boxes.map(({ state }) => state)), names: boxes.flatMap(({ names }) => names), sum: rates.length ? total(rates) : undefined };
}

/** Where an edge leads: the explanation of a packet that goes that way. */
function explainOf(path, endpoint) {
  if (!path) return undefined;
  const { source, destination, protocol, port } = path.packet;
  return to(['explain'], { source, destination, protocol, port: String(port), node: path.node, endpoint });
}

/** From clients to addresses, from those to who announces them, and on to nodes. */
function frontEdges(fronts, nodeBoxes, explained) {
  const paths = explained?.paths ?? [];
  const edges = [];
  for (const front of fronts) {
    const { announcer } = front;
    const own = (path) => path.packet.destination === front.address || front.nodePorts?.includes(path.packet.port);
    const href = front.nodePorts ? explainOf(paths.find(own)) : front.address?.includes(' ') ? undefined : to(['explain'], { destination: front.address });
    const client = front.isInside ? 'client:inside' : 'client:outside';
    edges.push({ from: client, to: front.id, state: front.state === 'down' ? 'down' : 'ok', href });
    edges.push({ from: front.id, to: announcer.id, state: announcer.state === 'notice' ? 'ok' : announcer.state, href, cause: isBad(announcer) && announcer.state !== 'notice' ? announcer.reason : undefined });
    for (const box of nodeBoxes) {
      const reached = announcer.nodes ? box.names.filter((name) => announcer.nodes.includes(name)) : box.names;
      if (reached.length === 0) continue;
      const ways = paths.filter((one) => own(one) && reached.includes(one.node));
      const broken = ways.find(({ steps = [] }) => steps.some(({ state }) => state === 'Broken'));
      const isSingle = box.names.length === 1;
      const href = explainOf(broken ?? ways[0]) ?? to(['explain'], { destination: front.address, node: isSingle ? box.names[0] : undefined });
      const cause = isBad(box) ? isSingle && box.reason : broken && `port ${broken.packet.port}: ${broken.steps.find(({ state }) => state === 'Broken').outcome}`;
      // What the policy drops there is no fault of the node.
      edges.push({ from: announcer.id, to: box.id, state: isBad(box) || !broken ? box.state : 'atRisk', href, cause: cause || undefined });
    }
  }
  return edges;
}

/** From nodes to the endpoints that they give packets to, as the explanation of the desired state has it. */
function endpointEdges(nodes, endpoints, nodeBoxes, endpointBoxes, explained) {
  if (endpoints.length === 0) return nodeBoxes.map(({ id }) => ({ from: id, to: NO_ENDPOINT, state: 'down', cause: endpointBoxes[0].note ?? 'no endpoint', href: explainOf(explained?.paths?.[0]) }));
  const boxOfNode = new Map(nodeBoxes.flatMap((box) => box.names.map((name) => [name, box])));
  const boxOfEndpoint = new Map(endpointBoxes.flatMap((box) => box.names.map((name) => [name, box])));
  const said = candidatesByNode(explained);
  // Nodes times endpoints are many; what is drawn of them is not, so they are summed up at once.
  const edges = new Map();
  const alike = new Set();
  for (const node of nodes) {
    const known = said.get(node.name);
    // Of nodes of one box of which nothing more is known, one says all.
    const kind = !known && !node.traffic && `${boxOfNode.get(node.name).id} ${node.state}`;
    if (kind && alike.has(kind)) continue;
    alike.add(kind);
    const isLocal = known !== undefined && endpoints.some((row) => isReady(row) && row.node !== node.name && known.get(row.socket)?.used === false);
    const counted = node.traffic && new Map(node.traffic.endpoints.map((one) => [`${one.protocol} ${socketOf(one.address, one.port)}`, one.perSecond?.connections]));
    const from = boxOfNode.get(node.name).id;
    for (const row of endpoints) {
      const candidate = known?.get(row.socket);
      const isUsed = candidate ? candidate.used : row.ready;
      if (!isUsed && (isReady(row) || (isLocal && row.node !== node.name))) continue;
      add(edges, { from, box: boxOfEndpoint.get(row.key), row, node, candidate, rate: counted?.get(row.key) });
    }
  }
  return [...edges.values()].map(({ candidate, socket, ...edge }) => ({ ...edge, href: explainOf(candidate?.path, socket) }));
}

/** Adds what a node gives an endpoint to the edge between their boxes. */
function add(edges, { from, box, row, node, candidate, rate }) {
  const id = `${from} → ${box.id}`;
  const state = box.isDrained ? 'draining' : isBad(row) ? row.state : tone(node.state) === 'worst' ? 'unknown' : 'ok';
  let edge = edges.get(id);
  if (!edge) edges.set(id, (edge = { from, to: box.id, state, isDashed: Boolean(box.isDrained), cause: undefined, rate: undefined }));
  else if (edge.state !== state) edge.state = worst([edge.state, state]);
  if (isBad(row) && !box.isGroup) edge.cause ??= row.reason || row.text;
  if (candidate && !edge.candidate) Object.assign(edge, { candidate, socket: row.socket });
  if (rate !== undefined && rate !== null) edge.rate = (edge.rate ?? 0) + rate;
}

/** What stands where endpoints should be. */
function noEndpoint(service) {
  const available = service.status?.conditions?.find(({ type }) => type === 'EndpointsAvailable');
  return { id: NO_ENDPOINT, state: 'down', title: 'No endpoint', note: available?.reason, reason: available?.message || 'there is none', names: [] };
}
const NO_ENDPOINT = 'endpoint:none';

/** What each node does with each endpoint; it uses it when it does for any of the Service's addresses. */
function candidatesByNode(explained) {
  const nodes = new Map();
  for (const path of explained?.paths ?? []) {
    // Endpoints beyond those that are listed are not known.
    if (path.candidatesOmitted > 0) continue;
    const of = nodes.get(path.node) ?? new Map();
    nodes.set(path.node, of);
    for (const { address, port, used, why } of path.candidates ?? []) {
      const socket = socketOf(address, port);
      if (!of.get(socket)?.used) of.set(socket, { used, why, path });
    }
  }
  return nodes;
}

/** Edges between the same boxes are one. */
function merged(edges) {
  const all = new Map();
  for (const edge of edges) {
    const id = `${edge.from} → ${edge.to}`;
    const known = all.get(id);
    if (!known) all.set(id, { ...edge, id });
    else {
      known.state = worst([known.state, edge.state]);
      known.isDashed = known.isDashed && edge.isDashed;
      known.cause ??= edge.cause;
      known.href ??= edge.href;
      if (edge.rate !== undefined) known.rate = (known.rate ?? 0) + edge.rate;
    }
  }
  return [...all.values()];
}
