//! Difference between the echo reply table in the kernel and the desired replies. Does no I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::schema::{Reply, Set};

/// Desired ping setting (reply or drop) by announced address.
pub type Replies = BTreeMap<IpAddr, Reply>;

/// Echo reply table as observed in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Table {
    /// No table of this name.
    #[default]
    Absent,
    /// A table of this name exists, but its sets, chains or rules differ from the schema. The table is deleted and
    /// created again.
    Strange,
    /// Table with the sets, chains and rules of the schema. Contains the addresses in the sets, each with its
    /// ping setting.
    Present(Replies),
}

/// Changes of the echo reply table, applied in one nf_tables transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// True if the table is deleted first, with all its content.
    pub delete_table: bool,
    /// True if the table is created, with its sets, chains and rules.
    pub make_table: bool,
    /// Addresses to remove from the sets.
    pub removed: Vec<(Set, IpAddr)>,
    /// Addresses to add to the sets.
    pub added: Vec<(Set, IpAddr)>,
}

impl Plan {
    /// Returns true if the kernel already has the desired table, so no transaction is needed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Plans the changes of the echo reply table for the `touched` addresses. If the table is created or deleted,
/// all addresses are included.
#[must_use]
pub fn plan(wanted: &Replies, table: &Table, touched: &BTreeSet<IpAddr>) -> Plan {
    let is_there = *table != Table::Absent;
    if wanted.is_empty() {
        return Plan { delete_table: is_there, ..Plan::default() };
    }
    let Table::Present(present) = table else {
        let added = wanted.iter().map(|(address, reply)| (Set::of(*address, *reply), *address)).collect();
        return Plan { delete_table: is_there, make_table: true, added, ..Plan::default() };
    };
    let mut plan = Plan::default();
    for address in touched {
        let (before, after) = (present.get(address), wanted.get(address));
        if before != after {
            plan.removed.extend(before.map(|reply| (Set::of(*address, *reply), *address)));
            plan.added.extend(after.map(|reply| (Set::of(*address, *reply), *address)));
        }
    }
    plan
}

/// Returns all addresses that are in the echo reply table or should be in it.
#[must_use]
pub fn everything(wanted: &Replies, table: &Table) -> BTreeSet<IpAddr> {
    let wanted = wanted.keys().copied();
    match table {
        Table::Present(present) => wanted.chain(present.keys().copied()).collect(),
        Table::Absent | Table::Strange => wanted.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(all: &[(&str, Reply)]) -> Replies {
        all.iter().map(|(address, reply)| (address.parse().unwrap(), *reply)).collect()
    }

    fn show(wanted: &Replies, table: &Table) -> String {
        let Plan { delete_table, make_table, removed, added } =
            plan(wanted, table, &everything(wanted, table));
        let list = |all: Vec<(Set, IpAddr)>| {
            all.iter().map(|(set, address)| format!(" {}:{address}", set.name())).collect::<String>()
        };
        let words = [(delete_table, "delete "), (make_table, "make ")];
        let words: String = words.into_iter().filter_map(|(is_so, word)| is_so.then_some(word)).collect();
        format!("{words}-{} +{}", list(removed), list(added))
    }

    #[test]
    fn only_what_differs_is_written_and_the_table_comes_and_goes_with_the_addresses() {
        let none = Replies::new();
        let one = replies(&[("192.0.2.1", Reply::Answer)]);
        let two = replies(&[("192.0.2.1", Reply::Silence), ("2001:db8::1", Reply::Answer)]);
        let present = |replies: &Replies| Table::Present(replies.clone());
        for (wanted, table, said) in [
            (&none, Table::Absent, "- +"),
            (&none, Table::Strange, "delete - +"),
            (&none, present(&none), "delete - +"),
            (&none, present(&one), "delete - +"),
            (&one, Table::Absent, "make - + answered4:192.0.2.1"),
            (&one, Table::Strange, "delete make - + answered4:192.0.2.1"),
            (&one, present(&one), "- +"),
            (&two, present(&one), "- answered4:192.0.2.1 + silent4:192.0.2.1 answered6:2001:db8::1"),
            (&one, present(&two), "- silent4:192.0.2.1 answered6:2001:db8::1 + answered4:192.0.2.1"),
        ] {
            assert_eq!(show(wanted, &table), said, "{wanted:?} from {table:?}");
        }
    }
}
