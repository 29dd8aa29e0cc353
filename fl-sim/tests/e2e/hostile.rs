//! The short hostile run: a few hundred connections of every kind at both ports while six clients train.

use crate::fixtures::process::sim;

#[test]
fn hundreds_of_hostile_connections_cost_no_round_no_byte_and_no_bit() {
    let run = ["hostile", "--connections", "330", "--clients", "6", "--patience", "2"];
    // The command has time limits of its own.
    let output = sim(["--format", "json"].into_iter().chain(run)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let ends = said["ends"].as_object().unwrap();
    assert_eq!(ends.len(), 11, "every kind was sent: {said}");
    let count = |kind: &str, end: &str| ends[kind].get(end).map_or(0, |count| count.as_u64().unwrap());
    for kind in [
        "garbage",
        "oversized-handshake",
        "foreign-certificate",
        "expired-certificate",
    ] {
        assert!(count(kind, "closed") > 0, "{kind}: {said}");
    }
    assert!(count("oversized-message", "refused") > 0, "{said}");
    assert!(count("guess", "refused") > 0, "{said}");
    assert!(
        said["edge"].as_array().unwrap().len() > 5,
        "the server counted them: {said}"
    );
    assert_eq!(said["model"], said["quiet"]);
}
