//! No stage of the report claims a compression that expands.

use fl_report::{Filter, Query, StageBytes, Values, text};

use crate::tiny::tiny;

/// Names and shares of the uplink stages, and the text of the whole report.
fn stages(reduced: u64, quantized: u64) -> (Vec<(String, f64)>, String) {
    let mut report = tiny();
    report.run.parameters = 250;
    let line = &mut report.rounds[0];
    (line.closed, line.asked, line.updates) = (true, 1, 1);
    line.up = StageBytes {
        fp32: 1_000,
        reduced,
        quantized,
        coded: 40,
        framed: 50,
        entropy_bound: 39.0,
    };
    let table = report
        .table(Query::named("stage").unwrap(), &Filter::default())
        .unwrap();
    let column = |name| &table.column(name).unwrap().values;
    let (Values::Texts(directions), Values::Texts(stages), Values::Numbers(shares)) =
        (column("direction"), column("stage"), column("share"))
    else {
        panic!("columns of another type");
    };
    let up = (0..table.len()).filter(|row| directions[*row] == "up");
    let up = up.map(|row| (stages[row].clone(), shares[row].unwrap()));
    (up.collect(), text(&report))
}

#[test]
fn a_stage_that_is_larger_than_the_one_before_is_left_out_and_named() {
    for (reduced, quantized, left) in [
        (1_070, 600, "\nLeft out: reduced (up). "),
        (1_070, 1_020, "\nLeft out: reduced (up), quantized (up). "),
        (700, 800, "\nLeft out: quantized (up). "),
        (700, 300, ""),
    ] {
        let (up, text) = stages(reduced, quantized);
        assert!(up.iter().all(|stage| stage.1 <= 1.0), "{up:?}");
        let made = up.iter().take_while(|stage| stage.0 != "coded");
        assert!(made.clone().zip(made.skip(1)).all(|(a, b)| b.1 <= a.1), "{up:?}");
        assert!(
            up.contains(&("framed".to_owned(), 0.05)) && up.contains(&("bound".to_owned(), 0.039)),
            "{up:?}"
        );
        assert!(
            text.contains(left) && text.contains("Left out") != left.is_empty(),
            "{text}"
        );
    }
}
