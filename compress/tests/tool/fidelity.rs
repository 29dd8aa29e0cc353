//! The report and the warnings of `encode`.

use serde_json::Value;

use super::{Place, stderr};

#[test]
fn encode_says_how_near_the_frame_is_and_warns_where_it_misses_more_than_half() {
    let place = Place::new();
    place.write("exact.toml", b"default = {}");
    let said = place.ok("encode --spec exact.toml new.safetensors out.flz");
    assert!(said.ends_with("; relative error 0, cosine 1.00\n"), "{said}");
    place.write(
        "few.toml",
        b"memory = 'error-feedback'\ndefault = { reduce = { top_k = 0.0004 } }",
    );
    for (rest, later) in [
        ("", "the rest is lost"),
        ("--state memory", "the rest is added to the next update"),
    ] {
        let output = place.run(&format!("encode --spec few.toml {rest} new.safetensors out.flz"));
        assert!(output.status.success());
        let (said, warned) = (String::from_utf8(output.stdout.clone()).unwrap(), stderr(&output));
        assert!(
            warned.starts_with("fl-compress: warning: out.flz: relative error 0."),
            "{warned}"
        );
        assert!(warned.contains(later) && warned.lines().count() == 1, "{warned}");
        // `compare` reports the same error.
        let compared = place.ok("compare --spec few.toml new.safetensors --format json");
        let compared: Value = serde_json::from_str(&compared).unwrap();
        let error = compared["specs"][0]["relative_error"].as_f64().unwrap();
        assert!(
            error > 0.5 && said.contains(&format!("relative error {error:.3}, cosine ")),
            "{said} {error}"
        );
    }
}

#[test]
fn a_budget_that_cannot_be_met_is_warned_of_and_the_least_is_named() {
    let place = Place::new();
    place.write(
        "fixed.toml",
        b"budget = '0.0001 bits'\ndefault = { quantize = { uniform = 4 } }",
    );
    let output = place.run("encode --spec fixed.toml new.safetensors out.flz");
    assert!(output.status.success());
    let warned = stderr(&output);
    // 0.0001 bits for each of 3,031 values round down to 0 bytes.
    assert!(
        warned.contains("out.flz: the budget is 0 bytes, but the smallest frame"),
        "{warned}"
    );
    let inspected: Value = serde_json::from_str(&place.ok("inspect out.flz --format json")).unwrap();
    let least = inspected["frame_bytes"].as_u64().unwrap();
    assert!(
        least > 1000 && warned.contains(&format!("is {},{:03} bytes (", least / 1000, least % 1000)),
        "{warned}"
    );
    // A budget that is met causes no warning.
    place.write(
        "fits.toml",
        b"budget = '2 bits'\nmemory = 'none'\ndefault = { quantize = 'dead_zone', code = 'context' }",
    );
    let met = stderr(&place.run("encode --spec fits.toml new.safetensors out.flz"));
    assert!(!met.contains("budget"), "{met}");
}
