// A pool as cells in order: one an address where there are few, one for many where there are many. States differ by pattern as
// well as by colour; the list below the pools says the same in words.
import { html, useMemo } from '../core/html.js';
import { count } from '../core/format.js';
import { parseAddress, parseRange, showAddress } from './ip.js';

/** Cells of a map at most. */
const CELLS_MAX = 512;

const WORDS = { free: 'free', held: 'held', full: 'all held', reserved: 'reserved', some: 'some held' };

/**
 * The cells of a pool.
 * @returns {{state: string, title: string, href?: string}[]}
 */
export function cellsOf({ spec }, addresses) {
  const ranges = spec.addresses.map(parseRange).filter(Boolean);
  const reserved = (spec.reserved ?? []).map((entry) => parseRange(typeof entry === 'string' ? entry : entry.addresses ?? entry.address)).filter(Boolean);
  const held = addresses.map((row) => ({ row, at: parseAddress(row.spec.address) })).filter(({ at }) => at);
  const total = ranges.reduce((sum, { first, last }) => sum + (last - first + 1n), 0n);
  const size = total <= BigInt(CELLS_MAX) ? 1n : (total + BigInt(CELLS_MAX) - 1n) / BigInt(CELLS_MAX);
  return ranges.flatMap((range) => {
    const cells = [];
    for (let first = range.first; first <= range.last && cells.length <= CELLS_MAX; first += size) {
      const last = first + size - 1n < range.last ? first + size - 1n : range.last;
      cells.push(cell({ first, last, bits: range.bits }, held, reserved));
    }
    return cells;
  });
}

function cell({ first, last, bits }, held, reserved) {
  const inside = held.filter(({ at }) => at.bits === bits && at.value >= first && at.value <= last);
  const isReserved = reserved.some((range) => range.bits === bits && range.first <= first && range.last >= last);
  const name = first === last ? showAddress({ value: first, bits }) : `${showAddress({ value: first, bits })}–${showAddress({ value: last, bits })}`;
  if (inside.length === 0) return { state: isReserved ? 'reserved' : 'free', title: `${name}: ${isReserved ? 'reserved' : 'free'}` };
  if (first === last) return { state: 'held', title: `${name}: ${inside[0].row.spec.services.join(', ')}`, address: inside[0].row.metadata.name };
  const isFull = BigInt(inside.length) > last - first;
  return { state: isFull ? 'full' : 'some', title: `${name}: ${count(inside.length)} held` };
}

export function PoolMap({ pool, addresses }) {
  const cells = useMemo(() => cellsOf(pool, addresses), [pool, addresses]);
  const states = [...new Set(cells.map(({ state }) => state))];
  const label = `Pool ${pool.metadata.name}: ${states.map((state) => `${count(cells.filter((one) => one.state === state).length)} ${WORDS[state]}`).join(', ')}`;
  return html`<div class="pool-map" role="img" aria-label=${label}>${cells.map(({ state, title }, at) => html`<i key=${at} class=${`cell-${state}`} title=${title}></i>`)}</div>
    <p class="legend pad">${states.map((state) => html`<span key=${state}><i class=${`cell-${state}`}></i>${WORDS[state]}</span>`)}</p>`;
}
