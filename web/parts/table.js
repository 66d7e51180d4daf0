// Tables of any length: sorted by a click, filtered by words, and only the rows in sight are in the document, all of the same
// height. Sort and filter stand in the address.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../core/html.js';
import { remark, useRoute } from '../core/route.js';
import { count } from '../core/format.js';

/** Height of a row in CSS pixels, where a table does not say another; `--row` in style/parts.css is the same. */
const ROW_PX = 40;
/** Rows beyond the edges that are drawn. */
const MARGIN_ROWS = 10;
/** Time without scrolling after which `onShown` is told the rows, so that it costs no frame. */
const RESTS_MS = 250;
/** Up to so many rows all of them are drawn. */
const WHOLE_ROWS_MAX = 60;

/**
 * @typedef {object} Column
 * @property {string} key
 * @property {string} label
 * @property {(row: any) => any} show what stands in the cell
 * @property {((row: any) => string | number)=} by what it is sorted by; without it it cannot be
 * @property {((row: any) => string)=} words what the filter looks at
 * @property {string=} width of the column, in CSS
 * @property {boolean=} isNumber on the right
 * @property {boolean=} isExtra left out where there is little room
 * @property {boolean=} isWide left out already in a window of the width of a laptop with another one beside it
 */

/**
 * A table.
 * @param {{id: string, label: string, columns: Column[], rows: any[], keyOf: (row: any) => string, linkOf?: (row: any) => string, stateOf?: (row: any) => string,
 *   empty?: any, filters?: any, initialSort?: string, hasFilter?: boolean, rowPx?: number, cardPx?: number, onShown?: (rows: any[]) => void}} props `id` names its
 *   parameters in the address; `initialSort` a key of a column, with `-` before it for the other direction; with `cardPx` rows are cards of that
 *   height on a phone; `onShown` is told the rows that are in the document, once the table rests
 */
export function Table({ id, label, columns, rows, keyOf, linkOf, stateOf, empty, filters, initialSort, hasFilter = true, rowPx = ROW_PX, cardPx, onShown }) {
  const { params } = useRoute();
  const sort = params[`${id}.sort`] ?? initialSort ?? '';
  const filter = params[`${id}.q`] ?? '';
  // Sorted once for every filter: typing only leaves rows out.
  const sorted = useMemo(() => sortedBy(rows, columns, sort), [rows, columns, sort]);
  const shown = useMemo(() => filtered(sorted, columns, filter), [sorted, columns, filter]);
  const isNarrow = useNarrow();
  const isCards = isNarrow && cardPx !== undefined;
  const height = isCards ? cardPx : rowPx;
  const [body, range] = useWindow(shown.length, height);
  const drawn = useMemo(() => shown.slice(range.first, range.end), [shown, range.first, range.end]);
  useEffect(() => {
    if (!onShown) return undefined;
    const timer = setTimeout(() => onShown(drawn), RESTS_MS);
    return () => clearTimeout(timer);
  }, [drawn]);
  const isWhole = shown.length <= WHOLE_ROWS_MAX;
  // Rows of any height can only be where all of them are drawn.
  const isStacked = isNarrow && !isCards && isWhole;
  const sortBy = (key) => remark({ [`${id}.sort`]: sort === key ? `-${key}` : key });
  return html`<div class="table-box">
    ${(hasFilter || filters) &&
    html`<div class="table-tools">
      ${hasFilter &&
      html`<label class="filter"><span class="unseen">Filter ${label}</span
        ><input type="search" placeholder="Filter" value=${filter} onInput=${(event) => remark({ [`${id}.q`]: event.target.value })}
      /></label>`}
      ${filters}
      <span class="muted" aria-live="polite">${shown.length === rows.length ? count(rows.length) : `${count(shown.length)} of ${count(rows.length)}`}</span>
    </div>`}
    ${shown.length === 0
      ? rows.length === 0
        ? empty
        : html`<p class="muted pad">Nothing matches “${filter}”. <button type="button" class="quiet" onClick=${() => remark({ [`${id}.q`]: '' })}>Show all</button></p>`
      : html`<table class=${`table ${isCards ? 'is-cards' : ''} ${isStacked ? 'is-stacked' : ''} ${isWhole ? 'is-whole' : ''}`} style=${{ '--row': `${height}px` }} role="table" aria-label=${label} aria-rowcount=${shown.length + 1} data-table=${id}>
          <colgroup>${columns.map((column) => html`<col key=${column.key} class=${rank(column)} style=${{ width: column.width }} />`)}</colgroup>
          <thead role="rowgroup">
            <tr role="row">${columns.map((column) => html`<${Head} key=${column.key} column=${column} sort=${sort} sortBy=${sortBy} />`)}</tr>
          </thead>
          <tbody ref=${body} role="rowgroup">
            ${range.first > 0 && html`<tr class="space" aria-hidden="true" style=${{ height: `${range.first * height}px` }}></tr>`}
            ${drawn.map((row, at) => html`<${Row} key=${keyOf(row)} ...${{ row, columns, keyOf, linkOf, stateOf, index: range.first + at }} />`)}
            ${range.end < shown.length && html`<tr class="space" aria-hidden="true" style=${{ height: `${(shown.length - range.end) * height}px` }}></tr>`}
          </tbody>
        </table>`}
  </div>`;
}

/** Where a column is left out; style/parts.css has the widths. */
const rank = ({ isExtra, isWide }) => (isWide ? 'extra wide' : isExtra ? 'extra' : '');

function Head({ column, sort, sortBy }) {
  const direction = sort === column.key ? 'ascending' : sort === `-${column.key}` ? 'descending' : undefined;
  const name = `${column.isNumber ? 'number' : ''} ${rank(column)}`;
  if (!column.by) return html`<th scope="col" role="columnheader" class=${name}>${column.label}</th>`;
  return html`<th scope="col" role="columnheader" class=${name} aria-sort=${direction ?? 'none'}>
    <button type="button" onClick=${() => sortBy(column.key)}>${column.label}<span class="sort" aria-hidden="true">${{ ascending: '↑', descending: '↓' }[direction] ?? ''}</span></button>
  </th>`;
}

function Row({ row, columns, keyOf, linkOf, stateOf, index }) {
  const link = linkOf?.(row);
  // The whole row leads where its link leads; keyboards and readers of the screen have the link.
  const click = (event) => link && !event.target.closest('a, button, input, [data-field]') && !getSelection().toString() && (location.hash = link);
  return html`<tr role="row" data-key=${keyOf(row)} data-row-state=${stateOf?.(row)} aria-rowindex=${index + 2} class=${link ? 'leads' : ''} onClick=${click}>
    ${columns.map((column) => html`<td key=${column.key} role="cell" data-column=${column.key} data-label=${typeof column.label === 'string' ? column.label : ''} class=${`${column.isNumber ? 'number' : ''} ${rank(column)}`}>${column.show(row)}</td>`)}
  </tr>`;
}

function filtered(rows, columns, filter) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return rows;
  return rows.filter((row) => {
    const text = wordsOf(row, columns);
    return words.every((word) => text.includes(word));
  });
}

/** What the filter looks at in a row: made once, because rows are kept as long as nothing of them changes. */
function wordsOf(row, columns) {
  let byColumns = WORDS.get(row);
  if (!byColumns) WORDS.set(row, (byColumns = new WeakMap()));
  let text = byColumns.get(columns);
  if (text === undefined) {
    text = columns.map((column) => column.words?.(row) ?? '').join('\n').toLowerCase();
    byColumns.set(columns, text);
  }
  return text;
}
const WORDS = new WeakMap();

function sortedBy(rows, columns, sort) {
  const column = columns.find(({ key }) => key === sort.replace(/^-/, ''));
  if (!column?.by) return rows;
  const sign = sort.startsWith('-') ? -1 : 1;
  // Computed once a row: comparisons are many.
  return rows
    .map((row) => [column.by(row), row])
    .sort(([a], [b]) => sign * compare(a, b))
    .map(([, row]) => row);
}

function compare(a, b) {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return collator.compare(String(a ?? ''), String(b ?? ''));
}
/** `node-10` after `node-9`. */
const collator = new Intl.Collator('en', { numeric: true });

/** Whether the screen is a phone's; the same as in style/parts.css. */
const NARROW = matchMedia('(max-width: 620px)');

function useNarrow() {
  const [isNarrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const look = () => setNarrow(NARROW.matches);
    look();
    NARROW.addEventListener('change', look);
    return () => NARROW.removeEventListener('change', look);
  }, []);
  return isNarrow;
}

/** Which rows are in sight, of so many of this height. */
function useWindow(total, height) {
  const body = useRef();
  const [range, setRange] = useState({ first: 0, end: Math.min(total, WHOLE_ROWS_MAX) });
  useLayoutEffect(() => {
    if (total <= WHOLE_ROWS_MAX) {
      setRange({ first: 0, end: total });
      return undefined;
    }
    const look = () => {
      if (!body.current) return;
      const top = -body.current.getBoundingClientRect().top;
      const first = Math.max(0, Math.min(Math.floor(top / height) - MARGIN_ROWS, total - 1));
      const end = Math.min(total, Math.max(first, 0) + Math.ceil(innerHeight / height) + 2 * MARGIN_ROWS);
      setRange((before) => (before.first === first && before.end === end ? before : { first, end }));
    };
    look();
    addEventListener('scroll', look, { passive: true });
    addEventListener('resize', look);
    return () => {
      removeEventListener('scroll', look);
      removeEventListener('resize', look);
    };
  }, [total, height]);
  return [body, range.end > total ? { first: 0, end: Math.min(total, WHOLE_ROWS_MAX) } : range];
}

/** Keys j and k, or the arrows, go from row to row; Enter goes where a row leads. */
export function useRowKeys() {
  useEffect(() => {
    const press = (event) => {
      if (event.target.closest('input, textarea, select, [contenteditable]') || event.ctrlKey || event.metaKey || event.altKey) return;
      const step = { j: 1, k: -1 }[event.key];
      if (!step) return;
      const links = [...document.querySelectorAll('main tbody tr.leads a:first-of-type, main [data-problem] a.problem-object')];
      const at = links.indexOf(document.activeElement);
      links[Math.max(0, Math.min(links.length - 1, at + step))]?.focus();
      event.preventDefault();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);
}

