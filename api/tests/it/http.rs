//! Tests with HTTP transcripts: the files `tests/http/*.txt` contain requests and the expected responses.
//! `UPDATE_GOLDEN=1` rewrites the responses.
//!
//! ```text
//! # a comment                          purpose of the next request
//! @ show status                        print status in full; otherwise it is `…`
//! @ wait 20                            move the clock, in seconds
//! @ guards 50 33                       on the first line: guards of the server, in percent
//! > POST /v1/nodes                     a request: line, headers, an empty `>`, body
//! > Content-Type: application/json
//! >
//! > {"metadata": {"name": "n1"}}
//! < 201                                the response: status, relevant headers, body
//! ```
//! Times measured by a clock (`p50Ms`, `p99Ms`, `waitingMs`, `lagMillis`, and numbers before ` ms` in a
//! message) are `…` as well.
//!
//! In requests `{etag}`, `{position}` and `{continue}` stand for those of the last response that had one. The
//! body `@nested N` is N opening brackets, `@bytes N` a text of N bytes; `@lines N` as a header reads N lines
//! of a stream.

use std::{fs, path::Path};

use api::base::config::Settings;
use axum::body::Body;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use model::cluster::config::Guards;
use serde_json::{Value, json};

use crate::support::{self, Lines, Server};

/// Headers that transcripts omit, because they are irrelevant or the same in every response.
const BORING: [&str; 11] = [
    "x-content-type-options",
    "x-frame-options",
    "referrer-policy",
    "content-security-policy",
    "permissions-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "cache-control",
    "x-request-id",
    "content-length",
    "vary",
];

/// A dry run and a write of each file in `examples/` create all its objects; the same write again changes none.
#[tokio::test]
async fn every_example_is_accepted_and_creates_what_it_declares() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files = 0;
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")) {
        let manifest = fs::read_to_string(&path).unwrap();
        let declared = manifest.lines().filter(|line| line.starts_with("kind: ")).count();
        let server = support::start().await;
        for (query, action) in [("?dryRun=true", "created"), ("", "created"), ("", "unchanged")] {
            let result = apply(&server, &format!("/v1/apply{query}"), &manifest).await;
            let results = result["results"].as_array();
            let actions: Vec<_> = results.into_iter().flatten().map(|result| &result["action"]).collect();
            assert_eq!(actions, vec![action; declared], "{}: {result:#}", path.display());
        }
        files += 1;
    }
    assert!(files >= 10, "{files} examples");
}

/// The examples of a label selector, an address pool and a shared address have ready endpoints, and addresses from
/// the pools.
#[tokio::test]
async fn examples_lead_to_the_described_status() {
    let server = support::start().await;
    for file in ["selector.yaml", "load-balancer-l2.yaml", "shared-address.yaml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(file);
        apply(&server, "/v1/apply", &fs::read_to_string(path).unwrap()).await;
    }
    let status = async |name: &str| {
        let (code, service) =
            server.call("GET", &format!("/v1/namespaces/default/services/{name}"), None).await;
        assert_eq!(code, 200, "{service:#}");
        service["status"].clone()
    };
    let shop = status("shop").await;
    assert_eq!(
        (&shop["endpoints"]["ready"], &shop["endpoints"]["total"]),
        (&json!(2), &json!(3)),
        "{shop:#}"
    );
    let address = async |name: &str| status(name).await["loadBalancer"]["ingress"][0]["ip"].clone();
    let front = address("front").await;
    let reserved = "203.0.113.40";
    assert!(front.as_str().is_some_and(|ip| ip.starts_with("203.0.113.4") && ip != reserved), "{front}");
    assert_eq!(
        (address("mail").await, address("webmail").await),
        (json!("203.0.113.100"), json!("203.0.113.100"))
    );
}

/// Sends a manifest to `path`, asserts success and returns the body of the response.
async fn apply(server: &Server, path: &str, manifest: &str) -> Value {
    let request = Request::post(path).header("content-type", "application/yaml");
    let response = server.send(request.body(Body::from(manifest.to_owned())).unwrap()).await;
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&bytes).unwrap();
    assert!(status.is_success(), "{path}: {body:#}\n{manifest}");
    body
}

#[tokio::test]
async fn every_transcript_is_what_the_server_answers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    let mut different = Vec::new();
    for path in paths {
        let script = fs::read_to_string(&path).unwrap();
        let transcript = run(&script).await;
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &transcript).unwrap();
        } else if script != transcript {
            different.push(format!("{}\n{}", path.display(), first_difference(&script, &transcript)));
        }
    }
    assert!(different.is_empty(), "transcripts differ:\n{}", different.join("\n"));
}

/// F023: kinds that run containers are rejected with an explanation. Scaling in another system changes the number
/// of endpoints.
#[tokio::test]
async fn f023_what_runs_pods_is_refused_and_scaling_done_elsewhere_changes_the_endpoints() {
    let server = support::start().await;
    let service = json!({ "kind": "Service", "metadata": { "name": "nginx" },
        "spec": { "selector": { "app": "nginx" }, "ports": [{ "port": 80 }] } });
    for (version, kind) in
        [("apps/v1", "Deployment"), ("v1", "ReplicationController"), ("v1", "Pod"), ("batch/v1", "Job")]
    {
        let runner = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "nginx" }, "spec": { "replicas": 3 } });
        let list = json!({ "kind": "List", "items": [service, runner] });
        let (status, answer) = server.call("POST", "/v1/apply", Some(list)).await;
        assert_eq!(status, 422, "{answer}");
        let errors = answer["errors"].as_array().unwrap();
        let hint = errors.iter().find(|error| error["pointer"] == "/items/1/kind").unwrap()["hint"]
            .as_str()
            .unwrap();
        assert!(hint.contains(&format!("schedules and runs nothing, so there is no {kind}")), "{hint}");
    }
    assert_eq!(
        server.call("GET", "/v1/namespaces/default/services/nginx", None).await.0,
        404,
        "all or nothing"
    );

    assert_eq!(server.call("POST", "/v1/apply", Some(service)).await.0, 200);
    for replicas in [3, 5, 1, 0] {
        // The system that runs them reports the Workloads, as a source does.
        let workload = |number: usize| {
            json!({ "kind": "Workload", "metadata": { "name": format!("nginx-{number}"), "labels": { "app": "nginx" } },
                "spec": { "addresses": [format!("10.1.13.{}", number + 1)] } })
        };
        let list = json!({ "kind": "List", "items": (0..replicas).map(workload).collect::<Vec<_>>() });
        let path = "/v1/apply?applySet=nginx&prune=true&pruneLimit=10";
        let (status, answer) = server.call("POST", path, Some(list)).await;
        assert_eq!(status, 200, "{answer}");
        let endpoints = server.call("GET", "/v1/namespaces/default/endpoints/nginx", None).await.1;
        assert_eq!(
            endpoints["ports"][0]["endpoints"].as_array().map_or(0, Vec::len),
            replicas,
            "{endpoints}"
        );
    }
}

fn first_difference(expected: &str, found: &str) -> String {
    let mut pairs = expected.lines().zip(found.lines()).enumerate();
    match pairs.find(|(_, (a, b))| a != b) {
        Some((at, (a, b))) => format!("  line {}\n  expected {a}\n  found    {b}", at + 1),
        None => "  one ends before the other".to_owned(),
    }
}

fn settings(script: &str) -> Settings {
    let settings = support::settings(30000..=32767);
    let guards = script.lines().next().and_then(|line| line.strip_prefix("@ guards "));
    let Some((vips, endpoints)) = guards.and_then(|guards| guards.split_once(' ')) else { return settings };
    let (vips_percent, endpoints_percent) = (vips.parse().unwrap(), endpoints.parse().unwrap());
    let cluster = settings.cluster.clone().with_guards(Guards { vips_percent, endpoints_percent });
    Settings { cluster, ..settings }
}

#[derive(Default)]
struct State {
    show_status: bool,
    etag: String,
    position: String,
    continue_token: String,
}

async fn run(script: &str) -> String {
    let server = support::start_with(settings(script)).await;
    let mut state = State::default();
    let mut transcript = String::new();
    let mut request: Vec<String> = Vec::new();
    for line in script.lines().chain([""]) {
        if let Some(part) = line.strip_prefix('>') {
            request.push(part.strip_prefix(' ').unwrap_or(part).to_owned());
            transcript.push_str(&format!("{line}\n"));
            continue;
        }
        if !request.is_empty() {
            let answer = answer(&server, &mut state, &request).await;
            transcript.push_str(&answer);
            request.clear();
        }
        if line.starts_with('<') {
            continue;
        }
        if let Some(directive) = line.strip_prefix("@ ") {
            match directive.split_once(' ').unwrap() {
                ("show", "status") => state.show_status = true,
                // Applied at the start of the server.
                ("guards", _) => {}
                ("wait", secs) => server.source.advance(secs.parse().unwrap()),
                other => panic!("unknown directive {other:?}"),
            }
        }
        transcript.push_str(&format!("{line}\n"));
    }
    server.running.stop().await;
    format!("{}\n", transcript.trim_end())
}

async fn answer(server: &Server, state: &mut State, lines: &[String]) -> String {
    let fill = |text: &str| {
        let text = text.replace("{etag}", &state.etag).replace("{position}", &state.position);
        text.replace("{continue}", &state.continue_token)
    };
    let (method, path) = lines[0].split_once(' ').unwrap();
    let mut builder = Request::builder().method(method).uri(fill(path)).header("x-request-id", "test");
    let mut stream_lines = None;
    let mut rest = lines[1..].iter();
    for line in rest.by_ref().take_while(|line| !line.is_empty()) {
        if let Some(count) = line.strip_prefix("@lines ") {
            stream_lines = Some(count.parse::<usize>().unwrap());
            continue;
        }
        let (name, value) = line.split_once(": ").unwrap();
        builder = builder.header(name, fill(value));
    }
    let body = rest.map(|line| fill(line)).collect::<Vec<_>>().join("\n");
    let body = match body.split_once(' ') {
        Some(("@nested", count)) => "[".repeat(count.parse().unwrap()),
        Some(("@bytes", count)) => format!("\"{}\"", "x".repeat(count.parse().unwrap())),
        _ => body,
    };
    let response = server.send(builder.body(Body::from(body)).unwrap()).await;
    let (parts, body) = response.into_parts();
    let mut text = format!("< {}\n", parts.status.as_u16());
    write_headers(&parts.headers, state, &mut text);
    match stream_lines {
        Some(count) => {
            let mut lines = Lines::new(body);
            for _ in 0..count {
                write_line(&lines.next().await.unwrap(), state, &mut text);
            }
        }
        None => {
            let bytes = body.collect().await.unwrap().to_bytes();
            write_body(std::str::from_utf8(&bytes).unwrap(), state, &mut text);
        }
    }
    text
}

fn write_headers(headers: &HeaderMap, state: &mut State, text: &mut String) {
    for (name, value) in headers {
        let value = value.to_str().unwrap();
        if name == "etag" {
            value.clone_into(&mut state.etag);
        }
        let is_json = name == "content-type" && value == "application/json";
        if !is_json && !BORING.contains(&name.as_str()) {
            text.push_str(&format!("< {name}: {value}\n"));
        }
    }
}

fn write_line(line: &str, state: &mut State, text: &mut String) {
    let line = line.trim_end();
    let written = serde_json::from_str::<Value>(line).map(|mut value| {
        remember(&value, state);
        shorten(&mut value, state);
        value.to_string()
    });
    text.push_str(&format!("< {}\n", written.as_deref().unwrap_or(line)));
}

fn write_body(body: &str, state: &mut State, text: &mut String) {
    let Ok(mut value) = serde_json::from_str::<Value>(body) else {
        body.lines().for_each(|line| text.push_str(&format!("< {line}\n")));
        return;
    };
    remember(&value, state);
    shorten(&mut value, state);
    let mut pretty = String::new();
    write_value(&value, "", &mut pretty);
    pretty.lines().for_each(|line| text.push_str(&format!("< {line}\n")));
}

/// Writes a JSON value on one line if it fits, otherwise each element on a line of its own.
fn write_value(value: &Value, indent: &str, text: &mut String) {
    let compact = value.to_string();
    if compact.len() + indent.len() <= 110 {
        text.push_str(&compact);
        return;
    }
    let inner = format!("{indent}  ");
    let (open, close, entries): (_, _, Vec<(String, &Value)>) = match value {
        Value::Object(fields) => {
            ("{", "}", fields.iter().map(|(key, value)| (format!("\"{key}\": "), value)).collect())
        }
        Value::Array(values) => ("[", "]", values.iter().map(|value| (String::new(), value)).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return text.push_str(&compact),
    };
    let last = entries.len().saturating_sub(1);
    text.push_str(&format!("{open}\n"));
    for (at, (key, value)) in entries.into_iter().enumerate() {
        text.push_str(&format!("{inner}{key}"));
        write_value(value, &inner, text);
        text.push_str(if at == last { "\n" } else { ",\n" });
    }
    text.push_str(&format!("{indent}{close}"));
}

fn remember(value: &Value, state: &mut State) {
    let take = |pointer: &str, into: &mut String| {
        if let Some(found) = value.pointer(pointer).and_then(Value::as_str) {
            found.clone_into(into);
        }
    };
    take("/metadata/position", &mut state.position);
    take("/position", &mut state.position);
    take("/metadata/continue", &mut state.continue_token);
}

/// Response fields with durations that a real clock measures, which transcripts show as `…`.
const MEASURED: [&str; 4] = ["p50Ms", "p99Ms", "waitingMs", "lagMillis"];

/// Replaces by `…` all values that vary with time, and `status` unless the transcript requests it.
fn shorten(value: &mut Value, state: &State) {
    match value {
        Value::Object(fields) => {
            if !state.show_status && fields.get("status").is_some_and(Value::is_object) {
                fields.insert("status".to_owned(), Value::from("…"));
            }
            for name in MEASURED {
                if let Some(time) = fields.get_mut(name).filter(|time| time.is_number()) {
                    *time = Value::from("…");
                }
            }
            if let Some(Value::String(message)) = fields.get_mut("message") {
                *message = without_times(message);
            }
            fields.values_mut().for_each(|field| shorten(field, state));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| shorten(value, state)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn without_times(message: &str) -> String {
    let mut words: Vec<_> = message.split(' ').collect();
    for at in 1..words.len() {
        let is_unit = words[at].trim_end_matches([',', ';', '.']) == "ms";
        if is_unit && words[at - 1].parse::<u64>().is_ok() {
            words[at - 1] = "…";
        }
    }
    words.join(" ")
}
