//! Checks the section of a program in `docs/reference/cli.md` against its `-h` output. The tests of the other programs
//! include this file.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/cli.md");

/// Compares the section `name` with the help of `program`; rewrites it if `UPDATE_DOCS` is set. Lists the subcommands
/// `without`, but does not describe them.
pub(crate) fn check(program: &str, name: &str, without: &[&str]) {
    let begin = format!("<!-- {name}: begin; generated, UPDATE_DOCS=1 cargo test -->\n");
    let end = format!("<!-- {name}: end -->");
    let page = fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(&begin).unwrap();
    let (found, after) = rest.split_once(&end).unwrap();
    let mut part = String::new();
    let top = Help::of(program, &[]);
    describe(&mut part, program, name, &[], &top, &top, without);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(Path::new(PAGE), format!("{before}{begin}{part}{end}{after}")).unwrap();
    } else {
        assert!(
            found == part,
            "the section `{name}` of docs/reference/cli.md is out of date; run this test with UPDATE_DOCS=1 to rewrite it. PlaneContext:\n{part}"
        );
    }
}

fn describe(out: &mut String, program: &str, name: &str, command: &[&str], top: &Help, help: &Help, without: &[&str]) {
    let title = [&[name], command].concat().join(" ");
    let level = if command.is_empty() { "##" } else { "###" };
    let _ = write!(out, "\n{level} {title}\n\n{}\n\n    {}\n", help.about, help.usage);
    let new = |(option, _): &&(String, String)| {
        let inherited = top.options.iter().any(|(known, _)| known == option);
        option != "-h, --help" && (command.is_empty() || !inherited)
    };
    let options: Vec<_> = help.arguments.iter().chain(help.options.iter().filter(new)).collect();
    table(out, "argument or option", &options);
    let commands: Vec<_> = help.commands.iter().filter(|(command, _)| command != "help").collect();
    table(out, "command", &commands);
    for (subcommand, _) in commands {
        let path = [command, &[subcommand]].concat();
        if !without.contains(&subcommand.as_str()) {
            describe(out, program, name, &path, top, &Help::of(program, &path), without);
        }
    }
    if command.is_empty() {
        out.push('\n');
    }
}

fn table(out: &mut String, title: &str, lines: &[&(String, String)]) {
    if lines.is_empty() {
        return;
    }
    let _ = write!(out, "\n| {title} | meaning |\n|---|---|\n");
    for (name, about) in lines {
        let row = format!("`{name}` | {about}")
            .replace("| ", "\0")
            .replace('|', "\\|")
            .replace('\0', "| ");
        let _ = writeln!(out, "| {row} |");
    }
}

/// The `-h` output of a command: one line per argument, option and subcommand.
#[derive(Default)]
struct Help {
    about: String,
    usage: String,
    arguments: Vec<(String, String)>,
    options: Vec<(String, String)>,
    commands: Vec<(String, String)>,
}

impl Help {
    fn of(program: &str, command: &[&str]) -> Self {
        let output = Command::new(program).args(command).arg("-h").output().unwrap();
        assert!(output.status.success(), "{command:?} -h: {}", output.status);
        let text = String::from_utf8(output.stdout).unwrap();
        let mut help = Self::default();
        let mut section = "";
        for line in text.lines() {
            if let Some(usage) = line.strip_prefix("Usage: ") {
                usage.clone_into(&mut help.usage);
                section = "";
            } else if ["Arguments:", "Options:", "Commands:"].contains(&line) {
                section = line;
            } else if line.is_empty() {
                section = "";
            } else if let Some(lines) = help.lines(section) {
                let (name, about) = line.trim().split_once("  ").unwrap_or((line.trim(), ""));
                lines.push((name.to_owned(), about.trim().to_owned()));
            } else if help.usage.is_empty() {
                let space = if help.about.is_empty() { "" } else { "\n" };
                help.about = format!("{}{space}{}", help.about, line.trim());
            }
        }
        help
    }

    fn lines(&mut self, section: &str) -> Option<&mut Vec<(String, String)>> {
        match section {
            "Arguments:" => Some(&mut self.arguments),
            "Options:" => Some(&mut self.options),
            "Commands:" => Some(&mut self.commands),
            _ => None,
        }
    }
}
