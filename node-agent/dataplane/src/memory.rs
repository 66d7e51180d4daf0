//! In-memory kernel that holds packet programs (the Services' frontends with their verdicts) instead of
//! rules. Tests and simulated agents use it as a fake kernel, and tests use it to compute the correct fate of
//! a connection. Like a real kernel it outlives the backend, can be changed by other programs, and can reject
//! writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use kernel::conntrack::nudge::wire::Nudge;
use model::{
    kinds::{node::ProxyMode, resource::ServiceKey},
    program::{
        Program,
        oracle::{self, Connection, Fate, Networks},
    },
    wire::{
        plan::LineChange,
        report::FailureReason,
        trace::{Packet, PacketTrace},
    },
};

use super::{Dataplane, DesiredState, KernelCounters, KernelError, Outcome, Pass, Refusals, Scope, Traffic};

/// Packet programs and networks that an in-memory kernel holds, in place of rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// Packet program of each programmed Service.
    pub programs: BTreeMap<ServiceKey, Arc<Program>>,
    /// Workload networks, masqueraded sources and node port addresses, as last applied.
    pub networks: Networks,
}

/// In-memory kernel; clones refer to the same kernel.
#[derive(Debug, Clone, Default)]
pub struct MemoryKernel(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    contents: Contents,
    generation: u64,
    refused: BTreeMap<ServiceKey, String>,
    calls_to_fail: u32,
    /// Number of further calls of `retire` that report connections left, before one reports that none is left.
    retirement: u32,
    traffic: Vec<Traffic>,
}

impl MemoryKernel {
    /// Opens a backend for this kernel, as a starting agent does.
    #[must_use]
    pub fn open(&self) -> MemoryDataplane {
        self.open_as(ProxyMode::Nftables)
    }

    /// Opens a backend that reports the given proxy mode.
    #[must_use]
    pub fn open_as(&self, mode: ProxyMode) -> MemoryDataplane {
        MemoryDataplane {
            kernel: self.clone(),
            mode,
            mirror: Contents::default(),
            seen: None,
            counters: KernelCounters::default(),
        }
    }

    /// Returns a copy of the packet programs and networks that the kernel holds now.
    #[must_use]
    pub fn contents(&self) -> Contents {
        self.lock().contents.clone()
    }

    /// Changes the contents as another program would, without the backend's knowledge.
    pub fn disturb(&self, change: impl FnOnce(&mut Contents)) {
        let mut inner = self.lock();
        change(&mut inner.contents);
        inner.generation += 1;
    }

    /// Makes the kernel reject all further packet programs of a Service with a message; `None` accepts them again.
    pub fn refuse(&self, service: &ServiceKey, message: Option<&str>) {
        let mut inner = self.lock();
        match message {
            Some(message) => inner.refused.insert(service.clone(), message.to_owned()),
            None => inner.refused.remove(service),
        };
    }

    /// Makes the next `count` calls of `retire` report that connections are left.
    pub fn retire_after(&self, count: u32) {
        self.lock().retirement = count;
    }

    /// Sets the traffic counters that every backend of this kernel returns.
    pub fn set_traffic(&self, traffic: Vec<Traffic>) {
        self.lock().traffic = traffic;
    }

    /// Fails the next `count` calls of `observe` and `apply` as a whole.
    pub fn fail_calls(&self, count: u32) {
        self.lock().calls_to_fail = count;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("the lock is not poisoned")
    }

    fn fail_if_told(&self, action: &str) -> Result<(), KernelError> {
        let mut inner = self.lock();
        if inner.calls_to_fail == 0 {
            return Ok(());
        }
        inner.calls_to_fail -= 1;
        Err(KernelError { action: action.to_owned(), source: io::Error::other("told to fail") })
    }
}

impl Contents {
    /// Returns the fate of a new connection (forwarded, rejected or dropped) according to the packet programs in
    /// the kernel.
    #[must_use]
    pub fn fate(&self, connection: &Connection) -> Fate {
        oracle::fate(self.programs.values().map(AsRef::as_ref), &self.networks, connection)
    }
}

/// Backend that programs a [`MemoryKernel`] instead of the Linux kernel.
#[derive(Debug)]
pub struct MemoryDataplane {
    kernel: MemoryKernel,
    mode: ProxyMode,
    mirror: Contents,
    seen: Option<u64>,
    counters: KernelCounters,
}

impl MemoryDataplane {
    /// Programs one Service in the in-memory kernel and returns the outcome; `None` if the Service is not
    /// desired and was removed.
    fn apply_service(
        &mut self,
        key: &ServiceKey,
        desired: &DesiredState,
        writes: &mut u64,
    ) -> Option<Outcome> {
        let wanted = desired.programs.get(key).map(|desired| Arc::clone(&desired.program));
        let mut inner = self.kernel.lock();
        let refusal = inner.refused.get(key).cloned().filter(|_| wanted.is_some());
        // A rejected Service is removed, not left half programmed.
        let put = if refusal.is_some() { None } else { wanted.clone() };
        if self.mirror.programs.get(key) != put.as_ref() {
            *writes += 1;
            match put {
                Some(program) => {
                    inner.contents.programs.insert(key.clone(), Arc::clone(&program));
                    self.mirror.programs.insert(key.clone(), program);
                }
                None => {
                    inner.contents.programs.remove(key);
                    self.mirror.programs.remove(key);
                }
            }
        }
        let failed = |message| Outcome::Failed { reason: FailureReason::KernelRefused, message };
        wanted.map(|_| refusal.map_or(Outcome::Verified, failed))
    }
}

impl Dataplane for MemoryDataplane {
    fn mode(&self) -> ProxyMode {
        self.mode
    }

    fn begin(&mut self) -> Result<(), KernelError> {
        Ok(())
    }

    fn observe(&mut self) -> Result<(), KernelError> {
        self.kernel.fail_if_told("reading the kernel in memory")?;
        let inner = self.kernel.lock();
        self.mirror = inner.contents.clone();
        self.seen = Some(inner.generation);
        Ok(())
    }

    fn is_disturbed(&mut self) -> Result<bool, KernelError> {
        Ok(self.seen != Some(self.kernel.lock().generation))
    }

    fn apply(&mut self, desired: &DesiredState, scope: &Scope) -> Pass {
        if let Err(error) = self.kernel.fail_if_told("writing the kernel in memory") {
            return Pass { failed: Some(error), ..Pass::default() };
        }
        let keys: BTreeSet<ServiceKey> = match scope {
            Scope::Services(keys) => keys.clone(),
            Scope::Everything => {
                desired.programs.keys().chain(self.mirror.programs.keys()).cloned().collect()
            }
        };
        let mut pass = Pass::default();
        for key in keys {
            if let Some(outcome) = self.apply_service(&key, desired, &mut pass.writes) {
                pass.outcomes.insert(key, outcome);
            }
        }
        if self.mirror.networks != desired.networks {
            self.mirror.networks.clone_from(&desired.networks);
            self.kernel.lock().contents.networks.clone_from(&desired.networks);
            pass.writes += 1;
        }
        self.counters.transactions += u64::from(pass.writes > 0);
        self.counters.messages += pass.writes;
        pass
    }

    fn upkeep(&mut self) -> Result<(), KernelError> {
        Ok(())
    }

    fn take_cut(&mut self) -> Vec<Nudge> {
        Vec::new()
    }

    fn retire(&mut self) -> Result<bool, KernelError> {
        let mut inner = self.kernel.lock();
        if inner.retirement > 0 {
            inner.retirement -= 1;
            return Ok(false);
        }
        drop(inner);
        self.cleanup().map(|_| true)
    }

    fn abandon(&mut self) {}

    fn is_tracked(&self) -> bool {
        true
    }

    fn traffic(&mut self) -> Result<Vec<Traffic>, KernelError> {
        Ok(self.kernel.lock().traffic.clone())
    }

    fn sees_refusals(&self) -> bool {
        false
    }

    fn refusals(&mut self) -> Result<Vec<Refusals>, KernelError> {
        Ok(Vec::new())
    }

    fn is_counted_by_flows(&self) -> bool {
        false
    }

    fn preview(
        &mut self,
        _desired: &DesiredState,
        _scope: &Scope,
    ) -> Result<Option<Vec<LineChange>>, KernelError> {
        Ok(None)
    }

    fn trace(&mut self, _packets: &[Packet]) -> Result<Option<Vec<PacketTrace>>, KernelError> {
        Ok(None)
    }

    fn cleanup(&mut self) -> Result<u64, KernelError> {
        let contents = std::mem::take(&mut self.kernel.lock().contents);
        self.mirror = Contents::default();
        let count = contents.programs.len() + contents.networks.masquerade_sources.len();
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    fn counters(&self) -> KernelCounters {
        self.counters
    }

    fn relay_heap_bytes(&self) -> Option<u64> {
        None
    }
}
