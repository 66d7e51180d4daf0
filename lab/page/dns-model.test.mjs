// Sums over the reports of DNS servers.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { busiestNames, perSecondOf, stateOfServer } from '../../web/parts/dns-model.js';

const server = (...names) => ({ report: { names: { names } } });

test('names of several servers are added, and failures come before names that do not exist', () => {
  const one = server({ name: 'web', questions: 10, missing: 0, failed: 0 }, { name: 'no', questions: 50, missing: 50 });
  const other = server({ name: 'web', questions: 55, failed: 1 }, { name: 'down', questions: 3, failed: 3 });
  const shown = (isFailing) => busiestNames([one, other, { report: { names: {} } }], isFailing).map((row) => [row.name, row.questions, row.missing, row.failed, row.servers]);
  assert.deepEqual(shown(false), [['web', 65, 0, 1, 2], ['no', 50, 50, 0, 1], ['down', 3, 0, 3, 1]]);
  assert.deepEqual(shown(true).map(([name]) => name), ['down', 'web', 'no']);
});

test('a server without a report is shown as such, and one with another problem is at risk', () => {
  assert.equal(stateOfServer({}), 'ok');
  assert.equal(stateOfServer({ problems: ['no report since 2026-02-13T16:26:40Z: the server is down'] }), 'disconnected');
  assert.equal(stateOfServer({ problems: ['upstream server 192.0.2.1:53 does not respond'] }), 'atRisk');
});

test('a rate needs a period', () => {
  assert.equal(perSecondOf({ seconds: 60, total: { questions: 120 } }), 2);
  assert.equal(perSecondOf({ seconds: 0, total: { questions: 120 } }), 0);
});
