//! Checks `docs/reference/compressors.md`: its TOML parses, and the tests that it names exist.

use std::fs;
use std::path::Path;

use crate::*;

const DOCUMENT: &str = include_str!("../../../docs/reference/compressors.md");

/// Each line of a TOML block is a spec or part of a method.
#[test]
fn every_line_of_toml_in_the_document_parses() {
    let mut lines = 0;
    for block in DOCUMENT
        .split("```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.strip_prefix("toml\n"))
    {
        for line in block
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        {
            let spec = toml::from_str::<Spec>(line).map(drop);
            let method = toml::from_str::<Method>(line).map(drop);
            assert!(spec.is_ok() || method.is_ok(), "{line}\n{spec:?}\n{method:?}");
            lines += 1;
        }
    }
    assert!(lines > 20, "{lines}");
}

/// The document names each method of the tables, and the examples of each method parse.
#[test]
fn the_document_has_every_method_of_the_tables() {
    let reducers = reducers().map(|method| ("reduce", method));
    for (slot, method) in reducers.chain(quantizers().map(|method| ("quantize", method))) {
        assert!(
            DOCUMENT.contains(&format!("`{}`", method.name)),
            "{slot} {}",
            method.name
        );
        assert!(
            !method.about.is_empty() && !method.examples.is_empty(),
            "{}",
            method.name
        );
        for example in method.examples {
            let parsed = toml::from_str::<Method>(&format!("{slot} = {example}"));
            assert!(parsed.is_ok(), "{example}: {parsed:?}");
            assert!(example.contains(method.name), "{example} does not use {}", method.name);
        }
    }
    for memory in memories() {
        assert!(DOCUMENT.contains(&format!("`{}`", memory.name)), "{}", memory.name);
        assert!(!memory.about.is_empty() && !memory.examples.is_empty());
    }
    for rule in density_rules() {
        assert!(DOCUMENT.contains(&format!("`{}`", rule.name)), "{}", rule.name);
        assert!(!rule.about.is_empty() && !rule.examples.is_empty());
    }
    for code in Code::ALL {
        assert!(DOCUMENT.contains(&format!("`{}`", code.name())), "{code:?}");
    }
}

/// Names of five words or more in backquotes are names of tests.
#[test]
fn every_test_that_the_document_names_exists() {
    let mut sources = String::new();
    read(Path::new(env!("CARGO_MANIFEST_DIR")), &mut sources);
    let names = DOCUMENT.split('`').skip(1).step_by(2);
    let is_test =
        |name: &&str| name.split('_').count() >= 5 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let missing: Vec<&str> = names
        .filter(is_test)
        .filter(|name| !sources.contains(&format!("fn {name}(")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

fn read(folder: &Path, out: &mut String) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            read(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}
