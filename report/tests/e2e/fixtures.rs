//! Generated reports with consistent totals.

use fl_report::{
    Baseline, ClientLine, Fidelity, Flow, FrameBudget, Measures, Participation, Report, RoundLine, Run, SCHEMA,
    SectionBytes, Settings, StageBytes, TensorLine,
};

/// Parameters of the generated model.
const PARAMETERS: u64 = 20_410;

/// Deterministic generator (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// A report of this many closed rounds in which every client takes part. The update of the last client is refused in
/// every third round.
pub(crate) fn made(rounds: u64, clients: &[String], seed: u64) -> Report {
    let mut dice = Dice(seed);
    let mut report = Report {
        schema: SCHEMA,
        run: Run {
            name: "digits".into(),
            task: "fashion".into(),
            state: "done".into(),
            planned: rounds,
            parameters: PARAMETERS,
            version: rounds,
            model: "5e".repeat(32),
            instance: "1f".repeat(16),
            opened_ms: 1_700_000_000_000,
            until_ms: 1_700_000_000_000 + rounds * 4_000,
            chain: "c4".repeat(32),
        },
        settings: settings(),
        totals: Flow::default(),
        pending: Flow::default(),
        metered_up: 0,
        metered_down: 0,
        balanced: true,
        baselines: Vec::new(),
        rounds: Vec::new(),
        clients: clients.iter().map(|name| client(name)).collect(),
        participations: Vec::new(),
        tensors: Vec::new(),
        savings: Vec::new(),
        costs: None,
    };
    for round in 1..=rounds {
        let lines: Vec<Participation> = clients
            .iter()
            .enumerate()
            .map(|(place, name)| {
                let updated = place + 1 < clients.len() || !round.is_multiple_of(3);
                participation(&mut dice, round, name, updated)
            })
            .collect();
        lines
            .iter()
            .zip(&mut report.clients)
            .for_each(|(line, sum)| add(sum, line));
        report.rounds.push(of_round(&mut dice, round, &lines));
        report.tensors.extend(tensors(&mut dice, round, lines.len() as u64));
        report.participations.extend(lines);
    }
    report.rounds.iter().for_each(|line| report.totals.add(&line.flow));
    (report.metered_up, report.metered_down) = (report.totals.socket_up, report.totals.socket_down);
    report.baselines = vec![baseline(&report, "fedavg-fp32", 4), baseline(&report, "fedavg-fp16", 2)];
    report.savings = fl_report::savings(&report);
    report
}

pub(crate) fn names(clients: usize) -> Vec<String> {
    (0..clients).map(|n| format!("client-{n:03}")).collect()
}

fn settings() -> Settings {
    Settings {
        words: fl_report::words(Some("mlp"), &plan()),
        plan: plan(),
        run_toml: "name = \"digits\"\nseed = 0\n".into(),
        budget_up: Some(FrameBudget {
            bytes: 1_800,
            error: Some("0.7".to_owned()),
        }),
        budget_down: None,
    }
}

/// A plan in canonical form.
pub(crate) fn plan() -> serde_json::Value {
    let codec = |budget: &str| {
        let default =
            serde_json::json!({ "reduce": "auto", "quantize": { "dead_zone": { "step": 2.0 } }, "code": "context" });
        serde_json::json!({ "memory": "error-feedback", "budget": budget, "default": default,
            "small": { "below": 1024, "use": { "code": "context" } } })
    };
    serde_json::json!({ "version": 1, "name": "digits", "task": "fashion", "rounds": 4, "seed": 0, "evaluate": true, "average": null,
        "train": { "batch_size": 32, "epochs": 1, "learning_rate": 0.1, "momentum": 0.0, "clip_norm": null }, "extra": {},
        "aggregator": { "name": "mean" }, "optimizer": { "name": "fedavg", "learning_rate": 1.0 },
        "cohort": { "size": 3, "min": 3, "target": 3, "grace": 10_000, "deadline": 1_800_000, "retries": 3, "absent": 0,
            "select": "uniform", "align": false },
        "uplink": codec("0.25 to 1 bits, error 0.7"), "downlink": codec("0.25 bits"), "run_budget": null })
}

fn client(name: &str) -> ClientLine {
    ClientLine {
        client: name.to_owned(),
        evaluated_version: 2,
        accuracy: Some(0.75),
        evaluation_loss: Some(0.5),
        finish_mean: Some(1.25),
        ..ClientLine::default()
    }
}

fn participation(dice: &mut Dice, round: u64, name: &str, updated: bool) -> Participation {
    let framed = 2_000 + dice.below(500);
    let mut flow = Flow {
        update: if updated { framed } else { 0 },
        refused: if updated { 0 } else { framed },
        evaluation: if round.is_multiple_of(2) { 40 } else { 0 },
        control_up: 150 + dice.below(20),
        heartbeat_up: 34 * dice.below(4),
        steps: if round > 1 { 900 + dice.below(50) } else { 0 },
        snapshot: if round == 1 { 4 * PARAMETERS + 300 } else { 0 },
        control_down: 210 + dice.below(20),
        heartbeat_down: 34 * dice.below(4),
        connections: u64::from(round == 1),
        retries: u64::from(dice.below(20) == 0),
        upload_ms: 1 + dice.below(30),
        download_ms: 1 + dice.below(10),
        ..Flow::default()
    };
    let known_up = flow.frames_up() + flow.evaluation + flow.control_up + flow.heartbeat_up;
    let known_down = flow.frames_down() + flow.control_down + flow.heartbeat_down;
    flow.socket_up = known_up + 60 + dice.below(90);
    flow.socket_down = known_down + 60 + dice.below(90);
    flow.settle_transport();
    let part = |bytes: u64| if updated { bytes } else { 0 };
    Participation {
        round,
        client: name.to_owned(),
        asked: true,
        updated,
        examples: part(600),
        left_out: 0.0,
        loss: updated.then(|| 2.0 / round as f64),
        finish_seconds: updated.then(|| 1.0 + dice.below(1000) as f64 / 1000.0),
        train_seconds: 0.75,
        encode_seconds: 0.0625,
        wait_seconds: 0.125,
        stages: StageBytes {
            fp32: part(4 * PARAMETERS),
            reduced: part(8_000),
            quantized: part(2_600),
            coded: part(framed - 60),
            framed: part(framed),
            entropy_bound: if updated { framed as f64 * 0.9375 } else { 0.0 },
        },
        flow,
        trained: Measures::default(),
    }
}

fn add(sum: &mut ClientLine, line: &Participation) {
    sum.asked += 1;
    sum.updates += u64::from(line.updated);
    sum.examples += line.examples;
    sum.train_seconds += line.train_seconds;
    sum.encode_seconds += line.encode_seconds;
    sum.wait_seconds += line.wait_seconds;
    sum.framed += line.stages.framed;
    sum.flow.add(&line.flow);
}

fn of_round(dice: &mut Dice, round: u64, lines: &[Participation]) -> RoundLine {
    let sum = |value: fn(&Participation) -> u64| lines.iter().map(value).sum::<u64>();
    let seconds = |value: fn(&Participation) -> f64| lines.iter().map(value).sum::<f64>();
    let (mut flow, mut up) = (Flow::default(), StageBytes::default());
    for line in lines {
        flow.add(&line.flow);
        up.add(&line.stages);
    }
    let updates = sum(|line| u64::from(line.updated));
    let update = 900 + dice.below(20);
    RoundLine {
        unbooked: 0,
        round,
        closed: true,
        attempts: 1,
        asked: lines.len() as u64,
        updates,
        examples: sum(|line| line.examples),
        limited: 0,
        loss: (updates > 0).then(|| 2.0 / round as f64),
        accuracy: round.is_multiple_of(2).then(|| 1.0 - 0.5 / round as f64),
        perplexity: None,
        evaluation_loss: round.is_multiple_of(2).then(|| 1.5 / round as f64),
        evaluated: if round.is_multiple_of(2) { 1_000 } else { 0 },
        opened_ms: 1_700_000_000_000 + (round - 1) * 4_000,
        seconds: 3.5,
        aggregate_seconds: 0.25,
        train_seconds: seconds(|line| line.train_seconds),
        encode_seconds: seconds(|line| line.encode_seconds),
        wait_seconds: seconds(|line| line.wait_seconds),
        finish_median: Some(1.5),
        finish_last: Some(2.5),
        up,
        down: StageBytes {
            fp32: 4 * PARAMETERS,
            reduced: 4_000,
            quantized: 1_300,
            coded: update - 60,
            framed: update,
            entropy_bound: update as f64 * 0.875,
        },
        bits_up: (updates > 0).then(|| 8.0 * up.framed as f64 / (PARAMETERS * updates) as f64),
        bits_down: Some(8.0 * update as f64 / PARAMETERS as f64),
        density_up: Some(0.125),
        density_down: Some(0.0625),
        metered_up: flow.socket_up,
        metered_down: flow.socket_down,
        balanced: true,
        flow,
        model: format!("{round:064x}"),
        frame: format!("{:064x}", round + 1),
        link: format!("{:064x}", round + 2),
        trained: Measures::default(),
        measured: Measures::default(),
    }
}

fn tensors(dice: &mut Dice, round: u64, frames: u64) -> Vec<TensorLine> {
    let mut lines = Vec::new();
    for (direction, frames) in [("up", frames), ("down", 1)] {
        for (tensor, parameters) in [("fc1.weight", 20_000), ("2 small tensors", 410)] {
            let value_bytes = frames * (parameters / 16 + dice.below(10));
            let (index_bytes, scale_bytes, recipe_bytes) = (frames * 40, frames * 8, frames * 12);
            let bytes = value_bytes + index_bytes + scale_bytes + recipe_bytes;
            lines.push(TensorLine {
                round,
                direction: direction.into(),
                tensor: tensor.into(),
                parameters,
                section: SectionBytes {
                    frames,
                    recipe_bytes,
                    index_bytes,
                    scale_bytes,
                    value_bytes,
                    bytes,
                },
                density: Some(0.125),
                rank: None,
                bits: Some(8.0 * bytes as f64 / (parameters * frames) as f64),
                fidelity: Fidelity {
                    figures: frames,
                    cosine: Some(0.75),
                    cosine_least: Some(0.5 - 0.125 * round as f64),
                    kept: Some(0.625),
                    kept_least: Some(0.25),
                    age: Some(0.5),
                    age_most: Some(round as f64),
                },
            });
        }
    }
    lines
}

fn baseline(report: &Report, name: &str, width: u64) -> Baseline {
    let updates: u64 = report.rounds.iter().map(|line| line.updates).sum();
    let asked: u64 = report.rounds.iter().map(|line| line.asked).sum();
    let (up, down) = (width * PARAMETERS * updates, width * PARAMETERS * (asked + 1));
    let frames = report.totals.frames_up() + report.totals.frames_down();
    let over = |bytes: u64| {
        if bytes == 0 {
            0.0
        } else {
            (up + down) as f64 / bytes as f64
        }
    };
    Baseline {
        name: name.into(),
        through: report.rounds.len() as u64,
        up,
        down,
        frames_ratio: over(frames),
        socket_ratio: over(report.totals.socket()),
    }
}
