//! Checkpoints of other programs: batch normalization counters, masks, half precision, and files that are not
//! safetensors.

use fl_compress::weights::Weights;
use serde_json::Value;

use super::Place;

/// A batch normalization layer in PyTorch's layout, and a mask: two F32 tensors, a counter, a Boolean tensor.
fn batch_norm(seen: i64, bias: f32, mask: [u8; 3]) -> Vec<u8> {
    let header = br#"{"bn.num_batches_tracked":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"bn.bias":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},"bn.weight":{"dtype":"F32","shape":[2],"data_offsets":[16,24]},"mask":{"dtype":"BOOL","shape":[3],"data_offsets":[24,27]}}"#;
    let floats: Vec<u8> = [bias, -1.0, 0.5, 2.0]
        .iter()
        .flat_map(|value: &f32| value.to_le_bytes())
        .collect();
    let len = (header.len() as u64).to_le_bytes();
    [&len, &header[..], &seen.to_le_bytes(), &floats, &mask].concat()
}

/// Name, type and bytes of each integer tensor.
fn integers(bytes: &[u8]) -> Vec<(String, String, Vec<u8>)> {
    let weights = Weights::parse(bytes).unwrap();
    let tensors = weights.integers().iter();
    tensors
        .map(|tensor| (tensor.name.clone(), tensor.dtype(), tensor.bytes().to_vec()))
        .collect()
}

#[test]
fn a_checkpoint_with_counters_goes_all_the_way_and_they_come_back_exactly() {
    let place = Place::new();
    place.write("exact.toml", b"default = {}");
    place.write("old", &batch_norm(1_000_000_007, 0.25, [1, 0, 1]));
    place.write("new", &batch_norm(1_000_000_042, 0.75, [1, 1, 0]));
    // A whole model.
    let said = place.ok("encode --spec exact.toml new out.flz");
    assert!(
        said.contains("2 tensors and 2 integer tensors (unchanged), 4 parameters"),
        "{said}"
    );
    place.ok("decode out.flz back");
    assert_eq!(integers(&place.read("back")), integers(&place.read("new")));
    assert_eq!(
        Weights::parse(&place.read("back")).unwrap().values(),
        Weights::parse(&place.read("new")).unwrap().values()
    );
    // The update between two models.
    place.ok("diff old new delta");
    let delta = integers(&place.read("delta"));
    assert_eq!(
        delta[0],
        (
            "bn.num_batches_tracked".into(),
            "I64".into(),
            35i64.to_le_bytes().into()
        )
    );
    assert_eq!(delta[1], ("mask".into(), "BOOL".into(), vec![0, 1, 1]));
    place.ok("encode --spec exact.toml delta delta.flz");
    for delta in ["delta", "delta.flz"] {
        place.ok(&format!("apply old {delta} after"));
        assert_eq!(integers(&place.read("after")), integers(&place.read("new")), "{delta}");
    }
    let inspected = place.ok("inspect out.flz");
    assert!(
        inspected.contains("bn.num_batches_tracked  []") && inspected.contains("I64, unchanged"),
        "{inspected}"
    );
    let inspected: Value = serde_json::from_str(&place.ok("inspect out.flz --format json")).unwrap();
    assert_eq!(
        inspected["integers"][1],
        serde_json::json!({ "name": "mask", "dtype": "BOOL", "shape": [3], "bytes": 3 })
    );
    place.ok("compare --spec exact.toml new");
}

#[test]
fn integers_that_only_one_file_has_are_named() {
    let place = Place::new();
    place.write("counted", &batch_norm(1, 0.25, [1, 0, 1]));
    let weights = place.read("counted");
    let weights = Weights::parse(&weights).unwrap();
    let plain = fl_compress::weights::to_safetensors(weights.layout(), &weights.values().unwrap()).unwrap();
    place.write("plain", &plain);
    let error = place.fails(3, "diff counted plain out");
    assert!(
        error.contains("plain: does not match: tensor `bn.num_batches_tracked` is missing"),
        "{error}"
    );
    let error = place.fails(3, "apply plain counted out");
    assert!(
        error.contains("counted: does not match: tensor `bn.num_batches_tracked` is not expected"),
        "{error}"
    );
}

#[test]
fn a_file_of_pytorch_ends_with_3_and_says_how_to_save_safetensors() {
    let place = Place::new();
    place.write("model.pt", b"PK\x03\x04\x00\x00\x08\x08\x00\x00archive/data.pkl");
    let error = place.fails(3, "encode --spec spec.toml model.pt out.flz");
    assert!(
        error.contains("model.pt: ") && error.contains("torch.save") && error.contains("save_file("),
        "{error}"
    );
}

#[test]
fn a_duplicate_name_in_the_header_ends_with_3() {
    let place = Place::new();
    let twice = br#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"w":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]}}"#;
    place.write(
        "twice",
        &[&(twice.len() as u64).to_le_bytes(), &twice[..], &[0; 24]].concat(),
    );
    let error = place.fails(3, "encode --spec spec.toml twice out.flz");
    assert!(
        error.contains("twice: corrupt at byte 8: tensor `w` occurs twice"),
        "{error}"
    );
}

/// `register_buffer("cache", torch.empty(0, 4))`, as `safetensors.torch.save_file` writes it.
#[test]
fn a_checkpoint_with_tensors_without_values_goes_all_the_way() {
    let place = Place::new();
    let header = br#"{"cache":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},"ids":{"dtype":"I64","shape":[2,0],"data_offsets":[0,0]},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let model = |values: [f32; 2]| {
        let values = values.map(f32::to_le_bytes);
        [&(header.len() as u64).to_le_bytes(), &header[..], values.as_flattened()].concat()
    };
    place.write("exact.toml", b"default = {}");
    place.write("old", &model([1.0, 2.0]));
    place.write("new", &model([1.5, -2.0]));
    place.ok("encode --spec exact.toml new out.flz");
    place.ok("decode out.flz back");
    place.ok("diff old new delta");
    place.ok("encode --spec exact.toml --state state delta delta.flz");
    place.ok("apply old delta.flz after");
    place.ok("inspect out.flz");
    for made in ["back", "after"] {
        let (made, new) = (place.read(made), place.read("new"));
        let (made, new) = (Weights::parse(&made).unwrap(), Weights::parse(&new).unwrap());
        assert_eq!((made.layout(), made.integers()), (new.layout(), new.integers()));
        assert_eq!(made.values(), new.values());
    }
}
