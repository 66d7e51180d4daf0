//! Finds the frontends of Services that the kernel serves: in the agent's nf_tables tables, its iptables chains, and the
//! virtual servers of IPVS. Changes nothing.

use std::{
    collections::BTreeSet,
    fs, io,
    net::{IpAddr, Ipv4Addr},
};

use dataplane::{
    Dataplane as _,
    nftables::{self, NftablesBackend, NftablesOptions},
    userspace,
};
use model::program::Destination;

use super::{
    captures::ServedFrontend,
    chains::{Chain, Effect, TableTool},
};

/// Prefixes of the agent's chains in iptables mode that dispatch connections, with each naming scheme.
const DISPATCHERS: [&str; 2] = ["TG-SERVICES", "KUBE-SERVICES"];
/// Virtual servers of IPVS, as the kernel lists them.
const VIRTUAL_SERVERS: &str = "/proc/thread-self/net/ip_vs";

/// Returns the frontends that the kernel serves now.
///
/// # Errors
/// Returns an I/O error if nf_tables cannot be read.
pub(super) fn find(chains: &[Chain]) -> io::Result<Vec<ServedFrontend>> {
    let mut found = BTreeSet::new();
    for table in [nftables::schema::TABLE, userspace::TABLE] {
        let is_there = |chain: &Chain| chain.place.keeper == TableTool::Nft && chain.place.table == table;
        if chains.iter().any(is_there) {
            found.extend(of_nftables(table)?);
        }
    }
    found.extend(of_iptables(chains));
    found.extend(of_ipvs(&fs::read_to_string(VIRTUAL_SERVERS).unwrap_or_default()));
    Ok(found.into_iter().collect())
}

fn of_nftables(table: &'static str) -> io::Result<Vec<ServedFrontend>> {
    let options = NftablesOptions { table, ..NftablesOptions::default() };
    let failed = |error: dataplane::KernelError| io::Error::other(base::chain(&error));
    let mut backend = NftablesBackend::open(options).map_err(failed)?;
    backend.observe().map_err(failed)?;
    let served = |frontend: model::program::Frontend| ServedFrontend {
        address: match frontend.destination {
            Destination::Address(address) => Some(address),
            Destination::AnyLocal(_) => None,
        },
        protocol: frontend.protocol.number(),
        ports: (frontend.ports.first().get(), frontend.ports.last().get()),
    };
    Ok(backend.observed_frontends().map(served).collect())
}

/// Returns the frontends in the rules of the agent's dispatching chains.
fn of_iptables(chains: &[Chain]) -> impl Iterator<Item = ServedFrontend> {
    let rules = chains.iter().filter(|chain| DISPATCHERS.contains(&chain.name.as_str()));
    let served = |rule: &super::chains::Rule| match rule.effect {
        Effect::Jump(_) => Some(ServedFrontend {
            address: rule.scope.destination.map(|network| network.addr()),
            protocol: rule.scope.protocol?,
            ports: rule.scope.ports?,
        }),
        Effect::Accept | Effect::Drop | Effect::Return | Effect::Captures(_) | Effect::Other => None,
    };
    rules.flat_map(|chain| &chain.rules).filter_map(served)
}

/// Parses lines such as `TCP  0A600001:0050 rr` and `TCP  [fd96::1]:0050 rr`.
fn of_ipvs(text: &str) -> Vec<ServedFrontend> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let protocol = match words.next()? {
            "TCP" => 6,
            "UDP" => 17,
            "SCTP" => 132,
            _ => return None,
        };
        let (address, port) = words.next()?.rsplit_once(':')?;
        let address = match address.strip_prefix('[') {
            Some(address) => address.strip_suffix(']')?.parse::<IpAddr>().ok()?,
            None => Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?).into(),
        };
        let port = u16::from_str_radix(port, 16).ok()?;
        Some(ServedFrontend { address: Some(address), protocol, ports: (port, port) })
    };
    text.lines().filter_map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_servers_are_read_as_the_kernel_lists_them() {
        let text = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n\
            TCP  0A600001:0050 rr \n  -> 0A010102:1F90      Masq    1      0          0\n\
            UDP  [fd96:0000:0000:0000:0000:0000:0000:0001]:0035 rr persistent 60 FFFFFFFF\nFWM  00000001 rr\n";
        let server = |address: &str, protocol, port| ServedFrontend {
            address: Some(address.parse().unwrap()),
            protocol,
            ports: (port, port),
        };
        assert_eq!(of_ipvs(text), [server("10.96.0.1", 6, 80), server("fd96::1", 17, 53)]);
    }
}
