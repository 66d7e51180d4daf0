//! Helpers for the two variants (flavors) of the iptables tools, nft and legacy: the variants that the kernel
//! supports, and tool output in a namespace.

use model::kinds::node::Naming;
use node_agent::dataplane::iptables::{Flavour, IptablesBackend, IptablesOptions, layout::NamingLayout};

use super::{
    Namespace,
    isolated::{guest, rerun},
};

/// Returns the variants of iptables (nft, legacy) to test on this kernel. In the guest VM (`lab/guest.sh`), whose
/// kernel has no nf_tables for iptables, only legacy is tested.
pub fn flavours() -> Vec<Flavour> {
    if is_guest() { vec![Flavour::Legacy] } else { Flavour::ALL.to_vec() }
}

pub fn is_guest() -> bool {
    std::env::var_os("TIDEGATE_GUEST").is_some()
}

/// Runs tests of this program, given by their full names, in the guest VM (`lab/guest.sh`), and fails if one
/// of them fails.
pub fn run_in_guest(tests: &[&str]) {
    rerun(&mut guest(), tests);
}

pub fn layout(naming: Naming) -> NamingLayout {
    NamingLayout { naming, masquerade_mark: 0x4000, drop_mark: 0x8000, drop_invalid: true }
}

pub fn backend(flavour: Flavour) -> IptablesBackend {
    named(flavour, Naming::Tidegate)
}

pub fn named(flavour: Flavour, naming: Naming) -> IptablesBackend {
    let options = IptablesOptions { layout: layout(naming), flavour: Some(flavour) };
    IptablesBackend::open(&options).unwrap()
}

/// Returns the IPv4 and IPv6 rules in a namespace as `iptables-save` of this variant (nft or legacy) prints them,
/// without dates and counters.
pub fn saved(namespace: &Namespace, flavour: Flavour) -> String {
    let mut text = String::new();
    for family in ["iptables", "ip6tables"] {
        let saved = namespace.exec(&[&format!("{family}-{}-save", flavour.as_str())]);
        for line in saved.lines().filter(|line| !line.starts_with('#')) {
            text += line.split(" [").next().unwrap();
            text.push('\n');
        }
    }
    text
}

/// Adds rules in a namespace: passes them to `iptables-restore --noflush` of this variant (nft or legacy).
pub fn restore(namespace: &Namespace, flavour: Flavour, family: &str, rules: &str) {
    let tool = format!("{family}-{}-restore", flavour.as_str());
    let script = format!("{tool} --noflush <<'END'\n{rules}\nEND\n");
    namespace.exec(&["sh", "-c", &script]);
}

/// Runs `iptables` of the variant `flavour` (nft or legacy) in a namespace and returns its output. `line` contains
/// the arguments, separated by spaces.
pub fn iptables(namespace: &Namespace, flavour: Flavour, line: &str) -> String {
    let tool = format!("iptables-{}", flavour.as_str());
    let words: Vec<_> = [tool.as_str()].into_iter().chain(line.split(' ')).collect();
    namespace.exec(&words)
}
