use super::*;

#[test]
fn an_expression_matches_itself_and_no_other() {
    let set = || "services4".to_owned();
    let all = [
        Expr::LoadMeta(Meta::Mark, Register(1)),
        Expr::StoreMark(Register(1)),
        Expr::equal(1, &[6]),
        Expr::unequal(1, &[6]),
        Expr::LoadSource(IpFamily::V4, Register(1)),
        Expr::LoadDestination(IpFamily::V4, Register(1)),
        Expr::Random { modulus: 2, offset: 0, to: Register(9) },
        Expr::Random { modulus: 3, offset: 0, to: Register(9) },
        Expr::Random { modulus: 3, offset: 65_536, to: Register(9) },
        Expr::Hash { from: Register(1), words: 1, modulus: 3, offset: 0, to: Register(2) },
        Expr::Hash { from: Register(1), words: 2, modulus: 3, offset: 0, to: Register(2) },
        Expr::Dynamic {
            operation: DynamicSet::Update { seconds: 5 },
            map: set(),
            key: Register(1),
            data: Register(2),
        },
        Expr::Dynamic { operation: DynamicSet::Delete, map: set(), key: Register(1), data: Register(2) },
        Expr::Redirect { port: Register(1) },
        Expr::RedirectHere,
        Expr::LoadIcmpType(Register(1)),
        Expr::LoadQuoted(QuotedField::SourcePort, IpFamily::V4, Register(1)),
        Expr::LoadQuoted(QuotedField::SourcePort, IpFamily::V6, Register(1)),
        Expr::LoadReversePath(Register(1)),
        Expr::LoadSourceIsLocal(Register(1)),
        Expr::LoadMeta(Meta::InboundInterface, Register(1)),
        Expr::LoadMeta(Meta::OutboundInterface, Register(1)),
        Expr::LoadConntrackState(Register(1)),
        Expr::LoadConntrackStatus(Register(1)),
        Expr::LoadConntrack(ConntrackField::Direction, Register(1)),
        Expr::LoadConntrack(ConntrackField::Protocol, Register(1)),
        Expr::LoadConntrack(ConntrackField::OriginalDestination(IpFamily::V4), Register(1)),
        Expr::LoadConntrack(ConntrackField::OriginalDestination(IpFamily::V6), Register(1)),
        Expr::LoadConntrack(ConntrackField::OriginalDestinationPort, Register(1)),
        Expr::LoadQuoted(QuotedField::ErrorKind, IpFamily::V4, Register(1)),
        Expr::bits(1, 0x4000),
        Expr::InSet { set: set(), from: Register(1) },
        Expr::InSet { set: "ping-answered4".to_owned(), from: Register(1) },
        Expr::VerdictMap { map: set(), from: Register(1) },
        Expr::DestinationNat { family: IpFamily::V4, address: Register(1), port: Some(Register(9)) },
        Expr::DestinationNat { family: IpFamily::V4, address: Register(1), port: None },
        Expr::Verdict(VerdictExpr::Drop),
        Expr::Verdict(VerdictExpr::Goto("refuse".into())),
    ];
    for (i, wanted) in all.iter().enumerate() {
        for (j, shown) in all.iter().enumerate() {
            let shape = shown.shape();
            let same = wanted.matches(shape.name, AttributeIter::new(shape.data.as_bytes())).unwrap();
            assert_eq!(same, i == j, "{wanted} against {shown}");
        }
    }
}

#[test]
fn words_that_start_a_register_are_named_by_it() {
    let numbers: Vec<_> = (0..9).map(|word| Register::word(word).0).collect();
    assert_eq!(numbers, [1, 9, 10, 11, 2, 13, 14, 15, 3]);
}
