//! Tests of the requests that commands for pools and addresses send to a stub server.

use crate::stub::{JSON, Stub, run, write_answer};

#[test]
fn addresses_are_asked_for_by_the_names_of_their_records() {
    let stub = Stub::fixed(
        "200 OK",
        JSON,
        r#"{"kind":"Address","metadata":{"name":"2001-0db8-0000-0000-0000-0000-0000-0001"},"spec":{"address":"2001:db8::1",
            "announcement":{"epoch":2,"candidates":[{"node":"node-2"}]}},"items":[]}"#,
    );
    let (code, out, err) = run(&stub.url, &["get", "addr", "2001:db8::1"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("ADDRESS") && out.contains("\n2001:db8::1 "), "{out}");
    let (code, out, err) = run(&stub.url, &["move", "2001:DB8::1", "node-2", "--show-request"]);
    assert_eq!((code, out.as_str()), (0, "address/2001:db8::1 moved to node-2\n"), "{err}");
    assert!(err.contains(r#"--data-binary '{"node":"node-2"}'"#), "{err}");
    let (_, out, _) = run(&stub.url, &["move", "192.0.2.1", "node-2", "--dry-run"]);
    assert!(out.ends_with("moved to node-2 (dry run)\n"), "{out}");
    let record = "/v1/addresses/2001-0db8-0000-0000-0000-0000-0000-0001";
    assert_eq!(
        stub.first_lines(),
        [
            format!("GET {record} HTTP/1.1"),
            format!("POST {record}/move HTTP/1.1"),
            "POST /v1/addresses/192.0.2.1/move?dryRun=true HTTP/1.1".to_owned(),
        ]
    );
    assert!(stub.requests.lock().unwrap()[1].ends_with(r#"{"node":"node-2"}"#));
    for bad in ["web", "192.0.2.256", "2001:db8::1/128", ""] {
        assert_eq!(run(&stub.url, &["move", bad, "node-2"]).0, 2, "{bad}");
        assert_eq!(run(&stub.url, &["get", "addr", bad]).0, 2, "{bad}");
    }
    assert!(run(&stub.url, &["delete", "addr", "192.0.2.1"]).2.contains("managed by the server"));
    assert_eq!(stub.first_lines().len(), 3, "a mistake on the command line asks nobody");
}

#[test]
fn changes_of_owners_are_listed_newest_last_with_filters() {
    let stub = Stub::fixed(
        "200 OK",
        JSON,
        r#"{"metadata":{"continue":"t"},"items":[
            {"id":2,"time":"2026-11-21T09:00:00Z","address":"2001:db8::7","node":"node-2","previous":"node-1","reason":"Announced","message":"node-1, which announced it, fell silent"},
            {"id":1,"time":"2026-11-21T08:00:00Z","address":"192.0.2.7","node":"node-1","reason":"Withdrawn","message":"m"}]}"#,
    );
    let words = ["addresses", "events", "--address", "2001:DB8::7", "--node", "node-1", "--last", "2"];
    let (code, out, err) = run(&stub.url, &words);
    assert_eq!((code, err.as_str()), (0, "showing the last 2 events; use --last N for more\n"));
    let lines: Vec<Vec<_>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["TIME", "ADDRESS", "NODE", "EVENT", "PREVIOUS", "MESSAGE"]);
    assert_eq!(lines[1], ["2026-11-21T08:00:00Z", "192.0.2.7", "node-1", "Withdrawn", "-", "m"]);
    assert_eq!(lines[2][1..6], ["2001:db8::7", "node-2", "Announced", "node-1", "node-1,"]);
    let expected = "GET /v1/addresses/events?address=2001%3Adb8%3A%3A7&node=node-1&limit=2 HTTP/1.1";
    assert_eq!(stub.first_lines(), [expected]);
    for bad in [&["--address", "web"][..], &["--last", "0"], &["-o", "name"]] {
        assert_eq!(run(&stub.url, &[&["addresses", "events"], bad].concat()).0, 2, "{bad:?}");
    }
    let nothing = Stub::fixed("200 OK", JSON, r#"{"metadata":{},"items":[]}"#);
    let (code, out, err) = run(&nothing.url, &["addresses", "events"]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(err.contains("tidegate get addresses"), "{err}");
}

/// Response with a plan of two moves from node-1 to node-2.
const PLAN: &str = r#"{"moves":[{"address":"192.0.2.1","services":["default/a"],"from":"node-1","to":"node-2"},
    {"address":"192.0.2.2","services":["default/b"],"from":"node-1","to":"node-2"}],"unsettled":1,
    "nodes":[{"node":"node-1","addresses":4,"after":2},{"node":"node-2","addresses":0,"after":2}]}"#;

/// Starts a stub with [`PLAN`]. After a move, the first request shows the previous owner; `is_stuck` states if the
/// further ones do as well.
fn rebalancing(is_stuck: bool) -> Stub {
    let mut polls = 0;
    Stub::new(move |_, request, stream| {
        let owner = if request.starts_with("GET /v1/addresses/") {
            polls += 1;
            polls % 2 == 0 && !is_stuck
        } else {
            false
        };
        let owner = if owner { "node-2" } else { "node-1" };
        let record = format!(
            r#"{{"kind":"Address","metadata":{{"name":"192.0.2.1"}},
            "spec":{{"address":"192.0.2.1","announcement":{{"epoch":2,"candidates":[]}}}},"status":{{"owner":"{owner}"}}}}"#
        );
        let body = if request.starts_with("GET /v1/rebalance ") { PLAN } else { &record };
        write_answer(stream, "200 OK", JSON, body);
    })
}

#[test]
fn addresses_are_spread_by_one_move_at_a_time() {
    let stub = rebalancing(false);
    let (code, out, err) = run(&stub.url, &["rebalance", "--dry-run"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("address/192.0.2.2 moved from node-1 to node-2 (dry run)\n"), "{out}");
    assert!(
        out.contains("NODE ") && err.contains("resets the connections") && err.contains("1 address stays"),
        "{out}{err}"
    );
    assert_eq!(stub.first_lines(), ["GET /v1/rebalance HTTP/1.1"], "a preview changes nothing");
    let (code, out, err) = run(&stub.url, &["rebalance"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.starts_with("address/192.0.2.1 moved from node-1 to node-2\naddress/192.0.2.2 moved"),
        "{out}"
    );
    let of = |address: &str| {
        let record = format!("/v1/addresses/{address}");
        [
            format!("POST {record}/move HTTP/1.1"),
            format!("GET {record} HTTP/1.1"),
            format!("GET {record} HTTP/1.1"),
        ]
    };
    assert_eq!(
        stub.first_lines()[2..],
        [of("192.0.2.1"), of("192.0.2.2")].concat(),
        "each move is waited for"
    );
}

#[test]
fn a_move_that_is_not_announced_ends_the_rebalance() {
    let stub = rebalancing(true);
    let (code, out, err) = run(&stub.url, &["rebalance", "--at-most", "300ms"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("address/192.0.2.1") && err.contains("node-2 does not announce it yet"), "{err}");
    assert!(!stub.first_lines().iter().any(|line| line.contains("192.0.2.2")), "no further move");
}

#[test]
fn a_pool_lists_its_own_addresses_and_evicts_only_when_told() {
    let stub = Stub::new(|_, request, stream| {
        let body = if request.starts_with("GET /v1/addresses?pool=lan ") {
            r#"{"items":[{"spec":{"address":"192.0.2.10","pool":"lan","services":["default/b"]}},
                {"spec":{"address":"192.0.2.9","pool":"lan","services":["default/a"]}}]}"#
        } else {
            r#"{"kind":"AddressPool","metadata":{"name":"lan"},"spec":{"addresses":["192.0.2.0/28"]}}"#
        };
        write_answer(stream, "200 OK", JSON, body);
    });
    let (code, out, err) = run(&stub.url, &["describe", "pool", "lan"]);
    assert_eq!(code, 0, "{err}");
    let (nine, ten) = (out.find("192.0.2.9 "), out.find("192.0.2.10 "));
    assert!(out.contains("Addresses (2)") && nine.is_some() && nine < ten, "{out}");
    assert_eq!(run(&stub.url, &["delete", "pool", "lan"]).0, 0);
    assert_eq!(run(&stub.url, &["delete", "pool", "lan", "--evict"]).0, 0);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pool.yaml").display().to_string();
    std::fs::write(&file, "kind: AddressPool\nmetadata: {name: lan}\n").unwrap();
    assert_eq!(run(&stub.url, &["apply", "-f", &file, "--evict"]).0, 0);
    assert_eq!(
        stub.first_lines()[2..],
        [
            "DELETE /v1/addresspools/lan HTTP/1.1",
            "DELETE /v1/addresspools/lan?evict=true HTTP/1.1",
            "POST /v1/apply?evict=true HTTP/1.1"
        ]
    );
}

#[test]
fn an_import_is_applied_as_one_request_of_our_own_objects() {
    let stub = Stub::fixed(
        "200 OK",
        JSON,
        r#"{"results":[{"action":"created","object":{"kind":"AddressPool","metadata":{"name":"default"}}}]}"#,
    );
    let seed = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/import/seed.yaml");
    let (code, out, err) = run(&stub.url, &["import", seed, "--apply", "--dry-run"]);
    assert_eq!((code, out.as_str()), (0, "addresspool/default created (dry run)\n"), "{err}");
    assert!(err.contains("3 mapped"), "the report is said beside it: {err}");
    let request = stub.requests.lock().unwrap()[0].clone();
    assert!(request.starts_with("POST /v1/apply?dryRun=true "), "{request}");
    assert!(request.contains("kind: AddressPool") && request.contains("kind: Advertisement"), "{request}");
    assert!(!request.contains("ConfigMap"), "{request}");
}
