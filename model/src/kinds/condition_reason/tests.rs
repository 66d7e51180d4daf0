use super::{ConditionReason, NO_ACTION};

#[test]
fn every_reason_has_a_meaning_and_its_published_name() {
    for reason in ConditionReason::ALL {
        let meaning = reason.meaning();
        assert!(meaning.ends_with('.') && !meaning.contains('\n'), "{reason:?}: {meaning}");
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
    }
}

#[test]
fn only_healthy_states_need_no_action() {
    let healthy = ConditionReason::ALL.iter().filter(|reason| reason.remedy() == NO_ACTION);
    let healthy: Vec<&str> = healthy.map(|reason| reason.as_str()).collect();
    let expected = "Valid Headless Allocated AsRequested EndpointsReady NothingToProgram VerifiedOnAllNodes \
                    NothingToAnnounce Announced RoutedExternally Announceable NodesFound PeersFound Ready \
                    Reporting Verified ServiceFound Selected NodesSelected Named NamesAnswered HasNames BackendsFound RoutesAttached \
                    CertificatesFound Programmed InValidity Issued Referenced Free BlocksFree BlocksGiven Attached WorkloadsSelected \
                    EnforcedOnAllNodes Established";
    assert_eq!(healthy.join(" "), expected);
}
