//! Generates the reference pages of the configuration files from the comments in `configs/`. Tests of the crates that
//! read these files compare keys and defaults with the code.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const FILES: [&str; 4] = ["run", "server", "client", "costs"];
const COMMAND: &str = "UPDATE_DOCS=1 cargo test -p fl-report --test e2e configuration";

#[test]
fn the_reference_of_each_file_is_made_from_its_comments() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in FILES {
        let file = format!("{name}.toml");
        let text = fs::read_to_string(repository.join("configs").join(&file)).unwrap();
        let (path, page) = (format!("docs/reference/{name}-toml.md"), page(&file, &text));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(repository.join(&path), &page).unwrap();
        }
        let found = fs::read_to_string(repository.join(&path)).unwrap_or_default();
        assert!(
            found == page,
            "{path} is out of date; {COMMAND} rewrites it. It should be:\n{page}"
        );
    }
}

/// Keys with a common comment, each with its default.
#[derive(Default)]
struct Group {
    keys: Vec<(String, String)>,
    about: String,
}

fn page(file: &str, text: &str) -> String {
    let mut out = format!(
        "# {file}\n\n\
         <!-- Generated from configs/{file}: {COMMAND} -->\n"
    );
    let signal = text.contains(RESTART);
    let mut comment: Vec<&str> = Vec::new();
    let mut groups: Vec<Group> = Vec::new();
    for line in text.lines().chain([""]) {
        let bare = line.strip_prefix('#').unwrap_or(line).trim();
        if line.is_empty() && !comment.is_empty() {
            flush(&mut out, &mut groups, signal);
            let _ = write!(out, "\n{}\n", prose(&comment));
            comment.clear();
        } else if bare.starts_with('[') {
            flush(&mut out, &mut groups, signal);
            let _ = write!(out, "\n## `{bare}`\n");
            if !comment.is_empty() {
                let _ = write!(out, "\n{}\n", prose(&comment));
                comment.clear();
            }
        } else if let Some(key) = key(line) {
            if !comment.is_empty() || groups.is_empty() {
                groups.push(Group {
                    about: prose(&comment),
                    ..Group::default()
                });
                comment.clear();
            }
            groups.last_mut().unwrap().keys.push(key);
        } else if !line.is_empty() {
            comment.push(line.strip_prefix('#').unwrap());
        }
    }
    flush(&mut out, &mut groups, signal);
    out
}

/// Key and default of a line. A key without comment sign is required; a key indented after its `#` has no default.
fn key(line: &str) -> Option<(String, String)> {
    let rest = line.strip_prefix('#').unwrap_or(line);
    let (name, value) = rest.trim().split_once(" = ")?;
    let is_key = name
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.".contains(c));
    is_key.then(|| {
        let value = match line.starts_with('#') {
            false => format!("required, such as `{value}`"),
            true if rest.starts_with("  ") => format!("none; for example `{value}`"),
            true => format!("`{value}`"),
        };
        (name.to_owned(), value)
    })
}

/// The lines of a comment as one paragraph; an indented line is code and stays separate.
fn prose(lines: &[&str]) -> String {
    lines
        .iter()
        .fold(String::new(), |text, line| match line.strip_prefix("   ") {
            Some(code) => {
                let (code, note) = code
                    .split_once("      ")
                    .or(code.split_once("     "))
                    .unwrap_or((code, ""));
                format!("{text}<br>`{}` {}", code.trim(), note.trim())
                    .trim_end()
                    .to_owned()
            }
            None if text.is_empty() => line.trim().to_owned(),
            None if text.contains("<br>") => format!("{text}<br>{}", line.trim()),
            None => format!("{text} {}", line.trim()),
        })
}

/// What the comment of a key of server.toml says if a running server does not take over another value.
const RESTART: &str = "Takes a restart.";

/// `signal`: whether a column says what a running server does with another value.
fn flush(out: &mut String, groups: &mut Vec<Group>, signal: bool) {
    if groups.is_empty() {
        return;
    }
    out.push_str(match signal {
        true => "\n| key | default | at SIGHUP | meaning |\n|---|---|---|---|\n",
        false => "\n| key | default | meaning |\n|---|---|---|\n",
    });
    for Group { keys, about } in groups.drain(..) {
        let names: Vec<_> = keys.iter().map(|(name, _)| format!("`{name}`")).collect();
        let values: Vec<_> = keys.into_iter().map(|(_, value)| value).collect();
        let takes = match about.contains(RESTART) {
            _ if !signal => "",
            true => " | takes a restart",
            false => " | taken over",
        };
        let about = about.replace(RESTART, "");
        let row = format!(
            "| {} | {}{takes} | {} |",
            names.join("<br>"),
            values.join("<br>"),
            about.trim_end()
        );
        let _ = writeln!(out, "{}", row.replace("||", "\\|\\|"));
    }
}
