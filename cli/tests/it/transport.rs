//! Behavior of the command with servers that respond late, incorrectly, partially or not at all. The server
//! is a stub; the tests in `lab` use real servers.

use std::{
    io::Write,
    net::TcpListener,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use crate::stub::{JSON, PROBLEM, Stub, begin_stream, command, ended, run, write_answer};

#[test]
fn a_server_that_is_not_there_is_exit_code_4_and_says_what_to_check() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, out, err) = run(&format!("http://{closed}"), &["get", "svc"]);
    assert_eq!((code, out.as_str()), (4, ""));
    assert!(
        err.contains("cannot reach http://127.0.0.1")
            && err.contains("hint: check that tidegate-api is running"),
        "{err}"
    );
}

#[test]
fn a_server_that_is_silent_is_left_after_the_timeout_with_exit_code_4() {
    let stub = Stub::new(|_, _, _| thread::sleep(Duration::from_secs(20)));
    let begin = Instant::now();
    let (code, _, err) = run(&stub.url, &["status", "--timeout", "300ms"]);
    assert_eq!(code, 4, "{err}");
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert!(err.contains("did not respond within 0.3 s") && err.contains("--timeout"), "{err}");
}

#[test]
fn an_answer_that_stops_in_the_middle_is_an_error_and_never_half_a_table() {
    let stub = Stub::new(|_, _, stream| {
        let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"items\":[");
    });
    let (code, out, err) = run(&stub.url, &["get", "svc"]);
    assert_eq!((code, out.as_str()), (4, ""), "{err}");
}

#[test]
fn every_violation_of_a_refusal_is_a_line_with_field_and_hint() {
    let body = r#"{"title":"Invalid","status":422,"code":"Invalid","detail":"2 fields must change","errors":[
        {"pointer":"/items/1/spec/ports/0/port","code":"Invalid","message":"must be a port between 1 and 65535, not 0","hint":"leave it out"},
        {"pointer":"/items/0/metadata/labels/a~1b","code":"Invalid","message":"too long"}]}"#;
    let stub = Stub::fixed("422 Unprocessable Content", PROBLEM, body);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("b.yaml"), "kind: Service\nmetadata: {name: web}\n").unwrap();
    std::fs::write(directory.path().join("a.json"), r#"{"kind":"Node","metadata":{"name":"n1"}}"#).unwrap();
    std::fs::write(directory.path().join("ignored.txt"), "x").unwrap();
    let path = directory.path().display().to_string();
    let (code, out, err) = run(&stub.url, &["apply", "-f", &path]);
    assert_eq!((code, out.as_str()), (1, ""));
    let expected = format!(
        "error: 2 fields must change (Invalid, 422)\n\
         service/web in {path}/b.yaml: spec.ports[0].port: must be a port between 1 and 65535, not 0\n  hint: leave it out\n\
         node/n1 in {path}/a.json: metadata.labels[\"a/b\"]: too long\n"
    );
    assert_eq!(err, expected);
    let request = stub.requests.lock().unwrap()[0].clone();
    assert!(request.contains("application/yaml"), "{request}");
    assert!(request.ends_with("---\n{\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\"}}\n---\nkind: Service\nmetadata: {name: web}\n\n"));
}

/// F012: the output contains a line for each object, with the outcome that the server reported.
#[test]
fn apply_sends_a_file_as_it_is_and_prints_a_line_per_object() {
    let object =
        |name: &str| format!(r#"{{"kind":"Service","metadata":{{"name":"{name}","namespace":"default"}}}}"#);
    let body = format!(
        r#"{{"dryRun":true,"results":[{{"action":"created","object":{}}},{{"action":"pruned","object":{}}}]}}"#,
        object("web"),
        object("old")
    );
    let stub = Stub::fixed("200 OK", JSON, body);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), object("web")).unwrap();
    let path = file.path().display().to_string();
    let arguments = [
        "apply",
        "-f",
        &path,
        "--dry-run",
        "--apply-set",
        "shop",
        "--prune",
        "--prune-limit",
        "3",
        "--show-request",
    ];
    let (code, out, err) = run(&stub.url, &arguments);
    assert_eq!(
        (code, out.as_str()),
        (0, "service/web created (dry run)\nservice/old pruned (dry run)\n"),
        "{err}"
    );
    assert_eq!(
        stub.first_lines(),
        ["POST /v1/apply?dryRun=true&applySet=shop&prune=true&pruneLimit=3 HTTP/1.1"]
    );
    assert!(stub.requests.lock().unwrap()[0].ends_with(&object("web")), "the bytes of the file are the body");
    assert!(
        err.starts_with("curl -sS -X POST -H 'Content-Type: application/json' --data-binary @'"),
        "{err}"
    );
}

#[test]
fn a_prune_over_the_limit_is_refused_with_what_it_would_remove_and_the_flag_that_allows_it() {
    let names: Vec<String> = (0..25).map(|number| format!("\"Service default/s{number}\"")).collect();
    let body = format!(
        r#"{{"code":"PruneLimit","detail":"would lose 25","hint":"send pruneLimit","wouldPrune":[{}]}}"#,
        names.join(",")
    );
    let stub = Stub::fixed("409 Conflict", PROBLEM, body);
    let (code, _, err) = run(&stub.url, &["apply", "-f", "/dev/null", "--apply-set", "shop", "--prune"]);
    assert_eq!(code, 1);
    assert!(
        err.starts_with("error: would lose 25 (PruneLimit, 409)\nwould prune Service default/s0\n"),
        "{err}"
    );
    assert!(
        err.ends_with("and 5 more\n  hint: if this is intended, raise the limit with --prune-limit N\n"),
        "{err}"
    );
}

#[test]
fn all_pages_of_a_listing_become_one_table_and_an_expired_page_begins_anew() {
    let item = |name: &str| format!(r#"{{"kind":"Node","metadata":{{"name":"{name}"}}}}"#);
    let page = move |names: &[&str], next: &str| {
        let items: Vec<String> = names.iter().map(|name| item(name)).collect();
        format!(
            r#"{{"kind":"NodeList","metadata":{{"continue":"{next}","remainingItemCount":1}},"items":[{}]}}"#,
            items.join(",")
        )
    };
    let stub = Stub::new(move |number, _, stream| match number {
        0 => write_answer(stream, "200 OK", JSON, &page(&["stale"], "t/1")),
        1 => write_answer(stream, "410 Gone", PROBLEM, r#"{"code":"PageExpired","status":410}"#),
        2 => write_answer(stream, "200 OK", JSON, &page(&["n1", "n2"], "t&2")),
        _ => write_answer(stream, "200 OK", JSON, &page(&["n3"], "")),
    });
    let (code, out, err) = run(&stub.url, &["get", "no", "-o", "name", "-l", "zone in (a,b)"]);
    assert_eq!((code, out.as_str()), (0, "node/n1\nnode/n2\nnode/n3\n"), "{err}");
    let lines = stub.first_lines();
    assert_eq!(lines[0], "GET /v1/nodes?labelSelector=zone+in+%28a%2Cb%29 HTTP/1.1");
    assert_eq!(lines[3], "GET /v1/nodes?labelSelector=zone+in+%28a%2Cb%29&continue=t%262 HTTP/1.1");
}

#[test]
fn pages_that_repeat_end_in_an_error_and_not_in_a_loop() {
    let stub = Stub::fixed("200 OK", JSON, r#"{"metadata":{"continue":"same"},"items":[]}"#);
    let (code, _, err) = run(&stub.url, &["get", "svc"]);
    assert_eq!(code, 1);
    assert!(err.contains("pages repeat"), "{err}");
}

#[test]
fn answers_that_are_not_of_the_api_are_quoted_without_control_characters() {
    for (status, content_type, body) in [
        ("200 OK", "text/html", "<html>\u{1b}[31mhello"),
        ("502 Bad Gateway", "text/html", "<h1>bad</h1>"),
        ("302 Found", "text/plain", ""),
        ("404 Not Found", JSON, "{}"),
        ("500 Internal Server Error", PROBLEM, "[1"),
        ("200 OK", JSON, "{\"items\": 3}"),
    ] {
        let stub = Stub::fixed(status, content_type, body);
        let (code, out, err) = run(&stub.url, &["get", "svc"]);
        assert_eq!((code, out.as_str()), (1, ""), "{status} {body}: {err}");
        assert!(err.contains("unexpected response from") && !err.contains('\u{1b}'), "{err}");
    }
}

#[test]
fn an_endless_answer_is_given_up_at_the_limit() {
    let stub = Stub::new(|_, _, stream| {
        let _gone = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n[");
        let blanks = vec![b' '; 1 << 20];
        while stream.write_all(&blanks).is_ok() {}
    });
    let (code, _, err) = run(&stub.url, &["get", "svc"]);
    assert_eq!(code, 1);
    assert!(err.contains("larger than 64 MiB"), "{err}");
}

#[test]
fn status_ends_with_3_when_there_are_problems_and_with_0_when_there_are_none() {
    let fixtures: serde_json::Value = serde_json::from_str(include_str!("../fixtures/objects.json")).unwrap();
    for (key, expected) in [("status", 3), ("healthy", 0)] {
        let stub = Stub::fixed("200 OK", JSON, fixtures[key].to_string());
        let (code, out, err) = run(&stub.url, &["status"]);
        assert_eq!(code, expected, "{out}{err}");
        assert!(!out.contains('\u{1b}'), "no colour into a pipe");
    }
}

#[test]
fn wait_says_why_not_and_ends_when_it_is_so_or_after_the_time() {
    let service = |status: &str| {
        format!(
            r#"{{"kind":"Service","metadata":{{"name":"web"}},"status":{{"conditions":[
            {{"type":"Programmed","status":"{status}","reason":"NodesBehind","message":"1 of 3 nodes"}}]}}}}"#
        )
    };
    let stub = Stub::new(move |number, _, stream| {
        write_answer(stream, "200 OK", JSON, &service(if number < 3 { "False" } else { "True" }));
    });
    let (code, out, err) = run(&stub.url, &["wait", "svc/web"]);
    assert_eq!((code, out.as_str()), (0, "service/web is verified on every node\n"));
    assert_eq!(err, "waiting: Programmed is False: NodesBehind, 1 of 3 nodes\n", "said once");
    assert_eq!(stub.first_lines()[0], "GET /v1/namespaces/default/services/web HTTP/1.1");

    let gone =
        Stub::fixed("404 Not Found", PROBLEM, r#"{"title":"Not found","status":404,"code":"NotFound"}"#);
    let (code, out, _) = run(&gone.url, &["wait", "svc", "web", "--for=deleted"]);
    assert_eq!((code, out.as_str()), (0, "service/web is gone\n"));
    for deadline in [&["--at-most=100ms"][..], &["--timeout=100ms"], &["--timeout=5s", "--at-most=100ms"]] {
        let words = [&["wait", "svc/web", "--for=ready", "-q"], deadline].concat();
        let (code, out, err) = run(&gone.url, &words);
        assert_eq!((code, out.as_str()), (1, ""));
        assert!(
            err.contains("service/web did not reach the goal within 0.1 s: the object does not exist"),
            "{deadline:?}: {err}"
        );
    }
}

#[test]
fn several_objects_are_deleted_by_one_request_and_missing_ones_are_named() {
    let answer = r#"{"results":[{"action":"deleted","object":
        {"kind":"Service","metadata":{"name":"b","namespace":"shop"}}}]}"#;
    let stub = Stub::fixed("200 OK", JSON, answer);
    let (code, out, err) = run(&stub.url, &["delete", "svc", "a", "b", "-n", "shop"]);
    assert_eq!((code, out.as_str()), (1, "service/b in shop deleted\n"), "{err}");
    assert!(err.contains("Service shop/a does not exist") && err.contains("1 of 2 failed"), "{err}");
    let second = Stub::fixed("200 OK", JSON, answer);
    let words = ["delete", "svc/a", "eps/b", "--ignore-not-found", "--dry-run", "--confirm"];
    let (code, _, err) = run(&second.url, &words);
    assert_eq!((code, err.as_str()), (0, ""));
    let expected = "POST /v1/delete?ignoreNotFound=true&dryRun=true&confirm=true HTTP/1.1";
    assert_eq!(second.first_lines(), [expected]);
}

#[test]
fn a_single_object_is_deleted_at_its_path() {
    let stub =
        Stub::fixed("404 Not Found", PROBLEM, r#"{"code":"NotFound","detail":"there is no service a"}"#);
    let (code, _, err) = run(&stub.url, &["delete", "svc", "a", "-n", "shop"]);
    assert_eq!(code, 1);
    assert!(err.contains("there is no service a (NotFound, 404)"), "{err}");
    assert_eq!(stub.first_lines(), ["DELETE /v1/namespaces/shop/services/a HTTP/1.1"]);
    assert_eq!(run(&stub.url, &["delete", "svc", "a", "--ignore-not-found"]).0, 0);
}

#[test]
fn mistakes_on_the_command_line_are_exit_code_2_and_reach_no_server() {
    let stub = Stub::fixed("200 OK", JSON, "{}");
    for (arguments, said) in [
        (vec!["get", "pods"], "services (svc)"),
        (vec!["get", "svc", "Web"], "is not a valid name"),
        (vec!["get", "svc", "../../status"], "is not a valid name"),
        (vec!["get", "svc", "web", "-A"], "--all-namespaces"),
        (vec!["get", "svc", "-l", "a=b=c"], "label requirement"),
        (vec!["get", "ep", "-w"], "cannot be watched"),
        (vec!["delete", "svc"], "the name of the service is missing"),
        (vec!["delete", "ep", "web"], "computed"),
        (vec!["delete"], "--filename"),
        (vec!["apply", "-f", "x", "--prune"], "--apply-set"),
        (vec!["watch", "--resume", "yesterday"], "a position that this API returned"),
        (vec!["status", "--api", "ftp://x"], "unsupported URL scheme"),
        (vec!["status", "--ca-hash", "sha256:12"], "64 hexadecimal"),
        (vec!["status", "--api", "http://192.0.2.1", "--token-file", "/dev/null"], "contains no valid token"),
        (vec!["status", "--timeout", "0"], "greater than 0"),
        (vec!["describe", "svc"], "the name of the service is missing"),
        (vec!["get", "svc", "-A", "-n", "shop"], "cannot be used with"),
        (vec!["delete", "-f", "x.yaml", "-n", "shop"], "cannot be used with"),
    ] {
        let (code, _, err) = run(&stub.url, &arguments);
        assert_eq!(code, 2, "{arguments:?}: {err}");
        assert!(err.contains(said), "{arguments:?}: {err}");
    }
    assert_eq!(stub.first_lines(), Vec::<String>::new());
}

/// Waits until `done` returns true or a time limit has passed. Then kills the watch `child`, and returns its
/// stdout and stderr.
fn watch_for(child: Child, done: impl Fn() -> bool) -> (String, String) {
    let mut child = child;
    let begin = Instant::now();
    while !done() && begin.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(300));
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn event(word: &str, revision: u32, position: Option<&str>, name: &str) -> String {
    let position = position.map(|position| format!(r#""position":"{position}","#)).unwrap_or_default();
    format!(
        r#"{{"type":"{word}","revision":{revision},{position}"object":{{"kind":"Service","metadata":{{"name":"{name}"}}}}}}"#
    ) + "\n"
}

#[test]
fn a_watch_that_is_cut_says_so_and_resumes_at_the_last_position_that_allows_it() {
    let stub = Stub::new(|number, _, stream| match number {
        0 => begin_stream(
            stream,
            &(event("ADDED", 1, Some("9-1"), "a") + &event("ADDED", 2, None, "b") + "{\"type\":\"AD"),
        ),
        1 => write_answer(stream, "503 Service Unavailable", PROBLEM, r#"{"code":"Unavailable"}"#),
        2 => write_answer(stream, "410 Gone", PROBLEM, r#"{"code":"ResumeExpired"}"#),
        _ => {
            begin_stream(stream, &event("ADDED", 3, Some("9-3"), "c"));
            thread::sleep(Duration::from_secs(2));
        }
    });
    let child = command(&stub.url, &["watch", "svc", "-n", "default"]).spawn().unwrap();
    let (out, err) = watch_for(child, || stub.first_lines().len() >= 4);
    let lines = stub.first_lines();
    assert_eq!(lines[0], "GET /v1/watch?kinds=Service&namespace=default HTTP/1.1");
    assert_eq!(lines[1], "GET /v1/watch?kinds=Service&namespace=default&resume=9-1 HTTP/1.1");
    assert_eq!(lines[3], lines[0], "after 410 everything is listed again");
    assert_eq!(
        out,
        "       1 ADDED    service/a\n       2 ADDED    service/b\n       3 ADDED    service/c\n"
    );
    assert!(err.contains("-- disconnected: ") && err.contains("resuming from 9-1"), "{err}");
    assert!(err.contains("listing everything again") && err.contains("-- connected again"), "{err}");
}

#[test]
fn a_watch_without_heartbeats_is_taken_for_cut() {
    let stub = Stub::new(|number, _, stream| {
        begin_stream(stream, &event("ADDED", 1, Some("9-1"), "a"));
        if number == 0 {
            let silent = stream.try_clone().unwrap();
            thread::spawn(move || {
                thread::sleep(Duration::from_secs(20));
                drop(silent);
            });
        }
    });
    let child = command(&stub.url, &["watch", "-o", "json", "--timeout", "300ms"]).spawn().unwrap();
    let (_, err) = watch_for(child, || stub.first_lines().len() >= 2);
    assert!(err.contains("did not respond within 0.3 s; resuming from 9-1"), "{err}");
}

#[test]
fn a_watch_that_is_refused_at_first_ends_with_the_reason() {
    let stub = Stub::fixed(
        "410 Gone",
        PROBLEM,
        r#"{"code":"ResumeExpired","detail":"the position is of another epoch"}"#,
    );
    let (code, _, err) = run(&stub.url, &["watch", "--resume", "1-1"]);
    assert_eq!(code, 1);
    assert!(err.contains("another epoch (ResumeExpired, 410)"), "{err}");
}

#[test]
fn get_watch_prints_a_whole_table_and_then_a_row_per_change() {
    let stub = Stub::new(|number, _, stream| {
        if number == 0 {
            return begin_stream(stream, &event("ADDED", 1, None, "a"));
        }
        let initial = event("ADDED", 1, None, "a") + &event("ADDED", 1, Some("9-1"), "long-name");
        let bookmark = r#"{"type":"BOOKMARK","revision":1,"position":"9-1","initial":true}"#;
        begin_stream(stream, &format!("{initial}{bookmark}\n{}", event("DELETED", 2, Some("9-2"), "a")));
        thread::sleep(Duration::from_secs(2));
    });
    let child = command(&stub.url, &["get", "svc", "-w"]).spawn().unwrap();
    let (out, err) = watch_for(child, || stub.first_lines().len() >= 2);
    let firsts: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
    assert_eq!(
        firsts,
        [["EVENT", "NAME"], ["ADDED", "a"], ["ADDED", "long-name"], ["DELETED", "a"]],
        "{out}{err}"
    );
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    let items = vec![r#"{"kind":"Node","metadata":{"name":"node-with-a-name"}}"#; 20_000].join(",");
    let stub = Stub::fixed("200 OK", JSON, format!(r#"{{"items":[{items}]}}"#));
    let mut child = command(&stub.url, &["get", "nodes"]).spawn().unwrap();
    drop(child.stdout.take());
    let (code, _, err) = ended(child.wait_with_output().unwrap());
    assert_eq!((code, err.as_str()), (0, ""));
}

/// F086: the traffic table is printed on stdout. For a Service without traffic a note is printed on stderr,
/// for an unknown Service the error of the server.
#[test]
fn f086_traffic_asks_for_one_service_and_prints_its_table() {
    let answer = r#"{"service": "shop/web", "total": {"connections": 7}, "endpoints": [], "nodes": {"n1": {"mode": "nftables",
        "total": {"connections": 7}, "ageSeconds": 2, "endpoints": [{"protocol": "TCP", "address": "10.1.1.1", "port": 80, "servicePorts": ["80"], "connections": 7}]}}}"#;
    let server = Stub::fixed("200 OK", "application/json", answer);
    let (code, out, _) = run(&server.url, &["traffic", "web", "-n", "shop"]);
    assert_eq!(code, 0);
    assert!(out.contains("n1") && out.contains("10.1.1.1:80/TCP") && out.contains('7'), "{out}");
    assert_eq!(server.first_lines(), ["GET /v1/namespaces/shop/services/web/traffic HTTP/1.1"]);

    let busiest = r#"{"services": [{"service": "shop/web", "nodes": 2, "connections": 7, "perSecond": {"connections": 1, "bytes": 9.5}}], "servicesOmitted": 3}"#;
    let server = Stub::fixed("200 OK", "application/json", busiest);
    let (code, out, note) = run(&server.url, &["top", "services", "-n", "shop", "--sort", "byte-rate"]);
    assert!(code == 0 && out.contains("shop/web") && out.contains("9.5"), "{out}");
    assert!(note.contains("3 more Services"), "{note}");
    assert_eq!(server.first_lines(), ["GET /v1/traffic?sortBy=byteRate&limit=20&namespace=shop HTTP/1.1"]);
    let server = Stub::fixed("200 OK", "application/json", r#"{"nodes": []}"#);
    assert_eq!(run(&server.url, &["top", "nodes"]).0, 0);
    assert_eq!(server.first_lines(), ["GET /v1/convergence HTTP/1.1"]);

    let empty = Stub::fixed("200 OK", "application/json", r#"{"nodes": {}, "endpoints": []}"#);
    let (code, out, note) = run(&empty.url, &["traffic", "web"]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(note.contains("no node has reported traffic"), "{note}");
}

/// The commands of these tests run without environment variables, as in a container or a cron job.
#[test]
fn the_author_is_the_user_of_the_process_without_a_user_variable() {
    let stub = Stub::fixed("200 OK", JSON, r#"{"kind":"Service","metadata":{"name":"a"}}"#);
    assert_eq!(run(&stub.url, &["delete", "svc", "a"]).0, 0);
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective()).unwrap().unwrap().name;
    let requests = stub.requests();
    let expected = format!("x-tidegate-author: {user}@");
    assert!(requests[0].contains(&expected), "{}", requests[0]);
}
