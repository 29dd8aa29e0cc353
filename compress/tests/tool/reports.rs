//! The stable interface for scripts: the keys of every `--format json`, and the data of the page.

use serde_json::Value;

use super::Place;

/// The path of every key, sorted; a list is represented by its first element.
fn keys(text: &str) -> Vec<String> {
    fn walk(value: &Value, path: &str, out: &mut Vec<String>) {
        match value {
            Value::Object(map) => map
                .iter()
                .for_each(|(key, value)| walk(value, &format!("{path}.{key}"), out)),
            Value::Array(list) if list.first().is_some_and(Value::is_object) => {
                walk(&list[0], &format!("{path}[]"), out)
            }
            Value::Array(_) => out.push(format!("{path}[]")),
            _ => out.push(path.to_owned()),
        }
    }
    let mut out = Vec::new();
    walk(&serde_json::from_str(text).unwrap(), "", &mut out);
    out.sort();
    out
}

fn golden(text: &str) -> Vec<String> {
    let mut keys: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    keys.sort();
    keys
}

#[test]
fn the_keys_of_inspect_are_those_documented() {
    let place = Place::new();
    place.ok("encode --spec spec.toml --round 4 new.safetensors out.flz");
    let text = place.ok("inspect out.flz --format json");
    let expected = "
        .file .kind .round .seed .parameters .fp32_bytes .file_bytes .frame_bytes .ratio .bits_per_parameter
        .tensors[].name .tensors[].names[] .tensors[].shape[] .tensors[].parameters .tensors[].recipe .tensors[].ratio
        .tensors[].bytes.recipe .tensors[].bytes.indices .tensors[].bytes.scales .tensors[].bytes.values
        .tensors[].bytes.total
        .tensors[].bound.indices .tensors[].bound.scales .tensors[].bound.values .tensors[].bound.total
        .totals.bytes.recipe .totals.bytes.indices .totals.bytes.scales .totals.bytes.values .totals.bytes.total
        .totals.bound.indices .totals.bound.scales .totals.bound.values .totals.bound.total
        .integers[]";
    assert_eq!(keys(&text), golden(expected));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["kind"], "update");
    assert_eq!(report["round"], 4);
    assert_eq!(report["tensors"][1]["shape"], serde_json::json!([30, 100]));
    assert_eq!(report["file_bytes"], place.read("out.flz").len());
    let framed = report["frame_bytes"].as_u64().unwrap();
    assert_eq!(report["totals"]["bytes"]["total"].as_u64().unwrap() + 38, framed);
}

#[test]
fn the_bounds_of_the_planes_are_those_of_the_encoder() {
    let place = Place::new();
    for spec in [
        "default = {}",
        "default = { code = 'rans' }",
        "default = { quantize = 'half', code = 'rans' }",
        "default = { quantize = { uniform = 3 }, code = 'rans' }",
        "default = { reduce = { top_k = 0.1 }, quantize = { uniform = 5 }, code = 'rans' }",
        "default = { reduce = { top_k = 0.1 }, quantize = { uniform = 5 } }",
    ] {
        place.write("spec.toml", spec.as_bytes());
        place.ok("encode --spec spec.toml new.safetensors out.flz");
        let inspected: Value = serde_json::from_str(&place.ok("inspect out.flz --format json")).unwrap();
        let compared: Value =
            serde_json::from_str(&place.ok("compare --spec spec.toml new.safetensors --format json")).unwrap();
        let (from_frame, from_encoder) = (
            &inspected["totals"]["bound"]["total"],
            &compared["specs"][0]["bound_bytes"],
        );
        let difference = from_frame.as_f64().unwrap() - from_encoder.as_f64().unwrap();
        assert!(difference.abs() < 1e-6, "{spec}: {from_frame} {from_encoder}");
    }
}

#[test]
fn the_keys_of_compare_are_those_documented() {
    let place = Place::new();
    place.write("exact.toml", b"default = {}");
    let text = place.ok("compare new.safetensors --spec spec.toml --spec exact.toml --format json");
    let expected = "
        .file .parameters .fp32_bytes .specs[].spec .specs[].bytes .specs[].ratio .specs[].bits_per_parameter
        .specs[].bound_bytes .specs[].coded_over_bound .specs[].relative_error .specs[].cosine
        .specs[].encode_mb_s .specs[].decode_mb_s";
    assert_eq!(keys(&text), golden(expected));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["specs"][0]["spec"], "spec");
    assert!(report["specs"][0]["relative_error"].as_f64().unwrap() > 0.1);
    assert_eq!(report["specs"][1]["relative_error"], 0.0);
    assert_eq!(report["specs"][1]["bytes"], 4 * 3031 + 3 + 38);
}

#[test]
fn the_keys_of_bench_are_those_documented() {
    let place = Place::new();
    let text = place.ok("bench --values 10007 --repetitions 3 --spec spec.toml --format json");
    let speeds = ["memcpy", "encode", "decode"].map(|of| {
        let rates = ["mb_s", "values_s", "of_memcpy"].map(|rate| format!(".{of}.best.{rate} .{of}.median.{rate} "));
        rates.concat()
    });
    let expected = format!(
        ".spec .values .fp32_bytes .frame_bytes .repetitions {}",
        speeds.concat()
    );
    assert_eq!(keys(&text), golden(&expected));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["memcpy"]["best"]["of_memcpy"], 1.0);
}

#[test]
fn tables_have_a_row_for_each() {
    let place = Place::new();
    place.ok("encode --spec spec.toml new.safetensors out.flz");
    let inspected = place.ok("inspect out.flz");
    for part in [
        "update of round 0",
        "fc.bias",
        "[30, 100]",
        "support 150 of 3000; uniform 4 bits",
        "total",
    ] {
        assert!(inspected.contains(part), "{part}: {inspected}");
    }
    let compared = place.ok("compare new.safetensors --spec spec.toml");
    assert_eq!(compared.lines().count(), 4, "{compared}");
    let benched = place.ok("bench --values 1000 --repetitions 1");
    assert!(
        ["memcpy", "encode", "decode"].iter().all(|row| benched.contains(row)),
        "{benched}"
    );
}

/// The tests of the page in a browser draw `compare.json`, so its keys must be those that are written.
#[test]
fn the_page_has_the_data_of_compare_and_its_names_are_escaped() {
    let place = Place::new();
    std::fs::create_dir(place.path("other")).unwrap();
    place.write("exact.toml", b"default = {}");
    place.write("a<b.toml", b"default = { quantize = { uniform = 4 } }");
    place.write("other/exact.toml", b"default = { code = 'rans' }");
    let specs = "--spec spec.toml --spec exact.toml --spec a<b.toml --spec other/exact.toml";
    assert_eq!(
        place.ok(&format!("compare new.safetensors {specs} --format html -o p.html")),
        ""
    );
    let page = String::from_utf8(place.read("p.html")).unwrap();
    assert!(page.ends_with("</html>\n") && page.contains("<title>new.safetensors: codecs</title>"));
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let data = data.split_once("</script>").unwrap().0;
    assert!(!data.contains('<'), "{data}");
    assert_eq!(keys(data), keys(include_str!("../../../page/test/compare.json")));
    let report: Value = serde_json::from_str(data).unwrap();
    let names: Vec<&str> = report["specs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|spec| spec["spec"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["spec", "exact.toml", "a<b", "other/exact.toml"]);
}
