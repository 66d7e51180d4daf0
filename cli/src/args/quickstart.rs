//! Arguments of `quickstart`.

use std::str::FromStr as _;

use clap::Args;
use model::kinds::address_pool::AddressRange;

/// Help below the options.
const HELP: &str = "\
For a Debian machine with the packages tidegate-api, tidegate-agent and tidegate. Starts and enables both
units, lets the kernel forward IPv4 packets, creates a token with a context for the user who runs it, an
AddressPool, and an Advertisement that announces it by ARP and NDP, and waits until the node is ready. What
exists already is not changed, so the command can be repeated. It uses the socket of the control server on this
machine, not the connection options.

The proposed addresses are the highest free ones in the network of the default route. An address is free if it
does not belong to this machine, a gateway or a known neighbor, and if no device responds to an ARP request. A
DHCP server may assign it later nevertheless: exclude the addresses there.

Examples:
  sudo tidegate quickstart --dry-run                       print the steps
  sudo tidegate quickstart
  sudo tidegate quickstart --yes --pool 192.0.2.240-192.0.2.249
  sudo tidegate quickstart --undo";

/// Arguments of `quickstart`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Quickstart {
    /// Addresses of the pool, as a network or as FIRST-LAST [default: up to 10 free addresses in the network of the
    /// default route]
    #[arg(long, value_name = "RANGE", value_parser = AddressRange::from_str, conflicts_with = "undo")]
    pub pool: Option<AddressRange>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Print the steps without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Remove everything that earlier runs created, and nothing else
    #[arg(long)]
    pub undo: bool,
}
