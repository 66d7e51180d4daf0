// The Services with the most new connections, each with its last five minutes.
import { html } from '../core/html.js';
import { to } from '../core/route.js';
import { Empty, Panel } from './view.js';
import { Line, Rate, useLines } from './traffic.js';

const SHOWN = 6;

/** @param {{traffic: Map<string, {of: any, at: number}>}} props what `useTraffic` has, busiest first */
export function Busiest({ traffic }) {
  const busy = [...traffic].filter(([, { of }]) => of.perSecond?.connections > 0).slice(0, SHOWN);
  useLines(busy.map(([key]) => key));
  return html`<${Panel} id="busiest" title="Busiest Services" aside=${html`<a href=${to(['services'], { 'services.sort': '-traffic' })}>All by traffic</a>`}>
    ${busy.length === 0
      ? html`<${Empty} title="No traffic now">No node has counted a new connection in the last report.<//>`
      : html`<ul class="busiest">${busy.map(([key, counted]) => html`<li key=${key} data-key=${key}><a href=${to(['services', ...key.split('/')])}><span class="muted">${key.split('/')[0]}/</span><wbr />${key.split('/')[1]}</a><${Line} of=${key} /><span class="number"><${Rate} counted=${counted} /></span></li>`)}</ul>`}
  <//>`;
}
