//! What the store says of its own work, as metrics of the moment; stores that count nothing add none.

use std::time::Duration;

use prometheus_client::{
    metrics::counter::ConstCounter,
    registry::{Registry, Unit},
};
use store::Figures;

/// Adds the counters.
pub(crate) fn register(registry: &mut Registry, figures: Figures) {
    let Figures { commits, commit_micros, conflicts, in_doubt, calls, call_micros, failed_calls, folded } =
        figures;
    for (name, help, count) in [
        ("store_commits", "Groups that the shared store took", commits),
        ("store_conflicts", "Groups refused because another control server had written", conflicts),
        (
            "store_in_doubt",
            "Groups of which it was unknown for a while whether they were committed",
            in_doubt,
        ),
        ("store_calls", "Calls to the shared store", calls),
        ("store_failed_calls", "Calls to the shared store without an answer that counts", failed_calls),
        ("store_folded_commits", "Commits that this server folded from the log into objects", folded),
    ] {
        registry.register(name, help, ConstCounter::new(count));
    }
    for (name, help, micros) in [
        ("store_commit_time", "Time that groups took to be committed to the shared store", commit_micros),
        ("store_call_time", "Time that calls to the shared store took", call_micros),
    ] {
        let seconds = Duration::from_micros(micros).as_secs_f64();
        registry.register_with_unit(name, help, Unit::Seconds, ConstCounter::new(seconds));
    }
}
