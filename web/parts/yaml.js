// JSON as YAML, for people and for `apply`. Pure.

/** What YAML takes for a word and nothing else, without quotes. */
const PLAIN = /^[A-Za-z/][A-Za-z0-9_./-]*$/;
/** What some take for the end of a line, or for nothing. */
const ODD = /[\u007f-\u009f\u2028\u2029\ufeff]/g;
const RESERVED = /^(?:true|false|null|yes|no|on|off|y|n)$/i;

/** A document in block style. */
export function yaml(value, indent = '') {
  if (Array.isArray(value)) return value.length ? value.map((one) => `${indent}- ${nested(one, indent)}`).join('') : `${indent}[]\n`;
  if (value !== null && typeof value === 'object') {
    const entries = Object.entries(value).filter(([, one]) => one !== undefined);
    return entries.length ? entries.map(([key, one]) => `${indent}${scalar(key)}:${under(one, indent)}`).join('') : `${indent}{}\n`;
  }
  return `${indent}${scalar(value)}\n`;
}

const isEmpty = (value) => Object.keys(value).length === 0;

function under(value, indent) {
  if (value === null || typeof value !== 'object') return ` ${scalar(value)}\n`;
  if (isEmpty(value)) return Array.isArray(value) ? ' []\n' : ' {}\n';
  return `\n${yaml(value, Array.isArray(value) ? indent : `${indent}  `)}`;
}

/** An entry of a list begins on the line of its dash. */
function nested(value, indent) {
  return yaml(value, `${indent}  `).slice(indent.length + 2);
}

function scalar(value) {
  if (typeof value !== 'string') return String(value);
  return PLAIN.test(value) && !RESERVED.test(value) ? value : JSON.stringify(value).replace(ODD, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
