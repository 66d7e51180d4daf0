//! Explanations of names: the search path of a client, and the reason of each record (F164).

use model::{
    discovery::dns::{
        MessageSection, NameExplanation, NameQuestion, NameResult, RecordType, Zone, ZoneSettings,
        explain_name,
    },
    primitives::name::{Name, Namespace},
};

use crate::dns::cluster;

fn zone() -> Zone {
    let reverse = vec!["10.96.0.0/16".parse().unwrap()];
    let settings = ZoneSettings { reverse, ..ZoneSettings::new(Name::parse("cluster.local").unwrap()) };
    Zone::new(settings, cluster().snapshot)
}

fn question(name: &str, word: &str) -> NameQuestion {
    let record_type = RecordType::parse(word).unwrap();
    NameQuestion { name: name.to_owned(), record_type, client: None, namespace: None }
}

fn of(name: &str, word: &str) -> NameExplanation {
    explain_name(&zone(), &question(name, word))
}

/// Returns the value and the reason of each record of the answer section of the last attempt.
fn answers(explanation: &NameExplanation) -> Vec<(String, String)> {
    let records = explanation.attempts.last().unwrap().records.iter();
    let answers = records.filter(|record| record.section == MessageSection::Answer);
    answers.map(|record| (format!("{} {}", record.record_type, record.data), record.reason.clone())).collect()
}

/// A client tries the names of its search path, up to the first one with records.
#[test]
fn f164_the_search_path_is_that_of_the_clients_namespace() {
    let zone = zone();
    let client = Some("10.1.1.10".parse().unwrap());
    let tried = |name: &str, client, namespace: Option<&str>| {
        let namespace = namespace.map(|it| Namespace::parse(it).unwrap());
        let question = NameQuestion { client, namespace, ..question(name, "A") };
        let explanation = explain_name(&zone, &question);
        let attempts = explanation.attempts.iter().map(|it| format!("{} {:?}", it.name, it.result));
        (attempts.collect::<Vec<_>>().join(", "), explanation.reason)
    };
    let path = "search path of namespace `shop`, in which the client is Workload `web-1`";
    assert_eq!(
        tried("web", client, None),
        ("web.shop.svc.cluster.local Records".to_owned(), path.to_owned())
    );
    let (attempts, _) = tried("web.other", client, None);
    assert_eq!(attempts, "web.other.shop.svc.cluster.local NoName, web.other.svc.cluster.local Records");
    let (attempts, _) = tried("example.com", client, None);
    assert_eq!(
        attempts,
        "example.com.shop.svc.cluster.local NoName, example.com.svc.cluster.local NoName, \
         example.com.cluster.local NoName, example.com Forwarded"
    );
    // An IPv6 question for a name with IPv4 only: the client goes on.
    let six = NameQuestion { record_type: RecordType::Aaaa, client, ..question("web.shop.svc", "A") };
    let results: Vec<_> = explain_name(&zone, &six).attempts.iter().map(|it| it.result).collect();
    assert_eq!(
        results,
        [NameResult::NoName, NameResult::NoName, NameResult::NoRecords, NameResult::Forwarded]
    );
    assert_eq!(tried("a.b.c.d.e.example.com", client, None).0, "a.b.c.d.e.example.com Forwarded");
    let (attempts, reason) = tried("example.com.", client, None);
    assert_eq!(
        (attempts.as_str(), reason.as_str()),
        ("example.com Forwarded", "the name ends with a dot, so no search path is used")
    );
    let (attempts, reason) = tried("web", Some("192.0.2.9".parse().unwrap()), Some("other"));
    assert_eq!(attempts, "web.other.svc.cluster.local Records");
    assert_eq!(reason, "no Workload has the client's address 192.0.2.9; search path of namespace `other`");
    assert_eq!(tried("web.shop.svc.cluster.local", None, None).0, "web.shop.svc.cluster.local Records");
}

/// Every record names the object from which it follows.
#[test]
fn f164_each_record_has_its_reason() {
    let one = |name: &str, word: &str| answers(&of(name, word));
    let pair = |data: &str, reason: &str| vec![(data.to_owned(), reason.to_owned())];
    assert_eq!(
        one("web.shop.svc.cluster.local", "A"),
        pair("A 10.96.0.10", "cluster IP of Service `shop/web`")
    );
    assert_eq!(
        one("_http._tcp.web.shop.svc.cluster.local", "SRV"),
        pair("SRV 0 100 80 web.shop.svc.cluster.local", "port of Service `shop/web`")
    );
    assert_eq!(
        one("hdls.shop.svc.cluster.local", "AAAA"),
        pair("AAAA fd00:1::1", "usable endpoint `db-0` of headless Service `shop/hdls`")
    );
    assert_eq!(
        one("db-1.hdls.shop.svc.cluster.local", "A"),
        pair("A 10.1.2.2", "usable endpoint `db-1` of headless Service `shop/hdls`")
    );
    assert_eq!(
        one("10-1-1-10.shop.pod.cluster.local", "A"),
        pair("A 10.1.1.10", "address of Workload `web-1` in namespace `shop`")
    );
    assert_eq!(
        one("10.0.96.10.in-addr.arpa", "PTR"),
        pair("PTR web.shop.svc.cluster.local", "10.96.0.10 is a cluster IP of Service `shop/web`")
    );
    assert_eq!(
        one("1.2.1.10.in-addr.arpa", "PTR")[0].1,
        "10.1.2.1 is the address of an endpoint of a headless Service"
    );
    let alias = of("alias.shop.svc.cluster.local", "A");
    assert_eq!(answers(&alias), pair("CNAME db.example.com", "Service `shop/alias` has type ExternalName"));
    assert_eq!(
        alias.attempts[0].reason,
        "the alias leads to `db.example.com`, which the DNS server asks of its upstream servers"
    );
}

/// A name that does not exist has the reason, with the place of the mistake.
#[test]
fn f164_a_name_that_does_not_exist_has_its_reason() {
    let cases = [
        ("missing.shop.svc.cluster.local", "there is no Service `shop/missing`"),
        (
            "hdls.other.svc.cluster.local",
            "there is no Service `other/hdls`; there is one of this name in namespace `shop`",
        ),
        ("nowhere.svc.cluster.local", "namespace `nowhere` has no Service and no Workload"),
        (
            "hdls-none.shop.svc.cluster.local",
            "headless Service `shop/hdls-none` has no usable endpoint, ready or serving while it terminates",
        ),
        (
            "_ftp._tcp.web.shop.svc.cluster.local",
            "Service `shop/web` has no port `ftp` with protocol TCP, or no usable endpoint at it",
        ),
        ("_tcp.unnamed.shop.svc.cluster.local", "Service `shop/unnamed` has no named port with protocol TCP"),
        ("x.web.shop.svc.cluster.local", "Service `shop/web` is not headless, so no name below it exists"),
        (
            "bogus.hdls.shop.svc.cluster.local",
            "no usable endpoint of headless Service `shop/hdls` has the name `bogus`",
        ),
        (
            "c.pin._zone.hdls-zones.shop.svc.cluster.local",
            "no usable endpoint of Service `shop/hdls-zones` is in failure zone `c`, or the Service is not headless",
        ),
        (
            "10-9-9-9.shop.pod.cluster.local",
            "no Workload in namespace `shop` that can serve has the address 10.9.9.9",
        ),
        ("web-1.shop.pod.cluster.local", "`web-1` is no address with dashes, such as `10-1-2-3`"),
        (
            "99.0.96.10.in-addr.arpa",
            "no Service has the address 10.96.0.99, which is in a network of the cluster",
        ),
        ("alias-gone.shop.svc.cluster.local", "there is no Service `shop/gone`"),
        (
            "web.shop.cluster.local",
            "the name has no place in the zone: names of Services end with `SERVICE.NAMESPACE.svc` and the zone",
        ),
    ];
    for (name, reason) in cases {
        let word = if name.ends_with("arpa") { "PTR" } else { "A" };
        let attempt = of(name, word).attempts.remove(0);
        assert_eq!((attempt.result, attempt.reason.as_str()), (NameResult::NoName, reason), "{name}");
    }
}
