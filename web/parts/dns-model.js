// Sums over the reports of DNS servers, without a document.

/** Questions that fail outnumber those for names that do not exist in this order, since search paths cause the latter. */
const failures = (row) => row.failed * 1e12 + row.missing;

/** Questions per second of a report of names. */
export const perSecondOf = (names) => (names.seconds > 0 ? names.total.questions / names.seconds : 0);

/** State of a server for the page: that of its worst problem. */
export function stateOfServer({ problems = [] }) {
  if (problems.length === 0) return 'ok';
  return problems.some((problem) => problem.startsWith('no report since')) ? 'disconnected' : 'atRisk';
}

/**
 * The names of all reports together, busiest first, or those that fail or do not exist.
 * @param {{report: {names: {names?: {name: string, questions: number, missing?: number, failed?: number}[]}}}[]} servers
 * @param {boolean} isFailing
 */
export function busiestNames(servers, isFailing) {
  const rows = new Map();
  for (const { report } of servers) {
    for (const { name, questions = 0, missing = 0, failed = 0 } of report.names.names ?? []) {
      const row = rows.get(name) ?? { name, questions: 0, missing: 0, failed: 0, servers: 0 };
      row.questions += questions;
      row.missing += missing;
      row.failed += failed;
      row.servers += 1;
      rows.set(name, row);
    }
  }
  const all = [...rows.values()];
  if (isFailing) return all.filter((row) => row.failed + row.missing > 0).sort((a, b) => failures(b) - failures(a) || a.name.localeCompare(b.name));
  return all.sort((a, b) => b.questions - a.questions || a.name.localeCompare(b.name));
}
