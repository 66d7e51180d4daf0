use model::admission::decode::{Expect, decode};
use serde_json::json;

use super::*;
use crate::engine::mirror::{self, Own};

fn source() -> Label {
    Label::parse("shop").unwrap()
}

fn workload(name: &str) -> Object {
    let value =
        json!({ "kind": "Workload", "metadata": { "name": name }, "spec": { "addresses": ["10.0.0.1"] } });
    decode(&value, &Expect::default()).unwrap()
}

fn policy(name: &str, app: &str) -> Object {
    let selector = json!({ "matchLabels": { "app": app } });
    let value =
        json!({ "kind": "NetworkPolicy", "metadata": { "name": name }, "spec": { "selector": selector } });
    decode(&value, &Expect::default()).unwrap()
}

fn service(name: &str) -> Object {
    let value =
        json!({ "kind": "Service", "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } });
    decode(&value, &Expect::default()).unwrap()
}

fn wanted(objects: &[Object], is_complete: bool) -> DesiredObjects {
    DesiredObjects {
        objects: objects.iter().map(|object| (object.key(), object.clone())).collect(),
        is_complete,
    }
}

fn mirror_of(objects: &[Object]) -> Mirror {
    let mut mirror = Mirror::default();
    let own = |object: &Object| -> (ObjectKey, Own) {
        let mut shown = prepared(&source(), object, None).to_json();
        shown["metadata"]["applySet"] = "shop".into();
        shown["metadata"]["resourceVersion"] = "7".into();
        mirror::own(&source(), shown).unwrap()
    };
    mirror.list(objects.iter().map(own).collect());
    mirror
}

fn decide(
    wanted: &DesiredObjects,
    mirror: &Mirror,
    limits: (Option<usize>, bool),
    confirmed: &BTreeSet<ObjectKey>,
) -> Plan {
    let (prune_limit, allow_empty) = limits;
    let (source, settled) = (source(), BTreeMap::new());
    let uncounted = Some(Kind::Service);
    let rules = Rules { source: &source, prune_limit, allow_empty, uncounted, confirmed, settled: &settled };
    let all: BTreeSet<_> = wanted.objects.keys().chain(mirror.objects().keys()).cloned().collect();
    plan(rules, wanted, mirror, all.iter())
}

fn names(keys: impl IntoIterator<Item = ObjectKey>) -> Vec<String> {
    keys.into_iter().map(|key| key.to_string()).collect()
}

#[test]
fn what_others_refer_to_is_written_first_and_removed_last() {
    let plan = decide(
        &wanted(&[service("a"), workload("b")], true),
        &mirror_of(&[service("c"), workload("d"), service("a")]),
        (None, false),
        &BTreeSet::new(),
    );
    assert_eq!(
        names(plan.writes.iter().map(|write| write.key.clone())),
        ["Workload default/b"],
        "a is there already"
    );
    assert!(plan.writes[0].is_new);
    assert_eq!(names(plan.removals), ["Service default/c", "Workload default/d"]);
}

#[test]
fn a_replacement_names_the_state_it_rests_on() {
    let mut other = workload("w");
    other.metadata.labels.insert("app".to_owned(), "x".to_owned());
    let plan = decide(&wanted(&[other], true), &mirror_of(&[workload("w")]), (None, false), &BTreeSet::new());
    let json: serde_json::Value = serde_json::from_slice(&plan.writes[0].json).unwrap();
    assert_eq!(json["metadata"]["resourceVersion"], "7");
    assert_eq!(json["metadata"]["labels"], json!({ "app": "x", "tidegate.io/source": "shop" }));
    assert!(!plan.writes[0].is_new);
}

#[test]
fn nothing_is_removed_for_a_source_that_is_incomplete_empty_or_loses_too_much() {
    let seven: Vec<_> = (0..7).map(|n| workload(&format!("w{n}"))).collect();
    let mirror = mirror_of(&seven);
    let none = BTreeSet::new();
    let one = wanted(&seven[..1], true);

    let plan = decide(&wanted(&seven[..1], false), &mirror, (Some(100), true), &none);
    assert_eq!((plan.removals.len(), plan.held.len(), plan.waiting.len()), (0, 0, 6), "incomplete");
    let plan = decide(&one, &mirror, (None, false), &none);
    assert_eq!((plan.removals.len(), plan.held.len()), (0, 6), "six are more than five");
    assert_eq!(decide(&one, &mirror, (Some(6), false), &none).removals.len(), 6);
    let confirmed: BTreeSet<_> = seven[1..3].iter().map(Object::key).collect();
    let plan = decide(&one, &mirror, (None, false), &confirmed);
    assert_eq!((plan.removals.len(), plan.held.len()), (6, 0), "four are unasked");

    let nothing = wanted(&[], true);
    let plan = decide(&nothing, &mirror_of(&seven[..1]), (Some(100), false), &none);
    assert_eq!((plan.removals.len(), plan.held.len()), (0, 1), "empty");
    assert_eq!(decide(&nothing, &mirror_of(&seven[..1]), (None, true), &none).removals.len(), 1);
}

/// Removals of the uncounted kind are free while some of its objects stay, also if others are held, and raise no limit of the
/// other kinds.
#[test]
fn removals_of_an_uncounted_kind_are_held_only_if_all_are_gone() {
    let free: Vec<_> = (0..40).map(|n| service(&format!("s{n}"))).collect();
    let counted: Vec<_> = (0..7).map(|n| workload(&format!("w{n}"))).collect();
    let mirror = mirror_of(&[free.clone(), counted.clone()].concat());
    let none = BTreeSet::new();
    let decide = |left: &[Object]| {
        let plan = decide(&wanted(left, true), &mirror, (None, false), &none);
        (plan.removals.len(), plan.held.len())
    };
    assert_eq!(decide(&[&free[..1], &counted].concat()), (39, 0));
    assert_eq!(decide(&[&free[..1], &counted[..2]].concat()), (44, 0));
    assert_eq!(
        decide(&[&free[..1], &counted[..1]].concat()),
        (39, 6),
        "a fifth of all would be more than six"
    );
    assert_eq!(decide(&counted), (0, 40), "none is left");
    assert_eq!(decide(&[]), (0, 47), "nothing is left");
}

/// A new policy is written after the new Workloads, which it may accept as peers. A changed one is written before the Workloads
/// that it selects, and so is every policy before the Workloads that get other labels.
#[test]
fn new_policies_follow_new_workloads_and_changed_ones_precede_them() {
    let mut replaced = workload("a");
    replaced.metadata.labels.insert("app".to_owned(), "x".to_owned());
    let plan = decide(
        &wanted(&[policy("b", "web"), policy("c", "api"), replaced, workload("d"), service("e")], true),
        &mirror_of(&[policy("c", "web"), workload("a"), policy("f", "web"), workload("g")]),
        (None, false),
        &BTreeSet::new(),
    );
    let written = names(plan.writes.into_iter().map(|write| write.key));
    let expected = [
        "NetworkPolicy default/c",
        "Workload default/d",
        "NetworkPolicy default/b",
        "Workload default/a",
        "Service default/e",
    ];
    assert_eq!(written, expected);
    assert_eq!(names(plan.removals), ["Workload default/g", "NetworkPolicy default/f"]);
}

#[test]
fn requests_are_bounded_in_objects_and_bytes() {
    let write = |bytes: usize| Write {
        key: workload("w").key(),
        is_new: true,
        json: vec![b' '; bytes],
        wanted: workload("w"),
    };
    let sizes = |writes: Vec<Write>| batches(writes).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(sizes(vec![write(10); BATCH_OBJECTS_MAX + 1]), [BATCH_OBJECTS_MAX, 1]);
    assert_eq!(sizes(vec![write(BATCH_BYTES_MAX / 2); 3]), [1, 1, 1]);
    assert_eq!(
        sizes(vec![write(BATCH_BYTES_MAX * 2), write(1)]),
        [1, 1],
        "what is too large alone goes alone"
    );
    assert_eq!(sizes(vec![]), [0; 0]);
}
