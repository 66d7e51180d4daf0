// One address: who holds it, who answers for it and since when, who stands by, and how it came to be so.
import { request } from '../core/api.js';
import { html, useState } from '../core/html.js';
import { count } from '../core/format.js';
import { live } from '../core/live.js';
import { useWhyNot } from '../core/may.js';
import { to } from '../core/route.js';
import { useStore } from '../core/store.js';
import { useApi } from '../core/use.js';
import { Dialog } from '../parts/dialog.js';
import { did } from '../parts/changes-model.js';
import { conditionWords } from '../parts/condition.js';
import { Field } from '../parts/field.js';
import { State } from '../parts/state.js';
import { Ago, Facts, Failed, Loaded, Panel, View } from '../parts/view.js';
import { stateOf } from './addresses.js';

export default function Address({ name }) {
  const path = `/v1/addresses/${encodeURIComponent(name)}`;
  const position = useStore(live, (state) => state.doc?.position);
  const answer = useApi(path, { everyMs: 2_000, when: position });
  const [isMoving, setMoving] = useState(false);
  const { data } = answer;
  const why = useWhyNot('move', 'Address');
  const title = html`<span class="mono">${name}</span> ${data && html`<${State} state=${stateOf(data)} />`}`;
  return html`<${View} name="addresses" title=${title} heading=${name} kicker=${html`<a href=${to(['addresses'])}>Addresses</a>`} copy=${{ api: path, cli: `tidegate describe address ${name}` }}
    aside=${html`<a class="button" href=${to(['explain'], { destination: name })}>Why does it answer, or not?</a>${data?.spec.announcement?.candidates?.length > 1 && html`<button type="button" disabled=${Boolean(why)} title=${why ?? ''} onClick=${() => setMoving(true)}>Move…</button>${why && html`<span class="muted why" data-why>${why}</span>`}`}`}>
    <${Loaded} of=${answer} rows=${5}>${(address) => html`<${Standing} ...${{ address, path }} /><${Candidates} ...${{ address, path }} /><${Owners} address=${address.spec.address} /><${Past} name=${name} />`}<//>
    ${isMoving && html`<${Move} address=${data} close=${() => setMoving(false)} />`}
  <//>`;
}

function Standing({ address: { spec, status = {} }, path }) {
  return html`<${Panel}>
    <${Facts} of=${[
      ['Held by', spec.services.length ? spec.services.map((service, at) => html`${at ? ', ' : ''}<a key=${service} href=${to(['services', ...service.split('/')])}>${service}</a>`) : 'nobody'],
      ['Pool', spec.pool ? html`<a href=${to(['addresses'], { pool: spec.pool })}>${spec.pool}</a>` : '–'],
      ['Announced by', status.owner ? html`<a href=${to(['nodes', status.owner])}><${Field} path=${path} at="/status/owner">${status.owner}<//></a>` : status.byBgp ? 'routers, by BGP' : 'nobody'],
      ['Since', html`<${Ago} time=${status.since} />`],
      ['Sharing key', spec.sharingKey ?? '–'],
    ]} />
    <ul class="conditions">${(status.conditions ?? []).map(({ type, status: holds, reason, message, hint }) => html`<li key=${type}><${State} state=${holds === 'True' ? 'ok' : holds === 'False' ? 'degraded' : 'unknown'} text=${conditionWords(type, holds)} /> <code class="muted">${reason}</code> ${message} <span class="muted">${hint ?? ''}</span></li>`)}</ul>
  <//>`;
}

/** Who answers, and who would next, in the order that all nodes know. */
function Candidates({ address: { spec, status = {} }, path }) {
  const parts = status.nodes ?? {};
  const ranked = spec.announcement?.candidates ?? [];
  const others = Object.keys(parts).filter((node) => !ranked.some((candidate) => candidate.node === node));
  const rest = Object.entries(status.notCandidates ?? {});
  if (ranked.length + others.length + rest.length === 0) return null;
  return html`<${Panel} title="Who answers, and who would next" aside="by ARP and NDP">
    <ol class="ranks">${[...ranked.map(({ node, interfaces }) => ({ node, interfaces })), ...others.map((node) => ({ node }))].map(({ node, interfaces }, at) => {
      const part = parts[node];
      return html`<li key=${node} data-key=${node}><span class="rank">${at + 1}</span><div><a href=${to(['nodes', node])}>${node}</a> ${part ? html`<${State} state=${part.role === 'Owner' ? 'announced' : 'notice'} text=${part.role} />` : html`<${State} state="unknown" text="silent" />`} <span class="muted">${(interfaces ?? part?.interfaces ?? []).join(', ')}</span>
        ${part && html`<p class="muted">${part.reason} · since <${Ago} time=${part.since} /> · <${Field} path=${path} at=${`/status/nodes/${node}/gratuitous`}>${count(part.gratuitous)}<//> announcements, <${Field} path=${path} at=${`/status/nodes/${node}/replies`}>${count(part.replies)}<//> replies</p>`}</div></li>`;
    })}</ol>
    ${rest.length > 0 && html`<ul class="conditions">${rest.map(([node, why]) => html`<li key=${node}><a href=${to(['nodes', node])}>${node}</a> <span class="muted">is no candidate: ${why}</span></li>`)}</ul>`}
  <//>`;
}

/** Which node took the address over from which, and why. */
function Owners({ address }) {
  const path = `/v1/addresses/events?address=${encodeURIComponent(address)}&limit=20`;
  const answer = useApi(path, { everyMs: 10_000 });
  const node = (name) => html`<a href=${to(['nodes', name])}>${name}</a>`;
  return html`<${Panel} id="owners" title="Owner changes">
    <${Loaded} of=${answer} rows=${3}>${({ items }) =>
      items.length === 0
        ? html`<p class="pad muted">None since this server started.</p>`
        : html`<ul class="changes owner-changes">${items.map((event) => html`<li key=${event.id} data-key=${event.id}><span class="what">${event.reason === 'Withdrawn' ? html`${node(event.node)} ceased to announce it` : event.previous && event.previous !== event.node ? html`${node(event.previous)} → ${node(event.node)}` : node(event.node)}${event.message && html`<span class="muted"> · ${event.message}</span>`}</span><${Ago} time=${event.time} /></li>`)}</ul>`}<//>
  <//>`;
}

function Past({ name }) {
  const answer = useApi(`/v1/history?kind=Address&name=${encodeURIComponent(name)}&limit=20`, { everyMs: 15_000 });
  return html`<${Panel} title="History" aside=${html`<a href=${to(['history'], { kind: 'Address', name })}>All</a>`}>
    <${Loaded} of=${answer} rows=${3}>${(data) => html`<ul class="changes">${data.items.map((change) => html`<li key=${change.revision}><a href=${to(['history', String(change.revision)])}>r${change.revision}</a><span class="what">${change.message ? html`${change.message} · ` : ''}<span class="muted">${did(change)} · ${change.author}</span></span><${Ago} time=${change.at} /></li>`)}</ul>`}<//>
  <//>`;
}

/** Another node is to answer; tried first, done on a second click. */
function Move({ address, close }) {
  const others = address.spec.announcement.candidates.filter(({ node }) => node !== address.status?.owner);
  const [node, setNode] = useState(others[0]?.node ?? '');
  const [state, setState] = useState({});
  const why = useWhyNot('move', 'Address');
  const send = async (isTrial) => {
    try {
      const answer = await request(`/v1/addresses/${encodeURIComponent(address.metadata.name)}/move${isTrial ? '?dryRun=true' : ''}`, { method: 'POST', body: { node } });
      if (isTrial) setState({ tried: answer, node });
      else close();
    } catch (error) {
      setState({ error });
    }
  };
  const isTried = state.tried && state.node === node;
  return html`<${Dialog} title=${`Move ${address.spec.address}`} close=${close}>
    <p>Another candidate announces it. Connections through it go on; those to other nodes' endpoints may be cut where the new node has not seen them.</p>
    <label class="named">To<select value=${node} onChange=${(event) => setNode(event.target.value)}>${others.map((candidate) => html`<option key=${candidate.node}>${candidate.node}</option>`)}</select></label>
    ${isTried && html`<p data-tried><b>${node}</b> would be the first of ${address.spec.announcement.candidates.length} candidates, in place of ${address.status?.owner ?? 'nobody'}.</p>`}
    ${state.error && html`<${Failed} error=${state.error} />`}
    <div class="plan-buttons"><button type="button" onClick=${() => send(true)}>Try it</button><button type="button" class="primary" disabled=${!isTried || Boolean(why)} title=${why ?? (isTried ? '' : 'Try it first')} onClick=${() => send(false)}>Move it</button>${why && html`<span class="muted">${why}</span>`}</div>
  <//>`;
}
