// Conditions in words: one that is not met says what is not so. Pure.

/** What a condition that is not met is called; others have `Not` before their name. */
const NEGATIVE = {
  AddressAssigned: 'No address assigned',
  EndpointsAvailable: 'No endpoint available',
  HasRoom: 'No room',
};

/** `EndpointsAvailable` as `Endpoints available`. */
export const split = (name = '') => name.replace(/([a-z])([A-Z])/g, (_, before, after) => `${before} ${after.toLowerCase()}`);

/**
 * The words of a condition.
 * @param {string} type
 * @param {'True' | 'False' | 'Unknown'} status
 */
export function conditionWords(type, status) {
  if (status === 'True') return split(type);
  if (status === 'False') return NEGATIVE[type] ?? `Not ${split(type).toLowerCase()}`;
  return `${split(type)}: not known`;
}
