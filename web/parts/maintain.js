// Out of service, and back: what `tidegate drain`, `maintenance` and `undrain` do, with the plan shown first.
import { request, session } from '../core/api.js';
import { html, useEffect, useState } from '../core/html.js';
import { Dialog } from './dialog.js';
import { Planned } from './planned.js';

/** How long established connections may take, in minutes; none: as long as they like. */
const DEADLINES = [
  ['', 'no deadline'],
  ['1', 'after 1 minute'],
  ['5', 'after 5 minutes'],
  ['30', 'after 30 minutes'],
  ['120', 'after 2 hours'],
];
/** Longest reason that an object keeps, in characters. */
const REASON_MAX = 200;
/** A page of a listing. */
const PAGE = 500;

/**
 * Asks how something is to go out of service, then shows the plan of that. `isBack` gives it back at once.
 * @param {{subject: {kind: 'Service' | 'Node', path: string} | {kind: 'Endpoint', namespace: string, address: string}, name: string, isBack?: boolean, close: () => void}} props
 */
export function Maintain({ subject, name, isBack = false, close }) {
  const [wish, setWish] = useState(isBack ? { maintenance: undefined } : undefined);
  // One dialog follows another, so the browser does not know any longer where the keyboard was.
  const [before] = useState(() => document.activeElement);
  useEffect(() => () => before?.isConnected && before.focus(), []);
  if (!wish) return html`<${Ask} name=${name} choose=${setWish} close=${close} />`;
  const title = isBack ? `Give ${name} back` : wish.maintenance.mode === 'Drain' ? `Drain ${name}` : `Take ${name} out of service`;
  const message = isBack ? `${name} back in service` : `${wish.maintenance.mode === 'Drain' ? 'drain' : 'maintenance of'} ${name}${wish.maintenance.reason ? `: ${wish.maintenance.reason}` : ''}`;
  return html`<${Planned} title=${title} message=${message.slice(0, REASON_MAX)} objects=${(signal) => objectsOf(subject, wish.maintenance, signal)} close=${close} />`;
}

function Ask({ name, choose, close }) {
  const [mode, setMode] = useState('Drain');
  const [reason, setReason] = useState('');
  const [minutes, setMinutes] = useState('');
  const next = (event) => {
    event.preventDefault();
    const deadline = mode === 'Drain' && minutes ? `${new Date(Date.now() + Number(minutes) * 60_000).toISOString().slice(0, 19)}Z` : undefined;
    choose({ maintenance: { mode, reason: reason.trim() || undefined, by: session.get().who ?? 'page', deadline } });
  };
  const option = (value, title, text) => html`<label class="choice"><input type="radio" name="mode" value=${value} checked=${mode === value} onChange=${() => setMode(value)} /><span><b>${title}</b><br /><span class="muted">${text}</span></span></label>`;
  return html`<${Dialog} title=${`Out of service: ${name}`} close=${close}>
    <form class="maintain" onSubmit=${next}>
      ${option('Drain', 'Drain', 'Nothing new begins there; established TCP connections finish.')}
      ${option('Maintenance', 'Maintenance', 'As if it were not there; established connections are treated as removalPolicy says.')}
      ${mode === 'Drain' && html`<label class="named">Connections that are left are cut <select value=${minutes} onChange=${(event) => setMinutes(event.target.value)}>${DEADLINES.map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}</select></label>`}
      <label class="named">Reason <input value=${reason} maxlength=${REASON_MAX} placeholder="kernel update" onInput=${(event) => setReason(event.target.value)} /></label>
      <p class="planned-buttons"><button type="button" onClick=${close}>Cancel</button><button type="submit" class="primary">Show what it does</button></p>
    </form>
  <//>`;
}

/** The objects as they are to be. */
async function objectsOf(subject, maintenance, signal) {
  if (subject.kind !== 'Endpoint') return [withMaintenance(await request(subject.path, { signal }), maintenance)];
  const base = `/v1/namespaces/${subject.namespace}`;
  const [sets, workloads] = await Promise.all([all(`${base}/endpointsets`, signal), all(`${base}/workloads`, signal)]);
  const changed = [
    ...sets.filter(({ spec }) => spec.endpoints?.some(({ address }) => address === subject.address)).map((set) => ({ ...set, spec: { ...set.spec, endpoints: set.spec.endpoints.map((one) => (one.address === subject.address ? endpointWith(one, maintenance) : one)) } })),
    ...workloads.filter(({ spec }) => spec.addresses?.includes(subject.address)).map((workload) => withMaintenance(workload, maintenance)),
  ];
  if (changed.length === 0) throw new Error(`No EndpointSet and no Workload of namespace ${subject.namespace} has the address ${subject.address}.`);
  return changed;
}

const withMaintenance = (object, maintenance) => ({ ...object, spec: { ...object.spec, maintenance } });

/** `drain: true` is short for a drain, so it goes with what stands for it now. */
const endpointWith = (endpoint, maintenance) => ({ ...endpoint, drain: false, maintenance });

/** All pages of a listing. */
async function all(path, signal) {
  const items = [];
  for (let next; ; ) {
    const page = await request(`${path}?limit=${PAGE}${next ? `&continue=${encodeURIComponent(next)}` : ''}`, { signal });
    items.push(...page.items);
    next = page.metadata?.continue;
    if (!next) return items;
  }
}
