//! Golden bytes, equal on every machine: every recipe and code, merged tensors, predictor, snapshots, states. A new method is a
//! line of [`FRAMES`]; [`write_new_files`] then writes its file.
//!
//! A file has the bytes, a line `values`, and the bits of each decoded value. [`UPDATE_FILE`] and [`STATE_FILE`] have only bytes,
//! with comments; the format document shows them.

use std::path::PathBuf;

use fl_compress::*;

use crate::*;

/// Bytes, and the bits of the decoded values.
type Made = (Vec<u8>, Vec<u32>);

/// The recipe of one file.
struct Golden {
    name: &'static str,
    spec: &'static str,
    tensors: &'static [(&'static str, &'static [usize])],
}

const MATRIX: &[(&str, &[usize])] = &[("weight", &[6, 8])];
const CONVOLUTION: &[(&str, &[usize])] = &[("weight", &[8, 5, 3, 3])];
const ROW: &[(&str, &[usize])] = &[("weight", &[160])];
/// Long enough for entropy coding with a table to be shorter.
const LONG: &[(&str, &[usize])] = &[("weight", &[600])];
const SMALL: &[(&str, &[usize])] = &[
    ("a.bias", &[3]),
    ("a.weight", &[4, 5]),
    ("b.bias", &[1]),
    ("b.scale", &[]),
];

const fn of(name: &'static str, spec: &'static str, tensors: &'static [(&'static str, &'static [usize])]) -> Golden {
    Golden { name, spec, tensors }
}

const FRAMES: &[Golden] = &[
    of("bf16", "default = { quantize = 'bf16' }", MATRIX),
    of(
        "dead-zone-pack",
        "default = { quantize = { dead_zone = { step = 0.7 } } }",
        MATRIX,
    ),
    of(
        "dead-zone-rans",
        "default = { quantize = { dead_zone = { step = 1.0, rounding = 'stochastic' } }, code = 'rans' }",
        ROW,
    ),
    of(
        "dead-zone-rice",
        "default = { quantize = { dead_zone = { step = 0.01 } }, code = 'rice' }",
        MATRIX,
    ),
    of(
        "dead-zone-huffman",
        "default = { quantize = 'dead_zone', code = 'huffman' }",
        ROW,
    ),
    of(
        "dead-zone-context",
        "default = { quantize = { dead_zone = { step = 0.3 } }, code = 'context' }",
        MATRIX,
    ),
    of(
        "dead-zone-context-row",
        "default = { quantize = 'dead_zone', code = 'context' }",
        ROW,
    ),
    of("natural", "default = { quantize = 'natural' }", MATRIX),
    of("rotated-1", "default = { quantize = { rotated = 1 } }", MATRIX),
    of(
        "rotated-4",
        "default = { quantize = { rotated = { bits = 4, scale = 'unbiased' } }, code = 'huffman' }",
        ROW,
    ),
    of(
        "ternary",
        "default = { reduce = { top_k = 0.2 }, quantize = 'ternary' }",
        MATRIX,
    ),
    of("sign-shared", "default = { quantize = 'sign' }", MATRIX),
    of("sign-split", "default = { quantize = { sign = 'split' } }", MATRIX),
    of("random-k", "default = { reduce = { random_k = 0.2 } }", MATRIX),
    of(
        "low-rank",
        "default = { reduce = { low_rank = { rank = 1, remainder = 0.05 } }, quantize = 'half' }",
        MATRIX,
    ),
    of(
        "count-sketch",
        "default = { reduce = { count_sketch = { density = 0.5, rows = 3, top = 0.1 } }, quantize = 'bf16' }",
        MATRIX,
    ),
    of("projection", "default = { reduce = { projection = 0.1 } }", MATRIX),
    of(
        "uniform-rice",
        "default = { quantize = { uniform = 6 }, code = 'rice' }",
        ROW,
    ),
    of(
        "uniform-huffman",
        "default = { quantize = { uniform = 6 }, code = 'huffman' }",
        ROW,
    ),
    of(
        "uniform-context",
        "default = { quantize = { uniform = 6 }, code = 'context' }",
        ROW,
    ),
    of(
        "top-k-huffman",
        "default = { reduce = { top_k = 0.4 }, quantize = { uniform = 4 }, code = 'huffman' }",
        ROW,
    ),
    of(
        "top-k-context",
        "default = { reduce = { top_k = 0.3 }, quantize = { uniform = 4 }, code = 'context' }",
        MATRIX,
    ),
    of(
        "merged",
        "default = {}\nsmall = { below = 10, use = { reduce = { top_k = 0.5 }, quantize = 'bf16' } }",
        SMALL,
    ),
    of(
        "tensor-train",
        "default = { reduce = { tensor_train = 0.7 }, quantize = 'bf16' }",
        MATRIX,
    ),
    of(
        "tensor-train-convolution",
        "default = { reduce = { tensor_train = { ranks = [2, 3, 2] } }, quantize = 'half', code = 'rice' }",
        CONVOLUTION,
    ),
    of(
        "rans",
        "default = { quantize = { uniform = { bits = 4, rounding = 'stochastic', norm = 'max' } }, code = 'rans' }",
        LONG,
    ),
    of(
        "top-k-rans",
        "default = { reduce = { top_k = 0.5 }, quantize = { uniform = 4 }, code = 'rans' }",
        LONG,
    ),
    of("codebook", "default = { quantize = { codebook = 2 } }", MATRIX),
    of(
        "sparse-codebook",
        "default = { reduce = { top_k = { density = 0.3, chunk = 64 } }, quantize = { codebook = 2 }, code = 'rans' }",
        ROW,
    ),
];

/// States after two rounds, with the second frame pending.
const STATES: &[Golden] = &[
    of(
        "state-low-rank",
        "memory = 'error-feedback'\ndefault = { reduce = { low_rank = 1 }, quantize = 'bf16' }",
        MATRIX,
    ),
    of(
        "state-entropy",
        "memory = 'none'\nbudget = '90 B'\ndefault = { reduce = { top_k = { density = { by = 'entropy' } } }, quantize = 'half' }",
        MATRIX,
    ),
    of(
        "state-ef21",
        "memory = 'ef21'\ndefault = { quantize = { sign = 'split' } }",
        MATRIX,
    ),
    of(
        "state-dgc",
        "memory = 'dgc'\ndefault = { reduce = { top_k = 0.1 }, quantize = 'bf16' }",
        MATRIX,
    ),
    of(
        "state-cafe-error-feedback",
        "memory = ['cafe', 'error-feedback']\ndefault = { reduce = { top_k = 0.1 }, quantize = 'bf16' }",
        MATRIX,
    ),
    of(
        "state-budget-bandit",
        "memory = 'error-feedback'\nbudget = '0.5 to 8 bits by bandit, seed 3'\ndefault = { quantize = 'bf16' }",
        MATRIX,
    ),
];

fn layout(golden: &Golden) -> Arc<Layout> {
    let tensors = golden.tensors.iter().map(|(name, shape)| (*name, shape.to_vec()));
    Arc::new(Layout::new(tensors).unwrap())
}

/// Multiples of 1/64, so that the arithmetic is exact on every machine: a matrix that is nearly of rank one.
fn values(len: usize, round: u64) -> Vec<f32> {
    let noise = |i: u64| (i * 2_654_435_761 + round * 40_503) >> 7 & 31;
    let value = |i: u64| {
        ((i / 8 % 6 + 1) * (i % 8 + 1)) as f32 * if i.is_multiple_of(3) { -1.0 } else { 1.0 } + noise(i) as f32 / 8.0
            - 2.0
    };
    (0..len as u64)
        .map(|i| (value(i) * value(i) * value(i)).round() / 64.0)
        .collect()
}

/// The bytes of the file, and the bits of the values.
fn written(golden: &Golden) -> Made {
    let (layout, spec) = (layout(golden), from_toml(golden.spec));
    let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
    let pending = encoder.encode(&mut values(layout.len(), 0), UPDATE).unwrap();
    if !golden.name.starts_with("state") {
        return (pending.frame.clone(), bits(&decode(&layout, &pending.frame)));
    }
    encoder.settle(&pending, Ack::Accepted).unwrap();
    let pending = encoder.encode(&mut values(layout.len(), 1), UPDATE).unwrap();
    let mut state = Vec::new();
    encoder.save(Some(&pending), &mut state);
    (state, bits(&decode(&layout, &pending.frame)))
}

/// A model with batch normalization.
fn with_roles() -> Arc<Layout> {
    let tensor = |name: &str, shape: &[usize], dtype, role| TensorSpec::new(name, shape, dtype, role);
    let tensors = [
        tensor("bn.bias", &[4], Dtype::F32, Role::Trained),
        tensor("bn.num_batches_tracked", &[], Dtype::I64, Role::Counter),
        tensor("bn.running_mean", &[4], Dtype::F32, Role::Buffer),
        tensor("bn.running_var", &[4], Dtype::F16, Role::Buffer),
        tensor("conv.weight", &[4, 3, 3], Dtype::Bf16, Role::Trained),
        tensor("seen", &[2], Dtype::I32, Role::Counter),
    ];
    Arc::new(Layout::of(tensors).unwrap())
}

/// A frame of [`with_roles`], and the state with that frame pending.
fn roles() -> [Made; 2] {
    let layout = with_roles();
    let spec = from_toml(
        "default = { quantize = { dead_zone = { step = 0.5 } }, code = 'context' }
         small = { below = 10, use = { quantize = 'bf16' } }
         memory = 'error-feedback'",
    );
    let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
    let mut values = values(layout.len(), 0);
    values[layout.counters()].copy_from_slice(&[20.0, 1.0, 16_777_216.0]);
    let pending = encoder.encode(&mut values, UPDATE).unwrap();
    let mut state = Vec::new();
    encoder.save(Some(&pending), &mut state);
    let values = bits(&decode(&layout, &pending.frame));
    [(pending.frame, values.clone()), (state, values)]
}

#[test]
fn buffers_and_counters_of_a_stored_frame_are_read_whole() {
    let layout = with_roles();
    let read = |name| {
        let file = std::fs::read_to_string(path(name)).unwrap();
        let (bytes, values) = file.split_once("values").unwrap();
        (digits(bytes), digits(values))
    };
    let (frame, values) = read("roles");
    let decoded = decode(&layout, &frame);
    assert_eq!(decoded[layout.counters()], [20.0, 1.0, 16_777_216.0]);
    assert_eq!(
        decoded[layout.buffers()],
        self::values(layout.len(), 0)[layout.buffers()]
    );
    let bytes: Vec<u8> = decoded.into_iter().flat_map(f32::to_le_bytes).collect();
    assert_eq!(bytes, values);
    let (state, _) = read("state-roles");
    let spec = from_toml("memory = 'error-feedback'\ndefault = {}");
    let (encoder, pending) = Encoder::load(Arc::clone(&layout), &spec, &state).unwrap();
    assert_eq!(pending.unwrap().frame, frame);
    let residual = encoder.residual().unwrap();
    assert!(residual[layout.trained()].iter().any(|&value| value != 0.0));
    assert!(residual[layout.trained().end..].iter().all(|&value| value == 0.0));
}

/// A frame encoded against the frame of `bf16` as its predictor.
fn against_a_predictor() -> Made {
    let layout = layout(&FRAMES[0]);
    let (predictor, _) = written(&FRAMES[0]);
    let predictor = Frame::parse(&predictor, &layout).unwrap();
    let spec = from_toml("memory = 'cafe'\ndefault = { quantize = { uniform = 2 } }");
    let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
    let pending = encoder
        .encode_against(Some(&predictor), &mut values(48, 1), UPDATE)
        .unwrap();
    assert_eq!(
        Frame::parse(&pending.frame, &layout).unwrap().predictor(),
        Some(predictor.id())
    );
    (pending.frame.clone(), bits(&decode(&layout, &pending.frame)))
}

/// A component `(3, 0, 4) (0, 2, 0)^T / 2` and its remainder, assembled by hand: the encoder does not look for
/// components in so small a matrix.
fn components() -> (Arc<Layout>, Vec<u8>, Vec<u32>) {
    let layout = Arc::new(Layout::new([("weight", vec![3, 3])]).unwrap());
    let rest = [0.5, 0.0, 0.0, 0.0, -0.25, 0.0, 0.0, 1.0, 0.125];
    let values = [0.5, 3.0, 0.0, 0.0, -0.25, 0.0, 0.0, 5.0, 0.125];
    let planes: Vec<u8> = [3.0f32, 0.0, 4.0, 0.0, 2.0, 0.0]
        .into_iter()
        .chain(rest)
        .flat_map(f32::to_le_bytes)
        .collect();
    let frame = encode(
        &layout,
        &Method {
            reduce: top_k(0.5),
            ..Method::default()
        },
        &[0.0; 9],
    )
    .frame;
    let frame = reseal([&frame[..34], &[3, 3, 1], &planes, &[0; 4]].concat());
    (layout, frame, bits(&values))
}

/// A model update that rounds the model, and the model rounded by it; the snapshot of that model, and its values.
fn rounded() -> [Made; 2] {
    let layout = layout(&FRAMES[0]);
    let spec = from_toml("default = { quantize = { dead_zone = { step = 0.3 } }, code = 'context' }");
    let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
    let given = EncodeOptions {
        rounding: Some(ModelRounding::try_from(9).unwrap()),
        ..EncodeOptions::default()
    };
    let header = FrameHeader {
        kind: FrameKind::ModelUpdate,
        ..UPDATE
    };
    let update = encoder.encode_with(given, &mut values(48, 0), header).unwrap().frame;
    let mut model = values(48, 1);
    Frame::parse(&update, &layout).unwrap().apply(&mut model).unwrap();
    let snapshot = rounded_snapshot(&layout, &model, 7, 1).unwrap();
    [(update, bits(&model)), (snapshot, bits(&model))]
}

#[test]
fn a_stored_model_update_rounds_to_these_values_and_a_stored_snapshot_has_them() {
    let layout = layout(&FRAMES[0]);
    for name in ["rounding", "rounded-snapshot"] {
        let file = std::fs::read_to_string(path(name)).unwrap();
        let (bytes, expected) = file.split_once("values").unwrap();
        let mut model = values(48, 1);
        let bytes = digits(bytes);
        Frame::parse(&bytes, &layout).unwrap().apply(&mut model).unwrap();
        let found: Vec<u8> = model.into_iter().flat_map(f32::to_le_bytes).collect();
        assert_eq!(found, digits(expected), "{name}");
    }
}

/// Name and content of each file.
fn all() -> Vec<(&'static str, Made)> {
    let made = FRAMES.iter().chain(STATES).map(|golden| (golden.name, written(golden)));
    let (_, frame, values) = components();
    let [with_roles, state] = roles();
    let [rounding, snapshot] = rounded();
    made.chain([
        ("roles", with_roles),
        ("state-roles", state),
        ("predictor", against_a_predictor()),
        ("components", (frame, values)),
        ("rounding", rounding),
        ("rounded-snapshot", snapshot),
        ("snapshot", exact_snapshot()),
    ])
    .collect()
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.hex"))
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits
        .as_bytes()
        .chunks(96)
        .map(|line| format!("{}\n", str::from_utf8(line).unwrap()))
        .collect()
}

fn text((bytes, values): &Made) -> String {
    let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    format!("{}values\n{}", hex(bytes), hex(&values))
}

/// The bytes of one part of a file; `#` starts a comment.
fn digits(text: &str) -> Vec<u8> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap());
    let digits: Vec<u8> = lines.flat_map(str::bytes).filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn encoders_write_these_bytes() {
    for (name, made) in all() {
        let file = std::fs::read_to_string(path(name))
            .unwrap_or_else(|error| panic!("{name}: {error}; write the file with the ignored test `write_new_files`"));
        assert_eq!(file, text(&made), "{name}");
        assert_eq!(made.0[4..6], [1, 0], "{name}");
    }
}

#[test]
fn these_bytes_decode_to_these_values() {
    for golden in FRAMES.iter().chain(STATES).chain([&of("predictor", "", MATRIX)]) {
        let file = std::fs::read_to_string(path(golden.name)).unwrap();
        let (bytes, values) = file.split_once("values").unwrap();
        let (mut bytes, layout) = (digits(bytes), layout(golden));
        if golden.name.starts_with("state") {
            let (encoder, pending) = Encoder::load(Arc::clone(&layout), &from_toml(golden.spec), &bytes).unwrap();
            let mut again = Vec::new();
            encoder.save(pending.as_ref(), &mut again);
            assert_eq!(again, bytes, "{}", golden.name);
            bytes = pending.unwrap().frame;
        }
        let decoded: Vec<u8> = decode(&layout, &bytes).into_iter().flat_map(f32::to_le_bytes).collect();
        assert_eq!(decoded, digits(values), "{}", golden.name);
    }
}

#[test]
fn components_are_added_to_what_they_leave() {
    let (layout, frame, values) = components();
    assert_eq!(bits(&decode(&layout, &frame)), values);
}

#[test]
fn each_frame_is_of_the_recipe_that_was_asked_for() {
    for golden in FRAMES {
        let (layout, method) = (layout(golden), from_toml(golden.spec).default);
        let (bytes, _) = written(golden);
        let frame = Frame::parse(&bytes, &layout).unwrap();
        let recipe = frame.sections().next().unwrap().recipe;
        assert!(!recipe.is_lossless(), "{}", golden.name);
        assert_eq!(
            format!("{:?}", recipe.code),
            format!("{:?}", method.code),
            "{}",
            golden.name
        );
    }
}

/// Reducers that share a form share a file.
#[test]
fn every_method_of_the_tables_has_a_file() {
    let recipe = |frame: &[u8], layout: &Layout| {
        let recipe = Frame::parse(frame, layout).unwrap().sections().next().unwrap().recipe;
        // The numbers of a form follow its name.
        let form = format!("{:?}", recipe.reduce);
        (
            form.split(" [").next().unwrap().to_owned(),
            recipe.quantize.name().to_owned(),
        )
    };
    let (reduced, quantized): (Vec<_>, Vec<_>) = FRAMES
        .iter()
        .map(|golden| recipe(&written(golden).0, &layout(golden)))
        .unzip();
    let layout = layout(&FRAMES[0]);
    let of = |slot: &str, text: &str| {
        let spec = from_toml(&format!("default = {{ {slot} = {text} }}"));
        recipe(&encode(&layout, &spec.default, &values(48, 0)).frame, &layout)
    };
    for method in fl_compress::reducers() {
        for text in method.examples {
            let (form, _) = of("reduce", text);
            assert!(reduced.contains(&form), "add `{}` to the list FRAMES", method.name);
        }
    }
    for method in fl_compress::quantizers() {
        let name = method.name.to_owned();
        assert!(quantized.contains(&name), "add `{name}` to the list FRAMES");
    }
}

/// `bias` in half precision, of `weight` the largest quarter in 4 bits.
const EXAMPLE: Golden = of(
    "update",
    "memory = 'error-feedback'
     default = { reduce = { top_k = 0.25 }, quantize = { uniform = 4 } }
     [[rules]]
     when = { max_dims = 1 }
     use = { quantize = 'half' }",
    &[("bias", &[3]), ("weight", &[4, 4])],
);
const UPDATE_FILE: &str = include_str!("../golden/update.hex");
const STATE_FILE: &str = include_str!("../golden/state.hex");

/// Three values for `bias`, sixteen for `weight`.
fn example_values() -> Vec<f32> {
    let weight = (0..16).map(|i| (i * 5 % 16) as f32 - 7.5);
    [0.5, -0.25, 0.125].into_iter().chain(weight).collect()
}

fn exact_snapshot() -> Made {
    let values = example_values();
    (snapshot(&layout(&EXAMPLE), &values, 9).unwrap(), bits(&values))
}

#[test]
fn the_example_of_the_format_document_has_these_bytes() {
    let (layout, spec) = (layout(&EXAMPLE), from_toml(EXAMPLE.spec));
    let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
    let pending = encoder.encode(&mut example_values(), UPDATE).unwrap();
    assert_eq!(hex(&pending.frame), hex(&digits(UPDATE_FILE)));
    let mut expected = [0.0; 19];
    expected[..3].copy_from_slice(&[0.5, -0.25, 0.125]);
    for (index, value) in [(0, -7.5), (3, 7.5), (6, 6.0 / 7.0 * 7.5), (13, -6.0 / 7.0 * 7.5)] {
        expected[3 + index] = value;
    }
    assert_eq!(decode(&layout, &pending.frame), expected);

    let mut state = Vec::new();
    encoder.save(Some(&pending), &mut state);
    assert_eq!(hex(&state), hex(&digits(STATE_FILE)));
    let (loaded, restored) = Encoder::load(layout, &spec, &digits(STATE_FILE)).unwrap();
    assert_eq!(restored, Some(pending));
    assert_eq!(loaded.residual(), encoder.residual());

    let document = include_str!("../../../docs/reference/format.md");
    assert!(
        document.contains(UPDATE_FILE),
        "docs/reference/format.md does not contain\n{UPDATE_FILE}"
    );
}

/// Writes missing files; never changes existing ones.
#[test]
#[ignore = "writes into the source tree; run it after adding to the lists above"]
fn write_new_files() {
    for (name, made) in all().into_iter().filter(|(name, _)| !path(name).exists()) {
        std::fs::write(path(name), text(&made)).unwrap();
    }
}
