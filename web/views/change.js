// One write: what it changed in objects and in every kernel, how fast it became true, and how it is undone.
import { request } from '../core/api.js';
import { useWhyNot } from '../core/may.js';
import { html, useEffect, useState } from '../core/html.js';
import { count, duration, plural, utc } from '../core/format.js';
import { live } from '../core/live.js';
import { to, toObject } from '../core/route.js';
import { useStore } from '../core/store.js';
import { useApi } from '../core/use.js';
import { Dialog } from '../parts/dialog.js';
import { ObjectDiff } from '../parts/diff.js';
import { Field } from '../parts/field.js';
import { NodeRules, PlanSummary } from '../parts/plan-summary.js';
import { State } from '../parts/state.js';
import { Ago, Facts, Failed, Loaded, Panel, View, Waiting } from '../parts/view.js';
import { ApplyPlan } from './plan.js';

/** Objects whose differences are open at once. */
const OPEN_MAX = 6;
/** Nodes that are named in the curve's table, the slowest first. */
const SLOWEST_SHOWN = 12;

export default function Change({ route }) {
  const revision = route.path[1];
  const path = `/v1/history/${encodeURIComponent(revision)}`;
  const entry = useApi(path, { everyMs: 60_000 });
  const [asks, setAsks] = useState(undefined);
  const why = useWhyNot('rollback', 'Service');
  const title = `Revision ${revision}`;
  return html`<${View} name="change" title=${title} kicker=${html`<a href=${to(['history'])}>History</a>`} copy=${{ api: path, cli: `tidegate history ${revision} --rules` }}
    aside=${html`<button type="button" disabled=${Boolean(why)} title=${why ?? ''} onClick=${() => setAsks({ revision: Number(revision), only: true })}>Undo this…</button><button type="button" disabled=${Boolean(why)} title=${why ?? ''} onClick=${() => setAsks({ revision: Number(revision), only: false })}>Roll back to here…</button>${why && html`<span class="muted why" data-why>${why}</span>`}`}>
    <${Loaded} of=${entry} rows=${6}>${(data) => html`
      <${Panel}><${Facts} of=${[
        ['When', html`<${Ago} time=${data.at} /> <span class="muted">${utc(data.at)}</span>`],
        ['Who', html`<${Field} path=${path} at="/author">${data.author}<//>`],
        ['Why', data.message ?? html`<span class="muted">nothing was said</span>`],
        ['Objects', html`<${Field} path=${path} at="/changesTotal">${count(data.changesTotal)}<//>`],
        data.source && ['From', html`<code>${data.source}</code>`],
      ]} /><//>
      <${Convergence} path=${path} />
      <${Panel} title="Objects">${data.objects.length === 0 ? html`<p class="pad muted">No object.</p>` : data.objects.map((object, at) => html`<${Changed} key=${at} ...${object} isOpen=${data.objects.length <= OPEN_MAX} />`)}<//>
      <${Rules} path=${`${path}/rules`} />`}<//>
    ${asks && html`<${Rollback} body=${asks} close=${() => setAsks(undefined)} />`}
  <//>`;
}

function Changed({ before, after, isOpen }) {
  const object = after ?? before;
  const { kind, metadata } = object;
  const what = before && after ? 'updated' : after ? 'created' : 'deleted';
  return html`<details class="changed" open=${isOpen} data-object=${`${kind} ${metadata.name}`}>
    <summary><span class=${`plan-action is-${what}`}>${what}</span> <b>${kind} ${metadata.namespace ? `${metadata.namespace}/` : ''}${metadata.name}</b></summary>
    <p class="pad"><a href=${toObject({ kind, ...metadata })}>See it as it is</a></p>
    <${ObjectDiff} before=${before} after=${after} label=${`What changed in ${kind} ${metadata.name}`} />
  </details>`;
}

/** How many nodes had the write verified, over the time since it was made. */
function Convergence({ path }) {
  const api = `${path}/convergence`;
  const position = useStore(live, (state) => state.doc?.position);
  const answer = useApi(api, { everyMs: 1_000, when: position });
  if (answer.error?.status === 404) return null;
  return html`<${Panel} title="How fast it became true"><${Loaded} of=${answer} rows=${3}>${(curve) => (curve.concernsNodes ? html`<${Curve} api=${api} curve=${curve} />` : html`<p class="pad muted">Nothing that a node carries out was changed.</p>`)}<//><//>`;
}

function Curve({ api, curve }) {
  const { verified, total, p50Ms, p99Ms, maxMs, nodes, ageMs } = curve;
  const times = nodes.map(({ verifiedMs }) => verifiedMs).filter((ms) => ms !== null && ms !== undefined).sort((a, b) => a - b);
  const end = Math.max(1, verified < total ? ageMs : (times.at(-1) ?? 1));
  const x = (ms) => (ms / end) * 600;
  const y = (done) => 80 - (done / Math.max(1, total)) * 80;
  const steps = times.map((ms, at) => `H${x(ms).toFixed(1)}V${y(at + 1).toFixed(1)}`).join('');
  const waiting = nodes.filter(({ verifiedMs }) => verifiedMs === null || verifiedMs === undefined);
  const slowest = [...waiting, ...nodes.filter(({ verifiedMs }) => verifiedMs !== null && verifiedMs !== undefined).sort((a, b) => b.verifiedMs - a.verifiedMs)].slice(0, SLOWEST_SHOWN);
  const at = (pointer, value) => html`<${Field} path=${api} at=${pointer}>${value}<//>`;
  return html`<div data-converged=${verified >= total}>
    <${Facts} of=${[
      ['Verified', html`${at('/verified', count(verified))} of ${at('/total', count(total))} nodes ${verified >= total ? html`<${State} state="converged" />` : html`<${State} state="lagging" />`}`],
      ['Half of them after', p50Ms === null || p50Ms === undefined ? '–' : at('/p50Ms', duration(p50Ms))],
      ['99 of 100 after', p99Ms === null || p99Ms === undefined ? '–' : at('/p99Ms', duration(p99Ms))],
      ['The last after', maxMs === null || maxMs === undefined ? '–' : at('/maxMs', duration(maxMs))],
    ]} />
    <div class="chart"><svg viewBox="0 -4 600 88" preserveAspectRatio="none" role="img" aria-label=${`${count(verified)} of ${count(total)} nodes verified within ${duration(end)}`}><path class="chart-grid" d="M0 0H600M0 80H600" /><path class="chart-line line-0" d=${`M0 80${steps}H600`} /></svg>
      <div class="chart-foot"><span>written</span><span>nodes that have read it back from their kernel</span><span>${duration(end)}</span></div></div>
    <details class="pad"><summary>${waiting.length ? `Waiting for ${plural(waiting.length, 'node')}` : 'The slowest nodes'}</summary>
      <ul>${slowest.map(({ node, receivedMs, appliedMs, verifiedMs, why }) => html`<li key=${node}><a href=${to(['nodes', node])}>${node}</a> <span class="muted">received ${duration(receivedMs)}, applied ${duration(appliedMs)}, verified ${duration(verifiedMs)}${why ? ` · ${why}` : ''}</span></li>`)}</ul></details>
  </div>`;
}

/** What it changed in the kernels; asked for when one wants to see it, because every node is asked. */
function Rules({ path }) {
  const [isOpen, setOpen] = useState(false);
  const answer = useApi(isOpen ? path : undefined, { everyMs: 600_000 });
  return html`<${Panel} title="In the kernels" aside=${!isOpen && html`<button type="button" class="quiet" onClick=${() => setOpen(true)} data-action="rules">Ask the nodes</button>`}>
    ${isOpen ? html`<${Loaded} of=${answer} rows=${4}>${(data) => html`<${NodeRules} nodes=${data.nodes} />`}<//>` : html`<p class="pad muted">Which lines of every node's own listings this write brought and took.</p>`}
  <//>`;
}

/** Undoing, after one has seen what it would do. */
function Rollback({ body, close }) {
  const [state, setState] = useState({ isAsking: true });
  const ask = async () => {
    setState({ isAsking: true });
    try {
      setState({ plan: await request('/v1/rollback/plan', { method: 'POST', body }) });
    } catch (error) {
      setState({ error });
    }
  };
  useEffect(() => void ask(), []);
  const title = body.only ? `Undo revision ${body.revision}` : `Roll back to revision ${body.revision}`;
  return html`<${Dialog} title=${title} close=${close}>
    <p class="muted">${body.only ? 'Only this write is undone.' : 'Every object that somebody wrote since becomes what it was at this revision.'} This is a write like any other, and can be undone.</p>
    ${state.error && html`<${Failed} error=${state.error} retry=${ask} />`}
    ${state.isAsking && html`<${Waiting} rows=${4} />`}
    ${state.plan && html`<div class="in-dialog"><${PlanSummary} plan=${state.plan} isShort />${state.plan.objects.length > 0 && html`<${ApplyPlan} plan=${state.plan} again=${ask} label=${body.only ? 'Undo it' : 'Roll back'} />`}</div>`}
  <//>`;
}
