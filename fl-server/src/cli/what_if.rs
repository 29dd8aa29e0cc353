//! `fl-server report FED [RUN] --what-if SPEC.toml`: progress, and the answer as text or JSON.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use fl_cli::Format;
use fl_compress::Spec;

use crate::admin::socket::{Answer, Ask};
use crate::cli::failure::Failure;
use crate::cli::source;
use crate::config::server::ServerConfig;
use crate::reporting::what_if::text::{Took, text};
use crate::reporting::what_if::{WhatIfError, what_if};
use crate::server::allocator;

pub(super) fn run(
    config: &ServerConfig,
    run: Option<&str>,
    file: &Path,
    threads: Option<u16>,
    format: Format,
) -> Result<String, Failure> {
    let spec = spec(file)?;
    let ask = Ask::Frames {
        run: run.map(ToOwned::to_owned),
    };
    let Answer::Frames(stored) = source::ask(config, &ask)? else {
        return Err(source::unexpected().into());
    };
    let threads = match threads {
        Some(threads) => usize::from(threads),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    allocator::keep_large_buffers();
    let began = Instant::now();
    let mut bar = Bar::new();
    let answer = what_if(&config.data, &stored, &spec, threads, |done, total| {
        bar.show(done, total)
    });
    bar.clear();
    let answer = answer.map_err(|error| match error {
        WhatIfError::Spec(why) => Failure::usage(anyhow::anyhow!("spec {}: {why}", file.display())),
        WhatIfError::Stored(error) => error.into(),
        error @ WhatIfError::Failed(_) => error.into(),
    })?;
    let took = Took {
        threads,
        time: began.elapsed(),
    };
    Ok(match format {
        Format::Text => text(&answer, &file.display().to_string(), took),
        Format::Json => serde_json::to_string_pretty(&answer).context("the answer cannot be written as JSON")? + "\n",
    })
}

fn spec(file: &Path) -> Result<Spec, Failure> {
    let spec = toml::from_str(&source::text(file)?);
    spec.with_context(|| format!("spec {}", file.display()))
        .map_err(Failure::usage)
}

/// Progress on a terminal, once a second.
struct Bar {
    began: Instant,
    shown: Option<Instant>,
}

impl Bar {
    const SHOW_AFTER: Duration = Duration::from_secs(2);
    const INTERVAL: Duration = Duration::from_secs(1);

    fn new() -> Self {
        Self {
            began: Instant::now(),
            shown: None,
        }
    }

    fn show(&mut self, done: u64, total: u64) {
        let now = Instant::now();
        let spent = now - self.began;
        let due = self
            .shown
            .map_or(spent > Self::SHOW_AFTER, |shown| now - shown > Self::INTERVAL);
        if !due || !stderr().is_terminal() {
            return;
        }
        self.shown = Some(now);
        let left = spent.as_secs_f64() / done.max(1) as f64 * total.saturating_sub(done) as f64;
        // Best effort: stderr may be closed.
        let _ = write!(
            stderr(),
            "\r\x1b[Kwhat-if: {done} of {total} frames, about {left:.0} s left"
        );
    }

    fn clear(&mut self) {
        if self.shown.take().is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
