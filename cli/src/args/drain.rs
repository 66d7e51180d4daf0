//! Arguments of `drain`, `undrain` and `maintenance`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use model::primitives::name::Namespace;

use super::parse_timeout;

/// Longest time that `--deadline` and `--wait-timeout` take, in seconds: thirty days.
const SECONDS_MAX: u64 = 30 * 86_400;

/// What is taken out of service, or given back.
#[derive(Debug, Args)]
pub struct Subject {
    /// What it is
    #[arg(value_enum)]
    pub what: What,
    /// Which one: an address for endpoint, else a name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Where it is; Nodes are in none
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// Say what would happen, change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// What can be taken out of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// The endpoints with an address
    Endpoint,
    /// A Workload
    Workload,
    /// All endpoints on a Node, and its announcements
    Node,
    /// All endpoints of a Service
    Service,
}

/// Why, and how long to wait.
#[derive(Debug, Args)]
pub struct Manner {
    /// Why, for those who look at it later
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Who, for the same
    #[arg(long, env = "USER", hide_env_values = true, value_name = "NAME")]
    pub by: Option<String>,
    /// Wait until no connection is left, and say how many are
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    /// Give up waiting after this time, such as 90s, 30m or 2h, with exit code 1; nothing is undone
    #[arg(long, value_name = "TIME", requires = "wait", value_parser = parse_long)]
    pub wait_timeout: Option<Duration>,
}

/// Arguments of `drain`.
#[derive(Debug, Args)]
pub struct Drain {
    /// What to drain.
    #[command(flatten)]
    pub subject: Subject,
    /// Cut connections that are left after this time, such as 90s, 30m or 2h; without it they end by themselves
    #[arg(long, value_name = "TIME", value_parser = parse_long)]
    pub deadline: Option<Duration>,
    /// Why, and how long to wait.
    #[command(flatten)]
    pub manner: Manner,
}

/// Arguments of `maintenance`.
#[derive(Debug, Args)]
pub struct Maintenance {
    /// What to take out.
    #[command(flatten)]
    pub subject: Subject,
    /// Why, and how long to wait.
    #[command(flatten)]
    pub manner: Manner,
}

fn parse_long(text: &str) -> Result<Duration, String> {
    let hours =
        text.strip_suffix('h').map(|number| number.parse::<u64>().map(|hours| hours.checked_mul(3600)));
    let parsed = match hours {
        Some(Ok(Some(seconds @ 1..))) => Duration::from_secs(seconds),
        Some(_) => return Err("must be a number with s, m or h, such as 30m".to_owned()),
        None => parse_timeout(text)?,
    };
    if parsed < Duration::from_secs(1) || parsed > Duration::from_secs(SECONDS_MAX) {
        return Err("must be at least 1s and at most 720h".to_owned());
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
