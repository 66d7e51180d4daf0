//! Names of the proxy modes, derived from [`ProxyMode`]. Tests and benchmarks that run in every mode use
//! these lists, so that a new mode is included or compilation fails.

use model::kinds::node::ProxyMode;

/// Names of all modes: first those that every kernel supports, then those that need the guest VM.
pub const ALL: [&str; ProxyMode::ALL.len()] = {
    let mut names = [""; ProxyMode::ALL.len()];
    let (mut native, mut guest) = (0, NATIVE_COUNT);
    let mut index = 0;
    while index < names.len() {
        let mode = ProxyMode::ALL[index];
        let place = if needs_guest(mode) { &mut guest } else { &mut native };
        names[*place] = mode.as_str();
        *place += 1;
        index += 1;
    }
    names
};
/// Names of the modes that every kernel supports, in display order.
pub const NATIVE: [&str; NATIVE_COUNT] = *ALL.first_chunk().expect("a part of the list");
/// Names of the modes that need the kernel of the guest VM (`lab/guest.sh`).
pub const GUEST: [&str; ALL.len() - NATIVE_COUNT] = *ALL.last_chunk().expect("a part of the list");

const NATIVE_COUNT: usize = {
    let (mut count, mut index) = (0, 0);
    while index < ProxyMode::ALL.len() {
        if !needs_guest(ProxyMode::ALL[index]) {
            count += 1;
        }
        index += 1;
    }
    count
};

/// Returns true if the mode requires a kernel module, such as IPVS, that only the kernel of the guest VM is
/// sure to have.
const fn needs_guest(mode: ProxyMode) -> bool {
    match mode {
        ProxyMode::Ipvs => true,
        ProxyMode::Nftables | ProxyMode::Iptables | ProxyMode::Userspace => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_contain_every_mode_once() {
        let mut names = [NATIVE.as_slice(), GUEST.as_slice()].concat();
        assert_eq!(names, ALL);
        names.sort_unstable();
        let mut all: Vec<_> = ProxyMode::ALL.iter().map(|mode| mode.as_str()).collect();
        all.sort_unstable();
        assert_eq!(names, all);
    }
}
