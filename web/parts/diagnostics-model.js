// What a report about a problem needs: versions, state and problems, without names of objects that are not part of a problem.

/** Problems that are listed. */
const PROBLEMS_MAX = 20;

/**
 * The text of the button "Copy diagnostics".
 * @param {{state: string, since?: number, doc?: object, error?: {status?: number, problem?: {code?: string}}}} live
 * @param {{path: string, agent: string, now: Date, size: string}} page
 */
export function diagnostics({ state, doc, error }, { path, agent, now, size }) {
  const { version, position, replica, insecure, totals, convergence, problems = [], problemsTotal } = doc ?? {};
  const listed = problems.slice(0, PROBLEMS_MAX).map(({ kind, namespace, name, impact, reason, message, since }) => ({ object: [kind, namespace, name].filter(Boolean).join('/'), impact, reason, message, since }));
  return JSON.stringify(
    {
      tidegate: version, position, replica: replica?.name, insecure, at: now.toISOString(),
      page: { view: path, connection: state, error: error && (error.problem?.code ?? error.status ?? String(error)), browser: agent, size },
      totals, convergence, problems: listed, problemsTotal: problemsTotal ?? problems.length,
    },
    null,
    2,
  );
}
