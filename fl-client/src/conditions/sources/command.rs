//! `command`: a program of the operator's own that decides.

use std::process::Command;
use std::time::Duration;

use super::super::program::{self, Output};
use super::super::reading::Reading;
use super::source::{Context, Source};

pub(super) const SOURCE: Source = Source::new("command", |when| !when.command.is_empty(), read);

const LIMIT: Duration = Duration::from_secs(10);

fn read(context: &mut Context<'_>) -> Result<Reading, String> {
    let (name, arguments) = context.when.command.split_first().ok_or("`command` names no program")?;
    let folder = &context.when.surroundings.folder;
    // A relative path is one below the folder of client.toml, a bare name one of PATH.
    let mut command = if name.contains('/') {
        Command::new(std::path::absolute(folder.join(name)).unwrap_or_else(|_| folder.join(name)))
    } else {
        Command::new(name)
    };
    command.args(arguments).current_dir(folder);
    Ok(match program::run(command, Output::Ignored, LIMIT)?.code {
        Some(code) => Reading::of(code == 0, format!("{name} exits with code {code}")),
        None => Reading::Fails(format!("{name} was ended by a signal")),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::*;

    #[test]
    fn exit_code_0_allows_training() {
        let root = tempfile::tempdir().unwrap();
        let reading = |command: &[&str]| {
            let mut when = fake::when(root.path());
            when.command = command.iter().map(|&word| word.to_owned()).collect();
            fake::read(&SOURCE, &when)
        };
        assert_eq!(reading(&["true"]), Reading::Holds("true exits with code 0".into()));
        assert_eq!(
            reading(&["sh", "-c", "exit 3"]),
            Reading::Fails("sh exits with code 3".into())
        );
        assert!(matches!(reading(&["sh", "-c", "kill -9 $$"]), Reading::Fails(_)));
        let missing = reading(&["./may-i.sh"]);
        assert!(
            matches!(&missing, Reading::Missing(why) if why.contains("may-i.sh cannot be started")),
            "{missing:?}"
        );
        std::os::unix::fs::symlink("/bin/sh", root.path().join("may-i.sh")).unwrap();
        assert!(matches!(
            reading(&["./may-i.sh", "-c", "test -L may-i.sh"]),
            Reading::Holds(_)
        ));
    }
}
