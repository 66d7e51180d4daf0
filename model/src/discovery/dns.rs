//! Records of the cluster zone and of the zones of DnsZones, computed from the state for each question.
//!
//! The records of the cluster zone are those of version 1.1.0 of the DNS specification of Kubernetes: addresses (A, AAAA), ports (SRV) and
//! reverse names (PTR) of Services, names of the endpoints of headless Services, aliases (CNAME) of Services of type
//! ExternalName, and names of Workloads by address. [`answer`] is the entry point; [`Zone`] is the state with the
//! indices that it needs.

mod address_holders;
mod answer;
mod autopath;
mod explain;
mod external;
mod hosts;
mod name;
mod nearest;
mod record;
mod reverse;
mod service_addresses;
mod transfer;
mod update;
mod weighted;
mod zone;

pub use self::{
    answer::{ClientView, answer, answer_in, is_shadowed},
    autopath::answer_on_search_path,
    explain::{
        ExplainedRecord, MessageSection, NameAttempt, NameExplanation, NameQuestion, NameResult, explain_name,
    },
    nearest::nearest,
    record::{Answer, DnsQuestion, Record, RecordData, RecordType, Resolution, ResponseCode},
    transfer::{TransferDecision, ZoneNotification, judge_transfer, notifications, transfer_records},
    update::{Prerequisite, RecordChange, UpdateError, ZoneUpdate, apply_update},
    weighted::weighted,
    zone::{Zone, ZoneSettings},
};
