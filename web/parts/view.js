// What all views have: a title, where it stands, what can be copied, and one way to say that there is nothing.
import { html, useEffect } from '../core/html.js';
import { ago, utc } from '../core/format.js';
import { useNow } from '../core/use.js';
import { CopyMenu } from './copy.js';

/**
 * The frame of a view.
 * @param {{name: string, title: any, heading?: string, kicker?: any, aside?: any, copy?: {api?: string, cli?: string}, children: any}} props `name` stands
 *   in `data-view`; `heading` is the title as text, for the window; `aside` stands beside the title
 */
export function View({ name, title, heading, kicker, aside, copy, children }) {
  const text = heading ?? title;
  useEffect(() => {
    document.title = `${text} · Tidegate`;
  }, [text]);
  return html`<article class="view" data-view=${name}>
    <header class="view-head">
      <div>
        ${kicker && html`<p class="kicker">${kicker}</p>`}
        <h1 tabindex="-1">${title}</h1>
      </div>
      <div class="view-aside">${aside}${copy && html`<${CopyMenu} ...${copy} />`}</div>
    </header>
    ${children}
  </article>`;
}

/** A part of a view with a heading. `aside` stands beside it. */
export function Panel({ title, aside, id, children, class: name = '' }) {
  return html`<section class=${`panel ${name}`} id=${id} aria-label=${typeof title === 'string' ? title : undefined}>
    ${title && html`<header class="panel-head"><h2>${title}</h2><div class="panel-aside">${aside}</div></header>`} ${children}
  </section>`;
}

/** There is nothing yet: what it would be, and the first step to it. */
export function Empty({ title, children, command }) {
  return html`<div class="empty">
    <p class="empty-title">${title}</p>
    <div>${children}</div>
    ${command && html`<pre tabindex="0"><code>${command}</code></pre>`}
  </div>`;
}

/** Something could not be had. */
export function Failed({ error, retry }) {
  const problem = error?.problem;
  return html`<div class="failed" role="alert">
    <p><b>${problem?.title ?? 'This cannot be shown'}</b></p>
    <p>${error?.message}</p>
    ${problem?.hint && html`<p class="muted">${problem.hint}</p>`}
    ${problem?.errors?.length > 0 &&
    html`<ul>
      ${problem.errors.map((one) => html`<li><code>${one.pointer}</code> ${one.message ?? one.detail}${one.hint && html` <span class="muted">${one.hint}</span>`}</li>`)}
    </ul>`}
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

/** Room for what is being asked for, so that nothing jumps when it comes. */
export function Waiting({ rows = 3 }) {
  return html`<div class="waiting" role="status" aria-busy="true" aria-label="Loading">${Array.from({ length: rows }, () => html`<div class="waiting-row"></div>`)}</div>`;
}

/** What `useApi` has: the answer, room for it, or why not. */
export function Loaded({ of, rows, children }) {
  if (of.data !== undefined) return children(of.data);
  return of.error ? html`<${Failed} error=${of.error} retry=${of.refresh} />` : html`<${Waiting} rows=${rows} />`;
}

/** How long ago a time of the API is; the time itself when it is pointed at. */
export function Ago({ time }) {
  const now = useNow();
  return time ? html`<time datetime=${time} title=${utc(time)}>${ago(time, now)}</time>` : html`<span class="muted">–</span>`;
}

/** A term and what it is, one under the other. */
export function Facts({ of }) {
  return html`<dl class="facts">${of.filter(Boolean).map(([term, value]) => html`<div key=${term}><dt>${term}</dt><dd>${value ?? '–'}</dd></div>`)}</dl>`;
}

/** Parts of a view of which one is shown; which one stands in the address. */
export function Tabs({ tabs, active, to }) {
  return html`<nav class="tabs" aria-label="Parts of this view">
    ${tabs.map(([key, label]) => html`<a key=${key} href=${to(key)} aria-current=${key === active ? 'page' : undefined}>${label}</a>`)}
  </nav>`;
}
