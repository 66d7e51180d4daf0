// Who one is: by the issuer, if the server has one, or by a token, once; the session is kept by the server and by a cookie that no script can read.
import { learnSession, request, session } from '../core/api.js';
import { html, useEffect, useRef, useState } from '../core/html.js';
import { useStore } from '../core/store.js';
import { faultOf, issuerHref, wantedView } from '../parts/login-model.js';
import { Failed, View } from '../parts/view.js';

export default function Login({ route }) {
  const known = useStore(session);
  const [error, setError] = useState(undefined);
  const [isAsking, setAsking] = useState(false);
  const field = useRef();
  useEffect(() => field.current.focus(), []);
  const enter = async (event) => {
    event.preventDefault();
    setAsking(true);
    setError(undefined);
    try {
      await request('/v1/session', { method: 'POST', body: { token: field.current.value.trim() } });
      field.current.value = '';
      // Where one was going to, or the overview.
      if (route.path[0] === 'login') location.hash = `#${wantedView(route, location.hash)}`;
      await learnSession();
    } catch (refused) {
      setError(refused);
    } finally {
      setAsking(false);
    }
  };
  const fault = faultOf(route);
  return html`<${View} name="login" title="Log in">
    ${fault && html`<p class="login-fault" role="alert">${fault}</p>`}
    ${known.issuerLogin && html`<p class="login-issuer"><a class="button primary" href=${issuerHref(known.issuerLogin, wantedView(route, location.hash))}>Log in with ${known.issuerLogin.host}</a></p>`}
    <form class="panel login" onSubmit=${enter}>
      <label class="named">Token<input ref=${field} type="password" name="token" autocomplete="current-password" required spellcheck="false" aria-describedby="login-help" /></label>
      <button type="submit" class="primary" disabled=${isAsking}>Log in</button>
      ${error && html`<${Failed} error=${error} />`}
      <p class="muted" id="login-help">A token for looking is made by whoever may: <code>tidegate token create NAME --role viewer</code>. It is sent to this server once; the page itself never keeps it.</p>
    </form>
  <//>`;
}
