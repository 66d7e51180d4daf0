// No view has this address: what was asked for, and where to go on.
import { html } from '../core/html.js';
import { to } from '../core/route.js';
import { Empty, Panel, View } from '../parts/view.js';

export default function Missing({ route }) {
  return html`<${View} name="missing" title="There is no such view">
    <${Panel}><${Empty} title=${`Nothing is at #/${route.path.join('/')}`}>The link may be mistyped, or of another version. Go to the <a href=${to([])}>overview</a>, <a href=${to(['services'])}>Services</a>, <a href=${to(['nodes'])}>nodes</a> or <a href=${to(['addresses'])}>addresses</a>; the key <kbd>/</kbd> searches.<//><//>
  <//>`;
}
