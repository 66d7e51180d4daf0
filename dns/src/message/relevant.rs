//! Records of a response that belong to its question. An upstream server, or a server that it asked, can add others to any section; they would reach the caches
//! of clients (RFC 2181 §5.4.1, RFC 5452 §6).

use std::collections::BTreeSet;

use hickory_proto::{
    op::Message,
    rr::{Name, RData, Record, RecordType, rdata::HTTPS},
};

/// Maximum number of aliases that are followed. Records behind more of them are left out.
const ALIASES_MAX: usize = 16;

/// Leaves out the records that do not belong to the question for `name`. The rest is, by section:
/// - answers: records of the name and of the names to which its aliases lead, in any order,
/// - authority: records of the zones above these names, and proofs of these zones that a name or record does not exist,
/// - additional: addresses of names that remaining records contain.
pub(super) fn keep(name: &Name, message: &mut Message) {
    let chain = chain(name, &message.answers);
    let is_above = |owner: &Name| chain.iter().any(|name| owner.zone_of(name));
    let is_of_chain = |owner: &Name| chain.iter().any(|name| owner.eq_ignore_root(name));
    // An alias of a whole tree (DNAME) is above the names, as is its signature.
    let is_tree = |kind: RecordType| matches!(kind, RecordType::DNAME | RecordType::RRSIG);
    message.answers.retain(|record| {
        is_of_chain(&record.name) || (is_tree(record.record_type()) && is_above(&record.name))
    });
    let zones: BTreeSet<Name> = message
        .authorities
        .iter()
        .filter(|record| matches!(record.record_type(), RecordType::SOA | RecordType::NS))
        .map(|record| record.name.clone())
        .filter(is_above)
        // More than one for each name of the chain makes no sense.
        .take(ALIASES_MAX + 1)
        .collect();
    message.authorities.retain(|record| {
        let owner = &record.name;
        is_above(owner) || (is_proof(record.record_type()) && zones.iter().any(|zone| zone.zone_of(owner)))
    });
    let targets: BTreeSet<Name> = message
        .answers
        .iter()
        .chain(&message.authorities)
        .filter_map(target)
        .map(Name::to_lowercase)
        .collect();
    message.additionals.retain(|record| {
        let is_address = matches!(record.record_type(), RecordType::A | RecordType::AAAA | RecordType::RRSIG);
        is_address && (is_of_chain(&record.name) || targets.contains(&record.name.to_lowercase()))
    });
}

/// Returns the name and those to which aliases lead from it, in order.
fn chain(name: &Name, answers: &[Record]) -> Vec<Name> {
    let mut chain = vec![name.clone()];
    let mut last = name;
    while chain.len() <= ALIASES_MAX {
        let next = answers.iter().filter(|record| record.name.eq_ignore_root(last)).find_map(|record| {
            let RData::CNAME(target) = &record.data else { return None };
            Some(&target.0)
        });
        let Some(next) = next.filter(|next| chain.iter().all(|known| !known.eq_ignore_root(next))) else {
            break;
        };
        chain.push(next.clone());
        last = next;
    }
    chain
}

/// Returns true for the types of records that prove that others do not exist (RFC 4034 §4, RFC 5155 §3).
fn is_proof(record_type: RecordType) -> bool {
    matches!(record_type, RecordType::NSEC | RecordType::NSEC3 | RecordType::RRSIG)
}

/// Returns the name in a record whose addresses are useful together with it.
fn target(record: &Record) -> Option<&Name> {
    if let RData::NS(server) = &record.data {
        Some(&server.0)
    } else if let RData::MX(server) = &record.data {
        Some(&server.exchange)
    } else if let RData::SRV(server) = &record.data {
        Some(&server.target)
    } else if let RData::SVCB(service) | RData::HTTPS(HTTPS(service)) = &record.data {
        Some(&service.target_name)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::{
        op::{MessageType, OpCode},
        rr::rdata::{A, CNAME, NS, SOA, SRV},
    };

    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn record(owner: &str, data: RData) -> Record {
        Record::from_rdata(name(owner), 60, data)
    }

    fn address(owner: &str) -> Record {
        record(owner, RData::A(A([192, 0, 2, 1].into())))
    }

    fn alias(owner: &str, target: &str) -> Record {
        record(owner, RData::CNAME(CNAME(name(target))))
    }

    /// Returns the owners of the records that remain, by section.
    fn kept(sections: [Vec<Record>; 3]) -> [Vec<String>; 3] {
        let mut message = Message::new(1, MessageType::Response, OpCode::Query);
        let [answers, authorities, additionals] = sections;
        message.add_answers(answers);
        message.add_authorities(authorities);
        message.add_additionals(additionals);
        keep(&name("www.example.org."), &mut message);
        [&message.answers, &message.authorities, &message.additionals]
            .map(|records| records.iter().map(|record| record.name.to_string()).collect())
    }

    #[test]
    fn records_of_other_names_are_left_out() {
        let answers = vec![
            address("bank.example.com."),
            address("b.example.net."),
            alias("WWW.example.org.", "a.example.net."),
            alias("bank.example.com.", "www.example.org."),
            alias("a.example.net.", "b.example.net."),
        ];
        let ns = |owner, server| record(owner, RData::NS(NS(name(server))));
        let start = SOA::new(name("ns.example.net."), name("mail.example.net."), 1, 1, 1, 1, 1);
        let authority = vec![
            ns("net.", "ns.example.net."),
            ns("example.com.", "ns.evil.example."),
            record("example.net.", RData::SOA(start)),
            ns("x.b.example.net.", "ns.evil.example."),
        ];
        let additional =
            vec![address("ns.example.net."), address("ns.evil.example."), address("NS.example.net.")];
        let kept = kept([answers, authority, additional]);
        assert_eq!(kept[0], ["b.example.net.", "WWW.example.org.", "a.example.net."]);
        assert_eq!(kept[1], ["net.", "example.net."]);
        assert_eq!(kept[2], ["ns.example.net.", "NS.example.net."]);
    }

    #[test]
    fn records_of_the_name_remain() {
        let server = record("www.example.org.", RData::SRV(SRV::new(0, 0, 80, name("db.example.org."))));
        let kept = kept([
            vec![address("www.example.org."), server],
            Vec::new(),
            vec![address("db.example.org."), address("other.example.org.")],
        ]);
        assert_eq!(kept, [vec!["www.example.org."; 2], vec![], vec!["db.example.org."]]);
    }

    /// Loops and long chains end.
    #[test]
    fn aliases_are_followed_to_a_limit() {
        let circle = vec![alias("www.example.org.", "a.org."), alias("a.org.", "www.example.org.")];
        assert_eq!(kept([circle, Vec::new(), Vec::new()])[0].len(), 2);
        let mut long = vec![alias("www.example.org.", "n0.org.")];
        long.extend((0..1000).map(|at| alias(&format!("n{at}.org."), &format!("n{}.org.", at + 1))));
        assert_eq!(kept([long, Vec::new(), Vec::new()])[0].len(), ALIASES_MAX + 1);
    }
}
