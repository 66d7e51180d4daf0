//! Tables of the requirements of each proxy mode. Does no I/O.

use model::kinds::node::ProxyMode;
use serde::Serialize;

/// Requirement of a proxy mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Name of the item, as shown to operators.
    pub name: &'static str,
    /// Kind of the item: capability, module, program, setting or interface.
    pub kind: Kind,
    /// Names of the modules that provide the item, newest first; any of them is sufficient.
    pub modules: &'static [&'static str],
    /// Test that shows if the item is usable.
    pub test: Test,
    /// True if the mode does not work without the item.
    pub required: bool,
    /// Purpose of the item in the mode.
    pub purpose: &'static str,
    /// Remedy to show if the item is missing.
    pub remedy: &'static str,
}

/// Kind of a required item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Capability of the agent's process, such as `CAP_NET_ADMIN`.
    Capability,
    /// Feature of the kernel, often provided by a module.
    Module,
    /// Program that the agent starts.
    Tool,
    /// Kernel setting (sysctl).
    Sysctl,
    /// Network interface of a certain kind.
    Interface,
}

impl Kind {
    /// Returns the kind as a word for the output table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Capability => "capability",
            Self::Module => "module",
            Self::Tool => "tool",
            Self::Sysctl => "sysctl",
            Self::Interface => "interface",
        }
    }
}

/// Test that shows if a required item is usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// Checks that the process has `CAP_NET_ADMIN`.
    NetAdmin,
    /// Creates the table of nftables mode with one Service, and reads it back.
    Table,
    /// Creates the rules that redirect connections to the relay in userspace mode, and reads them back.
    CaptureTable,
    /// Lists the conntrack table.
    Conntrack,
    /// Checks that the kernel supports ipset.
    Ipset,
    /// Creates an ipset of this type.
    IpsetType(&'static str),
    /// Checks that the generic netlink family of IPVS exists.
    IpvsFamily,
    /// Creates an IPVS virtual server with this scheduler.
    IpvsScheduler(&'static str),
    /// Creates a network interface of this type.
    Link(&'static str),
    /// Checks that the sysctl at this path can be written.
    Writable(&'static str),
    /// Checks that the sysctl at this path is not 0.
    IsOn(&'static str),
    /// Checks that an iptables command works on this kernel.
    Iptables,
    /// Checks that an ip6tables command works on this kernel.
    Ip6tables,
    /// Creates an iptables rule with these arguments, of which the first is its table.
    Rule(&'static [&'static str]),
}

/// Returns the requirements of a mode, most important first.
#[must_use]
pub fn of(mode: ProxyMode) -> Vec<Need> {
    let mut needs = vec![NET_ADMIN];
    match mode {
        ProxyMode::Nftables => needs.extend([NF_TABLES, NF_CONNTRACK]),
        ProxyMode::Userspace => {
            needs.extend([Need { test: Test::CaptureTable, ..NF_TABLES }, NF_CONNTRACK]);
        }
        ProxyMode::Iptables => {
            needs.extend([NF_CONNTRACK]);
            needs.extend(IPTABLES);
        }
        ProxyMode::Ipvs => {
            needs.extend([IP_VS]);
            needs.extend(SCHEDULERS);
            needs.extend([NF_CONNTRACK, DUMMY]);
            needs.extend(IPSET);
            needs.extend(IPTABLES);
            needs.extend([ARP_IGNORE, ARP_ANNOUNCE]);
        }
    }
    match mode {
        // The relay terminates both connections, so no forwarding is needed.
        ProxyMode::Userspace => {}
        ProxyMode::Nftables | ProxyMode::Iptables | ProxyMode::Ipvs => {
            needs.extend([IP_FORWARD, IP6_FORWARD]);
        }
    }
    needs
}

const KERNEL_REMEDY: &str = "install the kernel's module package (Debian: linux-image-*, Fedora: kernel-modules-extra) \
    or use a kernel built with it";

const NET_ADMIN: Need = Need {
    name: "CAP_NET_ADMIN",
    kind: Kind::Capability,
    modules: &[],
    test: Test::NetAdmin,
    required: true,
    purpose: "programming the kernel",
    remedy: "run as root, or give the service CAP_NET_ADMIN (systemd: AmbientCapabilities=CAP_NET_ADMIN; containers: \
        --cap-add NET_ADMIN)",
};

const NF_TABLES: Need = Need {
    name: "nf_tables",
    kind: Kind::Module,
    modules: &["nf_tables"],
    test: Test::Table,
    required: true,
    purpose: "the rules",
    remedy: "use a kernel with CONFIG_NF_TABLES, CONFIG_NF_TABLES_INET and NFT_{CT,NAT,MASQ,REDIR,REJECT,FIB,NUMGEN} \
        (5.13 or newer), or another mode",
};

const NF_CONNTRACK: Need = Need {
    name: "nf_conntrack",
    kind: Kind::Module,
    modules: &["nf_conntrack", "nf_conntrack_ipv4"],
    test: Test::Conntrack,
    required: true,
    purpose: "translating addresses, and finding flows of removed endpoints",
    remedy: KERNEL_REMEDY,
};

const IP_VS: Need = Need {
    name: "ip_vs",
    kind: Kind::Module,
    modules: &["ip_vs"],
    test: Test::IpvsFamily,
    required: true,
    purpose: "virtual servers",
    remedy: KERNEL_REMEDY,
};

const DUMMY: Need = Need {
    name: "dummy",
    kind: Kind::Module,
    modules: &["dummy"],
    test: Test::Link("dummy"),
    required: true,
    purpose: "the link that holds virtual addresses",
    remedy: KERNEL_REMEDY,
};

macro_rules! scheduler {
    ($name:literal, $required:literal) => {
        Need {
            name: concat!("ip_vs_", $name),
            kind: Kind::Module,
            modules: &[concat!("ip_vs_", $name)],
            test: Test::IpvsScheduler($name),
            required: $required,
            purpose: concat!("Services with scheduler ", $name),
            remedy: KERNEL_REMEDY,
        }
    };
}

/// IPVS schedulers: first those required on every node, then those that a Service may request.
const SCHEDULERS: [Need; 13] = [
    scheduler!("rr", true),
    scheduler!("wrr", true),
    scheduler!("sh", true),
    scheduler!("lc", false),
    scheduler!("wlc", false),
    scheduler!("dh", false),
    scheduler!("sed", false),
    scheduler!("nq", false),
    scheduler!("lblc", false),
    scheduler!("lblcr", false),
    scheduler!("fo", false),
    scheduler!("ovf", false),
    scheduler!("mh", false),
];

macro_rules! set_type {
    ($name:literal, $module:literal) => {
        Need {
            name: $module,
            kind: Kind::Module,
            modules: &[$module],
            test: Test::IpsetType($name),
            required: true,
            purpose: concat!("sets of type ", $name),
            remedy: KERNEL_REMEDY,
        }
    };
}

const IPSET: [Need; 7] = [
    Need {
        name: "ip_set",
        kind: Kind::Module,
        modules: &["ip_set"],
        test: Test::Ipset,
        required: true,
        purpose: "sets of addresses, so that rules do not grow with Services",
        remedy: KERNEL_REMEDY,
    },
    set_type!("hash:ip", "ip_set_hash_ip"),
    set_type!("hash:net", "ip_set_hash_net"),
    set_type!("hash:ip,port", "ip_set_hash_ipport"),
    set_type!("hash:ip,port,ip", "ip_set_hash_ipportip"),
    set_type!("hash:ip,port,net", "ip_set_hash_ipportnet"),
    set_type!("bitmap:port", "ip_set_bitmap_port"),
];

macro_rules! rule {
    ($module:literal, $purpose:literal, $($word:literal),+) => {
        Need {
            name: $module,
            kind: Kind::Module,
            modules: &[$module],
            test: Test::Rule(&[$($word),+]),
            required: true,
            purpose: $purpose,
            remedy: KERNEL_REMEDY,
        }
    };
}

const IPTABLES: [Need; 11] = [
    Need {
        name: "iptables",
        kind: Kind::Tool,
        modules: &[],
        test: Test::Iptables,
        required: true,
        purpose: "writing rules for IPv4",
        remedy: "install the package iptables (1.8 or newer)",
    },
    Need {
        name: "ip6tables",
        kind: Kind::Tool,
        modules: &[],
        test: Test::Ip6tables,
        required: false,
        purpose: "writing rules for IPv6",
        remedy: "install the package iptables (1.8 or newer)",
    },
    rule!("xt_comment", "naming Services in rules", "filter", "-m", "comment", "--comment", "tidegate"),
    rule!(
        "xt_mark",
        "marking packets to masquerade",
        "nat",
        "-m",
        "mark",
        "--mark",
        "0x4000/0x4000",
        "-j",
        "MARK",
        "--or-mark",
        "0x4000"
    ),
    rule!("xt_conntrack", "matching new connections", "filter", "-m", "conntrack", "--ctstate", "NEW"),
    rule!("xt_addrtype", "node ports", "nat", "-m", "addrtype", "--dst-type", "LOCAL"),
    rule!(
        "xt_statistic",
        "choosing an endpoint",
        "nat",
        "-m",
        "statistic",
        "--mode",
        "random",
        "--probability",
        "0.5"
    ),
    rule!("xt_recent", "session affinity", "nat", "-m", "recent", "--name", "tidegate", "--set"),
    rule!(
        "xt_nat",
        "translating to an endpoint",
        "nat",
        "-p",
        "tcp",
        "-j",
        "DNAT",
        "--to-destination",
        "192.0.2.1:80"
    ),
    rule!("xt_MASQUERADE", "masquerading", "nat-postrouting", "-j", "MASQUERADE"),
    rule!("ipt_REJECT", "rejecting connections without an endpoint", "filter", "-j", "REJECT"),
];

const ARP_IGNORE: Need = Need {
    name: "net.ipv4.conf.all.arp_ignore",
    kind: Kind::Sysctl,
    modules: &[],
    test: Test::Writable("net/ipv4/conf/all/arp_ignore"),
    required: false,
    purpose: "strict ARP",
    remedy: "mount /proc/sys writable, or leave strict ARP off",
};

const ARP_ANNOUNCE: Need = Need {
    name: "net.ipv4.conf.all.arp_announce",
    test: Test::Writable("net/ipv4/conf/all/arp_announce"),
    ..ARP_IGNORE
};

const IP_FORWARD: Need = Need {
    name: "net.ipv4.ip_forward=1",
    kind: Kind::Sysctl,
    modules: &[],
    test: Test::IsOn("net/ipv4/ip_forward"),
    required: false,
    purpose: "endpoints on other machines or in namespaces",
    remedy: "sysctl -w net.ipv4.ip_forward=1, and in /etc/sysctl.d",
};

const IP6_FORWARD: Need = Need {
    name: "net.ipv6.conf.all.forwarding=1",
    test: Test::IsOn("net/ipv6/conf/all/forwarding"),
    remedy: "sysctl -w net.ipv6.conf.all.forwarding=1, and in /etc/sysctl.d",
    ..IP_FORWARD
};
