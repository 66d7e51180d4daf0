//! Settings of the kernel for all interfaces of the machine, without which packets of workloads or of nodes are lost. The agent
//! does not change them, because they are not its own.

use std::{fs, path::Path};

use ipnet::IpNet;
use model::primitives::net::IpFamily;

use crate::plan::{Hop, NetworkPlan};

/// Directory of the kernel's settings. Those of networks are the ones of the network namespace of the reading thread.
const SETTINGS: &str = "/proc/sys";

/// Returns the reason why packets of the workloads in a plan cannot leave this node, or why those of other nodes that arrive in
/// a tunnel are dropped; `None` if neither is so.
pub(crate) fn failure(plan: &NetworkPlan) -> Option<String> {
    failure_in(Path::new(SETTINGS), plan)
}

fn failure_in(settings: &Path, plan: &NetworkPlan) -> Option<String> {
    forwarding_failure(settings, plan).or_else(|| reverse_path_failure(settings, plan))
}

/// Returns the failure if the kernel compares the sources of packets with its routes on all interfaces: those of other nodes
/// themselves, which their routes do not lead into the tunnel, are dropped. The kernel applies the greater of the values for all
/// interfaces and for the tunnel device, and the loose mode 2 accepts no such packet from a device without an address.
fn reverse_path_failure(settings: &Path, plan: &NetworkPlan) -> Option<String> {
    let mut routes = plan.routes.iter();
    let has_tunnel = routes.any(|(range, hop)| matches!((range, hop), (IpNet::V4(_), Hop::Tunnel(..))));
    let value =
        has_tunnel.then(|| fs::read_to_string(settings.join("net/ipv4/conf/all/rp_filter")).ok())??;
    let value = value.trim();
    (value != "0").then(|| {
        format!(
            "the kernel drops packets of other nodes themselves that arrive in a tunnel, because net.ipv4.conf.all.rp_filter is {value}: set it to 0, and the value to the interfaces that need it, with `sysctl -w` and in a file in /etc/sysctl.d"
        )
    })
}

fn forwarding_failure(settings: &Path, plan: &NetworkPlan) -> Option<String> {
    IpFamily::ALL.into_iter().find_map(|family| {
        let mut routes = plan.routes.iter();
        let has_workloads = routes.any(|(destination, hop)| {
            IpFamily::of_net(destination) == family && matches!(hop, Hop::Interface(_))
        });
        let (path, name) = match family {
            IpFamily::V4 => ("net/ipv4/ip_forward", "net.ipv4.ip_forward"),
            IpFamily::V6 => ("net/ipv6/conf/all/forwarding", "net.ipv6.conf.all.forwarding"),
        };
        // A setting that cannot be read is no failure: without IPv6, for example, the kernel rejects the routes.
        let is_off =
            has_workloads && fs::read_to_string(settings.join(path)).is_ok_and(|text| text.trim() == "0");
        is_off.then(|| {
            format!(
                "the kernel forwards no packets, so that workloads reach no other machine: set `{name}=1` with `sysctl -w`, and in a file in /etc/sysctl.d"
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::desired::TunnelKind;

    fn plan(routes: &[(&str, Hop)]) -> NetworkPlan {
        let routes = routes.iter().map(|(range, hop)| (range.parse().unwrap(), *hop)).collect();
        NetworkPlan { routes, ..NetworkPlan::default() }
    }

    /// Only a setting of a family of which the node has workloads is a failure.
    #[test]
    fn forwarding_is_needed_for_the_families_of_workloads() {
        let dir = tempfile::tempdir().unwrap();
        let v4 = dir.path().join("net/ipv4");
        let v6 = dir.path().join("net/ipv6/conf/all");
        for (path, file, value) in [(&v4, "ip_forward", "0\n"), (&v6, "forwarding", "1\n")] {
            fs::create_dir_all(path).unwrap();
            fs::write(path.join(file), value).unwrap();
        }
        let found = |routes: &[(&str, Hop)]| failure_in(dir.path(), &plan(routes));
        let (here4, here6) = (("10.9.0.1/32", Hop::Interface(7)), ("fd00::1/128", Hop::Interface(7)));
        assert_eq!(found(&[("10.9.0.0/24", Hop::Blackhole), here6]), None);
        assert!(found(&[here4]).unwrap().contains("`net.ipv4.ip_forward=1`"));
        fs::write(v4.join("ip_forward"), "1\n").unwrap();
        assert_eq!(found(&[here4, here6]), None);
        fs::write(v6.join("forwarding"), "0\n").unwrap();
        assert!(found(&[here4, here6]).unwrap().contains("`net.ipv6.conf.all.forwarding=1`"));
        fs::remove_file(v6.join("forwarding")).unwrap();
        assert_eq!(found(&[here6]), None);
    }

    /// Only a value other than 0 for all interfaces is a failure, and only with an IPv4 route into a tunnel.
    #[test]
    fn packets_of_nodes_in_tunnels_need_no_comparison_with_the_routes_on_all_interfaces() {
        let dir = tempfile::tempdir().unwrap();
        let all = dir.path().join("net/ipv4/conf/all");
        fs::create_dir_all(&all).unwrap();
        let found = |routes: &[(&str, Hop)]| failure_in(dir.path(), &plan(routes));
        let node: IpAddr = "192.0.2.2".parse().unwrap();
        let through4 = ("10.9.1.0/24", Hop::Tunnel(TunnelKind::Vxlan, node));
        let through6 = ("fd00:1::/112", Hop::Tunnel(TunnelKind::Vxlan, node));
        let beside = ("10.9.2.0/24", Hop::Gateway(node));
        for (value, is_lost) in [("0", false), ("1", true), ("2", true)] {
            fs::write(all.join("rp_filter"), format!("{value}\n")).unwrap();
            assert_eq!(found(&[through4, beside]).is_some(), is_lost, "{value}");
            assert_eq!(found(&[through6, beside]), None, "{value}");
        }
    }
}
