//! Standard output and standard error of a trainer: lines for the client's log, at a limited rate. The pipes are always
//! read to their end, so that a trainer never blocks on printing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::clock::Clock;
use crate::summary;

/// Lines logged in a second.
const MAX_LINES: u32 = 100;
/// Longest line that is logged, in bytes.
const MAX_LINE: usize = 4 * 1024;
/// Last lines of standard error that are kept: the frames of a traceback.
const KEPT_LINES: usize = 60;
/// Last lines that an error shows if they are no traceback, and the bytes of an error's text.
const LAST_LINES: usize = 5;
const LAST_BYTES: usize = 700;
const READ_BUFFER: usize = 64 * 1024;

#[derive(Debug, Clone)]
pub(super) struct Output {
    clock: Clock,
    task: Arc<str>,
    shared: Arc<Mutex<PrintedLines>>,
}

#[derive(Debug, Default)]
struct PrintedLines {
    rate: Rate,
    last: VecDeque<String>,
}

impl Output {
    pub(super) fn new(task: &str, clock: Clock) -> Self {
        Self {
            clock,
            task: task.into(),
            shared: Arc::default(),
        }
    }

    /// Reads a stream to its end. `keep`: whether its last lines are kept for errors.
    pub(super) async fn read(self, mut stream: impl AsyncRead + Unpin, keep: bool) {
        let mut lines = Lines::default();
        let mut buffer = vec![0; READ_BUFFER];
        while let Ok(len @ 1..) = stream.read(&mut buffer).await {
            lines.push(&buffer[..len], |line| self.line(line, keep));
        }
        lines.finish(|line| self.line(line, keep));
        let left_out = self.printed().rate.take_left_out();
        self.say_left_out(left_out);
    }

    /// The traceback or the last lines of standard error as one line; empty if there was none.
    pub(super) fn last_lines(&self) -> String {
        let printed = self.printed();
        let lines: Vec<&str> = printed.last.iter().map(String::as_str).collect();
        let text = summary::of_lines(&lines, LAST_LINES);
        let mut from = text.len().saturating_sub(LAST_BYTES);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        text[from..].to_owned()
    }

    fn line(&self, line: Line<'_>, keep: bool) {
        let mut printed = self.printed();
        if keep && !line.text.is_empty() {
            if printed.last.len() == KEPT_LINES {
                printed.last.pop_front();
            }
            printed
                .last
                .push_back(String::from_utf8_lossy(line.text).trim_end().to_owned());
        }
        let admitted = printed.rate.admit(self.clock.now());
        drop(printed);
        let Some(left_out) = admitted else { return };
        self.say_left_out(left_out);
        let text = String::from_utf8_lossy(line.text);
        let cut = if line.cut { "..." } else { "" };
        tracing::info!(target: "fl_client::trainer", task = &*self.task, "{text}{cut}");
    }

    fn say_left_out(&self, lines: u64) {
        if lines > 0 {
            tracing::warn!(target: "fl_client::trainer", task = &*self.task, lines, "the trainer prints too fast; lines were left out");
        }
    }

    fn printed(&self) -> MutexGuard<'_, PrintedLines> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Admits [`MAX_LINES`] lines in each second and counts the others.
#[derive(Debug, Default)]
struct Rate {
    second: u64,
    admitted: u32,
    left_out: u64,
}

impl Rate {
    /// Whether to log a line now; then also how many lines before it were left out.
    fn admit(&mut self, now: Duration) -> Option<u64> {
        if now.as_secs() != self.second {
            (self.second, self.admitted) = (now.as_secs(), 0);
        }
        if self.admitted == MAX_LINES {
            self.left_out += 1;
            return None;
        }
        self.admitted += 1;
        Some(self.take_left_out())
    }

    fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }
}

/// A line without its end, cut after [`MAX_LINE`] bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line<'a> {
    text: &'a [u8],
    cut: bool,
}

/// Splits bytes into lines. A carriage return starts the line again, as it does on a terminal: of a progress bar, the last
/// state remains.
#[derive(Debug, Default)]
struct Lines {
    line: Vec<u8>,
    cut: bool,
    returned: bool,
}

impl Lines {
    fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(Line<'_>)) {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.returned) && bytes[0] != b'\n' {
                self.line.clear();
                self.cut = false;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let text = &bytes[..end.unwrap_or(bytes.len())];
            let space = MAX_LINE - self.line.len();
            self.cut |= text.len() > space;
            self.line.extend_from_slice(&text[..text.len().min(space)]);
            let Some(end) = end else { return };
            if bytes[end] == b'\r' {
                self.returned = true;
            } else {
                self.finish_line(&mut each);
            }
            bytes = &bytes[end + 1..];
        }
    }

    fn finish(&mut self, mut each: impl FnMut(Line<'_>)) {
        if !self.line.is_empty() {
            self.finish_line(&mut each);
        }
    }

    fn finish_line(&mut self, each: &mut impl FnMut(Line<'_>)) {
        each(Line {
            text: &self.line,
            cut: self.cut,
        });
        self.line.clear();
        self.cut = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<(Vec<u8>, bool)> {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for chunk in chunks {
            lines.push(chunk, |line| out.push((line.text.to_vec(), line.cut)));
        }
        lines.finish(|line| out.push((line.text.to_vec(), line.cut)));
        out
    }

    #[test]
    fn lines_are_whole_whatever_the_chunks_and_a_progress_bar_is_its_last_state() {
        let text: &[u8] = b"one\r\ntwo\n\n10%\r20%\r100%\nlast";
        let expected = ["one", "two", "", "100%", "last"].map(|line| (line.as_bytes().to_vec(), false));
        for size in 1..text.len() {
            let chunks: Vec<&[u8]> = text.chunks(size).collect();
            assert_eq!(lines(&chunks), expected, "{size}");
        }
    }

    #[test]
    fn long_lines_are_cut() {
        let long = [b"x".repeat(3 * MAX_LINE), b"\nshort\n".to_vec()].concat();
        let found = lines(&[&long[..100], &long[100..]]);
        assert_eq!((found[0].0.len(), found[0].1), (MAX_LINE, true));
        assert_eq!(found[1], (b"short".to_vec(), false));
    }

    #[test]
    fn a_hundred_lines_a_second_are_logged_and_the_others_counted() {
        let mut rate = Rate::default();
        let second = Duration::from_secs(1);
        let logged = (0..1000).filter(|_| rate.admit(Duration::ZERO).is_some()).count();
        assert_eq!(logged, 100);
        assert_eq!((rate.admit(second), rate.admit(second)), (Some(900), Some(0)));
    }

    #[tokio::test]
    async fn the_last_lines_are_kept_within_a_bound() {
        let output = Output::new("t", Clock::system());
        let printed: String = (0..1000).map(|at| format!("line {at}\n")).collect();
        output.clone().read(printed.as_bytes(), true).await;
        assert_eq!(
            output.last_lines(),
            "line 995 | line 996 | line 997 | line 998 | line 999"
        );
        let traceback = "Traceback (most recent call last):\n  File \"/srv/train.py\", line 7, in <module>\n    go()\nOSError: no camera\n";
        output.clone().read(traceback.as_bytes(), true).await;
        assert_eq!(output.last_lines(), "OSError: no camera (train.py:7)");
        let output = Output::new("t", Clock::system());
        let wide = "\u{e9}".repeat(5000);
        output.clone().read(wide.as_bytes(), true).await;
        assert!(output.last_lines().len() <= LAST_BYTES);
    }
}
