//! Test that runs the layout benchmark at a small size: loads real rulesets of all layouts, changes them and
//! connects through them. No time is asserted.

use std::{fs, net::Ipv4Addr, path::Path, time::Duration};

use bench::{
    layout::{self, BenchService, Layout, Options},
    pages::record::Report as _,
};

#[test]
fn every_layout_is_loaded_and_changed_and_carries_connections_and_the_page_says_what_that_costs() {
    let options = Options {
        loads: 1,
        changes: 2,
        rounds: 1,
        slice: Duration::from_millis(100),
        clients: 3,
        sizes: vec![3, 20],
        endpoints: 4,
        peers: vec![Layout::ServiceChains, Layout::EndpointChains],
    };
    let measured = layout::run(&options, &mut |_| Ok(())).unwrap();
    let found: Vec<_> = measured.points.iter().map(|point| (point.services, point.layout)).collect();
    let expected: Vec<_> =
        [3, 20].into_iter().flat_map(|services| Layout::ALL.map(|layout| (services, layout))).collect();
    assert_eq!(found, expected);
    for point in &measured.points {
        assert_eq!(point.load.wall_ms.len(), 1, "{point:?}");
        for change in [&point.add, &point.replace, &point.remove] {
            assert_eq!(change.costs.processor_ms.len(), 2, "{point:?}");
            assert!(change.messages > 2 && change.bytes > 40, "a transaction says something: {point:?}");
        }
        assert!(point.connect_us.iter().all(|rounds| rounds.len() == 1), "{point:?}");
        assert!(point.failed == 0 && point.per_second[0] > 0.0, "{point:?}");
    }
    // The size of a change does not depend on the number of other Services.
    for layout in Layout::ALL {
        let said: Vec<_> = measured.points.iter().filter(|point| point.layout == layout).collect();
        assert_eq!(said[0].add.messages, said[1].add.messages, "{layout:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    measured.write(directory.path()).unwrap();
    let page = fs::read_to_string(directory.path().join("layout.md")).unwrap();
    for row in
        ["| 20 × 4 | tidegate | 1 |", "| 20 | service-chains | add a Service |", "| 3 | endpoint-chains |"]
    {
        assert!(page.contains(row), "{row} in\n{page}");
    }
    let fitted = page.lines().filter(|line| line.starts_with("| service-chains | "));
    assert_eq!(fitted.count(), 3, "whether each change grows with the Services, in\n{page}");
    assert!(fs::read_to_string(directory.path().join("layout.svg")).unwrap().contains("<circle"));
}

#[test]
fn the_layouts_with_chains_are_what_the_golden_says() {
    let service = |number: u8| BenchService {
        name: format!("default/service-{number}"),
        address: Ipv4Addr::new(10, 96, 0, number),
        endpoints: vec![Ipv4Addr::new(10, 128, number, 1), Ipv4Addr::new(10, 128, number, 2)],
    };
    for layout in [Layout::ServiceChains, Layout::EndpointChains] {
        let actual = layout::whole(layout, &[service(1), service(2)]);
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{}.nft", layout.name()));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &actual).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            actual == expected,
            "{} differs; it would be:\n{actual}\nUPDATE_GOLDEN=1 rewrites it",
            path.display()
        );
    }
}
