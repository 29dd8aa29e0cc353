//! `unmetered`: NetworkManager does not know the connection with the default route as metered.

use std::process::Command;
use std::time::Duration;

use super::super::program::{self, Output};
use super::super::reading::Reading;
use super::source::{Context, Source};

pub(crate) const KEY: &str = "unmetered";

pub(super) const SOURCE: Source = Source::new(KEY, |when| when.unmetered, read);

const ROUTES: &str = "proc/net/route";
const LIMIT: Duration = Duration::from_secs(5);
/// Before the answer, `yes`, `no (guessed)` or `unknown`.
const FIELD: &str = "GENERAL.METERED:";

fn read(context: &mut Context<'_>) -> Result<Reading, String> {
    let surroundings = &context.when.surroundings;
    let device =
        default_device(&surroundings.text(ROUTES)?).ok_or_else(|| format!("/{ROUTES} has no default route"))?;
    let mut command = Command::new(&surroundings.nmcli);
    command.args(["-t", "-f", "GENERAL.METERED", "device", "show", device.as_str()]);
    command.env("LC_ALL", "C");
    let ended = program::run(command, Output::Read, LIMIT)?;
    let answer = ended.output.lines().find_map(|line| line.trim().strip_prefix(FIELD));
    match answer.map(str::trim) {
        Some("yes" | "yes (guessed)") => Ok(Reading::Fails(format!("{device} is metered"))),
        Some("no" | "no (guessed)") => Ok(Reading::Holds(format!("{device} is not metered"))),
        _ => Err(format!("NetworkManager does not know whether {device} is metered")),
    }
}

fn default_device(routes: &str) -> Option<String> {
    let defaults = routes.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let device = fields.first()?;
        let to = fields.get(1)?;
        let metric = fields.get(6)?;
        let mask = fields.get(7)?;
        let is_default = *to == "00000000" && *mask == "00000000";
        // A name that begins with a dash would be an option.
        let is_name = !device.starts_with('-') && device.len() < 16;
        (is_default && is_name).then_some((metric.parse::<u64>().ok()?, *device))
    });
    defaults.min().map(|(_, device)| device.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::*;

    const HEAD: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n";

    fn reading(routes: &str, answer: &str) -> Reading {
        let root = fake::root(&[(ROUTES, routes), ("answer", answer)]);
        // Written by another process: a file that this one holds open for writing cannot be started.
        let script =
            r#"printf '%s\n' '#!/bin/sh' 'test "$6" = wlan0 && cat "${0%/*}/answer"' > nmcli && chmod +x nmcli"#;
        let written = Command::new("sh")
            .args(["-c", script])
            .current_dir(root.path())
            .status();
        assert!(written.unwrap().success());
        let mut when = fake::when(root.path());
        when.unmetered = true;
        fake::read(&SOURCE, &when)
    }

    fn wlan() -> String {
        format!(
            "{HEAD}wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
             wwan0\t00000000\t00000000\t0001\t0\t0\t700\t00000000\t0\t0\t0\n\
             wlan0\t0001A8C0\t00000000\t0001\t0\t0\t600\t00FFFFFF\t0\t0\t0\n"
        )
    }

    #[test]
    fn the_connection_with_the_default_route_counts() {
        for (answer, expected) in [
            ("GENERAL.METERED:no\n", Reading::Holds("wlan0 is not metered".into())),
            (
                "GENERAL.METERED:no (guessed)\n",
                Reading::Holds("wlan0 is not metered".into()),
            ),
            ("GENERAL.METERED:yes\n", Reading::Fails("wlan0 is metered".into())),
            (
                "GENERAL.METERED:yes (guessed)\n",
                Reading::Fails("wlan0 is metered".into()),
            ),
        ] {
            assert_eq!(reading(&wlan(), answer), expected, "{answer}");
        }
    }

    #[test]
    fn without_a_route_or_an_answer_the_source_is_missing() {
        for (routes, answer) in [
            (wlan(), "GENERAL.METERED:unknown\n"),
            (wlan(), ""),
            (HEAD.to_owned(), "GENERAL.METERED:no\n"),
            (String::new(), "GENERAL.METERED:no\n"),
            ("x\n-h 00000000 0 0 0 0 1 00000000\n".to_owned(), "GENERAL.METERED:no\n"),
            ("x\nwlan0 00000000\n".to_owned(), "GENERAL.METERED:no\n"),
        ] {
            assert!(matches!(reading(&routes, answer), Reading::Missing(_)), "{routes}");
        }
    }
}
