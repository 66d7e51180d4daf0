//! Test network between Tidegate's speaker and a router: a single link, or two links with a hop in between.

use crate::support::{Namespace, bfd::V4, bfd::V6};

use super::Kind;

/// Addresses of Tidegate's speaker and of the router if there is a hop in between.
pub const FAR_V4: (&str, &str) = ("192.0.2.1", "203.0.113.2");
pub const FAR_V6: (&str, &str) = ("2001:db8::1", "2001:db8:f::2");

/// Network between Tidegate's speaker (`ours`) and a router (`theirs`), either direct or with a hop in
/// between.
///
/// ```text
/// direct: ours eth0 192.0.2.1, 2001:db8::1 ── eth0 192.0.2.2, 2001:db8::2 theirs
/// routed: ours eth0 192.0.2.1, 2001:db8::1 ── hop ── eth0 203.0.113.2, 2001:db8:f::2 theirs
/// ```
pub struct Stage {
    pub ours: Namespace,
    pub theirs: Namespace,
    hop: Option<Namespace>,
}

impl Stage {
    pub fn direct(kind: Kind, test: &str) -> Self {
        let stage = Self::apart(kind, test);
        join(&stage.ours, "eth0", &stage.theirs, "eth0");
        set_up(&stage.ours, "eth0", [&format!("{}/24", V4.0), &format!("{}/64", V6.0)]);
        set_up(&stage.theirs, "eth0", [&format!("{}/24", V4.1), &format!("{}/64", V6.1)]);
        stage
    }

    pub fn routed(kind: Kind, test: &str) -> Self {
        let mut stage = Self::apart(kind, test);
        let hop = Namespace::new(&format!("{}{test}-h", kind.word()));
        hop.exec(&["sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]);
        join(&stage.ours, "eth0", &hop, "near");
        join(&stage.theirs, "eth0", &hop, "far");
        set_up(&stage.ours, "eth0", [&format!("{}/24", FAR_V4.0), &format!("{}/64", FAR_V6.0)]);
        set_up(&stage.theirs, "eth0", [&format!("{}/24", FAR_V4.1), &format!("{}/64", FAR_V6.1)]);
        set_up(&hop, "near", ["192.0.2.254/24", "2001:db8::fe/64"]);
        set_up(&hop, "far", ["203.0.113.254/24", "2001:db8:f::fe/64"]);
        for (namespace, v4, v6) in
            [(&stage.ours, "192.0.2.254", "2001:db8::fe"), (&stage.theirs, "203.0.113.254", "2001:db8:f::fe")]
        {
            namespace.ip(&["route", "add", "default", "via", v4]);
            namespace.ip(&["-6", "route", "add", "default", "via", v6]);
        }
        stage.hop = Some(hop);
        stage
    }

    /// Creates a link that has only link-local addresses and is called `eth0` on both sides.
    pub fn unnumbered(kind: Kind, test: &str) -> Self {
        let stage = Self::apart(kind, test);
        join(&stage.ours, "eth0", &stage.theirs, "eth0");
        for namespace in [&stage.ours, &stage.theirs] {
            set_up(namespace, "eth0", []);
        }
        stage
    }

    fn apart(kind: Kind, test: &str) -> Self {
        let word = kind.word();
        let [ours, theirs] = ["a", "b"].map(|end| Namespace::new(&format!("{word}{test}-{end}")));
        Self { ours, theirs, hop: None }
    }

    /// Blocks data on TCP connections, or unblocks it if `is_hushed` is false. New connections can still be
    /// opened.
    pub fn hush(&self, is_hushed: bool) {
        for namespace in [&self.ours, &self.theirs] {
            drop_in(namespace, "iifname eth0 tcp flags & psh == psh", is_hushed);
        }
    }

    /// Blocks all packets between the two sides, or unblocks them if `is_cut` is false. All links stay up.
    pub fn cut(&self, is_cut: bool) {
        for namespace in [&self.ours, &self.theirs] {
            drop_in(namespace, "iifname eth0", is_cut);
        }
    }

    /// Returns the established TCP connections on the BGP port, as seen on Tidegate's side.
    pub fn connections(&self) -> Vec<String> {
        let text = self.ours.exec(&["ss", "-Htan", "( sport = :179 or dport = :179 )"]);
        text.lines().filter(|line| line.starts_with("ESTAB")).map(str::to_owned).collect()
    }
}

fn drop_in(namespace: &Namespace, what: &str, is_dropped: bool) {
    namespace.nft(&match is_dropped {
        true => {
            let chain = format!("type filter hook input priority -500; {what} drop;");
            format!("table inet blocked {{ chain input {{ {chain} }}; }}")
        }
        false => "delete table inet blocked".to_owned(),
    });
}

fn join(one: &Namespace, name: &str, other: &Namespace, other_name: &str) {
    one.ip(&["link", "add", name, "type", "veth", "peer", other_name, "netns", other.name()]);
}

fn set_up<const N: usize>(namespace: &Namespace, interface: &str, addresses: [&str; N]) {
    // Addresses are usable at once, and stay when the link goes down.
    let settings = [("keep_addr_on_down", 1), ("accept_dad", 0)];
    for (setting, value) in settings {
        namespace.exec(&["sysctl", "-qw", &format!("net.ipv6.conf.{interface}.{setting}={value}")]);
    }
    for address in addresses {
        // Even without duplicate address detection, the kernel makes an IPv6 address usable a moment later, except with this flag.
        let flag: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
        namespace.ip(&[&["addr", "add", address, "dev", interface][..], flag].concat());
    }
    namespace.ip(&["link", "set", interface, "up"]);
}
