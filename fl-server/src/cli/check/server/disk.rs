//! The disk of the data folder: can be written, has room, and flushes fast enough.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use fl_cli::findings::Line;
use fl_cli::folder::{free, nearest, probe};

use crate::config::server::ServerConfig;

/// A flush that takes longer is worth a warning: an update is acknowledged after two.
const SLOW_FLUSH: Duration = Duration::from_millis(50);
/// Less free space is worth a warning.
const LITTLE: u64 = 1 << 30;
/// Flushes that are timed, and the bytes of each.
const FLUSHES: usize = 9;
const BYTES: usize = 4096;

pub(super) fn lines(config: &ServerConfig) -> Vec<Line> {
    let folder = nearest(&config.data);
    let data = config.data.display();
    let flushed = match flushes(&folder) {
        Ok(flushed) => flushed,
        Err(error) => {
            let text = format!("nothing can be written in {}: {error}", folder.display());
            let todo = "the user that runs the server must own the folder, or name another one with `data`";
            return vec![Line::wrong("data", text, todo)];
        }
    };
    let mut lines = vec![Line::good("data", format!("{data} can be written")), judged(flushed)];
    lines.push(match free(&folder) {
        Err(error) => Line::warning(
            "disk",
            format!("the free space of {data} is not known: {error}"),
            "make sure that there is room",
        ),
        Ok(free) if free < LITTLE => Line::warning(
            "disk",
            format!("{} MiB are free for {data}", free >> 20),
            "free some space, or name a folder on another disk with `data`: a full disk stops the server",
        ),
        Ok(free) => Line::good("disk", format!("{} MiB are free for {data}", free >> 20)),
    });
    lines
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct FlushTimes {
    median: Duration,
    longest: Duration,
}

/// Times writes of a file in `folder`, each with a flush, as the store and the blobs make them. The file is removed.
fn flushes(folder: &Path) -> io::Result<FlushTimes> {
    let path = probe(folder);
    let timed = File::options()
        .write(true)
        .create_new(true)
        .open(&path)
        .and_then(|mut file| {
            let mut times = [Duration::ZERO; FLUSHES];
            for time in &mut times {
                let begun = Instant::now();
                file.write_all(&[7; BYTES])?;
                file.sync_data()?;
                *time = begun.elapsed();
            }
            Ok(times)
        });
    let removed = fs::remove_file(&path);
    let mut times = timed?;
    removed?;
    times.sort_unstable();
    Ok(FlushTimes {
        median: times[FLUSHES / 2],
        longest: times[FLUSHES - 1],
    })
}

fn judged(flushed: FlushTimes) -> Line {
    let text = format!(
        "a flush takes {:.1} ms, the longest of {FLUSHES} {:.1} ms",
        flushed.median.as_secs_f64() * 1000.0,
        flushed.longest.as_secs_f64() * 1000.0
    );
    if flushed.median > SLOW_FLUSH {
        let todo = "put `data` on a faster disk: each update waits for flushes";
        return Line::warning("flush", text, todo);
    }
    Line::good("flush", text)
}

#[cfg(test)]
mod tests {
    use fl_cli::findings::Level;

    use super::*;

    #[test]
    fn slow_flushes_are_a_warning_and_a_single_slow_one_is_none() {
        let of = |median, longest| {
            judged(FlushTimes {
                median: Duration::from_millis(median),
                longest: Duration::from_millis(longest),
            })
        };
        assert_eq!(of(3, 80).level, Level::Good);
        let line = of(51, 80);
        assert!(
            line.level == Level::Warning && line.text.contains("takes 51.0 ms, the longest of 9 80.0 ms"),
            "{line:?}"
        );
    }

    #[test]
    fn flushes_are_timed_and_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let flushed = flushes(folder.path()).unwrap();
        assert!(Duration::ZERO < flushed.median && flushed.median <= flushed.longest);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        assert!(flushes(Path::new("/proc/self")).is_err());
    }
}
