//! Arguments of `addresses`.

use std::net::IpAddr;

use clap::{Args, Subcommand};
use model::primitives::name::Name;

use super::{
    bgp::{EVENTS_DEFAULT, EVENTS_MAX, EventsOutput},
    help, parse_address,
};

/// Subcommands of `addresses`.
#[derive(Debug, Subcommand)]
pub enum Addresses {
    /// List changes of the announcing nodes with their causes, newest last
    #[command(after_help = help::ADDRESSES_EVENTS_HELP)]
    Events(AddressEvents),
}

/// Arguments of `addresses events`.
#[derive(Debug, Clone, Args)]
pub struct AddressEvents {
    /// Events of this load balancer address only
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub address: Option<IpAddr>,
    /// Events of this node only, including moves from it
    #[arg(long, value_name = "NODE", value_parser = Name::parse)]
    pub node: Option<Name>,
    /// Maximum number of events; the newest are shown
    #[arg(
        long, value_name = "N", default_value_t = EVENTS_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(EVENTS_MAX))
    )]
    pub last: u32,
    /// Print again on each change, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: EventsOutput,
}
