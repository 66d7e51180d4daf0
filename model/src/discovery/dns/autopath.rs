//! Search path of a client, followed by the server: the first question of the path gets the answer of the first name that
//! exists, as an alias, so that the client need not ask for the others.

use std::net::IpAddr;

use super::{
    answer::{answer, labels_below},
    record::{Answer, DnsQuestion, Record, RecordData, RecordType, Resolution, ResponseCode},
    zone::Zone,
};
use crate::primitives::name::Name;

/// Answers a question that a client asks first on its search path (`NAME.NAMESPACE.svc.ZONE`), if that name does not
/// exist: with an alias to the first name of the rest of the path that exists. The namespace is that of the Workload with
/// the address of the client; other clients get no such answer. `None` if there is no such name, or the question is
/// another one. The last name of the path is the name itself, which only an upstream server may know: it is the alias in
/// [`Answer::chase`] if `can_forward`.
#[must_use]
pub fn answer_on_search_path(
    zone: &Zone,
    question: &DnsQuestion,
    client: IpAddr,
    can_forward: bool,
) -> Option<Answer> {
    if !matches!(question.record_type, RecordType::A | RecordType::Aaaa) {
        return None;
    }
    let namespace = zone.workload_at(client)?.namespace.as_ref()?;
    let domain = &zone.settings.domain;
    let first = Name::parse(&format!("{namespace}.svc.{domain}")).ok()?;
    let name = labels_below(&question.labels, &first).filter(|name| !name.is_empty())?.join(".");
    let alias = |target: &str| Record {
        owner: question.labels.join("."),
        ttl: zone.settings.ttl,
        data: RecordData::Cname(target.to_owned()),
    };
    for target in [format!("{name}.svc.{domain}"), format!("{name}.{domain}"), name.clone()] {
        match answer(zone, &DnsQuestion::new(&target, question.record_type)) {
            Resolution::Own(mut found) if found.code == ResponseCode::NoError => {
                if found.chase.is_some() && !can_forward {
                    return None;
                }
                found.answers.insert(0, alias(&target));
                return Some(found);
            }
            // A name without a dot is not one of the internet.
            Resolution::Foreign if can_forward && target.contains('.') => {
                return Some(Answer {
                    code: ResponseCode::NoError,
                    answers: vec![alias(&target)],
                    authority: Vec::new(),
                    additional: Vec::new(),
                    chase: Some(target),
                });
            }
            Resolution::Own(_) | Resolution::Foreign | Resolution::Refused | Resolution::Unknown => {}
        }
    }
    None
}
