//! Metrics of the store that control servers share (etcd). Other stores have no counters and add no metrics.

use std::time::Duration;

use prometheus_client::{
    metrics::counter::ConstCounter,
    registry::{Registry, Unit},
};
use store::Figures;

/// Registers the counters of an etcd store as metrics.
pub(crate) fn register(registry: &mut Registry, figures: Figures) {
    let Figures { commits, commit_micros, conflicts, in_doubt, calls, call_micros, failed_calls, folded } =
        figures;
    for (name, help, count) in [
        ("store_commits", "Groups committed to the shared store", commits),
        ("store_conflicts", "Groups rejected because another control server had committed", conflicts),
        ("store_in_doubt", "Groups whose commit was in doubt for a while", in_doubt),
        ("store_calls", "Calls to the shared store", calls),
        ("store_failed_calls", "Calls to the shared store that failed", failed_calls),
        ("store_folded_commits", "Commits that this server folded from the log into objects", folded),
    ] {
        registry.register(name, help, ConstCounter::new(count));
    }
    for (name, help, micros) in [
        ("store_commit_time", "Time of group commits to the shared store", commit_micros),
        ("store_call_time", "Time of calls to the shared store", call_micros),
    ] {
        let seconds = Duration::from_micros(micros).as_secs_f64();
        registry.register_with_unit(name, help, Unit::Seconds, ConstCounter::new(seconds));
    }
}
