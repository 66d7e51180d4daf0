//! Arguments of `drain`, `undrain` and `maintenance`.

use std::{str::FromStr, time::Duration};

use clap::Args;
use model::{
    kinds::resource::Kind,
    primitives::name::{Name, Namespace},
};

use super::parse_timeout;
use crate::resource::Resource;

/// Maximum `--deadline` and `--wait-timeout` in seconds (30 days).
const SECONDS_MAX: u64 = 30 * 86_400;

/// Object that is taken out of service or put back, as given on the command line.
#[derive(Debug, Args)]
pub struct DrainArguments {
    /// Type of the object (endpoint, workload, node or service), or TYPE/NAME; a name alone is that of a Node
    #[arg(value_name = "TYPE")]
    pub target: DrainTarget,
    /// Name of the object, or NAMESPACE/NAME; for an endpoint, its address
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Namespace of the object; ignored for Nodes
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// Preview the result without changing anything
    #[arg(long)]
    pub dry_run: bool,
}

/// Object that is taken out of service or put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainSubject {
    /// Type of the object.
    pub what: What,
    /// Name of the object; for an endpoint, its address.
    pub name: String,
    /// Namespace of the object; without a meaning for Nodes.
    pub namespace: Namespace,
    /// True if nothing is changed.
    pub dry_run: bool,
}

impl DrainArguments {
    /// Combines the arguments.
    ///
    /// # Errors
    /// Returns a message if the name is missing or given twice, or if the namespace is invalid.
    pub fn subject(self) -> Result<DrainSubject, String> {
        let what = self.target.what;
        let word = what.word();
        let name = match (self.target.name, self.name) {
            (Some(name), None) | (None, Some(name)) => name,
            (Some(_), Some(_)) => return Err("only one object can be given".to_owned()),
            (None, None) => return Err(format!("the name of the {word} is missing")),
        };
        let (namespace, name) = match name.split_once('/').filter(|_| what != What::Node) {
            Some((namespace, name)) => {
                (Namespace::parse(namespace).map_err(|error| error.to_string())?, name.to_owned())
            }
            None => (self.namespace, name),
        };
        Ok(DrainSubject { what, name, namespace, dry_run: self.dry_run })
    }
}

/// Type of an object, with the name after a slash, as in `node/node-1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainTarget {
    what: What,
    name: Option<String>,
}

impl FromStr for DrainTarget {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (word, name) = text.split_once('/').map_or((text, None), |(word, name)| (word, Some(name)));
        let what = match word.parse() {
            Ok(Resource::Endpoints) => What::Endpoint,
            Ok(Resource::Object(Kind::Workload)) => What::Workload,
            Ok(Resource::Object(Kind::Node)) => What::Node,
            Ok(Resource::Object(Kind::Service)) => What::Service,
            // As in `kubectl drain NODE`.
            Err(_) if name.is_none() && Name::parse(word).is_ok() => {
                return Ok(Self { what: What::Node, name: Some(word.to_owned()) });
            }
            Ok(Resource::Object(_)) | Err(_) => {
                return Err(format!("must be endpoint, workload, node or service, as in `node/{word}`"));
            }
        };
        Ok(Self { what, name: name.map(str::to_owned) })
    }
}

/// Types of objects that can be taken out of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl What {
    const fn word(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Workload => "workload",
            Self::Node => "node",
            Self::Service => "service",
        }
    }
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
    pub object: DrainArguments,
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
    pub object: DrainArguments,
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
    fn objects_are_given_as_two_words_or_with_a_slash() {
        let subject = |target: &str, name: Option<&str>| {
            let (target, name) = (target.parse()?, name.map(str::to_owned));
            let namespace = Namespace::parse("default").unwrap();
            let subject = DrainArguments { target, name, namespace, dry_run: false }.subject()?;
            Ok::<_, String>(format!("{} {} {}", subject.what.word(), subject.namespace, subject.name))
        };
        assert_eq!(subject("node/a", None).as_deref(), Ok("node default a"));
        assert_eq!(subject("node", Some("a")).as_deref(), Ok("node default a"));
        assert_eq!(subject("svc", Some("shop/web")).as_deref(), Ok("service shop web"));
        assert_eq!(subject("service/shop/web", None).as_deref(), Ok("service shop web"));
        assert_eq!(subject("endpoint", Some("2001:db8::1")).as_deref(), Ok("endpoint default 2001:db8::1"));
        assert_eq!(subject("node1", None).as_deref(), Ok("node default node1"));
        assert!(subject("pool", Some("a")).unwrap_err().contains("node/pool"));
        assert!(subject("a", Some("b")).is_err());
        assert!(subject("node", None).is_err() && subject("node/a", Some("b")).is_err());
    }

    #[test]
    fn long_times_have_hours_and_bounds() {
        assert_eq!(parse_long("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_long("2h"), Ok(Duration::from_secs(7200)));
        for bad in ["", "h", "0h", "721h", "500ms", "1d", "99999999999999999999h", "-1h"] {
            assert!(parse_long(bad).is_err(), "{bad}");
        }
    }
}
