// Parts of the API that are shown beside the overview: asked for when a view needs them, again while it is open.
import { request } from './api.js';
import { useCallback, useEffect, useRef, useState } from './html.js';

/**
 * The answer of the API to a GET, asked again every `everyMs` and whenever `when` is another. What was there stays until there
 * is something newer, so that nothing jumps.
 * @param {string | undefined} path nothing is asked without one
 * @param {{everyMs?: number, when?: unknown}} options
 * @returns {{data: any, error: Error | undefined, isLoading: boolean, at: number, refresh: () => void}}
 */
export function useApi(path, { everyMs = 5_000, when } = {}) {
  const [state, setState] = useState({ data: undefined, error: undefined, isLoading: true, at: 0, path });
  const [asked, setAsked] = useState(0);
  const latest = useRef(path);
  latest.current = path;
  useEffect(() => {
    if (!path) return undefined;
    const controller = new AbortController();
    let timer;
    const ask = async () => {
      try {
        const data = await request(path, { signal: controller.signal });
        setState({ data, error: undefined, isLoading: false, at: Date.now(), path });
      } catch (error) {
        if (controller.signal.aborted) return;
        setState((before) => ({ ...(before.path === path ? before : { data: undefined, at: 0 }), error, isLoading: false, path }));
      }
      // Nobody looks at a hidden page.
      timer = setTimeout(() => (document.hidden ? addEventListener('visibilitychange', ask, { once: true, signal: controller.signal }) : ask()), everyMs);
    };
    ask();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [path, everyMs, when, asked]);
  const refresh = useCallback(() => setAsked((count) => count + 1), []);
  return state.path === path ? { ...state, refresh } : { data: undefined, error: undefined, isLoading: true, at: 0, refresh };
}

/** The time of this machine in ms, again every second, so that ages grow. */
export function useNow(everyMs = 1_000) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
