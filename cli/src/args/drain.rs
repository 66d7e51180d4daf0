//! Arguments of `drain`, `undrain` and `maintenance`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use model::primitives::name::Namespace;

use super::parse_timeout;

/// Maximum `--deadline` and `--wait-timeout` in seconds (30 days).
const SECONDS_MAX: u64 = 30 * 86_400;

/// Object that is taken out of service or put back.
#[derive(Debug, Args)]
pub struct DrainSubject {
    /// Type of the object
    #[arg(value_enum)]
    pub what: What,
    /// Name of the object; for an endpoint, its address
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Namespace of the object; ignored for Nodes
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// Preview the result without changing anything
    #[arg(long)]
    pub dry_run: bool,
}

/// Types of objects that can be taken out of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// All endpoints with an address
    Endpoint,
    /// One Workload
    Workload,
    /// All endpoints on a Node, and its announcements
    Node,
    /// All endpoints of a Service
    Service,
}

/// Options of `drain` and `maintenance`: who makes the change and why, and waiting for connections to end.
#[derive(Debug, Args)]
pub struct DrainOptions {
    /// Reason to record with the drain
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Name of the person or program to record with the drain
    #[arg(long, env = "USER", hide_env_values = true, value_name = "NAME")]
    pub by: Option<String>,
    /// Wait until no connection is left, printing the number of remaining connections
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    /// Stop waiting after this time, such as 90s, 30m or 2h, and exit with code 1; the drain stays in effect. If
    /// omitted, a --timeout on the command line is this time
    #[arg(long, value_name = "TIME", requires = "wait", value_parser = parse_long)]
    pub wait_timeout: Option<Duration>,
}

/// Arguments of `drain`.
#[derive(Debug, Args)]
pub struct Drain {
    /// Object to drain.
    #[command(flatten)]
    pub subject: DrainSubject,
    /// Terminate remaining connections after this time, such as 90s, 30m or 2h; by default they are left to
    /// finish
    #[arg(long, value_name = "TIME", value_parser = parse_long)]
    pub deadline: Option<Duration>,
    /// Options for the recorded reason and for waiting.
    #[command(flatten)]
    pub manner: DrainOptions,
}

/// Arguments of `maintenance`.
#[derive(Debug, Args)]
pub struct Maintenance {
    /// Object to take out of service.
    #[command(flatten)]
    pub subject: DrainSubject,
    /// Options for the recorded reason and for waiting.
    #[command(flatten)]
    pub manner: DrainOptions,
}

fn parse_long(text: &str) -> Result<Duration, String> {
    let hours =
        text.strip_suffix('h').map(|number| number.parse::<u64>().map(|hours| hours.checked_mul(3600)));
    let parsed = match hours {
        Some(Ok(Some(seconds @ 1..))) => Duration::from_secs(seconds),
        Some(_) => return Err("must be a number with unit s, m or h, such as 30m".to_owned()),
        None => parse_timeout(text)?,
    };
    if parsed < Duration::from_secs(1) || parsed > Duration::from_secs(SECONDS_MAX) {
        return Err("must be between 1s and 720h".to_owned());
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_have_hours_and_bounds() {
        assert_eq!(parse_long("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_long("2h"), Ok(Duration::from_secs(7200)));
        for bad in ["", "h", "0h", "721h", "500ms", "1d", "99999999999999999999h", "-1h"] {
            assert!(parse_long(bad).is_err(), "{bad}");
        }
    }
}
