// What is known of the endpoints of a Service, from four answers of the API, as one row each. Pure.

/** An address with a port, as it is written. */
export const socketOf = (address, port) => (port === undefined || port === null ? address : address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`);

/** Which of several states counts for what they are in together; the worst first. */
export const WORST_FIRST = ['unreachable', 'down', 'disconnected', 'conflicting', 'unhealthy', 'failing', 'degraded', 'atRisk', 'drifted', 'lagging', 'waiting', 'draining', 'unknown', 'disabled', 'notChecked', 'ready', 'ok'];
export const worst = (states) => WORST_FIRST.find((state) => states.includes(state)) ?? states[0] ?? 'unknown';

/** A name as part of a JSON pointer. */
export const step = (name) => name.replaceAll('~', '~0').replaceAll('/', '~1');

const keyOf = ({ protocol, address, port }) => `${protocol} ${socketOf(address, port)}`;

/**
 * The endpoints of a Service.
 * @param {{compiled: any, health?: any, traffic?: any, drains?: any}} answers of `…/endpoints/NAME`, `…/health`, `…/traffic` and
 *   `/v1/drains`
 * @returns {any[]} a row for each protocol, address and port, with where its parts stand in the answers (`…At`)
 */
export function endpointRows({ compiled, health, traffic, drains }) {
  const rows = new Map();
  const checked = index(health?.endpoints, (one) => socketOf(one.address, one.port));
  const counted = index(traffic?.endpoints, keyOf);
  const drained = index(drains?.items, keyOf);
  (compiled?.ports ?? []).forEach((port, portAt) =>
    (port.endpoints ?? []).forEach((endpoint, at) => {
      const key = keyOf({ protocol: port.protocol, ...endpoint });
      const servicePort = `${port.name ? `${port.name} ` : ''}${port.port}${port.endPort ? `–${port.endPort}` : ''}`;
      const known = rows.get(key);
      if (known) known.servicePorts.push(servicePort);
      else rows.set(key, { ...rowOf(endpoint, checked.get(socketOf(endpoint.address, endpoint.port))), key, protocol: port.protocol, servicePorts: [servicePort], at: `/ports/${portAt}/endpoints/${at}`, traffic: counted.get(key), drained: drained.get(key) });
    }),
  );
  return [...rows.values()];
}

/** Each entry of a list with where it stands in it. */
function index(list = [], key) {
  return new Map(list.map((of, at) => [key(of), { of, at }]));
}

function rowOf(endpoint, checked) {
  const [state, text, reason] = stateOf(endpoint, checked?.of);
  const checkers = Object.values(checked?.of.checkers ?? {});
  return { ...endpoint, socket: socketOf(endpoint.address, endpoint.port), state, text, reason, checked, votes: { healthy: checkers.filter((one) => one.isReporting && one.state === 'Healthy').length, total: checkers.length } };
}

/** State, word and reason of an endpoint. */
function stateOf({ ready, terminating, weight, maintenance }, checked) {
  const why = maintenance && [maintenance.reason, maintenance.by && `by ${maintenance.by}`].filter(Boolean).join(', ');
  if (maintenance?.mode === 'Drain') return ['draining', 'Draining', why];
  if (maintenance) return ['disabled', 'Maintenance', why];
  if (checked?.state === 'Unhealthy') {
    if (checked.held) return ['atRisk', 'Held', `${checked.message}; the guard keeps it in service`];
    if (ready) return ['atRisk', 'Unhealthy, used', checked.message];
    return ['unhealthy', 'Unhealthy', checked.message];
  }
  if (terminating) return ['draining', 'Terminating', 'its workload ends'];
  if (!ready) return checked?.state === 'Pending' ? ['waiting', 'Not checked yet', checked.message] : ['down', 'Not ready', 'who wrote it says that it is not ready'];
  if (weight === 0) return ['disabled', 'Weight 0', 'gets nothing new'];
  if (checked?.state === 'Unknown') return ['unknown', 'Not known', checked.message];
  if (checked && checked.share < 100) return ['waiting', `Growing, ${checked.share} %`, 'it was out, and gets its share step by step'];
  if (checked?.state === 'NotChecked') return ['notChecked', 'Not checked', checked.message];
  return ['ready', 'Ready', undefined];
}

/**
 * A row for each Node with what it has of a Service; `at` where that stands in the Service, if it stands there. Who may not see
 * nodes has those that the Service names and those that count for it.
 */
export function nodeRows({ service, nodes, traffic }) {
  const { notVerified = {}, total = 0, verified = 0 } = service?.status?.nodes ?? {};
  const isListed = total - verified <= Object.keys(notVerified).length;
  const names = nodes.size ? [...nodes.keys()] : [...new Set([...Object.keys(notVerified), ...Object.keys(traffic?.nodes ?? {})])].sort();
  return names.map((name) => {
    const node = nodes.get(name) ?? { name, mode: traffic?.nodes?.[name]?.mode };
    const problem = notVerified[name];
    const phase = problem?.phase ?? (isListed || node.state === 'converged' ? 'Verified' : undefined);
    const said = problem ?? (node.state === 'disconnected' ? node : undefined);
    return { ...node, phase, state: nodeState(node, problem, phase), reason: said?.reason, message: said?.message, at: problem && `/status/nodes/notVerified/${step(name)}`, traffic: traffic?.nodes?.[name] };
  });
}

function nodeState(node, problem, phase) {
  if (node.state === 'disconnected') return 'disconnected';
  if (problem) return problem.phase === 'Failed' ? 'failing' : 'lagging';
  return phase ? 'ok' : 'unknown';
}
