// One way to write markup and to keep state: Preact with HTM. Text is always escaped; nothing here takes HTML from data.
import { createContext, Fragment, h, render } from '../lib/preact.js';
import htm from '../lib/htm.js';

export { useCallback, useContext, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from '../lib/hooks.js';
export { createContext, Fragment, render };
export const html = htm.bind(h);
