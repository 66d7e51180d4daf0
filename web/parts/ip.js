// Addresses as numbers, to lay them out in order. What cannot be read is nothing.

/**
 * @param {string} text
 * @returns {{value: bigint, bits: 32 | 128} | undefined}
 */
export function parseAddress(text) {
  if (text.includes(':')) return parse6(text);
  const bytes = text.split('.');
  if (bytes.length !== 4 || bytes.some((byte) => !/^\d{1,3}$/.test(byte) || Number(byte) > 255)) return undefined;
  return { value: bytes.reduce((value, byte) => (value << 8n) | BigInt(byte), 0n), bits: 32 };
}

function parse6(text) {
  const halves = text.split('::');
  if (halves.length > 2) return undefined;
  const groups = (half) => (half ? half.split(':') : []);
  const head = groups(halves[0]);
  const tail = halves.length === 2 ? groups(halves[1]) : [];
  const missing = 8 - head.length - tail.length;
  if (halves.length === 2 ? missing < 1 : missing !== 0) return undefined;
  const all = [...head, ...Array(Math.max(0, missing)).fill('0'), ...tail];
  if (all.some((group) => !/^[0-9a-f]{1,4}$/i.test(group))) return undefined;
  return { value: all.reduce((value, group) => (value << 16n) | BigInt(`0x${group}`), 0n), bits: 128 };
}

/** The address in its shortest form (RFC 5952). */
export function showAddress({ value, bits }) {
  if (bits === 32) return [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 255n).join('.');
  const groups = Array.from({ length: 8 }, (_, at) => Number((value >> BigInt(112 - 16 * at)) & 0xffffn));
  let best = { at: -1, length: 1 };
  for (let at = 0; at < 8; at += 1) {
    let length = 0;
    while (at + length < 8 && groups[at + length] === 0) length += 1;
    if (length > best.length) best = { at, length };
  }
  const text = (list) => list.map((group) => group.toString(16)).join(':');
  return best.at < 0 ? text(groups) : `${text(groups.slice(0, best.at))}::${text(groups.slice(best.at + best.length))}`;
}

/**
 * The first and last address of a block (`192.0.2.0/28`) or range (`192.0.2.1-192.0.2.9`).
 * @returns {{first: bigint, last: bigint, bits: 32 | 128} | undefined}
 */
export function parseRange(text) {
  if (text.includes('-')) {
    const [first, last] = text.split('-').map((end) => parseAddress(end.trim()));
    return first && last && first.bits === last.bits && first.value <= last.value ? { first: first.value, last: last.value, bits: first.bits } : undefined;
  }
  const [base, length] = text.split('/');
  const address = parseAddress(base);
  if (!address) return undefined;
  const size = 1n << BigInt(address.bits - (length === undefined ? address.bits : Number(length)));
  const first = (address.value / size) * size;
  return { first, last: first + size - 1n, bits: address.bits };
}
