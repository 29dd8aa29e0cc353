//! Reports as JSON: they round-trip, and errors name the broken column.

use fl_report::Report;

use crate::tiny::tiny;

#[test]
fn a_report_survives_its_json_whose_tables_are_objects_of_columns() {
    let text = serde_json::to_string(&tiny()).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), tiny());
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["participations"]["client"], serde_json::json!(["anna"]));
    assert_eq!(json["participations"]["socket_up"], serde_json::json!([20]));
    assert_eq!(json["rounds"]["loss"], serde_json::json!([null]));
}

#[test]
fn a_table_with_a_column_missing_or_cut_short_is_refused_by_name() {
    let json = serde_json::to_value(tiny()).unwrap();
    let refused = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut json = json.clone();
        change(&mut json["rounds"]);
        serde_json::from_str::<Report>(&json.to_string())
            .unwrap_err()
            .to_string()
    };
    assert!(refused(&|rounds| drop(rounds.as_object_mut().unwrap().remove("steps"))).contains("`steps` is missing"));
    assert!(refused(&|rounds| rounds["accuracy"] = serde_json::json!([])).contains("`accuracy` has another length"));
    assert!(refused(&|rounds| rounds["socket_up"] = serde_json::json!([])).contains("`socket_up`"));
}

#[test]
fn a_missing_column_is_refused_by_name() {
    let mut json = serde_json::to_value(tiny()).unwrap();
    assert!(json["rounds"].as_object_mut().unwrap().remove("perplexity").is_some());
    let refused = serde_json::from_str::<Report>(&json.to_string())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("column `perplexity` is missing"), "{refused}");
}

#[test]
fn a_column_of_metrics_cut_short_is_refused_by_name() {
    let mut json = serde_json::to_value(tiny()).unwrap();
    json["rounds"]["train/top5"] = serde_json::json!([]);
    let refused = serde_json::from_str::<Report>(&json.to_string())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("`train/top5` has another length"), "{refused}");
    json["rounds"]["train/top5"] = serde_json::json!([0.5]);
    let read = serde_json::from_str::<Report>(&json.to_string()).unwrap();
    assert_eq!(read.rounds[0].trained.0["top5"], 0.5);
}
