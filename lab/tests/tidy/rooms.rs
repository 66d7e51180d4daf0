//! Rooms: the top-level modules of a workspace member, ordered in layers. A room may import only from rooms
//! below it.

use std::collections::BTreeSet;

/// Maximum number of source files directly in the `src` of a workspace member.
pub(crate) const ROOT_FILES_MAX: usize = 12;

/// Rooms (top-level modules in layers) of each workspace member that has them, lowest layer first.
pub(crate) const ROOMS: [(&str, &[&str]); 9] = [
    (
        "model",
        &[
            "primitives",
            "kinds",
            "cluster",
            "bgp",
            "program",
            "policy",
            "wire",
            "compile",
            "http",
            "discovery",
            "observed",
            "admission",
            "views",
        ],
    ),
    (
        "api",
        &["base", "telemetry", "security", "state", "stream", "write", "context", "tasks", "http", "server"],
    ),
    ("kernel", &["netlink", "packet", "socket_option", "connection_error", "conntrack", "links", "nftables"]),
    (
        "dataplane",
        &["addresses", "claims", "trace", "memory", "policy", "nftables", "iptables", "ipvs", "userspace"],
    ),
    (
        "announce",
        &[
            "ownership",
            "l2",
            "ping",
            "neighbours",
            "settings",
            "shown",
            "show",
            "thread",
            "adapters",
            "start",
        ],
    ),
    ("speaker", &["peering", "routing"]),
    ("network", &["desired", "plan", "routes", "filter", "attach", "cleanup", "follow", "run", "serve"]),
    (
        "node-agent",
        &[
            "alive",
            "notify",
            "facts",
            "tally",
            "policy",
            "status",
            "told",
            "control",
            "feed",
            "state",
            "hold",
            "journal",
            "enrol",
            "peer_key",
            "preflight",
            "doctor",
            "ask",
            "config",
            "health_port",
            "agent",
            "workload_network",
            "report",
            "server",
            "run",
        ],
    ),
    ("lab", &["host", "network", "processes", "cluster", "fixtures", "load", "chaos"]),
];

/// Returns the top-level modules of the same crate that a source file names outside of its unit tests.
pub(crate) fn imports(text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| line.to_owned() + "\n")
        .collect();
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(tree) => found.extend(first_level(tree)),
            None => found.extend(name(rest)),
        }
    }
    found
}

/// Returns the names on the first level of a use tree, whose opening brace is already consumed.
fn first_level(tree: &str) -> Vec<String> {
    let (mut depth, mut names, mut at_start) = (1, Vec::new(), true);
    for (at, c) in tree.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => at_start = true,
            _ if depth == 1 && at_start && !c.is_whitespace() => {
                names.extend(tree.get(at..).and_then(name));
                at_start = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

fn name(text: &str) -> Option<String> {
    let name: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// Returns the modules in `imports` that are above `room` in the order of `rooms`.
pub(crate) fn upward(rooms: &[&str], room: &str, imports: &BTreeSet<String>) -> Vec<String> {
    let level = |name: &str| rooms.iter().position(|one| *one == name);
    let Some(own) = level(room) else { return Vec::new() };
    imports.iter().filter(|name| level(name).is_some_and(|other| other > own)).cloned().collect()
}
