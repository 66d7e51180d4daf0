//! Roles: rules of what may be done to what, and where; the built-in ones, and those that somebody wrote.

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

/// What begins the key of a role in the vault.
pub(crate) const VAULT_PREFIX: &str = "roles/";
/// Roles that somebody wrote; a person keeps no more apart.
pub(crate) const ROLES_MAX: usize = 200;
/// Rules of a role.
const RULES_MAX: usize = 64;
/// Words in one list of a rule: more than there are verbs and kinds, and as many namespaces as anybody lists by hand.
const WORDS_MAX: usize = 256;
/// What stands for every verb and every kind.
const EVERY: &str = "*";
/// The role of who may do everything.
pub(crate) const ADMIN: &str = "admin";
/// The role of agents, which no token can have.
pub(crate) const AGENT: &str = "agent";

/// What may be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = RoleRule)]
pub(crate) struct Rule {
    /// What is done: `get`, `list`, `watch`, `create`, `update`, `delete`, `plan`, `explain`, `confirm`, `rollback`,
    /// `move`, `fix`, or `*`.
    #[schema(max_items = 256, example = json!(["get", "list", "watch"]))]
    pub(crate) verbs: Vec<String>,
    /// To what: kinds of objects, `Status`, `Metrics`, `History`, `Audit`, `Bgp`, `Guard`, `Token`, `Role`, `JoinToken`,
    /// `Certificate`, `Backup`, or `*`.
    #[schema(max_items = 256, example = json!(["Service", "EndpointSet"]))]
    pub(crate) kinds: Vec<String>,
    /// Only in these namespaces, and to nothing outside of namespaces; everywhere when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, max_items = 256)]
    pub(crate) namespaces: Option<BTreeSet<Namespace>>,
}

/// What is said about a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RoleBody {
    /// What it allows; the sum of all rules.
    #[schema(max_items = 64)]
    pub(crate) rules: Vec<Rule>,
}

/// A rule as it is asked.
#[derive(Debug)]
struct Compiled {
    verbs: BTreeSet<Verb>,
    subjects: BTreeSet<Subject>,
    namespaces: Option<BTreeSet<Namespace>>,
}

/// A role.
#[derive(Debug)]
pub(crate) struct Role {
    /// What was said about it.
    pub(crate) body: RoleBody,
    compiled: Vec<Compiled>,
}

impl Role {
    /// Reads a role.
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
                    let message = format!("must be at most {WORDS_MAX} words");
                    violations.push(Violation::new(at(field), ViolationCode::TooLong, message));
                }
            }
            let verbs = words(&rule.verbs, &at("verbs"), Verb::ALL, Verb::as_str, &mut violations);
            let subjects = words(&rule.kinds, &at("kinds"), Subject::all(), Subject::as_str, &mut violations);
            compiled.push(Compiled { verbs, subjects, namespaces: rule.namespaces.clone() });
        }
        if violations.is_empty() { Ok(Self { body, compiled }) } else { Err(violations) }
    }

    /// Whether it allows a verb on a subject in a namespace; without one, on what is in none or in all.
    pub(crate) fn allows(&self, verb: Verb, subject: Subject, namespace: Option<&Namespace>) -> bool {
        let allows = |rule: &Compiled| {
            rule.verbs.contains(&verb)
                && rule.subjects.contains(&subject)
                && covers(rule.namespaces.as_ref(), namespace)
        };
        self.compiled.iter().any(allows)
    }

    /// Whether it allows a verb on a subject, or on any, in a namespace at least; among some if they are given.
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
        let allows = |rule: &Compiled| {
            rule.verbs.contains(&verb)
                && subject.is_none_or(|subject| rule.subjects.contains(&subject))
                && !rule.subjects.is_empty()
                && meets(rule.namespaces.as_ref())
        };
        self.compiled.iter().any(allows)
    }

    /// The namespaces that its rules name.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.compiled.iter().filter_map(|rule| rule.namespaces.as_ref()).flatten()
    }
}

/// Whether a limit to namespaces leaves a place; what is in no namespace is outside of every limit.
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

/// The roles that are there without anybody writing them.
static BUILT_IN: LazyLock<BTreeMap<Label, Arc<Role>>> = LazyLock::new(|| {
    let objects = Kind::ALL.map(Kind::as_str);
    let seen = [&objects[..], &["Status", "Metrics", "History", "Bgp", "Guard"]].concat();
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
        // What else an agent may, it may for its own node only: that is no rule, but its identity.
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

/// The built-in roles.
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
