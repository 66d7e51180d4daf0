//! Test that runs the failover benchmark at a small size, with real node failures, and renders its page. No
//! time is asserted.

use bench::{
    failover::{self, Options, contestant::Failure},
    pages::record::Report as _,
};
use lab::host::kernel;
use serde_json::Value;

#[test]
fn every_failure_moves_the_traffic_and_the_page_says_so() {
    let before = kernel::host().unwrap();
    let contestants = ["keepalived-fast", "tidegate-tuned"];
    let options = Options { rounds: 2, only: contestants.map(str::to_owned).to_vec() };
    let mut told = Vec::new();
    let measured = failover::run(&options, &mut |line| {
        told.push(line.to_owned());
        Ok(())
    })
    .unwrap();
    for contestant in contestants {
        for failure in Failure::ALL {
            let series = measured.find(contestant, failure).unwrap();
            assert_eq!(series.runs.len(), 2, "{contestant}, {}", failure.name());
            // A run ends only with a reply through another node.
            assert!(series.runs.iter().all(|run| run.moved_ms > 0.0), "{series:?}");
        }
    }
    // While the owner's link is cut it answers no probe; on a busy machine another node may already own the
    // address.
    let cut = measured.series.iter().filter(|series| series.failure != Failure::AgentKilled);
    let unanswered: usize = cut.flat_map(|series| &series.runs).map(|run| run.unanswered).sum();
    assert!(unanswered > 0, "{:?}", measured.series);
    assert_eq!(told.len(), contestants.len() * (1 + 2 * Failure::ALL.len()), "{told:#?}");

    let directory = tempfile::tempdir().unwrap();
    measured.write(directory.path()).unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let json: Value = serde_json::from_str(&read("failover.json")).unwrap();
    assert_eq!(json["series"].as_array().unwrap().len(), contestants.len() * Failure::ALL.len());
    let page = read("failover.md");
    for failure in Failure::ALL {
        assert!(page.contains(&format!("| {} | {} | 2 |", failure.name(), contestants[0])), "{page}");
    }
    assert!(page.contains("load average"), "{page}");
    let dots = read("failover.svg").matches("<circle").count();
    assert_eq!(dots, 2 * contestants.len() * Failure::ALL.len());

    let own = |line: &&String| line.starts_with("namespace ");
    let left: Vec<_> = kernel::host().unwrap().difference(&before).filter(own).cloned().collect();
    assert_eq!(left, Vec::<String>::new());
}
