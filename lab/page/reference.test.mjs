// The reference of the API, made of the checked-in OpenAPI document.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { bodiesOf, curlOf, fieldsOf, groupsOf, typeOf } from '../../web/docs/model.js';

const read = (name) => JSON.parse(readFileSync(new URL(`../../openapi/${name}.json`, import.meta.url)));
const users = read('tidegate-v1');

test('subjects come in the order in which one needs them, and no operation is lost', () => {
  const groups = groupsOf(users);
  assert.deepEqual(groups.slice(0, 4).map(({ name }) => name), ['Service', 'EndpointSet', 'Workload', 'Node']);
  const all = Object.values(users.paths).flatMap((item) => Object.keys(item).filter((key) => ['get', 'post', 'put', 'patch', 'delete'].includes(key)));
  assert.equal(groups.reduce((sum, { operations }) => sum + operations.length, 0), all.length);
});

test('every operation of both documents has a command, and every body an example', () => {
  for (const document of [users, read('tidegate-agent-v1')])
    for (const operation of groupsOf(document).flatMap(({ operations }) => operations)) {
      const body = bodiesOf(document, operation);
      const curl = curlOf(document, operation, 'http://control:7440', body && { type: body.type, value: body.examples[0].value });
      assert.ok(!/[{}]/.test(curl.split("'")[1]), curl);
      if (operation.requestBody) assert.notEqual(body.examples[0].value, undefined, operation.id);
    }
});

test('what one does with every kind comes first', () => {
  const [service] = groupsOf(users);
  assert.deepEqual(service.operations.slice(0, 2).map(({ id }) => id), ['createService', 'listServices']);
});

test('a Service has its fields and types', () => {
  const service = { $ref: '#/components/schemas/Service' };
  assert.ok(fieldsOf(users, service).some(({ name }) => name === 'spec'));
  assert.equal(typeOf(users, service), 'Service');
  assert.match(typeOf(users, { type: 'array', items: service }), /array of Service/);
});

test('an example of the document comes before one that is made', () => {
  const operation = { requestBody: { content: { 'application/json': { schema: { type: 'object' }, examples: { small: { summary: 'Small', value: { a: 1 } } } } } } };
  assert.deepEqual(bodiesOf(users, operation).examples, [{ name: 'Small', value: { a: 1 } }]);
});
