//! Rows of the feature table (`docs/reference/features.md`). Each row has an id and a sentence that a test must be able
//! to refute. `rows.txt` has all rows; a row is never removed, and its sentence is never weakened.

/// Number of rows of the table.
pub(crate) const ROWS: usize = 168;

/// Returns the rows: id and sentence.
pub(crate) fn all() -> Vec<(&'static str, &'static str)> {
    include_str!("rows.txt").lines().filter_map(|line| line.split_once(' ')).collect()
}

/// Rows without code, as ranges of ids with their subject. The README lists them.
pub(crate) const NOT_BUILT: &[(&str, &str)] = &[];

/// Rows with a clause that no test proves, and the reason.
pub(crate) const NOT_PROVED: &[(&str, &str)] = &[
    (
        "F001",
        "Replies are compared with the OpenAPI document by `lab/schemathesis.sh` only, with a few examples per operation.",
    ),
    ("F002", "On etcd, only the tests named here run, not the whole API suite."),
    ("F014", "There are no feature switches, and no test names the row."),
    ("F015", "If the container engine refuses `--privileged`, the test adds every capability instead."),
    ("F016", "No test limits the time until another server allocates."),
    ("F019", "No test limits the time; the benchmark `change` measures it."),
    ("F027", "No test limits the time."),
    ("F052", "A client that has a route of the Service range to a node is served."),
    ("F062", "No test limits the time; the benchmark `change` measures it and compares it with a target."),
    ("F064", "No test compares the rates; the benchmark `connections` does."),
    ("F078", "No test compares the time of a repair with the interval of resyncs."),
    ("F084", "No test of the fallback to another mode names the row."),
    ("F117", "Times are limited in a simulated network only; the benchmark `failover` measures them."),
    ("F128", "The status of the pool has the warning; preflight lists the networks only."),
    ("F137", "A statement of the documentation."),
    ("F148", "No test limits the time in every mode."),
    ("F168", "Workloads of a Node with an expired lease leave only if other Nodes find them unhealthy."),
];
