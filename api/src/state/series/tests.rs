use model::primitives::name::Namespace;

use super::*;
use crate::state::series::NodeSample;

fn key(number: usize) -> ServiceKey {
    ServiceKey {
        namespace: Namespace::parse("default").unwrap(),
        name: Name::parse(&format!("s{number}")).unwrap(),
    }
}

fn of_service(number: usize, connections: Option<f32>) -> Sample {
    Sample { services: vec![(key(number), [connections, None, Some(0.0)])], ..Sample::default() }
}

fn points(book: &SeriesBook, of: &Of, name: &str) -> Vec<Option<f64>> {
    let answer = book.read(of).unwrap();
    answer.series.into_iter().find(|series| series.name == name).unwrap().points
}

/// Missing values and steps become gaps, points older than an hour are dropped, and after a clock change the
/// series start over.
#[test]
fn what_was_not_known_is_a_gap_and_an_hour_is_kept() {
    let (book, of) = (SeriesBook::default(), Of::Service(key(1)));
    assert_eq!(book.read(&of), None);
    book.take(100, &of_service(1, Some(2.5)));
    book.take(101, &Sample::default());
    book.take(103, &of_service(1, Some(0.0)));
    assert_eq!(points(&book, &of, "connections"), [Some(2.5), None, None, Some(0.0)]);
    assert_eq!(points(&book, &of, "bytes"), [None; 4]);
    assert_eq!(points(&book, &of, "active"), [Some(0.0), None, None, Some(0.0)]);
    assert_eq!(points(&book, &Of::Service(key(2)), "active"), [None; 4]);
    let answer = book.read(&of).unwrap();
    assert_eq!((answer.start.unix_seconds(), answer.step_seconds, answer.left_out), (1000, 10, None));
    assert_eq!(
        (book.due(Timestamp::from_unix_seconds(1039)), book.due(Timestamp::from_unix_seconds(1040))),
        (None, Some(104))
    );
    book.take(100 + POINTS_I64, &of_service(1, Some(7.0)));
    let found = points(&book, &of, "connections");
    assert_eq!((found.len(), found[2], found[POINTS - 1]), (POINTS, Some(0.0), Some(7.0)));
    assert_eq!(found.iter().flatten().count(), 2);
    for jump in [50, 1_000_000] {
        book.take(jump, &of_service(1, Some(1.0)));
        assert_eq!(points(&book, &of, "connections"), [Some(1.0)]);
    }
}

/// At the memory limit the busiest Services are kept, and the response names the limit. After an hour without
/// traffic the memory is free again.
#[test]
fn room_is_bounded_what_is_left_out_is_said_and_quiet_makes_room() {
    let book = SeriesBook::default();
    let all = |connections: f32| {
        let one = |number| (key(number), [Some(connections), Some(connections), Some(connections)]);
        Sample { services: (0..=TRACKS_WITH_VALUES_MAX / 3).map(one).collect(), ..Sample::default() }
    };
    book.take(0, &all(1.0));
    let last = Of::Service(key(TRACKS_WITH_VALUES_MAX / 3));
    assert_eq!(points(&book, &Of::Service(key(0)), "active"), [Some(1.0)]);
    assert_eq!(points(&book, &last, "active"), [None]);
    let left_out = book.read(&last).unwrap().left_out.unwrap();
    assert!(left_out.contains("12000"), "{left_out}");
    assert_eq!(book.read(&Of::Service(key(0))).unwrap().left_out, None);
    assert_eq!(book.lock().full, TRACKS_WITH_VALUES_MAX);
    for step in 1..=POINTS_I64 {
        book.take(step, &if step == POINTS_I64 { all(0.0) } else { Sample::default() });
    }
    assert_eq!(book.lock().full, 0);
    assert_eq!(points(&book, &last, "active").last(), Some(&Some(0.0)));
    book.take(2 * POINTS_I64, &Sample::default());
    assert_eq!(book.lock().services.len(), 0, "what is gone for an hour is forgotten");
}

/// The removal of a Service releases the memory of its series.
#[test]
fn what_is_gone_leaves_its_room() {
    let book = SeriesBook::default();
    let values = |number| (key(number), [Some(1.0), Some(f32::from(u8::from(number != 2))), None]);
    book.take(0, &Sample { services: (0..4).map(values).collect(), ..Sample::default() });
    assert_eq!(book.lock().full, 7);
    book.forget_gone(|service| *service == key(2), |_| false);
    let kept = book.lock();
    assert_eq!((kept.full, kept.services.keys().collect::<Vec<_>>()), (1, vec![&key(2)]));
}

#[test]
fn revisions_of_a_node_keep_all_their_digits() {
    let (book, of) = (SeriesBook::default(), Of::Node(Name::parse("n1").unwrap()));
    let large = 9_000_000_000_001;
    for (step, programmed, lag_ms) in
        [(1, Some(large), Some(0)), (2, Some(large + 1), Some(40)), (3, None, None)]
    {
        let node = NodeSample { programmed, lag_ms, behind: lag_ms, is_healthy: lag_ms == Some(0) };
        book.take(step, &Sample { nodes: vec![(Name::parse("n1").unwrap(), node)], ..Sample::default() });
    }
    assert_eq!(
        points(&book, &of, "programmed"),
        [Some(9_000_000_000_001.0), Some(9_000_000_000_002.0), None]
    );
    assert_eq!(points(&book, &of, "lag"), [Some(0.0), Some(40.0), None]);
    assert_eq!(points(&book, &of, "healthy"), [Some(1.0), Some(0.0), Some(0.0)]);
}
