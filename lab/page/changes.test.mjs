// Folding of the history: people first, with what the cluster did because of it.
import assert from 'node:assert/strict';
import { test } from 'node:test';

Object.assign(globalThis, { location: { hash: '' }, addEventListener: () => undefined });
const { did, folded, marksOf } = await import('../../web/parts/changes-model.js');

const write = (revision, maker, seconds, more = {}) => ({ revision, maker, author: maker === 'client' ? 'ana' : 'tidegate', at: new Date(Date.UTC(2026, 10, 29, 5, 0, seconds)).toISOString(), changes: [{ kind: 'MODIFIED', object: { kind: 'Address', name: '192.0.2.7' } }], ...more });

test('what the cluster writes soon after a person is folded under it, newest first', () => {
  const { people, own } = folded([write(5, 'server', 12), write(4, 'server', 11), write(3, 'client', 10), write(2, 'client', 5), write(1, 'agent', 0)]);
  assert.deepEqual(people.map(({ change }) => change.revision), [3, 2]);
  assert.deepEqual(people[0].followed.map(({ revision }) => revision), [5, 4]);
  assert.deepEqual(people[1].followed, []);
  assert.deepEqual(own.map(({ revision }) => revision), [1]);
});

test('what happens later is of the cluster itself', () => {
  const { people, own } = folded([write(3, 'server', 600), write(2, 'server', 599), write(1, 'client', 0)]);
  assert.deepEqual(people[0].followed, []);
  assert.deepEqual(own.map(({ revision }) => revision), [3, 2]);
});

test('a write names its first object and how many more', () => {
  assert.equal(did(write(1, 'client', 0)), 'changed Address 192.0.2.7');
  assert.equal(did({ changes: [{ kind: 'ADDED', object: { kind: 'Service', namespace: 'shop', name: 'cart' } }], changesTotal: 3 }), 'created Service shop/cart and 2 more');
  assert.equal(did({}), '');
});

test('marks of charts are the writes of people', () => {
  const marks = marksOf({ items: [write(2, 'server', 9), write(1, 'client', 5, { message: 'release' })] });
  assert.deepEqual(marks.map(({ label, href }) => [label, href]), [['r1 by ana: release', '#/history/1']]);
  assert.deepEqual(marksOf(undefined), []);
});
