//! Translation of a `virtual_server` block of keepalived.

use model::kinds::service::Protocol;
use serde_json::{Value, json};

use super::{
    checks::{self, Timers},
    group::{Groups, parse_address, parse_port, places},
    parse::Item,
};
use crate::{
    report::Report,
    virtual_server::{
        FORWARDED, FORWARDED_OTHERWISE, RealServer, VirtualServer, affinity, granularity, weight,
    },
};

/// Maximum number of endpoints of all virtual servers of an input.
pub(super) const ENDPOINTS_MAX: usize = 200_000;
/// Default `persistence_timeout` in seconds.
const PERSISTENCE_SECONDS_DEFAULT: u32 = 360;

/// Formats an item with its line number, such as `weight 5 (line 12)`.
pub(super) fn place(item: &Item) -> String {
    format!("{} (line {})", item.text(), item.line)
}

/// Settings that apply to all virtual servers of one `virtual_server` block, which may have several
/// addresses.
struct Common {
    server: VirtualServer,
    timers: Timers,
    host: Option<String>,
}

/// Translates a `virtual_server` block: returns a virtual server for each of its addresses and ports.
pub(super) fn servers(
    item: &Item,
    groups: &Groups<'_>,
    report: &mut Report,
) -> Result<Vec<VirtualServer>, String> {
    let places = places(item, groups)?;
    let Some(&(address, port)) = places.first() else { return Ok(Vec::new()) };
    let protocol = item.children.iter().find(|setting| setting.keyword() == "protocol");
    let protocol = match protocol.map(|setting| setting.argument().to_ascii_uppercase()).as_deref() {
        None | Some("TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        Some(other) => return Err(format!("`{other}` is not a protocol of Services")),
    };
    let server = VirtualServer::new(protocol, address, port);
    let target = match places.len() {
        1 => server.target(),
        count => format!("{count} Services"),
    };
    report.mapped(&item.text(), &target);
    let mut common = Common { server, timers: Timers::default(), host: None };
    let is_real = |setting: &&Item| setting.keyword() == "real_server" && setting.is_block;
    for setting in item.children.iter().filter(|setting| !is_real(setting)) {
        own_setting(setting, &mut common, report);
    }
    flags(item, &mut common, report);
    real_servers(item.children.iter().filter(is_real), &mut common, report);
    if places.len().saturating_mul(common.server.real_servers.len()) > ENDPOINTS_MAX {
        return Err(format!("more than {ENDPOINTS_MAX} endpoints for all addresses together"));
    }
    Ok(places
        .iter()
        .map(|&(address, port)| VirtualServer { address, port, ..common.server.clone() })
        .collect())
}

fn own_setting(setting: &Item, common: &mut Common, report: &mut Report) {
    let at = place(setting);
    if common.timers.take(setting, report) {
        return;
    }
    let server = &mut common.server;
    match setting.keyword() {
        "protocol" => report.mapped(&at, "protocol of the port"),
        "lvs_sched" | "lb_algo" => {
            report.mapped(&at, "scheduler");
            server.scheduler = Some(setting.argument().to_owned());
        }
        "lvs_method" | "lb_kind" => forwarded(setting, report),
        "ops" => {
            report.mapped(&at, "schedulerFlags onePacket");
            server.scheduler_flags.insert("onePacket");
        }
        "persistence_timeout" => {
            let seconds = match setting.argument() {
                "" => Ok(PERSISTENCE_SECONDS_DEFAULT),
                text => text.parse::<u32>(),
            };
            match seconds.map(affinity) {
                Ok((seconds, None)) => {
                    report.mapped(&at, &format!("sessionAffinity, {seconds} s"));
                    server.affinity_seconds = Some(seconds);
                }
                Ok((seconds, Some(words))) => {
                    report.approximated(&at, &words);
                    server.affinity_seconds = Some(seconds);
                }
                Err(_) => report.ignored(&at, "not a number of seconds"),
            }
        }
        "persistence_granularity" => match granularity(server.address, setting.argument()) {
            (true, words) => report.mapped(&at, &words),
            (false, words) => report.approximated(&at, &words),
        },
        "persistence_engine" => {
            report.approximated(&at, "clients are identified by address, not by content");
        }
        "virtualhost" => {
            report.mapped(&at, "http.host of the health check");
            common.host = Some(setting.argument().to_owned());
        }
        // Handled once the scheduler is known.
        "flag-1" | "flag-2" | "flag-3" | "sh-port" | "sh-fallback" | "mh-port" | "mh-fallback" => {}
        "inhibit_on_failure" => {
            report.mapped(
                &at,
                "connections of an unhealthy endpoint continue, unless removalPolicy is set otherwise",
            );
        }
        "snmp_name" => report.ignored(&at, "SNMP is not supported"),
        _ => super::rest(setting, "", report),
    }
}

fn forwarded(setting: &Item, report: &mut Report) {
    if setting.argument() == "NAT" {
        report.approximated(&place(setting), FORWARDED);
    } else {
        report.approximated(&place(setting), FORWARDED_OTHERWISE);
    }
}

fn flags(item: &Item, common: &mut Common, report: &mut Report) {
    let scheduler = common.server.scheduler.clone().unwrap_or_default();
    let is_hash = matches!(scheduler.as_str(), "sh" | "mh");
    for setting in &item.children {
        let ours = match setting.keyword() {
            "sh-fallback" | "mh-fallback" | "flag-1" => "fallback",
            "sh-port" | "mh-port" | "flag-2" => "port",
            "flag-3" => "",
            _ => continue,
        };
        if is_hash && !ours.is_empty() {
            report.mapped(&place(setting), &format!("schedulerFlags {ours}"));
            common.server.scheduler_flags.insert(ours);
        } else {
            report.ignored(&place(setting), &format!("scheduler `{scheduler}` has no such flag"));
        }
    }
}

/// Translates the `real_server` blocks of a virtual server. The first check of these blocks becomes the
/// health check of the Service, which can have only one.
fn real_servers<'a>(items: impl Iterator<Item = &'a Item>, common: &mut Common, report: &mut Report) {
    let mut checks: Vec<Option<Value>> = Vec::new();
    for item in items {
        match real_server(item, common, report) {
            Ok((real, check)) => {
                common.server.real_servers.push(real);
                checks.push(check);
            }
            Err(reason) => report.ignored(&place(item), &format!("the real server is left out: {reason}")),
        }
    }
    let Some(mut chosen) = checks.iter().flatten().next().cloned() else { return };
    if checks.iter().any(|check| check.as_ref() != Some(&chosen)) {
        report
            .approximated("checks", "checks differ between real servers: all endpoints use the first check");
    }
    let first_port = common.server.real_servers.first().and_then(|real| real.port.or(common.server.port));
    if chosen.get("port").is_none()
        && (common.server.protocol != Protocol::Tcp || common.server.port.is_none())
    {
        // The check uses TCP but the Service does not, or the port is ambiguous.
        match first_port {
            Some(port) => chosen["port"] = json!(port),
            None => {
                report.ignored("checks", "the port of the check is unknown; set healthCheck.port");
                return;
            }
        }
    }
    common.server.health_check = Some(chosen);
}

fn real_server(
    item: &Item,
    common: &Common,
    report: &mut Report,
) -> Result<(RealServer, Option<Value>), String> {
    let address = parse_address(item.argument())?;
    let port = parse_port(item.arguments().get(1).map(String::as_str))?;
    let mut real = RealServer { address, port, weight: 1 };
    common.server.check(&real)?;
    report.mapped(&place(item), "an endpoint");
    let (mut timers, mut host) = (common.timers, common.host.clone());
    let is_check =
        |setting: &&Item| setting.keyword().ends_with("_CHECK") || setting.keyword().ends_with("_GET");
    for setting in item.children.iter().filter(|setting| !is_check(setting)) {
        let at = place(setting);
        if timers.take(setting, report) {
            continue;
        }
        match setting.keyword() {
            "weight" => match setting.argument().parse().map(weight) {
                Ok((kept, difference)) => {
                    match difference {
                        None => report.mapped(&at, "its weight"),
                        Some(words) => report.approximated(&at, &words),
                    }
                    real.weight = kept;
                }
                Err(_) => report.ignored(&at, "not a number of at least 0"),
            },
            "lvs_method" => forwarded(setting, report),
            "uthreshold" | "lthreshold" if setting.argument() == "0" => {
                report.mapped(&at, "no connection limit, as here");
            }
            "uthreshold" | "lthreshold" => report.ignored(&at, "endpoints have no connection limit"),
            "virtualhost" => {
                report.mapped(&at, "http.host of the health check");
                host = Some(setting.argument().to_owned());
            }
            "inhibit_on_failure" => report.mapped(
                &at,
                "connections of an unhealthy endpoint continue, unless removalPolicy is set otherwise",
            ),
            "snmp_name" => report.ignored(&at, "SNMP is not supported"),
            _ => super::rest(setting, "", report),
        }
    }
    let mut found = None;
    for setting in item.children.iter().filter(is_check) {
        let check = checks::check(setting, timers, port.or(common.server.port), host.as_deref(), report);
        match (&found, check) {
            (None, check) => found = check,
            (Some(_), Some(_)) => report.approximated(&place(setting), "only the first check is used"),
            (Some(_), None) => {}
        }
    }
    Ok((real, found))
}
