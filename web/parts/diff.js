// What differs between two texts, line by line, and between two objects, as text.
import { html, useMemo, useState } from '../core/html.js';
import { count } from '../core/format.js';

/** Beyond so many lines a side, lines are compared place by place: the exact answer costs their product. */
const EXACT_LINES_MAX = 1_500;
/** Lines around a difference that are shown. */
const CONTEXT_LINES = 3;

/**
 * The lines of two texts in order, as `[mark, line]` with ` `, `-` or `+`.
 * @param {string[]} before
 * @param {string[]} after
 * @returns {[string, string][]}
 */
export function diffLines(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before[before.length - 1 - end] === after[after.length - 1 - end]) end += 1;
  const same = (lines) => lines.map((line) => [' ', line]);
  return [
    ...same(before.slice(0, start)),
    ...middle(before.slice(start, before.length - end), after.slice(start, after.length - end)),
    ...same(before.slice(before.length - end)),
  ];
}

/** By the longest common subsequence. */
function middle(before, after) {
  const whole = () => [...before.map((line) => ['-', line]), ...after.map((line) => ['+', line])];
  if (before.length === 0 || after.length === 0 || before.length > EXACT_LINES_MAX || after.length > EXACT_LINES_MAX) return whole();
  const width = after.length + 1;
  const longest = new Uint16Array((before.length + 1) * width);
  for (let a = before.length - 1; a >= 0; a -= 1) {
    for (let b = after.length - 1; b >= 0; b -= 1) {
      longest[a * width + b] = before[a] === after[b] ? longest[(a + 1) * width + b + 1] + 1 : Math.max(longest[(a + 1) * width + b], longest[a * width + b + 1]);
    }
  }
  const lines = [];
  let a = 0;
  let b = 0;
  while (a < before.length || b < after.length) {
    if (a < before.length && b < after.length && before[a] === after[b]) {
      lines.push([' ', before[a]]);
      a += 1;
      b += 1;
    } else if (b >= after.length || (a < before.length && longest[(a + 1) * width + b] >= longest[a * width + b + 1])) {
      lines.push(['-', before[a]]);
      a += 1;
    } else {
      lines.push(['+', after[b]]);
      b += 1;
    }
  }
  return lines;
}

/** A value of JSON as text that reads like YAML; only for people. */
export function yaml(value, indent = '') {
  if (value === null || typeof value !== 'object') return scalar(value);
  const entries = Array.isArray(value) ? value.map((one) => ['-', one]) : Object.entries(value).map(([key, one]) => [`${key}:`, one]);
  if (entries.length === 0) return Array.isArray(value) ? '[]' : '{}';
  return entries
    .map(([head, one]) => {
      if (one === null || typeof one !== 'object' || Object.keys(one).length === 0) return `${indent}${head} ${yaml(one)}`;
      const below = yaml(one, `${indent}  `);
      // What is in a list stands on the line of its dash.
      return head === '-' ? `${indent}- ${below.trimStart()}` : `${indent}${head}\n${below}`;
    })
    .join('\n');
}

function scalar(value) {
  if (typeof value !== 'string') return String(value);
  const isPlain = /^[A-Za-z0-9/._-][A-Za-z0-9 /._:@+-]*$/.test(value) && !/^(true|false|null|yes|no|on|off|[-.\d][\d.eE+-]*)$/i.test(value) && !value.includes(': ') && !value.endsWith(':');
  return isPlain ? value : JSON.stringify(value);
}

/** What differs between two objects of the API; either may be missing. Bookkeeping of the server is left out. */
export function ObjectDiff({ before, after, label }) {
  const lines = useMemo(() => diffLines(textOf(before), textOf(after)), [before, after]);
  return html`<${Lines} lines=${lines} label=${label} />`;
}

const textOf = (object) => (object ? yaml(intent(object)).split('\n') : []);

function intent({ apiVersion, kind, metadata = {}, spec }) {
  const { name, namespace, labels, annotations } = metadata;
  const shown = { apiVersion, kind, metadata: { name, namespace, labels, annotations }, spec };
  return JSON.parse(JSON.stringify(shown));
}

/** Lines with marks; long runs of what is the same are folded. */
export function Lines({ lines, label }) {
  const [isWhole, setWhole] = useState(false);
  const shown = useMemo(() => (isWhole ? lines.map((line) => ({ line })) : folded(lines)), [lines, isWhole]);
  return html`<div class="diff" tabindex="0" role="group" aria-label=${label}>
    ${shown.map(({ line, skipped }, index) => (skipped ? html`<div key=${index}><button type="button" class="quiet" onClick=${() => setWhole(true)}>… ${count(skipped)} lines that are the same</button></div>` : html`<div key=${index} class=${MARKS[line[0]]}>${line[0]} ${line[1]}</div>`))}
  </div>`;
}

const MARKS = { '+': 'added', '-': 'removed', ' ': '' };

function folded(lines) {
  const isNear = new Uint8Array(lines.length);
  lines.forEach(([mark], at) => {
    if (mark !== ' ') isNear.fill(1, Math.max(0, at - CONTEXT_LINES), at + CONTEXT_LINES + 1);
  });
  const shown = [];
  let skipped = 0;
  lines.forEach((line, at) => {
    if (isNear[at]) {
      if (skipped) shown.push({ skipped });
      skipped = 0;
      shown.push({ line });
    } else skipped += 1;
  });
  if (skipped && shown.length) shown.push({ skipped });
  return shown;
}
