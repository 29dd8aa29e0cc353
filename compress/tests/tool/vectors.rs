//! `FL_COMPRESS_SIMD=baseline`: frames and decoded values have the same bits without the processor's vector instructions.

use crate::*;

/// Components of a matrix, and heavy-tailed values around them.
fn update() -> Vec<f32> {
    let wave = |at: usize| ((at % 100) as f32 * 0.3).sin() * ((at / 100) as f32 * 0.7).cos() * 9.0;
    let values = values(3).into_iter().enumerate();
    values.map(|(at, value)| value + wave(at)).collect()
}

#[test]
fn frames_and_values_do_not_depend_on_vector_instructions() {
    let place = Place::new();
    place.write_values("update.safetensors", &update());
    let specs = [
        ("default.toml", "budget = '1.5 bits'"),
        ("fine.toml", "budget = '6 bits'"),
        ("plain.toml", "default = { quantize = 'dead_zone', code = 'rans' }"),
        (
            "low.toml",
            "default = { reduce = { low_rank = 3 }, quantize = { uniform = 6 } }",
        ),
    ];
    for (name, spec) in specs {
        place.write(name, spec.as_bytes());
        let run = |arguments: String, mode: &str| {
            let mut program = program(place.0.path(), &arguments);
            let output = program.env("FL_COMPRESS_SIMD", mode).output().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
        };
        for mode in ["baseline", "best"] {
            run(format!("encode --spec {name} update.safetensors {mode}.flz"), mode);
        }
        assert_eq!(place.read("baseline.flz"), place.read("best.flz"), "{name}");
        for mode in ["baseline", "best"] {
            run(format!("decode best.flz {mode}.safetensors"), mode);
        }
        assert_eq!(
            bits(&place.read_values("baseline.safetensors")),
            bits(&place.read_values("best.safetensors")),
            "{name}"
        );
    }
}
