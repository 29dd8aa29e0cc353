//! Speed of large reports: `cargo test --release -p fl-report --test e2e -- --ignored --nocapture speed`

use std::time::Instant;

use fl_report::signed::{verify, write};

use crate::signed::sample::{Authority, NOW, report};

#[test]
#[ignore = "a measurement"]
fn speed_of_a_thousand_rounds_of_a_hundred_clients() {
    let authority = Authority::new("a");
    let (report, signer) = (report(1_000, 100), authority.signer());
    for _ in 0..3 {
        let begun = Instant::now();
        let file = write(&report, &signer).unwrap();
        let written = begun.elapsed();
        let begun = Instant::now();
        let verified = verify(file.as_bytes(), Some(&authority.certificate), NOW).unwrap();
        let read = begun.elapsed();
        assert!(verified.differences.is_empty());
        println!(
            "{} lines, {} B: written in {written:?}, verified in {read:?}",
            verified.lines,
            file.len()
        );
    }
}
