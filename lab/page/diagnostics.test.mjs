// Text of the button that copies diagnostics.
import assert from 'node:assert/strict';
import { test } from 'node:test';

const { diagnostics } = await import('../../web/parts/diagnostics-model.js');

const page = { path: '#/services', agent: 'Browser 1', now: new Date(0), size: '1024x768' };

test('the versions, the position and the problems are in the text', () => {
  const problem = { kind: 'Service', namespace: 'shop', name: 'cart', impact: 'unreachable', reason: 'NoEndpoints', message: 'none', id: 'x' };
  const doc = { version: '0.2.0', position: '1-7', problems: Array.from({ length: 30 }, () => problem), replica: { name: 'c1' } };
  const said = JSON.parse(diagnostics({ state: 'live', doc }, page));
  assert.deepEqual([said.tidegate, said.position, said.replica, said.page.connection], ['0.2.0', '1-7', 'c1', 'live']);
  assert.equal(said.problems.length, 20);
  assert.equal(said.problemsTotal, 30);
  assert.equal(said.problems[0].object, 'Service/shop/cart');
});

test('without a server the text says why', () => {
  const said = JSON.parse(diagnostics({ state: 'lost', error: { problem: { code: 'Unavailable' } } }, page));
  assert.deepEqual([said.page.connection, said.page.error, said.problems], ['lost', 'Unavailable', []]);
});
