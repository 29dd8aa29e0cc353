//! A short fleet: devices that come and go by a seed, driven by rounds.

use crate::fixtures::process::sim;

#[test]
fn devices_that_come_and_go_cost_no_round_no_byte_and_no_bit() {
    let run = [
        "fleet",
        "--clients",
        "6",
        "--rounds",
        "12",
        "--lifetime",
        "5",
        "--seed",
        "1",
    ];
    // It fails if a round, a byte or a bit is lost, or a device ends for a wrong reason.
    // The command has time limits of its own.
    let output = sim(["--format", "json"].into_iter().chain(run)).output().unwrap();
    // The report names the promises that were broken.
    let said = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{}", said.concat());
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |name: &str| said[name].as_u64().unwrap();
    assert!(count("rounds") >= 12 && count("attempts") == count("rounds"), "{said}");
    let events = said["events"].as_object().unwrap();
    let happened = events.iter().filter(|(name, _)| *name != "enrolled_again");
    let happened: u64 = happened.map(|(_, count)| count.as_u64().unwrap()).sum();
    assert!(happened >= 5, "{said}");
    // On a machine that is slow enough, certificates expire before they are renewed.
    let again = events["enrolled_again"].as_u64().unwrap();
    assert!(count("renewals") + again > 0, "{said}");
    assert_eq!(count("enrollments"), 6 + again, "{said}");
}
