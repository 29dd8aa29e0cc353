//! Finds every line of a signed report whose seal does not hold.

use crate::signed::chain::{START, Seal, Sealer, content, split};
use crate::signed::error::VerifyError;
use crate::signed::format::{BEGINNING, LAST, VERSION};
use crate::signed::place::{Change, Place, about};

/// Most places that are named.
const NAMED: usize = 8;

/// Checks by the first line that the file is a signed report of a known version.
pub(super) fn recognize(file: &[u8]) -> Result<(), VerifyError> {
    if file.is_empty() {
        return Err(VerifyError::NotSigned("it is empty"));
    }
    let first = file.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if first.ends_with(b"\"}\r") && first.starts_with(BEGINNING.as_bytes()) {
        return Err(VerifyError::NotSigned(
            "its line ends were converted to those of Windows",
        ));
    }
    if let Some(rest) = first.strip_prefix(BEGINNING.as_bytes()) {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let found = std::str::from_utf8(&rest[..digits])
            .ok()
            .and_then(|digits| digits.parse().ok());
        return match found {
            Some(found) if found != VERSION && rest.get(digits) == Some(&b',') && !is_ours(first, &rest[digits..]) => {
                Err(VerifyError::Version { found })
            }
            _ => Ok(()),
        };
    }
    // A damaged first line still ends in a seal, and a truncated one is still a prefix.
    if BEGINNING.as_bytes().starts_with(first) || split(first).is_some() {
        return Ok(());
    }
    Err(VerifyError::NotSigned("it does not begin with the header of one"))
}

/// Whether a first line was sealed with our version, so that only the version was changed.
fn is_ours(first: &[u8], after_version: &[u8]) -> bool {
    let ours = [BEGINNING.as_bytes(), VERSION.to_string().as_bytes(), after_version].concat();
    let seal = split(first).map(|(_, seal)| *seal);
    content(&ours).map(|content| Sealer::new().seal(&START, content)) == seal
}

/// The lines of a file without their line ends, and whether the last one has a line end.
fn split_lines(file: &[u8]) -> (impl Iterator<Item = &[u8]>, bool) {
    let body = file.strip_suffix(b"\n");
    (body.unwrap_or(file).split(|byte| *byte == b'\n'), body.is_some())
}

/// Checks every seal, and that the end is there. Returns the lines.
pub(super) fn sealed(file: &[u8]) -> Result<Vec<&[u8]>, VerifyError> {
    let (places, more) = broken(file);
    let (lines, ended) = split_lines(file);
    let (line, last) = lines
        .enumerate()
        .last()
        .map_or((0, &[][..]), |(at, last)| (at + 1, last));
    if !ended && more == 0 && places.iter().all(|place| place.line == line) {
        let missing = if split(last).is_some() {
            "its line end is"
        } else {
            "its rest is"
        };
        let replaced = last.split_last().is_some_and(|(_, before)| split(before).is_some());
        if !replaced {
            return Err(VerifyError::Truncated { line, missing });
        }
    }
    if !places.is_empty() {
        return Err(VerifyError::Edited { places, more });
    }
    if line <= LAST || !last.starts_with(br#"{"kind":"signature","#) {
        let missing = "the signature, which is the last line, is";
        return Err(VerifyError::Truncated { line, missing });
    }
    // Only now is the list built: sealed lines have a minimum length, which bounds their number.
    Ok(split_lines(file).0.collect())
}

/// Finds the lines whose seals do not hold: the first of them, and the number of the rest.
fn broken(file: &[u8]) -> (Vec<Place>, usize) {
    const NO_OTHERS: [(Option<Seal>, Change); 2] = [(None, Change::Seal), (None, Change::Foreign)];
    let sealer = Sealer::new();
    let mut places = Vec::<Place>::new();
    let mut more = 0;
    // Seals that a line may follow: that of the line before it; if that line is broken, also the seal that its bytes should
    // have, and the seal before it. Which of them matches tells what is wrong with the broken line.
    let mut stated = Some(START);
    let mut others = NO_OTHERS;
    let mut start = 0;
    let mut last: &[u8] = &[];
    for (at, line) in split_lines(file).0.enumerate() {
        let found = split(line);
        let follows = |before: &Seal| found.is_some_and(|(content, seal)| sealer.seal(before, content) == *seal);
        if stated.as_ref().is_some_and(follows) {
            others = NO_OTHERS;
        } else if let Some((_, change)) = others.iter().find(|(before, _)| before.as_ref().is_some_and(follows)) {
            let place = places.last_mut().filter(|place| place.line == at);
            if let Some(place) = place.filter(|place| place.change == Change::Content) {
                place.change = *change;
            }
            others = NO_OTHERS;
        } else {
            let before = stated.or(others[0].0);
            let proper = content(line).zip(before.as_ref());
            others[0].0 = proper.map(|(content, before)| sealer.seal(before, content));
            others[1].0 = before;
            if places.len() < NAMED {
                places.push(Place {
                    line: at + 1,
                    start,
                    end: start + line.len(),
                    about: about(line),
                    change: match found {
                        None => Change::Form,
                        Some(_) if last == line => Change::Doubled,
                        Some(_) => Change::Content,
                    },
                });
            } else {
                more += 1;
            }
        }
        stated = found.map(|(_, seal)| *seal);
        start += line.len() + 1;
        last = line;
    }
    (places, more)
}
