// Words of conditions: one that is not met says what is not so.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { conditionWords } from '../../web/parts/condition.js';

test('a condition that is not met is named negatively', () => {
  assert.equal(conditionWords('Ready', 'False'), 'Not ready');
  assert.equal(conditionWords('Connected', 'False'), 'Not connected');
  assert.equal(conditionWords('EndpointsAvailable', 'False'), 'No endpoint available');
  assert.equal(conditionWords('AddressAssigned', 'False'), 'No address assigned');
});

test('one that is met or not known keeps its name', () => {
  assert.equal(conditionWords('EndpointsAvailable', 'True'), 'Endpoints available');
  assert.equal(conditionWords('Ready', 'Unknown'), 'Ready: not known');
});
