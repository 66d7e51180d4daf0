//! Tests of the text representation of notifications.

use bgp::{
    Notification,
    notification::{cease, code, words},
};

/// Every error code, subcode and data field has the expected text representation.
#[test]
fn every_notification_has_words() {
    for (code, subcode, data, shown) in [
        (1, 2, &[0, 18][..], "Message Header Error: Bad Message Length (1/2), data 0012"),
        (2, 2, &[][..], "OPEN Message Error: Bad Peer AS (2/2)"),
        (2, 6, &[][..], "OPEN Message Error: Unacceptable Hold Time (2/6)"),
        (2, 11, &[][..], "OPEN Message Error: Role Mismatch (2/11)"),
        (3, 11, &[0x40, 2, 1, 9][..], "UPDATE Message Error: Malformed AS_PATH (3/11), data 40020109"),
        (4, 0, &[][..], "Hold Timer Expired (4/0)"),
        (5, 3, &[][..], "Finite State Machine Error: Unexpected Message in Established (5/3)"),
        (6, 0, &[][..], "Cease (6/0)"),
        (
            6,
            1,
            &[0, 1, 1, 0, 0, 0, 100][..],
            "Cease: Maximum Number of Prefixes Reached (6/1), data 00010100000064",
        ),
        (6, 2, &[][..], "Cease: Administrative Shutdown (6/2)"),
        (6, 2, &b"\x05later"[..], "Cease: Administrative Shutdown (6/2): \"later\""),
        (6, 7, &[][..], "Cease: Connection Collision Resolution (6/7)"),
        (
            6,
            9,
            &b"\x06\x02\x05later"[..],
            "Cease: Hard Reset (6/9) by Cease: Administrative Shutdown (6/2): \"later\"",
        ),
        (6, 9, &[][..], "Cease: Hard Reset (6/9)"),
        (6, 10, &[][..], "Cease: BFD Down (6/10)"),
        (6, 200, &[][..], "Cease (6/200)"),
        (7, 1, &[][..], "ROUTE-REFRESH Message Error: Invalid Message Length (7/1)"),
        (8, 0, &[][..], "Send Hold Timer Expired (8/0)"),
        (99, 7, &[1; 20][..], "unknown error (99/7), data 01010101010101010101010101010101…"),
    ] {
        assert_eq!(Notification { code, subcode, data: data.to_vec() }.to_string(), shown);
    }
}

#[test]
fn every_defined_subcode_has_words_of_its_own() {
    let defined = [
        (code::HEADER, 1..=3),
        (code::OPEN, 1..=7),
        (code::OPEN, 11..=11),
        (code::UPDATE, 1..=11),
        (code::FSM, 1..=3),
        (code::CEASE, 1..=10),
        (code::REFRESH, 1..=1),
    ];
    let all: Vec<_> = defined
        .into_iter()
        .flat_map(|(code, subcodes)| subcodes.map(move |subcode| words(code, subcode)))
        .collect();
    let different: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(all.len(), different.len());
    assert!(all.iter().all(|words| words.contains(": ")), "{all:?}");
}

/// A Shutdown Communication is truncated to 255 bytes at a character boundary (RFC 9003 §2).
#[test]
fn shutdown_texts_are_cut_between_characters() {
    let text = "ä".repeat(200);
    let notification = Notification::cease(cease::SHUTDOWN, &text);
    assert_eq!((notification.data.len(), notification.data[0]), (255, 254));
    assert_eq!(notification.text(), Some("ä".repeat(127)));
    assert_eq!(Notification::cease(cease::RESET, "").data, []);
    // Other subcodes carry no text.
    assert_eq!(Notification::cease(cease::DECONFIGURED, "gone").data, []);
}

#[test]
fn received_texts_are_harmless() {
    let text = |data: &[u8]| Notification { code: 6, subcode: 2, data: data.into() }.text();
    assert_eq!(text(b"\x04\x1b[2J"), Some("\u{fffd}[2J".into()));
    assert_eq!(text(b"\x03a\xffb"), Some("a\u{fffd}b".into()));
    assert_eq!(text("\u{3}\u{202e}".as_bytes()), Some("\u{fffd}".into()));
    // Length beyond the data.
    assert_eq!(text(b"\xffab"), Some("ab".into()));
    assert_eq!(text(b"\x01ab"), Some("a".into()));
    assert_eq!((text(b""), text(b"\x00")), (None, None));
}

/// A Hard Reset contains the original notification, and returns its text (RFC 8538 §3.1).
#[test]
fn a_hard_reset_holds_why() {
    let shutdown = Notification::cease(cease::SHUTDOWN, "later");
    let hard = shutdown.clone().into_hard_reset();
    assert_eq!((hard.code, hard.subcode, hard.data.as_slice()), (6, 9, &b"\x06\x02\x05later"[..]));
    assert!(hard.is_hard_reset() && !shutdown.is_hard_reset());
    assert_eq!(hard.inner(), Some(shutdown.clone()));
    assert_eq!((shutdown.inner(), hard.text()), (None, Some("later".into())));
}
