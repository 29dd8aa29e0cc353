//! Every form of a spec, and what is refused.

use super::*;
use crate::layout::Layout;

fn refusal(text: &str) -> String {
    toml::from_str::<Spec>(text).unwrap_err().to_string()
}

#[test]
fn every_form_parses_and_round_trips() {
    for text in [
        "",
        "memory = 'none'",
        "memory = 'auto'",
        "memory = 'error-feedback'",
        "memory = { error-feedback = { decay = 0.95 } }",
        "memory = 'cafe'",
        "memory = ['cafe', 'error-feedback']",
        "memory = [{ error-feedback = { decay = 0.95 } }, 'cafe']",
        "memory = 'ef21'",
        "memory = 'dgc'",
        "memory = { dgc = { momentum = 0.5, clip = 3.0 } }",
        "budget = '200KiB'",
        "budget = '0.1 bits'",
        "budget = '0.1 bits, error 0.5'",
        "budget = '0.1 to 2 bits, error 0.5'",
        "budget = '0.1 to 2 bits'",
        "weight = 'fisher'",
        "weight = 4\nrules = [{ when = { name = '*.bias' }, weight = 'fisher' }, { when = {}, use = {}, weight = 0.5 }]",
        "default = {}",
        "default = { reduce = { top_k = 1 }, quantize = 'half', code = 'rans' }",
        "default = { reduce = { top_k = { density = 0.1, chunk = 4096 } }, code = 'auto' }",
        "default = { reduce = { random_k = 0.1 }, code = 'rice' }",
        "default = { reduce = { threshold = 0.001 }, code = 'huffman' }",
        "default = { reduce = { threshold = { sampled = 0.01 } } }",
        "default = { reduce = { low_rank = 4 }, code = 'context' }",
        "default = { reduce = { low_rank = { rank = 4, remainder = 0.001 } } }",
        "default = { reduce = { count_sketch = 0.1 } }",
        "default = { reduce = { count_sketch = { density = 0.1, rows = 3, top = 0.5 } } }",
        "default = { reduce = { projection = 0.1 } }",
        "default = { quantize = { uniform = 8 } }",
        "default = { quantize = { uniform = { bits = 1, rounding = 'stochastic', block = 64 } } }",
        "small = { below = 1024, use = { quantize = 'half' } }",
        "buffers = 'rounded'",
        "buffers = 'exact'",
        "rules = [{ when = { min_len = 2, max_len = 9, min_dims = 1, max_dims = 2, name = '*.bias' }, use = {} }]",
    ] {
        let spec: Spec = toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(
            toml::from_str::<Spec>(&toml::to_string(&spec).unwrap()),
            Ok(spec),
            "{text}"
        );
    }
    let spec = Spec::default();
    assert_eq!(toml::from_str::<Spec>(&toml::to_string(&spec).unwrap()), Ok(spec));
    assert_eq!(toml::from_str::<Spec>(""), Ok(Spec::default()));
    assert_eq!(toml::from_str::<Spec>("default = {}"), Ok(Spec::exact()));
    let tenth: Spec = toml::from_str("budget = '0.1 bits'").unwrap();
    assert_eq!(
        (tenth.budget, tenth.default),
        (Some(Budget::Bits(0.1)), Spec::default().default)
    );
    let faded: Spec = toml::from_str("memory = { error-feedback = { decay = 0.95 } }").unwrap();
    assert!(
        toml::to_string(&faded).unwrap().contains("decay = 0.95\n"),
        "the shortest decimal form"
    );
}

#[test]
fn a_preset_sets_what_no_other_key_names() {
    for &preset in Preset::ALL {
        let name = preset.name();
        let text = format!("preset = '{name}'");
        assert_eq!(toml::from_str::<Spec>(&text), Ok(Spec::preset(preset).unwrap()));
        let written = toml::to_string(&Spec::preset(preset).unwrap()).unwrap();
        assert_eq!(
            toml::from_str::<Spec>(&written),
            Ok(Spec::preset(preset).unwrap()),
            "{written}"
        );
    }
    let spec: Spec = toml::from_str("preset = 'sparseloco'\nmemory = 'cafe'").unwrap();
    assert_eq!((spec.memory, spec.budget), (Memory::Cafe, None));
    assert_eq!(spec.default, Spec::preset(Preset::Sparseloco).unwrap().default);
    assert!(refusal("preset = 'loco'").contains("`sparseloco`"));
}

#[test]
fn refusals_say_what_was_expected() {
    for (text, expected) in [
        ("defualt = {}", "unknown field `defualt`"),
        (
            "default = { reduce = { top_k = 0 } }",
            "a density must be above 0 and at most 1, not 0",
        ),
        (
            "default = { reduce = { top_k = 1.5 } }",
            "a density must be above 0 and at most 1, not 1.5",
        ),
        ("default = 3", "expected a table of reduce, quantize and code"),
        (
            "default = { reduce = 'topk' }",
            r#"string "topk", expected "keep", "auto" or one of { top_k,"#,
        ),
        (
            "default = { reduce = 'top_k' }",
            r#"string "top_k", expected "keep", "auto" or one of { top_k,"#,
        ),
        (
            "default = { reduce = 3 }",
            r#"integer `3`, expected "keep", "auto" or one of { top_k,"#,
        ),
        (
            "default = { reduce = { keep = 1 } }",
            r#"table with `keep`, expected "keep", "auto" or one of { top_k,"#,
        ),
        (
            "default = { reduce = { top_k = 1, k = 2 } }",
            "table with `k`, expected",
        ),
        ("default = { reduce = {} }", r#"map, expected "keep", "auto" or"#),
        ("default = { quantize = 4 }", r#"expected "exact", "half""#),
        (
            "default = { quantize = { uniform = 9 } }",
            "uniform takes 1 to 8 bits, not 9",
        ),
        ("default = { quantize = { uniform = -1 } }", "uniform takes 1 to 8 bits"),
        (
            "default = { quantize = { uniform = 'four' } }",
            "a number of bits from 1 to 8, or { bits",
        ),
        (
            "default = { quantize = { uniform = { bits = 4, block = 100 } } }",
            "a power of two from 16 to 65536",
        ),
        (
            "default = { quantize = { uniform = { bits = 4, size = 1 } } }",
            "unknown field `size`",
        ),
        ("default = { code = 'zip' }", "expected one of `pack`, `rans`, `rice`"),
        (
            "memory = 'momentum'",
            r#"expected "auto", "none", "error-feedback", "cafe", "cafe+error-feedback", "ef21", "dgc", { error-feedback = { decay = .. } }, { cafe+error-feedback = { decay = .. } } or { dgc = { momentum = .., clip = .. } }"#,
        ),
        (
            "memory = { error-feedback = { decay = 0 } }",
            "a decay must be above 0 and at most 1",
        ),
        (
            "memory = ['cafe', 'dgc']",
            r#"invalid value: sequence, expected "auto", "none","#,
        ),
        ("memory = ['error-feedback']", "invalid value: sequence, expected"),
        ("memory = []", "invalid value: sequence, expected"),
        (
            "memory = ['cafe', 'error-feeding']",
            r#"string "error-feeding", expected "auto""#,
        ),
        ("memory = { error-feedback = { decoy = 1 } }", "unknown field `decoy`"),
        (
            "rules = [{ when = { max_size = 3 }, use = {} }]",
            "unknown field `max_size`",
        ),
        ("rules = [{ use = {} }]", "missing field `when`"),
        (
            "rules = [{ when = { name = 'a' } }]",
            "a rule needs `use` (a codec), `weight`, or both",
        ),
        ("weight = 'entropy'", r#"a `weight` from 1e-6 to 1e6, or "fisher""#),
        ("weight = 0", "a `weight` must be from 1e-6 to 1e6, not 0"),
        ("weight = nan", "a `weight` must be from 1e-6 to 1e6, not NaN"),
        (
            "rules = [{ when = {}, weight = -2.5 }]",
            "a `weight` must be from 1e-6 to 1e6, not -2.5",
        ),
        (
            "default = {}\nrules = [{ when = {}, weight = 2 }]",
            "`weight` changes nothing without a budget",
        ),
        (
            "preset = 'exact'\nweight = 2",
            "`weight` changes nothing without a budget",
        ),
        (
            "memory = { dgc = { momentum = 1.0 } }",
            "a momentum must be at least 0 and below 1",
        ),
        (
            "memory = { dgc = { clip = 0.0 } }",
            "the norm `clip` must be positive and finite",
        ),
        ("budget = '200 apples'", r#"not "200 apples""#),
        ("budget = 200", "expected a budget such as"),
        (
            "default = { reduce = { threshold = 0 } }",
            "a threshold is a magnitude above 0",
        ),
        ("default = { reduce = { low_rank = 0 } }", "a rank is 1 to 1024, not 0"),
        (
            "default = { reduce = { low_rank = 1.5 } }",
            "a rank is 1 to 1024, not 1.5",
        ),
        (
            "default = { reduce = { count_sketch = { density = 0.1, rows = 4 } } }",
            "an odd number of rows",
        ),
        ("small = { use = {} }", "missing field `below`"),
        ("small = []", "expected a table of below and use"),
        (
            "rules = [{ when = [], use = {} }]",
            "expected a table of min_len, max_len",
        ),
        ("buffers = 'sparse'", "expected `exact` or `rounded`"),
    ] {
        let refusal = refusal(text);
        assert!(refusal.contains(expected), "{text}\n{refusal}");
    }
}

#[test]
fn a_spec_that_names_steps_has_no_budget_unless_it_says_so() {
    let budget = |text: &str| toml::from_str::<Spec>(text).unwrap().budget;
    let assumed = Spec::default().budget;
    for text in [
        "default = { quantize = { dead_zone = { step = 0.5 } } }",
        "rules = [{ when = {}, use = { quantize = { dead_zone = { step = 0.5 } } } }]",
        "rules = [{ when = { name = 'a' }, use = {} }, { when = {}, use = { reduce = { top_k = 0.01 } } }]",
        "small = { below = 9, use = { quantize = { dead_zone = { step = 0.5 } } } }",
    ] {
        assert_eq!(budget(text), None, "{text}");
        assert_eq!(
            budget(&format!("budget = '1 bits'\n{text}")),
            Some(Budget::Bits(1.0)),
            "{text}"
        );
    }
    for text in [
        "memory = 'none'",
        "rules = [{ when = { name = '*.running_*' }, use = {} }]",
        "rules = [{ when = {}, use = { quantize = 'dead_zone' } }]",
        "small = { below = 1024, use = { quantize = { uniform = 8 } } }",
    ] {
        assert_eq!(budget(text), assumed, "{text}");
    }
}

#[test]
fn buffers_are_rounded_with_a_budget_and_exact_without() {
    let buffers = |text: &str| toml::from_str::<Spec>(text).unwrap().buffers;
    for text in [
        "",
        "budget = '2 bits'",
        "default = {}\nbudget = '2 bits'",
        "preset = 'dgc'\nbudget = '2 bits'",
    ] {
        assert_eq!(buffers(text), BufferPrecision::Rounded, "{text}");
        let exact = buffers(&format!("buffers = 'exact'\n{text}"));
        assert_eq!(exact, BufferPrecision::Exact, "{text}");
    }
    for text in ["default = {}", "default = { quantize = 'sign' }", "preset = 'dgc'"] {
        assert_eq!(buffers(text), BufferPrecision::Exact, "{text}");
    }
}

#[test]
fn no_rule_applies_to_buffers_and_counters() {
    let layout = crate::layout::tests::batch_norm();
    for text in [
        "",
        "default = { reduce = { top_k = 0.1 } }",
        "default = {}\nrules = [{ when = {}, use = { quantize = 'sign' } }]",
        "small = { below = 1024, use = { quantize = { uniform = 2 } } }",
    ] {
        for precision in ["exact", "rounded"] {
            let spec: Spec = toml::from_str(&format!("buffers = '{precision}'\n{text}")).unwrap();
            let aside = |role| matches!(role, Role::Buffer | Role::Counter);
            for tensor in layout.tensors().iter().filter(|tensor| aside(tensor.role)) {
                let method = spec.method(tensor);
                let expected = (&ReduceSpec::Keep, QuantizeSpec::Exact);
                assert_eq!((&method.reduce, method.quantize), expected, "{text}");
            }
        }
    }
}

#[test]
fn the_first_rule_that_holds_wins() {
    let spec: Spec = toml::from_str(
        "default = { code = 'rans' }
         rules = [
             { when = { name = '*.bias' }, use = { quantize = 'half' } },
             { when = { max_len = 10 }, use = { reduce = { top_k = 0.5 } } },
         ]",
    )
    .unwrap();
    let layout = Layout::new([("a.bias", vec![4]), ("b", vec![2, 5]), ("c", vec![11])]).unwrap();
    let methods: Vec<&Method> = layout.tensors().iter().map(|tensor| spec.method(tensor)).collect();
    assert_eq!(
        methods,
        [
            spec.rules[0].method.as_ref().unwrap(),
            spec.rules[1].method.as_ref().unwrap(),
            &spec.default
        ]
    );
    let spec = Spec {
        small: Spec::default().small,
        ..spec
    };
    assert_eq!(
        spec.method(&layout.tensors()[0]).quantize,
        Spec::default().small.unwrap().method.quantize
    );
}
