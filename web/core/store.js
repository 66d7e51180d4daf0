// A value that several parts of the page look at.
import { useEffect, useState } from './html.js';

/**
 * Makes a value that can be looked at, changed and followed.
 * @template T
 * @param {T} value
 */
export function createStore(value) {
  const followers = new Set();
  return {
    get: () => value,
    /** @param {T | ((before: T) => T)} next the value, or what makes it of the one before */
    set(next) {
      const made = typeof next === 'function' ? next(value) : next;
      if (Object.is(made, value)) return;
      value = made;
      for (const follower of [...followers]) follower(value);
    },
    /** @param {(value: T) => void} follower */
    follow(follower) {
      followers.add(follower);
      return () => followers.delete(follower);
    },
  };
}

/**
 * What `choose` sees in a store; the part is drawn again only when that is another.
 * @template T, S
 * @param {{get: () => T, follow: (follower: (value: T) => void) => () => void}} store
 * @param {(value: T) => S} choose
 * @returns {S}
 */
export function useStore(store, choose = (value) => value) {
  const [, redraw] = useState(0);
  const seen = choose(store.get());
  useEffect(() => {
    let last = seen;
    const look = (value) => {
      const next = choose(value);
      if (!Object.is(next, last)) {
        last = next;
        redraw((count) => count + 1);
      }
    };
    // What changed between the drawing and now.
    look(store.get());
    return store.follow(look);
  }, [store]);
  return seen;
}
