//! The short soak test: one minute with strangers, hostile clients, kills and clock jumps.

use std::process::Command;

#[test]
#[ignore = "long: a minute of wall time"]
fn a_minute_among_strangers_bad_clients_kills_and_clock_jumps_breaks_no_invariant() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fl-sim"));
    let output = command
        .args(["soak", "--minutes", "1", "--seed", "1"])
        .output()
        .unwrap();
    let (said, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    println!("{said}");
    assert!(output.status.success(), "{said}\n{errors}");
    assert!(said.contains("verify: code 0"), "{said}");
}
