//! Human-readable output of `explain http` and `http gateways`. Pure functions.

use model::{
    http::{HttpExplanation, HttpOutcome, RuleOutcome},
    wire::http_gateway::{HttpGatewayList, HttpGatewayReport},
};
use serde_json::Value;

use super::{describe::http::one_match, typed::decode_or_default};
use crate::terminal::{
    clean,
    style::{Style, Tone},
    table::{Cell, Table},
};

/// Renders the explanation of a request: the decision, the listener, rule and backends from which it follows, and the other
/// rules with their reasons. Parents are shown only if they do not accept their route.
#[must_use]
pub fn explanation(answer: &Value, style: Style) -> String {
    let whole: HttpExplanation = decode_or_default(Some(answer));
    let tone = match whole.decision {
        HttpOutcome::Forward
        | HttpOutcome::ForwardConnection
        | HttpOutcome::Redirect
        | HttpOutcome::Preflight => Tone::Good,
        HttpOutcome::Fail | HttpOutcome::Refuse => Tone::Bad,
    };
    let status = whole.status.map(|status| format!(" {status}")).unwrap_or_default();
    let decision = style.paint(tone, &format!("{}{status}", whole.decision));
    let request = style.paint(Tone::Title, &clean(&whole.request));
    let mut out = format!("{request}\n{decision}: {}\n", clean(&whole.reason));
    for (name, value) in fields(&whole) {
        if !value.is_empty() {
            out.push_str(&format!("  {:<17}{}\n", format!("{name}:"), clean(&value)));
        }
    }
    push(&mut out, &backends(&whole), style);
    push(&mut out, &candidates(&whole), style);
    if whole.omitted > 0 {
        out.push_str(&format!("{} further rules do not apply\n", whole.omitted));
    }
    push(&mut out, &parents(&whole), style);
    out
}

/// Renders `http gateways`: a table of the gateways, and their problems.
#[must_use]
pub fn gateways(list: &HttpGatewayList, style: Style) -> String {
    let mut table = Table::new(vec![
        "NAME",
        "VERSION",
        "REVISION",
        "SERVES",
        "SOCKETS",
        "CERTIFICATES",
        "CONNECTIONS",
        "REQUESTS/S",
        "5XX",
        "PROBLEMS",
    ]);
    let mut problems = String::new();
    for gateway in &list.gateways {
        let HttpGatewayReport {
            version,
            started_at: _,
            stopping: _,
            connected: _,
            revision,
            serves,
            sockets,
            certificates,
            certificates_missing,
            connections,
            requests,
        } = &gateway.report;
        let open = sockets.iter().filter(|socket| socket.error.is_none()).count();
        let wanted = certificates.saturating_add(certificates_missing.len());
        // Rates are rounded to tenths.
        let tenths = requests.count(..).saturating_mul(10).checked_div(requests.seconds).unwrap_or(0);
        let failures = |count: u64| {
            if count > 0 { Cell::toned(Tone::Bad, count.to_string()) } else { count.to_string().into() }
        };
        table.push(vec![
            gateway.name.as_str().into(),
            clean(version).into(),
            revision.map_or_else(|| "<none>".to_owned(), |revision| revision.0.to_string()).into(),
            if serves.is_empty() { "all".to_owned() } else { serves.len().to_string() }.into(),
            format!("{open}/{}", sockets.len()).into(),
            format!("{certificates}/{wanted}").into(),
            connections.to_string().into(),
            format!("{}.{}", tenths / 10, tenths % 10).into(),
            failures(requests.count(500..)),
            failures(u64::try_from(gateway.problems.len()).unwrap_or(u64::MAX)),
        ]);
        for problem in &gateway.problems {
            problems.push_str(&format!("{}: {}\n", gateway.name, clean(problem)));
        }
    }
    if table.is_empty() {
        return String::new();
    }
    let table = table.render(style);
    if problems.is_empty() { table } else { format!("{table}\n{problems}") }
}

fn fields(whole: &HttpExplanation) -> [(&'static str, String); 10] {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let filters: Vec<_> = whole.filters.iter().map(|filter| filter.filter_type.to_string()).collect();
    [
        ("Listeners", whole.listeners.join(", ")),
        ("TLS route", text(&whole.tls_route)),
        ("Certificate", text(&whole.certificate)),
        ("Rule", text(&whole.rule)),
        ("Matches", whole.matched.as_ref().map(one_match).unwrap_or_default()),
        ("Filters", filters.join(", ")),
        ("Location", text(&whole.location)),
        ("New path", text(&whole.new_path)),
        ("New host", text(&whole.new_host)),
        ("X-Forwarded-For", whole.forwarded_for.map(|address| address.to_string()).unwrap_or_default()),
    ]
}

fn backends(whole: &HttpExplanation) -> Table {
    let mut table = Table::new(vec!["BACKEND", "WEIGHT", "ENDPOINTS"]);
    for backend in &whole.backends {
        let endpoints = match (&backend.problem, backend.status) {
            (Some(problem), Some(status)) => Cell::toned(Tone::Bad, format!("{status}: {problem}")),
            (Some(problem), None) => Cell::from(problem),
            (None, _) => {
                let all = backend.endpoints.iter().map(|one| match one.weight {
                    1 => one.address.to_string(),
                    weight => format!("{} (weight {weight})", one.address),
                });
                Cell::from(all.collect::<Vec<_>>().join(", "))
            }
        };
        table.push(vec![Cell::from(&backend.backend), backend.weight.to_string().into(), endpoints]);
    }
    table
}

fn candidates(whole: &HttpExplanation) -> Table {
    let mut table = Table::new(vec!["RULE", "PLACE", "OUTCOME", "REASON"]);
    for one in &whole.candidates {
        let rule = one.rule.as_ref().map(|rule| format!("/{rule}")).unwrap_or_default();
        let tone = match one.outcome {
            RuleOutcome::Applies => Tone::Good,
            RuleOutcome::NotAttached => Tone::Bad,
            RuleOutcome::NoConnection
            | RuleOutcome::LowerPrecedence
            | RuleOutcome::Method
            | RuleOutcome::Header
            | RuleOutcome::QueryParam
            | RuleOutcome::Path
            | RuleOutcome::Hostname
            | RuleOutcome::Listener
            | RuleOutcome::Port => Tone::Plain,
        };
        table.push(vec![
            Cell::from(format!("{}{rule}", one.route)),
            Cell::from(one.place.as_deref().unwrap_or_default()),
            Cell::toned(tone, one.outcome.to_string()),
            Cell::from(&one.message),
        ]);
    }
    table
}

fn parents(whole: &HttpExplanation) -> Table {
    let mut table = Table::new(vec!["ROUTE", "PARENT", "REASON", "MESSAGE"]);
    for one in whole.parents.iter().filter(|one| !one.accepted) {
        table.push(vec![
            Cell::from(&one.route),
            Cell::from(&one.parent),
            Cell::toned(Tone::Bad, one.reason.to_string()),
            Cell::from(one.message.as_deref().unwrap_or_default()),
        ]);
    }
    table
}

fn push(out: &mut String, table: &Table, style: Style) {
    if !table.is_empty() {
        out.push_str(&format!("\n{}", table.render(style)));
    }
}
