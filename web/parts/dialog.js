// Questions before something is done. The browser's own dialog keeps the keyboard inside and gives it back.
import { html, useEffect, useRef } from '../core/html.js';

/**
 * A dialog that is open while it is drawn.
 * @param {{title: string, close: () => void, children: any}} props
 */
export function Dialog({ title, close, children }) {
  const dialog = useRef();
  useEffect(() => {
    dialog.current.showModal();
  }, []);
  return html`<dialog ref=${dialog} aria-label=${title} onClose=${close} onClick=${(event) => event.target === dialog.current && close()}>
    <div class="dialog">
      <header class="panel-head"><h2>${title}</h2><button type="button" class="quiet" onClick=${close}>Close</button></header>
      ${children}
    </div>
  </dialog>`;
}
