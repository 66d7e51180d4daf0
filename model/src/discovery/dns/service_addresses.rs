//! Addresses of Services by their names, which most questions ask for. The answers are those of the general search; the
//! index only saves the work of finding them.

use std::{net::IpAddr, sync::Arc};

use imbl::HashMap;

use super::hosts::Hosts;
use crate::{
    cluster::snapshot::Snapshot,
    kinds::{resource::ServiceKey, service::ServiceSpec},
};

/// Addresses of all Services that have any, by `SERVICE.NAMESPACE`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServiceAddressIndex(HashMap<Box<str>, ServiceAddresses>);

/// Addresses of one Service, in the order of its answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServiceAddresses {
    /// Cluster IPs, or the addresses of the usable endpoints of a headless Service.
    pub(super) addresses: Arc<[IpAddr]>,
    /// True if the Service is headless, so that the records have another time.
    pub(super) is_headless: bool,
}

impl ServiceAddressIndex {
    /// Returns the addresses of a Service, given by `SERVICE.NAMESPACE`; `None` if it does not exist or has none.
    pub(super) fn get(&self, key: &str) -> Option<&ServiceAddresses> {
        self.0.get(key)
    }

    /// Takes over the state of a Service; `hosts` are its endpoints if it is headless.
    pub(super) fn refresh(&mut self, snapshot: &Snapshot, service: &ServiceKey, hosts: Option<&Hosts>) {
        // A name of several labels is that of an endpoint of another Service.
        if !service.name.is_label() {
            return;
        }
        let key = format!("{}.{}", service.name, service.namespace);
        let spec = snapshot.service(service).and_then(|object| object.as_service());
        let addresses: Arc<[IpAddr]> = match hosts {
            Some(hosts) => hosts.addresses().into_iter().collect(),
            None => spec
                .filter(|spec| !spec.is_external_name())
                .into_iter()
                .flat_map(ServiceSpec::cluster_addresses)
                .collect(),
        };
        if addresses.is_empty() {
            self.0.remove(&*key);
        } else {
            let is_headless = hosts.is_some();
            self.0.insert(key.into(), ServiceAddresses { addresses, is_headless });
        }
    }
}
