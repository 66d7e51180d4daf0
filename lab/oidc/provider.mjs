// OpenID Connect provider for tests, on a free port of 127.0.0.1. Prints its issuer on a line. The path /test/ has what a test
// needs and no provider offers: an ID token without a browser, other keys, and the steps of a user in a browser. With a directory
// in OIDC_TLS that has cert.pem and key.pem, it serves HTTPS as localhost.
import { createPrivateKey, generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { pathToFileURL } from 'node:url';

const { default: Provider } = await import(pathToFileURL(`${process.argv[2]}/node_modules/oidc-provider/lib/index.js`));

let rotation = 0;

/** Creates a private key. The garbage collection of the generator can wait for ever for a key that is being exported (Node.js 20), so the
 * exported key is a copy. */
function generated(type, options) {
  const privateKeyEncoding = { type: 'pkcs8', format: 'pem' };
  const publicKeyEncoding = { type: 'spki', format: 'pem' };
  const { privateKey } = generateKeyPairSync(type, { ...options, privateKeyEncoding, publicKeyEncoding });
  return createPrivateKey(privateKey).export({ format: 'jwk' });
}

/** Creates keys for all algorithms with new ids. */
function keys() {
  rotation += 1;
  const key = (type, options, alg) => ({
    ...generated(type, options),
    kid: `${alg}-${rotation}`,
    alg,
    use: 'sig',
  });
  return [
    key('rsa', { modulusLength: 2048 }, 'RS256'),
    key('ec', { namedCurve: 'P-256' }, 'ES256'),
    key('ed25519', {}, 'EdDSA'),
    key('rsa', { modulusLength: 2048 }, 'PS256'),
  ];
}

const GRANTS = ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'];

/** Redirect URIs of the status page: of tests without a browser, and of tests with one. */
const PAGES = ['https://control.example.org:7440', 'http://127.0.0.1:7440'];

/** Creates a provider. `ttl` is the lifetime of ID tokens of the device flow in seconds. */
function create(issuer, ttl) {
  const client = (id) => ({
    client_id: id,
    token_endpoint_auth_method: 'none',
    application_type: 'native',
    grant_types: GRANTS,
    response_types: [],
    redirect_uris: [],
  });
  const page = (id, more) => ({
    client_id: id,
    grant_types: ['authorization_code'],
    response_types: ['code'],
    redirect_uris: PAGES.map((page) => `${page}/v1/session/oidc/callback`),
    ...more,
  });
  const clients = [
    client('tidegate'),
    client('other'),
    page('page', { token_endpoint_auth_method: 'none' }),
    page('confidential', { client_secret: 'a secret: 100%', token_endpoint_auth_method: 'client_secret_basic' }),
  ];
  return new Provider(issuer, {
    clients,
    jwks: { keys: keys() },
    enabledJWA: { idTokenSigningAlgValues: ['RS256', 'ES256', 'EdDSA', 'PS256'] },
    claims: { openid: ['sub', 'groups'] },
    conformIdTokenClaims: false,
    features: { deviceFlow: { enabled: true } },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, groups: ['platform'] }) }),
    issueRefreshToken: () => true,
    ttl: { IdToken: ttl, AccessToken: 600, DeviceCode: 60, RefreshToken: 600, Interaction: 60, Session: 600, Grant: 600 },
    cookies: { keys: ['only-of-tests'] },
  });
}

/** Issues an ID token by the code of the provider. The query may have client, alg, sub, groups and ttl. */
async function token(provider, query) {
  const client = await provider.Client.find(query.get('client') ?? 'tidegate');
  const usual = client.idTokenSignedResponseAlg;
  client.idTokenSignedResponseAlg = query.get('alg') ?? usual;
  const sub = query.get('sub') ?? 'kim';
  const groups = (query.get('groups') ?? 'platform').split(',').filter(Boolean);
  const made = new provider.IdToken({ sub, groups }, { client });
  made.scope = 'openid';
  const expiresAt = Math.floor(Date.now() / 1000) + Number(query.get('ttl') ?? 300);
  return made.issue({ use: 'idtoken', expiresAt }).finally(() => {
    client.idTokenSignedResponseAlg = usual;
  });
}

/** Submits the forms of the provider as a user who has followed a link, until there is none left or the browser is sent to another
 * site. Returns the text of the page, or the address of the site. With `isCancelled`, the user cancels instead. */
async function approve(url, isCancelled) {
  const cookies = new Map();
  let response;
  const go = async (target, init = {}) => {
    response = await fetch(target, {
      ...init,
      redirect: 'manual',
      headers: { ...init.headers, cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
    });
    for (const cookie of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie);
      cookies.set(name, value);
    }
    return new URL(response.headers.get('location') ?? target, target);
  };
  let place = await go(url);
  for (let step = 0; step < 20; step += 1) {
    if (response.status >= 300 && response.status < 400) {
      if (place.origin !== new URL(url).origin) return place.href;
      place = await go(place);
      continue;
    }
    const page = await response.text();
    if (response.status !== 200) throw new Error(`${place}: ${response.status} ${page}`);
    const cancel = isCancelled && /href="([^"]*\/abort)"/.exec(page)?.[1];
    if (cancel) {
      place = await go(new URL(cancel, place));
      continue;
    }
    const form = /<form[^>]*>/.exec(page)?.[0];
    if (!form) return page.replace(/<style>[^]*?<\/style>|<[^>]+>/g, ' ').replace(/\s+/g, ' ');
    const fields = new URLSearchParams({ login: 'kim', password: 'x' });
    for (const [input] of page.matchAll(/<input[^>]*>/g)) {
      const name = /name="([^"]*)"/.exec(input)?.[1];
      const value = /value="([^"]*)"/.exec(input)?.[1];
      if (name && value) fields.set(name, value);
    }
    place = await go(new URL(/action="([^"]*)"/.exec(form)?.[1] ?? '', place), { method: 'POST', body: fields });
  }
  throw new Error('too many steps');
}

let provider;
/** Number of times that the keys were requested. */
let fetches = 0;
const tls = process.env.OIDC_TLS;
const issuer = () => `${tls ? 'https://localhost' : 'http://127.0.0.1'}:${server.address().port}`;
const serve = async (request, response) => {
  const url = new URL(request.url, issuer());
  if (url.pathname === '/jwks') fetches += 1;
  if (!url.pathname.startsWith('/test/')) return provider.callback()(request, response);
  try {
    const query = url.searchParams;
    if (url.pathname === '/test/token') response.end(await token(provider, query));
    else if (url.pathname === '/test/approve') response.end(await approve(query.get('url'), query.has('cancel')));
    else if (url.pathname === '/test/count') response.end(String(fetches));
    else {
      provider = create(issuer(), Number(query.get('ttl') ?? 300));
      response.end('rotated');
    }
  } catch (error) {
    response.writeHead(500).end(String(error.stack));
  }
};
const read = (name) => readFileSync(`${tls}/${name}`);
const server = tls ? createTlsServer({ cert: read('cert.pem'), key: read('key.pem') }, serve) : createServer(serve);
server.listen(0, '127.0.0.1', () => {
  provider = create(issuer(), 300);
  console.log(issuer());
});
// A test reads the first line only.
process.stdout.on('error', () => {});
// The test holds the other end.
process.stdin.resume().on('end', () => process.exit(0));
