//! Who else is on the machine: programs that announce addresses or balance, and who listens where such programs do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt as _,
};

use super::seen::Holder;

/// Processes that are looked at: as many as Linux has by default.
const PROCESSES_MAX: usize = 32_768;
/// Open files of one process that are looked at, when the owner of a socket is sought.
const FILES_MAX: usize = 4096;
/// Bytes of one table of sockets: some hundred thousand lines.
const SOCKETS_BYTES_MAX: u64 = 32 << 20;
/// Our own program, as the kernel names it.
const OWN_PROGRAM: &str = "tidegate-agent";

/// Programs, as the kernel names them, and what they do.
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
/// The proxy of Kubernetes.
pub(super) const KUBE_PROXY: &str = "kube-proxy";

/// Ports of programs that announce.
const PORTS: [(u16, &str); 2] = [(179, "BGP"), (7946, "the members of a MetalLB cluster")];

/// Everybody else who was found.
pub(super) fn find() -> Vec<Holder> {
    let own = fs::metadata("/proc/thread-self/ns/net").map(|metadata| metadata.ino());
    let mut found = Vec::new();
    let mut here = Vec::new();
    for process in processes() {
        // Another namespace is another machine to the network.
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
                if program != OWN_PROGRAM {
                    found.push(at_port(port, program.clone(), Some(process)));
                }
            }
        }
    }
    found.extend(sockets.into_values().map(|port| at_port(port, "somebody".to_owned(), None)));
    found.sort();
    found.dedup();
    found
}

fn at_port(port: u16, program: String, process: Option<u32>) -> Holder {
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

/// Sockets at ports of programs that announce, by their inodes.
fn listening() -> BTreeMap<u64, u16> {
    let mut found = BTreeMap::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        if let Ok(text) = read_bounded(&format!("/proc/thread-self/net/{table}")) {
            found.extend(sockets(&text).filter(|(_, port)| PORTS.iter().any(|(known, _)| known == port)));
        }
    }
    found
}

fn read_bounded(path: &str) -> io::Result<String> {
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(fs::File::open(path)?, SOCKETS_BYTES_MAX), &mut text)?;
    Ok(text)
}

/// State of a TCP socket that listens, and of a UDP socket that is not connected (`net/tcp_states.h`).
const LISTENS: [&str; 2] = ["0A", "07"];

/// Inode and port of the sockets that wait for others, of a table as `/proc/net/tcp` prints it. Total.
fn sockets(text: &str) -> impl Iterator<Item = (u64, u16)> {
    text.lines().skip(1).filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().take(10).collect();
        let (_, port) = words.get(1)?.rsplit_once(':')?;
        let inode = words.get(9)?.parse().ok()?;
        LISTENS.contains(words.get(3)?).then_some((inode, u16::from_str_radix(port, 16).ok()?))
    })
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
    }
}
