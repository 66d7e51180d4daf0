//! Detection of changes by other programs. IPVS and ipset have no change notifications, so this module polls.
//!
//! Each poll reads the addresses, the headers of all sets, and a limited number of virtual servers (a
//! window); the next poll continues with the following servers. A set header contains the number of elements
//! and of referring rules, so it reveals flushed sets and flushed rules. A full listing of the rules, which
//! starts a process, is made once in many polls.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Bound,
};

use model::primitives::net::IpFamily;

use super::{
    IpvsBackend, rules,
    server::Socket,
    sets::{self, Set},
    sysctls,
};

/// Number of virtual servers read per poll, which covers all of them on most nodes. The next poll continues
/// after them. A loss of all servers is detected by any poll.
const SERVERS_PER_LOOK: usize = 1024;
/// Number of virtual servers whose destinations are compared per poll.
const DESTINATIONS_PER_LOOK: usize = 64;
/// Number of polls between two listings of the rules.
const LOOKS_PER_LISTING: u32 = 30;

/// Progress of the polls: their number, and the virtual servers with which the next poll starts.
#[derive(Debug, Default)]
pub(super) struct Position {
    looks: u32,
    server: Option<Socket>,
    destinations: Option<Socket>,
}

impl IpvsBackend {
    pub(super) fn look(&mut self) -> io::Result<bool> {
        if self.mirror.is_none() {
            return Ok(true);
        }
        Ok(self.is_link_disturbed()?
            || self.are_sets_disturbed()?
            || self.are_servers_disturbed()?
            || self.are_rules_disturbed()?)
    }

    fn is_link_disturbed(&mut self) -> io::Result<bool> {
        let found = self.read_all_addresses()?;
        let Some(link) = self.mirror.as_ref().and_then(|mirror| mirror.link.as_ref()) else {
            return Ok(false);
        };
        let here = found.into_iter().filter(|(index, _)| *index == link.index).map(|(_, address)| address);
        let here = here.filter(|address| model::primitives::net::forbidden(*address).is_none());
        if here.collect::<BTreeSet<_>>() != link.addresses {
            return Ok(true);
        }
        let name = sets::link(self.options.naming);
        let mut is_there = false;
        self.route.ask(&[super::link::get(name)], |_, answer| {
            is_there = super::link::index(answer)? == (link.index, true);
            Ok(())
        })?;
        Ok(!is_there)
    }

    fn are_sets_disturbed(&mut self) -> io::Result<bool> {
        let headers = self.read_headers()?;
        let references = self.references();
        let Some(mirror) = &self.mirror else { return Ok(true) };
        let mut counts: BTreeMap<Set, u32> = mirror.sets.clone();
        for element in &mirror.elements {
            *counts.entry(element.set).or_default() += 1;
        }
        let is_right = |set: &Set, elements: &u32| {
            let name = set.name(self.options.naming);
            headers.get(&name).is_some_and(|header| {
                header.elements == *elements
                    && header.references == references.get(&name).copied().unwrap_or(0)
            })
        };
        Ok(!counts.iter().all(|(set, elements)| is_right(set, elements)))
    }

    /// Returns the number of the backend's iptables rules that refer to each set, by set name.
    fn references(&self) -> BTreeMap<String, u32> {
        let mut references = BTreeMap::new();
        for family in IpFamily::ALL {
            for table in rules::tables(family, self.rule_options()) {
                for rule in &table.rules {
                    let words: Vec<_> = rule.split(' ').collect();
                    for pair in words.windows(2).filter(|pair| pair[0] == "--match-set") {
                        *references.entry(pair[1].to_owned()).or_default() += 1;
                    }
                }
            }
        }
        references
    }

    fn are_servers_disturbed(&mut self) -> io::Result<bool> {
        let Some(mirror) = &self.mirror else { return Ok(true) };
        let window = |from: Option<Socket>, length: usize| -> Vec<_> {
            let first = from.map_or(Bound::Unbounded, Bound::Excluded);
            let after = mirror.servers.range((first, Bound::Unbounded));
            after
                .chain(&mirror.servers)
                .take(length.min(mirror.servers.len()))
                .map(|(at, is)| (*at, is.clone()))
                .collect()
        };
        let servers = window(self.watch.server, SERVERS_PER_LOOK);
        let closer = window(self.watch.destinations, DESTINATIONS_PER_LOOK);
        self.watch.server = servers.last().map(|(socket, _)| *socket);
        self.watch.destinations = closer.last().map(|(socket, _)| *socket);
        let sockets: Vec<_> = servers.iter().map(|(socket, _)| *socket).collect();
        let found = self.read_some(&sockets)?;
        let is_same = |((_, held), found): (&(_, super::server::Server), &Option<_>)| {
            found.as_ref() == Some(&held.service)
        };
        if !servers.iter().zip(&found).all(is_same) {
            return Ok(true);
        }
        for (socket, held) in closer {
            let loads = self.read_loads(&socket)?;
            let found = loads.into_iter().map(|(destination, (held, _))| (destination, held));
            if !found.eq(held.destinations) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn are_rules_disturbed(&mut self) -> io::Result<bool> {
        self.watch.looks = self.watch.looks.wrapping_add(1);
        let settings = sysctls::wanted(self.options.strict_arp);
        if !settings.into_iter().all(sysctls::Sysctl::is_set) {
            return Ok(true);
        }
        if !self.watch.looks.is_multiple_of(LOOKS_PER_LISTING) {
            return Ok(false);
        }
        for family in IpFamily::ALL {
            if !self.are_rules_right(family)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
