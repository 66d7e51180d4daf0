// Lines over the last hour, as SVG; what is not known is a gap. Behind each is a table.
import { html, useMemo, useState } from '../core/html.js';
import { short } from '../core/format.js';

const WIDTH = 600;
const HEIGHT = 120;

/** The path of points that are numbers or null, scaled to a box. */
function pathOf(points, max, width, height) {
  let path = '';
  let isDrawing = false;
  points.forEach((point, at) => {
    if (point === null || point === undefined) {
      isDrawing = false;
      return;
    }
    const x = points.length < 2 ? 0 : (at / (points.length - 1)) * width;
    path += `${isDrawing ? 'L' : 'M'}${x.toFixed(1)} ${(height - (point / max) * height).toFixed(1)}`;
    isDrawing = true;
  });
  return path;
}

const largest = (series) => Math.max(1e-9, ...series.flatMap(({ points }) => points.map((point) => point ?? 0)));

/** A line as large as a word. */
export function Spark({ points, label }) {
  const max = largest([{ points }]);
  return html`<svg class="spark" viewBox="0 -2 80 24" width="80" height="24" role="img" aria-label=${label}><path d=${pathOf(points, max, 80, 20)} /></svg>`;
}

/**
 * Lines of the same unit over time.
 * @param {{label: string, start: string, stepSeconds: number, series: {name: string, points: (number | null)[]}[], show?: (value: number) => string, marks?: {at: string, label: string, href?: string}[]}} props
 *   `marks` are moments, such as writes
 */
export function Chart({ label, start, stepSeconds, series, show = short, marks = [] }) {
  const [at, setAt] = useState(undefined);
  const length = Math.max(0, ...series.map(({ points }) => points.length));
  const max = useMemo(() => largest(series), [series]);
  const began = Date.parse(start);
  const timeOf = (index) => new Date(began + index * stepSeconds * 1000).toISOString().slice(11, 19);
  const point = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    setAt(Math.round(((event.clientX - box.left) / box.width) * (length - 1)));
  };
  const x = (index) => (length < 2 ? 0 : (index / (length - 1)) * WIDTH);
  const placed = marks.map((mark) => ({ ...mark, x: x((Date.parse(mark.at) - began) / 1000 / stepSeconds) })).filter((mark) => mark.x >= 0 && mark.x <= WIDTH);
  const seen = at !== undefined && at >= 0 && at < length;
  return html`<figure class="chart">
    <figcaption>
      <span>${label}</span>
      <span class="chart-values">${seen && html`<span class="muted">${timeOf(at)}</span>`}${series.map(({ name, points }, index) => html`<span key=${name} class=${`line-${index}`}><i></i>${series.length > 1 ? name : ''} <b>${known(seen ? points[at] : lastOf(points), show)}</b></span>`)}</span>
    </figcaption>
    <svg viewBox=${`0 -4 ${WIDTH} ${HEIGHT + 8}`} preserveAspectRatio="none" role="img" aria-label=${`${label}: at most ${show(max)}`} onPointerMove=${point} onPointerLeave=${() => setAt(undefined)}>
      <path class="chart-grid" d=${`M0 0H${WIDTH}M0 ${HEIGHT / 2}H${WIDTH}M0 ${HEIGHT}H${WIDTH}`} />
      ${placed.map((mark) => html`<path key=${mark.at} class="chart-mark" d=${`M${mark.x} 0V${HEIGHT}`}><title>${mark.label}</title></path>`)}
      ${series.map(({ name, points }, index) => html`<path key=${name} class=${`chart-line line-${index}`} d=${pathOf(points, max, WIDTH, HEIGHT)} />`)}
      ${seen && html`<path class="chart-at" d=${`M${x(at)} 0V${HEIGHT}`} />`}
    </svg>
    <div class="chart-foot"><span>${length ? timeOf(0) : ''}</span><span>at most ${show(max)}</span><span>${length ? timeOf(length - 1) : ''} UTC</span></div>
    <details class="chart-table">
      <summary>As a table</summary>
      <div class="scroll" tabindex="0" role="group" aria-label=${`${label}, as a table`}>
        <table>
          <thead><tr><th scope="col">Time (UTC)</th>${series.map(({ name }) => html`<th scope="col" class="number" key=${name}>${name}</th>`)}</tr></thead>
          <tbody>${everySixth(length).map((index) => html`<tr key=${index}><td>${timeOf(index)}</td>${series.map(({ name, points }) => html`<td class="number" key=${name}>${known(points[index], show)}</td>`)}</tr>`)}</tbody>
        </table>
      </div>
    </details>
  </figure>`;
}

const known = (value, show) => (value === null || value === undefined ? '–' : show(value));
const lastOf = (points) => points.findLast((point) => point !== null && point !== undefined);
/** The table has a line a minute, the newest first. */
const everySixth = (length) => Array.from({ length }, (_, index) => length - 1 - index).filter((_, index) => index % 6 === 0);
