//! Every relative link of the docs leads to a file, every anchor to a heading, and every path in backquotes exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_link_leads_to_a_file_and_every_anchor_to_a_heading() {
    let mut pages = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut pages);
    assert!(pages.len() > 20, "{pages:?}");
    let mut broken = Vec::new();
    for page in &pages {
        for link in links(&fs::read_to_string(page).unwrap()) {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(path)
            };
            let has_anchor = || anchors(&fs::read_to_string(&target).unwrap()).contains(anchor);
            if !target.exists() || !(anchor.is_empty() || has_anchor()) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn every_path_in_the_docs_exists() {
    const FOLDERS: [&str; 10] = [
        "cli",
        "compress",
        "report",
        "proto",
        "fl-client",
        "fl-server",
        "fl-sim",
        "configs",
        "deploy",
        "docs",
    ];
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let is_path = |text: &&str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let first = text.split_once('/').map(|(folder, _)| folder);
        text.chars().all(plain) && !text.contains("NAME") && first.is_some_and(|folder| FOLDERS.contains(&folder))
    };
    let mut pages = vec![repository.join("README.md"), repository.join("CONTRIBUTING.md")];
    collect(&repository.join("docs"), &mut pages);
    let mut missing = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        let paths = prose(&text)
            .flat_map(|line| line.split('`').skip(1).step_by(2))
            .filter(is_path);
        let gone = paths.filter(|path| !repository.join(path).exists());
        missing.extend(gone.map(|path| format!("{}: {path}", page.display())));
    }
    assert!(missing.is_empty(), "paths that do not exist:\n{}", missing.join("\n"));
}

fn collect(folder: &Path, pages: &mut Vec<PathBuf>) {
    const SKIPPED: [&str; 4] = [".git", "target", "node_modules", "shared"];
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) {
            collect(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// Text outside of fenced and indented code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    page.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        fenced ^= is_fence;
        !(fenced || is_fence || line.starts_with("    "))
    })
}

fn links(page: &str) -> Vec<String> {
    let is_relative = |link: &&str| !link.contains("://") && !link.starts_with("mailto:") && !link.contains(' ');
    prose(page)
        .flat_map(|line| {
            line.split("](")
                .skip(1)
                .filter_map(|rest| Some(rest.split_once(')')?.0))
        })
        .filter(is_relative)
        .map(str::to_owned)
        .collect()
}

/// The anchors that GitHub derives from the headings of a page.
fn anchors(page: &str) -> BTreeSet<String> {
    let heading = |line: &str| {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    prose(page).filter(|line| line.starts_with('#')).map(heading).collect()
}
