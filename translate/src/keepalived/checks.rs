//! Translation of the checks of keepalived's real servers to the health check of a Service.

use std::collections::BTreeSet;

use model::{kinds::health_check::EXPECT_BYTES_MAX, primitives::name::Name};
use serde_json::{Value, json};

use super::parse::Item;
use crate::report::Report;

/// Default interval between checks in milliseconds (keepalived `delay_loop`).
const INTERVAL_MS_DEFAULT: u32 = 60_000;
/// Default connect timeout of a check in milliseconds.
const TIMEOUT_MS_DEFAULT: u32 = 5000;
/// Default number of retries before a check fails.
const RETRY_DEFAULT: u32 = 1;
/// Permitted ranges of the interval and of the timeout of a Service's health check, in milliseconds.
const INTERVAL_MS: (u32, u32) = (100, 3_600_000);
const TIMEOUT_MS: (u32, u32) = (10, 60_000);
/// Maximum of `fall`, the consecutive failures after which a Service's endpoint becomes unhealthy.
const FALL_MAX: u32 = 100;

/// Timers of a keepalived check. Settings of the check override those of the real server, which override
/// those of the virtual server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timers {
    interval_ms: u32,
    timeout_ms: u32,
    retry: u32,
}

impl Default for Timers {
    fn default() -> Self {
        Self { interval_ms: INTERVAL_MS_DEFAULT, timeout_ms: TIMEOUT_MS_DEFAULT, retry: RETRY_DEFAULT }
    }
}

impl Timers {
    /// Applies a keepalived setting if it is a timer of a check, and reports the translation. Returns false
    /// for other settings.
    pub(super) fn take(&mut self, item: &Item, report: &mut Report) -> bool {
        let at = super::server::place(item);
        let (field, ours, (min, max)) = match item.keyword() {
            "delay_loop" => (&mut self.interval_ms, "intervalMs", INTERVAL_MS),
            "connect_timeout" => (&mut self.timeout_ms, "timeoutMs", TIMEOUT_MS),
            "retry" | "nb_get_retry" => {
                match item.argument().parse::<u32>() {
                    Ok(retry) => {
                        self.retry = retry.min(FALL_MAX - 1);
                        report.approximated(
                            &at,
                            &format!(
                                "fall: {} of the health check; attempts are intervalMs apart",
                                self.retry + 1
                            ),
                        );
                    }
                    Err(_) => report.ignored(&at, "no number"),
                }
                return true;
            }
            "delay_before_retry" => {
                report.approximated(&at, "attempts are intervalMs apart");
                return true;
            }
            "warmup" => {
                report.mapped(&at, "checks are always spread over time");
                return true;
            }
            _ => return false,
        };
        match milliseconds(item.argument()) {
            Some(wanted) => {
                *field = wanted.clamp(min, max);
                if *field == wanted {
                    report.mapped(&at, &format!("{ours}: {wanted} of the health check"));
                } else {
                    report.approximated(
                        &at,
                        &format!("{ours}: {field} of the health check, the nearest supported value"),
                    );
                }
            }
            None => report.ignored(&at, "not a number of seconds"),
        }
        true
    }
}

/// Converts seconds, possibly with a fraction, to milliseconds.
fn milliseconds(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole: u32 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    whole.checked_mul(1000)?.checked_add(digits.parse().ok()?)
}

/// Translates the check of a real server to `spec.healthCheck`. `timers` are those of the real server;
/// settings of the check override them. Returns `None`, after a report, if the type of check is not
/// supported.
pub(super) fn check(
    item: &Item,
    mut timers: Timers,
    real_port: Option<u16>,
    host: Option<&str>,
    report: &mut Report,
) -> Option<Value> {
    let kind = match item.keyword() {
        "TCP_CHECK" => "Tcp",
        "HTTP_GET" => "Http",
        "SSL_GET" => "Https",
        other => {
            report.ignored(&super::server::place(item), unsupported(other));
            return None;
        }
    };
    let mut check = json!({ "type": kind });
    let (mut urls, mut host) = (0_usize, host.map(ToOwned::to_owned));
    let mut url = None;
    for setting in &item.children {
        let at = super::server::place(setting);
        if timers.take(setting, report) {
            continue;
        }
        match setting.keyword() {
            "connect_port" => {
                if let Some(port) = connect_port(setting, report).filter(|port| Some(*port) != real_port) {
                    check["port"] = json!(port);
                }
            }
            "url" if kind != "Tcp" && urls == 0 => {
                urls += 1;
                url = Some(setting);
            }
            "url" if kind != "Tcp" => report.approximated(&at, "only the first URL is checked"),
            "virtualhost" if kind != "Tcp" => {
                report.mapped(&at, "http.host of the health check");
                host = Some(setting.argument().to_owned());
            }
            "enable_sni" => report.mapped(&at, "SNI is always sent"),
            "connect_ip" => report.ignored(&at, "checks always use the endpoint's own address"),
            "bindto" | "bind_if" | "bind_port" | "fwmark" => {
                report.ignored(&at, "the kernel chooses the source of checks")
            }
            "http_protocol" => report.approximated(&at, "HTTP/1.1 is used"),
            "fast_recovery" => report.ignored(&at, "only one URL is checked"),
            keyword => report.ignored(&at, super::reason(keyword)),
        }
    }
    if kind != "Tcp" {
        check["http"] = http(url, host, report);
    }
    if kind == "Https" {
        report.mapped(&super::server::place(item), "certificates are not verified, as in keepalived");
        check["tls"] = json!({ "insecureSkipVerify": true });
    }
    let timeout = timers.timeout_ms.min(timers.interval_ms);
    if timeout != timers.timeout_ms {
        report.approximated("connect_timeout", &format!("timeoutMs: {timeout}, limited to the interval"));
    }
    check["intervalMs"] = json!(timers.interval_ms);
    check["timeoutMs"] = json!(timeout);
    check["fall"] = json!(timers.retry + 1);
    check["rise"] = json!(1);
    report.mapped(&super::server::place(item), &format!("healthCheck of type {kind}"));
    Some(check)
}

fn connect_port(setting: &Item, report: &mut Report) -> Option<u16> {
    let port = setting.argument().parse().ok().filter(|port| *port != 0);
    match port {
        Some(_) => report.mapped(&super::server::place(setting), "port of the health check"),
        None => report.ignored(&super::server::place(setting), "not a numeric port"),
    }
    port
}

fn http(url: Option<&Item>, mut host: Option<String>, report: &mut Report) -> Value {
    let mut http = json!({});
    let mut codes = None;
    for setting in url.map(|url| url.children.as_slice()).unwrap_or_default() {
        let at = super::server::place(setting);
        match setting.keyword() {
            "path" => {
                let path = setting.argument();
                if path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()) {
                    report.mapped(&at, "http.path of the health check");
                    http["path"] = json!(path);
                } else {
                    report.ignored(&at, "a path must begin with `/` and contain printable ASCII only");
                }
            }
            "status_code" => match status_codes(setting.arguments()) {
                Some(found) => {
                    report.mapped(&at, "http.expectStatus of the health check");
                    codes = Some(found);
                }
                None => report.ignored(&at, "must be codes from 100 to 599"),
            },
            "virtualhost" => {
                report.mapped(&at, "http.host of the health check");
                host = Some(setting.argument().to_owned());
            }
            "regex" => match plain(setting.argument()) {
                Some(text) => {
                    report.mapped(&at, "http.expectBody of the health check");
                    http["expectBody"] = json!(text);
                }
                None => report.ignored(
                    &at,
                    "only plain text is supported in a body match; set \
                                             http.expectBody",
                ),
            },
            "digest" => report.ignored(&at, "body digests are not supported; set http.expectBody"),
            keyword => report.ignored(&at, super::reason(keyword)),
        }
    }
    match codes {
        Some(codes) => http["expectStatus"] = json!(codes),
        None => report.approximated(
            "status_code",
            "keepalived accepts 200–299, Tidegate 200–399; set \
                                                http.expectStatus",
        ),
    }
    if let Some(host) = host {
        match Name::parse(&host.to_ascii_lowercase()) {
            Ok(host) => http["host"] = json!(host),
            Err(error) => report.ignored(&format!("virtualhost {host}"), &error.to_string()),
        }
    }
    http
}

/// Returns the text that a regular expression matches, or `None` if the expression has special characters.
fn plain(regex: &str) -> Option<&str> {
    let is_plain = !regex.contains(['.', '*', '+', '?', '[', ']', '(', ')', '{', '}', '|', '^', '$', '\\']);
    Some(regex).filter(|text| is_plain && !text.is_empty() && text.len() <= EXPECT_BYTES_MAX)
}

fn status_codes(words: &[String]) -> Option<BTreeSet<u16>> {
    let mut codes = BTreeSet::new();
    for word in words {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        if first < 100 || last > 599 || first > last {
            return None;
        }
        codes.extend(first..=last);
    }
    Some(codes).filter(|codes| !codes.is_empty())
}

fn unsupported(checker: &str) -> &'static str {
    match checker {
        "MISC_CHECK" => "scripts are not supported; check the endpoint by TCP, HTTP, HTTPS, gRPC or UDP",
        "SMTP_CHECK" => "SMTP is not supported; a Tcp check tests if the port accepts connections",
        "DNS_CHECK" | "UDP_CHECK" => {
            "a Udp check requires a request and an expected response; set healthCheck.udp"
        }
        "PING_CHECK" => "endpoints are checked at a port; a Tcp check detects more failures",
        "BFD_CHECK" => "BFD is supported with routers and between nodes only",
        "FILE_CHECK" => "files are not supported; set the endpoint's weight or maintenance by the API",
        _ => "unknown check",
    }
}
