//! Test scenarios for the audit log of a store.

use model::primitives::quantity::{Position, Revision, Timestamp};
use store::{
    AUDIT_AGE_MAX_SECS, AUDIT_ANONYMOUS_KEPT, AUDIT_BODY_BYTES_MAX, AUDIT_KEPT, AUDIT_PASSING_KEPT,
    AuditPool, AuditRecord, Store,
};

use super::{BIRTH, Place, added, at};

pub(crate) fn record(number: u64, pool: AuditPool) -> AuditRecord {
    let body = format!("entry {number}").into_bytes();
    AuditRecord { number, at: Timestamp::from_unix_seconds(BIRTH), pool, body }
}

async fn numbers(store: &dyn Store, before: Option<u64>, limit: usize) -> Vec<u64> {
    store.audit(before, limit).await.unwrap().iter().map(|record| record.number).collect()
}

pub(crate) async fn audit_is_kept_with_its_commit_and_listed_newest_first(place: Place) {
    let store = place.open().await;
    store.put_audit(&[record(1, AuditPool::Passing), record(3, AuditPool::Passing)]).await.unwrap();
    store.commit_with_records(at(0), &[added(1, 0)], &[], &[record(2, AuditPool::Changes)]).await.unwrap();
    assert_eq!(numbers(&*store, None, 10).await, [3, 2, 1]);
    assert_eq!(numbers(&*store, Some(3), 1).await, [2]);
    assert_eq!(store.audit(Some(3), 1).await.unwrap(), [record(2, AuditPool::Changes)]);
    // A stale commit drops its audit records.
    let stale = store.commit_with_records(at(0), &[added(1, 0)], &[], &[record(4, AuditPool::Changes)]).await;
    assert!(stale.is_err());
    assert_eq!(numbers(&*store, None, 1).await, [3]);
    let position = Position { revision: Revision(1), ..at(0) };
    assert_eq!(store.load().await.unwrap().position, position, "entries move no revision");
    // Existing records are not changed.
    store
        .put_audit(&[AuditRecord { body: b"other".to_vec(), ..record(2, AuditPool::Changes) }])
        .await
        .unwrap();
    assert_eq!(store.audit(Some(3), 1).await.unwrap(), [record(2, AuditPool::Changes)]);
    let large = AuditRecord { body: vec![b'x'; AUDIT_BODY_BYTES_MAX + 1], ..record(5, AuditPool::Passing) };
    assert!(store.put_audit(&[large]).await.is_err());
}

pub(crate) async fn audit_is_bounded_by_kind_and_by_age(place: Place) {
    let store = place.open().await;
    store.put_audit(&[record(1, AuditPool::Changes)]).await.unwrap();
    let flood = AUDIT_PASSING_KEPT as u64 * 5 / 4;
    let records: Vec<_> = (2..2 + flood).map(|number| record(number, AuditPool::Passing)).collect();
    for some in records.chunks(500) {
        store.put_audit(some).await.unwrap();
    }
    let probe = 2 + flood;
    let anonymous: Vec<_> = (1..=AUDIT_ANONYMOUS_KEPT as u64 * 5 / 4)
        .map(|more| record(probe + more, AuditPool::Anonymous))
        .collect();
    for some in anonymous.chunks(500) {
        store.put_audit(some).await.unwrap();
    }
    let all = store.audit(None, usize::MAX).await.unwrap();
    let unknown = all.iter().filter(|record| record.pool == AuditPool::Anonymous).count();
    assert!((AUDIT_ANONYMOUS_KEPT..=AUDIT_ANONYMOUS_KEPT * 11 / 10).contains(&unknown), "{unknown}");
    let all: Vec<_> = all.into_iter().filter(|record| record.pool != AuditPool::Anonymous).collect();
    let passing = all.iter().filter(|record| record.pool == AuditPool::Passing).count();
    assert!((AUDIT_PASSING_KEPT..=AUDIT_PASSING_KEPT * 11 / 10).contains(&passing), "{passing}");
    assert_eq!(all[0].number, 1 + flood, "the newest stay");
    assert_eq!(all.last(), Some(&record(1, AuditPool::Changes)), "what changed something is not pushed out");

    let records: Vec<_> = (0..(AUDIT_KEPT + AUDIT_KEPT / 10 + 1) as u64)
        .map(|number| record(10_000 + number, AuditPool::Changes))
        .collect();
    store.put_audit(&records).await.unwrap();
    let all = store.audit(None, usize::MAX).await.unwrap();
    assert_eq!(all.iter().filter(|record| record.pool == AuditPool::Changes).count(), AUDIT_KEPT);

    let later = Timestamp::from_unix_seconds(BIRTH + AUDIT_AGE_MAX_SECS + 1);
    store.put_audit(&[AuditRecord { at: later, ..record(90_000, AuditPool::Passing) }]).await.unwrap();
    store.drop_old_audit(later).await.unwrap();
    assert_eq!(numbers(&*store, None, 10).await, [90_000]);
}
