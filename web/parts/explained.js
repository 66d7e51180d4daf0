// One way of a packet through one node, as the API explains it: the steps in words, the endpoints that it can be given, and
// what the node's kernel does, with the first difference marked.
import { html } from '../core/html.js';
import { count } from '../core/format.js';
import { to } from '../core/route.js';
import { socketOf } from './endpoints-model.js';
import { Field } from './field.js';
import { Shape, State } from './state.js';
import { Panel } from './view.js';

const STATES = { Fine: 'ok', Broken: 'unreachable', Unknown: 'unknown', Pending: 'unknown' };
const WORDS = { Broken: 'Broken', Unknown: 'Not known', Pending: 'In progress' };
const TONES = { Fine: 'ok', Broken: 'worst', Unknown: 'none', Pending: 'none' };
const spaced = (about) => about.replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);

/** Steps from the top to the bottom; after one that is broken the line does not go on. */
export function Steps({ steps, label }) {
  return html`<ol class="steps" aria-label=${label}>
    ${steps.map((step, at) => html`<li key=${`${step.about} ${at}`} class=${`step tone-${TONES[step.state] ?? 'none'}`} data-step=${step.about} data-state=${step.state}>
      <span class="step-mark"><${Shape} state=${STATES[step.state]} size=${14} /></span>
      <div><p class="step-about">${spaced(step.about)}${step.state !== 'Fine' && html` <${State} state=${STATES[step.state]} text=${WORDS[step.state]} />`}</p>
        <p class="step-outcome">${step.outcome}</p>
        ${step.why && html`<p class="step-why">${step.why}</p>`}
        ${step.hint && html`<p class="step-hint">What helps: ${step.hint}</p>`}</div>
    </li>`)}
  </ol>`;
}

/** A way through a node. `endpoint` is marked among the candidates; `from` is the request and the pointer to the way in its answer. */
export function ExplainedPath({ path, isOpen, isBroken, endpoint, from }) {
  const { node, mode, chosen, packet, service, steps, candidates = [], candidatesOmitted, fate, kernel } = path;
  const difference = kernel?.difference;
  return html`<${Panel} class="way">
    <details open=${isOpen} data-way=${node}>
      <summary class=${isBroken ? 'tone-worst' : 'tone-ok'}>
        <${Shape} state=${isBroken ? 'unreachable' : 'ok'} size=${16} />
        <span class="way-title"><b>${node}</b> <code>${packet.source} → ${socketOf(packet.destination, packet.port)}/${packet.protocol.toLowerCase()}</code></span>
        <span class="way-fate muted">${fate}</span>
      </summary>
      <p class="way-why muted">This node because ${chosen}. <a href=${to(['nodes', node])}>${node}</a>${mode ? `, in mode ${mode}` : ''}${service ? html`, Service <a href=${to(['services', ...service.split('/')])}>${service}</a>` : ''}.</p>
      <div class="way-sides">
        <div><h3>What should become of it</h3><${Steps} steps=${steps} label=${`Steps on ${node}`} /></div>
        <div><h3>What the kernel does</h3>
          ${kernel ? html`<${Kernel} kernel=${kernel} desired=${fate} />${difference && html`<${Difference} difference=${difference} />`}` : html`<${Unread} step=${steps.find(({ about, state }) => about === 'Kernel' && state !== 'Fine')} />`}
        </div>
      </div>
      ${candidates.length > 0 && html`<${Candidates} candidates=${candidates} omitted=${candidatesOmitted} endpoint=${endpoint} from=${from} />`}
    </details>
  <//>`;
}

/** Why there is no side of the kernel. */
function Unread({ step }) {
  return html`<p class="muted way-none">${step ? [step.outcome, step.why].filter(Boolean).join(': ') : 'The kernel was not asked.'}</p>`;
}

/** What the packet meets in the kernel, line by line. */
function Kernel({ kernel: { steps, fate, difference }, desired }) {
  return html`<ol class="kernel" aria-label="What it meets in the kernel">
      ${steps.map((step, at) => html`<li key=${at} class=${step.odd ? 'is-odd tone-worst' : ''} data-odd=${step.odd}>
        <span class="kernel-place">${step.odd && html`<${Shape} state="unreachable" size=${13} /><span class="unseen">differs: </span>`}${step.place}</span>
        ${step.rule && html`<code>${step.rule}</code>`}
        <span class="kernel-result">⇒ ${step.result}</span>
      </li>`)}
    </ol>
    <p class=${`kernel-fate ${difference ? 'tone-worst' : 'tone-ok'}`}><${Shape} state=${difference ? 'unreachable' : 'ok'} size=${14} /> <span>It ${fate}${fate === desired ? ', as it should' : ''}.</span></p>`;
}

/** Where the kernel begins to differ from what is wanted. */
function Difference({ difference: { place, rule, desired, kernel } }) {
  return html`<div class="difference tone-worst" data-difference>
    <p><b>First difference</b> at <code>${place}</code></p>
    ${rule && html`<pre tabindex="0" aria-label="The line that differs"><code>${rule}</code></pre>`}
    <dl><div><dt>wanted</dt><dd>it ${desired}</dd></div><div><dt>kernel</dt><dd>it ${kernel}</dd></div></dl>
    <p class="muted">Agents repair what they find changed within moments. If it is still so when you ask again, look at the state of the node.</p>
  </div>`;
}

/** The endpoints, and for each why it gets the packet or not. */
function Candidates({ candidates, omitted, endpoint, from }) {
  const largest = Math.max(1, ...candidates.filter(({ used }) => used).map(({ weight }) => weight));
  return html`<div class="candidates"><h3>Endpoints that it can be given</h3>
    <ul>${candidates.map(({ address, port, node, zone, weight, used, why }, index) => {
      const socket = socketOf(address, port);
      return html`<li key=${socket} class=${`candidate tone-${used ? 'ok' : 'none'} ${socket === endpoint ? 'is-asked' : ''}`} data-candidate=${socket} data-used=${used} aria-current=${socket === endpoint ? 'true' : undefined}>
        <${State} state=${used ? 'ok' : 'disabled'} text=${used ? 'Used' : 'Not used'} />
        <code>${socket}</code>
        <span class="muted candidate-where">${[node, zone && `zone ${zone}`].filter(Boolean).join(', ')}</span>
        <span class="candidate-weight" title=${`weight ${weight}`}><span class="candidate-bar"><span style=${{ width: `${used ? (weight / largest) * 100 : 0}%` }}></span></span><span class="muted">weight <${Field} path=${from.path} at=${`${from.at}/candidates/${index}/weight`}>${count(weight)}<//></span></span>
        <span class="candidate-why">${why}</span>
      </li>`;
    })}</ul>
    ${omitted > 0 && html`<p class="muted">and ${count(omitted)} more</p>`}
  </div>`;
}
