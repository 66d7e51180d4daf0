//! Builders of agents with in-memory kernels, one kernel per proxy mode.

use std::{collections::BTreeMap, io};

use model::kinds::node::ProxyMode;
use node_agent::{
    agent::{Agent, Beginning, Kernel},
    conntrack::memory::MemoryFlows,
    dataplane::{BackendOptions, KernelError, OpenError, memory::MemoryKernel},
    defaults::ProxyDefaults,
    tally::Tally,
};

use super::{dir::StateDir, states::node_name};

/// In-memory kernels of a node by proxy mode. A mode that has no kernel cannot be opened.
#[derive(Clone, Default)]
pub struct Kernels {
    pub by_mode: BTreeMap<ProxyMode, MemoryKernel>,
    pub flows: MemoryFlows,
}

impl Kernels {
    /// Creates the in-memory kernels of a node on which only nftables mode can be opened.
    pub fn only(kernel: &MemoryKernel) -> Self {
        Self { by_mode: [(ProxyMode::Nftables, kernel.clone())].into(), flows: MemoryFlows::default() }
    }

    pub fn of(modes: &[ProxyMode]) -> Self {
        let by_mode = modes.iter().map(|mode| (*mode, MemoryKernel::default())).collect();
        Self { by_mode, flows: MemoryFlows::default() }
    }

    pub fn ways(&self) -> Kernel {
        let kernels = self.by_mode.clone();
        let open = move |mode: ProxyMode, _: &BackendOptions| match kernels.get(&mode) {
            Some(kernel) => Ok(Box::new(kernel.open_as(mode)) as _),
            None => {
                let source = io::Error::other("this machine lacks it");
                Err(OpenError::Kernel(KernelError { action: "opening".to_owned(), source }))
            }
        };
        Kernel {
            open: Box::new(open),
            flows: Box::new(self.flows.clone()),
            routes: Box::new(node_agent::service_routes::NoServiceRoutes),
        }
    }
}

/// Creates an agent with a state directory, these in-memory kernels, and the counters `tally`, which the
/// agent increments. `now` is the initial time.
pub fn agent(dir: &StateDir, kernels: &Kernels, tally: &Tally, now: std::time::Instant) -> Agent {
    let (journal, state) = dir.open();
    let beginning = Beginning {
        node: node_name(),
        kernel: kernels.ways(),
        defaults: ProxyDefaults::default(),
        journal,
        state,
        tally: tally.clone(),
    };
    Agent::new(beginning, now).unwrap()
}
