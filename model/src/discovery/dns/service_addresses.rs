//! Addresses of Services by their names, which most questions ask for. The answers are those of the general search; the
//! index only saves the work of finding them.

use std::{net::IpAddr, slice, sync::Arc};

use imbl::HashMap;

use super::hosts::Hosts;
use crate::{
    cluster::snapshot::Snapshot,
    kinds::{resource::ServiceKey, service::ServiceSpec},
};

/// Addresses of all Services that have any, by `SERVICE.NAMESPACE`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServiceAddressIndex(HashMap<Box<str>, ServiceAddresses>);

/// Addresses of one Service, in the order of its answers: cluster IPs, or the addresses of the usable endpoints of a
/// headless Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServiceAddresses {
    addresses: Addresses,
    /// True if the Service is headless, so that the records have another time.
    pub(super) is_headless: bool,
}

/// At least one address.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Addresses {
    /// The only address, in place: most Services have one.
    One(IpAddr),
    Several(Arc<[IpAddr]>),
}

impl ServiceAddresses {
    /// Returns the addresses, at least one.
    pub(super) fn addresses(&self) -> &[IpAddr] {
        match &self.addresses {
            Addresses::One(address) => slice::from_ref(address),
            Addresses::Several(addresses) => addresses,
        }
    }
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
        let addresses: Vec<IpAddr> = match hosts {
            Some(hosts) => hosts.addresses().into_iter().collect(),
            None => spec
                .filter(|spec| !spec.is_external_name())
                .into_iter()
                .flat_map(ServiceSpec::cluster_addresses)
                .collect(),
        };
        let addresses = match addresses[..] {
            [] => return drop(self.0.remove(&*key)),
            [address] => Addresses::One(address),
            [_, _, ..] => Addresses::Several(addresses.into()),
        };
        let is_headless = hosts.is_some();
        self.0.insert(key.into(), ServiceAddresses { addresses, is_headless });
    }
}
