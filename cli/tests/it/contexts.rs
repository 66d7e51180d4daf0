//! Tests of `login`, `context` and `--context`.

use std::{fs, io::Write as _, os::unix::fs::PermissionsExt as _, path::Path, process::Stdio};

use serde_json::json;

use crate::stub::{JSON, PROBLEM, Stub, command, ended, write_answer};

/// Starts a stub that accepts the token `tg_good` only, and that names itself in its answers.
fn server(name: &'static str) -> Stub {
    Stub::new(move |_, request, stream| {
        if !request.contains("authorization: Bearer tg_good\r\n") {
            let problem = json!({ "status": 401, "code": "Unauthenticated", "detail": "who are you?" });
            return write_answer(stream, "401 Unauthorized", PROBLEM, &problem.to_string());
        }
        let answer = if request.starts_with("GET /v1/whoami") {
            json!({ "identity": { "type": "token", "id": "i", "name": "pat" }, "authRequired": true })
        } else {
            json!({ "metadata": {}, "items": [{ "kind": "Node", "metadata": { "name": name }, "spec": {} }] })
        };
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    })
}

/// Runs a command with a configuration directory and without TIDEGATE_API.
fn run(home: &Path, words: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = command("", words);
    command.env_remove("TIDEGATE_API").env("XDG_CONFIG_HOME", home).envs(variables.iter().copied());
    ended(command.output().unwrap())
}

/// The URL of a context is an obvious suspect if its server cannot be reached.
#[test]
fn a_failed_connection_names_the_context_of_the_url() {
    let home = tempfile::tempdir().unwrap();
    let contexts = home.path().join("tidegate/contexts");
    fs::create_dir_all(&contexts).unwrap();
    fs::write(contexts.join("quickstart.toml"), "api = [\"http://127.0.0.1:1\"]\n").unwrap();
    fs::write(home.path().join("tidegate/context"), "quickstart\n").unwrap();
    let (code, _, err) = run(home.path(), &["get", "nodes"], &[]);
    assert!(code == 4 && err.contains("`tidegate context delete quickstart`"), "{code} {err}");
    let (_, _, err) = run(home.path(), &["get", "nodes", "--api", "http://127.0.0.1:1"], &[]);
    assert!(!err.contains("context delete"), "{err}");
}

#[test]
fn a_login_is_stored_and_used_and_one_of_several_contexts_is_chosen() {
    let home = tempfile::tempdir().unwrap();
    let (one, two) = (server("one"), server("two"));
    let token = home.path().join("token");
    fs::write(&token, "tg_good\n").unwrap();
    let token = token.to_str().unwrap();
    let nodes = ["get", "nodes", "-o", "name"];
    for (stub, name) in [(&one, "first"), (&two, "second")] {
        let words = ["login", &stub.url, "--name", name, "--token-file", token];
        let (code, out, err) = run(home.path(), &words, &[]);
        assert_eq!(code, 0, "{out}{err}");
        assert!(out.starts_with(&format!("context {name}: ")) && out.contains("as token pat"), "{out}");
    }
    for file in ["first.toml", "first.token", "second.toml", "second.token"] {
        let path = home.path().join("tidegate/contexts").join(file);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
    }
    assert_eq!(run(home.path(), &nodes, &[]).1, "node/two\n", "the last login is current");
    let first = [&nodes[..], &["--context", "first"]].concat();
    assert_eq!(run(home.path(), &first, &[]).1, "node/one\n");
    assert_eq!(
        run(home.path(), &first, &[("TIDEGATE_API", &two.url), ("TIDEGATE_TOKEN", "tg_bad")]).1,
        "node/one\n"
    );
    assert_eq!(run(home.path(), &nodes, &[("TIDEGATE_CONTEXT", "first")]).1, "node/one\n");
    assert_eq!(run(home.path(), &nodes, &[("TIDEGATE_API", "")]).1, "node/two\n", "empty is unset");
    let (_, out, err) = run(home.path(), &nodes, &[("TIDEGATE_API", &one.url)]);
    assert_eq!(out, "node/one\n", "a variable takes precedence over the current context: {err}");
    assert_eq!(run(home.path(), &["context", "use", "first"], &[]).1, "context first is current\n");
    assert_eq!(run(home.path(), &nodes, &[]).1, "node/one\n");
    let (_, list, _) = run(home.path(), &["context", "list"], &[]);
    let rows: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1..], [["*", "first", &one.url, "default"], ["-", "second", &two.url, "default"]]);
    assert_eq!(run(home.path(), &["context", "delete", "first"], &[]).0, 0);
    assert!(!home.path().join("tidegate/contexts/first.token").exists());
    let (code, _, err) = run(home.path(), &first, &[]);
    assert!(code == 2 && err.contains("no context first"), "{err}");
}

/// The namespace of a context is the default of `-n`; a flag and the variable take precedence over that of the current
/// context, and a context that is named takes precedence over the variable.
#[test]
fn a_context_keeps_a_namespace() {
    let home = tempfile::tempdir().unwrap();
    let stub = server("one");
    let good = [("TIDEGATE_TOKEN", "tg_good")];
    let asked = |words: &[&str], variables: &[(&str, &str)]| {
        let before = stub.requests().len();
        let (code, _, err) = run(home.path(), words, variables);
        assert_eq!(code, 0, "{err}");
        let requests = stub.requests();
        let path = requests[before].split([' ', '?']).nth(1).unwrap().to_owned();
        path.trim_start_matches("/v1/namespaces/").trim_end_matches("/services").to_owned()
    };
    let services = ["get", "services", "-o", "name"];
    let login = ["login", &stub.url, "--name", "prod", "--namespace", "shop"];
    assert_eq!(run(home.path(), &login, &good).0, 0);
    assert_eq!(asked(&services, &good), "shop");
    assert_eq!(asked(&[&services[..], &["-n", "infra"]].concat(), &good), "infra");
    let variables = [good[0], ("TIDEGATE_NAMESPACE", "team")];
    assert_eq!(asked(&services, &variables), "team");
    assert_eq!(asked(&[&services[..], &["--context", "prod"]].concat(), &variables), "shop");
    assert_eq!(run(home.path(), &login[..4], &good).0, 0);
    assert_eq!(asked(&services, &good), "shop", "a login without a namespace keeps that of the context");
    let (_, out, _) = run(home.path(), &["context", "use", "prod", "-n", "lab"], &[]);
    assert_eq!(out, "context prod is current, with namespace lab\n");
    assert_eq!(asked(&services, &good), "lab");
    assert!(run(home.path(), &["context", "list"], &[]).1.lines().any(|line| line.ends_with(" lab")));
    let file = home.path().join("tidegate/contexts/prod.toml");
    for (value, expected, problem) in [("'Shop'", 2, "prod.toml: "), ("7", 1, "`namespace` must be a string")]
    {
        fs::write(&file, format!("api = '{}'\nnamespace = {value}\n", stub.url)).unwrap();
        let (code, _, err) = run(home.path(), &services, &good);
        assert!(code == expected && err.contains(problem), "{code} {err}");
    }
}

/// A login that the server rejects stores nothing, and no token of another context is sent.
#[test]
fn a_rejected_login_stores_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (one, two) = (server("one"), server("two"));
    let good = [("TIDEGATE_TOKEN", "tg_good")];
    assert_eq!(run(home.path(), &["login", &one.url, "--name", "first"], &good).0, 0);
    let (code, _, err) = run(home.path(), &["login", &two.url, "--name", "second"], &[]);
    assert!(code == 1 && err.contains("Unauthenticated"), "{code} {err}");
    assert!(two.requests().iter().all(|request| !request.contains("authorization")), "{:?}", two.requests());
    let (code, _, _) =
        run(home.path(), &["login", &one.url, "--name", "first"], &[("TIDEGATE_TOKEN", "tg_bad")]);
    assert_eq!(code, 1);
    let stored: Vec<String> = fs::read_dir(home.path().join("tidegate/contexts"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(stored.len(), 2, "{stored:?}");
    assert_eq!(
        run(home.path(), &["get", "nodes", "-o", "name"], &[]).1,
        "node/one\n",
        "the first login is still valid"
    );
    let (code, _, err) = run(home.path(), &["context", "use", "../x"], &[]);
    assert_eq!(code, 2, "{err}");
}

/// A login without a token, to a server that needs none, deletes the token that an earlier login stored.
#[test]
fn a_login_without_a_token_deletes_that_of_an_earlier_one() {
    let home = tempfile::tempdir().unwrap();
    let open = Stub::new(|_, _, stream| {
        let answer = json!({ "identity": { "type": "anonymous" }, "authRequired": false });
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    });
    let login = ["login", &open.url, "--name", "prod"];
    let token = home.path().join("tidegate/contexts/prod.token");
    for (variables, has_token) in [(&[("TIDEGATE_TOKEN", "tg_good")][..], true), (&[], false)] {
        let (code, out, err) = run(home.path(), &login, variables);
        assert_eq!(code, 0, "{out}{err}");
        assert_eq!(token.exists(), has_token);
    }
}

/// The token that a login reads from stdin is stored for its context only, without spaces, and is the one that later
/// commands send. A login with a wrong token leaves the stored one.
#[test]
fn a_token_from_stdin_is_stored_and_sent_by_later_commands() {
    let home = tempfile::tempdir().unwrap();
    let stub = server("one");
    let login = |token: &str| {
        let mut command = command("", &["login", &stub.url, "--name", "prod", "--token-stdin"]);
        command.env_remove("TIDEGATE_API").env("XDG_CONFIG_HOME", home.path());
        // The variable is not the token to store.
        command.env("TIDEGATE_TOKEN", "tg_other").stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(token.as_bytes()).unwrap();
        ended(child.wait_with_output().unwrap())
    };
    let (code, out, err) = login("  tg_good\r\n");
    assert!(code == 0 && out.contains("as token pat"), "{out}{err}");
    let files = home.path().join("tidegate/contexts");
    let stored = || fs::read_to_string(files.join("prod.token")).unwrap();
    assert_eq!(stored(), "tg_good\n");
    assert!(
        !fs::read_to_string(files.join("prod.toml")).unwrap().contains("tg_good"),
        "settings are no secret"
    );
    let nodes = ["get", "nodes", "-o", "name"];
    assert_eq!(run(home.path(), &nodes, &[]).1, "node/one\n");
    assert_eq!(login("tg_bad\n").0, 1);
    assert_eq!((stored().as_str(), files.join("prod.new").exists()), ("tg_good\n", false));
    // The stored file is read at each command, so that a token can be replaced.
    fs::write(files.join("prod.token"), "tg_revoked\n").unwrap();
    let (code, _, err) = run(home.path(), &nodes, &[]);
    assert!(code == 1 && err.contains("Unauthenticated"), "{code} {err}");
    let last = stub.requests().pop().unwrap();
    assert!(last.contains("authorization: Bearer tg_revoked\r\n"), "{last}");
}
