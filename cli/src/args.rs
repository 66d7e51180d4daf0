//! The command line: every flag with what it means, and examples that can be pasted.

pub mod backup;
pub mod bgp;
pub mod confirm;
pub mod doctor;
pub mod drain;
pub mod explain;
pub mod export;
mod help;
pub mod history;
pub mod plan;
pub mod security;
pub mod top;
pub mod wait;
pub mod what_if;

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser as _},
};
use clap_complete::Shell;
use model::{
    kinds::{address::address_of, resource::Kind, selector::LabelSelector},
    primitives::{
        name::{Name, Namespace},
        quantity::Position,
    },
};
use reqwest::Url;
use tls_trust::Pin;

use crate::{
    import::Format,
    resource::{Target, parse_kind},
};

/// Longest `--timeout`; a day is beyond any patience and inside every clock's arithmetic.
const TIMEOUT_SECONDS_MAX: u64 = 86_400;

/// Shows and changes what a Tidegate cluster should do, and says how far it is.
#[derive(Debug, Parser)]
#[command(name = "tidegate", after_help = help::AFTER_HELP, max_term_width = 110, disable_help_subcommand = true)]
pub struct Cli {
    /// What every subcommand takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What every subcommand takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub struct Global {
    /// The control servers, separated by commas: one after the other is tried until one answers [default:
    /// http://127.0.0.1:7440]
    #[arg(
        long, global = true, env = "TIDEGATE_API", hide_env_values = true, value_name = "URL,…",
        value_delimiter = ',', value_parser = parse_api
    )]
    pub api: Vec<Url>,
    /// A file with the token that says who you are; the variable TIDEGATE_TOKEN may hold the token itself
    #[arg(long, global = true, env = "TIDEGATE_TOKEN_FILE", hide_env_values = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The authorities that vouch for the servers, as PEM [default: those of the system]
    #[arg(long, global = true, env = "TIDEGATE_CA_FILE", hide_env_values = true, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// The hash of the servers' certificate or authority, instead of --ca-file, as sha256:HEX
    #[arg(long, global = true, env = "TIDEGATE_CA_HASH", hide_env_values = true, value_name = "HASH")]
    pub ca_hash: Option<Pin>,
    /// Longest wait for an answer, such as 500ms, 10s or 2m; on a watch the longest silence, where the server speaks at
    /// least every 10 s
    #[arg(
        long, global = true, env = "TIDEGATE_TIMEOUT", hide_env_values = true, value_name = "TIME",
        default_value = "30s", value_parser = parse_timeout
    )]
    pub timeout: Duration,
    /// Show nothing older than this position, as `status` and watches tell them: another server than the one that took a
    /// write may be a moment behind. What the command itself has written is always waited for
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_MIN_POSITION",
        hide_env_values = true,
        value_name = "POSITION"
    )]
    pub min_position: Option<Position>,
    /// Print each request as a `curl` command on stderr
    #[arg(long, global = true)]
    pub show_request: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List objects, or show some of them
    #[command(after_help = help::GET_HELP)]
    Get(Get),
    /// Tell everything about one object
    #[command(after_help = help::DESCRIBE_HELP)]
    Describe(Describe),
    /// Create or change the objects of a file
    #[command(after_help = help::APPLY_HELP)]
    Apply(Apply),
    /// Say what an apply would do to objects, addresses and every node
    #[command(after_help = help::PLAN_HELP)]
    Plan(plan::Plan),
    /// Say which objects of a file differ from what there is
    #[command(after_help = help::DIFF_HELP)]
    Diff(plan::Diff),
    /// Remove objects
    #[command(after_help = help::DELETE_HELP)]
    Delete(Delete),
    /// Say whether everything is as it should be
    #[command(after_help = help::STATUS_HELP)]
    Status(Status),
    /// Show the busiest Services, or the nodes that take longest to follow changes
    #[command(subcommand, after_help = help::TOP_HELP, disable_help_subcommand = true)]
    Top(top::Top),
    /// Show what went through a Service, by node and endpoint
    #[command(after_help = help::TRAFFIC_HELP)]
    Traffic(Traffic),
    /// Show what the nodes see of the endpoints of a Service that are checked
    #[command(after_help = help::HEALTH_HELP)]
    Health(Health),
    /// Say what becomes of a packet, or why an address or a Service answers or not
    #[command(after_help = help::EXPLAIN_HELP)]
    Explain(explain::Explain),
    /// Show sessions with routers, what they were told, and what happened to them
    #[command(subcommand, after_help = help::BGP_HELP, disable_help_subcommand = true)]
    Bgp(bgp::Bgp),
    /// Show what was changed, by whom and why; or one change in full
    #[command(after_help = help::HISTORY_HELP)]
    History(history::History),
    /// Make everything what it was at a revision
    #[command(after_help = help::ROLLBACK_HELP)]
    Rollback(history::Rollback),
    /// Show what was asked for, also what was refused
    #[command(after_help = help::AUDIT_HELP)]
    Audit(history::Audit),
    /// Say what a node holds back because it would lose too much, and let it take that
    #[command(after_help = help::CONFIRM_HELP)]
    Confirm(confirm::Confirm),
    /// Let another node announce an address
    #[command(after_help = help::MOVE_HELP)]
    Move(Move),
    /// Let nothing new begin at something, while what is established finishes
    #[command(after_help = help::DRAIN_HELP)]
    Drain(drain::Drain),
    /// Take something out of service as if it were not there
    #[command(after_help = help::MAINTENANCE_HELP)]
    Maintenance(drain::Maintenance),
    /// Give back what drains or is in maintenance
    #[command(after_help = help::UNDRAIN_HELP)]
    Undrain(drain::Subject),
    /// Translate the configuration of another load balancer
    #[command(after_help = help::IMPORT_HELP)]
    Import(Import),
    /// Say objects in the words of Kubernetes or MetalLB
    #[command(after_help = help::EXPORT_HELP)]
    Export(export::Export),
    /// Say what is odd on the machines of nodes
    #[command(after_help = help::DOCTOR_HELP)]
    Doctor(doctor::Doctor),
    /// Wait until an object, or every node, is as wanted
    #[command(after_help = help::WAIT_HELP)]
    Wait(wait::Wait),
    /// Say what the failure of nodes would do
    #[command(name = "what-if", after_help = help::WHAT_IF_HELP)]
    WhatIf(what_if::WhatIf),
    /// Print changes as they happen
    #[command(after_help = help::WATCH_HELP)]
    Watch(Watch),
    /// Write everything that the control server keeps into a file, while it serves
    #[command(after_help = help::BACKUP_HELP)]
    Backup(backup::Backup),
    /// Look after what a store keeps, on the machine that has it: runs `tidegate-api store`
    #[command(disable_help_flag = true, after_help = help::STORE_HELP)]
    Store(backup::Store),
    /// Make, list and revoke tokens, which people and automation prove with who they are
    #[command(subcommand, after_help = help::TOKEN_HELP, disable_help_subcommand = true)]
    Token(security::Token),
    /// List and write roles, which say what may be done
    #[command(subcommand, after_help = help::ROLE_HELP, disable_help_subcommand = true)]
    Role(security::Role),
    /// Say who the server takes you for, and what is bound to that
    Whoami(security::SecurityOutput),
    /// Say whether you may do something
    #[command(name = "can-i", after_help = help::CAN_I_HELP)]
    CanI(security::CanI),
    /// Let a machine join the cluster
    #[command(subcommand, disable_help_subcommand = true)]
    Node(security::Node),
    /// Print a script that completes commands, for a shell
    #[command(after_help = help::COMPLETIONS_HELP)]
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Write man pages and completions below a directory that is laid out as /usr/share; packages are made with it
    #[command(hide = true)]
    Manual {
        /// The directory
        #[arg(value_name = "DIR")]
        share: PathBuf,
    },
    /// Print the versions of this command and of the server
    Version,
}

/// Arguments of `get`.
#[derive(Debug, Args)]
pub struct Get {
    /// A kind (they are listed below) or all; several with commas; KIND/NAME for one object
    #[arg(value_name = "KIND")]
    pub target: Target,
    /// Only these
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Where to look
    #[arg(
        short, long, default_value = "default",
        value_parser = Namespace::parse
    )]
    pub namespace: Namespace,
    /// Look in every namespace
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only objects with these labels: key=value, key!=value, key in (a,b), key notin (a,b), key, !key; several with
    /// commas
    #[arg(short = 'l', long)]
    pub selector: Option<LabelSelector>,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: GetOutput,
    /// Go on and print changes as they happen; as json a line per event
    #[arg(short, long)]
    pub watch: bool,
}

/// Forms of the output of `get`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum GetOutput {
    /// Columns
    #[default]
    Table,
    /// More columns
    Wide,
    /// What the server answered, as JSON
    Json,
    /// What the server answered, as YAML
    Yaml,
    /// kind/name per line
    Name,
}

/// Arguments of `describe`.
#[derive(Debug, Args)]
pub struct Describe {
    /// A kind, as `get` knows them; or KIND/NAME
    #[arg(value_name = "KIND")]
    pub target: Target,
    /// Which one
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Where to look
    #[arg(
        short, long, default_value = "default",
        value_parser = Namespace::parse
    )]
    pub namespace: Namespace,
}

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// A file, a directory, or - for stdin
    #[arg(short, long, value_name = "FILE", required_unless_present = "plan")]
    pub filename: Option<PathBuf>,
    /// Do exactly what a plan says; refused when one of its objects has changed since
    #[arg(
        long, value_name = "ID", value_parser = plan::parse_id,
        conflicts_with_all = ["filename", "dry_run", "evict", "apply_set", "prune", "prune_limit"]
    )]
    pub plan: Option<String>,
    /// Say what would happen, change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Take addresses from the Services that hold them, where a pool is made smaller or removed; without it that is refused, naming
    /// the holders
    #[arg(long)]
    pub evict: bool,
    /// The set that owns these objects, for --prune
    #[arg(long, value_name = "NAME", value_parser = Name::parse)]
    pub apply_set: Option<Name>,
    /// Remove the members of the set that the files do not name
    #[arg(long, requires = "apply_set")]
    pub prune: bool,
    /// Refuse to remove more than this many; without it the server's own limit holds
    #[arg(long, value_name = "N", requires = "prune")]
    pub prune_limit: Option<usize>,
    /// Why, and whether it may remove much.
    #[command(flatten)]
    pub because: history::Because,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ApplyOutput,
}

/// Forms of the output of `apply`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ApplyOutput {
    /// A line per object
    #[default]
    Lines,
    /// What the server answered, as JSON
    Json,
    /// What the server answered, as YAML
    Yaml,
}

/// Arguments of `delete`.
#[derive(Debug, Args)]
pub struct Delete {
    /// KIND NAME…, or KIND/NAME…
    #[arg(value_name = "KIND NAME", conflicts_with = "filename", value_parser = NonEmptyStringValueParser::new())]
    pub words: Vec<String>,
    /// Remove what a file, a directory, or - for stdin names
    #[arg(short, long, value_name = "FILE", required_unless_present = "words")]
    pub filename: Option<PathBuf>,
    /// Where they are; files say it themselves
    #[arg(
        short, long, default_value = "default",
        conflicts_with = "filename", value_parser = Namespace::parse
    )]
    pub namespace: Namespace,
    /// Say what would happen, change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Take addresses from the Services that hold them, where a pool is removed; without it that is refused, naming
    /// the holders
    #[arg(long)]
    pub evict: bool,
    /// Do not fail for objects that are gone already
    #[arg(long)]
    pub ignore_not_found: bool,
    /// Why, and whether it may remove much.
    #[command(flatten)]
    pub because: history::Because,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct Status {
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: StatusOutput,
}

/// Forms of the output of `status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum StatusOutput {
    /// For people
    #[default]
    Table,
    /// What the server answered, as JSON
    Json,
    /// What the server answered, as YAML
    Yaml,
}

/// Arguments of `traffic`.
#[derive(Debug, Args)]
pub struct Traffic {
    /// Which Service
    #[arg(value_name = "SERVICE", value_parser = Name::parse)]
    pub service: Name,
    /// Where to look
    #[arg(
        short, long, default_value = "default",
        value_parser = Namespace::parse
    )]
    pub namespace: Namespace,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: TrafficOutput,
}

/// Forms of the output of `traffic` and `top`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum TrafficOutput {
    /// Columns
    #[default]
    Table,
    /// What the server answered, as JSON
    Json,
    /// What the server answered, as YAML
    Yaml,
}

/// Arguments of `health`.
#[derive(Debug, Args)]
pub struct Health {
    /// Which Service
    #[arg(value_name = "SERVICE", value_parser = Name::parse, required_unless_present_any = ["guard", "confirm"])]
    pub service: Option<Name>,
    /// Where to look
    #[arg(
        short, long, default_value = "default",
        value_parser = Namespace::parse
    )]
    pub namespace: Namespace,
    /// Show instead which unhealthy endpoints of all Services are kept in service, because so many failed at once
    #[arg(long, conflicts_with_all = ["service", "namespace", "confirm"])]
    pub guard: bool,
    /// Take the endpoints out of service that --guard shows
    #[arg(long, conflicts_with_all = ["service", "namespace"])]
    pub confirm: bool,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: HealthOutput,
}

/// Forms of the output of `health`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum HealthOutput {
    /// A row for each endpoint
    #[default]
    Table,
    /// With what each node says
    Wide,
    /// What the server answered, as JSON
    Json,
    /// What the server answered, as YAML
    Yaml,
}

/// Arguments of `move`.
#[derive(Debug, Args)]
pub struct Move {
    /// Which address, as 192.0.2.1 or 2001:db8::1
    #[arg(value_name = "ADDRESS", value_parser = parse_address)]
    pub address: IpAddr,
    /// The node that shall announce it
    #[arg(value_name = "NODE", value_parser = Name::parse)]
    pub node: Name,
    /// Say what would happen, change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Why, as the history shows it
    #[arg(short, long, value_name = "TEXT", value_parser = history::parse_message)]
    pub message: Option<String>,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct Import {
    /// Files, directories, or - for stdin
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Whose configuration it is; seen in the content when left out
    #[arg(long, value_name = "FORMAT",
        value_parser = PossibleValuesParser::new(Format::ALL.map(Format::as_str)).try_map(|word| word.parse::<Format>()))]
    pub from: Option<Format>,
    /// Apply what was translated, instead of printing it
    #[arg(long)]
    pub apply: bool,
    /// With --apply, say what would happen, change nothing
    #[arg(long, requires = "apply")]
    pub dry_run: bool,
    /// With --apply, why, as the history shows it
    #[arg(short, long, value_name = "TEXT", requires = "apply", value_parser = history::parse_message)]
    pub message: Option<String>,
}

/// Arguments of `watch`.
#[derive(Debug, Args)]
pub struct Watch {
    /// Only these kinds
    #[arg(value_name = "KIND", value_parser = parse_kind)]
    pub kinds: Vec<Kind>,
    /// Only this namespace
    #[arg(short, long, value_parser = Namespace::parse)]
    pub namespace: Option<Namespace>,
    /// Only objects with these labels
    #[arg(short = 'l', long)]
    pub selector: Option<LabelSelector>,
    /// Only what came after this position
    #[arg(long, value_name = "POSITION")]
    pub resume: Option<Position>,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: EventOutput,
}

/// Forms of the output of `watch`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum EventOutput {
    /// A readable line per change
    #[default]
    Lines,
    /// An event as JSON per line
    Json,
}

/// A whole document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Document {
    /// JSON, indented.
    Json,
    /// YAML.
    Yaml,
}

pub(crate) fn parse_api(text: &str) -> Result<Url, String> {
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&with_scheme).map_err(|error| format!("{error}; write http://HOST:PORT"))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err(format!("`{}` is not spoken; write https://HOST:PORT or http://HOST:PORT", url.scheme()));
    }
    let is_bare =
        url.path() == "/" && url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    if is_bare && url.has_host() {
        Ok(url)
    } else {
        Err("must be a server and nothing more: https://HOST:PORT or http://HOST:PORT".to_owned())
    }
}

fn parse_address(text: &str) -> Result<IpAddr, String> {
    address_of(text).ok_or_else(|| "must be an address such as 192.0.2.1 or 2001:db8::1".to_owned())
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let milliseconds_per_unit = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        _ => return Err("must be a number with ms, s or m, such as 30s".to_owned()),
    };
    let milliseconds =
        number.parse::<u64>().ok().and_then(|number| number.checked_mul(milliseconds_per_unit));
    match milliseconds {
        Some(milliseconds @ 1..) if milliseconds <= TIMEOUT_SECONDS_MAX * 1000 => {
            Ok(Duration::from_millis(milliseconds))
        }
        Some(_) | None => {
            Err(format!("must be more than nothing and at most {TIMEOUT_SECONDS_MAX}s, such as 30s"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn servers_are_named_by_scheme_host_and_port_and_nothing_else() {
        for good in ["http://10.0.0.1:7440", "https://x", "localhost:7440", "http://[::1]:7440/"] {
            assert!(parse_api(good).is_ok(), "{good}");
        }
        for bad in ["", "https://x/v1", "http://", "http://x/v1", "http://u@x", "ftp://x", "http://x?y"] {
            assert!(parse_api(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_have_units_and_bounds() {
        assert_eq!(parse_timeout("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_timeout("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_timeout("30"), Ok(Duration::from_secs(30)));
        for bad in ["", "0", "s", "-1s", "1h", "99999999999999999999s", "2d", "1441m"] {
            assert!(parse_timeout(bad).is_err(), "{bad}");
        }
    }
}
