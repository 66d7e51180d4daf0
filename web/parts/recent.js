// Recent changes: who did what, with what the cluster did of itself folded below it.
import { html } from '../core/html.js';
import { plural } from '../core/format.js';
import { to } from '../core/route.js';
import { did, folded } from './changes-model.js';
import { Ago, Empty, Loaded, Panel } from './view.js';

/** Writes of people, and of the cluster itself, that are shown. */
const PEOPLE_SHOWN = 7;
const OWN_SHOWN = 4;

/** @param {{answer: any}} props what `useApi` has of `GET /v1/history` */
export function Recent({ answer }) {
  return html`<${Panel} id="recent" title="Recent changes" aside=${html`<a href=${to(['history'])}>History</a>`}>
    <${Loaded} of=${answer} rows=${PEOPLE_SHOWN}>${({ items = [] }) => {
      if (items.length === 0) return html`<${Empty} title="Nothing was changed yet">Every write is kept with who made it and what it did.<//>`;
      const { people, own } = folded(items);
      return html`<ul class="recent">${people.slice(0, PEOPLE_SHOWN).map((one) => html`<${Write} key=${one.change.revision} ...${one} />`)}</ul>
        ${own.length > 0 && html`<details class="recent-own" open=${people.length === 0}><summary>${plural(own.length, 'change')} by the cluster itself</summary><${Followed} of=${own} /></details>`}`;
    }}<//>
  <//>`;
}

function Write({ change, followed }) {
  const { revision, author, message, at } = change;
  const link = html`<a href=${to(['history', String(revision)])}>r${revision}</a>`;
  return html`<li data-key=${revision} data-author=${author}>
    <div class="recent-head"><b>${author && author !== 'unknown' ? author : 'somebody'}</b><span class="muted">${link} · <${Ago} time=${at} /></span></div>
    <div class="recent-what">${message && html`${message} · `}<span class=${message ? 'muted' : ''}>${did(change)}</span></div>
    ${followed.length > 0 && html`<details><summary>${plural(followed.length, 'change')} by the cluster followed</summary><${Followed} of=${followed} /></details>`}
  </li>`;
}

function Followed({ of }) {
  return html`<ul class="recent-followed">${of.slice(0, OWN_SHOWN).map((change) => html`<li key=${change.revision}><a href=${to(['history', String(change.revision)])}>r${change.revision}</a> ${did(change)} <span class="muted"><${Ago} time=${change.at} /></span></li>`)}${of.length > OWN_SHOWN && html`<li class="muted">and ${of.length - OWN_SHOWN} more in the history</li>`}</ul>`;
}
