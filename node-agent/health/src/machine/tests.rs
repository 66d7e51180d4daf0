//! Tests of the thresholds `rise` and `fall`, and of the start delay.

use super::*;

const RULES: Rules = Rules { rise: 2, fall: 3 };

/// Applies one result per second (`g` success, `b` failure, other letters: not probed) and returns the health
/// state after each.
fn play(start_delay_secs: u64, rules: Rules, answers: &str) -> String {
    let begin = Instant::now();
    let wall = Timestamp::from_unix_seconds(0);
    let mut machine = Machine::new(Duration::from_secs(start_delay_secs), begin, wall);
    let mut states = String::new();
    for (second, answer) in (1..).zip(answers.chars()) {
        let outcome = match answer {
            'g' => Outcome::Good,
            'b' => Outcome::Silent,
            _ => Outcome::NotAsked,
        };
        let before = machine.state();
        let now = begin + Duration::from_secs(second);
        let change = machine.handle(&Verdict::new(outcome, "words"), rules, now, wall);
        assert_eq!(change == Change::State, machine.state() != before, "{answers} at {second}");
        states.push(match machine.state() {
            CheckState::Pending => '.',
            CheckState::Healthy => 'H',
            CheckState::Unhealthy => 'U',
        });
    }
    states
}

#[test]
fn so_many_in_a_row_decide() {
    for (answers, states) in [
        ("gg", ".H"),
        ("gbgg", "...H"),
        ("bbb", "..U"),
        ("bbgbbb", ".....U"),
        ("ggbbgbbb", ".HHHHHHU"),
        ("bbbgbgg", "..UUUUH"),
        ("ggbbbgg", ".HHHUUH"),
        // A check that could not be run changes no counter.
        ("gng", "..H"),
        ("ggbnbnb", ".HHHHHU"),
        ("nnnnnn", "......"),
    ] {
        assert_eq!(play(0, RULES, answers), states, "{answers}");
    }
    assert_eq!(play(0, Rules { rise: 1, fall: 1 }, "gbgb"), "HUHU");
}

/// An endpoint that refuses connections is unhealthy after two further seconds, also if it is checked every ten seconds.
#[test]
fn a_refusal_is_repeated_after_a_second_until_it_decides() {
    let (begin, wall) = (Instant::now(), Timestamp::from_unix_seconds(0));
    let ten = Duration::from_secs(10);
    let mut machine = Machine::new(Duration::ZERO, begin, wall);
    let mut intervals = Vec::new();
    for outcome in
        [Outcome::Good, Outcome::Good, Outcome::Refused, Outcome::Silent, Outcome::Refused, Outcome::Refused]
    {
        machine.handle(&Verdict::new(outcome, "words"), RULES, begin, wall);
        intervals.push(machine.interval_after(outcome, ten).as_secs());
    }
    assert_eq!((intervals, machine.state()), (vec![10, 10, 1, 10, 10, 10], CheckState::Unhealthy));
    let mut fresh = Machine::new(Duration::ZERO, begin, wall);
    fresh.handle(&Verdict::new(Outcome::Refused, "words"), RULES, begin, wall);
    let quick = Duration::from_millis(200);
    assert_eq!(fresh.interval_after(Outcome::Refused, quick), quick, "never longer than the interval");
}

#[test]
fn bad_answers_do_not_count_during_the_start_delay() {
    // The start delay ends with second 5: the results of seconds 1 to 4 do not count.
    assert_eq!(play(5, RULES, "bbbbbbb"), "......U");
    // The first success ends the start delay.
    assert_eq!(play(100, RULES, "bbbbgbbb"), ".......U");
    assert_eq!(play(100, RULES, "bbgg"), "...H");
}

#[test]
fn the_words_say_what_led_there() {
    let (now, wall) = (Instant::now(), Timestamp::from_unix_seconds(7));
    let mut machine = Machine::new(Duration::ZERO, now, Timestamp::from_unix_seconds(1));
    let key = CheckKey {
        address: "10.0.0.1".parse().unwrap(),
        port: model::primitives::quantity::Port::new(80).unwrap(),
    };
    let mut take = |outcome, words: &str| {
        let change = machine.handle(&Verdict::new(outcome, words), RULES, now, wall);
        let report = machine.report(key);
        (change, report.message, report.since.unix_seconds())
    };
    assert_eq!(
        take(Outcome::Silent, "no answer"),
        (Change::Words, "no answer; 1 bad of 3 in a row".to_owned(), 1)
    );
    assert_eq!(take(Outcome::Good, "yes"), (Change::Words, "yes; 1 good of 2 in a row".to_owned(), 1));
    assert_eq!(take(Outcome::Good, "yes"), (Change::State, "yes".to_owned(), 7));
    assert_eq!(take(Outcome::Refused, "no"), (Change::Nothing, "yes".to_owned(), 7));
    assert_eq!(take(Outcome::Refused, "no"), (Change::Nothing, "yes".to_owned(), 7));
    assert_eq!(take(Outcome::Silent, "never"), (Change::State, "never".to_owned(), 7));
    assert_eq!(take(Outcome::Refused, "no"), (Change::Words, "no".to_owned(), 7));
    assert_eq!(take(Outcome::Refused, "no"), (Change::Nothing, "no".to_owned(), 7));
    assert_eq!(machine.give_up("for a reason", wall), Change::State);
    assert_eq!(machine.report(key).state, CheckState::Pending);
    assert_eq!(machine.report(key).message, "is not checked: for a reason");
}

#[test]
fn checks_spread_and_never_come_late() {
    let now = Instant::now();
    let interval = Duration::from_secs(10);
    let dues: Vec<_> = (0..1000_u64)
        .map(|number| next_due(now, interval, number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) - now)
        .collect();
    assert!(dues.iter().all(|due| (Duration::from_secs(9)..=interval).contains(due)));
    assert!(dues.iter().min().unwrap() < &Duration::from_millis(9100));
    assert!(dues.iter().max().unwrap() > &Duration::from_millis(9900));
    assert_eq!(first_due(now, interval, 0), now);
    assert!(first_due(now, interval, u64::MAX) <= now + Duration::from_secs(1));
    assert_eq!(first_due_by_default(now, interval, 10_000_000), now + interval);
    assert_eq!(first_due_by_default(now, interval, 10_000_001), now);
}
