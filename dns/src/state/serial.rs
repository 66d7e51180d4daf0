//! Serial numbers of the zones of DnsZones (RFC 1034 §4.3.5): times in seconds, so that all servers give about the same
//! number to the same content, and a later state has a higher number, also after a restart without the state on disk.

use std::time::{SystemTime, UNIX_EPOCH};

use model::discovery::dns::Zone;

/// Returns the state with the serial number that follows the one of the current state: a higher one if answers in the
/// zones of DnsZones may have changed, otherwise the same.
pub(super) fn numbered(zone: &Zone, current: Option<&Zone>) -> Zone {
    zone.with_external_serial(next(zone, current.map_or(0, Zone::external_serial), now()))
}

/// Returns the serial number of a state after the number `known` at a time in seconds. Several changes within a second
/// count on, ahead of the time.
fn next(zone: &Zone, known: u32, now: u32) -> u32 {
    if zone.has_external_changes() { known.wrapping_add(1).max(now) } else { known }
}

/// Returns the seconds since 1970, modulo 2^32.
fn now() -> u32 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    u32::try_from(elapsed & u64::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use model::{cluster::snapshot::Snapshot, discovery::dns::ZoneSettings};

    use super::*;

    /// The number rises with each change, at least to the time, and stays without a change.
    #[test]
    fn the_serial_number_rises_with_changes_only() {
        let settings = ZoneSettings::new("cluster.local".parse().unwrap());
        let zone = Zone::new(settings, Snapshot::default());
        assert_eq!(next(&zone, 0, 1000), 1000);
        let zone = zone.with_external_serial(1000);
        assert_eq!(next(&zone, 1000, 2000), 1000);
        let changed = zone.with_announced(Some(Arc::new(BTreeSet::from(["192.0.2.1".parse().unwrap()]))));
        assert_eq!(next(&changed, 1000, 2000), 2000);
        assert_eq!(next(&changed, 2000, 2000), 2001);
        let numbered = numbered(&changed, Some(&zone));
        assert!(numbered.external_serial() > 1000 && !numbered.has_external_changes());
    }
}
