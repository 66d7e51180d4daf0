// No write without having seen what it does: a dialog that plans objects, shows the plan, and then does exactly that.
import { request } from '../core/api.js';
import { useWhyNoPlan } from '../core/may.js';
import { html, useEffect, useState } from '../core/html.js';
import { to } from '../core/route.js';
import { Dialog } from './dialog.js';
import { PlanSummary } from './plan-summary.js';
import { Failed, Waiting } from './view.js';

/** Longest reason that history keeps, in characters. */
const MESSAGE_MAX = 200;

/**
 * A dialog that shows what a write of objects would do, and does it when asked to.
 * @param {{title: string, objects: any[] | (() => Promise<any[]>), message?: string, close: () => void, applied?: (revision: number) => void, children?: any}} props
 *   `objects` whole, as the API has them or as they are to be, or what reads them; `message` is what history will say unless another is
 *   written; `applied` hears the revision of the write; `children` stand above the plan
 */
export function Planned({ title, objects, message = '', close, applied, children }) {
  const [plan, setPlan] = useState({ isAsking: true });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    setPlan({ isAsking: true });
    ask(objects, controller.signal).then(
      (made) => setPlan({ made }),
      (error) => !controller.signal.aborted && setPlan({ error }),
    );
    return () => controller.abort();
  }, [round]);
  return html`<${Dialog} title=${title} close=${close}>
    ${children}
    ${plan.isAsking && html`<div><p class="muted">Asking every node what this would change…</p><${Waiting} rows=${4} /></div>`}
    ${plan.error && html`<div><${Failed} error=${plan.error} retry=${() => setRound(round + 1)} /></div>`}
    ${plan.made && html`<div class="planned"><${PlanSummary} plan=${plan.made} isShort=${true} /></div><${Apply} key=${plan.made.id} plan=${plan.made} message=${message} again=${() => setRound(round + 1)} close=${close} applied=${applied} />`}
  <//>`;
}

async function ask(objects, signal) {
  const given = typeof objects === 'function' ? await objects(signal) : objects;
  return request('/v1/plan', { method: 'POST', body: given.map(wanted), signal });
}

/** What somebody wants of an object: without what the server says of it. It keeps its version, so that nothing in between is lost. */
const wanted = ({ status, ...object }) => object;

/** The last step: why, and then it is done. */
function Apply({ plan, message, again, close, applied }) {
  const why = useWhyNoPlan(plan);
  const [text, setText] = useState(message);
  const [state, setState] = useState({});
  const apply = async (event) => {
    event.preventDefault();
    setState({ isBusy: true });
    try {
      const said = text.trim();
      const { revision } = await request(`/v1/plans/${plan.id}/apply`, { method: 'POST', headers: said ? { 'X-Change-Message': said } : {} });
      setState({ revision });
      applied?.(revision);
    } catch (error) {
      setState({ error });
    }
  };
  if (state.revision !== undefined) {
    return html`<p class="planned-done" role="status">Done, as <a href=${to(['history', String(state.revision)])} onClick=${close}>revision ${state.revision}</a>. Nodes carry it out now. <button type="button" class="primary" onClick=${close}>Close</button></p>`;
  }
  const isNothing = plan.objects.length === 0;
  return html`<form class="planned-apply" onSubmit=${apply}>
    ${state.error && html`<div><${Failed} error=${state.error} retry=${undefined} />${state.error.problem?.code === 'PlanOutdated' && html`<p><button type="button" onClick=${again}>Plan again</button></p>`}</div>`}
    ${!isNothing && html`<label class="named">Why, for the history <input value=${text} maxlength=${MESSAGE_MAX} placeholder="kernel update" onInput=${(event) => setText(event.target.value)} /></label>`}
    <p class="planned-buttons">
      ${why && html`<span class="muted">${why}</span>`}
      <button type="button" onClick=${close}>${isNothing ? 'Close' : 'Cancel'}</button>
      ${!isNothing && html`<button type="submit" class="primary" disabled=${Boolean(why) || state.isBusy || Boolean(state.error)} title=${why ?? ''}>${state.isBusy ? 'Applying…' : 'Apply'}</button>`}
    </p>
  </form>`;
}
