//! The settings of announcing, checked.

use std::{num::NonZeroU8, time::Duration};

use super::{ConfigError, options::AnnounceSettings};
use crate::announce::ports::OnExit;

/// Time between packets to other nodes when nothing else is said, in milliseconds.
const PEER_INTERVAL_MS_DEFAULT: u32 = 250;
/// Packets that may be missing when nothing else is said.
const PEER_MULTIPLIER_DEFAULT: u8 = 3;

/// How other nodes are watched, and what becomes of addresses in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnnounceConfig {
    /// Time between two packets to each other node.
    pub peer_interval: Duration,
    /// Packets that may be missing.
    pub peer_multiplier: NonZeroU8,
    /// What becomes of announced addresses when the agent is stopped.
    pub on_exit: OnExit,
}

impl AnnounceConfig {
    /// Time after which another node that falls silent is noticed.
    #[must_use]
    pub fn detection_time(&self) -> Duration {
        self.peer_interval * u32::from(self.peer_multiplier.get())
    }

    /// Fills in defaults and checks.
    ///
    /// # Errors
    /// The first setting that cannot be.
    pub fn check(settings: AnnounceSettings) -> Result<Self, ConfigError> {
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
        Ok(Self { peer_interval: Duration::from_millis(interval.into()), peer_multiplier, on_exit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_with_the_flag() {
        let defaults = AnnounceConfig::check(AnnounceSettings::default()).unwrap();
        assert_eq!(defaults.detection_time(), Duration::from_millis(750));
        assert_eq!(defaults.on_exit, OnExit::Handover);
        let wrong = |settings| AnnounceConfig::check(settings).unwrap_err().to_string();
        let none = AnnounceSettings::default;
        let interval = wrong(AnnounceSettings { peer_interval_ms: Some(9), ..none() });
        assert!(interval.contains("--peer-interval-ms") && interval.contains("10 to 10000"), "{interval}");
        let multiplier = wrong(AnnounceSettings { peer_multiplier: Some(1), ..none() });
        assert!(multiplier.contains("--peer-multiplier") && multiplier.contains("2 to 50"), "{multiplier}");
        let on_exit = wrong(AnnounceSettings { on_exit: Some("stay".to_owned()), ..none() });
        assert!(on_exit.contains("--on-exit") && on_exit.contains("`keep`"), "{on_exit}");
    }
}
