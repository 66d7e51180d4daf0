//! Built-in and user-defined roles. Their rules allow verbs on kinds in namespaces.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use model::{
    kinds::resource::Kind,
    primitives::{
        name::{Label, Namespace},
        violation::{Violation, ViolationCode},
    },
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::permission::{Subject, Verb};

/// Prefix of the keys under which the vault stores roles.
pub(crate) const VAULT_PREFIX: &str = "roles/";
/// Maximum number of user-defined roles.
pub(crate) const ROLES_MAX: usize = 200;
/// Maximum number of rules in one role.
const RULES_MAX: usize = 64;
/// Maximum length of each list in a rule, larger than the number of verbs or kinds.
const WORDS_MAX: usize = 256;
/// Wildcard in a rule that stands for every verb or every kind.
const EVERY: &str = "*";
/// Name of the built-in role with all permissions.
pub(crate) const ADMIN: &str = "admin";
/// Name of the built-in role of agents. Tokens cannot be bound to it.
pub(crate) const AGENT: &str = "agent";

/// Rule of a role: verbs that it allows on kinds in namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = RoleRule)]
pub(crate) struct Rule {
    /// Verbs that the rule allows: `get`, `list`, `watch`, `create`, `update`, `delete`, `plan`, `explain`,
    /// `confirm`, `rollback`, `move`, `fix`, or `*` for all.
    #[schema(max_items = 256, example = json!(["get", "list", "watch"]))]
    pub(crate) verbs: Vec<String>,
    /// Kinds that the rule applies to: kinds of objects, `Status`, `Metrics`, `History`, `Audit`, `Bgp`,
    /// `Guard`, `Token`, `Role`, `JoinToken`, `AgentCertificate`, `Authority`, `Backup`, `DnsKey`,
    /// `CertificateKey`, or `*` for all.
    #[schema(max_items = 256, example = json!(["Service", "EndpointSet"]))]
    pub(crate) kinds: Vec<String>,
    /// Namespaces that the rule is limited to; with a limit the rule excludes cluster-scoped objects. Default: no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, max_items = 256)]
    pub(crate) namespaces: Option<BTreeSet<Namespace>>,
}

/// Contents of a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RoleBody {
    /// Rules of the role, at most 64. The role grants the sum of all rules.
    #[schema(max_items = 64)]
    pub(crate) rules: Vec<Rule>,
}

/// Rule of a role with parsed verbs and subjects.
#[derive(Debug)]
struct ParsedRule {
    verbs: BTreeSet<Verb>,
    subjects: BTreeSet<Subject>,
    namespaces: Option<BTreeSet<Namespace>>,
}

/// Role with its parsed rules.
#[derive(Debug)]
pub(crate) struct Role {
    /// Contents of the role as the client wrote them.
    pub(crate) body: RoleBody,
    compiled: Vec<ParsedRule>,
}

impl Role {
    /// Parses and validates a role. Returns all violations if it is invalid.
    pub(crate) fn new(body: RoleBody) -> Result<Self, Vec<Violation>> {
        let mut violations = Vec::new();
        if body.rules.len() > RULES_MAX {
            let message = format!("must be at most {RULES_MAX} rules");
            return Err(vec![Violation::new("/rules", ViolationCode::TooLong, message)]);
        }
        let mut compiled = Vec::new();
        for (index, rule) in body.rules.iter().enumerate() {
            let at = |field: &str| format!("/rules/{index}/{field}");
            let longest = rule.namespaces.as_ref().map_or(0, BTreeSet::len);
            for (field, found) in
                [("verbs", rule.verbs.len()), ("kinds", rule.kinds.len()), ("namespaces", longest)]
            {
                if found > WORDS_MAX {
                    let message = format!("must be at most {WORDS_MAX} entries");
                    violations.push(Violation::new(at(field), ViolationCode::TooLong, message));
                }
            }
            let verbs = words(&rule.verbs, &at("verbs"), Verb::ALL, Verb::as_str, &mut violations);
            let subjects = words(&rule.kinds, &at("kinds"), Subject::all(), Subject::as_str, &mut violations);
            compiled.push(ParsedRule { verbs, subjects, namespaces: rule.namespaces.clone() });
        }
        if violations.is_empty() { Ok(Self { body, compiled }) } else { Err(violations) }
    }

    /// Returns true if the role allows a verb on a subject in a namespace. `namespace` is `None` for
    /// cluster-scoped objects and for requests over all namespaces.
    pub(crate) fn allows(&self, verb: Verb, subject: Subject, namespace: Option<&Namespace>) -> bool {
        let allows = |rule: &ParsedRule| {
            rule.verbs.contains(&verb)
                && rule.subjects.contains(&subject)
                && covers(rule.namespaces.as_ref(), namespace)
        };
        self.compiled.iter().any(allows)
    }

    /// Returns true if the role allows a verb on a subject (`None`: on any subject) in at least one of the
    /// namespaces in `among` (`None`: in any namespace).
    pub(crate) fn allows_somewhere(
        &self,
        verb: Verb,
        subject: Option<Subject>,
        among: Option<&BTreeSet<Namespace>>,
    ) -> bool {
        let meets = |namespaces: Option<&BTreeSet<Namespace>>| match (namespaces, among) {
            (None, None) => true,
            (Some(these), None) | (None, Some(these)) => !these.is_empty(),
            (Some(these), Some(those)) => !these.is_disjoint(those),
        };
        let allows = |rule: &ParsedRule| {
            rule.verbs.contains(&verb)
                && subject.is_none_or(|subject| rule.subjects.contains(&subject))
                && !rule.subjects.is_empty()
                && meets(rule.namespaces.as_ref())
        };
        self.compiled.iter().any(allows)
    }

    /// Returns the namespaces to which rules of the role are limited.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.compiled.iter().filter_map(|rule| rule.namespaces.as_ref()).flatten()
    }
}

/// Returns true if `limit` includes `namespace`. Without a limit (`None`), everything is included. With a
/// limit, cluster-scoped objects and requests over all namespaces (`namespace` is `None`) are excluded.
pub(crate) fn covers(limit: Option<&BTreeSet<Namespace>>, namespace: Option<&Namespace>) -> bool {
    limit.is_none_or(|limit| namespace.is_some_and(|namespace| limit.contains(namespace)))
}

fn words<T: Ord + Copy>(
    given: &[String],
    pointer: &str,
    known: impl IntoIterator<Item = T>,
    word: impl Fn(T) -> &'static str,
    violations: &mut Vec<Violation>,
) -> BTreeSet<T> {
    let known: BTreeMap<&str, T> = known.into_iter().map(|value| (word(value), value)).collect();
    let mut found = BTreeSet::new();
    for (index, given) in given.iter().enumerate().take(WORDS_MAX) {
        match known.get(given.as_str()) {
            Some(value) => {
                found.insert(*value);
            }
            None if given == EVERY => found.extend(known.values()),
            None => {
                let all: Vec<_> = known.keys().copied().collect();
                let message = format!("must be one of {}, or *", all.join(", "));
                let pointer = format!("{pointer}/{index}");
                violations.push(Violation::new(pointer, ViolationCode::Invalid, message));
            }
        }
    }
    found
}

/// Built-in roles by name, which cannot be changed or deleted.
static BUILT_IN: LazyLock<BTreeMap<Label, Arc<Role>>> = LazyLock::new(|| {
    let objects = Kind::ALL.map(Kind::as_str);
    let others = ["Status", "Metrics", "History", "Bgp", "Guard", "DnsServer", "HttpGateway"];
    let seen = [&objects[..], &others].concat();
    let changed = [&objects[..], &["Guard"]].concat();
    let read = || rule(&["get", "list", "watch", "explain"], &seen);
    let roles = [
        ("viewer", vec![read()]),
        (
            "operator",
            vec![
                read(),
                rule(&["create", "update", "delete", "plan", "confirm", "rollback", "move", "fix"], &changed),
                rule(&["list"], &["Audit"]),
            ],
        ),
        (ADMIN, vec![rule(&[EVERY], &[EVERY])]),
        // The update of a zone by a program with a key is a write of the DNS server that received it.
        (
            "dns-server",
            vec![
                rule(&["get", "list", "watch"], &objects),
                rule(&["get"], &["DnsKey"]),
                rule(&["update"], &["DnsZone", "DnsServer"]),
            ],
        ),
        (
            "gateway",
            vec![
                rule(&["get", "list", "watch"], &objects),
                rule(&["get"], &["CertificateKey"]),
                rule(&["update"], &["HttpGateway"]),
            ],
        ),
        // Further permissions of an agent apply to its own node only and follow from its identity.
        (AGENT, vec![rule(&["get", "create"], &["Node"])]),
    ];
    let role = |(name, rules): (&str, Vec<Rule>)| {
        let name = Label::parse(name).expect("the name of a built-in role is a label");
        let role = Role::new(RoleBody { rules }).expect("built-in roles are made of known words");
        (name, Arc::new(role))
    };
    roles.into_iter().map(role).collect()
});

fn rule(verbs: &[&str], kinds: &[&str]) -> Rule {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Rule { verbs: owned(verbs), kinds: owned(kinds), namespaces: None }
}

/// Returns the built-in roles by name.
pub(crate) fn built_in() -> &'static BTreeMap<Label, Arc<Role>> {
    &BUILT_IN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(text: &str) -> Namespace {
        Namespace::parse(text).unwrap()
    }

    #[test]
    fn a_rule_is_matched_by_exact_words_and_limits_leave_nothing_outside_of_namespaces() {
        let role = Role::new(RoleBody {
            rules: vec![Rule {
                verbs: vec!["get".to_owned()],
                kinds: vec!["*".to_owned()],
                namespaces: Some([namespace("prod")].into()),
            }],
        })
        .unwrap();
        let service = Subject::Object(Kind::Service);
        assert!(role.allows(Verb::Get, service, Some(&namespace("prod"))));
        for (verb, place) in [
            (Verb::List, Some("prod")),
            (Verb::Get, Some("prod-2")),
            (Verb::Get, Some("pro")),
            (Verb::Get, None),
        ] {
            assert!(!role.allows(verb, service, place.map(namespace).as_ref()), "{verb} {place:?}");
        }
        assert!(role.allows_somewhere(Verb::Get, None, None));
        assert!(!role.allows_somewhere(Verb::Get, None, Some(&[namespace("test")].into())));
    }

    #[test]
    fn unknown_words_are_named_with_what_is_known() {
        let rule =
            Rule { verbs: vec!["reed".to_owned()], kinds: vec!["Servic".to_owned()], namespaces: None };
        let violations = Role::new(RoleBody { rules: vec![rule] }).unwrap_err();
        let pointers: Vec<_> = violations.iter().map(|violation| violation.pointer.as_str()).collect();
        assert_eq!(pointers, ["/rules/0/verbs/0", "/rules/0/kinds/0"]);
    }
}
