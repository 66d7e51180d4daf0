//! Tests of the output of `history` and `audit`, and of the requests of `rollback`.

use cli::{terminal::style::Style, views::history};
use model::primitives::quantity::Timestamp;
use serde_json::{Value, json};

use crate::stub::{JSON, PROBLEM, Stub, run, write_answer};

fn now() -> Timestamp {
    Timestamp::try_from("2026-11-21T09:00:00Z".to_owned()).unwrap()
}

fn change() -> Value {
    json!({
        "revision": 42, "at": "2026-11-21T08:55:00Z", "maker": "client", "author": "jo@desk", "source": "192.0.2.9",
        "message": "the shop\u{1b}[31m goes live", "requestId": "r", "changesTotal": 5,
        "changes": [
            { "kind": "MODIFIED", "object": { "kind": "Workload", "namespace": "shop", "name": "w" } },
            { "kind": "ADDED", "object": { "kind": "Service", "namespace": "default", "name": "web" } },
            { "kind": "DELETED", "object": { "kind": "Address", "name": "2001-0db8-0000-0000-0000-0000-0000-0001" } },
            { "kind": "DELETED", "object": { "kind": "Node", "name": "n1" } },
        ],
        "objects": [
            {
                "kind": "MODIFIED", "object": { "kind": "Workload", "namespace": "shop", "name": "w" },
                "fields": [
                    { "pointer": "/spec/addresses/0", "before": "10.0.0.1", "after": "10.0.0.2" },
                    { "pointer": "/metadata/labels/app", "after": "shop" },
                ],
                "fieldsOmitted": 3,
            },
            {
                "kind": "ADDED", "object": { "kind": "Service", "namespace": "default", "name": "web" },
                "fields": [{ "pointer": "", "after": { "metadata": {}, "spec": { "type": "ClusterIP" } } }],
                "fieldsOmitted": 0,
            },
        ],
    })
}

#[test]
fn a_change_is_a_row_and_one_change_is_shown_field_by_field() {
    let server = json!({
        "revision": 41, "at": "2026-11-21T08:00:00Z", "maker": "server", "author": "tidegate", "changesTotal": 1,
        "changes": [{ "kind": "MODIFIED", "object": { "kind": "Address", "name": "192.0.2.1" } }],
    });
    let expected = "\
REVISION   AGE    AUTHOR     CHANGES                                                           MESSAGE
42         5m     jo@desk    ~workload/w in shop +service/web -address/2001:db8::1 and 2 more   the shop[31m goes live
41         60m    tidegate   ~address/192.0.2.1                                                 -
";
    let squeeze = |text: &str| {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let listing = json!({ "items": [change(), server] });
    assert_eq!(squeeze(&history::list(&listing, now(), Style::PLAIN)), squeeze(expected));
    let expected = "\
revision 42, 2026-11-21T08:55:00Z (5m ago), by jo@desk from 192.0.2.9
    the shop[31m goes live

~ workload/w in shop
    spec.addresses[0]
      - \"10.0.0.1\"
      + \"10.0.0.2\"
    metadata.labels.app
      + \"shop\"
    and 3 more fields; use -o json for complete objects

+ service/web
    + type: ClusterIP
";
    assert_eq!(history::entry(&change(), now(), Style::PLAIN), expected);
    let color = history::entry(&change(), now(), Style { color: true });
    assert!(color.contains("\u{1b}[31m      - \"10.0.0.1\"\u{1b}[0m"), "{color}");
}

#[test]
fn who_lacks_a_change_is_named_with_the_reason() {
    let curve = json!({
        "concernsNodes": true, "verified": 1, "total": 2, "p50Ms": 12, "p99Ms": 40, "maxMs": 41,
        "nodes": [
            { "node": "n2", "receivedMs": 4, "why": "its agent does not report" },
            { "node": "n1", "receivedMs": 3, "appliedMs": 12, "verifiedMs": 12 },
        ],
    });
    let expected = "
verified by 1 of 2 nodes: 50 % within 12 ms, 99 % within 40 ms, all within 41 ms
  n2: received after 4 ms, its agent does not report
  n1: received after 3 ms, applied after 12 ms, verified after 12 ms
";
    assert_eq!(history::convergence(&curve), expected);
    assert_eq!(history::convergence(&json!({ "concernsNodes": false, "total": 0 })), "");
}

#[test]
fn rules_are_asked_for_one_change_and_shown_by_node() {
    let rules = json!({ "revision": 42, "position": "1-50", "nodes": {
        "n1": { "preview": { "announcements": [], "omitted": 0, "kernel": [
            { "change": "added", "place": "map inet tidegate services4", "line": "10.96.0.7 . tcp . 80 : goto s1" },
            { "change": "removed", "place": "map inet tidegate services4", "line": "10.96.0.7 . tcp . 81 : goto s1" },
        ] } },
        "n2": { "error": "the agent is not connected" },
    } });
    let stub = Stub::new(move |_, request, stream| {
        let answer = if request.starts_with("GET /v1/history/42/rules ") {
            rules.clone()
        } else if request.starts_with("GET /v1/history/42 ") {
            change()
        } else {
            json!({ "concernsNodes": false })
        };
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    });
    let (code, printed, _) = run(&stub.url, &["history", "42", "--rules"]);
    let expected = "
node/n1
  map inet tidegate services4
    - 10.96.0.7 . tcp . 81 : goto s1
    + 10.96.0.7 . tcp . 80 : goto s1

node/n2
  not known: the agent is not connected
";
    assert!(printed.ends_with(expected), "{printed}");
    assert_eq!(code, 0);
    let (_, printed, _) = run(&stub.url, &["history", "42", "--rules", "-o", "json"]);
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed["rules"]["n2"]["error"], "the agent is not connected");
    let (code, _, said) = run(&stub.url, &["history", "svc/web", "--rules"]);
    assert!(code == 2 && said.contains("history REVISION --rules"), "{code} {said}");
}

#[test]
fn audit_shows_what_was_refused_and_why() {
    let item = json!({
        "at": "2026-11-21T08:59:30Z", "author": "jo@desk", "source": "192.0.2.9", "method": "POST", "path": "/v1/apply",
        "objects": ["Service default/web"], "objectsTotal": 2, "decision": "refused", "code": "Invalid", "dryRun": true,
    });
    let text = history::audit(&json!({ "items": [item] }), now(), Style::PLAIN);
    let row = text.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        row,
        "30s jo@desk 192.0.2.9 POST /v1/apply Service default/web and 1 more refused: Invalid (dry run) -"
    );
}

#[test]
fn rollback_says_who_and_why_and_prints_what_became_of_each_object() {
    let object = json!({ "kind": "Service", "metadata": { "name": "web", "namespace": "default" } });
    let answer = json!({ "dryRun": true, "results": [{ "action": "updated", "object": object }] });
    let stub = Stub::fixed("200 OK", JSON, answer.to_string());
    let arguments = ["rollback", "41", "--only", "--dry-run", "--confirm", "-m", "zurück"];
    let (_, printed, _) = run(&stub.url, &arguments);
    assert_eq!(printed, "service/web updated (dry run)\n");
    let request = stub.requests.lock().unwrap()[0].clone();
    assert!(request.starts_with("POST /v1/rollback?dryRun=true&confirm=true "), "{request}");
    for part in ["x-tidegate-author: ", "x-change-message: zurück", r#"{"only":true,"revision":41}"#] {
        assert!(request.contains(part), "{part}: {request}");
    }
}

/// Without a revision, the newest change of the caller is undone and no later one of somebody else.
#[test]
fn rollback_without_a_revision_undoes_the_last_change_of_the_caller() {
    fn server(author: &'static str) -> Stub {
        Stub::new(move |_, request, stream| {
            let entry = |revision: u64, maker: &str, author: &str| {
                json!({ "revision": revision, "at": "2026-11-21T08:55:00Z", "maker": maker, "author": author,
                        "message": "new ports", "changesTotal": 0, "changes": [] })
            };
            let object = json!({ "kind": "Service", "metadata": { "name": "web", "namespace": "default" } });
            let answer = match request.split(' ').nth(1).unwrap() {
                "/v1/whoami" => {
                    json!({ "identity": { "type": "token", "id": "i", "name": "ci" }, "authRequired": true })
                }
                path if path.starts_with("/v1/history") => json!({ "metadata": {}, "items": [
                    entry(44, "server", "tidegate"), entry(43, "client", "jo@desk"), entry(42, "client", author),
                    entry(41, "client", author),
                ] }),
                path => {
                    json!({ "dryRun": path.contains("dryRun=true"), "results": [{ "action": "updated", "object": object }] })
                }
            };
            write_answer(stream, "200 OK", JSON, &answer.to_string());
        })
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let author: &'static str = format!("pat@{} via token ci", host.trim()).leak();
    let run = |stub: &Stub, words: &[&str]| {
        let mut command = crate::stub::command(&stub.url, words);
        crate::stub::ended(command.env("USER", "pat").output().unwrap())
    };
    let stub = server(author);
    let (code, out, err) = run(&stub, &["rollback", "--yes", "-m", "oops"]);
    assert_eq!((code, out.as_str()), (0, "service/web updated (dry run)\nservice/web updated\n"), "{err}");
    assert!(err.contains("undoes revision 42") && err.contains("new ports"), "{err}");
    let written: Vec<String> =
        stub.requests().into_iter().filter(|request| request.starts_with("POST")).collect();
    assert_eq!(written.len(), 2, "a preview and the change");
    assert!(written[1].starts_with("POST /v1/rollback ") && written[1].contains("x-change-message: oops"));
    assert!(written[1].ends_with(r#"{"only":true,"revision":42}"#), "{}", written[1]);

    let stub = server(author);
    let (code, out, err) = run(&stub, &["rollback"]);
    assert_eq!((code, out.as_str()), (2, "service/web updated (dry run)\n"), "nobody can confirm it");
    assert!(err.contains("--yes") && err.contains("tidegate rollback 42 --only"), "{err}");
    assert!(
        stub.first_lines().iter().all(|line| !line.starts_with("POST /v1/rollback ")),
        "nothing is changed"
    );
    let stub = server("somebody else");
    let (code, _, err) = run(&stub, &["rollback", "--yes"]);
    assert!(code == 2 && err.contains("no change by pat@"), "{err}");
}

#[test]
fn what_a_guard_holds_is_named_with_the_flag_that_confirms_it() {
    let problem = json!({
        "code": "GuardHeld", "status": 409, "detail": "too much", "hint": "?confirm=true",
        "wouldRemove": ["10.96.0.1 of Service default/a"],
    });
    let stub = Stub::fixed("409 Conflict", PROBLEM, problem.to_string());
    let (code, _, said) = run(&stub.url, &["rollback", "0"]);
    assert!(
        said.contains("would remove 10.96.0.1 of Service default/a") && said.contains("--confirm"),
        "{said}"
    );
    assert_eq!(code, 1);
}
