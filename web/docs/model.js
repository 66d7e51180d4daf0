// The OpenAPI document as it is read: operations by subject in the order in which one needs them, and an example of each body. Pure.

/** Subjects in the order in which one meets them; others follow. */
const ORDER = ['Service', 'EndpointSet', 'Workload', 'Node', 'AddressPool', 'Address', 'Advertisement', 'BgpPeer', 'BfdProfile', 'DnsZone', 'Gateway', 'HttpRoute', 'TlsRoute', 'Certificate', 'WorkloadNetwork', 'NetworkPolicy', 'Block', 'Attachment', 'BGP', 'EndpointHealth', 'Cluster', 'Security', 'Server'];
const METHODS = ['get', 'post', 'put', 'patch', 'delete'];
/** What one does with every kind of object, which comes before what only one kind has. */
const PLAIN = ['create', 'list', 'read', 'replace', 'patch', 'delete'];
/** Levels of a generated example; deeper objects are left out. */
const DEPTH_MAX = 5;

const rank = (list, one) => (list.includes(one) ? list.indexOf(one) : list.length);

/**
 * Operations by subject.
 * @param {any} document
 * @returns {{name: string, description?: string, operations: any[]}[]} each operation with `method` and `path`
 */
export function groupsOf(document) {
  const groups = new Map();
  for (const [path, item] of Object.entries(document.paths))
    for (const method of METHODS) {
      const operation = item[method];
      if (!operation) continue;
      const name = operation.tags?.[0] ?? 'Other';
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push({ ...operation, parameters: [...(item.parameters ?? []), ...(operation.parameters ?? [])], method, path, id: operation.operationId ?? `${method} ${path}` });
    }
  const about = new Map((document.tags ?? []).map(({ name, description }) => [name, description]));
  const steps = ({ path }) => path.split('/').length;
  const plain = (name, { id }) => rank(PLAIN, new RegExp(`^([a-z]+)${name}(s|es)?$`).exec(id)?.[1]);
  return [...groups]
    .sort(([a], [b]) => rank(ORDER, a) - rank(ORDER, b) || (a < b ? -1 : 1))
    .map(([name, operations]) => ({ name, description: about.get(name), operations: operations.sort((a, b) => plain(name, a) - plain(name, b) || steps(a) - steps(b) || (a.path < b.path ? -1 : a.path > b.path ? 1 : METHODS.indexOf(a.method) - METHODS.indexOf(b.method))) }));
}

/** The schema that a reference leads to, with its name; what stands beside the reference is kept. */
export function resolved(document, schema = {}) {
  if (!schema.$ref) {
    const parts = schema.allOf ?? schema.oneOf ?? schema.anyOf;
    const real = parts?.filter(({ type }) => type !== 'null');
    if (real?.length === 1 && !schema.properties) return { ...resolved(document, real[0]), ...(schema.description ? { description: schema.description } : {}) };
    return schema;
  }
  const name = schema.$ref.split('/').at(-1);
  const { $ref, ...beside } = schema;
  return { ...resolved(document, document.components?.schemas?.[name]), title: name, ...beside };
}

/** The fields of a schema, those of all its parts. */
export function fieldsOf(document, schema) {
  const { properties = {}, required = [], allOf = [], oneOf = [] } = resolved(document, schema);
  const own = Object.entries(properties).map(([name, field]) => ({ name, field, isRequired: required.includes(name) }));
  const choices = oneOf.filter((part) => part.$ref || part.properties);
  return [...own, ...[...allOf, ...choices].flatMap((part) => fieldsOf(document, part).map((one) => (allOf.includes(part) ? one : { ...one, isRequired: false })))].filter(({ name }, at, all) => all.findIndex((one) => one.name === name) === at);
}

/** The type of a schema in a few words. */
export function typeOf(document, schema) {
  const { type, items, title, enum: values, format, oneOf, const: fixed, additionalProperties } = resolved(document, schema);
  if (fixed !== undefined) return JSON.stringify(fixed);
  if (values) return values.map((value) => JSON.stringify(value)).join(' | ');
  const word = Array.isArray(type) ? type.filter((one) => one !== 'null').join(' | ') : type;
  if (word === 'array') return `array of ${typeOf(document, items ?? {})}`;
  if (oneOf && !word) return [...new Set(oneOf.filter((one) => one.type !== 'null').map((one) => typeOf(document, one)))].join(' | ');
  if (word === 'object' && additionalProperties?.$ref) return `map of ${typeOf(document, additionalProperties)}`;
  if (word === 'object' || word === undefined) return title ?? 'object';
  return format ? `${word} (${format})` : word;
}

/** Fields that are in a generated example although none of them is required. */
const SHOWN = new Set(['metadata', 'name', 'spec']);

/** The example that a body or parameter has, or one of its required fields. */
export function exampleOf(document, schema, depth = 0) {
  const one = resolved(document, schema);
  if (one.example !== undefined) return one.example;
  if (one.examples?.length) return one.examples[0];
  if (one.const !== undefined) return one.const;
  if (one.default !== undefined && one.default !== null) return one.default;
  if (one.enum) return one.enum[0];
  const type = Array.isArray(one.type) ? one.type.find((word) => word !== 'null') : one.type;
  if (type === 'string') return one.format === 'date-time' ? '2026-01-31T12:00:00Z' : 'string';
  if (type === 'integer' || type === 'number') return one.minimum ?? 1;
  if (type === 'boolean') return true;
  if (depth >= DEPTH_MAX) return undefined;
  if (type === 'array') return [exampleOf(document, one.items, depth + 1)].filter((item) => item !== undefined);
  const fields = fieldsOf(document, schema).filter(({ name, field, isRequired }) => !resolved(document, field).readOnly && (isRequired || SHOWN.has(name)));
  if (fields.length === 0 && one.oneOf?.length) return exampleOf(document, one.oneOf[0], depth + 1);
  return Object.fromEntries(fields.map(({ name, field }) => [name, exampleOf(document, field, depth + 1)]).filter(([, value]) => value !== undefined));
}

/** The examples of a request body: those of the document, else one that is made of the schema. */
export function bodiesOf(document, { requestBody }) {
  const content = requestBody?.content ?? {};
  const type = Object.keys(content).find((one) => one.includes('json')) ?? Object.keys(content)[0];
  if (!type) return undefined;
  const { schema, example, examples } = content[type];
  const named = Object.entries(examples ?? {}).map(([name, { summary, value }]) => ({ name: summary ?? name, value }));
  const given = example !== undefined ? [{ name: 'Example', value: example }, ...named] : named;
  return { type, types: Object.keys(content), schema, examples: given.length ? given : [{ name: 'Example', value: exampleOf(document, schema), isMade: true }] };
}

/** The path with the examples of its parameters in their places. */
export function pathOf(document, { path, parameters }) {
  return path.replace(/\{([^}]+)\}/g, (whole, name) => {
    const parameter = parameters.find((one) => one.name === name && one.in === 'path');
    const value = parameter && (parameter.example ?? exampleOf(document, parameter.schema));
    return value === undefined || value === 'string' ? name.toUpperCase() : encodeURIComponent(String(value));
  });
}

/** The request as a command. */
export function curlOf(document, operation, origin, body) {
  const method = operation.method === 'get' ? '' : ` -X ${operation.method.toUpperCase()}`;
  const head = `curl -s${method} '${origin}${pathOf(document, operation)}'`;
  if (!body) return head;
  const text = typeof body.value === 'string' ? body.value : JSON.stringify(body.value, null, 2);
  return `${head} \\\n  -H 'Content-Type: ${body.type}' \\\n  -d '${text.replaceAll("'", "'\\''")}'`;
}
