//! Tests of the requests, output and fixes of `doctor`.

use serde_json::json;

use crate::stub::{JSON, PROBLEM, Stub, run, write_answer};

/// Starts a stub of a cluster with two nodes. The first node has a problem, which a fix repairs if `is_allowed`.
fn cluster(is_allowed: bool) -> Stub {
    let mut is_fixed = false;
    Stub::new(move |_, request, stream| {
        let fine = json!({ "check": "clock", "state": "Fine", "message": "within 5 s" });
        let odd = json!({
            "check": "net.ipv4.ip_forward=1", "state": "Warning", "message": "missing: it is 0",
            "why": "needed for endpoints", "fix": "sysctl -w net.ipv4.ip_forward=1", "safeFix": "IpForward",
        });
        let answer = match request.split(' ').collect::<Vec<_>>()[..] {
            ["GET", "/v1/nodes/n1/doctor", ..] if !is_fixed => json!({ "node": "n1", "findings": [odd] }),
            ["GET", "/v1/nodes/n1/doctor", ..] => json!({ "node": "n1", "findings": [fine] }),
            ["GET", "/v1/nodes/n2/doctor", ..] => json!({ "node": "n2", "findings": [fine] }),
            ["POST", "/v1/nodes/n1/fixes", ..] if is_allowed => {
                assert!(request.ends_with("{\"fixes\":[\"IpForward\"]}"), "{request}");
                is_fixed = true;
                let done = json!({ "fix": "IpForward", "outcome": "Done", "message": "it was 0 and is 1" });
                json!({ "node": "n1", "fixes": [done] })
            }
            ["POST", "/v1/nodes/n1/fixes", ..] => {
                let problem = json!({
                    "type": "about:blank", "title": "The agent of the node cannot answer", "status": 502,
                    "code": "NodeCannotSay", "detail": "Node n1: start it with --allow-fixes",
                });
                return write_answer(stream, "502 Bad Gateway", PROBLEM, &problem.to_string());
            }
            _ => json!({ "kind": "NodeList", "metadata": {}, "items": [
                { "kind": "Node", "metadata": { "name": "n1" } }, { "kind": "Node", "metadata": { "name": "n2" } },
            ] }),
        };
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    })
}

#[test]
fn what_is_odd_is_printed_with_its_reason_and_its_fix() {
    let stub = cluster(true);
    let (code, out, err) = run(&stub.url, &["doctor"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let wanted = "NODE   CHECK                   STATE     FOUND\n\
        n1     net.ipv4.ip_forward=1   Warning   missing: it is 0\n\n\
        net.ipv4.ip_forward=1: needed for endpoints\n  fix: sysctl -w net.ipv4.ip_forward=1 (--fix applies it)\n";
    assert_eq!(out, wanted);
    assert_eq!(run(&stub.url, &["doctor", "node/n2"]).1, "1 of 1 nodes: no problems found\n");
}

/// Without a terminal, `--fix` requires `--yes`. With `--yes`, each fix is printed, and the checks are
/// repeated.
#[test]
fn fixes_are_made_when_confirmed_and_said() {
    let stub = cluster(true);
    let (code, _, err) = run(&stub.url, &["doctor", "--fix"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("n1: IpForward") && err.contains("--yes"), "{err}");
    assert!(!stub.first_lines().iter().any(|line| line.starts_with("POST")), "{:?}", stub.first_lines());

    let (code, out, err) = run(&stub.url, &["doctor", "--fix", "--yes"]);
    let expected = (0, "2 of 2 nodes: no problems found\n", "n1: IpForward Done: it was 0 and is 1\n");
    assert_eq!((code, out.as_str(), err.as_str()), expected);
    let (code, _, err) = run(&stub.url, &["doctor", "--fix", "--yes"]);
    assert_eq!((code, err.as_str()), (0, "no finding can be fixed with --fix\n"));
}

#[test]
fn an_agent_that_does_not_allow_fixes_is_a_failure_with_the_remedy() {
    let stub = cluster(false);
    let (code, out, err) = run(&stub.url, &["doctor", "--fix", "--yes"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("start it with --allow-fixes"), "{err}");
    assert!(out.contains("missing: it is 0"), "what is still odd is shown: {out}");
}
