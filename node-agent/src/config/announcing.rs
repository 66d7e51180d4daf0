//! Validation of the settings for announcing load balancer addresses.

use std::{num::NonZeroU8, time::Duration};

use announce::{AnnounceConfig, ownership::io_traits::OnExit};

use super::{ConfigError, options::AnnounceSettings};

/// Default interval of the packets by which nodes monitor each other, in milliseconds.
const PEER_INTERVAL_MS_DEFAULT: u32 = 250;
/// Default number of missed packets after which another node is considered down.
const PEER_MULTIPLIER_DEFAULT: u8 = 3;

/// Applies defaults to the announcement settings and validates them.
///
/// # Errors
/// Returns the first invalid setting.
pub fn check(settings: AnnounceSettings) -> Result<AnnounceConfig, ConfigError> {
    let AnnounceSettings { peer_interval_ms, peer_multiplier, on_exit } = settings;
    let interval = peer_interval_ms.unwrap_or(PEER_INTERVAL_MS_DEFAULT);
    if !(10..=10_000).contains(&interval) {
        return Err(setting_error!(
            "peer-interval-ms",
            "TIDEGATE_PEER_INTERVAL_MS",
            "must be 10 to 10000, not {interval}; {PEER_INTERVAL_MS_DEFAULT} is the default"
        ));
    }
    let multiplier = peer_multiplier.unwrap_or(PEER_MULTIPLIER_DEFAULT);
    let allowed = NonZeroU8::new(multiplier).filter(|multiplier| (2..=50).contains(&multiplier.get()));
    let peer_multiplier = allowed.ok_or_else(|| {
        setting_error!(
            "peer-multiplier",
            "TIDEGATE_PEER_MULTIPLIER",
            "must be 2 to 50, not {multiplier}; {PEER_MULTIPLIER_DEFAULT} is the default"
        )
    })?;
    let on_exit = match on_exit.as_deref() {
        None | Some("handover") => OnExit::Handover,
        Some("keep") => OnExit::Keep,
        Some(text) => {
            return Err(setting_error!(
                "on-exit",
                "TIDEGATE_ON_EXIT",
                "must be `handover` or `keep`, not `{text}`"
            ));
        }
    };
    Ok(AnnounceConfig { peer_interval: Duration::from_millis(interval.into()), peer_multiplier, on_exit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_with_the_flag() {
        let defaults = check(AnnounceSettings::default()).unwrap();
        assert_eq!(defaults.detection_time(), Duration::from_millis(750));
        assert_eq!(defaults.on_exit, OnExit::Handover);
        let wrong = |settings| check(settings).unwrap_err().to_string();
        let none = AnnounceSettings::default;
        let interval = wrong(AnnounceSettings { peer_interval_ms: Some(9), ..none() });
        assert!(interval.contains("--peer-interval-ms") && interval.contains("10 to 10000"), "{interval}");
        let multiplier = wrong(AnnounceSettings { peer_multiplier: Some(1), ..none() });
        assert!(multiplier.contains("--peer-multiplier") && multiplier.contains("2 to 50"), "{multiplier}");
        let on_exit = wrong(AnnounceSettings { on_exit: Some("stay".to_owned()), ..none() });
        assert!(on_exit.contains("--on-exit") && on_exit.contains("`keep`"), "{on_exit}");
    }
}
