// Conditions as rungs: each needs those before it, so the first that is not met is where to look.
import { html } from '../core/html.js';
import { remark, to, useRoute } from '../core/route.js';
import { conditionWords, split } from './condition.js';
import { Field } from './field.js';
import { Shape, tone, word } from './state.js';
import { Ago } from './view.js';

const STATE = { True: 'ok', False: 'failing', Unknown: 'waiting' };
/**
 * The rungs, and the words of one: the first that is not met, or the one that is chosen.
 * @param {{path: string, conditions: any[], order: string[], problems?: any[]}} props `path` of the request whose `/status/conditions` they are;
 *   `problems` of the overview say what else is wrong, and which write preceded it
 */
export function Ladder({ path, conditions, order, problems = [] }) {
  const { params } = useRoute();
  const rungs = order.map((type) => conditions.find((one) => one.type === type) ?? { type, status: 'Unknown', reason: 'NotSaid' });
  const unmet = rungs.find(({ status }) => status !== 'True');
  const open = rungs.find(({ type }) => type === params.rung) ?? unmet;
  const notes = rungs.filter((rung) => rung !== open && rung.status === 'True' && rung.message && !problems.some(({ id, message }) => message === rung.message || id.endsWith(`/${rung.type}`)));
  const own = open && problems.find(({ message }) => message === open.message);
  return html`<div class="ladder">
    <ol class="ladder-rungs">${rungs.map((rung) => html`<${Rung} key=${rung.type} rung=${rung} isOpen=${rung === open} isFirst=${rung === unmet} choose=${() => remark({ rung: rung === open ? '' : rung.type })} />`)}</ol>
    <div aria-live="polite">${open && html`<${Said} rung=${open} path=${path} at=${conditions.indexOf(open)} change=${own?.change} />`}${problems.filter((problem) => problem !== own).map((problem) => html`<${Wrong} key=${problem.id} problem=${problem} />`)}</div>
    ${notes.length > 0 && html`<ul class="ladder-notes">${notes.map((rung) => html`<li key=${rung.type}><b>${conditionWords(rung.type, rung.status)}</b> <${Field} path=${path} at=${`/status/conditions/${conditions.indexOf(rung)}/message`}>${rung.message}<//></li>`)}</ul>`}
  </div>`;
}

function Rung({ rung: { type, status, reason }, isOpen, isFirst, choose }) {
  const state = STATE[status];
  return html`<li class=${`tone-${tone(state)}`} data-condition=${type} data-state=${status}>
    <button type="button" aria-expanded=${isOpen} aria-current=${isFirst ? 'step' : undefined} onClick=${choose}>
      <span class="ladder-mark"><${Shape} state=${state} size=${14} /></span><span class="ladder-type">${conditionWords(type, status)}</span><span class="ladder-reason">${split(reason)}</span>
    </button>
  </li>`;
}

/** What is wrong besides: some of a rung that is met, such as one endpoint of several. */
function Wrong({ problem: { impact, reason, message, hint, change } }) {
  return html`<div class=${`ladder-said tone-${tone(impact)}`} data-impact=${impact}>
    <p><b>${word(impact)}</b> <code class="muted">${reason}</code></p>
    <p>${message}</p>
    ${hint && html`<p class="muted">What helps: ${hint}</p>`}
    ${change && html`<${Preceded} change=${change} />`}
  </div>`;
}

/** The write before it. */
function Preceded({ change: { revision, author, message, at } }) {
  return html`<p class="ladder-change">Before it: <a href=${to(['history', String(revision)])}>revision ${revision}</a>${author ? ` by ${author}` : ''}${message ? `: “${message}”` : ''}, <${Ago} time=${at} /></p>`;
}

function Said({ rung: { type, status, reason, message, hint }, path, at, change }) {
  const of = (field, value) => (at < 0 ? value : html`<${Field} path=${path} at=${`/status/conditions/${at}/${field}`}>${value}<//>`);
  return html`<div class=${`ladder-said tone-${tone(STATE[status])}`}>
    <p><b>${conditionWords(type, status)}</b> <code class="muted">${of('reason', reason)}</code></p>
    ${message && html`<p>${of('message', message)}</p>`}
    ${hint && html`<p class="muted">What helps: ${of('hint', hint)}</p>`}
    ${!message && !hint && html`<p class="muted">${status === 'True' ? 'Nothing more is to be said.' : 'The server has not said why yet.'}</p>`}
    ${change && html`<${Preceded} change=${change} />`}
  </div>`;
}
