//! Random tables of rules, and random requests.

use serde_json::{Value, json};

use super::BACKENDS;

/// Host names of rules: exact ones and wildcards.
const PATTERNS: [Option<&str>; 6] = [
    None,
    Some("example.org"),
    Some("*.example.org"),
    Some("a.example.org"),
    Some("*.a.example.org"),
    Some("b.a.example.org"),
];
/// Host names of requests.
const HOSTS: [&str; 7] = [
    "example.org",
    "a.example.org",
    "A.Example.org",
    "b.a.example.org",
    "c.b.a.example.org",
    "d.example.org",
    "example.net",
];
const ELEMENTS: [&str; 4] = ["a", "ab", "b", "c"];
const METHODS: [&str; 3] = ["GET", "POST", "DELETE"];
const VALUES: [&str; 2] = ["1", "2"];

/// Deterministic pseudorandom numbers (SplitMix64).
pub(super) struct Pick(u64);

impl Pick {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `count`.
    pub(super) fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let count = u64::try_from(count).unwrap();
        usize::try_from((mixed ^ (mixed >> 31)) % count).unwrap()
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Returns a path with up to `most` elements.
    fn path(&mut self, most: usize) -> String {
        let count = self.below(most + 1);
        let path: String = (0..count).map(|_| format!("/{}", self.of(&ELEMENTS))).collect();
        if path.is_empty() { "/".to_owned() } else { path }
    }
}

/// Treatment of the requests of a rule.
#[derive(Debug)]
pub(super) enum TableAction {
    /// The backend with a number receives the request.
    Forward(usize),
    /// The backend receives the request with another prefix of its path.
    Rewrite(usize, String),
    /// The client is redirected to another host name, with the same path.
    Redirect(u16),
}

/// Rule of a table.
#[derive(Debug)]
pub(super) struct TableRule {
    pub(super) host: Option<&'static str>,
    pub(super) is_exact: bool,
    pub(super) path: String,
    pub(super) method: Option<&'static str>,
    /// Value of the header `x-a`.
    pub(super) header: Option<&'static str>,
    /// Value of the query parameter `q`.
    pub(super) query: Option<&'static str>,
    pub(super) action: TableAction,
}

impl TableRule {
    /// Returns a rule with a condition for the host name and the path, and with further ones unless `is_plain`.
    fn random(pick: &mut Pick, is_plain: bool) -> Self {
        let is_exact = pick.below(4) == 0;
        let path = pick.path(3);
        let sometimes = |pick: &mut Pick, values: &[&'static str]| {
            (!is_plain && pick.below(3) == 0).then(|| pick.of(values))
        };
        let backend = pick.below(BACKENDS);
        let action = match pick.below(6) {
            0 => TableAction::Redirect(pick.of(&[301, 302, 308])),
            1 if !is_exact => TableAction::Rewrite(backend, pick.of(&["/", "/x", "/x/y"]).to_owned()),
            _ => TableAction::Forward(backend),
        };
        Self {
            host: pick.of(&PATTERNS),
            is_exact,
            path,
            method: sometimes(pick, &METHODS),
            header: sometimes(pick, &VALUES),
            query: sometimes(pick, &VALUES),
            action,
        }
    }

    /// Returns the HttpRoute of the rule.
    pub(super) fn http_route(&self, gateway: &str) -> Value {
        let Self { host, is_exact, path, method, header, query, action } = self;
        let field = |name: &str, value: &Option<&str>| -> Vec<Value> {
            value.iter().map(|value| json!({"name": name, "value": value})).collect()
        };
        let mut one = json!({
            "path": {"type": if *is_exact { "Exact" } else { "PathPrefix" }, "value": path},
            "headers": field("X-A", header), "queryParams": field("q", query),
        });
        if let Some(method) = method {
            one["method"] = json!(method);
        }
        let backend = |number: &usize| json!([{"name": format!("backend-{number}"), "port": 80}]);
        let rule = match action {
            TableAction::Forward(number) => json!({"matches": [one], "backendRefs": backend(number)}),
            TableAction::Rewrite(number, to) => {
                let path = json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": to});
                let filters = json!([{"type": "URLRewrite", "urlRewrite": {"path": path}}]);
                json!({"matches": [one], "filters": filters, "backendRefs": backend(number)})
            }
            TableAction::Redirect(code) => {
                let redirect =
                    json!({"scheme": "https", "hostname": "moved.example.org", "statusCode": code});
                json!({"matches": [one], "filters": [{"type": "RequestRedirect", "requestRedirect": redirect}]})
            }
        };
        let hostnames: Vec<_> = host.iter().collect();
        json!({"parentRefs": [{"name": gateway}], "hostnames": hostnames, "rules": [rule]})
    }

    /// Returns the key by which rules are sorted, the first one to apply first (Gateway API: host name, path, method, headers,
    /// query parameters); equal ones apply in the order of the table.
    fn precedence(&self) -> impl Ord + use<> {
        let host =
            self.host.map_or((2, 0), |name| (usize::from(name.starts_with('*')), usize::MAX - name.len()));
        let path = (!self.is_exact, usize::MAX - self.path.trim_end_matches('/').len());
        (host, path, self.method.is_none(), self.header.is_none(), self.query.is_none())
    }

    /// Returns true if the rule has a prefix of a path, and so all requests below this path.
    pub(super) fn has_prefix_of(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.path.trim_end_matches('/'));
        !self.is_exact && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns true if each host name of a pattern is one of this rule.
    pub(super) fn covers(&self, pattern: Option<&str>) -> bool {
        match (self.host, pattern) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(pattern)) => own
                .strip_prefix('*')
                .map_or(own == pattern, |base| pattern.trim_start_matches('*').ends_with(base)),
        }
    }
}

/// Rules that a proxy serves at one port, in the order of their creation.
#[derive(Debug)]
pub(super) struct RouteTable {
    /// True if the rules have conditions for host names and paths alone.
    pub(super) is_plain: bool,
    pub(super) rules: Vec<TableRule>,
}

impl RouteTable {
    pub(super) fn random(pick: &mut Pick, is_plain: bool) -> Self {
        let count = 4 + pick.below(16);
        Self { is_plain, rules: (0..count).map(|_| TableRule::random(pick, is_plain)).collect() }
    }

    /// Returns the rules with their numbers, the first one to apply first.
    pub(super) fn sorted(&self) -> Vec<(usize, &TableRule)> {
        let mut rules: Vec<_> = self.rules.iter().enumerate().collect();
        rules.sort_by_key(|(_, rule)| rule.precedence());
        rules
    }
}

/// Request to all proxies.
#[derive(Debug)]
pub(super) struct TableRequest {
    pub(super) method: &'static str,
    pub(super) host: &'static str,
    pub(super) target: String,
    /// Value of the header `x-a`.
    pub(super) header: Option<&'static str>,
}

impl TableRequest {
    pub(super) fn random(pick: &mut Pick) -> Self {
        let mut target = pick.path(4);
        if target != "/" && pick.below(5) == 0 {
            target.push('/');
        }
        target += pick.of(&["", "", "?q=1", "?q=2", "?r=1&q=1", "?q", "?qq=1"]);
        Self {
            method: pick.of(&METHODS),
            host: pick.of(&HOSTS),
            target,
            header: pick.of(&[None, Some("1"), Some("2"), Some("12")]),
        }
    }
}
