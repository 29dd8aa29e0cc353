use super::*;

fn parse(text: &str) -> Result<Training, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

#[test]
fn an_empty_table_is_the_default() {
    assert_eq!(parse("{}").unwrap(), Training::default());
}

#[test]
fn values_out_of_range_are_refused_by_name() {
    for (text, field) in [
        (r#"{"batch_size":0}"#, "batch_size"),
        (r#"{"epochs":0}"#, "epochs"),
        (r#"{"epochs":1,"steps":2}"#, "steps"),
        (r#"{"learning_rate":0}"#, "learning_rate"),
        (r#"{"momentum":1.0}"#, "momentum"),
        (r#"{"clip_norm":-1}"#, "clip_norm"),
        (r#"{"schedule":{"step":{"every":0,"factor":0.5}}}"#, "schedule.every"),
        (r#"{"learning_rat":1}"#, "learning_rat"),
        (r#"{"micro_batch":0}"#, "micro_batch"),
        (r#"{"batch_size":8,"micro_batch":9}"#, "micro_batch"),
        (r#"{"optimizer":"lion"}"#, "adamw"),
        (r#"{"optimizer":{"adamw":{"beta1":1}}}"#, "optimizer.adamw.beta1"),
        (r#"{"optimizer":{"adamw":{"beta2":-0.1}}}"#, "optimizer.adamw.beta2"),
        (r#"{"optimizer":{"adamw":{"eps":0}}}"#, "optimizer.adamw.eps"),
        (r#"{"optimizer":{"muon":{"momentum":1}}}"#, "optimizer.muon.momentum"),
        (
            r#"{"optimizer":{"muon":{"adamw":{"eps":2}}}}"#,
            "optimizer.muon.adamw.eps",
        ),
        (r#"{"optimizer":"muon","momentum":0.9}"#, "`momentum`"),
        (r#"{"steps":9,"warmup":10}"#, "warmup"),
        (r#"{"warmup":1000001}"#, "warmup"),
        (r#"{"decay":"linear","floor":1.1}"#, "floor"),
        (r#"{"floor":0.1}"#, "floor"),
        (r#"{"decay":"exponential"}"#, "cosine"),
        (r#"{"span":"epoch"}"#, "round"),
        (r#"{"state":"old"}"#, "kept"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(field), "{text}: {error}");
    }
}

#[test]
fn the_table_of_a_run_may_have_extra_settings() {
    let table: TrainTable = serde_json::from_str(r#"{"steps":3,"extra":{"augment":true}}"#).unwrap();
    assert_eq!(table.training.length, Length::Steps(3));
    assert_eq!(table.extra.get("augment"), Some(&true.into()));
    assert!(parse(r#"{"extra":{}}"#).unwrap_err().contains("train.extra"));
    assert_eq!(serde_json::from_str::<TrainTable>("{}").unwrap(), TrainTable::default());
    // Plans are identified by this text: without extra settings it has no such key.
    assert!(!serde_json::to_string(&Training::default()).unwrap().contains("extra"));
}

#[test]
fn the_learning_rate_defaults_to_that_of_the_optimizer() {
    for make in OptimizerSpec::ALL {
        let spec = make();
        let read = parse(&format!(r#"{{"optimizer":"{}"}}"#, spec.name())).unwrap();
        assert_eq!(
            (read.optimizer, read.learning_rate),
            (spec, spec.default_learning_rate())
        );
    }
    assert_eq!(
        parse(r#"{"optimizer":"muon","learning_rate":3}"#)
            .unwrap()
            .learning_rate,
        3.0
    );
}

/// Runs are identified by this text.
#[test]
fn settings_at_their_defaults_are_not_written() {
    assert_eq!(
        serde_json::to_string(&Training::default()).unwrap(),
        concat!(
            r#"{"epochs":1,"steps":null,"batch_size":32,"learning_rate":0.05,"#,
            r#""momentum":0.0,"weight_decay":0.0,"clip_norm":null,"proximal":0.0}"#
        )
    );
    let full = r#"{"steps":100,"micro_batch":8,"optimizer":{"muon":{"momentum":0.9}},"state":"kept","warmup":10,
        "decay":"cosine","floor":0.1,"span":"run","precision":"bf16"}"#;
    let full = parse(full).unwrap();
    assert_eq!(parse(&serde_json::to_string(&full).unwrap()).unwrap(), full);
}
