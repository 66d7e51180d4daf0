// Where a number comes from: every value that is shown of the API carries the request and the JSON pointer that it was read
// by, and says so when it is clicked.
import { html, useEffect, useRef } from '../core/html.js';
import { createStore, useStore } from '../core/store.js';
import { CopyButton } from './copy.js';

/** What is being asked about: `{path, pointer, shown, box}`. */
const asked = createStore(undefined);

/**
 * A value of the API.
 * @param {{path: string, at: string, children: any, tag?: string}} props `path` of the request, `at` the JSON pointer in its answer
 */
export function Field({ path, at, children, class: name = '' }) {
  return html`<span class=${`field ${name}`} data-field=${`${path}#${at}`}>${children}</span>`;
}

/** Shows where a value is from, when one is clicked; links go where they lead, unless Alt is held. */
export function FieldSource() {
  const source = useStore(asked);
  const panel = useRef();
  useEffect(() => {
    const click = (event) => {
      if (panel.current?.contains(event.target)) return;
      const field = event.target.closest?.('[data-field]');
      if (!field || (event.target.closest('a, button') && !event.altKey)) return void asked.set(undefined);
      event.preventDefault();
      const [path, pointer] = field.dataset.field.split('#');
      asked.set({ path, pointer, shown: field.textContent, box: field.getBoundingClientRect() });
    };
    const key = (event) => event.key === 'Escape' && asked.set(undefined);
    addEventListener('click', click, true);
    addEventListener('keydown', key);
    return () => {
      removeEventListener('click', click, true);
      removeEventListener('keydown', key);
    };
  }, []);
  if (!source) return null;
  const left = Math.max(8, Math.min(source.box.left, innerWidth - 368));
  const style = { left: `${left}px`, top: `${source.box.bottom + scrollY + 6}px` };
  // What was answered to a question with a body stands with its method, and cannot be asked again by its address alone.
  const isRead = source.path.startsWith('/');
  const curl = `curl -s '${location.origin}${source.path}'`;
  return html`<div class="source" role="dialog" aria-label="Where this is from" ref=${panel} style=${style}>
    <p><b>${source.shown}</b> is what the API says at</p>
    <p><code>${isRead ? 'GET ' : ''}${source.path}</code></p>
    <p><code>${source.pointer}</code></p>
    ${isRead && html`<${CopyButton} text=${curl} label="Copy as curl" />`}
  </div>`;
}
