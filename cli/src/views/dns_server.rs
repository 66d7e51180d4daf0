//! Human-readable output of `explain dns --server`: the answers of one DNS server, with its upstream servers and its cache. Pure
//! functions.

use std::time::Duration;

use model::wire::dns_server::DnsUpstreamState;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    dns::{Explanation, attempt, heading},
    typed::decode_or_default,
};
use crate::terminal::{
    clean,
    style::{Style, Tone},
    table::{Cell, Table},
};

/// Explanation of a name by one DNS server, of which an unreadable part is left out.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServerExplanation {
    view: String,
    explanation: Option<Explanation>,
    handling: Vec<NameHandling>,
}

/// Handling of one name by the server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "result")]
enum NameHandling {
    Own,
    Forwarded { forwarded: ForwardedName },
    Refused { reason: String },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ForwardedName {
    name: String,
    zone: String,
    policy: String,
    servers: Vec<ForwardingServer>,
    cache: CachedState,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ForwardingServer {
    server: String,
    state: DnsUpstreamState,
    #[serde(default)]
    response_micros: Option<u64>,
    #[serde(default)]
    original_spelling_secs: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "state")]
enum CachedState {
    Missing,
    Failed { remaining_millis: u64, uses: u32, code: String },
    Fresh { remaining_secs: u64, uses: u32, code: String, records: Vec<String> },
    Stale { usable_secs: u64, code: String, records: Vec<String> },
}

/// Renders the explanation of a DNS server: the zones that the client sees, and each name with its result, the reasons of its
/// records, and the upstream servers with the cached response if it is forwarded.
#[must_use]
pub fn server_explanation(answer: &Value, style: Style) -> String {
    let ServerExplanation { view, explanation, handling } = decode_or_default(Some(answer));
    let Some(explanation) = explanation else {
        return "the DNS server has no state yet: all questions fail (SERVFAIL)\n".to_owned();
    };
    let mut out = heading(&explanation, style);
    out.push_str(&format!("zones: {}\n", clean(&view)));
    let mut handling = handling.into_iter();
    for one in explanation.attempts() {
        match handling.next() {
            Some(NameHandling::Refused { reason }) => {
                let word = style.paint(Tone::Bad, "refused (REFUSED)");
                out.push_str(&format!("\n{}: {word}\n  {}\n", clean(&one.name), clean(&reason)));
            }
            Some(NameHandling::Forwarded { forwarded: name }) => {
                out.push_str(&attempt(one, style));
                out.push_str(&forwarded(&name, style));
            }
            Some(NameHandling::Own) | None => out.push_str(&attempt(one, style)),
        }
    }
    out
}

fn forwarded(name: &ForwardedName, style: Style) -> String {
    let ForwardedName { name, zone, policy, servers, cache } = name;
    let zone = if zone == "." { "all names".to_owned() } else { format!("zone {}", clean(zone)) };
    let mut out = format!("  {}: servers for {zone}, policy {}\n", clean(name), clean(policy));
    let mut table = Table::new(vec!["SERVER", "STATE", "RESPONSE TIME"]);
    for ForwardingServer { server, state, response_micros, .. } in servers {
        let state = match state {
            DnsUpstreamState::Ok => Cell::toned(Tone::Good, "ok"),
            DnsUpstreamState::Failing => Cell::toned(Tone::Bad, "failing"),
            DnsUpstreamState::Looping => Cell::toned(Tone::Bad, "looping"),
        };
        let time = response_micros
            .map(|micros| format!("{:.1} ms", Duration::from_micros(micros).as_secs_f64() * 1e3));
        table.push(vec![server.into(), state, time.unwrap_or_else(|| "<not asked yet>".to_owned()).into()]);
    }
    out.extend(table.render(style).lines().map(|line| format!("  {line}\n")));
    for ForwardingServer { server, original_spelling_secs, .. } in servers {
        if let Some(secs) = original_spelling_secs {
            let server = clean(server);
            out.push_str(&format!(
                "  {server} changes the spelling of names over UDP and has no TCP: names are sent in the original spelling for {secs} s\n"
            ));
        }
    }
    let (text, records) = match cache {
        CachedState::Missing => ("none; the servers are asked".to_owned(), &[][..]),
        CachedState::Failed { remaining_millis, uses, code } => {
            let time = Duration::from_millis(*remaining_millis).as_secs_f64();
            let text = format!(
                "none; the servers failed ({}) and are asked again in {time:.1} s, used {uses} times",
                clean(code)
            );
            (text, &[][..])
        }
        CachedState::Fresh { remaining_secs, uses, code, records } => {
            (format!("{} for {remaining_secs} s, used {uses} times", clean(code)), &records[..])
        }
        CachedState::Stale { usable_secs, code, records } => {
            (format!("{}, expired; used for {usable_secs} s if the servers fail", clean(code)), &records[..])
        }
    };
    out.push_str(&format!("  cached response: {text}\n"));
    out.extend(records.iter().map(|record| format!("    {}\n", clean(record))));
    out
}
