//! Tests of `login --oidc` and of the refresh of ID tokens, with a certified provider (`lab/oidc/`).

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::json;

use crate::stub::{JSON, PROBLEM, Stub, command, ended, write_answer};

#[path = "../../../lab/oidc/provider.rs"]
mod provider;

use provider::Provider;

impl Provider {
    fn post(&self, path: &str, field: &str) -> String {
        let url = format!("{}{path}", self.issuer);
        let words = ["--silent", "--fail", "--get", "--data-urlencode", field, &url];
        let output = Command::new("curl").args(words).output().unwrap();
        assert!(output.status.success(), "{path} {field}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Starts a control server that accepts every ID token.
fn server(issuer: Option<String>) -> Stub {
    Stub::new(move |_, request, stream| {
        let problem = |stream, status: &str, code: &str| {
            write_answer(stream, status, PROBLEM, &json!({ "code": code, "detail": "no" }).to_string());
        };
        let answer = match (request.starts_with("GET /v1/oidc"), &issuer) {
            (true, Some(issuer)) => json!({ "issuer": issuer, "clientId": "tidegate" }),
            (true, None) => return problem(stream, "404 Not Found", "NotFound"),
            (false, _) if !request.contains("authorization: Bearer eyJ") => {
                return problem(stream, "401 Unauthorized", "Unauthenticated");
            }
            (false, _) => json!({ "identity": { "type": "user", "name": "kim" }, "authRequired": true }),
        };
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    })
}

fn prepared(home: &Path, words: &[&str]) -> Command {
    let mut command = command("", words);
    command.env_remove("TIDEGATE_API").env("XDG_CONFIG_HOME", home);
    command
}

#[test]
fn a_user_logs_in_with_a_browser_and_later_commands_refresh_the_token() {
    let (home, provider) = (tempfile::tempdir().unwrap(), Provider::start());
    // Tokens of 20 s are replaced before each command.
    provider.post("/test/rotate", "ttl=20");
    let stub = server(Some(provider.issuer.clone()));
    let words = ["login", &stub.url, "--name", "prod", "--oidc"];
    let mut login =
        prepared(home.path(), &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(login.stderr.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let place = line.split_whitespace().find(|word| word.starts_with("http://")).expect(&line).to_owned();
    assert!(line.contains("confirm the code"), "{line}");
    assert!(provider.post("/test/approve", &format!("url={place}")).contains("Sign-in Success"));
    let (mut out, mut err) = (String::new(), String::new());
    login.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    lines.read_to_string(&mut err).unwrap();
    assert!(login.wait().unwrap().success() && out.contains("as user kim"), "{out}{err}");
    let files = home.path().join("tidegate/contexts");
    let read = |file: &str| fs::read_to_string(files.join(file)).unwrap();
    for file in ["prod.toml", "prod.token", "prod.oidc"] {
        let mode = fs::metadata(files.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let token = |request: &str| {
        let line = request.lines().find_map(|line| line.strip_prefix("authorization: Bearer "));
        line.unwrap_or_default().to_owned()
    };
    assert_eq!(token(stub.requests().last().unwrap()), read("prod.token").trim());
    assert_eq!(token(&stub.requests()[0]), "", "no token is sent before the login");

    // An issuer revokes a refresh token that is used twice: the processes refresh one after the other.
    let before = read("prod.oidc");
    let running: Vec<_> = (0..3)
        .map(|_| {
            let mut command = prepared(home.path(), &["whoami"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for process in running {
        let (code, out, err) = ended(process.wait_with_output().unwrap());
        assert_eq!((code, out.trim()), (0, "user kim"), "{err}");
    }
    let after = read("prod.oidc");
    assert_ne!(after, before);
    assert_eq!(ended(prepared(home.path(), &["whoami"]).output().unwrap()).0, 0);
    assert_ne!(read("prod.oidc"), after, "the issuer has revoked the login");

    // Without the session at the issuer, the token ends.
    let token = "e30.eyJleHAiOjF9.c2ln";
    fs::write(files.join("prod.token"), token).unwrap();
    fs::write(
        files.join("prod.oidc"),
        read("prod.oidc").replace("\"refreshToken\": \"", "\"refreshToken\": \"x"),
    )
    .unwrap();
    let (code, _, err) = ended(prepared(home.path(), &["whoami"]).output().unwrap());
    assert!(code == 1 && err.contains("the login has ended") && err.contains("--oidc"), "{code} {err}");
    assert_eq!(ended(prepared(home.path(), &["context", "delete", "prod"]).output().unwrap()).0, 0);
    assert_eq!(fs::read_dir(&files).unwrap().count(), 0);
}

#[test]
fn a_login_at_a_server_without_an_issuer_or_at_a_wrong_one_stores_nothing() {
    let home = tempfile::tempdir().unwrap();
    // The stub has no discovery document, and another host must not be requested over HTTP.
    for (issuer, reason) in [
        (None, "NotFound"),
        (Some("http://192.0.2.1".to_owned()), "no https:// URL"),
        (Some(server(None).url.clone()), "status 401"),
    ] {
        let stub = server(issuer);
        let output = prepared(home.path(), &["login", &stub.url, "--oidc"]).output().unwrap();
        let (code, _, err) = ended(output);
        assert!(code == 1 && err.contains(reason), "{reason}: {code} {err}");
        assert_eq!(fs::read_dir(home.path().join("tidegate/contexts")).unwrap().count(), 0);
    }
}
