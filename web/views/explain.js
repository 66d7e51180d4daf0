// What becomes of a packet, or why an address or a Service answers or not: asked by a form, drawn step by step.
import { html, useEffect, useState } from '../core/html.js';
import { plural } from '../core/format.js';
import { live } from '../core/live.js';
import { to } from '../core/route.js';
import { useStore } from '../core/store.js';
import { useApi } from '../core/use.js';
import { ExplainedPath, Steps } from '../parts/explained.js';
import { Shape } from '../parts/state.js';
import { Empty, Failed, Panel, View, Waiting } from '../parts/view.js';

const PROTOCOLS = ['TCP', 'UDP', 'SCTP'];
/** An explanation reads kernels: it is asked for when somebody asks, and not by itself. */
const NEVER_MS = 86_400_000;
/** Ways that are open from the start; those with something broken always are. */
const OPEN_MAX = 1;

/** The request for what the address asks, the command for the same, and what it is called. */
function questionOf({ destination, source, protocol, port, node, service, kernel }) {
  const query = (params) => new URLSearchParams(Object.entries(params).filter(([, value]) => value)).toString();
  const desiredOnly = kernel === 'no' ? 'true' : '';
  const at = `${node ? ` --at ${node}` : ''}${desiredOnly ? ' --desired-only' : ''}`;
  if (service) {
    const [namespace, name] = service.includes('/') ? service.split('/', 2) : ['default', service];
    const asked = query({ node, desiredOnly });
    return { path: `/v1/namespaces/${encodeURIComponent(namespace)}/services/${encodeURIComponent(name)}/explain${asked ? `?${asked}` : ''}`, cli: `tidegate explain ${name} -n ${namespace}${at}` };
  }
  if (!destination) return {};
  // A packet has a source and a port; with one of them only, the question is about the address.
  const isPacket = source && port;
  const socket = destination.includes(':') ? `[${destination}]:${port}` : `${destination}:${port}`;
  const path = `/v1/explain?${query({ destination, ...(isPacket ? { source, port, protocol } : {}), node, desiredOnly })}`;
  return { path, cli: isPacket ? `tidegate explain ${source} ${socket}/${(protocol || 'TCP').toLowerCase()}${at}` : `tidegate explain ${destination}${at}` };
}

export default function Explain({ route: { params } }) {
  const { path, cli } = questionOf(params);
  const answer = useApi(path, { everyMs: NEVER_MS });
  return html`<${View} name="explain" title="Explain" copy=${path && { api: path, cli }} aside=${path && html`<button type="button" onClick=${answer.refresh}>Ask again</button>`}>
    <${Panel}><${Form} params=${params} /><//>
    ${!path ? html`<${Panel}><${Empty} title="What becomes of a packet?" command="tidegate explain 198.51.100.7 203.0.113.10:443/tcp">Give a destination, and a source and a port if it is about one packet; or the name of a Service. Nothing is sent to the network: it is followed through what is wanted and through what the kernels hold.<//><//>`
      : answer.error ? html`<${Panel}><${Failed} error=${answer.error} retry=${answer.refresh} /><//>`
      : answer.data === undefined ? html`<${Panel}><p class="pad muted">Asking the nodes what their kernels hold…</p><${Waiting} rows=${6} /><//>`
      : html`<${Answer} of=${answer.data} asked=${path} endpoint=${params.endpoint} />`}
  <//>`;
}

const FIELDS = ['service', 'source', 'destination', 'protocol', 'port', 'node', 'kernel'];

/** The question; it stands in the address once it is asked. */
function Form({ params }) {
  const doc = useStore(live, (state) => state.doc);
  const given = Object.fromEntries(FIELDS.map((field) => [field, params[field] ?? '']));
  const [asked, setAsked] = useState(given);
  const isAboutService = asked.about ? asked.about === 'service' : Boolean(asked.service);
  useEffect(() => setAsked(given), [FIELDS.map((field) => given[field]).join('\n')]);
  const set = (field) => (event) => setAsked({ ...asked, [field]: event.target.value });
  const submit = (event) => {
    event.preventDefault();
    const { about, service, source, destination, protocol, port, ...rest } = asked;
    location.hash = to(['explain'], isAboutService ? { service: service.trim(), ...rest } : { source: source.trim(), destination: destination.trim(), protocol: port ? protocol : '', port, ...rest });
  };
  const choice = (value, label, isChosen) => html`<label class="explain-choice"><input type="radio" name="about" checked=${isChosen} onChange=${() => setAsked({ ...asked, about: value })} />${label}</label>`;
  const services = doc ? [...doc.services.keys()] : [];
  const nodes = doc ? [...doc.nodes.keys()] : [];
  return html`<form class="explain-form" onSubmit=${submit}>
    <fieldset class="explain-about"><legend class="unseen">About</legend>${choice('packet', 'a packet or an address', !isAboutService)}${choice('service', 'a Service', isAboutService)}</fieldset>
    ${isAboutService
      ? html`<label class="named wide">Service <input list="explain-services" required value=${asked.service} placeholder="namespace/name" spellcheck="false" autocomplete="off" onInput=${set('service')} /></label>
          <datalist id="explain-services">${services.slice(0, 500).map((name) => html`<option key=${name} value=${name} />`)}</datalist>`
      : html`<label class="named wide">From <input value=${asked.source} placeholder="any source" spellcheck="false" autocomplete="off" inputmode="text" onInput=${set('source')} /></label>
          <label class="named wide">To <input name="destination" required value=${asked.destination} placeholder="an address of a Service" spellcheck="false" autocomplete="off" onInput=${set('destination')} /></label>
          <label class="named">Port <input type="number" name="port" min="1" max="65535" required=${Boolean(asked.source)} value=${asked.port} placeholder="80" onInput=${set('port')} /></label>
          <label class="named">Protocol <select value=${asked.protocol || 'TCP'} onChange=${set('protocol')}>${PROTOCOLS.map((one) => html`<option key=${one}>${one}</option>`)}</select></label>`}
    <label class="named">On node <input list="explain-nodes" value=${asked.node} placeholder="where it goes" spellcheck="false" autocomplete="off" onInput=${set('node')} /></label>
    <datalist id="explain-nodes">${nodes.slice(0, 500).map((name) => html`<option key=${name} value=${name} />`)}</datalist>
    <label class="named">Compare with kernel <select value=${asked.kernel} onChange=${set('kernel')}><option value="">yes</option><option value="no">no</option></select></label>
    <button type="submit" class="primary">Explain</button>
  </form>`;
}

/** The answer: what it comes to, what holds everywhere, then the way through each node. */
function Answer({ of: { subject, summary, broken, steps, paths, pathsOmitted }, asked, endpoint }) {
  const isBroken = ({ steps: own }) => own.some(({ state }) => state === 'Broken');
  // What is broken first; else in the order of the server.
  const sorted = [...paths].sort((a, b) => Number(isBroken(b)) - Number(isBroken(a)));
  const state = broken ? 'unreachable' : steps.some(({ state }) => state === 'Unknown') ? 'unknown' : 'ok';
  return html`<div class="explained" aria-live="polite">
    <${Panel}>
      <div class=${`explain-summary tone-${broken ? 'worst' : state === 'ok' ? 'ok' : 'none'}`} data-explained=${broken ? 'broken' : state}>
        <${Shape} state=${state} size=${24} />
        <div><p class="mono muted">${subject}</p><p class="explain-verdict">${summary}</p>
          ${broken && html`<p>${broken.node && html`On <a href=${to(['nodes', broken.node])}>${broken.node}</a>: `}<b>${broken.step.about}</b></p>${broken.step.hint && html`<p>What helps: ${broken.step.hint}</p>`}`}</div>
      </div>
      ${steps.length > 0 && html`<${Steps} steps=${steps} label="Everywhere" />`}
    <//>
    ${sorted.length > 0 && html`<h2 class="explain-ways">${plural(sorted.length, 'way')} through nodes</h2>`}
    ${sorted.map((path, at) => html`<${ExplainedPath} key=${keyOf(path, at)} path=${path} isOpen=${at < OPEN_MAX || isBroken(path)} isBroken=${isBroken(path)} endpoint=${endpoint} from=${{ path: asked, at: `/paths/${paths.indexOf(path)}` }} />`)}
    ${pathsOmitted > 0 && html`<p class="muted">${plural(pathsOmitted, 'more way')} left out: name a node to see its own.</p>`}
  </div>`;
}

const keyOf = ({ node, packet }, at) => [node, packet.source, packet.destination, packet.protocol, packet.port, at].join(' ');
