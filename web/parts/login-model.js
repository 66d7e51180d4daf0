// The login at the issuer: where it begins, where it leads back to, and why it has failed. Pure.

/** Why a login at the issuer has failed, with the remedy; by the names of the server. */
export const FAULTS = {
  expired: 'The login took longer than ten minutes, or the browser did not keep its cookie. Start it again on this page.',
  mismatch: 'The response of the issuer belongs to another login. Start it again, in one tab only.',
  denied: 'The issuer did not confirm the login. Start it again, or log in with a token.',
  rejected: 'The issuer rejected the login. Start it again; if that does not help, compare the client settings with the log of the control server.',
  invalidToken: 'The ID token of the issuer is not valid here. The log of the control server has the reason.',
  unreachable: 'The control server cannot reach the issuer, or the issuer offers no login for browsers. Try again later, or log in with a token; the log of the control server has the reason.',
  noRole: 'None of your groups has a role here. Ask an administrator to give one of them a role (--oidc-group).',
  tooMany: 'Too many logins have failed from this address. Wait some seconds, then start again.',
};

/** What the server accepts as a view: a fragment of the page's address that begins with a slash. */
const VIEW = /^\/[\w\-.~!$&'()*+,;=:@/?%]{0,1023}$/;

/** The reason of a failed login for the sign-in view, or nothing. */
export function faultOf({ path, params }) {
  return path[0] === 'login' && Object.hasOwn(FAULTS, params.fault) ? FAULTS[params.fault] : undefined;
}

/**
 * The view that one was going to, or came from before a failed login; the overview where there is none.
 * @param {{path: string[], params: Record<string, string>}} route
 * @param {string} hash that of the address
 */
export function wantedView({ path, params }, hash) {
  const view = path[0] === 'login' ? params.view : hash.replace(/^#/, '');
  return VIEW.test(view ?? '') && !/^\/+login\b/.test(view) ? view : '/';
}

/** Where a login at the issuer begins, after which one comes back to a view. */
export function issuerHref({ url }, view) {
  const place = new URL(url);
  place.searchParams.set('view', view);
  return place.href;
}
