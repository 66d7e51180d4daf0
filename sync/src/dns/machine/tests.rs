use super::*;

fn bounds() -> Bounds {
    Bounds { ttl_min: Duration::from_secs(5), ttl_max: Duration::from_secs(60), allowed: Vec::new() }
}

fn answer(addresses: &[&str], secs: u64) -> Answer {
    let target = |text: &&str| Target { address: text.parse().unwrap(), port: None, weight: 1 };
    Answer::Targets(addresses.iter().map(target).collect(), Duration::from_secs(secs))
}

fn addresses(known: &NameState) -> Vec<String> {
    known.targets.iter().flatten().map(|target| target.address.to_string()).collect()
}

#[test]
fn an_answer_counts_for_its_lifetime_within_bounds() {
    let (mut known, now) = (NameState::default(), Instant::now());
    for (secs, expected) in [(0, 5), (5, 5), (30, 30), (60, 60), (86_400, 60)] {
        known.take(&bounds(), answer(&["192.0.2.1"], secs), now);
        assert_eq!(known.due().unwrap() - now, Duration::from_secs(expected), "{secs}");
    }
}

#[test]
fn what_was_known_stays_when_nothing_is_answered_and_is_asked_for_ever_more_rarely() {
    let (mut known, now) = (NameState::default(), Instant::now());
    let nothing = || Answer::Nothing("no such name".to_owned());
    known.take(&bounds(), nothing(), now);
    assert_eq!((known.targets.clone(), known.complaints.clone()), (None, vec!["no such name".to_owned()]));
    known.take(&bounds(), answer(&["192.0.2.1"], 10), now);
    assert_eq!(known.complaints, [""; 0]);
    let mut waits = Vec::new();
    for _ in 0..8 {
        known.take(&bounds(), nothing(), now);
        assert_eq!(
            (addresses(&known), known.complaints[0].as_str()),
            (vec!["192.0.2.1".to_owned()], "no such name; keeping the last answer")
        );
        waits.push((known.due().unwrap() - now).as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
}

#[test]
fn addresses_of_the_machine_and_the_link_are_never_taken_nor_any_outside_of_what_is_allowed() {
    let (mut known, now) = (NameState::default(), Instant::now());
    known.take(
        &bounds(),
        answer(&["192.0.2.1", "127.0.0.1", "169.254.169.254", "::1", "fe80::1", "0.0.0.0"], 10),
        now,
    );
    assert_eq!(addresses(&known), ["192.0.2.1"]);
    assert_eq!(known.complaints.len(), 5, "{:?}", known.complaints);
    known.take(&bounds(), answer(&["127.0.0.1"], 10), now);
    assert_eq!(addresses(&known), ["192.0.2.1"], "a name that leads to nothing else keeps what it had");
    let allowed = Bounds { allowed: vec!["198.51.100.0/24".parse().unwrap()], ..bounds() };
    known.take(&allowed, answer(&["192.0.2.9", "198.51.100.1"], 10), now);
    assert_eq!(addresses(&known), ["198.51.100.1"]);
    assert!(known.complaints[0].contains("--allow"), "{:?}", known.complaints);
}
