//! The largest costs, and how to reduce them.

use fl_report::{Flow, Saving, savings};

use crate::tiny::tiny;

fn of(flow: Flow) -> Vec<Saving> {
    let mut report = tiny();
    report.run.parameters = 1_000;
    (report.totals, report.participations[0].flow) = (flow, flow);
    (report.participations[0].updated, report.participations[0].stages.framed) = (true, flow.update);
    savings(&report)
}

#[test]
fn the_three_largest_costs_are_named_with_what_to_change() {
    let found = of(Flow {
        update: 500,
        steps: 20,
        snapshot: 4_000,
        refused: 30,
        transport_up: 700,
        socket_up: 1_230,
        socket_down: 4_020,
        connections: 4,
        ..Flow::default()
    });
    let names: Vec<_> = found.iter().map(|line| (line.cost.as_str(), line.bytes)).collect();
    assert_eq!(names, [("whole models", 4_000), ("connections", 700), ("updates", 500)]);
    assert_eq!(
        found[0].why,
        "Clients fetched whole models, as much as 1.00 of them in fp32."
    );
    assert!(found[0].change.contains("`seed`") && found[1].change.contains("Keep clients connected"));
    assert_eq!(found[2].why, "Clients sent 1 updates at 4.00 bits a parameter.");
    assert!(found[2].change.contains("Lower `budget`"));
    assert_eq!(found[0].share, Some(4_000.0 / 5_250.0));
}

#[test]
fn plain_updates_are_to_be_compressed_and_nothing_costs_nothing() {
    let found = of(Flow {
        update: 4_000,
        socket_up: 4_000,
        ..Flow::default()
    });
    assert_eq!(found.len(), 1);
    assert!(found[0].change.starts_with("Compress them"), "{found:?}");
    assert!(of(Flow::default()).is_empty());
}

#[test]
fn probes_are_named_where_connections_alone_cannot_explain_the_transport() {
    let with = |transport: u64| {
        let found = of(Flow {
            update: 100_000,
            transport_up: transport,
            socket_up: 100_000 + transport,
            connections: 4,
            ..Flow::default()
        });
        let connections = found.into_iter().find(|line| line.cost == "connections");
        connections
            .unwrap()
            .why
            .contains("`fl-client check --online` adds 512 KiB")
    };
    assert!(!with(30_000) && !with(500_000) && with(560_000));
}

#[test]
fn pings_are_named_where_they_are_most_of_a_connection() {
    let with = |pings: u64| {
        let found = of(Flow {
            transport_up: 3_000,
            heartbeat_up: pings / 2,
            heartbeat_down: pings / 2,
            socket_up: 3_000 + pings / 2,
            socket_down: pings / 2,
            connections: 1,
            ..Flow::default()
        });
        assert_eq!(found[0].bytes, 3_000 + pings);
        found[0].change.contains("`ping_every`")
    };
    assert!(!with(780) && with(78_000));
}

#[test]
fn what_the_limits_take_is_named_with_the_keys_however_few_bytes_it_is() {
    let mut report = tiny();
    let flow = Flow {
        update: 100,
        steps: 2_000,
        snapshot: 4_000,
        transport_up: 700,
        socket_up: 800,
        socket_down: 6_000,
        ..Flow::default()
    };
    (report.totals, report.participations[0].flow) = (flow, flow);
    (report.participations[0].updated, report.participations[0].left_out) = (true, 0.75);
    let found = savings(&report);
    let limited = found.iter().find(|line| line.cost == "limited updates").unwrap();
    assert_eq!((limited.bytes, found.len()), (75, 4));
    assert!(
        limited.why.starts_with("Of 1 updates, 75 % on average did not count"),
        "{limited:?}"
    );
    assert!(limited.change.contains("`share`") && limited.change.contains("`examples` in [limits] of run.toml"));
}
