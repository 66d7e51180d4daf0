// States are a shape, a word and a colour: none of them alone has to be enough.
import { html } from '../core/html.js';

/** How a state looks: its tone, its shape, its word. Tones are colours of style/tokens.css. */
const STATES = {
  ok: ['ok', 'check', 'OK'],
  converged: ['ok', 'check', 'Converged'],
  established: ['ok', 'check', 'Established'],
  announced: ['ok', 'check', 'Announced'],
  up: ['ok', 'check', 'Up'],
  ready: ['ok', 'check', 'Ready'],
  atRisk: ['risk', 'triangle', 'At risk'],
  risk: ['risk', 'triangle', 'At risk'],
  lagging: ['risk', 'turn', 'Lagging'],
  drifted: ['risk', 'flag', 'Drifted'],
  waiting: ['risk', 'turn', 'Waiting'],
  notReady: ['risk', 'turn', 'Not ready'],
  draining: ['risk', 'drain', 'Draining'],
  degraded: ['bad', 'exclamation', 'Degraded'],
  failing: ['bad', 'exclamation', 'Failing'],
  conflicting: ['bad', 'exclamation', 'Conflicting'],
  unhealthy: ['bad', 'exclamation', 'Unhealthy'],
  unreachable: ['worst', 'cross', 'Unreachable'],
  disconnected: ['worst', 'empty', 'Disconnected'],
  down: ['worst', 'cross', 'Down'],
  disabled: ['none', 'bar', 'Disabled'],
  notice: ['none', 'info', 'Notice'],
  unknown: ['none', 'question', 'Unknown'],
  notChecked: ['none', 'question', 'Not checked'],
};

const SHAPES = {
  check: html`<path d="M3.5 8.5l3 3 6-7" />`,
  triangle: html`<path d="M8 2.8l5.8 10.4H2.2z" /><path d="M8 6.6v3.2M8 11.4v.1" />`,
  turn: html`<path d="M12.8 6.2A5.2 5.2 0 1 0 13.2 9M13 3v3.4H9.6" />`,
  flag: html`<path d="M4 14V2.5h7.5L9.6 5.4l1.9 2.9H4" />`,
  drain: html`<path d="M8 2.5v8M4.5 7.5L8 11l3.5-3.5M3 13.5h10" />`,
  exclamation: html`<path d="M8 2.6v7M8 12.9v.2" />`,
  cross: html`<path d="M4 4l8 8M12 4l-8 8" />`,
  empty: html`<circle cx="8" cy="8" r="5" /><path d="M4 12L12 4" />`,
  bar: html`<path d="M3.5 8h9" />`,
  info: html`<path d="M8 7v5.5M8 3.4v.2" />`,
  question: html`<path d="M5.6 5.7a2.4 2.4 0 1 1 3.3 2.3c-.7.3-.9.8-.9 1.6M8 12.6v.2" />`,
};

const look = (state) => STATES[state] ?? STATES[lowered(state)] ?? ['none', 'question', state ?? 'Unknown'];
const lowered = (state) => (state ? state[0].toLowerCase() + state.slice(1) : state);

/** The tone of a state: ok, risk, bad, worst or none. */
export const tone = (state) => look(state)[0];
export const word = (state) => look(state)[2];

/** The shape of a state alone; what stands beside it says the word. */
export function Shape({ state, size = 16 }) {
  const [, shape] = look(state);
  return html`<svg class="shape" width=${size} height=${size} viewBox="0 0 16 16" aria-hidden="true">${SHAPES[shape]}</svg>`;
}

/** A state: shape and word on its colour. `text` stands for the word. */
export function State({ state, text }) {
  return html`<span class=${`state tone-${tone(state)}`} data-state=${state}><${Shape} state=${state} size=${13} />${text ?? word(state)}</span>`;
}
