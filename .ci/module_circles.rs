//! Refuses circles: no two files of a crate may import each other, directly or through others, and no two top-level
//! modules of a crate either. Usage: `module_circles FOLDER..`, each the folder of a crate's root (`lib.rs` or `main.rs`).
//!
//! Reads `use` items and paths that begin with `crate`, `super`, `self` or a child module. A path points to the file that
//! defines what it names: re-exports are followed, except those with `*`. Tests (`#[cfg(test)]` and after, `tests.rs`) are
//! not read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

type Module = Vec<String>;
/// Each importing module, and what it imports: the module, and the last names of the paths.
type Graph = BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>;

fn main() -> ExitCode {
    let mut circles = 0;
    for folder in env::args().skip(1) {
        let mut files = BTreeMap::new();
        collect(Path::new(&folder), &Vec::new(), &mut files);
        let house = House::new(&files);
        let graph: Graph = files
            .iter()
            .map(|(module, text)| (module.clone(), house.imports(module, text)))
            .collect();
        circles += report(&folder, "files", &graph);
        circles += report(&folder, "top-level modules", &top_level(&graph));
    }
    if circles > 0 {
        eprintln!("{circles} circles: move what ties each into a module below its users");
        return ExitCode::FAILURE;
    }
    println!("ok: no circle of modules");
    ExitCode::SUCCESS
}

/// Finds the files of a crate, by module path; the root is the empty path.
fn collect(folder: &Path, module: &Module, files: &mut BTreeMap<Module, String>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.expect("a readable entry").path())
        .collect();
    entries.sort();
    let root = if folder.join("lib.rs").exists() { "lib" } else { "main" };
    for path in entries {
        let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() {
            // Another crate's root, or the folder of the programs.
            if module.is_empty() && (stem == "bin" || path.join("main.rs").exists()) {
                continue;
            }
            collect(&path, &child(module, &stem), files);
        } else if path.extension().is_some_and(|e| e == "rs") && stem != "tests" {
            let of = match (module.is_empty(), stem.as_str()) {
                (true, "lib" | "main") if stem == root => module.clone(),
                (true, "main") => continue,
                (false, "mod") => module.clone(),
                _ => child(module, &stem),
            };
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            files.insert(of, code(&text));
        }
    }
}

fn child(module: &Module, name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// The text without comments, and without its tests.
fn code(text: &str) -> String {
    let until = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
    let lines = text[..until]
        .lines()
        .map(|line| line.find("//").map_or(line, |at| &line[..at]));
    lines.collect::<Vec<_>>().join("\n")
}

/// The modules of a crate, and the names that each takes from others.
struct House {
    modules: BTreeSet<Module>,
    aliases: BTreeMap<(Module, String), Vec<String>>,
}

impl House {
    fn new(files: &BTreeMap<Module, String>) -> Self {
        let modules: BTreeSet<Module> = files.keys().cloned().collect();
        let mut aliases = BTreeMap::new();
        for (module, text) in files {
            for (path, alias) in paths(text).into_iter() {
                let (Some(full), Some(alias)) = (absolute(module, &path, &modules), alias) else {
                    continue;
                };
                // A path in an expression is no alias, but it names the same item or none.
                if full.len() > 1 && full[..full.len() - 1] != module[..] {
                    aliases.entry((module.clone(), alias)).or_insert(full);
                }
            }
        }
        Self { modules, aliases }
    }

    fn imports(&self, module: &Module, text: &str) -> BTreeMap<Module, BTreeSet<String>> {
        let mut found = BTreeMap::<Module, BTreeSet<String>>::new();
        for (path, _) in paths(text) {
            let Some(full) = absolute(module, &path, &self.modules) else {
                continue;
            };
            let (target, name) = self.definer(full);
            if target != *module {
                found.entry(target).or_default().insert(name);
            }
        }
        found
    }

    /// The file that defines what a path names, and the name that it has there.
    fn definer(&self, mut full: Vec<String>) -> (Module, String) {
        // A chain of re-exports is short.
        for _ in 0..8 {
            let depth = (0..=full.len())
                .rev()
                .find(|&n| self.modules.contains(&full[..n]))
                .unwrap_or(0);
            let Some(name) = full.get(depth) else {
                return (full, "*".to_owned());
            };
            let Some(real) = self.aliases.get(&(full[..depth].to_vec(), name.clone())) else {
                return (full[..depth].to_vec(), name.clone());
            };
            full = real.iter().cloned().chain(full[depth + 1..].iter().cloned()).collect();
        }
        panic!("re-exports without an end: {}", full.join("::"));
    }
}

/// A path from the root of the crate; `None` for a path that leads elsewhere.
fn absolute(module: &Module, path: &[String], modules: &BTreeSet<Module>) -> Option<Module> {
    let mut base = module.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => (base, rest) = (Vec::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|name| name == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        first if modules.contains(&child(module, first)) => {}
        _ => return None,
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// All paths of two names or more, with the trees of `use` items spread out, and the name that each brings into scope.
fn paths(text: &str) -> Vec<(Vec<String>, Option<String>)> {
    let bytes = text.as_bytes();
    let mut all = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let begins = is_name(bytes[at])
            && (at == 0 || !(is_name(bytes[at - 1]) || bytes[at - 1] == b':' || bytes[at - 1] == b'.'));
        if begins {
            at = tree(text, at, &Vec::new(), &mut all);
        } else {
            at += 1;
        }
    }
    all
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Reads one path, or a tree of them in braces, that begins at `at`; returns where it ends.
fn tree(text: &str, mut at: usize, prefix: &[String], all: &mut Vec<(Vec<String>, Option<String>)>) -> usize {
    let bytes = text.as_bytes();
    let mut path = prefix.to_vec();
    loop {
        let end = (at..bytes.len()).find(|&i| !is_name(bytes[i])).unwrap_or(bytes.len());
        if end > at {
            path.push(text[at..end].to_owned());
            at = end;
        }
        if !text[at..].starts_with("::") {
            break;
        }
        at += 2;
        if bytes.get(at) == Some(&b'{') {
            at += 1;
            while at < bytes.len() && bytes[at] != b'}' {
                at = if is_name(bytes[at]) {
                    tree(text, at, &path, all)
                } else {
                    at + 1
                };
            }
            return at + 1;
        }
    }
    // `self` in braces is the module before them.
    if path.len() > prefix.len() && !prefix.is_empty() && path.last().is_some_and(|name| name == "self") {
        path.pop();
    }
    let mut alias = path.last().cloned();
    if let Some(rest) = text[at..].strip_prefix(" as ") {
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        alias = Some(rest[..end].to_owned());
        at += " as ".len() + end;
    }
    if path.len() > 1 {
        all.push((path, alias));
    }
    at
}

/// The graph between the modules directly below the root; the root itself uses all of them and is left out.
fn top_level(graph: &Graph) -> Graph {
    let mut top = Graph::new();
    for (from, targets) in graph.iter().filter(|(from, _)| !from.is_empty()) {
        for (to, names) in targets.iter().filter(|(to, _)| !to.is_empty() && to[0] != from[0]) {
            let entry = top
                .entry(from[..1].to_vec())
                .or_default()
                .entry(to[..1].to_vec())
                .or_default();
            entry.extend(
                names
                    .iter()
                    .map(|name| format!("{} for {}::{name}", from.join("::"), to.join("::"))),
            );
        }
    }
    top
}

/// Prints each circle with the imports that tie it; returns how many there are.
fn report(crate_: &str, of: &str, graph: &Graph) -> usize {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> = graph.keys().map(|m| (m, reachable(graph, m))).collect();
    let mut seen = BTreeSet::new();
    let mut circles = 0;
    for module in graph.keys().filter(|m| reach[*m].contains(m)) {
        let circle: BTreeSet<&Module> = reach[module]
            .iter()
            .copied()
            .filter(|other| reach.get(other).is_some_and(|r| r.contains(module)))
            .collect();
        if !seen.insert(circle.clone()) {
            continue;
        }
        circles += 1;
        eprintln!("{crate_}: a circle of {} {of}", circle.len());
        for from in &circle {
            for (to, names) in graph[*from].iter().filter(|(to, _)| circle.contains(to)) {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                eprintln!("  {} -> {}: {}", name(from), name(to), names.join(", "));
            }
        }
    }
    circles
}

fn name(module: &Module) -> String {
    if module.is_empty() {
        "the root".to_owned()
    } else {
        module.join("::")
    }
}

fn reachable<'a>(graph: &'a Graph, from: &Module) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut todo: Vec<&Module> = graph.get(from).into_iter().flat_map(BTreeMap::keys).collect();
    while let Some(next) = todo.pop() {
        if found.insert(next) {
            todo.extend(graph.get(next).into_iter().flat_map(BTreeMap::keys));
        }
    }
    found
}
