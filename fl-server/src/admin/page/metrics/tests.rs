//! The names and types are frozen: by the table in docs/reference/monitoring.md, and by the dashboard and the alerts
//! that use them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fl_report::Flow;

use super::*;
use crate::accounting::edge::{CallLimit, ClosedFor, Enrolling};
use crate::accounting::ledger::Fidelity;
use crate::admin::page::view::{Member, Throughput};
use crate::telemetry::event::ModelEvaluation;

const DOCS: &str = include_str!("../../../../../docs/reference/monitoring.md");
const DASHBOARD: &str = include_str!("../../../../../deploy/grafana/fl-server.json");
const ALERTS: &str = include_str!("../../../../../deploy/prometheus-alerts.yml");

fn view() -> View {
    let member = |client: &str, state, late| Member {
        client: client.to_owned(),
        state,
        late,
        received: 30,
        total: 100,
        finished_ms: None,
    };
    View {
        now_ms: 5_000,
        // An hour behind.
        wall_ms: 3_605_000,
        run: "digits".to_owned(),
        phase: "training",
        message: String::new(),
        round: 3,
        planned: 10,
        attempt: 1,
        opened_ms: Some(4_000),
        deadline_ms: Some(64_500),
        until_ms: None,
        cohort: vec![member("anna", "sending", true), member("berta", "done", false)],
        present: vec!["anna".to_owned(), "berta".to_owned()],
        paused: Vec::new(),
        waiting: None,
        throughput: Throughput {
            socket_up: 700,
            socket_down: 900,
            ..Throughput::default()
        },
        moved: Some(RunBytes {
            socket_up: 1_700,
            pending_up: 40,
            ratio: 2.5,
            balanced: true,
            ..RunBytes::default()
        }),
        alerts: Vec::new(),
        events: Vec::new(),
        certificates: vec![Certificate {
            name: "anna".to_owned(),
            kind: "client",
            ends_ms: 86_400_000,
            renewal_ms: 43_200_000,
            ends: String::new(),
            ends_soon: false,
        }],
    }
}

/// Tensors of the updates with ever higher cosines, and one of the step.
fn tensors(count: u16) -> Arc<[TensorGauge]> {
    let gauge = |at: u16| TensorGauge {
        direction: Direction::Up,
        tensor: format!("t{at}"),
        density: 0.25,
        bits: 0.75,
        rank: (at == 5).then_some(3.5),
        entropy: (at < 3).then_some(2.5),
        fidelity: Some(Fidelity {
            frames: 2,
            cosine: 20 * i64::from(at),
            kept: -500,
            oldest: 4,
            ..Fidelity::default()
        }),
        starved: u32::from(at == 59) * 3,
    };
    let step = TensorGauge {
        direction: Direction::Down,
        fidelity: None,
        ..gauge(0)
    };
    (0..count).map(gauge).chain([step]).collect()
}

#[test]
fn the_worst_fifty_tensors_have_series_and_starved_ones_come_first() {
    let text = whole();
    let series: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("fl_tensor_cosine_ratio{"))
        .collect();
    assert_eq!(series.len(), 50, "and none of a tensor without figures");
    let of_tensors = text.lines().filter(|line| line.starts_with("fl_tensor_"));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    of_tensors.for_each(|line| *counts.entry(line.split('{').next().unwrap_or_default()).or_default() += 1);
    assert!(
        counts.values().all(|count| *count <= 51),
        "60 tensors up, one down: {counts:?}"
    );
    assert_eq!(counts.len(), 8);
    for (tensor, there) in [
        ("t0", true),
        ("t48", true),
        ("t49", false),
        ("t58", false),
        ("t59", true),
    ] {
        let label = format!("tensor=\"{tensor}\"}}");
        assert_eq!(series.iter().any(|line| line.contains(&label)), there, "{tensor}");
    }
}

/// A connection that is open, one that was closed, and calls over the bounds.
fn edge() -> Edge {
    let edge = Edge::default();
    let port = &edge.enroll;
    for _ in 0..2 {
        port.accepted();
        port.called();
    }
    port.closed(ClosedFor::HandshakeTimeout);
    port.limited(CallLimit::Rate);
    // It is never dropped: the connection stays.
    std::mem::forget(port.handshaking().done());
    edge.enrolled(Enrolling::WrongSecret);
    edge.enrollment_is(true);
    edge.renewed(true);
    edge
}

/// With everything in it that there can be.
fn whole() -> String {
    let flow = Flow {
        update: 10,
        socket_up: 20,
        retries: 1,
        ..Flow::default()
    };
    let mut known = StatusSnapshot::default();
    (known.closed.rounds, known.closed.refused, known.closed.seconds) = (2, 4, 2.5);
    known.closed.flow = flow;
    known.closed.last = Some(RoundSummary {
        round: 2,
        updates: 2,
        loss: 0.5,
        seconds: 1.5,
        flow,
        bits_up: 0.25,
        bits_down: 0.5,
        metrics: [("grad/norm".to_owned(), 1.5)].into(),
    });
    known.evaluated = Some(ModelEvaluation {
        version: 2,
        examples: 10,
        accuracy: Some(0.75),
        perplexity: Some(12.5),
        loss: 0.6,
        metrics: [("top5".to_owned(), 0.93)].into(),
    });
    known.tensors = tensors(60);
    let named = ClientBytes {
        client: "anna".to_owned(),
        socket: (20, 30),
    };
    let measured = Inputs {
        view: &view(),
        known: &known,
        version: 2,
        clients: &[named],
        open: Flow {
            socket_up: 680,
            ..Flow::default()
        },
        edge: &edge(),
        process: Process::sample(),
    };
    text(&measured).unwrap()
}

/// Names as Prometheus stores them, and their types.
fn types() -> BTreeMap<String, String> {
    let text = whole();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .map(|line| {
            let (name, kind) = line.split_once(' ').unwrap();
            let end = if kind == "counter" { "_total" } else { "" };
            (format!("{name}{end}"), kind.to_owned())
        })
        .collect()
}

/// Names of metrics that a text speaks of.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words
        .filter(|word| word.starts_with("fl_") || word.starts_with("process_"))
        .collect()
}

#[test]
fn units_and_totals_stand_in_the_names_once() {
    let text = whole();
    for line in [
        "fl_socket_bytes_total{direction=\"up\"} 700.0",
        "fl_ledger_bytes_total{direction=\"up\",kind=\"update\"} 10.0",
        "fl_client_socket_bytes_total{client=\"anna\",direction=\"down\"} 30.0",
        "fl_ledger_open_bytes{direction=\"up\"} 680.0",
        "fl_ledger_pending_bytes{direction=\"up\"} 40.0",
        "fl_ledger_balanced 1.0",
        "fl_run_socket_bytes{direction=\"up\"} 1700.0",
        "fl_run_saving_ratio 2.5",
        "fl_rounds_closed_seconds_total 2.5",
        "fl_updates_refused_total 4.0",
        "fl_round_deadline_timestamp_seconds 3664.5",
        "fl_uploads_remaining_bytes 70.0",
        "fl_cohort_clients{state=\"sending\"} 1.0",
        "fl_cohort_late_clients 1.0",
        "fl_phase{phase=\"training\"} 1.0",
        "fl_model_accuracy_ratio 0.75",
        "fl_model_perplexity 12.5",
        "fl_model_metric{metric=\"top5\"} 0.93",
        "fl_last_round_training_metric{metric=\"grad/norm\"} 1.5",
        "fl_tensor_cosine_ratio{direction=\"up\",tensor=\"t5\"} 0.05",
        "fl_tensor_energy_kept_ratio{direction=\"up\",tensor=\"t5\"} -0.25",
        "fl_tensor_density_ratio{direction=\"down\",tensor=\"t0\"} 0.25",
        "fl_tensor_bytes_per_parameter{direction=\"up\",tensor=\"t7\"} 0.09375",
        "fl_tensor_rank{direction=\"up\",tensor=\"t5\"} 3.5",
        "fl_tensor_entropy_nats{direction=\"down\",tensor=\"t0\"} 2.5",
        "fl_tensor_residual_age{direction=\"up\",tensor=\"t5\"} 4.0",
        "fl_tensor_starved_rounds{direction=\"up\",tensor=\"t59\"} 3.0",
        "fl_certificate_expiry_timestamp_seconds{kind=\"client\",name=\"anna\"} 86400.0",
        "fl_certificate_renewal_timestamp_seconds{kind=\"client\",name=\"anna\"} 43200.0",
        "fl_edge_accepted_total{port=\"enroll\"} 2.0",
        "fl_edge_accepted_total{port=\"main\"} 0.0",
        "fl_edge_connections{port=\"enroll\",state=\"open\"} 1.0",
        "fl_edge_connections{port=\"enroll\",state=\"handshaking\"} 0.0",
        "fl_edge_closed_total{port=\"enroll\",reason=\"handshake_timeout\"} 1.0",
        "fl_edge_closed_total{port=\"main\",reason=\"handshake_timeout\"} 0.0",
        "fl_edge_calls_total{port=\"enroll\"} 2.0",
        "fl_edge_calls_limited_total{port=\"enroll\",limit=\"rate\"} 1.0",
        "fl_enrollments_total{outcome=\"wrong_secret\"} 1.0",
        "fl_renewals_total{outcome=\"issued\"} 1.0",
        "fl_enrollment_open 1.0",
        "process_start_time_seconds 1.5",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn what_is_not_known_yet_is_left_out() {
    let measured = Inputs {
        view: &View {
            deadline_ms: None,
            opened_ms: None,
            moved: Some(RunBytes::default()),
            ..view()
        },
        known: &StatusSnapshot::default(),
        version: 0,
        clients: &[],
        open: Flow::default(),
        edge: &Edge::default(),
        process: Process::default(),
    };
    let text = text(&measured).unwrap();
    for name in [
        "deadline",
        "last_round",
        "model_accuracy",
        "model_perplexity",
        "_metric{",
        "client_socket",
        "saving",
        "process_cpu",
    ] {
        assert!(!text.contains(name), "{name}");
    }
}

#[test]
fn the_documentation_lists_every_metric_with_its_type_and_no_other() {
    let (_, section) = DOCS.split_once("\n## Metrics\n").unwrap();
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let row = |line: &str| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some((name.to_owned(), cells.next()?.to_owned()))
    };
    let documented: BTreeMap<String, String> = section.lines().filter_map(row).collect();
    assert_eq!(documented, types());
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are_and_shows_every_one_of_ours() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let (mut asked, mut ids, mut places) = (String::new(), BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "an id twice");
        let place = &panel["gridPos"];
        assert!(places.insert((place["y"].as_u64().unwrap(), place["x"].as_u64().unwrap())));
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expr = target["expr"].as_str().unwrap();
            assert!(expr.contains("{job=~\"$job\""), "{expr}");
            asked.push_str(expr);
            asked.push('\n');
        }
    }
    let (known, asked) = (types(), names(&asked));
    for name in &asked {
        assert!(known.contains_key(*name), "the dashboard asks for {name}");
    }
    let shown = |name: &&String| asked.contains(name.as_str());
    let missing: Vec<_> = known.keys().filter(|name| !shown(name)).collect();
    assert_eq!(missing, NOT_SHOWN);
}

/// Metrics without a place on the dashboard.
const NOT_SHOWN: [&str; 0] = [];

#[test]
fn alerts_ask_for_metrics_that_there_are() {
    let text: String = ALERTS
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .collect::<Vec<_>>()
        .join("\n");
    let (known, asked) = (types(), names(&text));
    assert!(asked.contains("fl_alerts_total"));
    for name in asked {
        assert!(known.contains_key(name), "an alert asks for {name}");
    }
}
