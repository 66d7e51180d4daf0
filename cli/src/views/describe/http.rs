//! `describe` sections of Certificates, Gateways and routes. Pure functions.

use model::{
    kinds::{
        certificate::AcmeSettings,
        gateway::{GatewayListener, TlsMode},
        http_route::{
            CorsPolicy, FieldMatch, HttpFilter, HttpRouteMatch, HttpRouteRule, PathMatchType, RequestMirror,
            RouteRetry, RouteTimeouts,
        },
        tls_route::TlsBackendRef,
    },
    primitives::{hostname_pattern::HostnamePattern, quantity::Timestamp},
};

use crate::{
    terminal::table::Table,
    views::{
        columns::http::parent,
        typed::{Certificate, Gateway, HttpRoute, TlsRoute},
    },
};

use super::Page;

pub(crate) fn certificate(page: &mut Page, object: &Certificate) {
    let status = &object.status;
    page.section("Certificate");
    page.field("DNS names", &status.dns_names.join(", "));
    page.field("Issuer", &status.issuer);
    let time = |time: Option<Timestamp>| time.map(|time| time.to_string()).unwrap_or_default();
    page.field("Valid from", &time(status.not_before));
    page.field("Valid until", &time(status.not_after));
    page.field("Private key", "never shown");
    if let Some(settings) = &object.spec.acme {
        acme(page, settings, object);
    }
}

/// Adds the settings of an ACME server and the state of the orders.
fn acme(page: &mut Page, settings: &AcmeSettings, object: &Certificate) {
    let AcmeSettings { directory, dns_names, contacts, external_account } = settings;
    let record = object.spec.issuance.clone().unwrap_or_default();
    let time = |time: Option<Timestamp>| time.map(|time| time.to_string()).unwrap_or_default();
    let names: Vec<_> = dns_names.iter().map(HostnamePattern::as_str).collect();
    page.section("ACME");
    page.field("Server", directory);
    page.field("DNS names", &names.join(", "));
    page.field("Contacts", &contacts.join(", "));
    page.field("External account", external_account.as_ref().map_or("", |account| account.key_id.as_str()));
    page.field("Renewal from", &time(object.status.renew_at));
    if !record.challenges.is_empty() {
        page.field("Order", &format!("in progress, challenges: {}", record.challenges.len()));
    }
    if record.failures > 0 {
        page.field("Failed orders", &record.failures.to_string());
        page.field("Last failure", &record.error);
        page.field("Next order", &time(record.retry_after));
    }
}

pub(crate) fn gateway(page: &mut Page, object: &Gateway) {
    page.section("Listeners");
    let mut table =
        Table::new(vec!["NAME", "PORT", "PROTOCOL", "HOSTNAME", "CERTIFICATES", "ALLOWED ROUTES", "ROUTES"]);
    for listener in &object.spec.listeners {
        let hostname = listener.hostname.as_ref().map_or("*", HostnamePattern::as_str);
        let refs = listener.tls.iter().flat_map(|tls| &tls.certificate_refs);
        let certificates: Vec<_> = refs.map(|one| one.name.as_str()).collect();
        let routes = object.status.attached_routes.get(&listener.name).copied().unwrap_or_default();
        table.push(vec![
            listener.name.as_str().into(),
            listener.port.to_string().into(),
            protocol(listener).into(),
            hostname.into(),
            certificates.join(", ").into(),
            listener.allowed_routes.namespaces.from.to_string().into(),
            routes.to_string().into(),
        ]);
    }
    page.table(&table);
}

/// Returns the protocol of a listener, with the mode if the gateway does not decrypt connections.
fn protocol(listener: &GatewayListener) -> String {
    match &listener.tls {
        Some(tls) if tls.mode == TlsMode::Passthrough => format!("{} ({})", listener.protocol, tls.mode),
        Some(_) | None => listener.protocol.to_string(),
    }
}

pub(crate) fn tls_route(page: &mut Page, object: &TlsRoute) {
    let spec = &object.spec;
    page.section("TLS route");
    let parents: Vec<_> = spec.parent_refs.iter().map(parent).collect();
    page.field("Gateways", &parents.join(", "));
    let hostnames: Vec<_> = spec.hostnames.iter().map(HostnamePattern::as_str).collect();
    page.field("Host names", &hostnames.join(", "));
    let mut table = Table::new(vec!["BACKEND", "WEIGHT"]);
    for backend in spec.rules.iter().flat_map(|rule| &rule.backend_refs) {
        let TlsBackendRef { name, port, weight } = backend;
        table.push(vec![format!("{name}:{port}").into(), weight.to_string().into()]);
    }
    page.section("Backends");
    page.table(&table);
}

pub(crate) fn route(page: &mut Page, object: &HttpRoute) {
    let spec = &object.spec;
    page.section("HTTP route");
    let parents: Vec<_> = spec.parent_refs.iter().map(parent).collect();
    page.field("Gateways", &parents.join(", "));
    let hostnames: Vec<_> = spec.hostnames.iter().map(HostnamePattern::as_str).collect();
    page.field("Host names", &hostnames.join(", "));
    page.section(&format!("Rules ({})", spec.rules.len()));
    let mut table = Table::new(vec!["RULE", "MATCHES", "FILTERS", "BACKENDS"]);
    for (index, rule) in spec.rules.iter().enumerate() {
        let name = rule.name.as_ref().map_or_else(|| index.to_string(), ToString::to_string);
        let filters: Vec<_> = rule.filters.iter().map(|filter| filter.filter_type.to_string()).collect();
        table.push(vec![name.into(), matches(rule).into(), filters.join(", ").into(), backends(rule).into()]);
    }
    page.table(&table);
    for (index, rule) in spec.rules.iter().enumerate() {
        let fields = details(rule);
        if !fields.is_empty() {
            let name = rule.name.as_ref().map_or_else(|| index.to_string(), ToString::to_string);
            page.section(&format!("Rule {name}"));
            fields.iter().for_each(|(label, value)| page.field(label, value));
        }
    }
}

/// Returns the settings of a rule that the table of rules does not contain, each with its label.
fn details(rule: &HttpRouteRule) -> Vec<(&'static str, String)> {
    let HttpRouteRule { name: _, matches: _, filters, backend_refs, timeouts: limits, retry: repeat, refuse } =
        rule;
    let limits = limits.as_ref().map(|limits| ("Timeouts", timeouts(limits)));
    let repeat = repeat.as_ref().map(|repeat| ("Retry", retry(repeat)));
    let refusal = refuse.as_ref().map(|refusal| ("Refuses requests", refusal.reason.clone()));
    let mut found: Vec<_> = refusal.into_iter().chain(limits).chain(repeat).collect();
    found.extend(filters.iter().filter_map(|one| Some(("Mirror", mirror(one.request_mirror.as_ref()?)))));
    found.extend(filters.iter().filter_map(|one| Some(("CORS", cors(one.cors.as_ref()?)))));
    for backend in backend_refs.iter().filter(|backend| !backend.filters.is_empty()) {
        let filters = backend.filters.iter().map(|filter| {
            let HttpFilter { filter_type, request_mirror, .. } = filter;
            request_mirror
                .as_ref()
                .map_or_else(|| filter_type.to_string(), |copy| format!("{filter_type} to {}", mirror(copy)))
        });
        let filters: Vec<_> = filters.collect();
        found.push(("Backend filters", format!("{}:{}: {}", backend.name, backend.port, filters.join(", "))));
    }
    found
}

fn timeouts(limits: &RouteTimeouts) -> String {
    let RouteTimeouts { request, backend_request } = limits;
    let limits = [("request", request), ("backendRequest", backend_request)];
    let set = limits.into_iter().filter_map(|(name, limit)| Some(format!("{name} {}", (*limit)?)));
    set.collect::<Vec<_>>().join(", ")
}

fn retry(retry: &RouteRetry) -> String {
    let RouteRetry { codes, attempts, backoff } = retry;
    let codes = codes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let codes = (!codes.is_empty()).then(|| format!("codes {codes}"));
    let attempts = attempts.map(|attempts| format!("attempts {attempts}"));
    let backoff = backoff.map(|backoff| format!("backoff {backoff}"));
    [codes, attempts, backoff].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn mirror(mirror: &RequestMirror) -> String {
    let (numerator, denominator) = mirror.share();
    let share = if numerator == denominator {
        "all requests".to_owned()
    } else {
        format!("{numerator} of {denominator} requests")
    };
    format!("{}:{} ({share})", mirror.backend_ref.name, mirror.backend_ref.port)
}

fn cors(policy: &CorsPolicy) -> String {
    let CorsPolicy {
        allow_origins,
        allow_credentials,
        allow_methods,
        allow_headers,
        expose_headers,
        max_age,
    } = policy;
    let lists = [
        ("origins", allow_origins),
        ("methods", allow_methods),
        ("headers", allow_headers),
        ("exposed", expose_headers),
    ];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    let mut parts: Vec<_> = lists.map(|(name, list)| format!("{name} {}", list.join(" "))).collect();
    parts.extend(allow_credentials.then(|| "credentials".to_owned()));
    parts.push(format!("max age {max_age} s"));
    parts.join(", ")
}

fn matches(rule: &HttpRouteRule) -> String {
    if rule.matches.is_empty() {
        return "/*".to_owned();
    }
    rule.matches.iter().map(one_match).collect::<Vec<_>>().join("; ")
}

pub(crate) fn one_match(one: &HttpRouteMatch) -> String {
    let method = one.method.map(|method| format!("{method} ")).unwrap_or_default();
    let path = match one.path.match_type {
        PathMatchType::Exact => one.path.value.clone(),
        PathMatchType::PathPrefix => format!("{}/*", one.path.value.trim_end_matches('/')),
    };
    let fields = |sign: char, fields: &[FieldMatch]| {
        let texts = fields.iter().map(|field| format!(" {sign}{}={}", field.name, field.value));
        texts.collect::<String>()
    };
    format!("{method}{path}{}{}", fields('?', &one.query_params), fields('@', &one.headers))
}

fn backends(rule: &HttpRouteRule) -> String {
    let texts = rule
        .backend_refs
        .iter()
        .map(|backend| format!("{}:{} (weight {})", backend.name, backend.port, backend.weight));
    texts.collect::<Vec<_>>().join(", ")
}
