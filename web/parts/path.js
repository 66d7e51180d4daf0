// A graph of boxes in columns, drawn from the left to the right: edges as SVG, what stands in the boxes as text. Behind it is the
// same as a list.
import { html, useLayoutEffect, useMemo, useRef, useState } from '../core/html.js';
import { perSecond, plural } from '../core/format.js';
import { Field } from './field.js';
import { Shape, tone, word } from './state.js';

/** Widths of the columns of a Service in CSS pixels, and where there is little room: less than `roomyMin`. Less than `min` is scrolled.
 * `hasWords`: the cause of what is broken stands on its edge. */
const OF_SERVICE = { roomy: [122, 178, 176, 154, 214], tight: [104, 150, 120, 106, 166], roomyMin: 1_000, min: 730, hasWords: true };
/** Between two boxes of a column, from top to bottom. */
const GAP_PX = 12;
/** Heights of a box with two lines, and with a third. */
const LOW_PX = 52;
const HIGH_PX = 72;
/** What is left free around the drawing for the outline of what has the keyboard; padding of `.path-scroll`. */
const EDGE_OF_SCROLL_PX = 4;
/** Causes that are written out below the drawing. */
const CAUSES_MAX = 5;
/** Room for the heading of a column. */
const HEAD_PX = 28;
/** Up to this the columns are drawn one below the other, with so many boxes beside each other. */
const NARROW_MAX = 700;
const NARROW_BOXES = 2;
/** Between two columns that are drawn one below the other; a heading stands there. */
const NARROW_GAP_PX = 56;
/** How wide the busiest edge is, and one without traffic. */
const EDGE_MAX = 8;
const EDGE_MIN = 1.5;
/** Between two columns, from the left to the right, where no words have to stand. */
const GAP_MIN_PX = 38;
/** Words that have less room say nothing; the box that their edge leads to says the same. */
const WORDS_MIN_PX = 72;

/**
 * The drawing.
 * @param {{graph: {columns: any[][], edges: any[]}, headings: string[], label: string, paths: Record<string, string>, room?: typeof OF_SERVICE, leadsTo?: string, hint?: string}} props `paths` of
 *   the requests that values are from: a box names its own by key, or is itself the path; `leadsTo` what a click on an edge does, in a word
 */
export function PathGraph({ graph, headings, label, paths, room = OF_SERVICE, leadsTo = 'Explain', hint = 'An edge leads to what becomes of a packet there.' }) {
  const [box, width] = useWidth(room.min);
  const placed = useMemo(() => (width <= Math.min(NARROW_MAX, room.min) ? placeDown(graph, width) : place(graph, Math.max(room.min, width), room)), [graph, width]);
  const [pointed, setPointed] = useState(undefined);
  const keys = useEdgeKeys();
  const isNear = (id) => pointed === undefined || placed.edges.some((edge) => (edge.from === pointed || edge.to === pointed) && (edge.from === id || edge.to === id)) || id === pointed;
  const point = { onPointerOver: (event) => setPointed(event.target.closest?.('[data-box]')?.dataset.box), onPointerLeave: () => setPointed(undefined) };
  return html`<figure class="path" aria-label=${label}>
    <div class="path-scroll" ref=${box} tabindex=${placed.width > width ? 0 : undefined} role="group" aria-label=${`${label}, drawn`}>
      <div class="path-room" style=${{ width: `${placed.width}px` }} ...${point}>
        <div class=${`path-board ${placed.isTight ? 'is-tight' : ''}`} style=${{ height: `${placed.height}px` }}>
          ${placed.heads.map(({ left, top }, at) => html`<span key=${headings[at]} class="path-head" aria-hidden="true" style=${{ left: `${left}px`, top: `${top}px` }}>${headings[at]}</span>`)}
          <svg class="path-edges" width=${placed.width} height=${placed.height} role="group" aria-label="Edges: arrow keys go from one to the next" onKeyDown=${keys}>
            ${placed.edges.map((edge, at) => html`<${Edge} key=${edge.id} edge=${edge} leadsTo=${leadsTo} isFirst=${at === 0} isFaint=${pointed !== undefined && edge.from !== pointed && edge.to !== pointed} />`)}
          </svg>
          ${placed.words.map((edge) => html`<span key=${edge.id} class="path-cause tone-worst" title=${edge.cause} aria-hidden="true" style=${{ left: `${edge.left}px`, top: `${edge.top}px`, width: `${edge.room}px` }}><span>${edge.cause}</span></span>`)}
          ${placed.boxes.map((one) => html`<${Box} key=${one.id} box=${one} paths=${paths} isRateBelow=${one.isGroup || placed.isTight} isFaint=${!isNear(one.id)} />`)}
        </div>
      </div>
    </div>
    <${Causes} edges=${placed.edges} />
    <${Legend} edges=${placed.edges} hint=${hint} />
    <details class="path-list"><summary>As a list</summary><${List} columns=${graph.columns} edges=${placed.edges} headings=${headings} /></details>
  </figure>`;
}

function Box({ box, paths, isRateBelow, isFaint }) {
  const { id, state, title, note, detail, reason, href, at, rate, rateAt, sum, isGroup, left, top, width, height } = box;
  const name = at ? html`<${Field} path=${paths[at[0]] ?? at[0]} at=${at[1]}>${title}<//>` : title;
  const shown = rate !== undefined && rate !== null ? html`<${Field} path=${paths.traffic} at=${rateAt}>${perSecond(rate)}<//>` : sum !== undefined ? perSecond(sum) : undefined;
  return html`<div class=${`path-box tone-${tone(state)} ${isGroup ? 'is-group' : ''} ${isFaint ? 'is-faint' : ''}`} data-box=${id} data-state=${state} style=${{ left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` }}>
    <p class="path-title">${state !== 'notice' && html`<${Shape} state=${state} size=${14} /><span class="unseen">${word(state)}:</span>`}${href ? html`<a href=${href} title=${title}>${name}</a>` : html`<span title=${title}>${name}</span>`}${shown && !isRateBelow && html`<span class="path-rate" title="New connections a second">${shown}</span>`}</p>
    ${note && html`<p class="path-note" title=${detail ?? note}>${shown && isRateBelow && html`${shown} · `}${note}</p>`}
    ${reason && html`<p class="path-reason" title=${reason}>${reason}</p>`}
  </div>`;
}

function Edge({ edge, leadsTo, isFirst, isFaint }) {
  const { from, to, state, isDashed, thickness, d, href, said } = edge;
  const name = `path-edge tone-${edgeTone(edge)} ${isDashed ? 'is-dashed' : ''} ${isFaint ? 'is-faint' : ''}`;
  const lines = html`<title>${said}</title><path class="path-hit" d=${d} /><path class="path-line" d=${d} stroke-width=${thickness} />`;
  const data = { 'data-edge': `${from} → ${to}`, 'data-state': state };
  return href ? html`<a class=${name} href=${href} tabindex=${isFirst ? 0 : -1} aria-label=${`${said}. ${leadsTo}`} ...${data}>${lines}</a>` : html`<g class=${name} ...${data}>${lines}</g>`;
}

/** Only what is broken has a colour; the rest is calm. */
const edgeTone = ({ state }) => ({ worst: 'worst', bad: 'worst', risk: 'risk' })[tone(state)] ?? 'none';
/** The cause of what is broken stands beside it. */
const isWordedEdge = (edge) => Boolean(edge.cause) && edgeTone(edge) === 'worst';

/** Each cause once, in full, with the edges that it stands for. */
function Causes({ edges }) {
  const causes = [...Map.groupBy(edges.filter((edge) => edge.cause && !edge.isDashed), ({ cause }) => cause)].reverse();
  if (causes.length === 0) return null;
  return html`<ul class="path-causes" aria-label="What is wrong on the way">
    ${causes.slice(0, CAUSES_MAX).map(([cause, of]) => html`<li key=${cause} class=${`tone-${edgeTone(of[0])}`}><${Shape} state=${of[0].state} size=${14} /><span>${of[0].href ? html`<a href=${of[0].href}>${of[0].ends}</a>` : of[0].ends}${of.length > 1 ? ` and ${plural(of.length - 1, 'more edge')}` : ''}: ${cause}</span></li>`)}
    ${causes.length > CAUSES_MAX && html`<li class="muted">and ${causes.length - CAUSES_MAX} more, in the list</li>`}
  </ul>`;
}

function Legend({ edges, hint }) {
  const has = (test) => edges.some(test);
  return html`<p class="path-legend">
    ${has(({ rate }) => rate > 0) && html`<span><svg width="30" height="12" aria-hidden="true"><path d="M0 6h30" stroke-width="5" /></svg>the wider, the more new connections</span>`}
    ${has(({ isDashed }) => isDashed) && html`<span class="tone-risk"><svg width="30" height="12" aria-hidden="true"><path class="is-dashed" d="M0 6h30" stroke-width="2" /></svg>drained: what is established finishes</span>`}
    ${has((edge) => edgeTone(edge) === 'risk' && !edge.isDashed) && html`<span class="tone-risk"><svg width="30" height="12" aria-hidden="true"><path d="M0 6h30" stroke-width="2" /></svg>not all of it goes on</span>`}
    ${has((edge) => edgeTone(edge) === 'worst') && html`<span class="tone-worst"><svg width="30" height="12" aria-hidden="true"><path d="M0 6h30" stroke-width="2" /></svg>cannot be used, with the cause</span>`}
    <span>${hint}</span>
  </p>`;
}

function List({ columns, edges, headings }) {
  return html`<div class="pad">
    ${columns.map((boxes, at) => html`<div key=${headings[at]}><h3>${headings[at]}</h3><ul>${boxes.map((box) => html`<li key=${box.id}>${box.title}: ${word(box.state).toLowerCase()}${box.note ? `, ${box.detail ?? box.note}` : ''}${box.reason ? ` (${box.reason})` : ''}</li>`)}</ul></div>`)}
    <h3>Edges</h3>
    <ul>${edges.map((edge) => html`<li key=${edge.id}>${edge.href ? html`<a href=${edge.href}>${edge.said}</a>` : edge.said}</li>`)}</ul>
  </div>`;
}

/** Arrow keys go from edge to edge, so that the whole drawing is one step for Tab. */
function useEdgeKeys() {
  return (event) => {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!move) return;
    const links = [...event.currentTarget.querySelectorAll('a')];
    const next = links[(links.indexOf(event.target.closest('a')) + move + links.length) % links.length];
    for (const link of links) link.setAttribute('tabindex', link === next ? '0' : '-1');
    next?.focus();
    event.preventDefault();
  };
}

/** The width of an element, now and when it changes. */
function useWidth(initially) {
  const element = useRef();
  const [width, setWidth] = useState(initially);
  useLayoutEffect(() => {
    const look = () => setWidth(Math.floor(element.current.clientWidth) - EDGE_OF_SCROLL_PX);
    look();
    const observer = new ResizeObserver(look);
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return [element, width];
}

/** Where each box and edge is, in a room so wide. */
function place({ columns, edges }, width, { roomy, tight, roomyMin, hasWords }) {
  const widths = width < roomyMin ? tight : roomy;
  const columnOf = new Map(columns.flatMap((boxes, at) => boxes.map(({ id }) => [id, at])));
  const isWorded = widths.slice(1).map((_, at) => hasWords && edges.some((edge) => isWordedEdge(edge) && columnOf.get(edge.to) === at + 1));
  const free = width - sum(widths);
  const worded = free < isWorded.length * GAP_MIN_PX ? 0 : isWorded.filter(Boolean).length;
  // Words get what the gaps without them can spare.
  const gaps = isWorded.map((has) => (worded === 0 ? free / isWorded.length : has ? (free - (isWorded.length - worded) * GAP_MIN_PX) / worded : GAP_MIN_PX));
  const x = widths.map((_, at) => sum(widths.slice(0, at)) + sum(gaps.slice(0, at)));
  const tall = columns.map((boxes) => sum(boxes.map((box) => heightOf(box) + GAP_PX)) - GAP_PX);
  const height = Math.max(LOW_PX, ...tall);
  const boxes = columns.flatMap((list, at) => {
    let top = HEAD_PX + (height - tall[at]) / 2;
    return list.map((box) => {
      const one = { ...box, left: x[at], top, width: widths[at], height: heightOf(box) };
      top += one.height + GAP_PX;
      return one;
    });
  });
  const drawn = drawnEdges(edges, boxes, curveAcross);
  return { width, isTight: width < roomyMin, height: HEAD_PX + height, boxes, edges: drawn, words: hasWords ? words(drawn, boxes, (id) => gaps[columnOf.get(id) - 1]) : [], heads: x.map((left) => ({ left, top: 0 })) };
}

/** The same one below the other, for narrow screens; causes stand in the boxes only. */
function placeDown({ columns, edges }, width) {
  const boxWidth = (width - GAP_PX * (NARROW_BOXES - 1)) / NARROW_BOXES;
  const heads = [];
  const boxes = [];
  let top = 0;
  for (const list of columns) {
    heads.push({ left: 0, top });
    top += HEAD_PX;
    for (let at = 0; at < list.length; at += NARROW_BOXES) {
      const row = list.slice(at, at + NARROW_BOXES);
      const height = Math.max(...row.map(heightOf));
      row.forEach((box, place) => boxes.push({ ...box, left: place * (boxWidth + GAP_PX), top, width: boxWidth, height }));
      top += height + GAP_PX;
    }
    top += NARROW_GAP_PX - HEAD_PX - GAP_PX;
  }
  return { width, height: top - NARROW_GAP_PX + HEAD_PX + GAP_PX, boxes, edges: drawnEdges(edges, boxes, curveDown), words: [], heads };
}

const heightOf = ({ reason }) => (reason ? HIGH_PX : LOW_PX);

/** The edges with the curves that they are drawn by; those that are broken last, above the others. */
function drawnEdges(edges, boxes, curve) {
  const byId = new Map(boxes.map((box) => [box.id, box]));
  const busiest = Math.max(0, ...edges.map(({ rate }) => rate ?? 0));
  const thick = (rate) => (rate > 0 ? EDGE_MIN + (EDGE_MAX - EDGE_MIN) * Math.sqrt(rate / busiest) : EDGE_MIN);
  return edges
    .filter(({ from, to }) => byId.has(from) && byId.has(to))
    .map((edge) => ({ ...edge, d: curve(byId.get(edge.from), byId.get(edge.to)), said: said(edge, byId), ends: `${byId.get(edge.from).title} → ${byId.get(edge.to).title}`, thickness: thick(edge.rate) }))
    .sort((a, b) => (edgeTone(a) === 'worst' ? 1 : 0) - (edgeTone(b) === 'worst' ? 1 : 0));
}

const sum = (numbers) => numbers.reduce((all, number) => all + number, 0);

function curveAcross(from, to) {
  const [x1, y1, x2, y2] = [from.left + from.width, from.top + from.height / 2, to.left, to.top + to.height / 2];
  const bend = (x1 + x2) / 2;
  return `M${x1.toFixed(1)} ${y1.toFixed(1)}C${bend.toFixed(1)} ${y1.toFixed(1)} ${bend.toFixed(1)} ${y2.toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`;
}

function curveDown(from, to) {
  const [x1, y1, x2, y2] = [from.left + from.width / 2, from.top + from.height, to.left + to.width / 2, to.top];
  const bend = (y1 + y2) / 2;
  return `M${x1.toFixed(1)} ${y1.toFixed(1)}C${x1.toFixed(1)} ${bend.toFixed(1)} ${x2.toFixed(1)} ${bend.toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`;
}

/** An edge in words. */
function said({ from, to, state, isDashed, rate, cause }, byId) {
  const how = isDashed ? 'drained' : edgeTone({ state }) === 'none' ? (rate === undefined ? '' : `${perSecond(rate)} new connections`) : word(state).toLowerCase();
  return `${byId.get(from).title} to ${byId.get(to).title}${how ? `: ${how}` : ''}${cause ? `, ${cause}` : ''}`;
}

/** The causes, each once where its edges end. */
function words(edges, boxes, roomOf) {
  const byId = new Map(boxes.map((box) => [box.id, box]));
  const ends = new Map();
  for (const edge of edges) if (isWordedEdge(edge) && !ends.has(edge.to)) ends.set(edge.to, edge);
  return [...ends.values()].filter((edge) => roomOf(edge.to) >= WORDS_MIN_PX).map((edge) => {
    const to = byId.get(edge.to);
    const room = roomOf(edge.to);
    return { id: edge.to, cause: edge.cause, left: to.left - room + 10, room: room - 18, top: to.top + to.height / 2 - 11 };
  });
}
