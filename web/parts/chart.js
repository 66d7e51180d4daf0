// Lines over time, as SVG; what is not known is a gap. Behind each is a table. All charts of a view show the same moment.
import { html, useMemo } from '../core/html.js';
import { createStore, useStore } from '../core/store.js';
import { short } from '../core/format.js';
import { ticksOf } from './ticks.js';

const WIDTH = 600;
const HEIGHT = 120;
/** Lines of the table are a minute apart. */
const TABLE_STEP_SECONDS = 60;
/** Marks that are closer than this share of the width are one. */
const MARKS_APART = 0.012;

/** The moment that is pointed at in one of the charts, in ms; all of them show it. */
const pointed = createStore(undefined);

/** The path of points that are numbers or null, scaled to a box; in steps, a value holds until the next. */
function pathOf(points, max, { width, height, isStepped }) {
  let path = '';
  let isDrawing = false;
  points.forEach((point, at) => {
    if (point === null || point === undefined) {
      isDrawing = false;
      return;
    }
    const x = (points.length < 2 ? 0 : (at / (points.length - 1)) * width).toFixed(1);
    const y = (height - (point / max) * height).toFixed(1);
    // A point between gaps is a dot.
    path += !isDrawing ? `M${x} ${y}h0` : isStepped ? `H${x}V${y}` : `L${x} ${y}`;
    isDrawing = true;
  });
  return path;
}

const largest = (series) => Math.max(0, ...series.flatMap(({ points }) => points.map((point) => point ?? 0)));

/** A line as large as a word. */
export function Spark({ points, label }) {
  const max = largest([{ points }]) || 1;
  return html`<svg class="spark" viewBox="0 -2 80 24" width="80" height="24" role="img" aria-label=${label}><path d=${pathOf(points, max, { width: 80, height: 20 })} /></svg>`;
}

/**
 * Lines of the same unit over time.
 * @param {{label: string, start: string, stepSeconds: number, series: {name: string, points: (number | null)[]}[], show?: (value: number) => string, isCount?: boolean,
 *   marks?: {at: string, label: string, href?: string}[]}} props `marks` are moments, such as writes; counts are drawn in steps
 */
export function Chart({ label, start, stepSeconds, series, show = short, isCount = false, marks = [] }) {
  const moment = useStore(pointed);
  const length = Math.max(0, ...series.map(({ points }) => points.length));
  const ticks = useMemo(() => ticksOf(largest(series), { isCount }), [series, isCount]);
  const max = ticks.at(-1);
  const began = Date.parse(start);
  const timeOf = (index) => new Date(began + index * stepSeconds * 1_000).toISOString().slice(11, 19);
  const at = moment === undefined ? undefined : Math.round((moment - began) / 1_000 / stepSeconds);
  const isSeen = at !== undefined && at >= 0 && at < length;
  const share = (index) => (length < 2 ? 0 : index / (length - 1));
  const point = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    pointed.set(began + Math.round(((event.clientX - box.left) / box.width) * (length - 1)) * stepSeconds * 1_000);
  };
  const placed = apart(marks.map((mark) => ({ ...mark, x: share((Date.parse(mark.at) - began) / 1_000 / stepSeconds) })).filter(({ x }) => x >= 0 && x <= 1));
  return html`<figure class="chart" data-chart=${label}>
    <figcaption>
      <span>${label}</span>
      <span class="chart-values">${isSeen && html`<span class="muted">${timeOf(at)}</span>`}${series.map(({ name, points }, index) => html`<span key=${name} class=${`line-${index}`}><i></i>${series.length > 1 ? name : ''} <b>${known(isSeen ? points[at] : lastOf(points), show)}</b></span>`)}</span>
    </figcaption>
    <div class="chart-room">
      <div class="chart-ticks" aria-hidden="true">${ticks.map((tick) => html`<span key=${tick} style=${{ bottom: `${(tick / max) * 100}%` }}>${show(tick)}</span>`)}</div>
      <div class="chart-box" onPointerMove=${point} onPointerLeave=${() => pointed.set(undefined)}>
        <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`${label}: at most ${show(largest(series))}`}>
          <path class="chart-grid" d=${ticks.map((tick) => `M0 ${(HEIGHT - (tick / max) * HEIGHT).toFixed(1)}H${WIDTH}`).join('')} />
          ${series.map(({ name, points }, index) => html`<path key=${name} class=${`chart-line line-${index}`} d=${pathOf(points, max, { width: WIDTH, height: HEIGHT, isStepped: isCount })} />`)}
          ${isSeen && html`<path class="chart-at" d=${`M${(share(at) * WIDTH).toFixed(1)} 0V${HEIGHT}`} />`}
        </svg>
        ${placed.map((mark) => html`<a key=${mark.at + mark.label} class=${`chart-mark ${mark.x > 0.6 ? 'is-late' : ''}`} href=${mark.href} aria-label=${mark.label} data-label=${mark.label} style=${{ left: `${mark.x * 100}%` }}></a>`)}
      </div>
    </div>
    <div class="chart-foot"><span>${length ? timeOf(0) : ''}</span><span>${length ? timeOf(length - 1) : ''} UTC</span></div>
    <details class="chart-table">
      <summary>As a table</summary>
      <div class="scroll" tabindex="0" role="group" aria-label=${`${label}, as a table`}>
        <table>
          <thead><tr><th scope="col">Time (UTC)</th>${series.map(({ name }) => html`<th scope="col" class="number" key=${name}>${name}</th>`)}</tr></thead>
          <tbody>${inMinutes(length, stepSeconds).map((index) => html`<tr key=${index}><td>${timeOf(index)}</td>${series.map(({ name, points }) => html`<td class="number" key=${name}>${known(points[index], show)}</td>`)}</tr>`)}</tbody>
        </table>
      </div>
    </details>
  </figure>`;
}

/** Marks that would lie on each other are one, which names them all. */
function apart(marks) {
  const all = [];
  for (const mark of [...marks].sort((a, b) => a.x - b.x)) {
    const last = all.at(-1);
    if (last && mark.x - last.x < MARKS_APART) last.label = `${last.label}\n${mark.label}`;
    else all.push({ ...mark });
  }
  return all;
}

const known = (value, show) => (value === null || value === undefined ? '–' : show(value));
const lastOf = (points) => points.findLast((point) => point !== null && point !== undefined);
/** The table has a line a minute, the newest first. */
const inMinutes = (length, stepSeconds) => Array.from({ length }, (_, index) => length - 1 - index).filter((_, index) => index % Math.max(1, Math.round(TABLE_STEP_SECONDS / stepSeconds)) === 0);
