//! Questions to a server by `dnsperf`, and the evaluation of its output.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use lab::host::netns::Namespace;

use super::{
    Options,
    contestant::{Contest, Servers},
    data::{NameKind, NameSet},
    measured::DnsRound,
    run_in,
};
use crate::{statistics::figures::Summary, usage::Usage};

/// Number of clients of the load: sources of questions with a socket each.
const CLIENTS: u32 = 8;
/// Maximum number of unanswered questions of all clients together.
const OUTSTANDING: u32 = 200;
/// Size of the socket buffers of each client in KiB. With the default of 32 KiB, which the kernel counts with its overhead for each packet,
/// answers are dropped while the load generator waits for a processor, and count as lost by the server.
const BUFFER_KIB: u32 = 1024;
/// Time in seconds after which a question counts as lost. The end of each measurement waits as long for lost questions.
const LOST_SECS: u32 = 3;

/// Source of questions with its files.
#[derive(Debug)]
pub(super) struct QuestionSource {
    place: Namespace,
    directory: PathBuf,
}

/// Evaluated output of `dnsperf`.
#[derive(Debug, PartialEq)]
struct LoadResult {
    completed: u64,
    lost: u64,
    per_second: f64,
    latencies_us: Vec<f64>,
}

impl QuestionSource {
    /// Writes the questions of each kind into a file.
    pub(super) fn new(place: &Namespace, names: &NameSet, directory: &Path) -> Result<Self> {
        let load = Self { place: place.clone(), directory: directory.to_owned() };
        for kind in NameKind::ALL {
            let names = shuffled(names.names(kind));
            let text: String = names.iter().map(|name| format!("{name} A\n")).collect();
            fs::write(load.file(kind), text).context("cannot write the questions")?;
        }
        Ok(load)
    }

    fn file(&self, kind: NameKind) -> PathBuf {
        self.directory.join(format!("questions-{}", kind.as_str()))
    }

    /// Asks every name once.
    pub(super) fn warm(&self, contest: &Contest) -> Result<()> {
        self.ask(contest, &["-n", "1"].map(str::to_owned)).map(drop)
    }

    /// Measures a server for one round: as fast as possible, and then at a fixed rate.
    pub(super) fn turn(&self, contest: &Contest, servers: &Servers, options: &Options) -> Result<DnsRound> {
        let process = servers.process(contest.server);
        let before = Usage::of(process)?.processor_ns;
        let fast = self.ask(contest, &limit(options.slice))?;
        let processor_ns = Usage::of(process)?.processor_ns.saturating_sub(before);
        let rate = ["-v".to_owned(), "-Q".to_owned(), options.per_second.to_string()];
        let steady = self.ask(contest, &[limit(options.slice).as_slice(), &rate].concat())?;
        Ok(DnsRound {
            per_second: fast.per_second,
            processor_us: processor_ns as f64 / 1e3 / fast.completed as f64,
            latency_us: Summary::of(steady.latencies_us)
                .context("no question was answered at the fixed rate")?,
            lost: fast.lost + steady.lost,
        })
    }

    fn ask(&self, contest: &Contest, more: &[String]) -> Result<LoadResult> {
        let words = [
            ("-s", "127.0.0.1".to_owned()),
            ("-p", contest.server.port().to_string()),
            ("-d", self.file(contest.kind).display().to_string()),
            ("-c", CLIENTS.to_string()),
            ("-q", OUTSTANDING.to_string()),
            ("-b", BUFFER_KIB.to_string()),
            ("-t", LOST_SECS.to_string()),
        ];
        let mut arguments: Vec<String> =
            words.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        arguments.extend_from_slice(more);
        evaluate(&run_in(&self.place, "dnsperf", &arguments)?)
    }
}

fn limit(slice: Duration) -> [String; 2] {
    ["-l".to_owned(), slice.as_secs_f64().to_string()]
}

/// Reads the statistics and, if there are any, the lines of single questions: `> NOERROR NAME TYPE SECONDS`.
fn evaluate(output: &str) -> Result<LoadResult> {
    let field = |name: &str| {
        let line = output.lines().find_map(|line| line.trim_start().strip_prefix(name));
        let word = line.and_then(|line| line.split_whitespace().next());
        word.with_context(|| format!("`{name}` is missing in the output of dnsperf: {output}"))
    };
    let number = |name: &str| -> Result<u64> { field(name)?.parse().with_context(|| format!("`{name}`")) };
    let (completed, lost) = (number("Queries completed:")?, number("Queries lost:")?);
    ensure!(completed > 0, "no question was answered: {output}");
    let codes = output.lines().find_map(|line| line.trim_start().strip_prefix("Response codes:"));
    let codes = codes.context("dnsperf printed no response codes")?.trim();
    ensure!(codes == format!("NOERROR {completed} (100.00%)"), "response codes: {codes}");
    let latency = |line: &str| {
        let mut words = line.strip_prefix("> NOERROR ")?.split_whitespace();
        Some(words.nth(2)?.parse::<f64>().ok()? * 1e6)
    };
    Ok(LoadResult {
        completed,
        lost,
        per_second: field("Queries per second:")?.parse().context("`Queries per second:`")?,
        latencies_us: output.lines().filter_map(latency).collect(),
    })
}

/// Returns names in an order that is far from that of their creation, and the same in each run.
fn shuffled(names: Vec<String>) -> Vec<String> {
    // Multiplication by a large prime modulo 2^32 is a permutation.
    let mut keyed: Vec<_> = (0_u32..).map(|number| number.wrapping_mul(2_654_435_761)).zip(names).collect();
    keyed.sort();
    keyed.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_dnsperf_is_evaluated() {
        let output = "> NOERROR a.example A 0.000125\n> NOERROR b.example A 0.000250\nStatistics:\n\n  Queries sent:         3\n  \
                      Queries completed:    2 (66.67%)\n  Queries lost:         1 (33.33%)\n\n  Response codes:       NOERROR 2 \
                      (100.00%)\n  Queries per second:   1234.5\n";
        let told = LoadResult { completed: 2, lost: 1, per_second: 1234.5, latencies_us: vec![125.0, 250.0] };
        assert_eq!(evaluate(output).unwrap(), told);
        assert!(
            evaluate(&output.replace("NOERROR 2 (100.00%)", "NOERROR 1 (50.00%), SERVFAIL 1 (50.00%)"))
                .is_err()
        );
    }

    #[test]
    fn every_name_is_asked_once() {
        let names: Vec<_> = (0..100).map(|number| number.to_string()).collect();
        let mut sorted = shuffled(names.clone());
        assert_ne!(sorted, names);
        sorted.sort_by_key(|name| name.parse::<u32>().unwrap());
        assert_eq!(sorted, names);
    }
}
