//! Test scenarios for stores shared by several servers: concurrent writes and leadership.

use std::{sync::Arc, time::Duration};

use model::primitives::quantity::{Revision, Timestamp};
use store::{CommitError, Store};

use super::{BIRTH, Place, added, at};

/// Maximum time to wait for any condition; longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn of_two_servers_exactly_one_wins_and_the_other_hears_of_it(place: Place) {
    let (one, other) = (place.open().await, place.open().await);
    assert!(one.is_shared());
    for round in 0..10_u64 {
        let number = u32::try_from(round).unwrap() * 2;
        let groups = [[added(round + 1, number)], [added(round + 1, number + 1)]];
        let (first, second) =
            tokio::join!(one.commit(at(round), &groups[0]), other.commit(at(round), &groups[1]));
        let (winner, lost, behind) = match (&first, &second) {
            (Ok(()), Err(lost)) => (&groups[0], lost, &other),
            (Err(lost), Ok(())) => (&groups[1], lost, &one),
            both => panic!("{both:?}"),
        };
        assert!(matches!(lost, CommitError::Stale { current } if *current == at(round + 1)), "{lost:?}");
        tokio::time::timeout(PATIENCE, behind.moved(at(round))).await.expect("is told").unwrap();
        assert_eq!(behind.changes(Revision(round), 9).await.unwrap(), winner);
        assert_eq!(behind.head().await.unwrap(), at(round + 1));
    }
    assert_eq!(one.load().await.unwrap(), other.load().await.unwrap());
    let raised = one.raise_epoch(Timestamp::from_unix_seconds(BIRTH + 9)).await.unwrap();
    tokio::time::timeout(PATIENCE, other.moved(at(10))).await.expect("is told").unwrap();
    let old_life = other.commit(at(10), &[added(11, 99)]).await;
    assert!(matches!(old_life, Err(CommitError::Stale { current }) if current == raised), "{old_life:?}");
    other.commit(raised, &[added(11, 99)]).await.unwrap();
    if let (Some(one), Some(other)) = (one.figures(), other.figures()) {
        assert_eq!([one.commits + other.commits, one.conflicts + other.conflicts], [11, 11]);
    }
}

pub(crate) async fn one_server_leads_and_another_when_it_resigns_or_is_gone(place: Place) {
    let leads = async |store: &Arc<dyn Store>| {
        let mut leads = store.leadership();
        tokio::time::timeout(PATIENCE, leads.wait_for(|leads| *leads)).await.expect("leads").unwrap();
    };
    let first = place.open().await;
    leads(&first).await;
    let second = place.open().await;
    second.commit(at(0), &[added(1, 0)]).await.unwrap();
    assert!(!*second.leadership().borrow());
    first.resign().await;
    assert!(!*first.leadership().borrow());
    leads(&second).await;
    let third = place.open().await;
    drop(second);
    leads(&third).await;
    first.commit(at(1), &[added(2, 1)]).await.unwrap();
}
