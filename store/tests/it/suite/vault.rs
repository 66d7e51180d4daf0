//! Test scenarios for the vault (secrets): a record changes only if the caller specifies its current version.

use store::{VAULT_BYTES_MAX, VAULT_KEY_BYTES_MAX, VaultError};

use super::*;

pub(crate) async fn vault_records_change_only_for_who_knows_their_version(place: Place) {
    let store = place.open().await;
    store.commit(at(0), &[added(1, 0)]).await.unwrap();
    let before = store.load().await.unwrap();
    assert!(store.vault().await.unwrap().is_empty());
    let first = store.put_vault("tokens/a", 0, Some(b"one")).await.unwrap();
    let other = store.put_vault("tokens/b", 0, Some(b"\0\xff")).await.unwrap();
    assert!(0 < first && first < other);
    for wrong in [0, other, first + 100] {
        let refused = store.put_vault("tokens/a", wrong, Some(b"lost")).await;
        assert!(matches!(refused, Err(VaultError::Stale { found }) if found == first), "{refused:?}");
    }
    let second = store.put_vault("tokens/a", first, Some(b"two")).await.unwrap();
    assert!(second > other);
    let all = store.vault().await.unwrap();
    let read: Vec<_> =
        all.iter().map(|(key, record)| (key.as_str(), record.version, &*record.body)).collect();
    assert_eq!(read, [("tokens/a", second, &b"two"[..]), ("tokens/b", other, &b"\0\xff"[..])]);
    assert!(!format!("{all:?}").contains("two"), "what it holds is not shown");
    let gone = store.put_vault("tokens/a", second, None).await.unwrap();
    assert!(gone > second);
    let refused = store.put_vault("tokens/a", second, Some(b"lost")).await;
    assert!(matches!(refused, Err(VaultError::Stale { found: 0 })), "{refused:?}");
    let again = store.put_vault("tokens/a", 0, Some(b"three")).await.unwrap();
    assert!(again > gone, "no version comes back");
    assert_eq!(store.load().await.unwrap(), before, "it moves no revision");
    drop(store);
    if !place.is_forgetful() {
        let store = place.open().await;
        assert_eq!(store.vault().await.unwrap()["tokens/a"].body, b"three");
    }
}

pub(crate) async fn of_concurrent_vault_writes_exactly_one_wins(place: Place) {
    let store = place.open().await;
    let version = store.put_vault("lock", 0, Some(b"free")).await.unwrap();
    let attempts = (0..8_u8).map(|who| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.put_vault("lock", version, Some(&[who])).await.is_ok() })
    });
    let attempts: Vec<_> = attempts.collect();
    let mut winners = Vec::new();
    for (who, attempt) in (0..8_u8).zip(attempts) {
        if attempt.await.unwrap() {
            winners.push(who);
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(store.vault().await.unwrap()["lock"].body, winners);
}

pub(crate) async fn vault_records_beyond_a_limit_are_refused(place: Place) {
    let store = place.open().await;
    let (key, body) = ("k".repeat(VAULT_KEY_BYTES_MAX), vec![b'x'; VAULT_BYTES_MAX]);
    let version = store.put_vault(&key, 0, Some(&body)).await.unwrap();
    for (key, body) in [(format!("{key}k"), body.clone()), (key.clone(), vec![b'x'; VAULT_BYTES_MAX + 1])] {
        let refused = store.put_vault(&key, 0, Some(&body)).await;
        assert!(matches!(refused, Err(VaultError::TooLarge { .. })), "{refused:?}");
    }
    let all = store.vault().await.unwrap();
    assert_eq!((all.len(), all[&key].version), (1, version));
}
