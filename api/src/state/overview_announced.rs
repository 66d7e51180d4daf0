//! Counts of announced addresses and BGP sessions for the overview.

use crate::state::object_view::{ObjectRenderer, View};
use model::{
    kinds::resource::Kind,
    observed::{
        rollup::{AddressStanding, address_standing},
        status::{Condition, ConditionStatus, ConditionType},
    },
    primitives::name::Name,
    views::overview::{AddressTotals, BgpSessionTotals},
};
use std::{collections::BTreeMap, net::IpAddr};
/// Announcement states of all addresses and BGP session counts of all nodes, collected under one lock.
#[derive(Default)]
pub(crate) struct AnnouncementSummary {
    pub(crate) standing: BTreeMap<IpAddr, AddressStanding>,
    pub(crate) totals: AddressTotals,
    pub(crate) by_owner: BTreeMap<Name, usize>,
    pub(crate) sessions: BTreeMap<Name, BgpSessionTotals>,
}

pub(crate) fn announced(view: &View<'_>, renderer: &ObjectRenderer<'_>) -> AnnouncementSummary {
    let mut announced = AnnouncementSummary::default();
    let records = view.published().snapshot.list(Kind::Address, None, None);
    let records =
        records.filter_map(|object| object.as_address()).filter(|record| !record.services.is_empty());
    let is_reporting = |node: &Name| view.table().view(node).is_some_and(|view| view.is_reporting());
    renderer.announcing(|of| {
        for record in records {
            let (standing, owner) = address_standing(of, record);
            announced.standing.insert(record.address, standing);
            announced.totals.total += 1;
            *match standing {
                AddressStanding::Announced => &mut announced.totals.announced,
                AddressStanding::Waiting => &mut announced.totals.waiting,
                AddressStanding::Conflicting => &mut announced.totals.conflicting,
            } += 1;
            if let Some(owner) = owner {
                *announced.by_owner.entry(owner.clone()).or_default() += 1;
            }
        }
        for (node, report) in of.bgp.reports().filter(|(_, report)| !report.sessions.is_empty()) {
            let established = report.sessions.iter().filter(|session| session.is_established()).count();
            let established = if is_reporting(node) { established } else { 0 };
            let sessions = BgpSessionTotals { total: report.sessions.len(), established };
            announced.sessions.insert(node.clone(), sessions);
        }
    });
    announced
}

/// Returns true if the list contains the condition `wanted` with status True.
pub(crate) fn holds(conditions: &[Condition], wanted: ConditionType) -> bool {
    conditions.iter().any(|one| one.condition_type == wanted && one.status == ConditionStatus::True)
}
