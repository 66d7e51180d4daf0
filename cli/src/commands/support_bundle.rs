//! `support-bundle`: collects the state of the cluster for a report to the maintainers in one `.tar.gz` file, without
//! secrets.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use model::kinds::resource::Kind;
use serde_json::Value;

use super::{document, get::collection_path, now};
use crate::{
    args::{Document, Global, support_bundle::SupportBundle},
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    resource::Resource,
    views::typed::{ObjectHeader, decode_items},
};

/// Maximum number of nodes whose checks are requested.
const NODES_MAX: usize = 50;
/// Maximum size of all files before compression, in bytes.
const BUNDLE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Number of the newest entries of the history and of the audit log.
const ENTRIES: &str = "200";
/// Size of a block of a tar archive, in bytes.
const BLOCK: usize = 512;
/// Text that replaces a secret.
const REDACTED: &str = "(redacted)";
/// Parts of the names of fields whose values are secrets, in lower case.
const SECRET_NAMES: [&str; 7] =
    ["password", "passphrase", "secret", "token", "privatekey", "credential", "authorization"];

pub(crate) async fn run(
    client: &Client,
    global: &Global,
    arguments: SupportBundle,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let path = arguments
        .output
        .unwrap_or_else(|| PathBuf::from(format!("tidegate-support-{}.tar.gz", now().unix_seconds())));
    let mut files = vec![
        ("versions.txt".to_owned(), versions(client)),
        ("connection.txt".to_owned(), connection(global)),
    ];
    let mut errors = String::new();
    let (mut size, mut nodes) = (0, Vec::new());
    for (name, request) in requests() {
        let is_listing = name.starts_with("objects/");
        let answer = if is_listing {
            client.list(|| request.clone()).await.map(|listing| listing.envelope)
        } else {
            client.send(request).await
        };
        match answer {
            Ok(answer) => {
                if name == "objects/nodes.json" {
                    nodes = decode_items::<ObjectHeader>(&answer, "/items");
                }
                add(&mut files, &mut size, &name, answer);
            }
            // An unreachable server ends the command; whatever a server rejects is missing in the bundle.
            Err(failure) if failure.exit_code() == ExitCode::Unreachable => return Err(failure),
            Err(failure) => errors.push_str(&format!("{name}: {failure}\n")),
        }
    }
    for (number, node) in nodes.iter().take(NODES_MAX).enumerate() {
        let node = &node.metadata.name;
        let short: String = node.chars().take(60).collect();
        let name = format!("nodes/{number:02}-{short}-doctor.json");
        match client.send(Request::get(format!("/v1/nodes/{node}/doctor"))).await {
            Ok(answer) => add(&mut files, &mut size, &name, answer),
            Err(failure) => errors.push_str(&format!("{name}: {failure}\n")),
        }
    }
    let omitted = nodes.len().saturating_sub(NODES_MAX);
    if omitted > 0 {
        errors.push_str(&format!("{omitted} more nodes were not asked\n"));
    }
    files.push(("errors.txt".to_owned(), errors));
    let own = own_secrets(global);
    let archive =
        archive(files.into_iter().map(|(name, text)| (name, without(text, &own))), now().unix_seconds())?;
    write(&path, &archive)?;
    terminal.print(&format!("{}\n", path.display()))?;
    terminal.note("passwords and tokens are replaced; names, addresses and labels are included: look before you send it");
    Ok(ExitCode::Success)
}

/// Returns the requests of the bundle with the names of their files.
fn requests() -> Vec<(String, Request)> {
    let limited = |path: &str| Request::get(path).query("limit", Some(ENTRIES));
    let mut requests = vec![
        ("status.json".to_owned(), Request::get("/v1/status")),
        ("convergence.json".to_owned(), Request::get("/v1/convergence")),
        ("whoami.json".to_owned(), Request::get("/v1/whoami")),
        ("history.json".to_owned(), limited("/v1/history")),
        ("audit.json".to_owned(), limited("/v1/audit")),
        ("bgp-events.json".to_owned(), limited("/v1/bgp/events")),
        ("health-guard.json".to_owned(), Request::get("/v1/guards/health")),
        ("objects/bgp-sessions.json".to_owned(), Request::get("/v1/bgp/sessions")),
    ];
    requests.extend(Kind::ALL.map(|kind| {
        let resource = Resource::Object(kind);
        (format!("objects/{}.json", resource.plural()), Request::get(collection_path(resource, None)))
    }));
    requests
}

fn versions(client: &Client) -> String {
    format!(
        "tidegate {}\nconnected to {} (its version is in status.json)\n",
        base::build::text(),
        client.url()
    )
}

/// Describes the connection settings: servers, and the places of trust and token without their contents.
fn connection(global: &Global) -> String {
    let path = |path: &Option<PathBuf>| {
        path.as_ref().map_or_else(|| "-".to_owned(), |path| path.display().to_string())
    };
    let servers: Vec<&str> = global.api.iter().map(client::Url::as_str).collect();
    format!(
        "api {}\nca-file {}\nca-hash {}\ntoken-file {}\ntimeout {} s\n",
        servers.join(","),
        path(&global.ca_file),
        if global.ca_hash.is_some() { "set" } else { "-" },
        path(&global.token_file),
        global.timeout.as_secs_f32(),
    )
}

fn add(files: &mut Vec<(String, String)>, size: &mut usize, name: &str, mut answer: Value) {
    redact(&mut answer);
    let text = document(&answer, Document::Json);
    *size += text.len();
    let text =
        if *size > BUNDLE_BYTES_MAX { "omitted: the bundle would be too large\n".to_owned() } else { text };
    files.push((name.to_owned(), text));
}

/// Replaces the values of fields whose names are those of secrets.
fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = name.to_lowercase().replace(['-', '_', '.'], "");
                let is_secret = SECRET_NAMES.iter().any(|secret| name.contains(secret));
                if is_secret && !matches!(value, Value::Bool(_) | Value::Null) {
                    *value = Value::from(REDACTED);
                } else {
                    redact(value);
                }
            }
            redact_pair(value);
        }
        Value::Array(entries) => entries.iter_mut().for_each(redact),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Redacts the two states of a changed field, as in the history, if its pointer names a secret.
fn redact_pair(value: &mut Value) {
    let pointer = value.get("pointer").and_then(Value::as_str).unwrap_or_default().to_lowercase();
    if SECRET_NAMES.iter().any(|secret| pointer.contains(secret)) {
        for side in ["before", "after"] {
            if let Some(state) = value.get_mut(side) {
                *state = Value::from(REDACTED);
            }
        }
    }
}

/// Returns the token of the caller, which must not be in the bundle even if a response quotes it.
fn own_secrets(global: &Global) -> Vec<String> {
    let file = global.token_file.as_ref().and_then(|path| fs::read_to_string(path).ok());
    let secrets = file.into_iter().chain(std::env::var("TIDEGATE_TOKEN").ok());
    secrets.map(|text| text.trim().to_owned()).filter(|text| text.len() >= 4).collect()
}

fn without(text: String, secrets: &[String]) -> String {
    secrets.iter().fold(text, |text, secret| text.replace(secret.as_str(), REDACTED))
}

/// Returns a compressed archive (POSIX ustar) of files, all with mode 0600.
fn archive(files: impl Iterator<Item = (String, String)>, at: i64) -> Result<Vec<u8>, Failure> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    for (name, text) in files {
        encoder.write_all(&header(&name, text.len(), at))?;
        encoder.write_all(text.as_bytes())?;
        encoder.write_all(&vec![0; text.len().next_multiple_of(BLOCK) - text.len()])?;
    }
    encoder.write_all(&[0; 2 * BLOCK])?;
    Ok(encoder.finish()?)
}

/// Returns the header of a file in an archive (POSIX.1-2017, pax, "ustar Header Block").
fn header(name: &str, size: usize, at: i64) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        for (place, byte) in header.iter_mut().skip(at).zip(text.bytes()) {
            *place = byte;
        }
    };
    put(0, &format!("tidegate-support/{name}").chars().take(99).collect::<String>());
    put(100, "0000600");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{size:011o}"));
    put(136, &format!("{:011o}", at.max(0)));
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\u{0}00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    for (place, byte) in header.iter_mut().skip(148).zip(format!("{sum:06o}\u{0} ").bytes()) {
        *place = byte;
    }
    header
}

/// Writes a new file that only the user can read.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let written = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = written.and_then(|mut file| file.write_all(bytes));
    written.map_err(|error| Failure::File { path: path.to_owned(), cause: error.to_string() })
}
