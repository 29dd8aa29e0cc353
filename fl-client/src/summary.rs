//! One line for a text of several: the error of a trainer or a library becomes a part of a log line and of a message to the server.

/// Of a Python traceback the error and the innermost place in the user's own code; of another text its lines, joined, up to a
/// backtrace of Rust.
pub(crate) fn one_line(text: &str) -> String {
    let text = text.split("\n   0: ").next().unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    of_lines(&lines, lines.len())
}

/// As [`one_line`], of the `most` last lines if they are no traceback.
pub(crate) fn of_lines(lines: &[&str], most: usize) -> String {
    let last = lines.iter().skip(lines.len().saturating_sub(most));
    traceback(lines).unwrap_or_else(|| last.map(|line| line.trim()).collect::<Vec<_>>().join(" | "))
}

/// As [`one_line`]. A text of several lines is also written to the log as it is.
pub(crate) fn logged(text: &str) -> String {
    let short = one_line(text);
    if short != text.trim() {
        text.lines()
            .for_each(|line| tracing::info!(target: "fl_client::trainer", "{line}"));
    }
    short
}

/// The last Python traceback in `lines`: `NameError: name 'x' is not defined (train.py:16)`.
fn traceback(lines: &[&str]) -> Option<String> {
    let last = lines.iter().rposition(|line| place(line).is_some())?;
    // A message of several lines begins with the only one that has the error's type.
    let error = lines[last..].iter().find(|line| !line.starts_with([' ', '\t']))?;
    let begin = lines.iter().take(last).rposition(|line| line.starts_with("Traceback "));
    let places: Vec<(&str, &str)> = lines[begin.unwrap_or(0)..=last]
        .iter()
        .filter_map(|line| place(line))
        .collect();
    let own = places.iter().rev().find(|(file, _)| !is_library(file));
    let (file, line) = own.or(places.last())?;
    let file = file.rsplit('/').next().unwrap_or(file);
    Some(format!("{error} ({file}:{line})"))
}

/// File and line of `  File "/srv/train.py", line 16, in train`.
fn place(line: &str) -> Option<(&str, &str)> {
    let (file, rest) = line.trim_start().strip_prefix("File \"")?.split_once("\", line ")?;
    Some((file, rest.split(',').next()?))
}

/// Whether a file belongs to Python, an installed package or the package `fl`.
fn is_library(file: &str) -> bool {
    let parts = [
        "-packages/",
        "/lib/python",
        "/lib64/python",
        "/fl/__init__.py",
        "<frozen ",
    ];
    parts.iter().any(|part| file.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceback_is_its_error_and_the_innermost_place_in_the_users_script() {
        let text = r#"loading
Traceback (most recent call last):
  File "/srv/train.py", line 20, in <module>
    boom(job)
    ~~~~^^^^^
  File "/srv/boom.py", line 128, in boom
    loss = F.nll(x)
  File "/usr/lib/python3.12/site-packages/torch/nn/functional.py", line 3029, in nll
    return torch(x)
NameError: name 'x' is not defined
"#;
        assert_eq!(one_line(text), "NameError: name 'x' is not defined (boom.py:128)");
        let syntax = "  File \"train.py\", line 3\n    f(\n     ^\nSyntaxError: '(' was never closed";
        assert_eq!(one_line(syntax), "SyntaxError: '(' was never closed (train.py:3)");
    }

    #[test]
    fn of_chained_tracebacks_the_last_counts_and_of_a_long_message_the_first_line() {
        let text = "Traceback (most recent call last):\n  File \"/srv/a.py\", line 1, in f\nKeyError: 'w'\n\nDuring handling of the above \
                    exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \
                    \"/usr/lib/python3.12/json.py\", line 7, in g\nRuntimeError: size mismatch:\n\tfor fc.weight\n\tfor fc.bias";
        assert_eq!(one_line(text), "RuntimeError: size mismatch: (json.py:7)");
    }

    #[test]
    fn other_texts_are_joined_without_a_backtrace() {
        assert_eq!(
            one_line("Error in f(x)\n  Execution halted\n"),
            "Error in f(x) | Execution halted"
        );
        assert_eq!(
            one_line("matmul: shapes differ\n   0: tensor::error\n   1: main"),
            "matmul: shapes differ"
        );
        assert_eq!(one_line("one (a.py:1)"), "one (a.py:1)");
        assert_eq!(one_line(" \n"), "");
    }
}
