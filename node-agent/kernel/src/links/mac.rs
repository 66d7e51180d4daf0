//! Ethernet addresses of interfaces.

use std::fmt;

/// Ethernet address of an interface or neighbor (IEEE 802, 48 bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Ethernet broadcast address, `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// Zero address, which stands for an unknown address in ARP requests.
    pub const ZERO: Self = Self([0; 6]);

    /// Returns true if the address can identify one station: neither multicast nor zero.
    #[must_use]
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self != Self::ZERO
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_address_of_one_station_is_unicast() {
        assert!(Mac([2, 0, 0, 0, 0, 1]).is_unicast());
        for none in [Mac::ZERO, Mac::BROADCAST, Mac([0x33, 0x33, 0, 0, 0, 1])] {
            assert!(!none.is_unicast(), "{none}");
        }
        assert_eq!(Mac([2, 0, 0xab, 0, 0, 1]).to_string(), "02:00:ab:00:00:01");
    }
}
