//! How the engine is doing, for those who ask: liveness, readiness and metrics.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicI64, AtomicU64},
};

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use serde_json::Value;

/// What is known of the work.
pub struct Progress {
    registry: Registry,
    written: Counter<u64, AtomicU64>,
    removed: Counter<u64, AtomicU64>,
    wanted: Gauge<i64, AtomicI64>,
    present: Gauge<i64, AtomicI64>,
    refused: Gauge<i64, AtomicI64>,
    held: Gauge<i64, AtomicI64>,
    open: Gauge<i64, AtomicI64>,
    complete: Gauge<i64, AtomicI64>,
    reached: Gauge<i64, AtomicI64>,
    has_begun: AtomicBool,
    trouble: Mutex<Trouble>,
    networks: Mutex<Option<Value>>,
}

#[derive(Debug, Default)]
struct Trouble {
    control: Option<String>,
    source: Vec<String>,
}

/// Complaints of a source that are kept.
const COMPLAINTS_MAX: usize = 100;

impl Default for Progress {
    fn default() -> Self {
        let (written, removed) = (Counter::default(), Counter::default());
        let [wanted, present, refused, held, open, complete, reached] =
            std::array::from_fn(|_| Gauge::default());
        let mut registry = Registry::with_prefix("tidegate_sync");
        registry.register("objects_written", "Objects made or replaced", written.clone());
        registry.register("objects_removed", "Objects removed", removed.clone());
        for (name, help, gauge) in [
            ("objects_wanted", "Objects that the source wants", &wanted),
            ("objects_present", "Objects of the source in Tidegate", &present),
            ("objects_refused", "Objects that control refuses", &refused),
            ("objects_held", "Changes that wait for somebody to confirm them", &held),
            ("objects_open", "Objects that may differ and have not been looked at", &open),
            ("source_complete", "Whether the source has been read to its end", &complete),
            ("control_reached", "Whether control answers", &reached),
        ] {
            let gauge: &Gauge<i64, AtomicI64> = gauge;
            registry.register(name, help, gauge.clone());
        }
        let (has_begun, trouble) = (AtomicBool::new(false), Mutex::default());
        Self {
            registry,
            written,
            removed,
            wanted,
            present,
            refused,
            held,
            open,
            complete,
            reached,
            has_begun,
            trouble,
            networks: Mutex::default(),
        }
    }
}

impl Progress {
    pub(super) fn written(&self) {
        self.written.inc();
    }

    pub(super) fn removed(&self) {
        self.removed.inc();
    }

    pub(super) fn source(&self, objects: usize, is_complete: bool) {
        self.wanted.set(number(objects));
        self.complete.set(i64::from(is_complete));
    }

    pub(super) fn state(&self, present: usize, refused: usize, held: usize, open: usize) {
        self.present.set(number(present));
        self.refused.set(number(refused));
        self.held.set(number(held));
        self.open.set(number(open));
        self.has_begun.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    pub(super) fn control(&self, trouble: Option<String>) {
        self.reached.set(i64::from(trouble.is_none()));
        self.lock().control = trouble;
    }

    /// What a source finds wrong with what it reads; the whole of it.
    pub fn complain(&self, mut complaints: Vec<String>) {
        complaints.truncate(COMPLAINTS_MAX);
        self.lock().source = complaints;
    }

    /// What networks a source has and who is in them; the whole of it.
    pub fn show_networks(&self, networks: Value) {
        *self.networks.lock().unwrap_or_else(PoisonError::into_inner) = Some(networks);
    }

    /// What networks the source has; `None` for sources that have none.
    #[must_use]
    pub fn networks(&self) -> Option<Value> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the source finds something wrong with what it reads.
    #[must_use]
    pub fn has_complaints(&self) -> bool {
        !self.lock().source.is_empty()
    }

    /// What is not as it should be, a line each; nothing when Tidegate is equal to the source.
    #[must_use]
    pub fn trouble(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.complete.get() == 0 {
            lines.push("the source has not been read to its end; nothing is removed".to_owned());
        }
        if !self.has_begun.load(std::sync::atomic::Ordering::Relaxed) {
            lines.push("what there is in Tidegate has not been heard".to_owned());
        }
        for (gauge, text) in [
            (&self.refused, "objects are refused"),
            (&self.held, "changes wait for somebody to confirm them"),
            (&self.open, "objects are about to be written"),
        ] {
            if gauge.get() > 0 {
                lines.push(format!("{} {text}", gauge.get()));
            }
        }
        let trouble = self.lock();
        lines.extend(trouble.control.iter().map(|cause| format!("control: {cause}")));
        lines.extend(trouble.source.iter().cloned());
        lines
    }

    /// The metrics in the text format of Prometheus.
    #[must_use]
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _written = encode(&mut text, &self.registry);
        text
    }

    fn lock(&self) -> MutexGuard<'_, Trouble> {
        // Every change is complete before the lock is given back.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
