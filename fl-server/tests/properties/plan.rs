//! Parsing of run.toml, and its errors.

use std::path::Path;

use fl_compress::{Memory, Preset, Spec};
use fl_proto::Training;
use fl_server::model::Methods;
use fl_server::plan::{Cohort, MethodSpec, PlanError, RunPlan, Select};

use crate::contains::assert_contains;

const SMALL: &str = r#"
    name = "r"
    task = "t"
    rounds = 2
    model = "m.safetensors"
    [cohort]
    min = 2
    target = 3
"#;

fn refusal(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    RunPlan::from_toml(&SMALL.replacen(from, to, 1), Path::new(""))
        .unwrap_err()
        .to_string()
}

#[test]
fn a_small_file_gets_the_defaults() {
    let plan = RunPlan::from_toml(SMALL, Path::new("/runs")).unwrap();
    let (grace, deadline) = (10_000, 300_000);
    let cohort = Cohort {
        select: Select::Uniform,
        size: 3,
        min: 2,
        target: 3,
        grace,
        deadline,
        retries: 3,
        absent: 10_000,
        align: false,
    };
    assert_eq!(plan.cohort, cohort);
    assert_eq!(plan.model, Path::new("/runs/m.safetensors"));
    assert_eq!(plan.seed, 0);
    assert!(plan.evaluate);
    assert_eq!(plan.training, Training::default());
    assert_eq!(plan.optimizer.name(), "fedavg");
    assert_eq!(plan.optimizer.number("learning_rate"), 1.0);
    assert_eq!(plan.aggregator.name(), "mean");
    // Without `cohort.clients`, full participation is unknown.
    let compressed = |memory: Memory| Spec {
        memory,
        ..Spec::default()
    };
    let (cafe, feedback) = (compressed(Memory::Cafe), compressed(Memory::Auto.resolved(true)));
    assert_eq!((&plan.uplink, &plan.downlink), (&cafe, &feedback));
}

#[test]
fn the_shipped_file_parses_and_its_comments_are_the_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/run.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let shipped = RunPlan::from_toml(&text, Path::new("")).unwrap();
    // Uncommenting every commented key gives the same experiment.
    let lines: Vec<_> = text.lines().map(spoken).collect();
    let spoken_out = RunPlan::from_toml(&lines.join("\n"), Path::new("")).unwrap();
    assert_eq!(spoken_out, shipped);
    assert!(lines.len() > 20, "its defaults are written out");
    assert!(text.contains("# grace"), "its defaults are written out");
}

/// The line without its comment sign, if a table or a key is commented out.
fn spoken(line: &str) -> &str {
    let key = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    match line.strip_prefix("# ") {
        Some(rest) if rest.starts_with('[') || rest.split_once(" = ").is_some_and(|(name, _)| key(name)) => rest,
        _ => line,
    }
}

#[test]
fn refusals_name_key_value_and_rule() {
    let run = [
        ("ruonds = 3", "unknown field `ruonds`"),
        (
            "average = { last = 2 }\nevaluate = false",
            "`average = last=2`: needs `evaluate = true`",
        ),
        ("average = { last = 1 }", "`last` is 1"),
        ("average = { ema = 1.0 }", "`ema` is 1"),
        ("stop_at = 0.0", "`stop_at = 0`: must be above 0"),
        ("stop_at = 85.5", "`stop_at = 85.5`: must be above 0"),
        (
            "stop_at = 0.9\nevaluate = false",
            "`stop_at = 0.9`: needs `evaluate = true`",
        ),
        ("average = 5", "expected an average: { last = 5 }"),
    ];
    let cohort = [
        (
            "deadline = 20",
            "`cohort.deadline = 20`: must be a whole number with `ms`",
        ),
        ("size = 2", "`cohort.size = 2`: must be at least cohort.target, 3"),
        ("size = 200000", "`cohort.size = 200000`: must be at most 100000"),
        ("retries = 1001", "`cohort.retries = 1001`"),
        (
            "grace = \"10\"",
            "`cohort.grace = \"10\"`: must be a whole number with `ms`",
        ),
        ("deadline = \"0s\"", "`cohort.deadline = \"0s\"`: must be above 0"),
        ("select = \"random\"", "unknown variant `random`"),
        ("max = 2", "unknown field `max`"),
    ];
    let tables = [
        ("[train]\nspace = 100", "expected a space: { shared = 16000 }"),
        (
            "[optimizer]\nname = \"fedsgd\"",
            "`optimizer.name = fedsgd`: unknown optimizer `fedsgd`; there are: fedavg, fedavgm, ",
        ),
        (
            "[optimizer]\nname = \"fedavg\"\nlearning_rate = 0.0",
            "`optimizer.learning_rate = 0.0`: must be finite and above 0",
        ),
        ("clients = 0", "`cohort.clients = 0`: must be at least 1"),
        (
            "[compression.uplink]\nmemory = \"ef21\"",
            "`compression.uplink.memory = ef21`: the server would have to keep a vector of the model's size for every client",
        ),
        (
            "[compression.downlink]\nmemory = \"cafe\"",
            "`compression.downlink.memory = cafe`: model updates have no predictor",
        ),
        (
            "[compression.downlink]\nmemory = \"ef21\"",
            "`compression.downlink.memory = ef21`: ",
        ),
        (
            "[compression.downlink]\nmemory = { dgc = { momentum = 0.5 } }",
            "`compression.downlink.memory = dgc`: ",
        ),
        (
            "[compression.downlink]\ndefault = { reduce = { top_k = { density = { by = \"fisher\", form = \"gradients\" } } } }",
            "`compression.downlink = form = \"gradients\"`: chooses by squared gradients",
        ),
        ("[train]\nepochs = 0", "epochs"),
        ("[train]\nmomentum = 1.0", "momentum"),
        ("[compression.sidelink]", "unknown field `sidelink`"),
    ];
    for (key, lines) in [
        ("rounds = 2", &run[..]),
        ("min = 2", &cohort[..]),
        ("target = 3", &tables[..]),
    ] {
        for (more, expected) in lines {
            let text = refusal(key, &format!("{key}\n{more}"));
            assert!(text.contains(expected), "{more}: {text}");
        }
    }
    for (from, to, expected) in [
        ("rounds = 2", "rounds = 0", "`rounds = 0`: must be 1"),
        ("rounds = 2", "rounds = -1", "rounds"),
        ("rounds = 2", "", "missing field `rounds`"),
        (
            "rounds = 2",
            "rounds = 99999999999",
            "`rounds = 99999999999`: must be 1 to 10000000",
        ),
        ("\"r\"", "\"../r\"", "`name = ../r`"),
        ("\"t\"", "\"\"", "`task = `: must have 1 to 64 bytes"),
        ("\"m.safetensors\"", "\"\"", "`model = `"),
        ("min = 2", "min = 0", "`cohort.min = 0`: must be at least 1"),
        (
            "min = 2",
            "min = 4",
            "`cohort.target = 3`: must be at least cohort.min, 4",
        ),
    ] {
        let text = refusal(from, to);
        assert!(text.contains(expected), "{to}: {text}");
    }
    let error = RunPlan::from_toml("name = ", Path::new("")).unwrap_err();
    assert!(matches!(error, PlanError::Syntax(text) if text.contains("line 1")));
}

#[test]
fn the_identity_is_of_the_experiment_and_not_of_the_file() {
    let plan = |text: &str, base: &str| RunPlan::from_toml(text, Path::new(base)).unwrap();
    let digest = plan(SMALL, "/a").digest();
    let spelled = SMALL.replace(
        "target = 3",
        "target = 3\ngrace = \"10000ms\" # the same\n[optimizer]\nname='fedavg'",
    );
    assert_eq!(plan(&spelled, "/b").digest(), digest);
    let table = |keys: &str| {
        let table = format!("model = {{ weights = \"m.safetensors\", {keys} }}");
        plan(&SMALL.replace("model = \"m.safetensors\"", &table), "/a")
    };
    let served = table("serve_base = true");
    assert!(
        served.serve_base && served.digest() == digest,
        "where clients get the base from changes no result"
    );
    assert_ne!(table("frozen = [\"a*\"]").digest(), digest);
    for (from, to) in [("rounds = 2", "rounds = 3"), ("min = 2", "min = 1"), ("\"r\"", "\"q\"")] {
        assert_ne!(plan(&SMALL.replace(from, to), "/a").digest(), digest, "{to}");
    }
}

#[test]
fn auto_is_error_feedback_where_every_client_is_waited_for_and_cafe_where_not() {
    let plan = |clients: &str, uplink: &str| {
        let text = format!(
            "{}\n{clients}\n[compression.uplink]\nmemory = \"{uplink}\"\n[compression.downlink]\nmemory = \"auto\"",
            SMALL.trim_end()
        );
        RunPlan::from_toml(&text, Path::new("")).unwrap()
    };
    let feedback = Memory::ErrorFeedback {
        decay: Default::default(),
    };
    for (clients, memory) in [
        ("", Memory::Cafe),
        ("clients = 4", Memory::Cafe),
        ("clients = 3", feedback),
        ("clients = 2", feedback),
    ] {
        let auto = plan(clients, "auto");
        assert_eq!(auto.uplink.memory, memory, "{clients}");
        assert_eq!(auto.downlink.memory, feedback, "{clients}");
    }
    // Restarts compare plans by identity, which has the resolved value of `auto`.
    assert_eq!(plan("", "auto").digest(), plan("clients = 9", "cafe").digest());
    assert_eq!(
        plan("clients = 3", "auto").digest(),
        plan("", "error-feedback").digest()
    );
    assert_ne!(plan("clients = 3", "auto").digest(), plan("", "auto").digest());
    assert_eq!(plan("", "dgc").uplink.memory, toml_memory("dgc"));
}

fn toml_memory(name: &str) -> Memory {
    toml::from_str::<Spec>(&format!("memory = \"{name}\"")).unwrap().memory
}

#[test]
fn a_run_without_a_seed_has_that_of_its_first_weights_and_the_identity_that_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("init.safetensors");
    let write = |notes: &[(&str, &str)]| {
        let layout = fl_compress::Layout::new([("w", vec![2])]).unwrap();
        let notes = notes
            .iter()
            .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
            .collect();
        let bytes = fl_compress::weights::to_safetensors_with(&layout, &[1.0, 2.0], &[], &notes).unwrap();
        std::fs::write(&model, bytes).unwrap();
    };
    let load = |seed: &str| {
        let text = format!(
            "name = \"a\"\ntask = \"b\"\nrounds = 1\nmodel = \"init.safetensors\"\n{seed}\n[cohort]\nmin = 1\ntarget = 1\n"
        );
        RunPlan::load(&text, dir.path())
    };
    // The file is only needed without a seed: a started run continues without it.
    let missing = load("").unwrap_err().to_string();
    assert_contains(&missing, "init.safetensors is not there");
    assert_contains(&missing, "set `seed`");
    let given = load("seed = 42").unwrap();
    write(&[]);
    assert_eq!(load("").unwrap().digest(), load("seed = 0").unwrap().digest());
    write(&[("fl.seed", "42"), ("fl.learner", "mlp")]);
    let found = load("").unwrap();
    assert_eq!((found.seed, found.digest()), (42, given.digest()));
    // The stored text gives the same plan, even if the file of initial weights has moved.
    let stored = RunPlan::from_toml(&found.text.0, Path::new("")).unwrap();
    assert_eq!(stored.digest(), given.digest());
    assert_eq!(load("seed = 7").unwrap().seed, 7, "what is given stays");
}

/// Keys and values of a table of run.toml.
fn table(kind: &str, spec: &MethodSpec) -> String {
    let keys = spec
        .info()
        .keys
        .iter()
        .map(|key| format!("{} = {:?}\n", key.name, key.default));
    format!("[{kind}]\nname = \"{}\"\n{}", spec.name(), keys.collect::<String>())
}

/// Every method with the name of its table.
fn methods() -> Vec<(&'static str, MethodSpec)> {
    let methods = Methods::default();
    let optimizers = methods.optimizers().map(|spec| ("optimizer", spec));
    optimizers
        .chain(methods.aggregators().map(|spec| ("aggregator", spec)))
        .collect()
}

#[test]
fn every_method_is_read_from_its_table_and_refusals_name_key_and_range() {
    let exact = "[compression.uplink]\ndefault = {}\n";
    let read = |table: &str| RunPlan::from_toml(&format!("{SMALL}\n{exact}{table}"), Path::new(""));
    for (kind, spec) in methods() {
        let info = spec.info();
        let short = read(&format!("[{kind}]\nname = \"{}\"", info.name)).unwrap();
        let full = read(&table(kind, &spec)).unwrap();
        assert_eq!(full, short, "defaults are what the table says");
        let chosen = if kind == "optimizer" {
            &full.optimizer
        } else {
            &full.aggregator
        };
        assert_eq!(chosen, &spec);
        assert!(spec.bound(10).gain.is_finite() && spec.bound(10).constant.is_finite() && !info.about.is_empty());
        let refusal = |key: &str, value: &str| {
            let table = format!("[{kind}]\nname = \"{}\"\n{key} = {value}", info.name);
            read(&table).unwrap_err().to_string()
        };
        for key in info.keys {
            for value in ["-1.0", "nan", "inf", "-inf", "1e39"] {
                let text = refusal(key.name, value);
                assert!(text.starts_with(&format!("`{kind}.{}", key.name)), "{text}");
                assert_contains(&text, "must be ");
            }
            assert!(refusal(key.name, "\"a\"").contains("must be a number"));
            // Another value is another experiment.
            let other = read(&format!("[{kind}]\nname = \"{}\"\n{} = 0.125", info.name, key.name)).unwrap();
            assert_ne!(other.digest(), full.digest(), "{}", key.name);
        }
        let text = refusal("speed", "1");
        assert_contains(&text, &format!("{} has no such key; it has: ", info.name));
    }
    for kind in ["optimizer", "aggregator"] {
        let names: Vec<_> = methods()
            .into_iter()
            .filter(|(of, _)| *of == kind)
            .map(|(_, spec)| spec.name())
            .collect();
        let text = read(&format!("[{kind}]\nname = \"x\"")).unwrap_err().to_string();
        assert_contains(&text, &format!("unknown {kind} `x`; there are: {}", names.join(", ")));
        let text = read(&format!("[{kind}]")).unwrap_err().to_string();
        assert_contains(&text, &format!("must name an {kind}; there are: {}", names.join(", ")));
    }
}

/// The run.toml of docs/guide/local-training.md, and its other outer step.
#[test]
fn the_guide_to_many_local_steps_parses() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/local-training.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    let [sparseloco, nesterov] = blocks[..] else {
        panic!("two blocks of TOML, not {}", blocks.len());
    };
    let read = |text: &str| RunPlan::from_toml(text, Path::new("")).unwrap();
    let plan = read(sparseloco);
    assert_eq!(plan.uplink, Spec::preset(Preset::Sparseloco).unwrap());
    assert_eq!(plan.training.optimizer.name(), "adamw");
    assert_eq!(plan.optimizer.name(), "fedavg");
    assert_eq!(plan.training.state, fl_proto::StatePolicy::Kept);
    let (front, _) = sparseloco.split_once("[optimizer]").unwrap();
    let diloco = read(&format!("{front}{nesterov}"));
    let number = |key| diloco.optimizer.number(key);
    assert_eq!((number("learning_rate"), number("momentum")), (0.7, 0.9));
}

#[test]
fn the_trimmed_mean_is_refused_where_coordinates_are_left_out() {
    let read = |uplink: &str| {
        let text = format!("{SMALL}\n[aggregator]\nname = \"trimmed-mean\"\n[compression.uplink]\n{uplink}");
        RunPlan::from_toml(&text, Path::new("")).map_err(|e| e.to_string())
    };
    for (uplink, left_out) in [
        ("", "dead_zone"),
        ("default = { reduce = { top_k = 0.1 } }", "top_k"),
        ("default = { reduce = { random_k = 0.1 } }", "random_k"),
        ("default = { reduce = { threshold = 0.1 } }", "threshold"),
        ("default = { reduce = { count_sketch = 0.1 } }", "count_sketch"),
        ("default = { quantize = \"ternary\" }", "ternary"),
        (
            "default = {}\nsmall = { below = 9, use = { quantize = \"dead_zone\" } }",
            "dead_zone",
        ),
        (
            "default = {}\nrules = [{ when = { min_len = 2 }, use = { reduce = { top_k = 0.1 } } }]",
            "top_k",
        ),
    ] {
        let text = read(uplink).unwrap_err();
        let named = format!("`aggregator.name = trimmed-mean`: coordinates that `{left_out}` of compression.uplink");
        assert!(text.contains(&named), "{uplink}: {text}");
        assert!(text.contains("uniform = 8"), "{uplink}: {text}");
    }
    for uplink in [
        "default = {}",
        "default = { quantize = { uniform = 8 } }",
        "default = { quantize = \"half\", code = \"rans\" }",
        "default = { reduce = { low_rank = 2 } }",
        "default = { quantize = { rotated = 2 } }",
    ] {
        assert!(read(uplink).is_ok(), "{uplink}");
    }
}

#[test]
fn the_shipped_file_and_the_docs_have_every_method_with_its_defaults() {
    let read =
        |name: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).unwrap();
    let (shipped, docs) = (read("configs/run.toml"), read("docs/rounds.md"));
    let prose = shipped.replace("\n# ", " ");
    // Methods with the same description of a key share a sentence.
    let mut sentences: Vec<(String, Vec<&str>)> = Vec::new();
    for (kind, spec) in methods() {
        let info = spec.info();
        let expected = format!("\"{}\": {}.", info.name, info.about);
        assert!(
            prose.contains(&expected),
            "configs/run.toml does not say, in [{kind}]: {expected}"
        );
        let row = format!("| `{}` |", info.name);
        assert!(docs.contains(&row), "docs/rounds.md has no row {row}");
        for key in info.keys {
            let line = |indent: &str| shipped.contains(&format!("\n#{indent}{} = ", key.name));
            assert!(
                line(" ") || line("   "),
                "configs/run.toml has no key {} in [{kind}]",
                key.name
            );
            let text = format!("{}, {}, {:?} by default.", key.about, key.range, key.default);
            match sentences.iter_mut().find(|(known, _)| *known == text) {
                Some((_, names)) => names.push(info.name),
                None => sentences.push((text, vec![info.name])),
            }
        }
    }
    for (text, names) in sentences {
        let expected = format!("{}: {text}", names.join(", "));
        assert!(prose.contains(&expected), "configs/run.toml does not say: {expected}");
    }
}
