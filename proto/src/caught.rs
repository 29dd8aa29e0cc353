//! Panics of libraries that read files of users, as errors.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    // Whether a panic of this thread is an error that somebody else reports.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// What `read` returns, or the first line of its panic, of which the panic hook prints nothing.
///
/// # Errors
/// If `read` panics.
pub fn caught<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !CAUGHT.get() {
                print(info);
            }
        }));
    });
    let outer = CAUGHT.replace(true);
    // What a library leaves behind in the middle of a change is not looked at again: the caller gets an error alone.
    let result = panic::catch_unwind(AssertUnwindSafe(read));
    CAUGHT.set(outer);
    result.map_err(|panic| {
        let text = panic.downcast::<String>().map(|text| *text);
        let text = text.or_else(|other| other.downcast::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_else(|_| "a panic without a text".to_owned());
        text.lines().next().unwrap_or_default().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_first_line_and_does_not_silence_later_ones() {
        let name = "map";
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(caught::<()>(|| panic!("no {name}\nat 1")), Err("no map".to_owned()));
        assert_eq!(caught::<()>(|| panic!("no map")), Err("no map".to_owned()));
        let other = caught::<()>(|| panic::panic_any(7));
        assert_eq!(other, Err("a panic without a text".to_owned()));
        assert_eq!(caught(|| caught::<()>(|| panic!("inner"))), Ok(Err("inner".to_owned())));
        assert!(!CAUGHT.get());
    }
}
