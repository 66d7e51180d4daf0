//! Tests of the output formats of `get` known from `kubectl`.

use serde_json::json;

use crate::stub::{JSON, Stub, begin_stream, run, write_answer};

/// Starts a stub with two Services, of which `b` has the lower cluster IP.
fn services() -> Stub {
    Stub::new(|_, request, stream| {
        let service = |name: &str, ip: &str| {
            json!({ "apiVersion": "tidegate/v1", "kind": "Service", "spec": { "type": "ClusterIP", "clusterIP": ip, "ports": [{ "port": 80 }, { "port": 443 }] },
                    "metadata": { "name": name, "namespace": "default", "labels": { "app": name } } })
        };
        if request.contains("/v1/watch") {
            let event = json!({ "type": "ADDED", "revision": 1, "position": "1-1", "object": service("a", "10.96.0.10") });
            begin_stream(stream, &format!("{event}\n"));
            return;
        }
        let list = json!({ "kind": "List", "metadata": {}, "items": [service("a", "10.96.0.10"), service("b", "10.96.0.9")] });
        write_answer(stream, "200 OK", JSON, &list.to_string());
    })
}

fn output(words: &[&str]) -> String {
    let stub = services();
    let words: Vec<&str> = ["get", "svc"].into_iter().chain(words.iter().copied()).collect();
    let (code, out, err) = run(&stub.url, &words);
    assert_eq!(code, 0, "{words:?}: {err}");
    out
}

#[test]
fn values_at_json_paths_are_printed() {
    assert_eq!(output(&["-o", "jsonpath={.items[*].metadata.name}"]), "a b\n");
    let template = r#"-o=jsonpath={range .items[?(@.metadata.labels.app=="b")]}{.spec.clusterIP}{"\n"}{end}"#;
    assert_eq!(output(&[template]), "10.96.0.9\n");
    let columns = "custom-columns=NAME:.metadata.name,PORTS:.spec.ports[*].port,NONE:.spec.nosuch";
    assert_eq!(
        output(&["-o", columns]),
        "NAME   PORTS    NONE\na      80,443   <none>\nb      80,443   <none>\n"
    );
    assert_eq!(output(&["-o", "custom-columns=N:.metadata.name", "--no-headers"]), "a\nb\n");
}

#[test]
fn listings_are_sorted_and_shown_with_labels_or_without_headings() {
    assert_eq!(output(&["--sort-by", ".spec.clusterIP", "-o", "name"]), "service/b\nservice/a\n");
    assert_eq!(output(&["--sort-by={.metadata.name}", "-o", "name"]), "service/a\nservice/b\n");
    let labelled = output(&["--show-labels"]);
    let rows: Vec<Vec<&str>> = labelled.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0].last(), Some(&"LABELS"));
    assert_eq!((rows[1].last(), rows[2].last()), (Some(&"app=a"), Some(&"app=b")));
    assert_eq!(output(&["--no-headers"]).lines().count(), 2);
}

#[test]
fn malformed_formats_are_answered_with_the_known_ones() {
    for (words, expected) in [
        (&["get", "svc", "-o", "xml"][..], "jsonpath=TEMPLATE"),
        (&["get", "svc", "-o", "go-template={{.items}}"], "Go templates are not supported"),
        (&["get", "svc", "-o", "jsonpath={.a[}"], "`[` without `]`"),
        (&["get", "svc", "--sort-by", ""], "the path is empty"),
        (&["get", "svc", "-w", "--sort-by", ".a"], "cannot be used with"),
        (&["get", "ep", "--show-labels"], "endpoints have no labels"),
    ] {
        let (code, _, err) = run("http://127.0.0.1:1", words);
        assert!(code == 2 && err.contains(expected), "{words:?}: {err}");
    }
}
