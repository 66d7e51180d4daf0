//! Status of the engine for liveness, readiness and metrics.

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

/// Status shared by source, engine and HTTP server.
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

/// Maximum number of source errors kept.
const COMPLAINTS_MAX: usize = 100;

impl Default for Progress {
    fn default() -> Self {
        let (written, removed) = (Counter::default(), Counter::default());
        let [wanted, present, refused, held, open, complete, reached] =
            std::array::from_fn(|_| Gauge::default());
        let mut registry = Registry::with_prefix("tidegate_sync");
        registry.register("objects_written", "Objects created or replaced", written.clone());
        registry.register("objects_removed", "Objects removed", removed.clone());
        for (name, help, gauge) in [
            ("objects_wanted", "Objects desired by the source", &wanted),
            ("objects_present", "Objects of the source in Tidegate", &present),
            ("objects_refused", "Objects rejected by the control server", &refused),
            ("objects_held", "Changes that wait for confirmation", &held),
            ("objects_open", "Objects that may differ and are not reconciled yet", &open),
            ("source_complete", "Whether the source has been read completely", &complete),
            ("control_reached", "Whether the control server responds", &reached),
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

    /// Replaces the errors that the source reports.
    pub fn complain(&self, mut complaints: Vec<String>) {
        complaints.truncate(COMPLAINTS_MAX);
        self.lock().source = complaints;
    }

    /// Replaces the published report on the container engine's networks and their containers.
    pub fn show_networks(&self, networks: Value) {
        *self.networks.lock().unwrap_or_else(PoisonError::into_inner) = Some(networks);
    }

    /// Returns the report on the container engine's networks; `None` for sources other than `docker`.
    #[must_use]
    pub fn networks(&self) -> Option<Value> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns true if the source currently reports errors.
    #[must_use]
    pub fn has_complaints(&self) -> bool {
        !self.lock().source.is_empty()
    }

    /// Returns one line per problem; empty if Tidegate matches the source.
    #[must_use]
    pub fn trouble(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.complete.get() == 0 {
            lines.push("the source has not been read completely; nothing is removed".to_owned());
        }
        if !self.has_begun.load(std::sync::atomic::Ordering::Relaxed) {
            lines.push("the objects on the control server have not been listed yet".to_owned());
        }
        for (gauge, text) in [
            (&self.refused, "objects are rejected"),
            (&self.held, "changes wait for confirmation"),
            (&self.open, "objects are not written yet"),
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

    /// Encodes the metrics in the Prometheus text format.
    #[must_use]
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _written = encode(&mut text, &self.registry);
        text
    }

    fn lock(&self) -> MutexGuard<'_, Trouble> {
        // Every update under the lock is complete, so a poisoned lock is still usable.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
