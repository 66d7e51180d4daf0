//! Import of `ipvsadm -S -n` output: virtual servers of the kernel and their real servers.

mod parse;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use model::kinds::service::Protocol;

pub(crate) use self::parse::is_command;
use self::parse::{ParsedLine, Setting, Verb, lines};
use crate::{
    draft::Draft,
    report::Report,
    virtual_server::{
        FORWARDED, FORWARDED_OTHERWISE, RealServer, VirtualServer, affinity, granularity, put_all, weight,
    },
};

/// Default timeout of `-p` in seconds, as used by ipvsadm 1.31.
const PERSISTENT_SECONDS_DEFAULT: u32 = 360;
/// Scheduler of a virtual server without `-s` (ipvsadm(8)).
const SCHEDULER_DEFAULT: &str = "wlc";

/// Identity of a virtual server: protocol, address, and port or `None` for all ports.
type Key = (Protocol, IpAddr, Option<u16>);

/// Parses the output of `ipvsadm -S -n` and adds the objects for its virtual servers to the draft.
///
/// # Errors
/// Returns an error if the text has too many lines.
pub(crate) fn text(draft: &mut Draft, file: &str, text: &str) -> Result<(), String> {
    let mut servers: Vec<VirtualServer> = Vec::new();
    let mut places: BTreeMap<Key, usize> = BTreeMap::new();
    for line in lines(text)? {
        let report = &mut draft.report;
        let line = match line {
            Ok(line) => line,
            Err((number, error)) => {
                report.begin(&format!("{file}: line {number}"));
                report.ignored("", &format!("the line is left out: {error}"));
                continue;
            }
        };
        report.begin(&format!("{file}: line {}: {}", line.number, line.text));
        let done = match line.verb {
            Verb::AddService => key_of(&line).and_then(|key| match places.entry(key) {
                Entry::Occupied(_) => Err("duplicate virtual server with this address and port".to_owned()),
                Entry::Vacant(place) => {
                    servers.push(service(&line, key, report)?);
                    place.insert(servers.len() - 1);
                    Ok(())
                }
            }),
            Verb::AddServer => {
                let place = key_of(&line).map(|key| places.get(&key).and_then(|at| servers.get_mut(*at)));
                place.and_then(|server| real_server(&line, server, report))
            }
            Verb::Other => Err("only -A and -a are supported, the output of `ipvsadm -S -n`".to_owned()),
        };
        if let Err(reason) = done {
            report.ignored("", &format!("the line is left out: {reason}"));
        }
    }
    put_all(draft, &format!("{file}: all virtual servers"), servers);
    Ok(())
}

/// Returns the identity of the virtual server to which a line refers.
fn key_of(line: &ParsedLine) -> Result<Key, String> {
    let mut found = None;
    for Setting { option, value } in &line.settings {
        let protocol = match *option {
            "-t" => Protocol::Tcp,
            "-u" => Protocol::Udp,
            "--sctp-service" => Protocol::Sctp,
            "-f" => {
                return Err(format!(
                    "firewall mark {value}: Services cannot match marks; replace it by virtual servers \
                     with the addresses and ports that the mark's rules match"
                ));
            }
            _ => continue,
        };
        let (address, port) = socket(value)?;
        if found.replace((protocol, address, port)).is_some() {
            return Err("more than one virtual server".to_owned());
        }
    }
    found.ok_or_else(|| "no virtual server: -t, -u or --sctp-service is missing".to_owned())
}

fn service(line: &ParsedLine, key: Key, report: &mut Report) -> Result<VirtualServer, String> {
    let (protocol, address, port) = key;
    let mut server = VirtualServer::new(protocol, address, port);
    let target = server.target();
    for Setting { option, value } in &line.settings {
        match *option {
            "-A" | "-n" => {}
            "-t" | "-u" | "--sctp-service" => {
                report.mapped(&format!("{option} {value}"), &target);
                if port.is_none() {
                    report.mapped("port 0", "ports 1 to 65535");
                }
            }
            "-6" => report.mapped("-6", "the family follows from the address"),
            "-s" => {
                report.mapped(&format!("-s {value}"), &format!("scheduler of {target}"));
                server.scheduler = Some(value.clone());
            }
            "-b" => flags(line, value, &mut server, report),
            "-o" => {
                report.mapped("-o", &format!("schedulerFlags onePacket of {target}"));
                server.scheduler_flags.insert("onePacket");
            }
            "-p" => persistent(value, &mut server, report)?,
            "-M" => match granularity(address, value) {
                (true, words) => report.mapped(&format!("-M {value}"), &words),
                (false, words) => report.approximated(&format!("-M {value}"), &words),
            },
            "--pe" => report
                .approximated(&format!("--pe {value}"), "clients are identified by address, not by content"),
            other => report.ignored(&format!("{other} {value}"), "not an option of a virtual server"),
        }
    }
    if server.scheduler.is_none() {
        report.mapped("no -s", &format!("scheduler {SCHEDULER_DEFAULT} of {target}, the default"));
        server.scheduler = Some(SCHEDULER_DEFAULT.to_owned());
    }
    Ok(server)
}

fn persistent(value: &str, server: &mut VirtualServer, report: &mut Report) -> Result<(), String> {
    let seconds = if value.is_empty() {
        PERSISTENT_SECONDS_DEFAULT
    } else {
        value.parse::<u32>().map_err(|_| format!("-p {value}: not a number of seconds"))?
    };
    let (seconds, difference) = affinity(seconds);
    let at = format!("-p {value}");
    match difference {
        None => report.mapped(at.trim_end(), &format!("sessionAffinity of {}, {seconds} s", server.target())),
        Some(words) => report.approximated(&at, &words),
    }
    server.affinity_seconds = Some(seconds);
    Ok(())
}

/// Translates the scheduler flags of a virtual server. `value` lists the flags by the names that `ipvsadm -S`
/// writes, or by number.
fn flags(line: &ParsedLine, value: &str, server: &mut VirtualServer, report: &mut Report) {
    let is_hash = |setting: &Setting| setting.option == "-s" && matches!(setting.value.as_str(), "sh" | "mh");
    let hashes = line.settings.iter().any(is_hash);
    for flag in value.split(',') {
        let at = format!("-b {flag}");
        let ours = match flag {
            "sh-fallback" | "mh-fallback" | "flag-1" if hashes => Some("fallback"),
            "sh-port" | "mh-port" | "flag-2" if hashes => Some("port"),
            _ => None,
        };
        match ours {
            Some(ours) => {
                report.mapped(&at, &format!("schedulerFlags {ours} of {}", server.target()));
                server.scheduler_flags.insert(ours);
            }
            None => report.ignored(&at, "the scheduler has no such flag"),
        }
    }
}

fn real_server(
    line: &ParsedLine,
    server: Option<&mut VirtualServer>,
    report: &mut Report,
) -> Result<(), String> {
    let server = server.ok_or("no previous line adds its virtual server")?;
    let mut real = None;
    for Setting { value, .. } in line.settings.iter().filter(|setting| setting.option == "-r") {
        let (address, port) = socket(value)?;
        real = Some(RealServer { address, port, weight: 1 });
    }
    let mut real = real.ok_or("no real server: -r is missing")?;
    server.check(&real)?;
    let target = server.target();
    let is_forwarded = |option: &str| line.settings.iter().any(|setting| setting.option == option);
    if !["-g", "-i", "-m"].into_iter().any(is_forwarded) {
        report.approximated("no -g, -i or -m", &format!("-g is the default: {FORWARDED_OTHERWISE}"));
    }
    for Setting { option, value } in &line.settings {
        let at = format!("{option} {value}");
        match *option {
            "-a" | "-n" | "-t" | "-u" | "--sctp-service" => {}
            "-r" => report.mapped(&at, &format!("an endpoint of {target}")),
            "-m" => report.approximated("-m", FORWARDED),
            "-g" | "-i" => report.approximated(option, FORWARDED_OTHERWISE),
            "-w" => {
                let (kept, difference) =
                    weight(value.parse().map_err(|_| format!("-w {value}: not a number of at least 0"))?);
                match difference {
                    None => report.mapped(&at, "its weight"),
                    Some(words) => report.approximated(&at, &words),
                }
                real.weight = kept;
            }
            "-x" | "-y" if value == "0" => report.mapped(&at, "no connection limit, as here"),
            "-x" | "-y" => report.ignored(&at, "endpoints have no connection limit"),
            "--tun-type" | "--tun-port" | "--tun-nocsum" | "--tun-csum" | "--tun-remcsum" => {
                report.ignored(at.trim_end(), "tunnels are not used");
            }
            _ => report.ignored(at.trim_end(), "not an option of a real server"),
        }
    }
    server.real_servers.push(real);
    Ok(())
}

/// Parses an address and a port in ipvsadm's format; port 0 is returned as `None`.
fn socket(text: &str) -> Result<(IpAddr, Option<u16>), String> {
    let (address, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            let port = if rest.is_empty() { Some("0") } else { rest.strip_prefix(':') };
            (address.parse::<Ipv6Addr>().ok().map(IpAddr::V6), port)
        }
        None => {
            let (address, port) = text.split_once(':').unwrap_or((text, "0"));
            (address.parse::<Ipv4Addr>().ok().map(IpAddr::V4), Some(port))
        }
    };
    let words = || {
        format!(
            "`{text}` is not a numeric address and port; names are not resolved: save with `ipvsadm -S -n`"
        )
    };
    let port: u16 = port.and_then(|port| port.parse().ok()).ok_or_else(words)?;
    Ok((address.ok_or_else(words)?, Some(port).filter(|port| *port != 0)))
}
