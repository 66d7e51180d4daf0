// Layout of the live map: bounded, with what is broken first.
import assert from 'node:assert/strict';
import { test } from 'node:test';

Object.assign(globalThis, { location: { hash: '' }, addEventListener: () => undefined });
const { chosen, keyOf, mapOf } = await import('../../web/parts/map-model.js');

const service = (name, more = {}) => ({ namespace: 'shop', name, type: 'ClusterIP', state: 'ok', addresses: ['10.96.0.1'], ports: ['80/TCP'], endpointsReady: 2, endpointsTotal: 2, ...more });
const node = (name, more = {}) => [name, { name, state: 'converged', addresses: 0, ...more }];
const address = (ip, services, owner, more = {}) => ({ metadata: { name: ip }, spec: { address: ip, services }, status: { owner, conditions: [{ type: 'Announced', status: owner ? 'True' : 'False', reason: 'NoCandidate', message: 'nobody may' }], ...more } });
const busy = (connections) => ({ of: { perSecond: { connections } } });
const endpoints = (...list) => ({ ports: [{ protocol: 'TCP', port: 80, endpoints: list.map(([ip, where, ready = true]) => ({ address: ip, node: where, ready })) }] });
const counted = (byNode, byEndpoint = {}) => ({ nodes: Object.fromEntries(Object.entries(byNode).map(([name, rate]) => [name, { total: { perSecond: { connections: rate } } }])), endpoints: Object.entries(byEndpoint).map(([ip, rate]) => ({ address: ip, perSecond: { connections: rate } })) });
const map = (more) => mapOf({ services: [], rest: [], nodes: new Map([node('n1'), node('n2')]), traffic: new Map(), addresses: [], details: new Map(), ...more });
const edge = (graph, from, to) => graph.edges.find((one) => one.from === from && one.to === to);

test('broken Services come first, then the busiest, and no more than eight', () => {
  const rows = [...Array.from({ length: 20 }, (_, at) => service(`s${at}`)), service('bad', { state: 'unreachable' }), service('off', { state: 'disabled' })];
  const { shown, rest } = chosen(rows, new Map([['shop/s7', busy(5)], ['shop/s3', busy(9)]]));
  assert.deepEqual(shown.slice(0, 3).map(({ name }) => name), ['bad', 's3', 's7']);
  assert.equal(shown.length, 8);
  assert.equal(shown.length + rest.length, 21);
});

test('an address leads to its announcer, that to the Service, and that to the machines of its endpoints', () => {
  const web = service('web', { type: 'LoadBalancer' });
  const graph = map({
    services: [web],
    addresses: [address('192.0.2.7', ['shop/web'], 'n1')],
    details: new Map([[keyOf(web), { traffic: counted({ n1: 4 }, { '10.1.0.1': 3, '10.1.0.2': 1 }), compiled: endpoints(['10.1.0.1', 'n1'], ['10.1.0.2', 'n2']) }]]),
  });
  assert.equal(edge(graph, 'address:192.0.2.7', 'node:n1').rate, 4);
  assert.equal(edge(graph, 'node:n1', 'service:shop/web').rate, 4);
  assert.equal(edge(graph, 'service:shop/web', 'host:n1').rate, 3);
  assert.equal(edge(graph, 'service:shop/web', 'host:n2').rate, 1);
  assert.ok(graph.edges.every(({ state }) => state === 'ok'));
});

test('only what is broken is so drawn, with the cause', () => {
  const [web, gone] = [service('web', { type: 'LoadBalancer' }), service('gone', { state: 'unreachable', reason: 'NoEndpoints' })];
  const graph = map({
    services: [web, gone],
    addresses: [address('192.0.2.7', ['shop/web'], undefined)],
    details: new Map([
      ['shop/web', { compiled: endpoints(['10.1.0.1', 'n1'], ['10.1.0.2', 'n2', false]) }],
      ['shop/gone', { compiled: endpoints() }],
    ]),
  });
  assert.equal(edge(graph, 'service:shop/web', 'host:n1').state, 'ok');
  assert.deepEqual([edge(graph, 'service:shop/web', 'host:n2').state, edge(graph, 'service:shop/web', 'host:n2').cause], ['unhealthy', '1 of 1 not ready']);
  assert.equal(graph.columns[3].find(({ id }) => id === 'host:(none)').state, 'down');
  const front = graph.columns[0].find(({ id }) => id === 'address:192.0.2.7');
  assert.deepEqual([front.state, front.reason], ['waiting', 'nobody may']);
});

test('a large cluster is summed up', () => {
  const rows = Array.from({ length: 5_000 }, (_, at) => service(`s${at}`, { type: 'LoadBalancer' }));
  const { shown, rest } = chosen(rows, new Map());
  const nodes = new Map(Array.from({ length: 500 }, (_, at) => node(`n${at}`, at === 400 ? { state: 'disconnected' } : {})));
  const details = new Map(shown.map((row) => [keyOf(row), { compiled: endpoints(...Array.from({ length: 60 }, (_, at) => [`10.1.0.${at}`, `n${at}`])) }]));
  const addresses = shown.flatMap((row, at) => [address(`192.0.2.${at}`, [keyOf(row)], `n${at}`), address(`198.51.100.${at}`, [keyOf(row)], `n${at + 20}`)]);
  const graph = map({ services: shown, rest, nodes, addresses, details });
  assert.ok(graph.columns.every((boxes) => boxes.length <= 9), graph.columns.map(({ length }) => length).join());
  assert.ok(graph.columns[1].some(({ id, state }) => id === 'node:n400' && state === 'disconnected'), 'what is lost is drawn');
  assert.equal(graph.columns[1].at(-1).title, '492 more nodes');
  assert.equal(graph.columns[2].at(-1).title, '4,992 more Services');
  const ids = new Set(graph.columns.flat().map(({ id }) => id));
  assert.ok(graph.edges.every(({ from, to }) => ids.has(from) && ids.has(to)), 'an edge without an end');
  assert.ok(graph.edges.length <= 9 * 9 * 3);
});
