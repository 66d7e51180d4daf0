//! Tests of spellings known from `kubectl` that the command accepts.

use crate::stub::{JSON, PROBLEM, Stub, run, write_answer};

/// Starts a stub with one Service, `shop/web`.
fn shop() -> Stub {
    Stub::new(|_, request, stream| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        if path == "/v1/namespaces/shop/services/web" {
            let body = r#"{"kind":"Service","metadata":{"name":"web","namespace":"shop"},"spec":{},"status":{"conditions":[
                {"type":"Ready","status":"True","reason":"Ready","message":""}]}}"#;
            write_answer(stream, "200 OK", JSON, body);
        } else {
            let body = r#"{"status":404,"code":"NotFound"}"#;
            write_answer(stream, "404 Not Found", PROBLEM, body);
        }
    })
}

#[test]
fn a_namespace_is_given_before_the_subcommand_or_with_the_name() {
    for words in [
        &["-n", "shop", "get", "svc", "web", "-o", "name"][..],
        &["get", "svc", "shop/web", "-o", "name"],
        &["get", "svc/shop/web", "-o", "name"],
    ] {
        let stub = shop();
        let (code, out, err) = run(&stub.url, words);
        assert_eq!((code, out.as_str()), (0, "service/web\n"), "{words:?}: {err}");
    }
    let stub = shop();
    let (code, out, err) = run(&stub.url, &["wait", "svc", "shop/web", "--for=condition=ready"]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(run(&stub.url, &["wait", "svc", "shop/other", "--for=delete"]).0, 0);
}

/// The objects that exist are printed, and the others are errors.
#[test]
fn a_missing_object_does_not_hide_the_others() {
    let stub = shop();
    let (code, out, err) = run(&stub.url, &["get", "svc", "nosuch", "web", "-n", "shop", "-o", "name"]);
    assert_eq!((code, out.as_str()), (1, "service/web\n"));
    assert!(err.contains("NotFound"), "{err}");
    assert_eq!(
        run(&stub.url, &["get", "svc", "nosuch", "-n", "shop", "-o", "json"]).1,
        "",
        "nothing was found"
    );
}

#[test]
fn help_version_and_unknown_subcommands_are_answered_without_a_server() {
    let nowhere = "http://127.0.0.1:1";
    for words in [&["--version"][..], &["-V"], &["help"], &["help", "get"]] {
        let (code, out, err) = run(nowhere, words);
        assert!(code == 0 && out.contains("tidegate"), "{words:?}: {out}{err}");
    }
    let (code, out, err) = run(nowhere, &["edit", "svc", "web"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("no command `edit`") && err.contains("tidegate apply -f"), "{err}");
    for words in [&["drain", "node1"][..], &["drain", "svc", "a/b/c"], &["drain", "svc/a/b/c"]] {
        assert_eq!(run(nowhere, words).0, 2, "{words:?}");
    }
}
