//! Test that a new proxy mode can be added by the steps in ARCHITECTURE.md. This toy mode stores packet
//! programs in a map and writes no kernel rules. It takes the place of userspace mode, because a test cannot
//! add a variant to `ProxyMode`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use dataplane::{
    BackendOptions, Dataplane, DesiredProgram, DesiredState, KernelCounters, KernelError, Opener, Outcome,
    Pass, Refusals, Scope, Traffic,
};
use kernel::conntrack::nudge::wire::Nudge;
use model::{
    kinds::{node::ProxyMode, resource::ServiceKey},
    primitives::quantity::Revision,
    program::Program,
    wire::{
        plan::LineChange,
        trace::{Packet, PacketTrace},
    },
};

/// Proxy mode whose backend the toy backend replaces.
const REPLACED: ProxyMode = ProxyMode::Userspace;

/// Kernel state of the toy mode; outlives the backend.
#[derive(Debug, Clone, Default)]
struct ToyKernel(Arc<Mutex<BTreeMap<ServiceKey, Arc<Program>>>>);

/// Backend of the toy mode.
#[derive(Debug)]
struct ToyDataplane {
    kernel: ToyKernel,
    mirror: BTreeMap<ServiceKey, Arc<Program>>,
    counters: KernelCounters,
}

impl ToyKernel {
    fn programs(&self) -> MutexGuard<'_, BTreeMap<ServiceKey, Arc<Program>>> {
        self.0.lock().unwrap()
    }

    /// Returns a function that opens the toy backend for the mode [`REPLACED`], and the agent's backends for
    /// other modes.
    fn opener(&self) -> Opener {
        let kernel = self.clone();
        Box::new(move |mode, options| {
            if mode != REPLACED {
                return dataplane::open(mode, options);
            }
            let (kernel, counters) = (kernel.clone(), KernelCounters::default());
            Ok(Box::new(ToyDataplane { kernel, mirror: BTreeMap::new(), counters }))
        })
    }
}

impl Dataplane for ToyDataplane {
    fn mode(&self) -> ProxyMode {
        REPLACED
    }

    fn begin(&mut self) -> Result<(), KernelError> {
        Ok(())
    }

    fn observe(&mut self) -> Result<(), KernelError> {
        self.mirror.clone_from(&self.kernel.programs());
        Ok(())
    }

    fn is_disturbed(&mut self) -> Result<bool, KernelError> {
        Ok(self.mirror != *self.kernel.programs())
    }

    fn apply(&mut self, desired: &DesiredState, scope: &Scope) -> Pass {
        let services: BTreeSet<ServiceKey> = match scope {
            Scope::Services(services) => services.clone(),
            Scope::Everything => self.mirror.keys().chain(desired.programs.keys()).cloned().collect(),
        };
        let (mut pass, mut programs) = (Pass::default(), self.kernel.programs());
        for service in services {
            let program = desired.programs.get(&service).map(|desired| Arc::clone(&desired.program));
            pass.writes += u64::from(programs.get(&service) != program.as_ref());
            match program {
                Some(program) => {
                    programs.insert(service.clone(), program);
                    pass.outcomes.insert(service, Outcome::Verified);
                }
                None => drop(programs.remove(&service)),
            }
        }
        self.mirror.clone_from(&programs);
        self.counters.transactions += u64::from(pass.writes > 0);
        pass
    }

    fn upkeep(&mut self) -> Result<(), KernelError> {
        Ok(())
    }

    fn take_cut(&mut self) -> Vec<Nudge> {
        Vec::new()
    }

    fn retire(&mut self) -> Result<bool, KernelError> {
        self.cleanup().map(|_| true)
    }

    fn abandon(&mut self) {}

    fn is_tracked(&self) -> bool {
        false
    }

    fn traffic(&mut self) -> Result<Vec<Traffic>, KernelError> {
        Ok(Vec::new())
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

    fn preview(&mut self, _: &DesiredState, _: &Scope) -> Result<Option<Vec<LineChange>>, KernelError> {
        Ok(None)
    }

    fn trace(&mut self, _: &[Packet]) -> Result<Option<Vec<PacketTrace>>, KernelError> {
        Ok(None)
    }

    fn cleanup(&mut self) -> Result<u64, KernelError> {
        self.mirror.clear();
        let removed = std::mem::take(&mut *self.kernel.programs());
        Ok(removed.values().map(|_| 1).sum())
    }

    fn counters(&self) -> KernelCounters {
        self.counters
    }

    fn relay_heap_bytes(&self) -> Option<u64> {
        None
    }
}

fn service(number: u8) -> ServiceKey {
    format!("default/s{number}").try_into().unwrap()
}

/// Returns the desired state with these Services, each with one virtual address.
fn desired(services: &[u8]) -> DesiredState {
    let program = |number: &u8| {
        let virtual_addresses = BTreeSet::from([IpAddr::from([10, 96, 0, *number])]);
        let program = Arc::new(Program { virtual_addresses, ..Program::default() });
        (service(*number), DesiredProgram { revision: Revision(1), program })
    };
    DesiredState { programs: services.iter().map(program).collect(), ..DesiredState::default() }
}

/// The test mode writes each change once when two Services are added and one of them is removed. A second
/// backend that starts on the existing kernel state writes nothing.
#[test]
fn a_toy_mode_is_opened_by_its_arm_and_programs_the_desired_state() {
    let kernel = ToyKernel::default();
    let mut opener = kernel.opener();
    let mut backend = opener(REPLACED, &BackendOptions::default()).unwrap();
    backend.begin().unwrap();
    backend.observe().unwrap();
    let pass = backend.apply(&desired(&[1, 2]), &Scope::Everything);
    assert_eq!((pass.writes, pass.failed.is_none()), (2, true));
    assert_eq!(pass.outcomes, [1, 2].map(|number| (service(number), Outcome::Verified)).into());
    assert_eq!(backend.apply(&desired(&[1, 2]), &Scope::Everything).writes, 0);
    backend.abandon();

    let mut next = opener(REPLACED, &BackendOptions::default()).unwrap();
    next.observe().unwrap();
    assert_eq!(next.apply(&desired(&[1, 2]), &Scope::Everything).writes, 0);
    assert_eq!(next.apply(&desired(&[1]), &Scope::Services([service(2)].into())).writes, 1);
    assert_eq!(kernel.programs().keys().cloned().collect::<Vec<_>>(), [service(1)]);
    kernel.programs().clear();
    assert!(next.is_disturbed().unwrap());
    assert_eq!(next.apply(&desired(&[1]), &Scope::Everything).writes, 1);
    assert_eq!((next.cleanup().unwrap(), kernel.programs().len()), (1, 0));
}
