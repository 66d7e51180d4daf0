// What a write would do, before it is done; and then to do exactly that.
import { request } from '../core/api.js';
import { useWhyNoPlan } from '../core/may.js';
import { html, useRef, useState } from '../core/html.js';
import { to } from '../core/route.js';
import { PlanSummary } from '../parts/plan-summary.js';
import { Empty, Failed, Panel, View, Waiting } from '../parts/view.js';

const EXAMPLE = `apiVersion: tidegate/v1
kind: Service
metadata:
  name: example
spec:
  type: LoadBalancer
  selector: {app: example}
  ports:
    - {name: http, port: 80, targetPort: 8080}
`;

/** Bytes that are read of a file; the server takes no more. */
const FILE_BYTES_MAX = 8 * 1024 * 1024;

/** What is typed outlives a look at another view. */
let kept = '';

export default function PlanView() {
  const [text, setText] = useState(kept);
  const [state, setState] = useState({});
  const area = useRef();
  const write = (value) => {
    kept = value;
    setText(value);
  };
  const make = async () => {
    setState({ isAsking: true });
    try {
      setState({ plan: await request('/v1/plan', { method: 'POST', body: text }), text });
    } catch (error) {
      setState({ error, text });
    }
  };
  const drop = async (event) => {
    event.preventDefault();
    const file = event.dataTransfer.files[0];
    if (file && file.size <= FILE_BYTES_MAX) write(await file.text());
  };
  const press = (event) => event.key === 'Enter' && (event.ctrlKey || event.metaKey) && text.trim() && make();
  const { plan, error, isAsking } = state;
  return html`<${View} name="plan" title="Plan" kicker="What a write would do, to objects, addresses and the kernel of every node" copy=${{ cli: 'tidegate plan -f FILE' }}>
    <${Panel} title="Objects" aside=${html`<button type="button" class="quiet" onClick=${() => write(EXAMPLE)}>Example</button>`}>
      <div class="plan-input" onDragOver=${(event) => event.preventDefault()} onDrop=${drop}>
        <label><span class="unseen">Objects as YAML or JSON</span>
          <textarea ref=${area} rows="12" spellcheck="false" placeholder="Paste YAML or JSON here, or drop a file" value=${text} onInput=${(event) => write(event.target.value)} onKeyDown=${press}></textarea></label>
        <div class="plan-buttons"><button type="button" class="primary" disabled=${!text.trim() || isAsking} onClick=${make}>Make a plan</button><span class="muted">Ctrl + Enter. Nothing is changed by it.</span></div>
      </div>
    <//>
    <div aria-live="polite">
      ${isAsking && html`<${Panel}><${Waiting} rows=${5} /><//>`}
      ${error && html`<${Panel} title="This cannot be planned"><${Failed} error=${error} /><//>`}
      ${plan && html`<${Panel} title="The plan" aside=${html`made on revision ${plan.position.split('-')[1]}, kept until <${Until} time=${plan.expires} />`}>
        <${PlanSummary} plan=${plan} />
        ${plan.objects.length > 0 && html`<${ApplyPlan} key=${plan.id} plan=${plan} again=${make} />`}
      <//>`}
      ${!plan && !error && !isAsking && html`<${Panel}><${Empty} title="Nothing is planned yet">Objects are looked at as <code>tidegate apply</code> would: what differs, which addresses move, which lines go and come in every kernel, which sessions reset.<//><//>`}
    </div>
  <//>`;
}

const Until = ({ time }) => html`<time datetime=${time}>${new Date(time).toISOString().slice(11, 16)} UTC</time>`;

/** Whether something goes: an object, or an address that a Service had. */
const removes = ({ objects }) => objects.some(({ action }) => action === 'deleted' || action === 'pruned');

/** Does what the plan says; refused by the server when its objects are others since. */
export function ApplyPlan({ plan, again, label = 'Apply this plan' }) {
  const [message, setMessage] = useState('');
  const [state, setState] = useState({});
  const why = useWhyNoPlan(plan);
  const apply = async () => {
    setState({ isAsking: true });
    try {
      const headers = message.trim() ? { 'X-Change-Message': message.trim() } : {};
      const answer = await request(`/v1/plans/${encodeURIComponent(plan.id)}/apply`, { method: 'POST', headers });
      location.hash = to(['history', String(answer.revision)], { fresh: '1' });
    } catch (error) {
      setState({ error });
    }
  };
  const isOutdated = state.error?.problem?.code === 'PlanOutdated';
  return html`<div class="plan-apply">
    <label class="named">Why (shown in the history)<input value=${message} maxlength="200" onInput=${(event) => setMessage(event.target.value)} disabled=${Boolean(why)} /></label>
    <button type="button" class=${removes(plan) ? 'danger' : 'primary'} disabled=${Boolean(why) || state.isAsking} title=${why ?? ''} onClick=${apply} data-action="apply">${label}${removes(plan) ? ', and remove' : ''}</button>
    ${why && html`<p class="muted" data-why>${why}</p>`}
    ${state.error && html`<${Failed} error=${state.error} retry=${isOutdated ? undefined : apply} />`}
    ${isOutdated && again && html`<button type="button" onClick=${again}>Plan again</button>`}
  </div>`;
}

