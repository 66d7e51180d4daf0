//! Forwarding of packets by the kernel, without which workloads reach no other machine.

use std::{fs, path::Path};

use model::primitives::net::IpFamily;

use crate::plan::{Hop, NetworkPlan};

/// Directory of the kernel's settings. Those of networks are the ones of the network namespace of the reading thread.
const SETTINGS: &str = "/proc/sys";

/// Returns the reason why packets of the workloads in a plan cannot leave this node; `None` if they can, or if there are no
/// workloads here.
pub(crate) fn failure(plan: &NetworkPlan) -> Option<String> {
    failure_in(Path::new(SETTINGS), plan)
}

fn failure_in(settings: &Path, plan: &NetworkPlan) -> Option<String> {
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
    use super::*;

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
}
