//! Checks of real servers, as the health check of a Service.

use std::collections::BTreeSet;

use model::{kinds::health_check::EXPECT_BYTES_MAX, primitives::name::Name};
use serde_json::{Value, json};

use super::parse::Item;
use crate::report::Report;

/// Time between checks where nothing says so, in milliseconds.
const INTERVAL_MS_DEFAULT: u32 = 60_000;
/// Time for a connection where nothing says so, in milliseconds.
const TIMEOUT_MS_DEFAULT: u32 = 5000;
/// More attempts where nothing says so.
const RETRY_DEFAULT: u32 = 1;
/// What a Service can have: the shortest and longest interval, and the shortest and longest time for an answer, in milliseconds.
const INTERVAL_MS: (u32, u32) = (100, 3_600_000);
const TIMEOUT_MS: (u32, u32) = (10, 60_000);
/// Bad answers in a row that a Service can ask for.
const FALL_MAX: u32 = 100;

/// When a check is made; inner settings count before outer ones.
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
    /// Takes a setting, if it is one of these.
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
                report.mapped(&at, "checks are spread by themselves");
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
                        &format!("{ours}: {field} of the health check, the nearest that it can have"),
                    );
                }
            }
            None => report.ignored(&at, "no number of seconds"),
        }
        true
    }
}

/// Seconds, possibly with a fraction, in milliseconds.
fn milliseconds(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole: u32 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    whole.checked_mul(1000)?.checked_add(digits.parse().ok()?)
}

/// What a real server is asked, without its timers; nothing when it is nothing that we ask.
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
            "url" if kind != "Tcp" => report.approximated(&at, "only the first URL is asked"),
            "virtualhost" if kind != "Tcp" => {
                report.mapped(&at, "http.host of the health check");
                host = Some(setting.argument().to_owned());
            }
            "enable_sni" => report.mapped(&at, "the name is always sent"),
            "connect_ip" => report.ignored(&at, "a check goes to the endpoint's own address"),
            "bindto" | "bind_if" | "bind_port" | "fwmark" => {
                report.ignored(&at, "the kernel chooses where checks come from")
            }
            "http_protocol" => report.approximated(&at, "HTTP/1.1 is spoken"),
            "fast_recovery" => report.ignored(&at, "one URL is asked"),
            keyword => report.ignored(&at, super::reason(keyword)),
        }
    }
    if kind != "Tcp" {
        check["http"] = http(url, host, report);
    }
    if kind == "Https" {
        report.mapped(&super::server::place(item), "certificates are not looked at, as there");
        check["tls"] = json!({ "insecureSkipVerify": true });
    }
    let timeout = timers.timeout_ms.min(timers.interval_ms);
    if timeout != timers.timeout_ms {
        report
            .approximated("connect_timeout", &format!("timeoutMs: {timeout}: not longer than the interval"));
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
        None => report.ignored(&super::server::place(setting), "no port in numbers"),
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
                    report.ignored(&at, "a path has to start with `/` and hold printable ASCII");
                }
            }
            "status_code" => match status_codes(setting.arguments()) {
                Some(found) => {
                    report.mapped(&at, "http.expectStatus of the health check");
                    codes = Some(found);
                }
                None => report.ignored(&at, "no codes from 100 to 599"),
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
                None => report.ignored(&at, "a body is searched for a plain text only; set http.expectBody"),
            },
            "digest" => report.ignored(&at, "no digest of a body is made; set http.expectBody"),
            keyword => report.ignored(&at, super::reason(keyword)),
        }
    }
    match codes {
        Some(codes) => http["expectStatus"] = json!(codes),
        None => {
            report.approximated("status_code", "200–299 are good there, 200–399 here; set http.expectStatus")
        }
    }
    if let Some(host) = host {
        match Name::parse(&host.to_ascii_lowercase()) {
            Ok(host) => http["host"] = json!(host),
            Err(error) => report.ignored(&format!("virtualhost {host}"), &error.to_string()),
        }
    }
    http
}

/// A regular expression that is nothing but a text.
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
        "MISC_CHECK" => "no programs are run; ask the endpoint itself by TCP, HTTP, HTTPS, gRPC or UDP",
        "SMTP_CHECK" => "SMTP is not spoken; a Tcp check sees whether somebody accepts",
        "DNS_CHECK" | "UDP_CHECK" => {
            "a Udp check needs a text to send and one to expect; set healthCheck.udp"
        }
        "PING_CHECK" => "endpoints are asked at a port; a Tcp check sees more",
        "BFD_CHECK" => "BFD is spoken with routers and between nodes only",
        "FILE_CHECK" => "no files are looked at; set the endpoint's weight or maintenance by the API",
        _ => "no check that is known here",
    }
}
