//! Finds other programs on the machine that announce addresses or balance traffic, and programs that listen
//! on the ports of such programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt as _,
};

use super::seen::Holder;

/// Maximum number of processes inspected, the default limit of Linux.
const PROCESSES_MAX: usize = 32_768;
/// Maximum number of open files inspected per process to find the owner of a socket.
const FILES_MAX: usize = 4096;
/// Maximum size of a socket table in bytes, enough for some hundred thousand sockets.
const SOCKETS_BYTES_MAX: u64 = 32 << 20;
/// Process names of Tidegate, which are not reported.
const OWN_PROGRAMS: [&str; 2] = ["tidegate-agent", "tidegate-dns"];

/// Process names of known programs that conflict with the agent, with a description of each program.
const PROGRAMS: [(&str, &str); 9] = [
    ("keepalived", "announces addresses by VRRP"),
    ("vrrpd", "announces addresses by VRRP"),
    ("ucarp", "announces addresses by CARP"),
    ("speaker", "looks like the speaker of MetalLB"),
    ("kube-vip", "announces addresses"),
    ("kube-router", "announces addresses and proxies"),
    ("lbnodeagent", "is the agent of PureLB"),
    ("pacemakerd", "moves addresses between machines"),
    (KUBE_PROXY, "proxies the Services of Kubernetes"),
];
/// Process name by which a running kube-proxy is detected.
pub(super) const KUBE_PROXY: &str = "kube-proxy";

/// Ports on which programs that announce addresses listen, each with the protocol or the users of the port.
const PORTS: [(u16, &str); 2] = [(179, "BGP"), (7946, "the members of a MetalLB cluster")];

/// Port of DNS servers.
const DNS_PORT: u16 = 53;

/// Programs that conflict with the agent or with `tidegate-dns`.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// Programs that announce addresses or balance traffic, or listen on the ports of such programs.
    pub(super) announcers: Vec<Holder>,
    /// Programs that listen at the port of DNS on all addresses.
    pub(super) name_servers: Vec<Holder>,
}

/// Returns the running programs that announce addresses or balance traffic, and unknown programs that listen
/// on the ports of such programs, and on the port of DNS.
pub(super) fn find() -> Holders {
    let own = fs::metadata("/proc/thread-self/ns/net").map(|metadata| metadata.ino());
    let (mut found, mut name_servers) = (Vec::new(), Vec::new());
    let mut here = Vec::new();
    for process in processes() {
        // Processes in other network namespaces do not interfere.
        let namespace = fs::metadata(format!("/proc/{process}/ns/net")).map(|metadata| metadata.ino());
        if !matches!((&own, namespace), (Ok(own), Ok(theirs)) if *own == theirs) {
            continue;
        }
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim().to_owned();
        if let Some((program, does)) = PROGRAMS.iter().find(|(program, _)| *program == name) {
            found.push(Holder {
                program: (*program).to_owned(),
                process: Some(process),
                does: (*does).to_owned(),
            });
        }
        here.push((process, name));
    }
    let mut sockets = listening();
    if !sockets.is_empty() {
        for (process, program) in here {
            for inode in sockets_of(process) {
                let Some(port) = sockets.remove(&inode) else { continue };
                if !OWN_PROGRAMS.contains(&program.as_str()) {
                    let list = if port == DNS_PORT { &mut name_servers } else { &mut found };
                    list.push(at_port(port, program.clone(), Some(process)));
                }
            }
        }
    }
    for port in sockets.into_values() {
        let list = if port == DNS_PORT { &mut name_servers } else { &mut found };
        list.push(at_port(port, "somebody".to_owned(), None));
    }
    for list in [&mut found, &mut name_servers] {
        list.sort();
        list.dedup();
    }
    Holders { announcers: found, name_servers }
}

fn at_port(port: u16, program: String, process: Option<u32>) -> Holder {
    if port == DNS_PORT {
        return Holder { program, process, does: "listens at port 53 of all addresses".to_owned() };
    }
    let what = PORTS.iter().find(|(known, _)| *known == port).map_or("", |(_, what)| what);
    Holder { program, process, does: format!("listens at port {port} ({what})") }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(PROCESSES_MAX)
}

fn sockets_of(process: u32) -> BTreeSet<u64> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten().take(FILES_MAX);
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    links
        .filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
        .collect()
}

/// Returns the ports in [`PORTS`] that have a listening socket, and the port of DNS if the socket has all addresses, by
/// inode of the socket.
fn listening() -> BTreeMap<u64, u16> {
    let mut found = BTreeMap::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        if let Ok(text) = read_bounded(&format!("/proc/thread-self/net/{table}")) {
            found.extend(sockets(&text).filter(|(_, port)| PORTS.iter().any(|(known, _)| known == port)));
            found.extend(sockets_at_any_address(&text).filter(|(_, port)| *port == DNS_PORT));
        }
    }
    found
}

fn read_bounded(path: &str) -> io::Result<String> {
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(fs::File::open(path)?, SOCKETS_BYTES_MAX), &mut text)?;
    Ok(text)
}

/// State column of a listening TCP socket and an unconnected UDP socket in `/proc/net` (`net/tcp_states.h`).
const LISTENS: [&str; 2] = ["0A", "07"];

/// Parses the inode and the port of each listening socket in a table in the format of `/proc/net/tcp`.
/// Unknown lines are skipped.
fn sockets(text: &str) -> impl Iterator<Item = (u64, u16)> {
    text.lines().skip(1).filter_map(sockets_of_line)
}

fn sockets_of_line(line: &str) -> Option<(u64, u16)> {
    let words: Vec<_> = line.split_whitespace().take(10).collect();
    let (_, port) = words.get(1)?.rsplit_once(':')?;
    let inode = words.get(9)?.parse().ok()?;
    LISTENS.contains(words.get(3)?).then_some((inode, u16::from_str_radix(port, 16).ok()?))
}

/// Parses the sockets of [`sockets`] that listen at all addresses.
fn sockets_at_any_address(text: &str) -> impl Iterator<Item = (u64, u16)> {
    let is_any = |line: &&str| {
        let address = line.split_whitespace().nth(1).and_then(|word| word.rsplit_once(':'));
        address.is_some_and(|(address, _)| address.bytes().all(|digit| digit == b'0'))
    };
    // The first line is the head of the table.
    text.lines().skip(1).filter(is_any).filter_map(sockets_of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_sockets_are_read() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 00000000:00B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n\
            \x20  1: 0100007F:00B3 0100007F:8001 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0\n\
            \x20  2: nonsense\n\
            12810: 00000000000000000000000000000000:1F0A 00000000000000000000000000000000:0000 07 00000000:00000000 \
            00:00000000 00000000     0        0 4713 2 0\n";
        assert_eq!(sockets(text).collect::<Vec<_>>(), [(4711, 179), (4713, 7946)]);
        assert_eq!(sockets_at_any_address(text).collect::<Vec<_>>(), [(4711, 179), (4713, 7946)]);
        let bound = text.replace(" 00000000:00B3", " 0100007F:00B3");
        assert_eq!(sockets_at_any_address(&bound).collect::<Vec<_>>(), [(4713, 7946)]);
    }
}
