//! The page of a soak.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use lab::chaos::soak::{GROWTH_MAX_PERCENT, Harm, KINDS, MODES, Outcome};

use crate::pages::{page, record::Record};

const METHOD: &str = "\
Network namespaces on one machine: a control server, a node of each of the modes nftables, iptables and userspace (ipvs is left
out: the kernel here has none), a router (FRR) with BGP, and clients inside the cluster, beside it and behind the router. Writers change
endpoints, weights, Services of all sorts, pools, Workloads, what is announced, and drain Nodes; every answer is looked at, and what is not
answered is asked for again. Clients connect all the time, and each connection is answered, or lost to a fault that may cost it (then or
within 15 seconds after it), or lost without a reason. By UDP they ask again when there is no answer: what is on its way to an endpoint, or
back, when the endpoint is taken away is lost, in every mode. More than one in a thousand of these is wrong. The agent of one node is never killed, and no process of Tidegate in the second
half, where they are stopped instead, so that their memory at the end is that of a long life. Where the store is etcd, one of its members
is killed now and then, to the end.

At the end of each part nobody writes or strikes; every node has to verify everything, and every address of every Service has to lead where
the API says. Then the writers undo what they made, clients ask for nothing for 40 seconds, so that a relay has no flow left, and memory is
looked at, eleven times in ten seconds, of which the middle counts: the estate is then the same each time. What is judged is the heap in use, which both servers tell of themselves and an agent of its relay
(`…_heap_in_use_bytes` at `/metrics`); what they have taken from the kernel (`Anonymous` in `smaps_rollup`) and what is resident is beside it. It is compared from the
middle of the soak to its end: by then everything was made once, and no process is killed any more. Just before both looks the same
is done, as much of it as control remembers: changes, Services that come and go, requests, and requests that only try.

At the very end everything is deleted, and rules, sets, links, addresses, routes, translated flows, what is remembered of clients with affinity
(for three hours, if nobody removes it), listening sockets, the files, threads and children of every process and the names of files on disk
have to be what they were before the first object; after `tidegate-agent cleanup` the rules and the network of each node have to be what they
were before its agent. Four things are let pass, with a reason. A process may hold less than before: one that was started again has not made
yet what is made when it is needed first. It may have up to four more of the threads in which its runtime waits for files: two that are there
share the work of every second, and neither is idle for long enough to end. Flows of TCP are left to end by themselves (`removalPolicy:
Keep`), so the kernels of the nodes are told to forget them after ten silent seconds instead of up to five days; what is there after that,
somebody keeps. And chains of nftables to which nothing leads stay for the next Service of their shape (how many slots, which affinity),
until they are more than the others and 64.
";

/// The page, beside files of this name, of what this command writes.
pub(super) fn page(record: &Record<Outcome>, name: &str, command: &str) -> String {
    let mut page = format!(
        "# A soak\n\nWritten by `{command}`; every figure is in [{name}.json]({name}.json).\n\n\
         ![Memory over time]({name}.svg)\n",
    );
    for outcome in &record.points {
        page += &summary(outcome);
        page += &growth(outcome);
        page += &costs(outcome);
        page += &changes(outcome);
        page += &over_time(outcome);
    }
    page + &page::place(&record.host, &record.versions, record.load.as_ref()) + "\n## How\n\n" + METHOD
}

fn summary(outcome: &Outcome) -> String {
    let Outcome {
        seed,
        store,
        took,
        control_answered,
        requests,
        again,
        revisions,
        frontends,
        files_kib,
        fates,
        ..
    } = outcome;
    let rate = *requests as f64 / took.as_secs_f64().max(1.0);
    let alive = *requests as f64 / control_answered.as_secs_f64().max(1.0);
    let faults: u64 = outcome.faults.values().sum();
    let again: Vec<_> = again.iter().map(|(reason, count)| format!("{count} × {reason}")).collect();
    let verified: Vec<_> = frontends.iter().map(usize::to_string).collect();
    let files: Vec<_> = files_kib.iter().map(|kib| format!("{:.1}", *kib as f64 / 1024.0)).collect();
    let mut text = String::from("\n## What happened\n\n");
    let wrong = outcome.faults_found();
    let said = if wrong.is_empty() { "nothing".to_owned() } else { format!("{} things", wrong.len()) };
    // Writing to a String cannot fail; so everywhere here.
    let _ = writeln!(
        text,
        "- found wrong: **{said}**\n\
         - {} with writers and faults (`TIDEGATE_SEED={seed}`), nodes in {}, store: {store}\n\
         - {requests} requests that change something were answered: {rate:.1} per second, {alive:.1} per second of the time in which control was \
         neither dead nor stopped; {revisions} revisions; asked for again: {}\n\
         - {faults} faults; {} connections answered, {} lost to faults that may cost them, {} without a reason; {} by UDP were answered when \
         they asked again, and had met no fault\n\
         - every node verified everything, and every address led where the API says, at the end of {} of {} parts ({} addresses)\n\
         - files of control and agents at the end of the parts: {} MiB",
        long(*took),
        MODES.join(", "),
        if again.is_empty() { "none".to_owned() } else { again.join(", ") },
        fates.answered,
        fates.excused.values().sum::<u64>(),
        fates.lost,
        fates.again,
        frontends.len(),
        outcome.parts,
        verified.join(", "),
        files.join(", ")
    );
    for one in &wrong {
        let _ = writeln!(text, "\n```text\n{one}\n```");
    }
    text
}

fn growth(outcome: &Outcome) -> String {
    let mut text = format!(
        "\n## Memory\n\nAt two times at which the estate is the same; what is in use may grow by less than {GROWTH_MAX_PERCENT} %.\n\n\
         | process | | from | to | what | KiB | KiB then | growth | | resident, KiB |\n|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for growth in outcome.growth() {
        let ([from, to], [before, after]) = (growth.between.map(long), growth.kib);
        let [resident, then] = growth.resident_kib;
        let what = if growth.is_in_use { "in use" } else { "taken from the kernel" };
        let life = if growth.is_one_life { "one life" } else { "not one life" };
        let judged = match growth.is_met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not judged",
        };
        let _ = writeln!(
            text,
            "| {} | {life} | {from} | {to} | {what} | {before} | {after} | {:+.1} % | {judged} | {resident} → {then} |",
            growth.process,
            growth.percent()
        );
    }
    text
}

fn costs(outcome: &Outcome) -> String {
    let mut text = String::from(
        "\n## Faults\n\n| fault | times | may cost connections of | connections lost |\n|---|---|---|---|\n",
    );
    for kind in KINDS {
        let harm = match kind.harm() {
            Harm::Nobody => "nobody",
            Harm::Announced => "those who come by an announced address",
            Harm::ThroughNode => "those who go through that node",
            Harm::Everybody => "everybody",
        };
        let times = outcome.faults.get(&kind).copied().unwrap_or(0);
        let lost = outcome.fates.excused.get(&kind).copied().unwrap_or(0);
        let _ = writeln!(text, "| {} | {times} | {harm} | {lost} |", kind.name());
    }
    text
}

fn changes(outcome: &Outcome) -> String {
    let mut text = String::from("\n## Changes\n\n| change | times |\n|---|---|\n");
    for (kind, times) in &outcome.changes {
        let _ = writeln!(text, "| {kind} | {times} |");
    }
    text
}

/// What every process had at each look.
fn over_time(outcome: &Outcome) -> String {
    let mut processes: Vec<_> = outcome.samples.iter().map(|sample| sample.process.as_str()).collect();
    processes.sort_unstable();
    processes.dedup();
    let mut looks: BTreeMap<Duration, BTreeMap<&str, String>> = BTreeMap::new();
    for sample in &outcome.samples {
        let mark = if sample.is_settled { " ●" } else { "" };
        let in_use = sample.in_use_kib.map_or_else(String::new, |kib| format!("{kib} of "));
        let said = format!("{in_use}{} / {} / {}{mark}", sample.anonymous_kib, sample.files, sample.threads);
        // Those of one look are within the same second.
        looks.entry(Duration::from_secs(sample.at.as_secs())).or_default().insert(&sample.process, said);
    }
    let mut text = format!(
        "\n## Over time\n\nKiB (in use, of what was) taken from the kernel / open files / threads; ● marks times at which the estate is the same.\n\n| time | {} |\n|---|{}\n",
        processes.join(" | "),
        "---|".repeat(processes.len())
    );
    for (at, look) in &looks {
        let cells: Vec<_> =
            processes.iter().map(|process| look.get(process).map_or("–", String::as_str)).collect();
        let _ = writeln!(text, "| {} | {} |", long(*at), cells.join(" | "));
    }
    text
}

fn long(time: Duration) -> String {
    format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use lab::chaos::soak::{Kind, Sample};

    use super::*;

    #[test]
    fn a_page_says_what_was_wrong_and_how_memory_grew() {
        let sample = |seconds, anonymous_kib| Sample {
            at: Duration::from_secs(seconds),
            process: "control".to_owned(),
            pid: 1,
            is_settled: true,
            resident_kib: 5000,
            anonymous_kib: anonymous_kib + 500,
            in_use_kib: Some(anonymous_kib),
            files: 30,
            threads: 9,
        };
        let outcome = Outcome {
            took: Duration::from_secs(100),
            control_answered: Duration::from_secs(80),
            requests: 4000,
            faults: BTreeMap::from([(Kind::RelayKilled, 3)]),
            samples: vec![sample(60, 900), sample(600, 1000), sample(1200, 1100)],
            warm_since: Duration::from_secs(500),
            wrong: vec!["a rule was left".to_owned()],
            ..Outcome::default()
        };
        let page = page(&super::super::of(outcome).unwrap(), "soak", "make soak-cluster");
        for part in [
            "found wrong: **1 things**",
            "a rule was left",
            "40.0 per second, 50.0 per second of the time",
            "| control | one life | 10 min 00 s | 20 min 00 s | in use | 1000 | 1100 | +10.0 % | missed | 5000 → 5000 |",
            "| relay killed | 3 | those who go through that node | 0 |",
            "| 10 min 00 s | 1000 of 1500 / 30 / 9 ● |",
        ] {
            assert!(page.contains(part), "{part} in\n{page}");
        }
    }
}
